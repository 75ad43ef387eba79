"""A week's dinners on seven shuffled cards: a task in which each card must find one particular other card."""

import torch
from jaxtyping import Int, Shaped
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
    return days, meals, of_another_day(days, meals, 1)


def of_another_day(
    days: Int[Tensor, "batch 7"], written: Shaped[Tensor, "batch 7 *numbers"], step: int
) -> Shaped[Tensor, "batch 7 *numbers"]:
    """For each card what is written on the card `step` days later: tomorrow's is 1, yesterday's −1.

    >>> days = torch.tensor([[2, 0, 1, 3, 4, 5, 6]])                          # Wednesday's card lies first
    >>> of_another_day(days, torch.tensor([[30, 10, 20, 40, 50, 60, 70]]), -1)
    tensor([[20, 70, 10, 30, 40, 50, 60]])
    """
    card_of_day = days.argsort(dim=-1)                                        # (batch, 7)  where Monday's lies, …
    cards = card_of_day.gather(1, (days + step) % 7)                          # (batch, 7)
    return written[torch.arange(len(days))[:, None], cards]
