"""paired_bootstrap: Whether one system is better than another on a test set, or only luckier."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.inputs import told_apart

from .common import READY_MADE


def solution(ours, theirs, draws):
    def score(counts):
        matches, totals = counts.sum(dim=-2).unbind(dim=-1)       # of all sentences together
        return 100 * matches / totals

    difference = score(ours) - score(theirs)
    resampled = score(ours[draws]) - score(theirs[draws])         # (n_draws,)
    low, high = resampled.quantile(torch.tensor([0.025, 0.975]))
    return difference, low, high, (resampled > 0).float().mean()


exercise = Exercise(
    "paired_bootstrap",
    reference=solution,
    solution=solution,
    returns=("difference", "low", "high", "better"),
    forbidden=READY_MADE,
    numbers=True,
    extra=True,
    difficulty=2,
    minutes=20,
    hints=(
        "Write the score of one set of sentences as a small function: all matches over all totals, times 100. "
        "Everything else is that function on other sentences.",
        "`ours[draws]` has the shape (n_draws, n_sentences, 2): a resampled test set in each row. Take the same rows "
        "of `theirs`, the scores of both, their difference; then `quantile`, with a fortieth left out on each "
        "side, and the mean of a comparison.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _systems(draw):
    """(ours, theirs, draws): counts of sentences of different lengths, of which some are hard for both."""
    n_sentences, n_draws = 12 + int(draw.integers(6, 1)), 41
    totals = 4 + draw.integers(20, n_sentences)
    hard = draw.uniform(n_sentences)
    counts = [
        torch.stack([(totals * (hard + 0.3 * draw.uniform(n_sentences)) / 1.3).round(), totals.float()], dim=1)
        for _ in range(2)
    ]
    return *counts, draw.integers(n_sentences, n_draws, n_sentences)


def _difference(answer, systems):
    return torch.as_tensor(answer(*systems)[0]).double().reshape(1)


def _interval(answer, systems):
    return torch.stack([torch.as_tensor(value).double().reshape(()) for value in answer(*systems)[1:3]])


def _better(answer, systems):
    ours, theirs, draws = systems
    draws = torch.cat([draws, torch.zeros_like(draws[:5])])
    ours = torch.cat([theirs[:1], ours[1:]])                                      # in five draws they are equal
    return torch.as_tensor(answer(ours, theirs, draws)[3]).double().reshape(1)


def _told(name, draw, look):
    return told_apart(exercise, name, draw.seed, _systems, look)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("difference", points=1, hint=1)
def difference(answer, draw):
    """on the test set itself: all matches over all totals, of 100, ours less theirs"""
    return _difference(answer, _told("difference", draw, _difference))


@aspect("interval", points=1, hint=2)
def interval(answer, draw):
    """19 in 20 of the differences on resampled test sets lie in it"""
    return _interval(answer, _told("interval", draw, _interval))


@aspect("better", points=1, hint=2)
def better(answer, draw):
    """the share of resampled test sets on which ours has the higher score"""
    return _better(answer, _told("better", draw, _better))


# -------------------------------------------------------------------------------------- one slip away from the solution

EVERYTHING = ("difference", "interval", "better")
DRAWN = "score(ours[draws]) - score(theirs[draws])"
QUANTILES = "resampled.quantile(torch.tensor([0.025, 0.975]))"
SCORES = "    matches, totals = counts.sum(dim=-2).unbind(dim=-1)"

slip("a mean over sentences", EVERYTHING,
     {f"{SCORES}       # of all sentences together\n    return 100 * matches / totals":
      "    return (100 * counts[..., 0] / counts[..., 1]).mean(dim=-1)"},
     words="""
    Each sentence's own score was taken, and their mean. A short sentence then counts as much as a long one. The measure
    is the corpus': all matches over all totals.""")
slip("not paired", ("interval", "better"), {"theirs[draws]": "theirs[draws.roll(1, dims=0)]"}, words="""
    The two systems were scored on different resampled test sets, so what is hard in the one and easy in the other is
    taken for a difference of the systems. The same sentences for both: that is the pairing, and it makes the interval
    narrower.""")
slip("theirs less ours", EVERYTHING,
     {"score(ours) - score(theirs)": "score(theirs) - score(ours)",
      "score(ours[draws]) - score(theirs[draws])": "score(theirs[draws]) - score(ours[draws])"}, words="""
    The differences have the wrong sign: ours less theirs.""")
slip("nine in ten", ("interval",), {"[0.025, 0.975]": "[0.05, 0.95]"}, words="""
    The interval holds nine in ten of the differences. Nineteen in twenty are asked for: a fortieth is left out on each
    side.""")
slip("a normal interval", ("interval",),
     {QUANTILES: "resampled.mean() + 1.96 * resampled.std() * torch.tensor([-1.0, 1.0])"},
     {QUANTILES: "difference + 1.96 * resampled.std() * torch.tensor([-1.0, 1.0])"},  # from the test set's own
     words="""
    The interval reaches 1.96 standard deviations to either side of a middle. That supposes a normal distribution. The
    contract asks for the quantiles of the differences themselves.""")
slip("the quantiles subtracted", ("interval",),
     {QUANTILES: "score(ours[draws]).quantile(q := torch.tensor([0.025, 0.975])) - score(theirs[draws]).quantile(q)"},
     words="""
    The quantiles of each system's scores were taken first, and then subtracted. The test set on which our score is low
    need not be the one on which theirs is, so the pairing is lost. Of which numbers does the contract ask for the
    quantiles?""")
slip("the test set's total for every draw", ("interval",),
     {DRAWN: "100 * (ours[draws][..., 0].sum(dim=1) / ours[:, 1].sum()"
             " - theirs[draws][..., 0].sum(dim=1) / theirs[:, 1].sum())"}, words="""
    The matches of every drawn test set were divided by the total of the original one. A long sentence may be drawn
    twice, or not at all. What is the total of the sentences that were drawn?""")
slip("each sentence once", ("interval", "better"),
     {DRAWN: "torch.stack([score(ours[rows.unique()]) - score(theirs[rows.unique()]) for rows in draws])"}, words="""
    A sentence that was drawn several times was counted once. The draws are made with replacement: how often a sentence
    comes is part of the drawn test set. How many sentences must each of them have?""")
slip("sentences counted, not test sets", ("better",),
     {"(resampled > 0)": "(ours[:, 0] / ours[:, 1] > theirs[:, 0] / theirs[:, 1])"}, words="""
    This is the share of the *sentences* on which ours is better. Asked for is the share of the drawn test sets on which
    our score is higher.""")
slip("the mean of the draws as the difference", ("difference",),
     {"return difference,": "return resampled.mean(),"}, words="""
    The difference is the mean over the drawn test sets. Asked for is the difference on the test set itself; the draws
    say how far to trust it.""")
slip("from the least to the largest", ("interval",), {"[0.025, 0.975]": "[0.0, 1.0]"}, words="""
    The interval reaches from the smallest to the largest difference. The more draws there are, the wider it becomes.
    What share of the differences should lie in it?""")
slip("ties count as better", ("better",), {"resampled > 0": "resampled >= 0"}, words="""
    Test sets on which the two have the same score were counted as won. The higher score is asked for.""")
slip("the score of 1", ("difference", "interval"), {"100 * matches": "matches"}, words="""
    The scores lie between 0 and 1. They are asked for as percentages, between 0 and 100.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("one draw after the other")
def one_draw_after_the_other(ours, theirs, draws):
    """Lists, sorted; the quantiles by hand."""
    def score(counts):
        return 100 * float(counts[:, 0].sum()) / float(counts[:, 1].sum())

    found = sorted(score(ours[rows]) - score(theirs[rows]) for rows in draws)

    def quantile(q):
        place = q * (len(found) - 1)
        below = int(place)
        above = min(below + 1, len(found) - 1)
        return found[below] + (place - below) * (found[above] - found[below])

    won = sum(difference > 1e-6 for difference in found) / len(found)
    return score(ours) - score(theirs), quantile(0.025), quantile(0.975), won


@alternative("how often each sentence comes")
def how_often_each_sentence_comes(ours, theirs, draws):
    """A product with counts takes the place of resampled tables."""
    times = torch.nn.functional.one_hot(draws, len(ours)).sum(dim=1).float()
    both = torch.stack([ours, theirs]).float()
    totals = times @ both                                                         # (2, n_draws, 2)
    scores, whole = 100 * totals[..., 0] / totals[..., 1], both.sum(dim=1)
    resampled = scores[0] - scores[1]
    whole = 100 * whole[:, 0] / whole[:, 1]
    ends = torch.quantile(resampled, torch.tensor([0.025, 0.975]))
    return whole[0] - whole[1], ends[0], ends[1], (resampled > 1e-6).double().mean()
