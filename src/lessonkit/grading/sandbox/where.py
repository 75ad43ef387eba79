"""The trusted worker's search for the line at which a wrong answer is wrong: see `lessonkit.exercises.repair`.

The answer's code is read and changed here, as a syntax tree; it is run, each change of it, in the learner's process
alone, which is asked what it does as it is asked when it is graded. One that dies is followed by another.
"""

from __future__ import annotations

import ast
import contextlib
import math
import re
import textwrap
import time
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lessonkit.course import load
from lessonkit.exercises import back, repair
from lessonkit.exercises.local_runner import AspectFailed
from lessonkit.exercises.repair import GivenUp, Look, Nothing, NotMade, Saw, Search, Source, followed

if TYPE_CHECKING:
    from lessonkit.exercises.exercise import Aspect, Exercise
    from lessonkit.exercises.observe import Observation
    from lessonkit.grading.sandbox.observer import Trials

LONGEST = 50_000  # characters of a cell that is read
LARGEST = 1500  # nodes of an answer's tree: there are some thousand changes of one of 300
CHANGED = "_changed_by_the_search"
KINDS = "_kinds_of_the_search"
TYPES = ("float", "truth", "int", "number", "real", "bool", "list", "function", "other")


def searched(job: Mapping[str, Any], start: Callable[[], Trials]) -> dict[str, Any]:
    """What the search in a job's wrong answer comes to, as JSON data; `why` there is nothing, where nothing was tried.

    The job's `where` says the exercise, what its check calls the answer, and for how many seconds to look.
    """
    asked = job["where"]
    exercise = load(job["course"]).exercise(asked["exercise"], asked.get("variation"))
    try:
        with contextlib.closing(_Sandbox(exercise, job, start)) as bench:
            seeds = job["seeds"][exercise.name][: exercise.seeds]
            found = followed(_tries(exercise, seeds, bench), asked["seconds"], lambda share: None)
    except Nothing as nothing:
        return {"place": None, "tried": 0, "complete": True, "why": str(nothing)}
    place = found.place and {"text": found.place.text, "piece": found.place.piece}
    return {"place": place, "tried": found.tried, "complete": found.complete, "why": ""}


def _tries(exercise: Exercise, seeds: list[int], bench: _Sandbox) -> Any:
    try:
        yield from Search(exercise, seeds, bench.source, bench).tries(0)
    except (RecursionError, MemoryError) as error:
        raise Nothing("its code is too deep, or too long") from error


def definition(cells: list[str], name: str) -> tuple[Source, bool]:
    """The last definition of the answer in these cells, and whether it is a module's `forward`. Nothing if none is."""
    for text in reversed(cells):
        tree = _parsed(text) or _parsed(re.sub(r"^[ \t]*[%!].*$", "", text, flags=re.MULTILINE))  # IPython's own lines
        for top in reversed(tree.body if tree else []):
            if isinstance(top, ast.FunctionDef | ast.ClassDef) and top.name == name:
                inside = [node for node in getattr(top, "body", []) if getattr(node, "name", "") == "forward"]
                found = top if isinstance(top, ast.FunctionDef) else inside[-1] if inside else None
                if not isinstance(found, ast.FunctionDef) or sum(1 for _ in ast.walk(found)) > LARGEST:
                    raise Nothing("its code is too long, or it is no function")
                return Source(text, found), found is not top
    raise Nothing("its code cannot be read")


def _parsed(text: str) -> ast.Module | None:
    if len(text) > LONGEST:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a SyntaxWarning is the student's
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Sandbox:
    """A bench (see `repair.Bench`) in a learner's process, and in another when that is gone."""

    def __init__(self, exercise: Exercise, job: Mapping[str, Any], start: Callable[[], Trials]) -> None:
        asked = job["where"]
        self.exercise, self.answer = exercise, str(asked["answer"])
        self.source, self.is_module = definition([cell["source"] for cell in job["cells"]], self.answer)
        self._start, self._faults = start, 0
        self._until = time.monotonic() + asked["seconds"]
        self._trials: Trials | None = None

    def look(self, tree: ast.FunctionDef, looking: Callable[[Look], Saw]) -> Saw | None:
        return self._look(tree, looking, "")

    def _look(self, tree: ast.FunctionDef, looking: Callable[[Look], Saw], first: str) -> Saw | None:
        called, code = self.answer, ast.unparse(tree)
        if self.is_module:
            called, code = CHANGED, f"class {CHANGED}({self.answer}):\n{textwrap.indent(code, '    ')}"
        saw: list[Saw] = []
        if not self._trial(f"{first}{code}\n{self._check(called)}", lambda: saw.append(looking(self._observed))):
            raise NotMade
        return saw[0] if saw else None

    def watch(self, twin: ast.FunctionDef, note: back.Note, looking: Callable[[Look], Saw]) -> Saw | None:
        saw = self._look(twin, looking, f"{KINDS}.clear()\n")  # what another aspect has told is not this one's
        told: dict[Any, Any] = {}

        def looking_at_what_it_told() -> None:
            with contextlib.suppress(AspectFailed):
                value = self._process().value_of(self._left(repair.HANGS))
                told.update(value if isinstance(value, dict) else {})

        self._trial(self._check(f"lambda: {KINDS}"), looking_at_what_it_told)
        arguments = {argument.arg for argument in twin.args.args}
        for what, kind in told.items():
            if (type(what) is int or what in arguments) and _is_kind(kind):
                note(what, back.Kind(*kind))
        return saw

    def close(self) -> None:
        if self._trials is not None:
            self._trials.close()
            self._trials = None

    def _check(self, answer: str) -> str:
        return f"check({self.exercise.name!r}, {answer})"

    def _observed(self, aspect: Aspect, seed: int, limit: float, guarded: bool) -> Observation:
        return self._process().observed(self.exercise, aspect, seed, self._left(limit), guarded)

    def _left(self, seconds: float) -> float:
        return max(0.0, min(seconds, self._until - time.monotonic()))

    def _trial(self, source: str, looking: Callable[[], None]) -> bool:
        """Whether this code came to its check, or can be blamed for the end of its process."""
        process = self._process()
        asked = process.trial(source, looking, self._left(repair.HANGS))
        if process.ended is None:
            return asked
        self.close()
        self._faults += 1
        return True

    def _process(self) -> Trials:
        """The process, with the notebook's cells run in it. GivenUp when the time is up, or too many have died."""
        if self._trials is None and self._faults <= repair.MOST_FAULTS:
            self._trials = self._start()
            self._trials.prepare(self._left(math.inf))
            self._trials.trial(TELLING, lambda: None, repair.HANGS)
        if self._trials is None or self._trials.ended is not None or not self._left(math.inf):
            raise GivenUp
        return self._trials


def _is_kind(value: Any) -> bool:
    """Whether what the process says is a kind (see `back.Kind`)."""
    if not (isinstance(value, tuple) and len(value) == 4):
        return False
    type_, shape, number, prints = value
    if not (prints is None or (isinstance(prints, tuple) and [*map(type, prints)] == [float] * 3)):
        return False
    is_shape = isinstance(shape, tuple) and len(shape) < 10 and all(type(n) is int for n in shape)
    return type_ in TYPES and is_shape and isinstance(number, int | float | None)


_KIND_OF_VALUE = ast.unparse(Source.of(back.kind_of_value).tree)
# Defines in the learner's process what a twin calls SEEN, and the module of mathematics; of the kit it has nothing.
TELLING = f"""
import math as {back.MATH}
{KINDS} = {{}}
def _telling():
    import torch
    from torch import Tensor
    def Kind(type, shape=(), value=None, print=None):
        return type, shape, value, print
{textwrap.indent(_KIND_OF_VALUE, "    ")}
    def tell(number, value):
        if number not in {KINDS}:
            {KINDS}[number] = kind_of_value(value)
        return value
    return tell
{back.SEEN} = _telling()
"""
