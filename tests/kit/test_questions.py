"""The question bank's exports, read in again as Moodle and Canvas read them; its command, and its page."""

import io
import re
import zipfile
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from bs4 import BeautifulSoup

from attncourse_lessons import course as lessons
from attncourse_lessons.cli import main
from commandkit.errors import CommandError
from lessonkit.authoring.checkout import open_course
from lessonkit.authoring.questions import command, exports, generate
from lessonkit.authoring.questions.exports import html
from lessonkit.authoring.questions.question import Option, Question
from lessonkit.authoring.release import contents

ROOT = Path(__file__).resolve().parents[2]
DTD = Path(__file__).with_name("qti.dtd")
TITLES = {"03": "Cross-attention", "04": "Self-attention / by itself"}
TABLE = "```text\n✓ ·\n✓ ✓\n```"


def question(lesson, name, right, *texts, prompt="Which?", generated=False):
    options = tuple(Option(text, place == right, f"because of {text!r}") for place, text in enumerate(texts))
    return Question(lesson, name, prompt, options, 2.0, 2, generated)


BANK = [
    question("03", "plain", 2, "one", "two", "three", "four"),
    question("04", "hard", 0, "`a < b && c`", "`]]>`", TABLE, "*ä* “√d_k” → ∞",
             prompt="`f`: <b>no</b> tag & *so*\n\n```text\ndef f(x):\n    return x @ x.mT  # _ < &amp;\n```\n\nWhy?"),
    question("04", "cause-1", 3, "`a`", "`b`", "`c`", "`d`", generated=True),
]  # fmt: skip


class Words(HTMLParser):
    """The text of a piece of HTML, which must be well-formed."""

    def __init__(self, html):
        super().__init__()
        self.said, self.open = "", []
        self.feed(html)
        assert self.open == []

    def handle_data(self, data):
        self.said += data

    def handle_starttag(self, tag, attributes):
        if tag not in ("br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def words(html):
    return " ".join(Words(html).said.split())


def told(questions):
    """What an import must find again: of each question lesson, text, points, options with reasons."""
    return [(each.lesson, words(exports.html(each.prompt)), each.points,
             [(words(exports.html(one.text)), one.right, words(exports.html(one.reason))) for one in each.options])
            for each in questions]  # fmt: skip


def from_moodle(text):
    """The questions of a Moodle XML file, as question/format/xml/format.php reads them."""
    found, lesson = [], None
    quiz = ET.fromstring(text)
    assert quiz.tag == "quiz"
    names = Counter()
    for top in quiz:
        assert top.tag == "question"
        if top.get("type") == "category":
            path = top.find("category/text").text.split("/")
            assert path[:3] == ["$course$", "top", "attncourse"] and len(path) == 4
            lesson = path[3].split()[0]
            continue
        assert top.get("type") == "multichoice" and top.find("single").text == "true"
        assert top.find("questiontext").get("format") == "html"
        assert top.find("shuffleanswers").text in ("true", "1") and top.find("answernumbering").text == "abc"
        names[top.find("name/text").text] += 1
        names[top.find("idnumber").text] += 1
        assert len(top.find("idnumber").text) <= 100  # the column's width
        answers = [
            (words(each.find("text").text), each.get("fraction") == "100", words(each.find("feedback/text").text))
            for each in top.findall("answer")
        ]
        assert sum(float(each.get("fraction")) for each in top.findall("answer")) == 100
        points = int(top.find("defaultgrade").text)
        found.append((lesson, words(top.find("questiontext/text").text), points, answers))
    assert max(names.values()) == 1
    return found


def from_canvas(data):
    """The questions of a Canvas export: found by the manifest, and each answer given to the item's own rules."""
    archive = zipfile.ZipFile(io.BytesIO(data))
    assert archive.testzip() is None
    space = {"p": exports.PACKAGE, "q": exports.QTI, "c": exports.CANVAS}
    manifest = ET.fromstring(archive.read("imsmanifest.xml"))
    listed = {each.get("href") for each in manifest.iterfind(".//p:file", space)}
    assert listed | {"imsmanifest.xml"} == set(archive.namelist())
    resources = {each.get("identifier"): each for each in manifest.iterfind(".//p:resource", space)}
    found = []
    for resource in resources.values():
        if resource.get("type") != "imsqti_xmlv1p2":
            continue
        assert resource.find("p:dependency", space).get("identifierref") in resources
        top = ET.fromstring(archive.read(resource.find("p:file", space).get("href")))
        title = top.find("q:assessment", space).get("title")
        meta = ET.fromstring(archive.read(f"{resource.get('identifier')}/assessment_meta.xml"))
        assert meta.find("c:title", space).text == title
        for item in top.iterfind(".//q:item", space):
            fields = {each[0].text: each[1].text for each in item.iterfind(".//q:qtimetadatafield", space)}
            assert fields["question_type"] == "multiple_choice_question"
            answers = item.findall(".//q:response_label", space)
            assert fields["original_answer_ids"].split(",") == [each.get("ident") for each in answers]
            prompt = words(item.find("q:presentation/q:material/q:mattext", space).text)
            options = [
                (words(each.find(".//q:mattext", space).text), *given(item, each.get("ident"), space))
                for each in answers
            ]
            found.append((title.split()[1], prompt, int(float(fields["points_possible"])), options))
    return found


def given(item, answer, space):
    """What the item's response processing makes of an answer: whether it scores, and the feedback."""
    score, shown = 0.0, []
    for rule in item.iterfind(".//q:respcondition", space):
        if rule.find("q:conditionvar/q:varequal", space).text != answer:
            continue
        for change in rule.iterfind("q:setvar", space):
            score = float(change.text)
        shown += [each.get("linkrefid") for each in rule.iterfind("q:displayfeedback", space)]
        if rule.get("continue") == "No":
            break
    feedback = {
        each.get("ident"): each.find(".//q:mattext", space).text for each in item.iterfind("q:itemfeedback", space)
    }
    assert len(shown) == 1 and score in (0.0, 100.0)
    return score == 100.0, words(feedback[shown[0]])


@pytest.fixture(scope="module")
def real():
    from lessonkit.authoring.questions.bank import questions

    return questions(lessons, ["06"])


def test_what_moodle_reads_is_what_was_asked(real):
    for bank in (BANK, real):
        assert from_moodle(exports.moodle(bank, TITLES, "attncourse")) == told(bank)


def test_what_canvas_reads_and_scores_is_what_was_asked(real):
    for bank in (BANK, real):
        assert from_canvas(exports.canvas(bank, TITLES, "attncourse")) == told(bank)
        assert exports.canvas(bank, TITLES, "attncourse") == exports.canvas(bank, TITLES, "attncourse")


def test_the_qti_is_valid_by_the_published_content_models(real):
    etree = pytest.importorskip("lxml.etree")
    with DTD.open("rb") as file:
        dtd = etree.DTD(file)
    good = exports.qti([*BANK, *real], "g1", "All")
    assert dtd.validate(etree.fromstring(good.encode())), dtd.error_log
    bad = good.replace("<outcomes>", "<outcome>").replace("</outcomes>", "</outcome>")
    assert not dtd.validate(etree.fromstring(bad.encode()))


def test_the_sheet_has_every_question_and_ends_with_the_answers(real):
    text = exports.markdown(BANK, TITLES, "attncourse")
    sheet, _, key = text.partition("# Answers")
    assert [int(number) for number in re.findall(r"^### Question (\d+)", sheet, re.MULTILINE)] == [1, 2, 3]
    assert re.findall(r"^\*\*(\d): ([A-D])\.\*\*", key, re.MULTILINE) == [("1", "C"), ("2", "A"), ("3", "D")]
    assert "because" not in sheet and "## 04 Self-attention" in sheet and "  ✓ ·\n  ✓ ✓\n" in sheet
    assert exports.html(exports.markdown(real, TITLES, "attncourse")).count("<h3>") == len(real)


def test_the_command_writes_what_the_files_name_says_and_counts_without_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(
        command, "questions", lambda course, chosen, seed: [q for q in BANK if q.lesson in (chosen or "0304")]
    )
    assert main(["questions"]) == 0
    assert "04    1 generated    1 written  Self-attention" in capsys.readouterr().out
    for name, begins in (("bank.xml", b"<?xml"), ("bank.zip", b"PK"), ("new/bank.md", b"# attncourse")):
        assert main(["questions", "--lessons", "04", "--to", str(tmp_path / name)]) == 0
        assert "2 questions, 4 points, about 4 minutes" in capsys.readouterr().out
        assert (tmp_path / name).read_bytes().startswith(begins)
    assert main(["questions", "--to", str(tmp_path / "bank.txt")]) == 1
    assert "must end in .xml, .zip, .md" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["questions", "--to", str(tmp_path / "file" / "bank.md")]) == 1
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", ["x + self.attention[layer](self.norm_1[layer](x))", "a * b[_] * c", "n<d>n", r"\_", "a lone ` and a[n](d)"]
)
def test_a_line_of_an_answer_that_a_check_quotes_is_shown_as_it_is(line):
    shown = BeautifulSoup(html(generate._verbatim(f"raised ValueError  (line 2: {line})")), "html.parser")
    assert [each.name for each in shown.find_all()] == ["p"] and line in shown.text


def test_what_a_check_says_in_code_stays_code():
    assert "<code>x[0]</code> is" in html(generate._verbatim("`x[0]` is [1, 2]"))


def test_lessons_are_named_by_numbers_and_ranges():
    assert lessons.numbers("04") == ["04"]
    assert lessons.numbers("00-02, 07") == ["00", "01", "02", "07"]
    for wrong in ("4", "a04", "03-99", "05-03", ""):
        with pytest.raises(CommandError, match="names no lessons"):
            lessons.numbers(wrong)


def test_students_are_not_given_the_written_questions():
    names = [name for name, _ in contents(open_course(ROOT))]
    assert any(name.endswith("l04_self_attention/exercises/self_attention.py") for name in names)
    assert not [name for name in names if re.search(r"l\d\d_\w+/questions\.py$", name)]


def test_the_page_shows_solved_code_only_of_what_is_solved(monkeypatch):
    page = pytest.importorskip("lessonkit.authoring.site.questions")
    monkeypatch.setattr(page, "of_course", lambda course: BANK)

    def shown(*solved):
        return re.findall(r"<legend>(\d\d, question \d)", page.filled("<!-- questions -->", lessons, TITLES, *solved))

    assert shown() == ["03, question 1", "04, question 1", "04, question 2"]
    assert shown(["a04"]) == shown() and shown([]) == shown()[:2]
    assert (
        page.filled("without <!-- questions --> in a line", lessons, TITLES) == "without <!-- questions --> in a line"
    )
    assert [page.from_data(page.as_data(each)) for each in BANK] == BANK
