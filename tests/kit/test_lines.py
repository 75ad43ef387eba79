"""The report on which line the class stumbles over: what is found, for whom, and that nothing of it runs outside."""

import argparse
import hashlib
import os
import signal
import time
from io import StringIO
from textwrap import indent

import nbformat
import pytest
from rich.console import Console
from small_class import ASSIGNMENT, COURSE, NOTEBOOK

from attncourse_lessons import course as lessons
from commandkit.errors import CommandError
from lessonkit.exercises.repair import Nothing, where
from lessonkit.grading.demo.command import prepare
from lessonkit.grading.engine import pool
from lessonkit.grading.engine.grade import grade, silent
from lessonkit.grading.engine.pool import Worker
from lessonkit.grading.gradebook.nbgrader_app import Log, application, nbgrader, own_settings
from lessonkit.grading.report import command as report
from lessonkit.grading.report import lines
from lessonkit.grading.report.lines import Line, Stumbling, stumbling, wrong_answers
from lessonkit.grading.report.page import page
from lessonkit.grading.report.results import Column, Released, Results, Row, read_results
from lessonkit.grading.sandbox import linux as walls
from lessonkit.grading.sandbox.where import _is_kind, definition
from lessonkit.grading.submission.answers import answer, solutions

sandboxed = pytest.mark.skipif(walls.why_not() is not None, reason=str(walls.why_not()))
SCORES, STEP = "attention_scores", "AttentionDecoderStep"
EXERCISES = lessons.exercises_of(ASSIGNMENT)

# ---------------------------------------------------------------------------------------------------------- one answer

ABOVE = "import math, torch\nfrom torch import Tensor, nn"
SCALED = f"""
def {SCORES}(decoder_states: Tensor, encoder_states):
    d = encoder_states.shape[-1]
    match = decoder_states @ encoder_states.mT
    return match / d ** 0.5
"""
FOR_EVER = """
while True:
    try:
        while True: pass
    except BaseException: pass
"""


def job(*cells, name=SCORES, seconds=20.0):
    sources = [{"source": source, "grade_id": None, "exercise": None, "skip": False} for source in (ABOVE, *cells)]
    return {
        "course": "attncourse_lessons", "cells": sources, "files": {}, "seeds": {name: [0, 1, 2]},
        "limits": {"cell_seconds": 2, "notebook_seconds": seconds},
        "where": {"exercise": name, "answer": name, "seconds": seconds},
    }  # fmt: skip


@pytest.fixture(scope="module")
def worker():
    worker = Worker("attncourse_lessons", ASSIGNMENT, "bubblewrap")
    worker.start()
    yield worker
    worker.kill()


def scaled(decoder_states, encoder_states):
    d = encoder_states.shape[-1]
    match = decoder_states @ encoder_states.mT
    return match / d ** 0.5  # fmt: skip


@sandboxed
def test_in_the_sandbox_the_same_is_found(worker):
    found = worker.execute(job(SCALED))
    here = where(lessons.exercise(SCORES), scaled, (0, 1, 2), seconds=20)
    assert here.place.text.startswith("return match / d ** 0.5")
    assert found["place"] == {"text": "return match / d ** 0.5", "piece": here.place.piece}


@sandboxed
def test_the_last_definition_counts_and_what_it_needs_is_there(worker):
    helper = "def helper(a, b):\n    return a @ b.mT"
    other = f"def {SCORES}(decoder_states, encoder_states): return None"
    mine = f"%time x = 1\nx = 'two \x0c \u2028 lines'\ndef {SCORES}(a, b):\n    found = helper(a, b)\n    return -found"
    assert worker.execute(job(helper, other, mine))["place"] == {"text": "return -found", "piece": "-found"}


@sandboxed
def test_a_modules_forward_is_searched(worker):
    head = (
        f"class {STEP}(nn.Module):\n    def __init__(self, vocab_size, d_embedding, d_hidden):\n"
        f"        super({STEP}, self).__init__()\n"
        "        self.embedding = nn.Embedding(vocab_size, d_embedding)\n"
        "        self.cell = nn.GRUCell(d_embedding + d_hidden, d_hidden)\n"
        "        self.combine = nn.Linear(2 * d_hidden, d_hidden)\n"
        "        self.output = nn.Linear(d_hidden, vocab_size)\n"
        "    def forward(self, token, state, attentional, encoder_states, mask):\n        "
    )
    body = (
        "state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)",
        "scores = (encoder_states @ state[..., None])[..., 0]",
        "weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)",
        "attended = (weights[:, None] @ encoder_states)[:, 0]",
        "attentional = self.combine(torch.cat([attended, state], dim=-1))",
        "return self.output(attentional), state, attentional, weights",
    )
    found = worker.execute(job(head + "\n        ".join(body), name=STEP, seconds=60))
    assert found["place"]["text"] == body[4]


@sandboxed
def test_a_line_is_told_where_two_changes_would_be_needed(worker):
    body = "batch, n, d_model = x.shape\n    heads = x.reshape(batch, n_heads, n, d_model // n_heads)\n    return heads"
    found = worker.execute(job(f"def split_heads(x, n_heads):\n    {body}", name="split_heads"))
    assert found["place"]["text"] == "heads = x.reshape(batch, n_heads, n, d_model // n_heads)"


@sandboxed
@pytest.mark.parametrize(("cells", "why"), [
    ((f"def {SCORES}(a, b): return a @ b.mT",), "nothing is wrong"),
    (("x = 1",), "cannot be read"),
    ((f"def {SCORES}(a, b",), "cannot be read"),
    ((f"def {SCORES}(a, b=unknown): return a",), "cannot be run"),
    ((f"def {SCORES}(a, b):\n    return [" + 3000 * "a, " + "]",), "too long"),
    ((f"def {SCORES}(a, b): return a @ b.mT / 2\nfor {SCORES} in [1]: pass",), ""),
])  # fmt: skip
def test_where_there_is_nothing_to_search_it_says_so(worker, cells, why):
    found = worker.execute(job(*cells))
    assert why in found["why"] and (found["place"] is None) == bool(why)


@sandboxed
@pytest.mark.parametrize("cells", [
    (f"def {SCORES}(a, b):{indent(FOR_EVER, '    ')}",),
    (f"def {SCORES}(a, b):\n    import os\n    os._exit(3)",),
    (f"def {SCORES}(a, b):\n    import os\n    while os.fork() >= 0: pass",),
    (f"def {SCORES}(a, b):\n    x = [0]\n    while True: x = x + x",),
    ("import time\ntime.sleep(100)", f"def {SCORES}(a, b): return b"),
    (FOR_EVER, f"def {SCORES}(a, b): return b"),
    ("import os\nos._exit(3)", f"def {SCORES}(a, b): return b"),
    (f"def {SCORES}(a, b):\n    _kinds_of_the_search.update({{-1: 'x', 'a': (1,), 10**9: ('float', (10**9,), 2)}})\n"
     "    return b",),
    (f"def {SCORES}(a, b):\n    global _kinds_of_the_search\n    _kinds_of_the_search = 5\n    return b",),
    (f"def {SCORES}(a, b):\n    check.__class__._process.channel.socket.close()",),
])  # fmt: skip
def test_a_hostile_answer_costs_its_seconds_and_nothing_else(worker, cells):
    began = time.monotonic()
    assert worker.execute(job(*cells, seconds=1.5))["place"] is None
    assert time.monotonic() - began < 15
    assert worker.execute(job(SCALED))["place"]["text"] == "return match / d ** 0.5"


@pytest.mark.parametrize("kind", [
    None, "float", ("float", (2, 3), None), ("tensor", (), None, None), ("float", [2], None, None),
    ("float", (True,), None, None), ("float", (2,) * 10, None, None), ("number", (), "1", None),
    ("number", (), [1], None), (["float"], (), None, None), ("float", (2,), None, (1.0, 2.0)),
    ("float", (2,), None, (1.0, "2", 3.0)), ("float", (2,), None, [1.0, 2.0, 3.0]),
])  # fmt: skip
def test_what_a_process_says_of_its_values_is_looked_at_before_it_is_believed(kind):
    assert _is_kind(("float", (2, 3), None, (1.0, 2.0, 3.0))) and _is_kind(("number", (), 3, None))
    assert not _is_kind(kind)


def test_no_code_runs_where_its_definition_is_looked_for(tmp_path):
    cell = f"open({str(tmp_path / 'file')!r}, 'w')\ndef f(a=open({str(tmp_path / 'other')!r}, 'w')):\n    return a"
    source, is_module = definition([cell], "f")
    assert source.tree.name == "f" and not is_module and not list(tmp_path.iterdir())
    with pytest.raises(Nothing):
        definition(["(" * 5000, "f = 1", "x = '\ud800'"], "f")


# ------------------------------------------------------------------------------------------------------------- a class

HARM = """
import os, pathlib
for place in (ROOT, '/tmp', os.path.expanduser('~'), '/dev/shm', '.'):
    try:
        pathlib.Path(place, 'mallory-was-here').write_text('x')
    except OSError:
        pass
"""
# Two who wrote the same but for names, and one who stumbles over the same line in other code.
ANSWERS = {
    "ada": {SCORES: "d = encoder_states.shape[-1]\n"
                    "match = decoder_states @ encoder_states.mT\nreturn match / d ** 0.5"},
    "bob": {SCORES: "# scaled\nn = encoder_states.shape[-1]\n"
                    "x = decoder_states @ encoder_states.mT\nreturn x / n**0.5"},
    "eve": {SCORES: "size = encoder_states.shape[-1]\n"
                    "products = torch.einsum('btd,bsd->bts', decoder_states, encoder_states)\n"
                    "return products / size ** 0.5"},
    "mallory": {SCORES: HARM + FOR_EVER},
    "zoe": {},
}  # fmt: skip


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A class that stumbles over one line, graded, and in it one who harms what they can."""
    root = tmp_path_factory.mktemp("class") / "course"
    with own_settings(root.parent / "settings"):
        prepare(root, COURSE, ASSIGNMENT)
        with (root / "nbgrader_config.py").open("a") as config:
            config.write("c.ExecuteOrReplay.timeout = 3\n")
        nbgrader(root, "generate_assignment", ASSIGNMENT, log=Log(root / "log"))
        source, release = (
            nbformat.read(root / kind / ASSIGNMENT / f"{NOTEBOOK}.ipynb", as_version=4)
            for kind in ("solutions", "assignments")
        )
        for student, bodies in ANSWERS.items():
            folder = root / "submitted" / student / ASSIGNMENT
            folder.mkdir(parents=True)
            mine = {name: body.replace("ROOT", repr(str(root))) for name, body in bodies.items()}
            nbformat.write(answer(source, release, {**solutions(source), **mine}), folder / f"{NOTEBOOK}.ipynb")
        grade(root, ASSIGNMENT)
        yield root


def looked_for(root, seconds=100.0, stage=silent):
    app = application(root, "autograde")
    return stumbling(app, read_results(app.coursedir, ASSIGNMENT), EXERCISES, seconds, stage)


def files(root):
    """What lies in a folder, but for what the search is to leave there."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file() and path.parent.name != "lines"
    }


def students(rows):
    return [row.student for row in rows]


@pytest.fixture
def no_execution(monkeypatch):
    def execute(*arguments):
        raise AssertionError("something is executed")

    monkeypatch.setattr(pool, "execute", execute)
    monkeypatch.setattr(pool, "Worker", execute)


@sandboxed
@pytest.mark.slow
def test_the_line_that_three_stumble_over_is_one_line_and_a_hostile_answer_harms_nothing(course):
    before = files(course)
    (found,) = looked_for(course)
    (line,) = found.lines
    assert (found.exercise, line.text) == (SCORES, "return match / d ** 0.5") and line.piece in line.text
    assert students(line.rows) == ["ada", "bob", "eve"]
    assert [students(rows) for rows in (*found.nothing, *found.left)] == [["mallory"]]
    assert files(course) == before and not os.path.exists("/tmp/mallory-was-here")


@sandboxed
@pytest.mark.slow
def test_a_second_report_searches_nothing_again(course, no_execution):
    test_the_line_that_three_stumble_over_is_one_line_and_a_hostile_answer_harms_nothing(course)
    kept = sorted((course / "grading" / ASSIGNMENT / "lines").iterdir())
    assert len(kept) == 3
    text = kept[0].read_text()
    kept[0].write_text('{"place": {"text": 1}}')
    with pytest.raises(AssertionError, match="executed"):
        looked_for(course)
    kept[0].write_text(text)


def called(root, *words, capsys):
    parser = argparse.ArgumentParser()
    report.add_arguments(parser)
    assert report.main(parser.parse_args([ASSIGNMENT, f"--course={root}", *words])) == 0
    return " ".join(capsys.readouterr().out.split())


@sandboxed
@pytest.mark.slow
def test_without_being_asked_nothing_runs(course, no_execution, capsys):
    said = called(course, capsys=capsys)
    assert "the page:" in said and "lines that the class stumbles over" not in said
    assert 'id="lines"' not in (course / "grading" / ASSIGNMENT / "report.html").read_text("utf-8")


@sandboxed
@pytest.mark.slow
def test_the_command_says_it_in_the_terminal_and_on_the_page(course, capsys):
    said = called(course, "--where", "--where-seconds=100", capsys=capsys)
    assert "3 × return match / d ** 0.5 (attention_scores): ada, bob, eve" in said
    text = (course / "grading" / ASSIGNMENT / "report.html").read_text("utf-8")
    assert 'id="lines"' in text and "return match / d ** 0.5" in text


@pytest.mark.slow
def test_where_there_is_no_sandbox_it_says_so_and_the_report_is_there(course, no_execution, capsys, monkeypatch):
    for how in (pool.KERNEL, "none"):
        monkeypatch.setattr(pool, "how_to_execute", lambda unsafe=False, how=how: how)
        assert "No lines are looked for: there is no sandbox" in called(course, "--where", capsys=capsys)

    def refuse(unsafe=False):
        raise CommandError("no namespaces here")

    monkeypatch.setattr(pool, "how_to_execute", refuse)
    said = called(course, "--where", capsys=capsys)
    assert "No lines are looked for: no namespaces here" in said and "the page:" in said


@sandboxed
@pytest.mark.slow
def test_ctrl_c_keeps_what_was_found(course, monkeypatch):
    for path in (course / "grading" / ASSIGNMENT / "lines").iterdir():
        path.unlink()
    monkeypatch.setattr(lines, "cores", lambda: 1)
    (found,) = looked_for(course, stage=lambda what, of: lambda: os.kill(os.getpid(), signal.SIGINT))
    assert [students(line.rows) for line in found.lines] == [["ada", "bob"]]  # those of most students come first
    assert {student for rows in found.left for student in students(rows)} == {"eve", "mallory"}
    assert len(list((course / "grading" / ASSIGNMENT / "lines").iterdir())) == 1


@sandboxed
@pytest.mark.slow
def test_no_time_is_time_for_nothing(course, no_execution):
    (found,) = looked_for(course, seconds=1e-6)
    assert found.left and not found.nothing


@pytest.mark.parametrize("words", [["--where-seconds=0"], ["--brief"]])
@pytest.mark.slow
def test_what_cannot_be_meant_is_refused(course, words, capsys):
    with pytest.raises(CommandError, match="--where"):
        called(course, "--where", *words, capsys=capsys)


# -------------------------------------------------------------------------------------------------- which, and in words


def rows_of(*bodies, exercise=SCORES, points=1.0):
    head = f"def {exercise}(decoder_states, encoder_states):\n    "
    rows = []
    for number, body in enumerate(bodies):
        verdict = {"points": points, "out_of": 4.0, "problem": None, "aspects": [], "misconceptions": []}
        code = head + body.replace("\n", "\n    ")
        rows.append(Row(f"s{number}", f"S{number}", {}, verdicts={exercise: verdict}, answers={exercise: code}))
    return rows


def class_of(rows):
    stub = f"def {SCORES}(decoder_states, encoder_states):\n    raise NotImplementedError()"
    return Results("a03", [Column("nb", f"check-{SCORES}", 4, False)], rows, 4.0, {SCORES: Released(stub)})


def test_answers_that_differ_in_names_are_one_and_those_of_most_come_first():
    rows = rows_of("return encoder_states", "x = 1\nreturn x", "y = 1  # mine\nreturn y", "z = 1\nreturn (z)")
    assert [students(wrong.rows) for wrong in wrong_answers(class_of(rows), EXERCISES)] == [["s1", "s2", "s3"], ["s0"]]


def test_what_is_right_or_was_not_written_is_not_searched():
    rows = rows_of("return 1", "raise NotImplementedError()", "return 2", "return 3")
    rows[0].verdicts[SCORES]["points"] = 4.0
    rows[2].verdicts[SCORES]["problem"] = "not written"
    rows[3].verdicts.clear()
    assert wrong_answers(class_of(rows), EXERCISES) == []


def test_what_a_student_wrote_is_shown_as_text(tmp_path):
    rows = tuple(rows_of("return 1", "return 2", "return 3"))
    evil = "x = '<script>alert(1)</script>\u202e\x1b[31m' [bold]"
    one = Stumbling(SCORES, (Line(evil, "'<b>'", rows[:2]), Line("return a", "a", rows[2:])), (rows[:1],), (rows[1:],))
    results = class_of(list(rows))
    html = page(results, EXERCISES, [], tmp_path, [one])
    assert "<script>alert" not in html and "&lt;script&gt;alert" in html and "<b>" not in html
    console = Console(file=StringIO(), width=200, color_system=None, highlight=False)
    report.show_class(results, EXERCISES, [], console, [one])
    said = console.file.getvalue()
    assert "2 × x = '<script>" in said and "[bold] (attention_scores, at '<b>'): S0, S1" in said
    assert "1 × return a (attention_scores): S2" in said
    assert "none found in 1 answer (1 student); not searched, as the time was up: 1 answer (2 students)" in said
    assert not set("\u202e\x1b") & set(said + html)
    shown = html[html.index('id="lines"') : html.index('id="students"')]
    assert "\\" not in shown and "return a</code>:" in shown and "at <code" in shown
