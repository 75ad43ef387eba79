"""Bicycles on a bridge, made up: counts at random hours, and days that each have a curve of their own."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

BICYCLES = {2: 12, 5: 45, 8: 310, 12: 120, 17: 280, 23: 40}  # counted in six hours of one day


def rush(hours: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """How many bicycles cross at an hour, on average: a peak in the morning and one in the evening."""
    morning, evening = ((hours - 8) / 1.6) ** 2, ((hours - 17.5) / 2.2) ** 2
    return 30 + 270 * torch.exp(-morning) + 230 * torch.exp(-evening)


def counts(n: int, generator: torch.Generator, noise: float = 40.0) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """n hours of the day and what was counted there: `rush`, and noise of this standard deviation; never below 0."""
    hours = 24 * torch.rand(n, generator=generator)
    return hours, (rush(hours) + noise * torch.randn(n, generator=generator)).clamp(min=0)


def days(
    n: int, generator: torch.Generator, seen: int = 8, waves: tuple[int, ...] = (1, 2, 3, 4)
) -> tuple[Float[Tensor, "n 24"], Bool[Tensor, "n 24"]]:
    """How n days differ from the usual, hour by hour, in hundreds of bicycles; and which `seen` hours were counted.

    Each day is a smooth curve that closes at midnight: a random mixture of cosines and sines that go round k times a
    day, for each k of `waves`, the faster the smaller.
    """
    angle = 2 * math.pi * torch.arange(24) / 24                                           # (24,)
    k = torch.tensor(waves, dtype=torch.float32)[:, None]                                 # (waves, 1)
    basis = torch.cat([(k * angle).cos() / k, (k * angle).sin() / k])                     # (2 waves, 24)
    today = torch.randn(n, len(basis), generator=generator) @ basis                       # (n, 24)
    order = torch.rand(n, 24, generator=generator).argsort(dim=-1)                        # (n, 24)
    counted = torch.zeros(n, 24, dtype=torch.bool).scatter(1, order[:, :seen], True)
    return today, counted
