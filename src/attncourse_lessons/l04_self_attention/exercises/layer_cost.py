"""layer_cost: What one layer over n positions of width d costs."""

import math

import numpy as np
import torch

from attncourse import counting
from lessonkit.exercises.exercise import Exercise


def solution(kind, n, d, width=None):
    met, path = n, 1
    if width is not None:
        met, path = min(2 * width + 1, n), max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return 3 * n * d**2 + 2 * n * met * d, 1, path


exercise = Exercise(
    "layer_cost",
    reference=counting.layer_cost,
    solution=solution,
    returns=("multiply_adds", "sequential_steps", "path_length"),
    forbidden=("attncourse.counting",),
    difficulty=2,
    minutes=15,
    numbers=True,
    hints=(
        "Write down every matrix product of the layer with its sizes (a, b) and (b, c), and add up a · b · c. "
        "Self-attention has five products: three projections, the scores, the weighted sum of the values. The "
        "recurrent cell has two at each position.",
        "With a window, a position meets 2 · width + 1 positions in place of n, and n where the window is longer than "
        "the sequence. Which of the five products does that change? A convolution has a d × d matrix for each of these "
        "positions.",
        "Steps: in one layer, which position needs the output of the one before? Path: count the cells or layers that "
        "a signal passes on its way over n − 1 positions. With a window it gets `width` positions further in each "
        "layer. Round up; at least 1.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


WINDOWED = ("restricted", "convolution")
COLUMNS = ("multiply_adds", "sequential_steps", "path_length")


def _costs(answer, column, calls):
    """A row for each call: its sizes, which are there for the message, and one of the three numbers that came back."""
    rows = []
    for kind, n, d, *width in calls:
        value = answer(kind, n, d, *width)[column]
        known = torch.tensor([counting.LAYER_KINDS.index(kind), n, d, *(width or [0])], dtype=torch.float64)
        rows.append(torch.cat([known, value.to(torch.float64).reshape(1)]))
    return torch.stack(rows)


def _call(column):
    """Puts the first wrong row into tokens, as a call that the learner can repeat."""

    def explain(got, expected):
        row = next(i for i, (a, b) in enumerate(zip(got, expected, strict=True)) if abs(a[-1] - b[-1]) > 1e-4 * b[-1])
        kind, n, d, width = (int(value) for value in expected[row][:-1])
        arguments = f'"{counting.LAYER_KINDS[kind]}", {n}, {d}' + (f", {width}" if width else "")
        return f"layer_cost({arguments}): {COLUMNS[column]} is {got[row][-1]:g}, expected {expected[row][-1]:g}"

    return explain


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("self-attention", points=1, hint=1, explain=_call(0))
def self_attention(answer, draw):
    """projections, scores and average, each counted once"""
    n, d = draw.sizes(2, 3, 20)
    return _costs(answer, 0, [("self-attention", n, d), ("self-attention", d, n)])


@aspect("recurrent", points=0.5, hint=1, explain=_call(0))
def recurrent(answer, draw):
    """two matrices at every step"""
    n, d = draw.sizes(2, 3, 20)
    return _costs(answer, 0, [("recurrent", n, d), ("recurrent", d, n)])


@aspect("windows", points=1, hint=2, explain=_call(0))
def windows(answer, draw):
    """2 · width + 1 positions are met, in place of n"""
    n, d, width = 10 + draw.sizes(1, 0, 6)[0], draw.sizes(1, 5, 8)[0], draw.sizes(1, 2, 4)[0]
    return _costs(answer, 0, [(kind, n, d, width) for kind in WINDOWED])


@aspect("a window wider than the sequence", points=0.5, hint=2, explain=_call(0))
def a_window_wider_than_the_sequence(answer, draw):
    """no position meets more positions than there are"""
    d, width = draw.sizes(1, 9, 12)[0], draw.sizes(1, 3, 6)[0]
    return _costs(answer, 0, [(kind, width + 2, d, width) for kind in WINDOWED])


@aspect("sequential steps", points=0.5, hint=3, explain=_call(1))
def sequential_steps(answer, draw):
    """what must wait for what"""
    n, d, width = 10 + draw.sizes(1, 0, 6)[0], draw.sizes(1, 5, 8)[0], draw.sizes(1, 2, 4)[0]
    return _costs(answer, 1, [(kind, n, d, *([width] if kind in WINDOWED else [])) for kind in counting.LAYER_KINDS])


@aspect("path length", points=0.5, hint=3, explain=_call(2))
def path_length(answer, draw):
    """cells or layers between the two positions that are furthest apart"""
    width = draw.sizes(1, 3, 5)[0]
    calls: list[tuple] = [("self-attention", 9, 4), ("recurrent", 7 + width, 4)]
    for kind in WINDOWED:
        calls += [(kind, n, 4, width) for n in (5 * width, 5 * width + 1, 5 * width + 2, width + 1, 1)]
    return _costs(answer, 2, calls)


# -------------------------------------------------------------------------------------- one slip away from the solution

ATTENTION, WINDOWS, SHORT = "self-attention", "windows", "a window wider than the sequence"
COUNTS = (ATTENTION, WINDOWS, SHORT)
ALL_COUNTS = (ATTENTION, "recurrent", WINDOWS, SHORT)
STEPS, PATH = ("sequential steps",), ("path length",)
LAYERS = "max(1, math.ceil((n - 1) / width))"

slip("no projections", COUNTS,
    {"3 * n * d**2 + ": ""},
    {"3 * n * d**2 + 2 * ": ""},  # as in the table, n² d
    words="""
    Only the two products over pairs of tokens were counted, QKᵀ and AV. Table 1 of Vaswani et al. does so, too. But
    first each token is multiplied by three d × d matrices, and in short sentences that is the larger part.""")
slip("scores without the average", COUNTS, {"+ 2 * n * met": "+ n * met"}, words="""
    Every pair is met twice: once for its score, q · k, and once when the value is added to the average. Each of the two
    takes d multiply-adds.""")
slip("an output projection too", COUNTS, {"3 * n": "4 * n"}, words="""
    Four projections were counted. The fourth, from the average back to d, comes with several heads (lecture
    @many_heads); the layer of this lecture has three.""")
slip("one projection in place of three", COUNTS, {"3 * n": "n"}, words="""
    Only one projection was counted. A token has three roles, query, key and value, and is multiplied by a d × d matrix
    for each.""")
slip("projections of one token", COUNTS, {"3 * n": "3"}, words="""
    3 d² projects one token. All n tokens are projected, each by the three matrices.""")
slip("FLOPs for multiply-adds", ALL_COUNTS,
    {"return 2 * n": "return 4 * n", "return n * met": "return 2 * n * met", "3 * n": "6 * n", "+ 2 * n": "+ 4 * n"},
    words="""
    These are twice the multiply-adds: a multiplication and an addition counted as one operation each, as FLOPs are. The
    contract counts the two together as one.""")
slip("n and d swapped", ALL_COUNTS,
    {"met, path = n": "met, path = d", "2 * n * d**2": "2 * d * n**2", "n * met * d**2": "d * met * n**2",
     "3 * n * d**2": "3 * d * n**2"},
    words="""
    The sequence's length and the vectors' width have changed places. n counts positions: there are n² pairs of them. d
    is how many numbers a position has: a projection is a d × d matrix.""")
slip("one matrix in the cell", ("recurrent",), {"return 2 * n": "return n"}, words="""
    A recurrent cell multiplies twice at every step: the input by W and the state by U. Only one of them was
    counted.""")
slip("one step of the cell", ("recurrent",), {"return 2 * n": "return 2"}, words="""
    That is one step. The layer reads all n positions, and pays for its matrices at each of them.""")
slip("one side of the window", (WINDOWS, SHORT),
    {"2 * width + 1": "width"},
    {"2 * width + 1": "width + 1"},  # and the position itself
    words="""
    The window was counted as `width` or `width` + 1 positions wide. It reaches `width` to the left, `width` to the
    right, and has the position itself in the middle.""")
slip("the middle of the window left out", (WINDOWS,), {"2 * width + 1": "2 * width"}, words="""
    2 · `width` counts the neighbours on both sides. The position in the middle belongs to its own window.""")
slip("the ends counted exactly", (WINDOWS, SHORT),
    {"min(2 * width + 1, n)": "sum(min(n, i + width + 1) - max(0, i - width) for i in range(n)) / n"},  # on average
    words="""
    At both ends of the sequence a part of the window hangs over, and you left that part out. This is the exact number
    of pairs, but the contract asks for full windows, as an implementation computes them, with padding at the ends.""")
slip("more positions than there are", (SHORT,), {"min(2 * width + 1, n)": "2 * width + 1"}, words="""
    In a short sequence the window is cut at the ends: no position can meet more than n.""")
slip("a step for each token", STEPS, {"met * d**2, 1": "met * d**2, n", "met * d, 1": "met * d, n"}, words="""
    Every layer was given n sequential steps. A step is sequential if it has to wait for the one before. In attention
    and convolution no position waits for another's output: only in a loop like the one you wrote do they come one by
    one, and matrix products do them all at once.""")
slip("the path for the steps", STEPS, {"met * d**2, 1": "met * d**2, path", "met * d, 1": "met * d, path"}, words="""
    A window needs several *layers* to carry a signal far, and that is its path length. Sequential steps are counted
    within one layer, where windows do not wait for each other.""")
slip("steps and path swapped", (*STEPS, *PATH),
    {"met * d**2, 1, path": "met * d**2, path, 1", "met * d, 1, path": "met * d, path, 1"},
    words="""
    The last two numbers have changed places. The contract has the sequential steps second and the path length
    third.""")
slip("one layer goes everywhere", PATH, {LAYERS: "1"}, words="""
    With a window a signal gets only `width` positions further in each layer. From the first position to the last it
    takes several, stacked.""")
slip("the logarithm of the table", PATH,
    {"d**2, 1, path": "d**2, 1, math.ceil(math.log(n, 2 * width + 1))"},
    {"d**2, 1, path": "d**2, 1, math.ceil(math.log(n, width))"},
    words="""
    The logarithm in table 1 of Vaswani et al. is for dilated convolutions: their windows have gaps, wider from layer to
    layer. Here the places of a window are adjacent, and a signal gets only `width` positions further in each layer, as
    in restricted attention.""")
slip("the whole window as a stride", PATH,
    {"/ width": "/ (2 * width + 1)"},
    {LAYERS: "math.ceil(n / (2 * width + 1))"},  # from n
    {LAYERS: "max(1, n // (2 * width + 1))"},  # rounded down
    words="""
    The distance was divided by the size of the whole window. But a signal that starts in the middle of a window leaves
    it after `width` positions, not after 2 · `width` + 1: half of the window lies behind it.""")
slip("rounded the wrong way, or one position too far", PATH,
    {"math.ceil((n - 1) / width)": "(n - 1) // width"},
    {LAYERS: "math.ceil(n / width)"},  # counted from n, rounded up
    {LAYERS: "n // width"},  # counted from n, rounded down
    {LAYERS: "(n - 1) / width"},  # not rounded
    words="""
    The path through windows is off by one for some lengths. From the first position to the last it is n − 1 positions,
    not n; and a last layer is needed even if only part of its reach is: try n = 4 and 5 with a width of 3 on paper.""")
slip("arrows counted, not cells", PATH, {"n, n": "n, n - 1"}, words="""
    Between the n cells of a recurrence there are n − 1 arrows. The contract counts the cells that the signal passes
    through, the first and the last among them.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("no projections", "one matrix in the cell", fails=ALL_COUNTS)
def orders_of_growth(kind, n, d, width=None):
    """The table's orders of growth throughout."""
    met = n if width is None else min(2 * width + 1, n)
    path = 1 if width is None else max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, 1, path
    return n * met * d, 1, path


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("one product after the other")
def one_product_after_the_other(kind, n, d, width=None):
    """Adds up a · b · c for every matrix product, and walks the path."""
    window = list(range(-width, width + 1))[:n] if width else range(n)
    products = {
        "self-attention": [(n, d, d)] * 3 + [(n, d, n), (n, n, d)],
        "restricted": [(n, d, d)] * 3 + [(n, d, len(window)), (n, len(window), d)],
        "recurrent": [(1, d, d), (1, d, d)] * n,
        "convolution": [(n, d, d) for _ in window],
    }[kind]
    position, layers = 0, 0
    while position < n - 1 or layers == 0:
        position += {"self-attention": n, "recurrent": 1}.get(kind, width)
        layers += 1
    steps = n if kind == "recurrent" else 1
    return sum(a * b * c for a, b, c in products), steps, n if kind == "recurrent" else layers


@alternative("numpy's numbers")
def numpys_numbers(kind, n, d, width=None):
    """Rounded and compared by numpy."""
    met = np.int64(n) if width is None else np.minimum(2 * width + 1, n)
    path = np.float32(1) if width is None else np.maximum(1, np.ceil((n - 1) / width))
    if kind == "recurrent":
        return 2 * n * d**2, n, n
    if kind == "convolution":
        return n * met * d**2, np.int64(1), path
    return 3 * n * d**2 + 2 * n * met * d, np.int64(1), path


@alternative("tensors and floats")
def tensors_and_floats(kind, n, d, width=None):
    """Numbers as tensors, and a division that leaves a float."""
    met = torch.tensor(float(n if width is None else min(2 * width + 1, n)))
    path = torch.tensor(1.0 if width is None else max(1.0, -(-(n - 1) // width)))
    if kind == "recurrent":
        return torch.tensor(2.0 * n * d * d), torch.tensor(n), torch.tensor(n)
    adds = {"convolution": n * met * d * d}.get(kind, n * d * (3 * d + 2 * met))
    return [adds, 1.0, path]
