"""`lessonkit print`: the course as one PDF, with contents, page numbers, and what the pages fold at the end."""

import argparse
import html
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from commandkit.files import write_whole
from lessonkit.authoring import solutions

with require_extra(typed("print"), "print"):
    import nbformat
    from bs4 import BeautifulSoup, Tag

    from lessonkit.authoring.checkout import Checkout, open_course
    from lessonkit.authoring.printing import paper, press
    from lessonkit.authoring.site import tasks
    from lessonkit.authoring.source import MARKERS
    from lessonkit.exercises.exercise import Exercise

APPENDIX = ("docs/notation.md",)  # pages that a reader on paper looks up
AT_THE_END = "At the end"
PAPERS = ("A4", "Letter")


@dataclass
class Chapter:
    """A chapter; `name` is where links to it lead. The contents list its sections if they `show` them."""

    name: str
    part: str
    tree: BeautifulSoup
    page: str = ""  # its path in the course's folder
    show: bool = True

    @property
    def title(self) -> str:
        heading = self.tree.find("h1")
        return re.sub(r"^(Lecture|Assignment) ", "", heading.get_text()) if heading else self.name

    @property
    def head(self) -> str:
        """What stands at the top of each page."""
        return self.title.partition(":")[0]


@dataclass
class Book:
    """The book of a course, with the solutions of the assignments in `solved`, or with all."""

    checkout: Checkout
    solved: Collection[str] | None = None
    chapters: list[Chapter] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    def document(self, size: str = "A4") -> str:
        """The book as one page of HTML, to be laid out by Chromium."""
        self._gather()
        places = {chapter.page: chapter.name for chapter in self.chapters}
        for chapter in self.chapters:
            paper.relink(chapter.tree, chapter.page, places, chapter.name)
            self._move_answers(chapter)
        course = self.checkout.course
        answers = paper.soup(f"<h1>Answers</h1>{''.join(self.answers)}")
        last = [self._hints(), Chapter("answers", AT_THE_END, answers)]
        if self.solved is None or self.solved:
            last.append(self._solutions(places))
        chapters = [*self.chapters, *last]
        heads = "\n".join(f'@page {c.name} {{ @top-left {{ content: "{_css(c.head)}" }} }}' for c in chapters)
        style = "\n".join((paper.style("book.css", size), heads))
        sections = "".join(
            f'<section class="chapter" id="{c.name}" style="page: {c.name}">{c.tree}</section>' for c in chapters
        )
        title = self._title()
        edition = f"{course.distribution} {_version(course.distribution)}".strip()
        cover = COVER.format(title=html.escape(title), edition=html.escape(edition), date=date.today())
        return paper.document(title, style, f"{cover}{contents(chapters)}{sections}")

    def _gather(self) -> None:
        root, course = self.checkout.root, self.checkout.course
        for lesson in course.lessons:
            tree = paper.body(_notebook(root, lesson.lecture_notebook))
            self.chapters.append(Chapter(f"l{lesson.number}", "Lectures", tree, lesson.lecture_notebook))
        for lesson in course.lessons:
            notebook = _notebook(root, lesson.assignment_notebook)
            help_for = partial(self._where_help_is, solved=self._is_solved(lesson.assignment))
            tree = paper.body(tasks.below_checks(notebook, course.exercises_of(lesson.assignment), help_for))
            page = lesson.assignment_notebook
            self.chapters.append(Chapter(lesson.assignment, "Assignments", tree, page, show=False))
        for page in APPENDIX:
            if (root / page).is_file():
                tree = paper.markdown((root / page).read_text(encoding="utf-8"))
                self.chapters.append(Chapter(Path(page).stem, "To look up", tree, page, show=False))

    def _where_help_is(self, exercise: Exercise, solved: bool) -> str:
        told = [f"Hints: page {_page(f'hints-{exercise.name}')}."] if exercise.hints else []
        if solved:
            told.append(f"Solution: page {_page(f'solution-{exercise.name}')}.")
        return f'<p class="see">{" ".join(told)}</p>'

    def _is_solved(self, assignment: str) -> bool:
        return self.solved is None or assignment in self.solved

    def _move_answers(self, chapter: Chapter) -> None:
        """Put each folded answer at the end of the book, and open every other fold where it stands."""
        moved: list[str] = []
        for fold in chapter.tree.find_all("details"):
            if not is_answer(fold):
                fold.name, fold["class"] = "div", "aside"
                if summary := fold.find("summary"):
                    summary.name, summary["class"] = "p", "summary"
                continue
            name = f"{chapter.name}-{len(moved) + 1}"
            number = f"{chapter.name.lstrip('la')}.{len(moved) + 1}"
            back = f'<span class="of">, question on page {_page(f"question-{name}")}</span>'
            heading = f'<h3 id="answer-{name}">{number}{back}</h3>'
            moved.append(f'<div class="answer math-inside">{heading}{paper.inside(fold)}</div>')
            see = f'<p class="see">{paper.title_of(fold)} {number}: page {_page(f"answer-{name}")}</p>'
            fold.replace_with(paper.soup(f'<div id="question-{name}">{see}</div>'))
        if moved:
            self.answers.append(f"<h2>{html.escape(chapter.title)}</h2>{''.join(moved)}")

    def _hints(self) -> Chapter:
        parts = ["<h1>Hints</h1><p>The first nudges, the last nearly tells. Read one, and go back.</p>"]
        course = self.checkout.course
        for assignment in course.assignments():
            parts.append(f"<h2>Assignment {assignment[1:]}</h2>")
            for exercise in course.exercises_of(assignment):
                told = "".join(f"<li>{paper.markdown(tasks.as_markdown(hint))}</li>" for hint in exercise.hints)
                parts.append(f'<h3 id="hints-{exercise.name}"><code>{exercise.name}</code></h3><ol>{told}</ol>')
        return Chapter("hints", AT_THE_END, paper.soup("".join(parts)), show=False)

    def _solutions(self, places: dict[str, str]) -> Chapter:
        root, course = self.checkout.root, self.checkout.course
        parts = []
        for lesson in course.lessons:
            if not self._is_solved(lesson.assignment):
                continue
            page = lesson.assignment_notebook.replace("assignments", "solutions", 1)
            notebook = _notebook(root, page)
            parts.append(f"<h2>Assignment {lesson.number}</h2>")
            for cell in notebook.cells:
                told = cell.metadata.get("nbgrader", {})
                if told.get("solution"):
                    cell.source = MARKERS.sub("", cell.source)
                    if "outputs" in cell:
                        cell.outputs = []
                    shown = paper.body(nbformat.v4.new_notebook(cells=[cell]))
                    paper.relink(shown, page, places, f"solution-{lesson.number}")
                    parts.append(f'<h3 id="solution-{told["grade_id"]}"><code>{told["grade_id"]}</code></h3>{shown}')
        return Chapter("solutions", AT_THE_END, paper.soup(f"<h1>Solutions</h1>{''.join(parts)}"), show=False)

    def _title(self) -> str:
        page = self.checkout.root / "docs/index.md"
        found = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE) if page.is_file() else None
        return found[1] if found else self.checkout.course.distribution


COVER = """<section class="cover"><h1>{title}</h1>
<p>The lectures and assignments of {edition}, printed {date}</p>
<p class="note">The code of a page runs in its notebook; cells that only set up or test are left out here. Figures that
move are shown still. Answers, hints and solutions are at the end: a line under each question says on which page.</p>
</section>"""


def is_answer(fold: Tag) -> bool:
    """Whether a fold hides an answer: it says so, or it stands in a box of questions."""
    return paper.title_of(fold).startswith("Answer") or bool(fold.find_parent("blockquote", class_="check-yourself"))


def contents(chapters: list[Chapter]) -> str:
    """The contents, by parts, with page numbers that the press fills in."""
    lines, part = [], ""
    for chapter in chapters:
        if chapter.part != part:
            part = chapter.part
            lines.append(f'<p class="part">{part}</p>')
        lines.append(_line("chapter-line", chapter.name, html.escape(chapter.title)))
        for heading in chapter.tree.find_all("h2") if chapter.show else []:
            if heading.get("id"):
                lines.append(_line("section-line", str(heading["id"]), heading.decode_contents()))
    return f'<nav class="contents"><h1>Contents</h1>{"".join(lines)}</nav>'


def _line(look: str, name: str, title: str) -> str:
    return f'<p class="{look}"><a href="#{name}">{title}</a><span class="dots"></span>{_page(name)}</p>'


def _page(name: str) -> str:
    """A link whose words are the page on which `name` stands; until that is known, room for them."""
    return f'<a class="page" href="#{name}">000</a>'


def _css(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"")


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def _notebook(root: Path, name: str) -> nbformat.NotebookNode:
    if not (root / name).is_file():
        raise CommandError(f"there is no {name}: build it first")
    return nbformat.read(root / name, as_version=4)


EXAMPLES = """
PROGRAM print
PROGRAM print --to course.pdf --solutions-until a05
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", type=Path, metavar="FILE", help="default: build/NAME.pdf, NAME the course's")
    parser.add_argument("--paper", choices=PAPERS, default="A4", help="default: A4")
    which = solutions.add_arguments(parser)
    which.add_argument("--without-solutions", action="store_true", help="with no solution (default: with all)")


def main(args: argparse.Namespace) -> int:
    checkout = open_course(Path.cwd())
    to = args.to or Path("build") / f"{checkout.course.distribution}.pdf"
    solved = [] if args.without_solutions else solutions.chosen(args, checkout)
    with press.opened(Book(checkout, solved).document(args.paper)) as page:
        made = press.numbered(page)
    write_whole(to, made)
    print(f"{to}: {press.length(made)} pages")
    return 0
