"""hint("name", "where"): one step that makes a wrong answer right tells the line, and nothing else is touched."""

import ast
import dataclasses
import os
import random
import re
import time

import numpy as np
import pytest
import torch

from lessonkit.course import Course
from lessonkit.exercises import back, repair, trace
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import judge
from lessonkit.exercises.observe import observe
from lessonkit.exercises.repair import Message, Place, followed, where
from lessonkit.exercises.steps import Step, _other_equations, steps

SEEDS = (0, 1, 2)
WAYS = [pytest.param(False, id="here"), pytest.param(True, id="apart", marks=pytest.mark.skipif(
    not hasattr(os, "fork"), reason="this system copies no processes"))]  # fmt: skip


@pytest.fixture(autouse=True)
def not_for_long(monkeypatch):
    monkeypatch.setattr(repair, "AFTER", 0.1)


@pytest.fixture
def spread():
    """An exercise of one line: the mean distance of each row from its own mean."""

    def reference(x):
        return (x - x.mean(dim=-1, keepdim=True)).abs().mean(dim=-1)

    exercise = Exercise("spread", reference, ("spread",), 1, 5, ("Only one.",), solution=reference)

    @exercise.aspect("values", points=2)
    def _(answer, draw):
        """the mean distance from the mean"""
        return answer(draw.normal(*draw.sizes(2, 3, 7)))

    @exercise.aspect("one row", points=1)
    def _(answer, draw):
        """the same for a row alone"""
        return answer(draw.normal(6))

    return exercise


def line_of(found, function):
    """The line that was found, counted from the `def`."""
    return found.place.line - function.__code__.co_firstlineno


def without_abs(x):
    middle = x.mean(dim=-1, keepdim=True)
    apart = x - middle
    return apart.mean(dim=-1)


def along_the_wrong_axis(x):
    middle = x.mean(dim=0, keepdim=True)
    return torch.abs(x - middle).mean(-1)


def from_another_row(x):
    n = x.shape[-1]
    middle = x.sum(dim=-1, keepdim=True) / (n - 1)
    total = torch.zeros(x.shape[:-1])
    for i in range(n):
        total = total + (x[..., i] - middle[..., 0]).abs()
    return total / n


def does_not_keep(x):
    middle = x.mean(dim=-1)
    return (x - middle).abs().mean(dim=-1)


def by_a_helper(x):
    return helper(x - x.mean(dim=-1, keepdim=True)).mean(dim=-1)


def helper(x):
    return x


@pytest.mark.parametrize("apart", WAYS)
@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (without_abs, 2),
        (along_the_wrong_axis, 1),
        (from_another_row, 2),
        (does_not_keep, 1),
        (by_a_helper, 1),
    ],
)
def test_the_line_at_fault_is_found(spread, answer, line, apart):
    found = where(spread, answer, SEEDS, apart=apart)
    assert line_of(found, answer) == line, found
    scope = {"torch": torch, "helper": helper, repair.back.MATH: __import__("math")}
    exec(found.made, scope)
    verdict = judge(spread, observe(spread, scope[answer.__name__], 5), 5)
    assert verdict.points == verdict.out_of


def test_the_repair_is_not_told(spread):
    said = str(where(spread, without_abs, SEEDS))
    assert "abs" not in said and "apart" in said and re.search(r"line \d+", said)


def test_nothing_is_looked_for_in_a_right_answer_or_in_code_that_cannot_be_read(spread):
    assert where(spread, spread.reference, SEEDS) is None
    scope = {}
    exec("def unread(x): return x", scope)
    assert where(spread, scope["unread"], SEEDS) is None
    assert where(spread, torch.mean, SEEDS) is None


def two_mistakes(x):
    middle = x.sum(dim=0)
    return (x - 2 * middle).sum(dim=0)


@pytest.fixture
def shares():
    """An exercise with a mistake that no single step mends."""

    def solution(x, mask):
        shares = x.masked_fill(~mask, -torch.inf).softmax(dim=-1)
        return shares

    exercise = Exercise("shares", solution, ("shares",), 1, 5, ("Only one.",), solution=solution)

    @exercise.aspect("values", points=1)
    def _(answer, draw):
        """what is allowed gets all"""
        mask = torch.ones(3, 5, dtype=torch.bool)
        mask[:, 3:] = False
        return answer(draw.normal(3, 5), mask)

    exercise.slip("masked after the softmax", ("values",),
                  {"x.masked_fill(~mask, -torch.inf).softmax(dim=-1)": "x.softmax(dim=-1) * mask"},
                  words="What is forbidden keeps its share of the sum.")  # fmt: skip
    exercise.slip("no softmax", ("values",), {".softmax(dim=-1)": ""}, words="These are no shares.")
    return exercise


def masks_what_it_has(x, mask):
    n = x.shape[-1]
    everybodys = torch.softmax(x, n // n)
    return torch.where(mask, everybodys, 0.0)


def collects_what_it_has(x, mask):
    rows = [row.softmax(dim=-1) * allowed for row, allowed in zip(x, mask, strict=True)]
    return torch.stack(rows)


def shares_less_a_tenth(x, mask):
    everybodys = x.softmax(dim=-1)
    return everybodys * mask - 0.1


def asks_a_helper(x, mask):
    def shared_out(scores):
        return scores.softmax(dim=-1)

    return shared_out(x) * mask + 0 * shared_out(-x)


@pytest.fixture
def no_step_mends_it(monkeypatch):
    for module, name in ((repair, "steps"), (back, "steps_back"), (back, "steps_of_rules")):
        monkeypatch.setattr(module, name, lambda *given, **named: iter(()))


@pytest.mark.parametrize("apart", WAYS)
def test_a_line_is_told_without_a_step_that_mends_it_where_right_numbers_would(
    shares, apart, no_step_mends_it
):
    found = where(shares, masks_what_it_has, SEEDS, apart=apart)
    assert (line_of(found, masks_what_it_has), found.by_numbers) == (2, True)
    assert "the numbers go wrong: what goes into it is right" in str(found) and not found.made
    assert found.place.piece == "torch.softmax(x, n // n)"


def test_what_may_have_been_wrong_before_gets_no_line(shares, no_step_mends_it):
    assert where(shares, collects_what_it_has, SEEDS).place is None  # a list of rows is nothing that has numbers


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system copies no processes")
def test_right_numbers_that_take_long_are_not_taken_for_a_process_that_hangs(shares, no_step_mends_it, monkeypatch):
    def slowly(*given):
        *_, last = found = list(trace.suspects(*given))
        for suspect in [*found[:1] * 5, last]:  # longer in all than a process may be silent, each a fifth of that
            time.sleep(0.6)
            yield suspect

    monkeypatch.setattr(repair, "suspects", slowly)
    monkeypatch.setattr(repair, "HANGS", 3.0)
    monkeypatch.setattr(repair, "TRACED", 60.0)
    found = where(shares, masks_what_it_has, SEEDS, apart=True)
    assert found.by_numbers


def test_the_values_of_each_time_come_in_order(shares, no_step_mends_it):
    def calls_it_twice(answer, draw):
        """what is allowed gets all, twice"""
        mask = torch.ones(3, 5, dtype=torch.bool)
        mask[:, 3:] = False
        return answer(draw.normal(3, 5), mask) - answer(draw.normal(3, 5), mask)

    shares.aspects[0] = dataclasses.replace(shares.aspects[0], probe=calls_it_twice)
    found = where(shares, masks_what_it_has, SEEDS)
    assert (line_of(found, masks_what_it_has), found.by_numbers) == (2, True)


def test_where_right_numbers_do_not_mend_it_either_none_are_told(shares, no_step_mends_it):
    found = where(shares, shares_less_a_tenth, SEEDS)
    assert found.place is None


def test_a_call_of_an_own_function_is_no_place_as_the_mistake_is_inside(shares, no_step_mends_it):
    assert where(shares, asks_a_helper, SEEDS).place is None


def test_of_several_steps_that_mend_it_that_is_told_at_which_the_numbers_go_wrong():
    places = [Place(number, f"line {number}", "piece") for number in (1, 2)]
    messages = [Message(0, number, 0.0, (place, "code"), size=number) for number, place in enumerate(places)]
    assert followed(iter(messages), 10, print).place == places[0]
    traced = [Message(0, 0, 0.0, traced=places[1]), *messages]
    found = followed(iter(traced), 10, print)
    assert found.place == places[1] and not found.by_numbers


def test_two_mistakes_get_no_line(spread):
    found = where(spread, two_mistakes, SEEDS)
    assert found.place is None and found.tried > 100
    assert "more than one place" in str(found)


KEPT = [1]


def leaves_traces(x):
    global KEPT
    print("I was here")
    KEPT.append(2)
    KEPT = KEPT * 1
    random.random(), np.random.rand(), torch.rand(1)
    with open(FILE_WRITTEN, "a") as file:
        file.write("x")
    return (x - x.mean(dim=-1, keepdim=True)).mean(dim=-1)


FILE_WRITTEN = os.devnull


def refused_to_write(x):
    try:
        with open(FILE_WRITTEN, "a") as file:
            file.write("x")
    except PermissionError:
        pass
    random.random(), np.random.rand(), torch.rand(1)
    KEPT.append(2)
    print("I was here")
    return (x - x.mean(dim=-1, keepdim=True)).mean(dim=-1)


def leaves_a_file_by_its_number(x):
    os.close(os.open(FILE_WRITTEN, os.O_WRONLY | os.O_CREAT))
    return (x - x.mean(dim=-1, keepdim=True)).mean(dim=-1)


@pytest.mark.parametrize("apart", WAYS)
@pytest.mark.parametrize("answer", [leaves_traces, leaves_a_file_by_its_number, refused_to_write])
def test_it_leaves_no_traces(spread, answer, apart, tmp_path, monkeypatch, capfd):
    monkeypatch.setitem(globals(), "FILE_WRITTEN", str(tmp_path / "file"))
    state = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    kept, threads = KEPT, torch.get_num_threads()
    found = where(spread, answer, SEEDS, seconds=20, apart=apart)
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == state
    assert KEPT is kept and kept == [1] and torch.get_num_threads() == threads
    assert not (tmp_path / "file").exists() and capfd.readouterr() == ("", "")
    assert (found.place is not None) == (answer is refused_to_write)
    (tmp_path / "file").write_text("writing is allowed again")


def counts_up(x):
    i, total = 0, torch.zeros(x.shape[:-1])
    while i < x.shape[-1]:
        total = total + (x[..., i] - x.mean(dim=-1))
        i += 1
    return total / x.shape[-1]


@pytest.mark.parametrize("apart", WAYS)
def test_a_try_that_never_ends_is_ended(spread, apart):
    started = time.perf_counter()
    found = where(spread, counts_up, SEEDS, apart=apart)
    assert line_of(found, counts_up) == 3 and time.perf_counter() - started < 15


def dies_if_changed(x):
    if x.ndim == -5:
        os._exit(3)
    return (x - x.mean(dim=-1, keepdim=True)).mean(dim=-1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system copies no processes")
def test_a_try_that_takes_the_process_with_it_takes_a_copy(spread, monkeypatch):
    monkeypatch.setattr(repair, "MOST_FAULTS", 50)
    found = where(spread, dies_if_changed, SEEDS, seconds=60)
    assert line_of(found, dies_if_changed) == 3


def sleeps_if_changed(x):
    if x.ndim == -5:
        time.sleep(60)
    return (x - x.mean(dim=0)).mean(dim=-1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system copies no processes")
def test_a_try_that_hangs_outside_of_python_counts_as_time(spread, monkeypatch):
    monkeypatch.setattr(repair, "HANGS", 1.5)
    started = time.perf_counter()
    found = where(spread, sleeps_if_changed, SEEDS, seconds=3)
    assert not found.made and not found.complete and time.perf_counter() - started < 20


def waits_once_right(x):
    distance = (x - x.mean(dim=-1, keepdim=True)).mean(dim=-1)
    if (distance > 0.01).all():
        time.sleep(0.1)
    return distance


@pytest.mark.parametrize("apart", WAYS)
def test_a_right_change_that_a_busy_machine_lets_wait_is_found(spread, apart, monkeypatch):
    monkeypatch.setattr(repair, "A_TRY", 0.05)
    assert line_of(where(spread, waits_once_right, SEEDS, apart=apart), waits_once_right) == 1


@pytest.mark.parametrize("apart", WAYS)
def test_it_can_be_stopped_and_ends_in_time(spread, apart):
    def stop(share):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        where(spread, without_abs, SEEDS, progress=stop, apart=apart)
    if apart:
        with pytest.raises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
    shares = []
    started = time.perf_counter()
    where(spread, two_mistakes, SEEDS, seconds=0.5, progress=shares.append, apart=apart)
    assert time.perf_counter() - started < 5 and shares == sorted(shares) and shares


def test_an_exercises_own_slips_are_tried_first(spread):
    spread.slip("no absolute value", ("values",), {".abs()": ""}, words="Distances are not negative.")
    (rule,) = [rule for rule in back.rules(spread) if isinstance(rule.right, ast.Call)][:1]
    assert "abs" in ast.unparse(rule.right) and "abs" not in ast.unparse(rule.wrong)


def test_a_statement_that_a_known_slip_lacks_is_put_in():
    def solution(x):
        total = x.sum(dim=-1)
        total = total / x.shape[-1]
        return total

    def answer(x):
        total = torch.sum(x, -1)
        return total

    exercise = Exercise("mean", solution, ("mean",), 1, 5, ("Only one.",), solution=solution)

    @exercise.aspect("values", points=1)
    def _(answer, draw):
        """the mean"""
        return answer(draw.normal(*draw.sizes(2, 3, 7)))

    exercise.slip("a sum", ("values",), {"total = total / x.shape[-1]\n": ""}, words="Divide it.")
    found = where(exercise, answer, SEEDS)
    assert found.tried < 5 and line_of(found, answer) == 1


def test_shares_that_have_changed_places_are_put_right_whatever_they_are_called():
    def solution(x, gate):
        return gate * x + (1 - gate) * torch.tanh(x)

    def answer(x, gate):
        new = torch.tanh(x)
        return (1 - gate) * x + gate * new

    exercise = Exercise("gate", solution, ("mixed",), 1, 5, ("Only one.",), solution=solution)

    @exercise.aspect("values", points=1)
    def _(answer, draw):
        """a share of each"""
        return answer(draw.normal(3, 4), draw.uniform(3, 4))

    other_way = {"gate * x + (1 - gate) * torch.tanh(x)": "(1 - gate) * x + gate * torch.tanh(x)"}
    exercise.slip("the other way round", ("values",), other_way, words="Which share is whose?")
    found = where(exercise, answer, SEEDS)
    assert found.place.piece == "(1 - gate) * x + gate * new" and line_of(found, answer) == 2


def test_of_several_lines_the_first_where_all_inputs_have_met_is_told():
    def found(line, met, rank=2, size=1):
        return repair.Message(rank, line, 0.1, (repair.Place(line, f"line {line}", "piece"), "code"), met, size)

    def told(*messages):
        return repair.followed(messages, 5.0, lambda share: None)

    assert told(found(6, met=2), found(4, met=2), found(2, met=1)).place.line == 4
    assert told(found(6, met=2), found(4, met=2), found(2, met=1)).lines == (6, 4, 2)
    assert told(found(3, met=1), found(2, met=5, rank=3)).place.line == 3, "what is tried later is no better"
    assert told(found(2, met=2, size=3), found(4, met=1)).place.line == 4, "the smallest change comes first"
    assert told(repair.Message(0, 0, 0.0)).place is None


def test_what_a_piece_is_made_of_is_followed_through_names():
    lines = "a, b = q * 2, 1", "for row in k:", "    a = a @ row", "return a.where(mask, b)"
    tree = ast.parse("def f(q, k, mask):" + "".join(f"\n    {line}" for line in lines)).body[0]
    first, loop, last = tree.body
    assert repair.inputs_of(tree, first.value.elts[0]) & {"q", "k", "mask"} == {"q"}
    assert repair.inputs_of(tree, loop.body[0].value) & {"q", "k", "mask"} == {"q", "k"}
    assert repair.inputs_of(tree, last) & {"q", "k", "mask"} == {"q", "k", "mask"}


def test_things_side_by_side_have_not_met():
    tree = ast.parse("def f(q, k, mask):\n    a, b = q + k, mask\n    return a * b").body[0]
    first, last = tree.body
    assert [repair._met(tree, node.value, {"q", "k", "mask"}) for node in (first, last)] == [2, 3]


def test_a_step_is_made_and_undone():
    tree = ast.parse("def f(a, b):\n    c = a + b\n    return c * 2").body[0]
    before = ast.dump(tree)
    made = set()
    for step in steps(tree):
        with step.made():
            made.add(ast.unparse(tree))
        assert ast.dump(tree) == before
    assert len(made) > 10 and all(text != ast.unparse(tree) for text in made)


@pytest.mark.parametrize(("expression", "missing"), [
    ("mask", "~mask"), ("x", "x.tanh()"), ("x", "x.softmax(-1)"), ("x", "x.mT"), ("x", "x.masked_fill(mask, -inf)"),
    ("x", "x / sqrt(n)"), ("x.sum(-1)", "x.sum(-1, keepdim=True)"), ("x.var(-1)", "x.var(-1, correction=0)"),
    ("x.sum()", "x.sum(dim=-1, keepdim=True)"), ("x.sum()", "x.sum(dim=0)"),
    ("n", "n - 1"), ("x * n + 1", "(x + 1) * n"),
    ("x / n * 2", "x / n ** 2"), ("mask", "mask.unsqueeze(-1)"), ("torch.triu(x)", "torch.triu(x, n)"),
])  # fmt: skip
def test_what_may_be_missing_is_put_in(expression, missing):
    tree = ast.parse(f"def f(x, mask, n):\n    return {expression}").body[0]
    seen = back.Seen()
    twin, note = back.watched(tree, seen)
    scope = {back.SEEN: back.telling(note), "torch": torch}
    exec(compile(ast.Module([twin], []), "<test>", "exec"), scope)
    scope["f"](torch.randn(3, 4), torch.ones(3, 4) > 0, 5)
    made = set()
    for step in back.steps_back(tree, seen):
        with step.made():
            made.add(ast.unparse(tree.body[0].value).replace(back.MATH + ".", ""))
    assert missing in made


# ---------------------------------------------------------------------------------------------------- for the learner


def test_hint_and_card_of_a_toy_course(toy, capsys):
    def polygon_area(corners):
        after = corners.roll(-1, dims=0)
        cross = corners[:, 0] * after[:, 1] - corners[:, 1] * after[:, 0]
        return cross.sum() / 2

    with pytest.raises(LookupError, match="has not been checked"):
        toy.hint("polygon_area", "where")
    verdict = toy.check("polygon_area", polygon_area)
    assert 'hint("polygon_area", "where")` looks for the line' in verdict.footer()
    toy.hint("polygon_area", "where")
    said = capsys.readouterr().out
    assert "return cross.sum() / 2" in said and "abs" not in said
    toy.check("polygon_area", toy.exercise("polygon_area").solution)
    toy.hint("polygon_area", "where")
    assert "nothing to look for" in capsys.readouterr().out


def test_nothing_is_looked_for_where_somebody_grades(toy, capsys, monkeypatch):
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    toy.hint("polygon_area", "where")
    assert "no line is looked for" in capsys.readouterr().out


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.syspath_prepend(os.path.join(os.path.dirname(__file__), "toy_course", "src"))
    return Course("shapes_lessons", library=("shapes",))


def test_a_statement_that_writes_into_an_argument_is_found(spread):
    def answer(x):
        middle = x.mean(dim=-1, keepdim=True)
        x[...] = x - middle
        return x.abs().mean(dim=-1)

    assert line_of(where(spread, answer, SEEDS), answer) == 2


def test_what_only_the_solution_uses_of_self_may_stand_in_anothers_place():
    class Pair(torch.nn.Module):
        def __init__(self, size):
            super().__init__()
            self.first, self.second = torch.nn.Linear(size, size), torch.nn.Linear(size, size)

        def forward(self, x):
            return self.first(x) @ self.second(x).mT

    def solution(self, x):
        return self.first(x) @ self.second(x).mT

    class Answer(Pair):
        def forward(self, x):
            a = self.first(x)
            return a @ self.first(x).mT

    exercise = Exercise("Pair", Pair, ("scores",), 1, 5, ("Only one.",), solution=solution)

    @exercise.aspect("values", points=1)
    def _(answer, draw):
        """each against each"""
        return answer.build(draw, 4)(draw.normal(3, 4))

    found = where(exercise, Answer, SEEDS)
    assert found.place.piece == "self.first" and "self.second" in found.made


def test_a_small_change_is_told_before_a_large_one():
    def of(text, new, at):
        tree = ast.parse(text).body[0]
        node = next(n for n in ast.walk(tree) if isinstance(n, ast.expr) and ast.unparse(n) == at)
        return tree, Step(tree, "body", None, ast.parse(new, mode="eval").body, node)

    sizes = [repair._size(of(f"def f(): return {at}", new, at)[1])
             for at, new in (("a @ b.T", "b @ a.T"), ("0", "-1"), ("f(x)", "x"), ("x", "x / 2"))]  # fmt: skip
    assert sizes == [3, 2, 1, 3]


@pytest.mark.parametrize(("text", "new", "told"), [
    ("b = g(a)\n    c = h(b)\n    return c", "b / 2", "g(a) / 2"),  # a scale
    ("b = g(a)\n    c = h(a)\n    return b, c", "mask(b, a)", "mask(g(a), a)"),  # it is handed over as it is
    ("b = g(a)\n    c = h(b)\n    return b, c", "mask(b, a)", None),  # c was made of it before
    ("b = g(a)\n    return h(b)", "a", "a"),  # b would not be used any more
    ("b = g(a)\n    return h(b, b)", "a", None),  # it would
    ("b = g(a)\n    return h(b)", "mask(b)", None),  # as good a place as the other
    ("b = g(a)\n    b = b + 1\n    return b", "b / 2", None),  # it is set twice
    ("return h(b)", "b / 2", None),  # it is set elsewhere
])  # fmt: skip
def test_a_change_of_a_variable_is_told_where_it_is_set_if_that_is_where_one_looks(text, new, told):
    tree = ast.parse(f"def f(a):\n    {text}").body[0]
    uses = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == "b" and isinstance(n.ctx, ast.Load)]
    returned = [use for node in ast.walk(tree) if isinstance(node, ast.Return)
                for use in getattr(node.value, "elts", [node.value]) if use in uses]  # fmt: skip
    step = Step(tree, "body", None, ast.parse(new, mode="eval").body, (returned or uses)[0])
    where = repair._where_set(tree, step)
    assert (where and ast.unparse(where.new)) == told
    assert where is None or where.at.lineno == 2


def test_two_neighbouring_letters_of_an_einsum_change_places_in_its_result_first():
    assert list(_other_equations("btd,bsd->bst")) == [
        "btd,bsd->sbt", "btd,bsd->bts", "btd,sbd->bst", "btd,bds->bst", "tbd,bsd->bst", "bdt,bsd->bst"
    ]  # fmt: skip
    assert list(_other_equations("...i->i")) == []


def test_a_mean_of_what_a_mask_leaves_is_divided_by_those_that_count():
    call = ast.parse("(loss * real).mean(1)", mode="eval").body
    seen = back.Seen()
    seen.kinds[id(call.func.value.right)] = back.Kind("truth", (2, 3), None)
    assert [ast.unparse(new) for new in back._mean_of_those(call, call.func.value, seen)] == [
        "(loss * real).sum(1) / real.sum(1)"
    ]
    assert list(back._mean_of_those(call, call.func.value, back.Seen())) == [], "of weights it is another mean"
