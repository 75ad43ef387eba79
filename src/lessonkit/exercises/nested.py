"""Tensors in nested values: lists, tuples, named tuples and dicts of them."""

from collections.abc import Callable
from typing import Any

from torch import Tensor


def each_tensor(function: Callable[[Tensor], Any], value: Any) -> Any:
    """The value with what `function` makes of each of its tensors, in order, in new containers; all else as it is."""
    if isinstance(value, Tensor):
        return function(value)
    if type(value) is dict:
        return {key: each_tensor(function, item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(each_tensor(function, item) for item in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(each_tensor(function, item) for item in value))
    return value
