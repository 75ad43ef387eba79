"""Compare what was observed with what the reference shows, and name the misconception that explains the difference.

`judge` is a pure function of plain data: it never runs the learner's code.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from lessonkit.exercises.difference import ABSOLUTE, RELATIVE, close, kind_of_difference, what_is_seen
from lessonkit.exercises.exercise import Aspect, Exercise, Explain, Misconception
from lessonkit.exercises.local_runner import Guard, LocalRunner, Problem
from lessonkit.exercises.near import near, parts
from lessonkit.exercises.observe import PARAMETER, Observation, observe_aspect
from lessonkit.exercises.verdict import AspectVerdict, Verdict

SECONDS_NEAR = 0.4  # for mistakes that nobody has written down
NEEDED_ON_THE_WAY_BACK = "torch needs for the gradient what stood in an input before the answer wrote into it"
IN_FLOAT64 = "; it came back in float64, which is twice the size of the inputs’ float32"


def judge(exercise: Exercise, observations: Mapping[str, Observation], seed: int, *, name: bool = True) -> Verdict:
    """The verdict on `observations`, which `observe` made from an answer to `exercise` on `seed`.

    `name=False` leaves out the misconceptions, which take most of the time.
    """
    expected = observe_known(exercise, exercise.reference, seed)
    observations, written = _writing_set_aside(observations)
    wide = [a.name for a in exercise.aspects if _in_float64(observations[a.name], expected[a.name])]
    once = _truths_told_once(observations, expected)
    lines, wrong = [], []  # by what came back: writing into an input has its own words, and no name
    for aspect in exercise.aspects:
        fault = fault_of(aspect, once[aspect.name], expected[aspect.name], exercise.writes_init)
        if fault:
            wrong.append(aspect.name)
        fault = "; ".join(filter(None, [fault, written.get(aspect.name)]))
        meaning = aspect.meaning + IN_FLOAT64 * (aspect.name in wide[:1])  # it is said once, and costs nothing
        lines.append(AspectVerdict(aspect.name, not fault, aspect.points, fault or meaning))
    measured = [seen.metric for seen in observations.values() if seen.metric is not None]
    named = tuple(_explain(exercise, observations, wrong, seed) if name and wrong else ())
    return Verdict(
        exercise=exercise.name,
        aspects=tuple(lines),
        misconceptions=named,
        unexplained=_unexplained(exercise, named, wrong),
        problem=_common_problem(observations, wrong),
        hints=len(exercise.hints),
        hint=next(((a.name, a.hint) for a in exercise.aspects if a.hint and a.name in wrong), None),
        extra=exercise.extra,
        metric=(exercise.metric, measured[0]) if exercise.metric and measured else None,
        variation=exercise.varied.name if exercise.varied else None,
    )


def judge_on_seeds(
    exercise: Exercise, observations: Iterable[Mapping[str, Observation]], seeds: Sequence[int]
) -> Verdict:
    """One verdict over several seeds, with the observations on each.

    Misconceptions are looked for on the first seed on which something is wrong, and named only if they explain what
    every other such seed shows: on one, sizes that happen to be equal can make two mistakes look alike.
    ValueError where there are not as many observations as seeds.
    """
    verdicts: list[Verdict] = []
    named: tuple[Misconception, ...] | None = None  # None: all was right so far
    for seen, seed in zip(observations, seeds, strict=True):
        verdict = judge(exercise, seen, seed, name=named is None)
        verdicts.append(verdict)
        if wrong := [line.name for line in verdict.aspects if not line.ok]:
            named = verdict.misconceptions if named is None else _still_named(exercise, named, seen, wrong, seed)
    measured = [verdict.metric for verdict in verdicts if verdict.metric]
    metric = (measured[0][0], sum(number for _, number in measured) / len(measured)) if measured else None
    whole = _right_at_times(verdicts, Verdict.over(verdicts))
    wrong = [line.name for line in whole.aspects if not line.ok]
    unexplained = _unexplained(exercise, named or (), wrong)
    return replace(whole, misconceptions=named or (), unexplained=unexplained, metric=metric)


def _right_at_times(verdicts: Sequence[Verdict], whole: Verdict) -> Verdict:
    """The verdict over all seeds, which says of an aspect that it is right on some: that may be a matter of sizes."""
    lines = []
    for number, line in enumerate(whole.aspects):
        right = sum(verdict.aspects[number].ok for verdict in verdicts)
        times = f"; but right on {right} of {len(verdicts)} draws of inputs: does it hold for some sizes alone?"
        lines.append(line if line.ok or not right else replace(line, message=line.message + times))
    return replace(whole, aspects=tuple(lines))


def same(seen: Observation, other: Observation) -> bool:
    """Whether two answers did the same thing: equal arrays up to rounding, or the same failure."""
    if seen.value is None or other.value is None:
        a, b = seen.problem, other.problem
        return a is not None and b is not None and (a.kind, _as_raised(a)) == (b.kind, _as_raised(b))
    return (
        seen.value.shape == other.value.shape
        and (seen.value.dtype == np.bool_) == (other.value.dtype == np.bool_)
        and close(seen.value, other.value)
    )


def _as_raised(problem: Problem) -> str:
    """An error without the shapes that follow it: they are called what the answer's own docstring calls them."""
    return problem.detail.partition("; ")[0] if problem.kind == "raised" else problem.detail


def row_sums(got: np.ndarray, expected: np.ndarray) -> str | None:
    """For weights: says which row does not sum to what it should."""
    sums, wanted = got.sum(-1), expected.sum(-1)
    off = np.argwhere(~np.isclose(sums, wanted, rtol=RELATIVE, atol=ABSOLUTE))
    if not len(off):
        return None
    row = tuple(off[0])
    seen, right = _apart(sums[row], wanted[row])
    return f"row {_index(row)} sums to {seen}, expected {right}"


def explain_worst(words: str) -> Explain:
    """For a difference: `words` with {got}, {expected} and {size} at the worst {place}."""

    def explain(got: np.ndarray, expected: np.ndarray) -> str:
        place = _worst_place(got, expected)
        seen, right = _apart(got[place], expected[place])
        return words.format(got=seen, expected=right, size=seen.removeprefix("-"), place=_index(place))

    return explain


def explain_case(*cases: str) -> Explain:
    """For several cases stacked along the first axis: says in which of them the answer goes wrong, and by how much."""

    def explain(got: np.ndarray, expected: np.ndarray) -> str:
        wrong = [i for i in range(len(cases)) if not close(got[i], expected[i])]
        first = wrong[0]
        seen, right = (np.atleast_1d(values[first]) for values in (got, expected))
        place = _worst_place(seen, right)
        said = "got {}, expected {}".format(*_apart(seen[place], right[place]))
        others = f" (and {', '.join(cases[i] for i in wrong[1:])})" if wrong[1:] else ""
        return f"{cases[first]}{others}: {said}"

    return explain


expected_zero = explain_worst("{got} at {place}, expected 0")


def explain_missing_gradient(*inputs: str) -> Explain:
    """For `gradients` and `reached`: says which input is not reached at all."""

    def explain(got: np.ndarray, expected: np.ndarray) -> str | None:
        rows = zip(inputs, got, expected, strict=True)
        lost = [f"`{name}`" for name, row, wanted in rows if wanted.any() and not row.any()]
        return f"no gradient reaches {' and '.join(lost)}" if lost else None

    return explain


def fault_of(aspect: Aspect, seen: Observation, expected: Observation, writes_init: bool = False) -> str | None:
    """What is wrong with one aspect, in words; None if nothing is."""
    fault = _difference(aspect, seen, expected, writes_init) or seen.written
    asked_for = {dtype for _, _, dtype in expected.shapes}  # a right answer to inputs of half precision has it too
    low = next((d for _, _, d in seen.shapes if d in ("float16", "bfloat16") and d not in asked_for), None)
    return f"{fault}; computed in {low}, the inputs are float32" if fault and low else fault


def _in_float64(seen: Observation, expected: Observation) -> bool:
    """Whether an array came back in float64 where the reference's are smaller. A plain number is none."""
    asked_for = {dtype for _, _, dtype in expected.shapes}
    return "float64" not in asked_for and any(dtype == "float64" and shape for _, shape, dtype in seen.shapes)


def _difference(aspect: Aspect, seen: Observation, expected: Observation, writes_init: bool) -> str | None:
    assert expected.value is not None, f"the reference fails its own aspect {aspect.name!r}: {expected.problem}"
    if seen.problem and seen.problem.kind != "unusable":
        return _say(seen.problem)
    if same(seen, expected):
        return None
    got, right = _parameters(seen), _parameters(expected)
    if got and got != right and not writes_init:
        have, lack = (", ".join(name for name in a if name not in b) or "none" for a, b in ((got, right), (right, got)))
        return f"`__init__` was changed: of its parameters {have} should not be there, and {lack} should"
    both = seen.shapes, expected.shapes
    mine, theirs = ([one for one in shapes if got == right or not one[0].startswith(PARAMETER)] for shapes in both)
    for (name, shape, _), (_, wanted, _) in zip(mine, theirs, strict=False):
        if shape != wanted:
            return f"{name} has shape {shape}, expected {wanted}{_but(seen, expected)}"
    if seen.value is None:
        return f"what came back cannot be used: {seen.problem.detail if seen.problem else 'nothing came back'}"
    if seen.value.shape != expected.value.shape:
        return f"shape {seen.value.shape}, expected {expected.value.shape}{_but(seen, expected)}"
    if (seen.value.dtype == np.bool_) != (expected.value.dtype == np.bool_):
        return f"got {_values(seen.value)}, expected {_values(expected.value)}{_truths_as_numbers(seen, expected)}"
    nan = np.argwhere(np.isnan(seen.value) & ~np.isnan(expected.value))
    if len(nan):
        first = f", first at {_index(nan[0])}" if _is_what_came_back(seen) else ""
        return f"contains NaN{first}: something was 0/0, ∞ − ∞ or 0 · ∞"
    words = aspect.explain(seen.value, expected.value) if aspect.explain else None
    return words or _worst(seen, expected)


def _but(seen: Observation, expected: Observation) -> str:
    """What else is to be said of an array of the wrong shape."""
    assert expected.value is not None
    kind = None if seen.value is None else kind_of_difference(seen.value, expected.value)
    return f": {kind}" if kind else ""


def _truths_as_numbers(seen: Observation, expected: Observation) -> str:
    """What a mask of numbers means, if its numbers say anything."""
    got, right = seen.value, expected.value
    if got is None or right is None or right.dtype != np.bool_ or len(np.unique(got)) != 2:
        return ""
    low, high = got == got.min(), got == got.max()
    if (high == right).all():
        return ": True stands where the larger number is, and nothing else is wrong"
    return ": and they are the wrong way round, too" if (low == right).all() else ""


def _writing_set_aside(observations: Mapping[str, Observation]) -> tuple[Mapping[str, Observation], dict[str, str]]:
    """The observations without what is said of writing into an input, and that by aspect: it costs the first alone."""
    said = {name: seen.written for name, seen in observations.items() if seen.written}
    aside = {name: replace(seen, written=None) for name, seen in observations.items()}
    for name in said:
        problem = aside[name].problem
        if problem and "modified by an inplace operation" in problem.detail:  # what was written over was still needed
            aside[name] = replace(aside[name], problem=Problem("written", NEEDED_ON_THE_WAY_BACK))
    return aside, dict(list(said.items())[:1])


def _truths_told_once(
    observations: Mapping[str, Observation], expected: Mapping[str, Observation]
) -> Mapping[str, Observation]:
    """The observations, where ones and zeros in place of booleans cost the first aspect alone if they are right."""
    once, told = dict(observations), False
    for name, seen in observations.items():
        if seen.value is None or seen.value.dtype == np.bool_ or not _is_of_truths(expected[name]):
            continue
        if told and np.array_equal(seen.value, expected[name].value):  # type: ignore[arg-type]  # 1 equals True
            once[name] = expected[name]
        told = True
    return once


def _is_of_truths(seen: Observation) -> bool:
    return seen.value is not None and seen.value.dtype == np.bool_


def _is_what_came_back(seen: Observation) -> bool:
    """Whether the array is of the shape of something that the answer returned: then its places mean something to it."""
    return seen.value is not None and seen.value.shape in {shape for _, shape, _ in seen.shapes}


def _worst(seen: Observation, expected: Observation) -> str:
    got, right, own = seen.value, expected.value, _is_what_came_back(seen)
    assert got is not None and right is not None
    place = _worst_place(got, right)
    count = f"{_off(got, right).sum()} of {got.size} numbers differ" if got.size > 1 else "it differs"
    at = f"at {_index(place)} " if got.size > 1 and own else ""
    kind = kind_of_difference(got, right, seen.inputs, places=own)
    if not kind and (seen_of_it := what_is_seen(got, right, places=own)):
        count = f"{count}: {seen_of_it}"
    return "{}; {}got {}, expected {}".format(kind or count, at, *_apart(got[place], right[place]))


def _worst_place(got: np.ndarray, expected: np.ndarray) -> tuple:
    error = np.where(_off(got, expected), np.abs(got.astype(np.float64) - expected), 0)
    return np.unravel_index(int(np.argmax(error)), got.shape)


def _off(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    return ~np.isclose(got, expected, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)


def _apart(got: float, expected: float) -> tuple[str, str]:
    """Both as text, with as many digits as it takes to see that they differ: four or more."""
    pairs = ((f"{got:.{digits}g}", f"{expected:.{digits}g}") for digits in range(4, 18))
    return next((pair for pair in pairs if pair[0] != pair[1]), (f"{got:g}", f"{expected:g}"))


def _parameters(observation: Observation) -> list[str]:
    names = (name for name, *_ in observation.shapes if name.startswith(PARAMETER))
    return list(dict.fromkeys(name.removeprefix(PARAMETER) for name in names))


def _index(place: object) -> str:
    return "[" + ", ".join(str(int(i)) for i in place) + "]"  # type: ignore[attr-defined]


def _values(array: np.ndarray) -> str:
    return "booleans" if array.dtype == np.bool_ else "numbers"


def _say(problem: Problem) -> str:
    match problem.kind:
        case "not written":
            return "not written yet"
        case "raised":
            return f"raised {problem.detail}" + (f"  ({problem.where})" if problem.where else "")
        case "forbidden":
            return f"uses {problem.detail}, which does what you are asked to build: write it from simpler operations"
        case _:
            return problem.detail


def _common_problem(observations: Mapping[str, Observation], wrong: list[str]) -> str | None:
    """The kind of problem that stopped every aspect alike: the card then says it once.

    Alike is also an error in the same line, whatever the sizes were.
    """
    problems = [o.problem for o in observations.values() if o.problem]
    if not problems or len(problems) < len(observations) or len(wrong) < len(observations):
        return None
    kinds, places = {problem.kind for problem in problems}, {problem.where for problem in problems}
    in_one_place = kinds == {"raised"} and len(places) == 1 and places != {""}
    return kinds.pop() if len(set(problems)) == 1 or in_one_place else None


def _explain(
    exercise: Exercise, observations: Mapping[str, Observation], wrong: list[str], seed: int
) -> list[Misconception]:
    """The misconceptions that would have produced the wrong aspects, those that explain most first; two at most.

    Where they leave something unexplained, two slips at once are tried: they count if together they do exactly what
    was seen. None if half of what is wrong stays unexplained: no name is better than an untrue one.
    """
    mistakes = exercise.misconceptions + exercise.variants
    explains = [_explained(exercise, mistake, observations, wrong, seed) for mistake in mistakes]
    found: list[Misconception] = []
    left = set(wrong)

    while left and len(found) < 2:
        best = max(range(len(mistakes)), default=None, key=lambda index: len(explains[index] & left))
        if best is None or not explains[best] & left:
            break
        found += [mistake for mistake in mistakes if mistake.answer is mistakes[best].answer]
        left -= explains[best]
    if left or len(found) > 1:  # each of two names may fit a part by luck: two that do all of it are surer
        both = _two_at_once(exercise, observations, set(wrong), seed)
        if len(both) > 1 or (left and both):
            return both
    if 2 * len(left) < len(wrong):
        return found[:2]
    return [] if found else _one_step_away(exercise, observations, wrong, seed)


def _one_step_away(
    exercise: Exercise, observations: Mapping[str, Observation], wrong: list[str], seed: int
) -> list[Misconception]:
    """A mistake that nobody has written down, if it does exactly what was seen, and none of another name does."""
    if not any(_telling(observations[name]) for name in wrong):
        return []
    until = time.process_time() + SECONDS_NEAR
    in_order = sorted(exercise.aspects, key=lambda a: (a.name not in wrong, observations[a.name].value is None))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is wrong may be warned of
        for codes in (near, parts):
            fitting: dict[str, Misconception] = {}
            for code in codes(exercise):
                if time.process_time() > until:
                    return []
                if all(_does_the_same(exercise, code.answer, aspect, observations, seed) for aspect in in_order):
                    fitting.setdefault(code.name, replace(code, fails=tuple(wrong)))
            if fitting:
                return list(fitting.values()) if len(fitting) == 1 else []
    return []


def _telling(seen: Observation) -> bool:
    """Whether it is a thing that two different mistakes hardly share: numbers, or an error about shapes."""
    return seen.value is not None or bool(seen.problem and re.search(r"\d", _as_raised(seen.problem)))


def _unexplained(exercise: Exercise, named: Sequence[Misconception], wrong: list[str]) -> tuple[str, ...]:
    """The wrong aspects that no code of the named misconceptions fails: something else is wrong there, too."""
    names = {misconception.name for misconception in named}
    codes = [code for code in [*exercise.misconceptions, *exercise.variants, *named] if code.name in names]
    return tuple(name for name in wrong if named and not any(name in code.fails for code in codes))


def _still_named(
    exercise: Exercise,
    named: Sequence[Misconception],
    observations: Mapping[str, Observation],
    wrong: list[str],
    seed: int,
) -> tuple[Misconception, ...]:
    """Those of the named misconceptions that explain something on this seed, too."""

    def explains(misconception: Misconception) -> bool:
        known = [m for m in exercise.misconceptions + exercise.variants if m.name == misconception.name]
        codes = known or [misconception]  # one step away from the solution, and known to nobody
        return any(_explained(exercise, code, observations, wrong, seed) for code in codes)

    still = tuple(filter(explains, named))
    if len(still) == len(named) or len(named) != 2:
        return still
    pair = {misconception.name for misconception in named}
    both = {misconception.name for misconception in _two_at_once(exercise, observations, set(wrong), seed)}
    return tuple(named) if pair == both else still


def _two_at_once(
    exercise: Exercise, observations: Mapping[str, Observation], wrong: set[str], seed: int
) -> list[Misconception]:
    if exercise.truths or all(observations[name].value is None for name in wrong):
        return []  # nothing came back that could be compared, or too little to tell two slips by
    known = {misconception.name: misconception for misconception in exercise.misconceptions}
    fitting = [
        {one.name, other.name}
        for one, other, answer in exercise.pairs
        if len(wrong - {*one.fails, *other.fails}) <= 1  # together they may cut a gradient that each leaves whole
        and wrong >= {*one.fails, *other.fails}
        and {one.name, other.name} <= known.keys()
        and all(_does_the_same(exercise, answer, aspect, observations, seed) for aspect in exercise.aspects)
    ]
    sure = set.intersection(*fitting) if fitting else set()  # where several pairs fit, what they have in common
    return [replace(misconception, fails=tuple(wrong)) for name, misconception in known.items() if name in sure]


def _does_the_same(
    exercise: Exercise, answer: Callable, aspect: Aspect, observations: Mapping[str, Observation], seed: int
) -> bool:
    return same(observations[aspect.name], _observe_known_aspect(exercise, answer, aspect, seed))


def _explained(
    exercise: Exercise, mistake: Misconception, observations: Mapping[str, Observation], wrong: list[str], seed: int
) -> set[str]:
    """The wrong aspects in which `mistake` does what was observed; none if that is too little to go by.

    All that it makes wrong must be wrong, and at least half of that alike. NaN alone is what many mistakes come to: it
    tells only where the misconception explains all that is wrong, and makes nothing else wrong. It is run on no aspect
    that it leaves right, and no further once more than half differ: a check looks at dozens of them.
    """
    if not set(mistake.fails) <= set(wrong):
        return set()
    alike, differ = set(), 0
    for aspect in exercise.aspects:
        if aspect.name not in mistake.fails:
            continue
        if _does_the_same(exercise, mistake.answer, aspect, observations, seed):
            alike.add(aspect.name)
        else:
            differ += 1
            if 2 * differ > len(mistake.fails):
                return set()
    telling = any(not _all_nan(observations[name]) for name in alike)
    exactly = alike == set(wrong) == set(mistake.fails)
    return alike if exactly or telling else set()


def _all_nan(observation: Observation) -> bool:
    return observation.value is not None and bool(np.isnan(observation.value).all())


def observe_known(exercise: Exercise, answer: Callable, seed: int) -> dict[str, Observation]:
    """What the course's own code does."""
    return {aspect.name: _observe_known_aspect(exercise, answer, aspect, seed) for aspect in exercise.aspects}


@lru_cache(maxsize=32768)
def _observe_known_aspect(exercise: Exercise, answer: Callable, aspect: Aspect, seed: int) -> Observation:
    """It never changes, so it is observed once a seed."""
    return observe_aspect(LocalRunner(answer, Guard(())), exercise, aspect, seed)
