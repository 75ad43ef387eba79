"""Small tasks that ask for one thing of attention: distance, three kinds of partner, recall, or to do nothing."""

import torch
from jaxtyping import Int
from torch import Tensor

from attncourse._checks import check_at_least

LETTERS = 8  # tokens 0 to 7; a marked letter is 8 more
NAMES = 128
FIRST, TRIGGER = 8, 9  # the token that begins a line, and the one that asks for its neighbour


def marked_lines(
    batch: int, generator: torch.Generator, n: int = 32
) -> tuple[Int[Tensor, "batch n"], Int[Tensor, " batch"]]:
    """Lines of `n` letters, of which one in the first half is marked, and that letter: the last position must know it.

    Raises ValueError for a batch of none or n < 2.

    >>> tokens, answer = marked_lines(2, torch.Generator().manual_seed(0), n=6)
    >>> tokens.tolist(), answer.tolist()
    ([[12, 7, 5, 0, 3, 3], [11, 7, 1, 3, 5, 2]], [4, 3])
    """
    check_at_least(1, batch=batch)
    check_at_least(2, n=n)
    letters = torch.randint(LETTERS, (batch, n), generator=generator)                         # (batch, n)
    place = torch.randint(n // 2, (batch, 1), generator=generator)                            # (batch, 1)
    tokens = letters.scatter_add(1, place, torch.full_like(place, LETTERS))                   # marked: 8 to 15
    return tokens, letters.gather(1, place).squeeze(1)


def three_questions(
    batch: int, generator: torch.Generator, n: int = 32
) -> tuple[Int[Tensor, "batch n"], Int[Tensor, "batch n 3"]]:
    """Lines with one marked letter anywhere, and for each position the marked letter, the one before, the mirrored one.

    Before the first position stands the last. Raises ValueError for a batch or a line of none.
    """
    check_at_least(1, batch=batch, n=n)
    letters = torch.randint(LETTERS, (batch, n), generator=generator)                         # (batch, n)
    place = torch.randint(n, (batch, 1), generator=generator)                                 # (batch, 1)
    tokens = letters.scatter_add(1, place, torch.full_like(place, LETTERS))
    mark = letters.gather(1, place).expand(-1, n)                                             # (batch, n)
    return tokens, torch.stack([mark, letters.roll(1, 1), letters.flip(1)], dim=-1)


def name_pairs(
    batch: int, generator: torch.Generator, m: int | None = None
) -> tuple[Int[Tensor, "batch m"], Int[Tensor, "batch m"], Int[Tensor, "batch 1"], Int[Tensor, "batch 1"]]:
    """`m` different names with a number each, then one of the names, whose number is the answer: associative recall.

    Without `m` any from 2 to 64. Raises ValueError for a batch of none or m outside of 1..128.
    """
    m = int(torch.randint(2, 65, (1,), generator=generator)) if m is None else m
    check_at_least(1, batch=batch, m=m)
    if m > NAMES:
        raise ValueError(f"m: got {m}, expected at most {NAMES}, because no name comes twice")
    names = torch.rand(batch, NAMES, generator=generator).argsort(dim=-1)[:, :m]              # (batch, m)
    numbers = torch.randint(LETTERS, (batch, m), generator=generator)                         # (batch, m)
    asked = torch.randint(m, (batch, 1), generator=generator)                                 # (batch, 1)
    return names, numbers, names.gather(1, asked), numbers.gather(1, asked)


def triggered_lines(
    batch: int, generator: torch.Generator, n: int = 32, share: float = 0.2
) -> tuple[Int[Tensor, "batch n"], Int[Tensor, "batch n"]]:
    """A first token, letters, and some triggers among them; each position has an answer.

    At a letter it is the next letter of the alphabet, for which no other position need be looked at; at a trigger it is
    the letter before; at the first token it is 0. No two triggers stand together.
    Raises ValueError for a batch of none or n < 3.
    """
    check_at_least(1, batch=batch)
    check_at_least(3, n=n)
    tokens = torch.randint(LETTERS, (batch, n), generator=generator)                          # (batch, n)
    ask = torch.rand(batch, n, generator=generator) < share                                   # (batch, n)
    ask[:, :2] = False
    ask[:, 1:] = ask[:, 1:] & ~ask[:, :-1]
    before = tokens.roll(1, 1)
    answers = torch.where(ask, before, (tokens + 1) % LETTERS)
    tokens = tokens.masked_fill(ask, TRIGGER)
    tokens[:, 0], answers[:, 0] = FIRST, 0
    return tokens, answers
