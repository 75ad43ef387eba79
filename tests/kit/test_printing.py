"""The course on paper: answers move to the end, page numbers are right, and a handout is six pages to write on."""

import io
import shutil

import pytest

pytest.importorskip("pypdf", reason="the extra 'print' is not installed")
pytest.importorskip("playwright", reason="the extra 'print' is not installed")

import nbformat
import test_site
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from pypdf import PdfReader

from attncourse_lessons import course as lessons
from commandkit.errors import CommandError
from lessonkit.authoring import chromium
from lessonkit.authoring.checkout import Checkout
from lessonkit.authoring.printing import handout, paper, press
from lessonkit.authoring.printing.book import Book
from lessonkit.authoring.site.sources import Sources
from lessonkit.authoring.site.tasks import below_checks, folded

course = test_site.course  # the fixture: a course of one lesson
FIRST = lessons.exercises_of("a00")[0]
CHECK = f"check-{FIRST.name}"
LECTURE = """# Lecture 00 · A lookup

*About 45 minutes.*

After this lecture you can

* look **up**.

## The first section

One sentence is plain. An **attention weight** is a share. *Guess first:* how much goes to the first key?"""
FOUND = "Nearly all of it goes there, as the picture shows. This is a **peak**."
REST = """The score:

$$e = q k^\\top \\qquad \\alpha = \\operatorname{softmax}(e)$$

> **Check yourself.** What is one plus one?
> <details><summary>Answer</summary>It is two, a secret.</details>

<details><summary>Going further: more</summary>

A fold that hides no answer. See [notation](../docs/notation.md) and [the check](../CONTRIBUTING.md).

</details>

## In short

| | | shape |
|---|---|---|
| weights | $\\alpha$ | $(n)$ |

A summary in one sentence.

## After the end

Nobody writes on this."""
PICTURE = new_output("display_data", {"image/png": test_site.DOT, "text/plain": "A blue dot."})
PRINTED = new_output("stream", name="stdout", text="0.98\n")


def lecture():
    return new_notebook(
        cells=[
            new_markdown_cell(LECTURE),
            new_code_cell("draw()", outputs=[PRINTED, PICTURE]),
            new_code_cell("assert secret_test", metadata={"tags": ["hide-input"]}),
            new_markdown_cell(FOUND),
            new_markdown_cell(REST),
        ]
    )


def assignment(answer="raise NotImplementedError()"):
    return new_notebook(
        cells=[
            new_markdown_cell("# Assignment 00 · It\n\nSee [the lecture](../../lectures/00_x.ipynb)."),
            new_code_cell(answer, metadata={"nbgrader": {"solution": True, "grade": False, "grade_id": FIRST.name}}),
            new_code_cell("check()", metadata={"nbgrader": {"solution": False, "grade": True, "grade_id": CHECK}}),
        ]
    )


@pytest.fixture
def checkout(course):
    """The course with a lecture to print, an assignment of one exercise, and its solution."""
    nbformat.write(lecture(), course / "lectures/00_x.ipynb")
    nbformat.write(assignment(), course / "assignments/a00/a00_x.ipynb")
    solved = assignment("### BEGIN SOLUTION\nthe_right_line\n### END SOLUTION")
    nbformat.write(solved, course / "solutions/a00/a00_x.ipynb")
    test_site.write(course / "docs/notation.md", "# Notation\n\n| $n$ | tokens |\n|---|---|\n")
    test_site.write(course / "src/toy_lessons/l00_x/exercises/__init__.py", "")
    return Checkout(course, test_site.OneLesson(course))


@pytest.fixture(scope="module")
def browser():
    if not any(map(shutil.which, chromium.NAMES)):
        pytest.skip("no Chromium")


def pages(pdf):
    return [page.extract_text() for page in PdfReader(io.BytesIO(pdf)).pages]


# Assignments to read, in the web book


def test_hints_stand_folded_below_the_check_and_mean_what_they_say():
    notebook = below_checks(assignment(), [FIRST], lambda exercise: "\n\n".join(folded(("`a < b` or $x < y$", "more"))))
    assert [cell.cell_type for cell in notebook.cells] == ["markdown", "code", "code", "markdown"]
    text = notebook.cells[-1].source
    assert text.count('<details class="hint">') == 2 and "Hint 2 of 2" in text and "<details open" not in text
    assert r"`a < b` or \$x \< y\$" in text


def test_each_assignment_is_a_page_beside_its_notebook_and_holds_no_solution(checkout, tmp_path):
    to = tmp_path / "to"
    to.mkdir()
    Sources(checkout.root, to, checkout.course, solved=[]).assemble()
    released = checkout.root / "assignments/a00/a00_x.ipynb"
    assert (to / "assignments/a00/a00_x.ipynb").read_bytes() == released.read_bytes()
    page = (to / "assignments/a00.ipynb").read_text(encoding="utf-8")
    assert "(path:a00/a00_x.ipynb)" in page and "(../lectures/00_x.ipynb)" in page and "Hint 1 of" in page
    assert "the_right_line" not in page and not (to / "solutions").exists()
    assert "(assignments/a00.ipynb)" in (to / "assignments.md").read_text(encoding="utf-8")


# A notebook for paper


def test_paper_leaves_out_what_the_web_book_folds_and_shows_what_was_printed():
    text = str(paper.body(lecture()))
    assert "secret_test" not in text and "draw" in text and '<pre class="said">0.98' in text
    assert 'alt="A blue dot."' in text and "<figure>" in text


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("01_y.ipynb", '<a href="#l01">x</a>'),
        ("01_y.ipynb#part", '<a href="#l01">x</a>'),
        ("#part", '<a href="#l00-1">x</a>'),
        ("https://x.org", '<a href="https://x.org">x</a>'),
        ("gone.ipynb", "x"),
        ("#gone", "x"),
    ],
)
def test_a_link_leads_to_where_the_book_has_its_target_or_is_none(link, shown):
    tree = paper.markdown(f"## Part\n\n[x]({link})")
    paper.relink(tree, "lectures/00_x.ipynb", {"lectures/01_y.ipynb": "l01"}, "l00")
    assert f"<p>{shown}</p>" in str(tree) and '<h2 id="l00-1">' in str(tree)


# The book


def test_folded_answers_move_to_the_end_and_other_folds_are_open(checkout):
    text = Book(checkout).document()
    lecture_text, _, end = text.partition('id="answers"')
    assert "a secret" not in lecture_text and "a secret" in end
    assert "A fold that hides no answer." in lecture_text and "<details" not in text
    assert 'href="#notation">notation</a>' in lecture_text and ">the check<" not in lecture_text


@pytest.mark.parametrize(("solved", "there"), [(None, True), (["a00"], True), ([], False)])
def test_the_book_has_the_solutions_that_it_may_have(checkout, solved, there):
    text = Book(checkout, solved).document()
    assert ("the_right_line" in text) == there and (f"#solution-{FIRST.name}" in text) == there
    assert "END SOLUTION" not in text and f'id="hints-{FIRST.name}"' in text


def test_the_numbers_of_the_contents_are_those_of_the_pages(checkout, browser):
    with press.opened(Book(checkout).document()) as page:
        pdf = press.numbered(page)
        shown = dict(page.locator(".contents p a.page").evaluate_all("all => all.map(it => [it.hash, it.textContent])"))
    text = pages(pdf)
    titles = {"#l00": "Lecture 00", "#a00": "Assignment 00", "#answers": "Answers", "#solutions": "Solutions"}
    for name, title in titles.items():
        number = int(shown[name])
        assert title in text[number - 1] and number > 2, f"{title} is not on page {number}"
        assert text[number - 1].rstrip().endswith(str(number)) or str(number) in text[number - 1].split()
    bookmarks = [each.title for each in PdfReader(io.BytesIO(pdf)).outline if not isinstance(each, list)]
    assert bookmarks[0] == "The course" and "Lecture 00 · A lookup" in bookmarks


def test_a_picture_stays_on_the_page_of_its_code_and_of_its_caption(browser):
    """Above them is just so much that the picture alone would begin the next page."""
    filler = "\n\n".join(["A line of text."] * 12)
    drawn = new_code_cell("draw()", outputs=[PICTURE])
    caption = new_markdown_cell("**Figure.** A dot.", metadata={"tags": [paper.CAPTION]})
    body = paper.body(new_notebook(cells=[new_markdown_cell(filler), drawn, caption]))
    for name, each in {"code": ".code", "picture": "figure", "caption": ".caption"}.items():
        body.select_one(each)["id"] = name
    links = "".join(f'<a class="page" href="#{name}">0</a>' for name in ("code", "picture", "caption"))
    style = f"{paper.style('book.css', 'A4')} figure img {{ width: 90mm; height: 90mm; }}"
    places = {}
    with press.opened(paper.document("", style, f"{links}{body}")) as page:
        for padding in range(0, 130, 10):  # mm: one of them makes the page end between picture and neighbours
            page.evaluate("above => document.body.style.paddingTop = `${above}mm`", padding)
            places[padding] = press.places(press.printed(page))
    assert all(len(set(each.values())) == 1 for each in places.values()), places
    assert {each["picture"] for each in places.values()} == {1, 2}


# The handout


def test_a_handout_asks_and_answers_on_its_last_page():
    made = handout.Handout().read(lecture())
    body, last = "".join(made.lines), "".join(made.answers)
    assert made.title == "Lecture 00 · A lookup" and (made.predictions, made.questions) == (1, 1)
    assert "how much goes to the first key?" in body and "attention weight" in body
    assert "0.98" in last and "Nearly all of it" in last and "a secret" in last
    assert "Nearly all of it" not in body and "a secret" not in body and "<figure>" not in body
    assert len(made.pictures) == 1 and "Nobody writes on this" not in body


def test_a_handout_boxes_equations_and_asks_the_summarys_from_memory():
    made = handout.Handout().read(lecture())
    body = "".join(made.lines)
    box = next(line for line in made.lines if line.startswith('<div class="equation math">'))
    assert box.count(r"\[") == 2 and "qquad" not in box  # side by side on a wide page, in two lines here
    assert body.count('<div class="memory">weights') == 1 and r"(\alpha\)" not in body
    assert made.equations == [("weights", r'<span class="math inline">\(\alpha\)</span>')]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("One. Two *three.* Four?", ["One. ", "Two <em>three.</em> ", "Four? "]),
        ("As Xu et al. (2015) say. (So.) Yes.", ["As Xu et al. (2015) say. ", "(So.) ", "Yes. "]),
        ("A `b. C` d.", ["A <code>b. C</code> d. "]),
    ],
)
def test_a_paragraph_is_cut_into_sentences(text, found):
    assert handout.sentences(paper.markdown(text).p) == found


OTHERS = [pytest.param(each.number, marks=pytest.mark.slow) for each in lessons.lessons if each.number != "04"]


@pytest.mark.parametrize("number", ["04", *OTHERS])
def test_the_handout_of_a_lecture_has_six_pages_at_most_and_the_answers_alone_on_the_last(number, browser):
    (lesson,) = handout.chosen([number], lessons.lessons)
    made = handout.Handout().read(nbformat.read(test_site.ROOT / lesson.lecture_notebook, 4))
    pdf = handout.laid_out(made, "A4")
    assert 2 < press.length(pdf) <= handout.PAGES
    assert press.places(pdf)["answers"] == press.length(pdf)
    assert made.predictions >= 2 and made.questions >= 1 and made.equations
    assert len(made.answers) == made.predictions + made.questions


def test_a_lecture_that_there_is_not_is_refused():
    with pytest.raises(CommandError, match="there is no lecture '77'; the lectures are: 00, 01"):
        handout.chosen(["77"], lessons.lessons)


def test_without_chromium_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr("lessonkit.authoring.chromium.NAMES", ())
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", "/nowhere")
    with pytest.raises(CommandError, match="no Chromium"), press.opened("<p>"):
        pass
