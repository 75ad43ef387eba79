"""The learner's kernel: what its cells ran, whether a check looks at what stands in the notebook, and plain errors.

A kernel of an environment in which the course is installed loads this as an IPython extension when it starts
(learner/ipython_kernel.json says so); elsewhere the first `check` attaches it. It imports no torch.

What stands in the notebook, JupyterLab says with each cell that checks (learner/labextensions); of another editor's
notebook there is the saved file.
"""

from __future__ import annotations

import builtins
import contextlib
import difflib
import inspect
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, MethodType, TracebackType
from typing import Any

RUN_ABOVE = "run the cells above first (menu Run, Run All Above Selected Cell)"
CALLS = ("check", "check_all", "hint", "practice", "progress", "solved")  # what a course's notebooks import of it
USUAL = {  # what nearly everybody calls so
    "np": "import numpy as np", "plt": "import matplotlib.pyplot as plt", "F": "import torch.nn.functional as F",
    "nn": "from torch import nn", "Tensor": "from torch import Tensor",
    **{name: f"import {name}" for name in ("math", "random", "time", "os", "sys", "itertools", "functools", "re")},
}  # fmt: skip
COURSE = "LESSONKIT_COURSE"  # names the package of the lessons of the course at work
QUIET = "LESSONKIT_PROGRESS"  # set to nothing where the course is built: no learner is there
THREADS = "OMP_NUM_THREADS"  # which torch reads when it is imported


class Misuse(Exception):
    """A call that cannot be meant so. A notebook shows its one sentence, and no traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class UnknownName(Misuse, LookupError):
    """There is nothing of that name."""


class WrongCall(Misuse, ValueError, TypeError):
    """An argument that is none of those that a call understands, or that is missing."""


class NoSuchPart(Misuse, AttributeError):
    """`check.something` that there is not."""


class Stopped(Misuse, RuntimeError):
    """The learner has interrupted it."""


def did_you_mean(name: str, known: Iterable[str], alike: float = 0.6) -> str:
    """" Did you mean …?", or nothing where no known name is `alike` (0 to 1)."""
    by_lower = {each.lower(): each for each in sorted(known)}
    close = difflib.get_close_matches(str(name).lower(), by_lower, n=1, cutoff=alike)
    return f" Did you mean `{by_lower[close[0]]}`?" if close else ""


@dataclass
class Run:
    """A cell that ran: its text, the notebook's id of it, when, and the error that it stopped with."""

    source: str
    cell: str | None
    when: float
    error: BaseException | None = None
    compiled: bool = True


class Attached:
    """What is known of the kernel that this process is."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.runs: list[Run] = []
        self.is_exercise: Callable[[str], bool] = lambda name: False

    def before(self, info: Any) -> None:
        self.runs.append(Run(info.raw_cell or "", getattr(info, "cell_id", None), time.time()))

    def after(self, result: Any) -> None:
        info = getattr(result, "info", None)
        if info is None:
            return
        if not self.runs or self.runs[-1].source != info.raw_cell:  # it ran when this was attached
            self.before(info)
        self.runs[-1].error = result.error_before_exec or result.error_in_exec
        self.runs[-1].compiled = result.error_before_exec is None

    def last_definition(self, name: str) -> Run | None:
        return next((run for run in reversed(self.runs) if defines(run.source, name)), None)


_attached: Attached | None = None


def attach(is_exercise: Callable[[str], bool] | None = None) -> None:
    """Listen to this process's kernel, if it is one in which a learner works; once, however often it is called."""
    global _attached
    shell = kernel_shell()
    if shell is None or os.environ.get("NBGRADER_EXECUTION") or os.environ.get(QUIET) == "":
        return
    if _attached is None or _attached.shell is not shell:
        _attached = Attached(shell)
        shell.events.register("pre_run_cell", _attached.before)
        shell.events.register("post_run_cell", _attached.after)
        shell.display_formatter.formatters["text/plain"].for_type(MethodType, _call_it)
        shell.set_custom_exc((NameError, TypeError, NotImplementedError, AttributeError, ImportError), _in_a_sentence)
    if is_exercise is not None:
        _attached.is_exercise = is_exercise


def _call_it(method: MethodType, printer: Any, cycle: bool) -> None:
    """What a notebook shows of `hint`, where `hint()` was meant; of any other method what it always shows."""
    name = method.__name__
    ours = name in CALLS and type(method.__self__).__module__.startswith("lessonkit.")
    printer.text(f"{name} is there to be called, with brackets: {name}()" if ours else repr(method))


def load_ipython_extension(shell: Any) -> None:
    # A course's models are small: they gain nothing from a second thread, and beside other work wait for it.
    os.environ.setdefault(THREADS, "1")
    attach()


def kernel_shell() -> Any:
    """The shell of the notebook's kernel that this process is; None in a script, and in a terminal's IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell if hasattr(shell, "kernel") else None


def variables() -> dict[str, Any]:
    """What the notebook's cells have defined so far; empty where there is no notebook."""
    shell = kernel_shell()
    return shell.user_ns if shell else {}


def notebook() -> Path | None:
    """The file of the notebook that this kernel belongs to, where the server says so and it is there."""
    named = variables().get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME") or ""
    path = Path(str(named))
    return path if path.suffix == ".ipynb" and path.is_file() else None


def saved_cells() -> list[dict[str, Any]]:
    """The cells of the notebook's file, each with its text as one; none where it cannot be read."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        if path := notebook():
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            return [{**cell, "source": "".join(cell["source"])} for cell in cells]
    return []


def shown_cells() -> list[dict[str, Any]] | None:
    """The notebook's cells as the learner sees them, saved or not; None where the editor did not say.

    JupyterLab's message that runs a cell holds them, if it is one that checks.
    """
    shell = kernel_shell()
    message = shell.get_parent() if shell else {}
    return (message.get("metadata") or {}).get("lessonkit")


def _code(cells: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [cell for cell in cells if cell.get("cell_type") == "code"]


def defines(source: str, name: str) -> bool:
    """Whether code defines `name` at its top level. Read line by line: it need not be valid."""
    name = re.escape(name)
    written = rf"^(?:async[ \t]+)?(?:def|class)[ \t]+{name}\b|^{name}[ \t]*(?::[^=\n]*)?=(?!=)"
    return re.search(written, source, re.MULTILINE) is not None


def plain(source: str) -> str:
    """Source without what an editor may change by itself: trailing blanks."""
    return "\n".join(line.rstrip() for line in source.strip().split("\n"))


# ------------------------------------------------------------------------------------- does the check see what is there


def stale(name: str, answer: Any) -> str | None:
    """Why a check of `answer` is not about what stands in the notebook; None if nothing speaks against it.

    Either the last cell that was to define it stopped with an error, or the saved notebook shows that the cell was
    changed after it ran.
    """
    last = _attached.last_definition(name) if _attached else None
    if last is None:
        return None
    before = "so this is about what you ran before"
    if last.error is not None and not _made_by(answer, last):
        stopped = f"stopped with {_told(last.error)}"
        return f"The cell that defines `{name}` {stopped}, {before}. Mend it, run it, then check again."
    if renamed := _renamed(last, name):
        gone = f"The cell that defined `{name}` defines {renamed} now"
        return f"{gone}, {before}. Give it its name back, run it, then check again."
    if _edited_after(last, name):
        return f"The cell that defines `{name}` was changed after it ran, {before}. Run it, then check again."
    return None


def _made_by(answer: Any, run: Run) -> bool:
    """Whether the answer comes out of that run; a guess, where it is no code of the learner's."""
    code = _code_of(answer)
    if code is None or not run.compiled:
        return run.compiled
    assert _attached is not None
    return code.co_filename == _attached.shell.compile.get_code_name(run.source, run.source, 0)


def _code_of(answer: Any) -> CodeType | None:
    if isinstance(answer, type):
        methods = (getattr(value, "__code__", None) for value in vars(answer).values())
        return next((code for code in methods if code), None)
    return getattr(inspect.unwrap(answer), "__code__", None) if callable(answer) else None


def _renamed(run: Run, name: str) -> str | None:
    """What the cell of that run has defined since, in the place of `name`; None where it is as it was."""
    assert _attached is not None
    later = [each for each in _attached.runs if run.cell and each.cell == run.cell and each.when > run.when]
    if not later or later[-1].error is not None:
        return None
    found = re.search(r"^(?:def|class)[ \t]+(\w+)", later[-1].source, re.MULTILINE)
    return f"`{found[1]}`" if found else "something else"


def _edited_after(run: Run, name: str) -> bool:
    cells = shown_cells()
    if cells is None:
        path = notebook()
        try:
            if path is None or path.stat().st_mtime <= run.when:
                return False
        except OSError:
            return False
        cells = saved_cells()
    found = [cell for cell in _code(cells) if run.cell and cell.get("id") == run.cell]
    found = found or [cell for cell in _code(cells) if defines(cell["source"], name)]
    return len(found) == 1 and plain(found[0]["source"]) != plain(run.source)


def not_saved() -> str | None:
    """A cell that the notebook's file does not hold as it stands in the notebook; None if there is none.

    Where the editor does not say what stands there, it is a cell that ran otherwise, the one that runs now left out.
    """
    path = notebook()
    if _attached is None or path is None:
        return None
    saved = saved_cells()
    by_id = {cell.get("id"): cell["source"] for cell in saved}
    if (shown := shown_cells()) is not None:
        differing = [cell["source"] for cell in shown if plain(by_id.pop(cell["id"], "")) != plain(cell["source"])]
        deleted = [source for source in by_id.values() if source.strip()]  # an empty one comes as the last cell is run
        return next(map(_named, [*differing, *deleted]), None)
    latest = {run.cell: run for run in _attached.runs[:-1] if run.cell}
    if by_id.keys().isdisjoint(latest):  # another editor's ids, which are not the file's
        return None
    for run in latest.values():
        if run.when > path.stat().st_mtime and plain(by_id.get(run.cell, "")) != plain(run.source):
            return _named(run.source)
    return None


def _named(source: str) -> str:
    found = re.search(r"^(?:def|class)[ \t]+(\w+)", source, re.MULTILINE)
    return f"the cell of `{found[1]}`" if found else "a cell"


# ------------------------------------------------------------------------------------------------ errors in a sentence


def _told(error: BaseException) -> str:
    """`SyntaxError (line 3: invalid syntax)`."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__} (line {error.lineno}: {error.msg})"
    return f"{type(error).__name__}: {error}".splitlines()[0].removesuffix(": ")


def _in_a_sentence(
    shell: Any, kind: type[BaseException], error: BaseException, trace: TracebackType, tb_offset: int | None = None
) -> None:
    """IPython's handler of errors: a sentence where one says it all, else the traceback as always."""
    said = None
    with contextlib.suppress(Exception):  # whatever happens here, the learner must see their error
        said = getattr(error, "_render_traceback_", None) and str(error)
        said = said or sentence(error, trace)
    if said:
        shell._showtraceback(kind, error, [f"{kind.__name__}: {said}" if not isinstance(error, Misuse) else said])
    else:
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset)


def sentence(error: BaseException, trace: TracebackType | None) -> str | None:
    """What a learner has to know of an error of their own cells; None where the traceback is needed."""
    last = trace
    while last and last.tb_next:
        last = last.tb_next
    if last is None:
        return None
    frame = last.tb_frame
    if frame.f_globals is not variables():  # in somebody's library
        return _of_a_module(error)
    where = "" if frame.f_code.co_name == "<module>" else f" (in `{frame.f_code.co_name}`, line {last.tb_lineno})"
    match error:
        case UnboundLocalError():
            return None
        case NameError(name=str(name)):
            return _of_a_name(name, where, frame.f_locals)
        case NotImplementedError() if where:
            name = frame.f_code.co_name
            return f"`{name}` is not written yet: put your code where its cell says `raise NotImplementedError()`."
        case TypeError() if not where:
            return _of_a_call(error)
        case AttributeError() | ImportError():
            return _of_a_module(error)
    return None


def undefined(name: str, where: str = "") -> str:
    """That an answer, or what comes with a notebook, is not there, and why."""
    defining = _attached.last_definition(name) if _attached else None
    if defining and defining.error is not None:
        stopped = f"the cell that defines it stopped with {_told(defining.error)}"
        if isinstance(defining.error, NameError) and defining.error.name in variables():
            return f"`{name}` is not defined, because {stopped}, which is there now: run that cell, then this one."
        return f"`{name}` is not defined, because {stopped}. Mend that cell, run it, then run this one again."
    return f"`{name}` is not defined yet{where}: {RUN_ABOVE}."


def _of_a_name(name: str, where: str, local: Iterable[str]) -> str | None:
    assert _attached is not None
    defining = _attached.last_definition(name)
    if defining and defining.error is not None:
        return undefined(name)
    cells = [cell["source"] for cell in _code(saved_cells())]
    given = {word for source in cells for word in _names(source)}
    if name in CALLS or name in given or _attached.is_exercise(name):
        return undefined(name, where)
    if name in USUAL or (name in sys.modules and name not in sys.stdlib_module_names):
        return f"`{name}` is not defined{where}: run `{USUAL.get(name, f'import {name}')}` first."
    functions = (each for each in variables().values() if isinstance(each, FunctionType))
    inside = next((each.__name__ for each in functions if name in each.__code__.co_varnames), None)
    if inside and not where:
        return f"`{name}` is not defined here: it lives inside `{inside}` alone, and only while that runs."
    known = {*variables(), *local, *vars(builtins), *given}
    guess = did_you_mean(name, (word for word in known if not word.startswith("_")), alike=0.7)
    return f"`{name}` is not defined{where}.{guess}" if guess else None


def _names(source: str) -> set[str]:
    """The names that a cell gives to those below it: what it defines, assigns and imports."""
    found = set(re.findall(r"^(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", source, re.MULTILINE))
    found |= set(re.findall(r"^(\w+)[ \t]*(?::[^=\n]*)?=(?!=)", source, re.MULTILINE))
    for line in re.findall(r"^\s*(?:from[ \t]+[\w.]+[ \t]+)?import[ \t]+(.+)$", source, re.MULTILINE):
        found |= {word.split(" as ")[-1].strip().partition(".")[0] for word in line.strip("() ").split(",")}
    return found


def _of_a_call(error: BaseException) -> str | None:
    """`check("name", name())`: the function was called where it should have been handed over."""
    assert _attached is not None
    source = _attached.runs[-1].source if _attached.runs else ""
    called = re.search(r"""\bcheck\(\s*["'](\w+)["']\s*,\s*(\w+)\(""", source)
    if str(error) == "'Verdict' object is not callable":
        return "nothing comes after the check's brackets: a check ends with them."
    if (called and str(error).startswith(f"{called[2]}(")) or (called and f"{called[2]}.__init__(" in str(error)):
        return f'hand over the answer itself, without brackets after its name: `check("{called[1]}", {called[2]})`.'
    return None


def _of_a_module(error: BaseException) -> str | None:
    """A name that the course's package has not: `shapes.chek`, `from shapes import chek`."""
    text = str(error)
    if isinstance(error, ImportError):
        found = re.match(r"cannot import name '(\w+)' from '(\w+)'", text)
    else:
        found = re.match(r"No (?P<module>\w+) attribute (?P<name>\w+)$", text) or re.match(
            r"module '(?P<module>[\w.]+)' has no attribute '(?P<name>\w+)'", text
        )
    if not found:
        return None
    name, module = (found["name"], found["module"]) if "name" in found.groupdict() else (found[1], found[2])
    guess = did_you_mean(name, (word for word in dir(sys.modules.get(module)) if not word.startswith("_")))
    return f"`{module}` has no `{name}`.{guess}" if guess else None
