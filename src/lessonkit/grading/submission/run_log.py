"""What the grader noticed about a submission beside its points: for the report."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from nbformat import NotebookNode

from lessonkit.course import Course
from lessonkit.grading.submission.check_cells import TIMEOUT
from lessonkit.grading.submission.execution import MAX_FILE_MB, Execution, Job, JobCell

if TYPE_CHECKING:  # torch with it
    from lessonkit.exercises.exercise import Exercise

# Names that an answer has no use for: ways around the watch on forbidden calls, and out of the notebook.
UNUSUAL = re.compile(
    r"(^|\.)(setprofile|settrace|_getframe|get_objects|get_referrers|ctypes|__subclasses__|__globals__|__closure__)($|\.)"
    r"|^torch\.(ops|jit|_)|^(sys\.)?modules($|\.)|^sys\.meta_path"
    # A name that is put together while the code runs, another thread, or the check's own objects.
    r"|^(getattr|vars|eval|exec|__import__|builtins|importlib|threading|_thread|concurrent|multiprocessing)($|\.)"
    r"|(^|\.)(__dict__|__getattribute__|__self__|attrgetter|methodcaller|Thread|ThreadPoolExecutor)($|\.)"
    # Another process, a text that is run or read as code, another profiler than the watch's.
    r"|^(subprocess|pty|runpy|pickle|marshal|pkgutil|codeop|timeit|cProfile|pdb|bdb)($|\.)"
    r"|^os\.(fork|system|popen|exec|spawn|posix_spawn)|^(compile|globals|locals|get_ipython|__builtins__)($|\.)"
    r"|^sys\.monitoring|^torch\.(library|utils\.cpp_extension|multiprocessing)"
    r"|(^|\.)(getattr_static|getmembers|get_field|get_type_hints|run_in_executor|to_thread)($|\.)"
    r"|^check\.(?!case$)"
)


MAX_SOURCE = 50_000  # characters of a cell; a longer one is itself worth reading
MAX_NOTES = 50  # nobody reads more


def suspicious_names(cells: Sequence[JobCell], course: Course) -> list[str]:
    """Names in the learner's own cells that a person should look at, a sentence for each: no accusation.

    The names that the assignment's exercises forbid are among them, so that a call which the watch on the calls has
    missed is seen here. Where an exercise is answered only its own count: another may use what they forbid. A cell that
    stands as it was given is not the learner's own.
    """
    known = course.all_exercises()
    last = {cell["exercise"]: _last_names(known[cell["exercise"]]) for cell in cells if cell["exercise"] in known}
    anybodys: set[str] = set().union(*last.values())
    given = _given(course, frozenset(last))
    found: dict[str, None] = {}
    for cell in cells:
        if cell["source"].strip() in given:
            continue
        if len(cell["source"]) > MAX_SOURCE:
            found[f"a cell of {len(cell['source'])} characters"] = None
        if len(found) >= MAX_NOTES:
            break
        refused = last.get(cell["grade_id"] or "", anybodys)
        for name in _names(cell["source"]) if not cell["exercise"] else ():
            if UNUSUAL.search(name) or not refused.isdisjoint(name.split(".")):
                found[f"uses `{name[:100]}` in `{cell['grade_id'] or 'a cell of its own'}`"] = None
    return list(found)[:MAX_NOTES]


@cache  # a class hands in hundreds of the same assignment
def _given(course: Course, exercises: frozenset[str]) -> set[str]:
    """The code cells of the assignments that have these exercises, as their sources have them."""
    chosen = [a for a in course.assignments() if any(exercise.name in exercises for exercise in course.exercises_of(a))]
    lessons = map(course.lesson, chosen)
    texts = [course.source_text(lesson, lesson.folder / "assignment.py") for lesson in lessons]
    return {cell.strip() for text in texts for cell in re.split(r"^# %%.*$", text, flags=re.MULTILINE)}


def _last_names(exercise: Exercise) -> set[str]:
    """What torch's forbidden functions are called, whatever stands before the last dot."""
    return {name.rpartition(".")[2] for name in exercise.forbidden if name.startswith("torch.")}


def _names(source: str) -> Iterator[str]:
    """The names in a cell's code, dotted as they are written; none where it is far too long.

    Where IPython's own ways are in it and what is left does not parse, all that looks like a name.
    """
    if len(source) > MAX_SOURCE:
        return
    code = re.sub(r"=\s*[%!].*$", "= None", source, flags=re.MULTILINE)  # IPython's own, as are these
    code = re.sub(r"^\s*[%!?,;/].*$|^.*\?\s*$", "", code, flags=re.MULTILINE)
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except Exception:  # of many kinds, for code made to break a parser
        yield from re.findall(r"[^\W\d][\w.]*", code) if code != source else ()
        return
    inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    # A name in quotes is the name: getattr(torch, "softmax") is torch.softmax.
    by_text = {id(node.func): node for node in nodes if isinstance(node, ast.Call) and _is_getattr(node)}
    for node in nodes:
        if id(node) in by_text:
            continue
        if isinstance(node, ast.Call) and _is_getattr(node):
            yield f"{_unparsed(node.args[0])}.{node.args[1].value}"  # type: ignore[attr-defined]
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in inner:
            parts: list[str] = []
            part: ast.expr = node
            while isinstance(part, ast.Attribute):
                parts.append(part.attr)
                part = part.value
            parts += [part.id] if isinstance(part, ast.Name) else []
            yield ".".join(reversed(parts))
        elif isinstance(node, ast.MatchClass):  # case object(softmax=found)
            yield from node.kwd_attrs
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _unparsed(node: ast.expr) -> str:
    try:
        return ast.unparse(node)
    except RecursionError:  # it parses what is deeper than it can write
        return "getattr"


def _is_getattr(call: ast.Call) -> bool:
    """Whether it asks by a name that is written out."""
    named = isinstance(call.func, ast.Name) and call.func.id == "getattr" and len(call.args) >= 2
    return named and isinstance(call.args[1], ast.Constant) and isinstance(call.args[1].value, str)


def nothing() -> tuple[Job, Execution]:
    """The job and the execution of a notebook that could not be read: there was nothing to execute."""
    return {"cells": []}, {"cells": [], "ended": None, "flags": [], "seconds": None, "peak_mb": None, "sandbox": None}


def log_of(notebook: NotebookNode, job: Job, execution: Execution, course: Course) -> dict[str, Any]:
    """What is known of a notebook that was executed, as JSON data."""
    ours = notebook.metadata.get("lessonkit")
    timeouts = [
        f"`{cell['grade_id'] or 'a cell of its own'}`: {output['evalue']}"
        for cell, executed in zip(job["cells"], execution["cells"], strict=True)
        for output in executed["outputs"]
        if output.get("ename") == TIMEOUT
    ]
    left_out = [
        f"`{name}` ({size / 2**20:,.0f} MB) was not there when the cells ran: files above {MAX_FILE_MB} MB are left out"
        for name, size in job.get("left_out", {}).items()
    ]
    return {
        "seconds": execution["seconds"],
        "peak_mb": execution["peak_mb"],
        "ended": execution["ended"],
        "repairs": list(ours.get("repairs", [])) if isinstance(ours, dict) else [],
        "flags": list(dict.fromkeys([*execution["flags"], *timeouts, *left_out])),
        "suspicious": suspicious_names(job["cells"], course),
        "sandbox": execution["sandbox"],
        "cells": [
            {"grade_id": cell["grade_id"], "seconds": executed["seconds"]}
            for cell, executed in zip(job["cells"], execution["cells"], strict=True)
        ],
        "graded_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def together(logs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The logs of all of a student's notebooks as one: times added up, of memory the most, notes put together."""

    def known(name: str) -> list[Any]:
        return [log[name] for log in logs if log.get(name) is not None]

    def joined(name: str) -> list[Any]:
        return [item for notes in known(name) for item in notes]

    sandboxes = sorted(known("sandbox"), key=lambda how: how in ("none", "kernel"))  # the weakest is what counts
    return {
        "seconds": round(sum(known("seconds")), 3) if known("seconds") else None,
        "peak_mb": max(known("peak_mb"), default=None),
        "ended": next(iter(known("ended")), None),
        "repairs": list(dict.fromkeys(joined("repairs"))),
        "flags": list(dict.fromkeys(joined("flags"))),
        "suspicious": list(dict.fromkeys(joined("suspicious"))),
        "sandbox": sandboxes[-1] if sandboxes else None,
        "cells": joined("cells"),
    }
