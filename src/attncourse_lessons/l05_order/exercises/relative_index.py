"""relative_index: Which row of a table of 2 · max_distance + 1 distances each pair of a query and a key looks up."""

import torch

from attncourse import positions as course
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.local_runner import AspectFailed, Problem
from lessonkit.exercises.observe import require_variation

from .common import READY_MADE


def reference(n_query, n_key, max_distance):
    """clip(j − i, −k, k) + k. Shaw et al. 2018, section 3.2."""
    return course.relative_index(n_query, n_key, max_distance)


def solution(n_query, n_key, max_distance):
    distance = torch.arange(n_key) - torch.arange(n_query)[:, None]  # (n_query, n_key)
    return distance.clamp(-max_distance, max_distance) + max_distance


exercise = Exercise(
    "relative_index",
    reference=reference,
    solution=solution,
    returns=("index",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=10,
    hints=(
        "Begin with the distances j − i alone. Row i belongs to query i and column j to key j: what should row 0 be, "
        "and what should row 1 be?",
        "The keys' positions as a row, (n_key,), less the queries' as a column, (n_query, 1), are all the distances at "
        "once. Which of them have no vector of their own?",
        "A table has no row −3. Clip to −max_distance … max_distance, then add what makes the smallest of them 0.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("near pairs", points=2, hint=1)
def near_pairs(answer, draw):
    """keys within reach get the row of their distance"""
    n, reach = draw.sizes(1, 7, 9)[0], draw.sizes(1, 2, 3)[0]
    place = torch.arange(n)
    near = (place - place[:, None]).abs() <= reach
    return answer(n, n, reach) * near


@aspect("far pairs", points=1, hint=3)
def far_pairs(answer, draw):
    """keys further off share the row of the furthest"""
    n, reach = draw.sizes(1, 7, 9)[0], draw.sizes(1, 2, 3)[0]
    place = torch.arange(n)
    far = (place - place[:, None]).abs() > reach
    return answer(n, n, reach) * far


@aspect("not square", points=1, hint=2)
def not_square(answer, draw):
    """a row for each query and a column for each key, however many there are; left or right does not count here"""
    n_query, n_key = draw.sizes(2, 2, 6)
    reach = 6 + draw.sizes(1, 1, 3)[0]
    return (answer(n_query, n_key, reach) - reach).abs()


@aspect("fits the table", points=1, hint=3)
def fits_the_table(answer, draw):
    """whole numbers, each naming one of its 2 · max_distance + 1 rows"""
    n, reach = draw.sizes(1, 8, 10)[0], draw.sizes(1, 2, 3)[0]
    index = require_variation(answer(n, n, reach))
    if index.shape != (n, n):
        raise AspectFailed(Problem("unusable", f"shape {tuple(index.shape)} for {n} queries and {n} keys"))
    if index.is_floating_point():
        kind = str(index.dtype).removeprefix("torch.")
        raise AspectFailed(Problem("unusable", f"a table cannot be indexed with {kind}"))
    low, high = int(index.min()), int(index.max())
    if low < 0 or high > 2 * reach:
        words = f"numbers {low}..{high} for a table of {2 * reach + 1} rows, 0..{2 * reach}"
        raise AspectFailed(Problem("unusable", words))
    return torch.tensor(True)


# -------------------------------------------------------------------------------------- one slip away from the solution

EVERY_PAIR = ("near pairs", "far pairs", "not square")
EVERY_ASPECT = (*EVERY_PAIR, "fits the table")
DISTANCE = "torch.arange(n_key) - torch.arange(n_query)[:, None]"
CLAMP = "distance.clamp(-max_distance, max_distance)"

slip("mirrored across the diagonal", ("near pairs", "far pairs"),
    {DISTANCE: "torch.arange(n_query)[:, None] - torch.arange(n_key)"},
    words="""
    Left and right are mirrored: what belongs to query 1 and key 3 stands where query 3 meets key 1. Key 3 lies two
    places to the right of query 1, so in row 1 and column 3 the distance is +2. Walking along a row, it must grow.""")
slip("mirrored across the diagonal", EVERY_PAIR,
    {DISTANCE: "torch.arange(n_key)[:, None] - torch.arange(n_query)"})  # keys down the rows
slip("left and right the same", EVERY_PAIR,
    {"distance.clamp": "distance.abs().clamp", ") + max_distance": ")"},
    words="""
    The absolute value was taken, so the word before and the word after get the same row. The whole point is to tell
    them apart: keep the sign.""")
slip("left and right the same", ("near pairs", "far pairs"), {"distance.clamp": "distance.abs().clamp"})  # moved up
slip("no clip", ("far pairs", "fits the table"),
    {CLAMP: "distance"},
    {f"{CLAMP} + max_distance": "(distance + max_distance).clamp(min=0)"},  # from below only
    {CLAMP: "distance.clamp(max=max_distance)"},  # from above only
    words="""
    Far keys got a row of their own, but there are only 2 · max_distance + 1 rows: in a sentence longer than those of
    the training, the index would run off the table. Everything further than max_distance shares the outermost row.""")
slip("clipped before the difference", ("near pairs", "far pairs"),
    {DISTANCE: "torch.arange(n_key).clamp(max=max_distance) - torch.arange(n_query).clamp(max=max_distance)[:, None]"},
    words="""
    The *positions* were clipped, and then the differences taken: from max_distance on all places of the sentence count
    as the same. It is the distance j − i that is clipped: first the difference, then the clip.""")
slip("distances, not rows", EVERY_ASPECT, {" + max_distance": ""}, words="""
    These are the clipped distances themselves, from −max_distance to max_distance. As an index, a negative number
    counts from the end in Python, without any error, and the left side would read the rows of the right. Move them up
    so that the smallest becomes 0.""")
slip("moved up too early", EVERY_ASPECT,
    {"distance.clamp": "(distance + max_distance).clamp", ") + max_distance": ")"},
    words="""
    max_distance was added first and the sum clipped at max_distance, which is the bound for distances, not for rows.
    All keys to the right ended up in one row. Either clip first, or clip to the bounds that rows have.""")
slip("rows counted from one", EVERY_ASPECT, {"+ max_distance": "+ max_distance + 1"}, words="""
    Every row is one too high, and the last points past the end of the table. The first row of a table is row 0, so the
    distance −max_distance must become 0.""")
slip("keys counted from one", ("near pairs", "not square"),
    {"torch.arange(n_key) -": "torch.arange(1, n_key + 1) -"}, words="""
    Every distance is one too large: the keys were counted from 1 and the queries from 0. Query 0 and key 0 stand at the
    same position, and their distance is 0.""")
slip("one row too few", ("near pairs", "far pairs"), {", max_distance)": ", max_distance - 1)"}, words="""
    Clipped one step short on the right: max_distance to the right got the row of its neighbour, and the last row of the
    table is never used. `clamp` keeps both of its bounds, unlike `range`, so the upper one need not be lowered.""")
slip("one row too few", ("near pairs", "far pairs"), {CLAMP: "distance.clamp(1 - max_distance, max_distance - 1)"})
slip("the middle of a smaller table", ("not square",),
    {"distance = ": "max_distance = min(max_distance, max(n_query, n_key) - 1)\ndistance = "}, words="""
    The table was made no larger than this pair of sentences needs, and "here" moved with it. A row must mean the same
    distance in every sentence, since its vector is learned from all of them: "here" is row `max_distance`, however
    short the sentences are.""")
slip("far pairs taken for near ones", ("far pairs",),
    {CLAMP: "torch.where(distance.abs() <= max_distance, distance, 0)"},
    {f"{CLAMP} + max_distance": "(distance + max_distance) % (2 * max_distance + 1)"},  # in again on the other side
    words="""
    A key that is too far away got the row of a near one, as if it stood right here. The furthest row on its side is the
    one that says "this far or further".""")
slip("all far keys on one side", ("far pairs",),
    {CLAMP: "torch.where(distance.abs() > max_distance, max_distance, distance)"},
    {CLAMP: "torch.where(distance.abs() > max_distance, -max_distance, distance)"},
    words="""
    Whatever is too far away got the same row, on the left and on the right. There are two outermost rows, one for each
    side: −max_distance and max_distance.""")
slip("as many keys as queries", ("not square",),
    {"arange(n_key)": "arange(n_query)"},
    {"arange(n_query)": "arange(n_key)"},
    words="""
    The table is square: one of the two lengths was used for both axes. Queries and keys need not be equally many: where
    one sentence attends to another, each has a length of its own.""")
slip("queries at the end", ("not square",), {"arange(n_query)": "arange(n_key - n_query, n_key)"}, words="""
    The queries were taken for the *last* positions among the keys, as if the earlier keys came from a cache. Here query
    0 and key 0 stand at the same position, however many there are of each.""")
slip("not whole numbers", ("fits the table",), {"arange(n_key)": "arange(n_key, dtype=torch.float32)"}, words="""
    The numbers are right, but they are floating-point numbers, and a table cannot be asked for its row 2.0. Ranges of
    whole numbers stay whole under −, + and `clamp`; something turned yours into floats.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("moved up too early", fails=EVERY_PAIR)
def clipped_at_zero(n_query, n_key, max_distance):
    """Clipped at zero."""
    distance = torch.arange(n_key) - torch.arange(n_query)[:, None]
    return (distance + max_distance).clamp(0, max_distance)


@variant("not whole numbers", fails=("fits the table",))
def written_into_zeros(n_query, n_key, max_distance):
    """Written into zeros."""
    index = torch.zeros(n_query, n_key)
    for i in range(n_query):
        for j in range(n_key):
            index[i, j] = max(-max_distance, min(max_distance, j - i)) + max_distance
    return index


@variant("mirrored across the diagonal", "distances, not rows", fails=EVERY_ASPECT)
def mirrored_distances(n_query, n_key, max_distance):
    """Both at once."""
    distance = torch.arange(n_query)[:, None] - torch.arange(n_key)
    return distance.clamp(-max_distance, max_distance)


@variant("no clip", "distances, not rows", fails=EVERY_ASPECT)
def distances_untouched(n_query, n_key, max_distance):
    """Both at once: the distances, untouched."""
    return torch.arange(n_key) - torch.arange(n_query)[:, None]


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("two loops")
def two_loops(n_query, n_key, max_distance):
    """As in the equation."""
    rows = []
    for i in range(n_query):
        rows.append([max(-max_distance, min(max_distance, j - i)) + max_distance for j in range(n_key)])
    return torch.tensor(rows)


@alternative("clipped as rows")
def clipped_as_rows(n_query, n_key, max_distance):
    """Moves up first and clips to the rows that there are."""
    query, key = torch.meshgrid(torch.arange(n_query), torch.arange(n_key), indexing="ij")
    return (key - query + max_distance).clip(0, 2 * max_distance)


@alternative("windows of one long row, not contiguous")
def windows_of_one_long_row_not_contiguous(n_query, n_key, max_distance):
    """Every row is the one above, moved on by one: cut them out of a single range, back to front."""
    distance = torch.arange(-(n_query - 1), n_key)
    rows = torch.clamp(distance, -max_distance, max_distance).add(max_distance)
    return rows.unfold(0, n_key, 1).flip(0)


@alternative("a triangle for each distance")
def a_triangle_for_each_distance(n_query, n_key, max_distance):
    """Counts how many thresholds a distance has passed; int32."""
    distance = torch.arange(n_key).expand(n_query, n_key) - torch.arange(n_query).unsqueeze(1)
    thresholds = torch.arange(1 - max_distance, max_distance + 1)
    return (distance.unsqueeze(-1) >= thresholds).sum(dim=-1, dtype=torch.int32)
