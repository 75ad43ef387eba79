"""Where do an answer's numbers first go wrong? What its expressions are is compared with what a known mistake's are.

A misconception that gives what the answer gives tells which numbers are wrong on the way, too: those of its own
expressions that no right answer has. Where the learner's code makes one of them of nothing but right ones, there is the
mistake, however it is written. So a line can be told without a change that would mend it (see
`lessonkit.exercises.repair`), and where more than one step would be needed.
"""

from __future__ import annotations

import ast
import inspect
import math
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, cast

from lessonkit.exercises import back
from lessonkit.exercises.back import Kind, Seen
from lessonkit.exercises.exercise import Aspect, Code, Exercise, body_of, definition
from lessonkit.exercises.local_runner import Guard, LocalRunner
from lessonkit.exercises.observe import observe_aspect

CLOSE = 1e-4  # of their length: two ways to compute the same differ by less
WRITES = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr)


def first_wrong(
    exercise: Exercise, code: Code, aspect: Aspect, seed: int, function: ast.FunctionDef, seen: Seen
) -> ast.expr | None:
    """The expression of an answer's `function` at which its numbers become those of the misconception `code`.

    `seen` is what its expressions were in the aspect, on the seed. None where that cannot be told, which is often: the
    mistake's numbers may stand nowhere in the answer, or may be made of others that no known answer has.
    """
    wrong = _known_wrong(exercise, code.name, code.body, code.answer, aspect, seed)
    right = _known_right(exercise, aspect, seed)
    for node in _evaluated(function, seen):
        kind = seen.kinds[id(node)]
        if isinstance(node, ast.Name) or not _is_one_of(kind, wrong):
            continue
        parts = [seen.kinds[id(part)] for part in _parts(node, seen)]
        # Of a list nothing is known but that it is one: what is in it may have been wrong before.
        known = all(part.type != "list" or part.shape for part in parts)
        if known and all(part.print is None or _is_one_of(part, right) for part in parts):
            return node
    return None


@lru_cache(maxsize=1024)
def _known_wrong(
    exercise: Exercise, name: str, body: str, answer: Any, aspect: Aspect, seed: int
) -> tuple[Kind, ...]:
    """What is wrong in the first statement of the mistake in which anything is: where it was made, and not later.

    Without what other mistakes of the exercise have on their way, too: that is often right, and written by nobody yet.
    """
    function, seen = _watched(exercise, body, answer, aspect, seed)
    right = _known_right(exercise, aspect, seed)
    first = next((node for node in _evaluated(function, seen) if _is_new(seen.kinds[id(node)], right)), None)
    statement = _statement_of(function, first) if first is not None else None
    if statement is None or ast.dump(statement) in _statements_of_solution(exercise):
        return ()
    whole = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
    inside = {id(node) for node in ast.walk(statement.value)}
    new = [node for node in _evaluated(function, seen) if id(node) in inside and _is_new(seen.kinds[id(node)], right)]
    others = [kind for other in exercise.misconceptions + exercise.variants if other.name != name
              for kind in _kinds(exercise, other.body, other.answer, aspect, seed)]  # fmt: skip
    return tuple(
        seen.kinds[id(node)] for node in new
        if any(node is one for one in whole) or not _is_one_of(seen.kinds[id(node)], others)
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _known_right(exercise: Exercise, aspect: Aspect, seed: int) -> tuple[Kind, ...]:
    """What the expressions of the solution and of the other right answers are."""
    own = _kinds(exercise, body_of(exercise.solution), exercise.solution, aspect, seed) if exercise.solution else ()
    return own + tuple(kind for other in exercise.alternatives
                       for kind in _kinds(exercise, other.body, other.answer, aspect, seed))  # fmt: skip


@lru_cache(maxsize=1024)
def _kinds(exercise: Exercise, body: str, answer: Any, aspect: Aspect, seed: int) -> tuple[Kind, ...]:
    _, seen = _watched(exercise, body, answer, aspect, seed)
    return tuple(kind for kind in seen.kinds.values() if kind.print is not None)


@lru_cache(maxsize=1024)
def _watched(
    exercise: Exercise, body: str, answer: Any, aspect: Aspect, seed: int
) -> tuple[ast.FunctionDef, Seen]:
    """One of the course's own answers, and what its expressions are."""
    right: Any = exercise.solution
    seen = Seen()
    if isinstance(right, type):
        methods = [each for each in ast.parse(body).body if isinstance(each, ast.FunctionDef)]
        function = next((each for each in methods if each.name == "forward"), methods[0])
        names, owner = vars(sys.modules[right.__module__]), answer
    else:
        signature = inspect.signature(right)
        function = cast(ast.FunctionDef, ast.parse(definition(signature, body)).body[0])
        names, owner = right.__globals__, exercise.reference if "self" in signature.parameters else None
    twin, note = back.watched(function, seen)
    scope = {**names, back.SEEN: back.telling(note), back.MATH: math}
    exec(compile(ast.Module([twin], []), "<a known answer>", "exec"), scope)
    made = scope[twin.name]
    if owner is not None:
        made = type(owner.__name__, (owner,), {function.name: made})
    with suppress(Exception):  # a mistake may raise what no aspect takes
        observe_aspect(LocalRunner(made, Guard(())), exercise, aspect, seed)
    return function, seen


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


def _statement_of(function: ast.FunctionDef, node: ast.AST) -> Any:
    """The smallest statement with a value in which the expression stands."""
    every = (each for each in ast.walk(function) if isinstance(each, WRITES) and each.value is not None)
    around = [each for each in every if any(part is node for part in ast.walk(each))]
    return around[-1] if around else None


@lru_cache(maxsize=256)
def _statements_of_solution(exercise: Exercise) -> frozenset[str]:
    body = body_of(exercise.solution) if exercise.solution else ""
    return frozenset(ast.dump(node) for node in ast.walk(ast.parse(body)) if isinstance(node, WRITES))


def _is_new(kind: Kind, right: Iterable[Kind]) -> bool:
    return kind.print is not None and not _is_one_of(kind, right)


def _is_one_of(kind: Kind, others: Iterable[Kind]) -> bool:
    return any(_alike(kind, other) for other in others)


def _alike(one: Kind, other: Kind) -> bool:
    """Whether two have the same numbers in the same order; axes of size one do not count."""
    if one.print is None or other.print is None or _size(one) != _size(other):
        return False
    most = CLOSE * max(one.print[-1], other.print[-1], 1e-6)
    return all(abs(a - b) <= most for a, b in zip(one.print, other.print, strict=True))


def _size(kind: Kind) -> tuple[int, ...]:
    return tuple(size for size in kind.shape if size != 1)
