"""The page for marking, served to one browser on this machine: who has the address with its token, and nobody else.

Tornado does the work, as it does for Jupyter. The page's own words and the answers come to the browser as text and as
HTML that was made safe; a policy (CSP) forbids what could run or load all the same.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from html import escape
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from tornado import web

from commandkit.errors import CommandError
from lessonkit.grading.gradebook.nbgrader_app import assignment_of
from lessonkit.grading.handback.feedback import safe_markdown
from lessonkit.grading.marking.groups import groups
from lessonkit.grading.marking.marks import Changed, Entry, Mark, NoMark, change, entries, errors_in_a_line, opened
from lessonkit.grading.marking.questions import Question, Written, written, written_questions

HERE = Path(__file__).parent
FILES = {"page.js": "text/javascript", "page.css": "text/css", "tex-svg.js": "text/javascript"}
LONGEST = 20_000  # characters of an answer that are made a page of
PICTURES = 5_000_000  # characters of the pictures attached to it, each as often as it is shown
MOST_FORMULAS = 400  # dollar signs of an answer whose formulas are typeset: the browser waits for them
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass
class Marking:
    """An assignment that is being marked. Its methods wait for files and for the gradebook: one thread calls them."""

    coursedir: CourseDirectory
    assignment: str
    questions: Sequence[Question]
    hide_names: bool = False
    mathjax: Path | None = None
    _written: dict[str, Written] = field(default_factory=dict)  # by the grade's id, of what the pages have listed
    _places: dict[str, tuple[Path, str]] = field(default_factory=dict)  # of the same: the notebook, and the cell's name

    @classmethod
    def of(cls, coursedir: CourseDirectory, name: str, **options: Any) -> Marking:
        """CommandError where there is no such assignment, or nothing to mark in it."""
        with errors_in_a_line(coursedir), assignment_of(coursedir, name) as (_, assignment):
            questions = written_questions(coursedir, assignment)
        if not questions:
            raise CommandError(f"{name} has no written questions: there is nothing to mark by hand")
        return cls(coursedir, name, questions, **options)

    def progress(self) -> list[dict[str, int]]:
        """Of each question, how many answers there are to mark, and how many are marked."""
        with opened(self.coursedir) as gradebook:
            return [_counted(self._entries(gradebook, question)) for question in self.questions]

    def answers(self, number: int) -> dict[str, Any]:
        """The answers to a question, similar ones together, what nobody has written last; and the marks."""
        question = self.questions[number]
        with opened(self.coursedir) as gradebook:
            found = self._entries(gradebook, question)
        found.sort(key=lambda entry: entry.grade)  # drawn by nbgrader, so that the order tells no names
        for entry in found:
            self._places[entry.grade] = where = (self._path(entry.student, question.notebook), question.name)
            self._written[entry.grade] = written(*where)
        full: list[Entry] = []
        empty: list[Entry] = []
        for entry in found:
            (empty if self._is_empty(entry, question) else full).append(entry)
        kinds = [[full[i] for i in group] for group in groups([self._written[entry.grade].words for entry in full])]
        listed = [self._listed(entry, place, False) for place, group in enumerate(kinds) for entry in group]
        listed += [self._listed(entry, len(kinds), True) for entry in empty]
        return {"answers": listed, "counted": _counted(found)}

    def marks(self, number: int) -> dict[str, dict[str, Any]]:
        """What the gradebook says now of the answers to a question, by their grades' ids."""
        with opened(self.coursedir) as gradebook:
            return {entry.grade: entry.mark.as_dict() for entry in self._entries(gradebook, self.questions[number])}

    def shown(self, number: int, grade: str) -> str:
        """An answer as HTML that is safe to show. LookupError for one that was not listed."""
        return safe(self._written[grade], self.questions[number])

    def change(self, grade: str, text: str, seen: Mapping[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
        """Put a mark into the gradebook: `{"mark": …}`, or `{"changed": …}` where somebody else has meanwhile.

        `text` is the digest of the answer that was read: if another has been handed in, nothing is written either.
        """
        try:
            before = Mark(**{name: seen[name] for name in ("points", "comment", "is_automatic", "again")})
        except (KeyError, TypeError):
            raise NoMark("it is not said what was seen before") from None
        cells = {(self.assignment, question.notebook, question.name) for question in self.questions}
        if grade not in self._places:
            raise NoMark("there is no such answer on this page: load it anew")
        if written(*self._places[grade]).digest != text:
            return {"changed": seen, "rewritten": True}
        with opened(self.coursedir) as gradebook:
            try:
                return {"mark": change(gradebook, grade, cells, before, wanted).as_dict()}
            except Changed as changed:
                return {"changed": changed.now.as_dict()}

    def _entries(self, gradebook: Gradebook, question: Question) -> list[Entry]:
        return entries(gradebook, self.assignment, question.notebook, question.name)

    def _path(self, student: str, notebook: str) -> Path:
        folder = self.coursedir.format_path(self.coursedir.autograded_directory, student, self.assignment)
        return Path(folder) / f"{notebook}.ipynb"

    def _is_empty(self, entry: Entry, question: Question) -> bool:
        answer = self._written[entry.grade]
        return answer.source is not None and answer.words in ("", question.released.strip())

    def _listed(self, entry: Entry, group: int, is_empty: bool) -> dict[str, Any]:
        name = None if self.hide_names else entry.name or entry.student
        return {
            "id": entry.grade,
            "name": name,
            "student": None if self.hide_names else entry.student,
            "group": group,
            "empty": is_empty,
            "text": self._written[entry.grade].digest,
            "mark": entry.mark.as_dict(),
        }


def _counted(found: Sequence[Entry]) -> dict[str, int]:
    """What nbgrader has marked by itself, because nothing was written, is counted apart."""
    by_hand = [entry.mark for entry in found if not entry.mark.is_automatic]
    marked = sum(mark.points is not None and not mark.again for mark in by_hand)
    return {"of": len(by_hand), "marked": marked, "automatic": len(found) - len(by_hand)}


def safe(answer: Written, question: Question) -> str:
    """A student's cell as HTML that runs nothing, loads nothing, and takes a bounded time to make."""
    text = answer.source
    if text is None:
        return "<p><em>There is no such cell in the autograded notebook, or it cannot be read.</em></p>"
    if question.is_code or len(text) > LONGEST:
        more = f"<p><em>This is its beginning: it has {len(text)} characters.</em></p>" if len(text) > LONGEST else ""
        return f"{more}<pre>{escape(text[:LONGEST])}</pre>"
    shown = (len(json.dumps(held)) * max(1, text.count(name)) for name, held in answer.attachments.items())
    return markdown(text, answer.attachments if sum(shown) <= PICTURES else {})


def markdown(text: str, attachments: Mapping[str, Any] | None = None) -> str:
    """Markdown as safe HTML; the text as it is, where it is more than the parser can bear."""
    try:
        html = str(safe_markdown({"cell": {"attachments": attachments or {}}}, text))
    except (RecursionError, ValueError, LookupError, TypeError, AttributeError):
        html = f"<pre>{escape(text)}</pre>"
    formulas = text.count("$") <= MOST_FORMULAS
    return html if formulas else f'<div class="tex2jax_ignore">{html}</div>'


# ---------------------------------------------------------------------------------------------------------- the server


class Page(web.RequestHandler):
    """What every answer to a browser has in common: who may ask, and what the page may do."""

    def initialize(self, marking: Marking, token: str, call: Callable[..., Any]) -> None:
        self.marking, self.token, self._call = marking, token, call

    def set_default_headers(self) -> None:
        self.set_header("Content-Security-Policy", POLICY)
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cache-Control", "no-store")
        self.clear_header("Server")

    def prepare(self) -> None:
        """The token comes once in the address that the command prints, then in a cookie that scripts cannot read."""
        port = self.request.host.rpartition(":")[2]
        if self.request.host_name not in ("127.0.0.1", "localhost"):  # another name for this machine, by somebody's DNS
            raise web.HTTPError(403)
        cookie = f"lessonkit-mark-{port}"  # browsers send a cookie to all ports
        given = self.get_query_argument("token", "")
        if given and _same(given, self.token):
            self.set_cookie(cookie, self.token, httponly=True, samesite="Lax")
            self.redirect(f"/?q={self.number() + 1}")
        elif not _same(self.get_cookie(cookie) or "", self.token):
            raise web.HTTPError(403)

    async def call(self, method: Callable[..., Any], *args: Any) -> Any:
        """What the marking says, in its own thread; an error is told in one line."""
        try:
            return await self._call(method, *args)
        except (NoMark, CommandError) as error:
            return {"error": str(error)}

    def number(self) -> int:
        """The question that is asked for, from 0; the first where it is none."""
        said = self.get_query_argument("q", "1")
        number = int(said) if said.isascii() and said.isdecimal() and len(said) < 5 else 1
        return number - 1 if 1 <= number <= len(self.marking.questions) else 0

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        how = " Open the address that the command printed: it has a token." if status_code == 403 else ""
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{status_code} {self._reason}.{how}\n")


class Start(Page):
    """The page of a question."""

    async def get(self) -> None:
        marking, number = self.marking, self.number()
        question = marking.questions[number]
        counted = await self.call(marking.progress)
        self.render(
            "page.html",
            marking=marking,
            number=number,
            question=question,
            counted=counted if isinstance(counted, list) else [],
            text=markdown(question.text),
            scheme=markdown(question.scheme),
        )


class Answers(Page):
    """All answers to a question, without their texts."""

    async def get(self) -> None:
        self.finish(await self.call(self.marking.answers, self.number()))


class Marks(Page):
    """The marks as they are now; and, posted, a change of one."""

    async def get(self) -> None:
        self.finish(await self.call(self.marking.marks, self.number()))

    async def post(self) -> None:
        try:
            said = json.loads(self.request.body)
            grade, text = str(said["grade"]), str(said["text"])
            seen, wanted = dict(said["seen"]), dict(said["wanted"])
        except (ValueError, LookupError, TypeError, RecursionError):
            raise web.HTTPError(400) from None
        self.finish(await self.call(self.marking.change, grade, text, seen, wanted))


class Answer(Page):
    """One answer, to be shown."""

    async def get(self) -> None:
        try:
            html = await self.call(self.marking.shown, self.number(), self.get_query_argument("grade"))
        except LookupError:
            raise web.HTTPError(404) from None
        self.finish({"html": html})


class File(Page):
    """The page's own script and style, and MathJax where it is at hand."""

    async def get(self, name: str) -> None:
        path = self.marking.mathjax if name == "tex-svg.js" else HERE / name
        if name not in FILES or path is None:
            raise web.HTTPError(404)
        self.set_header("Content-Type", f"{FILES[name]}; charset=utf-8")
        self.finish(_content(path))


@lru_cache
def _content(path: Path) -> bytes:
    return path.read_bytes()


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), token.encode())


def application(marking: Marking, token: str, port: int) -> web.Application:
    """The server's application. Requests change the gradebook one after the other."""
    pool = ThreadPoolExecutor(1)

    def call(method: Callable[..., Any], *args: Any) -> Any:
        return asyncio.get_running_loop().run_in_executor(pool, partial(method, *args))

    what = {"marking": marking, "token": token, "call": call}
    return web.Application(
        [
            ("/", Start, what),
            ("/answers", Answers, what),
            ("/answer", Answer, what),
            ("/marks", Marks, what),
            ("/([a-z.-]+)", File, what),
        ],
        template_path=str(HERE),
        xsrf_cookies=True,
        xsrf_cookie_name=f"lessonkit-mark-xsrf-{port}",  # Jupyter has a cookie of the usual name
        xsrf_cookie_kwargs={"samesite": "Lax"},
        cookie_secret=secrets.token_hex(),
        log_function=lambda handler: None,
    )
