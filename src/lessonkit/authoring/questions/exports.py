"""The bank in the formats of others: Moodle XML, Canvas (QTI 1.2 in a zip file), Markdown; and as HTML of our own.

The same questions give the same bytes. Moodle's format is that of question/format/xml/format.php, QTI that of IMS QTI
1.2.1 with the fields that Canvas reads: https://www.imsglobal.org/question/, https://docs.moodle.org/en/Moodle_XML_format.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from xml.etree import ElementTree as ET

from commandkit.commands import typed
from commandkit.errors import require_extra
from lessonkit.authoring.questions.question import Option, Question

with require_extra(typed("questions"), "grading"):
    from markdown_it import MarkdownIt

LETTERS = "ABCDEFGH"
QTI = "http://www.imsglobal.org/xsd/ims_qtiasiv1p2"
PACKAGE = "http://www.imsglobal.org/xsd/imsccv1p1/imscp_v1p1"
CANVAS = "http://canvas.instructure.com/xsd/cccv1p0"
EPOCH = (1980, 1, 1, 0, 0, 0)  # of files in a zip file, which knows no earlier time
Titles = Mapping[str, str]     # of lessons, by their numbers

_markdown = MarkdownIt("commonmark")


def html(text: str) -> str:
    """Markdown as HTML."""
    return _markdown.render(text).strip()


def html_inline(text: str) -> str:
    """Markdown of one line as HTML without a paragraph around it; of a block, the block."""
    return html(text) if "\n" in text else _markdown.renderInline(text)


def by_lesson(questions: Sequence[Question]) -> Iterator[tuple[str, list[Question]]]:
    """The questions of each lesson, in order."""
    for lesson, group in groupby(questions, key=lambda question: question.lesson):
        yield lesson, list(group)


def digest(*words: str) -> str:
    """A name that is the same in every export of the same question."""
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]


# --------------------------------------------------------------------------------------------------------------- Moodle


def moodle(questions: Sequence[Question], titles: Titles, course: str) -> str:
    """A question bank for Moodle, a category for each lesson."""
    quiz = ET.Element("quiz")
    for lesson, group in by_lesson(questions):
        category = _add(quiz, "question", type="category")
        # A "/" would begin a category of its own.
        title = titles.get(lesson, "").replace("/", "-")
        _text(_add(category, "category"), f"$course$/top/{course}/{lesson} {title}".rstrip())
        _text(_add(category, "info", format="html"), "")
        for question in group:
            _moodle_question(quiz, question)
    return _xml(quiz)


def _moodle_question(quiz: ET.Element, question: Question) -> None:
    top = _add(quiz, "question", type="multichoice")
    _text(_add(top, "name"), f"{question.lesson} {question.name}")
    _text(_add(top, "questiontext", format="html"), html(question.prompt))
    _text(_add(top, "generalfeedback", format="html"), "")
    for name, value in (
        ("defaultgrade", f"{question.points}"), ("penalty", f"{1 / (len(question.options) - 1):.7f}"), ("hidden", "0"),
        ("idnumber", digest(question.lesson, question.name, question.prompt)), ("single", "true"),
        ("shuffleanswers", "true"), ("answernumbering", "abc"), ("showstandardinstruction", "0"),
    ):  # fmt: skip
        _add(top, name).text = value
    for name in ("correctfeedback", "partiallycorrectfeedback", "incorrectfeedback"):
        _text(_add(top, name, format="html"), "")
    for option in question.options:
        answer = _add(top, "answer", fraction="100" if option.right else "0", format="html")
        _text(answer, html(option.text))
        _text(_add(answer, "feedback", format="html"), html(option.reason))


# --------------------------------------------------------------------------------------------------------------- Canvas


def canvas(questions: Sequence[Question], titles: Titles, course: str) -> bytes:
    """A zip file that Canvas imports: a quiz for each lesson, whose questions are then in its question banks."""
    files, resources = {}, ET.Element("resources")
    for lesson, group in by_lesson(questions):
        ident = f"g{digest(course, lesson)}"
        title = f"{course} {lesson} {titles.get(lesson, '')}".rstrip()
        files[f"{ident}/{ident}.xml"] = qti(group, ident, title)
        files[f"{ident}/assessment_meta.xml"] = _canvas_meta(group, ident, title)
        told = _add(resources, "resource", identifier=ident, type="imsqti_xmlv1p2")
        _add(told, "file", href=f"{ident}/{ident}.xml")
        _add(told, "dependency", identifierref=f"{ident}_meta")
        kind = "associatedcontent/imscc_xmlv1p1/learning-application-resource"
        meta = _add(resources, "resource", identifier=f"{ident}_meta", type=kind, href=f"{ident}/assessment_meta.xml")
        _add(meta, "file", href=f"{ident}/assessment_meta.xml")
    manifest = ET.Element("manifest", xmlns=PACKAGE, identifier=f"g{digest(course, *files)}")
    metadata = _add(manifest, "metadata")
    _add(metadata, "schema").text = "IMS Content"
    _add(metadata, "schemaversion").text = "1.1.3"
    _add(manifest, "organizations")
    manifest.append(resources)
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {"imsmanifest.xml": _xml(manifest), **files}.items():
            info = zipfile.ZipInfo(name, EPOCH)
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(info, content)
    return held.getvalue()


def qti(questions: Sequence[Question], ident: str, title: str) -> str:
    """The questions as one QTI 1.2 assessment."""
    top = ET.Element("questestinterop", xmlns=QTI)
    assessment = _add(top, "assessment", ident=ident, title=title)
    _fields(assessment, {"cc_maxattempts": "1"})
    section = _add(assessment, "section", ident="root_section")
    for question in questions:
        _qti_item(section, question)
    return _xml(top)


def _qti_item(section: ET.Element, question: Question) -> None:
    ident = f"g{digest(question.lesson, question.name, question.prompt)}"
    item = _add(section, "item", ident=ident, title=f"{question.lesson} {question.name}")
    answers = [(f"{ident[:8]}{LETTERS[place]}", option) for place, option in enumerate(question.options)]
    _fields(_add(item, "itemmetadata"), {
        "question_type": "multiple_choice_question",
        "points_possible": f"{question.points:.1f}",
        "original_answer_ids": ",".join(answer for answer, _ in answers),
        "assessment_question_identifierref": f"q{ident}",
    })  # fmt: skip
    presentation = _add(item, "presentation")
    _material(presentation, question.prompt)
    response = _add(presentation, "response_lid", ident="response1", rcardinality="Single")
    choices = _add(response, "render_choice", shuffle="Yes")
    for answer, option in answers:
        _material(_add(choices, "response_label", ident=answer), option.text)
    processing = _add(item, "resprocessing")
    _add(_add(processing, "outcomes"), "decvar", maxvalue="100", minvalue="0", varname="SCORE", vartype="Decimal")
    for answer, _ in answers:
        _add(_given(processing, answer, "Yes"), "displayfeedback", feedbacktype="Response", linkrefid=f"{answer}_fb")
    right = _given(processing, answers[question.right][0], "No")
    _add(right, "setvar", action="Set", varname="SCORE").text = "100"
    for answer, option in answers:
        _material(_add(_add(item, "itemfeedback", ident=f"{answer}_fb"), "flow_mat"), option.reason)


def _given(processing: ET.Element, answer: str, go_on: str) -> ET.Element:
    condition = _add(processing, "respcondition", **{"continue": go_on})
    _add(_add(condition, "conditionvar"), "varequal", respident="response1").text = answer
    return condition


def _canvas_meta(questions: Sequence[Question], ident: str, title: str) -> str:
    quiz = ET.Element("quiz", xmlns=CANVAS, identifier=ident)
    told = {"title": title, "shuffle_answers": "true", "scoring_policy": "keep_highest", "quiz_type": "assignment",
            "points_possible": f"{sum(each.points for each in questions):.1f}"}  # fmt: skip
    for name, value in told.items():
        _add(quiz, name).text = value
    return _xml(quiz)


def _fields(parent: ET.Element, values: Mapping[str, str]) -> None:
    metadata = _add(parent, "qtimetadata")
    for label, entry in values.items():
        field = _add(metadata, "qtimetadatafield")
        _add(field, "fieldlabel").text = label
        _add(field, "fieldentry").text = entry


def _material(parent: ET.Element, markdown: str) -> None:
    _add(_add(parent, "material"), "mattext", texttype="text/html").text = html(markdown)


def _add(parent: ET.Element, name: str, **attributes: str) -> ET.Element:
    return ET.SubElement(parent, name, attributes)


def _text(parent: ET.Element, text: str) -> None:
    _add(parent, "text").text = text


def _xml(top: ET.Element) -> str:
    ET.indent(top)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(top, encoding="unicode")}\n'


# ------------------------------------------------------------------------------------------------------------- Markdown


def markdown(questions: Sequence[Question], titles: Titles, course: str) -> str:
    """A sheet to print, and after it the answers with their reasons."""
    sheet, key = [f"# {course}: questions"], ["# Answers"]
    number = 0
    for lesson, group in by_lesson(questions):
        for part in (sheet, key):
            part.append(f"## {lesson} {titles.get(lesson, '')}".rstrip())
        for question in group:
            number += 1
            worth = f"{question.points} point{'s' * (question.points != 1)}, {question.minutes:g} minutes"
            sheet.append(f"### Question {number} ({worth})\n\n{question.prompt}\n\n{options(question)}")
            right = question.options[question.right]
            told = [f"**{number}: {LETTERS[question.right]}.** {right.reason}"]
            told += [f"- {LETTERS[place]}: {option.reason}"
                     for place, option in enumerate(question.options) if not option.right]  # fmt: skip
            key.append(f"{told[0]}\n\n" + "\n".join(told[1:]))
    return "\n\n".join([*sheet, *key]) + "\n"


def options(question: Question) -> str:
    """A question's options as a list with letters."""
    return "\n".join(_lettered(place, option) for place, option in enumerate(question.options))


def _lettered(place: int, option: Option) -> str:
    letter = f"- {LETTERS[place]}."
    if "\n" not in option.text:
        return f"{letter} {option.text}"
    return f"{letter}\n\n" + re.sub("^", "  ", option.text, flags=re.MULTILINE) + "\n"
