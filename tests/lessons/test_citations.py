"""The course's references, glossary and numbers: complete, used, and as its pages say."""

import re
from pathlib import Path

import jupytext
import pytest

from attncourse_lessons import course
from lessonkit.authoring import numbering, references
from lessonkit.authoring.site import glossary

ROOT = Path(__file__).resolve().parents[2]
BIB = references.read(ROOT / "docs/references.bib")
SOURCES = [path for lesson in course.lessons for path in sorted(lesson.folder.glob("*.py"))
           if path.name in ("lecture.py", "assignment.py")]  # fmt: skip
# Vaswani et al. (2017), Gu and Dao 2023: a claim that does not say where it can be looked up.
BARE = re.compile(r"et al\.,? \(?(?:19|20)\d\d|[A-Z]\w+ and [A-Z]\w+ \(?(?:19|20)\d\d|\]\(https://arxiv\.org")
TERMS = list(glossary.terms((ROOT / "docs/glossary.md").read_text(encoding="utf-8")))


def texts(path):
    cells = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent").cells
    return [" ".join(cell.source.split()) for cell in cells if cell.cell_type == "markdown"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_who_says_so_is_cited_by_a_key(path):
    assert [found for text in texts(path) for found in BARE.findall(text)] == []


def test_every_reference_is_cited_and_has_its_address_once():
    cited = {key for path in SOURCES for key in references.keys(path.read_text(encoding="utf-8"))}
    assert cited == BIB.keys()
    addresses = [it.url for it in BIB.values() if it.url]
    assert len(set(addresses)) == len(addresses) > 200
    assert all(it.venue and re.fullmatch(r"(19|20)\d\d", it.year) for it in BIB.values())


def test_every_lecture_cites_and_has_numbered_figures():
    for lesson in course.lessons:
        source = (lesson.folder / "lecture.py").read_text(encoding="utf-8")
        assert len(list(references.keys(source))) >= 4, lesson.name
        assert len(numbering.OPTIONS.findall(source)) >= 7, lesson.name
    assert len(numbering.places(course)) > 60


def test_a_caption_says_no_more_than_a_sentence_or_two():
    for lesson in course.lessons:
        for options in numbering.OPTIONS.finditer((lesson.folder / "lecture.py").read_text(encoding="utf-8")):
            caption = numbering.captioned(options[0])[1]
            assert caption.endswith((".", ")")) and len(caption) < 160, caption


def test_the_glossary_has_a_hundred_terms_each_in_the_lecture_that_it_names():
    assert len(TERMS) >= 100
    names = [name.casefold() for term in TERMS for name in term.names]
    assert len(set(names)) == len(names)
    lectures = {lesson.lecture_notebook: " ".join(texts(lesson.folder / "lecture.py")) for lesson in course.lessons}
    for term in TERMS:
        said = lectures[re.search(r"\(\.\./(.*)\)", term.lecture)[1]]
        assert any(re.search(rf"(?<![\w-]){re.escape(name)}", said, re.IGNORECASE) for name in term.names), term.name
        assert not term.meaning.endswith(".") and term.meaning[0] not in "AT", term.name
