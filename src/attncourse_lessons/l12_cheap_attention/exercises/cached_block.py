"""cached_block: A block with rotary positions and a cache, which gives what it gives without a cache."""

import math

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import apart, require_variation
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE, norm, rotate


def solution(x, keys, values, W_Q, W_K, W_V, W_O, W_up, W_down):
    n_heads, n, m = keys.shape[1], keys.shape[2], x.shape[1]
    heard = norm(x)
    query, key, value = (
        (heard @ W).unflatten(-1, (n_heads, -1)).transpose(1, 2) for W in (W_Q, W_K, W_V)
    )
    positions = torch.arange(n, n + m)                             # of the new tokens
    keys = torch.cat([keys, rotate(key, positions)], dim=2)  # (batch, n_heads, n + m, d_head)
    values = torch.cat([values, value], dim=2)
    scores = rotate(query, positions) @ keys.mT / math.sqrt(query.shape[-1])
    past = torch.arange(n + m) <= positions[:, None]               # (m, n + m)
    weights = scores.masked_fill(~past, -torch.inf).softmax(dim=-1)
    x = x + (weights @ values).transpose(1, 2).flatten(2) @ W_O
    return x + (norm(x) @ W_up).relu() @ W_down, keys, values


exercise = Exercise(
    "cached_block",
    reference=solution,
    solution=solution,
    returns=("output", "keys", "values"),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=30,
    extra=True,
    hints=(
        "Begin with empty caches: then it is a plain pre-norm block with a causal mask. Norm, project, split, rotate "
        "queries and keys, attend, merge, W_O, add to x; norm, feed-forward, add.",
        "The new tokens are at places n, n + 1, … n + m − 1, whatever chunk they come in. Queries and new keys are "
        "rotated by these. Old keys were rotated when they came.",
        "The mask is (m, n + m): row i is the token at place n + i, and may attend to the keys at places up to n + i. "
        "Compare `torch.arange(n + m)` with the places of the new tokens as a column.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()

LENGTH = 9


def _block(draw):
    """A text (batch, LENGTH, d_model), empty caches, six matrices."""
    batch, n_heads, half = draw.sizes(3, 2, 4)
    d = n_heads * 2 * half
    matrices = [draw.normal(d, d) / math.sqrt(d) for _ in range(4)]
    matrices += [draw.normal(d, 3 * d) / math.sqrt(d), draw.normal(3 * d, d) / math.sqrt(3 * d)]
    x = draw.normal(batch, LENGTH, d)
    return x, [torch.zeros(batch, n_heads, 0, 2 * half)] * 2, [2 * matrices[0], 2 * matrices[1], *matrices[2:]]


def _in_chunks(answer, draw, *lengths):
    """How far the outputs are from those of one pass, if the text comes in chunks."""
    x, empty, matrices = _block(draw)
    outputs, caches = [], empty
    for chunk in x.split(lengths, dim=1):
        output, *caches = answer(chunk, *caches, *matrices)
        outputs.append(output)
    return apart(require_variation(torch.cat(outputs, dim=1)), answer(x, *empty, *matrices)[0])


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("in one pass", points=2, hint=1)
def in_one_pass(answer, draw):
    """with empty caches it is a causal pre-norm block with rotary positions"""
    x, empty, matrices = _block(draw)
    return answer(x, *empty, *matrices)[0]


OFF = "{}: the output is off by {{size}}, at {{place}}, from what your own block gives in one pass"


@aspect("one by one", points=1, hint=2, explain=explain_worst(OFF.format("token by token")))
def one_by_one(answer, draw):
    """token by token gives the same result"""
    return _in_chunks(answer, draw, *[1] * LENGTH)


@aspect("in chunks", points=2, hint=3, explain=explain_worst(OFF.format("in chunks of 4, 2 and 3 tokens")))
def in_chunks(answer, draw):
    """and so do chunks of several tokens"""
    return _in_chunks(answer, draw, 4, 2, 3)


def _sizes(got, expected):
    return f"after chunks of 5 and 4 the caches have shapes {tuple(got[0].tolist())} and {tuple(got[1].tolist())}"


@aspect("caches", points=1, hint=2, explain=_sizes)
def caches(answer, draw):
    """the caches hold a place for each token so far"""
    x, caches, matrices = _block(draw)
    for chunk in x.split([5, 4], dim=1):
        _, *caches = answer(chunk, *caches, *matrices)
    return torch.tensor([list(cache.shape) for cache in caches])


@aspect("gradient", points=1, hint=1, explain=explain_way_back("x", "W_Q", "W_K", "W_V", "W_O", "W_up", "W_down"))
def gradient(answer, draw):
    """gradients reach x and all matrices"""
    x, empty, matrices = _block(draw)
    inputs = [each.requires_grad_() for each in (x, *matrices)]
    got, right = (each(x, *empty, *matrices)[0] for each in (answer, solution))
    return way_back(got, right, inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

PLAIN, LATER = ("in one pass",), ("one by one", "in chunks")
POSITIONS, PAST = "torch.arange(n, n + m)", "torch.arange(n + m) <= positions[:, None]"
NEW_KEYS, QUERY = "[keys, rotate(key, positions)]", "rotate(query, positions)"
MASKED, JOINED = ".masked_fill(~past, -torch.inf)", "keys = torch.cat([keys, rotate(key, positions)], dim=2)"

slip("places counted from 0 in each chunk", LATER,
     {"rotate(key, positions)": "rotate(key, torch.arange(m))", QUERY: "rotate(query, torch.arange(m))"}, words="""
    The new tokens were rotated as if the text began with them. Then every new token believes that it stands where the
    first ones stand. Their places go on where the cache ends.""")
slip("only the keys know their places", LATER, {QUERY: "rotate(query, torch.arange(m))"}, words="""
    The new keys are rotated by their places, and the queries by places counted from 0. What a score should know is the
    distance between the two, and that comes out wrong as soon as there is a cache.""")
slip("queries not rotated", PLAIN, {QUERY: "query"}, words="""
    The queries were not rotated. The score of a rotated key with a plain query depends on where the key stands, not on
    how far away it is.""")
slip("keys not rotated", PLAIN, {"rotate(key, positions)": "key"}, words="""
    The keys went into the cache without being rotated, and were not rotated afterwards.""")
slip("old keys rotated again", LATER,
     {JOINED: "keys = rotate(torch.cat([keys, key], dim=2), torch.arange(n + m))"}, words="""
    All keys were rotated at each step, and it is the rotated ones that are kept: those of the cache are turned once
    more each time. Either keep them rotated and turn only the new ones, or keep them as they are.""")
slip("values rotated, too", PLAIN, {"[values, value]": "[values, rotate(value, positions)]"}, words="""
    The values were rotated. Rotary positions are for the scores alone: what a token hands over does not depend on where
    it stands.""")
slip("no mask", ("in one pass", *LATER), {MASKED: ""}, words="""
    There is no mask. A single new token needs none, but in a chunk of several each must not see those after it; with
    empty caches the whole text is such a chunk.""")
slip("a mask for the first chunk alone", ("in chunks",),
     {PAST: "(torch.arange(n + m) <= positions[:, None]) | (n > 0)"}, words="""
    Where there is a cache nothing was masked. That is right for a single new token. In a chunk of several the first
    must not see the second.""")
slip("a mask that does not know the cache", LATER,
     {PAST: "torch.ones(m, n + m, dtype=torch.bool).tril()"}, words="""
    The mask (m, n + m) is the lower triangle from the *left* end, so the first new token sees only the oldest key. New
    token i stands at place n + i, and may see all places up to that.""")
slip("a square mask", ("in chunks", "caches"), {PAST: "torch.ones(m, m, dtype=torch.bool).tril()"}, words="""
    The mask is (m, m): it knows the new tokens and not the cache. Scores are (…, m, n + m), and the old keys need
    columns, too.""")
slip("the old caches handed on", (*LATER, "caches"),
     {"keys = torch.cat": "old = keys, values\nkeys = torch.cat", "W_down, keys, values": "W_down, *old"},
     words="""
    The caches came back as they went in, so the next chunk does not know that this one was there.""")
slip("the newest in front", ("in chunks",),
     {NEW_KEYS: "[rotate(key, positions), keys]", "[values, value]": "[value, values]"}, words="""
    The new keys and values were put in front of the old ones. The mask counts places from the oldest: the cache must
    keep the order of the text.""")
slip("heads cut across the tokens", (*PLAIN, *LATER),
     {"(heard @ W).unflatten(-1, (n_heads, -1)).transpose(1, 2)": "(heard @ W).reshape(len(x), n_heads, m, -1)"},
     words="""
    The projections were read as (batch, n_heads, m, d_head) in the order in which they lie in memory, so a head holds
    pieces of several tokens. Split the last axis into heads first, then exchange the axes of tokens and heads.""")
slip("not scaled", PLAIN, {" / math.sqrt(query.shape[-1])": ""}, words="""
    The scores were not divided by the root of the head's width.""")
slip("no norm", PLAIN, {"heard = norm(x)": "heard = x"}, {"norm(x) @ W_up": "x @ W_up"}, words="""
    One of the two norms is missing. In a pre-norm block both attention and feed-forward network hear norm(x).""")
slip("the normed x goes on", PLAIN, {"x = x + (weights": "x = heard + (weights"}, words="""
    What attention finds was added to norm(x). The norm is for what a sublayer reads: what it finds is added to x as it
    came.""")
slip("no residual connection", PLAIN, {"x = x + (weights": "x = (weights"},
     {"return x + (norm(x)": "return (norm(x)"}, words="""
    What a sublayer found took the place of x, where it is to be added to it.""")
slip("the cache cut off from the gradient", ("gradient",), {"@ keys.mT": "@ keys.detach().mT"},
     {"weights @ values": "weights @ values.detach()"}, words="""
    The numbers are right, and keys or values learn nothing: `.detach()` cuts the gradient. While a model writes that
    does no harm. In one pass over a text, as in training, it does.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("plain keys in the cache")
def plain_keys_in_the_cache(x, keys, values, W_Q, W_K, W_V, W_O, W_up, W_down):
    """Rotates all keys anew at each step, and keeps them as they are."""
    n, m, heard = keys.size(2), x.size(1), norm(x)
    query, key, value = ((heard @ W).view(*x.shape[:2], keys.size(1), -1).transpose(1, 2) for W in (W_Q, W_K, W_V))
    keys, values = torch.cat((keys, key), dim=-2), torch.cat((values, value), dim=-2)
    every = torch.arange(n + m)
    scores = rotate(query, every[n:]) @ rotate(keys, every).transpose(-1, -2) * query.size(-1) ** -0.5
    scores = torch.where(every[n:, None] >= every, scores, -torch.inf)
    x = x + (scores.softmax(-1) @ values).transpose(1, 2).reshape(x.shape) @ W_O
    return x + torch.relu(norm(x) @ W_up) @ W_down, keys, values


@alternative("a shifted triangle")
def a_shifted_triangle(x, keys, values, W_Q, W_K, W_V, W_O, W_up, W_down):
    """The mask by a diagonal, the heads by einsum."""
    n_heads, n, m = keys.shape[1], keys.shape[2], x.shape[1]
    places = n + torch.arange(m)
    query, key, value = (torch.stack((norm(x) @ W).chunk(n_heads, dim=-1), dim=1) for W in (W_Q, W_K, W_V))
    keys = torch.cat([keys, rotate(key, places)], dim=2)
    values = torch.cat([values, value], dim=2)
    scores = torch.einsum("bhqd,bhkd->bhqk", rotate(query, places), keys) / math.sqrt(keys.shape[-1])
    scores = scores + torch.full((m, n + m), -torch.inf).triu(n + 1)
    heads = torch.einsum("bhqk,bhkd->bqhd", scores.softmax(dim=-1), values)
    x = x + heads.flatten(2) @ W_O
    return x + (norm(x) @ W_up).clamp(min=0) @ W_down, keys, values


@alternative("token after token within the chunk")
def token_after_token_within_the_chunk(x, keys, values, W_Q, W_K, W_V, W_O, W_up, W_down):
    """No mask at all: each token meets what is there when it comes."""
    rows = []
    for i in range(x.shape[1]):
        heard, place = norm(x[:, i : i + 1]), torch.tensor([keys.shape[2]])
        query, key, value = ((heard @ W).unflatten(-1, (keys.shape[1], -1)).transpose(1, 2) for W in (W_Q, W_K, W_V))
        keys, values = torch.cat([keys, rotate(key, place)], dim=2), torch.cat([values, value], dim=2)
        weights = (rotate(query, place) @ keys.mT / math.sqrt(keys.shape[-1])).softmax(dim=-1)
        rows.append(x[:, i : i + 1] + (weights @ values).transpose(1, 2).flatten(2) @ W_O)
    x = torch.cat(rows, dim=1)
    return x + (norm(x) @ W_up).relu() @ W_down, keys, values
