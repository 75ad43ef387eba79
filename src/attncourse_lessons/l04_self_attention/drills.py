"""Which line made these attention weights? Softmax along the right axis, along a wrong one, and what else is done."""

import torch
from torch import Tensor

from lessonkit.exercises.drill import Drill, one_of

N = 4
LINES = {
    "scores.softmax(dim=-1)": "Every row sums to one: a row holds the attention weights of one query.",
    "scores.softmax(dim=-2)": "The columns sum to one, the rows do not: the queries compete for each key.",
    "scores.flatten().softmax(dim=0).view(n, n)": "All cells together sum to one, and a single row does not.",
    "scores.sigmoid()": "Every cell lies between 0 and 1 by itself, and neither rows nor columns sum to one.",
    "scores.softmax(dim=-1).tril()": (
        "Zeros above the diagonal, and the rows above the last sum to less than one: the mask came after the softmax."
    ),
    "scores.masked_fill(future, -torch.inf).softmax(dim=-1)": (
        "Zeros above the diagonal, and every row sums to one: the mask came before the softmax."
    ),
}


def made(line: str, scores: Tensor) -> Tensor:
    """What a line of code makes of scores (n, n)."""
    n = len(scores)
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    return eval(line, {"torch": torch}, {"scores": scores, "n": n, "future": future})


def drills() -> list[Drill]:
    """A table of weights for each line, and three of the other lines; read the sums."""
    lines, found = list(LINES), []
    for number, line in enumerate(lines):
        scores = 1.5 * torch.randn(N, N, generator=torch.Generator().manual_seed(number))
        offered = [lines[(number + step) % len(lines)] for step in (1, 2, 4)]
        offered.insert((3 * number + 1) % (len(offered) + 1), line)  # in no place that could be learned
        weights = made(line, scores)
        found.append(
            one_of(f"weights-{number}", "Which line made this matrix from the scores? Compare the sums.",
                   {each: made(each, scores) for each in offered}, weights,
                   lambda one, other: torch.allclose(one, other, atol=0.02),  # two digits are shown
                   why=LINES[line], table=weights.tolist(), as_code=True)
        )  # fmt: skip
    return found
