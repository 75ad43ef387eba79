"""repair_relative: Scaled dot products in which each key is joined by the vector of its distance from the query."""

import math

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient, explain_worst
from lessonkit.exercises.observe import require_variation

from .common import READY_MADE, reached_where_heard


def reference(query, key, table):
    """q_i · (k_j + a_ij)/√d, a_ij the row of the clipped distance j − i. Shaw et al. 2018, equation 4."""
    k = len(table) // 2
    i, j = torch.arange(len(query))[:, None], torch.arange(len(key))
    a = table[(j - i).clamp(-k, k) + k]
    return (query[:, None] * (key + a)).sum(dim=-1) / math.sqrt(query.shape[-1])


def solution(query, key, table):
    k = (len(table) - 1) // 2
    place = torch.arange(len(key))
    distance = (place - place[:, None]).clamp(-k, k)             # (n, n)
    joined = key + table[distance + k]                           # (n, n, d)
    return (joined @ query[:, :, None]).squeeze(-1) / math.sqrt(query.shape[-1])


exercise = Exercise(
    "repair_relative",
    reference=reference,
    solution=solution,
    returns=("scores",),
    forbidden=READY_MADE,
    extra=True,
    difficulty=2,
    minutes=15,
    hints=(
        "Which row of the table belongs to the distance −k, which to 0, which to k? It has 2k + 1 rows, however many "
        "words there are. And what is the distance from the query at i to the key at j?",
        "With i a column and j a row of numbers all distances are one table (n, n). `clamp` keeps them from −k to k; "
        "what must be added to make indices of them, the smallest of which is 0?",
        "`table[index]` is (n, n, d): one vector for each pair. It is added to the keys, (n, d), and then each query "
        "is multiplied with its own row of pairs.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _relative_inputs(draw, n=None, k=None):
    clip, d = draw.sizes(2, 2, 5)
    clip, n = k or clip, n or 2 * clip + 1
    return draw.normal(n, d), draw.normal(n, d), draw.normal(2 * clip + 1, d)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("scores", points=1, hint=1)
def scores(answer, draw):
    """of a text of 2k + 1 tokens"""
    return answer(*_relative_inputs(draw))


@aspect("far apart", points=1, hint=2)
def far_apart(answer, draw):
    """distances beyond k count as k"""
    return answer(*_relative_inputs(draw, n=10, k=2))


@aspect("moved along", points=1, hint=2, explain=explain_worst("at {place} it changes by {size}"))
def moved_along(answer, draw):
    """where all tokens are the same, moving both one step along leaves the score as it was"""
    n, k = 6, 3
    query, key, table = _relative_inputs(draw, n=n, k=k)
    scores = require_variation(answer(query[:1].expand(n, -1).clone(), key[:1].expand(n, -1).clone(), table))
    return scores[1:, 1:] - scores[:-1, :-1]


@aspect("a short text", points=1, hint=1)
def a_short_text(answer, draw):
    """three tokens and a table for more; even a single token gets a table of scores"""
    three, one = (answer(*_relative_inputs(draw, n=n, k=4)) for n in (3, 1))
    return torch.cat([three.flatten(), one[0]])


@aspect("gradient", points=1, hint=3, explain=explain_missing_gradient("query", "key", "table"))
def gradient(answer, draw):
    """queries, keys and the vectors of the distances can be learned"""
    return reached_where_heard(answer, _relative_inputs(draw, n=4, k=4), draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

ALL_SCORES = ("scores", "far apart", "a short text")
A = "table[distance + k]"
SCALE = " / math.sqrt(query.shape[-1])"

slip("the key's place", (*ALL_SCORES, "moved along"),
     {A: "table[place.clamp(max=len(table) - 1)]"},
     {A: "table[place]"},  # without a limit: where the text is longer than the table, an error
     words="""
    As on the slide, under its heading: the vector that is added to a key depends on *where* the key is, and not on how
    far it is from the query. When both move along together, the score changes.""")

slip("i − j for j − i", ALL_SCORES, {"place - place[:, None]": "place[:, None] - place"}, words="""
    The table was read from the wrong end: the token before a query got the vector of the token after it. The distance
    is the key's place minus the query's.""")

slip("negative rows", ALL_SCORES, {"distance + k": "distance"}, words="""
    Distance 0 is not row 0: row 0 is that of −k. Without the shift, negative distances count from the *end* of the
    table, as indices do in Python, and nothing crashes.""")

slip("no limit", ("scores", "far apart"),
     {".clamp(-k, k)": "", "distance + k": "(distance + k) % len(table)"},
     words="""
    Distances beyond k have no row of their own. If you look them up all the same, you get an error, or, where the index
    is negative, the row of another distance. They must count as k, or as −k.""")

slip("nothing for far keys", ("scores", "far apart"),
     {A: f"{A} * ((place - place[:, None]).abs() <= k)[..., None]"}, words="""
    No vector was added to the keys further than k away. They must get the one of distance k, or −k.""")

slip("the middle row by the length of the text", ALL_SCORES,
     {".clamp(-k, k)": "", "distance + k": "(distance + len(key) - 1).clamp(0, len(table) - 1)"}, words="""
    The rows were moved up by the length of the text, n − 1, and not by k. Distance 0 is the middle row of the table,
    however long the text is.""")

slip("joins the query", ALL_SCORES,
     {"key + table": "query[:, None] + table",
      "(joined @ query[:, :, None]).squeeze(-1)": "(joined * key).sum(dim=-1)"},
     words="""
    The distance's vector was added to the query and not to the key. Then its product is with the key, and the query has
    no influence on which distances count.""")

slip("unscaled", ALL_SCORES,
     {SCALE: ""},
     {"key + table": f"key{SCALE} + table", f".squeeze(-1){SCALE}": ".squeeze(-1)"},  # the distance's part
     words="""
    The scores, or a part of them, were not divided by √d.""")


slip("cut off from the gradient", ("gradient",),
     {A: f"{A}.detach()"},
     {"(joined @": "(joined.detach() @"},
     words="""
    The numbers are right, but no gradient gets through, or not everywhere: `.detach()`, `.data`, numpy and
    `torch.no_grad()` forget where numbers came from. A repaired line stands in a model that is to be trained.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("no limit", fails=("scores", "far apart", "moved along"))
def no_limit_and_an_error(query, key, table):
    """An error."""
    k = len(table) // 2
    i, j = torch.arange(len(query))[:, None], torch.arange(len(key))
    a = table[j - i + k]
    return torch.einsum("id,ijd->ij", query, key + a) / math.sqrt(query.shape[-1])


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("pair by pair")
def pair_by_pair(query, key, table):
    """Two loops."""
    k = len(table) // 2
    rows = []
    for i in range(len(query)):
        a = torch.stack([table[max(-k, min(k, j - i)) + k] for j in range(len(key))])
        rows.append((key + a) @ query[i] / query.shape[-1] ** 0.5)
    return torch.stack(rows)


@alternative("two products, the second looked up")
def two_products_the_second_looked_up(query, key, table):
    """Every query with every row of the table, and then the right one of them, in float64."""
    n, k = len(query), len(table) // 2
    index = (torch.arange(n) - torch.arange(n)[:, None]).clip(-k, k) + k
    by_distance = query.double() @ table.double().T
    return (query.double() @ key.double().T + by_distance.gather(1, index)) / math.sqrt(query.size(1))
