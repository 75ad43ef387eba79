"""A formula that goes over the end of a line stays a formula: Markdown takes “+ b” at a line's beginning for a list."""

import re

import jupytext
import pytest

from attncourse_lessons import course

PAGES = [lesson.folder / page for lesson in course.lessons for page in ("lecture.py", "assignment.py")]
LIST = re.compile(r"\s*([-+*]|\d+[.)])\s")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def torn_formulas(text: str) -> list[str]:
    """The lines of a text that begin a list in the middle of a formula between single dollars."""
    torn = []
    for paragraph in CODE.sub("", text).replace("$$", "").split("\n\n"):
        dollars = 0
        for line in paragraph.splitlines():
            if dollars % 2 and LIST.match(line):
                torn.append(line)
            dollars += len(re.findall(r"(?<!\\)\$", line))
    return torn


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name} {page.stem}")
def test_no_line_of_a_formula_begins_a_list(page):
    cells = [cell for cell in jupytext.read(page, fmt="py:percent").cells if cell.cell_type == "markdown"]
    assert [line for cell in cells for line in torn_formulas(cell.source)] == []


def test_a_torn_formula_is_found_and_a_list_of_formulas_is_none():
    assert torn_formulas("it computes $x W^\\top\n+ b$ when it is called") == ["+ b$ when it is called"]
    assert torn_formulas("two of them:\n* $a + b$\n* $c$, and `$` in code\n- $d$") == []
