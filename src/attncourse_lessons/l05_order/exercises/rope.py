"""rope: Query, key and value as attention needs them, for scores that depend on distances alone (Su et al. 2021)."""

import math

import torch

from attncourse import positions as course
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import arrives, told
from lessonkit.exercises.local_runner import Problem, Stop
from lessonkit.exercises.observe import gradients

from .common import READY_MADE


def reference(query, key, value, start):
    """Query and key turned, pairs side by side, the value as it is. Su et al. 2021, section 3.4.2."""
    angles = course.rope_angles(torch.arange(start, start + query.shape[-2]), query.shape[-1])
    return course.rotate(query, angles, "interleaved"), course.rotate(key, angles, "interleaved"), value


def solution(query, key, value, start):
    n, d_head = query.shape[-2:]
    frequency = 1 / 10000 ** (torch.arange(0, d_head, 2) / d_head)                    # (d_head/2,)
    angles = torch.arange(start, start + n)[:, None] * frequency                      # (n, d_head/2)

    def turn(x):
        a, b = x[..., 0::2], x[..., 1::2]                                             # (batch, n, d_head/2) each
        pairs = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        return torch.stack(pairs, dim=-1).flatten(-2)                                 # (batch, n, d_head)

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
        raise Stop(Problem("unusable", "nothing was turned, not even the query"))


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("query", points=2)
def query(answer, draw):
    """each pair of the query's columns is turned by its position's angle"""
    return answer(*_three(draw), 0)[0]


@aspect("key", points=1)
def key(answer, draw):
    """the key is turned in the same way"""
    return answer(*_three(draw), 0)[1]


@aspect("value", points=1)
def value(answer, draw):
    """what is averaged stays as it is"""
    query, key, value = _three(draw)
    turned, _, kept = answer(query, key, value, 0)
    _must_turn(query, turned)
    return kept


@aspect("distance", points=2, explain=told("a score changes by {size} when query and key both move on by one"))
def distance(answer, draw):
    """the score of two vectors depends on how far apart they stand, and on nothing else"""
    batch, n, d_head = _tokens(draw)
    query, key = (draw.normal(batch, 1, d_head).repeat(1, n, 1) for _ in range(2))
    query, key, _ = answer(query, key, draw.normal(batch, n, d_head), 3)
    scores = query @ key.mT
    if ((scores - scores[:, :1, :1]).abs().amax(dim=(1, 2)) < 1e-3).any():
        raise Stop(Problem("unusable", "in one sequence the scores are the same at every distance"))
    return scores[:, 1:, 1:] - scores[:, :-1, :-1]


@aspect("a later start", points=1)
def a_later_start(answer, draw):
    """rows that begin at position `start` are turned by start, start + 1, …"""
    query, key, value = _three(draw)
    query, key, _ = answer(query, key, value, draw.sizes(1, 5, 40)[0])
    return torch.stack([query, key])


@aspect("gradient", points=1, explain=arrives("query", "key"))
def gradient(answer, draw):
    """a turn passes the gradient on at its full length, to the query and to the key"""
    query, key, value = _three(draw)
    query.requires_grad_()
    key.requires_grad_()
    turned_query, turned_key, _ = answer(query, key, value, 2)
    _must_turn(query.detach(), turned_query)
    return gradients(torch.stack([turned_query, turned_key]), [query, key], draw).norm(dim=-1)


TURNED = ("query", "key", "a later start")


# -------------------------------------------------------------------------------------------------------- wrong answers


@misconception("halves for interleaved", fails=TURNED)
def halves_for_interleaved(query, key, value, start):
    """Somewhere the two members of a pair stand half a width apart, columns i and i + d_head/2: where they are read,
    where the angles are laid out, or where they are put back. Used throughout, that is the layout of GPT-NeoX, and of
    Llama in the transformers library, and just as good. But the contract, and the paper, pair neighbours: columns 2i
    and 2i + 1. Weights trained with one layout fail with the other."""
    half = query.shape[-1] // 2
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (2 * torch.arange(half) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., :half], x[..., half:]
        turned.append(torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1))
    return turned[0], turned[1], value


@variant("halves for interleaved", fails=(*TURNED, "distance", "gradient"))
def halves_for_interleaved_2(query, key, value, start):
    """Pairs of neighbours turned, put back as halves: the angles, doubled up, meet the wrong columns."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    cos, sin = torch.cat([angles.cos()] * 2, dim=-1), torch.cat([angles.sin()] * 2, dim=-1)
    turned = []
    for x in (query, key):
        partner = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
        turned.append(x * cos + partner * sin)
    return turned[0], turned[1], value


@variant("halves for interleaved", fails=TURNED)
def halves_for_interleaved_3(query, key, value, start):
    """Taken apart as neighbours, put back as halves."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    cos, sin = angles.cos(), angles.sin()
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        turned.append(torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1))
    return turned[0], turned[1], value


@misconception("batch for position", fails=(*TURNED, "distance"))
def batch_for_position(query, key, value, start):
    """The positions were counted along the batch: all tokens of a sentence were turned by the same angle, and by how
    much depended on which sentence of the batch it was. The positions are the last axis but one. (A published slide has
    this very slip; lecture @errata_lab comes back to it.)"""
    place = torch.arange(start, start + query.shape[0])
    angles = place[:, None, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@misconception("rotates the values", fails=("value",))
def rotates_the_values(query, key, value, start):
    """The value was turned as well. Turning is there so that *scores* feel a distance, and values are not in the
    scores: they are averaged, and an average of vectors that were each turned by a different angle is no longer an
    average of what the tokens say."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key, value):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], turned[2]


@variant("rotates the values", "halves for interleaved", fails=(*TURNED, "value"))
def rotates_the_values_2(query, key, value, start):
    """Both at once."""
    half = query.shape[-1] // 2
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (2 * torch.arange(half) / query.shape[-1])
    turned = []
    for x in (query, key, value):
        a, b = x[..., :half], x[..., half:]
        turned.append(torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1))
    return turned[0], turned[1], turned[2]


@misconception("only the query", fails=("key", "distance", "a later start"))
def only_the_query(query, key, value, start):
    """The key came back as it was. A score then depends on where the query stands and not on where the key stands,
    so no distance can come out. Both are turned, and in the dot product what they have in common cancels."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    a, b = query[..., 0::2], query[..., 1::2]
    pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
    return torch.stack(pair, dim=-1).flatten(-2), key, value


@misconception("key turned the other way", fails=("key", "distance", "a later start"))
def key_turned_the_other_way(query, key, value, start):
    """Query and key were turned in opposite directions, so the score depends on the *sum* of their positions. Turn both
    the same way: the transpose in the dot product reverses the sign by itself, and leaves the difference."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x, sign in ((query, 1), (key, -1)):
        a, b, cos, sin = x[..., 0::2], x[..., 1::2], angles.cos(), sign * angles.sin()
        turned.append(torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2))
    return turned[0], turned[1], value


@misconception("turned the other way", fails=TURNED)
def turned_the_other_way(query, key, value, start):
    """Everything was turned by minus its angle. The scores do not notice, since both were; but weights and caches
    made with the other direction would. The minus belongs to the sine in the *first* member of a pair."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() + b * angles.sin(), b * angles.cos() - a * angles.sin()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@misconception("exponent off by one", fails=TURNED)
def exponent_off_by_one(query, key, value, start):
    """The pairs were counted from 1: every pair turns at the speed of the next, and none by a whole radian a
    position. The first pair has i = 0."""
    place = torch.arange(start, start + query.shape[1])
    i = torch.arange(1, query.shape[-1] // 2 + 1)
    angles = place[:, None] / 10000 ** (2 * i / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@misconception("exponent without its 2", fails=TURNED)
def exponent_without_its_2(query, key, value, start):
    """The pairs do not slow down fast enough: the exponent of pair i is 2i / d_head, and the last is nearly 1."""
    place = torch.arange(start, start + query.shape[1])
    i = torch.arange(query.shape[-1] // 2)
    angles = place[:, None] / 10000 ** (i / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@misconception("one angle for all pairs", fails=TURNED)
def one_angle_for_all_pairs(query, key, value, start):
    """Every pair was turned by p radians. Each pair has its own frequency: the first turns by one radian a
    position, the last by hardly more than a ten-thousandth."""
    angles = torch.arange(start, start + query.shape[1])[:, None].float()
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@misconception("added, not turned", fails=(*TURNED, "distance"))
def added_not_turned(query, key, value, start):
    """Sines and cosines were *added* to query and key. That is the older scheme. In the dot product of two sums
    there are cross-terms, content against position, that depend on where each one stands. RoPE multiplies: each
    pair is turned by its angle."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    vectors = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
    return query + vectors, key + vectors, value


@misconception("multiplied, not turned", fails=(*TURNED, "distance", "gradient"))
def multiplied_not_turned(query, key, value, start):
    """Each column was multiplied by its own cosine or sine, and no column heard of its partner. That shrinks
    vectors. A turn mixes the two members of a pair: each new one has a share of both."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        pair = [x[..., 0::2] * angles.cos(), x[..., 1::2] * angles.sin()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@variant("multiplied, not turned", fails=(*TURNED, "distance", "gradient"))
def multiplied_not_turned_2(query, key, value, start):
    """By the vectors of the sinusoidal scheme."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    vectors = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
    return query * vectors, key * vectors, value


@misconception("a sign astray", fails=(*TURNED, "distance", "gradient"))
def a_sign_astray(query, key, value, start):
    """This is not a turn: vectors change their length. In (a cos θ − b sin θ, a sin θ + b cos θ) one of the two sines
    has a minus. Test a single pair, (1, 0), by a quarter turn: it must become (0, 1)."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() + b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@variant("a sign astray", fails=(*TURNED, "distance", "gradient"))
def a_sign_astray_2(query, key, value, start):
    """Two minuses."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), -a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@misconception("half turned, half new", fails=(*TURNED, "distance", "gradient"))
def half_turned_half_new(query, key, value, start):
    """The second member of each pair was computed from a first member that had already been replaced. Both formulas
    need the *old* a and b: keep them (a slice is a view, and sees what is written into its tensor), or make new
    tensors."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        a = a * angles.cos() - b * angles.sin()
        b = a * angles.sin() + b * angles.cos()
        turned.append(torch.stack([a, b], dim=-1).flatten(-2))
    return turned[0], turned[1], value


@misconception("always from position 0", fails=("a later start",))
def always_from_position_0(query, key, value, start):
    """`start` was not used. A model that writes token by token calls this with one new row at a time, and that row
    does not stand at position 0."""
    angles = torch.arange(query.shape[1])[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@misconception("start added to the angles", fails=("a later start",))
def start_added_to_the_angles(query, key, value, start):
    """`start` was added to the angles, after the positions had been multiplied by the frequencies. All pairs then
    skip ahead by the same angle. It is the *positions* that begin at `start`; each pair's own frequency comes after
    that."""
    place = torch.arange(query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1]) + start
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@misconception("positions that end at n", fails=("distance", "a later start", "gradient"))
def positions_that_end_at_n(query, key, value, start):
    """`arange(start, n)` ends before position n, whatever the start: there are n − start numbers in it, or none, but
    each of the n rows needs one. The second argument of `arange` is where it ends, not how many there are."""
    place = torch.arange(start, query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@misconception("query and key exchanged", fails=(*TURNED, "gradient"))
def query_and_key_exchanged(query, key, value, start):
    """Both were turned and came back in each other's place: the contract says query, key, value. Who asks and who
    is asked is not the same thing once their positions count."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[1], turned[0], value


@misconception("no brackets round the exponent", fails=TURNED)
def no_brackets_round_the_exponent(query, key, value, start):
    """In Python a power binds more tightly than a quotient: `10000 ** two_i / d_head` is (10000 to the 2i) /
    d_head. Put brackets round the whole exponent."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / (10000.0 ** torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@variant("no brackets round the exponent", fails=TURNED)
def no_brackets_round_the_exponent_2(query, key, value, start):
    """Divided twice."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000.0 ** torch.arange(0, query.shape[-1], 2) / query.shape[-1]
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@misconception("counted from one", fails=TURNED)
def counted_from_one(query, key, value, start):
    """The first row was turned by one position too many: the row at `start` has position `start`, and with a start
    of 0 it is not turned at all."""
    place = torch.arange(start + 1, start + query.shape[1] + 1)
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query, key):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


@misconception("cut off from the gradient", fails=("gradient",))
def cut_off_from_the_gradient(query, key, value, start):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data`, `.numpy()` and
    `torch.tensor(…)` forget where numbers came from, and the projections before the turn could not learn."""
    place = torch.arange(start, start + query.shape[1])
    angles = place[:, None] / 10000 ** (torch.arange(0, query.shape[-1], 2) / query.shape[-1])
    turned = []
    for x in (query.detach(), key.detach()):
        a, b = x[..., 0::2], x[..., 1::2]
        pair = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
        turned.append(torch.stack(pair, dim=-1).flatten(-2))
    return turned[0], turned[1], value


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
