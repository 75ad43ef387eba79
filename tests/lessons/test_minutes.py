"""The minutes at the top of a lecture are those that its words and its lines of code come to.

130 words of text and 20 lines of code a minute, guesses and a look at the figures included. What the page folds is not
counted (cells tagged hide-input, answers in <details>), nor are the sections "Going further"; a game that the top names
("ten of them a game") is.
"""

import re

import jupytext
import pytest

from attncourse_lessons import course

WORDS, LINES = 130, 20  # a minute
WITHIN = 0.1
FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)
STATED = re.compile(r"^\*About (\d+) minutes(?:, (\w+) of them a game)?", re.MULTILINE)
NUMBERS = {"five": 5, "ten": 10, "fifteen": 15}


def stated(page: str) -> tuple[int, int]:
    """What the top of a lecture's source says: its minutes, and how many of them are a game."""
    minutes, game = STATED.search(jupytext.reads(page, fmt="py:percent").cells[0].source).groups()
    return int(minutes), NUMBERS[game] if game else 0


def counted(page: str) -> float:
    """The minutes that the text and the code of a lecture's source come to."""
    words = lines = 0
    further = False
    for cell in jupytext.reads(page, fmt="py:percent").cells:
        if cell.cell_type == "markdown":
            for section in re.split(r"^(?=## )", FOLDED.sub("", cell.source), flags=re.MULTILINE):
                if section.startswith("## "):
                    further = section.startswith("## Going further")
                words += 0 if further else len(section.split())
        elif cell.cell_type == "code" and not further and "hide-input" not in cell.metadata.get("tags", []):
            lines += sum(bool(line.strip()) for line in cell.source.splitlines())
    return words / WORDS + lines / LINES


@pytest.mark.parametrize("lesson", course.lessons, ids=lambda lesson: lesson.name)
def test_a_lecture_takes_the_minutes_that_it_says(lesson):
    page = (lesson.folder / "lecture.py").read_text(encoding="utf-8")
    minutes, game = stated(page)
    found = counted(page) + game
    assert abs(found - minutes) <= WITHIN * minutes, f"says {minutes} minutes, comes to {found:.0f}"


def test_all_fifteen_lectures_are_counted():
    assert len(course.lessons) == 15


def test_what_is_folded_or_goes_further_takes_no_minutes():
    text = f"# *About 12 minutes, ten of them a game.* {'word ' * (WORDS - 8)}"
    code = "x = 1\n\n" * LINES
    page = f"# %% [markdown]\n{text}\n\n# %%\n{code}\n"
    assert stated(page) == (12, 10) and counted(page) == pytest.approx(2, abs=0.01)
    folded = f"\n# %% [markdown]\n# <details>{'word ' * 500}</details>\n\n# %% tags=[\"hide-input\"]\n{code}\n"
    further = f"\n# %% [markdown]\n# ## Going further: more\n#\n{text}\n\n# %%\n{code}\n"
    assert counted(page + folded + further) == pytest.approx(counted(page), abs=0.01)
    assert counted(page + further.replace("Going further", "More")) == pytest.approx(4, abs=0.1)
