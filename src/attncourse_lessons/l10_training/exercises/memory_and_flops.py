"""memory_and_flops: What a step of training an encoder–decoder takes, in bytes and in operations."""

import math
from fractions import Fraction

import torch

from attncourse import counting
from attncourse.transformer import EncoderDecoder, TransformerConfig
from lessonkit.exercises.exercise import Exercise

COPIES = ("weights", "gradients", "moments", "master")


def reference(n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target):
    config = TransformerConfig(
        vocab_size=vocab_size, n_layers=n_layers, d_model=d_model, n_heads=1, d_ff=d_ff, max_length=1000
    )
    exact = counting.count_flops(config, EncoderDecoder, batch, n_source, n_target)
    memory = n_parameters * sum(bytes_each[name] * (1 + (name == "moments")) for name in COPIES)
    return memory, 3 * n_parameters * batch * (n_source + n_target), *(3 * part for part in exact)


def solution(n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target):
    b = bytes_each
    memory = n_parameters * (b["weights"] + b["gradients"] + 2 * b["moments"] + b["master"])
    tokens = batch * (n_source + n_target)
    by_rule = 6 * tokens * n_parameters // 2

    def training(multiply_adds):
        forward = 2 * multiply_adds
        return forward + 2 * forward

    encoder, decoder = 4 * n_source, 4 * n_target                 # Q, K, V and the output
    cross = 2 * n_target + 2 * n_source                           # Q, output; K, V
    pairs = n_source**2 + n_target**2 + n_target * n_source
    projections = training(n_layers * batch * (encoder + decoder + cross) * d_model**2)
    scores = training(n_layers * batch * 2 * pairs * d_model)     # q · k, and the average
    feed_forward = training(n_layers * tokens * 2 * d_model * d_ff)
    output = training(batch * n_target * d_model * vocab_size)
    return memory, by_rule, projections, scores, feed_forward, output


exercise = Exercise(
    "memory_and_flops",
    reference=reference,
    solution=solution,
    returns=("memory", "by_rule", "projections", "scores", "feed_forward", "output"),
    forbidden=("attncourse.counting", "attncourse.transformer"),
    numbers=True,
    difficulty=2,
    minutes=30,
    extra=True,
    hints=(
        "Memory: for every parameter there is a weight, a gradient, two moments, and perhaps a master copy, each kind "
        "with bytes of its own. The rule: a token of the source passes the encoder alone and one of the target the "
        "decoder alone, so each meets about half of the N parameters.",
        "A product of (n, a) and (a, b) takes n · a · b multiplications and as many additions. Write a small function "
        "that makes a step's FLOPs of a number of multiply-adds: 2 for each, and 3 times that. Which tokens "
        "pass the two matrices of the feed-forward networks, and which tokens pass the one that makes logits?",
        "List which tokens pass the four projections: in the encoder all source tokens; in the decoder's "
        "self-attention all target tokens; in cross-attention the target tokens pass two of them and the source tokens "
        "the two others. "
        "Scores have a pair for each query and each key, and the average of the values has them once more.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _setting(draw, bytes_each=(4, 4, 4, 0)):
    """In the order of the contract; small numbers, no two alike, so that each part weighs something."""
    d_model, d_ff, n_layers, batch = draw.sizes(4, 2, 9)
    lengths = (5, 8, 13)  # of 5 and 10, or 5 and 11, two mistakes come to the same count
    n_source, n_target = (lengths[i] for i in draw.sizes(2, 0, 2))
    vocab_size, n_parameters = 10 + int(draw.integers(9, 1)), 2 * (100 + int(draw.integers(400, 1)))
    return (
        n_parameters, dict(zip(COPIES, bytes_each, strict=True)), d_model, d_ff, n_layers, vocab_size, batch,
        n_source, n_target,
    )  # fmt: skip


def _whole(got, expected):
    """Counts, to the last digit, and what one is of the other if that is a simple fraction."""
    got, expected = got.reshape(-1), expected.reshape(-1)
    worst = int(abs(got - expected).argmax())
    counted, right = float(got[worst]), float(expected[worst])
    times = Fraction(counted / right).limit_denominator(12) if counted > 0 < right else Fraction(1)
    simple = times != 1 and min(times.numerator, times.denominator) == 1 and math.isclose(times * right, counted)
    return f"counted {counted:,.12g}, expected {right:,.12g}" + f": {times} of it" * simple


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("memory", points=1, hint=1, explain=_whole)
def observe_memory(answer, draw):
    """every number in four bytes: a weight, its gradient and its two moments"""
    return answer(*_setting(draw))[0]


@aspect("other precisions", points=1, hint=1, explain=_whole)
def other_precisions(answer, draw):
    """each kind of number takes the bytes that are given for it, and a master copy counts where there is one"""
    mixes = (2, 2, 4, 4), (2, 2, 2, 0), (2, 4, 8, 1)
    return torch.stack([answer(*_setting(draw.child(str(mix)), mix))[0] for mix in mixes])


@aspect("the rule", points=1, hint=1, explain=_whole)
def the_rule(answer, draw):
    """six for each parameter that a token meets, and a token meets half of them"""
    return answer(*_setting(draw))[1]


@aspect("projections", points=2, hint=3, explain=_whole)
def projections(answer, draw):
    """four in each attention; in cross-attention the source's tokens pass those for keys and values"""
    return answer(*_setting(draw))[2]


@aspect("scores", points=2, hint=3, explain=_whole)
def scores(answer, draw):
    """each query with each key, once for the score and once for the average"""
    return answer(*_setting(draw))[3]


@aspect("feed_forward", points=1, hint=2, explain=_whole)
def feed_forward(answer, draw):
    """up and down again, in both stacks"""
    return answer(*_setting(draw))[4]


@aspect("output", points=1, hint=2, explain=_whole)
def output(answer, draw):
    """the logits of the target's tokens"""
    return answer(*_setting(draw))[5]


# -------------------------------------------------------------------------------------- one slip away from the solution

MEMORY, FLOPS = ("memory", "other precisions"), ("projections", "scores", "feed_forward", "output")
BACK = "return forward + 2 * forward"
CROSS, PAIRS = "2 * n_target + 2 * n_source  ", "n_source**2 + n_target**2 + n_target * n_source"

slip("one moment", MEMORY, {'2 * b["moments"]': 'b["moments"]'}, words="""
    Adam keeps *two* moving averages for each parameter, m and v. One was counted.""")
slip("bits for bytes", MEMORY, {"memory = n_parameters": "memory = 8 * n_parameters"}, words="""
    This is eight times too much: bits were counted. `bytes_each` are bytes, and so is what is asked for.""")
slip("a master copy where weights have two bytes", ("other precisions",),
     {'b["master"]': '(4 if b["weights"] == 2 else 0)'}, words="""
    A master copy of four bytes was counted wherever the weights have two. Some runs have none, and it may be of any
    size: `bytes_each["master"]` says how many bytes it takes, 0 where there is none.""")
slip("no gradients", MEMORY, {' + b["gradients"]': ""}, words="""
    The gradients are missing. Each parameter has one, and it is there until the optimiser has taken its step.""")
slip("no master copy", ("other precisions",), {' + b["master"]': ""}, words="""
    The master copy is missing: where the weights are kept in 16 bits, a second copy in 32 takes up the small updates.
    (So mixed precision saves nothing here: 2 + 2 + 8 + 4 is 16 again.)""")
slip("the moments with the weights' bytes", ("other precisions",), {'2 * b["moments"]': '2 * b["weights"]'}, words="""
    The moments were counted with as many bytes as the weights have. They are kept in a precision of their own.""")
slip("four bytes for everything", ("other precisions",),
     {'(b["weights"] + b["gradients"] + 2 * b["moments"] + b["master"])': "16"}, words="""
    Every number was given four bytes. `bytes_each` says how many it takes.""")
slip("the forward pass alone", ("the rule", *FLOPS), {"6 * tokens": "2 * tokens", BACK: "return forward"}, words="""
    This is the forward pass. On the way back each product asks for two more of its size, for the gradients of both of
    its factors: three times the forward pass in all, and 6 in place of 2.""")
slip("the rule for the forward pass", ("the rule",), {"6 * tokens": "2 * tokens"}, words="""
    The rule has 2 for each parameter and token in the forward pass, and 4 more on the way back.""")
slip("the counts of the forward pass", FLOPS, {BACK: "return forward"}, words="""
    These are the forward pass's FLOPs. On the way back each product asks for two more of its size, for the gradients of
    both of its factors.""")
slip("back as long as forth", FLOPS, {BACK: "return forward + forward"}, words="""
    The way back was counted as one forward pass. It takes two: Y = X W asks for the gradient of X and for that of W,
    and each is a product as large as the first.""")
slip("multiply-adds", FLOPS, {"forward = 2 * multiply_adds": "forward = multiply_adds"}, words="""
    Multiply-adds were counted as one operation. A FLOP is one multiplication *or* one addition: two for each.""")
slip("every token meets all parameters", ("the rule",), {" // 2": ""}, words="""
    6 N for each token is the rule of a language model, where each token passes every layer. Here a token of the source
    meets the encoder's parameters and one of the target the decoder's: about half of N each.""")
slip("the target's tokens alone", ("the rule", "feed_forward"),
     {"tokens = batch * (n_source + n_target)": "tokens = batch * n_target"}, words="""
    Only the target's tokens were counted. The encoder reads the source's.""")
slip("the rule for the target alone", ("the rule",),
     {"6 * tokens * n_parameters // 2": "6 * batch * n_target * n_parameters"},
     {"6 * tokens * n_parameters // 2": "3 * batch * n_target * n_parameters"},
     words="""
    The rule was applied to the target's tokens alone. Tokens of both sides pass a stack each: half of the parameters
    for each of them.""")
slip("the feed-forward network of the decoder alone", ("feed_forward",),
     {"training(n_layers * tokens * 2": "training(n_layers * batch * n_target * 2"},
     {"training(n_layers * tokens * 2": "training(n_layers * batch * n_source * 2"},
     words="""
    One stack's feed-forward networks were counted. Encoder and decoder have them in every block.""")
slip("cross-attention among the source's own", ("scores",), {"+ n_target * n_source": "+ n_source**2"},
     {"+ n_target * n_source": "+ n_target**2"}, words="""
    The pairs of cross-attention were counted as a square of one side. The target's tokens ask, the source's answer: a
    rectangle.""")
slip("no batch in the tokens", ("the rule", "feed_forward"), {"tokens = batch * (": "tokens = ("}, words="""
    The tokens of one sentence pair were counted. There are `batch` of them.""")
slip("no output projection", ("projections",), {"4 * n_source, 4 * n_target": "3 * n_source, 3 * n_target"}, words="""
    Self-attention was given three projections, to queries, keys and values. The heads' results pass a fourth, W_O.""")
slip("no cross-attention", ("projections", "scores"),
     {CROSS: "0  ", PAIRS: "n_source**2 + n_target**2"}, words="""
    The encoder's and the decoder's self-attention were counted. Each block of the decoder has a cross-attention,
    too.""")
slip("cross-attention without projections", ("projections",), {CROSS: "0  "}, words="""
    Cross-attention has projections as well: the target's tokens pass those for the queries and the output, the source's
    those for keys and values.""")
slip("cross-attention's four for the target", ("projections",), {CROSS: "4 * n_target  "}, words="""
    In cross-attention all four projections were counted for the target's tokens. Keys and values come from the source:
    two of the four are for its tokens.""")
slip("no pairs between target and source", ("scores",), {PAIRS: "n_source**2 + n_target**2"}, words="""
    The scores of cross-attention are missing: every target token asks every source token.""")
slip("the batch as one long text", ("scores",), {"n_layers * batch * 2 * pairs": "n_layers * batch**2 * 2 * pairs"},
     words="""
    The texts of the batch were joined into one, in which each token meets those of all texts. A token attends within
    its own pair of sentences: there are `batch` small squares, and no large one.""")
slip("scores without the average", ("scores",), {"2 * pairs": "pairs"}, words="""
    The scores were counted, and not the average: each weight multiplies a value of width d, as many operations
    again.""")
slip("half of the square", ("scores",), {"n_target**2": "n_target * (n_target + 1) // 2"}, words="""
    The decoder's square was counted below its diagonal alone. What a causal mask forbids is computed and thrown away;
    here, as in torch's own counter, it counts.""")
slip("the square of all tokens", ("scores",), {PAIRS: "(n_source + n_target) ** 2"}, words="""
    Source and target were taken for one sequence in which everybody looks at everybody. The source never looks at the
    target.""")
slip("one matrix in the feed-forward network", ("feed_forward",), {"tokens * 2 * d_model": "tokens * d_model"},
     words="""
    One matrix was counted. A feed-forward network has two: from d_model to d_ff and back.""")
slip("logits for both sides", ("output",), {"training(batch * n_target": "training(batch * (n_source + n_target)"},
     words="""
    Logits were counted for the source, too. Only the decoder predicts tokens.""")
slip("logits in every layer", ("output",), {"training(batch * n_target": "training(n_layers * batch * n_target"},
     words="""
    The output was counted once for each layer. It stands at the end of the decoder, once.""")
slip("one layer", ("projections", "scores", "feed_forward"),
     {"training(n_layers * batch * (encoder": "training(batch * (encoder",
      "training(n_layers * batch * 2": "training(batch * 2", "training(n_layers * tokens": "training(tokens"}, words="""
    One block of each stack was counted. There are `n_layers` in each.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("matrix by matrix")
def matrix_by_matrix(n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target):
    """Every product of a step in a list: rows, inner, columns."""
    d, s, t = d_model, n_source, n_target
    products = {"projections": [(s, d, d)] * 6 + [(t, d, d)] * 6,
                "scores": [(n, d, m) for n, m in ((s, s), (t, t), (t, s)) for _ in range(2)],
                "feed_forward": [(s, d, d_ff), (s, d_ff, d), (t, d, d_ff), (t, d_ff, d)]}  # fmt: skip
    flops = [6 * batch * n_layers * sum(a * b * c for a, b, c in each) for each in products.values()]
    memory = n_parameters * (sum(bytes_each.values()) + bytes_each["moments"])
    return memory, 3 * n_parameters * batch * (s + t), *flops, 6 * batch * t * d * vocab_size


@alternative("tensors")
def tensors(n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target):
    """Whole numbers as tensors, torch's dot products."""
    each = torch.tensor([bytes_each[name] for name in ("weights", "gradients", "moments", "moments", "master")])
    n = torch.tensor([n_source, n_target])
    step = 3 * 2 * batch
    pairs = torch.outer(n, n).sum() - n_source * n_target
    return (n_parameters * each.sum(), step * n.sum() * n_parameters // 2, step * n_layers * 6 * n.sum() * d_model**2,
            step * n_layers * 2 * pairs * d_model, step * n_layers * n.sum() * 2 * d_model * d_ff,
            step * n_target * d_model * vocab_size)  # fmt: skip


@alternative("one block of each, then times")
def one_block_of_each_then_times(
    n_parameters, bytes_each, d_model, d_ff, n_layers, vocab_size, batch, n_source, n_target
):
    """An encoder block, a decoder block, and floats that are whole."""
    def attention(asking, answering):
        return 2 * (asking + answering) * d_model**2, 2 * asking * answering * d_model

    parts = [attention(n_source, n_source), attention(n_target, n_target), attention(n_target, n_source)]
    blocks = 6.0 * batch * n_layers
    memory = n_parameters * (bytes_each["weights"] + bytes_each["gradients"] + bytes_each["master"])
    memory += n_parameters * bytes_each["moments"] * 2
    by_rule = 6 * (n_parameters / 2) * batch * (n_source + n_target)
    network = 2 * d_model * d_ff * (n_source + n_target)
    return (memory, by_rule, blocks * sum(p for p, _ in parts), blocks * sum(s for _, s in parts),
            blocks * network, 6.0 * batch * n_target * d_model * vocab_size)  # fmt: skip
