"""What `attncourse export` makes for Gradescope and GitHub: its format, its scripts, and what a submission can reach.

The scripts run in a folder like the one that each place makes, with one shortcut: instead of an environment of its own,
`setup.sh` finds one that runs the tests' Python. What installs from a network is not tested here.
"""

import base64
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import jsonschema
import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_notebook

from attncourse_lessons import course as lessons
from attncourse_lessons.cli import main
from commandkit.errors import CommandError
from lessonkit.grading.engine import pool
from lessonkit.grading.export import results, run
from lessonkit.grading.export.bundle import opened
from lessonkit.grading.export.command import export
from lessonkit.grading.export.one import Graded, Line, found_in, grade_one, how_here
from lessonkit.grading.repair.reading import Unreadable
from lessonkit.grading.submission.answers import answer, solutions

COURSE = Path(__file__).parents[2]
ASSIGNMENT, NOTEBOOK = "a03", "a03_cross_attention.ipynb"
WRONG = lessons.exercise("attention_distribution").misconceptions[0]
POINTS = sum(exercise.out_of for exercise in lessons.exercises_of(ASSIGNMENT) if not exercise.extra)
EXTRA = sum(exercise.out_of for exercise in lessons.exercises_of(ASSIGNMENT) if exercise.extra)
LOST = sum(a.points for a in lessons.exercise("attention_distribution").aspects if a.name in WRONG.fails)

# https://gradescope-autograders.readthedocs.io/en/latest/specs/: "Output format" and the three sections below it.
FORMAT = {"enum": ["text", "simple_format", "html", "md", "ansi"]}
VISIBILITY = {"enum": ["hidden", "after_due_date", "after_published", "visible"]}
TEST = {
    "score": {"type": "number"},
    "max_score": {"type": "number"},
    "status": {"enum": ["passed", "failed"]},
    "name": {"type": "string"},
    "name_format": FORMAT,
    "number": {"type": "string"},
    "output": {"type": "string"},
    "output_format": FORMAT,
    "tags": {"type": "array", "items": {"type": "string"}},
    "visibility": VISIBILITY,
    "extra_data": {"type": "object"},
}
PLACE = {"name": {"type": "string"}, "value": {"type": ["number", "string"]}, "order": {"enum": ["asc", "desc"]}}
GRADESCOPE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["score", "tests"],
    "properties": {
        "score": {"type": "number"},
        "execution_time": {"type": "number"},
        "output": {"type": "string"},
        "output_format": FORMAT,
        "test_output_format": FORMAT,
        "test_name_format": FORMAT,
        "visibility": VISIBILITY,
        "stdout_visibility": VISIBILITY,
        "extra_data": {"type": "object"},
        "tests": {"type": "array", "items": {"type": "object", "additionalProperties": False, "properties": TEST}},
        "leaderboard": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name", "value"],
                "properties": PLACE,
            },
        },
    },
}
# The output of GitHub's runners (autograding-command-grader) as their reporter reads it.
RUNNER_TEST = {"name": "string", "status": "string", "score": "number", "message": "string", "test_code": "string",
               "filename": "string", "line_no": "integer", "duration": "number"}  # fmt: skip
RUNNER = {
    "type": "object",
    "required": ["version", "status", "max_score", "tests"],
    "properties": {
        "version": {"const": 1},
        "status": {"enum": ["pass", "fail", "error"]},
        "max_score": {"type": "number"},
        "tests": {
            "type": "array",
            "items": {
                "required": ["name", "status", "score"],
                "properties": {name: {"type": kind} for name, kind in RUNNER_TEST.items()},
            },
        },
    },
}
# https://github.com/foundation50/classroom50/wiki/Advanced-Autograding: "The result.json contract".
CLASSROOM50_TEXTS = ("classroom", "assignment", "submission", "commit", "release", "review", "datetime")
CLASSROOM50 = {
    "type": "object",
    "required": ["schema", *CLASSROOM50_TEXTS, "score", "max-score", "tests"],
    "properties": {
        "schema": {"const": "classroom50/result/v1"},
        **{name: {"type": "string"} for name in CLASSROOM50_TEXTS},
        "score": {"type": "integer"},
        "max-score": {"type": "integer"},
        "tests": {
            "type": "array",
            "items": {
                "required": ["test-name", "passed", "score", "max-score"],
                "properties": {
                    "test-name": {"type": "string"},
                    "passed": {"type": "boolean"},
                    "score": {"type": "integer"},
                    "max-score": {"type": "integer"},
                },
            },
        },
    },
}


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course's folder as far as an export needs one: it keeps a secret there."""
    root = tmp_path_factory.mktemp("course")
    for name in ("nbgrader_config.py", "constraints.txt", "pyproject.toml", "assignments/a03"):
        (shutil.copytree if (COURSE / name).is_dir() else shutil.copy)(COURSE / name, root / name)
    return root


@pytest.fixture(scope="module")
def bundle(course, tmp_path_factory):
    """What the zip for Gradescope holds."""
    path = export(course, "gradescope", ASSIGNMENT, tmp_path_factory.mktemp("zip") / "autograder.zip")
    folder = tmp_path_factory.mktemp("bundle")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def _no_worker_stays():
    yield
    pool.end()


def submission(**answers):
    """A student's notebook: the solutions, with these answers in their place."""
    source = nbformat.read(COURSE / f"solutions/{ASSIGNMENT}/{NOTEBOOK}", as_version=4)
    release = nbformat.read(COURSE / f"assignments/{ASSIGNMENT}/{NOTEBOOK}", as_version=4)
    return answer(source, release, {**solutions(source), **answers})


def hand_in(notebook, folder, name=NOTEBOOK):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(nbformat.writes(notebook), encoding="utf-8")
    return folder


def environment_beside(bundle):
    """The shortcut: what `setup.sh` would install is there, and it is the tests' own."""
    python = bundle.parent / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (bundle.parent / "venv/installed").touch()


def call(*command, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "GITHUB"))}
    return subprocess.run(command, env=environment | variables, capture_output=True, text=True, timeout=300)


def by_exercise(tests, name):
    return [test for test in tests if test["name"].startswith(f"{name}: ")]


# ---------------------------------------------------------------------------------------------------------- Gradescope


def test_gradescopes_scripts_grade_a_wrong_answer_by_aspect_in_the_words_of_the_card(bundle, tmp_path):
    root = tmp_path / "autograder"
    shutil.copytree(bundle, root / "source")
    shutil.copy(root / "source/run_autograder", root / "run_autograder")
    environment_beside(root / "source")
    hand_in(submission(attention_distribution=WRONG.body), root / "submission")
    (root / "submission/torch.py").write_text("raise SystemExit('the submission ran in the grader')")
    where = {"AUTOGRADER_ROOT": str(root)}
    assert call("bash", root / "source/setup.sh", **where).returncode == 0
    ran = call("bash", root / "run_autograder", **where)
    assert ran.returncode == 0, ran.stderr
    found = json.loads((root / "results/results.json").read_text())
    jsonschema.validate(found, GRADESCOPE)
    assert found["score"] == sum(test["score"] for test in found["tests"]) == POINTS + EXTRA - LOST
    assert sum(test["max_score"] for test in found["tests"]) == POINTS
    wrong = [test["name"] for test in found["tests"] if test["status"] == "failed"]
    assert wrong == [f"attention_distribution: {name}" for name in WRONG.fails]
    told = next(test for test in found["tests"] if test["name"] == wrong[0])
    assert f"This is what “{WRONG.name}” gives. {WRONG.hint}" in told["output"]
    assert {test["output_format"] for test in found["tests"]} == {found["output_format"]} == {"text"}


def test_the_zip_has_its_scripts_at_its_root_and_no_solution(course, tmp_path):
    path = export(course, "gradescope", ASSIGNMENT, tmp_path / "a.zip")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        assert {"setup.sh", "run_autograder", "autograder.json", "assignment.ipynb", "requirements.txt"} <= {*names}
        assert archive.getinfo("run_autograder").external_attr >> 16 & 0o111
        assert archive.read("run_autograder").startswith(b"#!/usr/bin/env bash\n")
        wanted = archive.read("requirements.txt").decode().split()
        assert "torch>=2.13" in wanted and "nbgrader==0.9.6" in wanted
    assert len({*names}) == len(names)
    assert not [name for name in names if "solutions/" in name or name.endswith(("assignment.py", "lecture.py"))]
    again = export(course, "gradescope", ASSIGNMENT, tmp_path / "b.zip")
    assert again.read_bytes() == path.read_bytes(), "made again, it must give the same marks"


def test_what_a_submission_says_of_itself_is_shown_as_text():
    line = Line("x", "shape", False, 1.0, False, "raised ValueError: <img src=//evil> ![](//evil)\n::error::forged")
    graded = Graded("a03", (line,), {}, problem="<b>evil.ipynb</b>: no")
    found = results.gradescope(graded, "after_published")
    jsonschema.validate(found, GRADESCOPE)
    assert found["output_format"] == found["tests"][0]["output_format"] == found["tests"][0]["name_format"] == "text"
    assert found["visibility"] == found["tests"][0]["visibility"] == "after_published"
    log = results.log(graded)
    token = log.splitlines()[0].removeprefix("::stop-commands::")
    orders = log.partition(f"\n::{token}::\n")
    assert "::error::forged" in orders[0] and orders[2].startswith("::notice ") and "forged" not in orders[2]
    assert "<img" not in results.summary(graded) and "![](" not in results.summary(graded)


# --------------------------------------------------------------------------------------------- grading one, in walls


def test_each_submission_has_seeds_of_its_own_and_the_same_again(bundle):
    settings, _ = opened(bundle)
    assert settings.seeds("one") == settings.seeds("one") != settings.seeds("two")
    assert settings.seeds("one") != dataclasses.replace(settings, secret="00" * 32).seeds("one")
    assert {len(seeds) for seeds in settings.seeds("one").values()} == {3}


def test_a_notebook_that_was_renamed_and_whose_checks_were_edited_gets_what_its_answers_earn(bundle, tmp_path):
    notebook = submission(attention_output="raise NotImplementedError()")
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade") and cell.cell_type == "code":
            cell.source = "print('all right')"
            cell.metadata.nbgrader.points = 1000
    settings, released = opened(bundle)
    graded = grade_one(settings, released, hand_in(notebook, tmp_path, "mine (2).ipynb"), how_here())
    lost = lessons.exercise("attention_output").out_of
    assert (graded.points, graded.out_of) == (POINTS + EXTRA - lost, POINTS)
    assert any("other metadata" in repair for repair in graded.repairs)
    assert graded.by_hand and "words" in results.gradescope(graded, "visible")["output"]


LINES = """
import os, stat
lines = []  # to the worker: its own, and no other's
for number in range(3, 60):
    try:
        lines += [number] * (stat.S_IFMT(os.fstat(number).st_mode) in (stat.S_IFSOCK, stat.S_IFIFO))
    except OSError:
        pass
""".strip()
HOSTILE = """
import json, os, socket, subprocess
told = []
def tell(what, attempt):
    try:
        attempt()
    except OSError as error:
        return
    told.append(what)
tell("wrote results", lambda: open({results!r}, "w").write(json.dumps({{"score": 1000, "tests": []}})))
tell("read the settings", lambda: open({bundle!r} + "/autograder.json").read())
tell("read the answers", lambda: os.listdir({bundle!r} + "/src"))
tell("a connection", lambda: socket.socket().connect(("127.0.0.1", {port})))
{lines}
if len(lines) > 1:
    told.append("more lines than its own")
subprocess.Popen(["sleep", "98765"], start_new_session=True)
raise RuntimeError(f"told {{told}}, {{os.getuid()}}, {{0 in os.getgroups()}}")
""".strip()


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="to be another user takes root")
@pytest.mark.parametrize("how", ["bubblewrap", "user"])
def test_a_submission_writes_no_points_reads_no_answers_and_leaves_nothing_behind(bundle, tmp_path, how):
    if how == "bubblewrap" and how_here() != how:
        pytest.skip("there are no namespaces here")
    for folder in [tmp_path, *tmp_path.parents][:4]:
        folder.chmod(0o755)  # pytest's are private: as open as a container's
    results = tmp_path / "results"
    results.mkdir(mode=0o700)
    bundle.chmod(0o700)  # as run_autograder does
    settings, released = opened(bundle)
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = HOSTILE.format(results=str(results / "r.json"), bundle=str(bundle), port=server.getsockname()[1],
                              lines=LINES)  # fmt: skip
        attack = hand_in(submission(attention_scores=code), tmp_path / "attack")
        graded = grade_one(settings, released, attack, how)
    lost = lessons.exercise("attention_scores").out_of
    assert (graded.points, graded.sandbox) == (POINTS + EXTRA - lost, how)
    words = {line.words.partition("  (")[0] for line in graded.lines if not line.ok}
    assert words == {"raised RuntimeError: told [], 1000, False"} and not any(results.iterdir())
    assert "sleep 98765" not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    again = grade_one(settings, released, hand_in(submission(), tmp_path / "honest"), how)
    assert again.points == POINTS + EXTRA  # by the same worker


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere submissions run in Jupyter kernels")
def test_without_a_sandbox_too_a_submission_holds_no_line_but_its_own(bundle, tmp_path):
    code = LINES + "\nraise RuntimeError(len(lines))"
    graded = grade_one(*opened(bundle), hand_in(submission(attention_scores=code), tmp_path), "none")
    assert {line.words.partition("  (")[0] for line in graded.lines if not line.ok} == {"raised RuntimeError: 1"}


def test_without_a_sandbox_and_without_root_nothing_is_graded(monkeypatch):
    monkeypatch.setattr("lessonkit.grading.sandbox.linux.why_not", lambda: "no namespaces")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CommandError, match="no namespaces"):
        how_here()


@pytest.mark.parametrize(
    "names, says",
    [
        ([], "there is no notebook"),
        (["notes.ipynb"], "holds none of the cells"),
        (["one.ipynb", "two.ipynb"], "there are 2 notebooks"),
        ([".ipynb_checkpoints/" + NOTEBOOK], "there is no notebook"),
    ],
)
def test_what_holds_no_notebook_to_grade_has_no_points_and_says_why(bundle, tmp_path, names, says):
    for name in names:
        other = new_notebook(cells=[new_code_cell("1", id="a")])
        path = tmp_path / name
        hand_in(other if name == "notes.ipynb" else submission(), path.parent, path.name)
    settings, released = opened(bundle)
    with pytest.raises(Unreadable, match=says):
        found_in(tmp_path, NOTEBOOK, released)
    graded = grade_one(settings, released, tmp_path, "bubblewrap")  # which it does not need
    assert graded.points == 0 and says in results.gradescope(graded, "visible")["output"] and not graded.complete


def test_a_link_to_another_file_is_no_submission(bundle, tmp_path):
    (tmp_path / NOTEBOOK).symlink_to(bundle / "assignment.ipynb")
    with pytest.raises(Unreadable, match="there is no notebook"):
        found_in(tmp_path, NOTEBOOK, opened(bundle)[1])


# -------------------------------------------------------------------------------------------------------------- GitHub


@pytest.fixture(scope="module")
def repository(course, tmp_path_factory):
    """What a student's repository begins with."""
    folder = export(course, "github-classroom", ASSIGNMENT, tmp_path_factory.mktemp("github") / "repository")
    environment_beside(folder / ".github/autograder")
    return folder


def checked(repository, tmp_path, notebook):
    """(Exit status, what is printed, what the step puts out) of the workflow's command."""
    repository = hand_in(notebook, shutil.copytree(repository, tmp_path / "repository"))
    output, summary = tmp_path / "output", tmp_path / "summary"
    steps = yaml.safe_load((repository / ".github/workflows/classroom.yml").read_text())["jobs"]
    command = steps["run-autograding-tests"]["steps"][-1]["run"].partition("bash ")[2]
    assert call("bash", repository / ".github/autograder/setup.sh").returncode == 0
    ran = call("bash", "-c", f'cd "{repository}" && bash {command}', GITHUB_OUTPUT=str(output),
               GITHUB_STEP_SUMMARY=str(summary))  # fmt: skip
    assert ran.returncode in (0, 1), ran.stderr
    encoded = output.read_text().removeprefix("result=")
    assert encoded.count("\n") == 1
    result = json.loads(base64.b64decode(encoded))
    jsonschema.validate(result, RUNNER)
    return ran.returncode, ran.stdout, result, summary.read_text()


def test_on_github_a_wrong_answer_gets_the_points_of_its_right_aspects_and_the_run_fails(repository, tmp_path):
    wrong = submission(attention_distribution=WRONG.body)
    status, said, result, summary = checked(repository, tmp_path, wrong)
    assert status == 1 and result["status"] == "fail" and result["max_score"] == POINTS
    assert sum(test["score"] for test in result["tests"]) == POINTS + EXTRA - LOST
    failed = [test["name"] for test in result["tests"] if test["status"] == "fail"]
    assert failed == [f"attention_distribution: {name}" for name in WRONG.fails]
    told = f"a03: {POINTS - LOST:g} of {POINTS:g} points by checks, {EXTRA:g} extra"
    assert f"::notice title=Autograding complete::{told}" in said and told in summary and WRONG.name in summary


@pytest.mark.slow
def test_on_github_a_right_notebook_gets_all_points_and_the_run_passes(repository, tmp_path):
    status, _, result, _ = checked(repository, tmp_path, submission())
    assert status == 0 and result["status"] == "pass"
    assert sum(test["score"] for test in result["tests"]) == POINTS + EXTRA


def test_the_workflow_is_one_of_github_actions_and_runs_what_is_there(repository):
    # https://docs.github.com/actions/writing-workflows/workflow-syntax-for-github-actions
    step = {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: {} for name in ("name", "id", "uses", "run", "with", "env", "if")},
        "oneOf": [{"required": ["uses"]}, {"required": ["run"]}],
    }
    job = {
        "type": "object",
        "required": ["runs-on", "steps"],
        "additionalProperties": False,
        "properties": {
            "runs-on": {"const": "ubuntu-latest"},
            "if": {"type": "string"},
            "timeout-minutes": {"type": "integer"},
            "steps": {"type": "array", "items": step},
        },
    }
    # YAML 1.1 reads the key `on` as true.
    workflow = yaml.safe_load((repository / ".github/workflows/classroom.yml").read_text().replace("\non:", '\n"on":'))
    jsonschema.validate(
        workflow,
        {
            "type": "object",
            "required": ["name", "on", "permissions", "jobs"],
            "additionalProperties": False,
            "properties": {
                "name": {"const": "Autograding Tests"},
                "on": {"items": {"enum": ["push", "workflow_dispatch", "repository_dispatch"]}},
                "permissions": {"const": {"contents": "read"}},
                "jobs": {"type": "object", "additionalProperties": job},
            },
        },
    )
    (job,) = workflow["jobs"].values()
    scripts = [word for each in job["steps"] for word in each.get("run", "").split() if word.startswith(".github/")]
    assert scripts == [".github/autograder/setup.sh", ".github/autograder/check"]
    assert all((repository / script).is_file() for script in scripts)
    assert (repository / NOTEBOOK).read_bytes() == (COURSE / f"assignments/{ASSIGNMENT}/{NOTEBOOK}").read_bytes()


def test_classroom_50_counts_in_whole_points(course, tmp_path):
    folder = export(course, "classroom50", ASSIGNMENT, tmp_path / "autograders/a03")
    compile((folder / "autograder.py").read_text(), "autograder.py", "exec")
    lines = (Line("x", "one", True, 1.5, False, "right"), Line("x", "two", False, 1.0, False, "wrong"))
    variables = {"CLASSROOM": "nlp", "ASSIGNMENT": "a03", "SUBMISSION_TAG": "submit/1", "COMMIT_URL": "https://x/1",
                 "RELEASE_URL": "https://x/2"}  # fmt: skip
    found = results.classroom50(Graded("a03", lines, {}), variables)
    jsonschema.validate(found, CLASSROOM50)
    assert (found["score"], found["max-score"]) == (3, 5) and found["review"] == found["commit"]
    extra = (Line("x", "one", True, 1.0, False, ""), Line("y", "two", True, 2.0, True, ""))
    found = results.classroom50(Graded("a03", extra, {}), variables)
    assert (found["score"], found["max-score"]) == (3, 1)


# -------------------------------------------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    "words, says",
    [
        (["gradescope", "a99"], "there is no assignment 'a99'. The assignments are: a00"),
        (["gradescope", "a04"], "a04_self_attention.ipynb is missing: run `nbgrader generate_assignment a04 --force`"),
        (["github-classroom", "a03", "--to", "assignments"], "assignments is a folder that is not empty"),
        (["gradescope", "a03", "--to", "nbgrader_config.py/x.zip"], "cannot be written"),
    ],
)
def test_what_cannot_be_exported_is_said_in_a_line(course, monkeypatch, capsys, words, says):
    monkeypatch.chdir(course)
    assert main(["export", *words]) == 1
    told = capsys.readouterr().err
    assert says in told and told.startswith("error: ") and len(told.splitlines()) == 1


def test_a_folder_that_is_no_bundle_grades_nothing(tmp_path, capsys):
    assert run.main(["gradescope", str(tmp_path), str(tmp_path), str(tmp_path / "results.json")]) == 2
    assert "holds no autograder" in capsys.readouterr().err and not (tmp_path / "results.json").exists()
