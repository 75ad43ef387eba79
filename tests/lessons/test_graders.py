"""The graders are proven: what is right earns everything, what is wrong loses its own points and is named."""

import functools
import inspect

import pytest

from attncourse_lessons import course
from lessonkit.exercises.judge import judge, observe_known
from lessonkit.exercises.observe import observe

ALL = [exercise for assignment in course.assignments() for exercise in course.exercises_of(assignment)]


@pytest.fixture(scope="session")
def seeds(pytestconfig):
    return range(4 if pytestconfig.getoption("all") else 2)


def seeds_for(exercise, seeds):
    """One where the answer is measured: it trains a model for seconds on each. The solution has two."""
    return seeds[:1] if exercise.metric else seeds


@functools.cache
def verdicts(exercise, answer, seeds):
    """The verdict on each seed; what the answer shows there is observed once for all tests.

    As the course's own code, which may call what the exercise forbids; on the first seed, as a learner's.
    """
    first = observe(exercise, answer, seeds[0], trusted=isinstance(exercise.reference, type))
    seen = [first, *(observe_known(exercise, answer, seed) for seed in seeds[1:])]
    return [judge(exercise, observations, seed) for observations, seed in zip(seen, seeds, strict=True)]


def each(*kinds):
    return [
        pytest.param(exercise, code, id=f"{exercise.name}: {code.name}")
        for exercise in ALL
        for kind in kinds
        for code in getattr(exercise, kind)
    ]


@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.name)
def test_the_reference_earns_every_point_on_every_seed(exercise, seeds):
    for seed in seeds_for(exercise, seeds):
        verdict = judge(exercise, observe_known(exercise, exercise.reference, seed), seed)
        assert verdict.points == exercise.out_of, str(verdict)
        assert verdict.misconceptions == ()


@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.name)
def test_the_solution_that_notebooks_show_earns_every_point(exercise, seeds):
    own = seeds[:2] if exercise.metric else seeds
    for verdict in verdicts(exercise, exercise.as_answer(exercise.solution), own):
        assert verdict.points == verdict.out_of, str(verdict)


@pytest.mark.parametrize(("exercise", "alternative"), each("alternatives"))
def test_another_style_earns_every_point(exercise, alternative, seeds):
    for verdict in verdicts(exercise, alternative.answer, seeds_for(exercise, seeds)):
        assert verdict.points == verdict.out_of, str(verdict)


@pytest.mark.parametrize(("exercise", "code"), each("misconceptions", "variants"))
def test_a_misconception_loses_its_own_aspects_and_is_named_alone(exercise, code, seeds):
    held = [other for other in exercise.variants if other.answer is code.answer] or [code]  # a variant may hold several
    assert {(c.name, c.hint) for c in held} <= {(m.name, m.hint) for m in exercise.misconceptions}
    for verdict in verdicts(exercise, code.answer, seeds_for(exercise, seeds)):
        assert {line.name for line in verdict.aspects if not line.ok} == set(code.fails), str(verdict)
        named, true = {m.name for m in verdict.misconceptions}, {c.name for c in held}
        assert named == true or (*true, *named) in ALIKE, str(verdict)


# On some draws the second does what the first does. A learner is told a name only if all three seeds give it.
ALIKE = {
    ("pairs over the ends of words", "vocabulary from the test set"),
    ("sampled from the unfiltered", "a token of no probability where u is 0"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("exercise", "code"), each("misconceptions", "variants"))
def test_a_mistake_that_the_course_would_not_know_gets_no_untrue_name(exercise, code, monkeypatch):
    held = {code.name} | {variant.name for variant in exercise.variants if variant.answer is code.answer}
    pairs = [pair for pair in exercise.pairs if not held & {pair[0].name, pair[1].name}]
    monkeypatch.setattr(exercise, "pairs", pairs)  # the exercise itself, not a copy: what was observed of it is known
    for kind in ("misconceptions", "variants"):
        monkeypatch.setattr(exercise, kind, [other for other in getattr(exercise, kind) if other.name not in held])
    for found in ("near", "parts"):  # these would find the slip again, under the name of the step that it is
        monkeypatch.setattr(f"lessonkit.exercises.judge.{found}", lambda exercise: ())
    verdict = judge(exercise, observe_known(exercise, code.answer, 0), 0)
    assert {m.name for m in verdict.misconceptions} <= HALF_TRUE


# True as well: of a code that holds two misconceptions, the other; exponentials by hand do give 0/0 for padding; what a
# causal mask forbids is its transpose less the diagonal; a small change is not large, nor does it show a faint leak; an
# output's sum cancels, whether its gradient is asked or its difference.
HALF_TRUE = {
    *("tanh left out", "[s; c] for [c; s]", "ignores the mask", "NaN for a row of padding"),
    *("future for past", "not even itself"),
    *("a gradient where there is none", "a faint leak taken for rounding", "no change large enough"),
    "sums that cancel",
}
# Where two numbers have changed places, each is wrong as another code would have it.
HALF_TRUE |= {"the path for the steps", "one layer goes everywhere"}
# Two slips at once that come to a third: W taken from the query's side and put on the key's is W transposed;
# documents counted by rises, and compared by ≥, are the causal mask alone.
HALF_TRUE |= {"W left out", "W on both sides", "a rise of the number starts a new document", "earlier documents too"}
# Who compares the beginning of one token alone leaves out the longest, and has no token but the newest.
HALF_TRUE |= {"the longest beginning left out", "the newest token alone"}
# Two slips that come to the known one: neither bias corrected, neither count tripled, cross-attention left out in both,
# the target's tokens alone in both; 2/3 of the half; and not scaled is both float32 all the way and unscaled.
HALF_TRUE |= {"only m corrected", "only v corrected", "the counts of the forward pass", "the rule for the forward pass"}
HALF_TRUE |= {"cross-attention without projections", "no pairs between target and source", "back as long as forth"}
HALF_TRUE |= {"the rule for the target alone", "the feed-forward network of the decoder alone", "multiply-adds"}
HALF_TRUE |= {"float32 all the way", "unscaled in float16"}
# The larger of two rates has no warm-up; who leaves out the token that crosses p may keep the first by a rule.
HALF_TRUE |= {"no warm-up", "crosses p left out, but for the first"}
# Asked for both of two reasons, an answer does as either alone where the other says nothing.
HALF_TRUE |= {"causal alone", "only the prefix is seen"}
# Chosen among n in place of n − 1, and nobody stepped over: the two together put the positive among the negatives.
HALF_TRUE |= {"one too many to choose from", "the last is never drawn"}
# Where all are tokens, either of two masks allows the future; a mask on the queries leaves the padding's keys and NaN.
HALF_TRUE |= {"the future is read", "the padding takes part", "NaN where nothing is allowed"}
# Sound blocks accused for their loss, and for rounding: the two together accuse those that a constant added does.
HALF_TRUE |= {"a loss that rises is an error", "equal to the last digit"}


# Of an answer that does several things, one: a mask of True alone does keep the pads; a code that holds two mistakes is
# called by either; scores handed back as weights had no softmax; exponentials by hand that are multiplied by the mask
# are masked too late, and leave NaN on the way back; no mask at all leaves the output without one.
HALF_TRUE |= {
    *("pads kept", "padding counted", "no softmax", "masked after the exponentials", "NaN on the way back"),
    "the output from unmasked scores",
}


# The two together are a window whose dilation is ignored.
HALF_TRUE |= {"gaps that do not widen the window", "a longer window without gaps"}
# Sides exchanged: words at one end or at the other. Of two conditions only one: documents may run into each other.
HALF_TRUE |= {"tokens at the end", "the side is ignored", "documents not kept apart"}
# The printed block adds both to the normalised x. Who acquits every block does so where the loss fell, too.
HALF_TRUE |= {"the feed-forward network adds to the normalised x", "attention adds to the normalised x"}
HALF_TRUE |= {"the loss fell, so it is right", "only zeroed sublayers"}
# Who stops at the first that ends does not hold it against those still open, and gets the short one, as totals would.
HALF_TRUE |= {"what has ended comes first", "chosen before the penalty", "over too soon"}
# With a penalty of the wrong sign as with none the short one wins; only the score itself tells them apart.
HALF_TRUE |= {"the penalty's sign", "no length penalty"}
# A mask upside down fills those who are there with zeros, and divides by nobody where a text is full.
HALF_TRUE |= {"zeros for those who are there", "0/0 where nobody is there"}
# In a post-norm block what reaches a sublayer is normed already: a norm in front of it changes nothing.
HALF_TRUE |= {"norms in front", "a norm left out"}
# Who sees itself alone looks through a window of one.
HALF_TRUE |= {"a window in place of the past", "queries at the beginning"}
# What is forbidden is the mask transposed and moved by one; who masks the rows of padding leaves its columns.
HALF_TRUE |= {"shifted the wrong way", "padding answers"}
# Padding that begins one place early takes the last token that is read, and `eos`.
HALF_TRUE |= {"the last token is not read", "no eos"}
# The padding summed and counted is the mean of all; a mask from the ids, one place late, has the pads in it.
HALF_TRUE |= {"the padding is in the sum", "divided by the padded length", "the mask from the ids", "one position off"}
HALF_TRUE |= {"sums the padding too", "divides by the padded length"}
# Who takes the tokens for values projects nothing there; divided by n, there is neither a root nor the width.
HALF_TRUE |= {"something else for the values", "no projections at all", "by d for √d"}
HALF_TRUE |= {"scaled by a number that does not depend on the width"}
# A chunk with its own largest knows of no older one, and has nothing to rescale.
HALF_TRUE |= {"rescale forgotten", "the old largest is dropped"}
# Two slips that are the third, line by line: a lower triangle of the transpose from the second diagonal on; one softmax
# over the flattened table, along the axis before its last, which is the batch; of two masks, the one before the softmax
# left out and the one after it, too.
HALF_TRUE |= {"one step of the future", "softmax over the tokens that ask", "one softmax for the whole table"}
HALF_TRUE |= {"masks after the softmax"}
# One product for both, under a sigmoid, is z · σ(z): no gate. Who takes the worse candidate keeps the wrong number.
HALF_TRUE |= {"one product for both", "sigmoid for silu", "the width is always right", "the heads are always right"}
# Turned throughout, patches are read down the columns, and so is each of them.
HALF_TRUE |= {"patches read down the columns", "each patch on its side"}
# Who accuses every block accuses those whose LayerNorm hides an added constant, too.
HALF_TRUE |= {"a constant is added"}
# Where t is below 0, the wrong sign is none.
HALF_TRUE |= {"without its sign"}
# Whoever subtracts something else than each row's own maximum, or nothing, gets exponentials out of range.
HALF_TRUE |= {"moved, but not by the maximum", "one maximum for all rows", "exponentials out of range"}


@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.name)
def test_known_answers_keep_the_names_of_the_contract(exercise):
    def arguments(answer):
        return tuple(inspect.signature(answer.forward if isinstance(answer, type) else answer).parameters)

    known = exercise.misconceptions + exercise.variants + exercise.alternatives
    assert {arguments(code.answer) for code in known} == {arguments(exercise.as_answer(exercise.solution))}
    assert all("return" in code.body for code in known)


@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.name)
def test_every_exercise_has_what_the_syllabus_asks(exercise):
    assert len({m.name for m in exercise.misconceptions}) >= 3
    assert len(exercise.alternatives) >= 2
    assert 2 <= len(exercise.hints) <= 3
    assert exercise.difficulty in (1, 2, 3) and exercise.minutes > 0
    assert exercise.out_of > 0 and all(aspect.points > 0 for aspect in exercise.aspects)
    assert {name for m in exercise.misconceptions for name in m.fails} == {a.name for a in exercise.aspects}, (
        "an aspect that no known misconception fails is not proven to catch anything"
    )


@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.name)
def test_the_aspects_offer_their_hints_but_for_two_at_most_of_which_no_hint_speaks(exercise):
    without = [aspect.name for aspect in exercise.aspects if aspect.hint is None]
    assert len(without) <= 2 and len(without) < len(exercise.aspects) / 2


def test_exercise_names_are_unique_in_the_course():
    names = [exercise.name for exercise in ALL]
    assert len(names) == len(set(names))


@pytest.mark.slow
@pytest.mark.parametrize("exercise", ALL, ids=lambda e: e.name)
def test_judged_again_on_the_same_seed_an_answer_gets_the_same_verdict(exercise, seeds):
    for code in exercise.misconceptions + exercise.alternatives:
        last = seeds_for(exercise, seeds)[-1]
        again = judge(exercise, observe(exercise, code.answer, last, trusted=True), last)
        assert again == verdicts(exercise, code.answer, seeds_for(exercise, seeds))[-1], code.name
