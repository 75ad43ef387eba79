"""perplexity: How many equally likely tokens would be as hard to guess."""

import math

import torch

from attncourse import metrics
from lessonkit.exercises.exercise import Exercise


def solution(log_probabilities, mask):
    return torch.exp(-log_probabilities[mask].mean())


exercise = Exercise(
    "perplexity",
    reference=metrics.perplexity,
    solution=solution,
    returns=("perplexity",),
    forbidden=("attncourse.metrics",),
    numbers=True,
    difficulty=1,
    minutes=10,
    hints=(
        "A model that gives each token the probability of one side of a die with k sides has perplexity k. Try k = 4.",
        "The logarithms are natural ones, so what undoes them is e to the power.",
        "Over the real tokens of all texts together: mean of the logarithms, minus, exponential. In this order: "
        "a product of a thousand probabilities would be smaller than any float.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _log_p(draw):
    """(log-probabilities, mask), and behind a text's end stands whatever the model made of the padding."""
    batch, n = draw.sizes(2, 3, 5)  # few: in a short text a product does not yet run out of range
    log_p = draw.normal(batch, n) - 2 - draw.uniform(batch, 1)
    log_p[0, 0] = 0  # of one token the model is certain, and it counts as the others do
    return log_p, draw.padding_mask(batch, n)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("a fair die", points=1, hint=2)
def a_fair_die(answer, draw):
    """a guess among k equal sides has the perplexity k"""
    k, n = draw.sizes(2, 3, 12)
    return torch.as_tensor(answer(torch.full((1, n), -math.log(k)), torch.ones(1, n, dtype=torch.bool)))


@aspect("full texts", points=1, hint=3)
def full_texts(answer, draw):
    """tokens that are not equally hard"""
    log_p, mask = _log_p(draw)
    return torch.as_tensor(answer(log_p, torch.ones_like(mask)))


@aspect("short texts", points=1, hint=3)
def short_texts(answer, draw):
    """each real token of all texts counts the same, padding counts for nothing"""
    log_p, mask = _log_p(draw)
    mask[0, (mask.shape[1] - 1) // 2] = False  # a hole between two tokens
    mask[-1] = True  # and one text is full
    return torch.as_tensor(answer(log_p, mask))


@aspect("a long text", points=1, hint=3)
def a_long_text(answer, draw):
    """a thousand tokens and more, whose probability is too small for any float"""
    n = 1000 + int(draw.integers(200, 1))
    log_p = draw.normal(1, n) - 3
    log_p[0, 0] = -30  # one token shows among a thousand
    return torch.as_tensor(answer(log_p, torch.ones(1, n, dtype=torch.bool)))


# -------------------------------------------------------------------------------------- one slip away from the solution

ALL = ("a fair die", "full texts", "short texts", "a long text")
UNEQUAL, LONG = ("full texts", "short texts", "a long text"), ("a long text",)
MEAN = "torch.exp(-log_probabilities[mask].mean())"

slip("base 2 to natural logarithms", ALL, {"torch.exp(": "2 ** ("}, words="""
    2 was raised to a mean of *natural* logarithms. Bits go with 2, nats go with e, and mixed they give a number that
    looks better than it is. Test it with a die: four equal sides must give 4.""")
slip("e to logarithms of base 2", ALL, {".mean()": ".mean() / math.log(2)"}, words="""
    The logarithms were turned into bits, and then e was raised to them. Bits go with 2, nats go with e. Test it with a
    die: four equal sides must give 4.""")
slip("base 10", ALL, {"torch.exp(": "10 ** ("}, {".mean()": ".mean() / math.log(10)"}, words="""
    Base 10 and natural logarithms are mixed. These are natural ones, which only e undoes. Test it with a die: four
    equal sides must give 4.""")
slip("a missing minus", ALL, {"-": ""}, words="""
    The result lies between 0 and 1: it is a kind of average of the tokens' probabilities. Perplexity is how many equal
    choices that would be, never fewer than 1.""")
slip("the loss itself", ALL, {"torch.exp": ""}, words="""
    This is the mean of −log p: the loss, in nats per token. Perplexity is the number of equal choices with that loss:
    undo the logarithm.""")
slip("padding counted", ("short texts",), {"[mask]": ""}, words="""
    What the model thinks of padding was averaged in. The mask is there to leave it out.""")
slip("divides by the padding too", ("short texts",), {"log_probabilities[mask]": "(log_probabilities * mask)"},
     words="""
    Padding adds nothing to the sum and still counts in the divisor, which makes the model look better than it is, and
    the more padding there is, the better. Divide by the number of real tokens.""")
slip("the mask read as a length", ("short texts",),
     {"[mask]": "[torch.arange(mask.shape[1]) < mask.sum(dim=1)[:, None]]"}, words="""
    The mask was read as a length: so many places from the front. That is right only where all padding stands behind.
    The mask says *where* tokens are, not only how many there are.""")
slip("certain tokens not counted", ("full texts", "short texts"),
     {".mean()": ".sum() / log_probabilities[mask].count_nonzero()"}, words="""
    Tokens whose logarithm is 0 were not counted. Their probability is 1: the model was certain, and that makes its
    perplexity smaller. What is a token and what is padding is told by the mask, not by the numbers.""")
slip("mask upside down", ALL, {"[mask]": "[~mask]"}, words="""
    The average was taken over the padding. The mask is True where there is a token.""")
slip("the first token left out", ("full texts", "short texts", "a long text"),
     {"log_probabilities[mask]": "log_probabilities[:, 1:][mask[:, 1:]]"}, words="""
    The first token of each text was left out. What you are given are the probabilities of tokens that were predicted,
    and all of them count.""")
slip("divides by the number of texts", ALL, {".mean()": ".sum() / len(mask)"}, words="""
    The sum was divided by how many texts there are. That is one over the probability of a whole text, and longer texts
    are worse for that alone. Divide by the number of tokens.""")
slip("a number for each text", ALL,
     {MEAN: "torch.exp(-(log_probabilities * mask).sum(dim=1) / mask.sum(dim=1))"}, words="""
    Each text got a perplexity of its own. One number is asked for: all tokens of all texts in one mean.""")
slip("summed, not averaged", ALL, {".mean()": ".sum()"}, words="""
    This is one over the probability of the whole batch: astronomically large, and larger for more text. To find how
    many choices there were for *one* token, take the mean of the logarithms.""")

slip("the product itself", LONG,
     {MEAN: "log_probabilities[mask].exp().prod() ** (-1 / mask.sum())"},
     {MEAN: "(1 / log_probabilities[mask].exp()).prod() ** (1 / mask.sum())"},
     {MEAN: "log_probabilities[mask].sum().exp() ** (-1 / mask.sum())"},
     {MEAN: "log_probabilities.double()[mask].exp().prod() ** (-1 / mask.sum())"},  # twice as late
     {MEAN: "torch.exp(-log_probabilities[mask].exp().prod().log() / mask.sum())"}, words="""
    The probabilities were multiplied, or their logarithms added up and exponentiated, before the root was taken. The
    probability of a text of a thousand tokens is too small for any float: it is rounded to 0, and one over it is ∞.
    Stay with the logarithms until only their mean is left.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("averages the perplexities of the texts", fails=("full texts", "short texts"))
def averages_the_perplexities_of_the_texts(log_probabilities, mask):
    """Each text got a perplexity of its own, and those were averaged. One hard text then outweighs many easy ones,
    because the exponential was taken too early. Average over all tokens first."""
    each = (log_probabilities * mask).sum(dim=1) / mask.sum(dim=1)
    return torch.exp(-each).mean()


@misconception("each text counts the same", fails=("short texts",))
def each_text_counts_the_same(log_probabilities, mask):
    """The means of the texts were averaged, so a token in a short text weighs more than one in a long text. All real
    tokens count the same."""
    return torch.exp(-((log_probabilities * mask).sum(dim=1) / mask.sum(dim=1)).mean())


@misconception("averages before the logarithm", fails=UNEQUAL)
def averages_before_the_logarithm(log_probabilities, mask):
    """The probabilities were averaged, or their inverses, in place of the logarithms. A text's probability is a
    product, so what belongs in the mean is what turns products into sums."""
    return 1 / log_probabilities[mask].exp().mean()


@variant("averages before the logarithm", fails=UNEQUAL)
def averages_the_inverses(log_probabilities, mask):
    """The inverses."""
    return (-log_probabilities[mask]).exp().mean()


@variant("averages before the logarithm", "padding counted", fails=UNEQUAL)
def averages_the_inverses_with_the_padding(log_probabilities, mask):
    """The inverses, those of the padding among them."""
    return (-log_probabilities).exp().mean()


@variant("each text counts the same", fails=("short texts",))
def each_place_counts_the_same(log_probabilities, mask):
    """The mean of each place in the texts, and then the mean of these."""
    real = mask.any(dim=0)
    return torch.exp(-((log_probabilities * mask).sum(dim=0)[real] / mask.sum(dim=0)[real]).mean())


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a number, by Python's own means")
def a_number_by_pythons_own_means(log_probabilities, mask):
    """Loops, and returns a float."""
    real = []
    for row, there in zip(log_probabilities.tolist(), mask.tolist(), strict=True):
        real += [p for p, ok in zip(row, there, strict=True) if ok]
    return math.exp(-math.fsum(real) / len(real))


@alternative("in bits from end to end")
def in_bits_from_end_to_end(log_probabilities, mask):
    """Logarithms to base 2, and 2 to their mean."""
    bits = -(log_probabilities / math.log(2)).masked_fill(~mask, 0.0).sum() / mask.sum()
    return 2**bits


@alternative("the geometric mean in float64")
def the_geometric_mean_in_float64(log_probabilities, mask):
    """The n-th root of each probability first, then the product of these."""
    log_p = log_probabilities.double()[mask]
    return 1 / (log_p / len(log_p)).exp().prod()


@alternative("masked by a product, not contiguous")
def masked_by_a_product_not_contiguous(log_probabilities, mask):
    """Sums and divides over the transposed table, and returns one element of a longer tensor."""
    mean = (log_probabilities.mT * mask.mT.float()).sum() / mask.sum()
    return (-mean).exp().expand(3)[1]
