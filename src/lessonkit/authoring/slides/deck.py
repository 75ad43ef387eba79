"""The deck of a lecture: slides as its source writes them, outputs of its built notebook, notes from its prose.

A slide is a cell `# %% [raw] slide`, which the notebook leaves out. It is Markdown: a title (`## …`), and below it
text and, each on a line of its own,

    {figure}    the picture or widget of the last code cell before the slide that shows one
    {print}     what the last code cell printed that printed something, or its value
    {output}    all that the last code cell gave that gave something
    {code}      the last code cell whose code the page shows; {code 2}, {figure 2}, … the one before it
    . . .       what follows is the next step: it is revealed by the next key
    |||         what follows stands in a second column

The page's text between a slide and the next is what the lecturer says: the slide's notes. Of several slides that stand
together, each gets the paragraphs that share most words with it, in order.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from commandkit.commands import typed
from commandkit.errors import CommandError
from lessonkit.authoring.source import FOLDED, NotebookNode, SlideText, Source

STEP, COLUMN = ". . .", "|||"
PLACE = re.compile(r"\{(figure|print|output|code)(?: (\d+))?\}")
WIDGET = "application/vnd.jupyter.widget-view+json"
NEXT = 2  # so many words more is it worth that the next slide gets notes, too
PICTURES = (WIDGET, "image/png", "text/html")  # the first that an output has is shown


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
    line: int = 1
    notes: list[str] = field(default_factory=list)  # paragraphs, Markdown

    @property
    def text(self) -> str:
        return "\n".join([self.title, *(part.text for part in self.parts)])


def deck(source: Source, built: NotebookNode) -> list[Slide]:
    """The slides of the lecture `source`, whose notebook is `built`; the first is made of its title and its goals.

    Raises CommandError where a slide asks for what no cell before it has, or a cell was not built as it is.
    """
    outputs = {cell.id: cell.get("outputs", []) for cell in built.cells}
    cells = source.notebook.cells
    slides = [_opening(cells[0].source)]
    stack, at = [slides[0]], 0
    for text in source.slides:
        paragraphs = list(_prose(cells[at : text.before]))
        if paragraphs:
            _deal(paragraphs, stack)
            stack = []
        slide = _slide(source, text, outputs)
        stack.append(slide)
        slides.append(slide)
        at = text.before
    _deal(list(_prose(cells[at:])), stack)
    return slides


def _opening(cell: str) -> Slide:
    title = re.search(r"^# (.+)$", cell, re.MULTILINE)
    goals = re.search(r"(?:^[*-] .+\n(?:^ +.+\n)*)+", cell + "\n", re.MULTILINE)
    parts = (Part("text", 0, 0, goals[0]),) if goals else ()
    return Slide(title[1] if title else "", parts)


def _slide(source: Source, text: SlideText, outputs: dict[str, list[NotebookNode]]) -> Slide:
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
    return Slide(head.removeprefix("## "), tuple(parts), text.line)


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


def _prose(cells: Sequence[NotebookNode]) -> Iterator[str]:
    """The paragraphs of the text cells; a heading goes with what it is above."""
    for cell in cells:
        if cell.cell_type == "markdown":
            text = re.sub(r"\A<!--.*?-->\n", "", cell.source)
            heading = ""
            for paragraph in re.split(r"\n\s*\n", text):
                if re.match(r"#+ ", paragraph) and "\n" not in paragraph:
                    heading += f"{paragraph}\n\n"
                elif paragraph.strip():
                    yield heading + paragraph
                    heading = ""


def _deal(paragraphs: Sequence[str], slides: Sequence[Slide]) -> None:
    """Give the paragraphs to the slides as notes, in order, so that as many words as possible are shared."""
    words = [set(re.findall(r"\w{4,}", slide.text.lower())) for slide in slides]
    best = [0.0] + [-math.inf] * (len(slides) - 1)  # the most words shared so far if the last paragraph is this slide's
    ways: list[list[int]] = [[] for _ in slides]
    for paragraph in paragraphs:
        own = set(re.findall(r"\w{4,}", paragraph.lower()))
        reached, taken = [], []
        for number, theirs in enumerate(words):
            before = max(range(number + 1), key=lambda each: best[each] + NEXT * (each < number))
            reached.append(best[before] + NEXT * (before < number) + len(own & theirs))
            taken.append([*ways[before], number])
        best, ways = reached, taken
    for paragraph, number in zip(paragraphs, ways[max(range(len(slides)), key=lambda each: best[each])], strict=True):
        slides[number].notes.append(paragraph)
