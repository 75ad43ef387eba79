"""The company that words keep: which other words stand near them in a text, and how often."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from attncourse._checks import check_at_least


class WordContexts(NamedTuple):
    """A row of counts for each word that was asked for, a column for each context word."""

    counts: Float[Tensor, "n_words n_contexts"]
    contexts: list[str]
    """The most frequent words of the texts, the most frequent first: the columns of `counts`."""
    occurrences: Counter[str]
    """How often each word stands in the texts."""


def word_contexts(
    texts: Sequence[Sequence[str]], words: Sequence[str], n_contexts: int = 500, reach: int = 3
) -> WordContexts:
    """How often each of `words` has each of the `n_contexts` most frequent words within `reach` places of it.

    `texts` are lists of words. A word's own place does not count, and a window ends where its text ends.

    >>> found = word_contexts([["a", "cat", "a", "dog"]], words=["cat", "dog"], n_contexts=2, reach=1)
    >>> found.contexts, found.counts.tolist()
    (['a', 'cat'], [[2.0, 0.0], [1.0, 0.0]])
    """
    check_at_least(1, n_contexts=n_contexts, reach=reach)
    occurrences = Counter(word for text in texts for word in text)
    contexts = [word for word, _ in occurrences.most_common(n_contexts)]
    row = {word: place for place, word in enumerate(words)}
    column = {word: place for place, word in enumerate(contexts)}
    counts = torch.zeros(len(words), len(contexts))
    for text in texts:
        for place, word in enumerate(text):
            if word in row:
                for other in [*text[max(0, place - reach) : place], *text[place + 1 : place + 1 + reach]]:
                    if other in column:
                        counts[row[word], column[other]] += 1
    return WordContexts(counts, contexts, occurrences)
