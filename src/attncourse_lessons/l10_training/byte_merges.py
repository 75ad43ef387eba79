"""Byte-pair encoding that starts from bytes: learn merges from the words of a text, and cut a word by them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

Merge = tuple[bytes, bytes]


def learn_merges(counts: Mapping[str, int], n_merges: int) -> list[Merge]:
    """The merges in the order in which they are learned, from words and how often each occurs.

    Of equally frequent pairs the one that was counted first is taken.

    >>> learn_merges({"undzehn": 1, "und": 3, "hund": 1}, 2)
    [(b'u', b'n'), (b'un', b'd')]
    """
    cut = {word: _bytes(word) for word in counts}
    merges: list[Merge] = []
    for _ in range(n_merges):
        found: Counter[Merge] = Counter()
        for word, pieces in cut.items():
            for pair in pairwise(pieces):
                found[pair] += counts[word]
        merges.append(max(found, key=found.__getitem__))
        cut = {word: _merged(pieces, merges[-1]) for word, pieces in cut.items()}
    return merges


def cut_word(word: str, merges: Sequence[Merge]) -> list[bytes]:
    """The pieces of a word, by the merges in their order.

    >>> cut_word("rund", [(b"u", b"n"), (b"un", b"d")])
    [b'r', b'und']
    """
    pieces = _bytes(word)
    for pair in merges:
        pieces = _merged(pieces, pair)
    return pieces


def _bytes(word: str) -> list[bytes]:
    return [bytes([byte]) for byte in word.encode()]


def _merged(pieces: Sequence[bytes], pair: Merge) -> list[bytes]:
    merged: list[bytes] = []
    for piece in pieces:
        if merged and (merged[-1], piece) == pair:
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged
