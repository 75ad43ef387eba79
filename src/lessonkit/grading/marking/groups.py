"""Similar answers together, so that they are marked one after the other, and alike.

Answers are compared by their words, weighted by how rare they are in the class: the cosine of TF-IDF vectors (Salton
and Buckley 1988). Groups are made by sphere exclusion (Butina 1999): the answer with the most others near to it becomes
a group's centre, those near to it belong to the group, and so on with the rest. So all of a group are like its centre,
which is shown first, and no chain of neighbours leads to something else. It sees words and not meanings: the same idea
in other words is another group.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

# Of invented answers, the same idea in other words has 0.25 to 1, another idea 0.25 and less. A group too small costs
# some seconds; in one too large somebody might get the points of another.
ALIKE = 0.4
LONGEST = 20_000  # characters of an answer that are compared
STEM = 5  # letters: inflected forms of a word mostly share them
WORD = re.compile(r"[^\W_]+")


def groups(texts: Sequence[str]) -> list[list[int]]:
    """The places of the texts, similar ones together: the largest group first, in each first what is most typical."""
    near = _similarity(texts)
    alike = near >= ALIKE
    left = np.ones(len(texts), dtype=bool)
    found = []
    while left.any():
        neighbours = np.where(left, (alike & left).sum(axis=1), -1)
        centre = int(neighbours.argmax())
        members = [int(i) for i in np.flatnonzero(alike[centre] & left) if i != centre]
        found.append([centre, *sorted(members, key=lambda i: -near[centre, i])])
        left[found[-1]] = False
    return sorted(found, key=len, reverse=True)


def _similarity(texts: Sequence[str]) -> Float[np.ndarray, "n n"]:
    """How similar each text is to each other, from 0 to 1; 1 to itself, also where it has no words."""
    n = len(texts)
    holders: dict[str, list[tuple[int, float]]] = {}  # of a term: in which texts, and how often, damped
    for i, text in enumerate(texts):
        for term, times in Counter(_terms(text)).items():
            holders.setdefault(term, []).append((i, 1 + math.log(times)))
    near, lengths = np.zeros((n, n)), np.zeros(n)
    for held in holders.values():
        rarity = 1 + math.log((1 + n) / (1 + len(held)))
        where, weights = np.array([i for i, _ in held]), rarity * np.array([often for _, often in held])
        lengths[where] += weights**2
        if len(held) > 1:
            near[np.ix_(where, where)] += np.outer(weights, weights)
    lengths = np.sqrt(np.maximum(lengths, 1e-12))
    near /= np.outer(lengths, lengths)
    np.fill_diagonal(near, 1.0)
    return near


def _terms(text: str) -> list[str]:
    """A text's words, and their beginnings; of an answer without any words, its characters."""
    text = unicodedata.normalize("NFKC", text[:LONGEST]).casefold().replace("'", "").replace("’", "")
    words = WORD.findall(text) or list("".join(text.split()))
    return [term for word in words for term in {word, word[:STEM]}]
