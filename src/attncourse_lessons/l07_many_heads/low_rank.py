"""A head whose queries and keys are narrower than what it looks for, trained on weeks."""

import math

import torch
from torch import Tensor, nn

from attncourse.attention import attend
from attncourse.data.diary import MEALS, shuffled_weeks


def with_narrow_keys(
    d_k: int, seed: int, steps: int = 150, d_model: int = 32
) -> tuple[float, list[float], tuple[Tensor, Tensor]]:
    """Train one head with queries and keys of `d_k` numbers to name the next day's dinner.

    Returns the share of right answers in 2,000 new weeks, the share for each day, and the days' queries and keys,
    (7, d_k) each. The values keep `d_model` numbers.
    """
    torch.manual_seed(seed)
    draws = torch.Generator().manual_seed(seed)
    day, meal = nn.Embedding(7, d_model), nn.Embedding(len(MEALS), d_model)
    sizes = (d_model, d_k), (d_model, d_k), (d_model, d_model), (d_model, len(MEALS))
    W = [nn.Parameter(torch.randn(size) / math.sqrt(d_model)) for size in sizes]
    W_Q, W_K, W_V, W_O = W
    optimizer = torch.optim.Adam([*day.parameters(), *meal.parameters(), *W], lr=1e-2)

    def answers(batch: int) -> tuple[Tensor, Tensor, Tensor]:
        days, meals, tomorrow = shuffled_weeks(batch, draws)
        x = day(days) + meal(meals)                                              # (batch, 7, d_model)
        output, _ = attend(x @ W_Q, x @ W_K, x @ W_V)                            # (batch, 7, d_model)
        return output @ W_O, tomorrow, days

    for _ in range(steps):
        predicted, tomorrow, _ = answers(64)
        optimizer.zero_grad()
        nn.functional.cross_entropy(predicted.flatten(0, 1), tomorrow.flatten()).backward()
        optimizer.step()
    with torch.no_grad():
        predicted, tomorrow, days = answers(2000)
    hit = (predicted.argmax(dim=-1) == tomorrow).float()                         # (2000, 7)
    by_day = [hit[days == number].mean().item() for number in range(7)]
    return hit.mean().item(), by_day, ((day.weight @ W_Q).detach(), (day.weight @ W_K).detach())


def largest_weights(found: list[tuple[float, list[float], tuple[Tensor, Tensor]]], missed: float) -> list[float]:
    """Of what `with_narrow_keys` gave: the largest weight of each query that finds its key less often than `missed`."""
    largest = []
    for _, by_day, (queries, keys) in found:
        most = (queries @ keys.T / math.sqrt(keys.shape[-1])).softmax(dim=-1).max(dim=-1).values      # (7,)
        largest += [weight for weight, share in zip(most.tolist(), by_day, strict=True) if share < missed]
    return largest
