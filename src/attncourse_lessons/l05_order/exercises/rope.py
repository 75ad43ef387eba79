"""rope: Query, key and value as attention needs them, for scores that depend on distances alone (Su et al. 2021)."""

import math

import torch

from attncourse import positions as course
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient, explain_worst
from lessonkit.exercises.local_runner import AspectFailed, Problem
from lessonkit.exercises.observe import gradients

from .common import READY_MADE


def reference(query, key, value, start):
    """Query and key turned, pairs side by side, the value as it is. Su et al. 2021, section 3.4.2."""
    angles = course.rope_angles(torch.arange(start, start + query.shape[-2]), query.shape[-1])
    return course.rotate(query, angles, "interleaved"), course.rotate(key, angles, "interleaved"), value


def solution(query, key, value, start):
    n, d_head = query.shape[-2:]
    frequency = 1 / 10000 ** (torch.arange(0, d_head, 2) / d_head)  # (d_head/2,)
    angles = torch.arange(start, start + n)[:, None] * frequency  # (n, d_head/2)

    def turn(x):
        a, b = x[..., 0::2], x[..., 1::2]  # (batch, n, d_head/2) each
        pairs = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        return torch.stack(pairs, dim=-1).flatten(-2)  # (batch, n, d_head)

    return turn(query), turn(key), value


exercise = Exercise(
    "rope",
    reference=reference,
    solution=solution,
    returns=("query", "key", "value"),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=30,
    hints=(
        "Write a helper that turns one tensor, and use it for those that must be turned. Its first step: the angles, "
        "a table (n, d_head / 2). Which axis of a tensor (batch, n, d_head) are the positions?",
        "The columns 0, 2, 4, … are the first members of the pairs: `x[..., 0::2]`, of shape (batch, n, d_head / 2), "
        "and the angles broadcast against it. `x[..., 1::2]` are the second members.",
        "Two new tables come out, one of first and one of second members. Put them back where they came from: stack "
        "along a new last axis and merge the last two.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _tokens(draw):
    """A batch, a length and a width that is even; neither it nor its half is equal to one of the others."""
    batch, n = draw.sizes(2, 4, 7)
    return batch, n, 2 * draw.sizes(1, 8, 10)[0]


def _three(draw):
    return [draw.normal(*shape) for shape in [_tokens(draw)] * 3]


def _must_turn(came, went):
    """Stop at an answer that hands everything back as it came: it would be right about the value without doing a
    thing."""
    if came.shape == went.shape and torch.equal(came, went.to(came.dtype)):
        raise AspectFailed(Problem("unusable", "nothing was turned, not even the query"))


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("query", points=2, hint=2)
def query(answer, draw):
    """each pair of the query's columns is turned by its position's angle"""
    return answer(*_three(draw), 0)[0]


@aspect("key", points=1, hint=2)
def key(answer, draw):
    """the key is turned in the same way"""
    return answer(*_three(draw), 0)[1]


@aspect("value", points=1, hint=1)
def value(answer, draw):
    """what is averaged stays as it is"""
    query, key, value = _three(draw)
    turned, _, kept = answer(query, key, value, 0)
    _must_turn(query, turned)
    return kept


@aspect(
    "distance",
    points=2,
    hint=1,
    explain=explain_worst("a score changes by {size} when query and key both move on by one"),
)
def distance(answer, draw):
    """the score of two vectors depends on how far apart they stand, and on nothing else"""
    batch, n, d_head = _tokens(draw)
    query, key = (draw.normal(batch, 1, d_head).repeat(1, n, 1) for _ in range(2))
    query, key, _ = answer(query, key, draw.normal(batch, n, d_head), 3)
    scores = query @ key.mT
    if ((scores - scores[:, :1, :1]).abs().amax(dim=(1, 2)) < 1e-3).any():
        raise AspectFailed(Problem("unusable", "in one sequence the scores are the same at every distance"))
    return scores[:, 1:, 1:] - scores[:, :-1, :-1]


@aspect("a later start", points=1, hint=1)
def a_later_start(answer, draw):
    """rows that begin at position `start` are turned by start, start + 1, …"""
    query, key, value = _three(draw)
    query, key, _ = answer(query, key, value, draw.sizes(1, 5, 40)[0])
    return torch.stack([query, key])


@aspect("gradient", points=1, hint=3, explain=explain_missing_gradient("query", "key"))
def gradient(answer, draw):
    """a turn passes the gradient on at its full length, to the query and to the key"""
    query, key, value = _three(draw)
    query.requires_grad_()
    key.requires_grad_()
    turned_query, turned_key, _ = answer(query, key, value, 2)
    _must_turn(query.detach(), turned_query)
    return gradients(torch.stack([turned_query, turned_key]), [query, key], draw).norm(dim=-1)


# -------------------------------------------------------------------------------------- one slip away from the solution

TURNED = ("query", "key", "a later start")
NO_TURN = (*TURNED, "distance", "gradient")
TURN = "a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()"
EXPONENTS, BACK = "torch.arange(0, d_head, 2)", "torch.stack(pairs, dim=-1).flatten(-2)"

slip("halves for interleaved", TURNED,
    {"a, b = x[..., 0::2], x[..., 1::2]": "a, b = x.chunk(2, dim=-1)", BACK: "torch.cat(pairs, dim=-1)"},
    {BACK: "torch.cat(pairs, dim=-1)"},  # taken apart as neighbours, put back as halves
    words="""
    Somewhere the two members of a pair stand half a width apart, columns i and i + d_head/2: where they are read, where
    the angles are laid out, or where they are put back. Used throughout, that is the layout of GPT-NeoX, and of Llama
    in the transformers library, and just as good. But the contract, and the paper, pair neighbours: columns 2i and 2i +
    1. Weights trained with one layout fail with the other.""")
slip("batch for position", (*TURNED, "distance"),
    {"start + n)[:, None]": "start + len(query))[:, None, None]"},
    words="""
    The positions were counted along the batch: all tokens of a sentence were turned by the same angle, and by how much
    depended on which sentence of the batch it was. The positions are the last axis but one. (A published slide has this
    very slip; lecture @errata_lab comes back to it.)""")
slip("rotates the values", ("value",), {"turn(key), value": "turn(key), turn(value)"}, words="""
    The value was turned as well. Turning is there so that *scores* feel a distance, and values are not in the scores:
    they are averaged, and an average of vectors that were each turned by a different angle is no longer an average of
    what the tokens say.""")
slip("only the query", ("key", "distance", "a later start"), {"turn(key)": "key"}, words="""
    The key came back as it was. A score then depends on where the query stands and not on where the key stands, so no
    distance can come out. Both are turned, and in the dot product what they have in common cancels.""")
slip("query and key exchanged", (*TURNED, "gradient"), {"turn(query), turn(key)": "turn(key), turn(query)"}, words="""
    Both were turned and came back in each other's place: the contract says query, key, value. Who asks and who is asked
    is not the same thing once their positions count.""")
slip("key turned the other way", ("key", "distance", "a later start"),
    {"turn(x)": "turn(x, angles=angles)", "turn(key)": "turn(key, -angles)"},
    words="""
    Query and key were turned in opposite directions, so the score depends on the *sum* of their positions. Turn both
    the same way: the transpose in the dot product reverses the sign by itself, and leaves the difference.""")
slip("turned the other way", TURNED,
    {TURN: "a * angles.cos() + b * angles.sin(), b * angles.cos() - a * angles.sin()"},
    words="""
    Everything was turned by minus its angle. The scores do not notice, since both were; but weights and caches made
    with the other direction would. The minus belongs to the sine in the *first* member of a pair.""")
slip("a sign astray", NO_TURN,
    {"- b": "+ b"},
    {", a *": ", -a *"},  # two minuses
    words="""
    This is not a turn: vectors change their length. In (a cos θ − b sin θ, a sin θ + b cos θ) one of the two sines has
    a minus. Test a single pair, (1, 0), by a quarter turn: it must become (0, 1).""")
slip("half turned, half new", NO_TURN, {"[a *": "[a := a *"}, words="""
    The second member of each pair was computed from a first member that had already been replaced. Both formulas need
    the *old* a and b: keep them (a slice is a view, and sees what is written into its tensor), or make new tensors.""")
slip("added, not turned", (*TURNED, "distance"), {TURN: "a + angles.sin(), b + angles.cos()"}, words="""
    Sines and cosines were *added* to query and key. That is the older scheme. In the dot product of two sums there are
    cross-terms, content against position, that depend on where each one stands. RoPE multiplies: each pair is turned by
    its angle.""")
slip("multiplied, not turned", NO_TURN,
    {TURN: "a * angles.cos(), b * angles.sin()"},
    {TURN: "a * angles.sin(), b * angles.cos()"},  # by the vectors of the sinusoidal scheme
    words="""
    Each column was multiplied by its own cosine or sine, and no column heard of its partner. That shrinks vectors. A
    turn mixes the two members of a pair: each new one has a share of both.""")
slip("exponent off by one", TURNED, {EXPONENTS: "torch.arange(2, d_head + 2, 2)"}, words="""
    The pairs were counted from 1: every pair turns at the speed of the next, and none by a whole radian a position. The
    first pair has i = 0.""")
slip("exponent without its 2", TURNED, {EXPONENTS: "torch.arange(d_head // 2)"}, words="""
    The pairs do not slow down fast enough: the exponent of pair i is 2i / d_head, and the last is nearly 1.""")
slip("no brackets round the exponent", TURNED,
    {f"10000 ** ({EXPONENTS} / d_head)": f"(10000.0 ** {EXPONENTS} / d_head)"},
    {f"10000 ** ({EXPONENTS} / d_head)": f"10000.0 ** {EXPONENTS} / d_head"},  # divided twice
    words="""
    In Python a power binds more tightly than a quotient: `10000 ** two_i / d_head` is (10000 to the 2i) / d_head. Put
    brackets round the whole exponent.""")
slip("another base", TURNED, {"10000": "1000"}, {"10000": "500000.0"}, {"10000": "100000.0"},
     {"10000": "1000000.0"}, words="""
    The frequencies were made with another number than 10000. It decides how slow the slowest pair is. Newer models
    take a larger one, for longer texts; a table made with one base does not fit a model that was trained with
    another.""")
slip("one angle for all pairs", TURNED, {" * frequency": ""}, words="""
    Every pair was turned by p radians. Each pair has its own frequency: the first turns by one radian a position, the
    last by hardly more than a ten-thousandth.""")
slip("counted from one", TURNED, {"start, start + n": "start + 1, start + n + 1"}, words="""
    The first row was turned by one position too many: the row at `start` has position `start`, and with a start of 0 it
    is not turned at all.""")
slip("always from position 0", ("a later start",), {"start, start + n": "n"}, words="""
    `start` was not used. A model that writes token by token calls this with one new row at a time, and that row does
    not stand at position 0.""")
slip("start added to the angles", ("a later start",),
    {"start, start + n": "n", "* frequency": "* frequency + start"},
    words="""
    `start` was added to the angles, after the positions had been multiplied by the frequencies. All pairs then skip
    ahead by the same angle. It is the *positions* that begin at `start`; each pair's own frequency comes after
    that.""")
slip("positions that end at n", ("distance", "a later start", "gradient"), {"start + n": "n"}, words="""
    `arange(start, n)` ends before position n, whatever the start: there are n − start numbers in it, or none, but each
    of the n rows needs one. The second argument of `arange` is where it ends, not how many there are.""")
slip("cut off from the gradient", ("gradient",),
    {"turn(query)": "turn(query.detach())", "turn(key)": "turn(key.detach())"},
    words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, `.numpy()` and `torch.tensor(…)`
    forget where numbers came from, and the projections before the turn could not learn.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("halves for interleaved", fails=NO_TURN)
def neighbours_turned_by_angles_of_halves(query, key, value, start):
    """Pairs of neighbours turned, put back as halves: the angles, doubled up, meet the wrong columns."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    cos, sin = torch.cat([angles.cos()] * 2, dim=-1), torch.cat([angles.sin()] * 2, dim=-1)
    turned = []
    for x in (query, key):
        partner = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
        turned.append(x * cos + partner * sin)
    return turned[0], turned[1], value


@variant("rotates the values", "halves for interleaved", fails=(*TURNED, "value"))
def values_rotated_in_halves(query, key, value, start):
    """Both at once."""
    half = query.shape[-1] // 2
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (2 * torch.arange(half) / query.shape[-1])
    turned = []
    for x in (query, key, value):
        a, b = x[..., :half], x[..., half:]
        turned.append(torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1))
    return turned[0], turned[1], turned[2]


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("complex numbers")
def complex_numbers(query, key, value, start):
    """A pair is a complex number, and a turn is a product with e to the i θ. In float64."""
    d_head = query.shape[-1]
    place = torch.arange(start, start + query.shape[-2], dtype=torch.float64)
    angles = torch.outer(place, 10000 ** (-torch.arange(0, d_head, 2, dtype=torch.float64) / d_head))
    turn = torch.polar(torch.ones_like(angles), angles)
    query, key = (
        torch.view_as_real(torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2)) * turn).flatten(-2)
        for x in (query, key)
    )
    return query, key, value


@alternative("a loop over positions, a matrix each")
def a_loop_over_positions_a_matrix_each(query, key, value, start):
    """Row by row: the position's rotation matrix, blocks of two down its diagonal, on the right of the row."""
    d_head, turned = query.shape[-1], []
    for x in (query, key):
        rows = []
        for p in range(x.shape[1]):
            blocks = []
            for i in range(d_head // 2):
                t = (start + p) / 10000 ** (2 * i / d_head)
                blocks.append(torch.tensor([[math.cos(t), math.sin(t)], [-math.sin(t), math.cos(t)]]))
            rows.append(x[:, p] @ torch.block_diag(*blocks))
        turned.append(torch.stack(rows, dim=1))
    return turned[0], turned[1], value.clone()


@alternative("einsum over pairs")
def einsum_over_pairs(query, key, value, start):
    """A table of turns, (n, pairs, 2, 2), against the pairs of both at once."""
    n, d_head = query.shape[-2:]
    frequency = torch.exp(torch.arange(0, d_head, 2) * (-math.log(10000.0) / d_head))
    angles = torch.einsum("n,f->nf", torch.arange(start, start + n).float(), frequency)
    turns = torch.stack([angles.cos(), -angles.sin(), angles.sin(), angles.cos()], dim=-1).unflatten(-1, (2, 2))
    both = torch.stack([query, key]).unflatten(-1, (-1, 2))
    query, key = torch.einsum("nfij,cbnfj->cbnfi", turns, both).flatten(-2)
    return query, key, value


@alternative("the slide's two products, not contiguous")
def the_slides_two_products_not_contiguous(query, key, value, start):
    """x times repeated cosines plus its partner times repeated sines, and back from a transposed computation."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    angles = angles.repeat_interleave(2, dim=-1)
    turned = []
    for x in (query, key):
        partner = torch.empty_like(x)
        partner[..., 0::2], partner[..., 1::2] = -x[..., 1::2], x[..., 0::2]
        turned.append((x.mT * angles.cos().mT + partner.mT * angles.sin().mT).mT)
    return turned[0], turned[1], value
