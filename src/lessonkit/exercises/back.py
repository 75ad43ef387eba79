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
MOST_WAYS = 16  # in which a rule is tried at one expression


# ------------------------------------------------------------------------------------------------- what pieces are like


@dataclass(frozen=True)
class Kind:
    """What an expression was when it was first evaluated: its type, a tensor's shape, a number's values.

    By `print`, three sums over its numbers, two tensors of a shape can be told apart: weighted by their order, plain,
    and the root of the squares'. Only arrays of numbers, and numbers that are not whole, have one. A list of whole
    numbers has its length as shape.
    """

    type: str  # "float", "truth" and "int" are tensors; then "number", "real", "bool", "list", "function", "other"
    shape: tuple[int, ...] = ()
    value: Any = None
    print: tuple[float, ...] | None = None


@dataclass
class Seen:
    """The kinds of an answer's expressions, by `id` of the node, and of its names."""

    kinds: dict[int, Kind] = field(default_factory=dict)
    names: dict[str, Kind] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    complete: bool = True  # False where the answer raised: what comes later is not known

    def named(self, *types: str) -> list[str]:
        """The names of these types."""
        return [name for name, kind in self.names.items() if kind.type in types]


def kind_of_value(value: Any) -> Kind:
    """The kind of a value.

    >>> kind_of_value(torch.ones(2, 3, dtype=torch.bool)).shape
    (2, 3)
    """
    is_float = isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())
    prints, numbers = None, None
    if isinstance(value, Tensor) and (is_float or value.numel() > 1) and 0 < value.numel() <= 100_000:
        numbers = (value.detach().abs() if value.is_complex() else value.detach()).double().flatten()
    elif type(value) is float:
        numbers = torch.tensor([value], dtype=torch.double)
    if numbers is not None:
        numbers = numbers.nan_to_num(7e8, 8e8, -9e8).clamp(-1e9, 1e9)  # one number each for NaN and infinity
        order = torch.cos(1.7 * torch.arange(len(numbers), dtype=torch.double))
        prints = (float((order * numbers).sum()), float(numbers.sum()), float(numbers.norm()))
    if isinstance(value, Tensor):
        type_ = "truth" if value.dtype == torch.bool else "float" if is_float else "int"
        return Kind(type_, tuple(value.shape), None, prints)
    if isinstance(value, bool):
        return Kind("bool", value=value)
    if isinstance(value, int | float):
        return Kind("number" if isinstance(value, int) else "real", (), value, prints)
    if isinstance(value, list | tuple):
        return Kind("list", (len(value),) if all(type(item) is int for item in value) else ())
    return Kind("function" if callable(value) else "other")


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
    seen.arguments = tuple(arguments)
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
        case ast.BinOp(ast.Call() as call, ast.Mult() | ast.Div() as op, b):
            if (inside := _inside(call)) is not None:
                yield _put_inside(call, ast.BinOp(inside, op, b))  # before, not after
        case ast.Call(function, arguments, keywords):
            inside = _inside(node)
            yield from _mean_of_those(node, inside, seen)
            match inside:
                case ast.BinOp(a, ast.Mult() | ast.Div() as op, b):
                    yield ast.BinOp(_put_inside(node, a), op, b)  # after, not before
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            given = {keyword.arg for keyword in keywords}
            if name == "exp" and inside is not None:
                for axis in (-1, -2):
                    largest = ast.Call(
                        ast.Attribute(inside, "amax", ast.Load()), [_number(axis), ast.Constant(True)], []
                    )
                    yield _put_inside(node, ast.BinOp(inside, ast.Sub(), largest))
            if name in ("var", "std") and not {"unbiased", "correction"} & given:
                yield ast.Call(function, arguments, [*keywords, ast.keyword("correction", ast.Constant(0))])
            if name in REDUCTIONS:
                along = [[*keywords, ast.keyword("dim", _number(axis))] for axis in (-1, 0, 1) if "dim" not in given]
                kept = [ast.keyword("keepdim", ast.Constant(True))] if "keepdim" not in given else []
                yield from (ast.Call(function, arguments, [*more, *kept]) for more in (keywords, *along) if kept)
                yield from (ast.Call(function, arguments, more) for more in along)
            for extra in seen.named("number", "real")[:MOST]:
                yield ast.Call(function, [*arguments, _name(extra)], keywords)


def _mean_of_those(call: ast.Call, inside: ast.expr | None, seen: Seen) -> Iterator[ast.expr]:
    """`(x * mask).mean()` divides by what is masked, too: `(x * mask).sum() / mask.sum()`."""
    match call.func, inside:
        case ast.Attribute(value, "mean"), ast.BinOp(a, ast.Mult(), b):
            if _is_module(value):
                return
            for mask in (a, b):
                kind = seen.kinds.get(id(mask))
                if kind and kind.type == "truth":
                    total, count = (ast.Call(ast.Attribute(of, "sum", ast.Load()), call.args, call.keywords)
                                    for of in (inside, mask))  # fmt: skip
                    yield ast.BinOp(total, ast.Div(), count)


def _inside(call: ast.Call) -> ast.expr | None:
    """What a call works on: `x` of `torch.f(x)` and of `x.f()`."""
    if isinstance(call.func, ast.Attribute) and not _is_module(call.func.value):
        return call.func.value
    return call.args[0] if call.args and not isinstance(call.args[0], ast.Starred) else None


def _put_inside(call: ast.Call, new: ast.expr) -> ast.Call:
    if isinstance(call.func, ast.Attribute) and not _is_module(call.func.value):
        return ast.Call(ast.Attribute(new, call.func.attr, ast.Load()), call.args, call.keywords)
    return ast.Call(call.func, [new, *call.args[1:]], call.keywords)


def _is_module(node: ast.expr) -> bool:
    named = node.value if isinstance(node, ast.Attribute) else node
    return isinstance(named, ast.Name) and named.id in ("torch", "math", "nn", "F", "np", "self")


def statements_back(function: ast.FunctionDef, seen: Seen) -> Iterator[Step]:
    """What changes more than one statement, and is one mistake."""
    yield from _every_return_inverted(function, seen)
    yield from _a_copy_written_into(function, seen)
    for parent, field_, _, value in places(function):
        if isinstance(value, list):
            for block, at in _in_the_next(value):
                yield Step(parent, field_, None, block, at)


def _in_the_next(block: list[ast.stmt]) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
    """`x = f(x)` gone, and `f(x)` in one place of the next statement: x itself goes on as it was."""
    for i, (statement, following) in enumerate(itertools.pairwise(block)):
        match statement:
            case ast.Assign([ast.Name(name)], value) if name in _free(value):
                uses = [n for n in ast.walk(following) if isinstance(n, ast.Name) and n.id == name]
                loads = [number for number, use in enumerate(uses) if isinstance(use.ctx, ast.Load)]
                for number in loads:
                    yield [*block[:i], _with_another(following, name, number, value), *block[i + 2 :]], statement


def _with_another(statement: ast.stmt, name: str, number: int, new: ast.expr) -> ast.stmt:
    """The statement with `new` for the use of the name that has this number, as `ast.walk` counts them."""
    twin = copy.deepcopy(statement)
    target = [n for n in ast.walk(twin) if isinstance(n, ast.Name) and n.id == name][number]
    for parent in ast.walk(twin):
        for field_, value in ast.iter_fields(parent):
            if value is target:
                setattr(parent, field_, new)
            elif isinstance(value, list):
                setattr(parent, field_, [new if item is target else item for item in value])
    return twin


def _every_return_inverted(function: ast.FunctionDef, seen: Seen) -> Iterator[Step]:
    """All masks that come back, the other way round: a mistake of one kind at several lines."""
    returns = [node for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]
    kinds = [seen.kinds[id(one.value)].type for one in returns if id(one.value) in seen.kinds]
    if len(returns) > 1 and kinds and set(kinds) == {"truth"}:
        twin = copy.deepcopy(function)
        for node in ast.walk(twin):
            if isinstance(node, ast.Return) and node.value is not None:
                node.value = ast.copy_location(ast.UnaryOp(ast.Invert(), node.value), node)
        yield Step(function, "body", None, twin.body, min(returns, key=lambda one: one.lineno))


def _a_copy_written_into(function: ast.FunctionDef, seen: Seen) -> Iterator[Step]:
    """A copy made of an argument, on top: what is at fault is the first statement that writes into it."""
    statements = [each for each in ast.walk(function) if isinstance(each, ast.stmt)]
    for name in seen.arguments:
        writing = [each for each in statements if name in _written(each)]
        if writing and name in seen.named("float", "truth", "int"):
            copied = ast.Assign([ast.Name(name, ast.Store())], _method(_name(name), "clone"))
            yield Step(function, "body", None, [copied, *function.body], min(writing, key=lambda each: each.lineno))


def _written(statement: ast.stmt) -> list[str]:
    """The names of the tensors into which a statement writes: `x[i] = …`, `x += …`, `x[i].add_(…)`."""
    match statement:
        case ast.Assign(targets):
            into: list[ast.expr] = [target for target in targets if isinstance(target, ast.Subscript)]
        case ast.AugAssign(target):
            into = [target]
        case ast.Expr(ast.Call(ast.Attribute(value, method))) if method.endswith("_"):
            into = [value]
        case _:
            into = []
    for i, each in enumerate(into):
        while isinstance(each, ast.Subscript | ast.Attribute):
            into[i] = each = each.value
    return [each.id for each in into if isinstance(each, ast.Name)]


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
        inside = all(isinstance(a, ast.expr | ast.stmt | ast.keyword) and isinstance(b, ast.AST) for a, b in differing)
        if inside and (inner := [rule for a, b in differing for rule in _differences(a, b)]):
            yield from inner
            if isinstance(wrong, ast.Call | ast.BinOp | ast.Subscript):  # around it, too: two may have changed places
                yield Rule(wrong, right)
            return
    if isinstance(wrong, ast.expr) and isinstance(right, ast.expr):
        yield Rule(wrong, right)


def _dumped(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_dumped, value))
    return ast.dump(value) if isinstance(value, ast.AST) else repr(value)


def steps_of_rules(function: ast.FunctionDef, exercise: Exercise, seen: Seen, loosely: bool = False) -> Iterator[Step]:
    """The exercise's slips put right, wherever the learner's code has the like of them.

    `loosely`: also where a slip's piece is a name alone, at every name that the learner has.
    """
    known = set(seen.names) | {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    statements = [rule.right for rule in rules(exercise) if rule.wrong is None]
    missing = [one for one in statements if {n.id for n in ast.walk(one) if isinstance(n, ast.Name)} <= known | _GLOBAL]
    made = _made_by_the_solution(exercise)
    for parent, field_, index, value in places(function):
        if isinstance(value, list):
            for place, statement in itertools.product(range(1, len(value) + 1), missing):
                block = [*value[:place], _put_in(statement, {}), *value[place:]]
                yield Step(parent, field_, None, block, value[place - 1])
        if not isinstance(value, ast.expr) or not isinstance(getattr(value, "ctx", ast.Load()), ast.Load):
            continue
        for rule in rules(exercise):
            for new in _applied(rule, value, known, seen, made, loosely):
                yield Step(parent, field_, index, new, value)


def _applied(
    rule: Rule, node: ast.expr, known: set[str], seen: Seen, made: dict[str, ast.expr], loosely: bool
) -> Iterator[ast.expr]:
    """What the rule makes of the expression, in each way in which it fits; `made`: how the solution makes its names."""
    if rule.wrong is None:
        return
    needed = _free(rule.right)
    if isinstance(rule.wrong, ast.Name | ast.Constant):
        fits = ast.dump(rule.wrong) == ast.dump(node)
        renamed = (
            loosely and isinstance(rule.wrong, ast.Name) and isinstance(node, ast.Name) and rule.wrong.id in needed
        )
        if not fits and not renamed:
            return
        ways: Iterator[dict[str, ast.AST]] = iter([{rule.wrong.id: node} if isinstance(rule.wrong, ast.Name) else {}])
    else:
        ways = itertools.islice(_ways(rule.wrong, node, {}), MOST_WAYS)
    for bound in ways:
        wanted = needed - set(bound) - known
        right = rule.right
        for _ in range(MOST):  # what the learner has not called anything is put in as the solution makes it
            right = _put_in(right, {name: made[name] for name in wanted & made.keys()})
            wanted = _free(right) - set(bound) - known
        if not wanted:
            yield _put_in(right, bound)
        wanted = needed - set(bound) - known
        if len(wanted) == 1:
            (name,) = wanted
            tensors = seen.named("float", "int", "truth")
            own = [one for one in tensors if one not in seen.arguments]
            for number in _numbers(seen) + [_name(n) for n in (own + tensors)[: 2 * MOST]]:
                yield _put_in(rule.right, {**bound, name: number})


def _free(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - _GLOBAL


@lru_cache(maxsize=256)
def _made_by_the_solution(exercise: Exercise) -> dict[str, ast.expr]:
    """Of the names that the exercise's solution sets once: to what."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(_parsed(body_of(exercise.solution)) or ast.Module([], [])) if exercise.solution else ():
        match node:
            case ast.Assign([ast.Name(name)], value):
                found.setdefault(name, []).append(value)
            case ast.Assign([ast.Tuple(names)], ast.Tuple(values)) if len(names) == len(values):
                for one, value in zip(names, values, strict=True):
                    found.setdefault(getattr(one, "id", "_"), []).append(value)
            case ast.Assign([ast.Tuple(names)], value):
                for place, one in enumerate(names):
                    item = ast.Subscript(value, ast.Constant(place), ast.Load())
                    found.setdefault(getattr(one, "id", "_"), []).append(item)
            case ast.AugAssign(ast.Name(name)) | ast.For(ast.Name(name)) | ast.comprehension(ast.Name(name)):
                found.setdefault(name, []).extend([ast.Constant(0), ast.Constant(0)])  # more than once
    return {name: values[0] for name, values in found.items() if len(values) == 1 and name not in _free(values[0])}


_GLOBAL = {"torch", "math", "nn", "F", "np", "self", *dir(builtins)}


def _ways(pattern: Any, node: Any, bound: dict[str, ast.AST]) -> Iterator[dict[str, ast.AST]]:
    """What the pattern's names stand for in the node: one dict for each way in which it fits."""
    if isinstance(pattern, ast.Name) and pattern.id not in _GLOBAL:
        if isinstance(node, ast.expr) and (pattern.id not in bound or ast.dump(bound[pattern.id]) == ast.dump(node)):
            yield {**bound, pattern.id: bound.get(pattern.id, node)}
    elif isinstance(pattern, list):
        if isinstance(node, list) and len(pattern) == len(node):
            yield from _ways_of_all(list(zip(pattern, node, strict=True)), bound)
    elif not isinstance(pattern, ast.AST):
        if pattern == node:
            yield bound
    else:
        pattern, node = _plain(pattern), _plain(node)
        if type(pattern) is not type(node):
            return
        if isinstance(pattern, ast.BinOp) and isinstance(pattern.op, ast.Add | ast.Mult):  # in either order
            if type(pattern.op) is type(node.op):
                for left, right in ((node.left, node.right), (node.right, node.left)):
                    yield from _ways_of_all([(pattern.left, left), (pattern.right, right)], bound)
            return
        yield from _ways_of_all([(getattr(pattern, f, None), getattr(node, f, None)) for f in pattern._fields], bound)


def _ways_of_all(pairs: list[tuple[Any, Any]], bound: dict[str, ast.AST]) -> Iterator[dict[str, ast.AST]]:
    if not pairs:
        yield bound
        return
    for way in _ways(*pairs[0], bound):
        yield from _ways_of_all(pairs[1:], way)


def _plain(node: Any) -> Any:
    """One form for what is written in several: `torch.f(x)` as `x.f()`, `x.T` as `x.mT`, `x.f(0)` as `x.f(dim=0)`."""
    match node:
        case ast.Attribute(value, "T", context):
            return ast.Attribute(value, "mT", context)
        case ast.Call(ast.Name("len"), [value], []):
            return ast.Subscript(ast.Attribute(value, "shape", ast.Load()), ast.Constant(0), ast.Load())
        case ast.Call(ast.Attribute(value, "size"), [axis], []):
            return ast.Subscript(ast.Attribute(value, "shape", ast.Load()), axis, ast.Load())
        case ast.Subscript(value, part, ast.Load()) if (place := _new_axis(part)) is not None:
            return ast.Call(ast.Attribute(value, "unsqueeze", ast.Load()), [_number(place)], [])
        case ast.Call(ast.Attribute(value, "transpose" | "swapaxes"), [_, _], []):
            return ast.Attribute(value, "mT", ast.Load())
        case ast.Call(ast.Attribute(ast.Name("torch" | "F"), "matmul" | "bmm"), [a, b], []):
            return ast.BinOp(a, ast.MatMult(), b)
        case ast.Call(ast.Attribute(ast.Name("torch" | "F"), name), [value, *rest], keywords):
            return _plain(ast.Call(ast.Attribute(value, name, ast.Load()), rest, keywords))
        case ast.Call(ast.Attribute(value, name), [axis], keywords) if name in ALONG:
            return ast.Call(ast.Attribute(value, name, ast.Load()), [], [ast.keyword("dim", axis), *keywords])
    return node


def _new_axis(part: ast.expr) -> int | None:
    """Which axis `x[None]`, `x[:, None]`, `x[..., None]` puts in; None where it does something else."""
    items = part.elts if isinstance(part, ast.Tuple) else [part]
    *before, last = items
    if not items or not isinstance(last, ast.Constant) or last.value is not None:
        return None
    if len(before) == 1 and isinstance(before[0], ast.Constant) and before[0].value is ...:
        return -1
    whole = all(isinstance(one, ast.Slice) and not (one.lower or one.upper or one.step) for one in before)
    return len(before) if whole else None


ALONG = ("softmax", "log_softmax", "sum", "mean", "amax", "amin", "argmax", "argmin", "var", "std", "cumsum", "flatten")


def _put_in(pattern: Any, bound: dict[str, ast.AST]) -> Any:
    if isinstance(pattern, ast.Name) and pattern.id in bound:
        return bound[pattern.id]
    if isinstance(pattern, list):
        return [_put_in(item, bound) for item in pattern]
    if not isinstance(pattern, ast.AST):
        return pattern
    return type(pattern)(**{f: _put_in(getattr(pattern, f, None), bound) for f in pattern._fields})
