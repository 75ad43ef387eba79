"""Which mask is this? The eight masks of the lecture's zoo, of other sizes: by name, and by the code that makes it."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from attncourse import attention
from lessonkit.exercises.drill import Drill, one_of

SIZES = (6, 8)
MORE = 3  # wrong options of each


class Mask(NamedTuple):
    """A mask by the code that makes it, and by what it is for."""

    code: str
    why: str


ZOO: Mapping[str, Mask] = {
    "bidirectional": Mask(
        "(place < n - 2).expand(n, n)",
        "Every row is alike: all may look at all real tokens, and the last two columns are padding.",
    ),
    "causal": Mask("causal_mask(n)", "A triangle: token i sees the tokens j ≤ i, itself among them."),
    "causal and padding": Mask(
        "causal_mask(n) & (place < n - 2)", "The triangle, less the last two columns: both reasons hold at once."
    ),
    "prefix LM": Mask(
        "causal_mask(n) | (place < 3)", "The first three tokens, the prefix, are seen by all; what follows is causal."
    ),
    "packed documents": Mask(
        "torch.block_diag(causal_mask(n - 2), causal_mask(2))",
        "Triangles of unequal sizes along the diagonal: each document is causal, and sees nothing of the other.",
    ),
    "sliding window": Mask(
        "causal_mask(n) & window_mask(n, window=3)", "A band: each token sees itself and the two before it."
    ),
    "blocks (chunked)": Mask(
        "torch.block_diag(causal_mask(n // 2), causal_mask(n // 2))",
        "Two equal triangles: causal within a chunk, and the second chunk sees nothing of the first.",
    ),
    "cross-attention": Mask(
        "(place < n - 2).expand(n - 3, n)",
        "It is not square: rows are the target's tokens, columns the source's, and the source ends in padding.",
    ),
}


def made(code: str, n: int) -> Tensor:
    """The mask that a line of code makes, for n positions."""
    names = {
        "causal_mask": attention.causal_mask,
        "window_mask": attention.window_mask,
        "torch": torch,
        "place": torch.arange(n),
        "n": n,
    }
    return eval(code, names)


def drills() -> list[Drill]:
    """Every mask, once by its name and once by its code; the wrong options are those that follow it in the zoo."""
    return [drill for number, name in enumerate(ZOO) for drill in _of(number, name, SIZES[number % len(SIZES)])]


def _of(number: int, name: str, n: int) -> list[Drill]:
    names = list(ZOO)
    others = [names[(number + step) % len(names)] for step in (1, 3, 6)[:MORE]]
    offered = [*others]
    offered.insert((5 * number + 2) % len(names) % (MORE + 1), name)  # in no place that could be learned
    mask = made(ZOO[name].code, n)
    table = mask.tolist()
    return [
        one_of(f"name-{number}", "Which mask is this?", {each: made(ZOO[each].code, n) for each in offered}, mask,
               torch.equal, why=f"{ZOO[name].why} The code: `{ZOO[name].code}`.", table=table),
        one_of(f"code-{number}", f"Which line makes this mask? n is {n}, and place is torch.arange(n).",
               {ZOO[each].code: made(ZOO[each].code, n) for each in reversed(offered)}, mask, torch.equal,
               why=f"It is the mask “{name}”. {ZOO[name].why}", table=table, as_code=True),
    ]  # fmt: skip
