"""Assignment 06: what a position may see, and what it may do with what it saw.

Function bodies below stand in for a learner's: they use torch alone, and the argument names of the contract.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from attncourse import attention
from attncourse.exercises.core import Exercise
from attncourse.exercises.judge import arrives, nonzero, row_sums, told
from attncourse.exercises.observe import gradients, telling

READY_MADE = (
    "attncourse.attention",
    "attncourse.efficient",
    "attncourse.layers",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.MultiheadAttention",
    "torch.nn.Transformer",
)

# -------------------------------------------------------------------------------------------------------- feed_forward


def _feed_forward(x, W_1, b_1, W_2, b_2):
    """max(0, x W_1 + b_1) W_2 + b_2. Vaswani et al. 2017, equation 2."""
    return (x @ W_1 + b_1).relu() @ W_2 + b_2


feed_forward = Exercise(
    "feed_forward",
    reference=_feed_forward,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    hints=(
        "Read the equation from the inside: a product, a bias, the maximum with 0, a product, a bias. Which shape does "
        "each step leave behind?",
        "`x @ W_1` multiplies the last axis and leaves all others alone, however many there are. The maximum of 0 and "
        "each number is `.relu()`, or `.clamp(min=0)`.",
    ),
)


def _network(draw, *shape):
    """x of this shape before its last axis, W_1, b_1, W_2, b_2: no two sizes alike."""
    d_model, d_ff = [size for size in draw.sizes(2 + len(shape), 3, 11) if size not in shape][:2]
    return [
        draw.normal(*shape, d_model),
        draw.normal(d_model, d_ff) / math.sqrt(d_model),
        draw.normal(d_ff),
        draw.normal(d_ff, d_model) / math.sqrt(d_ff),
        draw.normal(d_model),
    ]


@feed_forward.aspect("output", points=2)
def _(answer, draw):
    """widen, bend, come back, at every position"""
    batch, n = draw.sizes(2, 3, 8)
    return answer(*_network(draw, batch, n))


@feed_forward.aspect("any number of axes", points=1)
def _(answer, draw):
    """one vector alone, or four axes, go through the same network"""
    a, b, c = draw.sizes(3, 2, 5)
    return torch.cat([answer(*_network(draw)).flatten(), answer(*_network(draw, a, b, c)).flatten()])


@feed_forward.aspect("gradient", points=1, explain=arrives("x", "W_1", "b_1", "W_2", "b_2"))
def _(answer, draw):
    """the input and all four parameters can learn"""
    batch, n = draw.sizes(2, 3, 8)
    inputs = [tensor.requires_grad_() for tensor in _network(draw, batch, n)]
    return gradients(answer(*inputs), inputs, draw)


WHOLE = ("output", "any number of axes", "gradient")


@feed_forward.misconception("nothing bends", fails=WHOLE)
def _(x, W_1, b_1, W_2, b_2):
    """Two linear maps in a row are one linear map: W_1 W_2 could have been written down at once, and the wide middle
    gains nothing. What stands between them must bend: what it makes of a sum must not be just the sum of what it makes
    of the parts."""
    return (x @ W_1 + b_1) @ W_2 + b_2


@feed_forward.misconception("bends at the end", fails=WHOLE)
def _(x, W_1, b_1, W_2, b_2):
    """The output was cut off at zero. It is what the rest of the network goes on with, and must be free to be
    negative: the maximum with 0 stands in the middle, in the wide layer, and nowhere else."""
    return ((x @ W_1 + b_1) @ W_2 + b_2).relu()


@feed_forward.variant("bends at the end", fails=WHOLE)
def _(x, W_1, b_1, W_2, b_2):
    """In the middle as well."""
    return ((x @ W_1 + b_1).relu() @ W_2 + b_2).relu()


@feed_forward.misconception("bends before it widens", fails=WHOLE)
def _(x, W_1, b_1, W_2, b_2):
    """The input itself was cut off at zero, and half of what attention has collected is gone before anybody has looked
    at it. First the product with W_1, then the maximum."""
    return (x.relu() @ W_1 + b_1) @ W_2 + b_2


@feed_forward.misconception("bends before the bias", fails=WHOLE)
def _(x, W_1, b_1, W_2, b_2):
    """b_1 was added after the maximum with 0. Inside, it decides for each hidden number where the bend lies; outside,
    all bends lie at zero, and b_1 could be moved into b_2."""
    return ((x @ W_1).relu() + b_1) @ W_2 + b_2


@feed_forward.misconception("a bias left out", fails=WHOLE)
def _(x, W_1, b_1, W_2, b_2):
    """One of the two biases is missing (or both are). Read the equation once more: b_1 in the middle, b_2 at the
    end."""
    return (x @ W_1 + b_1).relu() @ W_2


@feed_forward.variant("a bias left out", fails=WHOLE)
def _(x, W_1, b_1, W_2, b_2):
    """The first one."""
    return (x @ W_1).relu() @ W_2 + b_2


@feed_forward.variant("a bias left out", fails=WHOLE)
def _(x, W_1, b_1, W_2, b_2):
    """Both."""
    return (x @ W_1).relu() @ W_2


@feed_forward.misconception("a function other than max(0, ·)", fails=WHOLE)
def _(x, W_1, b_1, W_2, b_2):
    """There is a bend in the middle, but a different one: GELU, tanh, a leaky ReLU, sigmoid, softmax. Those exist, and
    GELU is what many models use; this contract, like the original paper, says the maximum of 0 and each number."""
    return torch.nn.functional.gelu(x @ W_1 + b_1) @ W_2 + b_2


@feed_forward.variant("a function other than max(0, ·)", fails=WHOLE)
def _(x, W_1, b_1, W_2, b_2):
    """tanh."""
    return torch.tanh(x @ W_1 + b_1) @ W_2 + b_2


@feed_forward.variant("a function other than max(0, ·)", fails=WHOLE)
def _(x, W_1, b_1, W_2, b_2):
    """Sigmoid."""
    return torch.sigmoid(x @ W_1 + b_1) @ W_2 + b_2


@feed_forward.variant("a function other than max(0, ·)", fails=WHOLE)
def _(x, W_1, b_1, W_2, b_2):
    """Softmax, which also mixes the hidden numbers."""
    return (x @ W_1 + b_1).softmax(dim=-1) @ W_2 + b_2


@feed_forward.variant("a function other than max(0, ·)", fails=WHOLE)
def _(x, W_1, b_1, W_2, b_2):
    """The size of each number."""
    return (x @ W_1 + b_1).abs() @ W_2 + b_2


@feed_forward.variant("a function other than max(0, ·)", fails=WHOLE)
def _(x, W_1, b_1, W_2, b_2):
    """Not quite zero."""
    return torch.nn.functional.leaky_relu(x @ W_1 + b_1) @ W_2 + b_2


@feed_forward.misconception("the input added", fails=WHOLE)
def _(x, W_1, b_1, W_2, b_2):
    """The input was added to the output. That is the residual connection, which a Transformer puts around this network
    and not into it (lecture 08). Here, return the network's own output."""
    return x + (x @ W_1 + b_1).relu() @ W_2 + b_2


@feed_forward.misconception("three axes taken for granted", fails=("any number of axes",))
def _(x, W_1, b_1, W_2, b_2):
    """It works for (batch, n, d_model) and for nothing else. The network treats each vector by itself and need not
    know how many axes stand in front: `@` multiplies the last one and keeps the rest, as long as you do not unpack
    `x.shape` into three names, or ask for `bmm`."""
    batch, n, d = x.shape
    hidden = (x.reshape(batch * n, d) @ W_1 + b_1).relu()
    return (hidden @ W_2 + b_2).reshape(batch, n, d)


@feed_forward.misconception("cut off from the gradient", fails=("gradient",))
def _(x, W_1, b_1, W_2, b_2):
    """The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy, `torch.tensor(...)`
    and `torch.no_grad()` forget where numbers came from. Stay with tensor operations."""
    return ((x @ W_1 + b_1).relu().detach() @ W_2 + b_2).detach()


@feed_forward.variant("cut off from the gradient", fails=("gradient",))
def _(x, W_1, b_1, W_2, b_2):
    """In the middle alone."""
    return (x @ W_1 + b_1).relu().detach() @ W_2 + b_2


@feed_forward.alternative("maximum")
def _(x, W_1, b_1, W_2, b_2):
    """Writes the maximum as the equation does."""
    hidden = torch.maximum(torch.zeros(()), torch.matmul(x, W_1) + b_1)
    return torch.matmul(hidden, W_2) + b_2


@feed_forward.alternative("linear layers")
def _(x, W_1, b_1, W_2, b_2):
    """torch's own linear maps, which keep their matrices transposed."""
    hidden = torch.nn.functional.relu(torch.nn.functional.linear(x, W_1.T, b_1))
    return torch.nn.functional.linear(hidden, W_2.T, b_2)


@feed_forward.alternative("einsum and a condition, in double precision")
def _(x, W_1, b_1, W_2, b_2):
    """Names the axes."""
    hidden = torch.einsum("...d,df->...f", x.double(), W_1.double()) + b_1
    hidden = torch.where(hidden > 0, hidden, 0.0)
    return torch.einsum("...f,fd->...d", hidden, W_2.double()) + b_2


@feed_forward.alternative("one hidden number at a time")
def _(x, W_1, b_1, W_2, b_2):
    """A sum over the hidden layer of a bend times a row."""
    parts = [(x @ W_1[:, h] + b_1[h]).clamp(min=0)[..., None] * W_2[h] for h in range(len(b_1))]
    return sum(parts) + b_2


# --------------------------------------------------------------------------------------------------------- causal_mask

def _truth(got, expected):
    """For masks: says where the first wrong truth value stands."""
    place = tuple(int(i) for i in torch.from_numpy(got != expected).nonzero()[0])
    return f"at {list(place)} it says {bool(got[place])}, expected {bool(expected[place])}"


def _some(words):
    """For a part of a mask, which has lost its places: says how much of it is wrong."""
    return lambda got, expected: f"{(got != expected).sum()} of {got.size} {words}"


causal_mask = Exercise(
    "causal_mask",
    reference=attention.causal_mask,
    returns=("mask",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    hints=(
        "Draw it for n = 3. Row i asks, column j answers. Which cells may be True for the first row? For the last?",
        "With `i = torch.arange(n)[:, None]` and `j = torch.arange(n)` a comparison of the two is a whole table. Which "
        "comparison?",
    ),
)


def _below(n: int) -> Tensor:
    """Where j < i."""
    return torch.ones(n, n, dtype=torch.bool).tril(-1)


@causal_mask.aspect("past", points=1, explain=_some("looks at an earlier position are forbidden"))
def _(answer, draw):
    """a position sees all that came before it"""
    [n] = draw.sizes(1, 4, 9)
    return telling(answer(n))[_below(n)]


@causal_mask.aspect("itself", points=1, explain=_some("positions may not look at themselves"))
def _(answer, draw):
    """it sees itself, and so does a sentence of one word"""
    [n] = draw.sizes(1, 4, 9)
    return torch.cat([telling(answer(n)).diagonal(), answer(1).flatten()])


@causal_mask.aspect("future", points=2, explain=_some("looks at a later position are allowed"))
def _(answer, draw):
    """it sees nothing that comes after it"""
    [n] = draw.sizes(1, 4, 9)
    return telling(answer(n))[_below(n).T]


TRIANGLE = ("past", "itself", "future")


@causal_mask.misconception("not even itself", fails=("itself",))
def _(n):
    """The diagonal is False: a position may not look at itself, and the first one may look at nobody, so softmax makes
    0/0 of its row. (Two slides print it like this.) When word i is read, word i is no secret; the secret is word i +
    1, which is to be predicted."""
    return torch.ones(n, n, dtype=torch.bool).tril(-1)


@causal_mask.misconception("True for what is forbidden", fails=TRIANGLE)
def _(n):
    """This is the mask of what must *not* be seen. torch's `nn.MultiheadAttention` wants it that way round; here, and
    in `scaled_dot_product_attention`, True means "may attend"."""
    return torch.ones(n, n, dtype=torch.bool).triu(1)


@causal_mask.misconception("future for past", fails=("past", "future"))
def _(n):
    """Rows and columns have changed places: position i sees itself and everything *after* it. Row i is the one that
    asks, column j the one that answers; which of the two must be the later?"""
    return torch.ones(n, n, dtype=torch.bool).triu()


@causal_mask.misconception("one step of the future", fails=("future",))
def _(n):
    """Position i sees position i + 1 as well: the very word that it is asked to predict. The loss will be wonderful
    and the model useless. Look at what stands right above the diagonal."""
    return torch.ones(n, n, dtype=torch.bool).tril(1)


@causal_mask.misconception("numbers for booleans", fails=TRIANGLE)
def _(n):
    """These are numbers. A mask of this course is boolean, so that `~mask` and `&` mean what they say, and nobody must
    ask whether 1 allows or forbids. A comparison makes booleans, and so does `dtype=torch.bool`."""
    return torch.tril(torch.ones(n, n))


@causal_mask.variant("numbers for booleans", fails=TRIANGLE)
def _(n):
    """0 and −∞, to be added to the scores."""
    return torch.full((n, n), -torch.inf).triu(1)


@causal_mask.variant("numbers for booleans", fails=TRIANGLE)
def _(n):
    """Whole numbers."""
    return torch.tril(torch.ones(n, n, dtype=torch.int64))


@causal_mask.misconception("itself alone", fails=("past",))
def _(n):
    """Only the diagonal is True: every position looks at itself, and nothing is passed on any more. The past is
    allowed, all of it."""
    return torch.eye(n, dtype=torch.bool)


@causal_mask.alternative("a comparison")
def _(n):
    """Of places."""
    place = torch.arange(n)
    return place <= place[:, None]


@causal_mask.alternative("not the future")
def _(n):
    """The complement, as a view that is not contiguous."""
    return (~torch.ones(n, n).tril(-1).bool()).T


@causal_mask.alternative("row by row")
def _(n):
    """Two loops."""
    mask = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        for j in range(i + 1):
            mask[i, j] = True
    return mask


# -------------------------------------------------------------------------------------------------------- padding_mask


def _padding_mask(lengths, n):
    """Which keys are words, the same for every query: (batch, 1, n)."""
    return attention.lengths_to_mask(lengths, n)[:, None, :]


padding_mask = Exercise(
    "padding_mask",
    reference=_padding_mask,
    returns=("mask",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=10,
    hints=(
        "For a sentence of 2 words, padded to n = 5, write down the five truth values. They are a comparison of 0, 1, "
        "2, 3, 4 with something.",
        "`torch.arange(n) < lengths[:, None]` has a row for each sentence. Where does the axis of length one belong, "
        "so that the table of scores (batch, n_query, n_key) loses *columns*?",
    ),
)


def _lengths(draw, batch: int, n: int) -> Tensor:
    """One full sentence, the others shorter, in no order, none empty."""
    lengths = 1 + draw.integers(n - 1, batch)
    lengths[draw.integers(batch, 1)] = n
    return lengths


@padding_mask.aspect("words and padding", points=2, explain=_truth)
def _(answer, draw):
    """True for the words of each sentence, False for what fills it up"""
    batch, n = draw.sizes(2, 3, 8)
    return answer(_lengths(draw, batch, n), n)


@padding_mask.aspect("with a causal mask", points=1, explain=_truth)
def _(answer, draw):
    """combined with a causal mask by &, it forbids columns of every sentence's table"""
    batch, n = draw.sizes(2, 3, 8)
    return answer(_lengths(draw, batch, n), n) & torch.ones(n, n, dtype=torch.bool).tril()


@padding_mask.aspect("no full sentence", points=1, explain=_truth)
def _(answer, draw):
    """n columns, even if the longest sentence of the batch is shorter, or one is empty"""
    batch, n = draw.sizes(2, 4, 8)
    lengths = 1 + draw.integers(n - 2, batch)
    lengths[draw.integers(batch, 1)] = 0
    return answer(lengths, n)


ALL_MASKS = ("words and padding", "with a causal mask", "no full sentence")


@padding_mask.misconception("rows for columns", fails=ALL_MASKS)
def _(lengths, n):
    """The axis of length one stands at the end, so the mask forbids *rows*: padding may not ask, and everybody may
    still look at it. It is the other way round that matters. Nobody may look at padding; what padding itself asks is
    thrown away anyhow."""
    return (torch.arange(n) < lengths[:, None])[:, :, None]


@padding_mask.misconception("no axis for the queries", fails=ALL_MASKS)
def _(lengths, n):
    """The shape is (batch, n). Beside a table of scores (batch, n_query, n_key) torch takes that for (n_query, n_key):
    it complains, or, should batch and n_query be equal, masks one sentence's queries by another's length and says
    nothing. An axis of length one in the middle says "the same for every query"."""
    return torch.arange(n) < lengths[:, None]


@padding_mask.misconception("rows and columns", fails=ALL_MASKS)
def _(lengths, n):
    """The table is square, and False wherever the *query* is padding, too. Then a padded query has nobody to look at,
    and its row becomes 0/0. It needs no mask: what comes out there is never used. The mask is the same for every query,
    which is what the axis of length one says."""
    words = torch.arange(n) < lengths[:, None]
    return words[:, :, None] & words[:, None, :]


@padding_mask.misconception("mask upside down", fails=ALL_MASKS)
def _(lengths, n):
    """The padding may be seen and the words may not. True means "may attend"."""
    return (torch.arange(n) >= lengths[:, None])[:, None]


@padding_mask.misconception("one too many or one too few", fails=ALL_MASKS)
def _(lengths, n):
    """It is off by one: a sentence of 2 words stands at the positions 0 and 1. Try it with one word, and count the
    Trues."""
    return (torch.arange(n) <= lengths[:, None])[:, None]


@padding_mask.variant("one too many or one too few", fails=ALL_MASKS)
def _(lengths, n):
    """Counted from one, and below."""
    return (torch.arange(1, n + 1) < lengths[:, None])[:, None]


@padding_mask.misconception("words at the end", fails=ALL_MASKS)
def _(lengths, n):
    """The mask is for sentences with their padding in *front*. Here the words come first, at the positions 0 to
    lengths[b] − 1, and the padding comes after them."""
    return (torch.arange(n) >= n - lengths[:, None])[:, None]


@padding_mask.misconception("as wide as the longest sentence", fails=("no full sentence",))
def _(lengths, n):
    """The width was taken from the longest sentence of the batch. It is n that says how wide the batch is: it may have
    been padded further, to a fixed size."""
    return (torch.arange(int(lengths.max())) < lengths[:, None])[:, None]


@padding_mask.misconception("numbers for booleans", fails=ALL_MASKS)
def _(lengths, n):
    """These are numbers, and a mask is boolean: `~mask` of numbers is not its opposite, and `&` may refuse them. A
    comparison makes booleans; leave them as they are."""
    return (torch.arange(n) < lengths[:, None])[:, None].int()


@padding_mask.variant("numbers for booleans", fails=ALL_MASKS)
def _(lengths, n):
    """Floats."""
    return (torch.arange(n) < lengths[:, None])[:, None].float()


@padding_mask.alternative("one sentence at a time")
def _(lengths, n):
    """A list of rows."""
    rows = [[j < length for j in range(n)] for length in lengths.tolist()]
    return torch.tensor(rows).unsqueeze(1)


@padding_mask.alternative("filled by slices")
def _(lengths, n):
    """Begins with nobody."""
    mask = torch.zeros(len(lengths), 1, n, dtype=torch.bool)
    for sentence, length in enumerate(lengths):
        mask[sentence, 0, :length] = True
    return mask


@padding_mask.alternative("three axes at once")
def _(lengths, n):
    """By views."""
    return torch.arange(n).view(1, 1, -1).lt(lengths.view(-1, 1, 1))


# ---------------------------------------------------------------------------------------------------- masked_attention

masked_attention = Exercise(
    "masked_attention",
    reference=attention.attend,
    returns=("output", "weights"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=20,
    hints=(
        "Four steps: scores, mask, softmax, average. What must a forbidden score be, for the softmax to make exactly 0 "
        "of it?",
        "A row with nothing allowed is −∞ throughout, and comes out of the softmax as NaN. What do you want there, and "
        "which of `mask`'s truth values tell you where?",
        "`scores.masked_fill(~mask, -torch.inf).softmax(dim=-1).masked_fill(~mask, 0.0)`: the second filling puts "
        "zeros where 0/0 came out, and on the way back the first one keeps the NaN out of the gradient.",
    ),
)


def _vectors(draw, batch, n_query, n_key):
    """Queries, keys and values, no two sizes alike."""
    d_k, d_v = [size for size in draw.sizes(5, 3, 9) if size not in (batch, n_query, n_key)][:2]
    return draw.normal(batch, n_query, d_k), draw.normal(batch, n_key, d_k), draw.normal(batch, n_key, d_v)


def _one_lonely(draw, batch, n_query, n_key):
    """A mask (batch, n_query, n_key) in which one query, of a sentence that is not the first, may look at nobody."""
    mask = draw.uniform(batch, n_query, n_key) < 0.6
    mask[..., 0] = True
    mask[1 + draw.integers(batch - 1, 1), draw.integers(n_query, 1)] = False
    return mask


@masked_attention.aspect("causal", points=2)
def _(answer, draw):
    """with a causal mask (n, n), each position gets an average of itself and its past"""
    batch, n = draw.sizes(2, 3, 7)
    return answer(*_vectors(draw, batch, n, n), torch.ones(n, n, dtype=torch.bool).tril())[0]


@masked_attention.aspect("forbidden", points=1, explain=nonzero)
def _(answer, draw):
    """weights of exactly zero on padding, with a mask (batch, 1, n_key)"""
    batch, n_query, n_key = draw.sizes(3, 3, 7)
    mask = draw.padding_mask(batch, n_key)[:, None]
    return telling(answer(*_vectors(draw, batch, n_query, n_key), mask)[1]) * ~mask


@masked_attention.aspect("allowed", points=1, explain=row_sums)
def _(answer, draw):
    """and the words share everything"""
    batch, n_query, n_key = draw.sizes(3, 3, 7)
    mask = draw.padding_mask(batch, n_key)[:, None]
    return answer(*_vectors(draw, batch, n_query, n_key), mask)[1] * mask


@masked_attention.aspect(
    "nothing allowed", points=1, explain=told("at {place} the output is {got}, expected {expected}")
)
def _(answer, draw):
    """a query that may look at nobody gets zeros, and disturbs nobody else"""
    batch, n_query, n_key = draw.sizes(3, 3, 7)
    vectors = _vectors(draw, batch, n_query, n_key)
    return answer(*vectors, _one_lonely(draw, batch, n_query, n_key))[0]


@masked_attention.aspect("gradient", points=1, explain=arrives("query", "key", "value"))
def _(answer, draw):
    """queries, keys and values can learn, even next to a query that may look at nobody"""
    batch, n_query, n_key = draw.sizes(3, 3, 7)
    vectors = [tensor.requires_grad_() for tensor in _vectors(draw, batch, n_query, n_key)]
    output, _ = answer(*vectors, _one_lonely(draw, batch, n_query, n_key))
    return gradients(output, vectors, draw)


@masked_attention.aspect("half precision", points=1)
def _(answer, draw):
    """the future is forbidden in float16 as well"""
    batch, n = 2, 4 + int(draw.integers(3, 1))
    # Query i looks for the key of a place of its past, and likes that of the next place even better. All numbers are
    # such that the right weights are 0 and 1 in float16 too.
    goal = torch.tensor([int(draw.integers(i + 1, 1)) for i in range(n)])
    key = 16 * torch.eye(n)
    query = key[goal] + 1.5 * torch.cat([key[1:], torch.zeros(1, n)])
    value = draw.integers(64, batch, n, 3) / 8
    query, key = (x.expand(batch, n, n).half() for x in (query, key))
    output, _ = answer(query, key, value.half(), torch.ones(n, n, dtype=torch.bool).tril())
    return output.float()


EVERY = ("causal", "forbidden", "allowed", "nothing allowed", "gradient", "half precision")


@masked_attention.misconception("mask upside down", fails=EVERY)
def _(query, key, value, mask):
    """What may be seen was forbidden, and what may not be seen is all that is left. True means "may attend": fill
    where the mask is False, `~mask`."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(mask, -torch.inf).softmax(dim=-1).masked_fill(mask, 0.0)
    return weights @ value, weights


@masked_attention.variant("mask upside down", fails=EVERY)
def _(query, key, value, mask):
    """With the NaN left in."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(mask, -torch.inf).softmax(dim=-1)
    return weights @ value, weights


@masked_attention.misconception("no mask", fails=EVERY)
def _(query, key, value, mask):
    """The mask was not used: everybody looks at everybody, at the future and at padding too."""
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1)
    return weights @ value, weights


@masked_attention.misconception("zeros after the softmax", fails=("causal", "allowed", "nothing allowed", "gradient",
                                                                 "half precision"))
def _(query, key, value, mask):
    """The weights were set to zero after the softmax. What was taken from the forbidden places is given to nobody, so
    rows sum to less than one; and the allowed weights still depend on the forbidden scores, which are in the
    denominator. Mask the scores, then let softmax share out the whole."""
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1) * mask
    return weights @ value, weights


@masked_attention.misconception("a score of 0", fails=EVERY[:-1])
def _(query, key, value, mask):
    """Forbidden scores were set to 0. Softmax makes e⁰ = 1 of that, more than of any negative score. Which score does
    it turn into nothing at all?"""
    weights = (query @ key.mT / math.sqrt(query.shape[-1]) * mask).softmax(dim=-1)
    return weights @ value, weights


@masked_attention.misconception("the mask added to the scores", fails=EVERY)
def _(query, key, value, mask):
    """The mask was added to the scores: True counts as 1, so that what is allowed scores one more, and the rest is
    still there. A boolean mask is a condition, for `masked_fill` or `torch.where`. (Masks that are added exist; they
    hold 0 and −∞.)"""
    weights = (query @ key.mT / math.sqrt(query.shape[-1]) + mask.to(query.dtype)).softmax(dim=-1)
    return weights @ value, weights


@masked_attention.misconception("NaN where nothing is allowed", fails=("nothing allowed", "gradient"))
def _(query, key, value, mask):
    """A row in which nothing is allowed came out as 0/0. One such row is enough: in the next layer everybody
    multiplies its NaN by some weight, and 0 · NaN is NaN. Give it zeros."""
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(~mask, -torch.inf).softmax(dim=-1)
    return weights @ value, weights


@masked_attention.variant("NaN where nothing is allowed", fails=("nothing allowed", "gradient", "half precision"))
def _(query, key, value, mask):
    """Zeros after the softmax, and divided again."""
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1) * mask
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights @ value, weights


@masked_attention.misconception("NaN on the way back", fails=("gradient",))
def _(query, key, value, mask):
    """The output is right, but the gradient is NaN. Where a row came out of the softmax as 0/0, NaN was replaced
    afterwards; on the way back the softmax multiplies the 0 that arrives there by its own NaN. Let the last thing
    before the softmax be a filling of forbidden *scores*, which lets no gradient back to them, or give the softmax
    numbers that it can divide."""
    bias = torch.zeros(mask.shape, dtype=query.dtype).masked_fill(~mask, -torch.inf)
    weights = (query @ key.mT / math.sqrt(query.shape[-1]) + bias).softmax(dim=-1)
    weights = torch.where(mask, weights, 0.0)
    return weights @ value, weights


@masked_attention.misconception("−1e9 for −∞", fails=("nothing allowed", "gradient", "half precision"))
def _(query, key, value, mask):
    """A large negative number is not −∞. float16 ends at −65504 and cannot hold −1e9; and in a row where *everything*
    is forbidden all scores are equal again, so softmax gives an even share to each of those who may not be seen."""
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(~mask, -1e9).softmax(dim=-1)
    return weights @ value, weights


@masked_attention.variant("−1e9 for −∞", fails=("nothing allowed", "gradient"))
def _(query, key, value, mask):
    """Less, which float16 holds."""
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(~mask, -1e4).softmax(dim=-1)
    return weights @ value, weights


@masked_attention.variant("−1e9 for −∞", fails=("nothing allowed", "gradient"))
def _(query, key, value, mask):
    """The lowest finite number, and no zeros afterwards."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)
    return weights @ value, weights


@masked_attention.misconception("0 · ∞", fails=EVERY)
def _(query, key, value, mask):
    """The mask, as 0 and 1, was multiplied by −∞ and then added. Where looking is allowed that is 0 · −∞, and
    floating-point arithmetic calls it NaN. Choose by a condition instead: `masked_fill` or `torch.where`."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = (scores + (1 - mask.to(scores.dtype)) * -torch.inf).softmax(dim=-1)
    return weights @ value, weights


@masked_attention.misconception("normalises over the queries", fails=EVERY)
def _(query, key, value, mask):
    """Your weights sum to one down each column. It is each query that shares out its attention over the keys: softmax
    along the last axis."""
    scores = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(~mask, -torch.inf)
    weights = scores.softmax(dim=-2)
    return weights @ value, weights


@masked_attention.variant("normalises over the queries", fails=("causal", "allowed", "nothing allowed", "gradient",
                                                               "half precision"))
def _(query, key, value, mask):
    """With zeros for what is forbidden afterwards."""
    scores = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(~mask, -torch.inf)
    weights = scores.softmax(dim=-2).masked_fill(~mask, 0.0)
    return weights @ value, weights


@masked_attention.misconception("a scale other than √d_k", fails=("causal", "allowed", "nothing allowed", "gradient"))
def _(query, key, value, mask):
    """The scores were not divided by √d_k, the root of the width of queries and keys, but by nothing or by something
    else. (The mask works.)"""
    weights = (query @ key.mT).masked_fill(~mask, -torch.inf).softmax(dim=-1).masked_fill(~mask, 0.0)
    return weights @ value, weights


@masked_attention.variant("a scale other than √d_k", fails=("causal", "allowed", "nothing allowed", "gradient"))
def _(query, key, value, mask):
    """The values' width."""
    scores = query @ key.mT / math.sqrt(value.shape[-1])
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1).masked_fill(~mask, 0.0)
    return weights @ value, weights


@masked_attention.variant("a scale other than √d_k", fails=("causal", "allowed", "nothing allowed", "gradient"))
def _(query, key, value, mask):
    """No root."""
    scores = query @ key.mT / query.shape[-1]
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1).masked_fill(~mask, 0.0)
    return weights @ value, weights


@masked_attention.misconception("scores for weights", fails=("forbidden", "allowed"))
def _(query, key, value, mask):
    """The output is right, and what came back as weights are the scores, from before the softmax."""
    scores = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(~mask, -torch.inf)
    return scores.softmax(dim=-1).masked_fill(~mask, 0.0) @ value, scores


@masked_attention.alternative("a condition, and NaN made zero")
def _(query, key, value, mask):
    """torch.where, and an end to the NaN."""
    scores = torch.einsum("bqd,bkd->bqk", query, key) * query.shape[-1] ** -0.5
    weights = torch.where(mask, scores, float("-inf")).softmax(-1).nan_to_num(0.0)
    return torch.einsum("bqk,bkv->bqv", weights, value), weights


@masked_attention.alternative("added, then zeros")
def _(query, key, value, mask):
    """A mask of 0 and the lowest finite number, in the scores' own type."""
    bias = torch.zeros(mask.shape, dtype=query.dtype).masked_fill(mask.logical_not(), torch.finfo(query.dtype).min / 2)
    weights = torch.softmax(torch.matmul(query, key.transpose(1, 2)) / math.sqrt(key.size(-1)) + bias, dim=-1)
    weights = torch.where(mask, weights, torch.zeros((), dtype=query.dtype))
    return torch.bmm(weights, value), weights


@masked_attention.alternative("exponentials by hand")
def _(query, key, value, mask):
    """Shares of what is allowed; the maximum is taken over that alone."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    top = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).amax(dim=-1, keepdim=True)
    shares = (scores - top).masked_fill(~mask, -torch.inf).exp()
    weights = shares / shares.sum(dim=-1, keepdim=True).clamp(min=1e-7)
    return weights @ value, weights


@masked_attention.alternative("one query at a time, in double precision")
def _(query, key, value, mask):
    """Keeps what is allowed and forgets the rest."""
    batch, n_query, d_k = query.shape
    mask = mask.expand(batch, n_query, key.shape[1])
    weights = torch.zeros(batch, n_query, key.shape[1], dtype=torch.float64)
    for b in range(batch):
        for i in range(n_query):
            allowed = mask[b, i]
            scores = key[b, allowed].double() @ query[b, i].double() / math.sqrt(d_k)
            weights[b, i, allowed] = scores.softmax(dim=0)
    return weights @ value.double(), weights


# ------------------------------------------------------------------------------------------------------ test_for_leaks

# A change of the future that moves an output by less than this is rounding.
ROUNDING = 1e-5


def _test_for_leaks(model, x):
    """Whether any output of `model` depends on what comes after it."""
    before = model(x)
    for i in range(x.shape[1] - 1):
        for size in (1.0, 100.0):
            changed = torch.cat([x[:, : i + 1], size * torch.randn_like(x[:, i + 1 :])], dim=1)
            after = model(changed)[:, : i + 1]
            if not torch.allclose(after, before[:, : i + 1], rtol=ROUNDING, atol=ROUNDING, equal_nan=True):
                return torch.tensor(True)
    return torch.tensor(False)


test_for_leaks = Exercise(
    "test_for_leaks",
    reference=_test_for_leaks,
    returns=("leaks",),
    truths=True,
    difficulty=3,
    minutes=40,
    hints=(
        "If you change only what comes after position i, which outputs may change, and which must stay as they were? "
        "Ask that for every i.",
        "`changed = x.clone()`, then other numbers in `changed[:, i + 1:]`, all features, once as large as usual and "
        "once a hundred times as large. Compare `model(changed)[:, :i + 1]` with what was there before.",
        "When you compare: NaN is not equal to NaN, and NaN > 0.1 is False, so a difference of NaN hides what stands "
        "beside it. `torch.allclose` takes `atol`, and `equal_nan=True`.",
    ),
)

Model = Callable[[Tensor, Tensor], Tensor]  # (x (batch, n, d), drawn matrices (3, d, d)) -> (batch, n, d_out)


def _heed(x: Tensor, W: Tensor, allowed: Tensor) -> Tensor:
    """Self-attention in which a query with nobody to look at gets zeros."""
    return attention.attend(x @ W[0], x @ W[1], x @ W[2], allowed)[0]


def _bare(x: Tensor, W: Tensor, allowed: Tensor) -> Tensor:
    """The same, in which it gets NaN."""
    scores = (x @ W[0]) @ (x @ W[1]).mT / math.sqrt(x.shape[-1])
    return scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1) @ (x @ W[2])


def _table(x: Tensor) -> Tensor:
    """(n, n), True."""
    return torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)


def _so_far(x: Tensor) -> Tensor:
    """How many positions there are up to each, (n, 1)."""
    return torch.arange(1, x.shape[1] + 1)[:, None]


def _causal(x: Tensor, W: Tensor) -> Tensor:
    return _heed(x, W, _table(x).tril())


def _recurrent(x: Tensor, W: Tensor) -> Tensor:
    h, states = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        h = torch.tanh(x[:, t] @ W[0] + h @ W[1])
        states.append(h)
    return torch.stack(states, dim=1)


def _pairs(x: Tensor) -> Tensor:
    """Whether i and j lie in one chunk of two."""
    chunk = torch.arange(x.shape[1]) // 2
    return chunk[:, None] == chunk


def _alone(x: Tensor) -> Tensor:
    """Each position may look at itself and at nobody else."""
    return _table(x).tril() & _table(x).triu()


def _no_first(x: Tensor) -> Tensor:
    """Everybody may look at everybody, but for the first position, which may look at nobody."""
    return _table(x) & (torch.arange(x.shape[1]) > 0)[:, None]


def _up_to(x: Tensor, limit: int = 3) -> Tensor:
    """A causal mask that was made for `limit` positions: behind those nothing is forbidden."""
    allowed = _table(x).tril()
    allowed[limit:, limit:] = True
    return allowed


def _centred(x: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def _large(x: Tensor) -> Tensor:
    """What of each number lies beyond 5: nothing, for numbers of the usual size."""
    return (x.abs() - 5).relu()


def _beside_rounding(x: Tensor, W: Tensor) -> Tensor:
    """Causal attention whose softmax subtracts the largest score of *all*, which changes nothing but the rounding."""
    query, key = (x @ w / ((x @ w).norm(dim=-1, keepdim=True) + 1e-6) for w in W[:2])
    scores = 3 * query @ key.mT
    shares = (scores - scores.amax(dim=-1, keepdim=True)).exp() * _table(x).tril()
    return shares / shares.sum(dim=-1, keepdim=True) @ (2 + torch.tanh(x))


# In every family: a test that misses or accuses these does not miss what the family is about, but something simpler.
CONTROLS: tuple[tuple[str, bool, Model], ...] = (
    ("a model that returns at each position the vector of the next one", True, lambda x, W: x.roll(-1, dims=1)),
    ("a model that adds the mean of the whole sentence", True, lambda x, W: x + x.mean(dim=1, keepdim=True)),
    ("a model that returns every vector as it is", False, lambda x, W: x.clone()),
)


def _family(name: str, meaning: str, *family: tuple[str, bool, Model]) -> None:
    """An aspect: models, each with its story and whether it leaks. At least one does, and at least one does not."""
    models = family + CONTROLS

    def look(answer, draw):
        batch, d = 2 + int(draw.integers(2, 1)), 4 + 2 * int(draw.integers(2, 1))
        n = 5 + 2 * int(draw.integers(2, 1))  # odd: the last position is alone where chunks are pairs
        x, W = draw.normal(batch, n, d), draw.normal(3, d, d) / math.sqrt(d)

        def of(model: Model) -> Callable[[Tensor], Tensor]:
            return lambda x: model(x, W)

        return torch.stack([answer(of(model), x) for _, _, model in models])

    def explain(got, expected):
        for (story, leaks, _), said in zip(models, got, strict=True):
            if bool(said) != leaks:
                return f"{'misses' if leaks else 'wrongly accuses'} {story}"
        return None

    look.__doc__ = meaning
    test_for_leaks.aspect(name, points=1, explain=explain)(look)


_family(
    "no mask",
    "catches attention without a mask; leaves causal attention and a recurrent network alone",
    ("attention without any mask", True, lambda x, W: _heed(x, W, _table(x))),
    ("attention with a causal mask", False, _causal),
    ("a recurrent network, which has no way to look ahead", False, _recurrent),
)
_family(
    "one step too far",
    "catches a mask with j ≤ i + 1; leaves j ≤ i and j < i alone",
    ("a mask that allows j ≤ i + 1", True, lambda x, W: _heed(x, W, _table(x).tril(1))),
    ("a mask that allows j ≤ i", False, _causal),
    ("a mask that allows j < i, with zeros in the first row", False, lambda x, W: _heed(x, W, _table(x).tril(-1))),
)
_family(
    "inside a chunk",
    "catches a leak that never comes from the last position",
    ("attention in chunks of two, in which the mask inside a chunk was forgotten (the last position is alone in its "
     "chunk and tells nobody)", True, lambda x, W: _heed(x, W, _table(x).tril() | _pairs(x))),
    ("attention inside chunks of two, with a mask", False, lambda x, W: _heed(x, W, _table(x).tril() & _pairs(x))),
)  # fmt: skip
_family(
    "past the limit",
    "catches a leak that never reaches the first positions",
    ("a mask made for three positions, past which nothing is forbidden", True, lambda x, W: _heed(x, W, _up_to(x))),
    ("attention with a causal mask", False, _causal),
)
_family(
    "outputs that sum to zero",
    "catches a leak that does not show in the sum of an output's numbers",
    ("attention without a mask, followed by a LayerNorm: the numbers of each output always sum to zero", True,
     lambda x, W: _centred(_heed(x, W, _table(x)))),
    ("the same with a causal mask", False, lambda x, W: _centred(_causal(x, W))),
)  # fmt: skip
_family(
    "no gradient",
    "catches a leak through which no gradient flows",
    ("a model that subtracts the mean of the whole sentence, detached", True,
     lambda x, W: x @ W[0] - x.mean(dim=1, keepdim=True).detach()),
    ("a model that subtracts the mean of what was read so far, detached", False,
     lambda x, W: x @ W[0] - x.cumsum(dim=1).detach() / _so_far(x)),
)  # fmt: skip
_family(
    "in steps",
    "catches a leak that small changes do not show",
    ("a model that counts the positive numbers of the whole sentence", True,
     lambda x, W: x @ W[0] + (x > 0).float().mean(dim=1, keepdim=True)),
    ("a model that counts those that it has read so far", False,
     lambda x, W: x @ W[0] + (x > 0).float().cumsum(dim=1) / _so_far(x)),
)  # fmt: skip
_family(
    "one feature",
    "catches a leak of one feature alone",
    ("a causal model to which the last feature's mean over the whole sentence is added", True,
     lambda x, W: _causal(x, W) + x[..., -1:].mean(dim=1, keepdim=True)),
    ("a causal model to which its mean over what was read is added", False,
     lambda x, W: _causal(x, W) + x[..., -1:].cumsum(dim=1) / _so_far(x)),
)  # fmt: skip
_family(
    "a sleeper",
    "catches a leak that only large numbers wake up",
    ("a model that looks ahead only where a number in the future is larger than 5", True,
     lambda x, W: _causal(x, W) + _large(x).amax(dim=1, keepdim=True)),
    ("a model that looks for such numbers in its past", False,
     lambda x, W: _causal(x, W) + _large(x).cummax(dim=1).values),
)  # fmt: skip
_family(
    "faint, or rounding",
    "tells a faint leak from rounding",
    ("a causal model to which a fiftieth of the tanh of the whole sentence's mean is added", True,
     lambda x, W: _causal(x, W) + torch.tanh(x.mean(dim=1, keepdim=True)) / 50),
    ("a causal model in which the future changes nothing but the rounding, by about 1e-7", False, _beside_rounding),
)  # fmt: skip
_family(
    "NaN",
    "catches a leak beside a row of NaN, and does not take such a row for a leak",
    ("a mask upside down: each position sees its future alone, and the last one, which has none, is NaN", True,
     lambda x, W: _bare(x, W, _table(x).triu(1))),
    ("attention without a mask, whose first row is always NaN", True, lambda x, W: _bare(x, W, _no_first(x))),
    ("a mask that allows j < i, with NaN in the first row, whatever comes after it", False,
     lambda x, W: _bare(x, W, _table(x).tril(-1))),
)  # fmt: skip
_family(
    "the rest of the batch",
    "does not take other sentences for the future",
    ("a model that subtracts the mean over sentences and positions", True,
     lambda x, W: x @ W[0] - (x @ W[1]).mean(dim=(0, 1))),
    ("a model in which each position sees only itself and the same position in the other sentences", False,
     lambda x, W: _heed(x, W, _alone(x)) - (x @ W[1]).mean(dim=0)),
)  # fmt: skip

EVERY_FAMILY = tuple(aspect.name for aspect in test_for_leaks.aspects)


@test_for_leaks.misconception("accuses every model", fails=EVERY_FAMILY)
def _(model, x):
    """Every model was accused, even the correct ones. Either you compare an output that is *allowed* to change, at the
    changed position itself or after it; or you change something in its past. Draw a line after position i: change what
    is right of it, compare what is left of it."""
    before = model(x)
    for i in range(x.shape[1]):
        changed = x.clone()
        changed[:, i] = torch.randn(x.shape[0], x.shape[2])
        if not torch.allclose(model(changed), before, atol=1e-5, equal_nan=True):
            return True
    return False


@test_for_leaks.variant("accuses every model", fails=EVERY_FAMILY)
def _(model, x):
    """The slice begins one place too early."""
    before = model(x)
    for i in range(x.shape[1]):
        changed = x.clone()
        changed[:, i:] = torch.randn_like(x[:, i:])
        if not torch.allclose(model(changed)[:, : i + 1], before[:, : i + 1], atol=1e-5, equal_nan=True):
            return True
    return False


@test_for_leaks.misconception("acquits every model", fails=EVERY_FAMILY)
def _(model, x):
    """No model was accused, not even attention without a mask. Either nothing was changed, or nothing was compared:
    look at your slices for some i, and print how much `x` and the outputs differ."""
    before = model(x)
    for i in range(x.shape[1]):
        changed = x.clone()
        changed[:, i + 1 :] = torch.randn_like(x[:, i + 1 :])
        if not torch.allclose(model(x)[:, : i + 1], before[:, : i + 1], atol=1e-5, equal_nan=True):
            return True
    return False


@test_for_leaks.misconception("past and future exchanged", fails=EVERY_FAMILY[:-1])
def _(model, x):
    """You changed the past and looked to see whether what comes later moves. In a correct model it does: the past is
    what it reads. Do it the other way round: change what comes after position i, and compare the outputs up to i."""
    before = model(x)
    for i in range(1, x.shape[1]):
        changed = x.clone()
        changed[:, :i] = torch.randn_like(x[:, :i])
        if not torch.allclose(model(changed)[:, i:], before[:, i:], atol=1e-5, equal_nan=True):
            return True
    return False


@test_for_leaks.misconception("a gap of one", fails=EVERY_FAMILY)
def _(model, x):
    """Between the outputs that were compared and the inputs that were changed one position was left out, so a model
    that looks exactly one step ahead goes free; and that is the leak that pays best, and the slip that is made most
    easily. What is changed must begin right after the last output that is compared."""
    before = model(x)
    for i in range(1, x.shape[1] - 1):
        for size in (1, 100):
            changed = x.clone()
            changed[:, i + 1 :] = size * torch.randn_like(x[:, i + 1 :])
            if not torch.allclose(model(changed)[:, :i], before[:, :i], atol=1e-5, equal_nan=True):
                return True
    return False


@test_for_leaks.misconception("True for a correct model", fails=EVERY_FAMILY)
def _(model, x):
    """Every verdict is the opposite of the right one. The question is "does it leak?": True accuses."""
    before = model(x)
    for i in range(x.shape[1] - 1):
        for size in (1, 100):
            changed = x.clone()
            changed[:, i + 1 :] = size * torch.randn_like(x[:, i + 1 :])
            if not torch.allclose(model(changed)[:, : i + 1], before[:, : i + 1], atol=1e-5, equal_nan=True):
                return False
    return True


@test_for_leaks.misconception("only the last position is changed", fails=("inside a chunk",))
def _(model, x):
    """Only the last position was changed. A leak need not come from there: position 2 may see position 3 while nobody
    sees the last one. Every position but one has a future; try them all."""
    before = model(x)
    for size in (1, 100):
        changed = x.clone()
        changed[:, -1] = size * torch.randn_like(x[:, -1])
        if not torch.allclose(model(changed)[:, :-1], before[:, :-1], atol=1e-5, equal_nan=True):
            return True
    return False


@test_for_leaks.misconception("not every position is looked at", fails=("past the limit", "NaN"))
def _(model, x):
    """Only outputs at the front were compared, perhaps the first alone. They have the longest future, but a leak may
    lie further back: a mask that ends too early leaves the front alone. Look at every position that has a future."""
    before = model(x)
    for size in (1, 100):
        changed = x.clone()
        changed[:, 1:] = size * torch.randn_like(x[:, 1:])
        if not torch.allclose(model(changed)[:, 0], before[:, 0], atol=1e-5, equal_nan=True):
            return True
    return False


@test_for_leaks.variant("not every position is looked at", fails=("past the limit",))
def _(model, x):
    """The first three."""
    before = model(x)
    for size in (1, 100):
        changed = x.clone()
        changed[:, 3:] = size * torch.randn_like(x[:, 3:])
        if not torch.allclose(model(changed)[:, :3], before[:, :3], atol=1e-5, equal_nan=True):
            return True
    return False


@test_for_leaks.misconception(
    "the gradient of a sum", fails=("outputs that sum to zero", "no gradient", "in steps", "a sleeper", "NaN")
)
def _(model, x):
    """You asked for the gradient of a *sum* of outputs. After a LayerNorm that sum is always zero, whatever leaks, so
    its gradient is zero too. (And where a model counts, or detaches, a leak has no gradient at all: there only changing
    the input and looking again will show it.)"""
    x = x.clone().requires_grad_()
    output = model(x)
    for i in range(x.shape[1] - 1):
        (gradient,) = torch.autograd.grad(output[:, i].sum(), x, retain_graph=True)
        if (gradient[:, i + 1 :].abs() > 1e-5).any():
            return True
    return False


@test_for_leaks.misconception(
    "a gradient where there is none", fails=("no gradient", "in steps", "a sleeper", "NaN")
)
def _(model, x):
    """The gradient says how an output moves when its input moves by next to nothing, here, along the paths that torch
    has recorded. A model that counts, or rounds, or detaches, or wakes up only later, leaks with a gradient of zero.
    Change the input, and look again."""
    x = x.clone().requires_grad_()
    output = model(x)
    for i in range(x.shape[1] - 1):
        direction = torch.randn_like(output[:, i])
        (gradient,) = torch.autograd.grad((output[:, i] * direction).sum(), x, retain_graph=True)
        if (gradient[:, i + 1 :].abs() > 1e-5).any():
            return True
    return False


@test_for_leaks.misconception("sums that cancel", fails=("outputs that sum to zero",))
def _(model, x):
    """Numbers of an output, or their differences, were added up or averaged with their signs, and what one of them
    gained another one lost. After a LayerNorm they always cancel. Take the sizes of the differences first, `.abs()`,
    and then the largest."""
    before = model(x)
    for i in range(x.shape[1] - 1):
        for size in (1, 100):
            changed = x.clone()
            changed[:, i + 1 :] = size * torch.randn_like(x[:, i + 1 :])
            if (model(changed) - before)[:, : i + 1].nanmean().abs() > 1e-4:
                return True
    return False


@test_for_leaks.misconception("equal to the last digit", fails=("faint, or rounding",))
def _(model, x):
    """No difference at all was allowed. Arithmetic in float32 is good to seven digits, and a model may be right in
    mathematics while its last digit depends on what else was in the row. Allow a little: `torch.allclose` does."""
    before = model(x).nan_to_num(0.125)
    for i in range(x.shape[1] - 1):
        for size in (1, 100):
            changed = x.clone()
            changed[:, i + 1 :] = size * torch.randn_like(x[:, i + 1 :])
            if not torch.equal(model(changed)[:, : i + 1].nan_to_num(0.125), before[:, : i + 1]):
                return True
    return False


@test_for_leaks.misconception("a faint leak taken for rounding", fails=("faint, or rounding",))
def _(model, x):
    """So much was allowed that a faint leak went through as rounding. Rounding moves a number by about its seventh
    digit; training finds and uses leaks that are far weaker than 0.1."""
    before = model(x)
    for i in range(x.shape[1] - 1):
        changed = x.clone()
        changed[:, i + 1 :] += 10 * torch.sign(torch.randn_like(x[:, i + 1 :]))
        after = model(changed)[:, : i + 1]
        if not torch.allclose(after, before[:, : i + 1], rtol=0, atol=0.3, equal_nan=True):
            return True
    return False


@test_for_leaks.variant("a faint leak taken for rounding", fails=("faint, or rounding",))
def _(model, x):
    """With large changes too."""
    before = model(x)
    for i in range(x.shape[1] - 1):
        for size in (1, 100):
            changed = x.clone()
            changed[:, i + 1 :] = size * torch.randn_like(x[:, i + 1 :])
            if not torch.allclose(model(changed)[:, : i + 1], before[:, : i + 1], rtol=0, atol=0.05, equal_nan=True):
                return True
    return False


@test_for_leaks.misconception("only small changes", fails=("in steps", "a sleeper", "faint, or rounding"))
def _(model, x):
    """The future was changed by next to nothing. A model that counts or rounds does not notice that, one that heeds
    only large numbers sleeps on, and what a small change sends through a faint leak drowns in the rounding. Nothing
    obliges you to be gentle: put other numbers there, and large ones too."""
    before = model(x)
    for i in range(x.shape[1] - 1):
        changed = x.clone()
        changed[:, i + 1 :] += 1e-4 * torch.sign(torch.randn_like(x[:, i + 1 :]))
        after = model(changed)[:, : i + 1]
        if not torch.allclose(after, before[:, : i + 1], rtol=0, atol=2e-6, equal_nan=True):
            return True
    return False


@test_for_leaks.misconception("no change large enough", fails=("a sleeper",))
def _(model, x):
    """All changes were of the usual size. Some leaks sleep until a number in the future is large. The contract speaks
    of a hundred times the usual size: try that as well."""
    before = model(x)
    for i in range(x.shape[1] - 1):
        changed = x.clone()
        changed[:, i + 1 :] = torch.randn_like(x[:, i + 1 :])
        if not torch.allclose(model(changed)[:, : i + 1], before[:, : i + 1], atol=1e-5, equal_nan=True):
            return True
    return False


@test_for_leaks.variant("no change large enough", fails=("a sleeper",))
def _(model, x):
    """The future is cut off and not changed."""
    whole = model(x)
    for i in range(1, x.shape[1]):
        if not torch.allclose(model(x[:, :i]), whole[:, :i], atol=1e-5, equal_nan=True):
            return True
    return False


@test_for_leaks.variant("no change large enough", fails=("a sleeper",))
def _(model, x):
    """Zeros."""
    before = model(x)
    for i in range(x.shape[1] - 1):
        changed = x.clone()
        changed[:, i + 1 :] = 0
        if not torch.allclose(model(changed)[:, : i + 1], before[:, : i + 1], atol=1e-5, equal_nan=True):
            return True
    return False


@test_for_leaks.misconception("the future in another order", fails=EVERY_FAMILY)
def _(model, x):
    """The future was put in another order. To attention that is the same set of keys and values (lecture 04), to a
    mean or a count it is the same sum, and a future of one position has no other order. Put other numbers there."""
    before = model(x)
    for i in range(x.shape[1] - 1):
        changed = torch.cat([x[:, : i + 1], x[:, i + 1 :].flip(1)], dim=1)
        after = model(changed)[:, : i + 1]
        if not torch.allclose(after, before[:, : i + 1], rtol=1e-5, atol=1e-5, equal_nan=True):
            return True
    return False


@test_for_leaks.misconception("only one feature is changed", fails=("one feature",))
def _(model, x):
    """Only one number of each position was changed. A leak may go through a different one, and then this test never
    touches what leaks. Change all features."""
    before = model(x)
    for i in range(x.shape[1] - 1):
        for size in (1, 100):
            changed = x.clone()
            changed[:, i + 1 :, 0] = size * torch.randn(x.shape[0], x.shape[1] - i - 1)
            if not torch.allclose(model(changed)[:, : i + 1], before[:, : i + 1], atol=1e-5, equal_nan=True):
                return True
    return False


@test_for_leaks.misconception("NaN swallowed the difference", fails=("NaN",))
def _(model, x):
    """A row of NaN hid what stood beside it. Any comparison with NaN is False: `max()` of differences of which one is
    NaN is NaN, and `NaN > 1e-5` is False, so the model was acquitted. Look at the numbers that are not NaN, or let
    `torch.allclose(…, equal_nan=True)` do it."""
    before = model(x)
    for i in range(x.shape[1] - 1):
        for size in (1, 100):
            changed = x.clone()
            changed[:, i + 1 :] = size * torch.randn_like(x[:, i + 1 :])
            if (model(changed) - before)[:, : i + 1].abs().max() > 1e-4:
                return True
    return False


@test_for_leaks.misconception("NaN is not equal to NaN", fails=("NaN",))
def _(model, x):
    """A model was accused because it returns NaN, before and after the change alike. That is a fault, but not a leak.
    NaN is not equal to itself, unless you say `equal_nan=True`."""
    before = model(x)
    for i in range(x.shape[1] - 1):
        for size in (1, 100):
            changed = x.clone()
            changed[:, i + 1 :] = size * torch.randn_like(x[:, i + 1 :])
            if not torch.allclose(model(changed)[:, : i + 1], before[:, : i + 1], atol=1e-5):
                return True
    return False


NO_NUMBERS = tuple(n for n in EVERY_FAMILY if n not in ("no gradient", "in steps"))


@test_for_leaks.misconception("a future that is not a number", fails=(*NO_NUMBERS, "in steps"))
def _(model, x):
    """You put NaN or ∞ into the future and looked to see whether it comes through. It does, in models that are right: a
    masked value has the weight 0, and 0 · NaN and 0 · ∞ are NaN. (And a model that counts never shows it.) Use
    numbers."""
    for i in range(x.shape[1] - 1):
        changed = x.clone()
        changed[:, i + 1 :] = torch.nan
        if model(changed)[:, : i + 1].isnan().any():
            return True
    return False


@test_for_leaks.variant("a future that is not a number", fails=NO_NUMBERS)
def _(model, x):
    """Infinity, and a comparison."""
    before = model(x)
    for i in range(x.shape[1] - 1):
        changed = x.clone()
        changed[:, i + 1 :] = torch.inf
        if not torch.allclose(model(changed)[:, : i + 1], before[:, : i + 1], atol=1e-5, equal_nan=True):
            return True
    return False


@test_for_leaks.misconception("each sentence by itself", fails=("the rest of the batch",))
def _(model, x):
    """A sentence alone was compared with the same sentence in its batch. A model may let sentences of a batch mix (a
    batch norm does), and that may be a fault, but the others at position i are not the future of position i. Keep the
    batch together, and change what comes later."""
    before = model(x)
    for b in range(x.shape[0]):
        for i in range(x.shape[1] - 1):
            for size in (1, 100):
                changed = x[b : b + 1].clone()
                changed[:, i + 1 :] = size * torch.randn_like(changed[:, i + 1 :])
                after = model(changed)[0, : i + 1]
                if not torch.allclose(after, before[b, : i + 1], atol=1e-5, equal_nan=True):
                    return True
    return False


@test_for_leaks.alternative("prefixes of large sentences")
def _(model, x):
    """What is not there cannot be seen: is the whole pass what each prefix gives by itself?"""
    for size in (1, 100):
        whole = model(size * x)
        for i in range(1, x.shape[1]):
            alone = model(size * x[:, :i])
            if not torch.allclose(alone, whole[:, :i], rtol=1e-5, atol=1e-5, equal_nan=True):
                return True
    return False


@test_for_leaks.alternative("one position at a time, NaN left out")
def _(model, x):
    """Changes a single position, looks at all before it, and compares what is a number."""
    before = model(x).detach().clone()
    for j in range(1, x.shape[1]):
        for size in (1.0, 3.0, 50.0, -50.0):
            changed = x.clone()
            changed[:, j, :] = size + torch.randn(x.shape[0], x.shape[2])
            difference = (model(changed) - before)[:, :j]
            if (difference[~difference.isnan()].abs() > 1e-5).any():
                return True
    return False


@test_for_leaks.alternative("a table of who hears whom")
def _(model, x):
    """Its upper triangle must be empty. A tensor comes back."""
    n = x.shape[1]
    before = model(x)
    hears = torch.zeros(n, n)
    for j in range(n):
        for change in (torch.randn_like(x[:, j]), torch.full_like(x[:, j], 40.0)):
            moved = x.detach().clone()
            moved[:, j] += change
            difference = (model(moved) - before).abs().nan_to_num(0.0).amax(dim=(0, 2))
            hears[:, j] = torch.maximum(hears[:, j], difference.detach())
    return (hears.triu(1) > 1e-4).any()


@test_for_leaks.alternative("many draws at once, in words")
def _(model, x):
    """Many changes for each line, and a relative error."""
    n = x.shape[1]
    before = torch.nan_to_num(model(x), nan=7.0)
    leaks = []
    for i in range(n - 1):
        for trial in range(6):
            future = torch.randn_like(x) * 10 ** (trial % 3)
            changed = torch.where(torch.arange(n)[:, None] > i, future, x)
            after = torch.nan_to_num(model(changed), nan=7.0)
            error = ((after - before) / (1 + before.abs()))[:, : i + 1].abs().max().item()
            leaks.append(error > 1e-5)
    return any(leaks)


# --------------------------------------------------------------------------------------------------------- packed_mask


def _packed_mask(documents):
    """Itself and what came before it in the same document: (batch, n, n)."""
    same = documents[:, :, None] == documents[:, None, :]
    return attention.combine_masks(attention.causal_mask(documents.shape[1]), same)


packed_mask = Exercise(
    "packed_mask",
    reference=_packed_mask,
    returns=("mask",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    extra=True,
    hints=(
        "Two conditions, joined by &: j ≤ i, and the same document. The first is a table (n, n) that you have already. "
        "The second depends on the sentence.",
        "Compare the numbers of the documents with themselves, once as a column and once as a row: `documents[:, :, "
        "None]` and `documents[:, None, :]`.",
    ),
)


def _starts(draw) -> Tensor:
    """Where a new document begins, (batch, n): in the middle of every row, and elsewhere by chance."""
    batch, n = draw.sizes(2, 3, 9)
    starts = draw.uniform(batch, n) < 0.4
    starts[:, n // 2] = True
    return starts


@packed_mask.aspect("mask", points=2, explain=_truth)
def _(answer, draw):
    """itself, and what came before it in the same document"""
    return answer(_starts(draw).cumsum(dim=1))


@packed_mask.aspect("numbers of any kind", points=1, explain=_truth)
def _(answer, draw):
    """the numbers need not rise, nor begin with 0"""
    starts = _starts(draw)
    batch, n = starts.shape
    numbers = draw.uniform(batch, n + 1).argsort(dim=-1) - 2
    return answer(numbers.gather(1, starts.cumsum(dim=1)))


BOTH = ("mask", "numbers of any kind")


@packed_mask.misconception("the future of the document", fails=BOTH)
def _(documents):
    """Documents are kept apart, but inside one everybody sees everybody, the future too. The second condition, j ≤ i,
    is missing."""
    return documents[:, :, None] == documents[:, None, :]


@packed_mask.misconception("documents not kept apart", fails=BOTH)
def _(documents):
    """This is the causal mask alone: the second document reads the first."""
    batch, n = documents.shape
    return torch.ones(batch, n, n, dtype=torch.bool).tril()


@packed_mask.misconception("earlier documents too", fails=BOTH)
def _(documents):
    """The numbers were compared by ≤, so a document sees those with smaller numbers. A number is a name here, not a
    size: same or not the same."""
    n = documents.shape[1]
    earlier = documents[:, None, :] <= documents[:, :, None]
    return earlier & torch.ones(n, n, dtype=torch.bool).tril()


@packed_mask.misconception("one condition is enough", fails=BOTH)
def _(documents):
    """The two conditions were joined by "or": whoever satisfies one is let in. Both must hold."""
    n = documents.shape[1]
    same = documents[:, :, None] == documents[:, None, :]
    return same | torch.ones(n, n, dtype=torch.bool).tril()


@packed_mask.misconception("not even itself", fails=BOTH)
def _(documents):
    """The diagonal is False: a position may not look at itself, and the first word of every document has nobody left
    to look at."""
    n = documents.shape[1]
    same = documents[:, :, None] == documents[:, None, :]
    return same & torch.ones(n, n, dtype=torch.bool).tril(-1)


@packed_mask.misconception("a change of number starts a new document", fails=("numbers of any kind",))
def _(documents):
    """The mask was made from the places where the number rises. The contract promises only that equal numbers mean the
    same document: compare them for equality."""
    n = documents.shape[1]
    runs = (documents.diff(dim=1, prepend=documents[:, :1] - 1) > 0).cumsum(dim=1)
    return (runs[:, :, None] == runs[:, None, :]) & torch.ones(n, n, dtype=torch.bool).tril()


@packed_mask.alternative("three nested loops")
def _(documents):
    """As the conditions read."""
    batch, n = documents.shape
    mask = torch.zeros(batch, n, n, dtype=torch.bool)
    for b in range(batch):
        for i in range(n):
            for j in range(i + 1):
                mask[b, i, j] = documents[b, i] == documents[b, j]
    return mask


@packed_mask.alternative("tril of a comparison")
def _(documents):
    """Numbers on the way."""
    return documents.unsqueeze(2).eq(documents.unsqueeze(1)).int().tril().bool()
