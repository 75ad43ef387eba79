"""Mistakes that nobody has written down: the solution with one step changed, and that step in words.

A course names the mistakes that it foresees. Others are as often one step away from a right answer: an axis for an
axis, an argument for an argument, something left out. They are compared where no name that is known explains what was
seen, and told if they do exactly the same everywhere. The words name what the learner has, too: arguments, and what is
done along which axis; never a line of the solution.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TypeGuard

from lessonkit.exercises.exercise import Code, Exercise, body_of, compiled, compiled_like, edited
from lessonkit.exercises.steps import AXES, OPERATORS, TWINS, Step, places

ALONG = {
    "softmax": "a softmax", "log_softmax": "a softmax", "sum": "a sum", "mean": "a mean", "cumsum": "a running sum",
    "amax": "a maximum", "max": "a maximum", "amin": "a minimum", "min": "a minimum", "argmax": "the place of the best",
    "argmin": "the place of the least", "topk": "the best few", "sort": "an order", "norm": "a length",
    "cat": "what is joined", "stack": "what is stacked", "any": "“any”", "all": "“all”", "std": "a deviation",
    "var": "a variance", "logsumexp": "a sum of exponentials", "repeat_interleave": "what is repeated",
}  # fmt: skip
DONE: dict[type, str] = {
    ast.Add: "added", ast.Sub: "subtracted", ast.Mult: "multiplied", ast.Div: "divided",
    ast.MatMult: "multiplied as matrices", ast.FloorDiv: "divided and rounded down", ast.Pow: "raised to a power",
}  # fmt: skip
COMPARED: dict[type, str] = {
    ast.Lt: "<", ast.LtE: "≤", ast.Gt: ">", ast.GtE: "≥", ast.Eq: "=", ast.NotEq: "≠",
}  # fmt: skip

Said = tuple[str, str]  # a mistake's name, and what a learner reads of it


@lru_cache(maxsize=256)
def near(exercise: Exercise) -> tuple[Code, ...]:
    """The mistakes one step away from the solution; none where an answer is trained, or tells too little."""
    right = getattr(exercise.solution, "forward", exercise.solution)
    if exercise.metric or exercise.truths or exercise.writes_init or right is None:
        return ()
    found: dict[str, Code] = {}
    known = {code.name: code.hint for code in exercise.misconceptions}
    for body, (name, words) in _changed(right, tuple(exercise.arguments)):
        if body not in found:
            made = compiled(inspect.signature(right), body, right.__globals__, f"{exercise.name}: near {len(found)}")
            found[body] = Code(name, exercise.as_answer(made), known.get(name, words), body)
    return tuple(found.values())


@lru_cache(maxsize=256)
def parts(exercise: Exercise) -> tuple[Code, ...]:
    """The slips that are made in several places, each in one of them alone."""
    found = []
    for code in exercise.misconceptions + exercise.variants:
        if exercise.truths or code.base is None or not code.change or len(code.change) < 2:
            continue
        for number, piece in enumerate(code.change):
            body = edited(body_of(code.base), {piece: code.change[piece]}, f"{exercise.name}: {code.name}")
            answer = exercise.as_answer(compiled_like(code.base, body, f"{exercise.name}: {code.name}, at {number}"))
            words = f"Here it is in one place alone. {code.hint}"
            found.append(Code(f"{code.name}, in one place", answer, words, body))
    return tuple(found)


def _changed(right: Callable, arguments: tuple[str, ...]) -> Iterator[tuple[str, Said]]:
    """Each change of one step: the body with it, and what it is."""
    tree = ast.parse(f"def answer():\n{textwrap.indent(body_of(right), '    ')}\n").body[0]
    assert isinstance(tree, ast.FunctionDef)
    for step, said in _steps(tree, arguments):
        with step.made():
            yield "\n".join(map(ast.unparse, tree.body)), said
    for twin, said in _every_axis(tree):
        yield "\n".join(map(ast.unparse, twin.body)), said


def _steps(function: ast.FunctionDef, arguments: tuple[str, ...]) -> Iterator[tuple[Step, Said]]:
    own = sorted({n.attr for n in ast.walk(function) if isinstance(n, ast.Attribute) and _is(n.value, "self")})
    for parent, field, index, value in places(function):
        at = value if hasattr(value, "lineno") else parent
        if isinstance(value, list):
            for i, statement in enumerate(value):
                if said := _without(statement, arguments):
                    yield Step(parent, field, None, value[:i] + value[i + 1 :] or [ast.Pass()], statement), said
            continue
        for new, said in _instead(value, arguments, own):
            yield Step(parent, field, index, new, at), said
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.MatMult) and _is(value, *arguments):
            yield Step(parent, field, index, ast.Attribute(value, "mT", ast.Load()), at), _transposed(value.id)


def _instead(node: ast.AST, arguments: tuple[str, ...], own: list[str]) -> Iterator[tuple[ast.AST, Said]]:
    """What may stand in a node's place, and what that is called."""
    match node:
        case ast.Name(name, ast.Load()) if name in arguments:
            yield from ((ast.Name(other, ast.Load()), _for(other, name)) for other in arguments if other != name)
        case ast.Attribute(ast.Name("self") as module, name, ast.Load()):
            yield from ((ast.Attribute(module, new, ast.Load()), _for(f"self.{new}", f"self.{name}"))
                        for new in own if new != name)  # fmt: skip
        case ast.Attribute(ast.Name("torch"), "inf"):
            yield from ((ast.Constant(number), _for(words, "∞")) for number, words in ((0.0, "0"), (1e9, "10⁹")))
        case ast.Attribute(value, "mT", ast.Load()):
            yield value, ("not transposed", "Two axes are in each other's place: something is not transposed, or once "
                          "too often. Write the shape beside each step.")  # fmt: skip
        case ast.Attribute(value, name, ast.Load()) if name in TWINS:
            yield ast.Attribute(value, TWINS[name], ast.Load()), _for(TWINS[name], name)
        case ast.BinOp(left, op, right):
            for kept, gone in ((left, right), (right, left)):
                yield kept, _missing(op, gone, arguments)
            for other in OPERATORS.get(type(op), ()):
                if {type(op), other} <= DONE.keys():
                    yield ast.BinOp(left, other(), right), (  # type: ignore[arg-type]
                        f"{DONE[other]}, not {DONE[type(op)]}",
                        f"Two things are {DONE[other]} that should be {DONE[type(op)]}{_about(node, arguments)}.",
                    )
        case ast.Compare(left, [op], [right]):
            for other in OPERATORS.get(type(op), ()):
                if {type(op), other} <= COMPARED.keys():
                    yield ast.Compare(left, [other()], [right]), (  # type: ignore[list-item]
                        f"{COMPARED[other]} for {COMPARED[type(op)]}",
                        f"A comparison is made with {COMPARED[other]}, and should be with {COMPARED[type(op)]}"
                        f"{_about(node, arguments)}. Try it on the smallest case, and at the border itself.",
                    )
        case ast.UnaryOp(ast.Invert(), inside):
            yield inside, _upside_down(node, arguments)
        case ast.Tuple([one, other], ast.Load()) | ast.List([one, other], ast.Load()):
            yield type(node)([other, one], ast.Load()), ("two in the wrong order", "Two things that stand side by side "
                                                         f"have changed places{_about(node, arguments)}.")  # fmt: skip
        case ast.Call(ast.Attribute(_, "masked_fill") as fill, [mask, filling], _):
            turned = mask.operand if isinstance(mask, ast.UnaryOp) else ast.UnaryOp(ast.Invert(), mask)
            yield from ((ast.Call(fill, [turned, new], []), _upside_down(node, arguments))
                        for new in (filling, ast.UnaryOp(ast.USub(), ast.Constant(1e9))))  # fmt: skip
        case ast.Call(ast.Attribute(value, name), _, _) if name in ALONG or name in ("exp", "sigmoid", "tanh", "relu"):
            if not _is(value, "torch", "nn", "F", "math", "self"):
                yield value, (f"no {name}", f"Something goes on as it is that should go through `{name}` first"
                              f"{_about(node, arguments)}.")  # fmt: skip


def _every_axis(function: ast.FunctionDef) -> Iterator[tuple[ast.FunctionDef, Said]]:
    """Another axis for one: wherever something is done along it, and at all such places at once."""
    nodes = list(ast.walk(function))
    axes = {i: axis for i, node in enumerate(nodes) if (axis := _axis_of(node))}
    together = [[i for i in axes if axes[i] == axis] for axis in dict.fromkeys(axes.values())]
    for chosen in [[i] for i in axes] + [group for group in together if len(group) > 1]:
        named = " and ".join(dict.fromkeys(ALONG[_called(nodes[i])] for i in chosen))
        for new in AXES:
            twin = copy.deepcopy(function)
            in_twin = list(ast.walk(twin))
            for i in chosen:
                _along(in_twin[i]).value = ast.Constant(new)
            yield twin, (f"{named} along another axis", f"The axis is another than the one that is meant for {named}. "
                         "Ask what stands along each axis, and which of these belong together.")  # fmt: skip


def _axis_of(node: ast.AST) -> str | None:
    """The axis along which a call does something, as it is written."""
    there = _called(node) in ALONG and isinstance(node, ast.Call) and any(k.arg == "dim" for k in node.keywords)
    return ast.unparse(_along(node).value) if there else None


def _called(node: ast.AST) -> str:
    return getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""


def _along(call: ast.AST) -> ast.keyword:
    assert isinstance(call, ast.Call)
    return next(keyword for keyword in call.keywords if keyword.arg == "dim")


def _without(statement: ast.stmt, arguments: tuple[str, ...]) -> Said | None:
    """A statement that changes what is there already, left out."""
    match statement:
        case ast.Assign([ast.Name(name)], value) if any(_is(n, name) for n in ast.walk(value)):
            pass
        case ast.AugAssign():
            pass
        case _:
            return None
    about = _about(statement, arguments)
    return ("a step left out", f"A step of the way is left out{about or ', one that changes what is there already'}.")


def _missing(op: ast.operator, gone: ast.expr, arguments: tuple[str, ...]) -> Said:
    names = _arguments_in(gone, arguments)
    part = {ast.Add: "a term", ast.Sub: "a term", ast.Pow: "an exponent", ast.BitAnd: "a condition",
            ast.BitOr: "a condition"}.get(type(op), "a factor")  # fmt: skip
    said = names[0] if len(names) == 1 else None
    if isinstance(op, ast.Div):
        part = "a division"
    return (f"{said} left out" if said and isinstance(gone, ast.Name) else f"{part} left out",
            f"In one place {part} is missing{_about(gone, arguments)}.")  # fmt: skip


def _for(new: str, old: str) -> Said:
    return f"`{new}` for `{old}`", f"`{new}` stands in one place where `{old}` belongs."


def _transposed(name: str) -> Said:
    return f"`{name}` transposed", f"`{name}` is multiplied the other way round: its axes have changed places."


def _upside_down(node: ast.AST, arguments: tuple[str, ...]) -> Said:
    about = _about(node, arguments)
    return "a mask upside down", f"True stands where False belongs, and the other way round{about}."


def _about(node: ast.AST, arguments: tuple[str, ...]) -> str:
    names = _arguments_in(node, arguments)
    return f", where {' and '.join(names)} {'take' if len(names) > 1 else 'takes'} part" if 0 < len(names) < 3 else ""


def _arguments_in(node: ast.AST, arguments: tuple[str, ...]) -> list[str]:
    return sorted({f"`{n.id}`" for n in ast.walk(node) if _is(n, *arguments)})


def _is(node: ast.AST, *names: str) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and node.id in names
