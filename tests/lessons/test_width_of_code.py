"""A line of code of a page is at most 96 columns wide: a laptop shows no more of the web book.

Lessons come into `NARROW` as their second edition does.
"""

import jupytext
import pytest

from attncourse_lessons import course

COLUMNS = 96
NARROW = ("getting_ready", "bottleneck", "lookup", "cross_attention", "self_attention", "errata_lab")
LESSONS = [lesson for lesson in course.lessons if lesson.name in NARROW]
PAGES = [lesson.folder / page for lesson in LESSONS for page in ("lecture.py", "assignment.py")]


def too_wide(page: str) -> list[str]:
    """The lines of the code cells of a page's source that are wider than that."""
    cells = [cell for cell in jupytext.reads(page, fmt="py:percent").cells if cell.cell_type == "code"]
    return [line for cell in cells for line in cell.source.splitlines() if len(line) > COLUMNS]


def test_the_lessons_are_there():
    assert {lesson.name for lesson in LESSONS} == {*NARROW} and all(page.exists() for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name} {page.stem}")
def test_no_line_of_a_cell_is_wider_than_a_laptop_shows(page):
    assert too_wide(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.assignment)
def test_no_line_of_a_solution_is_wider_where_it_stands_in_its_notebook(lesson):
    for exercise in course.exercises_of(lesson.assignment):
        method = 4 if isinstance(exercise.reference, type) else 0  # within its class
        for body in exercise.solution_bodies:
            assert [line for line in body.splitlines() if 4 + method + len(line) > COLUMNS] == []


def test_a_line_that_is_too_wide_is_found_in_code_and_not_in_text():
    text, code = f"# {'word ' * 30}", f"x = {'1 + ' * 23}1  "
    assert len(code.rstrip()) == 97
    page = f"# %% [markdown]\n{text}\n\n# %%\n{code.rstrip()}\n{code.rstrip()[:-4]}\n"
    assert too_wide(page) == [code.rstrip()]
