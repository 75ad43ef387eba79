"""Where do an answer's numbers first go wrong? Put right ones in their place, and see whether all comes out right.

The expressions of a wrong answer are compared with those of the right answers that the course has. One that is made of
nothing but right numbers, and is none itself, may be the fault. It is, as far as the aspect shows, if the answer gives
what it should with a right answer's numbers there. So a line is told without a change of code that would mend it (see
`lessonkit.exercises.repair`), however the learner has written it. Interpretability knows this as activation patching.
"""

from __future__ import annotations

import ast
import copy
import inspect
import math
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from torch import Tensor

from lessonkit.exercises import back
from lessonkit.exercises.back import Kind, Seen, kind_of_value
from lessonkit.exercises.exercise import Aspect, Exercise, body_of, definition
from lessonkit.exercises.local_runner import Guard, LocalRunner
from lessonkit.exercises.observe import observe_aspect

CLOSE = 1e-4  # of their length: two ways to compute the same differ by less
LARGEST = 20_000  # numbers that are put in, over all times that the expression is evaluated
IN_ITS_PLACE = "_right_values_of_the_search"


@dataclass
class Piece:
    """An expression of a right answer in an aspect: its kind, and its values, one for each time it was evaluated."""

    kind: Kind
    values: list[Tensor] = field(default_factory=list)  # empty where they are too many, or no tensors


def suspects(
    exercise: Exercise, aspect: Aspect, seed: int, function: ast.FunctionDef, seen: Seen
) -> Iterator[tuple[ast.expr, list[Tensor]]]:
    """Expressions of an answer's `function` that are wrong though what they are made of is right, and right values.

    `seen` is what its expressions were in the aspect, on the seed. For an expression all values that a right answer has
    of its shape come one after the other. A call of a function of the answer's own is none: the fault lies inside.
    """
    known = _known_right(exercise, aspect, seed)
    right = [piece.kind for piece in known]
    own = {node.name for node in ast.walk(function) if isinstance(node, ast.FunctionDef)}
    for node in _evaluated(function, seen):
        kind = seen.kinds[id(node)]
        if isinstance(node, ast.Name) or kind.type not in ("float", "truth", "int") or _is_one_of(kind, right):
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in own:
            continue
        parts = [seen.kinds[id(part)] for part in _parts(node, seen)]
        # Of a list nothing is known but that it is one: what is in it may have been wrong before.
        if any(part.type == "list" and not part.shape for part in parts):
            continue
        if all(part.print is None or _is_one_of(part, right) for part in parts):
            for piece in known:
                if piece.values and (piece.kind.type, piece.kind.shape) == (kind.type, kind.shape):
                    yield node, piece.values


def with_values(function: ast.FunctionDef, node: ast.expr, values: list[Tensor]) -> ast.FunctionDef:
    """A copy of the function in which these stand in the place of the expression, one each time it is evaluated."""
    twins: dict[int, Any] = {}
    twin = copy.deepcopy(function, twins)
    place = twins[id(node)]

    class Put(ast.NodeTransformer):
        def visit(self, one: ast.AST) -> Any:
            if one is place:
                return ast.parse(f"{IN_ITS_PLACE}.pop(0)", mode="eval").body
            return self.generic_visit(one)

    twin.body = [Put().visit(statement) for statement in twin.body]
    twin.args.kwonlyargs.append(ast.arg(IN_ITS_PLACE))
    twin.args.kw_defaults.append(ast.parse(f"[{', '.join(map(_written, values))}]", mode="eval").body)
    return ast.fix_missing_locations(twin)


def _written(value: Tensor) -> str:
    """Code that makes the tensor, exactly; nothing but Python is named, as a learner may call torch anything."""
    torch_ = "__import__('torch')"
    data = value.contiguous().numpy().tobytes().hex()
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{torch_}.frombuffer(bytearray.fromhex('{data}'), dtype={torch_}.{dtype}).reshape({tuple(value.shape)})"


@lru_cache(maxsize=64)
def _known_right(exercise: Exercise, aspect: Aspect, seed: int) -> tuple[Piece, ...]:
    """The expressions of the solution, and of the other right answers, as far as they have numbers."""
    own = [(body_of(exercise.solution), exercise.solution)] if exercise.solution else []
    every = own + [(other.body, other.answer) for other in exercise.alternatives]
    return tuple(piece for body, answer in every for piece in _pieces(exercise, body, answer, aspect, seed)
                 if piece.kind.print is not None)  # fmt: skip


def _pieces(exercise: Exercise, body: str, answer: Any, aspect: Aspect, seed: int) -> list[Piece]:
    """What the expressions of one of the course's own answers are."""
    right: Any = exercise.solution
    if isinstance(right, type):
        methods = [each for each in ast.parse(body).body if isinstance(each, ast.FunctionDef)]
        function = next((each for each in methods if each.name == "forward"), methods[0])
        names, owner = vars(sys.modules[right.__module__]), answer
    else:
        signature = inspect.signature(right)
        function = cast(ast.FunctionDef, ast.parse(definition(signature, body)).body[0])
        names, owner = right.__globals__, exercise.reference if "self" in signature.parameters else None
    found: dict[int | str, Piece] = {}
    numbers: dict[int | str, int] = {}  # how many each has, over all times

    def tell(which: int | str, value: Any) -> Any:
        piece = found.setdefault(which, Piece(kind_of_value(value)))
        if isinstance(value, Tensor):
            numbers[which] = numbers.get(which, 0) + value.numel()
            if 0 < numbers[which] <= LARGEST and not value.is_complex():
                piece.values.append(value.detach().clone())
            else:
                piece.values.clear()
                numbers[which] = LARGEST
        return value

    twin, _ = back.watched(function, Seen())
    scope = {**names, back.SEEN: tell, back.MATH: math}
    exec(compile(ast.Module([twin], []), "<a known answer>", "exec"), scope)
    made = scope[twin.name]
    if owner is not None:
        made = type(owner.__name__, (owner,), {function.name: made})
    with suppress(Exception):  # some aspects hand in what the course's own code refuses
        observe_aspect(LocalRunner(made, Guard(())), exercise, aspect, seed)
    return list(found.values())


def _evaluated(function: ast.FunctionDef, seen: Seen) -> Iterator[ast.expr]:
    """The function's expressions that have numbers, in the order in which they were first evaluated."""
    nodes = {id(node): node for node in ast.walk(function) if isinstance(node, ast.expr)}
    return (nodes[number] for number, kind in seen.kinds.items() if kind.print is not None and number in nodes)


def _parts(node: ast.AST, seen: Seen) -> Iterator[ast.AST]:
    """What an expression is made of, as far as it was seen."""
    for child in ast.iter_child_nodes(node):
        if id(child) in seen.kinds:
            yield child
        else:
            yield from _parts(child, seen)


def _is_one_of(kind: Kind, others: list[Kind]) -> bool:
    return any(_alike(kind, other) for other in others)


def _alike(one: Kind, other: Kind) -> bool:
    """Whether two have the same numbers in the same order; axes of size one do not count."""
    if one.print is None or other.print is None or _size(one) != _size(other):
        return False
    most = CLOSE * max(one.print[-1], other.print[-1], 1e-6)
    return all(abs(a - b) <= most for a, b in zip(one.print, other.print, strict=True))


def _size(kind: Kind) -> tuple[int, ...]:
    return tuple(size for size in kind.shape if size != 1)
