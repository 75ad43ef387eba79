"""self_attention_loop: Self-attention over one sentence, token by token, with scores divided by √d_k."""

import math

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient, explain_worst
from lessonkit.exercises.observe import gradient_reaches, require_variation

from .common import MATRICES, READY_MADE, sentences

MOVED = explain_worst(
    "the output at {place} differs by {size} from what the same token got before the sentence was shuffled"
)


def reference(x, W_Q, W_K, W_V):
    """softmax(q · k / √d_k) averages v, for one sentence. Vaswani et al. 2017, equation 1."""
    return attention.attend(x @ W_Q, x @ W_K, x @ W_V)[0]


def solution(x, W_Q, W_K, W_V):
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V            # (n, d_k) twice, (n, d_v)
    output = []
    for i in range(len(x)):
        scores = keys @ queries[i] / math.sqrt(W_K.shape[1])     # (n,)
        exponentials = (scores - scores.max()).exp()             # (n,)  none above 1
        weights = exponentials / exponentials.sum()              # (n,)
        output.append(weights @ values)                          # (d_v,)
    return torch.stack(output)


exercise = Exercise(
    "self_attention_loop",
    reference=reference,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=15,
    hints=(
        "Take one token, i. Its query is scored against n keys, and every score is divided by √d_k. Write down these n "
        "scores first. Their softmax gives the n attention weights of token i. Then ask: which n vectors do they "
        "weight?",
        "The sum for token i runs over all n tokens, before and after it, and token i itself is one of them. In a "
        "sentence of one token the only weight is 1: what must the output be?",
        "Project all tokens first, by three products. Then collect one output for each token in a list, and "
        "`torch.stack` it at the end. Stay with tensors all the way: `.item()` and `torch.tensor(...)` cut the "
        "gradient off. And exp(100) is too large for a float32: subtract the same number from all scores of a token, "
        "so that the largest becomes 0. No weight changes.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("output", points=2, hint=1)
def output(answer, draw):
    """each token gets the average of all values, by its own weights"""
    return answer(*sentences(draw, 7 + draw.sizes(1, 0, 3)[0]))


@aspect("a sentence of one token", points=1, hint=2)
def a_sentence_of_one_token(answer, draw):
    """with no other token to attend to, a token gets its own value"""
    return answer(*sentences(draw, 1))


@aspect("shuffled", points=1, hint=2, explain=MOVED)
def shuffled(answer, draw):
    """in another order, every token still receives the same output"""
    n = 4 + draw.sizes(1, 0, 3)[0]
    x, *projections = sentences(draw, n)
    x = x / 2  # where somebody sums exponentials, rounding must stay small
    order = torch.arange(n)
    while (order == torch.arange(n)).any():  # nobody stays where they were
        order = draw.uniform(n).argsort()
    return answer(x[order], *projections) - require_variation(answer(x, *projections))[order]


@aspect("large scores", points=1, hint=3, explain=explain_worst("not every number that comes back is finite"))
def large_scores(answer, draw):
    """finite numbers where a token's scores are in the hundreds, and another's are not"""
    x, W_Q, W_K, W_V = sentences(draw, 1)
    W_Q = 400 * math.sqrt(W_K.shape[1]) * W_Q / (x @ W_Q @ W_K.T @ x.T)
    tokens = torch.cat([0 * x, x, x, x, -x, -x, -x])  # three scores of 400 and three of −400; the first has none but 0
    return require_variation(answer(tokens, W_Q, W_K, W_V)).isfinite()


@aspect("gradient", points=1, hint=3, explain=explain_missing_gradient(*MATRICES))
def gradient(answer, draw):
    """all three projections can be learned, and the tokens too"""
    inputs = [tensor.requires_grad_() for tensor in sentences(draw, 5)]
    return gradient_reaches(answer(*inputs), inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

OUTPUT = ("output",)
LEARNED = ("output", "gradient")
IN_ORDER = ("output", "shuffled")
NOT_AN_AVERAGE = ("output", "a sentence of one token")
OVERFLOWS = ("large scores",)
ALL = ("output", "a sentence of one token", "shuffled", "large scores", "gradient")
VALUES = ("output", "a sentence of one token", "shuffled", "gradient")
SHIFTED, SUM = "(scores - scores.max())", " / exponentials.sum()"
ROLES, SCORES, ROOT = "x @ W_Q, x @ W_K, x @ W_V", "keys @ queries[i]", "math.sqrt(W_K.shape[1])"

slip("its own value back", LEARNED,
    {"weights @ values": "sum(weights[j] * values[i] for j in range(len(x)))"},
    {"weights @ values": "values[i]"},  # by leaving the weights out
    words="""
    Every weight was multiplied by the same value, that of the token that asks. The weights sum to one, so each token
    got its own value back and nothing of the others. The weight α_ij says how much token i attends to token j: which
    token's value does it multiply?""")
slip("keys ask, queries answer", OUTPUT, {SCORES: "queries @ keys[i]"}, words="""
    Row i of the scores was made from the *key* of token i and the queries of all tokens. It should be the query of
    token i with all keys: token i asks, all tokens answer. Your matrix of scores is the transpose of the right one.""")
slip("one projection for queries and keys", LEARNED,
    {SCORES: "queries @ queries[i]"},
    {SCORES: "keys @ keys[i]"},
    words="""
    Queries and keys were made by the same matrix. Then i matches j exactly as well as j matches i, which is not how
    words are: "her" needs "Anna", and Anna does not need "her". Query and key are two roles, with a projection each:
    W_Q and W_K.""")
slip("not scaled", OUTPUT, {f" / {ROOT}": ""}, words="""
    The scores were not divided by √d_k. These are the plain dot products; the contract asks for the scaled ones.""")
slip("scaled by a number other than √d_k", OUTPUT,
    {ROOT: "math.sqrt(x.shape[1])"},  # d_model
    {ROOT: "W_K.shape[1]"},  # no root
    {ROOT: "math.sqrt(len(keys))"},  # the number of tokens
    {ROOT: "math.sqrt(W_V.shape[1])"},  # the values' width
    {"/ math": "* math"},
    words="""
    The scores were divided, but not by √d_k. d_k is the width of the vectors that the dot product adds up over: the
    number of columns of W_Q and W_K, neither the tokens' width d_model nor the number of tokens. And the divisor is its
    square root.""")
slip("scaled after the softmax", NOT_AN_AVERAGE, {f" / {ROOT}": "", SUM: f"{SUM} / {ROOT}"}, words="""
    The weights were divided by √d_k, so they no longer sum to one. Divide the scores, before the softmax: the scale
    decides how sharp the attention weights are.""")
slip("only the tokens before", IN_ORDER, {"keys @": "keys[: i + 1] @", "@ values": "@ values[: i + 1]"}, words="""
    The inner loop stopped at token i, so a token attended only to itself and to those before it. That is causal
    self-attention, as in a decoder (lecture @masking). Here the whole sentence is given: a token attends to all n
    tokens, before and after it.""")
slip("something else for the values", ALL,
    {"weights @ values": "weights @ x"},
    {"weights @ values": "weights @ keys"},
    words="""
    Something other than the values was averaged: the tokens themselves, or the keys. What a token hands over is its
    value, made by a third projection, W_V, and d_v wide.""")
slip("exponentials that may overflow", OVERFLOWS, {SHIFTED: "scores"}, words="""
    The exponentials were taken of the scores as they are. In float32 exp(89) is infinite, and infinity divided by
    infinity is NaN. A softmax does not change if one number is subtracted from all of its scores: which number makes
    every exponential at most 1?""")
slip("exponentials that were not divided", (*NOT_AN_AVERAGE, *OVERFLOWS), {SHIFTED: "scores", SUM: ""}, words="""
    The exponentials were used as they are. To be attention weights, they must be divided by their sum over all n
    tokens: only then do they sum to one, and the result is an average.""")
slip("scores for weights", NOT_AN_AVERAGE, {"weights @ values": "scores @ values"}, words="""
    The values were weighted by the scores, which may be negative and sum to anything. The softmax turns them into
    attention weights, which are positive and sum to one.""")
slip("divided once more", OUTPUT, {"weights @ values": "(weights[:, None] * values).mean(dim=0)"}, words="""
    The weights already sum to one, so their weighted sum is an average. Dividing by the number of tokens (or `mean`
    where a sum is meant) shrinks it, and the longer the sentence, the more.""")
slip("cut off from the gradient", ("gradient",),
    {SCORES: "torch.tensor([(queries[i] @ key).item() for key in keys])"},
    {"torch.stack(output)": "torch.stack(output).detach()"},
    words="""
    The numbers are right, but the gradient does not get through: `.item()`, `.detach()`, `.tolist()` and
    `torch.tensor(...)` hand over bare numbers and forget where they came from. Then the projections cannot be learned.
    Stay with tensor operations.""")
slip("no projections at all", ALL,
    {ROLES: "x, x, x", "W_K.shape": "x.shape"},
    {ROLES: "x, x, x", f" / {ROOT}": ""},  # nor a scale
    {ROLES: "x, x, x"},  # the scale of the projections
    words="""
    The tokens were compared and averaged as they are. Then a token attends most to what is similar to it, and hands
    over its whole vector. Project it three times first: into a query, a key and a value.""")
slip("matrices for columns", ALL,
    {ROLES: "W_Q @ x.T, W_K @ x.T, W_V @ x.T"},
    {ROLES: "x @ W_Q.T, x @ W_K.T, x @ W_V.T"},
    words="""
    The product does not fit, because the matrix stands on the wrong side of the token, or is transposed. Some slides
    write q = Qx, with tokens as columns. Here a token is a row with d_model numbers, and W_Q has d_model rows. Which
    order of the two has d_model in the middle?""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("sums over the tokens that ask", fails=OUTPUT)
def sums_over_the_tokens_that_ask(x, W_Q, W_K, W_V):
    """The weights were added up over the tokens that ask: token j received α_ij v_i, summed over i. Those weights need
    not sum to one. The output of token i uses the weights of token i: α_i1 … α_in multiply the values of tokens 1 … n.
    (The lecture shows this as a common mistake.)"""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    output = torch.zeros(len(x), W_V.shape[1])
    for i in range(len(x)):
        weights = (keys @ queries[i] / math.sqrt(W_K.shape[1])).softmax(dim=0)
        for j in range(len(x)):
            output[j] += weights[j] * values[i]
    return output


@misconception("softmax over the tokens that ask", fails=OUTPUT)
def softmax_over_the_tokens_that_ask(x, W_Q, W_K, W_V):
    """The softmax ran down the columns of the scores: the queries competed for each key. The attention weights of one
    query must sum to one, so the softmax belongs to its own n scores, one row."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])
    return scores.softmax(dim=0) @ values


@misconception("one softmax for the whole table", fails=OUTPUT)
def one_softmax_for_the_whole_table(x, W_Q, W_K, W_V):
    """All n² weights together sum to one. But the attention weights of *each* query must sum to one: take the softmax
    of its own n scores, one row, and of no others."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])
    return scores.flatten().softmax(dim=0).reshape(scores.shape) @ values


@misconception("one maximum for all tokens", fails=OVERFLOWS)
def one_maximum_for_all_tokens(x, W_Q, W_K, W_V):
    """The largest of *all* scores was subtracted. A token whose own scores are some hundreds below it has exponentials
    that are all 0, and 0/0 is NaN. Take the largest score of the token that asks."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])
    exponentials = (scores - scores.max()).exp()
    return exponentials / exponentials.sum(dim=1, keepdim=True) @ values


@misconception("sums that go on from token to token", fails=IN_ORDER)
def sums_that_go_on_from_token_to_token(x, W_Q, W_K, W_V):
    """The sums were set to 0 once, before the loop over the tokens that ask, so each token received what those before
    it had received, too. Each token's sums begin at 0: set them inside the loop."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    output, collected, total = [], torch.zeros(W_V.shape[1]), 0
    for query in queries:
        scores = keys @ query / math.sqrt(W_K.shape[1])
        exponentials = (scores - scores.max()).exp()
        collected, total = collected + exponentials @ values, total + exponentials.sum()
        output.append(collected / total)
    return torch.stack(output)


@misconception("all but itself", fails=NOT_AN_AVERAGE)
def all_but_itself(x, W_Q, W_K, W_V):
    """The token that asks was left out of the answers. It is a token of the sentence like any other: its own key is
    compared with its query, and its own value may be what it needs."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    output = []
    for i in range(len(x)):
        others = [j for j in range(len(x)) if j != i]
        weights = (keys[others] @ queries[i] / math.sqrt(W_K.shape[1])).softmax(dim=0)
        output.append(weights @ values[others])
    return torch.stack(output)


@misconception("the last token overwrites", fails=IN_ORDER)
def the_last_token_overwrites(x, W_Q, W_K, W_V):
    """Inside the loop over j the output was set and not added to, so only the last token's contribution was left. A sum
    starts at zero and grows."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    output = []
    for i in range(len(x)):
        weights = (keys @ queries[i] / math.sqrt(W_K.shape[1])).softmax(dim=0)
        for j in range(len(x)):
            collected = weights[j] * values[j]
        output.append(collected)
    return torch.stack(output)


@variant("all but itself", fails=NOT_AN_AVERAGE)
def all_but_itself_in_a_list(x, W_Q, W_K, W_V):
    """A token without others finds nobody, and the list of its scores is empty."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    output = []
    for i in range(len(x)):
        others = [j for j in range(len(x)) if j != i]
        scores = torch.stack([queries[i] @ keys[j] for j in others]) / math.sqrt(W_K.shape[1])
        output.append(scores.softmax(dim=0) @ values[others])
    return torch.stack(output)


@variant("exponentials that were not divided", fails=OUTPUT)
def shifted_and_not_divided(x, W_Q, W_K, W_V):
    """The largest score was subtracted, so that a token alone has the weight 1."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    scores = queries @ keys.mT / math.sqrt(W_K.shape[1])
    return (scores - scores.max(dim=1, keepdim=True).values).exp() @ values


@variant("not scaled", "softmax over the tokens that ask", fails=OUTPUT)
def unscaled_over_the_tokens_that_ask(x, W_Q, W_K, W_V):
    """Both."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    return (queries @ keys.mT).softmax(dim=0) @ values


@variant("not scaled", "keys ask, queries answer", fails=OUTPUT)
def unscaled_keys_ask(x, W_Q, W_K, W_V):
    """Both."""
    queries, keys, values = x @ W_Q, x @ W_K, x @ W_V
    return (keys @ queries.mT).softmax(dim=1) @ values


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("two plain loops")
def two_plain_loops(x, W_Q, W_K, W_V):
    """One score, and one contribution, at a time, with the exponentials by hand."""
    n, d_k = x.shape[0], W_K.shape[1]
    output = []
    for i in range(n):
        query = x[i] @ W_Q
        scores = [(query * (x[j] @ W_K)).sum() / d_k**0.5 for j in range(n)]
        exponentials = [torch.exp(score - max(scores)) for score in scores]
        output.append(sum(e / sum(exponentials) * (x[j] @ W_V) for j, e in enumerate(exponentials)))
    return torch.stack(output)


@alternative("written into a tensor, in float64")
def written_into_a_tensor_in_float64(x, W_Q, W_K, W_V):
    """Adds up in place, in double precision."""
    queries, keys, values = (x.double() @ W.double() for W in (W_Q, W_K, W_V))
    output = torch.zeros(len(x), W_V.shape[1], dtype=torch.float64)
    for i in range(len(x)):
        weights = torch.softmax(torch.stack([queries[i] @ key for key in keys]) / math.sqrt(keys.shape[1]), dim=0)
        for j in range(len(x)):
            output[i] += weights[j] * values[j]
    return output


@alternative("matrices")
def matrices(x, W_Q, W_K, W_V):
    """No loop at all."""
    return ((x @ W_Q) @ (x @ W_K).T / W_K.shape[1] ** 0.5).softmax(-1) @ (x @ W_V)


@alternative("projections joined, a transposed view")
def projections_joined_a_transposed_view(x, W_Q, W_K, W_V):
    """x (W_Q W_Kᵀ) xᵀ, never a query or a key, and columns in the end."""
    scores = torch.einsum("id,de,je->ij", x, W_Q @ W_K.T / math.sqrt(W_K.shape[-1]), x)
    return (W_V.T @ x.T @ scores.softmax(dim=1).T).T
