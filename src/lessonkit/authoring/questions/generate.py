"""Questions made of an exercise's slips: what is right, and what each wrong option is, says the check.

Five kinds. `complete`: which line belongs in the gap, among those that known mistakes put there. `cause`: which change
to the solution gives this card. `shows`: which of these aspects fail. `line`: which line is wrong. `picture`: which
table this code makes, among those of other mistakes and the right one. A lesson's `drills.py` gives pictures, too.
"""

from __future__ import annotations

import ast
import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from typing import Any

import torch

from lessonkit.authoring.questions.question import OPTIONS, TABLE, Option, Question
from lessonkit.course import Course, Lesson
from lessonkit.exercises import drill
from lessonkit.exercises.drill import changed_line, shown
from lessonkit.exercises.exercise import Code, Exercise, body_of, edited
from lessonkit.exercises.judge import judge, observe_known
from lessonkit.exercises.verdict import Verdict

MOST_LINES = 22  # of code that somebody reads in an exam
WIDEST = 96      # an option in one line
MOST_PAIRS = 12  # of mistakes are tried together
PICTURES = ("bool", "int64")
LARGEST_PICTURE, SMALLEST_PICTURE, MOST_INPUTS = 8, 2, 24
SEEDS = (0, 1)   # of inputs on which a mistake must show what it is said to show
Maker = Callable[[random.Random], Question | None]


class Bug:
    """A slip of an exercise, at one line of a right answer: what it is, and what the check says of it."""

    def __init__(self, exercise: Exercise, slip: Code) -> None:
        assert slip.base is not None
        self.exercise, self.slip, self.base = exercise, slip, slip.base
        self.solution, self.code = shown(exercise, body_of(slip.base)), shown(exercise, slip.body)
        self.at = changed_line(self.solution, self.code)  # from 0

    @property
    def line(self) -> str:
        assert self.at is not None
        return self.code.splitlines()[self.at].strip()

    @cached_property
    def verdicts(self) -> list[Verdict]:
        return [verdict_of(self.exercise, self.slip.answer, seed) for seed in SEEDS]

    @cached_property
    def fails(self) -> tuple[str, ...] | None:
        """The aspects that fail on every seed, in order; None where that depends on the inputs, or nothing fails."""
        found = {tuple(line.name for line in verdict.aspects if not line.ok) for verdict in self.verdicts}
        return found.pop() or None if len(found) == 1 else None

    @property
    def why(self) -> str:
        return f"“{self.slip.name}”: {self.slip.hint}"


@cache
def verdict_of(exercise: Exercise, answer: Any, seed: int) -> Verdict:
    return judge(exercise, observe_known(exercise, answer, seed), seed, name=False)


def generated(course: Course, lesson: Lesson, seed: int, count: int) -> list[Question]:
    """`count` questions of a lesson, or as many as its exercises give; each seed chooses others, in another order.

    The kinds and the exercises take turns, and no mistake is asked about twice.
    """
    lots = random.Random(f"{lesson.name}/{seed}")
    exercises = course.exercises_of(lesson.assignment)
    proven = drill.kept_proofs(course)
    makers: dict[str, list[tuple[str, Maker]]] = {}  # by kind: the exercise's name, and what makes the question
    for exercise in exercises:
        text = course.referred(contract(lesson, exercise))
        for kind, maker in _makers(exercise, text, lesson.number, proven.get(exercise.name, {})):
            makers.setdefault(kind, []).append((exercise.name, maker))
    if (lesson.folder / "drills.py").is_file():
        drills = course.part(lesson.name, "drills").drills()
        makers.setdefault("picture", []).extend(("", _of_a_drill(each, lesson.number)) for each in drills)
    for each in makers.values():
        lots.shuffle(each)
    found: list[Question] = []
    used: Counter[str] = Counter()
    kinds = [kind for kind in ("cause", "picture", "complete", "shows", "line") if kind in makers]
    while kinds and len(found) < count:
        kind = kinds.pop(0)
        waiting = makers[kind]
        waiting.sort(key=lambda named: used[named[0]])  # the exercise that was asked about least comes next
        while waiting:
            name, maker = waiting.pop(0)
            question = maker(lots)
            if question and not any(question.name == each.name or question.prompt == each.prompt for each in found):
                found.append(question)
                used[name] += 1
                kinds.append(kind)
                break
    return found


def _makers(exercise: Exercise, text: str, lesson: str, proven: drill.Proven) -> Iterator[tuple[str, Maker]]:
    """What can be asked of an exercise: (kind, a function that makes the question, or None where it cannot be)."""
    bugs = [bug for bug in map(lambda slip: Bug(exercise, slip), drill.slips(exercise)) if bug.at is not None]
    bugs = [bug for bug in bugs if bug.solution.count("\n") < MOST_LINES and len(bug.line) <= WIDEST]
    places = {(bug.base, bug.at) for bug in bugs}
    for base, at in sorted(places, key=lambda place: (place[0].__name__, place[1])):
        here = [bug for bug in bugs if (bug.base, bug.at) == (base, at)]
        yield "complete", _Complete(exercise, text, lesson, here)
    for bug in bugs:
        yield "cause", _Cause(exercise, text, lesson, bugs, bug)
        yield "shows", _Shows(exercise, text, lesson, bugs, bug)
        if not isinstance(exercise.reference, type) and not exercise.lists:
            yield "picture", _Picture(exercise, text, lesson, bugs, bug)
        if (others := proven.get(drill.digest(bug.code))) is not None:
            yield "line", _Line(exercise, text, lesson, bug, others)


class _Kind:
    """What the kinds share: the exercise, its contract, the lesson."""

    kind, minutes, points = "", 2.0, 1

    def __init__(self, exercise: Exercise, text: str, lesson: str) -> None:
        self.exercise, self.text, self.lesson = exercise, text, lesson

    def question(self, key: str, prompt: str, options: Sequence[Option], lots: random.Random) -> Question | None:
        if len(options) < OPTIONS:
            return None
        name = f"{self.exercise.name}-{self.kind}-{drill.digest(key)[:6]}"
        return Question(self.lesson, name, f"{self.text}\n\n{prompt}", tuple(lots.sample(options, len(options))),
                        self.minutes, self.points, generated=True)  # fmt: skip

    def checks(self) -> str:
        """The exercise's aspects with what they look at, as a list."""
        return "\n".join(f"- {_bold(each.name)}: {each.meaning}" for each in self.exercise.aspects)


class _Complete(_Kind):
    """A gap: the solution's line, and what known mistakes put there, each run: they lose points."""

    kind = "complete"

    def __init__(self, exercise: Exercise, text: str, lesson: str, bugs: Sequence[Bug]) -> None:
        super().__init__(exercise, text, lesson)
        self.bugs = list({bug.line: bug for bug in bugs}.values())

    def __call__(self, lots: random.Random) -> Question | None:
        first = self.bugs[0]
        assert first.at is not None
        lines = first.solution.splitlines()
        right = lines[first.at].strip()
        wrong = self._square(lots) or self._star(lots)
        if len(wrong) < OPTIONS - 1 or len(right) > WIDEST:
            return None
        lines[first.at] = lines[first.at].replace(right, "________")
        verdicts = [verdict_of(self.exercise, self.exercise.as_answer(first.base), seed) for seed in SEEDS]
        earned = all(verdict.points == verdict.out_of for verdict in verdicts)
        options = [Option(_code(right), earned, f"With this line the check gives {verdicts[0].score}."), *wrong]
        key = f"{right}{first.at}"
        return self.question(key, f"{_block(lines)}\n\nWhich line belongs in the gap?", options, lots)

    def _square(self, lots: random.Random) -> list[Option]:
        """Two mistakes and both at once: of these and the right line none is the one that all others resemble."""
        pairs = [pair for pair in itertools.combinations(self.bugs, 2) if pair[0].slip.name != pair[1].slip.name]
        for one, other in lots.sample(pairs, min(len(pairs), MOST_PAIRS)):
            both = {**(one.slip.change or {}), **(other.slip.change or {})}
            if len(both) < len(one.slip.change or ()) + len(other.slip.change or ()):
                continue
            try:
                text = shown(self.exercise, edited(body_of(one.base), both, self.exercise.name))
            except ValueError:  # the pieces overlap
                continue
            line = text.splitlines()[one.at or 0].strip()
            if changed_line(one.solution, text) != one.at or line in (one.line, other.line) or len(line) > WIDEST:
                continue
            answer = drill.made(self.exercise, one.base, text, "<two mistakes>")
            verdicts = [verdict_of(self.exercise, answer, seed) for seed in SEEDS]
            if not one.fails or not other.fails or any(each.points == each.out_of for each in verdicts):
                continue
            told = f"Two mistakes at once: “{one.slip.name}” and “{other.slip.name}”."
            return [*(self._wrong(bug) for bug in (one, other)), Option(_code(line), False, told)]
        return []

    def _star(self, lots: random.Random) -> list[Option]:
        """Mistakes that replace one and the same piece of the line, or, where there are too few, any."""
        by_piece: dict[tuple[str, ...], list[Bug]] = {}
        for bug in lots.sample(self.bugs, len(self.bugs)):
            by_piece.setdefault(tuple(bug.slip.change or ()), []).append(bug)
        groups = sorted(by_piece.values(), key=len, reverse=True)
        for group in [*groups[:1], self.bugs]:
            chosen: dict[str, Bug] = {}
            for bug in lots.sample(group, len(group)):
                if bug.fails:
                    chosen.setdefault(bug.slip.name, bug)  # of each mistake one
            if len(chosen) >= OPTIONS - 1:
                return [self._wrong(bug) for bug in list(chosen.values())[: OPTIONS - 1]]
        return []

    def _wrong(self, bug: Bug) -> Option:
        return Option(_code(bug.line), False, f"{bug.why} It fails {_listed(bug.fails or ())}.")


class _Cause(_Kind):
    """A card of the check, and four changes to the solution: one of them gives it."""

    kind, minutes, points = "cause", 3.0, 2

    def __init__(self, exercise: Exercise, text: str, lesson: str, bugs: Sequence[Bug], bug: Bug) -> None:
        super().__init__(exercise, text, lesson)
        self.bugs, self.bug = [each for each in bugs if each.base is bug.base], bug

    def __call__(self, lots: random.Random) -> Question | None:
        bug = self.bug
        others = unlike(bug, self.bugs, lots)
        if not bug.fails or len(others) < OPTIONS - 1 or len(bug.fails) == len(self.exercise.aspects):
            return None
        lines = bug.solution.splitlines()
        options = []
        for each in [bug, *list(others.values())[: OPTIONS - 1]]:
            assert each.at is not None and each.fails
            told = f"{each.why} " + ("This gives the card." if each is bug else f"It fails {_listed(each.fails)}.")
            options.append(Option(f"line {each.at + 1}: {_code(each.line)}", each.fails == bug.fails, told))
        numbered = [f"{number:2}  {line}" for number, line in enumerate(lines, start=1)]
        card = "\n".join(
            f"- {'✓' if line.ok else '✗'} {_bold(line.name)}: {_verbatim(line.message)}"
            for line in bug.verdicts[0].aspects
        )
        prompt = (
            f"A right answer:\n\n{_block(numbered)}\n\nIn somebody's copy **one line** is different, and the check "
            f"says:\n\n{card}\n\nWhich line do they have?"
        )
        return self.question(bug.code, prompt, options, lots)


class _Shows(_Kind):
    """Code with one slip, and four sets of aspects that fail: its own, and those of other mistakes."""

    kind, minutes, points = "shows", 3.0, 2

    def __init__(self, exercise: Exercise, text: str, lesson: str, bugs: Sequence[Bug], bug: Bug) -> None:
        super().__init__(exercise, text, lesson)
        self.bugs, self.bug = bugs, bug

    def __call__(self, lots: random.Random) -> Question | None:
        bug = self.bug
        others = unlike(bug, self.bugs, lots)
        if not bug.fails or len(others) < OPTIONS - 1 or len(bug.fails) == len(self.exercise.aspects):
            return None
        mended = bug.solution.splitlines()[bug.at or 0].strip()
        options = [Option(_failing(bug.fails), True, f"{bug.why} A right answer has {_code(mended)}.")]
        for fails, each in list(others.items())[: OPTIONS - 1]:
            told = f"That is what “{each.slip.name}” gives: the line would be {_code(each.line)}."
            options.append(Option(_failing(fails), False, told))
        prompt = (
            f"{_block(bug.code.splitlines())}\n\nOne line is wrong. The check looks at\n\n{self.checks()}\n\n"
            "What fails? All that is not named passes."
        )
        return self.question(bug.code, prompt, options, lots)


def unlike(bug: Bug, bugs: Sequence[Bug], lots: random.Random) -> dict[tuple[str, ...], Bug]:
    """Other mistakes, by the aspects that fail, each another set than `bug` has; those with the most alike first."""
    mine = set(bug.fails or ())
    found: dict[tuple[str, ...], Bug] = {}
    names = {bug.slip.name}
    for each in sorted(lots.sample(bugs, len(bugs)), key=lambda other: len(mine ^ set(other.fails or ()))):
        if each.fails and each.fails != bug.fails and each.fails not in found and each.slip.name not in names:
            found[each.fails] = each
            names.add(each.slip.name)
    return found


class _Line(_Kind):
    """Which line is wrong: asked where no change of one step at another line on offer would do."""

    kind, minutes = "line", 2.0

    def __init__(self, exercise: Exercise, text: str, lesson: str, bug: Bug, others: Sequence[int]) -> None:
        super().__init__(exercise, text, lesson)
        self.bug, self.asked = bug, drill.Question(exercise, bug.slip, drill.LINE, tuple(others))

    def __call__(self, lots: random.Random) -> Question | None:
        if not self.asked.possible or not self.bug.fails:
            return None
        made = self.asked.drill()
        if len(made.options) < OPTIONS:
            return None
        options = []
        for place, line in enumerate(made.options):
            right = place == made.right
            mended = f"{self.bug.why} A right answer has {_code(made.mended)}."
            told = mended if right else "This line is right as it is."
            options.append(Option(_code(line), right, told))
        fails = f"It fails {_listed(self.bug.fails)}."
        prompt = f"{_block(self.bug.code.splitlines())}\n\nOne line is wrong. {fails} Which line is it?"
        return self.question(self.bug.code, prompt, options, lots)


class _Picture(_Kind):
    """What comes out, as a table, on inputs that are shown: of this code, of the solution, of other mistakes."""

    kind = "picture"

    def __init__(self, exercise: Exercise, text: str, lesson: str, bugs: Sequence[Bug], bug: Bug) -> None:
        super().__init__(exercise, text, lesson)
        self.bugs, self.bug = bugs, bug

    def __call__(self, lots: random.Random) -> Question | None:
        solution = self.exercise.as_answer(self.bug.base)
        for given in inputs(self.exercise):
            right, ours = picture(solution, given), picture(self.bug.slip.answer, given)
            if right is None or ours is None or right == ours:
                continue
            tables = {right: "That is what a right answer makes."}
            for each in lots.sample(self.bugs, len(self.bugs)):
                made = picture(each.slip.answer, given)
                if made is not None and made != ours:
                    tables.setdefault(made, f"That is what “{each.slip.name}” makes: {_code(each.line)}.")
            if len(tables) < OPTIONS - 1:
                continue
            options = [Option(ours, True, self.bug.why)]
            options += [Option(table, False, told) for table, told in list(tables.items())[: OPTIONS - 1]]
            said = ", ".join(f"`{name}` = {_value(value)}" for name, value in given.items())
            prompt = f"{_block(self.bug.code.splitlines())}\n\nWith {said}: what does **this** code return?"
            return self.question(self.bug.code, f"{prompt}{_legend(ours)}", options, lots)
        return None


def _of_a_drill(made: drill.Drill, lesson: str) -> Maker:
    """A lesson's own drill as a question: its table, and the code or the name that goes with it."""

    def question(lots: random.Random) -> Question:
        rows = [[_cell(value) for value in row] for row in made.table]
        table = f"\n\n{_block(_columns(rows))}" if rows else ""
        legend = "\n\n✓ is True: the query of this row may attend to the key of this column." if "✓" in table else ""
        code = f"\n\n{_block(made.code.splitlines())}" if made.code else ""
        options = [
            Option(_code(text) if made.as_code else text, place == made.right,
                   made.why if place == made.right else "It makes another table.")
            for place, text in enumerate(made.options)
        ]  # fmt: skip
        return Question(lesson, f"{TABLE}{made.key}", f"{made.question}{table}{code}{legend}",
                        tuple(lots.sample(options, len(options))), 2.0, 1, generated=True)  # fmt: skip

    return question


# -------------------------------------------------------------------------------------------------------- what is shown


def contract(lesson: Lesson, exercise: Exercise) -> str:
    """An exercise in words and shapes, as its assignment's cell states it."""
    source = (lesson.folder / "assignment.py").read_text("utf-8")
    cell = re.search(rf'^# %% exercise="{exercise.name}".*?\n(.*?)(?=^# %%|\Z)', source, re.DOTALL | re.MULTILINE)
    said = next((text for node in ast.walk(ast.parse(cell[1])) if isinstance(node, ast.FunctionDef | ast.ClassDef)
                 and (text := ast.get_docstring(node))), "") if cell else ""  # fmt: skip
    first, _, rest = said.partition("\n")
    shapes = [_block(rest.strip().splitlines())] if rest.strip() else []
    return "\n\n".join([f"`{exercise.name}`: {first}", *shapes])


@cache
def inputs(exercise: Exercise) -> tuple[dict[str, Any], ...]:
    """Inputs small enough to be printed, of those that the aspects draw: all that a call is given, by name."""
    found = []
    for seed in SEEDS:
        for seen in observe_known(exercise, exercise.reference, seed).values():
            given = {name: _tensor(array) for name, array in seen.inputs.items()}
            small = sum(torch.as_tensor(value).numel() for value in given.values()) <= MOST_INPUTS
            if small and set(given) == set(exercise.arguments):
                found.append({name: given[name] for name in exercise.arguments})
    return tuple(found)


def _tensor(array: Any) -> Any:
    value = torch.as_tensor(array)
    if not value.ndim:
        return value.item()
    return value.float() if value.is_floating_point() else value


def picture(answer: Any, given: dict[str, Any]) -> str | None:
    """What an answer makes of these inputs, as a block of text; None unless it is a small table of truths or whole
    numbers."""
    try:
        made = answer(**given)
    except Exception:
        return None
    if not isinstance(made, torch.Tensor) or made.ndim != 2 or str(made.dtype).removeprefix("torch.") not in PICTURES:
        return None
    if min(made.shape) < SMALLEST_PICTURE or max(made.shape) > LARGEST_PICTURE:
        return None
    return _block(_columns([[_cell(value) for value in row] for row in made.tolist()]))


def _cell(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return "✓" if value else "·"
    return f"{value}" if isinstance(value, int) else f"{value:.2f}"


def _columns(rows: list[list[str]]) -> list[str]:
    width = max(len(cell) for row in rows for cell in row)
    return [" ".join(cell.rjust(width) for cell in row) for row in rows]


def _legend(table: str) -> str:
    return " (✓ is True, · is False.)" if "·" in table or "✓" in table else ""


def _value(value: Any) -> str:
    return f"`{value.tolist()}`" if isinstance(value, torch.Tensor) else f"`{value}`"


def _block(lines: Sequence[str]) -> str:
    return "\n".join(["```text", *lines, "```"])


def _code(line: str) -> str:
    fence = "``" if "`" in line else "`"
    return f"{fence}{line}{fence}"


def _verbatim(message: str) -> str:
    """What a check says, as Markdown shows it: `layers[i](x)` in a line of an answer is no link."""
    code_or_sign = r"`[^`]*`|(?P<sign>[\\\[\]*_<])"
    return re.sub(code_or_sign, lambda found: rf"\{found[0]}" if found["sign"] else found[0], message)


def _bold(name: str) -> str:
    return f"**{name}**"


def _listed(names: Sequence[str]) -> str:
    told = [_bold(name) for name in names]
    return told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"


def _failing(names: Sequence[str]) -> str:
    return f"{_listed(names)} {'fails' if len(names) == 1 else 'fail'}"
