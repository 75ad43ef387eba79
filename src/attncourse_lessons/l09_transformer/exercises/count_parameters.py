"""count_parameters: How many numbers a GPT learns, by what they are for."""

import torch
from torch import nn

from attncourse import counting
from attncourse.transformer import LanguageModel, TransformerConfig
from lessonkit.exercises.exercise import Exercise


def reference(vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """GPT's shape: learned positions, biases, LayerNorms in front and one at the end, the output tied."""
    config = TransformerConfig(
        vocab_size=vocab_size, max_length=max_length, n_layers=n_layers, d_model=d_model, n_heads=n_heads,
        n_kv_heads=n_kv_heads, d_head=d_head, d_ff=d_ff, positions="learned",
    )  # fmt: skip
    count = counting.count_parameters(config, LanguageModel)
    return count.embedding + count.positions, count.attention, count.feed_forward, count.norms


def solution(vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    def linear(d_in, d_out):
        return d_in * d_out + d_out

    d_query, d_key = n_heads * d_head, n_kv_heads * d_head
    attention = linear(d_model, d_query) + 2 * linear(d_model, d_key) + linear(d_query, d_model)
    feed_forward = linear(d_model, d_ff) + linear(d_ff, d_model)
    norms = (2 * n_layers + 1) * 2 * d_model
    tables = (vocab_size + max_length) * d_model
    return tables, n_layers * attention, n_layers * feed_forward, norms


exercise = Exercise(
    "count_parameters",
    reference=reference,
    solution=solution,
    returns=("embeddings", "attention", "feed_forward", "norms"),
    forbidden=("attncourse.counting", "attncourse.transformer"),
    difficulty=2,
    minutes=20,
    numbers=True,
    hints=(
        "A linear layer from a to b has a · b weights, and a bias for each of its b outputs. Write that as a small "
        "function, then list the linear layers of one block: four and two.",
        "From what width to what width do the four go? The queries leave n_heads · d_head wide, keys and values "
        "n_kv_heads · d_head; the output comes back from n_heads · d_head to d_model.",
        "A LayerNorm has a gain and a bias, d_model each. There is one in front of each of the block's two halves, "
        "and one after the last block.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _sizes(draw, wider=0):
    """Keyword order of the contract: small numbers, heads as wide together as the model, or each `wider` than that."""
    n_heads, d_head, n_layers, d_ff, max_length = draw.sizes(5, 3, 9)
    return [20 + d_ff, max_length, n_layers, n_heads * d_head, n_heads, n_heads, d_head + wider, d_ff]


def _counts(got, expected):
    """Whole numbers, to the last digit."""
    return f"counted {float(got):,.12g}, expected {float(expected):,.12g}"


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("embeddings", points=1, hint=1, explain=_counts)
def embeddings(answer, draw):
    """a vector for each token and each position; the output shares the tokens' matrix"""
    return answer(*_sizes(draw, wider=2))[0]


@aspect("attention", points=2, hint=1, explain=_counts)
def observe_attention(answer, draw):
    """four projections with their biases, in every layer"""
    return answer(*_sizes(draw))[1]


@aspect("heads of a different width", points=1, hint=2, explain=_counts)
def heads_of_a_different_width(answer, draw):
    """n_heads · d_head need not be d_model"""
    return answer(*_sizes(draw, wider=2))[1]


@aspect("groups", points=1, hint=2, explain=_counts)
def groups(answer, draw):
    """fewer heads of keys and values make smaller matrices for both"""
    vocab_size, max_length, n_layers, _, _, _, d_head, d_ff = _sizes(draw)
    return answer(vocab_size, max_length, n_layers, 6 * d_head, 6, 2, d_head, d_ff)[1]


@aspect("feed_forward", points=1, hint=1, explain=_counts)
def feed_forward(answer, draw):
    """up and down again, with both biases"""
    return answer(*_sizes(draw, wider=2))[2]


@aspect("norms", points=1, hint=3, explain=_counts)
def norms(answer, draw):
    """two in every block, one at the end, each with gain and bias"""
    return answer(*_sizes(draw, wider=2))[3]


# -------------------------------------------------------------------------------------- one slip away from the solution

ATTENTION = ("attention", "heads of a different width", "groups")
SHAPES, NORMS = ("heads of a different width", "groups"), ("norms",)
FOUR = "linear(d_model, d_query) + 2 * linear(d_model, d_key) + linear(d_query, d_model)"

slip("no biases", (*ATTENTION, "feed_forward"), {" + d_out": ""}, words="""
    The matrices are right, and the biases are missing: a linear layer adds one number to each of its outputs. They are
    few. But a count that is off by a few is still off.""")
slip("keys and values counted once", ATTENTION, {"2 * linear(d_model, d_key)": "linear(d_model, d_key)"}, words="""
    Keys and values are equally wide, but they are made by two layers, each with its own matrix and bias. One of the two
    is missing.""")
slip("the second bias as wide as d_ff", ("feed_forward",), {"linear(d_ff, d_model)": "linear(d_model, d_ff)"}, words="""
    Both biases of the feed-forward network were counted as d_ff wide. A bias is as wide as what comes *out* of its
    layer, and the second layer comes back to d_model.""")
slip("biases of the wrong width", ("heads of a different width",),
    {"linear(d_query, d_model)": "linear(d_model, d_query)"},
    words="""
    The attention's matrices are right, but not all of its biases are. A linear layer has one for each of its *outputs*,
    whatever comes in. How wide is what leaves each of the four?""")
slip("no biases", ATTENTION,
    {FOUR: "d_model * (d_query + 2 * d_key) + linear(d_query, d_model)"})  # none of queries, keys and values
slip("no W_O", ATTENTION, {" + linear(d_query, d_model)": ""}, words="""
    Queries, keys and values were counted, three matrices. The fourth joins the heads: the output projection.""")
slip("h times a full attention", ATTENTION, {FOUR: "n_heads * 4 * linear(d_model, d_model)"}, words="""
    Each head was given matrices of d_model × d_model. Heads share out the columns: one head's W_Q is d_model × d_head,
    and all of them side by side are n_heads · d_head wide.""")
slip("heads always as wide as the model", SHAPES, {FOUR: "4 * linear(d_model, d_model)"}, words="""
    The attention was counted as four matrices of d_model × d_model. That holds when n_heads · d_head is d_model and
    every query head has keys of its own. Where does the lecture's table break the first condition, and what breaks the
    second?""")
slip("heads always as wide as the model", ("heads of a different width",),
    {"d_query, d_key =": "d_head = d_model // n_heads\nd_query, d_key ="},
    {"linear(d_query, d_model)": "linear(d_model, d_model)"})
slip("keys as many as queries", ("groups",), {"n_kv_heads * d_head": "n_heads * d_head"}, words="""
    `n_kv_heads` was not used. Where heads share keys and values, it takes fewer columns to make them: both matrices are
    n_kv_heads · d_head wide.""")
slip("no final norm", NORMS, {"(2 * n_layers + 1)": "2 * n_layers"}, words="""
    Two LayerNorms for each block were counted. There is one more after the last block.""")
slip("gains without biases", NORMS, {") * 2 * d_model": ") * d_model"}, words="""
    A LayerNorm has two vectors, a gain and a bias. (RMSNorm has the gain alone.)""")
slip("one norm a block", NORMS, {"2 * n_layers": "n_layers"}, words="""
    One LayerNorm for each block was counted, and one at the end. A block has two halves, attention and feed-forward,
    and each has a LayerNorm in front.""")
slip("a last norm in every block", NORMS, {"(2 * n_layers + 1)": "3 * n_layers"}, words="""
    The norm after the last block was counted in every block. There is one of it in the whole model.""")
slip("output counted again", ("embeddings",), {"(vocab_size": "(2 * vocab_size"}, words="""
    The matrix from vectors to words was counted as well as the one from words to vectors. Here they are *tied*: one and
    the same matrix, used twice. A parameter counts once, however often it is used.""")
slip("a bias of the output", ("embeddings",),
    {"(vocab_size + max_length) * d_model": "((vocab_size + max_length) * d_model + vocab_size)"}, words="""
    A bias for each word of the vocabulary was counted with the output. The output has the tokens' matrix and nothing of
    its own.""")
slip("no positions", ("embeddings",), {"(vocab_size + max_length)": "vocab_size"}, words="""
    The positions are learned here: a table of max_length vectors, beside that of the tokens.""")
slip("one matrix up, none down", ("feed_forward",), {" + linear(d_ff, d_model)": ""}, words="""
    The feed-forward network goes up from d_model to d_ff *and down again*: two linear layers, with a bias each.""")
slip("d_ff taken to be 4 d_model", ("feed_forward",),
    {"linear(d_model, d_ff)": "linear(d_model, 4 * d_model)", "linear(d_ff, d_model)": "linear(4 * d_model, d_model)"},
    words="""
    The hidden layer was taken to be four times as wide as the model. It often is; but `d_ff` is given, and it is the
    number to use.""")
slip("one layer", (*ATTENTION, "feed_forward", "norms"),
    {"n_layers * attention": "attention", "n_layers * feed_forward": "feed_forward", "2 * n_layers + 1": "3"},
    words="""
    This is one block. There are n_layers of them, and each has matrices of its own.""")
slip("one layer", ("feed_forward",), {"n_layers * feed_forward": "feed_forward"})
slip("one layer", ATTENTION, {"n_layers * attention": "attention"})
slip("one layer", NORMS, {"2 * n_layers + 1": "3"})


# ------------------------------------------------------------------------------------------------------ further from it


@variant("no biases", fails=ATTENTION)
def no_biases_in_attention(vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """In the attention alone."""
    attention = 2 * d_model * (n_heads + n_kv_heads) * d_head
    feed_forward = (d_model + 1) * d_ff + (d_ff + 1) * d_model
    norms = (2 * n_layers + 1) * 2 * d_model
    return (vocab_size + max_length) * d_model, n_layers * attention, n_layers * feed_forward, norms


@variant("biases of the wrong width", fails=SHAPES)
def four_biases_of_d_model(vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """d_model for each of the four."""
    attention = 2 * d_model * (n_heads + n_kv_heads) * d_head + 4 * d_model
    feed_forward = (d_model + 1) * d_ff + (d_ff + 1) * d_model
    norms = (2 * n_layers + 1) * 2 * d_model
    return (vocab_size + max_length) * d_model, n_layers * attention, n_layers * feed_forward, norms


@variant("no biases", "heads always as wide as the model", fails=(*ATTENTION, "feed_forward"))
def back_of_an_envelope(vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """4 d² for the attention, as on the back of an envelope."""
    norms = (2 * n_layers + 1) * 2 * d_model
    embeddings = (vocab_size + max_length) * d_model
    return embeddings, n_layers * 4 * d_model * d_model, n_layers * 2 * d_model * d_ff, norms


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("linear layers by a helper")
def linear_layers_by_a_helper(vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """The plain way."""

    def linear(d_in, d_out):
        return d_in * d_out + d_out

    attention = linear(d_model, n_heads * d_head) + 2 * linear(d_model, n_kv_heads * d_head)
    attention += linear(n_heads * d_head, d_model)
    feed_forward = linear(d_model, d_ff) + linear(d_ff, d_model)
    norms = 2 * d_model * (2 * n_layers + 1)
    return (vocab_size + max_length) * d_model, n_layers * attention, n_layers * feed_forward, norms


@alternative("built and counted")
def built_and_counted(vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """Makes one block's layers. (An `nn.Embedding` on the meta device is right, too, and imports 800 modules.)"""
    width, shared = n_heads * d_head, n_kv_heads * d_head
    attention = [nn.Linear(d_model, width), nn.Linear(d_model, shared), nn.Linear(d_model, shared)]
    attention.append(nn.Linear(width, d_model))
    feed_forward = [nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)]
    embeddings = [nn.Embedding(vocab_size, d_model), nn.Embedding(max_length, d_model)]
    norm = [nn.LayerNorm(d_model)]

    def count(layers):
        return sum(p.numel() for layer in layers for p in layer.parameters())

    norms = (2 * n_layers + 1) * count(norm)
    return count(embeddings), n_layers * count(attention), n_layers * count(feed_forward), norms


@alternative("tensors and floats")
def tensors_and_floats(vocab_size, max_length, n_layers, d_model, n_heads, n_kv_heads, d_head, d_ff):
    """Numbers of other types."""
    biases = (n_heads + 2 * n_kv_heads) * d_head + d_model
    attention = torch.tensor(2 * d_model * (n_heads + n_kv_heads) * d_head + biases)
    feed_forward = float(2 * d_model * d_ff + d_ff + d_model)
    embeddings = torch.tensor([vocab_size, max_length]).sum() * d_model
    return embeddings, n_layers * attention, n_layers * feed_forward, torch.tensor(4.0 * n_layers + 2) * d_model
