"""`work/`: a learner's own copies, made when they are first asked for, and never written over."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commandkit.errors import CommandError
from lessonkit.learner import lab, server
from lessonkit.learner.folder import Folder, find_root

COURSE = Path(__file__).parents[2]
GIVEN = json.dumps({"cells": [{"cell_type": "code", "source": "raise NotImplementedError()", "outputs": [],
                               "execution_count": None, "metadata": {"nbgrader": {"solution": True}}}]})  # fmt: skip
NEWER = GIVEN.replace("()", "()  # newer")
TASK, LECTURE = "assignments/a02/a02_lookup.ipynb", "lectures/02_lookup.ipynb"


@pytest.fixture
def folder(tmp_path):
    """A learner's folder in a small course."""
    root = tmp_path / "course"
    given = {"START.md": "# Start", "docs/notation.md": "letters", LECTURE: "{}", TASK: GIVEN,
             "assignments/a02/data.txt": "1 2 3", "nbgrader_config.py": "", ".hidden/x": ""}  # fmt: skip
    for name, text in given.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    made = Folder(root)
    made.prepare()
    return made


def text(folder, path):
    return (folder.work / path).read_text()


def test_it_begins_with_the_start_page_alone(folder):
    assert sorted(path.name for path in folder.work.iterdir()) == [".given.json", "START.md"]


def test_a_notebook_is_copied_when_it_is_first_asked_for_with_what_lies_beside_it(folder):
    assert folder.give(TASK) and text(folder, TASK) == GIVEN and text(folder, "assignments/a02/data.txt") == "1 2 3"
    assert not folder.give(TASK) and not (folder.work / LECTURE).exists()


def test_what_a_learner_wrote_is_never_written_over(folder):
    folder.give(TASK)
    (folder.work / TASK).write_text("my answer")
    (folder.root / TASK).write_text(NEWER)
    assert not folder.give(TASK)
    folder.prepare()
    assert text(folder, TASK) == "my answer"


def test_what_a_learner_left_as_it_was_given_follows_the_course(folder):
    folder.give(TASK)
    (folder.root / TASK).write_text(NEWER)
    assert folder.give(TASK) and text(folder, TASK) == NEWER


@pytest.mark.parametrize("mine", [GIVEN.replace("raise NotImplementedError()", "return 3"),
                                  GIVEN.replace("null", "1"), "no notebook"])  # fmt: skip
def test_work_that_was_done_in_the_courses_own_notebook_is_the_learners(folder, mine):
    (folder.root / TASK).write_text(mine)
    folder.give(TASK)
    (folder.root / TASK).write_text(GIVEN)  # git checkout, or generate_assignment --force
    assert not folder.give(TASK) and text(folder, TASK) == mine


def test_a_file_of_the_learners_own_at_a_notebooks_place_stays(folder):
    (folder.work / "lectures").mkdir()
    (folder.work / LECTURE).write_text("mine")
    assert not folder.give(LECTURE) and text(folder, LECTURE) == "mine"


NOT_GIVEN = ["nbgrader_config.py", "../x", "/etc/passwd", "lectures/../../x", "", "work/x", "lectures/none.ipynb",
             "lectures", ".hidden/x", "solutions/a02/a02.ipynb"]  # fmt: skip


@pytest.mark.parametrize("path", NOT_GIVEN)
def test_nothing_else_is_copied(folder, path):
    before = sorted(folder.work.rglob("*"))
    assert not folder.give(path) and sorted(folder.work.rglob("*")) == before


def test_reset_keeps_what_was_there(folder):
    folder.give(TASK)
    (folder.work / TASK).write_text("my answer")
    fresh, kept = folder.reset("a02")
    assert fresh.read_text() == GIVEN and kept.read_text() == "my answer" and kept.parent.name == "backup"
    (folder.work / TASK).write_text("another")
    _, second = folder.reset("a02")  # within the same second
    assert second != kept and kept.read_text() == "my answer" and second.read_text() == "another"
    assert folder.reset("a02") == (folder.work / TASK, None)
    assert folder.reset("02")[0].name == "02_lookup.ipynb"
    with pytest.raises(CommandError, match="there is no 'a99' here; there are a02"):
        folder.reset("a99")


def test_the_course_is_found_from_below_and_a_learners_folder_is_none(folder, tmp_path):
    folder.give(TASK)
    folder.give(LECTURE)
    assert find_root(folder.work / "lectures") == find_root(folder.root) == folder.root.resolve()
    with pytest.raises(CommandError, match="there is no course in"):
        find_root(tmp_path)
    assert Folder.at(folder.work).root == folder.root and Folder.at(folder.root) is None


def test_a_place_that_cannot_be_written_to_is_told_in_a_line(tmp_path):
    (tmp_path / "work").write_text("a file")
    with pytest.raises(CommandError, match="work: cannot be written"):
        Folder(tmp_path).prepare()


def test_jupyters_files_come_when_they_are_asked_for(folder):
    from lessonkit.learner.server import Contents

    contents = Contents(root_dir=str(folder.work))
    assert asyncio.run(contents.file_exists(LECTURE)) and (folder.work / LECTURE).is_file()
    (folder.work / TASK).parent.mkdir(parents=True)
    assert asyncio.run(contents.get(TASK, type="file"))["content"] == GIVEN
    elsewhere = Contents(root_dir=str(folder.root / "docs"))
    assert not asyncio.run(elsewhere.file_exists(TASK))


def test_lab_starts_in_the_learners_folder(folder, monkeypatch):
    called = {}

    def call(words, **rest):
        called.update(rest, words=words)
        return 3

    monkeypatch.chdir(folder.work)
    monkeypatch.setenv("LESSONKIT_COURSE", "attncourse_lessons")
    monkeypatch.setattr(lab.subprocess, "call", call)
    namespace = type("Args", (), {"passed_on": ["--no-browser"]})
    assert lab.main(namespace) == 3 and called["cwd"] == folder.work and called["words"][-1] == "--no-browser"
    assert f"--ServerApp.root_dir={folder.work}" in called["words"]
    assert called["env"]["LESSONKIT_COURSE"] == "attncourse_lessons"


def test_reset_in_a_terminal_says_where_things_are(folder):
    folder.give(TASK)
    (folder.work / TASK).write_text("my answer")
    done = subprocess.run([sys.executable, "-m", "attncourse_lessons.cli", "reset", "a02"], cwd=folder.work,
                          capture_output=True, text=True)  # fmt: skip
    fresh, kept = done.stdout.splitlines()
    assert fresh == "work/assignments/a02/a02_lookup.ipynb is as it was given."
    assert kept.startswith("What you had is in work/backup/a02_lookup_") and done.stderr == ""


def test_a_tree_in_which_somebody_has_studied_is_clean_to_git(tmp_path):
    root = tmp_path / "clone"
    for name in ("START.md", ".gitignore"):
        root.mkdir(exist_ok=True)
        shutil.copy(COURSE / name, root / name)
    for name in ("assignments/a03", "lectures"):
        (root / name).mkdir(parents=True)
    shutil.copytree(COURSE / "assignments/a03", root / "assignments/a03", dirs_exist_ok=True)
    git = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@y",
           "GIT_COMMITTER_NAME": "x", "GIT_COMMITTER_EMAIL": "x@y"}  # fmt: skip
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "a course"]):
        subprocess.run(["git", *words], cwd=root, env=git, check=True)
    folder = Folder(root)
    folder.prepare()
    folder.give("assignments/a03/a03_cross_attention.ipynb")
    notebook = folder.work / "assignments/a03/a03_cross_attention.ipynb"
    cells = json.loads(notebook.read_text())
    cells["cells"][0]["source"] = "mine"
    notebook.write_text(json.dumps(cells))
    changed = subprocess.run(["git", "status", "--short"], cwd=root, env=git, capture_output=True, text=True)
    assert changed.stdout == ""


@pytest.mark.parametrize("hands_out", [False, True])
def test_jupyterlab_has_no_teachers_tools_and_lists_assignments_where_an_exchange_is(tmp_path, monkeypatch, hands_out):
    exchange = tmp_path / "exchange"
    (tmp_path / "nbgrader_config.py").write_text(f"c.Exchange.root = {str(exchange)!r}")
    monkeypatch.chdir(tmp_path)
    if hands_out:
        exchange.mkdir()
    page = server.learners_page({"disabledExtensions": ["another"], "theme": "dark"})
    hidden = [name.partition(":")[2] for name in page.pop("disabledExtensions")[1:]]
    of_the_exchange = [] if hands_out else ["menu", "assignment-list"]
    assert hidden == ["formgrader", "course-list", "create-assignment", *of_the_exchange]
    assert page == {"lessonkitStart": "START.md", "theme": "dark"}


def test_nbgraders_extension_has_the_plugins_that_a_learner_does_not_get():
    package = next(Path(sys.prefix).glob("share/jupyter/labextensions/@jupyter/nbgrader/static"))
    scripts = "".join(file.read_text(encoding="utf-8") for file in package.glob("*.js"))
    assert {*server.FOR_TEACHERS, *server.OF_AN_EXCHANGE} <= {*re.findall(r"@jupyter/nbgrader:([a-z-]+)", scripts)}
