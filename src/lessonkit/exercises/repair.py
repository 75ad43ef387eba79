"""Where is it? Change a wrong answer by one step, in every way, until it is right: there is the line at fault.

`where(exercise, answer, seeds)` searches. It is run when a learner asks, on the learner's machine, and tells the line
and the piece, never what would be right. `Search` is the same for answers that are called elsewhere: an instructor's
class, in the sandbox (`lessonkit.grading.sandbox.where`). Others have gone this way. Singh et al. (PLDI 2013) have a
teacher write an error model, rules of correction, and look for the fewest of them that make a submission do what the
reference does: 64 % of those that were wrong. Refazer (Rolim et al., ICSE 2017) learns its transformations from
examples of edits, and so helped to fix wrong submissions of 87 % of 720 students. Clara (Gulwani et al., PLDI 2018)
repairs by means of other students' right answers: 97 % of 4,293 attempts, 81 % by a small repair of good quality. Here
the rules are slips undone (`steps`), what may be missing (`back`), and the pieces of the exercise's own slips turned
round (`back.rules`); no other learner's code is looked at, and one step is all.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import inspect
import io
import itertools
import math
import multiprocessing
import os
import random
import re
import signal
import sys
import textwrap
import time
import types
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from lessonkit.exercises import back
from lessonkit.exercises.exercise import Aspect, Exercise, body_of
from lessonkit.exercises.judge import fault_of, observe_known
from lessonkit.exercises.local_runner import Guard, LocalRunner
from lessonkit.exercises.observe import Observation, observe_aspect
from lessonkit.exercises.steps import Step, steps
from lessonkit.exercises.trace import suspects, with_values

SECONDS = 10.0  # for the whole search
A_TRY = 0.5  # seconds that a changed answer may take for one aspect, or ten times as long as the answer took
STANDS = 10  # times as long may pass on the clock: a busy machine lets it wait, and it may sleep
MORE_MEMORY = 2**29  # bytes that a try may take on top
TRACED = 2.0  # seconds that right numbers are put in the place of others
AFTER = 1.0  # seconds that the search goes on after a first find, for others of the same rank
STARTS = 20.0  # seconds until the answer has been judged once more, and the search begins
HANGS = 3.0  # seconds without a word, and the copy of the process that searches is given up
MOST_FAULTS = 8  # such copies
clock = time.perf_counter  # a benchmark on a busy machine counts the processor's time
FILE = "<a changed answer>"
BACK = 2  # the rank of the steps that put something in
OWN_CLASS = "_class_of_the_search"
ONE_MORE_SEED = 1234567  # a change that is right by luck on the seeds of the check


@dataclass(frozen=True)
class Place:
    """Where an answer is wrong: a line, as it is numbered in its cell or file, its text, and the piece of it."""

    line: int
    text: str
    piece: str


@dataclass(frozen=True)
class Found:
    """What a search came to: a place or none, how many changes were tried in which time, and whether it tried all."""

    place: Place | None
    tried: int
    seconds: float
    complete: bool
    made: str = ""  # the answer that earned all, for whoever looks after the search: no learner is shown it
    lines: tuple[int, ...] = ()  # every line at which a change of the same rank made it right
    by_numbers: bool = False  # right numbers there made it right, and no change of the code was found

    def __str__(self) -> str:
        """What a learner reads."""
        if self.place is None:
            rest = "Every change of one step was tried" if self.complete else "The time was up"
            return (
                f"{rest}, {self.tried} in all, and none made it right: more than one place is wrong, or one "
                "needs more than a small change."
            )
        if self.by_numbers:
            return (
                f"Look at line {self.place.line}:\n\n    {self.place.text}\n\n"
                f"At `{self.place.piece}` the numbers go wrong: what goes into it is right, and with the right numbers "
                "in its place the answer would be, too."
            )
        others = sorted(line for line in self.lines if line != self.place.line)
        too = f" A change at line {' or '.join(map(str, others[:3]))} would do it, too." if others else ""
        return (
            f"Look at line {self.place.line}:\n\n    {self.place.text}\n\n"
            f"One small change at `{self.place.piece}` would make all right.{too} (Tried: {self.tried}.)"
        )


class TooLong(BaseException):
    """No Exception: the check would take it for the answer's own, and go on."""


def where(
    exercise: Exercise,
    answer: Any,
    seeds: Sequence[int],
    *,
    seconds: float = SECONDS,
    progress: Callable[[float], None] | None = None,
    apart: bool = hasattr(os, "fork"),
) -> Found | None:
    """The place in `answer` where one step makes it right; None where nothing is wrong, or its code cannot be read.

    `progress` is told how much of the time is gone. KeyboardInterrupt stops the search, and passes through. Nothing
    that the learner has is changed: not their variables, random numbers, files or figures; and nothing is printed.
    `apart`: in a copy of this process, so that a change that brings torch down, or never ends, takes nothing with it.
    """
    every = _apart if apart else _here
    try:
        with contextlib.closing(every(exercise, answer, tuple(seeds))) as messages:
            return followed(messages, seconds, progress or (lambda share: None))
    except Nothing:
        return None


def followed(messages: Iterable[Message], seconds: float, told: Callable[[float], None]) -> Found:
    """What a search came to that says these messages; it is left when its time is up. `told` hears how much is gone.

    Of several places of one rank that is told at which the numbers go wrong, if they are known to (see `trace`), or
    else that at which the smallest change does. A scale mends the queries, the scores and the masked scores alike: of
    those the first at which all inputs have met, for there the quantity was made.
    """
    places: list[tuple[int, tuple[int, int], Place, str]] = []  # its rank, size and inputs not met, and what was found
    traced: Place | None = None
    until, tried, elapsed = seconds, 0, 0.0
    try:
        for message in messages:
            tried, elapsed, traced = message.number, message.elapsed, message.traced or traced
            told(min(elapsed / seconds, 1.0))
            if message.found and not (places and message.rank > places[0][0]):
                places.append((message.rank, (message.size, -message.met), *message.found))
                until = min(until, elapsed + AFTER)
            if elapsed > until or (places and message.rank > places[0][0]):
                break
        else:
            until = math.inf
    except GivenUp:
        pass
    if not places and traced:
        return Found(traced, tried, elapsed, until == math.inf, lines=(traced.line,), by_numbers=True)
    if not places:
        return Found(None, tried, elapsed, until == math.inf)
    there = traced.line if traced else None
    *_, place, made = min(places, key=lambda entry: (entry[2].line != there, entry[1], entry[2].line))
    return Found(place, tried, elapsed, until == math.inf, made, tuple(dict.fromkeys(p.line for *_, p, _ in places)))


# ----------------------------------------------------------------------------------------------------------- the search


class GivenUp(Exception):
    """Too many tries have brought their process down."""


class Nothing(Exception):
    """There is nothing to look for, or no way to."""


class NotMade(Exception):
    """What a change has made of the answer cannot even be defined."""


@dataclass(frozen=True)
class Message:
    """How a search goes: try `number` of the rank `rank` comes next, or was right at a place, as this code."""

    rank: int
    number: int
    elapsed: float
    found: tuple[Place, str] | None = None
    met: int = 0  # how many of the inputs have met there
    size: int = 0  # of the change: how many pieces are new, or gone
    traced: Place | None = None  # where the numbers go wrong


Saw = TypeVar("Saw")
# What an aspect shows on a seed, seen for so many seconds at most, with or without looking out for what is forbidden.
Look = Callable[[Aspect, int, float, bool], Observation | None]


class Bench(Protocol):
    """Where changed answers are made and called: in this process, or in another."""

    def look(self, tree: ast.FunctionDef, looking: Callable[[Look], Saw]) -> Saw | None:
        """What `looking` sees in the answer with this code; None if that took too long, or its process. NotMade."""

    def watch(self, twin: ast.FunctionDef, note: back.Note, looking: Callable[[Look], Saw]) -> Saw | None:
        """`look`, at a twin that tells what its expressions are (see `back.watched`): that is noted."""


def _here(exercise: Exercise, answer: Any, seeds: tuple[int, ...]) -> Generator[Message, None, None]:
    """The search, step by step, in this process."""
    with _no_traces():  # whoever waits between two steps sees it: nobody does
        yield from together(_searches(exercise, answer, seeds), 0)


def _searches(exercise: Exercise, answer: Any, seeds: tuple[int, ...]) -> list[Search]:
    """One in a function; in a module's `forward` and, where the learner writes that, too, in its `__init__`."""
    functions = [("", answer)]
    if isinstance(answer, type) and issubclass(answer, nn.Module):
        functions = [("forward", answer.forward)]
        if exercise.writes_init and "__init__" in vars(answer):
            functions.append(("__init__", answer.__init__))
    found: list[Search] = []
    for method, function in functions:
        try:
            source = Source.of(function)
        except (OSError, TypeError, SyntaxError) as error:
            raise Nothing("its code cannot be read") from error
        bench = _ThisProcess(exercise, answer, function, method)
        found.append(Search(exercise, seeds, source, bench, found[0] if found else None))
    return found


def together(searches: Sequence[Search], skip: int) -> Iterator[Message]:
    """Each step that is tried after the first `skip`, and those that were right: of all searches, rank by rank."""
    started = searches[0].started
    yield Message(0, skip, clock() - started)
    number = 0
    ranks = [search.ranks() for search in searches]
    for traced in searches[0].traced() if not skip else ():  # told once; where that ends the process, not tried again
        yield Message(0, skip, clock() - started, traced=traced)
    for rank in range(len(ranks[0])):
        for search, own in zip(searches, ranks, strict=True):
            for step in own[rank]():
                number += 1
                if number <= skip:
                    continue
                yield Message(rank, number, clock() - started)
                if found := search.tried(step):
                    yield Message(rank, number, clock() - started, *found)


def _apart(exercise: Exercise, answer: Any, seeds: tuple[int, ...]) -> Generator[Message, None, None]:
    """The search in a copy of this process, and in another one where that dies or hangs: after what it died of."""
    skip, before, faults = 0, 0.0, 0
    while faults < MOST_FAULTS:
        receiver, sender = multiprocessing.Pipe(duplex=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of threads: the copy needs none of them
            child = os.fork()
        if not child:
            _as_child(exercise, answer, seeds, skip, sender)
        sender.close()
        last, waited = Message(0, skip, before), 0.0
        try:
            patience = STARTS
            while receiver.poll(patience):
                patience = HANGS
                message = receiver.recv()
                if message is None:
                    return
                if isinstance(message, str):
                    if message == "here":  # it cannot compute gradients, as torch's threads are not copied
                        yield from _here(exercise, answer, seeds)
                        return
                    raise Nothing(message)
                last = replace(message, elapsed=before + message.elapsed)
                yield last
            waited = patience
        except EOFError:  # it died
            pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            receiver.close()
        skip, before, faults = max(last.number, skip + 1), last.elapsed + waited, faults + 1
    raise GivenUp


def _as_child(exercise: Exercise, answer: Any, seeds: tuple[int, ...], skip: int, sender: Any) -> None:
    """Search, tell the other side of it, and end: nothing of what this process was a copy of goes on here."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits
        torch.set_num_threads(1)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        try:
            torch.ones(1, requires_grad=True).sum().backward()
        except RuntimeError:
            sender.send("here")
            return
        with _no_traces():
            for message in together(_searches(exercise, answer, seeds), skip):
                sender.send(message)
        sender.send(None)
    except Nothing as nothing:
        sender.send(str(nothing) or "nothing")
    finally:
        os._exit(0)


class Search:
    """The search in an answer's code. Nothing where it is right on the seeds, or cannot be run.

    `before`, a search in another function of the same answer, has seen what is wrong.
    """

    def __init__(
        self, exercise: Exercise, seeds: Sequence[int], source: Source, bench: Bench, before: Search | None = None
    ) -> None:
        self.exercise, self.seeds, self.source, self.bench = exercise, seeds, source, bench
        self.started = clock()
        self.took: dict[str, float] = before.took if before else {}
        self.seed: int
        self.failing: list[Aspect]
        self.own = _of_self(exercise.solution)
        self.seed, self.failing = (before.seed, before.failing) if before else self._failing()
        self.done: set[str] = set()
        self.inputs: set[str] = set()

    def _failing(self) -> tuple[int, list[Aspect]]:
        """The first seed on which something is wrong, and the aspects that are: the cheapest first."""
        for seed in self.seeds:
            failing = []
            for aspect in self.exercise.aspects:
                before = time.perf_counter()
                try:  # the learner's own would write into what it knows
                    observed = self.bench.look(self.source.tree, lambda look: look(aspect, seed, HANGS, True))  # noqa: B023
                except NotMade as error:
                    raise Nothing("its code cannot be run alone") from error
                self.took[aspect.name] = time.perf_counter() - before
                if not self._right(aspect, seed, observed):
                    failing.append(aspect)
            if failing:
                return seed, sorted(failing, key=lambda aspect: self.took[aspect.name])
        raise Nothing("nothing is wrong")

    def tries(self, skip: int) -> Iterator[Message]:
        """This search alone."""
        yield from together([self], skip)

    def ranks(self) -> list[Callable[[], Iterator[Step]]]:
        """The steps to try, none twice: those of one rank before those of the next."""
        tree, seen = self.source.tree, self._watched(self.failing)
        self.inputs = {argument.arg for argument in tree.args.args} & set(seen.named("float"))

        def new(rank: int, every: Callable[[], Iterator[Step]]) -> Iterator[Step]:
            for step in self._ordered(every(), seen, last_first=rank == BACK):
                if (key := _key(step)) not in self.done:
                    self.done.add(key)
                    yield step

        ranks: tuple[Callable[[], Iterator[Step]], ...] = (
            lambda: back.steps_of_rules(tree, self.exercise, seen),
            lambda: itertools.chain(back.statements_back(tree, seen), steps(tree, self.own)),
            lambda: back.steps_back(tree, seen),
            lambda: back.steps_of_rules(tree, self.exercise, seen, loosely=True),
        )
        return [partial(new, rank, every) for rank, every in enumerate(ranks)]

    def tried(self, step: Step) -> tuple[tuple[Place, str], int, int] | None:
        """Where the step is, what it makes, how many inputs meet there and its size, if it makes the answer right."""
        made = self._made_right(step)
        if not made:
            return None
        where_set = _where_set(self.source.tree, step)
        if where_set and (there := self._made_right(where_set)):
            step, made = where_set, there
        return (self.source.place(step.at), made), _met(self.source.tree, step.at, self.inputs), _size(step)

    def _made_right(self, step: Step) -> str | None:
        """The code with this step, if it earns everything."""
        with step.made():
            return ast.unparse(self.source.tree) if self._earns_all() else None

    def _ordered(self, every: Iterator[Step], seen: back.Seen, last_first: bool) -> list[Step]:
        """Without those in code that no failing aspect has reached; first those that use an argument not used yet.

        What is missing can often be put in at several lines, one of which works on what the other made: a scale, a
        mask. `last_first` looks at the later ones before: there it is commonly written.
        """
        used = {n.id for n in ast.walk(self.source.tree) if isinstance(n, ast.Name)}
        unused = {a.arg for a in self.source.tree.args.args} - used - {"self"}

        def reached(step: Step) -> bool:
            if not seen.complete or not isinstance(step.at, ast.expr):
                return True
            return any(id(node) in seen.kinds for node in ast.walk(step.at))

        def place(step: Step) -> tuple[bool, int]:
            new = step.new if isinstance(step.new, list) else [step.new]
            names = {n.id for part in new for n in ast.walk(part) if isinstance(n, ast.Name)} if unused else set()
            return not names & unused, -getattr(step.at, "lineno", 0) if last_first else 0

        return sorted(filter(reached, every), key=place)

    def _watched(self, aspects: Sequence[Aspect]) -> back.Seen:
        """What the answer's expressions are, in these aspects: in the first in which they are evaluated."""
        seen = back.Seen()
        twin, note = back.watched(self.source.tree, seen)
        for aspect in aspects:
            try:
                observed = self.bench.watch(twin, note, lambda look: look(aspect, self.seed, HANGS, False))  # noqa: B023
            except NotMade:
                return seen
            if observed is None or (observed.problem and observed.problem.kind == "raised"):
                seen.complete = False
        return seen

    def traced(self) -> Iterator[Place | None]:
        """Where the answer's numbers go wrong, if right ones in their place are seen to mend it; None until then."""
        until = clock() + TRACED
        for aspect in self.failing:
            seen = self._watched([aspect])
            for node, values in suspects(self.exercise, aspect, self.seed, self.source.tree, seen):
                if clock() > until:
                    return
                yield None  # whoever listens hears that it goes on
                with contextlib.suppress(NotMade):
                    if self.bench.look(
                        with_values(self.source.tree, node, values),
                        lambda look: self._is_right(aspect, self.seed, self._limit(aspect), look, guarded=False),  # noqa: B023
                    ):
                        yield self.source.place(node)
                        return
            yield None

    def _earns_all(self) -> bool:
        """Whether the answer as it stands now does."""
        first = [(aspect, self.seed) for aspect in self.failing]
        rest = [(aspect, self.seed) for aspect in self.exercise.aspects if aspect not in self.failing]
        others = [(aspect, seed) for seed in (*self.seeds, ONE_MORE_SEED) if seed != self.seed
                  for aspect in self.exercise.aspects]  # fmt: skip
        quickest = self.failing[0]  # without looking out for what is forbidden, which takes most of the time

        def looking(look: Look) -> bool:
            return self._is_right(quickest, self.seed, self._limit(quickest), look, guarded=False) and all(
                self._is_right(aspect, seed, self._limit(aspect), look) for aspect, seed in (*first, *rest, *others)
            )

        try:
            return bool(self.bench.look(self.source.tree, looking))
        except NotMade:  # *x for x, break outside a loop, a default that raises
            return False

    def _limit(self, aspect: Aspect) -> float:
        return max(A_TRY, 10 * self.took.get(aspect.name, 0))

    def _is_right(self, aspect: Aspect, seed: int, limit: float, look: Look, guarded: bool = True) -> bool:
        return self._right(aspect, seed, look(aspect, seed, limit, guarded))

    def _right(self, aspect: Aspect, seed: int, observed: Observation | None) -> bool:
        expected = observe_known(self.exercise, self.exercise.reference, seed)[aspect.name]
        return observed is not None and fault_of(aspect, observed, expected, self.exercise.writes_init) is None


class _ThisProcess:
    """A bench."""

    def __init__(self, exercise: Exercise, answer: Any, function: Any, method: str = "") -> None:
        self.exercise, self.answer, self.method = exercise, answer, method
        self.names = {**_own_names(function), OWN_CLASS: answer}
        self.guards = {True: Guard(exercise.forbidden), False: Guard(())}

    def look(self, tree: ast.FunctionDef, looking: Callable[[Look], Saw]) -> Saw | None:
        return self._look(tree, {}, looking)

    def watch(self, twin: ast.FunctionDef, note: back.Note, looking: Callable[[Look], Saw]) -> Saw | None:
        return self._look(twin, {back.SEEN: back.telling(note)}, looking)

    def _look(self, tree: ast.FunctionDef, more: dict[str, Any], looking: Callable[[Look], Saw]) -> Saw:
        try:
            answer = self._compiled(tree, more)
        except Exception as error:
            raise NotMade from error
        return looking(partial(self._observed, answer))

    def _observed(self, answer: Any, aspect: Aspect, seed: int, limit: float, guarded: bool) -> Observation | None:
        try:
            with _at_most(limit):
                return observe_aspect(LocalRunner(answer, self.guards[guarded]), self.exercise, aspect, seed)
        except (TooLong, MemoryError, RecursionError):
            return None

    def _compiled(self, tree: ast.FunctionDef, more: dict[str, Any]) -> Any:
        module = ast.Module([tree], [])
        names = {**self.names, **more}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # 2[0] compiles, and says so
            code = compile(module, FILE, "exec")
        exec(code, names)
        function = names[tree.name]
        if isinstance(self.answer, type):
            return type(self.answer.__name__, (self.answer,), {self.method: function})
        return function


class Source:
    """A function's code: as text, in which it may have company, and as a tree without decorators and types."""

    def __init__(self, text: str, tree: ast.FunctionDef, first: int = 1) -> None:
        self.text, self.tree, self.first = text, tree, first
        self.lines = re.split(r"\r\n?|\n", text)  # as Python counts them
        tree.decorator_list, tree.returns = [], None
        for node in ast.walk(tree):
            if isinstance(node, ast.arg):
                node.annotation = None
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
                of = [ast.Name(OWN_CLASS, ast.Load()), ast.Name("self", ast.Load())]  # outside a class it is not known
                node.args = node.args or [ast.copy_location(name, node) for name in of]

    @classmethod
    def of(cls, function: Any) -> Source:
        """OSError where there is none."""
        lines, first = inspect.getsourcelines(function)
        text = textwrap.dedent("".join(lines))
        tree = ast.parse(text).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise OSError("no function")
        return cls(text, tree, max(first, 1))

    def place(self, node: ast.AST) -> Place:
        number = getattr(node, "lineno", 1)
        piece = ast.get_source_segment(self.text, node) or self.lines[number - 1].strip()
        first = piece.splitlines()[0].strip()
        return Place(self.first + number - 1, self.lines[number - 1].strip(), first)


def inputs_of(function: ast.FunctionDef, node: ast.AST) -> set[str]:
    """The names that a piece of the function is made of, and those that what they hold was made of."""
    made_of: dict[str, set[str]] = {}
    for inner in ast.walk(function):
        match inner:
            case ast.Assign(targets, value):
                pass
            case ast.AugAssign(target, _, value) | ast.For(target, value) | ast.comprehension(target, value):
                targets = [target]
            case _:
                continue
        for target in targets:
            for name in _names(target):
                made_of.setdefault(name, set()).update(_names(value))
    found, left = set(), _names(node)
    while left:
        found |= left
        left = set().union(*(made_of.get(name, set()) for name in left)) - found
    return found


def _of_self(solution: Any) -> frozenset[str]:
    """What the solution uses of `self`: a learner's answer has it, too, and may use another in its place."""
    used = solution if inspect.isfunction(solution) else getattr(solution, "forward", None)
    return frozenset(re.findall(r"\bself\.(\w+)", body_of(used))) if used else frozenset()


def _met(function: ast.FunctionDef, node: ast.AST, inputs: set[str]) -> int:
    """How many of the inputs have met in a piece. Things side by side, `q, k, v`, have not met each other."""
    pieces = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    return max((len(inputs_of(function, piece) & inputs) for piece in pieces), default=0)


def _size(step: Step) -> int:
    """How much a step changes: the pieces that are new, and one more if any are gone."""
    new, old = step.new, step.at
    if isinstance(new, list):  # what is gone of a block is one statement, or has changed places
        held = getattr(step.parent, step.field)
        return 1 if len(new) < len(held) else max(2, *(len(_labels(one)) for one in new if one not in held), 0)
    came, went = _labels(new), _labels(old)
    kept = sum(block.size for block in SequenceMatcher(None, went, came, autojunk=False).get_matching_blocks())
    return len(came) - kept + (kept < len(went))


def _labels(node: ast.AST) -> list[str]:
    """The pieces of an expression, as they are read; a number with its sign is one."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return [ast.unparse(node)]
    own = [str(value) for _, value in ast.iter_fields(node) if isinstance(value, str | int | float)]
    below = [label for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr_context)
             for label in _labels(child)]  # fmt: skip
    return [" ".join([type(node).__name__, *own]), *below]


def _where_set(function: ast.FunctionDef, step: Step) -> Step | None:
    """For a change of a variable where it is used: the same where it is set, if that is where one looks for it.

    So it is for a scale; for a variable that is merely returned; and for one that would not be used any more.
    """
    if not isinstance(step.at, ast.Name) or not isinstance(step.new, ast.expr):
        return None
    name = step.at.id
    match step.new:
        case ast.BinOp(ast.Name(scaled), ast.Mult() | ast.Div()):
            is_scale = scaled == name
        case _:
            is_scale = False
    uses = [node for node in ast.walk(function)
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)]  # fmt: skip
    is_gone = name not in _names(step.new)
    if not (is_scale or (len(uses) == 1 and (is_gone or _is_returned(function, step.at)))):
        return None
    sets = [node for node in ast.walk(function) if isinstance(node, ast.Assign | ast.AugAssign | ast.For)
            and name in _names(ast.Tuple(_targets(node), ast.Store()))]  # fmt: skip
    match sets:
        case [ast.Assign([ast.Name()], value) as made]:
            return Step(made, "value", None, _put(value, name, step.new), value)
    return None


def _is_returned(function: ast.FunctionDef, name: ast.Name) -> bool:
    """Whether it stands in a `return` as it is, alone or as one of several."""
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    return any(name is value or (isinstance(value, ast.Tuple) and any(name is one for one in value.elts))
               for value in returned)  # fmt: skip


def _put(value: ast.expr, name: str, into: ast.expr) -> ast.expr:
    """The expression `into` with `value` where it uses the name."""

    class Put(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return value if node.id == name else node

    return cast(ast.expr, Put().visit(copy.deepcopy(into)))


def _targets(node: ast.Assign | ast.AugAssign | ast.For) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _key(step: Step) -> str:
    new = step.new if isinstance(step.new, list) else [step.new]
    return f"{id(step.parent)} {step.field} {step.index} {' '.join(map(ast.dump, new))}"


# ------------------------------------------------------------------------------------------------------ without a trace


def _own_names(function: Any) -> dict[str, Any]:
    """The names that the function sees, in a copy, which its helpers see, too; the plain data in it are copies."""
    outside = function.__globals__
    names = dict(outside)
    closed = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, closed, strict=True):
        with contextlib.suppress(ValueError):  # empty still
            names[name] = cell.cell_contents
    used = _names_in(function.__code__)
    todo = list(used)
    for name in todo:
        value = names.get(name)
        if inspect.isfunction(value) and value.__globals__ is outside and not value.__closure__:
            twin = types.FunctionType(value.__code__, names, value.__name__, value.__defaults__)
            twin.__kwdefaults__ = value.__kwdefaults__
            names[name] = twin
            todo += [other for other in _names_in(value.__code__) if other not in todo]
        elif isinstance(value, list | dict | set | Tensor | np.ndarray | nn.Module | random.Random | torch.Generator):
            with contextlib.suppress(Exception):
                names[name] = copy.deepcopy(value)
    names[back.MATH] = math
    return names


def _names_in(code: types.CodeType) -> set[str]:
    inner = [_names_in(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*inner)


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """TooLong in the changed answer's own code when the time is up. (What torch does meanwhile is not interrupted.)

    It is this thread's time on the processor that counts: a right change is not given up because others work.
    """
    until, ends = time.thread_time() + seconds, clock() + STANDS * seconds

    def inside(frame: Any, event: str, argument: Any) -> Any:
        if time.thread_time() > until or clock() > ends:
            raise TooLong
        return inside

    def called(frame: Any, event: str, argument: Any) -> Any:
        return inside if frame.f_code.co_filename == FILE else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def _no_traces() -> Iterator[None]:
    """Silent; and random numbers, figures, files and the limit of memory are afterwards what they were."""
    state, of_numpy, of_torch = random.getstate(), np.random.get_state(), torch.get_rng_state()
    pyplot = sys.modules.get("matplotlib.pyplot")
    figures = set(pyplot.get_fignums()) if pyplot else set()
    try:
        with _silent(), _files_are_left_alone(), _limited_memory():
            yield
    finally:
        random.setstate(state)
        np.random.set_state(of_numpy)
        torch.set_rng_state(of_torch)
        if pyplot:
            for number in set(pyplot.get_fignums()) - figures:
                pyplot.close(number)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    ipython = sys.modules.get("IPython")
    if ipython and ipython.get_ipython():
        from IPython.utils.capture import capture_output

        with capture_output():
            yield
        return
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


_watching = False  # whether a search is on
_hooked = False
_WRITES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.system", "subprocess.Popen",
           "shutil.rmtree", "socket.connect")  # fmt: skip


def _refuse(event: str, arguments: tuple) -> None:
    if not _watching:
        return
    if event in _WRITES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
        raise PermissionError("no file is written while a line is looked for")


@contextlib.contextmanager
def _files_are_left_alone() -> Iterator[None]:
    """While this lasts, whoever writes or removes a file gets a PermissionError."""
    global _hooked, _watching
    if not _hooked:
        sys.addaudithook(_refuse)
        _hooked = True
    _watching = True
    try:
        yield
    finally:
        _watching = False


@contextlib.contextmanager
def _limited_memory() -> Iterator[None]:
    """What would take far too much raises instead; where the system has no such limit, it does not."""
    try:
        import resource

        with open("/proc/self/status") as status:
            used = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData"))
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    except (ImportError, OSError, StopIteration):
        yield
        return
    bounds = [bound for bound in (soft, used + MORE_MEMORY) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
