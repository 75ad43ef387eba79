"""`practice()`: a round of drills, as a card to click through in a notebook, and as text."""

from __future__ import annotations

import ast
import itertools
import linecache
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from html import escape
from importlib.resources import files
from typing import Any

from lessonkit.exercises import leitner
from lessonkit.exercises.drill import Card, Drill, Question, made
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import judge_on_seeds
from lessonkit.exercises.observe import observe
from lessonkit.exercises.verdict import WIDTH, Verdict, as_html
from lessonkit.kernel import WrongCall

LENGTH = 6  # drills in a round
LETTERS = "abcd"
SCRIPT, STYLE = (files("lessonkit.exercises") / f"practice.{kind}" for kind in ("js", "css"))


class Practice:
    """A round of drills, weakest cards first. Made by a course's `practice()`.

    In a notebook it is a card to click through. As text, `answer(1, "b")` answers the first drill, and
    `repaired(1, "def …")` checks its code as you have mended it.
    """

    def __init__(self, course: str, cards: Sequence[Card], locked: Sequence[str], keeps: bool) -> None:
        self.course, self.locked, self.keeps = course, tuple(locked), keeps
        self.day = leitner.today()
        self._cards = {card.name: card for card in cards}
        self._boxes = {name: leitner.read(course, name) for name in self._cards}
        order = leitner.in_order({card.name: card.assignment for card in cards}, self._boxes, self.day)
        turns = {name: self._in_turn(name) for name in order}
        every = ((name, turn[lap]) for lap in range(LENGTH) for name, turn in turns.items() if lap < len(turn))
        self._chosen = list(itertools.islice(every, LENGTH))
        self.given: dict[int, int] = {}  # of each drill, by its number from 1, the option that was chosen first

    def _in_turn(self, name: str) -> list[int]:
        return leitner.in_turn([each.key for each in self._cards[name].questions], self._boxes[name])

    @cached_property
    def drills(self) -> list[Drill]:
        """What is asked."""
        return [self._cards[name].drill(number) for name, number in self._chosen]

    def exercise(self, number: int) -> Exercise | None:
        """The exercise of a drill, by its number from 1."""
        return self._cards[self._chosen[number - 1][0]].exercise

    def answer(self, number: int, option: str | int) -> Told:
        """Answer a drill: both by what stands before them. The first answer counts. ValueError for what there is not.
        """
        drill = self._drill(number)
        place = LETTERS.find(option.strip().lower()) if isinstance(option, str) and option.strip() else option
        if not isinstance(place, int) or not 0 <= place < len(drill.options):
            raise WrongCall(f"drill {number} has the options a to {LETTERS[len(drill.options) - 1]}, got {option!r}")
        if number not in self.given:
            self.given[number] = place
            box = self._boxes[drill.card] = self._boxes[drill.card].after(drill.key, place == drill.right, self.day)
            if self.keeps:
                leitner.keep(self.course, drill.card, box)
        return Told(drill, place)

    def repaired(self, number: int, code: str, seeds: Sequence[int] = (0, 1, 2)) -> Verdict | str:
        """The verdict on a drill's code as somebody has mended it; in words, where it cannot be run at all.

        It counts for nothing: the exercise is solved already.
        """
        drill, exercise = self._drill(number), self.exercise(number)
        asked = self._cards[drill.card].questions[self._chosen[number - 1][1]]
        if exercise is None or not isinstance(asked, Question):
            raise WrongCall(f"drill {number} has no code to repair")
        file = f"<your repair of {exercise.name}>"
        linecache.cache[file] = (len(code), None, code.splitlines(True), file)
        try:
            answer = made(exercise, asked.slip.base or asked.slip.answer, code, file)
        except SyntaxError as error:
            return f"SyntaxError in line {error.lineno}: {error.msg}"
        except StopIteration:
            return f"There is no `{_first_line(drill.code)}` in it any more."
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        seeds = tuple(seeds)[: exercise.seeds]
        verdict = judge_on_seeds(exercise, (observe(exercise, answer, seed) for seed in seeds), seeds)
        return replace(verdict, hints=0)  # they are about an answer that `check` has judged

    def _drill(self, number: int) -> Drill:
        if not isinstance(number, int) or not 1 <= number <= len(self.drills):
            raise WrongCall(f"the drills are 1 to {len(self.drills)}, got {number!r}")
        return self.drills[number - 1]

    @property
    def note(self) -> str:
        """What is not asked, why, and where it is kept how it went."""
        told = []
        if self._chosen and all(self._boxes[name].due > self.day for name, _ in self._chosen):
            told.append("Nothing is due today: these come before their time.")
        if self.locked:
            several = len(self.locked) > 1
            told.append(
                f"{len(self.locked)} exercise{'s wait' if several else ' waits'} until the check has given all points, "
                "because the drills show solved code."
            )
        where = leitner.folder(self.course)
        told.append(f"How it goes is kept in {where}; delete it to begin anew." if self.keeps else "Nothing is kept.")
        return " ".join(told)

    def __repr__(self) -> str:
        if not self._chosen:
            return _wrapped(f"{NOTHING} {self.note}")
        parts = [as_text(number, drill) for number, drill in enumerate(self.drills, start=1)]
        return "\n\n".join([*parts, _wrapped(self.note)])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **named: Any) -> Any:
        plain = {"text/plain": repr(self)}
        if not self._chosen:
            return plain | {"text/html": f"<p style='max-width:46em'>{escape(NOTHING)} {escape(self.note)}</p>"}
        widget = self.widget
        if widget is None:
            return plain
        data, metadata = widget._repr_mimebundle_() or ({}, {})
        return data | plain, metadata

    @cached_property
    def widget(self) -> Any:
        """The card, drawn by practice.js; None where anywidget is not installed."""
        try:
            import anywidget
            import traitlets
        except ImportError:
            return None

        class Practising(anywidget.AnyWidget):
            _esm = f"{SCRIPT.read_text('utf-8')}\nexport default {{ render: practice.inNotebook }};\n"
            _css = STYLE.read_text("utf-8")
            data = traitlets.Dict().tag(sync=True)
            given = traitlets.Dict().tag(sync=True)
            repair = traitlets.Dict().tag(sync=True)
            checked = traitlets.Dict().tag(sync=True)

        drills = [drill.as_dict() | {"repair": self.exercise(number) is not None}
                  for number, drill in enumerate(self.drills, start=1)]  # fmt: skip
        widget = Practising(data={"drills": drills, "note": self.note}, given={}, repair={}, checked={})

        def answered(change: Mapping[str, Any]) -> None:
            for number, place in change["new"].items():
                if int(number) not in self.given:
                    self.answer(int(number), int(place))

        def repaired(change: Mapping[str, Any]) -> None:
            asked = change["new"]
            result = self.repaired(int(asked["number"]), str(asked["code"]))
            said = result._html() if isinstance(result, Verdict) else f"<p>{as_html(result)}</p>"
            widget.checked = {"number": asked["number"], "html": said, "time": asked.get("time")}

        widget.observe(answered, "given")
        widget.observe(repaired, "repair")
        return widget


NOTHING = "There is nothing to practise yet: solve an exercise, and its drills are here."


class Told:
    """What is said after an answer."""

    def __init__(self, drill: Drill, chosen: int) -> None:
        self.drill, self.right = drill, chosen == drill.right

    def __repr__(self) -> str:
        drill = self.drill
        said = "Right." if self.right else f"No: {LETTERS[drill.right]}) {drill.options[drill.right]}"
        parts = [textwrap.fill(said, WIDTH), textwrap.fill(drill.why, WIDTH)]
        if drill.verdict:
            parts.append(f"The check gives {drill.verdict.score}:")
            for line in drill.verdict.aspects:
                mark = f"  {'✓' if line.ok else '✗'} "
                parts.append(textwrap.fill(f"{line.name}: {line.message}", WIDTH, initial_indent=mark,
                                           subsequent_indent="    "))  # fmt: skip
        if drill.mended:
            parts.append(f"The solution has:  {drill.mended}")
        return "\n".join(parts)


def _wrapped(text: str) -> str:
    """In lines, without breaking a path."""
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def as_text(number: int, drill: Drill) -> str:
    """A drill with its options, to be read in a terminal."""
    parts = [f"{number}. {drill.where}"]
    if drill.code:
        parts.append(textwrap.indent(drill.code, "    "))
    if drill.table:
        parts.append("\n".join("    " + " ".join(map(as_cell, row)) for row in drill.table))
    parts.append(drill.question)
    for letter, option in zip(LETTERS, drill.options, strict=False):
        parts.append(textwrap.fill(f"  {letter}) {option}", WIDTH, subsequent_indent="     "))
    return "\n".join(parts)


def as_cell(value: float) -> str:
    """A cell of a drill's table: a mask's True and False, or a number."""
    return ("■" if value else "·") if isinstance(value, bool) else f"{value:.2f}"


def _first_line(code: str) -> str:
    node = ast.parse(code).body[0]
    return f"{'class' if isinstance(node, ast.ClassDef) else 'def'} {getattr(node, 'name', '')}"
