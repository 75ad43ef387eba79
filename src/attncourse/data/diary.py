"""A week's dinners on seven shuffled cards: a task in which each card must find one particular other card."""

import torch
from jaxtyping import Int
from torch import Tensor

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MEALS = ("fish", "rice", "soup", "beans", "pie", "stew", "eggs", "curry", "salad", "pasta", "leeks", "toast")


def shuffled_weeks(
    batch: int, generator: torch.Generator
) -> tuple[Int[Tensor, "batch 7"], Int[Tensor, "batch 7"], Int[Tensor, "batch 7"]]:
    """The days on the cards, the meals on them, and for each card tomorrow's meal. After Sunday comes Monday.

    Days are indices into `DAYS`, meals into `MEALS`; the cards of a week lie in any order.
    """
    days = torch.rand(batch, 7, generator=generator).argsort(dim=-1)          # (batch, 7)  a permutation of the week
    meals = torch.randint(len(MEALS), (batch, 7), generator=generator)        # (batch, 7)
    calendar = torch.zeros_like(meals).scatter(1, days, meals)                # (batch, 7)  Monday's meal first
    return days, meals, calendar.gather(1, (days + 1) % 7)
