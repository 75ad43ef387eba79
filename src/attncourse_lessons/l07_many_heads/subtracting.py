"""How much of a difference of two days' temperatures heads can learn to tell."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from attncourse.attention import attend
from attncourse.data.diary import of_another_day, shuffled_weeks


def explained(
    heads: Callable[[int, int], Any],
    n_heads: int,
    hours: int,
    seed: int,
    weights_from_days: bool = False,
    hidden: int = 0,
    steps: int = 150,
    d_model: int = 32,
) -> float:
    """R² of tomorrow's temperatures less yesterday's, `hours` a day, on 2,000 new weeks.

    `heads(d_model, n_heads)` makes the lecture's layer. With `weights_from_days`, for one head, only its values see
    the temperatures; with `hidden` the readout has a layer of so many units.
    """
    torch.manual_seed(seed)
    draws = torch.Generator().manual_seed(seed)
    layer, day = heads(d_model, n_heads), nn.Embedding(7, d_model)
    warmth = nn.Linear(hours, d_model, bias=False)
    read: nn.Module = nn.Linear(d_model, hours)
    if hidden:
        read = nn.Sequential(nn.Linear(d_model, hidden), nn.ReLU(), nn.Linear(hidden, hours))
    optimizer = torch.optim.Adam(nn.ModuleList([layer, day, warmth, read]).parameters(), lr=1e-2)
    for step in range(steps + 1):
        days, _, _ = shuffled_weeks(64 if step < steps else 2000, draws)
        degrees = torch.randn(*days.shape, hours, generator=draws)               # (batch, 7, hours)
        answer = of_another_day(days, degrees, 1) - of_another_day(days, degrees, -1)
        d, x = day(days), day(days) + warmth(degrees)                            # (batch, 7, d_model) each
        outputs = layer(x)
        if weights_from_days:
            found, _ = attend(d @ layer.W_Q[0], d @ layer.W_K[0], x @ layer.W_V[0])
            outputs = found @ layer.W_O
        loss = (read(outputs) - answer).square().mean()                          # of (batch, 7, hours)
        if step < steps:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return float(1 - loss.item() / answer.var().item())                          # on the last, fresh weeks
