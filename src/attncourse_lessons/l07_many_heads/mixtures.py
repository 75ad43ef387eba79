"""The diary with one head whose weights are fixed, and a readout with a hidden layer."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from attncourse.data.diary import MEALS


def fixed_weights(diary: type, hidden: int = 0, d_model: int = 32) -> nn.Module:
    """The lecture's `diary` of one head with weights of 0.7 on tomorrow and 0.3 on yesterday, and its readout."""

    class FixedWeights(diary):  # type: ignore[valid-type, misc]
        def __init__(self) -> None:
            super().__init__(nn.Linear(d_model, d_model, bias=False))            # W_V W_O
            if hidden:
                self.read = nn.Sequential(nn.Linear(d_model, hidden), nn.ReLU(), nn.Linear(hidden, 2 * len(MEALS)))

        def forward(self, days: Int[Tensor, "batch 7"], meals: Int[Tensor, "batch 7"]) -> Float[Tensor, "batch 7 2 m"]:
            later = (days[:, None] - days[:, :, None]) % 7                       # (batch, query, key)
            A = 0.7 * (later == 1) + 0.3 * (later == 6)                          # (batch, 7, 7)
            both: Tensor = self.read(self.layer(A @ (self.day(days) + self.meal(meals))))
            return both.unflatten(-1, (2, len(MEALS)))                           # (batch, 7, 2, meals)

    made: nn.Module = FixedWeights()
    return made
