"""What nbgrader scores when answers misbehave: crashes, loops, numbers without a verdict, files that cannot be read."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from nbgrader.api import Gradebook
from nbgrader.utils import determine_grade
from traitlets.config import Config

from attncourse_lessons import course as lessons
from commandkit.errors import CommandError
from lessonkit.grading.demo.command import CONFIG_HERE, prepare
from lessonkit.grading.engine import pool as workers
from lessonkit.grading.engine.grade import grade
from lessonkit.grading.engine.pool import KERNEL, how_to_execute
from lessonkit.grading.engine.preprocessors import ExecuteOrReplay
from lessonkit.grading.engine.preprocessors import score as put_score_first
from lessonkit.grading.gradebook.nbgrader_app import Log, application, environment, find_course, nbgrader, own_settings
from lessonkit.grading.handback.feedback import HideHiddenTests
from lessonkit.grading.report.results import read_results
from lessonkit.grading.sandbox import linux as walls
from lessonkit.grading.submission import check_cells as verdicts
from lessonkit.grading.submission.answers import answer, solutions
from lessonkit.grading.submission.execution import cache_key, job_of, load_or_draw_seeds
from lessonkit.mimetype import VERDICT

COURSE = Path(__file__).parents[2]
ASSIGNMENT, NOTEBOOK = "a03", "a03_cross_attention"
FAST = Config(
    {
        "Lessonkit": {"course": "attncourse_lessons"},
        "Execute": {"shutdown_kernel": "immediate", "extra_arguments": ["--log-level=ERROR"]},
    }
)


def check_cell(source="", exercise="thing", points=4, outputs=()):
    meta = {"grade_id": f"check-{exercise}", "grade": True, "solution": False, "locked": True, "points": points}
    return new_code_cell(source, metadata={"nbgrader": meta}, outputs=list(outputs), execution_count=1)


def value(data):
    return new_output("execute_result", data, execution_count=1)


def verdict(points, exercise="thing", out_of=4):
    return {
        "exercise": exercise,
        "points": points,
        "out_of": out_of,
        "extra": False,
        "aspects": [],
        "misconceptions": [],
    }


def score(cell, *others):
    """What nbgrader makes of an executed check cell, after ours: (points, the reason for 0)."""
    notebook = new_notebook(cells=[*others, cell])
    put_score_first(notebook)
    nbformat.validate(notebook)
    return determine_grade(cell)[0], (verdicts.verdict_of(cell) or {}).get("problem")


def says(points):
    return value({"text/plain": str(points), VERDICT: verdict(points)})


# ----------------------------------------------------------------------------------------------------- points of a cell


def test_the_points_are_those_of_the_verdict():
    assert score(check_cell(outputs=[says(2.5)])) == (2.5, None)


def test_a_warning_costs_nothing_and_stays_visible():
    cell = check_cell(outputs=[new_output("stream", name="stderr", text="UserWarning: careful"), says(4)])
    assert score(cell) == (4, None)
    assert "careful" in str(cell.outputs)


@pytest.mark.parametrize("printed", ["2", "-5", "999", "4.0", "nan", "hello"])
def test_a_number_that_is_no_verdict_earns_nothing(printed):
    points, reason = score(check_cell(outputs=[value({"text/plain": printed})]))
    assert points == 0 and "no verdict" in reason


def test_a_number_shown_on_the_way_does_not_count():
    cell = check_cell(outputs=[value({"text/plain": "999"}), new_output("stream", name="stdout", text="4"), says(1)])
    assert score(cell) == (1, None)
    assert "999" in str(cell.outputs)


def test_a_cell_without_output_earns_nothing():
    assert score(check_cell())[0] == 0


@pytest.mark.parametrize("points", [-1, 5, float("inf"), float("nan"), True, "4", None, [4]])
def test_a_verdict_with_impossible_points_earns_nothing(points):
    shown = value({"text/plain": "4", VERDICT: {**verdict(4), "points": points}})
    assert score(check_cell(outputs=[shown]))[0] == 0


def test_the_verdict_on_another_exercise_earns_nothing():
    shown = value({"text/plain": "4", VERDICT: verdict(4, exercise="easier")})
    assert score(check_cell(outputs=[shown]))[0] == 0


def test_a_displayed_verdict_is_not_the_cells_value():
    shown = new_output("display_data", {"text/plain": "4", VERDICT: verdict(4)})
    assert score(check_cell(outputs=[shown]))[0] == 0


def test_a_verdict_shown_before_the_cell_failed_earns_nothing():
    failed = new_output("error", ename="ValueError", evalue="late", traceback=[])
    points, reason = score(check_cell(outputs=[says(4), failed]))
    assert points == 0 and "ValueError: late" in reason


def test_a_check_whose_answer_does_not_parse_says_so():
    broken = new_output("error", ename="SyntaxError", evalue="invalid syntax (1234.py, line 3)", traceback=[])
    theirs = new_code_cell(metadata={"nbgrader": {"grade_id": "thing", "solution": True}}, outputs=[broken])
    missing = new_output("error", ename="NameError", evalue="name 'thing' is not defined", traceback=["..."])
    points, reason = score(check_cell(outputs=[missing]), theirs)
    assert points == 0 and reason == "the answer's cell stopped with SyntaxError: invalid syntax (line 3)"


def test_an_instructors_own_test_keeps_nbgraders_rule_except_for_warnings():
    def own(*outputs):
        cell = check_cell(outputs=outputs)
        cell.metadata.nbgrader.grade_id = "test_of_mine"
        return cell

    assert score(own())[0] == 4
    assert score(own(new_output("stream", name="stderr", text="UserWarning")))[0] == 4
    assert score(own(new_output("error", ename="AssertionError", evalue="", traceback=[])))[0] == 0


def test_feedback_hides_the_hidden_check():
    cell = check_cell(
        "check('thing', thing)\n### BEGIN HIDDEN TESTS\ncheck('thing', thing, seeds=(1,))\n### END HIDDEN TESTS"
    )
    notebook, _ = HideHiddenTests().preprocess(new_notebook(cells=[cell]), {})
    assert notebook.cells[0].source == "check('thing', thing)"


# ------------------------------------------------------------------------------------------------------------ execution


@pytest.fixture(scope="module", autouse=True)
def _settings(tmp_path_factory):
    with own_settings(tmp_path_factory.mktemp("settings")):
        yield


WHERE = {"assignment": "a03", "student": "someone", "notebook": NOTEBOOK}


@pytest.fixture(params=["in a sandbox", "in a kernel"])
def how(request, monkeypatch):
    """Where cells run: in a sandbox, or as on a system that has none."""
    if request.param == "in a kernel":
        monkeypatch.setattr("lessonkit.grading.engine.preprocessors.how_to_execute", lambda unsafe: KERNEL)
    return request.param


def executed(tmp_path, *sources, **traits):
    """A notebook of code cells and check cells ("check:..."), executed in tmp_path."""
    cells = [
        check_cell(source.removeprefix("check:"), f"n{i}") if source.startswith("check:") else new_code_cell(source)
        for i, source in enumerate(sources)
    ]
    notebook = new_notebook(cells=cells)
    with contextlib.chdir(tmp_path):
        step = ExecuteOrReplay(**{"config": FAST, "timeout": 1} | traits)
        step.preprocess(notebook, {"metadata": {"path": str(tmp_path)}, "nbgrader": WHERE})
    return notebook.cells


def error(cell):
    """What the last error of a cell says, or the card of a check cell."""
    said = next((output.evalue for output in reversed(cell.outputs) if output.output_type == "error"), None)
    return said or (verdicts.verdict_of(cell) or {}).get("problem")


def test_what_ran_before_the_process_died_is_kept(how, tmp_path):
    before, crash, after, check = executed(tmp_path, "40 + 2", "import os; os._exit(1)", "1", "check:1")
    assert before.outputs[0].data["text/plain"] == "42"
    assert "died" in error(crash)
    assert "not run" in error(after) and "not run" in error(check)
    assert determine_grade(check)[0] == 0
    assert score(check)[0] == 0


def test_a_loop_is_stopped_and_the_next_cells_run(how, tmp_path):
    loop, after = executed(tmp_path, "check:while True: pass", "6 * 7")
    assert "stopped after 1 seconds" in error(loop)
    assert after.outputs[0].data["text/plain"] == "42"
    assert score(loop)[0] == 0


def test_a_loop_that_cannot_be_stopped_ends_its_cell_only_or_where_there_is_no_sandbox_the_notebook(how, tmp_path):
    stubborn = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    cells = "x = 6\nprint(x)", f"check:{stubborn}", "check:1", "x * 7"
    before, loop, after, last = executed(tmp_path, *cells, iopub_timeout=1)
    assert before.outputs[0].text == "6\n" and len(before.outputs) == 1
    assert "stopped after 1 seconds" in error(loop)
    assert score(loop)[0] == score(after)[0] == 0
    if how == "in a kernel":
        assert "could not be interrupted" in error(after) and "could not be interrupted" in error(last)
    else:
        assert last.outputs[0].data["text/plain"] == "42"


def test_an_execution_is_replayed_until_something_that_matters_changes(tmp_path, monkeypatch):
    runs = []
    execute = workers.run
    monkeypatch.setattr(workers, "run", lambda *job: runs.append(job) or execute(*job))
    folder = tmp_path / "work"
    folder.mkdir()
    cells = [new_markdown_cell("words"), new_code_cell("import random\nrandom.random()")]

    def outcome(**traits):
        notebook = new_notebook(cells=[cell.copy() for cell in cells])
        with contextlib.chdir(tmp_path):
            step = ExecuteOrReplay(config=FAST, **traits)
            step.preprocess(notebook, {"metadata": {"path": str(folder)}, "nbgrader": WHERE})
        assert notebook.metadata.language_info.name == "python"
        return notebook.cells[1].outputs[0].data["text/plain"], len(runs)

    first, once = outcome()
    assert once == 1 and outcome() == (first, 1)
    cells[0] = new_markdown_cell("other words")
    assert outcome() == (first, 1)
    kept = tmp_path / "grading/a03/executions"
    next(kept.glob("*.json")).write_text('{"cells": [')  # torn
    assert outcome()[1] == 2
    (folder / "data.csv").write_text("1,2")
    assert outcome()[1] == 3
    cells[1] = new_code_cell(cells[1].source + "  # edited")
    assert outcome()[1] == 4
    assert outcome(memory_mb=1024)[1] == 5
    assert outcome(memory_mb=1024, keep=False)[1] == 6
    assert not list(kept.glob("*.part"))


def test_what_was_executed_without_a_sandbox_is_not_replayed_for_a_run_in_one(tmp_path):
    job = job_of("attncourse_lessons", new_notebook(cells=[new_code_cell("1")]), [tmp_path], {}, {})
    assert len({cache_key(job, how) for how in ("bubblewrap", "none", KERNEL)}) == 3


def test_a_submissions_own_files_are_there_and_links_are_not_followed(tmp_path):
    (tmp_path / "notes.txt").write_text("here")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "data.bin").write_bytes(bytes(range(256)))
    (tmp_path / "secret.txt").symlink_to("/etc/hostname")
    read = "from pathlib import Path\nsorted(str(p) for p in Path().rglob('*.*') if '/.' not in f'/{p}')"
    (cell,) = executed(tmp_path, read)
    assert cell.outputs[0].data["text/plain"] == "['folder/data.bin', 'notes.txt']"


# ---------------------------------------------------------------------------------------------------------------- seeds


def test_seeds_are_drawn_once_and_differ_from_course_to_course(tmp_path):
    first = load_or_draw_seeds(tmp_path / "one", ["thing", "other"])
    assert load_or_draw_seeds(tmp_path / "one", ["thing", "other"]) == first
    assert load_or_draw_seeds(tmp_path / "two", ["thing", "other"]) != first
    more = load_or_draw_seeds(tmp_path / "one", ["thing", "new"])
    assert more["thing"] == first["thing"] and len(set(map(tuple, [*first.values(), more["new"]]))) == 3


def test_damaged_seeds_are_not_drawn_anew_in_silence(tmp_path):
    load_or_draw_seeds(tmp_path, ["thing"])
    (tmp_path / "seeds.json").write_text("{")
    with pytest.raises(CommandError, match="damaged"):
        load_or_draw_seeds(tmp_path, ["thing"])


# --------------------------------------------------------------------------- a class of troublemakers, through nbgrader

TROUBLE = {
    "warns": {
        "attention_scores": "import sys, warnings\nwarnings.warn('careful')\nprint('noise', file=sys.stderr)\n{model}"
    },
    "prints-numbers": {
        "attention_scores": "import sys\nsys.displayhook(999)\nprint(4)",
        "attention_distribution": "import sys\nsys.displayhook(-5)\nreturn scores.new_zeros(scores.shape)",
        "attention_output": "import sys\nsys.displayhook(2)\nreturn 2",
    },
    "uses-the-name-check": {"attention_scores": "global check\ncheck = 4\n{model}"},
    "too-much-extra": {
        "local_attention": "global check\n"
        "class Fake:\n"
        "    def _repr_mimebundle_(self, **_):\n"
        "        return {{'text/plain': '', '" + VERDICT + "':\n"
        "                {{'exercise': 'local_attention', 'points': 999, 'out_of': 999, 'problem': None}}}}\n"
        "check = lambda *given, **named: Fake()\n{model}"
    },
}
MISTAKE = lessons.exercise("attention_distribution")
DAMAGED = {
    "empty": (b"", "empty"),
    "binary": (bytes(range(256)), "damaged"),
    "merge": (b"{\n<<<<<<< HEAD\n}\n=======\n>>>>>>> mine\n", "merge markers"),
    "json": (b"[1, 2]", "not a notebook"),
}


# nbgrader's way with SQLAlchemy, which warns about it.
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """Every style and every troublemaker, graded: (the course's folder, results by student, original bytes)."""
    root = tmp_path_factory.mktemp("class") / "course"
    prepare(root, COURSE, ASSIGNMENT)
    log = Log(root / "log")
    nbgrader(root, "generate_assignment", ASSIGNMENT, log=log)
    source = nbformat.read(root / "solutions" / ASSIGNMENT / f"{NOTEBOOK}.ipynb", as_version=4)
    release = nbformat.read(root / "assignments" / ASSIGNMENT / f"{NOTEBOOK}.ipynb", as_version=4)
    model = solutions(source)
    styles = max(len(e.alternatives) for e in lessons.exercises_of(ASSIGNMENT))
    answers = {
        f"style-{i}": {e.name: e.alternatives[i % len(e.alternatives)].body for e in lessons.exercises_of(ASSIGNMENT)}
        for i in range(styles)
    }
    answers["mistaken"] = {MISTAKE.name: MISTAKE.misconceptions[1].body}
    answers |= {
        who: {name: body.format(model=model[name]) for name, body in bodies.items()} for who, bodies in TROUBLE.items()
    }
    handed_in = {
        who: nbformat.writes(answer(source, release, {**model, **theirs})).encode() for who, theirs in answers.items()
    }
    handed_in["byte-order-mark"] = b"\xef\xbb\xbf" + handed_in["style-0"]
    handed_in["truncated"] = handed_in["style-0"][:-3000]
    handed_in |= {who: content for who, (content, _) in DAMAGED.items()}
    for who, content in handed_in.items():
        path = root / "submitted" / who / ASSIGNMENT / f"{NOTEBOOK}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    assert grade(root, ASSIGNMENT, n_workers=2).failed == {}
    results = read_results(application(root, "autograde").coursedir, ASSIGNMENT)
    return root, {row.student: row for row in results.rows}, handed_in


def points(row):
    return {name.removeprefix("check-"): score for name, score in row.points.items() if name.startswith("check-")}


FULL = {exercise.name: exercise.out_of for exercise in lessons.exercises_of(ASSIGNMENT)}


def test_every_other_style_gets_everything(course):
    _, rows, _ = course
    styles = [row for who, row in rows.items() if who.startswith("style-")]
    assert len(styles) >= 2 and all(points(row) == FULL for row in styles)


def test_a_correct_answer_that_warns_gets_everything(course):
    assert points(course[1]["warns"]) == FULL


def test_numbers_printed_by_an_answer_are_no_points(course):
    got = points(course[1]["prints-numbers"])
    assert got == {**FULL, **dict.fromkeys(TROUBLE["prints-numbers"], 0)}


def test_a_variable_called_check_costs_no_points(course):
    assert points(course[1]["uses-the-name-check"]) == FULL


def test_extra_credit_is_added_to_the_score_and_not_to_what_can_be_had(course):
    root = course[0]
    extra = next(exercise for exercise in lessons.exercises_of(ASSIGNMENT) if exercise.extra)
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as gradebook:
        grade = gradebook.find_grade(f"check-{extra.name}", NOTEBOOK, ASSIGNMENT, "style-0")
        assert (grade.auto_score, grade.extra_credit, grade.max_score) == (0, extra.out_of, 0)
        submission = gradebook.find_submission(ASSIGNMENT, "style-0")
        assert submission.score == sum(FULL.values())
        written = sum(g.max_score for n in submission.notebooks for g in n.grades if not g.name.startswith("check-"))
        assert submission.max_score == sum(FULL.values()) - extra.out_of + written


def test_extra_credit_is_never_more_than_the_exercise_gives(course):
    assert points(course[1]["too-much-extra"]) == FULL


@pytest.mark.parametrize("who", [*DAMAGED, "truncated"])
def test_a_file_that_cannot_be_read_gets_a_row_with_0_and_the_reason(course, who):
    root, rows, handed_in = course
    reason = DAMAGED[who][1] if who in DAMAGED else "damaged"
    assert points(rows[who]) == dict.fromkeys(FULL, 0) and rows[who].total == 0
    assert None not in rows[who].points.values()  # nothing waits for a person
    assert reason in rows[who].unreadable
    assert (root / "submitted" / who / ASSIGNMENT / f"{NOTEBOOK}.ipynb").read_bytes() == handed_in[who]
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as gradebook:
        comment = gradebook.find_comment("attention_scores", NOTEBOOK, ASSIGNMENT, who)
        assert reason in comment.comment


def test_a_byte_order_mark_costs_nothing(course):
    assert points(course[1]["byte-order-mark"]) == FULL


def test_nbgraders_own_command_gives_the_same_points(course):
    root, rows, _ = course
    again = ("--force", "--student=warns", "--ExecuteOrReplay.keep=False")
    nbgrader(root, "autograde", ASSIGNMENT, *again, log=Log(root / "log"))
    results = read_results(application(root, "autograde").coursedir, ASSIGNMENT)
    assert next(row for row in results.rows if row.student == "warns").points == rows["warns"].points


def test_what_has_not_changed_is_not_graded_again(course):
    root, _, handed_in = course
    path = root / "submitted" / "mistaken" / ASSIGNMENT / f"{NOTEBOOK}.ipynb"
    before = path.read_bytes()
    assert grade(root, ASSIGNMENT).graded == []
    path.write_bytes(handed_in["style-0"])
    try:
        outcome = grade(root, ASSIGNMENT)
        assert (outcome.graded, outcome.executed) == (["mistaken"], [])  # the same cells were executed for style-0
    finally:
        path.write_bytes(before)
        grade(root, ASSIGNMENT)


def test_only_the_students_asked_for_are_graded(course):
    outcome = grade(course[0], ASSIGNMENT, students=["warns"], force=True)
    assert (outcome.graded, outcome.executed) == (["warns"], ["warns"])
    with pytest.raises(CommandError, match="by no-one, nobody"):
        grade(course[0], ASSIGNMENT, students=["no-one", "nobody", "warns"])


def test_no_sandbox_and_no_leave_to_go_without_is_an_error_that_says_what_to_do(monkeypatch):
    monkeypatch.setattr(walls, "why_not", lambda: "user namespaces are switched off")
    how_to_execute.cache_clear()
    try:
        with pytest.raises(CommandError, match=r"user namespaces are switched off.*--unsafe"):
            how_to_execute(False)
        assert how_to_execute(True) == "none"
    finally:
        how_to_execute.cache_clear()


def test_the_config_leaves_the_exchange_to_the_instructor(tmp_path):
    with environment(ATTNCOURSE_EXCHANGE=str(tmp_path)):
        assert application(COURSE, "list").config.Exchange.root == str(tmp_path)
    if "ATTNCOURSE_EXCHANGE" not in os.environ:
        assert "root" not in application(COURSE, "list").config.Exchange


def test_a_command_outside_a_course_says_so(tmp_path):
    with pytest.raises(CommandError, match=re.escape(str(tmp_path))):
        find_course(tmp_path)


def test_nbgraders_complaint_is_the_error(tmp_path):
    with pytest.raises(CommandError, match="No notebooks were matched"):
        nbgrader(tmp_path, "generate_assignment", "a99", log=Log(tmp_path / "log"))
    assert CONFIG_HERE.count("Exchange.root") == 1


# -------------------------------------------------------------------------------------------- nbgrader as others run it


def run(folder, *words):
    """An nbgrader command as a person runs it, in a process of its own: what it printed."""
    here = {name: str(folder / ".settings") for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    (folder / ".settings").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "nbgrader", *words]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **here, "PATH": path}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_nbgrader_with_no_config_of_ours_gives_honest_work_the_same_points(course, tmp_path):
    root, rows, handed_in = course
    shutil.copytree(root / "solutions" / ASSIGNMENT, tmp_path / "source" / ASSIGNMENT)
    for who in ("style-0", "mistaken"):
        folder = tmp_path / "submitted" / who / ASSIGNMENT
        folder.mkdir(parents=True)
        (folder / f"{NOTEBOOK}.ipynb").write_bytes(handed_in[who])
    run(tmp_path, "generate_assignment", ASSIGNMENT)
    run(tmp_path, "autograde", ASSIGNMENT)
    with Gradebook(f"sqlite:///{tmp_path / 'gradebook.db'}") as gradebook:
        for who in ("style-0", "mistaken"):
            for exercise in lessons.exercises_of(ASSIGNMENT):
                grade = gradebook.find_grade(f"check-{exercise.name}", NOTEBOOK, ASSIGNMENT, who)
                expected = 0 if exercise.extra else points(rows[who])[exercise.name]
                assert grade.auto_score == expected, (who, exercise.name)
    assert points(rows["mistaken"])[MISTAKE.name] < MISTAKE.out_of


@pytest.mark.slow
@pytest.mark.parametrize("who", ["style-0", "mistaken"])
def test_validate_says_which_check_fails(course, tmp_path, who):
    (tmp_path / f"{NOTEBOOK}.ipynb").write_bytes(course[2][who])
    said = run(tmp_path, "validate", f"{NOTEBOOK}.ipynb")
    if who == "mistaken":
        assert "FAILED ON 1 CELL" in said and f'check("{MISTAKE.name}"' in said
    else:
        assert "Success" in said
