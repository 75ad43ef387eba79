"""mean_pool: The mean of the states of each sentence's words."""

import torch

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import apart, require_variation
from lessonkit.exercises.way_back import explain_way_back, way_back


def solution(states, lengths):
    mask = torch.arange(states.shape[1]) < lengths[:, None]        # (batch, n)
    total = states.masked_fill(~mask[..., None], 0.0).sum(dim=1)   # (batch, d)
    return total / lengths[:, None]


exercise = Exercise(
    "mean_pool",
    reference=lambda states, lengths: attention.masked_mean(
        states, attention.lengths_to_mask(lengths, states.shape[1])
    ),
    solution=solution,
    returns=("summary",),
    forbidden=("attncourse.attention", "attncourse.recurrent"),
    difficulty=2,
    minutes=12,
    extra=True,
    hints=(
        "Two things must know the length: what is added up, and what the sum is divided by.",
        "`torch.arange(n) < lengths[:, None]` is True where there is a word: (batch, n). It needs one more axis to "
        "meet the states.",
        "Put 0 where there is no word (`masked_fill` chooses; a product would turn an ∞ in the padding into NaN), sum "
        "over the positions, and divide by `lengths[:, None]`. All of it with tensors: numpy and `.item()` pass no "
        "gradient on to whoever made the states.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _states(draw, ragged):
    """(states, lengths), and what a network leaves behind a sentence's end is as large as anything else."""
    batch, n, d = draw.sizes(3, 3, 8)
    lengths = draw.padding_mask(batch, n).sum(dim=1) if ragged else torch.full((batch,), n)
    return draw.normal(batch, n, d), lengths


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("full sentences", points=1, hint=1)
def full_sentences(answer, draw):
    """the mean over the positions, one vector for each sentence"""
    return answer(*_states(draw, ragged=False))


@aspect("short sentences", points=2, hint=1)
def short_sentences(answer, draw):
    """the mean over the words that are there, divided by how many there are"""
    return answer(*_states(draw, ragged=True))


@aspect(
    "past the end",
    points=1,
    hint=3,
    explain=explain_worst("summary {place} changes by {size} when only the padding changes"),
)
def past_the_end(answer, draw):
    """what a network leaves in the padding changes nothing"""
    states, lengths = _states(draw, ragged=True)
    mask = torch.arange(states.shape[1]) < lengths[:, None]
    other = states + 5 * draw.normal(*states.shape) * ~mask[..., None]
    return apart(require_variation(answer(states, lengths)), answer(other, lengths))


@aspect("a batch of one word", points=1, hint=2)
def a_batch_of_one_word(answer, draw):
    """one sentence of one word is its own mean"""
    n, d = draw.sizes(2, 2, 8)
    return answer(draw.normal(1, n, d), torch.ones(1, dtype=torch.int64))


@aspect("gradient", points=1, hint=3, explain=explain_way_back("states"))
def gradient(answer, draw):
    """each word of a sentence gets the same share of the gradient, padding gets none"""
    states, lengths = _states(draw, ragged=True)
    states.requires_grad_()
    return way_back(answer(states, lengths), exercise.reference(states, lengths), [states], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

RAGGED = ("short sentences", "past the end", "a batch of one word")
ALL = ("full sentences", *RAGGED)
SIZE = ("full sentences", "short sentences")
WORDS = "torch.arange(states.shape[1]) < lengths[:, None]"
MASKED, DIVIDED = "states.masked_fill(~mask[..., None], 0.0)", " / lengths[:, None]"

slip("divides by the padded length", ("short sentences", "a batch of one word"),
     {DIVIDED: " / states.shape[1]"}, words="""
    The padding is gone from the sum and still counted in the divisor: a sentence of two words in a row of ten becomes
    five times too small. Divide by how many words there are.""")
slip("sums the padding too", RAGGED, {MASKED: "states"}, words="""
    The divisor is right, but the padding was added up with the words. A network's states past a sentence's end are not
    zero: it reads padding as it reads anything else.""")
slip("divided by the whole batch's count", SIZE,
     {DIVIDED: " / mask.sum()"},
     {DIVIDED: " / lengths.sum()"}, words="""
    All words of the batch were counted together, so each sentence was divided by the number of words of all of them.
    Each sentence has a count of its own: `lengths[:, None]`.""")
slip("no division", SIZE, {DIVIDED: ""}, words="""
    This is the sum: it grows with the length of the sentence, and whatever reads it must cope with any size. A mean
    also divides.""")
slip("averages the features", ALL,
     {"sum(dim=1)": "mean(dim=-1)", DIVIDED: ""},
     {f"{MASKED}.sum(dim=1)": "states.mean(dim=-1)", DIVIDED: ""}, words="""
    The last axis has gone, and that is where the d features of a state are. One number is left for each position. Keep
    the features and average over the positions, axis 1.""")
slip("one word too few", (*SIZE, "a batch of one word"),
     {"< lengths[:, None]": "< lengths[:, None] - 1", DIVIDED: " / (lengths[:, None] - 1).clamp(min=1)"}, words="""
    The last word of each sentence is missing. A sentence of 3 words stands at the positions 0, 1 and 2: those below its
    length.""")
slip("the last word left out of the sum", (*SIZE, "a batch of one word"),
     {"< lengths[:, None]": "< lengths[:, None] - 1"}, words="""
    The divisor is right, and the last word of each sentence is missing from the sum. A sentence of 3 words stands at
    the positions 0, 1 and 2: those below its length.""")
slip("the first word left out", (*SIZE, "a batch of one word"),
     {WORDS: f"({WORDS}) & (torch.arange(states.shape[1]) > 0)"},
     {WORDS: f"({WORDS}) & (torch.arange(states.shape[1]) > 0)", DIVIDED: " / (lengths[:, None] - 1).clamp(min=1)"},
     words="""
    The first word of each sentence is missing. Positions are counted from 0, and at position 0 there is a word: every
    sentence has at least one.""")
slip("words sought at the end", RAGGED,
     {"torch.arange(states.shape[1]) <": "torch.arange(states.shape[1]).flip(0) <"}, words="""
    The *last* positions of each row were averaged, as if the padding stood in front. Here a sentence begins at
    position 0, and the padding comes after its last word.""")
slip("divided by the root of the length", SIZE, {DIVIDED: " / lengths[:, None].sqrt()"}, words="""
    The sum was divided by the square root of the length. Four equal states then come out twice as large as they are.
    What should the mean of equal states be?""")
slip("the features counted, too", (*SIZE, "a batch of one word"),
     {DIVIDED: " / (lengths[:, None] * states.shape[-1])"}, words="""
    The sum was divided by how many *numbers* the words of a sentence have, which is d for each word. But every feature
    has a mean of its own, over the words. How many numbers are added up for one feature?""")
slip("one length for all", ("short sentences",),
     {DIVIDED: " / lengths.float().mean()"},
     {DIVIDED: " / lengths.float().mean().round()"}, words="""
    All sums were divided by the same number, the batch's mean length. A short sentence becomes too small, a long one
    too large, and a sentence's summary depends on its company. Each has a length of its own: `lengths[:, None]`.""")
slip("one word too many", RAGGED, {" < ": " <= ", DIVIDED: " / mask.sum(dim=1, keepdim=True)"}, words="""
    One position past the end was included. Positions are counted from 0, so a sentence of 3 words has none at position
    3.""")
slip("one more position in the sum", RAGGED, {" < ": " <= "}, words="""
    The divisor is right, but one position past the end was added up with the words. Positions are counted from 0, so a
    sentence of 3 words has none at position 3.""")
slip("cut off from the gradient", ("gradient",), {"states.masked_fill": "states.detach().masked_fill"}, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `.item()` forget where
    numbers came from, so the network that made the states cannot learn.""")


slip("one number for a sentence", ALL,
     {"return total / lengths[:, None]": "return (total / lengths[:, None]).mean(dim=1)"},
     {"return total / lengths[:, None]": "return total.sum(dim=1) / lengths"}, words="""
    One number is left of each sentence: the features were averaged or summed, too. Each feature has a mean of its own
    over the words, so d numbers come back for a sentence.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("mean over all positions", fails=RAGGED)
def mean_over_all_positions(states, lengths):
    """The padding was averaged in, so the summary of a short sentence depends on what the network left past its end,
    and on how long its neighbours in the batch are. Only the first `lengths[b]` positions of row b are words."""
    return states.mean(dim=1)


@variant("mean over all positions", fails=("short sentences", "past the end"))
def mean_up_to_the_longest(states, lengths):
    """Cut at the longest sentence, which helps the others little."""
    return states[:, : int(lengths.max())].mean(dim=1)


@misconception("the last state", fails=SIZE)
def the_last_state(states, lengths):
    """This is the state after the last word, the other simple summary. The mean counts every position the same, the
    first word's as much as the last one's."""
    return states[torch.arange(len(states)), lengths - 1]


@misconception("the newest word counts half", fails=SIZE)
def the_newest_word_counts_half(states, lengths):
    """At each word the mean so far and the new state were averaged, half and half. The last word then counts one half,
    the one before it a quarter, and the first words hardly at all. Try it with three words: how much of each state
    belongs in their mean?"""
    mean = states[:, 0]
    for t in range(1, states.shape[1]):
        mean = torch.where((t < lengths)[:, None], (mean + states[:, t]) / 2, mean)
    return mean


@misconception("the last position", fails=ALL)
def the_last_position(states, lengths):
    """This picks the last column of the rectangle, one state instead of a mean; and for a short sentence it is
    padding."""
    return states[:, -1]


@misconception("the largest", fails=SIZE)
def the_largest(states, lengths):
    """For each of the d numbers, this takes the largest over the positions. It is called max pooling and has its uses,
    but a single position decides each number, whereas a mean lets all of them speak."""
    mask = torch.arange(states.shape[1]) < lengths[:, None]
    return states.masked_fill(~mask[..., None], -torch.inf).amax(dim=1)


@variant("the largest", "mean over all positions", fails=ALL)
def the_largest_of_all_positions(states, lengths):
    """Padding among them."""
    return states.amax(dim=1)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a mask and a quotient")
def a_mask_and_a_quotient(states, lengths):
    """The usual way."""
    mask = torch.arange(states.shape[1]) < lengths[:, None]
    return (states * mask[..., None]).sum(dim=1) / lengths[:, None]


@alternative("a loop over the sentences")
def a_loop_over_the_sentences(states, lengths):
    """Cuts each sentence out and takes its mean."""
    return torch.stack([row[:n].mean(dim=0) for row, n in zip(states, lengths.tolist(), strict=True)])


@alternative("weights that sum to one, einsum")
def weights_that_sum_to_one_einsum(states, lengths):
    """A weighted average with equal weights: what attention will make of it."""
    weights = (torch.arange(states.shape[1]) < lengths[:, None]) / lengths[:, None]
    return torch.einsum("bn,bnd->bd", weights, states)


@alternative("float64, not contiguous")
def float64_not_contiguous(states, lengths):
    """Sums up to each position in double precision, picks the last one, and returns a transposed view."""
    totals = states.double().cumsum(dim=1)[torch.arange(len(states)), lengths - 1]
    return (totals / lengths[:, None]).mT.contiguous().mT

# ------------------------------------------------------------------------------------------------ one thing changed

def _in_front(states, lengths):
    """Which positions hold a word, if the padding stands in front."""
    return torch.arange(states.shape[1]) >= states.shape[1] - lengths[:, None]


@exercise.variation(
    "positions first",
    asks="The states come with the positions as the first axis: (n, batch, d).",
    fails=(*ALL, "gradient"),
    reference=lambda states, lengths: exercise.reference(states.transpose(0, 1), lengths),
    contract={"states: (batch, n, d)": "states: (n, batch, d)"},
    given=lambda states, lengths: (states.transpose(0, 1), lengths),
    without=("divides by the padded length", "one word too many"),
)
def positions_first(states, lengths):
    mask = torch.arange(len(states))[:, None] < lengths            # (n, batch)
    total = states.masked_fill(~mask[..., None], 0.0).sum(dim=0)   # (batch, d)
    return total / lengths[:, None]


@exercise.variation(
    "padding in front",
    asks="The words stand at the end of each row, and the padding in front of them.",
    fails=RAGGED,
    reference=lambda states, lengths: attention.masked_mean(states, _in_front(states, lengths)),
    contract={"The mean of the states of each sentence's words.":
              "The mean of the states of each sentence's words, which have padding in front of them."},
    given=lambda states, lengths: (states.flip(1), lengths),
    hints=(exercise.hints[0],
           "Where does the first word of a sentence stand, in a row of n positions? A comparison with "
           "`torch.arange(n)` is True from there on: (batch, n). It needs one more axis to meet the states.",
           exercise.hints[2]),
)
def padding_in_front(states, lengths):
    mask = torch.arange(states.shape[1]) >= states.shape[1] - lengths[:, None]  # (batch, n)
    total = states.masked_fill(~mask[..., None], 0.0).sum(dim=1)   # (batch, d)
    return total / lengths[:, None]
