"""Assignment 13: eight lines of slides to repair, and a test that knows a sound block from a broken one.

Function bodies below stand in for a learner's: they use torch alone, and the argument names of the contract.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from attncourse import attention
from attncourse.exercises.core import Exercise
from attncourse.exercises.judge import nonzero, row_sums, told
from attncourse.exercises.observe import telling

READY_MADE = (
    "attncourse.attention",
    "attncourse.efficient",
    "attncourse.errata",
    "attncourse.layers",
    "attncourse.positions",
    "attncourse.sizes",
    "attncourse.transformer",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.MultiheadAttention",
    "torch.nn.Transformer",
)


# ---------------------------------------------------------------------------------------------------- repair_positions


def _repair_positions(tokens, words, places):
    """Axis 1 of the tokens is the length."""
    return words[tokens] + places[: tokens.shape[1]]


repair_positions = Exercise(
    "repair_positions",
    reference=_repair_positions,
    returns=("x",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    hints=(
        "Write the shape of everything beside it: tokens, `pos`, `places[pos]`, and what is added to what. Which axis "
        "of the tokens has a length that a position can count?",
        "The positions of one text are 0, 1, …, n − 1, and those of every text are the same. A tensor (n, d) is added "
        "to one of (batch, n, d) as it stands.",
    ),
)


def _texts(draw, batch=None):
    """Tokens (batch, n), a table of words, and a table of places, two more than the text has."""
    drawn, n, d = draw.sizes(3, 3, 7)
    vocabulary = 11
    return draw.integers(vocabulary, batch or drawn, n), draw.normal(vocabulary, d), draw.normal(n + 2, d)


@repair_positions.aspect("sum", points=1)
def _(answer, draw):
    """each token's vector and its position's"""
    return answer(*_texts(draw))


@repair_positions.aspect("company", points=1, explain=told("it moves by {size} at {place}"))
def _(answer, draw):
    """a text gets the same vectors alone and as the last of its batch"""
    tokens, words, places = _texts(draw, batch=2)
    return telling(answer(tokens, words, places))[-1] - answer(tokens[-1:], words, places)[0]


@repair_positions.aspect("large batch", points=1)
def _(answer, draw):
    """more texts than the table has positions"""
    return answer(*_texts(draw, batch=12))


@repair_positions.misconception("counts the texts", fails=("sum", "company", "large batch"))
def _(tokens, words, places):
    """The positions are counted along axis 0, and axis 0 is the batch. All words of a text get the same vector; which
    one depends on how many texts stand above it; and a batch that is larger than the table raises an error."""
    pos = torch.arange(tokens.size(0)).unsqueeze(1)
    return words[tokens] + places[pos]


@repair_positions.variant("counts the texts", fails=("sum", "company", "large batch"))
def _(tokens, words, places):
    """The crash is avoided, and nothing else."""
    pos = torch.arange(tokens.size(0)).unsqueeze(1) % len(places)
    return words[tokens] + places[pos]


@repair_positions.misconception("one position for all", fails=("sum", "large batch"))
def _(tokens, words, places):
    """All words got the vector of one position. It does not depend on the batch any more, and says nothing about the
    place either: shuffle the words, and the same vectors come in a different order."""
    return words[tokens] + places[0]


@repair_positions.variant("one position for all", fails=("sum", "large batch"))
def _(tokens, words, places):
    """The last."""
    return words[tokens] + places[tokens.shape[1] - 1]


@repair_positions.variant("one position for all", fails=("sum", "large batch"))
def _(tokens, words, places):
    """The mean."""
    return words[tokens] + places.mean(dim=0)


@repair_positions.misconception("the whole table", fails=("sum", "company", "large batch"))
def _(tokens, words, places):
    """The whole table was added, with a row for each place that a text may have. It fits only the longest text: a text
    of n words needs the first n rows."""
    return words[tokens] + places


@repair_positions.misconception("positions left out", fails=("sum", "large batch"))
def _(tokens, words, places):
    """There are no positions in what came back: it is the words' vectors alone."""
    return words[tokens] + 0 * places[0]


@repair_positions.misconception("counts from the end", fails=("sum", "large batch"))
def _(tokens, words, places):
    """The first word got the last position's vector. Position 0 is where a text begins."""
    return words[tokens] + places[: tokens.shape[1]].flip(0)


@repair_positions.misconception("an axis too many", fails=("sum", "company", "large batch"))
def _(tokens, words, places):
    """The length is counted now, and then `unsqueeze(1)` makes the positions (n, 1). What is looked up is (n, 1, d),
    and its first axis meets the batch. Without that axis (n, d) fits (batch, n, d)."""
    pos = torch.arange(tokens.size(1)).unsqueeze(1)
    return words[tokens] + places[pos]


@repair_positions.alternative("indices for every text")
def _(tokens, words, places):
    """The positions are spelled out, (batch, n)."""
    batch, n = tokens.shape
    pos = torch.arange(n).unsqueeze(0).expand(batch, n)
    return torch.nn.functional.embedding(tokens, words) + torch.nn.functional.embedding(pos, places)


@repair_positions.alternative("word by word, in float64")
def _(tokens, words, places):
    """A loop."""
    rows = [[words[t].double() + places[i].double() for i, t in enumerate(text.tolist())] for text in tokens]
    return torch.stack([torch.stack(row) for row in rows])


@repair_positions.alternative("one-hot products")
def _(tokens, words, places):
    """Products with rows of zeros and a one."""
    one_hot = (tokens[..., None] == torch.arange(len(words))).to(words.dtype)
    return torch.einsum("bnv,vd->bnd", one_hot, words) + places.narrow(0, 0, tokens.shape[1])[None]


# ------------------------------------------------------------------------------------------------------ repair_weights


def _repair_weights(weights, mask):
    """What is left, shared out anew: the same as to mask the scores."""
    allowed = weights * mask
    total = allowed.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, allowed / total.clamp(min=torch.finfo(weights.dtype).tiny), 0.0)


repair_weights = Exercise(
    "repair_weights",
    reference=_repair_weights,
    returns=("weights",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=10,
    hints=(
        "What does each row sum to after the slide's step? What would it have to sum to?",
        "Masking the scores leaves the *proportions* among the allowed weights as they are: e^a / e^b does not know "
        "who else was in the sum. So only the total has to be put right.",
        "A row in which nothing is allowed has the total 0, and 0/0 is NaN. Handle that row by itself, for instance "
        "with `torch.where`; a small number added to every total would change the others, too.",
    ),
)


def _shares(draw, *shape):
    return (2 * draw.normal(*shape)).softmax(dim=-1)


def _some(draw, *shape):
    """True or False, and at least one True and one False in every row."""
    mask = draw.uniform(*shape) < 0.5
    mask[..., 0], mask[..., -1] = True, False
    return mask


@repair_weights.aspect("shares", points=2, explain=row_sums)
def _(answer, draw):
    """rows that sum to one again, in the old proportions"""
    batch, n, m = draw.sizes(3, 3, 7)
    return answer(_shares(draw, batch, n, m), _some(draw, batch, n, m))


@repair_weights.aspect("little left", points=1, explain=row_sums)
def _(answer, draw):
    """even where all that is allowed weighed next to nothing"""
    n, m = draw.sizes(2, 4, 7)
    mask = _some(draw, n, m)
    return answer(_shares(draw, n, m) * torch.where(mask, 1e-9, 1.0), mask)


@repair_weights.aspect("nothing allowed", points=1, explain=nonzero)
def _(answer, draw):
    """zeros in a row that may look at nothing, and right rows beside it"""
    n, m = draw.sizes(2, 4, 7)
    mask = _some(draw, n, m)
    mask[1] = False
    return answer(_shares(draw, n, m), mask)


REST = ("shares", "little left", "nothing allowed")


@repair_weights.misconception("weights set to 0", fails=REST)
def _(weights, mask):
    """That is the slide's step: forbidden weights are 0 now, and what they had was given to nobody, so that the rows
    sum to less than one."""
    return weights * mask


@repair_weights.misconception("softmax once more", fails=REST)
def _(weights, mask):
    """Softmax was taken of something that is a softmax already. Weights are not scores: 0 is not "nothing" to softmax
    (it makes e⁰ of it), and two weights of 0.8 and 0.1 would come out nearly equal. The rows sum to one, but the
    proportions are gone."""
    return weights.masked_fill(~mask, -torch.inf).softmax(dim=-1).nan_to_num(0.0)


@repair_weights.variant("softmax once more", fails=REST)
def _(weights, mask):
    """Of the weights set to 0."""
    return (weights * mask).softmax(dim=-1)


@repair_weights.variant("softmax once more", fails=REST)
def _(weights, mask):
    """Without a thought for empty rows."""
    return weights.masked_fill(~mask, -torch.inf).softmax(dim=-1)


@repair_weights.misconception("shared out equally", fails=REST)
def _(weights, mask):
    """What was taken from the forbidden places was given to the allowed ones in equal parts. The rows sum to one; but
    masked scores would give each what it had, times one factor, so that whoever had more gets more."""
    kept = weights * mask
    missing = 1 - kept.sum(dim=-1, keepdim=True)
    return kept + missing * mask / mask.sum(dim=-1, keepdim=True).clamp(min=1)


@repair_weights.misconception("along the wrong axis", fails=REST)
def _(weights, mask):
    """Columns were brought to one. A row is what one query gives away, and it is the rows that must sum to one."""
    kept = weights * mask
    return (kept / kept.sum(dim=-2, keepdim=True)).nan_to_num(0.0)


@repair_weights.misconception("a small number in the divisor", fails=("little left",))
def _(weights, mask):
    """A small number was added to the total, against 0/0. Where the allowed weights are small themselves it is not
    small beside them, and takes most of the row. Only a total of exactly 0 needs care."""
    kept = weights * mask
    return kept / (kept.sum(dim=-1, keepdim=True) + 1e-8)


@repair_weights.variant("a small number in the divisor", fails=("little left",))
def _(weights, mask):
    """As a lower bound."""
    kept = weights * mask
    return kept / kept.sum(dim=-1, keepdim=True).clamp(min=1e-6)


@repair_weights.misconception("0/0 in an empty row", fails=("nothing allowed",))
def _(weights, mask):
    """A row that may look at nothing has the total 0, and 0/0 is NaN. It should be all zeros."""
    kept = weights * mask
    return kept / kept.sum(dim=-1, keepdim=True)


@repair_weights.misconception("mask upside down", fails=REST)
def _(weights, mask):
    """You kept what is forbidden. The mask is True where a query *may* attend."""
    kept = weights * ~mask
    return (kept / kept.sum(dim=-1, keepdim=True)).nan_to_num(0.0)


@repair_weights.alternative("back to scores")
def _(weights, mask):
    """The logarithm undoes the softmax, up to a number that softmax does not notice."""
    return weights.log().masked_fill(~mask, float("-inf")).softmax(dim=-1).nan_to_num(0.0)


@repair_weights.alternative("row by row")
def _(weights, mask):
    """A loop over the rows."""
    flat, allowed = weights.reshape(-1, weights.shape[-1]), mask.reshape(-1, mask.shape[-1])
    rows = []
    for row, may in zip(flat, allowed, strict=True):
        kept = torch.where(may, row, torch.zeros_like(row))
        rows.append(kept / kept.sum() if may.any() else kept)
    return torch.stack(rows).view(weights.shape)


@repair_weights.alternative("in float64, NaN replaced")
def _(weights, mask):
    """Divides first and mends the empty rows afterwards."""
    kept = weights.double() * mask
    return torch.nan_to_num(kept / torch.einsum("...m->...", kept)[..., None], nan=0.0)


# -------------------------------------------------------------------------------------------------- repair_combination


def _repair_combination(heads, Y):
    """Side by side, a row for each word, and then Y on the right."""
    return torch.cat(heads.unbind(), dim=-1) @ Y


repair_combination = Exercise(
    "repair_combination",
    reference=_repair_combination,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    hints=(
        "A word's row holds what head 1 found for it, then what head 2 found, and so on: (n, d). On which side of it "
        "must a matrix stand that mixes the d numbers of each row?",
        "`torch.cat(list(heads), dim=-1)` puts the heads side by side. Which shapes do `Y @ that` and `that @ Y` "
        "have, for seven words?",
    ),
)


def _heads(draw, n=None):
    h, drawn, d_head = draw.sizes(3, 2, 6)
    return draw.normal(h, n or drawn, d_head), draw.normal(h * d_head, h * d_head) / math.sqrt(h * d_head)


@repair_combination.aspect("output", points=2)
def _(answer, draw):
    """a row for each word, mixed by Y"""
    return answer(*_heads(draw))


@repair_combination.aspect("as many words as numbers", points=1)
def _(answer, draw):
    """even where n happens to be d, and the wrong side would not crash"""
    h, d_head = draw.sizes(2, 2, 5)
    d = h * d_head
    return answer(draw.normal(h, d, d_head), draw.normal(d, d) / math.sqrt(d))


@repair_combination.aspect("one word", points=1)
def _(answer, draw):
    """a text of one word"""
    return answer(*_heads(draw, n=1))


SIDES = ("output", "as many words as numbers", "one word")


@repair_combination.misconception("Y on the left", fails=SIDES)
def _(heads, Y):
    """Y stands on the left, as on the slide. There it multiplies columns: it mixes the *words* of the text with each
    other, if it fits at all, which it does only for a text of d words."""
    return Y @ torch.cat(list(heads), dim=-1)


@repair_combination.misconception("Y transposed", fails=SIDES)
def _(heads, Y):
    """The shapes fit, but it is the transpose of Y that multiplies each row. That is what Y on the left does to
    *columns*; for rows it is a different matrix."""
    return (Y @ torch.cat(list(heads), dim=-1).mT).mT


@repair_combination.variant("Y transposed", fails=SIDES)
def _(heads, Y):
    """As `nn.functional.linear` does."""
    return torch.nn.functional.linear(torch.cat(list(heads), dim=-1), Y)


@repair_combination.misconception("heads torn apart", fails=("output", "as many words as numbers"))
def _(heads, Y):
    """`reshape` reads the numbers in the order in which they lie: all words of head 1 first. A row then holds several
    words of one head in place of one word of all heads. The axis of the heads must first be moved next to the
    features."""
    h, n, d_head = heads.shape
    return heads.reshape(n, h * d_head) @ Y


@repair_combination.misconception("heads interleaved", fails=SIDES)
def _(heads, Y):
    """The first number of every head, then the second of every head, and so on. [output_1; …; output_h] is the whole
    of head 1, then the whole of head 2; Y was learned for that order."""
    h, n, d_head = heads.shape
    return heads.permute(1, 2, 0).reshape(n, h * d_head) @ Y


@repair_combination.misconception("Y left out", fails=SIDES)
def _(heads, Y):
    """The heads stand side by side, and nothing has mixed them: Y was not used."""
    return torch.cat(list(heads), dim=-1)


@repair_combination.misconception("heads in reverse", fails=SIDES)
def _(heads, Y):
    """The last head stands first."""
    return torch.cat(list(heads.flip(0)), dim=-1) @ Y


@repair_combination.alternative("one matrix for each head")
def _(heads, Y):
    """Y is a stack of one matrix for each head, and the sum over heads is the product."""
    h, _, d_head = heads.shape
    return torch.einsum("hnd,hde->ne", heads, Y.view(h, d_head, -1))


@repair_combination.alternative("word by word")
def _(heads, Y):
    """A loop over the words."""
    return torch.stack([torch.cat([head[i] for head in heads]) @ Y for i in range(heads.shape[1])])


@repair_combination.alternative("reshape after permute, float64")
def _(heads, Y):
    """The layer's own way."""
    h, n, d_head = heads.shape
    beside = heads.permute(1, 0, 2).contiguous().view(n, h * d_head)
    return torch.matmul(beside.double(), Y.double())


# --------------------------------------------------------------------------------------------------- repair_comparison


def _repair_comparison(output, tokens, word):
    """The largest difference in any feature between any two of the word's places."""
    rows = output[tokens == word]
    return (rows.amax(dim=0) - rows.amin(dim=0)).max()


repair_comparison = Exercise(
    "repair_comparison",
    reference=_repair_comparison,
    returns=("difference",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=10,
    numbers=True,
    hints=(
        "Where does the word stand? The tokens say it: `tokens == word` is True there.",
        "A boolean tensor may be an index: `output[tokens == word]` has one row for each place of the word. Now "
        "compare each row with every other.",
        "The largest difference between any two numbers is the largest minus the smallest.",
    ),
)


def _repeated(draw, times):
    """Outputs (n, d), tokens (n,) in which one word stands so often, never in a row's first two places alone."""
    n, d = 9 + int(draw.integers(3, 1)), 4
    tokens, word = 1 + draw.integers(8, n), 0
    places = torch.randperm(n - 1, generator=draw.generator)[:times] + 1
    tokens[places] = word
    return draw.normal(n, d), tokens, word


@repair_comparison.aspect("two places", points=2)
def _(answer, draw):
    """wherever the two stand"""
    draws = [_repeated(draw, 2) for _ in range(3)]
    return torch.stack([answer(sign * output, *where) for output, *where in draws for sign in (1, -1)])


@repair_comparison.aspect("many places", points=1)
def _(answer, draw):
    """of all pairs, the two that differ most"""
    draws = [_repeated(draw, times) for times in (3, 4, 5)]
    return torch.stack([answer(sign * output, *where) for output, *where in draws for sign in (1, -1)])


@repair_comparison.aspect("equal, and alone", points=1)
def _(answer, draw):
    """0 where they are equal, and for a word that occurs once; not 0 elsewhere"""
    output, tokens, word = _repeated(draw, 2)
    same = output.clone()
    same[tokens == word] = output[0]
    seen = [same, output, -output]
    return torch.stack([*(answer(x, tokens, word) for x in seen), answer(*_repeated(draw, 1))])


FOUND = ("two places", "many places", "equal, and alone")


@repair_comparison.misconception("hard-coded places", fails=FOUND)
def _(output, tokens, word):
    """Two places were written into the code. They are the word's places in one sentence, as one tokenizer cuts it. The
    tokens say where the word is."""
    return (output[2] - output[5]).abs().max()


@repair_comparison.variant("hard-coded places", fails=FOUND)
def _(output, tokens, word):
    """Counted without a start token."""
    return (output[1] - output[4]).abs().max()


@repair_comparison.misconception("the first two alone", fails=("many places",))
def _(output, tokens, word):
    """Only two of the word's places were compared. A third may differ from both."""
    places = (tokens == word).nonzero().flatten()
    return (output[places[0]] - output[places[1]]).abs().max() if len(places) > 1 else torch.tensor(0.0)


@repair_comparison.variant("the first two alone", fails=("many places",))
def _(output, tokens, word):
    """The first and the last."""
    places = (tokens == word).nonzero().flatten()
    return (output[places[0]] - output[places[-1]]).abs().max()


@repair_comparison.misconception("differences with their signs", fails=FOUND)
def _(output, tokens, word):
    """A difference may be large and negative; the largest of signed differences does not see it. Take their sizes."""
    rows = output[tokens == word]
    return (rows - rows[:1]).max()


@repair_comparison.misconception("an average in place of the largest", fails=FOUND)
def _(output, tokens, word):
    """Differences were averaged. One feature that differs is enough to say that two outputs are not the same, and an
    average over many features hides it."""
    rows = output[tokens == word]
    return (rows.amax(dim=0) - rows.amin(dim=0)).mean()


@repair_comparison.misconception("every word is compared", fails=FOUND)
def _(output, tokens, word):
    """Rows of other words were compared, too. They may differ as they like; the question is about one word."""
    return (output.amax(dim=0) - output.amin(dim=0)).max()


@repair_comparison.misconception("features compared with each other", fails=FOUND)
def _(output, tokens, word):
    """The largest and the smallest number of all were subtracted. They may be of two different features, even of one
    and the same row. Compare feature by feature."""
    rows = output[tokens == word]
    return rows.max() - rows.min()


@repair_comparison.alternative("all pairs")
def _(output, tokens, word):
    """Each with each."""
    rows = output[tokens == word]
    return (rows[:, None] - rows[None]).abs().max().item()


@repair_comparison.alternative("a loop over pairs, in float64")
def _(output, tokens, word):
    """Plain Python."""
    rows = [row.double() for row, token in zip(output, tokens.tolist(), strict=True) if token == word]
    worst = 0.0
    for a in range(len(rows)):
        for b in range(a):
            worst = max(worst, float((rows[a] - rows[b]).abs().max()))
    return worst


# ---------------------------------------------------------------------------------------------- repair_cross_attention


def _repair_cross_attention(Z, H, W_Q, W_K, W_V):
    """softmax(ZQ(HK)ᵀ/√d_k) HV, and the weights."""
    return attention.attend(Z @ W_Q, H @ W_K, H @ W_V)


repair_cross_attention = Exercise(
    "repair_cross_attention",
    reference=_repair_cross_attention,
    returns=("output", "weights"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    hints=(
        "Who asks, and who answers? How many rows has the table of weights, how many columns, and which of the two "
        "lengths is which?",
        "Three things are to be repaired: the shape into which the table is forced, the missing scale, and a sign "
        "that is not a matrix product in Python.",
    ),
)


def _two_texts(draw, n_target, n_source):
    d, d_k, d_v = draw.sizes(3, 3, 9)
    Z, H = draw.normal(n_target, d), draw.normal(n_source, d)
    return (Z, H, *(draw.normal(d, width) for width in (d_k, d_k, d_v)))


@repair_cross_attention.aspect("weights", points=2, explain=row_sums)
def _(answer, draw):
    """what each target word gives to each source word"""
    return answer(*_two_texts(draw, n_target=4, n_source=6))[1]


@repair_cross_attention.aspect("output", points=1)
def _(answer, draw):
    """their averages of the values"""
    return answer(*_two_texts(draw, n_target=4, n_source=6))[0]


@repair_cross_attention.aspect("a long source", points=1)
def _(answer, draw):
    """two words that look at eleven"""
    output, weights = answer(*_two_texts(draw, n_target=2, n_source=11))
    return torch.cat([output, weights], dim=-1)


@repair_cross_attention.aspect("a long target", points=1)
def _(answer, draw):
    """eleven that look at two"""
    output, weights = answer(*_two_texts(draw, n_target=11, n_source=2))
    return torch.cat([output, weights], dim=-1)


ACROSS = ("weights", "output", "a long source", "a long target")


@repair_cross_attention.misconception("as printed", fails=ACROSS)
def _(Z, H, W_Q, W_K, W_V):
    """The table is still forced into T × T. With two texts of the same length nothing shows; with others there is an
    error, or something worse than one."""
    T = len(Z)
    weights = (Z @ W_Q @ (H @ W_K).mT).view(T, T).softmax(dim=-1)
    return weights @ (H @ W_V), weights


@repair_cross_attention.misconception("cut to one length", fails=ACROSS)
def _(Z, H, W_Q, W_K, W_V):
    """The longer text was cut, or the shorter one filled up, until both had the same length. The crash is gone, and
    with it the words at the end of the source. Nothing needs to be of the same length: the table is n_target ×
    n_source."""
    T = min(len(Z), len(H))
    Z, H = Z[:T], H[:T]
    weights = (Z @ W_Q @ (H @ W_K).mT / math.sqrt(W_K.shape[1])).softmax(dim=-1)
    return weights @ (H @ W_V), weights


@repair_cross_attention.variant("cut to one length", fails=("weights", "output", "a long source"))
def _(Z, H, W_Q, W_K, W_V):
    """The source alone is cut."""
    H = H[: len(Z)]
    weights = (Z @ W_Q @ (H @ W_K).mT / math.sqrt(W_K.shape[1])).softmax(dim=-1)
    return weights @ (H @ W_V), weights


@repair_cross_attention.misconception("unscaled", fails=ACROSS)
def _(Z, H, W_Q, W_K, W_V):
    """The scores are not divided by √d_k. The slide has no scale there, the Transformer does: it is the same function
    as in self-attention, and without the scale the shares are far too sharp."""
    weights = (Z @ W_Q @ (H @ W_K).mT).softmax(dim=-1)
    return weights @ (H @ W_V), weights


@repair_cross_attention.misconception("scaled by the wrong width", fails=ACROSS)
def _(Z, H, W_Q, W_K, W_V):
    """The scores are divided by the root of a width that is not the keys'. What a score sums up is d_k products."""
    weights = (Z @ W_Q @ (H @ W_K).mT / math.sqrt(Z.shape[1])).softmax(dim=-1)
    return weights @ (H @ W_V), weights


@repair_cross_attention.variant("scaled by the wrong width", fails=ACROSS)
def _(Z, H, W_Q, W_K, W_V):
    """The values'."""
    weights = (Z @ W_Q @ (H @ W_K).mT / math.sqrt(W_V.shape[1])).softmax(dim=-1)
    return weights @ (H @ W_V), weights


@repair_cross_attention.misconception("the encoder asks", fails=ACROSS)
def _(Z, H, W_Q, W_K, W_V):
    """The source asks here and the target answers. It is the decoder that attends: its states Z make the queries, the
    encoder's H make keys and values."""
    weights = (H @ W_Q @ (Z @ W_K).mT / math.sqrt(W_K.shape[1])).softmax(dim=-1)
    return weights @ (Z @ W_V), weights


@repair_cross_attention.misconception("softmax over the targets", fails=ACROSS)
def _(Z, H, W_Q, W_K, W_V):
    """The columns sum to one. Each target word has one unit of attention to give, so each *row* must."""
    weights = (Z @ W_Q @ (H @ W_K).mT / math.sqrt(W_K.shape[1])).softmax(dim=0)
    return weights @ (H @ W_V), weights


@repair_cross_attention.misconception("keys for values", fails=("output", "a long source", "a long target"))
def _(Z, H, W_Q, W_K, W_V):
    """The weights are right, but average something other than HV: the keys, or the encoder's states as they came."""
    weights = (Z @ W_Q @ (H @ W_K).mT / math.sqrt(W_K.shape[1])).softmax(dim=-1)
    return weights @ (H @ W_K), weights


@repair_cross_attention.variant("keys for values", fails=("output", "a long source", "a long target"))
def _(Z, H, W_Q, W_K, W_V):
    """The states."""
    weights = (Z @ W_Q @ (H @ W_K).mT / math.sqrt(W_K.shape[1])).softmax(dim=-1)
    return weights @ H, weights


@repair_cross_attention.alternative("a loop over the target")
def _(Z, H, W_Q, W_K, W_V):
    """One question at a time, exponentials by hand."""
    keys, values = H @ W_K, H @ W_V
    outputs, rows = [], []
    for z in Z:
        scores = keys @ (z @ W_Q) / keys.shape[-1] ** 0.5
        shares = (scores - scores.max()).exp()
        shares = shares / shares.sum()
        rows.append(shares)
        outputs.append(shares @ values)
    return torch.stack(outputs), torch.stack(rows)


@repair_cross_attention.alternative("einsum, as a list")
def _(Z, H, W_Q, W_K, W_V):
    """Letters for lengths; the scale in front."""
    query, key = torch.einsum("td,dk->tk", Z, W_Q), torch.einsum("sd,dk->sk", H, W_K)
    weights = torch.einsum("tk,sk->ts", query * W_Q.shape[1] ** -0.5, key).softmax(1)
    return [torch.einsum("ts,sd,dv->tv", weights, H, W_V), weights]


@repair_cross_attention.alternative("in float64, weights turned over twice")
def _(Z, H, W_Q, W_K, W_V):
    """Not contiguous."""
    key = (H @ W_K).double()
    weights = torch.softmax(key @ (Z @ W_Q).double().T / math.sqrt(key.size(1)), dim=0).T
    return weights @ (H @ W_V).double(), weights


# --------------------------------------------------------------------------------------------------------- repair_past


def _repair_past(x, W_Q, W_K, W_V):
    """Self-attention in which each word sees itself and what came before it."""
    return attention.attend(x @ W_Q, x @ W_K, x @ W_V, attention.causal_mask(len(x)))[0]


repair_past = Exercise(
    "repair_past",
    reference=_repair_past,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    hints=(
        "At step t one word is new. How many questions are asked at this step, and of how many words?",
        "Look at the shapes at step t: one query (1, d_k), t + 1 keys (t + 1, d_k), so that there are t + 1 weights. "
        "How many values must there be?",
    ),
)


def _one_text(draw, n=None):
    drawn, d, d_k, d_v = draw.sizes(4, 3, 8)
    return (draw.normal(n or drawn, d), *(draw.normal(d, width) / math.sqrt(d) for width in (d_k, d_k, d_v)))


@repair_past.aspect("output", points=2)
def _(answer, draw):
    """one row for each word, as one masked pass gives it"""
    return answer(*_one_text(draw))


@repair_past.aspect("the past stays", points=1, explain=told("it moves by {size} at {place}"))
def _(answer, draw):
    """changing the last word changes nothing before it"""
    x, *matrices = _one_text(draw, n=6)
    other = torch.cat([x[:-1], draw.normal(1, x.shape[1])])
    return telling(answer(x, *matrices))[:-1] - answer(other, *matrices)[:-1]


@repair_past.aspect("one word", points=1)
def _(answer, draw):
    """a text of one word: its own value"""
    return answer(*_one_text(draw, n=1))


STEPS = ("output", "the past stays")


@repair_past.misconception("keys and queries", fails=("output", "the past stays"))
def _(x, W_Q, W_K, W_V):
    """The queries grow with the past, as the slide says, and the values do not. A step has one query, that of the
    newest word; what is needed of the past are its keys *and* its values."""
    outputs = []
    for t in range(len(x)):
        query, key, value = x[: t + 1] @ W_Q, x[: t + 1] @ W_K, x[t : t + 1] @ W_V
        weights = (query @ key.mT / math.sqrt(key.shape[-1])).softmax(dim=-1)
        outputs.append((weights @ value)[-1])
    return torch.stack(outputs)


@repair_past.misconception("everybody sees everybody", fails=STEPS)
def _(x, W_Q, W_K, W_V):
    """There is no past any more: each word looks at the whole text, what is still to come included."""
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    return (query @ key.mT / math.sqrt(key.shape[-1])).softmax(dim=-1) @ value


@repair_past.misconception("not even itself", fails=("output", "one word"))
def _(x, W_Q, W_K, W_V):
    """The word itself is missing from those that it sees: a slice up to t ends before t. The first word then sees
    nobody."""
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    rows = [torch.zeros(value.shape[-1])]
    for t in range(1, len(x)):
        rows.append((key[:t] @ query[t] / math.sqrt(key.shape[-1])).softmax(dim=-1) @ value[:t])
    return torch.stack(rows)


@repair_past.variant("not even itself", fails=("output", "one word"))
def _(x, W_Q, W_K, W_V):
    """By a mask, NaN replaced."""
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    forbidden = torch.ones(len(x), len(x), dtype=torch.bool).triu()
    scores = (query @ key.mT / math.sqrt(key.shape[-1])).masked_fill(forbidden, -torch.inf)
    return scores.softmax(dim=-1).nan_to_num(0.0) @ value


@repair_past.misconception("the newest answers all", fails=("output",))
def _(x, W_Q, W_K, W_V):
    """Each step gave back what *every* query so far finds, and a later step overwrote, or averaged with its own, the
    answers that earlier words had got. Each word asks once, when it is new."""
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    rows = []
    for t in range(len(x)):
        weights = (query[: t + 1] @ key[: t + 1].mT / math.sqrt(key.shape[-1])).softmax(dim=-1)
        rows.append((weights @ value[: t + 1]).mean(dim=0))
    return torch.stack(rows)


@repair_past.misconception("weights set to 0", fails=STEPS)
def _(x, W_Q, W_K, W_V):
    """The weights of the future were set to 0 after the softmax. No value comes through, and yet the future is heard:
    it took its share before, and what is left tells how much."""
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    weights = (query @ key.mT / math.sqrt(key.shape[-1])).softmax(dim=-1)
    return weights.tril() @ value


@repair_past.misconception("scores set to 0", fails=STEPS)
def _(x, W_Q, W_K, W_V):
    """The scores of the future were set to 0. To softmax that is a score like any other, e⁰ = 1, and the future goes
    on being heard, each of its words with the same weight."""
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    scores = query @ key.mT / math.sqrt(key.shape[-1])
    return scores.tril().softmax(dim=-1) @ value


@repair_past.misconception("unscaled", fails=("output",))
def _(x, W_Q, W_K, W_V):
    """The scores were not divided by √d_k."""
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    rows = [(key[: t + 1] @ query[t]).softmax(dim=-1) @ value[: t + 1] for t in range(len(x))]
    return torch.stack(rows)


@repair_past.alternative("a cache that grows")
def _(x, W_Q, W_K, W_V):
    """One query a step; keys and values are remembered."""
    keys, values, rows = [], [], []
    for word in x:
        keys.append(word @ W_K)
        values.append(word @ W_V)
        scores = torch.stack(keys) @ (word @ W_Q) / math.sqrt(W_K.shape[1])
        rows.append(scores.softmax(dim=0) @ torch.stack(values))
    return torch.stack(rows)


@repair_past.alternative("one masked pass")
def _(x, W_Q, W_K, W_V):
    """No steps at all."""
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    i, j = torch.arange(len(x))[:, None], torch.arange(len(x))
    scores = (query @ key.T / key.size(-1) ** 0.5).masked_fill(j > i, float("-inf"))
    return torch.einsum("ij,jd->id", scores.softmax(-1).double(), value.double())


# ----------------------------------------------------------------------------------------------------- repair_relative


def _repair_relative(query, key, table):
    """q_i · (k_j + a_ij)/√d, a_ij the row of the clipped distance j − i. Shaw et al. 2018, equation 4."""
    k = len(table) // 2
    i, j = torch.arange(len(query))[:, None], torch.arange(len(key))
    a = table[(j - i).clamp(-k, k) + k]
    return (query[:, None] * (key + a)).sum(dim=-1) / math.sqrt(query.shape[-1])


repair_relative = Exercise(
    "repair_relative",
    reference=_repair_relative,
    returns=("scores",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "Which row of the table belongs to the distance −k, which to 0, which to k? And what is the distance from the "
        "query at i to the key at j?",
        "`(j - i).clamp(-k, k) + k`, with i a column and j a row of numbers, is a table (n, n) of rows to look up.",
        "`table[index]` is (n, n, d): one vector for each pair. It is added to the keys, (n, d), and then each query "
        "is multiplied with its own row of pairs.",
    ),
)


def _relative_inputs(draw, n=None, k=None):
    clip, d = draw.sizes(2, 2, 5)
    clip, n = k or clip, n or 2 * clip + 1
    return draw.normal(n, d), draw.normal(n, d), draw.normal(2 * clip + 1, d)


@repair_relative.aspect("scores", points=2)
def _(answer, draw):
    """of a text of 2k + 1 words"""
    return answer(*_relative_inputs(draw))


@repair_relative.aspect("far apart", points=1)
def _(answer, draw):
    """distances beyond k count as k"""
    return answer(*_relative_inputs(draw, n=10, k=2))


@repair_relative.aspect("moved along", points=1, explain=told("at {place} it changes by {size}"))
def _(answer, draw):
    """where all words are the same, moving both one step along leaves the score as it was"""
    n, k = 6, 3
    query, key, table = _relative_inputs(draw, n=n, k=k)
    scores = telling(answer(query[:1].expand(n, -1).clone(), key[:1].expand(n, -1).clone(), table))
    return scores[1:, 1:] - scores[:-1, :-1]


@repair_relative.aspect("a short text", points=1)
def _(answer, draw):
    """three words and a table for more; even a single word gets a table of scores"""
    three, one = (answer(*_relative_inputs(draw, n=n, k=4)) for n in (3, 1))
    return torch.cat([three.flatten(), one[0]])


ALL_SCORES = ("scores", "far apart", "a short text")


@repair_relative.misconception("the key's place", fails=(*ALL_SCORES, "moved along"))
def _(query, key, table):
    """As on the slide, under its heading: the vector that joins a key depends on *where* the key stands, and not on how
    far it is from the query. When both move along together, the score changes."""
    j = torch.arange(len(key)).clamp(max=len(table) - 1)
    return query @ (key + table[j]).mT / math.sqrt(query.shape[-1])


@repair_relative.variant("the key's place", fails=(*ALL_SCORES, "moved along"))
def _(query, key, table):
    """Without a limit: where the text is longer than the table, an error."""
    return query @ (key + table[torch.arange(len(key))]).mT / math.sqrt(query.shape[-1])


@repair_relative.misconception("i − j for j − i", fails=ALL_SCORES)
def _(query, key, table):
    """The table was read from the wrong end: the word before a query got the vector of the word after it. The distance
    is the key's place minus the query's."""
    k = len(table) // 2
    i, j = torch.arange(len(query))[:, None], torch.arange(len(key))
    a = table[(i - j).clamp(-k, k) + k]
    return torch.einsum("id,ijd->ij", query, key + a) / math.sqrt(query.shape[-1])


@repair_relative.misconception("negative rows", fails=("scores", "far apart", "a short text"))
def _(query, key, table):
    """Distance 0 is not row 0: row 0 is that of −k. Without the shift, negative distances count from the *end* of the
    table, as indices do in Python, and nothing crashes."""
    k = len(table) // 2
    i, j = torch.arange(len(query))[:, None], torch.arange(len(key))
    a = table[(j - i).clamp(-k, k)]
    return torch.einsum("id,ijd->ij", query, key + a) / math.sqrt(query.shape[-1])


@repair_relative.misconception("no limit", fails=("scores", "far apart"))
def _(query, key, table):
    """Distances beyond k have no row of their own. Looked up all the same, they are an error, or, where they are
    negative, some other distance's row. They are to count as k, or as −k."""
    k = len(table) // 2
    i, j = torch.arange(len(query))[:, None], torch.arange(len(key))
    a = table[(j - i + k) % len(table)]
    return torch.einsum("id,ijd->ij", query, key + a) / math.sqrt(query.shape[-1])


@repair_relative.variant("no limit", fails=("scores", "far apart", "moved along"))
def _(query, key, table):
    """An error."""
    k = len(table) // 2
    i, j = torch.arange(len(query))[:, None], torch.arange(len(key))
    a = table[j - i + k]
    return torch.einsum("id,ijd->ij", query, key + a) / math.sqrt(query.shape[-1])


@repair_relative.misconception("joins the query", fails=ALL_SCORES)
def _(query, key, table):
    """The distance's vector was added to the query and not to the key. Then it meets the key's numbers, and the query
    has no say in which distances it likes."""
    k = len(table) // 2
    i, j = torch.arange(len(query))[:, None], torch.arange(len(key))
    a = table[(j - i).clamp(-k, k) + k]
    return torch.einsum("ijd,jd->ij", query[:, None] + a, key) / math.sqrt(query.shape[-1])


@repair_relative.misconception("unscaled", fails=ALL_SCORES)
def _(query, key, table):
    """The scores, or a part of them, were not divided by √d."""
    k = len(table) // 2
    i, j = torch.arange(len(query))[:, None], torch.arange(len(key))
    a = table[(j - i).clamp(-k, k) + k]
    return torch.einsum("id,ijd->ij", query, key + a)


@repair_relative.variant("unscaled", fails=ALL_SCORES)
def _(query, key, table):
    """The distance's part."""
    k = len(table) // 2
    i, j = torch.arange(len(query))[:, None], torch.arange(len(key))
    a = table[(j - i).clamp(-k, k) + k]
    return query @ key.mT / math.sqrt(query.shape[-1]) + torch.einsum("id,ijd->ij", query, a)


@repair_relative.alternative("pair by pair")
def _(query, key, table):
    """Two loops."""
    k = len(table) // 2
    rows = []
    for i in range(len(query)):
        a = torch.stack([table[max(-k, min(k, j - i)) + k] for j in range(len(key))])
        rows.append((key + a) @ query[i] / query.shape[-1] ** 0.5)
    return torch.stack(rows)


@repair_relative.alternative("two products, the second looked up")
def _(query, key, table):
    """Every query with every row of the table, and then the right one of them, in float64."""
    n, k = len(query), len(table) // 2
    index = (torch.arange(n) - torch.arange(n)[:, None]).clip(-k, k) + k
    by_distance = query.double() @ table.double().T
    return (query.double() @ key.double().T + by_distance.gather(1, index)) / math.sqrt(query.size(1))


# ---------------------------------------------------------------------------------------------------------- repair_row


def _repair_row(n_layers, d_model, n_heads, d_head, parameters):
    """The row, of the two that multiply out, whose blocks hold nearest to `parameters` numbers."""
    candidates = [(d_model, d_model // d_head), (n_heads * d_head, n_heads)]
    return min(candidates, key=lambda row: abs(12 * n_layers * row[0] ** 2 - parameters))


repair_row = Exercise(
    "repair_row",
    reference=_repair_row,
    returns=("d_model", "n_heads"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    numbers=True,
    hints=(
        "If the width is right, how many heads must there be? If the heads are right, how wide is the model? These "
        "are two rows, and both multiply out. What tells them apart?",
        "In a row that multiplies out, a block has 4 d² numbers in attention and 8 d² in the feed-forward network. "
        "Count both candidates, and compare with `parameters`.",
    ),
)


def _row(draw, wrong, factor):
    """A row of a table, with one number misprinted: times this factor."""
    n_layers, heads, d_head = 6 + int(draw.integers(30, 1)), 8 * (1 + int(draw.integers(4, 1))), 64
    width = heads * d_head
    parameters = 12 * n_layers * width**2 + int(draw.integers(1000, 1)) * n_layers
    if wrong == "heads":
        return n_layers, width, int(heads * factor), d_head, parameters
    return n_layers, int(width * factor), heads, d_head, parameters


def _rows(answer, draw, wrong, factors):
    return torch.stack([torch.stack(answer(*_row(draw, wrong, factor))) for factor in factors])


@repair_row.aspect("heads misprinted", points=1)
def _(answer, draw):
    """too many of them, too few, or right"""
    return _rows(answer, draw, "heads", (1.5, 0.75, 1.125, 1.0))


@repair_row.aspect("width misprinted", points=1)
def _(answer, draw):
    """too wide, too narrow, or right"""
    return _rows(answer, draw, "width", (1.5, 0.75, 1.125, 0.9375, 1.0))


@repair_row.aspect("the paper's two rows", points=1)
def _(answer, draw):
    """GPT-3 XL and 13B"""
    rows = [answer(24, 2048, 24, 128, 1_210_000_000), answer(40, 5140, 40, 128, 12_590_000_000)]
    return torch.stack([torch.stack(row) for row in rows])


MISPRINTS = ("heads misprinted", "width misprinted", "the paper's two rows")


@repair_row.misconception("as printed", fails=MISPRINTS)
def _(n_layers, d_model, n_heads, d_head, parameters):
    """The row came back as it was printed, and it does not multiply out."""
    return d_model, n_heads


@repair_row.misconception("the width is always right", fails=("width misprinted", "the paper's two rows"))
def _(n_layers, d_model, n_heads, d_head, parameters):
    """It was always the heads that were changed. A row that does not multiply out says that a number is wrong, not
    which: the parameters tell."""
    return d_model, d_model // d_head


@repair_row.misconception("the heads are always right", fails=("heads misprinted", "the paper's two rows"))
def _(n_layers, d_model, n_heads, d_head, parameters):
    """It was always the width that was changed. A row that does not multiply out says that a number is wrong, not
    which: the parameters tell."""
    return n_heads * d_head, n_heads


@repair_row.misconception("too little is counted", fails=MISPRINTS)
def _(n_layers, d_model, n_heads, d_head, parameters):
    """Too little was counted, one block in place of all, or a part of each; then the larger candidate is always
    nearer. There are n_layers blocks, and in each four matrices of d × d for attention, and d × 4d and back for the
    feed-forward network."""
    wide, narrow = (d_model, d_model // d_head), (n_heads * d_head, n_heads)
    return min((wide, narrow), key=lambda row: abs(12 * row[0] ** 2 - parameters))


@repair_row.variant("too little is counted", fails=MISPRINTS)
def _(n_layers, d_model, n_heads, d_head, parameters):
    """Attention alone."""
    wide, narrow = (d_model, d_model // d_head), (n_heads * d_head, n_heads)
    return min((wide, narrow), key=lambda row: abs(4 * n_layers * row[0] ** 2 - parameters))


@repair_row.misconception("both at once", fails=MISPRINTS)
def _(n_layers, d_model, n_heads, d_head, parameters):
    """Width and heads were both replaced. One of the two numbers is right: the candidates are the printed width with
    other heads, and the printed heads with another width."""
    return n_heads * d_head, d_model // d_head


@repair_row.alternative("the width that the parameters ask for")
def _(n_layers, d_model, n_heads, d_head, parameters):
    """The count solved for the width; as floats."""
    wanted = math.sqrt(parameters / (12 * n_layers))
    width = d_model if abs(d_model - wanted) <= abs(n_heads * d_head - wanted) else n_heads * d_head
    return float(width), width / d_head


@repair_row.alternative("counted block by block")
def _(n_layers, d_model, n_heads, d_head, parameters):
    """A right row is handed back at once; tensors come back."""
    if n_heads * d_head == d_model:
        return torch.tensor(d_model), torch.tensor(n_heads)
    off = {}
    for width in (d_model, n_heads * d_head):
        total = sum(4 * width * width + 2 * width * 4 * width for _ in range(n_layers))
        off[width] = abs(total - parameters)
    width = min(off, key=lambda width: off[width])
    return torch.tensor(width), torch.tensor(width // d_head)


# ----------------------------------------------------------------------------------------------------- structural_test

CLOSE = 1e-4


def _same(got, expected):
    """Equal but for rounding."""
    return torch.allclose(got, expected, rtol=CLOSE, atol=CLOSE)


def _structural_test(block, x, losses):
    """Whether block is a pre-norm decoder block."""
    attended, thought, whole, larger = block(x, 1.0, 0.0), block(x, 0.0, 1.0), block(x, 1.0, 1.0), 10 * x

    def hears_no_future(i):
        changed = torch.cat([x[:, :i], torch.randn_like(x[:, i:])], dim=1)
        return _same(block(changed, 1.0, 1.0)[:, :i], whole[:, :i])

    sound = (
        _same(block(x, 0.0, 0.0), x)
        and not _same(attended, x)
        and not _same(thought, x)
        and _same(block(larger, 1.0, 0.0) - larger, attended - x)
        and _same(block(larger, 0.0, 1.0) - larger, thought - x)
        and _same(block(attended, 0.0, 1.0), whole)
        and _same(block(x[:1], 1.0, 1.0), whole[:1])
        and all(map(hears_no_future, range(1, x.shape[1])))
    )
    return torch.tensor(sound)


structural_test = Exercise(
    "structural_test",
    reference=_structural_test,
    returns=("sound",),
    forbidden=READY_MADE,
    truths=True,
    difficulty=3,
    minutes=45,
    hints=(
        "Go through the sentences that describe a sound block. Each is a question that can be asked by calling "
        "`block` once or twice and comparing. Write one after the other, and run the check in between.",
        "`block(x, 0.0, 0.0)` must be x. What attention found is `block(x, 1.0, 0.0) - x`: if it hears a normalised "
        "x, that must be the same for `10 * x`. And a block is its halves one after the other: `block(block(x, 1.0, "
        "0.0), 0.0, 1.0)`.",
        "For the future and for the company there are tests in lectures 06 and 05: put different numbers after "
        "position i (to a norm, a constant added to all features is no change), and take one text out of the batch. "
        "Allow for rounding: `torch.allclose(…, rtol=1e-4, atol=1e-4)`.",
    ),
)


class _Parts(NamedTuple):
    """What a block is made of: four matrices (d, d) for attention, two for the feed-forward network."""

    W: Tensor
    up: Tensor
    down: Tensor

    def attention(self, h: Tensor, allowed: Tensor | None = None) -> Tensor:
        query, key, value = h @ self.W[0], h @ self.W[1], h @ self.W[2]
        mask = torch.ones(h.shape[1], h.shape[1], dtype=torch.bool).tril() if allowed is None else allowed
        scores = query @ key.mT / math.sqrt(h.shape[-1])          # plain: a check calls this some thousand times
        return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1) @ value @ self.W[3]

    def ff(self, h: Tensor) -> Tensor:
        return (h @ self.up).relu() @ self.down


Block = Callable[[Tensor, float, float, _Parts], Tensor]
Norm = Callable[[Tensor], Tensor]


def _ln(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _rms(x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], eps=1e-6)


def _gain(x: Tensor) -> Tensor:
    """A norm whose gain and bias have been trained."""
    return _ln(x) * torch.linspace(0.5, 1.5, x.shape[-1]) + 0.1


def _root_too_many(x: Tensor) -> Tensor:
    off = x - x.mean(dim=-1, keepdim=True)
    return off / (off.square().mean(dim=-1, keepdim=True).sqrt().sqrt() + 1e-5)


def _with_the_neighbour(x: Tensor) -> Tensor:
    """Each text also hears the one beside it in the batch."""
    return _ln(_ln(x) + _ln(x).roll(1, dims=0))


def _itself(x: Tensor) -> Tensor:
    return x


def _pre(first: Norm, second: Norm | None = None, allowed: Callable[[int], Tensor] | None = None) -> Block:
    """A pre-norm block with these norms on the side roads, and a mask of its own if there is one."""

    def block(x, a, f, p):
        x = x + a * p.attention(first(x), None if allowed is None else allowed(x.shape[1]))
        return x + f * p.ff((second or first)(x))

    return block


def _one_ahead(n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).tril(1)


def _everybody(n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool)


def _late(n: int) -> Tensor:
    """A mask made for three positions, behind which nothing is forbidden."""
    allowed = torch.ones(n, n, dtype=torch.bool).tril()
    allowed[3:, 3:] = True
    return allowed


def _attention_from_the_norm(x, a, f, p):
    h = _ln(x)
    x = h + a * p.attention(h)
    return x + f * p.ff(_ln(x))


def _ff_from_the_norm(x, a, f, p):
    x = _ln(x + a * p.attention(_ln(x)))
    return x + f * p.ff(x)


def _both_from_the_norm(x, a, f, p):
    x = _ln(x)
    x = _ln(x + a * p.attention(x))
    return x + f * p.ff(x)


def _post(x, a, f, p):
    x = _ln(x + a * p.attention(x))
    return _ln(x + f * p.ff(x))


def _sandwich(x, a, f, p):
    """What a sublayer found is normalised once more before it is added: another style, and sound."""
    x = x + a * _ln(p.attention(_ln(x)))
    return x + f * _rms(p.ff(_ln(x)))


def _replaced(x, a, f, p):
    x = a * p.attention(_ln(x))
    return x + f * p.ff(_ln(x))


def _side_by_side(x, a, f, p):
    return x + a * p.attention(_ln(x)) + f * p.ff(_ln(x))


def _exchanged(x, a, f, p):
    """The feed-forward network first."""
    x = x + f * p.ff(_ln(x))
    return x + a * p.attention(_ln(x))


def _no_ff(x, a, f, p):
    return x + a * p.attention(_ln(x))


def _no_attention(x, a, f, p):
    return x + f * p.ff(_ln(x))


def _faint(x, a, f, p):
    """A hundredth of x is exchanged for its norm."""
    return _pre(_ln)(0.99 * x + 0.01 * _ln(x), a, f, p)


def _by_thirds(x, a, f, p):
    """Right in mathematics, and rounded more than need be."""
    x = (x / 3 + a * p.attention(_gain(x)) / 3) * 3
    return (x / 7 + f * p.ff(_gain(x)) / 7) * 7


# In every family: a test that accuses the first, or misses the second, misses something simpler than its subject.
DIVERGED = _pre(_ln)
SIMPLE: tuple[tuple[str, bool, Block], ...] = (
    ("a sound block, whose loss has risen, because it was trained at too high a rate", True, DIVERGED),
    ("a block that returns zeros, whose loss has fallen", False, lambda x, a, f, p: torch.zeros_like(x)),
)


def _blocks(name: str, meaning: str, *family: tuple[str, bool, Block]) -> None:
    """An aspect: blocks, each with its story and whether it is sound."""
    blocks = family + SIMPLE

    def look(answer, draw):
        batch, n, d = 2 + int(draw.integers(2, 1)), 6 + int(draw.integers(2, 1)), 6 + 2 * int(draw.integers(2, 1))
        x = 2 * draw.normal(batch, n, d) + 1
        parts = _Parts(draw.normal(4, d, d) / math.sqrt(d), draw.normal(d, 2 * d), draw.normal(2 * d, d) / d)

        def of(block: Block) -> Callable[[Tensor, float, float], Tensor]:
            return lambda x, a, f: block(x, float(a), float(f), parts)

        said = []
        for _, _, block in blocks:
            steps = torch.arange(12)
            losses = 2 + 3 * torch.exp(-steps / 3) if block is not DIVERGED else 5 + steps / 4
            said.append(answer(of(block), x, (losses + 0.05 * draw.normal(12)).tolist()))
        return torch.stack(said)

    def explain(got, expected):
        for (story, sound, _), said in zip(blocks, got, strict=True):
            if bool(said) != sound:
                return f"{'accuses' if sound else 'misses'} {story}"
        return None

    look.__doc__ = meaning
    structural_test.aspect(name, points=1, explain=explain)(look)


_blocks(
    "the printed block",
    "catches residuals from the normalised x, in both sublayers; leaves a block with RMSNorm alone",
    ("the slide's block: both residuals start at the normalised x", False, _both_from_the_norm),
    ("a sound block with RMSNorm", True, _pre(_rms)),
)
_blocks(
    "half repaired",
    "catches it in one of the two sublayers, whichever it is",
    ("a block in which attention's residual starts at the normalised x", False, _attention_from_the_norm),
    ("a block in which the feed-forward network's residual starts at the normalised x", False, _ff_from_the_norm),
    ("a sound block whose norms have a gain and a bias", True, _pre(_gain)),
)
_blocks(
    "norms elsewhere",
    "catches a post-norm block; leaves alone one that also normalises what its sublayers found",
    ("a post-norm block", False, _post),
    ("a sound block that also normalises what its sublayers found", True, _sandwich),
)
_blocks(
    "nothing kept",
    "catches a residual connection that is missing",
    ("a block in which what attention found takes the place of x", False, _replaced),
)
_blocks(
    "the future",
    "catches a block that looks ahead, be it by one step, or only late in the text",
    ("a block without a mask", False, _pre(_ln, allowed=_everybody)),
    ("a block that looks one step ahead", False, _pre(_ln, allowed=_one_ahead)),
    ("a block whose mask was made for three positions", False, _pre(_ln, allowed=_late)),
)
_blocks(
    "the company",
    "catches a block that hears the rest of the batch",
    ("a block in which each text also hears its neighbour in the batch", False, _pre(_with_the_neighbour)),
    ("a block in which only the feed-forward network hears the neighbour", False, _pre(_ln, _with_the_neighbour)),
)
_blocks(
    "no norm",
    "catches a sublayer that hears x at whatever size it has",
    ("a block in which attention hears x as it is", False, _pre(_itself, _ln)),
    ("a block in which the feed-forward network hears x as it is", False, _pre(_ln, _itself)),
    ("a sound block with two kinds of norm", True, _pre(_rms, _ln)),
)
_blocks(
    "a root too many",
    "catches the norm that divides by √σ",
    ("a block whose norms divide by √σ + ε", False, _pre(_root_too_many)),
    ("a sound block with RMSNorm", True, _pre(_rms)),
)
_blocks(
    "left out",
    "catches a sublayer that is never called",
    ("a block without a feed-forward network", False, _no_ff),
    ("a block without attention", False, _no_attention),
)
_blocks(
    "side by side",
    "catches sublayers that do not work one after the other, in this order",
    ("a block whose sublayers both hear the x that came in", False, _side_by_side),
    ("a block with the feed-forward network first", False, _exchanged),
)
_blocks(
    "faint, or rounding",
    "tells a faint fault from rounding",
    ("a block in which a hundredth of x is exchanged for its norm", False, _faint),
    ("a sound block that differs from another by rounding alone, about 1e-6", True, _by_thirds),
)

EVERY_BLOCK = tuple(aspect.name for aspect in structural_test.aspects)
RESIDUALS = ("the printed block", "half repaired", "norms elsewhere", "nothing kept")


def _but(*caught):
    return tuple(name for name in EVERY_BLOCK if name not in caught)


@structural_test.misconception("the loss fell, so it is right", fails=EVERY_BLOCK)
def _(block, x, losses):
    """The verdict came from the losses. They fell for the broken blocks, too: networks learn around most faults, and a
    block that looks ahead even does better. And one sound block was trained at too high a rate. The loss says *that*
    something is learned. What the block is, you have to ask the block."""
    return sum(losses[-4:]) < sum(losses[:4])


@structural_test.variant("the loss fell, so it is right", fails=EVERY_BLOCK)
def _(block, x, losses):
    """And what comes out are numbers of the right shape."""
    output = block(x, 1.0, 1.0)
    return losses[-1] < losses[0] and output.shape == x.shape and bool(output.isfinite().all())


@structural_test.misconception("acquits every block", fails=EVERY_BLOCK)
def _(block, x, losses):
    """No block was accused, not even one that returns nothing but zeros. Either nothing was compared, or something
    that every block has, such as the shape of what comes out."""
    return block(x, 1.0, 1.0).shape == x.shape


@structural_test.variant("acquits every block", fails=EVERY_BLOCK)
def _(block, x, losses):
    """Two calls on the same input are compared."""
    return torch.allclose(block(x, 0.0, 0.0), block(x.clone(), 0.0, 0.0))


@structural_test.misconception("accuses every block", fails=EVERY_BLOCK)
def _(block, x, losses):
    """Sound blocks were accused, too. The test demands something that need not be so: a block that *works* changes x,
    and every output may depend on its own word and on what came before. Only a block whose findings are multiplied by 0
    must return x."""
    return torch.allclose(block(x, 1.0, 1.0), x, rtol=1e-4, atol=1e-4)


@structural_test.variant("accuses every block", fails=EVERY_BLOCK)
def _(block, x, losses):
    """One sublayer is silent, the other is not."""
    return all(torch.allclose(block(x, a, f), x, rtol=1e-4, atol=1e-4) for a, f in ((0, 1), (1, 0), (0, 0)))


@structural_test.variant("accuses every block", fails=EVERY_BLOCK)
def _(block, x, losses):
    """The output is expected to be normalised, which is post-norm."""
    output = block(x, 1.0, 1.0)
    centred = output.mean(dim=-1).abs().max() < 1e-4
    return bool(centred) and torch.allclose(block(x, 0.0, 0.0), x, atol=1e-4)


@structural_test.misconception("only silence", fails=_but(*RESIDUALS, "faint, or rounding"))
def _(block, x, losses):
    """That silence must be the identity is the best single question, but it is not the only one. A silent block says
    nothing about who is heard when it speaks, at which size, and in which order. Go on through the other sentences of
    the contract."""
    return torch.allclose(block(x, 0.0, 0.0), x, rtol=1e-4, atol=1e-5)


@structural_test.misconception(
    "an x that is normalised already",
    fails=("the printed block", "half repaired", "side by side", "faint, or rounding"),
)
def _(block, x, losses):
    """Silence was tried on an x of mean 0 and size 1. To such an x a norm does nothing, so that a residual from the
    normalised x looks like one from x. Try it on vectors that are neither centred nor of size one."""
    x = (x - x.mean(dim=-1, keepdim=True)) / x.std(dim=-1, keepdim=True, correction=0)

    def same(a, b):
        return torch.allclose(a, b, rtol=1e-4, atol=1e-4)

    quiet, attended, thought, whole = (block(x, a, f) for a, f in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)))
    if not same(quiet, x) or same(attended, x) or same(thought, x):
        return False
    raw = block(5 * x, 1.0, 0.0) - block(5 * x, 0.0, 0.0), block(5 * x, 0.0, 1.0) - block(5 * x, 0.0, 0.0)
    if not same(raw[0], attended - quiet) or not same(raw[1], thought - quiet):
        return False
    if not same(block(x[:1], 1.0, 1.0), whole[:1]):
        return False
    for i in range(x.shape[1] - 1):
        changed = torch.cat([x[:, : i + 1], torch.randn_like(x[:, i + 1 :])], dim=1)
        if not same(block(changed, 1.0, 1.0)[:, : i + 1], whole[:, : i + 1]):
            return False
    return True


@structural_test.misconception("the future is not tried", fails=("the future",))
def _(block, x, losses):
    """No question was asked about the future, or not at every place: change what stands after position i, for several
    i, and compare the outputs up to i."""

    def same(a, b):
        return torch.allclose(a, b, rtol=1e-4, atol=1e-4)

    quiet, attended, thought, whole = (block(x, a, f) for a, f in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)))
    if not same(quiet, x) or same(attended, x) or same(thought, x) or not same(block(attended, 0.0, 1.0), whole):
        return False
    raw = block(10 * x, 1.0, 0.0) - 10 * x, block(10 * x, 0.0, 1.0) - 10 * x
    return same(raw[0], attended - x) and same(raw[1], thought - x) and same(block(x[:1], 1.0, 1.0), whole[:1])


@structural_test.variant("the future is not tried", fails=("the future",))
def _(block, x, losses):
    """The outputs at the first position alone are compared."""

    def same(a, b):
        return torch.allclose(a, b, rtol=1e-4, atol=1e-4)

    quiet, attended, thought, whole = (block(x, a, f) for a, f in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)))
    if not same(quiet, x) or same(attended, x) or same(thought, x) or not same(block(attended, 0.0, 1.0), whole):
        return False
    changed = torch.cat([x[:, :1], torch.randn_like(x[:, 1:])], dim=1)
    if not same(block(changed, 1.0, 1.0)[:, 0], whole[:, 0]):
        return False
    raw = block(10 * x, 1.0, 0.0) - 10 * x, block(10 * x, 0.0, 1.0) - 10 * x
    return same(raw[0], attended - x) and same(raw[1], thought - x) and same(block(x[:1], 1.0, 1.0), whole[:1])


@structural_test.misconception("the company is not tried", fails=("the company",))
def _(block, x, losses):
    """No question was asked about the batch. A text must get the same answer alone as among others: take one out, and
    compare."""

    def same(a, b):
        return torch.allclose(a, b, rtol=1e-4, atol=1e-4)

    quiet, attended, thought, whole = (block(x, a, f) for a, f in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)))
    if not same(quiet, x) or same(attended, x) or same(thought, x) or not same(block(attended, 0.0, 1.0), whole):
        return False
    for i in range(x.shape[1] - 1):
        changed = torch.cat([x[:, : i + 1], torch.randn_like(x[:, i + 1 :])], dim=1)
        if not same(block(changed, 1.0, 1.0)[:, : i + 1], whole[:, : i + 1]):
            return False
    raw = block(10 * x, 1.0, 0.0) - 10 * x, block(10 * x, 0.0, 1.0) - 10 * x
    return same(raw[0], attended - x) and same(raw[1], thought - x)


@structural_test.misconception("one size of x", fails=("no norm", "a root too many"))
def _(block, x, losses):
    """All was tried at one size of x. That a sublayer hears a *normalised* x shows only when x grows: what it finds
    must stay the same."""

    def same(a, b):
        return torch.allclose(a, b, rtol=1e-4, atol=1e-4)

    quiet, attended, thought, whole = (block(x, a, f) for a, f in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)))
    if not same(quiet, x) or same(attended, x) or same(thought, x) or not same(block(attended, 0.0, 1.0), whole):
        return False
    for i in range(x.shape[1] - 1):
        changed = torch.cat([x[:, : i + 1], torch.randn_like(x[:, i + 1 :])], dim=1)
        if not same(block(changed, 1.0, 1.0)[:, : i + 1], whole[:, : i + 1]):
            return False
    return same(block(x[:1], 1.0, 1.0), whole[:1])


@structural_test.misconception("nothing need be found", fails=("left out",))
def _(block, x, losses):
    """Everything that must stay the same was compared, and nothing that must change. A block without one of its
    sublayers passes that: with the sublayer multiplied by 1, something has to be added to x."""

    def same(a, b):
        return torch.allclose(a, b, rtol=1e-4, atol=1e-4)

    quiet, attended, thought, whole = (block(x, a, f) for a, f in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)))
    if not same(quiet, x) or not same(block(attended, 0.0, 1.0), whole):
        return False
    for i in range(x.shape[1] - 1):
        changed = torch.cat([x[:, : i + 1], torch.randn_like(x[:, i + 1 :])], dim=1)
        if not same(block(changed, 1.0, 1.0)[:, : i + 1], whole[:, : i + 1]):
            return False
    raw = block(10 * x, 1.0, 0.0) - 10 * x, block(10 * x, 0.0, 1.0) - 10 * x
    return same(raw[0], attended - x) and same(raw[1], thought - x) and same(block(x[:1], 1.0, 1.0), whole[:1])


@structural_test.misconception("the order of the halves", fails=("side by side",))
def _(block, x, losses):
    """Each sublayer was tried by itself, and never the two together. One after the other, they must give what the
    whole block gives: the feed-forward network hears what attention has left."""

    def same(a, b):
        return torch.allclose(a, b, rtol=1e-4, atol=1e-4)

    quiet, attended, thought, whole = (block(x, a, f) for a, f in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)))
    if not same(quiet, x) or same(attended, x) or same(thought, x):
        return False
    for i in range(x.shape[1] - 1):
        changed = torch.cat([x[:, : i + 1], torch.randn_like(x[:, i + 1 :])], dim=1)
        if not same(block(changed, 1.0, 1.0)[:, : i + 1], whole[:, : i + 1]):
            return False
    raw = block(10 * x, 1.0, 0.0) - 10 * x, block(10 * x, 0.0, 1.0) - 10 * x
    return same(raw[0], attended - x) and same(raw[1], thought - x) and same(block(x[:1], 1.0, 1.0), whole[:1])


@structural_test.misconception("equal to the last digit", fails=("faint, or rounding",))
def _(block, x, losses):
    """No difference at all was allowed, and a sound block was accused of rounding. Float32 is good to seven digits.
    Allow a little: `torch.allclose` does."""

    def same(a, b):
        return torch.allclose(a, b, rtol=1e-4, atol=1e-4)

    quiet, attended, thought, whole = (block(x, a, f) for a, f in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)))
    if not torch.equal(quiet, x) or same(attended, x) or same(thought, x):
        return False
    for i in range(x.shape[1] - 1):
        changed = torch.cat([x[:, : i + 1], torch.randn_like(x[:, i + 1 :])], dim=1)
        if not same(block(changed, 1.0, 1.0)[:, : i + 1], whole[:, : i + 1]):
            return False
    if not same(block(attended, 0.0, 1.0), whole) or not same(block(x[:1], 1.0, 1.0), whole[:1]):
        return False
    raw = block(10 * x, 1.0, 0.0) - 10 * x, block(10 * x, 0.0, 1.0) - 10 * x
    return same(raw[0], attended - x) and same(raw[1], thought - x)


@structural_test.misconception("a faint fault taken for rounding", fails=("faint, or rounding",))
def _(block, x, losses):
    """So much was allowed that a faint fault passed for rounding. Rounding moves these numbers by about a millionth."""

    def same(a, b, allowed=1e-3):
        return torch.allclose(a, b, rtol=1e-4, atol=allowed)

    quiet, attended, thought, whole = (block(x, a, f) for a, f in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)))
    if not same(quiet, x, 0.2) or same(attended, x) or same(thought, x):
        return False
    if not same(block(attended, 0.0, 1.0) - attended, whole - attended, 0.2):
        return False
    for i in range(x.shape[1] - 1):
        changed = torch.cat([x[:, : i + 1], torch.randn_like(x[:, i + 1 :])], dim=1)
        if not same(block(changed, 1.0, 1.0)[:, : i + 1], whole[:, : i + 1]):
            return False
    larger = block(10 * x, 0.0, 0.0)
    raw = block(10 * x, 1.0, 0.0) - larger, block(10 * x, 0.0, 1.0) - larger
    if not same(raw[0], attended - quiet, 0.1) or not same(raw[1], thought - quiet, 0.1):
        return False
    return same(block(x[:1], 1.0, 1.0), whole[:1])


@structural_test.alternative("a list of questions")
def _(block, x, losses):
    """One after the other, each with its name."""

    def far(a, b):
        return (a - b).abs().max().item()

    found = {(a, f): block(x, a, f) for a in (0, 1) for f in (0, 1)}
    broken = []
    if far(found[0, 0], x) > 1e-4:
        broken.append("silence")
    for key in ((1, 0), (0, 1)):
        if far(found[key], x) < 1e-3:
            broken.append("left out")
        for size in (3.0, 20.0):
            if far(block(size * x, *key) - size * x, found[key] - x) > 2e-4:
                broken.append("size")
    if far(block(found[1, 0], 0, 1), found[1, 1]) > 1e-4:
        broken.append("order")
    for j in range(1, x.shape[1]):
        moved = x.clone()
        moved[:, j:] = torch.randn_like(x[:, j:])
        if far(block(moved, 1, 1)[:, :j], found[1, 1][:, :j]) > 1e-4:
            broken.append("future")
    for b in range(x.shape[0]):
        if far(block(x[b : b + 1], 1, 1)[0], found[1, 1][b]) > 1e-4:
            broken.append("company")
    return not broken


@structural_test.alternative("prefixes of single texts")
def _(block, x, losses):
    """Future and company in one: each beginning of each text, all alone. A tensor comes back."""
    whole = block(x, 1.0, 1.0)
    ok = torch.ones((), dtype=torch.bool)
    for b in range(len(x)):
        for n in range(1, x.shape[1] + 1):
            ok &= torch.isclose(block(x[b : b + 1, :n], 1.0, 1.0), whole[b : b + 1, :n], rtol=1e-4, atol=1e-4).all()
    for s in (1.0, 4.0, 16.0):
        y = s * x
        ok &= torch.isclose(block(y, 0.0, 0.0), y, rtol=1e-4, atol=1e-5).all()
        for a, f in ((1.0, 0.0), (0.0, 1.0)):
            gain = block(y, a, f) - y
            ok &= torch.isclose(gain, block(x, a, f) - x, rtol=1e-3, atol=1e-4).all() & (gain.abs().max() > 1e-2)
    return ok & torch.isclose(block(block(x, 1.0, 0.0), 0.0, 1.0), whole, rtol=1e-4, atol=1e-4).all()


# ---------------------------------------------------------------------------------------------------------- told_apart


def _told_apart(printed, repaired):
    """The mean of the differences at equal seeds, and how many of its standard errors it is."""
    difference = printed - repaired
    error = difference.std(correction=1) / math.sqrt(len(difference))
    return difference.mean(), difference.mean() / error


told_apart = Exercise(
    "told_apart",
    reference=_told_apart,
    returns=("difference", "t"),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    extra=True,
    numbers=True,
    hints=(
        "Seed 3 is in both lists, and luck that both share says nothing about which is better. What is left if you "
        "subtract one list from the other, seed by seed?",
        "Of n differences the standard deviation says how far one of them may lie from their mean; the mean of n of "
        "them is surer, by a factor of √n.",
    ),
)


def _runs(draw, n, shared=0.0):
    """Losses of two models on n seeds; `shared` is how much of a seed's luck falls to both."""
    luck = shared * draw.normal(n)
    return 2.1 + luck + 0.05 * draw.normal(n), 2.2 + luck + 0.03 * draw.normal(n)


@told_apart.aspect("difference", points=1)
def _(answer, draw):
    """the mean of printed minus repaired"""
    return torch.stack([answer(*_runs(draw, n))[0] for n in (3, 5, 8)])


@told_apart.aspect("t", points=1)
def _(answer, draw):
    """the difference in standard errors"""
    return torch.stack([answer(*_runs(draw, n))[1] for n in (3, 5, 8)])


@told_apart.aspect("luck that both share", points=1)
def _(answer, draw):
    """does not count"""
    return answer(*_runs(draw, 6, shared=1.0))[1]


@told_apart.misconception("each by itself", fails=("t", "luck that both share"))
def _(printed, repaired):
    """Each model's spread over the seeds was computed by itself. Most of that spread is luck which both share, since
    they have the same seeds and texts; it drowns a difference that is there for every single seed."""
    n = len(printed)
    error = math.sqrt((printed.var() + repaired.var()) / n)
    return (printed - repaired).mean(), (printed - repaired).mean() / error


@told_apart.misconception("deviation for error", fails=("t", "luck that both share"))
def _(printed, repaired):
    """The mean was divided by the standard deviation of the differences, which says how far *one* run may lie off. The
    mean of n runs is surer than one."""
    difference = printed - repaired
    return difference.mean(), difference.mean() / difference.std()


@told_apart.misconception("n for n − 1", fails=("t", "luck that both share"))
def _(printed, repaired):
    """The squared deviations were averaged over n. The mean was taken from the same few runs, and lies too near to
    them: divide by n − 1. For three seeds that is a fifth of the answer."""
    difference = printed - repaired
    return difference.mean(), difference.mean() / (difference.std(correction=0) / math.sqrt(len(difference)))


@told_apart.misconception("the wrong sign", fails=("difference", "t", "luck that both share"))
def _(printed, repaired):
    """It is printed minus repaired: more than 0 where the repair helps."""
    difference = repaired - printed
    return difference.mean(), difference.mean() / (difference.std() / math.sqrt(len(difference)))


@told_apart.misconception("divided by n", fails=("t", "luck that both share"))
def _(printed, repaired):
    """The error of a mean falls as √n, not as n: four times as many seeds halve it."""
    difference = printed - repaired
    return difference.mean(), difference.mean() / (difference.std() / len(difference))


@told_apart.alternative("by hand")
def _(printed, repaired):
    """Plain Python."""
    pairs = [a - b for a, b in zip(printed.tolist(), repaired.tolist(), strict=True)]
    n, mean = len(pairs), sum(pairs) / len(pairs)
    variance = sum((pair - mean) ** 2 for pair in pairs) / (n - 1)
    return mean, mean / math.sqrt(variance / n)


@told_apart.alternative("means first, in float64")
def _(printed, repaired):
    """The mean difference is the difference of the means."""
    printed, repaired = printed.double(), repaired.double()
    mean = printed.mean() - repaired.mean()
    spread = (printed - repaired - mean).square().sum() / (len(printed) - 1)
    return [mean, mean * (len(printed) / spread).sqrt()]
