"""The deck of a lecture: slides as its source writes them, outputs of its built notebook, notes from its prose.

A slide is a cell `# %% [raw] slide`, which the notebook leaves out. It is Markdown: a title (`## …`), and below it
text and, each on a line of its own,

    {figure}    the picture or widget of the last code cell before the slide that shows one
    {print}     what the last code cell printed that printed something, or its value
    {output}    all that the last code cell gave that gave something
    {code}      the last code cell whose code the page shows; {code 2}, {figure 2}, … the one before it
    . . .       what follows is the next step: it is revealed by the next key
    |||         what follows stands in a second column

The page's text between a slide and the next is what the lecturer says: the slide's notes, or those of the next where
that is about it. Of several slides that stand together, each gets the paragraphs that share most words with it.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from commandkit.commands import typed
from commandkit.errors import CommandError
from lessonkit.authoring import teaching, widgets
from lessonkit.authoring.source import FOLDED, NotebookNode, SlideText, Source

STEP, COLUMN = ". . .", "|||"
PLACE = re.compile(r"\{(figure|print|output|code)(?: (\d+))?\}")
SHORTEST, LOOKING, THINKING = 10, 20, 30  # seconds: a slide, a picture to look at, what a class is to guess
NEXT = 2  # so many words more is it worth that the next slide gets notes, too,
LATER = 2  # and that a paragraph is said before the slides that stand below it
PICTURES = (widgets.VIEW, "image/png", "text/html")  # the first that an output has is shown


@dataclass(frozen=True)
class Part:
    """Text (Markdown), or a cell's code or outputs, which come with the step `step`, in the column `column`."""

    kind: str
    step: int
    column: int
    text: str = ""
    outputs: tuple[NotebookNode, ...] = ()
    cell: NotebookNode | None = None


@dataclass(frozen=True)
class Slide:
    title: str
    parts: tuple[Part, ...]
    notes: tuple[str, ...]  # paragraphs, Markdown
    line: int = 1

    @property
    def text(self) -> str:
        return "\n".join([self.title, *(part.text for part in self.parts)])

    @property
    def seconds(self) -> int:
        """How long it takes to say the notes, with time for the class to think where it is to guess."""
        said = len(teaching.FOLDED.sub("", "\n\n".join(self.notes)).split()) / teaching.WORDS * 60
        asks = any("Guess first" in part.text for part in self.parts)
        pictured = any(part.kind in ("figure", "output") for part in self.parts)
        return round(max(said, LOOKING if pictured else SHORTEST) + asks * THINKING)


def deck(source: Source, built: NotebookNode) -> list[Slide]:
    """The slides of the lecture `source`, whose notebook is `built`; the first is made of its title and its goals.

    Raises CommandError where a slide asks for what no cell before it has, or a cell was not built as it is.
    """
    outputs = {cell.id: cell.get("outputs", []) for cell in built.cells}
    first, *others = _notes(source)
    slides = [_slide(source, text, outputs, said) for text, said in zip(source.slides, others, strict=True)]
    return [_opening(source.notebook.cells[0].source, first), *slides]


def first_slides(source: Source) -> dict[str, int]:
    """With which slide each section of the lecture begins, by the section's title; the first slide is 1."""
    found: dict[str, int] = {}
    for number, notes in enumerate(_notes(source), start=1):
        for title in re.findall(r"^## (.*)$", "\n".join(notes), re.MULTILINE):
            found.setdefault(title.strip(), number)
    return found if source.slides else {}


def _notes(source: Source) -> list[tuple[str, ...]]:
    """The paragraphs that are said with each slide, the opening first.

    In order, and so that paragraphs share as many words as possible with their slides. A paragraph belongs to one of
    the slides that stand together before it, or after it: code that it announces is shown by a slide below the code.
    """
    cells = source.notebook.cells
    texts = [_opening(cells[0].source, ()).text, *(PLACE.sub("", text.text) for text in source.slides)]
    befores = [0, *(text.before for text in source.slides)]
    words = [set(re.findall(r"\w{4,}", text.lower())) for text in texts]
    notes: list[list[str]] = [[] for _ in texts]
    best = [0.0] + [-math.inf] * (len(texts) - 1)  # the most words shared so far if the last paragraph is this slide's
    ways: list[list[int]] = [[] for _ in texts]
    paragraphs = list(_prose(cells))
    for at, paragraph in paragraphs:
        own = set(re.findall(r"\w{4,}", paragraph.lower()))
        above = max(before for before in befores if before <= at)
        below = min((before for before in befores if before > at), default=above)
        reached, taken = [-math.inf] * len(texts), ways.copy()
        for number, before in enumerate(befores):
            if before in (above, below):
                last = max(range(number + 1), key=lambda each: best[each] + NEXT * (each < number))
                shared = len(own & words[number]) - LATER * (before > above)
                reached[number] = best[last] + NEXT * (last < number) + shared
                taken[number] = [*ways[last], number]
        best, ways = reached, taken
    for (_, paragraph), number in zip(paragraphs, ways[best.index(max(best))], strict=True):
        notes[number].append(paragraph)
    return [tuple(each) for each in notes]


def _opening(cell: str, notes: tuple[str, ...]) -> Slide:
    title = re.search(r"^# (.+)$", cell, re.MULTILINE)
    goals = re.search(r"(?:^[*-] .+\n(?:^ +.+\n)*)+", cell + "\n", re.MULTILINE)
    parts = (Part("text", 0, 0, goals[0]),) if goals else ()
    return Slide(title[1] if title else "", parts, notes)


def _slide(
    source: Source, text: SlideText, outputs: dict[str, list[NotebookNode]], notes: tuple[str, ...]
) -> Slide:
    head, _, body = text.text.partition("\n")
    if not head.startswith("## "):
        raise CommandError(f"{source.path}:{text.line}: a slide begins with its title, ## …")
    parts: list[Part] = []
    words: list[str] = []
    step = column = 0
    for line in [*body.split("\n"), STEP]:
        place = PLACE.fullmatch(line)
        if not place and line not in (STEP, COLUMN):
            words.append(line)
            continue
        if said := "\n".join(words).strip():
            parts.append(Part("text", step, column, said))
        words = []
        if place:
            parts.append(_place(source, text, place, outputs, step, column))
        step += line == STEP
        column += line == COLUMN
    return Slide(head.removeprefix("## "), tuple(parts), notes, text.line)


def _place(
    source: Source, text: SlideText, place: re.Match, outputs: dict[str, list[NotebookNode]], step: int, column: int
) -> Part:
    kind, back = place[1], int(place[2] or 1)
    for cell in reversed(source.notebook.cells[: text.before]):
        if cell.cell_type != "code":
            continue
        if cell.id not in outputs:
            raise CommandError(f"{source.path}: its notebook is another one's: run {typed('build')} first")
        shown = _of_kind(kind, outputs[cell.id])
        if FOLDED not in cell.metadata.get("tags", []) if kind == "code" else shown:
            back -= 1
            if not back:
                return Part(kind, step, column, outputs=() if kind == "code" else shown, cell=cell)
    raise CommandError(f"{source.path}:{text.line}: no cell before this slide has what {place[0]} asks for")


def _of_kind(kind: str, outputs: Sequence[NotebookNode]) -> tuple[NotebookNode, ...]:
    if kind == "figure":
        return tuple(filter(is_picture, outputs))
    if kind == "print":  # what a cell printed; its last value where it printed nothing
        outputs = [each for each in outputs if not is_picture(each)]
        return tuple(each for each in outputs if each.output_type == "stream") or tuple(outputs)
    return tuple(outputs)


def is_picture(output: NotebookNode) -> bool:
    return any(form in output.get("data", {}) for form in PICTURES)


def _prose(cells: Sequence[NotebookNode]) -> Iterator[tuple[int, str]]:
    """The paragraphs of the text cells, each with its cell's number; a heading goes with what it is above.

    *Going further* is left out.
    """
    further = False
    for number, cell in enumerate(cells):
        if cell.cell_type == "markdown":
            text = re.sub(r"\A<!--.*?-->\n", "", cell.source)
            heading = ""
            for paragraph in re.split(r"\n\s*\n", text):
                if paragraph.startswith("## "):
                    further = paragraph.startswith(f"## {teaching.FURTHER}")
                if further or paragraph.startswith("<a id="):  # the place and the caption of what the slide shows
                    continue
                if re.match(r"#+ ", paragraph) and "\n" not in paragraph:
                    heading += f"{paragraph}\n\n"
                elif paragraph.strip():
                    yield number, heading + paragraph
                    heading = ""
