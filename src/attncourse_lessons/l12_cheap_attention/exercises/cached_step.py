"""cached_step: Causal attention of the newest token, given the keys and values of all before it."""

import math

import torch
from torch import Tensor

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import apart, require_variation

from .common import READY_MADE


def reference(query, key, value, key_cache, value_cache):
    """The new token's key and value join the cache, and its query meets all that is in it."""
    keys = torch.cat([key_cache, key.unsqueeze(2)], dim=2)                # (batch, n_kv_heads, n + 1, d_head)
    values = torch.cat([value_cache, value.unsqueeze(2)], dim=2)
    group = query.shape[1] // key.shape[1]
    shared_keys, shared_values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
    output, _ = attention.attend(query.unsqueeze(2), shared_keys, shared_values)      # (batch, n_heads, 1, d_head)
    return output.squeeze(2), keys, values


def solution(query, key, value, key_cache, value_cache):
    keys = torch.cat([key_cache, key.unsqueeze(2)], dim=2)  # (batch, n_kv_heads, n + 1, d_head)
    values = torch.cat([value_cache, value.unsqueeze(2)], dim=2)
    group = query.shape[1] // key.shape[1]
    shared_keys = keys.repeat_interleave(group, dim=1)  # (batch, n_heads, n + 1, d_head)
    scores = query.unsqueeze(2) @ shared_keys.mT / math.sqrt(query.shape[-1])
    output = scores.softmax(dim=-1) @ values.repeat_interleave(group, dim=1)
    return output.squeeze(2), keys, values


exercise = Exercise(
    "cached_step",
    reference=reference,
    solution=solution,
    returns=("output", "key_cache", "value_cache"),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=25,
    extra=True,
    hints=(
        "Four steps: the new key and value go into the caches, the query meets all keys that are there now, softmax, "
        "average. In which order, if the new token may attend to itself?",
        "The new key is (batch, n_kv_heads, d_head), the cache (batch, n_kv_heads, n, d_head): the key lacks one axis. "
        "Which, and along which axis does the cache grow?",
        "For groups, keys and values get their missing heads just before they are used, and not in the cache: "
        "neighbouring query heads share (lecture @many_heads).",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _token(draw, batch: int, n_heads: int, n_kv_heads: int, d_head: int) -> list[Tensor]:
    """[query, key, value] of one new token."""
    return [draw.normal(batch, heads, d_head) for heads in (n_heads, n_kv_heads, n_kv_heads)]


def _past(draw, batch: int, n_kv_heads: int, n: int, d_head: int) -> list[Tensor]:
    """[key_cache, value_cache] of n tokens."""
    return [draw.normal(batch, n_kv_heads, n, d_head) for _ in range(2)]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("the first token", points=1, hint=1)
def the_first_token(answer, draw):
    """with an empty cache a token attends to itself alone"""
    n_heads, d_head = draw.sizes(2, 2, 7)
    return answer(*_token(draw, 1, n_heads, n_heads, d_head), *_past(draw, 1, n_heads, 0, d_head))[0]


@aspect("output", points=2, hint=1)
def output(answer, draw):
    """the query attends to all that came before, and to itself"""
    [batch, n_heads, d_head], [n] = draw.sizes(3, 2, 7), draw.sizes(1, 8, 10)
    token = _token(draw, batch, n_heads, n_heads, d_head)
    return answer(*token, *_past(draw, batch, n_heads, n, d_head))[0]


@aspect("caches", points=2, hint=2)
def caches(answer, draw):
    """after three steps they hold the keys and the values of all tokens, in order"""
    batch, n_heads, n, d_head = draw.sizes(4, 2, 7)
    caches = _past(draw, batch, n_heads, n, d_head)
    for _ in range(3):
        _, *caches = answer(*_token(draw, batch, n_heads, n_heads, d_head), *caches)
    return torch.cat(caches, dim=-1)


@aspect("groups", points=1, hint=3)
def groups(answer, draw):
    """where there are fewer key-value heads than query heads, neighbours share, and the caches stay small"""
    [batch, n_kv_heads, d_head], [n] = draw.sizes(3, 2, 6), draw.sizes(1, 8, 10)
    output, caches = torch.empty(0), _past(draw, batch, n_kv_heads, n, d_head)
    for _ in range(2):
        output, *caches = answer(*_token(draw, batch, 2 * n_kv_heads, n_kv_heads, d_head), *caches)
    return torch.cat([x.flatten(1) for x in (output, *caches)], dim=1)


@aspect(
    "as all at once",
    points=1, hint=1,
    explain=explain_worst("step by step, the output differs from causal attention's by {size}"),
)
def as_all_at_once(answer, draw):
    """five steps in a row give what one pass with a causal mask gives"""
    batch, n_heads, d_head = draw.sizes(3, 2, 6)
    tokens = [_token(draw, batch, n_heads, n_heads, d_head) for _ in range(5)]
    outputs, caches = [], _past(draw, batch, n_heads, 0, d_head)
    for token in tokens:
        output, *caches = answer(*token, *caches)
        outputs.append(output)
    query, key, value = (torch.stack(each, dim=2) for each in zip(*tokens, strict=True))
    at_once, _ = attention.attend(query, key, value, attention.causal_mask(5))
    return apart(require_variation(torch.stack(outputs, dim=2)), at_once)


# -------------------------------------------------------------------------------------- one slip away from the solution

EVERY_STEP = ("the first token", "output", "caches", "groups", "as all at once")
OUTPUTS = ("the first token", "output", "groups", "as all at once")
CACHES = ("caches", "groups")
SCORES = ("output", "groups", "as all at once")
GROUPS = ("groups",)
KEYS, VALUES = "[key_cache, key.unsqueeze(2)]", "[value_cache, value.unsqueeze(2)]"
SHARED_KEYS, SHARED_VALUES = "keys.repeat_interleave(group, dim=1)", "values.repeat_interleave(group, dim=1)"

slip("the cache grows along the wrong axis", EVERY_STEP,
     {f"{KEYS}, dim=2": f"{KEYS}, dim=1", f"{VALUES}, dim=2": f"{VALUES}, dim=1"},
     {f"{KEYS}, dim=2": f"{KEYS}, dim=-1", f"{VALUES}, dim=2": f"{VALUES}, dim=-1"},  # the width's
     {f"{KEYS}, dim=2": f"{KEYS}, dim=0", f"{VALUES}, dim=2": f"{VALUES}, dim=0"},  # the batch's
     words="""
    The new key was put beside the old ones along the wrong axis, and the sizes do not fit. Axes of the cache are batch,
    heads, positions, width: a new token is a new *position*.""")

slip("the token does not see itself", OUTPUTS,
     {"= keys.repeat": "= key_cache.repeat", "@ values": "@ value_cache"},
     words="""
    The query met the old cache, and only then did the new key and value join it. In causal attention a token attends to
    all before it *and to itself*; the first one would attend to nothing.""")

slip("newest first", CACHES,
     {KEYS: "[key.unsqueeze(2), key_cache]", VALUES: "[value.unsqueeze(2), value_cache]"},
     words="""
    The new token was put in *front* of the old ones. The output does not notice, because an average does not care about
    order. But a mask, a window, or whoever reads the cache by position will.""")

slip("the cache is not handed on", (*CACHES, "as all at once"),
     {", keys, values": ", key_cache, value_cache"},
     words="""
    The output is right, but the old caches came back: the next step will not know that this token was there. What has
    grown must be returned.""")

slip("queries in the cache", ("output", *CACHES, "as all at once"), {KEYS: "[key_cache, query.unsqueeze(2)]"}, words="""
    The new *query* was put into the cache of keys. (Three decks speak of a growing set of "keys and queries".) A query
    asks once and is forgotten; what is asked again and again, and must be kept, are keys and values.""")

slip("keys for values", EVERY_STEP, {VALUES: "[value_cache, key.unsqueeze(2)]"}, words="""
    The new *key* went into the cache of values: a slip in copying a line. What is averaged is no longer what the tokens
    have to say, but what they are found by.""")

slip("dealt out like cards", GROUPS,
     {SHARED_KEYS: "keys.repeat(1, group, 1, 1)", SHARED_VALUES: "values.repeat(1, group, 1, 1)"},
     words="""
    The key-value heads were repeated one after the other, 0 1 0 1, so query heads 0 and 2 share. In grouped-query
    attention *neighbours* share: 0 0 1 1. Both have the same shape.""")

slip("the many heads in the cache", GROUPS, {", keys, values": f", shared_keys, {SHARED_VALUES}"}, words="""
    Keys and values were repeated for all query heads, and it is the repeated ones that came back. Then the cache
    is as large as without groups, and nothing has been saved (at the next step the few new heads may not even fit the
    many old ones). Repeat just before use; keep the few.""")

slip("a key-value head for every query head", GROUPS, {SHARED_KEYS: "keys", SHARED_VALUES: "values"}, words="""
    Queries have more heads than keys here, and the two tensors do not fit. Each key-value head serves several
    neighbouring query heads.""")

slip("normalises over the heads", OUTPUTS, {"softmax(dim=-1)": "softmax(dim=1)"}, words="""
    Softmax ran over the heads, so that the heads share out each position among themselves. Each head shares out its own
    attention, over the positions: the axis that grows.""")

slip("root of the wrong size", SCORES,
     {"math.sqrt(query.shape[-1])": "math.sqrt(keys.shape[2])"},  # of the length
     {"math.sqrt(query.shape[-1])": "math.sqrt(query.shape[1] * query.shape[-1])"},  # of all heads' width
     {"math.sqrt(query.shape[-1])": "query.shape[-1]"},  # no root
     words="""
    The scores were divided by something other than the root of the head's width. A score is a dot product, and it adds
    up over the last axis of queries and keys. How many tokens there are, or how many heads, does not matter.""")
slip("a causal mask with one row", SCORES,
     {"scores.softmax": "scores.masked_fill(~torch.ones_like(scores).tril().bool(), -torch.inf).softmax"},
     words="""
    A causal mask was laid over the scores. There is one row here, and the mask takes it for the row of the *first*
    token, which may see itself alone. The newest token may attend to all that is in the cache, so it needs no mask.""")
slip("not scaled", SCORES,
     {" / math.sqrt(query.shape[-1])": ""},
     words="""
    The scores went into the softmax without the root of the width.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("the many heads in the cache", fails=GROUPS)
def many_heads_widened_once(query, key, value, key_cache, value_cache):
    """Takes the many of the step before as they are, and does not notice."""
    tensors = (key, value, key_cache, value_cache)
    wide = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in tensors)
    wide_key, wide_value, old_keys, old_values = wide
    keys = torch.cat([old_keys, wide_key.unsqueeze(2)], dim=2)
    values = torch.cat([old_values, wide_value.unsqueeze(2)], dim=2)
    weights = (query.unsqueeze(2) @ keys.mT / math.sqrt(query.shape[-1])).softmax(dim=-1)
    return (weights @ values).squeeze(2), keys, values


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("einsum over groups")
def einsum_over_groups(query, key, value, key_cache, value_cache):
    """Gives the groups an axis of their own in place of repeating."""
    keys = torch.cat((key_cache, key[:, :, None]), dim=-2)
    values = torch.cat((value_cache, value[:, :, None]), dim=-2)
    grouped = query.unflatten(1, (key.shape[1], -1))
    weights = torch.einsum("bgrd,bgnd->bgrn", grouped / query.shape[-1] ** 0.5, keys).softmax(dim=-1)
    return torch.einsum("bgrn,bgnd->bgrd", weights, values).flatten(1, 2), keys, values


@alternative("head by head")
def head_by_head(query, key, value, key_cache, value_cache):
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


@alternative("float64, not contiguous")
def float64_not_contiguous(query, key, value, key_cache, value_cache):
    """Repeats by expanding, and returns transposed views."""
    keys = torch.cat([key_cache.transpose(1, 2), key[:, None]], dim=1).transpose(1, 2)
    values = torch.cat([value_cache.transpose(1, 2), value[:, None]], dim=1).transpose(1, 2)
    group = query.shape[1] // key.shape[1]
    wide = (x.double()[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2) for x in (keys, values))
    wide_keys, wide_values = wide
    scores = (wide_keys @ query.double().unsqueeze(-1)).squeeze(-1) / math.sqrt(query.shape[-1])
    return (scores.softmax(dim=-1).unsqueeze(-2) @ wide_values).squeeze(-2), keys, values
