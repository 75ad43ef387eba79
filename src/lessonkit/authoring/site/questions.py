"""The self-test: the question bank as a page of the book."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from html import escape
from importlib.resources import files

from lessonkit.authoring.questions.bank import questions
from lessonkit.authoring.questions.exports import LETTERS, by_lesson, html, html_inline
from lessonkit.authoring.questions.question import Option, Question
from lessonkit.authoring.site.practice import kept
from lessonkit.course import Course

MARKER = re.compile(r"^<!-- questions -->$", re.MULTILINE)  # a line of its own: elsewhere it is only spoken of
OWN = files("lessonkit.authoring.questions")


def filled(text: str, course: Course, titles: Mapping[str, str], solved: Collection[str] | None = None) -> str:
    """A page's Markdown with the questions in the place of its marker; `titles` are the lessons', by their numbers.

    Those that show solved code are of the assignments in `solved`, or of all.
    """
    if not MARKER.search(text):
        return text
    shown = [question for question in of_course(course)
             if solved is None or not question.shows_solution or f"a{question.lesson}" in solved]  # fmt: skip
    return MARKER.sub(lambda _: f"````{{raw}} html\n{page(shown, titles)}\n````", text)


def of_course(course: Course) -> list[Question]:
    """The course's questions of seed 0, from the user's cache where nothing has changed."""
    told = kept(course, "questions", lambda: [as_data(question) for question in questions(course)])
    return [from_data(each) for each in told]


def as_data(question: Question) -> dict:
    """A question as JSON data."""
    return vars(question) | {"options": [vars(option) for option in question.options]}


def from_data(told: dict) -> Question:
    """The question that `as_data` told of."""
    return Question(**(told | {"options": tuple(Option(**each) for each in told["options"])}))


def page(shown: Sequence[Question], titles: Mapping[str, str]) -> str:
    """The questions as HTML, a part to unfold for each lesson; without scripts its answers are there, too."""
    parts = [f"<style>{(OWN / 'page.css').read_text('utf-8')}</style>"]
    for lesson, group in by_lesson(shown):
        title = f"{lesson} · {escape(titles.get(lesson, ''))}"
        parts.append(f'<details class="qb-lesson" id="questions-{lesson}"><summary>{title}: '
                     f'<span class="qb-tally">{len(group)} questions</span></summary>')  # fmt: skip
        parts += [_question(question, number) for number, question in enumerate(group, start=1)]
        parts.append("</details>")
    parts.append(f"<script>\n{(OWN / 'page.js').read_text('utf-8')}</script>")
    return "\n".join(parts)


def _question(question: Question, number: int) -> str:
    name = f"q-{question.lesson}-{number}"
    rows, reasons = [], []
    for place, option in enumerate(question.options):
        mark = " data-right" if option.right else ""
        rows.append(
            f'<div class="qb-option"><input type="radio" name="{name}" id="{name}-{place}"{mark}>'
            f'<span aria-hidden="true">{LETTERS[place]}</span><span class="qb-mark" aria-hidden="true"></span>'
            f'<label for="{name}-{place}">{_in_line(option.text)}</label></div>'
        )
        right = "<strong>right</strong>" if option.right else "wrong"
        reasons.append(f'<li>{right}. <span class="qb-why">{html_inline(option.reason)}</span></li>')
    return (
        f'<fieldset class="qb"><legend>{question.lesson}, question {number}</legend>\n{html(question.prompt)}\n'
        f'{"".join(rows)}\n<div class="qb-told" role="status"></div>\n'
        f'<details class="qb-reasons"><summary>The answer, with reasons</summary>'
        f'<ol type="{LETTERS[0]}">{"".join(reasons)}</ol></details></fieldset>'
    )


def _in_line(text: str) -> str:
    """An option as a label may hold it: a block of code becomes code in the line."""
    block = re.fullmatch(r'<pre><code class="language-text">(.*?)\n?</code></pre>', html_inline(text), re.DOTALL)
    return f'<code class="qb-pre">{block[1]}</code>' if block else html_inline(text)
