"""byte_pairs: Learn `n_merges` merges and cut the words of `test` into pieces with them."""

from itertools import pairwise

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.inputs import told_apart
from lessonkit.exercises.local_runner import AspectFailed, Problem


def reference(train, test, n_merges):
    counts: dict[str, int] = {}
    for word in train:
        counts[word] = counts.get(word, 0) + 1
    cut = {word: list(word) for word in [*train, *test]}
    for _ in range(n_merges):
        pairs: dict[tuple[str, str], int] = {}
        for word, count in counts.items():
            for pair in pairwise(cut[word]):
                pairs[pair] = pairs.get(pair, 0) + count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        for word, pieces in cut.items():
            cut[word] = _merged(pieces, best)
    return [cut[word] for word in test]


def _merged(pieces, pair):
    out: list[str] = []
    for piece in pieces:
        joins = len(out) and (out[-1], piece) == pair
        out[-1:] = [out[-1] + piece] if joins else [*out[-1:], piece]
    return out


def solution(train, test, n_merges):
    def merge(pieces, pair):
        out: list[str] = []
        for piece in pieces:
            if out and (out[-1], piece) == pair:
                out[-1] += piece
            else:
                out.append(piece)
        return out

    learned_from, cut = [list(word) for word in train], [list(word) for word in test]
    for _ in range(n_merges):
        counts: dict[tuple[str, str], int] = {}
        for pieces in learned_from:
            for pair in pairwise(pieces):
                counts[pair] = counts.get(pair, 0) + 1
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        learned_from = [merge(pieces, best) for pieces in learned_from]
        cut = [merge(pieces, best) for pieces in cut]
    return cut


exercise = Exercise(
    "byte_pairs",
    reference=reference,
    solution=solution,
    returns=("pieces",),
    forbidden=("attncourse.data",),
    lists=True,
    difficulty=2,
    minutes=25,
    extra=True,
    hints=(
        "Keep every word as a list of its pieces, at first its letters. A merge goes through such a list from the left "
        "and puts one piece in place of two wherever the pair stands. The training words alone decide which pair.",
        "Each round: count the neighbours in the *training* words anew, as they are cut by now, find the pair with "
        "the largest count (of equal counts, the first in the alphabet: the smallest of the tuples `(-count, pair)` "
        "is both), and merge it in all words, the test's too.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _words(draw):
    """(train, test, n_merges): training words come several times; the test's have habits of their own."""
    syllables = ["".join("abcd"[i] for i in row) for row in draw.integers(4, 6, 2).tolist()]
    lexicon = ["".join(syllables[i] for i in row) for row in draw.integers(6, 7, 3).tolist()]
    train = [lexicon[min(int(7 * u * u), 6)] for u in draw.uniform(40).tolist()]
    other = ["".join("abcd"[i] for i in row) for row in draw.integers(4, 4, 2).tolist()]
    odd = [lexicon[i] + other[j] * 2 for i, j in zip(range(7), draw.integers(4, 7).tolist(), strict=True)]
    return train, [*odd, *lexicon[:3], *odd], 5


def _cuts(pieces, words):
    """(letters,) of booleans: behind which letters of all the words there is a cut."""
    if len(pieces) != len(words):
        raise AspectFailed(Problem("unusable", f"{len(pieces)} words came back for {len(words)}"))
    cuts = []
    for row, word in zip(pieces, words, strict=True):
        if "".join(map(str, row)) != word:
            raise AspectFailed(Problem("unusable", f"the pieces of {word!r} make {''.join(map(str, row))!r}"))
        cuts += [end for piece in row for end in [*[False] * (len(piece) - 1), True]]
    return torch.tensor(cuts)


def _cut_up(answer, inputs):
    return _cuts(answer(*inputs), inputs[1])


def _first_merge(draw):
    train, test, _ = _words(draw)
    return train, test, 1


def _tied(draw):
    """Words of two letters, no pair twice: all are equally frequent. The first seen is neither end of the alphabet."""
    letters = "".join("abcdefgh"[i] for i in torch.randperm(8, generator=draw.generator).tolist())
    a, b, c, d = sorted(letters[i : i + 2] for i in range(0, 8, 2))
    words = [b, a, d, c]
    return words, words, 1


def _differently_cut(got, expected):
    wrong = int((got != expected).sum())
    return f"after {wrong} of {len(got)} letters there is a cut where none should be, or none where one should be"


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("the first merge", points=1, hint=1, explain=_differently_cut)
def the_first_merge(answer, draw):
    """the most frequent neighbours of the training words become one piece, wherever they stand"""
    return _cut_up(answer, told_apart(exercise, "the first merge", draw.seed, _first_merge, _cut_up))


@aspect("merges of merges", points=2, hint=2, explain=_differently_cut)
def merges_of_merges(answer, draw):
    """what has grown together is counted anew, and can grow further"""
    return _cut_up(answer, told_apart(exercise, "merges of merges", draw.seed, _words, _cut_up))


@aspect("ties", points=1, hint=2, explain=_differently_cut)
def ties(answer, draw):
    """of equally frequent pairs the alphabetically first is merged"""
    return _cut_up(answer, told_apart(exercise, "ties", draw.seed, _tied, _cut_up))


# -------------------------------------------------------------------------------------- one slip away from the solution

EVERY_MERGE = ("the first merge", "merges of merges")
RANKED = "(counts, key=lambda pair: (-counts[pair], pair))"

slip("vocabulary from the test set", EVERY_MERGE, {"in train]": "in train + test]"}, words="""
    The test's words were counted as well. So the pieces know what will be asked: the test set looks easier than any
    new text will be, and whoever reports the number does not know it. Learn from the training words alone, and
    *apply* to the test.""")
slip("the last of equals", ("ties",), {f"min{RANKED}": "max(counts, key=lambda pair: (counts[pair], pair))"}, words="""
    Of equally frequent pairs the alphabetically *last* was merged, as in the lecture's cell. Here it is the first:
    large counts and small pairs, so one of the two needs a minus.""")
slip("the first seen of equals", ("ties",),
     {f"min{RANKED}": "max(counts, key=counts.get)"},
     words="""
    Of equally frequent pairs the one that was seen first was merged: `max` takes the first that it meets. Then the
    result depends on the order of the words. The alphabetically first pair is asked for.""")
slip("pairs over the ends of words", EVERY_MERGE,
     {"for pieces in learned_from:":
      "for pieces in [[piece for pieces in learned_from for piece in pieces]]:"}, words="""
    The last letter of a word and the first of the next were counted as neighbours. Words are counted one by one: their
    order says nothing.""")
slip("every word counted once", EVERY_MERGE, {"in train]": "in dict.fromkeys(train)]"}, words="""
    A word that comes ten times was counted once. Frequent words are what a vocabulary is to be made for: count
    every occurrence.""")
slip("a pair counted once a word", EVERY_MERGE, {"in pairwise(pieces)": "in set(pairwise(pieces))"}, words="""
    A pair that stands twice in one word was counted once. Every place where it could be merged counts.""")
slip("a merge too few", (*EVERY_MERGE, "ties"), {"range(n_merges)": "range(n_merges - 1)"}, words="""
    One merge fewer was learned than was asked for: the words are cut into smaller pieces than they need be.""")
slip("a merge too many", (*EVERY_MERGE, "ties"), {"range(n_merges)": "range(n_merges + 1)"}, words="""
    One merge more was learned than was asked for.""")
slip("counted once and for all", ("merges of merges",),
     {"for _ in": "for t in",
      f"min{RANKED}": f"sorted{RANKED}[t]",
      "    learned_from = [merge(pieces, best) for pieces in learned_from]\n": ""},
     words="""
    The pairs of letters were counted at the beginning, and the most frequent ones taken in their order. But a merge
    changes who is whose neighbour, and makes pieces that can be merged again: count anew after each.""")
slip("only the first place in a word", EVERY_MERGE,
     {"for piece in pieces": "for i, piece in enumerate(pieces)",
      "if out and": "if out and len(out) == i and"},  # nothing has been merged yet
     words="""
    A pair that stands twice in a word was merged once. Go on after the place where you merged.""")
slip("the rarest first", EVERY_MERGE, {"-counts": "counts"}, words="""
    The pair with the *smallest* count was merged. It is the frequent neighbours that grow together.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("texts with spaces between the pieces")
def texts_with_spaces_between_the_pieces(train, test, n_merges):
    """Merging is replacing in a text; learning and applying are apart."""

    def merge(text, a, b):
        pieces, out = text.split(" "), []
        while pieces:
            if pieces[:2] == [a, b]:
                out.append(a + b)
                pieces = pieces[2:]
            else:
                out.append(pieces.pop(0))
        return " ".join(out)

    texts, merges = [" ".join(word) for word in train], []
    for _ in range(n_merges):
        neighbours = [pair for text in texts for pair in pairwise(text.split(" "))]
        merges.append(max(sorted(set(neighbours)), key=neighbours.count))
        texts = [merge(text, *merges[-1]) for text in texts]
    words = [" ".join(word) for word in test]
    for pair in merges:
        words = [merge(word, *pair) for word in words]
    return [tuple(word.split(" ")) for word in words]


@alternative("one list of all, the test behind a border")
def one_list_of_all_the_test_behind_a_border(train, test, n_merges):
    """The test's words are cut along with the others, and counted by nobody."""
    cut = [list(word) for word in train + test]
    for _ in range(n_merges):
        pairs: dict = {}
        for pieces in cut[: len(train)]:
            for pair in pairwise(pieces):
                pairs[pair] = pairs.get(pair, 0) + 1
        most = max(pairs.values())
        best = min(pair for pair, count in pairs.items() if count == most)
        for pieces in cut:
            i = 0
            while i + 1 < len(pieces):
                if (pieces[i], pieces[i + 1]) == best:
                    pieces[i] += pieces.pop(i + 1)
                i += 1
    return cut[len(train) :]
