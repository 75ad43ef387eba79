"""Gossip, made up: every verb must say who gave and who got, every pronoun whom it means."""

import random
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

WOMEN, MEN = ("Anna", "Eva", "Mia", "Ida"), ("Ben", "Tom", "Leo", "Max")
NAMES = WOMEN + MEN
VERBS, THINGS = ("lent", "sold", "gave", "showed"), ("book", "bike", "ball", "boat")
ADVERBS = ("gladly", "often", "once", "soon")
VOCABULARY = ("<pad>", *NAMES, *VERBS, *THINGS, *ADVERBS, "he", "she", "the", "and", "because")
QUESTIONS = ("who gave", "who got", "he / she is")


class Question(NamedTuple):
    """Who asks, what, and where in the sentence the name stands that is the answer."""

    asker: int
    kind: int
    """An index into `QUESTIONS`."""
    place: int


class Gossip(NamedTuple):
    """A padded batch of sentences and all m questions that their words ask."""

    tokens: Int[Tensor, "batch n"]
    lengths: Int[Tensor, " batch"]
    sentence: Int[Tensor, " m"]
    asker: Int[Tensor, " m"]
    kind: Int[Tensor, " m"]
    place: Int[Tensor, " m"]

    @property
    def answer(self) -> Int[Tensor, " m"]:
        """Which of `NAMES` is meant."""
        return self.tokens[self.sentence, self.place] - VOCABULARY.index(NAMES[0])


def tell(clauses: int, rng: random.Random) -> tuple[list[str], list[Question]]:
    """A sentence of so many clauses, and what its verbs and pronouns ask.

    A pronoun means the woman, or the man, who was named last. Adverbs stand around at random, so that counting words
    does not help.

    >>> words, questions = tell(2, random.Random(5))
    >>> " ".join(words)
    'Ben lent Max the bike and Eva often showed Tom the bike'
    """
    words: list[str] = []
    questions: list[Question] = []
    last: dict[str, int] = {}                                             # where "she" and "he" were named
    for _ in range(clauses):
        if words:
            words.append(rng.choice(("and", "because")))
        _clause(words, questions, last, rng)
    return words, questions


def _clause(words: list[str], questions: list[Question], last: dict[str, int], rng: random.Random) -> None:
    """Add e.g. "she soon lent Ben the book"."""
    if last and rng.random() < 0.5:
        pronoun = rng.choice(sorted(last))
        giver = last[pronoun]
        questions.append(Question(len(words), 2, giver))
        words.append(pronoun)
    else:
        giver = len(words)
        words.append(rng.choice(NAMES))
    _perhaps_an_adverb(words, rng)
    verb = len(words)
    words.append(rng.choice(VERBS))
    _perhaps_an_adverb(words, rng)
    taker = len(words)
    words += [rng.choice([name for name in NAMES if name != words[giver]]), "the", rng.choice(THINGS)]
    questions += [Question(verb, 0, giver), Question(verb, 1, taker)]
    for place in (giver, taker):
        last["she" if words[place] in WOMEN else "he"] = place


def _perhaps_an_adverb(words: list[str], rng: random.Random) -> None:
    if rng.random() < 0.4:
        words.append(rng.choice(ADVERBS))


def gossip(batch: int, rng: random.Random) -> Gossip:
    """So many sentences of two or three clauses, as tokens, and their questions."""
    told = [tell(rng.choice((2, 3)), rng) for _ in range(batch)]
    lengths = torch.tensor([len(words) for words, _ in told])             # (batch,)
    tokens = torch.zeros(batch, int(lengths.max()), dtype=torch.long)     # (batch, n)
    for row, (words, _) in zip(tokens, told, strict=True):
        row[: len(words)] = torch.tensor([VOCABULARY.index(word) for word in words])
    asked = [(i, *question) for i, (_, questions) in enumerate(told) for question in questions]
    return Gossip(tokens, lengths, *torch.tensor(asked).unbind(dim=1))
