"""Compare what was observed with what the reference shows, and name the misconception that explains the difference.

`judge` is a pure function of plain data: it never runs the learner's code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np

from attncourse.exercises.core import Aspect, Exercise, Misconception
from attncourse.exercises.observe import Observation, Problem, observe
from attncourse.exercises.verdict import AspectVerdict, Verdict

# Learners compute in float32, in an order of their own: errors of 1e-6 are rounding, errors of 1e-3 are mistakes.
RELATIVE, ABSOLUTE = 1e-4, 1e-5


def judge(exercise: Exercise, observations: Mapping[str, Observation], seed: int) -> Verdict:
    """The verdict on `observations`, which `observe` made from an answer to `exercise` on `seed`."""
    expected = _observe_known(exercise, exercise.reference, seed)
    lines = []
    for aspect in exercise.aspects:
        fault = _fault(aspect, observations[aspect.name], expected[aspect.name])
        lines.append(AspectVerdict(aspect.name, fault is None, aspect.points, fault or aspect.meaning))
    wrong = [line.name for line in lines if not line.ok]
    return Verdict(
        exercise=exercise.name,
        aspects=tuple(lines),
        misconceptions=tuple(_explain(exercise, observations, wrong, seed)),
        problem=_common_problem(observations, wrong),
        hints=len(exercise.hints),
        extra=exercise.extra,
    )


def same(seen: Observation, other: Observation) -> bool:
    """Whether two answers did the same thing: equal arrays up to rounding, or the same failure."""
    if seen.value is None or other.value is None:
        a, b = seen.problem, other.problem
        return a is not None and b is not None and (a.kind, a.detail) == (b.kind, b.detail)
    return (
        seen.value.shape == other.value.shape
        and (seen.value.dtype == np.bool_) == (other.value.dtype == np.bool_)
        and np.allclose(seen.value, other.value, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)
    )


def row_sums(got: np.ndarray, expected: np.ndarray) -> str | None:
    """For weights: says which row does not sum to what it should."""
    sums, wanted = got.sum(-1), expected.sum(-1)
    off = np.argwhere(~np.isclose(sums, wanted, rtol=RELATIVE, atol=ABSOLUTE))
    if not len(off):
        return None
    row = tuple(off[0])
    return f"row {_index(row)} sums to {sums[row]:.3g}, expected {wanted[row]:.3g}"


def nonzero(got: np.ndarray, expected: np.ndarray) -> str | None:
    """For what must be zero: says where it is not."""
    off = np.argwhere(~np.isclose(got, 0, atol=ABSOLUTE))
    if not len(off):
        return None
    place = tuple(off[0])
    return f"{got[place]:.3g} at {_index(place)}, expected 0"


def _fault(aspect: Aspect, seen: Observation, expected: Observation) -> str | None:
    """What is wrong with one aspect, in words; None if nothing is."""
    assert expected.value is not None, f"the reference fails its own aspect {aspect.name!r}: {expected.problem}"
    if seen.problem and seen.problem.kind != "unusable":
        return _say(seen.problem)
    if same(seen, expected):
        return None
    for (name, shape), (_, wanted) in zip(seen.shapes, expected.shapes, strict=False):
        if shape != wanted:
            return f"{name} has shape {shape}, expected {wanted}"
    if seen.value is None:
        return f"what came back cannot be used: {seen.problem.detail if seen.problem else 'nothing came back'}"
    if seen.value.shape != expected.value.shape:
        return f"shape {seen.value.shape}, expected {expected.value.shape}"
    if (seen.value.dtype == np.bool_) != (expected.value.dtype == np.bool_):
        return f"got {_values(seen.value)}, expected {_values(expected.value)}"
    nan = np.argwhere(np.isnan(seen.value) & ~np.isnan(expected.value))
    if len(nan):
        return f"contains NaN, first at {_index(nan[0])}: something was 0/0, ∞ − ∞ or 0 · ∞"
    words = aspect.explain(seen.value, expected.value) if aspect.explain else None
    return words or _worst(seen.value, expected.value)


def _worst(got: np.ndarray, expected: np.ndarray) -> str:
    wrong = ~np.isclose(got, expected, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)
    error = np.where(wrong, np.abs(got.astype(np.float64) - expected), 0)
    place = np.unravel_index(int(np.argmax(error)), got.shape)
    count = f"{wrong.sum()} of {got.size} numbers differ" if got.size > 1 else "it differs"
    at = f"at {_index(place)} " if got.size > 1 else ""
    return f"{count}; {at}got {got[place]:.4g}, expected {expected[place]:.4g}"


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
    """The kind of problem that stopped every aspect alike: the card then says it once."""
    problems = {o.problem for o in observations.values()}
    if len(wrong) == len(observations) and len(problems) == 1:
        problem = problems.pop()
        return problem.kind if problem else None
    return None


def _explain(
    exercise: Exercise, observations: Mapping[str, Observation], wrong: list[str], seed: int
) -> list[Misconception]:
    """The misconceptions that would have produced the wrong aspects, those that explain most first; two at most.

    Of two that explain as much, the likelier is the one that would have failed less of what the learner got right.
    """
    found: list[Misconception] = []
    left = set(wrong)
    explains = {
        index: {name for name in wrong if same(observations[name], seen[name])}
        for index, misconception in enumerate(exercise.misconceptions if wrong else [])
        for seen in [_observe_known(exercise, misconception.answer, seed)]
    }

    def evidence(index: int) -> tuple[int, int]:
        contradicted = set(exercise.misconceptions[index].fails) - set(wrong)
        return len(explains[index] & left), -len(contradicted)

    while left and len(found) < 2:
        best = max(explains, key=evidence, default=None)
        if best is None or not explains[best] & left:
            break
        found.append(exercise.misconceptions[best])
        left -= explains[best]
    return found


@lru_cache(maxsize=4096)
def _observe_known(exercise: Exercise, answer: Callable, seed: int) -> dict[str, Observation]:
    """What the course's own code does. It never changes, so it is observed once a seed."""
    return observe(exercise, answer, seed, trusted=True)
