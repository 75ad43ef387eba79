"""Do the graders catch small slips? Every right answer of the course is changed by one step, in every way, and judged.

    python benchmarks/mutants.py [--only a03 ...] [--exercise NAME ...] [--per-exercise N] [--seed 0] [--trials 150]
                                 [--processes 2] [--show] [--cards N] [--json]

A mutant is the solution with one change: another operator, a flipped comparison, a number off by one, an argument left
out, another name in place of a name, a statement gone, a gradient cut, … It is *killed* if it loses points on the seeds
that decide a learner's points, or runs for `LONGER` times as long as the solution. One that earns every point is
compared with the solution on the inputs of other seeds and on inputs near them: shorter along an axis, with other
numbers, other masks, ties and zeros. It is *the same* if no difference is found, or one that the exercise leaves open
(`reason` says which). Else it shows a hole in the grader: it is *cut* if what it returns is right and some of the
gradient is lost on the way, and *missed* if it returns something else. The last column counts the mutants that the
check in the notebook lets pass and the grader does not.

With `--cards N` something else is asked: what the check in the notebook says of N wrong mutants of each exercise, and
of N pairs of its slips. A single mistake is *named* if a known misconception is, *told* if an error with its line, the
kind of difference or the aspect in its own words is all that is said, and else there are but *numbers*. Of two at once
*both*, *one* or *none* is named, or something is that is *untrue*. *kept* is the share of the points that is left.

The changes are those of `lessonkit.exercises.steps`.
"""

import argparse
import ast
import copy
import difflib
import json
import multiprocessing
import platform
import random
import re
import resource
import signal
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from attncourse import check
from attncourse_lessons import course as lessons
from lessonkit.authoring.checkout import Checkout
from lessonkit.course import VISIBLE_SEEDS, hidden_seeds
from lessonkit.exercises.judge import ABSOLUTE, RELATIVE, judge
from lessonkit.exercises.observe import observe
from lessonkit.exercises.steps import steps

ROOT = Path(__file__).parents[1]
LIMIT, MEMORY = 4, 6 * 2**30  # seconds of the processor and bytes that judging a mutant may take at most,
LONGER = 20  # times as long as the solution; half a second in any case


@dataclass(frozen=True)
class Mutant:
    """A changed solution: the code of its function or class, and the lines that differ."""

    exercise: str
    code: str
    change: str


def mutants(name: str) -> list[Mutant]:
    """All one-step mutants of the solution to the exercise `name`, no two alike."""
    definition = solutions()[name].definition
    whole = copy.deepcopy(definition)
    function = whole if isinstance(whole, ast.FunctionDef) else whole.body[-1]
    assert isinstance(function, ast.FunctionDef)
    original = ast.unparse(definition)
    found: dict[str, None] = {}
    for step in steps(function):
        with step.made():
            found[ast.unparse(whole)] = None
    return [Mutant(name, code, _change(original, code)) for code in found if code != original and _compiles(code)]


def _compiles(code: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # 2[0] compiles, and says so
            compile(code, "<answer>", "exec")
    except SyntaxError:  # *x for x, break outside a loop
        return False
    return True


def _change(original: str, code: str) -> str:
    lines = list(difflib.ndiff(original.splitlines(), code.splitlines()))
    gone, new = (" ⏎ ".join(line[2:].strip() for line in lines if line.startswith(sign)) for sign in ("- ", "+ "))
    return f"moved: {new}" if gone == new else f"{gone}  →  {new or 'nothing'}"


# --------------------------------------------------------------------------------------------------- the right answers


@dataclass(frozen=True)
class Solution:
    """An exercise's right answer, and the notebook's other definitions, which it may need."""

    definition: Any
    around: dict[str, Any]


@cache
def solutions() -> dict[str, Solution]:
    """Every exercise's solution, in the order in which they are set."""
    found = {}
    for target in Checkout(ROOT, lessons).targets():
        if not target.is_assignment:
            continue
        cells = (cell.source for cell in target.source.notebook.cells if cell.cell_type == "code")
        body = ast.parse("\n".join(cells)).body
        kept = [n for n in body if isinstance(n, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)]
        around: dict[str, Any] = {}
        exec(compile(ast.Module(kept, []), str(target.path), "exec"), around)
        definitions = {n.name: n for n in kept if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        for node in body:
            match node:
                case ast.Expr(ast.Call(ast.Name("check"), [ast.Constant(str(name)), ast.Name(answer)])):
                    found[name] = Solution(definitions[answer], around)
    return found


# ------------------------------------------------------------------------------------------------------- judging them


class TooLong(BaseException):
    """No Exception: the check would take it for the answer's own, and go on to the next aspect."""


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: whether it earns every point, and if so, what it does otherwise than the solution."""

    graded: bool  # by the seeds of the grader
    shown: bool  # by the seeds of the notebook
    differs: str | None = None


def judged(mutant: Mutant, trials: int) -> Outcome:
    """Judge a mutant, and compare a survivor with the solution in so many calls."""
    answer = _answer(mutant.exercise, mutant.code)
    graded, ended = _full(mutant.exercise, answer, hidden_seeds(mutant.exercise))
    shown = ended and _full(mutant.exercise, answer, VISIBLE_SEEDS)[0]
    return Outcome(graded, shown, difference(mutant.exercise, answer, trials) if graded else None)


def _answer(name: str, code: str) -> Any:
    around = dict(solutions()[name].around)
    exec(compile(code, "<answer>", "exec"), around)
    return around[solutions()[name].definition.name]


def _full(name: str, answer: Any, seeds: tuple[int, ...]) -> tuple[bool, bool]:
    """Whether it earns every point, and whether it came to an end."""
    signal.setitimer(signal.ITIMER_PROF, _limit(name))
    try:
        return _earns_all(name, answer, seeds), True
    except (TooLong, MemoryError, RecursionError):
        return False, False
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _earns_all(name: str, answer: Any, seeds: tuple[int, ...]) -> bool:
    exercise = lessons.exercise(name)
    verdicts = (judge(exercise, observe(exercise, answer, s), s, name=False) for s in seeds[: exercise.seeds])
    return all(verdict.points == verdict.out_of for verdict in verdicts)


@cache
def _limit(name: str) -> float:
    """Seconds of the processor that a mutant may take on all seeds."""
    right = _answer(name, ast.unparse(solutions()[name].definition))
    for seeds in (hidden_seeds(name), VISIBLE_SEEDS):  # the reference is kept by seed
        _earns_all(name, right, seeds)
    start = time.process_time()
    _earns_all(name, right, VISIBLE_SEEDS)
    return min(LIMIT, 0.5 + LONGER * (time.process_time() - start))


def _too_long(*_: Any) -> None:
    raise TooLong


def start() -> None:
    """Make this process ready to judge mutants."""
    signal.signal(signal.SIGPROF, _too_long)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    solutions()


# --------------------------------------------------------------------------------------- what survivors do elsewhere


def difference(name: str, answer: Any, trials: int) -> str | None:
    """What `answer` does otherwise than the solution, on inputs that a check draws or that are near them.

    "value", or "gradient" where the values agree; None if no difference was found.
    """
    found = None
    for call, expected in _trials(name, trials):
        got = _shown(answer, *call)
        if got is None or not _alike(got[0], expected[0]):
            return "value"
        if not _alike(got[1], expected[1]):
            found = "gradient"
    return found


@cache
def _trials(name: str, count: int) -> list[tuple[tuple, tuple[list, list]]]:
    """Calls near those of a check, `count` at most, and what the solution shows in each."""
    right = _answer(name, ast.unparse(solutions()[name].definition))
    every = [(sizes, values, inputs) for sizes, values, given in calls(name) for inputs in _near(given)]
    random.Random(name).shuffle(every)
    shown = ((call, _shown(right, *call)) for call in every)
    return list(islice(((call, result) for call, result in shown if result is not None), count))


def calls(name: str) -> list[tuple[tuple, dict, tuple]]:
    """What checks call an answer with: the sizes and parameters of a module, none for a function; the arguments."""
    exercise, seen = lessons.exercise(name), []

    def keep(sizes: tuple, values: dict, arguments: tuple) -> None:
        seen.append((sizes, values, copied(arguments)))

    right = _answer(name, ast.unparse(solutions()[name].definition))
    if isinstance(right, type):

        class Kept(right):  # type: ignore[misc, valid-type]
            def __init__(self, *sizes):
                super().__init__(*sizes)
                self.sizes = sizes

            def forward(self, *arguments):
                keep(self.sizes, copied(self.state_dict()), arguments)
                return super().forward(*arguments)

        known: Any = Kept
    else:

        def known(*arguments):
            keep((), {}, arguments)
            return right(*arguments)

    for seed in range(100, 103):
        observe(exercise, known, seed, trusted=True)
    return seen


def copied(value: Any) -> Any:
    """A copy, down to the tensors, without their gradients."""
    match value:
        case Tensor():
            return value.detach().clone()
        case dict():
            return {key: copied(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(map(copied, value))
    return value


def _near(arguments: tuple) -> Iterator[tuple]:
    """The arguments; shorter along each axis; with other numbers, zeros and ties among them; with other masks."""
    generator = torch.Generator().manual_seed(0)
    yield arguments
    tensors = [a for a in arguments if isinstance(a, Tensor)]
    for size in sorted({size for tensor in tensors for size in tensor.shape}):
        for new in {1, 2, size - 1} & set(range(1, size)):
            yield tuple(_cut(a, size, new) for a in arguments)
    for i, argument in enumerate(arguments):
        for new in _others(argument, generator):
            yield (*arguments[:i], new, *arguments[i + 1 :])


def _cut(argument: Any, size: int, new: int) -> Any:
    if isinstance(argument, Tensor):
        return argument[tuple(slice(new if s == size else None) for s in argument.shape)]
    return new if argument == size and isinstance(argument, int) and not isinstance(argument, bool) else argument


def _others(argument: Any, generator: torch.Generator) -> Iterator[Any]:
    match argument:
        case bool():
            yield not argument
        case int():
            yield from (argument + 1, argument - 1, 2 * argument, 1)
        case float():
            yield from (2 * argument, argument / 2, argument + 1)
        case Tensor(dtype=torch.bool):
            yield from (~argument, torch.ones_like(argument), torch.rand(argument.shape, generator=generator) < 0.5)
        case Tensor() if argument.is_floating_point():
            yield from (-argument, 0 * argument, 10 * argument, 0.1 * argument, argument.round(), argument + 1)
        case Tensor():
            yield from (argument.flip(-1), argument * 0, argument // 2)
        case list() if argument and not callable(argument[0]):
            yield from (argument[::-1], argument[:1], argument + argument[:1])


def _shown(answer: Any, sizes: tuple, values: dict, inputs: tuple) -> tuple[list, list] | None:
    """What comes back, and the gradients of it at all inputs and parameters; None where nothing does."""
    inputs = tuple(a.clone().requires_grad_() if _floats(a) else copied(a) for a in inputs)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        torch.manual_seed(0)
        if isinstance(answer, type):
            answer = answer(*sizes).eval()
            answer.load_state_dict(values)
        given = answer(*inputs)
        given = list(given) if isinstance(given, tuple) else [given]
        at = [a for a in inputs if _floats(a)] + (list(answer.parameters()) if isinstance(answer, nn.Module) else [])
        outputs = [g for g in given if isinstance(g, Tensor) and g.requires_grad]
        generator = torch.Generator().manual_seed(0)
        losses = [(output * torch.randn(output.shape, generator=generator)).sum() for output in outputs]
        try:
            return given, list(torch.autograd.grad(losses, at, materialize_grads=True)) if losses and at else []
        except RuntimeError:  # a training step has used its graph up
            return given, []
    except (Exception, TooLong):
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _floats(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _alike(got: list, expected: list) -> bool:
    """By the judge's rules: equal up to rounding."""
    if len(got) != len(expected):
        return False
    for a, b in zip(got, expected, strict=True):
        if isinstance(a, list) or isinstance(b, list):
            if a != b:
                return False
            continue
        a, b = torch.as_tensor(a), torch.as_tensor(b)
        if a.shape != b.shape or (a.dtype == torch.bool) != (b.dtype == torch.bool):
            return False
        if not torch.allclose(a.double(), b.double(), rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True):
            return False
    return True


# ------------------------------------------------------------------------------------------------- what is no mistake

# By exercise, or for all: a pattern of the change, and why it is no mistake. Lists of survivors are printed, not kept.
SAME: dict[str, dict[str, str]] = {
    "every exercise": {
        r"→  return \(.*, weights\.detach\(\)\)$": "the weights are returned to be looked at",
    },
    "repair_row": {r"d_model / d_head\)$": "a number counts whatever its type"},
    "repair_relative": {r"→  k = \(?len\(table\)( - 0\))? // 2$": "the table has an odd number of rows"},
    "repair_weights": {r"left / sums, left\)$|where\(mask > 0": "weights come from a softmax: none is below 0"},
    "sample_token": {r"→  probabilities = probabilities / ordered\.sum": "the same numbers, in another order"},
    "paired_bootstrap": {r"→  matches, totals = counts\.mean": "the same ratio, whatever both are divided by"},
    "online_softmax": {r"→  return \(base, ": "a row of −∞ alone goes on from the smallest number as it does from −∞"},
}


def reason(mutant: Mutant, outcome: Outcome) -> str | None:
    """Why a mutant is right all the same; None if nothing is known that makes it so."""
    if outcome.differs is None:
        return "does the same in every trial"
    if outcome.differs == "gradient" and all(a.name != "gradient" for a in lessons.exercise(mutant.exercise).aspects):
        return "no gradient is asked for"
    known = SAME.get(mutant.exercise, {}) | SAME["every exercise"]
    return next((why for pattern, why in known.items() if re.search(pattern, mutant.change)), None)


# -------------------------------------------------------------------------------------------------- what the cards say

SINGLES, PAIRS_OF_SLIPS = ("named", "told", "numbers"), ("both", "one", "none", "untrue")


def cards(name: str, count: int, seed: int) -> dict[str, Any]:
    """What the check says of `count` wrong mutants of an exercise, and of `count` pairs of its slips."""
    generator, exercise = random.Random(f"{seed}/{name}"), lessons.exercise(name)
    said, kept = Counter({kind: 0 for kind in (*SINGLES, *PAIRS_OF_SLIPS)}), []
    every = mutants(name)
    for mutant in generator.sample(every, len(every)):
        verdict = _card(name, _answer(name, mutant.code))
        if verdict is not None:
            bare = all("differ" in line.message for line in verdict.aspects if not line.ok)
            said["named" if verdict.misconceptions else "numbers" if bare else "told"] += 1
            kept.append(verdict.points / verdict.out_of)
        if len(kept) == count:
            break
    pairs = [] if isinstance(exercise.reference, type) else exercise.pairs  # a class of ours may not call ours
    for one, other, answer in generator.sample(pairs, min(count, len(pairs))):
        verdict = _card(name, answer)
        if verdict is not None:
            named = {misconception.name for misconception in verdict.misconceptions}
            true = named & {one.name, other.name}
            said["untrue" if named - true else ("none", "one", "both")[len(true)]] += 1
    return {"exercise": name, **said, "kept": round(sum(kept) / len(kept), 3) if kept else None}


def _card(name: str, answer: Any) -> Any:
    """The verdict; None of a right answer, and of one that takes too long."""
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        verdict = check(name, answer)
    except (TooLong, MemoryError, RecursionError):
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return verdict if verdict.points < verdict.out_of else None


def _report_cards(names: list[str], args: argparse.Namespace) -> list[dict[str, Any]]:
    kinds = (*SINGLES, *PAIRS_OF_SLIPS)
    print(f"{'':<32}" + "".join(f"{kind:>9}" for kind in (*kinds, "kept")))
    rows = []
    with ProcessPoolExecutor(args.processes, multiprocessing.get_context("spawn"), start) as pool:
        for row in pool.map(partial(cards, count=args.cards, seed=args.seed), names):
            rows.append(row)
            print(
                f"{row['exercise']:<32}" + "".join(f"{row[kind]:>9}" for kind in kinds) + f"{row['kept']!s:>9}",
                flush=True,
            )
    for title, group in (("of one mistake", SINGLES), ("of two at once", PAIRS_OF_SLIPS)):
        total = sum(row[kind] for row in rows for kind in group) or 1
        print(f"{title}: " + ", ".join(f"{kind} {sum(row[kind] for row in rows) / total:.1%}" for kind in group))
    return rows


# ------------------------------------------------------------------------------------------------------------- report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = lessons.assignments()
    parser.add_argument("--only", nargs="+", default=known, choices=known, metavar="aNN", help="these alone")
    parser.add_argument("--exercise", nargs="+", choices=lessons.all_exercises(), metavar="NAME", help="these of them")
    parser.add_argument("--per-exercise", type=int, metavar="N", help="a sample of N of each exercise's mutants")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--trials", type=int, default=150, help="calls in which survivors are compared")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--show", action="store_true", help="print every mutant that earned all points")
    parser.add_argument("--cards", type=int, metavar="N", help="what the check says of N mutants and N pairs of each")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()

    started = time.perf_counter()
    chosen = [
        (a, e.name)
        for a in args.only
        for e in lessons.exercises_of(a)
        if e.name in (args.exercise or [e.name]) and not e.metric  # what is measured trains a model, longer than LIMIT
    ]
    if args.cards:
        told = _report_cards([name for _, name in chosen], args)
        if args.json:
            print(json.dumps({"cards": told, "seconds": round(time.perf_counter() - started)}, ensure_ascii=False))
        return
    tried = [mutant for _, name in chosen for mutant in sample(name, args.per_exercise, args.seed)]
    rows = []
    print(f"{'':<32}{'mutants':>8}{'killed':>8}{'same':>6}{'cut':>5}{'missed':>8}{'share':>8}{'late':>6}")
    with ProcessPoolExecutor(args.processes, multiprocessing.get_context("spawn"), start) as pool:
        judge = partial(judged, trials=args.trials)
        bar = tqdm(pool.map(judge, tried, chunksize=8), total=len(tried), unit="mutant", leave=False, disable=None)
        outcomes = zip(tried, bar, strict=True)
        for (assignment, name), own in zip(chosen, groupby(outcomes, key=lambda pair: pair[0].exercise), strict=True):
            rows.append(summary(assignment, name, list(own[1]), args.show))
    _print("all", rows)
    if args.json:
        result = {
            "exercises": rows,
            "seconds": round(time.perf_counter() - started),
            "python": platform.python_version(),
            "torch": version("torch"),
        }
        print(json.dumps(result, ensure_ascii=False))


def summary(assignment: str, name: str, own: list[tuple[Mutant, Outcome]], show: bool) -> dict[str, Any]:
    """Print the row of an exercise, and its survivors too if asked to `show` them; and return it as JSON data."""
    survivors = [(mutant, outcome, reason(mutant, outcome)) for mutant, outcome in own if outcome.graded]
    row = {
        "assignment": assignment,
        "exercise": name,
        "mutants": len(own),
        "killed": len(own) - len(survivors),
        "same": dict(Counter(why for *_, why in survivors if why)),
        "cut": [m.change for m, outcome, why in survivors if not why and outcome.differs == "gradient"],
        "missed": [m.change for m, outcome, why in survivors if not why and outcome.differs == "value"],
        "late": [mutant.change for mutant, outcome in own if outcome.shown and not outcome.graded],
    }
    _print(f"{assignment} {name}", [row])
    if show:
        lines = [f"{kind}  {change}" for kind in ("missed", "cut", "late") for change in row[kind]]
        lines += [f"same  {mutant.change}  ({why})" for mutant, _, why in survivors if why]
        print("".join(f"      {line}\n" for line in lines), end="")
    return row


def sample(name: str, count: int | None, seed: int) -> list[Mutant]:
    """The mutants of an exercise, or `count` of them, drawn with `seed`."""
    every = mutants(name)
    return every if count is None else random.Random(f"{seed}/{name}").sample(every, min(count, len(every)))


def _print(title: str, rows: list[dict]) -> None:
    total, killed = (sum(row[key] for row in rows) for key in ("mutants", "killed"))
    same = sum(sum(row["same"].values()) for row in rows)
    cut, missed, late = (sum(len(row[key]) for row in rows) for key in ("cut", "missed", "late"))
    share = killed / (total - same) if total > same else 1
    print(f"{title:<32}{total:>8}{killed:>8}{same:>6}{cut:>5}{missed:>8}{share:>8.1%}{late:>6}", flush=True)


if __name__ == "__main__":
    main()
