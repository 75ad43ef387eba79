"""How much of a difference of two days' temperatures heads can learn to tell."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from attncourse.data.diary import of_another_day, shuffled_weeks


def explained(
    heads: Callable[[int, int], Any],
    n_heads: int,
    hours: int,
    seed: int,
    steps: int = 150,
    d_model: int = 32,
) -> float:
    """R² of tomorrow's temperatures less yesterday's, `hours` a day, on 2,000 new weeks.

    `heads(d_model, n_heads)` makes the lecture's layer.
    """
    torch.manual_seed(seed)
    draws = torch.Generator().manual_seed(seed)
    layer, day = heads(d_model, n_heads), nn.Embedding(7, d_model)
    warmth = nn.Linear(hours, d_model, bias=False)
    read = nn.Linear(d_model, hours)
    optimizer = torch.optim.Adam(nn.ModuleList([layer, day, warmth, read]).parameters(), lr=1e-2)
    for step in range(steps + 1):
        days, _, _ = shuffled_weeks(64 if step < steps else 2000, draws)
        degrees = torch.randn(*days.shape, hours, generator=draws)               # (batch, 7, hours)
        answer = of_another_day(days, degrees, 1) - of_another_day(days, degrees, -1)
        x = day(days) + warmth(degrees)                                          # (batch, 7, d_model)
        loss = (read(layer(x)) - answer).square().mean()                          # of (batch, 7, hours)
        if step < steps:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return float(1 - loss.item() / answer.var().item())                          # on the last, fresh weeks
