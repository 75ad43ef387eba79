"""rolling_step: The newest token under a window, with a cache that holds the window and no more."""

import math

import torch
from torch import Tensor

from attncourse import attention, efficient
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import apart, require_variation

from .common import READY_MADE


def reference(query, key, value, key_cache, value_cache, t):
    """The token goes to slot t mod w; whoever has been written so far is looked at."""
    w = key_cache.shape[2]
    here = (torch.arange(w) == t % w)[:, None]                            # (w, 1)
    keys = torch.where(here, key.unsqueeze(2), key_cache)                 # (batch, n_heads, w, d_head)
    values = torch.where(here, value.unsqueeze(2), value_cache)
    output, _ = attention.attend(query.unsqueeze(2), keys, values, (torch.arange(w) <= t)[None])
    return output.squeeze(2), keys, values


def solution(query, key, value, key_cache, value_cache, t):
    w = key_cache.shape[2]
    keys, values = key_cache.clone(), value_cache.clone()        # (batch, n_heads, w, d_head)
    keys[:, :, t % w], values[:, :, t % w] = key, value
    scores = query.unsqueeze(2) @ keys.mT / math.sqrt(query.shape[-1])  # (batch, n_heads, 1, w)
    empty = torch.arange(w) > t                            # (w,), slots that nobody has written
    weights = scores.masked_fill(empty, -torch.inf).softmax(dim=-1)
    return (weights @ values).squeeze(2), keys, values


exercise = Exercise(
    "rolling_step",
    reference=reference,
    solution=solution,
    returns=("output", "key_cache", "value_cache"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "With w = 4: token 0 goes to slot 0, token 3 to slot 3. Whose place does token 4 take, and "
        "which token is never needed again from then on?",
        "The slots are not in the order of the text once the cache is full. Does the output of attention depend on the "
        "order of keys and values, if both have the same?",
        "While t is smaller than w − 1 some slots hold nothing of this text. How many of them have been written, when "
        "token t is in? The others must get no attention weight. (And `clone()` the caches before you write into "
        "them.)",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _token(draw, batch: int, n_heads: int, d_head: int) -> list[Tensor]:
    """[query, key, value] of one new token."""
    return [draw.normal(batch, n_heads, d_head) for _ in range(3)]


def _caches(draw, batch: int, n_heads: int, w: int, d_head: int) -> list[Tensor]:
    """[key_cache, value_cache]: where no token has been written, what a text before this one has left."""
    return [draw.normal(batch, n_heads, w, d_head) for _ in range(2)]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("the first token", points=1, hint=3)
def the_first_token(answer, draw):
    """token 0 attends to itself alone, whatever the slots hold, in a batch of one"""
    n_heads, w, d_head = draw.sizes(3, 3, 7)
    return answer(*_token(draw, 1, n_heads, d_head), *_caches(draw, 1, n_heads, w, d_head), 0)[0]


@aspect("half full", points=1, hint=3)
def half_full(answer, draw):
    """before the cache is full, a token attends to those that have been written, and to itself"""
    [batch, n_heads, d_head], [w] = draw.sizes(3, 2, 7), draw.sizes(1, 8, 10)
    return answer(*_token(draw, batch, n_heads, d_head), *_caches(draw, batch, n_heads, w, d_head), 4)[0]


@aspect("full", points=1, hint=2)
def full(answer, draw):
    """later, a token attends to the last w, itself among them"""
    batch, n_heads, w, d_head = draw.sizes(4, 3, 7)
    return answer(*_token(draw, batch, n_heads, d_head), *_caches(draw, batch, n_heads, w, d_head), 2 * w + 1)[0]


@aspect("slots", points=1, hint=1)
def slots(answer, draw):
    """token t stands in slot t mod w, its key and its value; the others stay where they were"""
    [batch, n_heads, d_head], [w] = draw.sizes(3, 2, 7), draw.sizes(1, 4, 6)
    caches, first = _caches(draw, batch, n_heads, w, d_head), w + 1
    for t in range(first, first + 3):
        _, *caches = answer(*_token(draw, batch, n_heads, d_head), *caches, t)
    return torch.cat(caches, dim=-1)


@aspect(
    "as a window",
    points=1, hint=2,
    explain=explain_worst("token by token, the output differs from causal attention in a window of w by {size}"),
)
def as_a_window(answer, draw):
    """token by token, past the end of the cache, it gives what one pass with a window's mask gives"""
    [batch, n_heads, d_head], w, n = draw.sizes(3, 5, 8), 4, 11
    tokens = [_token(draw, batch, n_heads, d_head) for _ in range(n)]
    outputs, caches = [], _caches(draw, batch, n_heads, w, d_head)
    for t, token in enumerate(tokens):
        output, *caches = answer(*token, *caches, t)
        outputs.append(output)
    query, key, value = (torch.stack(each, dim=2) for each in zip(*tokens, strict=True))
    mask = efficient.dense_mask(efficient.sliding_window(w - 1, causal=True), n)
    at_once, _ = attention.attend(query, key, value, mask)
    return apart(require_variation(torch.stack(outputs, dim=2)), at_once)


# -------------------------------------------------------------------------------------- one slip away from the solution

OUTPUTS = ("the first token", "half full", "full", "as a window")
SEVERAL = ("half full", "full", "as a window")
EARLY = ("the first token", "half full", "as a window")
ALL = ("the first token", "half full", "full", "slots", "as a window")
LATE = ("full", "slots", "as a window")
WRITE = "keys[:, :, t % w], values[:, :, t % w] = key, value"

slip("a slot for each token", LATE, {WRITE: "keys[:, :, t], values[:, :, t] = key, value"}, words="""
    Token t went to slot t, and the cache has only w of them. From token w on, each takes the place of the one that has
    just left the window: after the last slot comes the first again.""")
slip("one slot too far", ALL, {WRITE: "keys[:, :, (t + 1) % w], values[:, :, (t + 1) % w] = key, value"}, words="""
    The token went to the slot after its own. Tokens are counted from 0: token 0 stands in slot 0, so token w does,
    too.""")
slip("the last slot for all", LATE,
     {WRITE: "keys[:, :, min(t, w - 1)], values[:, :, min(t, w - 1)] = key, value"}, words="""
    When the cache is full, each new token takes the last slot: the newest neighbour is thrown away, and the oldest
    token stays forever. It is the oldest that has left the window.""")
slip("empty slots count", EARLY, {"torch.arange(w) > t": "torch.arange(w) < 0"}, words="""
    Slots that no token of this text has written took part in the softmax. What is in them may be zeros, or of another
    text; a key of zeros has a score of 0, and a weight.""")
slip("not even itself", EARLY, {"torch.arange(w) > t": "torch.arange(w) >= t"}, words="""
    While the cache fills, the newest token does not see itself. After token t has been written, t + 1 slots are
    full.""")
slip("read before it is written", OUTPUTS,
     {"@ keys.mT": "@ key_cache.mT", "weights @ values": "weights @ value_cache"}, words="""
    The query met the cache as it came in: the new token was not there, and the one that should have left still was.
    Write first, then look.""")
slip("the cache is not handed on", ("slots", "as a window"), {", keys, values": ", key_cache, value_cache"}, words="""
    The output is right, and the old caches came back: the next step will not know that this token was there.""")
slip("keys for values", ALL, {"= key, value": "= key, key"}, words="""
    The new *key* went into the cache of values. What is averaged is no longer what the tokens have to say, but what
    they are found by.""")
slip("queries in the cache", ("half full", "full", "slots", "as a window"), {"= key, value": "= query, value"},
     words="""
    The new *query* went into the cache of keys. A query asks once and is forgotten; keys and values are what later
    tokens will attend to.""")
slip("not scaled", SEVERAL,
     {" / math.sqrt(query.shape[-1])": ""},
     {"math.sqrt(query.shape[-1])": "query.shape[-1]"},
     {"math.sqrt(query.shape[-1])": "math.sqrt(w)"},
     words="""
    The scores were not divided by the root of the head's width, the last axis of the query. (How many slots there are
    does not matter.)""")
slip("normalises over the heads", OUTPUTS, {"softmax(dim=-1)": "softmax(dim=1)"}, words="""
    Softmax ran over the heads. Each head shares out its own attention, over the slots: the last axis of the scores.""")
slip("squeezed axes", ("the first token",), {"(weights @ values).squeeze(2)": "(weights @ values).squeeze()"}, words="""
    `squeeze()` removes every axis of length one, the batch's too when there is one text in it. Name the axis that you
    mean.""")
slip("only a half of the cache", ("full", "as a window"), {"torch.arange(w) > t": "torch.arange(w) > t % w"}, words="""
    When the cache is full, the slots after the newest token were left out. They hold older tokens, and those are still
    in the window: nothing in a full cache is forbidden.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("pushed along", fails=("the first token", "half full", "full", "slots", "as a window"))
def pushed_along(query, key, value, key_cache, value_cache, t):
    """Every token moves up by one slot, and the newest stands at the end. That can be made to work, but
    all w keys are copied at each step, and the caches that come in have other slots. Token t stays in slot t mod w."""
    keys = torch.cat([key_cache[:, :, 1:], key.unsqueeze(2)], dim=2)
    values = torch.cat([value_cache[:, :, 1:], value.unsqueeze(2)], dim=2)
    scores = query.unsqueeze(2) @ keys.mT / math.sqrt(query.shape[-1])
    empty = torch.arange(keys.shape[2]) > t
    return (scores.masked_fill(empty, -torch.inf).softmax(dim=-1) @ values).squeeze(2), keys, values


@variant("pushed along", fails=("half full", "full", "slots"))
def pushed_along_and_cut(query, key, value, key_cache, value_cache, t):
    """The last t + 1 slots in place of a mask: from an empty cache on, its outputs are right."""
    keys = torch.cat([key_cache[:, :, 1:], key.unsqueeze(2)], dim=2)
    values = torch.cat([value_cache[:, :, 1:], value.unsqueeze(2)], dim=2)
    full = min(t + 1, keys.shape[2])
    weights = (query.unsqueeze(2) @ keys[:, :, -full:].mT / math.sqrt(query.shape[-1])).softmax(dim=-1)
    return (weights @ values[:, :, -full:]).squeeze(2), keys, values


@misconception("a cache that grows", fails=("the first token", "half full", "full", "slots", "as a window"))
def a_cache_that_grows(query, key, value, key_cache, value_cache, t):
    """The new token was put behind the others, and the cache is one longer at each step. Under a window no token
    attends to what is more than w − 1 tokens back, so its place can be used again."""
    keys = torch.cat([key_cache, key.unsqueeze(2)], dim=2)
    values = torch.cat([value_cache, value.unsqueeze(2)], dim=2)
    weights = (query.unsqueeze(2) @ keys.mT / math.sqrt(query.shape[-1])).softmax(dim=-1)
    return (weights @ values).squeeze(2), keys, values


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("only the slots that are full")
def only_the_slots_that_are_full(query, key, value, key_cache, value_cache, t):
    """Three pieces put together again, and a slice in place of a mask."""
    w = key_cache.shape[2]
    slot, full = t % w, min(t + 1, w)
    keys = torch.cat([key_cache[:, :, :slot], key[:, :, None], key_cache[:, :, slot + 1 :]], dim=2)
    values = torch.cat([value_cache[:, :, :slot], value[:, :, None], value_cache[:, :, slot + 1 :]], dim=2)
    scores = torch.einsum("bhd,bhwd->bhw", query, keys[:, :, :full]) * query.shape[-1] ** -0.5
    return torch.einsum("bhw,bhwd->bhd", scores.softmax(dim=-1), values[:, :, :full]), keys, values


@alternative("index_copy")
def with_index_copy(query, key, value, key_cache, value_cache, t):
    """Out of place, and an exponential by hand."""
    w = key_cache.size(2)
    slot = torch.tensor([t % w])
    keys = key_cache.index_copy(2, slot, key.unsqueeze(2))
    values = value_cache.index_copy(2, slot, value.unsqueeze(2))
    scores = (keys * query.unsqueeze(2)).sum(dim=-1) / math.sqrt(query.size(-1))         # (batch, n_heads, w)
    weights = (scores - scores.amax(dim=-1, keepdim=True)).exp() * (torch.arange(w) <= t)
    return (weights.unsqueeze(-1) * values).sum(dim=2) / weights.sum(dim=-1, keepdim=True), keys, values


@alternative("head by head")
def head_by_head(query, key, value, key_cache, value_cache, t):
    """A loop over heads and a list of the slots that are full."""
    _, n_heads, w, d_head = key_cache.shape
    keys, values = key_cache * 1, value_cache * 1
    keys[:, :, t - t // w * w], values[:, :, t - t // w * w] = key, value
    full, outputs = [slot for slot in range(w) if slot <= t], []
    for head in range(n_heads):
        scores = (keys[:, head, full] @ query[:, head, :, None]).squeeze(-1) / d_head**0.5
        outputs.append((torch.softmax(scores, dim=-1)[:, None] @ values[:, head, full]).squeeze(1))
    return torch.stack(outputs, dim=1), keys, values
