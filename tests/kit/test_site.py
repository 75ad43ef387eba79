"""The web book: its sources keep their links and fold answers, its faults are named, and half a site is never left."""

import base64
import hashlib
import io
import os
import shutil
import sys
import tarfile
from pathlib import Path
from urllib.error import URLError

import pytest

pytest.importorskip("myst_nb", reason="the extra 'site' is not installed")

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from attncourse_lessons import course as lessons
from commandkit.errors import CommandError
from lessonkit.authoring.checkout import Checkout
from lessonkit.authoring.site import check, command, formulas, npm
from lessonkit.authoring.site.extension import plain
from lessonkit.authoring.site.sources import BrokenLink, Sources, boxes, fold
from lessonkit.course import Course
from lessonkit.mimetype import VERDICT

ROOT = Path(__file__).resolve().parents[2]
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PYTHON = {"language_info": {"name": "python", "pygments_lexer": "ipython3"}}
WIDGETS = "application/vnd.jupyter.widget-state+json"


class OneLesson(Course):
    """The course in the fixture's folder; its lesson has the exercises of a00."""

    def __init__(self, root):
        super().__init__("toy_lessons", library=("attncourse",), widgets=("attncourse", "viz/live_widget.js"))
        self.folder = root / "src/toy_lessons"

    def exercises_of(self, assignment):
        return lessons.exercises_of(assignment)


@pytest.fixture
def course(tmp_path):
    """A course of one lecture, its assignment and its solution."""
    root = tmp_path / "course"
    lecture = new_notebook(
        cells=[
            new_markdown_cell("# Lecture 00 · A lookup\n\n*About 45 minutes.* [It](../assignments/a00/a00_x.ipynb)"),
            new_markdown_cell("> **On the slide.** Two.\n\n> **Check yourself.** $x$?\n> <details>$y$</details>"),
            new_code_cell(
                "show()",
                outputs=[
                    new_output(
                        "display_data",
                        {
                            "image/png": DOT,
                            "text/plain": "A blue dot.",
                            "application/vnd.jupyter.widget-view+json": {"model_id": "abc"},
                            VERDICT: {"points": 1},
                        },
                        metadata={"image/png": {"width": 10, "height": 10}},
                    )
                ],
            ),
            new_code_cell("assert True", metadata={"tags": ["hide-input"]}),
        ],
        metadata=PYTHON | {"widgets": {WIDGETS: {"state": {"abc": {"model_name": "AnyModel", "state": {}}}}}},
    )
    write(root / "lectures/00_x.ipynb", nbformat.writes(lecture))
    write(root / "solutions/a00/a00_x.ipynb", nbformat.writes(solution()))
    task = new_markdown_cell("# Assignment 00 · It\n\n| | a question to answer in words | ●○○ | 10 | 3 |")
    write(root / "assignments/a00/a00_x.ipynb", nbformat.writes(new_notebook(cells=[task])))
    write(root / "src/attncourse/attention.py", "")
    write(root / "src/attncourse/cli.py", "")
    write(root / "src/toy_lessons/l00_x/__init__.py", '"""Where is it?"""')
    write(root / "README.md", "# Course\n")
    write(root / "START.md", "# Start\n")
    write(root / "CONTRIBUTING.md", "# Contributing\n")
    write(root / "docs/grading.md", "# Grading\n\n## A day\n")
    pages = "lectures/*\nassignments\ndocs/*\nCONTRIBUTING\napi/index"
    write(root / "docs/index.md", f"# The course\n\n```{{toctree}}\n:glob:\n{pages}\n```\n")
    modules = ".. autosummary::\n   :toctree:\n\n   lessonkit.mimetype"
    write(root / "docs/api/index.md", f"# API\n\n```{{eval-rst}}\n{modules}\n```\n")
    for name in ("conf.py", "_static", "_templates"):
        source, copy = ROOT / "docs" / name, root / "docs" / name
        shutil.copytree(source, copy) if source.is_dir() else shutil.copyfile(source, copy)
    return root


def solution():
    check_cell = 'check("f", f)\n### BEGIN HIDDEN TESTS\ncheck("f", f, seeds=(7,))\n### END HIDDEN TESTS'
    answer = "def f():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION"
    return new_notebook(
        cells=[
            new_markdown_cell("# Assignment 00 · It\n\nBegin."),
            new_code_cell(answer, metadata={"nbgrader": {"solution": True}}),
            new_code_cell(check_cell, metadata={"nbgrader": {"solution": False}}),
            new_markdown_cell(
                "### BEGIN SOLUTION\nBecause $1$.\n### END SOLUTION", metadata={"nbgrader": {"solution": True}}
            ),
        ],
        metadata=PYTHON,
    )


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


# Sources


@pytest.mark.parametrize(
    ("page", "link", "leads_to"),
    [
        ("lectures/00_x.ipynb", "00_x.ipynb", "00_x.ipynb"),
        ("lectures/00_x.ipynb", "../docs/grading.md#a-day", "../docs/grading.md#a-day"),
        ("lectures/00_x.ipynb", "../assignments/a00/a00_x.ipynb", "../assignments/a00.ipynb"),
        ("lectures/00_x.ipynb", "../README.md#for-students", "../index.md"),
        ("docs/grading.md", "../START.md", "../assignments.md"),
        ("docs/index.md", "grading.md", "docs/grading.md"),
        ("docs/index.md", "../lectures/00_x.ipynb", "lectures/00_x.ipynb"),
        ("docs/index.md", "https://example.org/x.md", "https://example.org/x.md"),
        ("docs/index.md", "#here", "#here"),
    ],
)
def test_a_link_leads_to_where_the_site_has_its_target(course, tmp_path, page, link, leads_to):
    sources = Sources(course, tmp_path / "to", OneLesson(course))
    assert sources.relink(f"see [it]({link}).", page) == f"see [it]({leads_to})."


def test_a_modules_source_becomes_its_page_of_the_reference_if_it_has_one(course, tmp_path):
    write(course / "docs/api/index.md", "   attncourse.attention\n")
    sources = Sources(course, tmp_path / "to", OneLesson(course))
    linked = sources.relink("[a](../src/attncourse/attention.py) [b](../src/attncourse/cli.py)", "docs/grading.md")
    assert linked == "[a](../api/attncourse.attention.rst) [b](../src/attncourse/cli.py)"
    assert (tmp_path / "to/src/attncourse/cli.py").is_file()  # to be downloaded
    assert not (tmp_path / "to/src/attncourse/attention.py").exists()


@pytest.mark.parametrize("target", ["gone.md", "../lectures", "../../elsewhere.md"])
def test_a_link_to_no_file_of_the_course_is_refused_with_page_and_target(course, tmp_path, target):
    write(tmp_path / "elsewhere.md", "")
    with pytest.raises(BrokenLink, match=rf"docs/grading.md: a link to {target}, "):
        Sources(course, tmp_path / "to", OneLesson(course)).relink(f"[x]({target})", "docs/grading.md")


def test_what_looks_like_a_link_in_code_is_left_alone(course, tmp_path):
    text = "`heads[0](gone.md)`\n\n```\nheads[0](gone.md)\n```\n"
    assert Sources(course, tmp_path / "to", OneLesson(course)).relink(text, "docs/grading.md") == text


def test_a_link_to_a_notebook_in_an_output_leads_to_its_page(course, tmp_path):
    path = course / "lectures/00_x.ipynb"
    notebook = nbformat.read(path, 4)
    html = '<a href="05_y.ipynb" title="y">y</a> <a href="05_y.ipynb#z">z</a> <a href="https://x.org/a.ipynb">a</a>'
    output = nbformat.v4.new_output("display_data", {"text/html": html})
    notebook.cells.append(new_code_cell("show()", outputs=[output]))
    nbformat.write(notebook, path)
    built = Sources(course, tmp_path / "to", OneLesson(course)).notebook("lectures/00_x.ipynb")
    assert built.cells[-1].outputs[0].data["text/html"] == (
        '<a href="05_y.html" title="y">y</a> <a href="05_y.html#z">z</a> <a href="https://x.org/a.ipynb">a</a>'
    )


def test_the_answers_of_a_solution_are_folded_and_what_is_for_graders_is_taken_out():
    notebook = solution()
    fold(notebook, "solutions/a00/a00_x.ipynb")
    title, answer, its_check, written = notebook.cells
    assert title.source.startswith("# Solution 00 · It\n") and title.source.endswith("Begin.")
    assert "holds the answers" in title.source and "(path:../../assignments/a00/a00_x.ipynb)" in title.source
    assert answer.source == "def f():\n    return 1\n" and answer.metadata.tags == ["hide-input"]
    assert its_check.source == 'check("f", f)' and "tags" not in its_check.metadata
    assert written.source.startswith("<details") and "\n\nBecause $1$.\n\n\n</details>" in written.source


@pytest.mark.parametrize(("solved", "there"), [(None, True), (["a00"], True), (["a01"], False), ([], False)])
def test_a_site_has_the_solutions_that_it_may_have_and_no_link_to_others(course, tmp_path, solved, there):
    to = tmp_path / "to"
    to.mkdir()
    Sources(course, to, OneLesson(course), solved).assemble()
    page = (to / "assignments.md").read_text(encoding="utf-8")
    assert [*to.glob("solutions/*/*")] == ([to / "solutions/a00/a00_x.ipynb"] if there else [])
    assert ("solution" in page.split("|---|")[-1]) == there and ("\nsolutions/*/*\n" in page) == there


def test_boxes_have_a_class_and_math_in_them_is_typeset():
    text = boxes("> **On the slide.** a\n\n> **Check yourself.** b\n> <details>$c$</details>\n\n> A quotation.")
    assert "{.erratum}\n> **On" in text and "{.check-yourself}\n> **Check" in text
    assert '<details class="mathjax_process">$c$' in text and "\n\n> A quotation." in text


def test_a_widget_that_the_pages_cannot_draw_is_refused_by_name(course, tmp_path):
    path = course / "lectures/00_x.ipynb"
    path.write_text(path.read_text(encoding="utf-8").replace("AnyModel", "IntSliderModel"), encoding="utf-8")
    with pytest.raises(CommandError, match=r"lectures/00_x.ipynb: .* not IntSliderModel"):
        Sources(course, tmp_path / "to", OneLesson(course)).notebook("lectures/00_x.ipynb")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("(*batch, n) and |A|", r"(\*batch, n) and \|A\|"),
        ("`*batch` stays, n_ does not, d_k does", r"`*batch` stays, n\_ does not, d_k does"),
        ("* a point: a * b", r"* a point: a \* b"),
        (">>> 2 * 3", ">>> 2 * 3"),
    ],
)
def test_a_docstrings_signs_mean_themselves(said, shown):
    plain(None, "function", "f", None, None, lines := [said])  # type: ignore[arg-type]
    assert lines == [shown]


# The built pages


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<img src="a.png">', "index.html: a picture without alt text: a.png"),
        ('<img src="a.png" alt=" ">', "index.html: a picture without alt text: a.png"),
        ('<a href="gone.html">', "index.html: a link to nothing: gone.html"),
        ('<a href="other.html#gone">', "index.html: a link to a place that the page does not have: other.html#gone"),
        ('<a href="#gone">', "index.html: a link to a place that the page does not have: #gone"),
        ('<script src="https://cdn.org/x.js">', "index.html: loads from elsewhere: https://cdn.org/x.js"),
        ('<link rel="stylesheet" href="//cdn.org/x.css">', "index.html: loads from elsewhere: //cdn.org/x.css"),
        ('<a href="https://example.org">', None),
        ('<a href="other.html?q=1#there">', None),
        ('<img src="data:image/png;base64,AA" alt="A dot">', None),
    ],
)
def test_a_fault_of_a_page_is_named_with_the_page(tmp_path, body, fault):
    write(tmp_path / "index.html", f"<html><body>{body}</body></html>")
    write(tmp_path / "other.html", "<p id=there></p>")
    write(tmp_path / "a.png", "")
    assert list(check.faults(tmp_path)) == ([fault] if fault else [])


def test_a_style_sheet_that_loads_from_elsewhere_is_a_fault(tmp_path):
    write(tmp_path / "_static/x.css", "@font-face { src: url('https://fonts.org/x.woff') }")
    assert list(check.faults(tmp_path)) == ["_static/x.css: loads from elsewhere: https://fonts.org/x.woff"]


def test_a_small_course_is_built_whole(course, tmp_path, monkeypatch):
    monkeypatch.setattr(npm, "put", lambda package, folder: (folder / "tex-svg.js").write_text(""))
    monkeypatch.setattr(npm, "keep", lambda package: None)
    monkeypatch.setattr(formulas, "node", lambda: None)
    assert command.site(Checkout(course, OneLesson(course)), tmp_path / "site") >= 8
    lecture = (tmp_path / "site/lectures/00_x.html").read_text(encoding="utf-8")
    assert 'alt="A blue dot."' in lecture and '<div class="still' in lecture      # the picture, and its words
    assert "tex-svg.js" in lecture                                                # no Node: a script typesets formulas
    assert '"model_id": "abc"' in lecture and "widgets.js" in lecture             # the widget
    assert '<blockquote class="erratum">' in lecture
    assert "Show the code" in lecture and "Show the answer" not in lecture        # a cell that is folded
    assert "../assignments/a00.html" in lecture and list((tmp_path / "site/_downloads").rglob("a00_x.ipynb"))
    assert "a00_x.ipynb" in (tmp_path / "site/assignments/a00.html").read_text(encoding="utf-8")
    solved = (tmp_path / "site/solutions/a00/a00_x.html").read_text(encoding="utf-8")
    assert "Show the answer" in solved and "SOLUTION" not in solved and "seeds" not in solved
    assert "Show the code" not in solved
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


# What stands there stays until the new one is whole


@pytest.fixture
def half(monkeypatch):
    """A build without Sphinx; calling what comes back makes it fail with an error."""

    def fake(source, made, notes):
        write(made / ".buildinfo", "")
        write(made / "index.html", "new")

    def fail(error):
        def failing(source, made, notes):
            fake(source, made, notes)
            raise error

        monkeypatch.setattr(command, "_sphinx", failing)

    monkeypatch.setattr(npm, "put", lambda package, folder: None)
    monkeypatch.setattr(npm, "keep", lambda package: None)
    monkeypatch.setattr(command, "_sphinx", fake)
    return fail


def test_a_new_site_takes_the_place_of_the_old_one(course, tmp_path, half):
    write(tmp_path / "site/.buildinfo", "")
    write(tmp_path / "site/gone.html", "old")
    assert command.site(Checkout(course, OneLesson(course)), tmp_path / "site") == 1
    assert sorted(path.name for path in (tmp_path / "site").iterdir()) == [".buildinfo", "index.html"]


@pytest.mark.parametrize("error", [CommandError("no"), KeyboardInterrupt()])
def test_a_build_that_fails_or_is_stopped_leaves_the_old_site(course, tmp_path, half, error):
    half(error)
    write(tmp_path / "site/.buildinfo", "")
    write(tmp_path / "site/index.html", "old")
    with pytest.raises(type(error)):
        command.site(Checkout(course, OneLesson(course)), tmp_path / "site")
    assert (tmp_path / "site/index.html").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["course", "site"]


def test_a_stop_in_the_middle_of_the_swap_puts_the_old_site_back(tmp_path, monkeypatch):
    write(tmp_path / "site/index.html", "old")
    moves = iter([os.replace, None])

    def replace(source, target, really=os.replace):
        if next(moves, os.replace) is None:
            raise KeyboardInterrupt
        really(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        command._swap(tmp_path / "made", tmp_path / "site", tmp_path / "old")
    assert (tmp_path / "site/index.html").read_text() == "old"


def test_a_folder_that_holds_something_else_is_refused(course, tmp_path, half):
    write(tmp_path / "thesis/chapter.tex", "years")
    with pytest.raises(CommandError, match="holds something that is not a site"):
        command.site(Checkout(course, OneLesson(course)), tmp_path / "thesis")
    assert (tmp_path / "thesis/chapter.tex").read_text() == "years"


def test_a_site_with_faults_is_refused_with_the_first_of_them(course, tmp_path, half, monkeypatch):
    monkeypatch.setattr(check, "faults", lambda site: (f"page{i}.html: a picture without alt text" for i in range(30)))
    with pytest.raises(CommandError, match=r"page0.html: a picture without alt text\n(.|\n)*and 10 more$"):
        command.site(Checkout(course, OneLesson(course)), tmp_path / "site")
    assert not (tmp_path / "site").exists()


# MathJax


def packed(text="math"):
    """An npm package's archive, and its description."""
    with tarfile.open(fileobj=(held := io.BytesIO()), mode="w:gz") as archive:
        entry = tarfile.TarInfo("package/es5/math.js")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text.encode()))
    integrity = base64.b64encode(hashlib.sha512(held.getvalue()).digest()).decode()
    return held.getvalue(), npm.Package("@scope/math", "1.0.0", integrity, "es5/math.js")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(npm, "cache", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def registry(monkeypatch):
    """A registry for machines without npm: what it gives, and how often it was asked."""
    given, asked = [], []

    def urlopen(address, timeout):
        asked.append(address)
        if not given:
            raise URLError("no network")
        return io.BytesIO(given[0])

    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(npm, "urlopen", urlopen)
    return given, asked


def test_a_package_is_fetched_once_and_kept(tmp_path, cache, registry):
    given, asked = registry
    data, package = packed()
    given.append(data)
    for _ in range(2):
        npm.put(package, tmp_path)
        assert (tmp_path / "math.js").read_text() == "math"
    assert asked == ["https://registry.npmjs.org/@scope/math/-/math-1.0.0.tgz"]
    assert [path.name for path in cache.iterdir()] == ["scope-math-1.0.0.tgz"]


def test_another_package_than_the_pinned_one_is_refused_and_not_kept(tmp_path, cache, registry):
    given, _ = registry
    given.append(packed("evil")[0])
    with pytest.raises(npm.NoPackage, match="not what was pinned"):
        npm.put(packed()[1], tmp_path)
    assert list(cache.iterdir()) == [] and not (tmp_path / "math.js").exists()


def test_a_kept_package_that_was_damaged_is_fetched_again(tmp_path, cache, registry):
    given, _ = registry
    data, package = packed()
    given.append(data)
    write(cache / package.archive, "damaged")
    npm.put(package, tmp_path)
    assert (tmp_path / "math.js").read_text() == "math"


def test_without_a_network_one_line_says_what_would_help(tmp_path, cache, registry):
    with pytest.raises(npm.NoPackage, match=r"@scope/math@1.0.0 could not be fetched .*no network.*kept in .*cache"):
        npm.put(packed()[1], tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="the npm of this test is a shell script")
def test_npm_fetches_where_it_is_and_its_own_words_are_passed_on(tmp_path, cache, monkeypatch):
    data, package = packed()
    (tmp_path / "held.tgz").write_bytes(data)
    script = tmp_path / "npm"
    monkeypatch.setattr(shutil, "which", lambda name: str(script))
    script.write_text(f'#!/bin/sh\nfor last; do true; done\ncp {tmp_path}/held.tgz "${{last#*=}}/{package.archive}"\n')
    script.chmod(0o755)
    npm.put(package, tmp_path)
    assert (tmp_path / "math.js").read_text() == "math"
    (cache / package.archive).unlink()
    script.write_text("#!/bin/sh\necho 'npm error code ENOTFOUND' >&2\nexit 1\n")
    with pytest.raises(npm.NoPackage, match="npm error code ENOTFOUND"):
        npm.put(package, tmp_path)


def test_outside_a_course_one_line_says_where_to_run_it(tmp_path):
    with pytest.raises(CommandError, match=r"no course here \(looked for docs/conf.py in .*\): run it in the folder"):
        command._open(tmp_path)
    write(tmp_path / "docs/conf.py", "")
    write(tmp_path / "nbgrader_config.py", 'get_config().Lessonkit.course = "attncourse_lessons"\n')
    with pytest.raises(CommandError, match=r"not this folder's: run pip install -e . here"):
        command._open(tmp_path)
