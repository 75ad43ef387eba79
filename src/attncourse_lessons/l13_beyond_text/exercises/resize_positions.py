"""resize_positions: Positions of a ViT for images of another size, interpolated over the grid."""

import torch
from torch import Tensor
from torch.nn import functional

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient
from lessonkit.exercises.observe import gradients

from .common import READY_MADE


def solution(positions, old, new):
    class_token, grid = positions[:1], positions[1:]
    grid = grid.view(*old, -1).permute(2, 0, 1)[None]            # (1, d, rows, columns)
    grid = torch.nn.functional.interpolate(grid, size=new, mode="bilinear", align_corners=False)
    return torch.cat([class_token, grid[0].flatten(1).mT])       # (d, n) turned to (n, d)


def reference(positions: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """The two axes one after the other, each by a matrix."""
    down, across = (_shares(*sizes) for sizes in zip(old, new, strict=True))
    grid = positions[1:].unflatten(0, tuple(old))                                # (rows, columns, d)
    grid = torch.einsum("Rr,Cc,rcd->RCd", down, across, grid)
    return torch.cat([positions[:1], grid.flatten(0, 1)])


def _shares(old: int, new: int) -> Tensor:
    """(new, old): how much of each old place there is in each new one, by where their centres lie."""
    at = ((torch.arange(new) + 0.5) * old / new - 0.5).clamp(0, old - 1)         # in places of the old grid
    return (1 - (at[:, None] - torch.arange(old)).abs()).clamp(min=0)


exercise = Exercise(
    "resize_positions",
    reference=reference,
    solution=solution,
    returns=("positions",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    extra=True,
    hints=(
        "Which row of `positions` has no place in the grid? Set it aside, and put it back in front at the end.",
        "`torch.nn.functional.interpolate` wants (batch, channels, rows, columns). What plays the part of the "
        "channels? The rows of `positions` are read like a page: give them the shape of the old grid first, then "
        "move the axes.",
        "On the way back, (1, d, rows, columns) must become (rows · columns, d). Joining the two last axes is one "
        "step, and exchanging what is left the other.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _positions(draw):
    """(positions, (rows, columns)): a grid that is not square."""
    d, rows, columns = draw.sizes(3, 2, 5)
    return draw.normal(1 + rows * columns, d), (rows, columns)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("the same grid", points=1, hint=2)
def the_same_grid(answer, draw):
    """for a grid of the old size nothing changes"""
    positions, old = _positions(draw)
    return answer(positions, old, old)


@aspect("class token", points=1, hint=1)
def class_token(answer, draw):
    """the first row is the class token's, as it was"""
    positions, (rows, columns) = _positions(draw)
    return answer(positions, (rows, columns), (2 * rows, columns + 3))[:1]


@aspect("a larger grid", points=2, hint=2)
def a_larger_grid(answer, draw):
    """rows and columns grow, each by its own factor, and every new place mixes its old neighbours"""
    positions, (rows, columns) = _positions(draw)
    return answer(positions, (rows, columns), (2 * rows, columns + 3))[1:]


@aspect("a smaller grid", points=1, hint=3)
def a_smaller_grid(answer, draw):
    """fewer rows and columns, by the same rule"""
    d, new_rows, new_columns = draw.sizes(3, 2, 4)
    old = (new_rows + 4, new_columns + 1)                                        # not square
    return answer(draw.normal(1 + old[0] * old[1], d), old, (new_rows, new_columns))


@aspect("gradient", points=1, hint=3, explain=explain_missing_gradient("positions"))
def gradient(answer, draw):
    """the model with the new positions can be trained on"""
    positions, (rows, columns) = _positions(draw)
    positions.requires_grad_()
    return gradients(answer(positions, (rows, columns), (rows + 1, 2 * columns)), [positions], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

SIZES = ("a larger grid", "a smaller grid", "gradient")
ALL = ("the same grid", "class token", *SIZES)
GRID = "grid.view(*old, -1).permute(2, 0, 1)[None]"
BACK = "grid[0].flatten(1).mT"
KIND = 'mode="bilinear", align_corners=False'

slip("no class token", ALL, {f"torch.cat([class_token, {BACK}])": BACK}, words="""
    The class token's position was set aside and not put back. The model still reads 1 + n rows, and the class token
    stands in front of them.""")

slip("the class token at the end", ALL, {f"[class_token, {BACK}]": f"[{BACK}, class_token]"}, words="""
    The class token's position came back at the end. It was the first row, and the class token is still the first
    token: so every patch gets its neighbour's position.""")

slip("rows and columns exchanged", ("the same grid", *SIZES),
     {GRID: "grid.view(old[1], old[0], -1).permute(2, 1, 0)[None]"},
     {"grid.view(*old, -1)": "grid.view(old[1], old[0], -1)"},
     words="""
    The old grid was read with its sides exchanged. `old` is (rows, columns), and the positions stand as one reads a
    page: as many in a row as there are columns.""")

slip("axes not moved", ("the same grid", *SIZES), {GRID: "grid.view(1, -1, *old)"}, words="""
    `view` gave the right shape (1, d, rows, columns), and the wrong numbers: it never moves any. In memory each place
    has its d numbers together. So first (rows, columns, d), then move the axes.""")

slip("not turned back", ("the same grid", *SIZES), {BACK: "grid[0].reshape(-1, positions.shape[1])"}, words="""
    After interpolating, d is the first axis. A `reshape` to (n, d) does not exchange the two, it only counts the
    numbers off anew. Join rows and columns, then turn the table round.""")

slip("corners on corners", SIZES, {"align_corners=False": "align_corners=True"}, words="""
    The outermost *centres* were laid on each other. A patch has a width: the edges of the two images lie on each other,
    and the centres of the smaller patches lie nearer to them. That is `align_corners=False`.""")

slip("the nearest alone", SIZES, {KIND: 'mode="nearest"'}, words="""
    Each new place got the position of one old place, the nearest. Then several patches share a position, and the model
    cannot tell them apart. Mix the neighbours: bilinear.""")

slip("bicubic", SIZES, {'mode="bilinear"': 'mode="bicubic"'}, words="""
    Interpolated by cubic curves. Published code often does it so; here it is to be bilinear, so that one result is
    right.""")

slip("cut off from the gradient", ("gradient",),
     {"positions[:1], positions[1:]": "positions[:1], positions[1:].detach()"},
     words="""
    The numbers are right, but no gradient gets back to the positions of the patches: `.detach()`, `.numpy()` and
    `torch.tensor(…)` forget where numbers came from.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("one long row", fails=SIZES)
def one_long_row(positions, old, new):
    """The places were taken for one long row, from the first to the last. Then a new place mixes the end of a row with
    the beginning of the next one, which is at the other side of the image. Neighbours lie beside *and* below."""
    row = functional.interpolate(positions[1:].mT[None], size=new[0] * new[1], mode="linear", align_corners=False)
    return torch.cat([positions[:1], row[0].mT])


@misconception("the class token in the row", fails=SIZES)
def the_class_token_in_the_row(positions, old, new):
    """The class token's position was stretched along with the others. It belongs to no place: set it aside first."""
    row = functional.interpolate(positions.mT[None], size=1 + new[0] * new[1], mode="linear", align_corners=False)
    return row[0].mT


@misconception("new places without a position", fails=SIZES)
def new_places_without_a_position(positions, old, new):
    """The old rows were kept, and zeros put after them. But then row 5 of the old grid stands at another place of the
    new one: what was learned of each place is now told of another."""
    table = positions[: 1 + new[0] * new[1]]
    return torch.cat([table, positions.new_zeros(1 + new[0] * new[1] - len(table), positions.shape[1])])


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a matrix for each axis")
def a_matrix_for_each_axis(positions, old, new):
    """Interpolates the identity to get the matrices; rows first, then columns."""
    down, across = (
        functional.interpolate(torch.eye(size, dtype=positions.dtype)[None], size=more, mode="linear")[0]
        for size, more in zip(old, new, strict=True)
    )                                                                            # (rows, new rows), (columns, …)
    grid = positions[1:].reshape(old[0], old[1], -1)
    grid = torch.tensordot(down.mT, grid, dims=1)                                # (new rows, columns, d)
    grid = torch.tensordot(across.mT, grid.transpose(0, 1), dims=1).transpose(0, 1)
    return torch.vstack([positions[0], grid.reshape(-1, positions.shape[1])])


@alternative("place by place")
def place_by_place(positions, old, new):
    """Four neighbours and their shares, in a loop."""
    (rows, columns), grid, found = old, positions[1:], [positions[0]]
    for i in range(new[0]):
        y = min(max((i + 0.5) * rows / new[0] - 0.5, 0), rows - 1)
        for j in range(new[1]):
            x = min(max((j + 0.5) * columns / new[1] - 0.5, 0), columns - 1)
            top, left = int(y), int(x)
            under, right = min(top + 1, rows - 1), min(left + 1, columns - 1)
            upper = (1 - x + left) * grid[top * columns + left] + (x - left) * grid[top * columns + right]
            lower = (1 - x + left) * grid[under * columns + left] + (x - left) * grid[under * columns + right]
            found.append((1 - y + top) * upper + (y - top) * lower)
    return torch.stack(found)


@alternative("upsample, float64")
def upsample_float64(positions, old, new):
    """torch's layer for it, and `movedim`."""
    grid = positions[1:].double().unflatten(0, tuple(old)).movedim(-1, 0).unsqueeze(0)
    grid = torch.nn.Upsample(size=tuple(new), mode="bilinear")(grid).squeeze(0)
    return torch.cat([positions[:1].double(), grid.movedim(0, -1).flatten(0, 1)])
