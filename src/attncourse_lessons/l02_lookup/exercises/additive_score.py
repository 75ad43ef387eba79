"""additive_score: how well each query matches each key, by a network with one hidden layer. Bahdanau et al. 2015."""

import math

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import apart, require_variation
from lessonkit.exercises.way_back import explain_way_back, way_back

from .common import READY_MADE


def reference(query, key, W, w):
    """wᵀ tanh(W [q; k]) for each pair. Bahdanau et al. 2015, appendix A.1.2."""
    from_query, from_key = W.split([query.shape[-1], key.shape[-1]])
    return torch.tanh((query @ from_query).unsqueeze(-2) + (key @ from_key).unsqueeze(-3)) @ w


def solution(query, key, W, w):
    d_query = query.shape[-1]
    from_query = (query @ W[:d_query])[:, :, None]  # (batch, n_query, 1, d_hidden)
    from_key = (key @ W[d_query:])[:, None]         # (batch, 1, n_key, d_hidden)
    return torch.tanh(from_query + from_key) @ w    # (batch, n_query, n_key)


exercise = Exercise(
    "additive_score",
    reference=reference,
    solution=solution,
    returns=("scores",),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=20,
    hints=(
        "Every query meets every key, so before w there is a hidden vector for each pair: (batch, n_query, n_key, "
        "d_hidden). How do you make room for the pairs in `query`, (batch, n_query, d_query)?",
        "`query[:, :, None]` is (batch, n_query, 1, d_query), and `key[:, None]` is (batch, 1, n_key, d_key). Axes of "
        "length 1 stretch when two tensors are added; `expand` stretches them for `torch.cat`.",
        "No concatenation is needed: [q; k] W is q times the first d_query rows of W, plus k times the others. Both, "
        "and w, are learned: no `.item()`, no `.detach()`, no `.data`.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _a_network(draw, alike=False):
    """Queries, keys, W and w; `alike`: equal widths, and a W that treats query and key the same."""
    batch, n_query, n_key, *widths = draw.sizes(6, 2, 9)
    d_hidden = min(widths)  # less than the two others together: W does not fit on its side
    d_query, d_key = (width for width in widths if width != d_hidden)
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


@aspect("scores", points=3, hint=2)
def scores(answer, draw):
    """a small network looks at each pair (here one that treats query and key alike)"""
    return answer(*_a_network(draw, alike=True))


@aspect("query first", points=2, hint=3, explain=explain_worst("the score differs by {size} from query to query"))
def query_first(answer, draw):
    """the first rows of W belong to the query: where they are zero, every query gives a key the same score"""
    query, key, W, w = _a_network(draw)
    W[: query.shape[-1]] = 0.0
    scores = require_variation(answer(query, key, W, w))
    return apart(scores, scores[:, :1].expand_as(scores))


@aspect("gradient", points=1, hint=3, explain=explain_way_back("query", "key", "W", "w"))
def gradient(answer, draw):
    """query, key, W and w can all be learned"""
    inputs = [x.requires_grad_() for x in _a_network(draw)]
    return way_back(answer(*inputs), reference(*inputs), inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

ALL, ALIKE = ("scores", "query first"), ("scores",)
SUM, BENT = "from_query + from_key", "torch.tanh(from_query + from_key)"
SCORES = f"{BENT} @ w"

slip("[k; q] for [q; k]", ("query first",),
     {"d_query = query.shape[-1]": "d_key = key.shape[-1]", "W[:d_query]": "W[d_key:]", "W[d_query:]": "W[:d_key]"},
     words="""
    The halves came in the wrong order. Nothing crashes, because the total width is the same, and a network trained like
    this would work; but weights that were trained with the query first now meet the wrong numbers.""")
slip("tanh left out", ALIKE, {"torch.tanh": ""}, words="""
    Without tanh the score falls apart into one number that depends on the query plus one that depends on the key: the
    two never meet. (What softmax makes of that is the question at the end of this assignment.)""")
slip("tanh of each by itself", ALIKE, {BENT: "(torch.tanh(from_query) + torch.tanh(from_key))"}, words="""
    tanh was taken of the query's part and of the key's part, and then they were added. So the two never meet inside the
    nonlinearity: the score is one number for the query plus one for the key, and what the query adds is the same for
    all keys. Add first, then apply tanh.""")
slip("a different nonlinearity", ALIKE, {"tanh": "sigmoid"}, {"tanh": "relu"}, words="""
    The hidden layer has another nonlinearity than tanh (σ, ReLU …). That makes a score, too, but not the one in the
    formula, and weights trained with one do not fit the other.""")
slip("the score squashed", ALIKE,
     {SCORES: f"torch.tanh(({SUM}) @ w)"},
     {SCORES: f"torch.tanh({SCORES})"}, words="""
    tanh was applied to the finished score, so none exceeds 1 and softmax can hardly prefer anything. It belongs inside:
    apply it to the hidden layer, then multiply by w.""")
slip("w left out", (*ALIKE, "gradient"), {" @ w": ".sum(dim=-1)"}, words="""
    The hidden layer was added up with every unit counting the same. w says how much each unit counts, and in which
    direction.""")
slip("subtracted, not added", ALIKE, {"from_query + from_key": "from_query - from_key"}, words="""
    The key's part was subtracted from the query's. Side by side, [q; k], the two give the *sum* of their parts.""")
slip("multiplied, not added", ALL, {SUM: "from_query * from_key"}, words="""
    The two parts were multiplied. W acts on query and key side by side, which is the *sum* of what it makes of each;
    hence the name.""")
slip("no axis for the pairs", (*ALL, "gradient"),
     {"[:, :, None]": "", "[:, None]": ""},
     {SUM: "torch.cat([query, key], dim=-1) @ W"}, words="""
    Query 1 was added to key 1, query 2 to key 2, and so on: there are rarely as many of one as of the other, and each
    query must meet *each* key. Make room for a table of pairs before you add: one axis for the queries, one for the
    keys.""")
slip("a row for each key", ALL, {"[:, :, None]": "[:, None]", "[:, None]": "[:, :, None]"}, words="""
    Rows and columns are swapped. Row i belongs to query i, because each query has weights over the
    keys: queries down the rows, keys along them. Which of the two new axes did you give to whom?""")
OF_PAIRS = f"({SCORES}).view(-1, query.shape[1], key.shape[1])"
slip("the pairs in another order", ALL,
     {"[:, :, None]": ".repeat_interleave(key.shape[1], dim=1)",
      "[:, None]": ".repeat_interleave(query.shape[1], dim=1)", SCORES: OF_PAIRS}, words="""
    Queries and keys were both repeated one by one, so that the list of pairs meets some pairs twice and others never.
    The keys have to go round as a whole (`repeat`). Or leave it to broadcasting, by axes of length one.""")
slip("the pairs listed key by key", ALL,
     {"[:, :, None]": ".repeat(1, key.shape[1], 1)",
      "[:, None]": ".repeat_interleave(query.shape[1], dim=1)", SCORES: OF_PAIRS}, words="""
    All pairs are there, key by key: first every query with key 0. The reshape at the end reads them query by query, so
    the scores land in the wrong places. Let each query stand still while the keys go round.""")
slip("scaled like a dot product", ALIKE, {SCORES: f"{SCORES} / len(w) ** 0.5"}, words="""
    The score was divided by a root, as in the scaled dot product. The additive score has no such factor: w can learn
    it.""")
slip("the queries in another order", ALIKE,
     {"[:, :, None]": ".repeat(1, key.shape[1], 1)", "[:, None]": ".repeat(1, query.shape[1], 1)", SCORES: OF_PAIRS},
     words="""
    Queries and keys both go round as a whole, so that the list of pairs meets some pairs twice and others never. Each
    query has to stand still while the keys go round (`repeat_interleave`); or leave it to broadcasting, with an axis of
    length one in each.""")
slip("W transposed", (*ALL, "gradient"), {"W[:d_query]": "W.mT[:d_query]", "W[d_query:]": "W.mT[d_query:]"}, words="""
    W was transposed, as in formulas that write vectors as columns. Here a vector is a row and stands to the
    left: W has a row for each number that comes in, and a column for each hidden unit.""")
slip("softmax already applied", ALIKE, {SCORES: f"({SCORES}).softmax(dim=-1)"}, words="""
    These are weights: each row sums to one. A score function ends before the softmax, and its numbers may have any size
    and sign.""")
slip("w inside the tanh", ALIKE, {SCORES: f"torch.tanh(({SUM}) * w).sum(dim=-1)"}, words="""
    Each hidden unit was multiplied by its entry of w before the tanh, so no unit can add more than 1 to a score,
    however large its entry of w is. The tanh is taken of the hidden units alone; w weights what comes out of it.""")
slip("cut off from the gradient", ("gradient",),
     {SCORES: f"({SCORES}).detach()"},
     {"d_query = ": "W = torch.nn.Parameter(W)\nd_query = "}, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.item()`, `.data`, `torch.tensor(...)`
    and a new `nn.Parameter(...)` forget where numbers came from. Use the tensors that came in.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("W transposed", fails=(*ALL, "gradient"))
def w_transposed_for_concatenated_pairs(query, key, W, w):
    """Of the pairs, side by side."""
    queries = query[:, :, None].expand(-1, -1, key.shape[1], -1)
    keys = key[:, None].expand(-1, query.shape[1], -1, -1)
    return torch.tanh(torch.cat([queries, keys], dim=-1) @ W.mT) @ w


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("concatenated pairs")
def concatenated_pairs(query, key, W, w):
    """As the formula is printed: every pair side by side."""
    n_query, n_key = query.shape[1], key.shape[1]
    queries = query.unsqueeze(2).repeat(1, 1, n_key, 1)
    keys = key.unsqueeze(1).repeat(1, n_query, 1, 1)
    return (torch.tanh(torch.cat([queries, keys], dim=-1) @ W) @ w[:, None]).squeeze(-1)


@alternative("two loops")
def two_loops(query, key, W, w):
    """One pair at a time, for the whole batch."""
    rows = []
    for i in range(query.shape[1]):
        pairs = [torch.cat([query[:, i], key[:, j]], dim=-1) for j in range(key.shape[1])]
        rows.append(torch.stack([torch.tanh(pair @ W) @ w for pair in pairs], dim=-1))
    return torch.stack(rows, dim=1)


@alternative("einsum, float64, not contiguous")
def einsum_float64_not_contiguous(query, key, W, w):
    """Names the axes, in double precision, and returns a transposed view."""
    d_query = query.shape[-1]
    hidden = torch.einsum("bqd,dh->bqh", query.double(), W[:d_query].double())[:, None]
    hidden = (hidden + torch.einsum("bkd,dh->bkh", key.double(), W[d_query:].double())[:, :, None]).tanh()
    return torch.einsum("bkqh,h->bkq", hidden, w.double()).mT
