"""What `attncourse release` gives to students, opened alone."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest

from attncourse_lessons import course as lessons
from attncourse_lessons.cli import main
from commandkit.errors import CommandError
from lessonkit.authoring import release as module
from lessonkit.authoring.checkout import Checkout
from lessonkit.authoring.release import contents, release

ROOT = Path(__file__).parents[2]
COURSE = Checkout(ROOT, lessons)

@pytest.fixture(scope="module")
def released(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release") / "attncourse"
    release(COURSE, folder)
    return folder


def test_it_holds_lectures_assignments_the_package_and_how_to_install_it(released):
    assert {path.name for path in released.iterdir()} == {
        "START.md", "README.md", "Makefile", "LICENSE", "LICENSE-texts", "constraints.txt", "environment.yml",
        "pyproject.toml", "lectures", "assignments", "src", "docs",
    }  # fmt: skip
    for folder in ("lectures", "assignments", "src/attncourse"):
        found = (ROOT / folder).rglob("*.ipynb" if folder != "src/attncourse" else "*.py")
        ours = {path.relative_to(ROOT) for path in found if path.parent.name != ".ipynb_checkpoints"}
        assert ours and {path.relative_to(released) for path in released.rglob("*")} >= ours


def test_it_holds_no_solution_and_no_hidden_text(released):
    assert not list(released.rglob("solutions")) and not list(released.rglob("notebooks"))
    for path in released.rglob("*.ipynb"):
        source = "\n".join(cell.source for cell in nbformat.read(path, 4).cells)
        assert not re.search(r"BEGIN (SOLUTION|HIDDEN|MARK)|Mark scheme", source), path


def test_every_link_of_its_pages_and_notebooks_leads_to_a_file_in_it(released):
    texts = {path: path.read_text(encoding="utf-8") for path in released.glob("*.md")}
    for path in released.rglob("*.ipynb"):
        cells = nbformat.read(path, 4).cells
        texts[path] = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert len(texts) == 32
    for path, text in texts.items():
        for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
            assert (path.parent / link).resolve().is_relative_to(released), link
            assert (path.parent / link).exists(), f"{path.name}: {link}"


def test_opened_alone_its_package_checks_an_answer(released, tmp_path):
    code = """import attncourse
print(attncourse.__file__)
print(attncourse.check("pad_batch", lambda *inputs: inputs[0]).points)"""
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(released / "src")},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    where, points = ran.stdout.splitlines()[0], ran.stdout.splitlines()[-1]
    assert Path(where).is_relative_to(released)
    assert float(points) == 0


def test_the_same_course_gives_the_same_zip(tmp_path):
    for name in ("a.zip", "b.zip"):
        count = release(COURSE, tmp_path / name)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert len(archive.namelist()) == count == len(list(contents(COURSE)))
        assert all(name.startswith("attncourse/") for name in archive.namelist())
        json.loads(archive.read("attncourse/lectures/00_getting_ready.ipynb"))


def test_a_folder_that_holds_something_is_left_as_it_is(tmp_path):
    (tmp_path / "mine").write_text("work")
    with pytest.raises(CommandError, match="is not empty"):
        release(COURSE, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_release_that_breaks_off_leaves_nothing(tmp_path, monkeypatch):
    def broken(*course):
        yield "README.md", b"the first file"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "contents", broken)
    for name in ("bundle", "bundle.zip"):
        with pytest.raises(CommandError, match="No space left on device"):
            release(COURSE, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_notebooks_that_are_not_what_their_source_builds_to_are_not_released(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    problem = Path("assignments/a03/a03_cross_attention.ipynb"), "differs from its generation", "attncourse build a03"
    monkeypatch.setattr(module, "drifts", lambda course, targets: iter([problem]))
    assert main(["release", "--to", str(tmp_path / "out")]) == 1
    assert "mend: attncourse build a03" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
