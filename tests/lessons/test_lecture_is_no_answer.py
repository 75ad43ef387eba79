"""No function of a lecture, pasted under an exercise's name, earns more there than what one gets for nothing.

A lecture shows loops, single queries and calls of the package; the exercise asks for the batched form, without the
package. So every function and class that a lecture's cells define goes through the checks of its lesson's assignment,
as a learner's answer; and so does every method of a class, as a function of its arguments and of what it reads of
`self`. Of the lecture, imports, definitions and constants are run, and nothing else: this takes seconds.
"""

import __future__

import ast
import copy
import inspect
import re
from functools import cache

import jupytext
import pytest

from attncourse_lessons import course
from lessonkit.exercises.judge import judge
from lessonkit.exercises.observe import observe

SEED = 0

# What a lecture's definition may earn all the same: {(its name, exercise): why}. One that is no longer needed fails a
# test: delete it, and the rule holds there, too.
HALF = "the wrong way that the lecture teaches against: the aspects that it is about are not earned"
ALLOWED = {
    ("masked_mean", "masked_mean"): HALF,
}

LESSONS = [lesson for lesson in course.lessons if lesson.assignment in course.assignments()]


def definitions(lecture: str, package: str) -> dict[str, object]:
    """The functions and classes that the cells of a lecture define, by name; of two with one name both are kept.

    `lecture` is the text of its source, `package` where its relative imports lead to.
    """
    found: dict[str, object] = {}
    scope: dict[str, object] = {"__name__": f"{package}.lecture", "__package__": package}
    for cell in jupytext.reads(lecture, fmt="py:percent").cells:
        if cell.cell_type != "code":
            continue
        for statement in ast.parse(re.sub(r"^\s*[%!].*$", "", cell.source, flags=re.MULTILINE)).body:
            if not _is_cheap(statement):
                continue
            _define(statement, scope)
            for name in _defines(statement):
                made = scope[name]
                while name in found:
                    name += ", again"
                found[name] = made
            if isinstance(statement, ast.ClassDef):
                for method in _methods(statement):
                    _define(method, scope)
                    found[method.name] = scope[method.name]
    return found


class _WithoutSelf(ast.NodeTransformer):
    """`self.name` becomes `name`; `read` are these names, in the order in which they stand."""

    def __init__(self, own: str):
        self.own, self.read = own, []

    def visit_Attribute(self, node):
        if not (isinstance(node.value, ast.Name) and node.value.id == self.own):
            return self.generic_visit(node)
        if node.attr not in self.read:
            self.read.append(node.attr)
        return ast.copy_location(ast.Name(node.attr, node.ctx), node)


def _methods(of: ast.ClassDef) -> list[ast.stmt]:
    """The methods of a class but its `__init__`, as functions: what they read of `self` are arguments after their own.

    A method that a learner could paste: the matrices that a class keeps are what an exercise hands over.
    """
    found: list[ast.stmt] = []
    for statement in copy.deepcopy(of).body:
        if isinstance(statement, ast.FunctionDef) and statement.name != "__init__" and statement.args.args:
            without = _WithoutSelf(statement.args.args.pop(0).arg)
            without.visit(statement)
            statement.args.args += [ast.arg(name) for name in without.read if name not in _names(statement)]
            statement.name, statement.decorator_list = f"{of.name}_{statement.name}", []
            found.append(ast.fix_missing_locations(statement))
    return found


def _names(function: ast.FunctionDef) -> set[str]:
    """The names of a function's arguments."""
    return {argument.arg for argument in function.args.args}


def _define(statement: ast.stmt, scope: dict[str, object]) -> None:
    """Run the statement. A name that it needs at once, as a default, and that was not computed here is None."""
    code = compile(ast.Module([statement], type_ignores=[]), "<lecture>", "exec", __future__.annotations.compiler_flag)
    while True:
        try:
            exec(code, scope)
            return
        except NameError as missing:
            scope[missing.name] = None


def _is_cheap(statement: ast.stmt) -> bool:
    """Whether it imports, defines, or gives a name to a constant: what a definition may need, and no more."""
    if isinstance(statement, ast.Try):  # the guard around a page's first imports
        return all(isinstance(each, ast.Import | ast.ImportFrom) for each in statement.body)
    if isinstance(statement, ast.Assign):
        if not all(isinstance(target, ast.Name) for target in statement.targets):
            return False
        return isinstance(statement.value, ast.Lambda) or _is_constant(statement.value)
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)


def _is_constant(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True


def _defines(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Lambda):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return []


def _takes(answer: object, exercise) -> bool:
    """Whether the exercise can call it: a class where a module is asked for, else a function of as many arguments."""
    if isinstance(exercise.reference, type) or isinstance(answer, type):
        return isinstance(exercise.reference, type) and isinstance(answer, type)
    wanted = inspect.signature(exercise.solution or exercise.reference).parameters
    try:
        inspect.signature(answer).bind(*wanted)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def points(exercise, answer: object) -> float:
    return judge(exercise, observe(exercise, answer, SEED), SEED).points


@cache
def for_nothing(exercise) -> float:
    """The most that an answer earns that does nothing: it returns nothing, or what it was given first."""
    if isinstance(exercise.reference, type):
        return 0.0

    def returns_nothing(*arguments):
        return None

    def returns_what_it_was_given(*arguments):
        return arguments[0]

    return max(points(exercise, answer) for answer in (returns_nothing, returns_what_it_was_given))


@cache
def earned(lesson) -> dict[tuple[str, str], float]:
    """What each definition of the lesson's lecture earns in each exercise that takes it, above what is for nothing."""
    text = (lesson.folder / "lecture.py").read_text(encoding="utf-8")
    package = f"{course.package}.{lesson.module}"
    found = {}
    for name, answer in definitions(text, package).items():
        for exercise in course.exercises_of(lesson.assignment):
            if _takes(answer, exercise):
                got = points(exercise, answer)
                if got > for_nothing(exercise):
                    found[name, exercise.name] = got
    return found


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.assignment)
def test_no_definition_of_a_lecture_earns_points_in_its_assignment(lesson):
    beyond = {f"{name} → {exercise}": got for (name, exercise), got in earned(lesson).items()
              if (name, exercise) not in ALLOWED}  # fmt: skip
    assert not beyond, "show a loop, one query, or a call of the package; the exercise asks for the rest"


def test_every_exception_is_needed():
    found = {key for lesson in LESSONS for key in earned(lesson)}
    assert not set(ALLOWED) - found, "delete these: the lecture prints them no more"


LEAK = '''# %%
from attncourse import viz

PI = 3
slow = viz.nothing_of_the_kind()

# %%
def table(asking, answering):
    return asking @ answering.mT

mean = lambda weights, states: weights @ states
'''


def test_a_lecture_that_prints_an_answer_is_found():
    """The test that tests the others: a function and a lambda that are answers, after a line that cannot be run."""
    scores, _, output, step, _, _ = course.exercises_of("a03")
    found = definitions(LEAK, "attncourse_lessons.l03_cross_attention")
    assert [*found] == ["table", "mean"]
    assert _takes(found["table"], scores) and points(scores, found["table"]) == scores.out_of > for_nothing(scores)
    assert _takes(found["mean"], output) and points(output, found["mean"]) == output.out_of
    assert not _takes(found["table"], step)


METHOD = '''# %%
class Layer:
    def __init__(self, W_Q, W_K, W_V):
        self.W_Q, self.W_K, self.W_V = W_Q, W_K, W_V

    def forward(self, x):
        Q, K = x @ self.W_Q, x @ self.W_K
        weights = (Q @ K.mT / self.W_K.shape[1] ** 0.5).softmax(dim=-1)
        return weights @ (x @ self.W_V), weights

    def __len__(self):
        return 3
'''


def test_an_answer_in_the_body_of_a_method_is_found():
    attention = course.exercise("self_attention")
    found = definitions(METHOD, "attncourse_lessons.l04_self_attention")
    assert [*found] == ["Layer", "Layer_forward", "Layer___len__"]
    assert [*inspect.signature(found["Layer_forward"]).parameters] == ["x", "W_Q", "W_K", "W_V"]
    assert _takes(found["Layer_forward"], attention)
    assert points(attention, found["Layer_forward"]) == attention.out_of
