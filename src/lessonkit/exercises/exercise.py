"""What an exercise is: aspects to look at, a reference, named misconceptions, other right answers."""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, reduce
from typing import Any, TypeAlias

from lessonkit.exercises.variation import LEFT_OUT, Turned, Variation

Probe = Callable[[Any, Any], Any]  # (the watched answer, a draw of inputs) -> the tensor that shows the aspect
Explain = Callable[[Any, Any], str | None]  # (got, expected) -> words, or None for the usual ones


@dataclass(frozen=True)
class Aspect:
    """One thing an answer must get right.

    `probe` runs the answer on drawn inputs and returns the tensor that shows it. `meaning` is what the learner reads
    when it is right; `explain(got, expected)` may put a wrong array into better words than "these numbers differ".
    `hint` is the number of the exercise's hint that belongs to it, from 1.
    """

    name: str
    points: float
    probe: Probe
    meaning: str
    explain: Explain | None = None
    hint: int | None = None


@dataclass(frozen=True)
class Code:
    """An answer that the course knows: a misconception, which fails some aspects, or another style: none."""

    name: str
    answer: Any
    hint: str
    body: str
    fails: tuple[str, ...] = ()
    change: Mapping[str, str] | None = None  # of a slip: the pieces of the solution that it replaces,
    base: Callable | None = None  # and what they are pieces of


Misconception: TypeAlias = Code
Alternative: TypeAlias = Code


@dataclass(eq=False)  # compared and hashed by identity: what an exercise shows is cached
class Exercise:
    """A named exercise. Aspects, misconceptions and alternatives are added by decorators, in the order they are shown.

    `reference` is a function, or a module class whose `forward` the learner writes. `solution` is the answer that the
    notebook's solution shows: a function of the learner's arguments (with `self`, for a module's forward), or a module
    class of which the learner writes every method, `__init__` too; alternatives and mistakes are classes then.
    `returns` names the tensors that come back; with `numbers` a plain number may come back for one, with `truths` a
    plain True or False. With `lists` a list of lists of whole numbers or of texts comes back, and the aspect makes a
    tensor of it. `extra` exercises earn extra credit: their points count on top of the assignment's.

    `metric` names a number by which answers are ranked, the largest first, such as "sentences right, of 100": an aspect
    tells it by `answer.measure(number)`, and a report shows the class's leaderboard. `seeds` is on how many seeds an
    answer is judged: fewer where one takes long.
    """

    name: str
    reference: Any
    returns: tuple[str, ...]
    difficulty: int
    minutes: int
    hints: tuple[str, ...]
    solution: Callable | None = None
    forbidden: tuple[str, ...] = ()
    extra: bool = False
    numbers: bool = False
    truths: bool = False
    lists: bool = False
    metric: str | None = None
    seeds: int = 3
    aspects: list[Aspect] = field(default_factory=list)
    misconceptions: list[Misconception] = field(default_factory=list)
    variants: list[Misconception] = field(default_factory=list)  # other codes of the same misconceptions
    alternatives: list[Alternative] = field(default_factory=list)
    variations: dict[str, Exercise] = field(default_factory=dict)
    varied: Variation | None = None  # what is changed, where it is itself a variation

    @property
    def out_of(self) -> float:
        """All the points that the aspects are worth together."""
        return float(sum(aspect.points for aspect in self.aspects))

    @property
    def writes_init(self) -> bool:
        """Whether the learner writes the whole module, `__init__` too."""
        return isinstance(self.solution, type)

    @property
    def solution_body(self) -> str:
        """The solution's statements as text, fit for between the solution's markers; of a class, its methods."""
        if self.solution is None:
            raise ValueError(f"{self.name} has no solution: Exercise(…, solution=…)")
        return body_of(self.solution)

    @property
    def solution_bodies(self) -> tuple[str, ...]:
        """The text for each place in the cell: one of a function, one for each method of a class."""
        if not self.writes_init:
            return (self.solution_body,)
        return tuple(body_of(method) for method in vars(self.solution).values() if inspect.isfunction(method))

    @cached_property
    def arguments(self) -> list[str]:
        """The names of what the learner's function is given."""
        function = self.solution or self.reference
        function = getattr(function, "forward", function)
        return [name for name in inspect.signature(function).parameters if name != "self"]

    @cached_property
    def size_names(self) -> list[str]:
        """Of a module: the names of what it is made with."""
        return list(inspect.signature(self.reference).parameters) if isinstance(self.reference, type) else []

    def decorators(self) -> tuple[Callable, Callable, Callable, Callable, Callable]:
        """`aspect`, `slip`, `misconception`, `variant`, `alternative`: they say what the exercise knows."""
        return self.aspect, self.slip, self.misconception, self.variant, self.alternative

    def aspect(
        self, name: str, points: float, explain: Explain | None = None, hint: int | None = None
    ) -> Callable[[Probe], Probe]:
        """Add an aspect. The docstring says in a few words what is true of a right answer.

        Where it fails, the card offers the hint number `hint`. ValueError for one that the exercise has not. A
        variation has its exercise's aspects: one of the same name takes the other's place.
        """
        if hint is not None and not 1 <= hint <= len(self.hints):
            raise ValueError(f"{self.name}, {name!r}: got hint {hint}, expected 1 to {len(self.hints)}")

        def add(probe: Probe) -> Probe:
            new = Aspect(name, points, probe, _words(probe), explain, hint)
            if self.varied:
                self.aspects[[each.name for each in self.aspects].index(name)] = new
            else:
                self.aspects.append(new)
            return probe

        return add

    def misconception(self, name: str, fails: tuple[str, ...]) -> Callable[[Callable], Callable]:
        """Add a wrong answer that learners really give, the aspects that it fails, and a docstring that teaches."""

        def add(function: Callable) -> Callable:
            self.misconceptions.append(self._mistake(name, function, fails))
            return function

        return add

    def slip(
        self,
        name: str,
        fails: tuple[str, ...],
        *changes: Mapping[str, str],
        words: str = "",
        base: Callable | None = None,
    ) -> None:
        """Add a misconception that is the solution (or `base`, another right answer) with some pieces replaced.

        Each of `changes`, {right: wrong}, is one code of it: the first is named so, the others are variants of it. So
        are all where the name is known already: codes of the same mistake that fail other aspects.
        ValueError where a piece is not in the solution exactly once, or not at all what was there before.
        """
        right = base or self.solution
        if right is None:
            raise ValueError(f"{self.name}: a slip needs a solution to slip in")
        known = next((code for code in self.misconceptions if code.name == name), None)
        for number, change in enumerate(changes):
            body = edited(body_of(right), change, f"{self.name}, {name!r}")
            function = compiled_like(right, body, f"{self.name}: {name} ({number})")
            code = self._mistake(name, function, fails, body)
            hint = known.hint if known else " ".join(words.split())
            code = replace(code, hint=hint, change=change, base=right)
            (self.variants if number or known else self.misconceptions).append(code)

    def variant(self, *names: str, fails: tuple[str, ...]) -> Callable[[Callable], Callable]:
        """Add another code for the misconception of that name; for several, if it holds several at once.

        The misconceptions' hints are what the learner reads; the docstring says what is different here.
        """

        def add(function: Callable) -> Callable:
            code = self._mistake(names[0], function, fails)
            known = {misconception.name: misconception for misconception in self.misconceptions}
            self.variants += [replace(code, name=name, hint=known[name].hint) for name in names]
            return function

        return add

    def alternative(self, name: str) -> Callable[[Callable], Callable]:
        """Add a right answer in another style: it must earn every point."""

        def add(function: Callable) -> Callable:
            self.alternatives.append(self._code(name, function, ()))
            return function

        return add

    def variation(
        self,
        name: str,
        *,
        asks: str,
        fails: tuple[str, ...],
        reference: Callable,
        contract: Mapping[str, str] | None = None,
        given: Callable[..., tuple] | None = None,
        back: Callable[[Any], Any] | None = None,
        meanings: Mapping[str, str] | None = None,
        hints: tuple[str, ...] | None = None,
        without: tuple[str, ...] = (),
    ) -> Callable[[Callable], Exercise]:
        """Add a variation of the exercise, of which the function below is the solution; that name is then an exercise.

        `asks` says in a sentence or two what is changed, and `contract` changes the text of its cell. `fails` are the
        aspects that the exercise's own solution fails here. The aspects stay, with their points: where arguments or
        results merely have another form, `given` and `back` turn them (see `Turned`); `meanings` are new words for an
        aspect. A slip whose pieces stand in the new solution, too, is known here as well, but for those in `without`:
        they are right here, or fail other aspects. Call it below all slips.
        """

        def add(solution: Callable) -> Exercise:
            said, reworded = " ".join(asks.split()), meanings or {}
            made = replace(
                self,
                reference=reference,
                solution=solution,
                hints=hints or self.hints,
                aspects=[self._turned(aspect, given, back, reworded.get(aspect.name)) for aspect in self.aspects],
                misconceptions=[],
                variants=[],
                alternatives=[],
                variations={},
                varied=Variation(name, said, contract or {}),
            )
            assert self.solution is not None
            words = f"This answers the exercise without its variation. {said}"
            made.misconceptions.append(Code(LEFT_OUT, self.solution, words, self.solution_body, fails))
            made._take_over([code for code in self.misconceptions + self.variants if code.name not in without])
            self.variations[name] = made
            return made

        return add

    def _turned(self, aspect: Aspect, given: Callable | None, back: Callable | None, meaning: str | None) -> Aspect:
        def probe(answer: Any, draw: Any) -> Any:
            return aspect.probe(Turned(answer, given, back), draw)

        return replace(aspect, probe=probe if given or back else aspect.probe, meaning=meaning or aspect.meaning)

    def _take_over(self, codes: list[Code]) -> None:
        """Know of these slips those whose pieces stand in this solution, too: the first of a name under that name."""
        assert self.varied is not None and self.solution is not None
        for code in codes:
            title = f"{self.name}, {self.varied.name}: {code.name}"
            if not code.change:
                continue
            try:
                body = edited(self.solution_body, code.change, title)
            except ValueError:  # it is another code here
                continue
            answer = compiled_like(self.solution, body, title)
            known = code.name in {each.name for each in self.misconceptions}
            own = replace(code, answer=answer, body=body, base=self.solution)
            (self.variants if known else self.misconceptions).append(own)

    @cached_property
    def pairs(self) -> list[tuple[Misconception, Misconception, Any]]:
        """Two slips at once, and the answer that holds both, wherever their edits can both be made."""
        found = []
        slips = [code for code in self.misconceptions + self.variants if code.change]
        for one, other in itertools.combinations(slips, 2):
            if one.name == other.name:
                continue
            base, change = one.base, {**(one.change or {}), **(other.change or {})}
            if base is None or base is not other.base or len(change) < len(one.change or ()) + len(other.change or ()):
                continue
            title = f"{self.name}: {one.name}, and {other.name}"
            body = _edited_by_both(base, one.change or {}, other.change or {}, title)
            if body is not None:
                found.append((one, other, self.as_answer(compiled_like(base, body, title))))
        return found

    def reword(self, change: Callable[[str], str]) -> None:
        """Put `change(text)` in the place of every text that a learner reads. What it returns must be left as it is."""
        self.hints = tuple(map(change, self.hints))
        for known in (self.misconceptions, self.variants, self.alternatives):
            known[:] = [replace(code, hint=change(code.hint)) for code in known]
        for variation in self.variations.values():
            variation.reword(change)

    def _mistake(self, name: str, function: Callable, fails: tuple[str, ...], body: str | None = None) -> Misconception:
        if not fails or set(fails) - {aspect.name for aspect in self.aspects}:
            raise ValueError(f"{self.name}: misconception {name!r} must fail known aspects, got {fails}")
        return self._code(name, function, fails, body)

    def _code(self, name: str, function: Callable, fails: tuple[str, ...], body: str | None = None) -> Code:
        words = "" if body else _words(function)
        return Code(name, self.as_answer(function), words, body or body_of(function), fails)

    def as_answer(self, function: Callable) -> Any:
        """What a learner hands in who writes this function: itself, or a module with it as its forward."""
        if isinstance(self.reference, type) and not self.writes_init:
            return type(self.name, (self.reference,), {"forward": function})
        return function


def edited(body: str, change: Mapping[str, str], what: str) -> str:
    """`body` with every key of `change` replaced by its value.

    ValueError, about `what`, for a piece that is not there exactly once, or that overlaps another.
    """
    for piece in change:
        if body.count(piece) != 1:
            raise ValueError(f"{what}: {piece!r} is {body.count(piece)} times in the solution, expected once")
    end = len(body)
    for start, piece in sorted(((body.index(piece), piece) for piece in change), reverse=True):
        if start + len(piece) > end:
            raise ValueError(f"{what}: {piece!r} overlaps another piece that is replaced")
        body, end = body[:start] + change[piece] + body[start + len(piece) :], start
    return body


def _edited_by_both(base: Callable, one: Mapping[str, str], other: Mapping[str, str], what: str) -> str | None:
    """The body with both changes: side by side, or, where one replaces a part of the other's piece, in turn."""
    body = body_of(base)
    for changes in (({**one, **other},), (one, other), (other, one)):
        try:
            both = reduce(lambda text, change: edited(text, change, what), changes, body)
            ast.parse(both)
        except (ValueError, SyntaxError):
            continue
        return both
    return None  # both replace the same place


def definition(signature: inspect.Signature, body: str) -> str:
    """The text of a function `answer` of this signature and body, without its types."""
    plain = signature.replace(
        parameters=[p.replace(annotation=p.empty) for p in signature.parameters.values()],
        return_annotation=signature.empty,
    )
    return f"def answer{plain}:\n{textwrap.indent(body, '    ')}\n"


def compiled(signature: inspect.Signature, body: str, names: Mapping[str, Any], title: str) -> Callable:
    """A function of this signature and body, which sees the names of the module that it comes from.

    A traceback shows its lines, under the file name <title>. It is compiled when it is first called: a check that finds
    nothing wrong need not pay for the mistakes.
    """
    file, text = f"<{title}>", definition(signature, body)

    @cache
    def function() -> Callable:
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        scope = dict(names)
        exec(compile(text, file, "exec"), scope)
        return scope["answer"]

    def answer(*arguments: Any, **named: Any) -> Any:
        return function()(*arguments, **named)

    answer.__signature__ = signature  # type: ignore[attr-defined]
    answer.file = file  # type: ignore[attr-defined]  # an error is placed there, not in the line above
    return answer


def compiled_like(right: Callable, body: str, title: str) -> Callable:
    """What `right` would be with this body, in the module that it comes from: a function, or a module class."""
    if not isinstance(right, type):
        return compiled(_signature(right), body, right.__globals__, title)
    scope, file = dict(vars(sys.modules[right.__module__])), f"<{title}>"
    bases = ", ".join(base.__name__ for base in right.__bases__)
    scope |= {base.__name__: base for base in right.__bases__}
    text = f"class {right.__name__}({bases}):\n{textwrap.indent(body, '    ')}\n"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), scope)
    return scope[right.__name__]


def _words(function: Callable) -> str:
    """The docstring as one paragraph."""
    if not function.__doc__:
        raise ValueError(f"{function.__qualname__} needs a docstring: learners read it")
    return " ".join(inspect.cleandoc(function.__doc__).split())


_signature = cache(inspect.signature)


@cache
def body_of(function: Callable) -> str:
    """The function's statements as text, without signature and docstring: fit for between the solution's markers.

    Of a class likewise: its methods.
    """
    lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    definition = ast.parse("\n".join(lines)).body[0]
    assert isinstance(definition, ast.FunctionDef | ast.ClassDef)
    start = definition.body[0].end_lineno
    if ast.get_docstring(definition) is None:  # from the line after the signature's last, with comments on top
        numbered = list(enumerate(lines, start=1))[definition.lineno - 1 :]
        start = next(number for number, line in numbered if line.rstrip().endswith(":"))
    return textwrap.dedent("\n".join(lines[start:])).strip("\n")
