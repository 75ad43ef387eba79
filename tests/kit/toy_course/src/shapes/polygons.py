"""Polygons, given by their corners."""

import torch
from torch import Tensor


def area(corners: Tensor) -> Tensor:
    """The area of a polygon without crossings. corners: (n, 2), in either direction around it."""
    x, y = corners.T
    return (x * y.roll(-1) - x.roll(-1) * y).sum().abs() / 2


def regular(n: int) -> Tensor:
    """(n, 2): the corners of a regular polygon, at distance 1 from the origin."""
    angle = torch.arange(n) * (2 * torch.pi / n)
    return torch.stack([angle.cos(), angle.sin()], dim=1)
