"""polygon_area: the shoelace formula."""

import torch
from shapes import polygons

from lessonkit.exercises.exercise import Exercise


def solution(corners):
    x, y = corners.T
    doubled = (x * y.roll(-1) - x.roll(-1) * y).sum()
    return doubled.abs() / 2


exercise = Exercise(
    "polygon_area",
    reference=polygons.area,
    solution=solution,
    returns=("area",),
    forbidden=("shapes.polygons",),
    difficulty=1,
    minutes=10,
    hints=("Draw a rectangle, and write down its four cross products.", "`roll(-1)` brings the next corner here."),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()

# ----------------------------------------------------------------------------------------------------- what is observed


def field(draw):
    """The corners of a polygon without crossings: regular, and stretched."""
    (n,) = draw.sizes(1, 5, 9)
    return polygons.regular(n) * (1 + draw.uniform(2))


@aspect("area", points=2)
def area(answer, draw):
    """the area of a polygon that is gone around to the left"""
    return answer(field(draw))


@aspect("the other way round", points=1)
def other_way_round(answer, draw):
    """the same, gone around to the right"""
    return answer(field(draw).flip(0))


# --------------------------------------------------------------------------------------------------- one slip away

BOTH = ("area", "the other way round")

slip("twice the area", BOTH, {" / 2": ""}, words="""
    The cross product of two corners is the area of a parallelogram, and half of that is the triangle's.""")
slip("a negative area", ("the other way round",), {".abs()": ""}, words="""
    Gone around to the right, the cross products are negative. An area is not.""")
slip("the last side left out", BOTH, {"x * y.roll(-1) - x.roll(-1) * y": "x[:-1] * y[1:] - x[1:] * y[:-1]"}, words="""
    The side from the last corner back to the first is a side like any other.""")

# ------------------------------------------------------------------------------------------- right in other styles


@alternative("a loop over the sides")
def loop(corners):
    """One cross product at a time."""
    total = torch.zeros(())
    for i in range(len(corners)):
        (a, b), (c, d) = corners[i - 1], corners[i]
        total = total + a * d - c * b
    return total.abs() / 2


@alternative("determinants")
def determinants(corners):
    """A determinant for each side."""
    sides = torch.stack([corners, corners.roll(-1, dims=0)], dim=1)
    return torch.linalg.det(sides).sum().abs() / 2
