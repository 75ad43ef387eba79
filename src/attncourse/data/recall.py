"""Letters, each with a digit, and a question about one of them: what a summary of fixed size can be asked for."""

import torch
from jaxtyping import Int
from torch import Tensor

from attncourse._checks import check_at_least

LETTERS, DIGITS = 26, 10


def letters_with_digits(
    batch: int, n: int, generator: torch.Generator
) -> tuple[Int[Tensor, "batch n"], Int[Tensor, "batch n"], Int[Tensor, " batch"], Int[Tensor, " batch"]]:
    """`n` letters, each with a digit, then the letter that is asked for and its digit, which is the answer.

    No letter comes twice in a row; digits may. Raises ValueError for n outside of 1..26.

    >>> letters, digits, asked, answer = letters_with_digits(2, 5, torch.Generator().manual_seed(0))
    >>> letters.shape, digits.shape, asked.shape, answer.shape
    (torch.Size([2, 5]), torch.Size([2, 5]), torch.Size([2]), torch.Size([2]))
    """
    check_at_least(1, batch=batch, n=n)
    if n > LETTERS:
        raise ValueError(f"n: got {n}, expected at most {LETTERS}, because no letter comes twice")
    letters = torch.rand(batch, LETTERS, generator=generator).argsort(dim=1)[:, :n]           # (batch, n)
    digits = torch.randint(DIGITS, (batch, n), generator=generator)                           # (batch, n)
    which = torch.randint(n, (batch, 1), generator=generator)                                 # (batch, 1)
    return letters, digits, letters.gather(1, which)[:, 0], digits.gather(1, which)[:, 0]
