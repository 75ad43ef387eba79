"""What the web book offers beside its texts: a bar under each lecture's title, the student's zip, what a page shows."""

import dataclasses
import json
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from test_site import DOT, OneLesson, course, write  # noqa: F401

pytest.importorskip("myst_nb", reason="the extra 'site' is not installed")

from commandkit.errors import CommandError
from lessonkit.authoring.checkout import Checkout
from lessonkit.authoring.site import bar, check, command, formulas, npm, shown, sources

LECTURE = "lectures/00_x.ipynb"


@pytest.fixture
def to(tmp_path):
    (tmp_path / "to").mkdir()
    return tmp_path / "to"


def title_of(root, to, repository=None, slides=None):
    """The first cell of the lecture as the site has it."""
    toy = OneLesson(root)
    toy.repository = repository
    return sources.Sources(root, to, toy, slides=slides).notebook(LECTURE).cells[0].source


def test_a_lectures_bar_offers_its_notebook_as_it_is_and_its_assignment(course, to):  # noqa: F811
    text = title_of(course, to)
    assert text.startswith("# Lecture 00 · A lookup\n\n{.lesson-bar}\n")
    assert "[Download notebook](path:../notebooks/00_x.ipynb)" in text and "(../assignments/a00.ipynb)" in text
    assert (to / "notebooks/00_x.ipynb").read_bytes() == (course / LECTURE).read_bytes()
    assert "Slides" not in text and "Report" not in text


def test_an_error_is_reported_where_the_course_has_its_repository_with_the_pages_name(course, to):  # noqa: F811
    address = re.search(r"\[Report an error\]\(([^)]*)\)", title_of(course, to, "https://example.org/us/course/"))
    asked = urlsplit(address[1])
    assert asked.path == "/us/course/issues/new"
    filled_in = parse_qs(asked.query)
    assert filled_in["title"] == ["Error in Lecture 00 · A lookup"] and LECTURE in filled_in["body"][0]


def test_without_a_repository_a_page_says_how_to_report(course, to):  # noqa: F811
    write(course / bar.REPORT, "# Tested\n\n## Report an error\n")
    assert f"[Report an error](../{bar.REPORT}#report-an-error)" in title_of(course, to)


def test_slides_are_linked_where_the_lesson_has_them_and_lie_in_the_book(course, tmp_path, monkeypatch):  # noqa: F811
    write(tmp_path / "decks/00/index.html", "<a href='#/2'>next</a>")
    monkeypatch.setattr(npm, "put", lambda package, folder: (folder / "tex-svg.js").write_text(""))
    monkeypatch.setattr(npm, "keep", lambda package: None)
    monkeypatch.setattr(formulas, "node", lambda: None)
    command.site(Checkout(course, OneLesson(course)), tmp_path / "site", slides=tmp_path / "decks")
    page = (tmp_path / "site/lectures/00_x.html").read_text(encoding="utf-8")
    assert '<a href="../slides/00/index.html">Slides</a>' in page
    assert (tmp_path / "site/slides/00/index.html").is_file()
    assert re.search(r'href="../_downloads/\w+/00_x.ipynb"', page)
    footer = re.search(r'<p class="colophon">\s*attncourse \d+\.\d+\.\d+, built on \d\d \w+ 20\d\d', page)
    assert footer and "What changed" not in page  # there is no such page here


def test_slides_are_no_pages_of_the_book_to_be_checked(tmp_path):
    write(tmp_path / "slides/site/slides/00/index.html", "<a href='#/2'>next</a>")
    write(tmp_path / "slides/site/index.html", "<a href='#/2'>next</a>")
    (fault,) = check.faults(tmp_path / "slides/site")
    assert fault.startswith("index.html: ")


def test_a_folder_without_slides_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "_open", lambda root: None)
    with pytest.raises(CommandError, match=r"--slides: .* has no slides of a lesson"):
        command.main(type("Args", (), {"slides": tmp_path}))


def test_a_link_to_the_courses_zip_leads_to_a_release_made_once(course, to, monkeypatch):  # noqa: F811
    made = []
    monkeypatch.setattr(sources, "release", lambda checkout, zip: (made.append(checkout.root), zip.write_bytes(b"PK")))
    ours = sources.Sources(course, to, OneLesson(course))
    for _ in range(2):
        assert ours.relink("[x](../toy_lessons.zip)", "docs/grading.md") == "[x](path:../toy_lessons.zip)"
    assert made == [course] and (to / "toy_lessons.zip").is_file()


# What a page shows of the course itself


@dataclasses.dataclass
class Card:
    html: str

    def _repr_html_(self):
        return self.html


def cards():
    return [Card("<b>one</b>"), Card("<b>two</b>")]


def nothing():
    return object()


def test_a_marker_becomes_what_its_function_returns():
    text = shown.filled(f"before\n\n<!-- show: {__name__}:cards -->\n\nafter", "_static")
    assert "<b>one</b>" in text and "<b>two</b>" in text and 'data-shown="cards"' in text
    assert text.startswith("before") and text.endswith("after") and "widgets.js" not in text
    assert shown.filled("as it is", "_static") == "as it is"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (f"{__name__}:gone", "there is no such function"),
        ("no_such_package:gone", "there is no such function"),
        (f"{__name__}:nothing", "object: no page can show it"),
    ],
)
def test_what_cannot_be_shown_is_told(asked, words):
    with pytest.raises(CommandError, match=words):
        shown.filled(f"<!-- show: {asked} -->", "_static")


def test_the_translators_widgets_are_in_one_state_each_with_its_picture_and_words():
    text = shown.filled("<!-- show: attncourse_lessons.landing:translator -->", "../_static")
    state = json.loads(re.search(r"widget-state\+json\">(.*?)</script>", text)[1])["state"]
    views = [json.loads(view)["model_id"] for view in re.findall(r"widget-view\+json\">(.*?)</script>", text)]
    assert views == [*state] and len(views) == 3
    assert all(re.findall(r'<img src="data:image/png;base64,[^"]+" width="\d+" alt="Attention viewer [^"]+"', text))
    assert text.count("<img ") == 3 and '<script src="../_static/widgets.js" defer></script>' in text


ROOT = Path(__file__).parents[2]


def test_the_wrong_answer_of_the_start_page_is_the_one_whose_verdict_it_shows():
    from attncourse_lessons import landing

    code = re.search(r"```python\n(.*?)```", (ROOT / "docs/index.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    exec(code, names := {})
    assert names["attention_distribution"].__code__.co_code == landing.masked_too_late.__code__.co_code
    verdict = landing.verdict()
    assert [mistake.name for mistake in verdict.misconceptions] == ["masks after the softmax"]
    assert 0 < verdict.points < verdict.out_of


def test_the_kept_translator_says_what_the_start_page_says_of_it():
    from attncourse_lessons.results import measured

    kept = measured("landing")
    assert kept["trained"].startswith("attncourse train --data multi30k")
    for one in kept["sentences"]:
        shape = (len(one["written"]), len(one["source"]))
        cross = one["weights"]["cross"]
        assert {(len(head), len(head[0])) for layer in cross for head in layer} == {shape}
        assert len(one["target"]) == len(one["written"])
