"""linear_attention: Attention without a softmax, for all positions at once."""

import torch

from attncourse import efficient
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import require_variation
from lessonkit.exercises.way_back import explain_way_back, way_back

from ..largest import Largest
from .common import READY_MADE, features


def reference(query, key, value, causal):
    """Katharopoulos et al. 2020, equations 5 and 9."""
    return efficient.linear_attend(query, key, value, causal=causal)


def solution(query, key, value, causal):
    query, key = features(query), features(key)                  # (batch, n, d_k)
    ones = torch.ones_like(value[..., :1])                       # they sum the weights
    value = torch.cat([value, ones], dim=-1)                     # (batch, n, d_v + 1)
    if causal:
        state = torch.zeros(key.shape[0], key.shape[2], value.shape[2])
        parts = []
        for start in range(0, key.shape[1], 64):
            q, k, v = (x[:, start : start + 64] for x in (query, key, value))
            within = (q @ k.mT).tril()                           # (batch, chunk, chunk)
            parts.append(q @ state + within @ v)                 # (batch, chunk, d_v + 1)
            state = state + k.mT @ v                             # (batch, d_k, d_v + 1)
        total = torch.cat(parts, dim=1)                          # (batch, n, d_v + 1)
    else:
        total = query @ (key.mT @ value)                         # (batch, n, d_v + 1)
    return total[..., :-1] / total[..., -1:]


exercise = Exercise(
    "linear_attention",
    reference=reference,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=20,
    hints=(
        "Take φ of queries and keys first. Then three matrices are multiplied, φ(Q), φ(K)ᵀ and V, and a product of "
        "three may be put in brackets in two ways. Which of them makes no matrix (n, n)?",
        "The divisor of row i is the sum of its weights, φ(q_i) · φ(k_j) over the keys j: one number for each query. "
        "The query can be taken out of that sum, as it was out of the other.",
        "Causal: go through chunks of 64 positions, with S and z of the chunks before, at first zeros. The chunk's "
        "output has two parts, φ(Q) S and tril(φ(Q) φ(K)ᵀ) V, and its divisor has the same two parts, with z in place "
        "of S and ones in place of V. Only then add the chunk to S and z.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _vectors(draw, batch=None, length=None):
    """Queries, keys and values, no two sizes alike."""
    size, n, d_k, d_v = draw.sizes(4, 3, 8)
    batch, n = batch or size, length or n
    return draw.normal(batch, n, d_k), draw.normal(batch, n, d_k), draw.normal(batch, n, d_v)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("all keys", points=1, hint=1)
def all_keys(answer, draw):
    """each query averages all values, by the weights φ(q) · φ(k)"""
    return answer(*_vectors(draw), False)


@aspect(
    "weights sum to one", points=1, hint=2, explain=explain_worst("values that are all 1 come out as {got}, at {place}")
)
def shares(answer, draw):
    """values that are all 1 come out as 1, with all keys and with the past alone, in a batch of one"""
    query, key, value = _vectors(draw, batch=1)
    value[..., 0] = 1.0
    sums = torch.stack([require_variation(answer(query, key, value, causal))[..., 0] for causal in (False, True)])
    return torch.where((sums - 1).abs() < 1e-2, 1.0, sums)               # over a sum near 0 rounding grows


@aspect("the past", points=2, hint=3)
def the_past(answer, draw):
    """causal, with 150 positions: each averages its own value and all those before it"""
    return answer(*_vectors(draw, length=150), True)


def _made(got, expected):
    """Says that there was one."""
    form = "with all keys" if got[0] else "with `causal`"
    return f"{form}, for 256 queries and 256 keys, a tensor of more than half of 256 × 256 numbers was made"


@aspect("no n × n matrix", points=1, hint=1, explain=_made)
def no_square_matrix(answer, draw):
    """nothing is made on the way that grows as the square of the length, with all keys and with the past alone"""
    n, made = 256, []
    for causal in (False, True):
        with Largest() as largest:
            require_variation(answer(draw.normal(1, n, 2), draw.normal(1, n, 2), draw.normal(1, n, 3), causal))
        made.append(largest.numbers > n * n / 2)
    return torch.tensor(made)


@aspect("gradient", points=1, hint=2, explain=explain_way_back("query", "key", "value"))
def gradient(answer, draw):
    """gradients reach queries, keys and values"""
    query, key, value = (x.requires_grad_() for x in _vectors(draw))
    return way_back(answer(query, key, value, False), reference(query, key, value, False), [query, key, value], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution


@alternative("running sums")
def running_sums(query, key, value, causal):
    """A state for each position: the shortest code, and more memory."""
    query, key = features(query), features(key)                  # (batch, n, d_k)
    if causal:
        pairs = key.unsqueeze(-1) * value.unsqueeze(-2)          # (batch, n, d_k, d_v)
        s = pairs.cumsum(dim=1)                                  # (batch, n, d_k, d_v)
        z = key.cumsum(dim=1)                                    # (batch, n, d_k)
        summed = (query.unsqueeze(-2) @ s).squeeze(-2)           # (batch, n, d_v)
    else:
        z = key.sum(dim=1, keepdim=True)                         # (batch, 1, d_k)
        summed = query @ (key.mT @ value)                        # (batch, n, d_v)
    return summed / (query * z).sum(dim=-1, keepdim=True)


PAST = ("the past",)
VALUES, SHARES = ("all keys", *PAST), ("all keys", "weights sum to one", *PAST)
DIVIDED = " / (query * z).sum(dim=-1, keepdim=True)"
Q, K = "features(query)", "features(key)"
PAIRS, KEYS = "pairs.cumsum(dim=1)", "key.cumsum(dim=1)"

slip("not divided", SHARES, {DIVIDED: ""}, base=running_sums, words="""
    The sums were not divided by the sum of the weights. Softmax does that by itself; here it is yours to do, and
    without it the output grows with every key.""")
slip("divided by the number of keys", SHARES, {DIVIDED: " / query.shape[1]"}, base=running_sums, words="""
    The sum was divided by how many keys there are. The weights φ(q) · φ(k) are not 1 each: divide by the sum of them,
    which every query has its own of.""")
slip("no φ of the queries", VALUES, {Q: "query"}, base=running_sums, words="""
    The queries went in as they are. φ makes every number positive, and with it every weight. Without it weights may be
    negative, and their sum anything, even near 0.""")
slip("no φ of the keys", VALUES, {K: "key"}, base=running_sums, words="""
    The keys went in as they are. φ(q) · k may be negative, and then it is no weight: take φ of both sides.""")
slip("another φ", VALUES,
     {Q: "query.relu() + 1", K: "key.relu() + 1"},
     {Q: "query.exp()", K: "key.exp()"},
     {Q: "torch.nn.functional.elu(query)", K: "torch.nn.functional.elu(key)"},
     {Q: "query.softmax(dim=-1)", K: "key.softmax(dim=-1)"},
     base=running_sums, words="""
    Something else than φ was taken of queries and keys. Other feature maps are in use, and each is another attention.
    Here it is elu(x) + 1, which `features` gives.""")
slip("scaled", VALUES,
     {Q: "features(query / query.shape[-1] ** 0.5)"},
     {K: "features(key / key.shape[-1] ** 0.5)"},
     base=running_sums, words="""
    Queries or keys were divided by √d_k. The scale keeps a softmax from saturating, and there is none here.""")
slip("the causal output over all weights", ("weights sum to one", *PAST),
     {KEYS: "key.sum(dim=1, keepdim=True)"}, base=running_sums, words="""
    In the causal form the values are summed over the past, and the weights over all keys. Both sums run over the same
    keys, or the weights do not sum to one: z grows along with S.""")
slip("causal left out", PAST,
     {PAIRS: "pairs.sum(dim=1, keepdim=True)", KEYS: "key.sum(dim=1, keepdim=True)"}, base=running_sums, words="""
    With `causal` the output is what it is without. Position i may use keys up to i: each position has sums of its
    own.""")
slip("not even itself", ("weights sum to one", *PAST),
     {PAIRS: "pairs.cumsum(dim=1) - pairs", KEYS: "key.cumsum(dim=1) - key"},
     {PAIRS: "pairs.cumsum(dim=1) - pairs", KEYS: "key.cumsum(dim=1) - key + 1e-9"},  # with the 0 caught
     base=running_sums, words="""
    A position sees what came before it and not itself, and the first one sees nobody: 0/0. The sums at position i
    include position i.""")
slip("sums from the end", PAST,
     {PAIRS: "pairs.flip(1).cumsum(dim=1).flip(1)", KEYS: "key.flip(1).cumsum(dim=1).flip(1)"},
     base=running_sums, words="""
    The sums run from the end of the text, so a position sees itself and its future.""")
slip("summed along the features", PAST,
     {PAIRS: "pairs.cumsum(dim=2)", KEYS: "key.cumsum(dim=2)"}, base=running_sums, words="""
    The running sums go along the features. It is the *positions* that are added up, one after the other, and their axis
    is the one after the batch.""")
slip("squeezed axes", ("weights sum to one",),
     {"return summed": "return (summed", DIVIDED: f"{DIVIDED}).squeeze()"}, base=running_sums, words="""
    `squeeze()` removes every axis of length one, the batch's too when there is one sentence in it. Name the axis that
    you mean.""")
slip("cut off from the gradient", ("gradient",),
     {DIVIDED: " / (query * z).sum(dim=-1, keepdim=True).detach()"},
     {"summed / ": "summed.detach() / "},
     base=running_sums, words="""
    The output is right, and a part of its gradient is cut off: `.detach()`, `.data` and numpy forget where numbers came
    from. The divisor depends on queries and keys as much as the numerator does.""")

# and from the solution in chunks

WITHIN = "(q @ k.mT).tril()"
slip("the chunks before are forgotten", PAST,
     {"q @ state + within @ v": "within @ v"},
     {"state = state + k.mT @ v": "state = k.mT @ v"},
     words="""
    The first chunk is right, and later ones do not have all of the chunks before them. S and z begin at zero and grow
    from chunk to chunk: every position before a chunk reaches its queries through them.""")
slip("the chunk counted twice", PAST,
     {"q @ state": "q @ (state + k.mT @ v)"},
     words="""
    A chunk's own keys are counted twice, those within it by the pairs and once more by the state, the future of the
    chunk among them. The state that its queries meet is that of the chunks *before* it: add the chunk only then.""")
slip("the future of the chunk", PAST, {WITHIN: "(q @ k.mT)"}, words="""
    Within a chunk a position sees the later ones, too. The pairs of a chunk are a small square of their own, of which
    the part above the diagonal is the future: `tril` sets it to 0.""")
slip("not even itself", ("weights sum to one", *PAST), {WITHIN: "(q @ k.mT).tril(-1)"})
slip("not divided", SHARES, {" / total[..., -1:]": ""})
slip("no φ of the queries", VALUES, {"features(query)": "query"})
slip("no φ of the keys", VALUES, {"features(key)": "key"})


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("an n × n matrix after all", fails=("no n × n matrix",))
def with_the_matrix_after_all(query, key, value, causal):
    """The result is right, and its cost is not linear: the matrix of all pairs (n, n) was made. A product of three
    matrices may be put in brackets in two ways: (φ(Q) φ(K)ᵀ) V makes that matrix, φ(Q) (φ(K)ᵀ V) does not."""
    weights = (torch.where(query > 0, query + 1, query.exp())) @ torch.where(key > 0, key + 1, key.exp()).mT
    weights = weights.tril() if causal else weights
    return weights @ value / weights.sum(dim=-1, keepdim=True)


@variant("an n × n matrix after all", fails=("no n × n matrix",))
def with_the_matrix_by_broadcasting(query, key, value, causal):
    """No matrix product, and an n × n matrix all the same."""
    query, key = features(query), features(key)
    weights = (query[:, :, None] * key[:, None]).sum(dim=-1)
    weights = weights.tril() if causal else weights
    return torch.einsum("bij,bjd->bid", weights, value) / weights.sum(dim=-1)[..., None]


@variant("an n × n matrix after all", fails=("no n × n matrix",))
def with_the_matrix_in_the_causal_form(query, key, value, causal):
    """Where the past alone is seen: the products' lower triangle."""
    if not causal:
        return solution(query, key, value, causal)
    weights = (features(query) @ features(key).mT).tril()
    return weights @ value / weights.sum(dim=-1, keepdim=True)


@misconception("softmax attention", fails=(*VALUES, "no n × n matrix"))
def softmax_attention(query, key, value, causal):
    """That is attention with a softmax, by the matrix (n, n). Here the weights are φ(q) · φ(k), divided by their sum:
    only because no exponential of the product is taken can the sum be pulled apart."""
    scores = query @ key.mT / query.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -torch.inf)
    return scores.softmax(dim=-1) @ value


@variant("softmax attention", fails=(*VALUES, "no n × n matrix"))
def softmax_of_features(query, key, value, causal):
    """A softmax of the products of features."""
    scores = features(query) @ features(key).mT
    if causal:
        scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -torch.inf)
    return scores.softmax(dim=-1) @ value


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a column of ones")
def a_column_of_ones(query, key, value, causal):
    """Whatever sums the values sums the weights, too."""
    query, key = torch.nn.functional.elu(query) + 1, torch.nn.functional.elu(key) + 1
    value = torch.cat([value, torch.ones_like(value[..., :1])], dim=-1)
    s = torch.einsum("bnk,bnv->bnkv", key, value)
    s = s.cumsum(1) if causal else s.sum(1, keepdim=True)
    total = torch.einsum("bnk,bnkv->bnv", query, s.expand(-1, query.shape[1], -1, -1))
    return total[..., :-1] / total[..., -1:]


@alternative("position by position")
def position_by_position(query, key, value, causal):
    """A loop, in double precision."""
    query, key, value = (x.double() for x in (query, key, value))
    query, key = query.clamp(min=0) + query.clamp(max=0).exp(), key.clamp(min=0) + key.clamp(max=0).exp()
    outputs = []
    for i in range(query.shape[1]):
        seen = i + 1 if causal else key.shape[1]
        weights = (key[:, :seen] * query[:, i : i + 1]).sum(dim=-1, keepdim=True)
        outputs.append((weights * value[:, :seen]).sum(dim=1) / weights.sum(dim=1))
    return torch.stack(outputs, dim=1)
