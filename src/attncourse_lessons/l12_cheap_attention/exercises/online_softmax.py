"""online_softmax: Take one more chunk of scores into account."""

import math

import torch
from torch import Tensor

from attncourse import efficient
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import row_sums

from .common import READY_MADE, start


def solution(scores, largest, total):
    new_largest = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    base = new_largest.clamp(min=torch.finfo(scores.dtype).min)  # finite, even after −∞ alone
    old = total * (largest - base).exp()
    return new_largest, old + (scores - base).exp().sum(dim=-1, keepdim=True)


exercise = Exercise(
    "online_softmax",
    reference=efficient.online_softmax_step,
    solution=solution,
    returns=("largest", "total"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "Three things happen: the largest score may grow, the old sum must be brought to the new largest, and the "
        "chunk's own exponentials are added. Which factor turns exp(s − 3) into exp(s − 5)?",
        "The factor for the old sum contains both the old largest and the new one, and is never above 1.",
        "If a row has seen nothing but −∞, the new largest is −∞ too, and −∞ − (−∞) is NaN. Subtract something finite "
        "in that row instead; the exponential of −∞ is 0, whatever finite number you take away.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _after(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The right state after these scores."""
    largest = scores.amax(dim=-1, keepdim=True)
    return largest, (scores - largest).exp().sum(dim=-1, keepdim=True)


def _by_row(draw, batch: int, n_query: int) -> Tensor:
    """A level for each row, no two alike: a row's largest score is its own."""
    levels = torch.randperm(batch * n_query, generator=draw.child("levels").generator)
    return 3.0 * (levels - batch * n_query // 2).view(batch, n_query, 1)


def _next_chunk(answer, draw, sign: int) -> Tensor:
    """The state after a chunk in which each row's largest score is larger (or smaller) than all before."""
    batch, n_query, n_first, n_chunk = draw.sizes(4, 2, 7)
    levels = _by_row(draw, batch, n_query)
    first, chunk = levels + draw.normal(batch, n_query, n_first), draw.normal(batch, n_query, n_chunk)
    apart = sign * (0.5 + draw.uniform(batch, n_query, 1))
    chunk = chunk - chunk.amax(dim=-1, keepdim=True) + first.amax(dim=-1, keepdim=True) + apart
    return torch.cat(answer(chunk, *_after(first)), dim=-1)


def _shares(answer, chunks: list[Tensor]) -> Tensor:
    """Softmax of all chunks, from the state that the answer carries through them."""
    state = start(*chunks[0].shape[:-1])
    for chunk in chunks:
        state = answer(chunk, *state)
    largest, total = state
    return torch.cat([(chunk - largest).exp() / total for chunk in chunks], dim=-1)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("the first chunk", points=1, hint=1)
def the_first_chunk(answer, draw):
    """from −∞ and 0: the largest score of each row, and the sum of exp(score − largest)"""
    batch, n_query, n_chunk = draw.sizes(3, 2, 7)
    scores = _by_row(draw, batch, n_query) + draw.normal(batch, n_query, n_chunk)
    return torch.cat(answer(scores, *start(batch, n_query)), dim=-1)


@aspect("a larger score turns up", points=2, hint=2)
def a_larger_score_turns_up(answer, draw):
    """what was summed before is scaled down to the new largest"""
    return _next_chunk(answer, draw, 1)


@aspect("no larger score", points=1, hint=2)
def no_larger_score(answer, draw):
    """the largest stays, and the chunk is added"""
    return _next_chunk(answer, draw, -1)


@aspect("many chunks of large scores", points=1, hint=2, explain=row_sums)
def many_chunks_of_large_scores(answer, draw):
    """four chunks, scores of about 300 or −300: the attention weights are softmax's"""
    batch, n_query = draw.sizes(2, 2, 4)
    levels = 300.0 * (-1) ** torch.arange(n_query)[:, None]
    sizes = draw.sizes(4, 2, 6)
    return _shares(answer, [levels + 2 * draw.normal(batch, n_query, size) for size in sizes])


@aspect("a chunk of −∞", points=1, hint=3)
def a_chunk_of(answer, draw):
    """a row whose chunk is masked throughout, the first or a later one, loses nothing and gains nothing"""
    batch, n_query = draw.sizes(2, 2, 4)
    chunks = [draw.normal(batch, n_query, size) for size in draw.sizes(3, 2, 6)]
    chunks[0][:, 0], chunks[2][:, 0] = -math.inf, -math.inf
    return _shares(answer, chunks)[:, 0]


# -------------------------------------------------------------------------------------- one slip away from the solution

LARGER = ("a larger score turns up", "many chunks of large scores")
LATER = ("a larger score turns up", "no larger score", "many chunks of large scores")
OWN = "scores.amax(dim=-1, keepdim=True)"
SO_FAR = f"torch.maximum(largest, {OWN})"
SHRINK = " * (largest - base).exp()"

slip("rescale forgotten", LARGER, {SHRINK: ""}, words="""
    The new largest was taken away from the chunk's scores and the old one from those in the old sum, and the two were
    added as they are. Apples and oranges: every term of the old sum is too large by the same factor. Which?""")

slip("rescaled the wrong way round", ("the first chunk", *LARGER, "a chunk of −∞"),
     {"largest - base": "base - largest"},
     words="""
    The old sum was multiplied by exp(new − old), which is above 1. When a larger score turns up, what was summed before
    becomes less important, so it must shrink. (With a start of −∞ the factor is infinite, and ∞ · 0 is NaN.)""")

slip("each chunk by its own largest", (*LATER, "a chunk of −∞"), {SO_FAR: OWN, SHRINK: ""}, words="""
    The largest score was not carried over: in each chunk it is the chunk's own largest that was taken away, and then
    the sums were added. All terms of a sum need the same number taken away, the largest of all so far.""")

slip("the old largest is dropped", ("no larger score", "a chunk of −∞"), {SO_FAR: OWN}, words="""
    The chunk's largest score took the place of the largest so far, even where it is smaller. The sums still fit each
    other, but the factor for the old sum may then be above 1, without limit, and we are back at the overflow that
    taking the largest away was meant to avoid.""")

slip("nothing taken away", ("the first chunk", *LATER, "a chunk of −∞"),
     {SHRINK: "", "(scores - base)": "scores"},
     words="""
    The bare exponentials were summed. exp(300) does not fit into float32, and exp(−300) is 0 in it. The contract asks
    for the sum of exp(score − largest so far).""")

slip("one largest for all rows", ("the first chunk", *LATER), {OWN: "scores.max()"}, words="""
    `scores.max()` is the largest of the whole batch. A row whose own scores are far below it has nothing but
    exponentials of 0, and 0/0 follows. Every row is a softmax of its own and needs its own largest: along which axis,
    and with the axis kept?""")

slip("the mean of the exponentials", ("the first chunk", *LATER, "a chunk of −∞"), {".sum(dim": ".mean(dim"}, words="""
    The chunk's exponentials were averaged. Chunks may be of different lengths, and their means cannot be added: it is a
    sum that is carried on.""")

slip("begins again at each chunk", (*LATER, "a chunk of −∞"), {"old + ": ""}, words="""
    The sum of this chunk alone came back: what was summed before is lost. `total` came in for a reason.""")

slip("NaN where all is masked", ("a chunk of −∞",), {".clamp(min=torch.finfo(scores.dtype).min)": ""}, words="""
    Where a row has seen nothing but −∞, its largest score is −∞, and −∞ − (−∞) is NaN, which stays in the sum for good.
    Masked tiles are common (half of all, under a causal mask). What could be taken away there in place of −∞, so that
    every exponential is 0?""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("each chunk by its own largest", fails=LATER)
def the_largest_carried_over_and_not_used(scores, largest, total):
    """The largest is carried over, and not used."""
    own = scores.amax(dim=-1, keepdim=True)
    base = own.clamp(min=torch.finfo(scores.dtype).min)
    return torch.maximum(largest, own), total + (scores - base).exp().sum(dim=-1, keepdim=True)


@variant("the old largest is dropped", fails=("no larger score",))
def the_old_largest_is_dropped_unless_all_is_masked(scores, largest, total):
    """Unless all of the chunk is masked."""
    new = scores.amax(dim=-1, keepdim=True)
    new = torch.where(new.isinf(), largest, new)
    base = new.clamp(min=torch.finfo(scores.dtype).min)
    return new, total * (largest - base).exp() + (scores - base).exp().sum(dim=-1, keepdim=True)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("in the logarithm")
def in_the_logarithm(scores, largest, total):
    """Adds logarithms of sums."""
    new = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    before = torch.where(largest.isinf(), -math.inf, largest + total.clamp(min=1e-30).log())
    log_sum = torch.logaddexp(before, scores.logsumexp(dim=-1, keepdim=True))
    return new, torch.where(new.isinf(), 0.0, (log_sum - torch.where(new.isinf(), 0.0, new)).exp())


@alternative("one score at a time")
def one_score_at_a_time(scores, largest, total):
    """A loop over the chunk, with `where` against −∞."""
    for score in scores.split(1, dim=-1):
        new = torch.where(score > largest, score, largest)
        shrink = torch.where(largest == new, 1.0, (largest - new).exp())
        total = total * shrink + torch.where(score.isinf(), 0.0, (score - new).exp())
        largest = new
    return largest, total


@alternative("float64, not contiguous")
def float64_not_contiguous(scores, largest, total):
    """Double precision, einsum for the sum, and a transposed view."""
    both = torch.cat([largest, scores], dim=-1).double()
    new, _ = both.max(dim=-1, keepdim=True)
    terms = torch.nan_to_num((both - new).exp(), nan=0.0)
    weights = torch.cat([total.double(), torch.ones_like(scores).double()], dim=-1)
    return new, torch.einsum("bqj,bqj->qb", terms, weights).T.unsqueeze(-1)
