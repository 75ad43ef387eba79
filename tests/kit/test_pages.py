"""What people read first, START.md and its like: the tables are counted, and the links lead somewhere."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from jupyterlab.commands import get_app_dir
from jupyterlab_server.settings_utils import get_settings

from commandkit.errors import CommandError
from lessonkit.authoring.pages import PAGES, SHORT, filled, units

ROOT = Path(__file__).parents[2]
READ = [*ROOT.glob("*.md"), *(ROOT / "docs" / f"{name}.md" for name in ("instructors", "grading", "training"))]


def anchors(page):
    """The anchors of a page's headings, as code hosts and the web book make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_a_pages_tables_are_what_the_notebooks_and_the_exercises_say(page):
    assert (ROOT / page).read_text(encoding="utf-8") == filled(ROOT, page), "run python -m lessonkit.authoring.pages"


def test_readmes_table_names_the_lectures_and_their_minutes():
    row = r"^\| (\d\d) \| \[(.*?)\]\((.*?)\) \|.*\| (\d+) \|$"
    table = re.findall(row, (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert table == [(unit.number, unit.title, unit.lecture, str(unit.reading)) for unit in units(ROOT)]


def test_the_short_term_has_seven_weeks_of_lectures_in_their_order():
    weeks = [number for week in SHORT for number in week]
    assert len(SHORT) == 7 and weeks == sorted({*weeks})
    assert {*weeks} < {unit.number for unit in units(ROOT)}


@pytest.mark.parametrize("page", READ, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_to_a_file_and_to_a_heading_in_it(page):
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_a_page_without_the_place_for_its_table_is_told(tmp_path):
    (tmp_path / "START.md").write_text("# Start here\n")
    with pytest.raises(CommandError, match=r"START\.md has no single place for the table 'lectures'"):
        filled(tmp_path, "START.md")


def test_a_lecture_without_its_minutes_is_told(tmp_path):
    (tmp_path / "lectures").mkdir()
    cells = [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Lecture 00 · Getting ready"}]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "lectures" / "00_getting_ready.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    with pytest.raises(CommandError, match=r"00_getting_ready\.ipynb: starts with no title and minutes"):
        units(tmp_path)


def test_jupyterlab_opens_the_start_page_as_a_page_and_asks_for_no_news(tmp_path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    ((file, place),) = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"].items()
    assert place.startswith("share/jupyter/lab/settings/overrides.d/")
    (tmp_path / "settings" / "overrides.d").mkdir(parents=True)
    (tmp_path / "settings" / "overrides.d" / Path(place).name).write_bytes((ROOT / file).read_bytes())
    schemas = str(Path(get_app_dir(), "schemas"))

    def setting(plugin):
        found, warnings = get_settings(str(tmp_path / "settings"), schemas, str(tmp_path), schema_name=plugin)
        assert not any(warnings)
        return {name: value["default"] for name, value in found["schema"]["properties"].items()}

    assert setting("@jupyterlab/docmanager-extension:plugin")["defaultViewers"] == {"markdown": "Markdown Preview"}
    assert setting("@jupyterlab/apputils-extension:notification")["fetchNews"] == "false"
    for makefile in ("Makefile", "src/lessonkit/authoring/student/Makefile"):
        assert "default_url=/lab/tree/START.md" in (ROOT / makefile).read_text(encoding="utf-8")
