"""bigbird_mask: Who may attend to whom: a window, global tokens, and random keys."""

import torch
from torch import Tensor

from attncourse import efficient
from lessonkit.exercises.exercise import Exercise

from .common import READY_MADE, truth


def reference(n: int, width: int, n_global: int, drawn: Tensor) -> Tensor:
    """A window, global tokens, and the keys that were drawn for each query."""
    pattern = efficient.any_of(efficient.sliding_window(width), efficient.global_tokens(n_global))
    return efficient.dense_mask(pattern, n).scatter(1, drawn, True)


def solution(n, width, n_global, drawn):
    i, j = torch.arange(n)[:, None], torch.arange(n)             # (n, 1), (n,)
    mask = ((i - j).abs() <= width) | (i < n_global) | (j < n_global)
    mask[i, drawn] = True                                        # rows (n, 1) beside columns (n, n_random)
    return mask


exercise = Exercise(
    "bigbird_mask",
    reference=reference,
    solution=solution,
    returns=("mask",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "Three masks, and a pair is allowed if any one of them allows it. Build them one by one and look at each.",
        "A global token looks at everybody (which part of the table is that?) and everybody looks at it (and that?).",
        "`drawn` has a row for each query. `mask[:, drawn]` would give every query everybody's draws; row i wants "
        "`drawn[i]` alone. `scatter`, a loop over i, or a comparison with `torch.arange(n)` will do.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _pattern(answer, draw, width: int, n_global: int, drawn: str) -> Tensor:
    """The answer on a drawn n, with no keys, or "first" (key 0), or really drawn keys; some keys are nobody's."""
    [n] = draw.sizes(1, 10, 14)
    places = torch.randperm(n, generator=draw.generator)[:-3]
    keys = {
        "none": torch.empty(n, 0, dtype=torch.long),
        "first": torch.zeros(n, 1, dtype=torch.long),
        "drawn": torch.stack([places[torch.randperm(n - 3, generator=draw.generator)[:2]] for _ in range(n)]),
    }[drawn]
    return answer(n, width, n_global, keys)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("window", points=1, hint=1, explain=truth)
def window(answer, draw):
    """itself and `width` on each side, where nothing is global and nothing was drawn"""
    return _pattern(answer, draw, draw.sizes(1, 2, 3)[0], 0, "none")


@aspect("global tokens", points=2, hint=2, explain=truth)
def global_tokens(answer, draw):
    """the first `n_global` see all and are seen by all"""
    return _pattern(answer, draw, 0, draw.sizes(1, 2, 3)[0], "first")


@aspect("random keys", points=1, hint=3, explain=truth)
def random_keys(answer, draw):
    """each query sees the keys that were drawn for it"""
    return _pattern(answer, draw, 0, 0, "drawn")


@aspect("all together", points=1, hint=1, explain=truth)
def all_together(answer, draw):
    """a pair is allowed if any of the three allows it"""
    return _pattern(answer, draw, 1, 2, "drawn")


# -------------------------------------------------------------------------------------- one slip away from the solution

BIGBIRD = ("window", "global tokens", "random keys", "all together")
GLOBAL = ("global tokens", "all together")
RANDOM = ("random keys", "all together")
DRAWN = "mask[i, drawn]"

slip("seen by all, but not seeing all", GLOBAL, {" | (i < n_global)": ""}, words="""
    Everybody looks at the global tokens, but these look at nobody new: they have nothing to pass on. A global token
    gathers from all (its row) and gives to all (its column).""")

slip("seeing all, but not seen by all", GLOBAL, {" | (j < n_global)": ""}, words="""
    The global tokens look at everybody, but nobody further off can look at them: what they gather stays with them. A
    global token gathers from all (its row) and gives to all (its column).""")

slip("one token, not the first n_global", BIGBIRD,
     {"i < n_global": "i == n_global", "j < n_global": "j == n_global"},
     words="""
    One token was made global, the one at the index `n_global`. `n_global` is how many there are: all those before that
    index.""")

slip("only what the global tokens share", GLOBAL, {"| (j < n_global)": "& (j < n_global)"}, words="""
    Only the square in the corner became True, where a global token looks at a global token: row *and* column. It is row
    *or* column.""")

slip("whole rows for the drawn keys", RANDOM, {DRAWN: "mask[drawn]"}, words="""
    `mask[drawn]` takes whole *rows*: whoever was drawn as a key may now look at everybody. The numbers in `drawn` are
    columns, and each belongs to one row.""")
slip("everybody's draws for everybody", RANDOM, {DRAWN: "mask[:, drawn]"}, words="""
    `mask[:, drawn]` takes all rows, and in them all columns that stand anywhere in `drawn`: a key that one query drew
    is open to all, and little is left of the sparse pattern. Row i must get the columns `drawn[i]` alone.""")

slip("drawn keys as rows", RANDOM, {DRAWN: "mask[drawn, i]"}, words="""
    The table of random pairs is transposed: the drawn keys ask, and the query is asked. In `drawn`, row i holds the
    *keys* that query i may see, so they are columns of row i.""")

slip("random pairs in both directions", RANDOM, {DRAWN: f"{DRAWN} = mask[drawn, i]"}, words="""
    A pair that was drawn was opened both ways. Window and global tokens are symmetric; the draws are not: that i may
    look at j gives j no right to look at i.""")

slip("the draws of one query for all", RANDOM, {DRAWN: "mask[:, drawn[0]]"}, words="""
    The first row of `drawn` served every query. Then all look at the same few keys, and these are more like global
    tokens. What makes random keys useful is that they differ from query to query.""")

slip("window off by one", BIGBIRD,
     {"<= width": "< width"},
     {"((i - j).abs() <= width)": "(i - j <= width) & (j - i < width)"},  # a slice leaves its end out
     words="""
    The window ends one position too early: `<` where the last one belongs to it. With a width of 0, not even the
    position itself is left.""")

slip("draws forgotten", RANDOM, {f"{DRAWN} = True": ""}, words="""
    Window and global tokens are there, and `drawn` has not been used: this is Longformer's pattern.""")

slip("all three for one pair", BIGBIRD,
     {"| (i < n_global) | (j < n_global)": "& ((i < n_global) | (j < n_global))",
      f"{DRAWN} = True": "mask &= torch.zeros_like(mask).scatter(1, drawn, True)"},
     words="""
    The three masks were joined by "and", so a pair would have to be near, global and drawn all at once. Hardly any is.
    BigBird is their union.""")

slip("made causal", BIGBIRD, {"return mask": "return mask.tril()"}, words="""
    What lies after a position was taken out. BigBird is an encoder's pattern: it reads in both directions, and its
    global tokens must see to the end.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("one token, not the first n_global", fails=GLOBAL)
def the_last_global_token_alone(n, width, n_global, drawn):
    """The last of them."""
    behind = torch.arange(n)[:, None] - torch.arange(n)
    mask = behind.abs() <= width
    if n_global:
        mask[n_global - 1] = True
        mask[:, n_global - 1] = True
    return mask.scatter(1, drawn, True)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("row by row")
def row_by_row(n, width, n_global, drawn):
    """Sets of keys."""
    mask = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        for j in range(n):
            mask[i, j] = abs(i - j) <= width or min(i, j) < n_global or j in drawn[i].tolist()
    return mask


@alternative("three masks by comparison")
def three_masks_by_comparison(n, width, n_global, drawn):
    """Broadcasts the drawn keys against all positions."""
    i, j = torch.arange(n)[:, None], torch.arange(n)
    near = (i - j).abs() <= width
    return near | (i < n_global) | (j < n_global) | (drawn[:, :, None] == j).any(dim=1)


@alternative("indexed")
def indexed(n, width, n_global, drawn):
    """Writes into a copy, rows beside columns; the result is transposed in memory."""
    mask = torch.ones(n, n).tril(width).triu(-width).bool()
    mask[torch.arange(n)[:, None], drawn] = True
    mask[:n_global], mask[:, :n_global] = True, True
    return mask.T.contiguous().T
