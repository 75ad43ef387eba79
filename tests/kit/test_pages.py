"""What people read first, START.md and its like: the tables are counted, and the links lead somewhere."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from jupyterlab.commands import get_app_dir
from jupyterlab_server.settings_utils import get_settings

from attncourse_lessons import course
from commandkit.errors import CommandError
from lessonkit import kernel
from lessonkit.authoring.checkout import Checkout
from lessonkit.authoring.pages import MARKER, filled, stale, units
from lessonkit.exercises import overview
from lessonkit.learner import lab, server

ROOT = Path(__file__).parents[2]
CHECKOUT = Checkout(ROOT, course)
GUIDES = ("instructors", "grading", "teaching", "training", "your_own_course", "tested", "changelog")
READ = [*ROOT.glob("*.md"), *(ROOT / "docs" / f"{name}.md" for name in GUIDES)]


def anchors(page):
    """The anchors of a page's headings, as code hosts and the web book make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_the_tables_of_pages_are_what_the_notebooks_and_the_exercises_say():
    assert [page for page, _ in stale(CHECKOUT)] == [], "run attncourse build"
    marked = {page.name for page in READ if MARKER.search(page.read_text(encoding="utf-8"))}
    assert marked == {"README.md", "START.md", "instructors.md", "teaching.md"}


def test_the_table_of_questions_names_the_lectures_their_questions_and_their_minutes():
    row = r"^\| (\d\d) \| \[(.*?)\]\((.*?)\) \| (.*\?) \| (\d+) \|$"
    table = re.findall(row, (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    expected = [(u.number, u.title, u.lecture, u.question, str(u.reading)) for u in units(CHECKOUT)]
    assert table == expected and len(table) == len(course.lessons)


def test_a_table_of_weeks_has_the_lessons_that_it_names_and_their_sums():
    text = "<!-- table: weeks: lookup order, training -->\n<!-- /table -->"
    counted = units(CHECKOUT)
    first, second, total = filled(text, counted, Path("docs/x.md")).splitlines()[4:7]
    two = [unit for unit in counted if unit.lesson.name in ("lookup", "order")]
    assert first.count("(../lectures/") == 2 and f"| {sum(unit.reading for unit in two)} |" in first
    assert second.startswith("| 2 |") and total.startswith("| all |")


def test_a_table_of_what_is_built_has_the_hours_of_its_lessons_and_what_they_need():
    text = "<!-- table: built:\na layer | order lookup | vectors\na run | training | a GPU\n-->\n<!-- /table -->"
    counted = units(CHECKOUT)
    first, second, total = filled(text, counted, Path("README.md")).splitlines()[7:10]
    two = [unit for unit in counted if unit.lesson.name in ("lookup", "order")]
    hours = [f"{sum(getattr(unit, what) for unit in two) / 60:.1f}\u00a0h" for what in ("reading", "working")]
    assert first.startswith("| a layer | [05](lectures/05_order.ipynb), [02](lectures/02_lookup.ipynb) | ")
    assert first.endswith(f" | {' | '.join(hours)} | vectors |") and second.endswith(" | a GPU |")
    assert total.startswith("| all of it |")


@pytest.mark.parametrize("page", READ, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_to_a_file_and_to_a_heading_in_it(page):
    text = re.sub(r"`[^`\n]*`", "", page.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize(
    ("marker", "words"),
    [
        ("calendar", "x.md: no table is called 'calendar'; there are: lessons, questions, hours, weeks, built"),
        ("built: a layer | masking", "x.md: 'a layer | masking' is no line of what is built: `what | its lessons |"),
        ("weeks: masking halving", "x.md: 'halving' is no lesson; the lessons are: getting_ready"),
    ],
)
def test_a_marker_that_asks_for_what_there_is_not_is_told(marker, words):
    with pytest.raises(CommandError, match=re.escape(words)):
        filled(f"<!-- table: {marker} -->\n<!-- /table -->", units(CHECKOUT), Path("x.md"))


def test_a_lecture_without_its_minutes_is_told(tmp_path):
    (tmp_path / "lectures").mkdir()
    cells = [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Lecture 00 · Getting ready"}]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "lectures" / "00_getting_ready.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    with pytest.raises(CommandError, match=r"00_getting_ready\.ipynb: starts with no title and minutes"):
        units(Checkout(tmp_path, course))


def test_jupyterlab_opens_the_start_page_as_a_page_and_asks_for_no_news(tmp_path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    data = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    ((file, place),) = [item for item in data.items() if item[1].startswith("share/jupyter/lab/settings/overrides.d/")]
    (tmp_path / "settings" / "overrides.d").mkdir(parents=True)
    (tmp_path / "settings" / "overrides.d" / Path(place).name).write_bytes((ROOT / file).read_bytes())
    schemas = str(Path(get_app_dir(), "schemas"))

    def setting(plugin):
        found, warnings = get_settings(str(tmp_path / "settings"), schemas, str(tmp_path), schema_name=plugin)
        assert not any(warnings)
        return {name: value["default"] for name, value in found["schema"]["properties"].items()}

    assert setting("@jupyterlab/docmanager-extension:plugin")["defaultViewers"] == {"markdown": "Markdown Preview"}
    assert setting("@jupyterlab/docmanager-extension:plugin")["autosaveInterval"] < overview.SAVED_WITHIN
    assert setting("@jupyterlab/apputils-extension:notification")["fetchNews"] == "false"
    for makefile in ("Makefile", "src/lessonkit/authoring/student/Makefile"):
        assert "\t.venv/bin/attncourse lab $(LAB)\n" in (ROOT / makefile).read_text(encoding="utf-8")


def test_where_the_course_is_installed_every_server_and_kernel_has_its_own_parts():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    files = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    config = {Path(place).parts[:2]: json.loads((ROOT / file).read_text()) for file, place in files.items()
              if file.endswith(".json")}  # fmt: skip
    assert config[("etc", "jupyter")] == {"ServerApp": {"jpserver_extensions": {lab.EXTENSION: True}}}
    assert config[("etc", "ipython")] == {"InteractiveShellApp": {"extensions": [kernel.__name__]}}
    extension = ROOT / "src/lessonkit/learner/labextensions/@lessonkit/learner"
    assert files[extension.relative_to(ROOT).as_posix()] == "share/jupyter/labextensions/@lessonkit/learner"
    build = json.loads((extension / "package.json").read_text())["jupyterlab"]["_build"]
    assert (extension / build["load"]).is_file()
    assert project["project"]["entry-points"]["lessonkit.courses"] == {"attncourse": course.package}
    assert callable(server._load_jupyter_server_extension) and callable(kernel.load_ipython_extension)
