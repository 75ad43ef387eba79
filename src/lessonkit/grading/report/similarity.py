"""Submissions that are nearly identical to each other, or to the package's own source: for a person to look at.

Answers are compared by fingerprints, the runs of `RUN` tokens in them (Schleimer, Wilkerson and Aiken 2003; a class is
small enough to keep every run). Before that, each answer is brought to a normal form: what was released, comments,
docstrings and layout are dropped, and whatever the answer names itself is renamed. A run says the more, the fewer of
the class wrote it: log2(class / writers) bits, shared by the runs that overlap. An answer that more than a few wrote
says nothing, nor does a mistake that has a name; what the course foresees as right says little.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import itertools
import keyword
import math
import re
import textwrap
import warnings
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from lessonkit.exercises.exercise import Exercise
from lessonkit.grading.report.results import Released, Results, Row

RUN = 6  # tokens, or words, in a fingerprint
ALIKE = 0.6  # of all the fingerprints of two answers to an exercise, this share is in both
QUOTED = 0.3  # for answers in words: of the shorter one's
LONGEST = 20_000  # characters of an answer that are looked at

# Nearly identical: this many bits, and twice log2 of the class, because a larger class has more pairs. Measured on
# made-up students who choose the style of each statement by themselves: up to 100 of them, no pair reaches this by
# chance and a copy with other names does; among 500, up to two do, and a copy of a very usual submission may not.
BITS = 12.0
MOST_STEPS = 1_000_000  # to find the longest passage that two texts share: about a second
MOST = 500  # pairs that are looked into
# A class smaller than this does not show what is common: it is taken to be this large.
SMALLEST = 10
# Two students who write what one of the package's answers holds: as if a quarter of the class did.
FORESEEN = 2.0

Thing = TypeVar("Thing", bound=Hashable)


@dataclass(frozen=True)
class Answers:
    """Two answers to one exercise, side by side; `names` are those that they chose themselves."""

    exercise: str
    first: str
    second: str
    names: Set[str] = frozenset()


@dataclass(frozen=True)
class Pair:
    """Two submissions, or a submission and the package's own source, that share what hardly anyone else wrote."""

    first: Row
    second: Row | None  # None: the package
    bits: float
    evidence: tuple[str, ...]
    answers: tuple[Answers, ...]

    @property
    def other(self) -> str:
        return self.second.name if self.second else "the package’s own source"


def similar(results: Results, exercises: Sequence[Exercise]) -> list[Pair]:
    """The pairs that a person should look at side by side, those that share most first.

    `exercises` are the assignment's; without them, the package's own source is the model solution alone.
    """
    rows = [row for row in results.rows if row.submitted and row.answers]
    if not rows:
        return []
    enough = BITS + 2 * math.log2(max(len(rows), SMALLEST))
    by_name = {exercise.name: exercise for exercise in exercises}
    compared: list[_Code | _Words] = []
    for name, released in results.released.items():
        texts = [row.answers.get(name, "")[:LONGEST] for row in rows]
        if released.code:
            compared.append(_Code(name, texts, released, by_name.get(name), _unknown_mistakes(name, rows)))
        else:
            compared.append(_Words(name, texts, released, results.words))
    found = []
    between = np.triu(sum((one.between for one in compared), np.zeros((len(rows), len(rows)))), 1)
    together = sorted(np.argwhere(between >= enough).tolist(), key=lambda pair: -between[*pair])
    for i, j in together[:MOST]:
        found.append(_pair(rows[i], rows[j], float(between[i, j]), [one.explain(i, j) for one in compared]))
    package = sum((one.package for one in compared), np.zeros(len(rows)))
    for i in np.flatnonzero(package >= enough).tolist():
        found.append(_pair(rows[i], None, float(package[i]), [one.explain(i, None) for one in compared]))
    return sorted(found, key=lambda pair: (-round(pair.bits, 2), pair.first.student, pair.other))


def few(n: int) -> int:
    """How many of `n` students may have given the same answer before it says nothing about two of them."""
    return max(4, n // 50)


def _pair(first: Row, second: Row | None, bits: float, parts: Iterable[tuple[list[str], Answers]]) -> Pair:
    telling = [(evidence, answers) for evidence, answers in parts if evidence]
    evidence = tuple(line for lines, _ in telling for line in lines)
    return Pair(first, second, bits, evidence, tuple(answers for _, answers in telling))


def _unknown_mistakes(exercise: str, rows: Sequence[Row]) -> list[str]:
    """For each student the aspects that the answer fails, if it is not by a misconception that has a name."""
    verdicts = [row.verdicts.get(exercise) or {"aspects": [], "misconceptions": []} for row in rows]
    return [
        "" if verdict["misconceptions"] else ", ".join(a["name"] for a in verdict["aspects"] if not a["ok"])
        for verdict in verdicts
    ]


# -------------------------------------------------------------------------------------------------------- one exercise


class _Code:
    """The answers to one exercise: bits `between` students and with the `package`, and why."""

    between: Float[np.ndarray, "n n"]
    package: Float[np.ndarray, " n"]

    def __init__(
        self, name: str, texts: Sequence[str], released: Released, exercise: Exercise | None, mistakes: Sequence[str]
    ) -> None:
        self.name, self.texts, self.released, self.mistakes = name, texts, released, mistakes
        self.forms = [normal_form(text, released.source) for text in texts]
        given = normal_form(released.source, "").names
        named = [code.body for code in (*exercise.misconceptions, *exercise.variants)] if exercise else []
        common = _union(normal_form(code, "", given).runs for code in named)
        self.codes = {label: code for label, code, _ in _package(exercise, released)}
        self.models = {label: normal_form(code, around, given) for label, code, around in _package(exercise, released)}
        right = _union(model.runs for model in self.models.values())
        most = dict.fromkeys(common - right, 0.0) | dict.fromkeys(right, FORESEEN)

        said = set(comments(released.source))
        self.remarks = [set(comments(text)) - said for text in texts]
        own = {label: set(comments(code)) - said for label, code in self.codes.items()}

        n = len(texts)
        self.size = max(sum(bool(form.tokens) for form in self.forms), SMALLEST)
        self.limit = few(n)
        self.writers = _writers(form.runs for form in self.forms)
        self.remarked = _writers(self.remarks)
        equal = _writers([form.text] for form in self.forms)
        usual = [len(equal[form.text]) > self.limit for form in self.forms]  # more than a few gave this very answer

        shared, bits = _overlap([form.runs for form in self.forms], self.writers, self.size, most)
        sizes = np.array([len(form.runs) for form in self.forms])
        self.alike = shared / np.maximum(1, sizes[:, None] + sizes - shared)
        self.between = np.where(self.alike >= ALIKE, bits, 0)
        self.between[usual] = self.between[:, usual] = 0
        for remark, who in self.remarked.items():
            if len(who) <= self.limit and remark not in _union(own.values()):
                for i, j in itertools.permutations(who, 2):
                    self.between[i, j] += self._remark_bits(remark)
        wrong_answers = zip(self.forms, mistakes, strict=True)
        same = _writers([(form.text, mistake)] if mistake else [] for form, mistake in wrong_answers)
        for who in same.values():
            if len(who) <= self.limit:
                for i, j in itertools.permutations(who, 2):
                    self.between[i, j] += math.log2(self.size / len(who)) if self.between[i, j] else 0

        self.package, self.labels = np.zeros(n), [""] * n
        for i, form in enumerate(self.forms):
            for label, model in self.models.items():
                amount = 0.0
                if not usual[i] and form.alike(model) >= ALIKE:
                    runs = form.runs & model.runs
                    amount = sum(math.log2(self.size / len(self.writers[run])) for run in runs) / RUN
                for remark in self.remarks[i] & own[label]:
                    amount += self._remark_bits(remark) if len(self.remarked[remark]) <= self.limit else 0
                if amount > self.package[i]:
                    self.package[i], self.labels[i] = amount, label

    def explain(self, i: int, j: int | None) -> tuple[list[str], Answers]:
        """What student i shares with student j, or with the package, in words, and the two answers."""
        form, own = self.forms[i], self.labels[i]
        bits = self.package[i] if j is None else self.between[i, j]
        other = self.models.get(own, EMPTY) if j is None else self.forms[j]
        text = self.codes.get(own, "") if j is None else _answer_alone(self.texts[j], self.released.source)
        remarks = set(comments(text)) & self.remarks[i]
        with_what = f", with {own}" if j is None else ""
        evidence = []
        if bits and form.alike(other) >= ALIKE:
            same = form.text == other.text
            how = "the same but for names, comments and layout" if same else f"{100 * form.alike(other):.0f} % the same"
            mistake = same and j is not None and self.mistakes[i] and self.mistakes[i] == self.mistakes[j]
            also = ", with the same mistake, which is none of the known ones" if mistake else ""
            evidence.append(f"{self.name}: {how}{with_what}{also}")
        for remark in sorted(remarks):
            if bits and len(self.remarked[remark]) <= self.limit:
                evidence.append(f"{self.name}: the same comment{with_what}, “{remark}”")
        first = _answer_alone(self.texts[i], self.released.source)
        return evidence, Answers(self.name, first, text, form.names | other.names)

    def _remark_bits(self, remark: str) -> float:
        """A comment of nine words says three times as much as one run of code."""
        return math.log2(self.size / len(self.remarked[remark])) * len(remark.split()) / 3


class _Words:
    """The same for answers in words: long passages that two of them share.

    People choose their words more freely than their code, so here a run says twice as much.
    """

    between: Float[np.ndarray, "n n"]
    package: Float[np.ndarray, " n"]

    def __init__(self, name: str, texts: Sequence[str], released: Released, around: str) -> None:
        self.name, self.texts, self.model = name, texts, released.model
        given = _runs(_words(f"{released.source}\n{around}"))  # to quote the question is no sign of anything
        runs = [_runs(_words(text)) - given for text in texts]
        model = _runs(_words(released.model)) - given
        writers = _writers(runs)
        n = max(sum(map(bool, runs)), SMALLEST)
        shared, bits = _overlap(runs, writers, n, dict.fromkeys(model, 0.0))
        bits *= 2
        sizes = np.array([len(theirs) for theirs in runs])
        self.between = np.where(shared >= QUOTED * np.minimum(sizes[:, None], sizes), bits, 0)
        self.package = np.zeros(len(texts))
        for i, theirs in enumerate(runs):
            quoted = theirs & model
            if len(quoted) >= QUOTED * min(len(theirs), len(model)):
                self.package[i] = 2 * sum(math.log2(n / len(writers[run])) for run in quoted) / RUN

    def explain(self, i: int, j: int | None) -> tuple[list[str], Answers]:
        """What student i shares with student j, or with the mark scheme, in words, and the two answers."""
        text = self.model if j is None else self.texts[j]
        words, theirs = _words(self.texts[i]), _words(text)
        # One word again and again in both makes it take minutes; then words that are frequent begin no passage.
        counts = Counter(theirs)
        slow = sum(counts[word] for word in words) > MOST_STEPS
        passage = SequenceMatcher(None, words, theirs, autojunk=slow).find_longest_match()
        quote = " ".join(words[passage.a : passage.a + min(passage.size, 12)]) + (" …" if passage.size > 12 else "")
        with_what = ", with the mark scheme" if j is None else ""
        evidence = f"{self.name}: {passage.size} words in a row the same{with_what}: “{quote}”"
        bits = self.package[i] if j is None else self.between[i, j]
        return [evidence] if bits else [], Answers(self.name, self.texts[i], text)


def _package(exercise: Exercise | None, released: Released) -> Iterator[tuple[str, str, str]]:
    """The package's own answers to an exercise: (what to call it, its code, what of the code is no part of it)."""
    if released.model:
        yield "the model solution", released.model, ""
    if exercise is None:
        return
    for alternative in exercise.alternatives:
        yield f"the package’s “{alternative.name}”", alternative.body, ""
    for variation in exercise.variations.values():
        name = variation.varied.name if variation.varied else ""
        yield f"the solution of the variation “{name}”", variation.solution_body, ""
    reference = exercise.reference
    for part in vars(reference).values() if inspect.isclass(reference) else [reference]:
        if not inspect.isfunction(part):
            continue
        try:
            code = textwrap.dedent(inspect.getsource(part))
            ast.parse(code)
        except (OSError, SyntaxError):  # such as a lambda inside a call
            continue
        yield f"{part.__module__}.{part.__qualname__}", code, f"def {part.__name__}(): ..."


def _overlap(
    sets: Sequence[Set[int]], writers: Mapping[int, Sequence[int]], n: int, most: Mapping[int, float]
) -> tuple[Float[np.ndarray, "n n"], Float[np.ndarray, "n n"]]:
    """For each two sets how many runs are in both, and how many bits those say: of a run in `most`, that at most."""
    place = {run: i for i, run in enumerate(run for run, who in writers.items() if len(who) > 1)}
    holds = np.zeros((len(sets), len(place)), dtype=np.float32)
    weights = np.zeros(len(place), dtype=np.float32)
    for run, column in place.items():
        holds[writers[run], column] = 1
        weights[column] = min(math.log2(n / len(writers[run])), most.get(run, math.inf)) / RUN
    return holds @ holds.T, (holds * weights) @ holds.T


def _writers(sets: Iterable[Iterable[Thing]]) -> dict[Thing, list[int]]:
    """Who (by place) holds each thing."""
    holders: defaultdict[Thing, list[int]] = defaultdict(list)
    for i, things in enumerate(sets):
        for thing in things:
            holders[thing].append(i)
    return holders


def _union(sets: Iterable[Iterable[Thing]]) -> set[Thing]:
    return {thing for things in sets for thing in things}


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


# ---------------------------------------------------------------------------------------------------- the normal form

_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
    |(?P<string>(?:\b[rbfu]{1,2})?(?:'''.*?'''|\"\"\".*?\"\"\"|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"))
    |(?P<number>\d[\d_]*(?:\.\d*)?(?:e[-+]?\d+)?)
    |(?P<word>\w+)
    |(?P<operator>\*\*|//|->|:=|<<|>>|[=!<>]=|[^\s\w])""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_SILENT = frozenset("(),.:;")  # they follow from what stands around them


@dataclass(frozen=True)
class Form:
    """An answer's normal form: its tokens, with its own names as v0, v1, … by appearance, and those names."""

    tokens: tuple[str, ...]
    names: frozenset[str] = frozenset()
    runs: frozenset[int] = field(default=frozenset(), compare=False)

    @property
    def text(self) -> str:
        return " ".join(self.tokens)

    def alike(self, other: Form) -> float:
        """The share of the runs of the two that is in both."""
        return len(self.runs & other.runs) / max(1, len(self.runs | other.runs))


EMPTY = Form(())


@lru_cache(maxsize=10_000)
def normal_form(code: str, released: str, given: frozenset[str] = frozenset()) -> Form:
    """What a student wrote in a cell, without what was released in it, and without whatever a copier can change freely.

    `given` are names to take for the answer's own, too. Code that does not parse keeps its order of tokens.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a SyntaxWarning is the student's
            tree, there = ast.parse(code), ast.parse(released)
            names, attributes = _bound(tree, there)
            own = ast.Module(_own(tree.body, there.body), [])
            text = ast.unparse(_Renamed(names | given, attributes).visit(own))
        tokens = [text for _, text in _tokens(text)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        names, tokens = _loosely(code, released, given)
    # One name for all in the runs: a variable more or less must not change every run after it.
    runs = _runs([re.sub(r"^v\d+$", "v", token) for token in tokens])
    return Form(tuple(tokens), frozenset(names), frozenset(runs))


def comments(code: str) -> list[str]:
    """The comments of an answer that say something: four words or more, in lower case."""
    found = (" ".join(text.strip("# \t").lower().split()) for kind, text in _tokens(code) if kind == "comment")
    return [text for text in found if len(re.findall(r"[^\W\d_]{2,}", text)) >= 4]


def _tokens(code: str) -> Iterator[tuple[str, str]]:
    """(kind, text) of each token that says something."""
    for match in _TOKEN.finditer(code):
        if match[0] not in _SILENT:
            yield str(match.lastgroup), match[0]


def _runs(tokens: Sequence[str]) -> set[int]:
    return {hash(tuple(tokens[i : i + RUN])) for i in range(len(tokens) - RUN + 1)}


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _own(body: Sequence[ast.stmt], released: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements that were not released; of a function or class that was, those inside it."""
    known = {ast.dump(statement) for statement in released}
    scopes = {scope.name: scope for scope in released if isinstance(scope, _SCOPES)}
    own: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, _SCOPES) and statement.name in scopes:
            own += _own(statement.body, scopes[statement.name].body)
        elif ast.dump(statement) not in known and not _is_text(statement):
            own.append(statement)
    return own


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _bound(tree: ast.AST, released: ast.AST) -> tuple[frozenset[str], frozenset[str]]:
    """The variables, arguments and functions that the code names itself, and the attributes that it adds."""
    names, attributes, kept = set(), set(), set()
    for node in ast.walk(released):
        if isinstance(node, _SCOPES):
            kept.add(node.name)
        elif isinstance(node, ast.Attribute):
            kept.add(f".{node.attr}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, (*_SCOPES, ast.ExceptHandler)):
            names |= {node.name} if node.name else set()
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            attributes.add(node.attr)
    return frozenset(names - kept), frozenset(name for name in attributes if f".{name}" not in kept)


class _Renamed(ast.NodeTransformer):
    """Gives the code's own names in order of appearance, and drops annotations and docstrings."""

    def __init__(self, names: frozenset[str], attributes: frozenset[str]) -> None:
        self.names, self.attributes = names, attributes
        self.given: dict[str, str] = {}

    def rename(self, name: str) -> str:
        return self.given.setdefault(name, f"v{len(self.given)}")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.rename(node.id), node.ctx) if node.id in self.names else node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self.rename(node.arg))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr in self.attributes:
            node = ast.Attribute(node.value, self.rename(f".{node.attr}"), node.ctx)
        return node

    def visit_FunctionDef(self, node: Any) -> ast.AST:
        node.name = self.rename(node.name) if node.name in self.names else node.name
        node.returns = None
        node.body = [statement for statement in node.body if not _is_text(statement)] or [ast.Pass()]
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self.rename(node.name) if node.name in self.names else node.name
        node.body = [statement for statement in node.body if not _is_text(statement)] or [ast.Pass()]
        return self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = self.rename(node.name) if node.name else None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return self.generic_visit(ast.Assign([node.target], node.value, lineno=0))

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and re.fullmatch(r"[A-Za-z., ]+->[A-Za-z. ]*", node.value):
            return ast.Constant(_einsum(node.value))
        return node


def _einsum(equation: str) -> str:
    """An einsum's equation, with its letters in order of appearance."""
    letters = dict.fromkeys(re.findall(r"[A-Za-z]", equation))
    names = {letter: chr(ord("a") + i) if i < 26 else chr(ord("A") + i - 26) for i, letter in enumerate(letters)}
    return "".join(names.get(character, character) for character in equation if character != " ")


def _loosely(code: str, released: str, given: frozenset[str]) -> tuple[frozenset[str], list[str]]:
    """The same without a syntax tree: what is assigned, looped over or an argument counts as the code's own name."""
    known = {line.strip() for line in released.splitlines()}
    lines = [line for line in _without_docstrings(code).splitlines() if line.strip() not in known]
    bound = set(given) | set(_arguments(released)) | set(_arguments(code))
    for line in lines:
        if target := re.match(r"\s*(?:for\s+)?([\w\s,]+?)\s*(?:=(?!=)|\bin\b)", line):
            bound |= set(re.findall(r"\w+", target[1]))
    bound -= {*keyword.kwlist, *dir(builtins)}
    names: dict[str, str] = {}
    tokens, before = [], ""
    for match in _TOKEN.finditer("\n".join(line for line in lines if not line.lstrip().startswith("def "))):
        text = match[0]
        if match.lastgroup == "word" and text in bound and before != ".":
            text = names.setdefault(text, f"v{len(names)}")
        if match.lastgroup != "comment" and text not in _SILENT:
            tokens.append(_einsum(text) if match.lastgroup == "string" and "->" in text else text)
        before = match[0]
    return frozenset(bound), tokens


def _arguments(code: str) -> list[str]:
    lists = re.findall(r"def\s+\w+\s*\(([^)]*)\)", code)
    return [name for arguments in lists for name in re.findall(r"(?:^|,)[\s*]*(\w+)", arguments)]


def _without_docstrings(code: str) -> str:
    return re.sub(r'^\s*[rR]?("""|\'\'\').*?\1', "", code, flags=re.DOTALL | re.MULTILINE)


# --------------------------------------------------------------------------------------------------------- side by side


def _answer_alone(text: str, released: str) -> str:
    """A cell without the lines at its start and end that were released."""
    lines, theirs = text.splitlines(), released.splitlines()
    for _ in range(2):  # from the start, then from the end
        while lines and theirs and lines[0] == theirs[0]:
            del lines[0], theirs[0]
        lines.reverse()
        theirs.reverse()
    return textwrap.dedent("\n".join(lines)).strip("\n")


def aligned(answers: Answers) -> list[tuple[str, str, str]]:
    """The lines of two answers side by side: (sign, line, line). "=" the same, "≈" the same but for names, "≠" not."""
    first, second = answers.first.splitlines(), answers.second.splitlines()
    keys = [[bare_line(line, answers.names) for line in lines] for lines in (first, second)]
    found = []
    for kind, i, i_end, j, j_end in SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes():
        for a, b in itertools.zip_longest(first[i:i_end], second[j:j_end], fillvalue=""):
            same = "=" if " ".join(a.split()) == " ".join(b.split()) else "≈"
            found.append((same if kind == "equal" else "≠", a, b))
    return found


def bare_line(line: str, names: Set[str]) -> tuple[str, ...]:
    """The tokens of a line, with one name for all of `names`."""
    alone = line.lstrip().startswith("#")  # a comment of its own line has nothing else to go by
    return tuple("v" if text in names else text for kind, text in _tokens(line) if kind != "comment" or alone)
