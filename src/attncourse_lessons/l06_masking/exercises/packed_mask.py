"""packed_mask: which positions of a packed row may attend to which, where a row holds several documents."""

import torch
from torch import Tensor

from attncourse import attention
from lessonkit.exercises.exercise import Exercise

from .common import READY_MADE, truth


def reference(documents):
    """Itself and what came before it in the same document: (batch, n, n)."""
    same = documents[:, :, None] == documents[:, None, :]
    return attention.combine_masks(attention.causal_mask(documents.shape[1]), same)


def solution(documents):
    n = documents.shape[1]
    same = documents[:, :, None] == documents[:, None, :]               # (batch, n, n)
    return same & torch.ones(n, n, dtype=torch.bool).tril()             # (batch, n, n)


exercise = Exercise(
    "packed_mask",
    reference=reference,
    solution=solution,
    returns=("mask",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    extra=True,
    hints=(
        "Two conditions, joined by &: j ≤ i, and the same document. The first is a table (n, n) that you have already. "
        "The second depends on the sentence.",
        "Compare the numbers of the documents with themselves, in every sentence each with each. Which shape must the "
        "one have, and which the other, for that to be a table (batch, n, n)?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _starts(draw) -> Tensor:
    """Where a new document begins, (batch, n): in the middle of every row, and elsewhere by chance.

    Not at the first place, so that a count of them begins with 0. In the first two rows not at the same places: each
    has a pair of neighbours in one document that the other has not.
    """
    batch, n = draw.sizes(2, 4, 9)
    starts = draw.uniform(batch, n) < 0.4
    starts[:, 0], starts[:, n // 2] = False, True
    starts[0, 1], starts[0, -1] = False, True
    starts[1, 1], starts[1, -1] = True, False
    return starts


def _before(mask: Tensor) -> Tensor:
    """What the mask says of pairs with j < i: there only the documents count, and not the order."""
    return mask & torch.ones(mask.shape[-2:], dtype=torch.bool).tril(-1)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("mask", points=1, hint=1, explain=truth)
def mask(answer, draw):
    """itself, and what came before it in the same document"""
    return answer(_starts(draw).cumsum(dim=1))


@aspect("numbers of any kind", points=1, hint=2, explain=truth)
def numbers_of_any_kind(answer, draw):
    """a position attends to its own document alone; the numbers need not rise, nor begin with 0"""
    starts = _starts(draw)
    batch, n = starts.shape
    numbers = draw.uniform(batch, n + 1).argsort(dim=-1) - 2
    numbers[0], numbers[1] = numbers[0].sort().values, numbers[1].sort(descending=True).values
    zero = torch.tensor([[7] * (n - 2) + [0, 0]])
    return _before(answer(torch.cat([numbers.gather(1, starts.cumsum(dim=1)), zero])))


@aspect("a document that goes on later", points=1, hint=2, explain=truth)
def a_document_that_goes_on_later(answer, draw):
    """equal numbers are the same document, even with another one in between"""
    batch, n = draw.sizes(2, 4, 9)
    documents = draw.integers(2, batch, n) + 4
    documents[:, :3] = torch.tensor([5, 4, 5])  # in every row one is interrupted
    documents[1, 3] = 9 - documents[0, 3]
    return _before(answer(documents))


# -------------------------------------------------------------------------------------- one slip away from the solution

LATER = ("a document that goes on later",)
ALL = ("mask", "numbers of any kind", *LATER)
RETURNED = "return same & torch.ones(n, n, dtype=torch.bool).tril()"

slip("the future of the document", ("mask",), {" & torch.ones(n, n, dtype=torch.bool).tril()": ""}, words="""
    Documents are kept apart, but inside one every position attends to all others, the future too. The second
    condition, j ≤ i, is missing.""")
slip("documents not kept apart", ALL, {"return same": "return torch.ones_like(same)"}, words="""
    This is the causal mask alone: the second document reads the first.""")
slip("earlier documents too", ALL, {"==": ">="}, words="""
    The numbers were compared by ≤, so a document sees those with smaller numbers. A number is a name here, not a size:
    same or not the same.""")
slip("one condition is enough", ALL, {"same &": "same |"}, words="""
    The two conditions were joined by "or", so a pair that satisfies one is allowed. Both must hold.""")
slip("not even itself", ("mask",), {"tril()": "tril(-1)"}, words="""
    The diagonal is False: a position may not attend to itself, and the first token of every document has nothing left
    to attend to.""")
slip("a rise of the number starts a new document", ("numbers of any kind", *LATER),
    {"same =": "documents = (documents.diff(dim=1, prepend=documents[:, :1] - 1) > 0).cumsum(dim=1)\nsame ="},
    words="""
    The mask was made from the places where the number rises. The contract promises only that equal numbers mean the
    same document: compare them for equality.""")
slip("a change of number starts a new document", LATER,
    {"same =": "documents = (documents.diff(dim=1, prepend=documents[:, :1] - 1) != 0).cumsum(dim=1)\nsame ="},
    words="""
    The mask was made from the places where the number changes. A document may be interrupted by another one and go on
    later: equal numbers mean the same document, wherever they stand. Compare the numbers for equality.""")
slip("mask upside down", ALL, {RETURNED:
     "return ~(same & torch.ones(n, n, dtype=torch.bool).tril())"}, words="""
    The mask is False where a position may attend, and True everywhere else. True means "may attend".""")
slip("future for past", ALL, {"tril()": "triu()"}, words="""
    Each position attends to itself and to what comes *after* it in its document. Row i is a query: it may attend to the
    keys j ≤ i.""")
slip("document 0 is padding", ("mask", "numbers of any kind"),
     {"return same": "return same & (documents != 0)[:, None]"}, words="""
    The document with the number 0 was taken for padding. Nothing is padded here, and 0 is a number like any other.""")
slip("one row's documents for all", ALL, {"documents[:, :, None] == documents[:, None, :]":
     "(documents[:1, :, None] == documents[:1, None, :]).expand(len(documents), -1, -1)"}, words="""
    Every row was cut where the first one is. Each row of the batch holds documents of its own: compare the numbers row
    by row.""")
slip("one mask for the whole batch", ALL,
     {RETURNED: "return (torch.ones(n, n, dtype=torch.bool).tril() & same).any(dim=0).expand_as(same)"},
     {RETURNED: "return (torch.ones(n, n, dtype=torch.bool).tril() & same).all(dim=0).expand_as(same)"}, words="""
    The masks of all rows were joined into one, which then served for every row. Each row of the batch holds documents
    of its own, which begin and end elsewhere. Which axis of the mask runs over the rows?""")
slip("blocks in the order of the numbers", ("numbers of any kind", *LATER),
     {"same =": "documents = documents.sort(dim=1).values\nsame ="}, words="""
    It was counted how long each document is, or the numbers were sorted, and the documents' blocks then stand in the
    order of their *numbers*. Where a document really stands is lost. Try it with a row of 7 7 3: which positions belong
    to document 3?""")
slip("one document's neighbour too", ALL, {"documents[:, :, None] == documents[:, None, :]":
     "(documents[:, :, None] - documents[:, None, :]).abs() <= 1"}, words="""
    Documents whose numbers lie one apart were taken for the same. A number is a name here: same or not the same.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("three nested loops")
def three_nested_loops(documents):
    """As the conditions read."""
    batch, n = documents.shape
    mask = torch.zeros(batch, n, n, dtype=torch.bool)
    for b in range(batch):
        for i in range(n):
            for j in range(i + 1):
                mask[b, i, j] = documents[b, i] == documents[b, j]
    return mask


@alternative("tril of a comparison")
def tril_of_a_comparison(documents):
    """Numbers on the way."""
    return documents.unsqueeze(2).eq(documents.unsqueeze(1)).int().tril().bool()


@alternative("blocks, document by document")
def blocks_document_by_document(documents):
    """For each number the pairs that both bear it; the causal mask by a comparison of places."""
    place = torch.arange(documents.shape[1])
    mask = torch.zeros(*documents.shape, documents.shape[1], dtype=torch.bool)
    for number in documents.unique():
        inside = documents == number
        mask |= inside[:, :, None] & inside[:, None, :]
    return mask & (place <= place[:, None])
