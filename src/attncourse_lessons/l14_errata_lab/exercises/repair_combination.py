"""repair_combination: What all heads found for each word, side by side, and mixed by Y."""

import math

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient

from .common import READY_MADE, reached_where_heard


def reference(heads, Y):
    """Side by side, a row for each word, and then Y on the right."""
    return torch.cat(heads.unbind(), dim=-1) @ Y


def solution(heads, Y):
    n_heads, n, d_head = heads.shape
    beside = heads.transpose(0, 1).reshape(n, n_heads * d_head)  # (n, d)
    return beside @ Y


exercise = Exercise(
    "repair_combination",
    reference=reference,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=8,
    extra=True,
    hints=(
        "A word's row holds what head 1 found for it, then what head 2 found, and so on: (n, d). On which side of it "
        "must a matrix stand that mixes the d numbers of each row?",
        "`torch.cat` along the last axis puts matrices side by side, and passes the gradient on to each of them. "
        "What shape has the result for seven words, and what for one word? On which side of it does Y fit?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _heads(draw, n=None):
    h, drawn, d_head = draw.sizes(3, 2, 6)
    return draw.normal(h, n or drawn, d_head), draw.normal(h * d_head, h * d_head) / math.sqrt(h * d_head)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("output", points=1, hint=1)
def output(answer, draw):
    """a row for each word, mixed by Y"""
    return answer(*_heads(draw))


@aspect("as many words as numbers", points=1, hint=1)
def as_many_words_as_numbers(answer, draw):
    """even where n happens to be d, and the wrong side would not crash"""
    h, d_head = draw.sizes(2, 2, 5)
    d = h * d_head
    return answer(draw.normal(h, d, d_head), draw.normal(d, d) / math.sqrt(d))


@aspect("one word", points=1, hint=2)
def one_word(answer, draw):
    """a text of one word"""
    return answer(*_heads(draw, n=1))


@aspect("gradient", points=1, hint=2, explain=explain_missing_gradient("heads", "Y"))
def gradient(answer, draw):
    """the heads and Y can both be learned"""
    h, d_head = draw.sizes(2, 2, 5)
    d = h * d_head                                                        # as many words: sides are not the matter here
    return reached_where_heard(answer, [draw.normal(h, d, d_head), draw.normal(d, d)], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

SIDES = ("output", "as many words as numbers", "one word")
PRODUCT = "beside @ Y"

slip("Y on the left", SIDES, {PRODUCT: "Y @ beside"}, words="""
    Y stands on the left, as on the slide. There it multiplies columns: it mixes the *words* of the text with each
    other, if it fits at all, which it does only for a text of d words.""")

slip("Y transposed", SIDES,
     {PRODUCT: "(Y @ beside.mT).mT"},
     {PRODUCT: "torch.nn.functional.linear(beside, Y)"},
     words="""
    The shapes fit, but it is the transpose of Y that multiplies each row. That is what Y on the left does to *columns*;
    for rows it is a different matrix.""")

slip("heads torn apart", ("output", "as many words as numbers"), {".transpose(0, 1)": ""}, words="""
    `reshape` reads the numbers in the order in which they lie: all words of head 1 first. A row then holds several
    words of one head in place of one word of all heads. The axis of the heads must first be moved next to the
    features.""")

slip("heads interleaved", SIDES, {"transpose(0, 1)": "permute(1, 2, 0)"}, words="""
    The first number of every head, then the second of every head, and so on. [output_1; …; output_h] is the whole of
    head 1, then the whole of head 2; Y was learned for that order.""")

slip("Y left out", SIDES, {" @ Y": ""}, words="""
    The heads stand side by side, and nothing has mixed them: Y was not used.""")

slip("heads in reverse", SIDES, {"heads.transpose": "heads.flip(0).transpose"}, words="""
    The last head stands first.""")


slip("cut off from the gradient", ("gradient",),
     {PRODUCT: "beside.detach() @ Y"},
     {PRODUCT: "beside @ Y.detach()"},
     words="""
    The numbers are right, but no gradient gets through, or not everywhere: `.detach()`, `.data`, numpy and
    `torch.no_grad()` forget where numbers came from. A repaired line stands in a model that is to be trained.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("one matrix for each head")
def one_matrix_for_each_head(heads, Y):
    """Y is a stack of one matrix for each head, and the sum over heads is the product."""
    h, _, d_head = heads.shape
    return torch.einsum("hnd,hde->ne", heads, Y.view(h, d_head, -1))


@alternative("word by word")
def word_by_word(heads, Y):
    """A loop over the words."""
    return torch.stack([torch.cat([head[i] for head in heads]) @ Y for i in range(heads.shape[1])])


@alternative("reshape after permute, float64")
def reshape_after_permute_float64(heads, Y):
    """The layer's own way."""
    h, n, d_head = heads.shape
    beside = heads.permute(1, 0, 2).contiguous().view(n, h * d_head)
    return torch.matmul(beside.double(), Y.double())
