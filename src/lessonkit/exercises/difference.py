"""What kind of difference lies between two arrays, in words: diagnoses that need no list of known mistakes.

They hold for any exercise, and say no more than the numbers show: a name for the mistake is a misconception's to give.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

RELATIVE, ABSOLUTE = 1e-4, 1e-5  # float32 in another order of operations: errors of 1e-6 are rounding, of 1e-3 mistakes
ENOUGH = 4  # numbers; fewer agree by chance
HALF_PRECISION = 4e-3  # of the largest number: bfloat16 keeps 8 bits, float16 11
MOST_AXES = 5


def close(got: np.ndarray, expected: np.ndarray) -> bool:
    """Whether two arrays are equal up to rounding, in shape, too."""
    return got.shape == expected.shape and np.allclose(got, expected, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)


def kind_of_difference(got: np.ndarray, expected: np.ndarray) -> str | None:
    """In what way `got` is wrong throughout; None where it is in no way known here, or there is too little to see.

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
    kinds = BOOLEANS if got.dtype == np.bool_ else NUMBERS
    return next((words for kind in kinds if (words := kind(got, expected))), None)


def _shaped_otherwise(got: np.ndarray, expected: np.ndarray) -> str | None:
    if got.ndim == expected.ndim:
        if words := _exchanged_axes(got, expected):
            return words
        if any(close(got.transpose(axes), expected) for axes in itertools.permutations(range(got.ndim))):
            return "the numbers are right, but the axes stand in another order"
    if got.size == expected.size and close(got.reshape(expected.shape), expected):
        return "the numbers are right: only the shape is not"
    for axis in range(got.ndim) if got.ndim == expected.ndim + 1 and got.dtype != np.bool_ else ():
        for verb, reduced in (("summed", got.sum(axis)), ("averaged", got.mean(axis))):
            if close(reduced, expected):
                return f"{verb} over axis {axis} it would be right"
    return None


def _exchanged_truths(got: np.ndarray, expected: np.ndarray) -> str | None:
    return "True and False are exchanged" if (got != expected).all() else None


def _one_number(got: np.ndarray, expected: np.ndarray) -> str | None:
    first = got.flat[0]
    return f"every number is {first:.4g}" if close(got, np.full_like(got, first)) else None


def _sign(got: np.ndarray, expected: np.ndarray) -> str | None:
    return "every sign is the wrong way round" if close(-got, expected) else None


def _factor(got: np.ndarray, expected: np.ndarray) -> str | None:
    factor = float((got * expected).sum() / max((expected * expected).sum(), 1e-30))
    if abs(factor) < 1e-3 or abs(factor) > 1e4 or abs(factor - 1) < 2e-3 or not close(got, factor * expected):
        return None  # a factor of nearly 1 would be told as "1 times"
    return f"each number is {in_simple_terms(factor)} what it should be"


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


def _same_everywhere(got: np.ndarray, expected: np.ndarray) -> str | None:
    for axis in _long_axes(got):
        first = np.take(got, [0], axis)
        if close(got, np.broadcast_to(first, got.shape)) and not close(
            expected, np.broadcast_to(np.take(expected, [0], axis), expected.shape)
        ):
            return f"it is the same for every place along axis {axis}, which it should not be"
    return None


def _few_digits(got: np.ndarray, expected: np.ndarray) -> str | None:
    worst = np.abs(got - expected).max() / np.abs(expected).max()
    if RELATIVE < worst < HALF_PRECISION and np.corrcoef(got.ravel(), expected.ravel())[0, 1] > 0.99999:
        return "the numbers are right to about three digits: was something computed in half precision?"
    return None


def _long_axes(array: np.ndarray) -> Iterator[int]:
    return (axis for axis in range(array.ndim) if array.shape[axis] > 1)


Kind = Callable[[np.ndarray, np.ndarray], str | None]
BOOLEANS: tuple[Kind, ...] = (_exchanged_truths, _exchanged_axes, _first_alone)
NUMBERS: tuple[Kind, ...] = (
    _one_number, _sign, _factor, _shift, _exchanged_axes, _in_another_order, _first_alone, _one_alone_is_wrong,
    _same_everywhere, _few_digits,
)  # fmt: skip
