"""Assignment 11: attention that costs less: in chunks, under a pattern, with fewer keys, and one token at a time.

Function bodies below stand in for a learner's: they use torch alone, and the argument names of the contract.
"""

import math

import torch
from torch import Tensor

from attncourse import attention, efficient
from attncourse.exercises.core import Exercise
from attncourse.exercises.judge import arrives, row_sums, told
from attncourse.exercises.observe import reached, telling

READY_MADE = (
    "attncourse.attention",
    "attncourse.efficient",
    "attncourse.transformer",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.functional.multi_head_attention_forward",
    "torch.nn.MultiheadAttention",
)


# ------------------------------------------------------------------------------------------------------ online_softmax

online_softmax = Exercise(
    "online_softmax",
    reference=efficient.online_softmax_step,
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


def _start(*shape: int) -> tuple[Tensor, Tensor]:
    """Nothing seen yet."""
    return torch.full((*shape, 1), -math.inf), torch.zeros(*shape, 1)


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
    state = _start(*chunks[0].shape[:-1])
    for chunk in chunks:
        state = answer(chunk, *state)
    largest, total = state
    return torch.cat([(chunk - largest).exp() / total for chunk in chunks], dim=-1)


@online_softmax.aspect("the first chunk", points=1)
def _(answer, draw):
    """from −∞ and 0: the largest score of each row, and the sum of exp(score − largest)"""
    batch, n_query, n_chunk = draw.sizes(3, 2, 7)
    scores = _by_row(draw, batch, n_query) + draw.normal(batch, n_query, n_chunk)
    return torch.cat(answer(scores, *_start(batch, n_query)), dim=-1)


@online_softmax.aspect("a larger score turns up", points=2)
def _(answer, draw):
    """what was summed before is scaled down to the new largest"""
    return _next_chunk(answer, draw, 1)


@online_softmax.aspect("no larger score", points=1)
def _(answer, draw):
    """the largest stays, and the chunk is added"""
    return _next_chunk(answer, draw, -1)


@online_softmax.aspect("many chunks of large scores", points=1, explain=row_sums)
def _(answer, draw):
    """four chunks, scores of about 300 or −300: the shares are softmax's"""
    batch, n_query = draw.sizes(2, 2, 4)
    levels = 300.0 * (-1) ** torch.arange(n_query)[:, None]
    sizes = draw.sizes(4, 2, 6)
    return _shares(answer, [levels + 2 * draw.normal(batch, n_query, size) for size in sizes])


@online_softmax.aspect("a chunk of −∞", points=1)
def _(answer, draw):
    """a row whose chunk is masked throughout, the first or a later one, loses nothing and gains nothing"""
    batch, n_query = draw.sizes(2, 2, 4)
    chunks = [draw.normal(batch, n_query, size) for size in draw.sizes(3, 2, 6)]
    chunks[0][:, 0], chunks[2][:, 0] = -math.inf, -math.inf
    return _shares(answer, chunks)[:, 0]


@online_softmax.misconception("rescale forgotten", fails=("a larger score turns up", "many chunks of large scores"))
def _(scores, largest, total):
    """The new largest was taken away from the chunk's scores and the old one from those in the old sum, and the two
    were added as they are. Apples and oranges: every term of the old sum is too large by the same factor. Which?"""
    new = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    base = new.clamp(min=torch.finfo(scores.dtype).min)
    return new, total + (scores - base).exp().sum(dim=-1, keepdim=True)


@online_softmax.misconception(
    "rescaled the wrong way round",
    fails=("the first chunk", "a larger score turns up", "many chunks of large scores", "a chunk of −∞"),
)
def _(scores, largest, total):
    """The old sum was multiplied by exp(new − old), which is above 1. When a larger score turns up, what was summed
    before becomes less important, so it must shrink. (With a start of −∞ the factor is infinite, and ∞ · 0 is NaN.)"""
    new = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    base = new.clamp(min=torch.finfo(scores.dtype).min)
    return new, total * (base - largest).exp() + (scores - base).exp().sum(dim=-1, keepdim=True)


@online_softmax.misconception(
    "each chunk by its own largest",
    fails=("a larger score turns up", "no larger score", "many chunks of large scores", "a chunk of −∞"),
)
def _(scores, largest, total):
    """The largest score was not carried over: in each chunk it is the chunk's own largest that was taken away, and
    then the sums were added. All terms of a sum need the same number taken away, the largest of all so far."""
    own = scores.amax(dim=-1, keepdim=True)
    base = own.clamp(min=torch.finfo(scores.dtype).min)
    return own, total + (scores - base).exp().sum(dim=-1, keepdim=True)


@online_softmax.variant(
    "each chunk by its own largest",
    fails=("a larger score turns up", "no larger score", "many chunks of large scores"),
)
def _(scores, largest, total):
    """The largest is carried over, and not used."""
    own = scores.amax(dim=-1, keepdim=True)
    base = own.clamp(min=torch.finfo(scores.dtype).min)
    return torch.maximum(largest, own), total + (scores - base).exp().sum(dim=-1, keepdim=True)


@online_softmax.misconception("the old largest is dropped", fails=("no larger score", "a chunk of −∞"))
def _(scores, largest, total):
    """The chunk's largest score took the place of the largest so far, even where it is smaller. The sums still fit each
    other, but the factor for the old sum may then be above 1, without limit, and we are back at the overflow that
    taking the largest away was meant to avoid."""
    new = scores.amax(dim=-1, keepdim=True)
    base = new.clamp(min=torch.finfo(scores.dtype).min)
    return new, total * (largest - base).exp() + (scores - base).exp().sum(dim=-1, keepdim=True)


@online_softmax.misconception(
    "nothing taken away",
    fails=(
        "the first chunk", "a larger score turns up", "no larger score", "many chunks of large scores", "a chunk of −∞"
    ),
)  # fmt: skip
def _(scores, largest, total):
    """The bare exponentials were summed. exp(300) does not fit into float32, and exp(−300) is 0 in it. The contract
    asks for the sum of exp(score − largest so far)."""
    new = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    return new, total + scores.exp().sum(dim=-1, keepdim=True)


@online_softmax.misconception(
    "one largest for all rows",
    fails=("the first chunk", "a larger score turns up", "no larger score", "many chunks of large scores"),
)
def _(scores, largest, total):
    """`scores.max()` is the largest of the whole batch. A row whose own scores are far below it has nothing but
    exponentials of 0, and 0/0 follows. Every row is a softmax of its own and needs its own largest: along which axis,
    and with the axis kept?"""
    new = torch.maximum(largest, scores.max())
    base = new.clamp(min=torch.finfo(scores.dtype).min)
    return new, total * (largest - base).exp() + (scores - base).exp().sum(dim=-1, keepdim=True)


@online_softmax.misconception(
    "begins again at each chunk",
    fails=("a larger score turns up", "no larger score", "many chunks of large scores", "a chunk of −∞"),
)
def _(scores, largest, total):
    """The sum of this chunk alone came back: what was summed before is lost. `total` came in for a reason."""
    new = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    base = new.clamp(min=torch.finfo(scores.dtype).min)
    return new, (scores - base).exp().sum(dim=-1, keepdim=True)


@online_softmax.misconception("NaN where all is masked", fails=("a chunk of −∞",))
def _(scores, largest, total):
    """Where a row has seen nothing but −∞, its largest score is −∞, and −∞ − (−∞) is NaN, which stays in the sum for
    good. Masked tiles are common (half of all, under a causal mask). What could be taken away there in place of −∞, so
    that every exponential is 0?"""
    new = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    return new, total * (largest - new).exp() + (scores - new).exp().sum(dim=-1, keepdim=True)


@online_softmax.alternative("in the logarithm")
def _(scores, largest, total):
    """Adds logarithms of sums."""
    new = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    before = torch.where(largest.isinf(), -math.inf, largest + total.clamp(min=1e-30).log())
    log_sum = torch.logaddexp(before, scores.logsumexp(dim=-1, keepdim=True))
    return new, torch.where(new.isinf(), 0.0, (log_sum - torch.where(new.isinf(), 0.0, new)).exp())


@online_softmax.alternative("one score at a time")
def _(scores, largest, total):
    """A loop over the chunk, with `where` against −∞."""
    for score in scores.split(1, dim=-1):
        new = torch.where(score > largest, score, largest)
        shrink = torch.where(largest == new, 1.0, (largest - new).exp())
        total = total * shrink + torch.where(score.isinf(), 0.0, (score - new).exp())
        largest = new
    return largest, total


@online_softmax.alternative("float64, not contiguous")
def _(scores, largest, total):
    """Double precision, einsum for the sum, and a transposed view."""
    both = torch.cat([largest, scores], dim=-1).double()
    new, _ = both.max(dim=-1, keepdim=True)
    terms = torch.nan_to_num((both - new).exp(), nan=0.0)
    weights = torch.cat([total.double(), torch.ones_like(scores).double()], dim=-1)
    return new, torch.einsum("bqj,bqj->qb", terms, weights).T.unsqueeze(-1)


# ------------------------------------------------------------------------------------------------- sliding_window_mask


def _truth(got, expected):
    """For masks: says where the first wrong truth value stands."""
    place = tuple(int(i) for i in torch.from_numpy(got != expected).nonzero()[0])
    return f"at {list(place)} it says {bool(got[place])}, expected {bool(expected[place])}"


def _sliding_window_mask(n: int, width: int, dilation: int, causal: bool) -> Tensor:
    """The package's pattern, written out."""
    return efficient.dense_mask(efficient.dilated(width, dilation, causal), n)


sliding_window_mask = Exercise(
    "sliding_window_mask",
    reference=_sliding_window_mask,
    returns=("mask",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=12,
    hints=(
        "Draw n = 7, width = 1, dilation = 2 on squared paper. Whom does position 3 see? What do all True cells of the "
        "table have in common, if you look at query index minus key index?",
        "`i = torch.arange(n)[:, None]` and `j = torch.arange(n)`: then `i - j` is the whole table of distances, with "
        "a sign. Three conditions on it, joined by `&`.",
        "With a dilation the window reaches as far as width · dilation, and within it every distance that is not a "
        "multiple of the dilation is left out.",
    ),
)


@sliding_window_mask.aspect("both sides", points=1, explain=_truth)
def _(answer, draw):
    """a position sees itself and `width` on each side"""
    [width], [n] = draw.sizes(1, 3, 5), draw.sizes(1, 12, 16)
    return answer(n, width, 1, False)


@sliding_window_mask.aspect("causal", points=1, explain=_truth)
def _(answer, draw):
    """with `causal`, itself and the `width` before it"""
    [width], [n] = draw.sizes(1, 3, 5), draw.sizes(1, 12, 16)
    return answer(n, width, 1, True)


@sliding_window_mask.aspect("dilated", points=1, explain=_truth)
def _(answer, draw):
    """with gaps: `width` on each side, each `dilation` apart"""
    [width], [dilation], [n] = draw.sizes(1, 3, 4), draw.sizes(1, 2, 3), draw.sizes(1, 16, 20)
    return answer(n, width, dilation, False)


@sliding_window_mask.aspect("dilated and causal", points=1, explain=_truth)
def _(answer, draw):
    """with both, every `dilation`-th of those before it"""
    [width], [dilation], [n] = draw.sizes(1, 3, 4), draw.sizes(1, 2, 3), draw.sizes(1, 16, 20)
    return answer(n, width, dilation, True)


@sliding_window_mask.aspect("wider than the text", points=1, explain=_truth)
def _(answer, draw):
    """a window may be wider than the text"""
    [n] = draw.sizes(1, 5, 7)
    return answer(n, n + 2, 1, True)


WINDOWS = ("both sides", "causal", "dilated", "dilated and causal", "wider than the text")
UNDER_CAUSAL = ("causal", "dilated and causal", "wider than the text")
WITH_GAPS = ("dilated", "dilated and causal")


@sliding_window_mask.misconception("window off by one", fails=("both sides", "causal", "dilated", "dilated and causal"))
def _(n, width, dilation, causal):
    """The window ends one position too early: `<` where the last one belongs to it. Count the True cells of a row in
    the middle: itself and `width` on each side make how many?"""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    near = (behind.abs() < width * dilation) & (behind.abs() % dilation == 0)
    return near & (behind >= 0) if causal else near


@sliding_window_mask.variant("window off by one", fails=("both sides", "causal", "dilated", "dilated and causal"))
def _(n, width, dilation, causal):
    """One too late."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    near = (behind.abs() <= (width + 1) * dilation) & (behind.abs() % dilation == 0)
    return near & (behind >= 0) if causal else near


@sliding_window_mask.misconception("the whole window is `width` wide", fails=WINDOWS)
def _(n, width, dilation, causal):
    """`width` was taken for the whole window and half of it laid on each side. Papers differ in this (Longformer's w is
    the whole), so read the contract: here it is the number of positions on *each* side."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    near = (behind.abs() <= width // 2 * dilation) & (behind.abs() % dilation == 0)
    return near & (behind >= 0) if causal else near


@sliding_window_mask.misconception("a distance with its sign", fails=("both sides", "dilated"))
def _(n, width, dilation, causal):
    """The window ends where it should in the past, and not at all in the future: there i − j is negative, and so never
    above the width. What counts on both sides is the distance, without its sign."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    near = (behind <= width * dilation) & (behind % dilation == 0)
    return near & (behind >= 0) if causal else near


@sliding_window_mask.misconception("not causal", fails=UNDER_CAUSAL)
def _(n, width, dilation, causal):
    """`causal` made no difference: positions still see what comes after them."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    return (behind.abs() <= width * dilation) & (behind.abs() % dilation == 0)


@sliding_window_mask.misconception("future for past", fails=UNDER_CAUSAL)
def _(n, width, dilation, causal):
    """With `causal` it is the past that is gone. Rows ask and columns answer; in row i, the allowed columns are those
    up to i."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    near = (behind.abs() <= width * dilation) & (behind.abs() % dilation == 0)
    return near & (behind <= 0) if causal else near


@sliding_window_mask.misconception("not even itself", fails=UNDER_CAUSAL)
def _(n, width, dilation, causal):
    """With `causal` a position no longer sees itself, and the first one sees nobody: softmax would make 0/0 of its
    row. What has been read already is no secret; only what comes later is."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    near = (behind.abs() <= width * dilation) & (behind.abs() % dilation == 0)
    return near & (behind > 0) if causal else near


@sliding_window_mask.misconception("True where it is forbidden", fails=WINDOWS)
def _(n, width, dilation, causal):
    """The mask has the opposite sense. In this course, as in torch's `scaled_dot_product_attention`, True means "may
    attend"."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    near = (behind.abs() <= width * dilation) & (behind.abs() % dilation == 0)
    return ~(near & (behind >= 0) if causal else near)


@sliding_window_mask.misconception("gaps that do not widen the window", fails=WITH_GAPS)
def _(n, width, dilation, causal):
    """Positions were left out, but the window did not get longer for it, so a row sees fewer keys than without
    dilation. Dilation keeps the number of keys, and spends it on a longer reach."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    near = (behind.abs() <= width) & (behind.abs() % dilation == 0)
    return near & (behind >= 0) if causal else near


@sliding_window_mask.misconception("a longer window without gaps", fails=WITH_GAPS)
def _(n, width, dilation, causal):
    """The window reaches as far as it should, and nothing in it was left out. Of the distances up to width · dilation
    only the multiples of `dilation` belong to it."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    near = behind.abs() <= width * dilation
    return near & (behind >= 0) if causal else near


@sliding_window_mask.misconception("dilation ignored", fails=WITH_GAPS)
def _(n, width, dilation, causal):
    """The window is the one without gaps, whatever the dilation: `dilation` has not been used."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    near = behind.abs() <= width
    return near & (behind >= 0) if causal else near


@sliding_window_mask.misconception("causal without the gaps", fails=("dilated and causal",))
def _(n, width, dilation, causal):
    """Each of the two works alone. With `causal` and a dilation together the gaps are gone: the causal case goes its
    own way, in which `dilation` does not occur. Being causal is one more condition, not a different window."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    if causal:
        return (behind >= 0) & (behind <= width)
    return (behind.abs() <= width * dilation) & (behind.abs() % dilation == 0)


@sliding_window_mask.variant("causal without the gaps", fails=("dilated and causal",))
def _(n, width, dilation, causal):
    """As far as it should, and nothing left out."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    if causal:
        return (behind >= 0) & (behind <= width * dilation)
    return (behind.abs() <= width * dilation) & (behind.abs() % dilation == 0)


@sliding_window_mask.misconception("dilation counts what is skipped", fails=WINDOWS)
def _(n, width, dilation, causal):
    """Here neighbours in the window are dilation + 1 apart. A dilation of 1 means no gaps at all: it is the distance
    from one to the next, not the number of positions that are skipped."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    near = (behind.abs() <= width * (dilation + 1)) & (behind.abs() % (dilation + 1) == 0)
    return near & (behind >= 0) if causal else near


@sliding_window_mask.misconception("a slice that begins below zero", fails=WINDOWS)
def _(n, width, dilation, causal):
    """Near the beginning i − width is negative, and a Python slice that begins at −2 begins at the last but one. The
    first rows come out empty, or wrong. Nobody stands before position 0."""
    mask = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        end = i + 1 if causal else i + width * dilation + 1
        mask[i, i - width * dilation : end : dilation] = True
    return mask


@sliding_window_mask.misconception("no window wider than the text", fails=("wider than the text",))
def _(n, width, dilation, causal):
    """Diagonal by diagonal works, until a diagonal would lie outside the table: there is none at a distance of n or
    more. Stop before, or compare distances instead, which asks for no special case."""
    mask = torch.zeros(n, n, dtype=torch.bool)
    for step in range(-width, 1 if causal else width + 1):
        mask |= torch.diag(torch.ones(n - abs(step * dilation), dtype=torch.bool), step * dilation)
    return mask


@sliding_window_mask.alternative("two loops")
def _(n, width, dilation, causal):
    """Row by row, staying within the table."""
    mask = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        for step in range(-width, 1 if causal else width + 1):
            if 0 <= i + step * dilation < n:
                mask[i, i + step * dilation] = True
    return mask


@sliding_window_mask.alternative("triangles")
def _(n, width, dilation, causal):
    """A band cut by `tril` and `triu`, and a comb for the gaps."""
    band = torch.ones(n, n).tril(0 if causal else width * dilation).triu(-width * dilation).bool()
    comb = [[(i - j) % dilation == 0 for j in range(n)] for i in range(n)]
    return torch.logical_and(band, torch.tensor(comb))


@sliding_window_mask.alternative("a list of distances")
def _(n, width, dilation, causal):
    """`isin`, on a transposed table."""
    ahead = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    steps = [step * dilation for step in range(-width, 1 if causal else width + 1)]
    return torch.isin(ahead, torch.tensor(steps)).T


# -------------------------------------------------------------------------------------------------------- bigbird_mask


def _bigbird_mask(n: int, width: int, n_global: int, drawn: Tensor) -> Tensor:
    """A window, global tokens, and the keys that were drawn for each query."""
    pattern = efficient.any_of(efficient.sliding_window(width), efficient.global_tokens(n_global))
    return efficient.dense_mask(pattern, n).scatter(1, drawn, True)


bigbird_mask = Exercise(
    "bigbird_mask",
    reference=_bigbird_mask,
    returns=("mask",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "Three masks, and a pair is allowed if any one of them allows it. Build them one by one and look at each.",
        "A global token looks at everybody (which part of the table is that?) and everybody looks at it (and that?).",
        "`drawn` has a row for each query. `mask[:, drawn]` would give every query everybody's draws; row i wants "
        "`drawn[i]` alone. `scatter`, a loop over i, or a comparison with `torch.arange(n)` will do.",
    ),
)


def _pattern(answer, draw, width: int, n_global: int, drawn: str) -> Tensor:
    """The answer on a drawn n, with keys that are "self", "first" (key 0) or really drawn."""
    [n] = draw.sizes(1, 10, 14)
    keys = {
        "self": torch.arange(n)[:, None],
        "first": torch.zeros(n, 1, dtype=torch.long),
        "drawn": torch.stack([torch.randperm(n, generator=draw.generator)[:2] for _ in range(n)]),
    }[drawn]
    return answer(n, width, n_global, keys)


@bigbird_mask.aspect("window", points=1, explain=_truth)
def _(answer, draw):
    """itself and `width` on each side, where nothing else is allowed"""
    return _pattern(answer, draw, draw.sizes(1, 2, 3)[0], 0, "self")


@bigbird_mask.aspect("global tokens", points=2, explain=_truth)
def _(answer, draw):
    """the first `n_global` see all and are seen by all"""
    return _pattern(answer, draw, 0, draw.sizes(1, 2, 3)[0], "first")


@bigbird_mask.aspect("random keys", points=1, explain=_truth)
def _(answer, draw):
    """each query sees the keys that were drawn for it"""
    return _pattern(answer, draw, 0, 0, "drawn")


@bigbird_mask.aspect("all together", points=1, explain=_truth)
def _(answer, draw):
    """a pair is allowed if any of the three allows it"""
    return _pattern(answer, draw, 1, 2, "drawn")


BIGBIRD = ("window", "global tokens", "random keys", "all together")


@bigbird_mask.misconception("seen by all, but not seeing all", fails=("global tokens", "all together"))
def _(n, width, n_global, drawn):
    """Everybody looks at the global tokens, but these look at nobody new: they have nothing to pass on. A global token
    gathers from all (its row) and gives to all (its column)."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    mask = behind.abs() <= width
    mask[:, :n_global] = True
    return mask.scatter(1, drawn, True)


@bigbird_mask.misconception("seeing all, but not seen by all", fails=("global tokens", "all together"))
def _(n, width, n_global, drawn):
    """The global tokens look at everybody, but nobody further off can look at them: what they gather stays with them.
    A global token gathers from all (its row) and gives to all (its column)."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    mask = behind.abs() <= width
    mask[:n_global] = True
    return mask.scatter(1, drawn, True)


@bigbird_mask.misconception("one token, not the first n_global", fails=BIGBIRD)
def _(n, width, n_global, drawn):
    """One token was made global, the one at the index `n_global`. `n_global` is how many there are: all those before
    that index."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    mask = behind.abs() <= width
    mask[n_global] = True
    mask[:, n_global] = True
    return mask.scatter(1, drawn, True)


@bigbird_mask.variant("one token, not the first n_global", fails=("global tokens", "all together"))
def _(n, width, n_global, drawn):
    """The last of them."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    mask = behind.abs() <= width
    if n_global:
        mask[n_global - 1] = True
        mask[:, n_global - 1] = True
    return mask.scatter(1, drawn, True)


@bigbird_mask.misconception("only what the global tokens share", fails=("global tokens", "all together"))
def _(n, width, n_global, drawn):
    """Only the square in the corner became True, where a global token looks at a global token: row *and* column. It is
    row *or* column."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    mask = behind.abs() <= width
    mask[:n_global, :n_global] = True
    return mask.scatter(1, drawn, True)


@bigbird_mask.misconception("everybody's draws for everybody", fails=("window", "random keys", "all together"))
def _(n, width, n_global, drawn):
    """`mask[:, drawn]` takes all rows, and in them all columns that stand anywhere in `drawn`: a key that one query
    drew is open to all, and little is left of the sparse pattern. Row i must get the columns `drawn[i]` alone."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    mask = behind.abs() <= width
    mask[:n_global] = True
    mask[:, :n_global] = True
    mask[:, drawn] = True
    return mask


@bigbird_mask.misconception("drawn keys as rows", fails=("random keys", "all together"))
def _(n, width, n_global, drawn):
    """The table of random pairs is transposed: the drawn keys ask, and the query is asked. In `drawn`, row i holds the
    *keys* that query i may see, so they are columns of row i."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    mask = (behind.abs() <= width).scatter(0, drawn.T, True)
    mask[:n_global] = True
    mask[:, :n_global] = True
    return mask


@bigbird_mask.misconception("random pairs in both directions", fails=("random keys", "all together"))
def _(n, width, n_global, drawn):
    """A pair that was drawn was opened both ways. Window and global tokens are symmetric; the draws are not: that i
    may look at j gives j no right to look at i."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    mask = (behind.abs() <= width).scatter(1, drawn, True).scatter(0, drawn.T, True)
    mask[:n_global] = True
    mask[:, :n_global] = True
    return mask


@bigbird_mask.misconception("the draws of one query for all", fails=("window", "random keys", "all together"))
def _(n, width, n_global, drawn):
    """The first row of `drawn` served every query. Then all look at the same few keys, and these are more like global
    tokens. What makes random keys useful is that they differ from query to query."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    mask = behind.abs() <= width
    mask[:n_global] = True
    mask[:, :n_global] = True
    mask[:, drawn[0]] = True
    return mask


@bigbird_mask.misconception("window off by one", fails=BIGBIRD)
def _(n, width, n_global, drawn):
    """The window ends one position too early: `<` where the last one belongs to it. With a width of 0, not even the
    position itself is left."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    mask = behind.abs() < width
    mask[:n_global] = True
    mask[:, :n_global] = True
    return mask.scatter(1, drawn, True)


@bigbird_mask.variant("window off by one", fails=BIGBIRD)
def _(n, width, n_global, drawn):
    """At the end of a slice, which Python leaves out."""
    mask = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        mask[i, max(0, i - width) : i + width] = True
    mask[:n_global] = True
    mask[:, :n_global] = True
    return mask.scatter(1, drawn, True)


@bigbird_mask.misconception("draws forgotten", fails=("random keys", "all together"))
def _(n, width, n_global, drawn):
    """Window and global tokens are there, and `drawn` has not been used: this is Longformer's pattern."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    mask = behind.abs() <= width
    mask[:n_global] = True
    mask[:, :n_global] = True
    return mask


@bigbird_mask.misconception("all three for one pair", fails=BIGBIRD)
def _(n, width, n_global, drawn):
    """The three masks were joined by "and", so a pair would have to be near, global and drawn all at once. Hardly any
    is. BigBird is their union."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    first = torch.arange(n) < n_global
    random = torch.zeros(n, n, dtype=torch.bool).scatter(1, drawn, True)
    return (behind.abs() <= width) & (first | first[:, None]) & random


@bigbird_mask.misconception("made causal", fails=BIGBIRD)
def _(n, width, n_global, drawn):
    """What lies after a position was taken out. BigBird is an encoder's pattern: it reads in both directions, and its
    global tokens must see to the end."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    mask = (behind.abs() <= width).scatter(1, drawn, True)
    mask[:n_global] = True
    mask[:, :n_global] = True
    return mask.tril()


@bigbird_mask.alternative("row by row")
def _(n, width, n_global, drawn):
    """Sets of keys."""
    mask = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        for j in range(n):
            mask[i, j] = abs(i - j) <= width or min(i, j) < n_global or j in drawn[i].tolist()
    return mask


@bigbird_mask.alternative("three masks by comparison")
def _(n, width, n_global, drawn):
    """Broadcasts the drawn keys against all positions."""
    i, j = torch.arange(n)[:, None], torch.arange(n)
    near = (i - j).abs() <= width
    return near | (i < n_global) | (j < n_global) | (drawn[:, :, None] == j).any(dim=1)


@bigbird_mask.alternative("indexed")
def _(n, width, n_global, drawn):
    """Writes into a copy, rows beside columns; the result is transposed in memory."""
    mask = torch.ones(n, n).tril(width).triu(-width).bool()
    mask[torch.arange(n)[:, None], drawn] = True
    mask[:n_global], mask[:, :n_global] = True, True
    return mask.T.contiguous().T


# ------------------------------------------------------------------------------------------------- linformer_attention

linformer_attention = Exercise(
    "linformer_attention",
    reference=efficient.linformer_attend,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "Write the shapes: E is (k, n_max), the keys are (batch, n_key, d). Which product leaves k mixtures of keys?",
        "After the mixing it is plain attention over k keys in place of n: scores (batch, n_query, k), scale, softmax, "
        "average.",
        "A padded key must not get into any mixture. After the mixing it is too late to take it out. What must it be "
        "before, and must the same be done to the values?",
    ),
)


def _mixed(draw, fewer: int) -> list[Tensor]:
    """[query, key, value, E, F, mask] with `fewer` keys than n_max and nothing padded; no two sizes alike."""
    n_query, n_key, k, d, d_v = draw.sizes(5, 3, 9)
    shapes = (2, n_query, d), (2, n_key, d), (2, n_key, d_v), (k, n_key + fewer), (k, n_key + fewer)
    inputs = [draw.normal(*shape) for shape in shapes]
    return [*inputs, torch.ones(2, n_key, dtype=torch.bool)]


@linformer_attention.aspect("output", points=2)
def _(answer, draw):
    """attention over k mixtures of the keys, with k mixtures of the values"""
    return answer(*_mixed(draw, 0))


@linformer_attention.aspect("shorter than E and F", points=1)
def _(answer, draw):
    """a sequence of fewer keys than n_max uses the first columns"""
    return answer(*_mixed(draw, 3))


@linformer_attention.aspect(
    "padding", points=1, explain=told("at {place} the output is {size} away from that of the sentence without padding")
)
def _(answer, draw):
    """a padded sentence gives what it gives without its padding"""
    query, key, value, E, F, mask = _mixed(draw, 0)
    mask = draw.padding_mask(2, key.shape[1])
    alone = []
    for i, n in enumerate(mask.sum(dim=1).tolist()):
        sentence = query[i : i + 1], key[i : i + 1, :n], value[i : i + 1, :n]
        alone.append(answer(*sentence, E[:, :n], F[:, :n], mask[i : i + 1, :n]))
    return telling(answer(query, key, value, E, F, mask)) - torch.cat(alone)


@linformer_attention.aspect("gradient", points=1, explain=arrives("query", "key", "value", "E", "F"))
def _(answer, draw):
    """queries, keys, values and both mixings can be learned"""
    *inputs, mask = _mixed(draw, 0)
    inputs = [x.requires_grad_() for x in inputs]
    return reached(answer(*inputs, mask), inputs, draw)


@linformer_attention.misconception("not scaled", fails=("output", "shorter than E and F"))
def _(query, key, value, E, F, mask):
    """The scores went into the softmax without the root of the width."""
    n = key.shape[-2]
    key, value = (x.masked_fill(~mask[..., None], 0.0) for x in (key, value))
    return (query @ (E[:, :n] @ key).mT).softmax(dim=-1) @ (F[:, :n] @ value)


@linformer_attention.misconception("scaled by how many keys there are", fails=("output", "shorter than E and F"))
def _(query, key, value, E, F, mask):
    """The scores were divided by the root of a *number of keys*. What a dot product adds up over is the width of
    queries and keys, and mixing along the length has not changed that."""
    n = key.shape[-2]
    key, value = (x.masked_fill(~mask[..., None], 0.0) for x in (key, value))
    return (query @ (E[:, :n] @ key).mT / math.sqrt(E.shape[0])).softmax(dim=-1) @ (F[:, :n] @ value)


@linformer_attention.misconception("E for the values too", fails=("output", "shorter than E and F", "gradient"))
def _(query, key, value, E, F, mask):
    """Keys and values were mixed by the same matrix, and F has never been used: no gradient reaches it. (The paper
    tries this sharing too, and it costs little; the contract here has two matrices.)"""
    n = key.shape[-2]
    key, value = (x.masked_fill(~mask[..., None], 0.0) for x in (key, value))
    return (query @ (E[:, :n] @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ (E[:, :n] @ value)


@linformer_attention.misconception("E and F have changed places", fails=("output", "shorter than E and F"))
def _(query, key, value, E, F, mask):
    """F has mixed the keys and E the values. E belongs to the keys."""
    n = key.shape[-2]
    key, value = (x.masked_fill(~mask[..., None], 0.0) for x in (key, value))
    return (query @ (F[:, :n] @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ (E[:, :n] @ value)


@linformer_attention.misconception("the weights are mixed", fails=("output", "shorter than E and F"))
def _(query, key, value, E, F, mask):
    """The softmax was taken over all n keys, and its weights were mixed afterwards. That table of n × n weights is what
    we wanted to be rid of: mix the keys *before* they meet the queries, and the softmax has k columns."""
    n = key.shape[-2]
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~mask[:, None], -torch.inf).softmax(dim=-1)
    return weights @ E[:, :n].T @ (F[:, :n] @ value.masked_fill(~mask[..., None], 0.0))


@linformer_attention.misconception("the queries are mixed too", fails=("output", "shorter than E and F", "padding"))
def _(query, key, value, E, F, mask):
    """The output has k rows. Every query wants an answer of its own, so queries are not mixed, only what they look
    at."""
    n, n_query = key.shape[-2], query.shape[-2]
    key, value = (x.masked_fill(~mask[..., None], 0.0) for x in (key, value))
    mixed = E[:, :n_query] @ query[:, : E.shape[1]]
    return (mixed @ (E[:, :n] @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ (F[:, :n] @ value)


@linformer_attention.misconception("the last columns for a short sequence", fails=("shorter than E and F",))
def _(query, key, value, E, F, mask):
    """A short sequence was mixed by the *last* columns of E and F. Column j belongs to position j, and positions are
    counted from the beginning."""
    n = key.shape[-2]
    key, value = (x.masked_fill(~mask[..., None], 0.0) for x in (key, value))
    return (query @ (E[:, -n:] @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ (F[:, -n:] @ value)


@linformer_attention.misconception("only sequences of n_max", fails=("shorter than E and F",))
def _(query, key, value, E, F, mask):
    """E has a column for each of n_max positions, and there are fewer keys than that: the product does not fit. The
    columns of the positions that are not there are not needed."""
    key, value = (x.masked_fill(~mask[..., None], 0.0) for x in (key, value))
    return (query @ (E @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ (F @ value)


@linformer_attention.misconception("ignores the mask", fails=("padding",))
def _(query, key, value, E, F, mask):
    """Padded keys and values went into the mixtures, so what happens to stand in the padding decides the answer."""
    n = key.shape[-2]
    return (query @ (E[:, :n] @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ (F[:, :n] @ value)


@linformer_attention.misconception(
    "masks the scores, as before", fails=("output", "shorter than E and F", "padding", "gradient")
)
def _(query, key, value, E, F, mask):
    """The mask was put on the scores, as in ordinary attention. But there are k scores for a query here, one for each
    *mixture*, and the mask has a place for each of n keys: the two do not fit. What a padded key has to say is in all
    mixtures by then, so it must be taken out earlier."""
    n = key.shape[-2]
    scores = query @ (E[:, :n] @ key).mT / math.sqrt(query.shape[-1])
    return scores.masked_fill(~mask[:, None], -torch.inf).softmax(dim=-1) @ (F[:, :n] @ value)


@linformer_attention.misconception("masks the keys alone", fails=("padding",))
def _(query, key, value, E, F, mask):
    """The padded keys are out of their mixtures, but the padded values are still in theirs. There is no weight left
    that could keep them out: a mixture has one weight for all that is in it."""
    n = key.shape[-2]
    key = key.masked_fill(~mask[..., None], 0.0)
    return (query @ (E[:, :n] @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ (F[:, :n] @ value)


@linformer_attention.misconception("−∞ in the keys", fails=("padding",))
def _(query, key, value, E, F, mask):
    """Setting −∞, or something very negative, is for *scores*, just before a softmax. In a key it gets into every
    mixture and drowns the others there (and ∞ − ∞ is NaN). A key that should not count in a *sum* has to be something
    else."""
    n = key.shape[-2]
    key, value = (x.masked_fill(~mask[..., None], -torch.inf) for x in (key, value))
    return (query @ (E[:, :n] @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ (F[:, :n] @ value)


@linformer_attention.variant("−∞ in the keys", fails=("padding",))
def _(query, key, value, E, F, mask):
    """A large number in place of −∞, and the values right."""
    n = key.shape[-2]
    key, value = key.masked_fill(~mask[..., None], -1e9), value.masked_fill(~mask[..., None], 0.0)
    return (query @ (E[:, :n] @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ (F[:, :n] @ value)


@linformer_attention.misconception("normalises over the queries", fails=("output", "shorter than E and F"))
def _(query, key, value, E, F, mask):
    """The columns sum to one in place of the rows: each query shares out its attention over the k mixtures."""
    n = key.shape[-2]
    key, value = (x.masked_fill(~mask[..., None], 0.0) for x in (key, value))
    return (query @ (E[:, :n] @ key).mT / math.sqrt(query.shape[-1])).softmax(dim=-2) @ (F[:, :n] @ value)


@linformer_attention.alternative("einsum")
def _(query, key, value, E, F, mask):
    """Names the axes, and gives the mask to the mixing matrices."""
    E_here, F_here = (x[:, : key.shape[1]] * mask[:, None] for x in (E, F))
    keys, values = torch.einsum("bkn,bnd->bkd", E_here, key), torch.einsum("bkn,bnd->bkd", F_here, value)
    scores = torch.einsum("bqd,bkd->bqk", query, keys) * query.shape[-1] ** -0.5
    return torch.einsum("bqk,bkd->bqd", scores.softmax(dim=2), values)


@linformer_attention.alternative("sentence by sentence")
def _(query, key, value, E, F, mask):
    """Picks the real keys out first."""
    outputs = []
    for q, k, v, real in zip(query, key, value, mask, strict=True):
        columns = real.nonzero().squeeze(-1)
        mixed_keys, mixed_values = E[:, columns] @ k[columns], F[:, columns] @ v[columns]
        outputs.append(torch.softmax(q @ mixed_keys.T / math.sqrt(k.shape[-1]), dim=-1) @ mixed_values)
    return torch.stack(outputs)


@linformer_attention.alternative("float64, not contiguous")
def _(query, key, value, E, F, mask):
    """Fills the sequence up to n_max with zeros instead of cutting E and F."""
    batch, n, d = key.shape
    there = mask.double()[..., None]
    keys = torch.cat([key * there, torch.zeros(batch, E.shape[1] - n, d).double()], dim=1)
    values = torch.cat([value * there, torch.zeros(batch, E.shape[1] - n, value.shape[-1]).double()], dim=1)
    weights = (query.double() @ (E.double() @ keys).mT / d**0.5).softmax(dim=-1)
    return (weights @ (F.double() @ values)).mT.contiguous().mT


# --------------------------------------------------------------------------------------------------------- cached_step


def _cached_step(query, key, value, key_cache, value_cache):
    """The new token's key and value join the cache, and its query meets all that is in it."""
    keys = torch.cat([key_cache, key.unsqueeze(2)], dim=2)                # (batch, n_kv_heads, n + 1, d_head)
    values = torch.cat([value_cache, value.unsqueeze(2)], dim=2)
    group = query.shape[1] // key.shape[1]
    shared_keys, shared_values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
    output, _ = attention.attend(query.unsqueeze(2), shared_keys, shared_values)      # (batch, n_heads, 1, d_head)
    return output.squeeze(2), keys, values


cached_step = Exercise(
    "cached_step",
    reference=_cached_step,
    returns=("output", "key_cache", "value_cache"),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=25,
    hints=(
        "Four steps: the new key and value go into the caches, the query meets all keys that are there now, softmax, "
        "average. In which order, if the new token may look at itself?",
        "The new key is (batch, n_kv_heads, d_head), the cache (batch, n_kv_heads, n, d_head): the key lacks one axis. "
        "Which, and along which axis does the cache grow?",
        "For groups, keys and values get their missing heads just before they are used, and not in the cache: "
        "neighbouring query heads share (lecture 07).",
    ),
)


def _token(draw, batch: int, n_heads: int, n_kv_heads: int, d_head: int) -> list[Tensor]:
    """[query, key, value] of one new token."""
    return [draw.normal(batch, heads, d_head) for heads in (n_heads, n_kv_heads, n_kv_heads)]


def _past(draw, batch: int, n_kv_heads: int, n: int, d_head: int) -> list[Tensor]:
    """[key_cache, value_cache] of n tokens."""
    return [draw.normal(batch, n_kv_heads, n, d_head) for _ in range(2)]


@cached_step.aspect("the first token", points=1)
def _(answer, draw):
    """with an empty cache it finds itself alone"""
    n_heads, d_head = draw.sizes(2, 2, 7)
    return answer(*_token(draw, 1, n_heads, n_heads, d_head), *_past(draw, 1, n_heads, 0, d_head))[0]


@cached_step.aspect("output", points=2)
def _(answer, draw):
    """the query looks at all that came before, and at itself"""
    [batch, n_heads, d_head], [n] = draw.sizes(3, 2, 7), draw.sizes(1, 8, 10)
    token = _token(draw, batch, n_heads, n_heads, d_head)
    return answer(*token, *_past(draw, batch, n_heads, n, d_head))[0]


@cached_step.aspect("caches", points=2)
def _(answer, draw):
    """after three steps they hold the keys and the values of all tokens, in order"""
    batch, n_heads, n, d_head = draw.sizes(4, 2, 7)
    caches = _past(draw, batch, n_heads, n, d_head)
    for _ in range(3):
        _, *caches = answer(*_token(draw, batch, n_heads, n_heads, d_head), *caches)
    return torch.cat(caches, dim=-1)


@cached_step.aspect("groups", points=1)
def _(answer, draw):
    """where there are fewer heads of keys than of queries, neighbours share, and the caches stay small"""
    [batch, n_kv_heads, d_head], [n] = draw.sizes(3, 2, 6), draw.sizes(1, 8, 10)
    output, caches = torch.empty(0), _past(draw, batch, n_kv_heads, n, d_head)
    for _ in range(2):
        output, *caches = answer(*_token(draw, batch, 2 * n_kv_heads, n_kv_heads, d_head), *caches)
    return torch.cat([x.flatten(1) for x in (output, *caches)], dim=1)


@cached_step.aspect(
    "as all at once", points=1, explain=told("step by step, the output differs from causal attention's by {size}")
)
def _(answer, draw):
    """five steps in a row give what one pass with a causal mask gives"""
    batch, n_heads, d_head = draw.sizes(3, 2, 6)
    tokens = [_token(draw, batch, n_heads, n_heads, d_head) for _ in range(5)]
    outputs, caches = [], _past(draw, batch, n_heads, 0, d_head)
    for token in tokens:
        output, *caches = answer(*token, *caches)
        outputs.append(output)
    query, key, value = (torch.stack(each, dim=2) for each in zip(*tokens, strict=True))
    at_once, _ = attention.attend(query, key, value, attention.causal_mask(5))
    return telling(torch.stack(outputs, dim=2)) - at_once


EVERY_STEP = ("the first token", "output", "caches", "groups", "as all at once")


@cached_step.misconception("the cache grows along the wrong axis", fails=EVERY_STEP)
def _(query, key, value, key_cache, value_cache):
    """The new key was put beside the old ones along the wrong axis, and the sizes do not fit. Axes of the cache are
    batch, heads, positions, width: a new token is a new *position*."""
    keys = torch.cat([key_cache, key.unsqueeze(2)], dim=1)
    values = torch.cat([value_cache, value.unsqueeze(2)], dim=1)
    weights = (query.unsqueeze(2) @ keys.mT / math.sqrt(query.shape[-1])).softmax(dim=-1)
    return (weights @ values).squeeze(2), keys, values


@cached_step.variant("the cache grows along the wrong axis", fails=EVERY_STEP)
def _(query, key, value, key_cache, value_cache):
    """Along the width."""
    keys = torch.cat([key_cache, key.unsqueeze(2)], dim=-1)
    values = torch.cat([value_cache, value.unsqueeze(2)], dim=-1)
    weights = (query.unsqueeze(2) @ keys.mT / math.sqrt(query.shape[-1])).softmax(dim=-1)
    return (weights @ values).squeeze(2), keys, values


@cached_step.variant("the cache grows along the wrong axis", fails=EVERY_STEP)
def _(query, key, value, key_cache, value_cache):
    """The batch's."""
    keys = torch.cat([key_cache, key.unsqueeze(2)])
    values = torch.cat([value_cache, value.unsqueeze(2)])
    weights = (query.unsqueeze(2) @ keys.mT / math.sqrt(query.shape[-1])).softmax(dim=-1)
    return (weights @ values).squeeze(2), keys, values


@cached_step.misconception(
    "the token does not see itself", fails=("the first token", "output", "groups", "as all at once")
)
def _(query, key, value, key_cache, value_cache):
    """The query met the old cache, and only then did the new key and value join it. In causal attention a token looks
    at all before it *and at itself*; the first one would look at nobody."""
    group = query.shape[1] // key.shape[1]
    old_keys, old_values = (x.repeat_interleave(group, dim=1) for x in (key_cache, value_cache))
    weights = (query.unsqueeze(2) @ old_keys.mT / math.sqrt(query.shape[-1])).softmax(dim=-1)
    keys = torch.cat([key_cache, key.unsqueeze(2)], dim=2)
    return (weights @ old_values).squeeze(2), keys, torch.cat([value_cache, value.unsqueeze(2)], dim=2)


@cached_step.misconception("newest first", fails=("caches", "groups"))
def _(query, key, value, key_cache, value_cache):
    """The new token was put in *front* of the old ones. The output does not notice, because an average does not care
    about order. But a mask, a window, or whoever reads the cache by position will."""
    keys = torch.cat([key.unsqueeze(2), key_cache], dim=2)
    values = torch.cat([value.unsqueeze(2), value_cache], dim=2)
    group = query.shape[1] // key.shape[1]
    weights = (query.unsqueeze(2) @ keys.repeat_interleave(group, 1).mT / math.sqrt(query.shape[-1])).softmax(-1)
    return (weights @ values.repeat_interleave(group, 1)).squeeze(2), keys, values


@cached_step.misconception("the cache is not handed on", fails=("caches", "groups", "as all at once"))
def _(query, key, value, key_cache, value_cache):
    """The output is right, but the old caches came back: the next step will not know that this token was there. What
    has grown must be returned."""
    keys = torch.cat([key_cache, key.unsqueeze(2)], dim=2)
    values = torch.cat([value_cache, value.unsqueeze(2)], dim=2)
    group = query.shape[1] // key.shape[1]
    weights = (query.unsqueeze(2) @ keys.repeat_interleave(group, 1).mT / math.sqrt(query.shape[-1])).softmax(-1)
    return (weights @ values.repeat_interleave(group, 1)).squeeze(2), key_cache, value_cache


@cached_step.misconception("queries in the cache", fails=("output", "caches", "groups", "as all at once"))
def _(query, key, value, key_cache, value_cache):
    """The new *query* was put into the cache of keys. (Three decks speak of a growing set of "keys and queries".) A
    query asks once and is forgotten; what is asked again and again, and must be kept, are keys and values."""
    keys = torch.cat([key_cache, query.unsqueeze(2)], dim=2)
    values = torch.cat([value_cache, value.unsqueeze(2)], dim=2)
    group = query.shape[1] // key.shape[1]
    weights = (query.unsqueeze(2) @ keys.repeat_interleave(group, 1).mT / math.sqrt(query.shape[-1])).softmax(-1)
    return (weights @ values.repeat_interleave(group, 1)).squeeze(2), keys, values


@cached_step.misconception("keys for values", fails=EVERY_STEP)
def _(query, key, value, key_cache, value_cache):
    """The new *key* went into the cache of values: a slip in copying a line. What is averaged is no longer what the
    tokens have to say, but what they are found by."""
    keys = torch.cat([key_cache, key.unsqueeze(2)], dim=2)
    values = torch.cat([value_cache, key.unsqueeze(2)], dim=2)
    group = query.shape[1] // key.shape[1]
    weights = (query.unsqueeze(2) @ keys.repeat_interleave(group, 1).mT / math.sqrt(query.shape[-1])).softmax(-1)
    return (weights @ values.repeat_interleave(group, 1)).squeeze(2), keys, values


@cached_step.misconception("dealt out like cards", fails=("groups",))
def _(query, key, value, key_cache, value_cache):
    """The heads of keys were repeated one after the other, 0 1 0 1, so query heads 0 and 2 share. In grouped-query
    attention *neighbours* share: 0 0 1 1. Both have the same shape."""
    keys = torch.cat([key_cache, key.unsqueeze(2)], dim=2)
    values = torch.cat([value_cache, value.unsqueeze(2)], dim=2)
    group = query.shape[1] // key.shape[1]
    weights = (query.unsqueeze(2) @ keys.repeat(1, group, 1, 1).mT / math.sqrt(query.shape[-1])).softmax(dim=-1)
    return (weights @ values.repeat(1, group, 1, 1)).squeeze(2), keys, values


@cached_step.misconception("the many heads in the cache", fails=("groups",))
def _(query, key, value, key_cache, value_cache):
    """Keys and values were repeated for all heads of queries, and it is the repeated ones that came back. Then the
    cache is as large as without groups, and nothing has been saved (at the next step the few new heads may not even fit
    the many old ones). Repeat just before use; keep the few."""
    group = query.shape[1] // key.shape[1]
    keys = torch.cat([key_cache, key.unsqueeze(2)], dim=2).repeat_interleave(group, dim=1)
    values = torch.cat([value_cache, value.unsqueeze(2)], dim=2).repeat_interleave(group, dim=1)
    weights = (query.unsqueeze(2) @ keys.mT / math.sqrt(query.shape[-1])).softmax(dim=-1)
    return (weights @ values).squeeze(2), keys, values


@cached_step.variant("the many heads in the cache", fails=("groups",))
def _(query, key, value, key_cache, value_cache):
    """Takes the many of the step before as they are, and does not notice."""
    tensors = (key, value, key_cache, value_cache)
    wide = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in tensors)
    wide_key, wide_value, old_keys, old_values = wide
    keys = torch.cat([old_keys, wide_key.unsqueeze(2)], dim=2)
    values = torch.cat([old_values, wide_value.unsqueeze(2)], dim=2)
    weights = (query.unsqueeze(2) @ keys.mT / math.sqrt(query.shape[-1])).softmax(dim=-1)
    return (weights @ values).squeeze(2), keys, values


@cached_step.misconception("a head of keys for every head of queries", fails=("groups",))
def _(query, key, value, key_cache, value_cache):
    """Queries have more heads than keys here, and the two tables do not fit. Each head of keys serves several
    neighbouring heads of queries."""
    keys = torch.cat([key_cache, key.unsqueeze(2)], dim=2)
    values = torch.cat([value_cache, value.unsqueeze(2)], dim=2)
    weights = (query.unsqueeze(2) @ keys.mT / math.sqrt(query.shape[-1])).softmax(dim=-1)
    return (weights @ values).squeeze(2), keys, values


@cached_step.misconception(
    "normalises over the heads", fails=("the first token", "output", "groups", "as all at once")
)
def _(query, key, value, key_cache, value_cache):
    """Softmax ran over the heads, so that the heads share out each position among themselves. Each head shares out its
    own attention, over the positions: the axis that grows."""
    keys = torch.cat([key_cache, key.unsqueeze(2)], dim=2)
    values = torch.cat([value_cache, value.unsqueeze(2)], dim=2)
    group = query.shape[1] // key.shape[1]
    weights = (query.unsqueeze(2) @ keys.repeat_interleave(group, 1).mT / math.sqrt(query.shape[-1])).softmax(dim=1)
    return (weights @ values.repeat_interleave(group, 1)).squeeze(2), keys, values


@cached_step.misconception("not scaled", fails=("output", "groups", "as all at once"))
def _(query, key, value, key_cache, value_cache):
    """The scores went into the softmax without the root of the width."""
    keys = torch.cat([key_cache, key.unsqueeze(2)], dim=2)
    values = torch.cat([value_cache, value.unsqueeze(2)], dim=2)
    group = query.shape[1] // key.shape[1]
    weights = (query.unsqueeze(2) @ keys.repeat_interleave(group, 1).mT).softmax(dim=-1)
    return (weights @ values.repeat_interleave(group, 1)).squeeze(2), keys, values


@cached_step.variant("not scaled", fails=("output", "groups", "as all at once"))
def _(query, key, value, key_cache, value_cache):
    """By the root of the length instead."""
    keys = torch.cat([key_cache, key.unsqueeze(2)], dim=2)
    values = torch.cat([value_cache, value.unsqueeze(2)], dim=2)
    group = query.shape[1] // key.shape[1]
    weights = (query.unsqueeze(2) @ keys.repeat_interleave(group, 1).mT / math.sqrt(keys.shape[2])).softmax(dim=-1)
    return (weights @ values.repeat_interleave(group, 1)).squeeze(2), keys, values


@cached_step.alternative("einsum over groups")
def _(query, key, value, key_cache, value_cache):
    """Gives the groups an axis of their own in place of repeating."""
    keys = torch.cat((key_cache, key[:, :, None]), dim=-2)
    values = torch.cat((value_cache, value[:, :, None]), dim=-2)
    grouped = query.unflatten(1, (key.shape[1], -1))
    weights = torch.einsum("bgrd,bgnd->bgrn", grouped / query.shape[-1] ** 0.5, keys).softmax(dim=-1)
    return torch.einsum("bgrn,bgnd->bgrd", weights, values).flatten(1, 2), keys, values


@cached_step.alternative("head by head")
def _(query, key, value, key_cache, value_cache):
    """New caches, filled by hand, and a loop over the heads."""
    batch, n_kv_heads, n, d_head = key_cache.shape
    keys, values = torch.empty(2, batch, n_kv_heads, n + 1, d_head)
    keys[:, :, :n], values[:, :, :n] = key_cache, value_cache
    keys[:, :, n], values[:, :, n] = key, value
    outputs = []
    for head in range(query.shape[1]):
        shared = head * n_kv_heads // query.shape[1]
        scores = (keys[:, shared] * query[:, head, None]).sum(dim=-1) / math.sqrt(d_head)
        outputs.append((scores.softmax(dim=-1)[..., None] * values[:, shared]).sum(dim=1))
    return torch.stack(outputs, dim=1), keys, values


@cached_step.alternative("float64, not contiguous")
def _(query, key, value, key_cache, value_cache):
    """Repeats by expanding, and returns transposed views."""
    keys = torch.cat([key_cache.transpose(1, 2), key[:, None]], dim=1).transpose(1, 2)
    values = torch.cat([value_cache.transpose(1, 2), value[:, None]], dim=1).transpose(1, 2)
    group = query.shape[1] // key.shape[1]
    wide = (x.double()[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2) for x in (keys, values))
    wide_keys, wide_values = wide
    scores = (wide_keys @ query.double().unsqueeze(-1)).squeeze(-1) / math.sqrt(query.shape[-1])
    return (scores.softmax(dim=-1).unsqueeze(-2) @ wide_values).squeeze(-2), keys, values


# --------------------------------------------------------------------------------------------------------- attend_tile


def _attend_tile(query, key, value, largest, total, output):
    """One tile more. Dao et al. 2022, algorithm 1, with the division left to the end."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])                  # (batch, n_query, n_tile)
    larger, total = efficient.online_softmax_step(scores, largest, total)
    weights = (scores - larger).exp()                                     # (batch, n_query, n_tile)
    return larger, total, output * (largest - larger).exp() + weights @ value


attend_tile = Exercise(
    "attend_tile",
    reference=_attend_tile,
    returns=("largest", "total", "output"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    extra=True,
    hints=(
        "`output` is a sum like `total`, with the values in it. What happens to one, when a larger score turns up, "
        "must happen to the other.",
        "Nothing is divided here: the caller divides `output` by `total` once, when all tiles have been seen.",
    ),
)


def _averages(answer, sizes: list[int], query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The average that the answer comes to through tiles of these sizes, and the largest score."""
    state = *_start(*query.shape[:-1]), torch.zeros(*query.shape[:-1], values.shape[-1])
    for key, value in zip(keys.split(sizes, dim=1), values.split(sizes, dim=1), strict=True):
        state = answer(query, key, value, *state)
    largest, total, output = state
    return output / total, largest


def _asked(draw, sizes: list[int], level: float) -> list[Tensor]:
    """[query, keys, values] for tiles of these sizes, whose scores rise from tile to tile by about `level` in size."""
    batch, n_query, d, d_v = draw.sizes(4, 2, 7)
    query, keys = draw.normal(batch, n_query, d), draw.normal(batch, sum(sizes), d)
    query[..., 0], keys[..., 0] = d**0.5, level * torch.arange(sum(sizes)) / sum(sizes)
    return [query, keys, draw.normal(batch, sum(sizes), d_v)]


@attend_tile.aspect("one tile", points=0.5)
def _(answer, draw):
    """the weighted average over the first tile"""
    sizes = draw.sizes(1, 3, 7)
    return _averages(answer, sizes, *_asked(draw, sizes, 0.0))[0]


@attend_tile.aspect("several tiles", points=1)
def _(answer, draw):
    """tile by tile it is attention over all keys"""
    sizes = draw.sizes(3, 2, 6)
    query, keys, values = _asked(draw, sizes, 4.0)
    rising = _averages(answer, sizes, query, keys, values)
    falling = _averages(answer, sizes, query, keys.flip(1), values.flip(1))
    return torch.cat([*rising, *falling], dim=-1)


@attend_tile.aspect("large scores", points=0.5)
def _(answer, draw):
    """no overflow, however large the scores become"""
    sizes = draw.sizes(3, 2, 6)
    query, keys, values = _asked(draw, sizes, 4.0)
    keys[..., 0] += 300
    return _averages(answer, sizes, query, keys, values)[0]


@attend_tile.misconception("the output is not rescaled", fails=("several tiles", "large scores"))
def _(query, key, value, largest, total, output):
    """The sum of the weights was brought to the new largest score, the weighted sum of the values was not. Both are
    sums of the same exponentials, so they need the same factor."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    larger = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    weights = (scores - larger).exp()
    total = total * (largest - larger).exp() + weights.sum(dim=-1, keepdim=True)
    return larger, total, output + weights @ value


@attend_tile.misconception("the total is not rescaled", fails=("several tiles", "large scores"))
def _(query, key, value, largest, total, output):
    """The weighted sum of the values was brought to the new largest score, the sum of the weights was not. Both are
    sums of the same exponentials, so they need the same factor."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    larger = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    weights = (scores - larger).exp()
    total = total + weights.sum(dim=-1, keepdim=True)
    return larger, total, output * (largest - larger).exp() + weights @ value


@attend_tile.misconception("divided in every tile", fails=("one tile", "several tiles", "large scores"))
def _(query, key, value, largest, total, output):
    """The output was divided by the total in this step, and will be again in the next, and once more at the end. Keep
    the bare sum; the caller divides once."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    larger = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    weights = (scores - larger).exp()
    shrink = (largest - larger).exp()
    total = total * shrink + weights.sum(dim=-1, keepdim=True)
    return larger, total, (output * shrink + weights @ value) / total


@attend_tile.variant("divided in every tile", fails=("one tile", "several tiles", "large scores"))
def _(query, key, value, largest, total, output):
    """And multiplied again in the next: a running average. Consistent, but not what the caller divides."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    larger = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    weights = (scores - larger).exp()
    shrink = (largest - larger).exp()
    new_total = total * shrink + weights.sum(dim=-1, keepdim=True)
    return larger, new_total, (output * total * shrink + weights @ value) / new_total


@attend_tile.misconception("a softmax for each tile", fails=("one tile", "several tiles", "large scores"))
def _(query, key, value, largest, total, output):
    """Each tile got a softmax of its own, whose weights sum to one within the tile. A tile of poor matches then counts
    as much as one with the best. The exponentials of all tiles belong in one sum."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    larger = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    weights = (scores - larger).exp()
    shrink = (largest - larger).exp()
    total = total * shrink + weights.sum(dim=-1, keepdim=True)
    return larger, total, output * shrink + scores.softmax(dim=-1) @ value


@attend_tile.misconception("not scaled", fails=("one tile", "several tiles", "large scores"))
def _(query, key, value, largest, total, output):
    """The scores lack the root of the width."""
    scores = query @ key.mT
    larger = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    weights = (scores - larger).exp()
    shrink = (largest - larger).exp()
    return larger, total * shrink + weights.sum(dim=-1, keepdim=True), output * shrink + weights @ value


@attend_tile.misconception("nothing taken away", fails=("large scores",))
def _(query, key, value, largest, total, output):
    """Bare exponentials: right for small scores, but too large for float32 from about 89 on. Take the largest score so
    far away from all, and rescale what was summed before."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = scores.exp()
    larger = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
    return larger, total + weights.sum(dim=-1, keepdim=True), output + weights @ value


@attend_tile.alternative("einsum, from the logarithm")
def _(query, key, value, largest, total, output):
    """Two factors, old and new."""
    scores = torch.einsum("bqd,bkd->bqk", query, key) / query.shape[-1] ** 0.5
    larger = torch.cat([largest, scores], dim=-1).max(dim=-1, keepdim=True).values
    old, new = torch.exp(largest - larger), torch.exp(scores - larger)
    return larger, old * total + new.sum(-1, keepdim=True), old * output + torch.einsum("bqk,bkd->bqd", new, value)


@attend_tile.alternative("one key at a time")
def _(query, key, value, largest, total, output):
    """Tiles of one, in double precision."""
    largest, total, output = (x.double() for x in (largest, total, output))
    for k, v in zip(key.unbind(dim=1), value.unbind(dim=1), strict=True):
        score = (query * k[:, None]).sum(dim=-1, keepdim=True).double() / math.sqrt(query.shape[-1])
        larger = torch.where(score > largest, score, largest)
        weight, shrink = (score - larger).exp(), (largest - larger).exp()
        total, output = total * shrink + weight, output * shrink + weight * v[:, None]
        largest = larger
    return largest, total, output
