"""One-step changes of a function's code: of a right answer, slips; of a wrong one, perhaps the way back.

`steps` gives all that it knows, each as the place, what stands there, and what stands there instead. Nothing here runs
the code. A library of mutation operators would know nothing of axes, of `.mT` and of gradients: those are ours.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

OPERATORS = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult, ast.FloorDiv),
    ast.FloorDiv: (ast.Div, ast.Mult),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.MatMult: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd, ast.BitXor),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
COMMUTATIVE = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr)
PAIRS = "amax amin, argmax argmin, max min, maximum minimum, tril triu, zeros ones, zeros_like ones_like, sin cos, "
PAIRS += "sum mean, softmax log_softmax, sigmoid tanh, train eval, values indices, any all, exp log, sqrt square, "
PAIRS += "repeat_interleave repeat"
TWINS = {a: b for pair in PAIRS.split(", ") for a, b in (pair.split(), reversed(pair.split()))}
AXES = (-2, -1, 0, 1, 2)


@dataclass(frozen=True, eq=False)
class Step:
    """One change: what the field of `parent` (or its item number `index`) holds becomes `new`. `at` is what changes."""

    parent: ast.AST
    field: str
    index: int | None
    new: Any  # a node; of a block, the list of its statements
    at: ast.AST

    @contextmanager
    def made(self) -> Iterator[None]:
        """The tree with this change in it, and with the line that changes as that of what is new."""
        for new in self.new if isinstance(self.new, list) else [self.new]:
            _locate(new, self.at)
        here = getattr(self.parent, self.field)
        if self.index is None:
            setattr(self.parent, self.field, self.new)
        else:
            held, here[self.index] = here[self.index], self.new
        try:
            yield
        finally:
            if self.index is None:
                setattr(self.parent, self.field, here)
            else:
                here[self.index] = held


def _locate(new: ast.AST, at: ast.AST) -> None:
    """What `ast.fix_missing_locations` does, and quicker: what has its place is not gone into."""
    if isinstance(new, ast.expr | ast.stmt | ast.keyword | ast.alias) and not hasattr(new, "lineno"):
        ast.copy_location(new, at)
    elif hasattr(new, "lineno"):
        return
    for child in ast.iter_child_nodes(new):
        _locate(child, at)


def steps(function: ast.FunctionDef, of_self: Iterable[str] = ()) -> Iterator[Step]:
    """Every one-step change of the function's body. What `self` has, `of_self`, may be known from elsewhere, too."""
    names = sorted(names_of(function))
    used = {n.attr for n in ast.walk(function) if isinstance(n, ast.Attribute) and _is(n.value, "self")}
    own = sorted(used | set(of_self)) if used else []
    documented = ast.get_docstring(function) is not None
    for parent, field, index, value in places(function):
        if index is None and isinstance(value, list):
            yield from _statements(parent, field, value, 1 if parent is function and documented else 0)
            continue
        tests = (ast.UnaryOp(ast.Not(), value),) if index is None and field == "test" else ()
        for new in (*tests, *_instead(value, names, own)):
            yield Step(parent, field, index, new, value if hasattr(value, "lineno") else parent)


def places(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str, int | None, Any]]:
    """Where a body may change: the parent, its field, the number in it, what stands there (a node, or a block)."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    for parent in (node for statement in [function, *body] for node in _below(statement, function)):
        for field, value in ast.iter_fields(parent):
            if field in ("annotation", "args", "returns", "targets", "target", "optional_vars") and not isinstance(
                parent, ast.Call
            ):
                continue
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield parent, field, None, value
            elif isinstance(value, list):
                yield from ((parent, field, i, node) for i, node in enumerate(value) if isinstance(node, ast.AST))
            elif isinstance(value, ast.AST):
                yield parent, field, None, value


def _below(statement: ast.AST, function: ast.FunctionDef) -> Iterator[ast.AST]:
    if statement is function:
        yield function
    else:
        yield from ast.walk(statement)


def _statements(parent: ast.AST, field: str, whole: list[ast.stmt], first: int) -> Iterator[Step]:
    """Leaves a statement out, ends the loop or the function after it, exchanges it with the next."""
    for i in range(first, len(whole)):
        yield Step(parent, field, None, whole[:i] + whole[i + 1 :] or [ast.Pass()], whole[i])
        inner = getattr(whole[i], "body", None)
        if isinstance(inner, list) and not isinstance(whole[i], ast.FunctionDef):
            yield Step(parent, field, None, whole[:i] + inner + whole[i + 1 :], whole[i])
        if isinstance(whole[i], ast.For):
            yield Step(whole[i], "body", None, [*inner, ast.Break()], whole[i])  # type: ignore[misc]
        if i + 1 < len(whole):
            yield Step(parent, field, None, [*whole[:i], whole[i + 1], whole[i], *whole[i + 2 :]], whole[i])


def _instead(node: ast.AST, names: list[str], own: list[str]) -> Iterator[ast.AST]:
    """What may stand in a node's place, by one step."""
    match node:
        case ast.operator() | ast.cmpop() | ast.boolop():
            yield from (other() for other in OPERATORS.get(type(node), ()))
        case ast.BinOp(left, op, right):
            yield from (left, right)
            if not isinstance(op, COMMUTATIVE):
                yield ast.BinOp(right, op, left)
        case ast.BoolOp(op, values):
            yield from (ast.BoolOp(op, values[:i] + values[i + 1 :]) for i in range(len(values)))
        case ast.UnaryOp(ast.USub(), ast.Constant(int(number))):
            yield from (ast.Constant(n) for n in (1 - number, -1 - number, number))
        case ast.UnaryOp(_, operand):
            yield operand
        case ast.IfExp(_, body, orelse):
            yield from (body, orelse)
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(number)):
            yield from (ast.Constant(n) for n in (number + 1, number - 1))
        case ast.Constant(float(number)):
            yield from (ast.Constant(n) for n in (number + 1.0, 2 * number))
        case ast.Constant(str(text)) if "->" in text:
            yield from (ast.Constant(other) for other in _other_equations(text))
        case ast.keyword("dim", ast.AST()):
            yield from (ast.keyword("dim", ast.Constant(axis)) for axis in AXES)
        case ast.Name(name, ast.Load()) if name in names:
            yield from (ast.Name(other, ast.Load()) for other in names if other != name)
        case ast.Attribute(value, name, ast.Load()):
            if _is(value, "self"):
                yield from (ast.Attribute(value, other, ast.Load()) for other in own if other != name)
            elif name in TWINS:
                yield ast.Attribute(value, TWINS[name], ast.Load())
            if name in ("mT", "data"):
                yield value
        case ast.Subscript(value, part, ast.Load()):
            yield value
            if isinstance(part, ast.Tuple):
                yield from (ast.Subscript(value, other, ast.Load()) for other in _reordered(part))  # type: ignore[arg-type]
        case ast.Slice(lower, upper, step):
            yield from (ast.Slice(None, upper, step), ast.Slice(lower, None, step), ast.Slice(lower, upper, None))
            one = ast.Constant(1)
            if upper is not None:
                yield from (ast.Slice(lower, ast.BinOp(upper, op(), one), step) for op in (ast.Add, ast.Sub))
            if lower is not None:
                yield ast.Slice(ast.BinOp(lower, ast.Add(), one), upper, step)
        case ast.Tuple(elements, ast.Load()) | ast.List(elements, ast.Load()):
            yield from _reordered(node)
            yield from (type(node)(elements[:i] + elements[i + 1 :], ast.Load()) for i in range(len(elements)))
        case ast.comprehension(target, source, conditions):
            yield from (
                ast.comprehension(target, source, conditions[:i] + conditions[i + 1 :], 0)
                for i in range(len(conditions))
            )
        case ast.Starred(value):
            yield value
        case ast.Call(function, arguments, keywords):
            yield from (ast.Call(function, arguments[:i] + arguments[i + 1 :], keywords) for i in range(len(arguments)))
            yield from (ast.Call(function, arguments, keywords[:i] + keywords[i + 1 :]) for i in range(len(keywords)))
            for i in range(len(arguments) - 1):
                swapped = [*arguments[:i], arguments[i + 1], arguments[i], *arguments[i + 2 :]]
                yield ast.Call(function, swapped, keywords)
            yield from arguments
            if isinstance(function, ast.Attribute) and not _is(function.value, "torch", "math", "nn", "F", "self"):
                yield function.value
    if isinstance(node, ast.Name | ast.Call | ast.BinOp | ast.Attribute) and isinstance(
        getattr(node, "ctx", ast.Load()), ast.Load
    ):
        yield ast.Call(ast.Attribute(node, "detach", ast.Load()), [], [])


def _reordered(node: Any) -> Iterator[ast.AST]:
    """A tuple or list with two neighbours in each other's place."""
    for i in range(len(node.elts) - 1):
        new = [*node.elts[:i], node.elts[i + 1], node.elts[i], *node.elts[i + 2 :]]
        yield type(node)(new, ast.Load())


def _other_equations(text: str) -> Iterator[str]:
    """An einsum's equation with two neighbouring letters of one tensor in each other's place: its result's first."""
    terms = re.split(r"(,|->)", text)
    for at in reversed(range(0, len(terms), 2)):
        for i, (a, b) in enumerate(pairwise(terms[at])):
            if a.isalpha() and b.isalpha():
                swapped = f"{terms[at][:i]}{b}{a}{terms[at][i + 2 :]}"
                yield "".join([*terms[:at], swapped, *terms[at + 1 :]])


def names_of(function: ast.FunctionDef) -> set[str]:
    """The arguments and variables of a function."""
    stored = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return (stored | {argument.arg for argument in function.args.args}) - {"self", "_"}


def _is(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names
