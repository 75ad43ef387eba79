"""What one erratum is: the line as printed and the line as it should be, as code, and a test that tells them apart."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

CSE576 = "CSE 576, Language Modeling: Attention"
FOUNDATIONS = "Foundations of NLP, lecture 7: Multi-head attention, Transformers"
CSE5321 = "CSE5321, Introduction to NLP, lecture 11: Transformers (2)"
PARAMETRIC = "Parametric Language Modeling: Transformers"
CS11711 = "CS11-711, Advanced NLP: Attention and Transformers"
DECKS = (CSE576, FOUNDATIONS, CSE5321, PARAMETRIC, CS11711)

Kind = Literal["definite", "overclaim", "convention", "no error"]
By = Literal["shapes", "limiting case", "trusted"]


class Finding(NamedTuple):
    """What a test found: whether its question was answered with yes, and what it measured, in words."""

    passes: bool
    measured: str


@dataclass(frozen=True, kw_only=True)
class Erratum:
    """One thing that decks get wrong, with the test that shows it.

    `printed` and `corrected` do the same job, as the slide has it and as it should be; `check` asks the one question
    that tells them apart, which `question` puts into words.

    * A "definite" erratum is wrong in every reading that the rest of its slide allows.
    * An "overclaim" is true of less than it says.
    * A "convention" is a choice that clashes with another, and `corrected` is the choice of this course.
    * "no error" is right as it stands, and easily misread: `printed` passes, and `misread` is what fails.
    """

    name: str
    decks: tuple[str, ...]
    place: str
    """The slide's heading, or what is to be seen on it."""
    claim: str
    """What the slide says, at most a line of it."""
    correction: str
    question: str
    printed: Callable[..., Any]
    corrected: Callable[..., Any]
    check: Callable[[Any], Finding]
    kind: Kind = "definite"
    by: By = "limiting case"
    """What kind of question finds it: do the shapes fit, a case whose answer is known, or something trusted."""
    misread: Callable[..., Any] | None = None
    """Of "no error" alone: what a hasty reader takes the line for."""
    lesson: str = ""
    """The one whose errata.py it stands in and whose lecture has the box: "deep_stacks"."""
    slip: bool = False
    """It may have happened when the slides were transcribed: we have seen texts of the decks, not the slides.

    True where one letter is at stake, or where another deck has the same slide and its transcription is right."""

    @property
    def found_in(self) -> str:
        """The deck's title; where there are several, the names of their courses."""
        if len(self.decks) == 1:
            return self.decks[0]
        return "; ".join(re.split("[,:]", deck)[0] for deck in self.decks)

    def __str__(self) -> str:
        """A card: who says what and where, what was asked, and what the test found as printed and corrected."""
        slip = "   († perhaps a slip of the transcription)" * self.slip
        lines = [f"{self.name}{slip}", f"    in     {self.found_in}", f"    at     {self.place}"]
        lines += [f"    says   {self.claim}", f"    right  {self.correction}", f"    {self.question}"]
        for name, implementation in self.readings.items():
            found = self.test(implementation)
            lines.append(f"    {'✓' if found.passes else '✗'} {name + ':':<11} {found.measured}")
        return "\n".join(lines)

    @property
    def readings(self) -> dict[str, Callable[..., Any]]:
        """All that its test is asked about, by name."""
        misread = {"misread": self.misread} if self.misread else {}
        return {"as printed": self.printed, **misread, "corrected": self.corrected}

    @property
    def holds(self) -> bool:
        """Whether the test says what the entry's kind says of each reading."""
        passes = {name: self.test(reading).passes for name, reading in self.readings.items()}
        right = {"as printed": self.kind == "no error", "corrected": True}
        return passes == right | ({"misread": False} if self.kind == "no error" else {})

    def test(self, implementation: Callable[..., Any]) -> Finding:
        """What the check finds in an implementation. One that crashes fails, and the error is what was measured."""
        try:
            with torch.random.fork_rng(devices=[]):  # the reader's random numbers stay as they were
                return self.check(implementation)
        except (RuntimeError, IndexError, ValueError, KeyError, TypeError) as error:
            return Finding(False, f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")


def drawn(*shape: int, seed: int = 0, scale: float = 1.0, shift: float = 0.0) -> Tensor:
    """Normal numbers, the same at every call, whatever was drawn before."""
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) + shift


def near(got: Tensor, expected: Tensor, what: str = "worst error", within: float = 1e-4) -> Finding:
    """How far two tensors are apart; NaN is as far as can be. Raises ValueError for different shapes."""
    if got.shape != expected.shape:
        raise ValueError(f"got shape {tuple(got.shape)}, expected {tuple(expected.shape)}")
    worst = (got - expected).abs().max().item()
    return Finding(worst <= within, f"{what} {worst:.2g}")


def equal(got: Any, expected: Any, what: str) -> Finding:
    """Two plain things, side by side."""
    return Finding(got == expected, f"{what} {got}, expected {expected}" if got != expected else f"{what} {got}")


N = 6  # tokens, where a number of tokens is needed


def masked(scores: Tensor, forbidden: Tensor) -> Tensor:
    return scores.masked_fill(forbidden, -torch.inf).softmax(dim=-1)


def places(n: int) -> tuple[Tensor, Tensor]:
    """i (n, 1), the query's position, and j (n,), the key's."""
    return torch.arange(n)[:, None], torch.arange(n)


def causal(scores: Tensor) -> Tensor:
    i, j = places(len(scores))
    return masked(scores, j > i)


def rows_share_one(weigh) -> Finding:
    sums = weigh(drawn(N, N)).sum(dim=-1)                                     # (n,)
    said = ", ".join("NaN" if math.isnan(total) else f"{total:.2f}" for total in sums.tolist())
    return Finding(torch.allclose(sums, torch.ones(N)), f"the rows sum to {said}")


D, EPS = 16, 1e-5


def over_features(x: Tensor) -> Tensor:
    return x.mean(dim=-1, keepdim=True)


NARANG = "Do Transformer Modifications Transfer?"
