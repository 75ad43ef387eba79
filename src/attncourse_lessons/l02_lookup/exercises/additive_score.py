"""additive_score: How well each query matches each key, as a network with one hidden layer sees it (Bahdanau et al."""

import math

import torch
from torch import nn

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import arrives
from lessonkit.exercises.observe import gradients

from .common import READY_MADE


def reference(query, key, W, v):
    """vᵀ tanh(W [q; k]) for each pair. Bahdanau et al. 2015, appendix A.1.2."""
    from_query, from_key = W.split([query.shape[-1], key.shape[-1]])
    return torch.tanh((query @ from_query).unsqueeze(-2) + (key @ from_key).unsqueeze(-3)) @ v


def solution(query, key, W, v):
    d_query = query.shape[-1]
    from_query = (query @ W[:d_query])[:, :, None]  # (batch, n_query, 1, d_hidden)
    from_key = (key @ W[d_query:])[:, None]         # (batch, 1, n_key, d_hidden)
    return torch.tanh(from_query + from_key) @ v    # (batch, n_query, n_key)


exercise = Exercise(
    "additive_score",
    reference=reference,
    solution=solution,
    returns=("scores",),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=20,
    hints=(
        "Every query meets every key, so before v there is a hidden vector for each pair: (batch, n_query, n_key, "
        "d_hidden). How do you make room for the pairs in `query`, (batch, n_query, d_query)?",
        "`query[:, :, None]` is (batch, n_query, 1, d_query), and `key[:, None]` is (batch, 1, n_key, d_key). Axes of "
        "length 1 stretch when two tensors are added; `expand` stretches them for `torch.cat`.",
        "No concatenation is needed: [q; k] W is q times the first d_query rows of W, plus k times the others.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _a_network(draw, alike=False):
    """Queries, keys, W and v; `alike`: equal widths, and a W that treats query and key the same."""
    batch, n_query, n_key, d_query, d_key, d_hidden = draw.sizes(6, 2, 9)
    if alike:
        block = draw.normal(d_query, d_hidden) / math.sqrt(d_query)
        return [
            draw.normal(batch, n_query, d_query),
            draw.normal(batch, n_key, d_query),
            torch.cat([block, block]),
            draw.normal(d_hidden),
        ]
    return [
        draw.normal(batch, n_query, d_query),
        draw.normal(batch, n_key, d_key),
        draw.normal(d_query + d_key, d_hidden) / math.sqrt(d_query + d_key),
        draw.normal(d_hidden),
    ]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("scores", points=3)
def scores(answer, draw):
    """a small network looks at each pair (here one that treats query and key alike)"""
    return answer(*_a_network(draw, alike=True))


@aspect("query first", points=2)
def query_first(answer, draw):
    """the first rows of W belong to the query, the others to the key"""
    return answer(*_a_network(draw))


@aspect("gradient", points=1, explain=arrives("query", "key", "W", "v"))
def gradient(answer, draw):
    """query, key, W and v can all be learned"""
    query, key, W, v = (x.requires_grad_() for x in _a_network(draw, alike=True))
    found = gradients(answer(query, key, W, v), [query, key, W, v], draw)
    halves = found[2, : W.numel()].view(2, -1).sum(dim=0)  # which half is whose, "query first" asks
    return torch.cat([found[:2], nn.functional.pad(halves, (0, found.shape[1] - len(halves)))[None], found[3:]])


ALL_ADDITIVE = ("scores", "query first", "gradient")


# -------------------------------------------------------------------------------------------------------- wrong answers


@misconception("[k; q] for [q; k]", fails=("query first",))
def k_q_for_q_k(query, key, W, v):
    """The halves came in the wrong order. Nothing crashes, because the total width is the same, and a network trained
    like this would work; but weights that were trained with the query first now meet the wrong numbers."""
    n_query, n_key = query.shape[1], key.shape[1]
    queries = query[:, :, None].expand(-1, -1, n_key, -1)
    keys = key[:, None].expand(-1, n_query, -1, -1)
    return torch.tanh(torch.cat([keys, queries], dim=-1) @ W) @ v


@misconception("tanh left out", fails=ALL_ADDITIVE)
def tanh_left_out(query, key, W, v):
    """Without tanh the score falls apart into one number that depends on the query plus one that depends on the key:
    the two never meet. (What softmax makes of that is the question at the end of this assignment.)"""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return (from_query[:, :, None] + from_key[:, None]) @ v


@misconception("tanh of each by itself", fails=ALL_ADDITIVE)
def tanh_of_each_by_itself(query, key, W, v):
    """tanh was taken of the query's part and of the key's part, and then they were added. So the two never meet inside
    the nonlinearity: the score is one number for the query plus one for the key, and what the query adds is the same
    for all keys. First add, then bend."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return (torch.tanh(from_query)[:, :, None] + torch.tanh(from_key)[:, None]) @ v


@misconception("a different nonlinearity", fails=ALL_ADDITIVE)
def a_different_nonlinearity(query, key, W, v):
    """The hidden layer bends by something other than tanh (σ, ReLU …). That makes a score, too, but not the one in the
    formula, and weights trained with one do not fit the other."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return torch.sigmoid(from_query[:, :, None] + from_key[:, None]) @ v


@variant("a different nonlinearity", fails=ALL_ADDITIVE)
def a_different_nonlinearity_2(query, key, W, v):
    """ReLU."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return torch.relu(from_query[:, :, None] + from_key[:, None]) @ v


@misconception("the score squashed", fails=ALL_ADDITIVE)
def the_score_squashed(query, key, W, v):
    """tanh was applied to the finished score, so none exceeds 1 and softmax can hardly prefer anything. It belongs
    inside: bend the hidden layer, then multiply by v."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return torch.tanh((from_query[:, :, None] + from_key[:, None]) @ v)


@variant("the score squashed", fails=ALL_ADDITIVE)
def the_score_squashed_2(query, key, W, v):
    """Inside and outside."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return torch.tanh(torch.tanh(from_query[:, :, None] + from_key[:, None]) @ v)


@misconception("v left out", fails=ALL_ADDITIVE)
def v_left_out(query, key, W, v):
    """The hidden layer was added up with every unit counting the same. v says how much each unit counts, and in which
    direction."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return torch.tanh(from_query[:, :, None] + from_key[:, None]).sum(dim=-1)


@misconception("multiplied, not added", fails=ALL_ADDITIVE)
def multiplied_not_added(query, key, W, v):
    """The two parts were multiplied. W acts on query and key side by side, which is the *sum* of what it makes of each;
    hence the name."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return torch.tanh(from_query[:, :, None] * from_key[:, None]) @ v


@misconception("no axis for the pairs", fails=ALL_ADDITIVE)
def no_axis_for_the_pairs(query, key, W, v):
    """Query 1 was added to key 1, query 2 to key 2, and so on: there are rarely as many of one as of the other, and
    each query must meet *each* key. Make room for a table of pairs before you add: one axis for the queries, one for
    the keys."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return torch.tanh(from_query + from_key) @ v


@variant("no axis for the pairs", fails=ALL_ADDITIVE)
def no_axis_for_the_pairs_2(query, key, W, v):
    """By concatenation."""
    return torch.tanh(torch.cat([query, key], dim=-1) @ W) @ v


@misconception("a row for each key", fails=ALL_ADDITIVE)
def a_row_for_each_key(query, key, W, v):
    """Rows and columns are swapped. Row i belongs to query i, because each query will share out its attention over the
    keys: queries down the rows, keys along them. Which of the two new axes did you give to whom?"""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return torch.tanh(from_query[:, None] + from_key[:, :, None]) @ v


@misconception("W transposed", fails=ALL_ADDITIVE)
def w_transposed(query, key, W, v):
    """W was used lying on its side, as in formulas that write vectors as columns. Here a vector is a row and stands to
    the left: W has a row for each number that comes in, and a column for each hidden unit."""
    n_query, n_key = query.shape[1], key.shape[1]
    queries = query[:, :, None].expand(-1, -1, n_key, -1)
    keys = key[:, None].expand(-1, n_query, -1, -1)
    return torch.tanh(torch.cat([queries, keys], dim=-1) @ W.mT) @ v


@misconception("softmax already applied", fails=ALL_ADDITIVE)
def softmax_already_applied(query, key, W, v):
    """These are weights: each row sums to one. A score function ends before the softmax, and its numbers may have any
    size and sign."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return (torch.tanh(from_query[:, :, None] + from_key[:, None]) @ v).softmax(dim=-1)


@misconception("cut off from the gradient", fails=("gradient",))
def cut_off_from_the_gradient(query, key, W, v):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.item()`, `.data`,
    `torch.tensor(...)` and a new `nn.Parameter(...)` forget where numbers came from. Use the tensors that came in."""
    from_query, from_key = query @ W[: query.shape[-1]], key @ W[query.shape[-1] :]
    return (torch.tanh(from_query[:, :, None] + from_key[:, None]) @ v).detach()


@variant("cut off from the gradient", fails=("gradient",))
def cut_off_from_the_gradient_2(query, key, W, v):
    """The weights, copied into a layer."""
    layer = nn.Linear(W.shape[0], W.shape[1], bias=False)
    layer.weight = nn.Parameter(W.detach().mT)
    n_query, n_key = query.shape[1], key.shape[1]
    queries = query[:, :, None].expand(-1, -1, n_key, -1)
    keys = key[:, None].expand(-1, n_query, -1, -1)
    return torch.tanh(layer(torch.cat([queries, keys], dim=-1))) @ v


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("concatenated pairs")
def concatenated_pairs(query, key, W, v):
    """As the formula is printed: every pair side by side."""
    n_query, n_key = query.shape[1], key.shape[1]
    queries = query.unsqueeze(2).repeat(1, 1, n_key, 1)
    keys = key.unsqueeze(1).repeat(1, n_query, 1, 1)
    return (torch.tanh(torch.cat([queries, keys], dim=-1) @ W) @ v[:, None]).squeeze(-1)


@alternative("two loops")
def two_loops(query, key, W, v):
    """One pair at a time, for the whole batch."""
    rows = []
    for i in range(query.shape[1]):
        pairs = [torch.cat([query[:, i], key[:, j]], dim=-1) for j in range(key.shape[1])]
        rows.append(torch.stack([torch.tanh(pair @ W) @ v for pair in pairs], dim=-1))
    return torch.stack(rows, dim=1)


@alternative("einsum, float64, not contiguous")
def einsum_float64_not_contiguous(query, key, W, v):
    """Names the axes, in double precision, and returns a transposed view."""
    d_query = query.shape[-1]
    hidden = torch.einsum("bqd,dh->bqh", query.double(), W[:d_query].double())[:, None]
    hidden = (hidden + torch.einsum("bkd,dh->bkh", key.double(), W[d_query:].double())[:, :, None]).tanh()
    return torch.einsum("bkqh,h->bkq", hidden, v.double()).mT
