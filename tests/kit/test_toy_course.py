"""A course on something else than attention goes all the way: build, check, grade, report."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import nbformat
import pytest

TOY = Path(__file__).parent / "toy_course"
KIT = Path(__file__).parents[2] / "src" / "lessonkit"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """The toy course, built."""
    root = tmp_path_factory.mktemp("toy") / "course"
    shutil.copytree(TOY, root, ignore=shutil.ignore_patterns("__pycache__"))
    said = lessonkit(root, "build")
    assert "lectures/00_area.ipynb" in said and "assignments/a00/a00_area.ipynb" in said
    return root


def lessonkit(root, *words, fails=False):
    """What `lessonkit WORDS` prints in the folder `root`, whose packages are installed."""
    return run(root, "-m", "lessonkit.cli", *words, fails=fails)


def run(root, *words, fails=False):
    places = {"PYTHONPATH": str(root / "src"), "LESSONKIT_PROGRESS": "", "IPYTHONDIR": str(root.parent / "ipython")}
    done = subprocess.run([sys.executable, *words], cwd=root, env=os.environ | places, capture_output=True, text=True)
    assert bool(done.returncode) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_built_course_is_what_its_sources_say_and_an_edit_is_found(course, tmp_path):
    assert "every notebook is what its source builds to (sources: 2)" in lessonkit(course, "build", "--check")
    other = shutil.copytree(course, tmp_path / "course")
    source = other / "src/shapes_lessons/l00_area/lecture.py"
    source.write_text(source.read_text().replace("regular(4)", "regular(5)"))
    assert "lectures/00_area.ipynb differs at cell 2" in lessonkit(other, "build", "--check", fails=True)


def test_the_notebooks_have_what_the_build_puts_in(course):
    lecture = nbformat.read(course / "lectures/00_area.ipynb", 4)
    assert "# Lecture 00 · Areas" in lecture.cells[0].source
    assert "[assignment 00](../assignments/a00/a00_area.ipynb)" in lecture.cells[0].source
    assert lecture.cells[1].outputs[0].text == "(1.0, 0.0) → (-0.0, 1.0) → (-1.0, -0.0) → (0.0, -1.0)\n"
    solution, release = (
        "\n".join(cell.source for cell in nbformat.read(course / kind / "a00/a00_area.ipynb", 4).cells)
        for kind in ("solutions", "assignments")
    )
    assert "| 1 | `polygon_area` | ●○○ | 10 | 3 |" in release and "raise NotImplementedError()" in release
    assert "roll(-1)" in solution and "roll(-1)" not in release


def test_a_check_names_the_mistake(course):
    code = (
        "from shapes_lessons import check\n"
        "def wrong(corners):\n    x, y = corners.T\n    return (x * y.roll(-1) - x.roll(-1) * y).sum().abs()\n"
        "print(check('polygon_area', wrong))"
    )
    said = run(course, "-c", code)
    assert "0 of 3 points" in said and "This is what “twice the area” gives." in said


ANSWERS = {
    "right": "x, y = corners.T\nreturn (x * y.roll(-1) - x.roll(-1) * y).sum().abs() / 2",
    "signed": "x, y = corners.T\nreturn (x * y.roll(-1) - x.roll(-1) * y).sum() / 2",
    "cheat": "from shapes.polygons import area\nreturn area(corners)",
}


@pytest.mark.slow
def test_a_class_is_graded_and_reported(course):
    run(course, "-m", "nbgrader", "generate_assignment", "a00", "--force")
    for student, body in ANSWERS.items():
        folder = course / "submitted" / student / "a00"
        folder.mkdir(parents=True)
        notebook = nbformat.read(course / "assignments/a00/a00_area.ipynb", 4)
        cell = next(cell for cell in notebook.cells if "raise NotImplementedError" in cell.source)
        cell.source = re.sub(r" *# Your code here.*", indent(body, "    "), cell.source, flags=re.DOTALL)
        nbformat.write(notebook, folder / "a00_area.ipynb")
    lessonkit(course, "grade", "a00", "--workers=1")
    shown = lessonkit(course, "report", "a00")
    points = dict(re.findall(rf"^({'|'.join(ANSWERS)})\s+(\d+)", shown, re.MULTILINE))
    assert points == {"right": "3", "signed": "2", "cheat": "0"}
    assert "a negative area" in shown and (course / "grading/a00/report.html").is_file()
    kept = [json.loads(path.read_text()) for path in course.glob("grading/a00/executions/*.json")]
    assert len(kept) == 3


def test_the_kit_knows_no_course():
    """It is installed with the course on attention, and that is all it may say of it."""
    said = {
        f"{path.relative_to(KIT)}: {line.strip()}"
        for path in KIT.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"attncourse|\b[Tt]ransformer\b", line)
    }
    assert {line.partition(" ")[0] for line in said} <= {"doctor.py:"}, said
