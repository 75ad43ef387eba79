"""`lessonkit handout`: a lecture on six pages to take along and to write on.

What is kept of the lecture: headings, the sentences that introduce a term (it is bold), key equations in boxes,
pictures, predictions and questions with room to write. The key equations of the summary are asked from memory. The
pictures of what was found come after that, the answers on the last page.
"""

import argparse
import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from commandkit.files import write_whole
from lessonkit.course import Lesson

with require_extra(typed("handout"), "print"):
    import nbformat
    from bs4 import NavigableString, Tag

    from lessonkit.authoring.checkout import open_course
    from lessonkit.authoring.printing import paper, press
    from lessonkit.authoring.printing.book import PAPERS, is_answer

PAGES = 6  # at most, the answers' among them
# How a lecture asks for a prediction: in italics, with one of these.
CUE = re.compile(
    r"\b(guess|guesses|predict|estimate)\b"
    r"|^(before you|a question|two questions|your prediction|what will|write down|say it|make a list|cover"
    r"|at each line)",
    re.IGNORECASE,
)
ABBREVIATION = re.compile(r"\b(et al|e\.g|i\.e|cf|vs|Fig|Eq|Sec)\. $")  # no end of a sentence
SUMMARY = "In short"
BUILT = Path("build/handouts")
ANSWER_WORDS = 45  # of what was found, on the last page, and of a common mistake
PRINTED_LINES = 5  # of a cell that answers a prediction
LATER = "The lecture comes back to it."
FEW_WORDS = 6  # say too little alone
# The heights of a picture and of a line to write on, in mm, and the size of the text: the first that fits is taken.
SIZES = (
    *((75, 8, 9.6), (67, 7.5, 9.3), (60, 7, 9.0), (52, 7, 8.8), (45, 6, 8.6)),
    *((38, 6, 8.4), (33, 5.5, 8.2), (28, 5, 8.0), (24, 5, 7.8)),
)
ANSWER_SIZES = (8.0, 7.5, 7.0, 6.6, 6.2)
SET = """
lengths => {
  for (const [name, value] of Object.entries(lengths)) document.body.style.setProperty(`--${name}`, value);
}
"""


@dataclass
class Handout:
    """What of a lecture is on its handout: HTML; of what was found, `pictures` and `answers` with their numbers."""

    title: str = ""
    lines: list[str] = field(default_factory=list)
    pictures: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    equations: list[tuple[str, str]] = field(default_factory=list)
    predictions: int = 0
    questions: int = 0
    _waiting: list[str] = field(default_factory=list)  # predictions whose outcome comes next
    _printed: str = ""  # what a cell has printed since, and what the text has said
    _found: str = ""

    def read(self, notebook: nbformat.NotebookNode) -> "Handout":
        section = ""
        for part in parts(notebook):
            if part.name == "h2":
                if section.startswith(SUMMARY):  # what follows is for those who read on
                    break
                section = part.get_text()
            self._take(part, section)
        self._answer(self._found or LATER)
        return self

    def _take(self, part: Tag, section: str) -> None:
        summary = section.startswith(SUMMARY)
        looks = part.get_attribute_list("class")
        if part.name == "h1":
            self.title = part.get_text()
        elif part.name in ("h2", "h3"):
            self._answer(f"{self._printed}{self._found}" or LATER)
            self.lines.append(f"<{part.name}>{part.decode_contents()}</{part.name}>")
        elif part.name == "figure":
            if self._waiting:  # it shows what was found
                self.pictures.append(f'<div class="found"><b class="number">{self._waiting[-1]}</b>{part}</div>')
            else:
                self.lines.append(str(part))
        elif paper.CAPTION in looks:
            below = self.pictures if self._waiting and self.pictures else self.lines
            below.append(f'<p class="caption">{"".join(sentences(part.find("p") or part)[:2])}</p>')
        elif part.name == "pre":
            if self._waiting and part.get_text().strip().count("\n") < PRINTED_LINES:
                self._printed = str(part)
        elif part.name == "details":
            if self._waiting and is_answer(part):
                self._answer(shortened(paper.inside(part)))
        elif "check-yourself" in looks:
            self._question(part)
        elif summary and (table := part if part.name == "table" else part.find("table")):
            self._from_memory(table)
            self.lines += [str(each) for each in part.find_all("p", recursive=False) if part is not table]
        elif "mistake" in looks:
            first = next(iter(part.find_all("p")), None)
            self.lines.append(f'<blockquote class="mistake"><p>{shortened(str(first or ""))}</p></blockquote>')
        elif part.name in ("ul", "ol"):
            self._list(part, goals=not section)
        elif part.name == "p":
            self._paragraph(part, summary)
        elif "math" in looks:
            self.lines.append(boxed(part))

    def _paragraph(self, part: Tag, summary: bool) -> None:
        for formula in part.select(".math"):
            if formula.get_text().strip().startswith(r"\["):
                self.lines.append(boxed(formula.extract()))
        said = sentences(part)
        asked = next((i for i, each in enumerate(said) if is_cue(each)), None)
        if asked is None and part.get("class") == "before-code" and said[-1].strip().endswith("?"):
            asked = len(said) - 1  # a question that the next cell answers
        if asked is not None:
            self._answer(f"{self._printed}{shortened(''.join(said[:asked]))}" or LATER)
            self.predictions += 1
            self._waiting.append(str(self.predictions))
            words = "".join(said[max(0, asked - 1) :])
            self.lines.append(f'<div class="asked"><p><b class="number">{self.predictions}</b> {words}</p>{ROOM}</div>')
            return
        self._wait_no_longer("".join(said[:-1] if part.get_text().strip().endswith(":") else said))
        if summary and not part.find("strong"):
            self.lines.append(str(part))
            return
        kept = "".join(each for each in said if "<strong>" in each and each not in "".join(self.answers[-1:]))
        if kept and (not summary or kept.startswith("<strong>Now")):
            self.lines.append(f"<p>{kept}</p>")

    def _list(self, part: Tag, goals: bool) -> None:
        """The lecture's goals, the choices of a prediction, and definitions; of the last, a sentence each."""
        items = part.find_all("li", recursive=False)
        if goals:
            self.lines.append(f'<p class="see">After this lecture you can</p>{part}')
        elif self._waiting and self.lines and "?" in part.get_text() and self.lines[-1].endswith(f"{ROOM}</div>"):
            self.lines[-1] = f"{self.lines[-1].removesuffix(f'{ROOM}</div>')}{part}{ROOM}</div>"
        elif any(item.find("strong") for item in items):
            self._answer(f"{self._printed}{shortened(self._found + str(part))}")
            kept = ("".join(sentences(item.find("p") or item)[:1]) for item in items)
            self.lines.append(f"<ul>{''.join(f'<li>{each}</li>' for each in kept)}</ul>")

    def _question(self, part: Tag) -> None:
        self.questions += 1
        letter = chr(ord("A") + self.questions - 1)
        told = "".join(paper.inside(fold.extract()) for fold in part.find_all("details"))
        asked = f'<b class="number">{letter}</b>{part.decode_contents()}'
        self.lines.append(f'<blockquote class="check-yourself">{asked}</blockquote>{ROOM}')
        self.answers.append(f'<div><b class="number">{letter}</b> {told}</div>')

    def _from_memory(self, table: Tag) -> None:
        """A box for each row of the summary's table: a name, a shape, and room for the equation."""
        for row in table.find_all("tr"):
            cells = [each.decode_contents() for each in row.find_all("td")]
            if len(cells) > 1 and "math" in cells[1]:
                shape = f' <span class="shape">{cells[2]}</span>' if len(cells) > 2 else ""
                self.equations.append((cells[0], cells[1]))
                self.lines.append(f'<div class="memory">{cells[0]}{shape}</div>')

    def _wait_no_longer(self, outcome: str) -> None:
        """What the lecture says next, after what its cell printed, is what was found."""
        if outcome.lstrip().startswith("<strong>Now you"):
            return
        self._found += outcome
        if self._printed or len(paper.soup(self._found).get_text().split()) >= FEW_WORDS:
            self._answer(f"{self._printed}{shortened(self._found)}")

    def _answer(self, told: str) -> None:
        self.answers += [f'<div><b class="number">{number}</b> {told}</div>' for number in self._waiting]
        self._waiting.clear()
        self._printed = self._found = ""

    def document(self, size: str = "A4") -> str:
        asked = "".join(f"<div>{name}: {equation}</div>" for name, equation in self.equations)
        heading = '<h2><a id="answers" href="#answers">Answers</a></h2>'
        last = f'<section class="answers">{heading}{"".join(self.answers)}{asked}</section>'
        found = f"<h2>What was found, in pictures</h2>{''.join(self.pictures)}" if self.pictures else ""
        head = f"<h1>{html.escape(self.title)}</h1>"
        content = f"<main>{head}{''.join(self.lines)}{found}</main>{last}"
        return paper.document(self.title, paper.style("handout.css", size), content)


ROOM = '<div class="room"></div>'


def parts(notebook: nbformat.NotebookNode) -> Iterator[Tag]:
    """The blocks of a lecture's text, and the pictures between them."""
    cells = paper.body(notebook).find_all("div", class_="cell")
    for cell, following in zip_longest(cells, cells[1:]):
        if "words" not in cell["class"]:
            yield from cell.select("pre.said, figure")
        elif paper.CAPTION in cell["class"]:
            yield cell
        else:
            blocks = cell.find_all(True, recursive=False)
            if following is not None and "words" not in following["class"] and blocks and blocks[-1].name == "p":
                blocks[-1]["class"] = "before-code"
            yield from blocks


def sentences(part: Tag) -> list[str]:
    """The sentences of a paragraph, as HTML; what stands in a tag is not cut."""
    found, ended = [""], False
    for child in part.children:
        text = html.escape(str(child), quote=False) if isinstance(child, NavigableString) else None
        pieces = re.split(r"(?<=[.!?…][)”])\s+(?=\S)|(?<=[.!?])\s+(?=\S)", text) if text is not None else [str(child)]
        if ended and (text is None or re.match(r"\s", text)):
            found.append("")
        found[-1] += pieces[0]
        found += pieces[1:]
        ended = bool(re.search(r"[.!?][)”]?$", child.get_text()))
    whole: list[str] = []
    for each in filter(None, map(str.strip, found)):
        if whole and ABBREVIATION.search(whole[-1]):
            whole[-1] += f"{each} "
        else:
            whole.append(f"{each} ")
    return whole


def boxed(formula: Tag) -> str:
    """A box with a displayed formula; what stands side by side on a wide page stands in lines here."""
    tex = re.sub(r"^\s*\\\[|\\\]\s*$", "", formula.get_text())
    pieces = re.split(r"\\qquad(?:\s*\\quad)?", tex)
    if any(piece.count("{") != piece.count("}") or r"\begin" in piece for piece in pieces):
        pieces = [tex]
    lines = filter(None, (piece.strip().removesuffix(",").strip() for piece in pieces))
    return f'<div class="equation math">{"".join(paper.math(line, {"display_mode": True}) for line in lines)}</div>'


def is_cue(sentence: str) -> bool:
    """Whether a sentence asks for a prediction."""
    return any(CUE.search(each.get_text()) for each in paper.soup(sentence).find_all("em"))


def shortened(words: str) -> str:
    """The first sentences, of as many words as the last page has room for."""
    kept, count = "", 0
    tree = paper.soup(words)
    for row in tree.find_all("tr"):
        said = [each.decode_contents() for each in row.find_all("td")[:2]]
        kept += f"{': '.join(said)}; " if said else ""
    for picture in tree.find_all(["figure", "table"]):
        picture.decompose()
    for block in tree.find_all(["p", "li"]) or [tree]:
        for each in sentences(block):
            more = len(paper.soup(each).get_text().split())
            if count > FEW_WORDS and count + more > ANSWER_WORDS:
                return kept
            count += more
            kept += each
    return kept


def laid_out(made: Handout, size: str) -> bytes:
    """The PDF: as large as fits on `PAGES` pages, with the answers alone on the last. CommandError where none fits."""
    with press.opened(made.document(size)) as page:
        for picture, line, text in SIZES:
            for answer in ANSWER_SIZES:
                lengths = {"picture": f"{picture}mm", "line": f"{line}mm", "text": f"{text}pt", "answer": f"{answer}pt"}
                page.evaluate(SET, lengths)
                pdf = press.printed(page)
                pages, last = press.length(pdf), press.places(pdf)["answers"]
                if pages == last:
                    break
            if pages == last <= PAGES:
                return pdf
    raise CommandError(f"{made.title}: its handout would have more than {PAGES} pages")


EXAMPLES = """
PROGRAM handout 04
PROGRAM handout --to handouts       # of all lectures
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lectures", nargs="*", metavar="NN", help="the lectures' numbers (default: all of them)")
    parser.add_argument("--to", type=Path, default=BUILT, metavar="DIR", help=f"default: {BUILT}")
    parser.add_argument("--paper", choices=PAPERS, default="A4", help="default: A4")


def main(args: argparse.Namespace) -> int:
    checkout = open_course(Path.cwd())
    for lesson in chosen(args.lectures, checkout.course.lessons):
        source = checkout.root / lesson.lecture_notebook
        if not source.is_file():
            raise CommandError(f"there is no {lesson.lecture_notebook}: build it first")
        pdf = laid_out(Handout().read(nbformat.read(source, as_version=4)), args.paper)
        to = args.to / f"{source.stem}.pdf"
        write_whole(to, pdf)
        print(f"{to}: {press.length(pdf)} pages")
    return 0


def chosen(numbers: list[str], lessons: tuple[Lesson, ...]) -> list[Lesson]:
    """The lessons of these numbers. CommandError for one that there is not."""
    known = {lesson.number: lesson for lesson in lessons}
    if unknown := [each for each in numbers if each not in known]:
        raise CommandError(f"there is no lecture {unknown[0]!r}; the lectures are: {', '.join(known)}")
    return [known[each] for each in numbers] or list(lessons)
