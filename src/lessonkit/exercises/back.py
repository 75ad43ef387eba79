"""Steps back: what one piece of a wrong answer may have lost, seen what kind of thing it is when the answer runs.

`steps.steps` takes things away and exchanges them. What is missing must be put in, and for that there are too many ways
to try them blindly: so an expression is only changed as its kind allows (`~` for truths, softmax along the axes that it
has, a name where the shapes meet). `rules` turns an exercise's known slips round, as Refazer (Rolim et al. 2017) learns
its transformations from examples: the piece that differs, with names for which any expression may stand.
"""

from __future__ import annotations

import ast
import builtins
import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from lessonkit.exercises.exercise import Exercise, body_of
from lessonkit.exercises.steps import Step, places

MATH = "_math_of_the_search"  # what a changed answer calls the module by
SEEN = "_seen_by_the_search"
FUNCTIONS = ("tanh", "relu", "exp", "log", "sqrt", "square", "abs", "nan_to_num", "neg")
REDUCTIONS = ("sum", "mean", "amax", "amin", "max", "min", "var", "std", "norm", "logsumexp", "argmax")
MOST = 5  # names of a kind that are tried in one place


# ------------------------------------------------------------------------------------------------- what pieces are like


@dataclass(frozen=True)
class Kind:
    """What an expression was when it was first evaluated: its type, a tensor's shape, a number's values."""

    type: str  # "float", "truth" and "int" are tensors; then "number", "real", "bool", "list", "function", "other"
    shape: tuple[int, ...] = ()
    value: Any = None


@dataclass
class Seen:
    """The kinds of an answer's expressions, by `id` of the node, and of its names."""

    kinds: dict[int, Kind] = field(default_factory=dict)
    names: dict[str, Kind] = field(default_factory=dict)
    complete: bool = True  # False where the answer raised: what comes later is not known

    def named(self, *types: str) -> list[str]:
        """The names of these types."""
        return [name for name, kind in self.names.items() if kind.type in types]


def kind_of_value(value: Any) -> Kind:
    """The kind of a value.

    >>> kind_of_value(torch.ones(2, 3))
    Kind(type='float', shape=(2, 3), value=None)
    """
    if isinstance(value, Tensor):
        is_float = value.is_floating_point() or value.is_complex()
        return Kind("truth" if value.dtype == torch.bool else "float" if is_float else "int", tuple(value.shape))
    if isinstance(value, bool):
        return Kind("bool", value=value)
    if isinstance(value, int | float):
        return Kind("number" if isinstance(value, int) else "real", value=value)
    return Kind("list" if isinstance(value, list | tuple) else "function" if callable(value) else "other")


Note = Callable[[int | str, Kind], None]  # what an expression, by number, or a name is


def watched(function: ast.FunctionDef, seen: Seen) -> tuple[ast.FunctionDef, Note]:
    """A copy of the function that tells SEEN what each of its expressions is; and where to note what it tells."""
    twin = copy.deepcopy(function)
    originals = list(ast.walk(function))
    numbers = {id(node): number for number, node in enumerate(ast.walk(twin))}

    def note(number: int | str, kind: Kind) -> None:
        if isinstance(number, str):
            seen.names.setdefault(number, kind)
        elif 0 <= number < len(originals):
            node = originals[number]
            seen.kinds.setdefault(id(node), kind)
            if isinstance(node, ast.Name):
                seen.names.setdefault(node.id, seen.kinds[id(node)])

    changed = _Telling(numbers).visit(twin)
    arguments = [argument.arg for argument in function.args.args if argument.arg != "self"]
    changed.body[:0] = [ast.Expr(_told(name, ast.Name(name, ast.Load()))) for name in arguments]
    return ast.fix_missing_locations(changed), note


def telling(note: Note) -> Callable:
    """What SEEN is: it notes of each expression what it was first, and hands it on."""
    told: set[int | str] = set()

    def tell(number: int | str, value: Any) -> Any:
        if number not in told:
            told.add(number)
            note(number, kind_of_value(value))
        return value

    return tell


def _told(what: int | str, node: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(SEEN, ast.Load()), [ast.Constant(what), node], [])


class _Telling(ast.NodeTransformer):
    def __init__(self, numbers: dict[int, int]) -> None:
        self.numbers = numbers

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.JoinedStr | ast.pattern):
            return node
        if isinstance(node, ast.arg | ast.arguments):
            return node
        if isinstance(node, ast.AnnAssign):
            node.value = self.visit(node.value) if node.value else None
            return node
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                node.func.value = self.visit(node.func.value)
            elif not isinstance(node.func, ast.Name):
                node.func = self.visit(node.func)
            node.args = [self.visit(argument) for argument in node.args]
            for keyword in node.keywords:
                keyword.value = self.visit(keyword.value)
            return self._wrapped(node)
        if isinstance(node, ast.FunctionDef):
            node.body = [self.visit(statement) for statement in node.body]
            return node
        return self._wrapped(self.generic_visit(node))

    def _wrapped(self, node: ast.AST) -> ast.AST:
        plain = isinstance(node, ast.expr) and not isinstance(node, ast.Slice | ast.Starred)
        if not plain or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return node
        if isinstance(node, ast.Tuple) and any(isinstance(item, ast.Slice | ast.Starred) for item in node.elts):
            return node
        number = self.numbers.get(id(node))
        return node if number is None or not isinstance(node, ast.expr) else _told(number, node)


# ------------------------------------------------------------------------------------------------------------ the steps


def steps_back(function: ast.FunctionDef, seen: Seen) -> Iterator[Step]:
    """What may be put in, or back, in one step.

    A kind of step stays only if it finds lines: `benchmarks/repair.py` has the answers to measure it by.
    """
    counted: dict[str, list[int]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            counted.setdefault(node.id, [0, 0])[isinstance(node.ctx, ast.Load)] += 1
    once = {name for name, uses in counted.items() if uses == [1, 1]}  # a change of its value is made where it is set
    held_by = {id(child): node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    for parent, field_, index, value in places(function):
        if not isinstance(value, ast.expr) or isinstance(parent, ast.JoinedStr | ast.FormattedValue):
            continue
        if not isinstance(getattr(value, "ctx", ast.Load()), ast.Load):
            continue
        for new in _specific(value, seen):
            yield Step(parent, field_, index, new, value)
        kind = seen.kinds.get(id(value))
        is_called = isinstance(parent, ast.Call) and field_ == "func"
        if is_called or (isinstance(value, ast.Name) and value.id in once) or isinstance(value, ast.Slice):
            continue
        if kind is None or (isinstance(parent, ast.Attribute) and parent.attr in ("shape", "ndim", "dtype")):
            continue
        if isinstance(value, ast.Constant) and isinstance(held_by.get(id(value)), ast.Expr):
            continue
        for new in _wrapped(value, kind, seen):
            yield Step(parent, field_, index, new, value)


def _specific(node: ast.expr, seen: Seen) -> Iterator[ast.expr]:
    """What the form of the expression suggests, whatever its kind."""
    match node:
        case ast.Constant(float()):
            yield from map(_name, seen.named("real", "number")[:MOST])
        case ast.BinOp(ast.BinOp(a, inner, b), outer, c) if type(inner) is not type(outer):
            yield ast.BinOp(a, inner, ast.BinOp(b, ast.Pow(), c))  # one sign, which binds more closely
            yield ast.BinOp(ast.BinOp(a, outer, c), inner, b)  # the two in the other order
        case ast.Call(function, arguments, keywords):
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            given = {keyword.arg for keyword in keywords}
            if name in ("var", "std") and not {"unbiased", "correction"} & given:
                yield ast.Call(function, arguments, [*keywords, ast.keyword("correction", ast.Constant(0))])
            if name in REDUCTIONS:
                along = [[*keywords, ast.keyword("dim", _number(axis))] for axis in (-1, 0, 1) if "dim" not in given]
                kept = [ast.keyword("keepdim", ast.Constant(True))] if "keepdim" not in given else []
                yield from (ast.Call(function, arguments, [*more, *kept]) for more in (keywords, *along) if kept)
                yield from (ast.Call(function, arguments, more) for more in along)
            for extra in seen.named("number", "real")[:MOST]:
                yield ast.Call(function, [*arguments, _name(extra)], keywords)


def _wrapped(node: ast.expr, kind: Kind, seen: Seen) -> Iterator[ast.expr]:
    """The expression with something done to it that its kind allows, and that is commonly forgotten."""
    match kind.type:
        case "float":
            yield from (_method(node, name) for name in FUNCTIONS)
            yield from (_method(node, "softmax", _number(axis)) for axis in _axes(kind))
            if len(kind.shape) >= 2:
                yield ast.Attribute(node, "mT", ast.Load())
            for number in _numbers(seen):
                for op in (ast.Div, ast.Mult):
                    yield ast.BinOp(node, op(), _call(MATH, "sqrt", number))
                    yield ast.BinOp(node, op(), number)
            yield from _masked(node, kind, seen)
        case "truth":
            yield ast.UnaryOp(ast.Invert(), node)
            yield from (_method(node, "unsqueeze", _number(axis)) for axis in range(-1, len(kind.shape)))
        case "int":
            yield _method(node, "abs")
            yield from (ast.BinOp(node, op(), ast.Constant(1)) for op in (ast.Add, ast.Sub))
        case "number" | "real" if not isinstance(node, ast.Constant):
            yield from (ast.BinOp(node, op(), ast.Constant(1)) for op in (ast.Add, ast.Sub))
            yield ast.UnaryOp(ast.USub(), node)


def _numbers(seen: Seen) -> list[ast.expr]:
    """The numbers at hand: names, and the lengths of arguments' and variables' axes; none twice."""
    found: dict[Any, ast.expr] = {}
    for name in seen.named("number", "real"):
        found.setdefault(seen.names[name].value, _name(name))
    for name in seen.named("float", "int", "truth"):
        shape = seen.names[name].shape
        for axis in (-1, 0, 1):
            if -len(shape) <= axis < len(shape):
                found.setdefault(shape[axis], _attribute(_name(name), "shape", axis))
    return [node for value, node in found.items() if value not in (0, 1)]


def _masked(node: ast.expr, kind: Kind, seen: Seen) -> Iterator[ast.expr]:
    infinite = ast.UnaryOp(ast.USub(), ast.Attribute(_name(MATH), "inf", ast.Load()))
    for mask in _fitting(kind, seen, "truth"):
        for chosen in (mask, ast.UnaryOp(ast.Invert(), mask)):
            yield from (_method(node, "masked_fill", chosen, filling) for filling in (infinite, ast.Constant(0)))


def _fitting(kind: Kind, seen: Seen, *types: str) -> Iterator[ast.expr]:
    """Names of tensors that meet a tensor of this kind, with an axis put in where that is what it takes."""
    for name in seen.named(*types):
        shape = seen.names[name].shape
        forms: list[tuple[tuple[int, ...], ast.expr]] = [(shape, _name(name))]
        for axis in range(-1, len(shape)):
            longer = list(shape)
            longer.insert(axis if axis >= 0 else len(shape), 1)
            forms.append((tuple(longer), _method(_name(name), "unsqueeze", _number(axis))))
        met = [form for put, form in forms if _meets(put, kind.shape)]
        yield from met[:2]


def _meets(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether two shapes broadcast to one of them. (torch's own function takes a second to load.)"""
    n = max(len(one), len(other))
    pairs = list(zip((1,) * (n - len(one)) + one, (1,) * (n - len(other)) + other, strict=True))
    return all(a == b or 1 in (a, b) for a, b in pairs) and tuple(max(pair) for pair in pairs) in (one, other)


def _axes(kind: Kind) -> range:
    return range(-len(kind.shape), 0)


def _number(value: int) -> ast.expr:
    return ast.UnaryOp(ast.USub(), ast.Constant(-value)) if value < 0 else ast.Constant(value)


def _name(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _attribute(node: ast.expr, name: str, item: int) -> ast.expr:
    return ast.Subscript(ast.Attribute(node, name, ast.Load()), _number(item), ast.Load())


def _method(node: ast.expr, name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(node, name, ast.Load()), list(arguments), [])


def _call(module: str, name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(_name(module), name, ast.Load()), list(arguments), [])


# ---------------------------------------------------------------------------------- what the exercise's slips teach


@dataclass(frozen=True, eq=False)
class Rule:
    """A piece as a known slip has it, and as the solution has it; names stand for any expression."""

    wrong: ast.AST | None  # None where a statement is missing
    right: ast.AST


@lru_cache(maxsize=256)
def rules(exercise: Exercise) -> tuple[Rule, ...]:
    """How the exercise's slips are put right."""
    found: dict[str, Rule] = {}
    for code in exercise.misconceptions + exercise.variants:
        if not code.change or code.base is None:
            continue
        right = _parsed(body_of(code.base))
        wrong = _parsed(code.body)
        for pair in _differences(wrong, right) if right and wrong else ():
            for rule in (pair, _for_any(pair)):
                found.setdefault(f"{_dumped(rule.wrong)} {ast.dump(rule.right)}", rule)
    return tuple(found.values())


def _for_any(rule: Rule) -> Rule:
    """The rule with a name for each piece that is the same on both sides: a learner has called it, or cut it, anew."""
    if rule.wrong is None:
        return rule
    there = {ast.dump(node) for node in ast.walk(rule.wrong) if isinstance(node, ast.expr)}
    names: dict[str, str] = {}

    def named(node: Any) -> Any:
        if isinstance(node, list):
            return [named(item) for item in node]
        if not isinstance(node, ast.AST):
            return node
        text = ast.dump(node)
        if isinstance(node, ast.expr) and not isinstance(node, ast.Name | ast.Constant | ast.UnaryOp) and text in there:
            return ast.Name(names.setdefault(text, f"same_{len(names)}"), ast.Load())
        return type(node)(**{field_: named(getattr(node, field_, None)) for field_ in node._fields})

    right = named(rule.right)
    there = set(names)
    return Rule(named(rule.wrong), right)


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def _differences(wrong: ast.AST, right: ast.AST) -> Iterator[Rule]:
    """The smallest expressions that differ."""
    if ast.dump(wrong) == ast.dump(right):
        return
    if type(wrong) is type(right):
        pairs = []
        for name in wrong._fields:
            one, other = getattr(wrong, name, None), getattr(right, name, None)
            if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
                pairs += list(zip(one, other, strict=True))
            elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other) - 1:
                shorter = [_dumped(other[:i] + other[i + 1 :]) for i in range(len(other))]
                if _dumped(one) in shorter and isinstance(other[0], ast.stmt):
                    yield Rule(None, other[shorter.index(_dumped(one))])
                    return
                pairs.append((one, other))
            else:
                pairs.append((one, other))
        differing = [(a, b) for a, b in pairs if _dumped(a) != _dumped(b)]
        if differing and all(isinstance(a, ast.expr | ast.stmt | ast.keyword) and isinstance(b, ast.AST)
                             for a, b in differing):  # fmt: skip
            inner = [rule for a, b in differing for rule in _differences(a, b)]
            if inner:
                yield from inner
                if isinstance(wrong, ast.Call | ast.BinOp):  # with what is around it, too: two may have changed places
                    yield Rule(wrong, right)
                return
    if isinstance(wrong, ast.expr) and isinstance(right, ast.expr):
        yield Rule(wrong, right)


def _dumped(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_dumped, value))
    return ast.dump(value) if isinstance(value, ast.AST) else repr(value)


def steps_of_rules(function: ast.FunctionDef, exercise: Exercise, seen: Seen) -> Iterator[Step]:
    """The exercise's slips put right, wherever the learner's code has the like of them."""
    known = set(seen.names) | {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    statements = [rule.right for rule in rules(exercise) if rule.wrong is None]
    missing = [one for one in statements if {n.id for n in ast.walk(one) if isinstance(n, ast.Name)} <= known | _GLOBAL]
    for parent, field_, index, value in places(function):
        if isinstance(value, list):
            for place, statement in itertools.product(range(1, len(value) + 1), missing):
                block = [*value[:place], _put_in(statement, {}), *value[place:]]
                yield Step(parent, field_, None, block, value[place - 1])
        if not isinstance(value, ast.expr) or not isinstance(getattr(value, "ctx", ast.Load()), ast.Load):
            continue
        for rule in rules(exercise):
            for new in _applied(rule, value, known, seen):
                yield Step(parent, field_, index, new, value)


def _applied(rule: Rule, node: ast.expr, known: set[str], seen: Seen) -> Iterator[ast.expr]:
    bound: dict[str, ast.AST] = {}
    if rule.wrong is None:
        return
    if isinstance(rule.wrong, ast.Name | ast.Constant):
        if ast.dump(rule.wrong) != ast.dump(node):
            return
    elif not _matches(rule.wrong, node, bound):
        return
    wanted = {n.id for n in ast.walk(rule.right) if isinstance(n, ast.Name)} - set(bound) - _GLOBAL - known
    if not wanted:
        yield _put_in(rule.right, bound)
    elif len(wanted) == 1:
        (name,) = wanted
        for number in _numbers(seen) + [_name(n) for n in seen.named("float", "int", "truth")[:MOST]]:
            yield _put_in(rule.right, {**bound, name: number})


_GLOBAL = {"torch", "math", "nn", "F", "np", "self", *dir(builtins)}


def _matches(pattern: Any, node: Any, bound: dict[str, ast.AST]) -> bool:
    if isinstance(pattern, ast.Name) and pattern.id not in _GLOBAL:
        if not isinstance(node, ast.expr):
            return False
        if pattern.id in bound:
            return ast.dump(bound[pattern.id]) == ast.dump(node)
        bound[pattern.id] = node
        return True
    if isinstance(pattern, list):
        return (isinstance(node, list) and len(pattern) == len(node)
                and all(_matches(a, b, bound) for a, b in zip(pattern, node, strict=True)))  # fmt: skip
    if not isinstance(pattern, ast.AST):
        return bool(pattern == node)
    pattern, node = _plain(pattern), _plain(node)
    if type(pattern) is not type(node):
        return False
    if isinstance(pattern, ast.BinOp) and isinstance(pattern.op, ast.Add | ast.Mult):  # in either order
        for left, right in ((node.left, node.right), (node.right, node.left)):
            trial = dict(bound)
            if (type(pattern.op) is type(node.op)
                    and _matches(pattern.left, left, trial) and _matches(pattern.right, right, trial)):  # fmt: skip
                bound.update(trial)
                return True
        return False
    return all(_matches(getattr(pattern, f, None), getattr(node, f, None), bound) for f in pattern._fields)


def _plain(node: Any) -> Any:
    """One form for what is written in several: `torch.f(x)` as `x.f()`, `x.T` as `x.mT`, `x.f(0)` as `x.f(dim=0)`."""
    match node:
        case ast.Attribute(value, "T", context):
            return ast.Attribute(value, "mT", context)
        case ast.Call(ast.Attribute(value, "transpose" | "swapaxes"), [_, _], []):
            return ast.Attribute(value, "mT", ast.Load())
        case ast.Call(ast.Attribute(ast.Name("torch" | "F"), "matmul" | "bmm"), [a, b], []):
            return ast.BinOp(a, ast.MatMult(), b)
        case ast.Call(ast.Attribute(ast.Name("torch" | "F"), name), [value, *rest], keywords):
            return _plain(ast.Call(ast.Attribute(value, name, ast.Load()), rest, keywords))
        case ast.Call(ast.Attribute(value, name), [axis], keywords) if name in ALONG:
            return ast.Call(ast.Attribute(value, name, ast.Load()), [], [ast.keyword("dim", axis), *keywords])
    return node


ALONG = ("softmax", "log_softmax", "sum", "mean", "amax", "amin", "argmax", "argmin", "var", "std", "cumsum", "flatten")


def _put_in(pattern: Any, bound: dict[str, ast.AST]) -> Any:
    if isinstance(pattern, ast.Name) and pattern.id in bound:
        return bound[pattern.id]
    if isinstance(pattern, list):
        return [_put_in(item, bound) for item in pattern]
    if not isinstance(pattern, ast.AST):
        return pattern
    return type(pattern)(**{f: _put_in(getattr(pattern, f, None), bound) for f in pattern._fields})
