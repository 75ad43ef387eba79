"""batch_by_tokens: sentences in batches of like length, each at most `batch_tokens` large with its padding."""

import torch

from attncourse.data import batch_by_tokens as share_out
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.inputs import told_apart
from lessonkit.exercises.local_runner import AspectFailed, Problem


def solution(lengths, batch_tokens):
    batches: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if not batches or (len(batches[-1]) + 1) * lengths[i] > batch_tokens:
            batches.append([])
        batches[-1].append(i)
    return batches


exercise = Exercise(
    "batch_by_tokens",
    reference=share_out,
    solution=solution,
    returns=("batches",),
    forbidden=("attncourse.data", "attncourse.training"),
    lists=True,
    difficulty=2,
    minutes=20,
    extra=True,
    hints=(
        "If you take the sentences from the shortest to the longest, how large is the rectangle of the batch that you "
        "are filling when one more comes in? It is then as wide as the new sentence is long.",
        "Sort the indices, not the lengths: `sorted` takes a `key`, and leaves equal ones in the order in which they "
        "came. For each index, (sentences in the last batch + 1) × its length is the new rectangle. Does it fit? One "
        "of exactly `batch_tokens` does.",
        "If it does not fit, or there is no batch yet, open a new one; then append, in any case. A sentence that is "
        "longer than the budget needs no case of its own.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _rectangles(batches, lengths):
    """(sentences,): how large the rectangle is in which each lies, padding and all; sorted, as equals may swap."""
    held = [0] * len(lengths)
    for batch in batches:
        if not batch:
            raise AspectFailed(Problem("unusable", "one of the batches is empty"))
        for i in batch:
            if not isinstance(i, int) or not 0 <= i < len(lengths):
                words = f"there is no sentence {i!r}: indices go from 0 to {len(lengths) - 1}"
                raise AspectFailed(Problem("unusable", words))
        for i in batch:
            held[i] += len(batch) * max(lengths[j] for j in batch)
    return torch.tensor([held[i] for i in sorted(range(len(lengths)), key=lambda i: (lengths[i], held[i]))])


def _tokens(got, expected):
    """Says of rectangles whether they are too large, or too small, or leave a sentence out."""
    if (got == 0).any():
        return f"{int((got == 0).sum())} of the sentences are in no batch"
    if got.max() > expected.max():
        return f"the largest batch has {got.max()} tokens with its padding; {expected.max()} is the most that is needed"
    if got.sum() < expected.sum():
        return f"batches could be fuller: the largest has {got.max()} tokens, and {expected.max()} would fit"
    return "the sentences are not in the batches that they should share: like lengths together, as many as fit"


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("equal lengths", points=1, hint=2, explain=_tokens)
def equal_lengths(answer, draw):
    """as many sentences of one length as fit, and no fewer where they fit exactly"""
    length, per_batch = draw.sizes(2, 3, 8)
    lengths = [length] * (3 * per_batch + 1)
    return _rectangles(answer(lengths, per_batch * length), lengths)


@aspect("in the order given", points=1, hint=2)
def in_the_order_given(answer, draw):
    """of sentences of one length those that come first share the first batch: shown is the first of each one's batch"""
    length, per_batch = draw.sizes(2, 3, 8)
    lengths = [length] * (3 * per_batch + 1)
    batches = answer(lengths, per_batch * length + 1)
    _rectangles(batches, lengths)
    first = [-1] * len(lengths)
    for batch in batches:
        for i in batch:
            first[i] = min(batch)
    return torch.tensor(first)


def _rising(draw):
    """Even lengths from short to long, of which some are equal; with an odd budget no batch is exactly full."""
    steps = draw.integers(3, 24).tolist()
    return [4 + 2 * sum(steps[: i + 1]) for i in range(24)]


def _any_order(draw):
    lengths = _rising(draw)
    return [lengths[i] for i in torch.randperm(24, generator=draw.generator).tolist()]


def _shared_out(answer, lengths):
    return _rectangles(answer(lengths, 3 * max(lengths) + 1), lengths)


@aspect("the padding counts", points=2, hint=1, explain=_tokens)
def the_padding_counts(answer, draw):
    """a batch is as large as its rectangle: how many sentences × the longest of them"""
    lengths = told_apart(exercise, "the padding counts", draw.seed, _rising, _shared_out)
    return _shared_out(answer, lengths)


@aspect("like with like", points=2, hint=2, explain=_tokens)
def like_with_like(answer, draw):
    """sentences that come in any order are sorted by length, so that little is padding"""
    lengths = told_apart(exercise, "like with like", draw.seed, _any_order, _shared_out)
    return _shared_out(answer, lengths)


@aspect("longer than the budget", points=1, hint=3, explain=_tokens)
def longer_than_the_budget(answer, draw):
    """a sentence that is longer than the budget is a batch of its own, wherever it comes"""
    short, k = draw.sizes(2, 3, 7)
    lengths = [2 * short] * (2 * k - 1) + [2 * short * k + 50, 2 * short * k + 60]
    budget = 2 * short * k + 2 * short - 1
    longs = [budget + 4, budget + 8]
    return torch.cat([_rectangles(answer(sentences, budget), sentences) for sentences in (lengths, longs)])


# -------------------------------------------------------------------------------------- one slip away from the solution

EVERY_BATCH = ("equal lengths", "in the order given", "the padding counts", "like with like", "longer than the budget")
UNEQUAL = ("the padding counts", "like with like")
RECTANGLE = "(len(batches[-1]) + 1) * lengths[i]"

slip("the padding is not counted", UNEQUAL, {RECTANGLE: "sum(lengths[j] for j in [*batches[-1], i])"}, words="""
    The lengths in a batch were added up. But a batch is a rectangle: short sentences are filled up to the longest,
    and the memory that they take is rows × longest. These batches are larger than the budget.""")
slip("not sorted", ("like with like",),
     {"sorted(range(len(lengths)), key=lambda i: lengths[i])": "range(len(lengths))",
      "* lengths[i]": "* max(lengths[j] for j in [*batches[-1], i])"},
     words="""
    The sentences were taken as they come, so that long and short ones share batches, and the short ones are mostly
    padding. Take them from the shortest to the longest.""")
slip("equals from the last", ("in the order given",), {"key=lambda i: lengths[i]": "key=lambda i: (lengths[i], -i)"},
     {"sorted(range(len(lengths)), key=lambda i: lengths[i])":
      "sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True)[::-1]"},
     words="""
    The batches are of the right size, but of sentences of one length the last ones come first. `sorted` keeps equals in
    the order in which they came; turning its result round turns them round as well.""")
slip("one short of full", ("equal lengths",), {"> batch": ">= batch"}, words="""
    A batch that would have been exactly full was closed one sentence too early: the budget is how many tokens it
    holds *at most*. > or ≥?""")
slip("the newcomer's length is not looked at", (*UNEQUAL, "longer than the budget"),
     {"* lengths[i]": "* lengths[batches[-1][-1]]"},
     words="""
    The rectangle was computed with the longest sentence that is in the batch already. The one that comes in is at
    least as long, and when it is in, all the others are padded to *its* length.""")
slip("from the longest", ("like with like",),
     {"key=lambda i: lengths[i]": "key=lambda i: -lengths[i]", "* lengths[i]": "* lengths[batches[-1][0]]"}, words="""
    The sentences were taken from the longest to the shortest. Begin with the shortest: which of them share a batch
    depends on where one begins.""")
slip("one too many", EVERY_BATCH,
     {RECTANGLE: "len(batches[-1]) * lengths[batches[-1][-1]]"},
     {RECTANGLE: "len(batches[-1]) * lengths[i]"}, words="""
    A batch was closed only once it was too large. Look before you append: would it still fit with this one?""")
slip("the last batch is lost", EVERY_BATCH, {"return batches": "return batches[:-1]"}, words="""
    When the sentences are all dealt out, a batch is still in your hands. It was never put down, so the longest
    sentences are never trained on.""")
slip("drops what is too long", ("longer than the budget",),
     {"if not batches": "if lengths[i] > batch_tokens:\n        continue\n    if not batches"},
     words="""
    Sentences longer than the budget have vanished. A loader that drops data in silence is worse than one that needs
    a little more memory: give such a sentence a batch of its own.""")
slip("an empty batch", ("longer than the budget",), {"= []": "= [[]]", "not batches or ": ""}, words="""
    A batch was closed when nothing was in it yet, because the first sentence alone is too long. An empty batch
    cannot be padded, nor can its loss be averaged.""")
slip("lengths for indices", EVERY_BATCH, {"append(i)": "append(lengths[i])"}, words="""
    The batches hold lengths. Nobody can fetch a sentence by its length: return where each stands in `lengths`.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("the same number in every batch", fails=(*UNEQUAL, "longer than the budget"))
def the_same_number_in_every_batch(lengths, batch_tokens):
    """All batches have as many sentences as the longest ones allow. That wastes what short sentences would leave room
    for: how many fit depends on how long these are."""
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    n = max(1, batch_tokens // max(lengths))
    return [order[i : i + n] for i in range(0, len(order), n)]


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a batch in the hand")
def a_batch_in_the_hand(lengths, batch_tokens):
    """Put down when it is full, and once more at the end."""
    batches: list = []
    batch: list = []
    for length, i in sorted((length, i) for i, length in enumerate(lengths)):
        if batch and (len(batch) + 1) * length > batch_tokens:
            batches.append(tuple(batch))
            batch = []
        batch.append(i)
    return [*batches, batch] if batch else batches


@alternative("torch's argsort, and tensors come back")
def torchs_argsort_and_tensors_come_back(lengths, batch_tokens):
    """Cuts slices out of the sorted indices."""
    order = torch.tensor(lengths).argsort(stable=True)
    batches, start = [], 0
    for end in range(1, len(order) + 1):
        if end == len(order) or (end + 1 - start) * lengths[order[end]] > batch_tokens:
            batches.append(order[start:end])
            start = end
    return batches
