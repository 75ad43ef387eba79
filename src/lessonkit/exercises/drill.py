"""Find the bug: a solution with one slip in it. Which line holds it, which aspect fails? The check's verdict answers.

Nothing here is written by hand: the code is a slip's, the right option is what `judge` says of it, and the wrong
options are aspects that pass and lines that stand in the solution as they are. A line is asked for only where no change
of one step at another line on offer would do (`mending_lines`, which takes a second each: a course keeps what it found,
in drills.json).
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import io
import itertools
import json
import random
import time
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lessonkit.exercises.exercise import Code, Exercise, body_of
from lessonkit.exercises.judge import judge, observe_known
from lessonkit.exercises.repair import Search, Source, _no_traces, _ThisProcess
from lessonkit.exercises.verdict import Verdict

LINE, FAILS, PASSES = "line", "fails", "passes"
ASKED = {
    LINE: "One line is not as in the solution. Which one?",
    FAILS: "One of these aspects fails. Which one?",
    PASSES: "One of these aspects is right all the same. Which one?",
}
MOST_OPTIONS, FEWEST_OPTIONS = 4, 3
A_FEW_SEEDS = (0, 1)
LINES_FOR = 4  # slips of each exercise are looked into for other lines that would do,
MOST_SECONDS = 15.0  # and each for so long at most, of the processor's time
Proven = Mapping[str, Sequence[int]]  # of a slip, by its code: other lines at which one step would mend it


@dataclass(frozen=True)
class Drill:
    """A question with options, of which one is right.

    `card` is what it practises, an exercise or a lesson, and `key` its name there. `code` and `table` are what is
    looked at, `why` is said after the answer, and with it the check's `verdict` on the code and the line `mended`.
    """

    key: str
    question: str
    options: tuple[str, ...]
    right: int
    why: str
    card: str = ""
    assignment: str = ""
    code: str = ""
    table: tuple[tuple[float, ...], ...] = ()
    mended: str = ""
    as_code: bool = False  # whether the options are code
    verdict: Verdict | None = None

    @property
    def where(self) -> str:
        """What it is about, in words: `a04, self_attention`."""
        return f"{self.assignment}, {self.card.replace('_', ' ') if ' ' in self.card else self.card}"

    def as_dict(self) -> dict[str, Any]:
        """As JSON data, for the script that asks it."""
        names = ("key", "card", "assignment", "where", "question", "options", "right")
        told = {name: getattr(self, name) for name in names}
        told |= {name: value for name in ("why", "code", "table", "mended") if (value := getattr(self, name))}
        told |= {"as_code": True} if self.as_code else {}
        if self.verdict:
            lines = [[line.ok, line.name, line.message] for line in self.verdict.aspects]
            told["verdict"] = {"score": self.verdict.score, "aspects": lines}
        return told


@dataclass(frozen=True)
class Question:
    """A drill before it is made: making it runs the check."""

    exercise: Exercise
    slip: Code
    kind: str
    others: tuple[int, ...] = ()  # lines of its code, from 1, at which another change would do

    @functools.cached_property
    def code(self) -> str:
        """What is shown: without comments, which tell of the solution."""
        return shown(self.exercise, self.slip.body)

    @functools.cached_property
    def key(self) -> str:
        return f"{self.kind}-{digest(self.code)}"

    @property
    def possible(self) -> bool:
        """Whether there is exactly one right option, and enough wrong ones."""
        return len(self._choices()[0]) >= FEWEST_OPTIONS

    def drill(self, seed: int = 0) -> Drill:
        """The drill, with the verdict on the inputs of `seed`. ValueError where its right option would not be."""
        exercise, slip = self.exercise, self.slip
        verdict = judge(exercise, observe_known(exercise, slip.answer, seed), seed, name=False)
        if {line.name for line in verdict.aspects if not line.ok} != set(slip.fails):
            raise ValueError(f"{exercise.name}, {slip.name!r}: it does not fail the aspects that it says")
        options, right = self._choices()
        changed = changed_line(self._solution, self.code)
        mended = self._solution.splitlines()[changed].strip() if changed is not None else ""
        why = f"“{slip.name}”. {slip.hint}"
        return Drill(self.key, ASKED[self.kind], options, right, why, exercise.name, code=self.code, mended=mended,
                     as_code=self.kind == LINE, verdict=verdict)  # fmt: skip

    @property
    def _solution(self) -> str:
        assert self.slip.base is not None
        return shown(self.exercise, body_of(self.slip.base))

    def _choices(self) -> tuple[tuple[str, ...], int]:
        return self._lines() if self.kind == LINE else self._aspects()

    def _lines(self) -> tuple[tuple[str, ...], int]:
        changed, lines = changed_line(self._solution, self.code), self.code.splitlines()
        if changed is None:
            return (), 0
        told = [line.strip() for line in lines]
        good = [number for number, line in enumerate(told)
                if number != changed and number + 1 not in self.others and _says_something(line)
                and told.count(line) == 1]  # fmt: skip
        # A change mostly stands in a line with much in it: so that length tells nothing, its place by length is drawn.
        lots, many = random.Random(self.key), min(len(good), MOST_OPTIONS - 1)
        longer = [number for number in good if len(told[number]) > len(told[changed])]
        rest = [number for number in good if number not in longer]
        if not longer and lots.randrange(MOST_OPTIONS):
            return (), 0  # "the longest" would be a good guess
        above = max(min(lots.randint(0, many), len(longer)), many - len(rest))
        wrong = lots.sample(longer, above) + lots.sample(rest, many - above)
        chosen = sorted([changed, *wrong])
        return tuple(told[number] for number in chosen), chosen.index(changed)

    def _aspects(self) -> tuple[tuple[str, ...], int]:
        aspects, lots = self.exercise.aspects, random.Random(self.key)
        fail = [each for each in aspects if each.name in self.slip.fails]
        rest = [each for each in aspects if each.name not in self.slip.fails]
        ours, others = (fail, rest) if self.kind == FAILS else (rest, fail)
        if not ours:
            return (), 0
        right = lots.choice(ours)
        chosen = [right, *lots.sample(others, min(len(others), MOST_OPTIONS - 1))]
        lots.shuffle(chosen)
        return tuple(f"{each.name}: {each.meaning}" for each in chosen), chosen.index(right)


def questions(exercise: Exercise, proven: Proven | None = None) -> list[Question]:
    """All that can be asked of an exercise's slips, lines and aspects in turn; nothing of one that is measured.

    `proven` has what `mending_lines` found, by the digest of a slip's code: a line is asked for where it is known.
    """
    known = proven or {}
    by_line, by_aspect = [], []
    for number, slip in enumerate(slips(exercise)):
        others = known.get(digest(shown(exercise, slip.body)))
        if others is not None:
            by_line.append(Question(exercise, slip, LINE, tuple(others)))
        kinds = (FAILS, PASSES) if number % 2 else (PASSES, FAILS)
        by_aspect += [each for kind in kinds if (each := Question(exercise, slip, kind)).possible][:1]
    by_line = [each for each in by_line if each.possible]
    apart = by_aspect[len(by_line) :] + by_aspect[: len(by_line)]  # the same slip is not asked about twice in a row
    turn = [each for pair in itertools.zip_longest(by_line, apart) for each in pair if each]
    return list({each.key: each for each in turn}.values())


def slips(exercise: Exercise) -> list[Code]:
    """The exercise's slips, each code once: the misconceptions first, then their variants."""
    return [] if exercise.metric else [code for code in exercise.misconceptions + exercise.variants if code.change]


def one_of(
    key: str, question: str, options: Mapping[str, Any], seen: Any, same: Callable[[Any, Any], bool], *,
    why: str, code: str = "", table: Sequence[Sequence[float]] = (), as_code: bool = False,
) -> Drill:  # fmt: skip
    """A drill about something that is `seen`: each of `options` has a value, and one is the same as that.

    ValueError where none is, or several are.
    """
    fitting = [name for name, value in options.items() if same(value, seen)]
    if len(fitting) != 1:
        raise ValueError(f"{key}: {len(fitting)} options fit ({', '.join(fitting)}), expected one")
    right = list(options).index(fitting[0])
    return Drill(key, question, tuple(options), right, why, code=code, table=tuple(map(tuple, table)), as_code=as_code)


# ------------------------------------------------------------------------------------------------------------ the code


@functools.cache  # each kind of question asks for it
def shown(exercise: Exercise, body: str) -> str:
    """An answer as it is shown: with its first line, and without comments and empty lines."""
    solution = exercise.solution
    assert solution is not None
    head = f"def {exercise.name}{_plain(inspect.signature(solution))}:"
    if isinstance(solution, type):
        bases = ("nn.Module" if base.__name__ == "Module" else base.__name__ for base in solution.__bases__)
        head = f"class {exercise.name}({', '.join(bases)}):"
    elif isinstance(exercise.reference, type):
        head = f"def forward{_plain(inspect.signature(solution))}:"
    text = "\n".join([head, *(f"    {line}" for line in body.splitlines())]) + "\n"
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _plain(signature: inspect.Signature) -> inspect.Signature:
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return signature.replace(parameters=parameters, return_annotation=signature.empty)


def changed_line(right: str, wrong: str) -> int | None:
    """At which line, from 0, two codes differ; None where that is not one line, or only in its indentation, which an
    option does not show."""
    one, other = right.splitlines(), wrong.splitlines()
    differ = [number for number, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]]
    if len(one) != len(other) or len(differ) != 1 or one[differ[0]].strip() == other[differ[0]].strip():
        return None
    return differ[0]


def _says_something(line: str) -> bool:
    return sum(letter.isalnum() for letter in line) > 3 and not line.startswith(("def ", "class ", "@", "else"))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def made(exercise: Exercise, like: Callable, text: str, file: str) -> Any:
    """What a learner hands in who writes `text`, in the place of `like`, whose module's names it sees.

    Whatever running the text raises passes through.
    """
    scope = dict(vars(inspect.getmodule(like)) if isinstance(like, type) else like.__globals__)
    tree = ast.parse(text, file)
    name = next(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef))
    exec(compile(tree, file, "exec"), scope)
    return exercise.as_answer(scope[name])


# ------------------------------------------------------------------------------------------------- other lines would do


def mending_lines(exercise: Exercise, slip: Code, seeds: Sequence[int] = A_FEW_SEEDS) -> list[int] | None:
    """The lines of a slip's code, from 1, at which one step makes it right, but for the line that holds the slip.

    They are looked for as `hint(…, "where")` does, to the end. None where no line can be asked for: the slip changes
    several, the learner writes a whole class, or the end was not reached in `MOST_SECONDS`.
    """
    assert slip.base is not None
    text = shown(exercise, slip.body)
    changed = changed_line(shown(exercise, body_of(slip.base)), text)
    if changed is None or exercise.writes_init:
        return None
    answer = made(exercise, slip.base, text, "<a slip>")
    function = vars(answer)["forward"] if isinstance(answer, type) else answer
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.FunctionDef)
    search = Search(exercise, tuple(seeds), Source(text, tree), _ThisProcess(exercise, answer, function))
    found, until = set(), time.process_time() + MOST_SECONDS
    with _no_traces():
        for message in search.tries(0):
            found |= {message.found[0].line} if message.found else set()
            if time.process_time() > until:
                return None
    return sorted(found - {changed + 1})


def prove(exercise: Exercise, before: Proven, told: Callable[[str], None] = print) -> dict[str, list[int]]:
    """What drills.json holds of an exercise: for `LINES_FOR` of its slips, other lines that would do. What `before`
    knows, by the code, is not looked for again."""
    found: dict[str, list[int]] = {}
    for slip in slips(exercise):
        key = digest(shown(exercise, slip.body))
        if len(found) == LINES_FOR:
            break
        if not Question(exercise, slip, LINE).possible:
            continue
        known = before.get(key)
        lines = list(known) if known is not None else mending_lines(exercise, slip)
        if lines is not None and Question(exercise, slip, LINE, tuple(lines)).possible:
            found[key] = lines
            if known is None:
                told(f"{exercise.name}, {slip.name}: {lines or 'no other line'}")
    return found


# ------------------------------------------------------------------------------------------------------------- a course


@dataclass(frozen=True)
class Card:
    """What is practised: an exercise, with its questions, or what a lesson asks besides."""

    name: str
    assignment: str
    questions: Sequence[Question | Drill]
    exercise: Exercise | None = field(default=None, compare=False)

    def drill(self, number: int) -> Drill:
        """One of its drills, made."""
        asked = self.questions[number]
        drill = asked.drill() if isinstance(asked, Question) else asked
        return replace(drill, card=self.name, assignment=self.assignment)


def cards(course: Any, assignments: Sequence[str]) -> Iterator[Card]:
    """The cards of some assignments: of each exercise that has slips, and of a lesson's `drills.py`."""
    proven = kept_proofs(course)
    for assignment in assignments:
        lesson = course.lesson(assignment)
        if (lesson.folder / "drills.py").is_file():
            yield Card(f"about {lesson.name}", assignment, tuple(course.part(lesson.name, "drills").drills()))
        for exercise in course.exercises_of(assignment):
            asked = questions(exercise, proven.get(exercise.name))
            if asked:
                yield Card(exercise.name, assignment, asked, exercise)


def kept_proofs(course: Any) -> dict[str, dict[str, list[int]]]:
    """What the course's drills.json holds; nothing where there is none."""
    path = course.folder / "drills.json"
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}
