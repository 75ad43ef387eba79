"""causal_mask: Who may attend to whom in a text that is read from left to right, whole or piece by piece."""

import torch
from torch import Tensor

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.observe import require_variation

from .common import READY_MADE, truth


def _some(words):
    """For a part of a mask, which has lost its places: says how much of it is wrong."""
    return lambda got, expected: f"{(got != expected).sum()} of {got.size} {words}"


def reference(n_query, n_key):
    """Query i stands at position n_key − n_query + i, and sees itself and its past."""
    return torch.arange(n_key) <= torch.arange(n_key - n_query, n_key)[:, None]


def solution(n_query, n_key):
    return torch.ones(n_query, n_key, dtype=torch.bool).tril(n_key - n_query)


exercise = Exercise(
    "causal_mask",
    reference=reference,
    solution=solution,
    returns=("mask",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    hints=(
        "Draw it for 3 queries and 3 keys. Row i is a query, column j a key. Which cells may be True for the first "
        "row? For the last?",
        "Now draw it for 2 queries and 5 keys. The last query stands at the last key. At which position does the "
        "first one stand, and how many keys may it see? Which mask does a single query need?",
        "With the queries' positions as a column and the keys' positions 0, 1, … as a row, one comparison is a whole "
        "table. Where do the queries' positions begin?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _below(n: int) -> Tensor:
    """Where j < i."""
    return torch.ones(n, n, dtype=torch.bool).tril(-1)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("past", points=1, hint=3, explain=_some("pairs with an earlier key are forbidden"))
def past(answer, draw):
    """a position sees all that came before it"""
    [n] = draw.sizes(1, 4, 9)
    return require_variation(answer(n, n))[_below(n)]


@aspect("itself", points=1, hint=1, explain=_some("positions may not attend to themselves"))
def itself(answer, draw):
    """a position attends to itself, and so does the token of a text that has only one"""
    [n] = draw.sizes(1, 4, 9)
    return torch.cat([require_variation(answer(n, n)).diagonal(), answer(1, 1).flatten()])


@aspect("future", points=1, hint=1, explain=_some("pairs with a later key are allowed"))
def future(answer, draw):
    """it sees nothing that comes after it"""
    [n] = draw.sizes(1, 4, 9)
    return require_variation(answer(n, n))[_below(n).T]


@aspect("at the end", points=2, hint=2, explain=truth)
def at_the_end(answer, draw):
    """fewer queries than keys: they stand at the end of the keys"""
    n_query, more = draw.sizes(2, 2, 6)
    return answer(n_query, n_query + more)


@aspect("one query", points=1, hint=2, explain=truth)
def one_query(answer, draw):
    """a single query, the newest position, sees all keys"""
    [n_key] = draw.sizes(1, 3, 9)
    return answer(1, n_key)


# -------------------------------------------------------------------------------------- one slip away from the solution

EVERY = tuple(aspect.name for aspect in exercise.aspects)
PIECES = ("at the end", "one query")
TRIANGLE = ".tril(n_key - n_query)"

slip("queries at the beginning", PIECES, {TRIANGLE: ".tril()"}, words="""
    The queries were counted from position 0, as if they stood at the beginning of the keys. They are the *newest*
    positions: the last query stands at the last key, and the first one has n_key − n_query keys before it.""")
slip("shifted the wrong way", PIECES, {"n_key - n_query": "n_query - n_key"}, words="""
    The triangle was moved in the wrong direction: with more keys than queries, a query has *more* past than its number
    says, and not less.""")
slip("not even itself", ("itself", *PIECES), {"n_key - n_query": "n_key - n_query - 1"}, words="""
    The diagonal is False: a position may not attend to itself, and the first one may attend to nothing, so softmax
    makes 0/0 of its row. (One meets it printed like this.) When token i is read, token i is no secret; the secret is
    token i + 1, which is to be predicted.""")
slip("one step of the future", ("future", "at the end"), {"n_key - n_query": "n_key - n_query + 1"}, words="""
    A query sees one position after its own as well: the very token that it is asked to predict. The loss will be
    wonderful and the model useless. Look at what stands right above the diagonal.""")
slip("future for past", ("past", "future", *PIECES), {"tril": "triu"}, words="""
    Rows and columns have changed places: position i sees itself and everything *after* it. Row i is the one that asks,
    column j the one that answers; which of the two must be the later?""")
slip("itself alone", ("past", *PIECES), {"ones": "eye"}, words="""
    Only a diagonal is True: every position attends to one other, and the rest of the past is forbidden. The past is
    allowed, all of it.""")
slip("a window in place of the past", ("past", "at the end"), {TRIANGLE: ".tril(n_key - n_query).triu()"}, words="""
    The mask has an edge on the left, too: a query sees only its n_key − n_query + 1 newest keys. That is a sliding
    window. A causal mask allows the whole past.""")
slip("True for what is forbidden", EVERY, {TRIANGLE: ".triu(n_key - n_query + 1)"}, words="""
    This is the mask of what must *not* be seen. torch's `nn.MultiheadAttention` wants it that way round; here, and in
    `scaled_dot_product_attention`, True means "may attend".""")
slip("numbers for booleans", ("past",),
    {", dtype=torch.bool": ""},
    {"torch.bool": "torch.int64"},
    words="""
    These are numbers. A mask of this course is boolean, so that `~mask` and `&` mean what they say, and nobody must ask
    whether 1 allows or forbids. A comparison makes booleans, and so does `dtype=torch.bool`.""")
slip("numbers for booleans", EVERY,
    {f"torch.ones(n_query, n_key, dtype=torch.bool){TRIANGLE}":
     "torch.full((n_query, n_key), -torch.inf).triu(n_key - n_query + 1)"})  # to be added to scores
slip("keys ask, queries answer", PIECES, {"n_query, n_key,": "n_key, n_query,"}, words="""
    The mask is (n_key, n_query). Rows ask and columns answer, as in the scores: n_query rows, n_key columns.""")


slip("what was there before is hidden", PIECES,
     {TRIANGLE: f"{TRIANGLE} & (torch.arange(n_key) >= n_key - n_query)"}, words="""
    The keys from before the first query are all False. They are the past of every query, as in a cache: all of them may
    be seen.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("only the cache is seen", fails=EVERY)
def only_the_cache_is_seen(n_query, n_key):
    """The queries see the keys from before them, and nothing of themselves or of each other. A new token sees itself,
    and the new tokens in front of it; only those behind it are hidden."""
    mask = torch.zeros(n_query, n_key, dtype=torch.bool)
    mask[:, : n_key - n_query] = True
    return mask


@variant("queries at the beginning", "one step of the future", fails=("future", *PIECES))
def counted_from_the_beginning_and_one_ahead(n_query, n_key):
    """The triangle of the square, with one diagonal more."""
    return torch.ones(n_query, n_key, dtype=torch.bool).tril(1)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a comparison")
def a_comparison(n_query, n_key):
    """Of positions."""
    ahead = n_key - n_query
    return torch.arange(n_key) <= ahead + torch.arange(n_query)[:, None]


@alternative("the last rows of the square")
def the_last_rows_of_the_square(n_query, n_key):
    """The complement of the future, of which the queries' rows are kept."""
    return (~torch.ones(n_key, n_key).tril(-1).bool()).T[n_key - n_query :]


@alternative("row by row")
def row_by_row(n_query, n_key):
    """Two loops."""
    mask = torch.zeros(n_query, n_key, dtype=torch.bool)
    for i in range(n_query):
        for j in range(n_key - n_query + i + 1):
            mask[i, j] = True
    return mask

# ------------------------------------------------------------------------------------------------ one thing changed

@exercise.variation(
    "True where it is forbidden",
    asks="The mask says what is forbidden: True in row i, column j, if query i may not attend to key j.",
    fails=EVERY,
    reference=lambda n_query, n_key: ~reference(n_query, n_key),
    contract={"Who may attend to whom,": "Who may not attend to whom,",
              "may attend to key j": "may not attend to key j"},
    back=lambda mask: ~mask if mask.dtype == torch.bool else 1 - mask,  # numbers are told as numbers
    without=("True for what is forbidden", "itself alone"),
)
def true_where_it_is_forbidden(n_query, n_key):
    return torch.ones(n_query, n_key, dtype=torch.bool).triu(n_key - n_query + 1)


@exercise.variation(
    "the past alone",
    asks="A position may attend to what came before it, and not to itself.",
    fails=("itself", *PIECES),
    reference=lambda n_query, n_key: torch.arange(n_key) < torch.arange(n_key - n_query, n_key)[:, None],
    contract={"Who may attend to whom,": "Who may attend to whom, nobody to themselves,"},
    meanings={"itself": "it does not attend to itself, so the token of a text that has only one attends to nothing",
              "one query": "a single query, the newest position, sees all keys but its own"},
    hints=("Draw it for 3 queries and 3 keys. Row i is a query, column j a key. Which cells may be True for the first "
           "row? For the last?", *exercise.hints[1:]),
    without=("not even itself", "one step of the future", "future for past", "itself alone"),
)
def the_past_alone(n_query, n_key):
    return torch.ones(n_query, n_key, dtype=torch.bool).tril(n_key - n_query - 1)
