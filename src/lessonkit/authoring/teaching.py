"""A lecture as whoever gives it needs it: which section in which minute, what to ask, what to set, what goes wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nbformat import NotebookNode

if TYPE_CHECKING:
    from lessonkit.exercises.exercise import Exercise

WORDS, LINES = 130, 20  # a minute
FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)
FURTHER, OPENING = "Going further", "Opening"
GUESS = re.compile(r"\*(?:Guess|Predict)\b(?P<how>[^*\n]*)\*(?P<what>.*?)(?:\n\s*\n|\Z)", re.DOTALL)
NOW = re.compile(r"\*\*Now you:\*\*(.*?)(?:\n\s*\n|\Z)", re.DOTALL)
NUMBERS = re.compile(r"exercises? ((?:\d+(?:, | and |–)?)+)")
LONGEST = 150  # characters of a question in the table


@dataclass(frozen=True)
class Section:
    """A section of a lecture: from which minute and slide on, its questions, and the exercises that it has prepared."""

    title: str
    minute: float
    slide: int | None  # from 1; None where there are no slides
    questions: tuple[str, ...]
    exercises: tuple[Exercise, ...]


def sections(
    cells: Sequence[NotebookNode], minutes: float, exercises: Sequence[Exercise], slides: Mapping[str, int]
) -> list[Section]:
    """The sections of a built lecture that takes so many minutes; its assignment has these exercises.

    `slides` are the numbers of the first slides, by a section's title. A section's share is that of its words and lines
    of code, without what is folded; *Going further* takes none, and is left out. Exercises that no section names stand
    with the last.
    """
    numbered = [each for each in exercises if not each.extra]
    shares: list[tuple[str, float, str]] = []
    title, text, share = "", "", 0.0
    for cell in cells:
        if cell.cell_type == "code":
            hidden = "hide-input" in cell.metadata.get("tags", [])
            share += 0 if hidden else sum(bool(line.strip()) for line in cell.source.splitlines()) / LINES
            continue
        for part in re.split(r"^(?=## )", FOLDED.sub("", cell.source), flags=re.MULTILINE):
            if part.startswith("## "):
                shares.append((title, share, text))
                title, text, share = part.partition("\n")[0].removeprefix("## ").strip(), "", 0.0
            text, share = f"{text}\n\n{part}", share + len(part.split()) / WORDS
    shares = [each for each in [*shares, (title, share, text)] if not each[0].startswith(FURTHER)]
    whole = sum(share for _, share, _ in shares) or 1.0
    found, minute, left = [], 0.0, dict.fromkeys(exercises)
    for title, share, text in shares:
        named = [each for each in _named(text, numbered, exercises) if each in left]
        left = {each: None for each in left if each not in named}
        found.append(Section(title or OPENING, minute, slides.get(title), tuple(_questions(text)), tuple(named)))
        minute += minutes * share / whole
    if left and found:
        found[-1] = replace(found[-1], exercises=(*found[-1].exercises, *left))
    return found


def _named(text: str, numbered: Sequence[Exercise], exercises: Sequence[Exercise]) -> Iterator[Exercise]:
    """The exercises that "Now you" names: by number, or an extension by its name."""
    for now in NOW.finditer(text):
        for numbers in NUMBERS.finditer(now[1]):
            for number in re.findall(r"\d+", numbers[1]):
                if 1 <= int(number) <= len(numbered):
                    yield numbered[int(number) - 1]
        yield from (each for each in exercises if f"`{each.name}`" in now[1])


def _questions(text: str) -> Iterator[str]:
    """What the section asks its reader to guess, each in a sentence."""
    for guess in GUESS.finditer(text):
        asked = " ".join(f"{guess['how']}{guess['what']}".split()).lstrip(":. ")
        asked = re.sub(r"^(?:first|before you \w+(?: the next cell)?)[:.]? ", "", asked)
        sentences = [each for each in re.split(r"(?<=[?.]) ", asked) if len(each) <= LONGEST]
        question = next((each for each in sentences if each.endswith("?")), "")
        if question:
            yield question[0].upper() + question[1:]
        elif sentences and sentences[0][:1].islower() and ":" not in sentences[0]:
            yield f"Guess {sentences[0]}"


def rows(found: Sequence[Section], drills: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    """The table's rows: minute, first slide, section, what to ask, what to set, the mistakes that checks know first."""
    for section in found:
        if section.title == OPENING and not section.exercises:
            continue
        work = [f"`{each.name}` ({each.minutes} min, {drills.get(each.name, 0)} drills)" for each in section.exercises]
        wrong = [f"{each.name}: {'; '.join(dict.fromkeys(m.name for m in each.misconceptions[:3]))}"
                 for each in section.exercises]  # fmt: skip
        yield (
            f"{section.minute:.0f}",
            f"{section.slide or ''}",
            _in_cell(section.title),
            _in_cell(" ".join(section.questions[:2])),
            "<br>".join(work),
            _in_cell("<br>".join(wrong)),
        )


def _in_cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)
