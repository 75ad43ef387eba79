"""decoder_attention: The attention of many heads under both masks, not the future and not the padding."""

import math

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import apart, require_variation
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE


def reference(query, key, value, is_token):
    """Scaled attention over the tokens up to and with one's own place. Vaswani et al. 2017, section 3.2.3."""
    mask = attention.combine_masks(attention.causal_mask(is_token.shape[1]), is_token[:, None, None])
    return attention.attend(query, key, value, mask)[0]


def solution(query, key, value, is_token):
    n = is_token.shape[1]
    past = torch.ones(n, n, dtype=torch.bool).tril()               # (n, n)
    mask = past & is_token[:, None, None, :]                       # (batch, 1, n, n)
    scores = query @ key.mT / math.sqrt(query.shape[-1])           # (batch, n_heads, n, n)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    weights = weights.masked_fill(~mask, 0.0)                # a row of padding alone: no NaN
    return weights @ value                                         # (batch, n_heads, n, d_head)


exercise = Exercise(
    "decoder_attention",
    reference=reference,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "Both conditions must hold: the key does not come after the query, *and* the key is a token. The first is a "
        "table (n, n), the second a row for each sentence. Which four axes has the mask that holds both, and which of "
        "them are of length 1?",
        "`is_token[:, None, None, :]` is (batch, 1, 1, n): the same for all heads and all queries. Which of its axes "
        "do the padding's keys lie on, and are they where the padding really stands?",
        "Let three places of padding stand in front. What may query 0 attend to, and what does softmax make of its "
        "row? Whatever it gets must be a number, in the output and in the gradient: fill scores with −∞ before the "
        "softmax, and weights with 0 after it.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _vectors(draw):
    """Queries, keys and values, with as many heads as sentences: a mask on the wrong axis then fits, and is wrong."""
    batch, n, d_head = draw.sizes(3, 3, 7)
    return [1.5 * draw.normal(batch, batch, n + 5, d_head) for _ in range(3)]


def _padded(batch, n):
    """(batch, n), True where a token is: padding on both sides of a sentence, in front, behind."""
    places = [(1, n - 1), (3, n), (0, n), (0, n - 2), (2, n), (1, n), (2, n - 1)][:batch]
    at = torch.arange(n)
    return torch.stack([(start <= at) & (at < end) for start, end in places])


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("without padding", points=2, hint=1)
def without_padding(answer, draw):
    """where every place holds a token, each head averages the past and the token itself"""
    query, key, value = _vectors(draw)
    return answer(query, key, value, torch.ones(len(query), query.shape[2], dtype=torch.bool))


@aspect(
    "not the future",
    points=1,
    hint=1,
    explain=explain_worst("other tokens at later places change what an earlier one gets by {size}, at {place}"),
)
def not_the_future(answer, draw):
    """what comes later changes nothing"""
    query, key, value = _vectors(draw)
    is_token = torch.ones(len(query), query.shape[2], dtype=torch.bool)
    now = query.shape[2] // 2
    other = [torch.cat([x[:, :, :now], draw.normal(*x[:, :, now:].shape)], dim=2) for x in (key, value)]
    before = answer(query, key, value, is_token)[:, :, :now]
    return apart(require_variation(before), answer(query, *other, is_token)[:, :, :now])


@aspect(
    "not the padding",
    points=2,
    hint=2,
    explain=explain_worst("a sentence with padding gets what it does not get alone: it is off by {size} at {place}"),
)
def not_the_padding(answer, draw):
    """a sentence gets what it gets alone, wherever its padding stands"""
    query, key, value = _vectors(draw)
    is_token = _padded(len(query), query.shape[2])
    is_token[2, 2] = False                                                # between two tokens, too
    output = require_variation(answer(query, key, value, is_token))
    off = torch.zeros_like(query)
    for i, there in enumerate(is_token):
        alone = [x[i : i + 1, :, there] for x in (query, key, value)]
        off[i, :, there] = output[i, :, there] - answer(*alone, is_token[i : i + 1, there])[0]
    return off


@aspect("nothing to attend to", points=1, hint=3, explain=lambda got, expected: "NaN or ∞ where there is padding")
def nothing_to_attend_to(answer, draw):
    """a place of the padding gets a number, and not NaN, although it may attend to nothing"""
    query, key, value = _vectors(draw)
    is_token = _padded(len(query), query.shape[2])
    return require_variation(answer(query, key, value, is_token)).isfinite().flatten(2).all(dim=2)


@aspect("gradient", points=1, hint=3, explain=explain_way_back("query", "key", "value"))
def gradient(answer, draw):
    """queries, keys and values can learn from the tokens' output, padding or no padding"""
    vectors = [x.requires_grad_() for x in _vectors(draw)]
    is_token = _padded(len(vectors[0]), vectors[0].shape[2])
    tokens = is_token[:, None, :, None].expand_as(vectors[2])             # nobody learns from the padding's output
    query, key, value = vectors
    right = reference(query, key, value, is_token)
    return way_back(answer(*vectors, is_token)[tokens], right[tokens], vectors, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

PLAIN, FUTURE, PADDING = ("without padding",), ("without padding", "not the future"), ("not the padding",)
NOBODY = ("nothing to attend to", "gradient")
PAST, TOKENS = "torch.ones(n, n, dtype=torch.bool).tril()", "is_token[:, None, None, :]"
FILLED, ZEROS = "scores.masked_fill(~mask, -torch.inf)", ".masked_fill(~mask, 0.0)"
ROOT = " / math.sqrt(query.shape[-1])"

slip("the future is read", FUTURE, {".tril()": ""}, words="""
    Every place attends to all tokens, those after it included. In training the token to be predicted is one of them. A
    padding mask does not know which way the text runs: the causal mask is to be joined with it.""")
slip("only the future is read", FUTURE, {".tril()": ".triu()"}, words="""
    Each place attends to itself and to what comes after it. Rows are queries and columns keys: the past is the *lower*
    triangle of the table.""")
slip("not even itself", PLAIN, {".tril()": ".tril(-1)"}, words="""
    A place may attend to what came before it, and not to itself. The diagonal belongs to the past here: the token at a
    place is known there, and it is the next one that is predicted.""")
slip("the padding takes part", PADDING,
     {TOKENS: "torch.ones_like(is_token)[:, None, None]"},
     {TOKENS: "is_token[:, None, :, None]"},  # forbidden for the queries, and not for the keys
     words="""
    The padding's keys were not hidden. Behind a sentence that does no harm: there a causal mask hides them already, as
    they come later. In front of a sentence the padding is its past, and every token may attend to it. Is `is_token`
    used, and does it lie on the axis of the keys?""")
slip("either mask is enough", ("not the future", *FUTURE[:1], *PADDING), {"past & is_token": "past | is_token"},
     words="""
    A key was allowed where it lies in the past *or* is a token. Both must hold, and of two conditions that must both
    hold it is & that makes one.""")
slip("queries in place of keys", (*PADDING, *NOBODY),
     {TOKENS: "is_token[:, None, :, None]", f"weights = weights{ZEROS}": "pass"}, words="""
    The mask forbids the *queries* of the padding: it lies on their axis. What these get is thrown away anyhow, and
    their rows are now 0/0. What matters is that no token attends to the padding: its keys are what must be hidden, and
    keys are the last axis.""")
slip("another sentence's mask", PADDING,
     {TOKENS: "is_token[:, None, :]"},
     {TOKENS: "is_token[:, None, :]", "-torch.inf": "-1e9", f"weights = weights{ZEROS}": "pass"},
     words="""
    `is_token` lacks an axis. Beside scores (batch, n_heads, n, n) it must be (batch, 1, 1, n). With one axis less its
    batch is taken for the heads: an error, or, where there are as many heads as sentences, each head uses the mask of a
    sentence and nobody complains.""")
slip("one sentence's mask for all", PADDING, {TOKENS: "is_token[:1, None, None, :]"}, words="""
    All sentences got one mask. Each has padding of its own, and where one has a token another may have none.""")
slip("padding taken to stand behind", PADDING,
     {TOKENS: "(torch.arange(n) < is_token.sum(dim=1)[:, None])[:, None, None, :]"}, words="""
    The tokens were counted, and as many places from the front were taken for tokens. Padding may stand in front:
    `is_token` says which places hold tokens, not only how many.""")
slip("NaN where nothing is allowed", NOBODY,
     {f"weights = weights{ZEROS}": "pass"},
     {TOKENS: "is_token[:, None, None, :] & is_token[:, None, :, None]", f"weights = weights{ZEROS}": "pass"},
     words="""
    A place of padding in front may attend to nothing: in its past there is only padding. Its scores are all −∞, and
    softmax makes 0/0 of them. In the next layer 0 · NaN is NaN in every average, and on the way back it is in
    this layer's gradients already. Give such a row numbers.""")
slip("NaN on the way back", ("gradient",),
     {FILLED: "(scores + torch.where(mask, 0.0, -torch.inf))"},
     {f"weights = weights{ZEROS}": "pass", "weights @ value": "(weights @ value).nan_to_num()"},
     words="""
    The output is right, and the gradient is NaN. A row in which nothing is allowed came out of the softmax as 0/0,
    and was mended afterwards; on the way back its NaN is still a factor, in the softmax or in the average of the
    values. Fill the forbidden *scores* before the softmax, and the *weights* with 0 right after it.""")
slip("masked after the softmax", (*FUTURE, *PADDING),
     {f"{FILLED}.softmax": "scores.softmax"},
     {f"{FILLED}.softmax(dim=-1)": "scores.softmax(dim=-1)", f"weights{ZEROS}": "weights * mask"},
     words="""
    The weights were set to zero after the softmax. The forbidden scores are still in its denominator, so what is left
    sums to less than one, and depends on the future. Mask the scores.""")
slip("padding masked after the softmax", PADDING,
     {"mask = past &": "mask = past\ntokens =", ZEROS: " * tokens"},
     words="""
    The causal mask was put on the scores, and the padding's weights were set to zero after the softmax. The padding's
    scores are still in the denominator: the weights of a token with padding in front sum to less than one. Join the two
    masks first, then mask the scores once.""")
slip("a score of 0", (*FUTURE, *PADDING),
     {f"{FILLED}.softmax": "(scores * mask).softmax", f"weights = weights{ZEROS}": "pass"}, words="""
    Forbidden scores were made 0, and softmax makes exp(0) = 1 of that, more than of any negative score. Only −∞, or
    something as far below all others as −1e9, leaves nothing.""")
slip("not scaled", PLAIN, {ROOT: ""}, words="""
    The scores were not divided by the root of the head's width.""")
slip("root of the wrong size", PLAIN,
     {ROOT: " / math.sqrt(query.shape[1] * query.shape[-1])"},
     {ROOT: " / query.shape[-1]"},
     words="""
    The scores were divided by something, but not by the root of the width over which one head's dot product sums, the
    last axis.""")
slip("root of the number of tokens", (*PLAIN, *PADDING), {ROOT: " / math.sqrt(n)"}, words="""
    The scores were divided by the root of n. A sentence with padding then gets another answer than alone. A dot product
    sums over the head's width, and it is the root of that width.""")
slip("normalised over the queries", (*PLAIN, *PADDING), {"softmax(dim=-1)": "softmax(dim=-2)"}, words="""
    The weights sum to one down each column. The weights of each *query* must sum to one over the keys: softmax along
    the last axis.""")
slip("mask upside down", (*FUTURE, *PADDING, *NOBODY), {"~mask, -torch.inf": "mask, -torch.inf", ZEROS: ""}, words="""
    What is allowed was filled with −∞, and what is forbidden is all that is left. `mask` is True where a query may
    attend: fill where it is False.""")
slip("cut off from the gradient", ("gradient",),
     {"weights @ value": "weights.detach() @ value"},
     {"@ value  ": "@ value.detach()  "},
     {"key.mT": "key.mT.detach()"},
     words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.no_grad()`
    forget where numbers came from.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("mask upside down", fails=(*FUTURE, *PADDING))
def mask_upside_down_with_a_finite_number(query, key, value, is_token):
    """With −1e9 for what is allowed, and nothing mended."""
    n = is_token.shape[1]
    mask = torch.ones(n, n, dtype=torch.bool).tril() & is_token[:, None, None, :]
    scores = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(mask, -1e9)
    return scores.softmax(dim=-1) @ value


@variant("mask upside down", fails=(*FUTURE, *PADDING))
def mask_upside_down_and_no_nan(query, key, value, is_token):
    """With zeros for what is allowed."""
    n = is_token.shape[1]
    mask = torch.ones(n, n, dtype=torch.bool).tril() & is_token[:, None, None, :]
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(mask, -torch.inf).softmax(dim=-1)
    return weights.masked_fill(mask, 0.0) @ value


@variant("not even itself", fails=(*FUTURE, *PADDING))
def not_even_itself_and_an_even_share(query, key, value, is_token):
    """With −1e9: the first place, which may attend to nothing, gets the mean of all, the future included."""
    n = is_token.shape[1]
    mask = torch.ones(n, n, dtype=torch.bool).tril(-1) & is_token[:, None, None, :]
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return scores.masked_fill(~mask, -1e9).softmax(dim=-1) @ value


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("padding attends to itself")
def padding_attends_to_itself(query, key, value, is_token):
    """Nothing is 0/0 if every place may attend to itself, and what padding gets is never read."""
    n = is_token.size(1)
    allowed = torch.tril(torch.ones(n, n)).bool() & is_token.view(-1, 1, 1, n) | torch.eye(n).bool()
    scores = torch.einsum("bhqd,bhkd->bhqk", query, key) * query.size(-1) ** -0.5
    return torch.einsum("bhqk,bhkd->bhqd", torch.where(allowed, scores, -torch.inf).softmax(-1), value)


@alternative("two masks, added")
def two_masks_added(query, key, value, is_token):
    """A billion off for each reason: where all is forbidden, an even share remains."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(key.shape[-1])
    place = torch.arange(is_token.shape[1])
    scores = scores - 1e9 * (place > place[:, None]) - 1e9 * (~is_token)[:, None, None]
    return torch.softmax(scores, dim=-1) @ value


@alternative("a loop over sentences and places")
def a_loop_over_sentences_and_places(query, key, value, is_token):
    """Gathers the keys that are allowed, and leaves zeros where there are none."""
    rows = []
    for b in range(len(query)):
        for i in range(query.shape[2]):
            seen = is_token[b, : i + 1].nonzero()[:, 0]
            scores = key[b][:, seen] @ query[b, :, i, :, None] / math.sqrt(query.shape[-1])
            weights = scores.softmax(dim=1) if len(seen) else torch.zeros_like(scores)
            rows.append((weights * value[b][:, seen]).sum(dim=1))
    return torch.stack(rows).unflatten(0, (len(query), -1)).transpose(1, 2)


@alternative("exponentials by hand")
def exponentials_by_hand(query, key, value, is_token):
    """The shares of what is allowed, with something in the denominator."""
    mask = is_token[:, None, None] & torch.ones(is_token.shape[1], is_token.shape[1], dtype=torch.bool).tril()
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    shares = (scores - scores.amax(dim=-1, keepdim=True).detach()).exp() * mask
    return shares / shares.sum(dim=-1, keepdim=True).clamp(min=1e-20) @ value
