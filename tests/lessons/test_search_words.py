"""The names by which a reader may search: each line starts with the lectures' own word, and no name is on two lines."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("myst_nb", reason="the extra 'site' is not installed")

from lessonkit.authoring.site import search

ROOT = Path(__file__).resolve().parents[2]
GROUPS = search.synonyms(ROOT / "docs" / search.SYNONYMS)


def lectures():
    for path in (ROOT / "lectures").glob("*.ipynb"):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                yield "".join(cell["source"])


def test_each_line_starts_with_a_word_of_the_lectures():
    text = re.sub(r"\s+", " ", " ".join(lectures()).replace("*", "")).casefold()
    assert GROUPS
    assert [group[0] for group in GROUPS if group[0].casefold() not in text] == []


def test_no_name_is_on_two_lines_and_none_is_empty():
    names = Counter(name.casefold() for group in GROUPS for name in group)
    assert [name for name, count in names.items() if count > 1 or not name] == []
    assert all(len(group) > 1 for group in GROUPS)
