"""linformer_attention: Attention over k mixtures of the keys, in time and memory that grow like n · k."""

import math

import torch
from torch import Tensor

from attncourse import efficient
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient, explain_worst
from lessonkit.exercises.observe import apart, gradient_reaches, require_variation

from .common import READY_MADE


def solution(query, key, value, E, F, mask):
    n_key, d = key.shape[1:]
    missing = ~mask[:, :, None]                                  # (batch, n_key, 1)
    mixed_keys = E[:, :n_key] @ key.masked_fill(missing, 0.0)    # (batch, k, d)
    mixed_values = F[:, :n_key] @ value.masked_fill(missing, 0.0)
    weights = (query @ mixed_keys.mT / math.sqrt(d)).softmax(dim=-1)   # (batch, n_query, k)
    return weights @ mixed_values


exercise = Exercise(
    "linformer_attention",
    reference=efficient.linformer_attend,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    extra=True,
    hints=(
        "Write the shapes: E is (k, n_max), the keys are (batch, n_key, d). Which product leaves k mixtures of keys?",
        "After the mixing it is plain attention over k keys in place of n: scores (batch, n_query, k), scale, softmax, "
        "average.",
        "A padded key must not get into any mixture. After the mixing it is too late to take it out. What must it be "
        "before, and must the same be done to the values?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _mixed(draw, fewer: int) -> list[Tensor]:
    """[query, key, value, E, F, mask] with `fewer` keys than n_max, more than k, and nothing padded.

    No two sizes are alike.
    """
    n_query, n_key, k, d, d_v = draw.sizes(5, 3, 9)
    k, n_key = sorted((k, n_key))
    shapes = (2, n_query, d), (2, n_key, d), (2, n_key, d_v), (k, n_key + fewer), (k, n_key + fewer)
    inputs = [draw.normal(*shape) for shape in shapes]
    return [*inputs, torch.ones(2, n_key, dtype=torch.bool)]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("output", points=2, hint=2)
def output(answer, draw):
    """attention over k mixtures of the keys, with k mixtures of the values"""
    return answer(*_mixed(draw, 0))


@aspect("shorter than E and F", points=1, hint=1)
def shorter_than_e_and_f(answer, draw):
    """a sequence of fewer keys than n_max uses the first columns, and one of fewer keys than k all mixtures"""
    query, key, value, E, F, mask = _mixed(draw, 3)
    few = query, key[:, :2], value[:, :2], E, F, mask[:, :2]
    return torch.cat([answer(query, key, value, E, F, mask), answer(*few)])


@aspect(
    "padding",
    points=1, hint=3,
    explain=explain_worst("at {place} the output is {size} away from that of the sentence without padding"),
)
def padding(answer, draw):
    """a padded sentence gives what it gives without its padding, whatever that holds"""
    query, key, value, E, F, mask = _mixed(draw, 0)
    mask = draw.padding_mask(2, key.shape[1])
    mask[1, len(E) - 1 :] = False  # padding at a place that has a mixture of the same number, too
    mask[0, len(E) - 1] = False  # and there, between two tokens, in the other sentence
    alone = []
    for i, real in enumerate(mask):
        sentence = query[i : i + 1], key[i : i + 1, real], value[i : i + 1, real]
        alone.append(answer(*sentence, E[:, real], F[:, real], mask[i : i + 1, real]))
    padded = require_variation(answer(query, key, value, E, F, mask))
    anything = (tensor.masked_fill(~mask[:, :, None], torch.inf) for tensor in (key, value))
    return torch.cat([apart(padded, torch.cat(alone)), apart(answer(query, *anything, E, F, mask), torch.cat(alone))])


@aspect("gradient", points=1, hint=1, explain=explain_missing_gradient("query", "key", "value", "E", "F"))
def gradient(answer, draw):
    """gradients reach queries, keys, values, E and F"""
    *inputs, mask = _mixed(draw, 0)
    inputs = [x.requires_grad_() for x in inputs]
    return gradient_reaches(answer(*inputs, mask), inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

OUTPUT = ("output", "shorter than E and F")
SHORTER = ("shorter than E and F",)
PADDING = ("padding",)
E_HERE, F_HERE = "E[:, :n_key]", "F[:, :n_key]"
KEYS, VALUES = "key.masked_fill(missing, 0.0)", "value.masked_fill(missing, 0.0)"
MASKED_SCORES = "math.sqrt(d)).masked_fill(~mask[:, None], -torch.inf)"

slip("multiplied in place of divided", OUTPUT, {" / math": " * math"}, words="""
    The scores were multiplied by the root of the width. Dividing by it keeps them of size about 1.""")
slip("not scaled", OUTPUT, {" / math.sqrt(d)": ""}, words="""
    The scores went into the softmax as they were. A dot product of wide vectors is large; what takes that out again?
    """)

slip("scaled by how many keys there are", OUTPUT, {"math.sqrt(d)": "math.sqrt(len(E))"}, words="""
    The scores were divided by the root of a *number of keys*. What a dot product adds up over is the width of queries
    and keys, and mixing along the length has not changed that.""")

slip("E for the values too", (*OUTPUT, "gradient"), {F_HERE: E_HERE}, words="""
    Keys and values were mixed by the same matrix, and F has never been used: no gradient reaches it. (The paper tries
    this sharing too, and it costs little; the contract here has two matrices.)""")

slip("E and F have changed places", OUTPUT, {E_HERE: F_HERE, F_HERE: E_HERE}, words="""
    F mixed the keys and E mixed the values. In the contract it is the other way round.""")

slip("the weights are mixed", OUTPUT,
     {"mixed_keys.mT": "key.mT", "math.sqrt(d))": MASKED_SCORES, "return weights": f"return weights @ {E_HERE}.T"},
     words="""
    The softmax was taken over all n keys, and its weights were mixed afterwards. We wanted to avoid this n × n matrix
    of weights: mix the keys *before* they meet the queries, and the softmax has k columns.""")

slip("the queries are mixed too", (*OUTPUT, "padding"),
     {"(query @": "(E[:, : query.shape[1]] @ query[:, : E.shape[1]] @"},
     words="""
    The output has k rows. Every query needs an answer of its own, so queries are not mixed, only the keys are.""")

slip("the last columns for a short sequence", SHORTER, {E_HERE: "E[:, -n_key:]", F_HERE: "F[:, -n_key:]"}, words="""
    A short sequence was mixed by the *last* columns of E and F. Column j belongs to position j, and positions are
    counted from the beginning.""")

slip("only sequences of n_max", SHORTER, {E_HERE: "E", F_HERE: "F"}, words="""
    E has a column for each of n_max positions, and there are fewer keys than that, so the shapes of the product do not
    fit. Which columns belong to the positions that the keys have?""")

slip("ignores the mask", PADDING, {KEYS: "key", VALUES: "value"}, words="""
    Padded keys and values went into the mixtures, so what happens to stand in the padding decides the answer.""")

slip("masks the scores, as before", (*OUTPUT, "padding", "gradient"),
     {KEYS: "key", VALUES: "value", "math.sqrt(d))": MASKED_SCORES},
     words="""
    The mask was put on the scores, as in ordinary attention. But there are k scores for a query here, one for each
    *mixture*, and the mask has a place for each of n keys: the two do not fit. What a padded key has to say is in all
    mixtures by then, so it must be taken out earlier.""")

slip("masks the scores, as before", (*SHORTER, "padding"),
     {KEYS: "key", VALUES: "value",
      "math.sqrt(d))": "math.sqrt(d)).masked_fill(~mask[:, None, : len(E)], -torch.inf)"})  # cut until it fits

slip("the mask read as a length", PADDING,
     {"missing = ~mask[": "missing = ~(torch.arange(n_key) < mask.sum(dim=1)[:, None])["}, words="""
    The mask was read as a length: so many keys from the front. That is right only where all padding stands behind. The
    mask says *which* keys are tokens, not only how many there are.""")

slip("one mask for the whole batch", PADDING, {"missing = ~mask[:, :, None]": "missing = ~mask.any(dim=0)[:, None]"},
     words="""
    A place was taken for padding only where *no* sentence has a token, so a short sentence keeps the padding that
    stands beside the tokens of a longer one. Which axis of the mask runs over the sentences?""")

slip("a mixture taken for a mean", OUTPUT,
     {E_HERE: f"({E_HERE} / mask.sum(dim=1)[:, None, None])", F_HERE: f"({F_HERE} / mask.sum(dim=1)[:, None, None])"},
     words="""
    The mixtures were divided by the number of keys, as a mean is. A mixture is a weighted sum, and its weights are the
    rows of E and F: they are learned, and nothing says that they sum to the length of the sentence. Does the formula of
    a mixture have a divisor?""")

slip("a mixture taken for a mean", (*OUTPUT, "padding"),
     {E_HERE: f"({E_HERE} / n_key)", F_HERE: f"({F_HERE} / n_key)"})  # the padding counted, too

slip("masks one of the two alone", PADDING, {VALUES: "value"}, {KEYS: "key"}, words="""
    Of keys and values only one was cleared of padding: it is still in the mixtures of the other. No later weight can
    keep it out, because a mixture has one weight for all that is in it. Which of the two did you treat?""")

slip("−∞ in the keys", PADDING,
     {KEYS: "key.masked_fill(missing, -torch.inf)", VALUES: "value.masked_fill(missing, -torch.inf)"},
     {KEYS: "key.masked_fill(missing, -1e9)"},  # a large number in place of −∞, and the values right
     words="""
    Setting −∞, or something very negative, is for *scores*, just before a softmax. In a key it gets into every mixture
    and drowns the others there (and ∞ − ∞ is NaN). A key that should not count in a *sum* has to be something else.""")

slip("normalises over the queries", OUTPUT, {"softmax(dim=-1)": "softmax(dim=-2)"}, words="""
    The columns sum to one in place of the rows: each query shares out its attention over the k mixtures.""")


slip("multiplied by the mask", PADDING, {KEYS: "(key * ~missing)", VALUES: "(value * ~missing)"}, words="""
    The padding was multiplied by 0. That clears whatever is a number, but 0 · ∞ is NaN: padding may hold anything, so
    put 0 *in its place*, as `masked_fill` and `torch.where` do.""")
slip("the mixtures masked like keys", SHORTER,
     {"math.sqrt(d))": "math.sqrt(d)).masked_fill(torch.arange(len(E)) >= mask.sum(dim=1)[:, None, None], -torch.inf)"},
     words="""
    Only as many mixtures were left as there are tokens. A mixture is no position: each of the k holds something of all
    tokens, however few they are, and none of them is padding.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("einsum")
def einsum(query, key, value, E, F, mask):
    """Names the axes."""
    keys, values = (
        torch.einsum("kn,bnd->bkd", mixing[:, : key.shape[1]], torch.where(mask[..., None], tokens, 0.0))
        for mixing, tokens in ((E, key), (F, value))
    )
    scores = torch.einsum("bqd,bkd->bqk", query, keys) * query.shape[-1] ** -0.5
    return torch.einsum("bqk,bkd->bqd", scores.softmax(dim=2), values)


@alternative("sentence by sentence")
def sentence_by_sentence(query, key, value, E, F, mask):
    """Picks the real keys out first."""
    outputs = []
    for q, k, v, real in zip(query, key, value, mask, strict=True):
        columns = real.nonzero().squeeze(-1)
        mixed_keys, mixed_values = E[:, columns] @ k[columns], F[:, columns] @ v[columns]
        outputs.append(torch.softmax(q @ mixed_keys.T / math.sqrt(k.shape[-1]), dim=-1) @ mixed_values)
    return torch.stack(outputs)


@alternative("float64, not contiguous")
def float64_not_contiguous(query, key, value, E, F, mask):
    """Fills the sequence up to n_max with zeros instead of cutting E and F."""
    batch, n, d = key.shape
    key, value = (tokens.double().masked_fill(~mask[..., None], 0.0) for tokens in (key, value))
    keys = torch.cat([key, torch.zeros(batch, E.shape[1] - n, d).double()], dim=1)
    values = torch.cat([value, torch.zeros(batch, E.shape[1] - n, value.shape[-1]).double()], dim=1)
    weights = (query.double() @ (E.double() @ keys).mT / d**0.5).softmax(dim=-1)
    return (weights @ (F.double() @ values)).mT.contiguous().mT
