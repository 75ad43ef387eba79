"""What the book's search can find: sections with their own prose, names of the reference, terms; and no page twice."""

import json

import pytest

pytest.importorskip("myst_nb", reason="the extra 'site' is not installed")

from sphinx.application import Sphinx

from lessonkit.authoring.site import search

CONF = """
extensions = ["myst_nb", "sphinx.ext.autodoc", "lessonkit.authoring.site.search"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
html_theme = "basic"
suppress_warnings = ["toc.not_included"]
"""
LECTURE = r"""# Lecture 00 · Order: first things

Before all.

## Why $\sqrt{d_k}$: a scale

Scores $\alpha_{ij}$ are *divided*.

$$ x = \frac{1}{2} $$

```python
scale_scores(query)
```

### A detail

Smaller still.
"""
GLOSSARY = """# Words

:::{glossary}
lookup
hash table
  A table that is asked by key.
:::
"""
REFERENCE = """mimetype
========

.. automodule:: lessonkit.course
   :members: Lesson
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A site of three pages, whose index was written."""
    folder = tmp_path_factory.mktemp("search")
    pages = {"lectures/00_x.md": LECTURE, "docs/words.md": GLOSSARY, "api/course.rst": REFERENCE}
    rest = {"index.md": "# Start\n", "conf.py": CONF, search.SYNONYMS: "# a remark\n\nlookup, dict\n"}
    for name, text in (pages | rest).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    made = folder / "made"
    Sphinx(folder, folder, made, made / ".doctrees", "html", status=None, warning=None, warningiserror=True).build()
    return made


@pytest.fixture(scope="module")
def index(site):
    told = (site / search.INDEX).read_text(encoding="utf-8").partition("const bookIndex = ")[2]
    return json.loads(told.removesuffix(";"))


def entry(index, title):
    (found,) = [entry for entry in index["entries"] if entry["title"] == title]
    return found


def test_a_section_has_its_own_prose_and_the_place_where_it_stands(index):
    assert entry(index, "Why √d_k: a scale") == {
        "page": "lectures/00_x.html",
        "kind": "lecture",
        "id": "why-sqrt-d-k-a-scale",
        "title": "Why √d_k: a scale",
        "under": ["Lecture 00 · Order: first things"],
        "text": "Scores α_ij are divided.",
        "code": "scale_scores query",
    }
    assert entry(index, "A detail")["under"] == ["Lecture 00 · Order: first things", "Why √d_k: a scale"]


def test_what_stands_before_the_first_section_is_at_the_top_of_the_page(index):
    top = entry(index, "Lecture 00 · Order: first things")
    assert (top["id"], top["text"]) == ("", "Before all.")


def test_every_place_is_on_its_page(site, index):
    for each in index["entries"]:
        assert not each["id"] or f'id="{each["id"]}"' in (site / each["page"]).read_text(encoding="utf-8")


def test_a_term_is_found_with_its_other_names(index):
    term = entry(index, "lookup, hash table")
    assert (term["kind"], term["text"]) == ("term", "A table that is asked by key.")


def test_a_name_of_the_reference_is_found_with_what_is_said_of_it(index):
    lesson = entry(index, "Lesson")
    assert (lesson["kind"], lesson["id"]) == ("api", "lessonkit.course.Lesson")
    assert lesson["text"]


def test_names_for_one_thing_are_read_from_the_courses_file(index):
    assert index["synonyms"] == [["lookup", "dict"]]


def test_a_course_needs_no_file_of_names(tmp_path):
    assert search.synonyms(tmp_path / search.SYNONYMS) == []


def test_sphinx_makes_no_index_of_its_own(site):
    assert not (site / "searchindex.js").exists() and not (site / "search.html").exists()
