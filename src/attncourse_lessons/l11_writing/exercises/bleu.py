"""bleu: How many runs of words the translations of a corpus share with their references."""

import math
from collections import Counter

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_case

from .common import READY_MADE


def solution(hypotheses, references, max_n):
    matches, totals = [0] * max_n, [0] * max_n
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for n in range(1, max_n + 1):
            ours = Counter(tuple(hypothesis[i : i + n]) for i in range(len(hypothesis) - n + 1))
            theirs = Counter(tuple(reference[i : i + n]) for i in range(len(reference) - n + 1))
            matches[n - 1] += sum(min(count, theirs[run]) for run, count in ours.items())
            totals[n - 1] += sum(ours.values())
    precisions = torch.tensor([m / max(t, 1) for m, t in zip(matches, totals, strict=True)])
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    brevity = 1.0 if c >= r else math.exp(1 - r / c) if c else 0.0
    if min(matches) == 0:
        return precisions, brevity, 0.0
    return precisions, brevity, 100 * brevity * math.exp(precisions.log().mean())


exercise = Exercise(
    "bleu",
    reference=solution,
    solution=solution,
    returns=("precisions", "brevity", "score"),
    forbidden=READY_MADE,
    numbers=True,
    difficulty=2,
    minutes=30,
    hints=(
        "Two numbers for each n, added up over all sentences: how many runs of n words the translations have, and how "
        "many of these are found in their references. Divide at the very end.",
        "Where does the last run of n words begin? A sentence of fewer than n words has none. `Counter` counts runs, "
        "if each is a tuple. A run that you have three times and the reference once counts once: the smaller of the "
        "two counts.",
        "The brevity penalty looks at the words of the whole corpus on both sides: 1 where the translations have at "
        "least as many, else exp(1 − r/c). The score is 100 times that times the geometric mean: exp of the mean of "
        "the logarithms. Ask first whether one of the precisions is 0: then the score is, too.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _corpus(draw, shorter=0, n_sentences=4, words="abcdefg"):
    """Lists of words; a translation is its reference with some words changed, some twice, and `shorter` of them cut."""
    hypotheses, references = [], []
    for k in range(n_sentences):
        d = draw.child(str(k))
        reference = [words[i] for i in d.integers(len(words), 9 + int(d.integers(5, 1))).tolist()]
        hypothesis = list(reference)
        for place in d.child("changed").integers(len(reference), 1 + k % 2).tolist():
            hypothesis[place] = "x"
        twice = int(d.child("twice").integers(len(reference) - 3, 1))
        hypothesis[twice + 1 : twice + 1] = [hypothesis[twice]] * 2
        hypotheses.append(hypothesis[: len(hypothesis) - shorter * (1 + k)])
        references.append(reference)
    return hypotheses, references


def _by_n(got, expected):
    wrong = next(n for n in range(len(got)) if abs(got[n] - expected[n]) > 1e-4)
    return f"for runs of {wrong + 1}: got {float(got[wrong]):.4g}, expected {float(expected[wrong]):.4g}"


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("precisions", points=2, hint=2, explain=explain_case("of a sentence", "of one of three words"))
def precisions(answer, draw):
    """of one sentence: which share of its runs the reference has, for each length of run"""
    reference = list("abcdefgh")
    hypothesis = [*reference[:3], "x", *reference[4:], "y"]
    cut = int(draw.integers(3, 1))
    short = reference[:3]  # one run of three words and none of four
    return torch.stack([answer([words], [reference], 4)[0] for words in (hypothesis[cut:], short)])


@aspect("clipping", points=1, hint=2, explain=_by_n)
def clipping(answer, draw):
    """a run counts as often as the reference has it, and no more"""
    n = 3 + int(draw.integers(4, 1))
    reference = ["cat", "sat", "the", "cat", "sat", "down", "on", "that", "long", "red", "mat"]
    return answer([["the"] * n + ["cat", "sat"] * 2], [reference], 3)[0]


@aspect("the whole corpus", points=2, hint=1, explain=_by_n)
def the_whole_corpus(answer, draw):
    """counts of all sentences are added up before anything is divided; no run reaches over a sentence's end"""
    return answer(*_corpus(draw), 3)[0]


LENGTHS = explain_case("where all are too short", "where all are long enough", "where one is short and one long",
                       "where the last is empty")


@aspect("brevity", points=1, hint=3, explain=LENGTHS)
def brevity(answer, draw):
    """a corpus that is too short is punished, one that is too long is not; single sentences do not matter"""
    found = []
    for name, shorter in (("short", 2), ("long", 0)):
        found.append(answer(*_corpus(draw.child(name), shorter), 2)[1])
    both = answer([list("abc"), list("abcdefghij")], [list("abcdef"), list("abcdefgh")], 2)[1]
    nothing = answer([list("xy"), []], [list("abc"), list("d")], 2)[1]
    return torch.stack([torch.as_tensor(value).double().reshape(()) for value in (*found, both, nothing)])


@aspect("score", points=2, hint=3, explain=explain_case("of a corpus", "of one sentence"))
def score(answer, draw):
    """100 times the geometric mean of your precisions times your brevity penalty"""
    hypotheses, references = _corpus(draw, shorter=1, words="abc")
    found = []
    small = [list("abcx")], [list("abcd")]  # one run of three is found
    for corpus in ((hypotheses, references), small):
        got, brevity, total = answer(*corpus, 3)
        right = exercise.reference(*corpus, 3)
        found.append((total - _of(got, brevity) + _of(*right[:2])).reshape(()))
    return torch.stack(found)


def _of(precisions, brevity):
    return 100 * brevity * torch.as_tensor(precisions).log().mean().exp()


@aspect("nothing in common", points=1, hint=3)
def nothing_in_common(answer, draw):
    """where no run of the longest kind is found the score is 0, and a translation may be empty or short"""
    d = draw.integers(3, 1)
    cases = (
        ([list("abxc"), []], [list("abcd"), list("ab")]),
        ([list("ab"), list("x" * (1 + int(d)))], [list("abcd"), list("abc")]),
    )
    return torch.stack([torch.as_tensor(answer(*case, 4)[2]).double().reshape(()) for case in cases])


# -------------------------------------------------------------------------------------- one slip away from the solution

COUNTED = ("precisions", "clipping", "the whole corpus")
CLIPPED = "min(count, theirs[run])"
SHORT = "1.0 if c >= r else "
MEAN = "math.exp(precisions.log().mean())"

slip("not clipped", ("clipping", "the whole corpus"), {CLIPPED: "count * (run in theirs)"}, words="""
    A run that the reference has once was counted as often as the translation repeats it. So "the the the the" would be
    perfect. The smaller of the two counts is what they share.""")
slip("each run counted once", ("clipping", "the whole corpus"),
     {CLIPPED: "int(run in theirs)", "sum(ours.values())": "len(ours)"},
     words="""
    The runs were put into a set, so that one that stands there twice counts once, in the matches and in the total.
    Count them all; only what goes beyond the reference's own count is lost.""")
slip("a share of the reference's runs", COUNTED, {"sum(ours.values())": "sum(theirs.values())"}, words="""
    The matches were divided by the number of runs in the *reference*: that is recall. A precision is a share of what
    the translation says. (What it leaves out is the brevity penalty's business.)""")
slip("one run too few", COUNTED,
     {"range(len(hypothesis) - n + 1)": "range(len(hypothesis) - n)",
      "range(len(reference) - n + 1)": "range(len(reference) - n)"}, words="""
    The last run of each sentence is missing. A sentence of five words has three runs of three: 5 − 3 + 1.""")
slip("runs beyond the end", COUNTED,
     {"range(len(hypothesis) - n + 1)": "range(len(hypothesis))",
      "range(len(reference) - n + 1)": "range(len(reference))"},
     words="""
    At the end of a sentence shorter runs were counted among those of n words: a slice that reaches too far is cut short
    in silence.""")
slip("runs over the ends of sentences", ("the whole corpus",),
     {"for hypothesis, reference in zip(hypotheses, references, strict=True):":
      "for hypothesis, reference in [(sum(hypotheses, []), sum(references, []))]:"},
     words="""
    All sentences were joined to one text. So runs reach from one sentence into the next, and a word counts as found if
    any reference has it. Count sentence by sentence, and add up the counts.""")
slip("the last sentence alone", ("the whole corpus",),
     {"matches[n - 1] += ": "matches[n - 1] = ", "totals[n - 1] += ": "totals[n - 1] = "}, words="""
    Each sentence's counts took the place of the last one's. Add them up.""")
slip("no brevity penalty", ("brevity",), {f"{SHORT}math.exp(1 - r / c) if c else 0.0": "1.0"}, words="""
    Too short a translation is not punished. Precision alone would be best for one sure word.""")
slip("the ratio upside down", ("brevity",), {"r / c": "c / r"}, words="""
    The brevity penalty is above 1 where the translations are too short. It is e to the power of 1 − r/c, where r counts
    the *reference's* words.""")
slip("smoothed counts", ("precisions", "clipping", "the whole corpus", "nothing in common"),
     {"m / max(t, 1)": "(m + 1) / (t + 1)",
      "if min(matches) == 0:\n    return precisions, brevity, 0.0\n": ""},
     words="""
    One was added to matches and totals. That is a smoothing, for single sentences, and changes the number; BLEU of a
    corpus has none.""")
slip("a tiny number in the logarithm", ("nothing in common",),
     {"if min(matches) == 0:\n    return precisions, brevity, 0.0\n": "",
      MEAN: "math.exp((precisions + 1e-9).log().mean())"},
     words="""
    Where nothing is found the score is small, and not 0: a tiny number was added before the logarithm. Ask first
    whether one of the precisions is 0.""")
slip("a fourth root whatever max_n is", ("score",), {".log().mean()": ".log().sum() / 4"}, words="""
    The logarithms were divided by 4. The root is the `max_n`-th: the mean of as many logarithms as there are
    precisions.""")
slip("the longest runs alone", ("score",), {MEAN: "precisions[-1]"}, words="""
    The last precision alone was taken. All of them count, in a geometric mean.""")
slip("another base than e", ("brevity",), {"math.exp(1 - r / c)": "10 ** (1 - r / c)"},
     {"math.exp(1 - r / c)": "2 ** (1 - r / c)"}, words="""
    The brevity penalty has another base than e, so it is too strict or too kind.""")
slip("a mean of penalties", ("brevity",),
     {f"{SHORT}math.exp(1 - r / c) if c else 0.0":
      "sum(min(1, math.exp(1 - len(r) / max(1, len(h)))) for h, r in zip(hypotheses, references)) / len(hypotheses)"},
     words="""
    A penalty was computed for each sentence, and their mean taken. The penalty looks at the words of the whole corpus,
    once.""")
slip("the ratio itself", ("brevity",), {"math.exp(1 - r / c)": "c / r"}, words="""
    The ratio of the lengths was taken for the penalty. It is e to the power of 1 − r/c, which is nearly the same close
    to 1 and much stricter further down.""")
slip("long translations punished, too", ("brevity",), {SHORT: ""}, words="""
    A corpus that is longer than the references got a factor above 1. The penalty is never more than 1: what is too long
    has lost in precision already.""")
slip("the brevity of single sentences", ("brevity",),
     {"sum(map(len, hypotheses)), sum(map(len, references))":
      "sum(min(len(h), len(r)) for h, r in zip(hypotheses, references)), sum(map(len, references))"}, words="""
    Each sentence's length was compared with its own reference's, so that a long one cannot make up for a short one. The
    penalty looks at the corpus as a whole.""")
slip("of 1 in place of 100", ("score", ), {"100 * brevity": "brevity"}, words="""
    The score is right but for its scale: BLEU is given of 100.""")
slip("the plain mean", ("score", "nothing in common"), {MEAN: "precisions.mean()",
     "if min(matches) == 0:\n    return precisions, brevity, 0.0\n": ""}, words="""
    The plain mean of the precisions was taken. In a geometric mean every one of them counts by its ratio, and where one
    is 0 all is lost.""")
slip("the precisions multiplied", ("score",), {".log().mean()": ".log().sum()"}, words="""
    The precisions were multiplied and no root was taken. With four of them the mean is the fourth root of the product:
    the *mean* of the logarithms.""")
slip("the penalty left out of the score", ("score",), {"100 * brevity": "100"}, words="""
    The score lacks the brevity penalty.""")
slip("NaN where nothing is found", ("precisions", "nothing in common"),
     {"max(t, 1)": "t if t else math.nan", "if min(matches) == 0:\n    return precisions, brevity, 0.0\n": "",
      MEAN: "float(precisions.log().mean().exp())"}, words="""
    Where there are no runs of n words, or none is found, the score is 0. Something was 0/0 here.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("a mean of the sentences' scores", fails=("score",))
def a_mean_of_scores(hypotheses, references, max_n):
    """The precisions are the corpus's, but the score is the mean of the sentences' own scores. Make it of the
    precisions and the brevity penalty that you return."""
    precisions, brevity, _ = solution(hypotheses, references, max_n)
    pairs = zip(hypotheses, references, strict=True)
    scores = [solution([ours], [theirs], max_n)[2] for ours, theirs in pairs]
    return precisions, brevity, sum(scores) / len(scores)


@misconception("a mean over sentences", fails=("the whole corpus",))
def a_mean_over_sentences(hypotheses, references, max_n):
    """Each sentence's precisions were taken, and then their mean: a short sentence counts as much as a long one.
    BLEU is a number of the corpus: add up matches and totals over all sentences, and divide once."""
    rows = []
    for ours, theirs in zip(hypotheses, references, strict=True):
        row = []
        for n in range(1, max_n + 1):
            left = [theirs[i : i + n] for i in range(len(theirs) - n + 1)]
            runs = [ours[i : i + n] for i in range(len(ours) - n + 1)]
            found = 0
            for run in runs:
                if run in left:
                    left.remove(run)
                    found += 1
            row.append(found / max(1, len(runs)))
        rows.append(row)
    precisions = torch.tensor(rows).mean(dim=0)
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    brevity = min(1.0, math.exp(1 - r / max(c, 1)))
    return precisions, brevity, float(100 * brevity * precisions.log().mean().exp())


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("matches crossed out")
def matches_crossed_out(hypotheses, references, max_n):
    """A run that is found is taken out of the reference's list."""
    precisions = []
    for n in range(1, max_n + 1):
        found = total = 0
        for ours, theirs in zip(hypotheses, references, strict=True):
            left = [theirs[i : i + n] for i in range(len(theirs) - n + 1)]
            for i in range(len(ours) - n + 1):
                total += 1
                if ours[i : i + n] in left:
                    left.remove(ours[i : i + n])
                    found += 1
        precisions.append(found / total if total else 0.0)
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    brevity = min(1.0, math.exp(1 - r / c))
    score = 100 * brevity * math.prod(precisions) ** (1 / max_n)
    return torch.tensor(precisions), torch.tensor(brevity), torch.tensor(score)


@alternative("intersections of counters")
def intersections_of_counters(hypotheses, references, max_n):
    """`&` of two counters is the smaller count of each."""
    def runs(words, n):
        return Counter(" ".join(words[i : i + n]) for i in range(len(words) + 1 - n))

    pairs = list(zip(hypotheses, references, strict=True))
    found = [sum((runs(ours, n) & runs(theirs, n)).total() for ours, theirs in pairs) for n in range(1, max_n + 1)]
    totals = [sum(max(0, len(ours) + 1 - n) for ours, _ in pairs) for n in range(1, max_n + 1)]
    precisions = torch.tensor(found).double() / torch.tensor(totals).clamp(min=1)
    lengths = torch.tensor([[len(ours), len(theirs)] for ours, theirs in pairs], dtype=torch.float64).sum(dim=0)
    brevity = torch.exp((1 - lengths[1] / lengths[0]).clamp(max=0))
    return precisions, brevity, 100 * brevity * torch.exp(precisions.log().mean())


@alternative("zip of shifted lists")
def zip_of_shifted_lists(hypotheses, references, max_n):
    """Runs are zipped; the logarithms are added with math."""
    counts = []
    for n in range(1, max_n + 1):
        found = total = 0
        for ours, theirs in zip(hypotheses, references, strict=True):
            mine = list(zip(*(ours[i:] for i in range(n)), strict=False))
            known = list(zip(*(theirs[i:] for i in range(n)), strict=False))
            found += sum(min(mine.count(run), known.count(run)) for run in set(mine))
            total += len(mine)
        counts.append((found, total))
    precisions = torch.tensor([found / total if total else 0.0 for found, total in counts])
    ours, theirs = (sum(len(words) for words in texts) for texts in (hypotheses, references))
    brevity = 1.0 if ours > theirs else math.exp(1 - theirs / ours)
    if any(found == 0 for found, _ in counts):
        return precisions, brevity, 0
    return precisions, brevity, 100 * brevity * math.exp(sum(math.log(f / t) for f, t in counts) / max_n)
