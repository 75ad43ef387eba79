"""What kind of difference lies between two arrays, in words: diagnoses that need no list of known mistakes.

They hold for any exercise, and say no more than the numbers show: a name for the mistake is a misconception's to give.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from operator import itemgetter

import numpy as np

RELATIVE, ABSOLUTE = 1e-4, 1e-5  # float32 in another order of operations: errors of 1e-6 are rounding, of 1e-3 mistakes
ENOUGH = 4  # numbers; fewer agree by chance
HALF_PRECISION = 4e-3  # of the largest number: bfloat16 keeps 8 bits, float16 11
MOST_AXES = 5


def close(got: np.ndarray, expected: np.ndarray) -> bool:
    """Whether two arrays are equal up to rounding, in shape, too."""
    return got.shape == expected.shape and np.allclose(got, expected, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)


def kind_of_difference(
    got: np.ndarray, expected: np.ndarray, inputs: Mapping[str, np.ndarray] | None = None, *, places: bool = True
) -> str | None:
    """In what way `got` is wrong throughout; None where it is in no way known here, or there is too little to see.

    `inputs` are those that it was made from, by name: a wrong factor may be one of their sizes, and what is missing may
    be one of them. Without `places`, nothing is said that names an axis: the array is none that the learner has seen.

    >>> kind_of_difference(np.arange(6.0) / 2, np.arange(6.0))
    'each number is 1/2 of what it should be'
    >>> kind_of_difference(np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3).T)
    'the numbers are right, but axes 0 and 1 are exchanged'
    """
    if got.size < ENOUGH or got.ndim > MOST_AXES or len(np.unique(expected)) < 2:
        return None
    if (got.dtype == np.bool_) != (expected.dtype == np.bool_):
        return None
    if got.dtype != np.bool_ and not (np.isfinite(got).all() and np.isfinite(expected).all()):
        return None
    if got.shape != expected.shape:
        return _shaped_otherwise(got, expected)
    if got.dtype == np.bool_:
        return _first_of(BOOLEANS, got, expected)
    inputs = inputs or {}
    return (
        _first_of(NUMBERS, got, expected)
        or _factor(got, expected, inputs)
        or _an_input(got, expected, inputs)
        or (_first_of(PLACES, got, expected) if places else None)
        or _few_digits(got, expected)
    )


def what_is_seen(got: np.ndarray, expected: np.ndarray, *, places: bool = True) -> str | None:
    """Something true of how two arrays of one shape differ, where no kind of difference is known: it explains nothing.

    >>> what_is_seen(np.array([1.0, 2.0, 3.5, 4.5]), np.array([1.0, 2.0, 3.0, 4.0]))
    'it is right at 0 and 1 alone; what is wrong is too large'
    >>> what_is_seen(np.array([0.4, 0.3, 0.3, 0.9]), np.array([0.7, 0.1, 0.2, 0.1]))
    'on average the numbers are 1.45 times as large as they should be'
    """
    if got.shape != expected.shape or got.size < ENOUGH or got.ndim > MOST_AXES:
        return None
    if got.dtype == np.bool_ or expected.dtype == np.bool_:
        if got.dtype != expected.dtype or not (got != expected).any():
            return None
        one_way = [word for word, there in (("True", got & ~expected), ("False", ~got & expected)) if there.any()]
        return f"too much of it is {one_way[0]}, and nothing too little" if len(one_way) == 1 else None
    if not (np.isfinite(got).all() and np.isfinite(expected).all()):
        return None
    said = [_a_factor_or_shift_each(got, expected), _where_it_is_right(got, expected)] if places else []
    said.append(_too_large(got, expected))
    return "; ".join(filter(None, said)) or _size_on_average(got, expected)


def _a_factor_or_shift_each(got: np.ndarray, expected: np.ndarray) -> str | None:
    """Whether along an axis the numbers are right but for a factor, or a constant, that differs from place to place."""
    for axis in reversed(range(got.ndim)):
        if got.shape[axis] < ENOUGH:
            continue
        longest = np.abs(expected).max(axis, keepdims=True)
        if (longest > ABSOLUTE).all():
            at = np.abs(expected).argmax(axis, keepdims=True)
            factor = np.take_along_axis(got, at, axis) / np.take_along_axis(expected, at, axis)
            if close(got, factor * expected):
                return f"along axis {axis} the numbers are right but for a factor, which is another one at each place"
        apart = (got - expected).mean(axis, keepdims=True)
        if close(got, expected + apart):
            return f"along axis {axis} the numbers are right but for a constant, which is another one at each place"
    return None


def _where_it_is_right(got: np.ndarray, expected: np.ndarray) -> str | None:
    """Up to where along an axis it is right, from where on, or at which places alone."""
    off = ~np.isclose(got, expected, rtol=RELATIVE, atol=ABSOLUTE)
    for axis in range(got.ndim):
        wrong = np.moveaxis(off, axis, 0).reshape(got.shape[axis], -1).any(axis=1)
        right = np.flatnonzero(~wrong)
        if not len(right):
            continue
        along = f" along axis {axis}" if got.ndim > 1 else ""
        first, last = np.flatnonzero(wrong)[[0, -1]]
        if first > 3 and wrong[first:].all():
            return f"{along.strip()} it is right up to {first - 1}, and wrong from {first} on".strip()
        if last < len(wrong) - 4 and wrong[: last + 1].all():
            return f"{along.strip()} it is wrong up to {last}, and right from {last + 1} on".strip()
        if len(right) < 5:
            *before, end = map(str, right)
            which = f"{', '.join(before)} and {end}" if before else end
            return f"it is right at {which}{along} alone"
    return None


def _too_large(got: np.ndarray, expected: np.ndarray) -> str | None:
    off = ~np.isclose(got, expected, rtol=RELATIVE, atol=ABSOLUTE)
    what = "every number is" if off.all() else "what is wrong is"
    apart, size = (got - expected)[off], (np.abs(got) - np.abs(expected))[off]
    if (apart > 0).all() or (apart < 0).all():
        return f"{what} too {'large' if apart[0] > 0 else 'small'}"
    if len(size) >= ENOUGH and ((size > 0).all() or (size < 0).all()):
        return f"{what} too {'far from' if size[0] > 0 else 'near to'} 0"
    return None


def _size_on_average(got: np.ndarray, expected: np.ndarray) -> str | None:
    mine, theirs = (float(np.sqrt((array.astype(np.float64) ** 2).mean())) for array in (got, expected))
    if theirs == 0:
        return None
    ratio = mine / theirs
    if 0.9 < ratio < 1.1:
        return "on average the numbers are as large as they should be, but others"
    return f"on average the numbers are {ratio:.3g} times as large as they should be"


def _first_of(kinds: tuple[Kind, ...], got: np.ndarray, expected: np.ndarray) -> str | None:
    return next((words for kind in kinds if (words := kind(got, expected))), None)


def _shaped_otherwise(got: np.ndarray, expected: np.ndarray) -> str | None:
    if got.ndim == expected.ndim:
        if words := _exchanged_axes(got, expected):
            return words
        if any(close(got.transpose(axes), expected) for axes in itertools.permutations(range(got.ndim))):
            return "the numbers are right, but the axes stand in another order"
    if got.size == expected.size and close(got.reshape(expected.shape), expected):
        return "the numbers are right: only the shape is not"
    if got.dtype == np.bool_:
        return None
    for axis in range(got.ndim) if got.ndim == expected.ndim + 1 else ():
        for verb, reduced in (("summed", got.sum(axis)), ("averaged", got.mean(axis))):
            if close(reduced, expected):
                return f"{verb} over axis {axis} it would be right"
    for axis in range(expected.ndim) if got.size < expected.size else ():
        for verb, reduced in (("summed", expected.sum(axis)), ("averaged", expected.mean(axis))):
            if got.size == reduced.size and close(got.reshape(reduced.shape), reduced):
                return f"it is right, but {verb} over axis {axis}, which should stay"
    return None


def _exchanged_truths(got: np.ndarray, expected: np.ndarray) -> str | None:
    return "True and False are exchanged" if (got != expected).all() else None


def _one_number(got: np.ndarray, expected: np.ndarray) -> str | None:
    first = got.flat[0]
    return f"every number is {first:.4g}" if close(got, np.full_like(got, first)) else None


def _sign(got: np.ndarray, expected: np.ndarray) -> str | None:
    return "every sign is the wrong way round" if close(-got, expected) else None


def _factor(got: np.ndarray, expected: np.ndarray, inputs: Mapping[str, np.ndarray]) -> str | None:
    factor = float((got * expected).sum() / max((expected * expected).sum(), 1e-30))
    if abs(factor) < 1e-3 or abs(factor) > 1e4 or abs(factor - 1) < 2e-3 or not close(got, factor * expected):
        return None  # a factor of nearly 1 would be told as "1 times"
    return f"each number is {in_simple_terms(factor)} what it should be{_which_quantity(abs(factor), inputs)}"


def _which_quantity(factor: float, inputs: Mapping[str, np.ndarray]) -> str:
    """Which number or size of the inputs a factor is, or its root; a whole number that is none may be in the code."""
    known: dict[float, str] = {}
    for name, value in inputs.items():
        if value.ndim == 0 and value.dtype != np.bool_:
            known.setdefault(float(value), f"`{name}`")
        for axis, size in enumerate(value.shape):
            place = "the last axis" if axis == value.ndim - 1 else f"axis {axis}"
            known.setdefault(size, f"the size of {place} of `{name}`")
    for root in (1.0, 0.5):
        for number, words in known.items():
            if number > 0 and any(math.isclose(factor, number**power, rel_tol=1e-3) for power in (root, -root)):
                return f" ({number:.4g} is {words})"
    whole = next((round(x) for x in (factor, 1 / factor) if x > 2.5 and math.isclose(x, round(x), rel_tol=1e-3)), None)
    return f" (nothing here is {whole}: does that number stand in the code?)" if known and whole else ""


def _an_input(got: np.ndarray, expected: np.ndarray, inputs: Mapping[str, np.ndarray]) -> str | None:
    """Where it is an input as it came, or lacks one, or has one too much: which."""
    for name, value in inputs.items():
        if value.dtype == np.bool_ or not value.size or not np.isfinite(value).all() or not value.any():
            continue
        if value.ndim > got.ndim or any(
            a not in (1, b) for a, b in zip(value.shape[::-1], got.shape[::-1], strict=False)
        ):
            continue
        if value.shape == got.shape and close(got, value):
            return f"it is `{name}`, as it came in"
        for words, other in (
            (f"`{name}` is missing: added to it, it would be right", got + value),
            (f"`{name}` is in it once too often: without it, it would be right", got - value),
            (f"times `{name}` it would be right", got * value),
        ):
            if close(other, expected):
                return words
        if value.all() and close(got / value, expected):
            return f"divided by `{name}` it would be right"
    return None


def in_simple_terms(factor: float) -> str:
    """A factor as a person would write it: "1/8 of", "√3 times", "0.731 times".

    >>> [in_simple_terms(factor) for factor in (2.0, -0.125, 3**0.5, 0.5**0.5, 0.7312)]
    ['2 times', '−1/8 of', '√3 times', '1/√2 of', '0.7312 times']
    """
    sign = "−" if factor < 0 else ""
    for root, value in (("", abs(factor)), ("√", factor * factor)):
        simple = Fraction(value).limit_denominator(64)
        if (
            simple
            and math.isclose(float(simple), value, rel_tol=1e-3)
            and min(simple.numerator, simple.denominator) <= 4
        ):
            if simple.denominator == 1:
                return f"{sign}{root}{simple.numerator} times"
            if simple.numerator == 1:
                return f"{sign}1/{root}{simple.denominator} of"
            if not root:
                return f"{sign}{simple.numerator}/{simple.denominator} of"
    return f"{sign}{abs(factor):.4g} times"


def _shift(got: np.ndarray, expected: np.ndarray) -> str | None:
    apart = got - expected
    middle = float(np.median(apart))
    if not close(apart, np.full_like(apart, middle)):
        return None
    return f"each number is {abs(middle):.4g} too {'large' if middle > 0 else 'small'}"


def _exchanged_axes(got: np.ndarray, expected: np.ndarray) -> str | None:
    for one, other in itertools.combinations(range(got.ndim), 2):
        if close(got.swapaxes(one, other), expected):
            return f"the numbers are right, but axes {one} and {other} are exchanged"
    return None


def _in_another_order(got: np.ndarray, expected: np.ndarray) -> str | None:
    for axis in _long_axes(got):
        along = f"along axis {axis}" if got.ndim > 1 else "from first to last"
        if close(np.flip(got, axis), expected):
            return f"the numbers are right, but in the opposite order {along}"
        for back, words in ((-1, "one place too late"), (1, "one place too early")):
            if close(np.roll(got, back, axis), expected):
                return f"the numbers are right, but they come {words} {along}"
        if got.shape[axis] <= 64 and _same_slices(got, expected, axis):
            return f"the numbers are right, but in another order {along}"
    return None


def _same_slices(got: np.ndarray, expected: np.ndarray, axis: int) -> bool:
    """Whether each slice across an axis is one of the other's, and none is used twice."""
    left = list(np.moveaxis(expected, axis, 0))
    for slice_ in np.moveaxis(got, axis, 0):
        place = next((i for i, other in enumerate(left) if close(slice_, other)), None)
        if place is None:
            return False
        left.pop(place)
    return True


def _first_alone(got: np.ndarray, expected: np.ndarray) -> str | None:
    if got.ndim < 2 or got.shape[0] < 2 or got[0].size < ENOUGH or not close(got[0], expected[0]):
        return None
    if any(close(one, other) for one, other in zip(got[1:], expected[1:], strict=True)):
        return None
    return "only the first along axis 0 is right: is something of the first used for all?"


def _one_alone_is_wrong(got: np.ndarray, expected: np.ndarray) -> str | None:
    for axis in _long_axes(got):
        pairs = zip(np.moveaxis(got, axis, 0), np.moveaxis(expected, axis, 0), strict=True)
        wrong = [place for place, (one, other) in enumerate(pairs) if not close(one, other)]
        if len(wrong) == 1 and wrong[0] in (0, got.shape[axis] - 1) and got.shape[axis] > 2:
            return f"all is right but the {'last' if wrong[0] else 'first'} along axis {axis}"
    return None


def _some_places(got: np.ndarray, expected: np.ndarray) -> str | None:
    """At which few places along an axis it is wrong, where all others are right."""
    off = ~np.isclose(got, expected, rtol=RELATIVE, atol=ABSOLUTE)
    found = []
    for axis in _long_axes(got):
        wrong = np.flatnonzero(np.moveaxis(off, axis, 0).reshape(got.shape[axis], -1).any(axis=1))
        found.append((len(wrong) / got.shape[axis], axis, wrong))
    share, axis, wrong = min(found, key=itemgetter(0), default=(1.0, 0, np.arange(0)))
    if not 0 < share <= 0.5:
        return None
    which = " and ".join(map(str, wrong)) if len(wrong) < 3 else f"{', '.join(map(str, wrong[:-1]))} and {wrong[-1]}"
    return f"it is wrong at {which} along axis {axis} alone, and right elsewhere" if len(wrong) < 7 else None


def _same_everywhere(got: np.ndarray, expected: np.ndarray) -> str | None:
    for axis in _long_axes(got):
        first = np.take(got, [0], axis)
        if close(got, np.broadcast_to(first, got.shape)) and not close(
            expected, np.broadcast_to(np.take(expected, [0], axis), expected.shape)
        ):
            return f"it is the same for every place along axis {axis}, which it should not be"
    return None


def _few_digits(got: np.ndarray, expected: np.ndarray) -> str | None:
    """Errors of half precision are small, and rounding errs to either side: what only shrinks is no rounding."""
    apart = got - expected
    worst = np.abs(apart).max() / np.abs(expected).max()
    off = np.abs(apart) > ABSOLUTE
    larger = (apart * expected > 0)[off].mean() if off.any() else 0.0
    if RELATIVE < worst < HALF_PRECISION and 0.15 < larger < 0.85:
        return "the numbers are right to about three digits: was something computed in half precision?"
    return None


def _long_axes(array: np.ndarray) -> Iterator[int]:
    return (axis for axis in range(array.ndim) if array.shape[axis] > 1)


Kind = Callable[[np.ndarray, np.ndarray], str | None]
BOOLEANS: tuple[Kind, ...] = (_exchanged_truths, _exchanged_axes, _first_alone)
NUMBERS: tuple[Kind, ...] = (_one_number, _sign, _shift)
PLACES: tuple[Kind, ...] = (
    _exchanged_axes, _in_another_order, _first_alone, _one_alone_is_wrong, _same_everywhere, _some_places,
)  # fmt: skip
