"""repair_row: The width and the number of heads that were meant."""

import math

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst

from .common import READY_MADE


def reference(n_layers, d_model, n_heads, d_head, parameters):
    """The row, of the two that multiply out, whose blocks hold nearest to `parameters` numbers."""
    candidates = [(d_model, d_model // d_head), (n_heads * d_head, n_heads)]
    return min(candidates, key=lambda row: abs(12 * n_layers * row[0] ** 2 - parameters))


def solution(n_layers, d_model, n_heads, d_head, parameters):
    def off(width):
        return abs(12 * n_layers * width**2 - parameters)

    if off(d_model) <= off(n_heads * d_head):
        return d_model, d_model // d_head
    return n_heads * d_head, n_heads


exercise = Exercise(
    "repair_row",
    reference=reference,
    solution=solution,
    returns=("d_model", "n_heads"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    extra=True,
    numbers=True,
    hints=(
        "If the width is right, how many heads must there be? If the heads are right, how wide is the model? These "
        "are two rows, and both multiply out. What tells them apart?",
        "In a row that multiplies out, a block has 4 d² numbers in attention and 8 d² in the feed-forward network. "
        "Count both candidates, and compare with `parameters`.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _row(draw, wrong, factor):
    """A row of a table, with one number misprinted: times this factor."""
    n_layers, heads, d_head = 6 + int(draw.integers(30, 1)), 8 * (1 + int(draw.integers(4, 1))), 64
    width = heads * d_head
    parameters = 12 * n_layers * width**2 + int(draw.integers(1000, 1)) * n_layers
    if wrong == "heads":
        return n_layers, width, int(heads * factor), d_head, parameters
    return n_layers, int(width * factor), heads, d_head, parameters


def _rows(answer, draw, wrong, factors):
    return torch.stack([torch.stack(answer(*_row(draw, wrong, factor))) for factor in factors])


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("heads misprinted", points=1, hint=1)
def heads_misprinted(answer, draw):
    """too many of them, too few, or right"""
    return _rows(answer, draw, "heads", (1.5, 0.75, 1.125, 1.0))


@aspect("width misprinted", points=1, hint=1)
def width_misprinted(answer, draw):
    """too wide, too narrow, or right"""
    return _rows(answer, draw, "width", (1.5, 0.75, 1.125, 0.9375, 1.0))


@aspect("the paper's two rows", points=0.5, hint=2)
def the_papers_two_rows(answer, draw):
    """GPT-3 XL and 13B"""
    rows = [answer(24, 2048, 24, 128, 1_210_000_000), answer(40, 5140, 40, 128, 12_590_000_000)]
    return torch.stack([torch.stack(row) for row in rows])


@aspect("multiplies out", points=0.5, hint=1,
        explain=explain_worst("a row comes back whose heads, side by side, are not as wide as the model: {got}"))
def multiplies_out(answer, draw):
    """whatever comes back, n_heads · d_head is d_model"""
    rows = [_row(draw, wrong, factor) for wrong in ("heads", "width") for factor in (1.5, 0.75)]
    found = [(answer(*row), row[3]) for row in rows]
    return torch.stack([n_heads * d_head - d_model for (d_model, n_heads), d_head in found])


# -------------------------------------------------------------------------------------- one slip away from the solution

MISPRINTS = ("heads misprinted", "width misprinted", "the paper's two rows")

slip("too little is counted", MISPRINTS,
     {"12 * n_layers": "12"},
     {"12 * n_layers": "4 * n_layers"},  # attention alone
     words="""
    The larger of the two widths always wins. Either `parameters` was not used at all, or too little was counted: one
    block in place of all, or a part of each.
    There are n_layers blocks, and in each four matrices of d × d for attention, and d × 4d and back for the
    feed-forward network.""")
slip("the one that is further off", MISPRINTS, {"<=": ">"}, words="""
    Of the two candidates the wrong one came back: the one whose count is further from `parameters`. The sign of the
    comparison is reversed.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("the width from the parameters", fails=("the paper's two rows",))
def the_width_from_the_parameters(n_layers, d_model, n_heads, d_head, parameters):
    """The width was computed from the number of parameters, which is known to within one part in three hundred only.
    One of the two printed numbers is right: let the parameters choose between the two candidates."""
    width = round(math.sqrt(parameters / (12 * n_layers)))
    return width, width // d_head


@misconception("as printed", fails=(*MISPRINTS, "multiplies out"))
def as_printed(n_layers, d_model, n_heads, d_head, parameters):
    """The row came back as it was printed, and it does not multiply out."""
    return d_model, n_heads


@misconception("the width is always right", fails=("width misprinted", "the paper's two rows"))
def the_width_is_always_right(n_layers, d_model, n_heads, d_head, parameters):
    """It was always the heads that were changed. A row that does not multiply out says that a number is wrong, not
    which: the parameters tell."""
    return d_model, d_model // d_head


@misconception("the heads are always right", fails=("heads misprinted", "the paper's two rows"))
def the_heads_are_always_right(n_layers, d_model, n_heads, d_head, parameters):
    """It was always the width that was changed. A row that does not multiply out says that a number is wrong, not
    which: the parameters tell."""
    return n_heads * d_head, n_heads


@misconception("both at once", fails=(*MISPRINTS, "multiplies out"))
def both_at_once(n_layers, d_model, n_heads, d_head, parameters):
    """Width and heads were both replaced. One of the two numbers is right: the candidates are the printed width with
    other heads, and the printed heads with another width."""
    return n_heads * d_head, d_model // d_head


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("the width that the parameters ask for")
def the_width_that_the_parameters_ask_for(n_layers, d_model, n_heads, d_head, parameters):
    """The count solved for the width; as floats."""
    wanted = math.sqrt(parameters / (12 * n_layers))
    width = d_model if abs(d_model - wanted) <= abs(n_heads * d_head - wanted) else n_heads * d_head
    return float(width), width / d_head


@alternative("counted block by block")
def counted_block_by_block(n_layers, d_model, n_heads, d_head, parameters):
    """A right row is handed back at once; tensors come back."""
    if n_heads * d_head == d_model:
        return torch.tensor(d_model), torch.tensor(n_heads)
    off = {}
    for width in (d_model, n_heads * d_head):
        total = sum(4 * width * width + 2 * width * 4 * width for _ in range(n_layers))
        off[width] = abs(total - parameters)
    width = min(off, key=lambda width: off[width])
    return torch.tensor(width), torch.tensor(width // d_head)
