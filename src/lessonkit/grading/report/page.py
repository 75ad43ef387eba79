"""The report as HTML pages that need nothing else: no network, nothing loaded; for light, for dark and for paper.

What there is to do comes first, then the class, then details, folded, and the students in a table. A small script sorts
and filters; the page allows no other (Content-Security-Policy), whatever a submission holds.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from commandkit.commands import typed
from commandkit.errors import require_extra

with require_extra(typed("report"), "grading"):
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup, escape

    from lessonkit.grading.report.items import ENOUGH, item_analysis
    from lessonkit.grading.report.results import (
        OUTLIER_RULE,
        Distribution,
        Results,
        Row,
        distribution,
        flags,
        late_cell,
        leaderboards,
        mistakes,
        outliers,
        total_cell,
        unsafe,
        why,
    )
    from lessonkit.grading.report.term import CHANGED, Recurring, TermRow
    from lessonkit.grading.report.todo import tasks
    from lessonkit.grading.report.totals import comparable, spread_of
    from lessonkit.grading.submission.lateness import written

if TYPE_CHECKING:
    from lessonkit.exercises.exercise import Exercise
    from lessonkit.grading.report.lines import Stumbling
    from lessonkit.grading.report.similarity import Pair

LINES = "lines that the class stumbles over: there an answer goes wrong"
UNSAFE_NOTE = (
    "Nothing kept students’ code from writing marks, its own or others’: "
    "look at surprising marks yourself, or grade again where there is a sandbox."
)
NO_LOG = (
    f"time, memory, repairs and whether there was a sandbox, because `{typed('grade')}` did not grade this. "
    "Under plain `nbgrader autograde` students’ code can write marks."
)
TEMPLATES = Path(__file__).with_name("templates")
NAMES = 8  # students named beside a number
TOP = 5  # misconceptions that are not folded
NOTES = ("handed in as an archive", "repaired")  # flags that leave nothing to do
SHOWN = 40  # pairs that the page lays side by side
LONGEST = 2000  # characters of a text from a student


def page(
    results: Results,
    exercises: Sequence[Exercise],
    pairs: Sequence[Pair],
    folder: Path,
    stumbling: Sequence[Stumbling] = (),
    named: bool = False,
    files: Sequence[Path] = (),
) -> str:
    """The report on an assignment as HTML. Its links, such as to `files`, are relative to `folder`, where it will lie.

    A leaderboard, which a class may want to see, says who is where only if it is to be `named`.
    """
    from lessonkit.grading.report.similarity import aligned

    handed_in = [row for row in results.rows if row.submitted]
    todo = tasks(results, pairs)
    items = item_analysis(results)
    noted = flags(results)
    _, worth, left_out = results.comparable()
    return _rendered(
        "assignment.html",
        folder,
        results=results,
        due=written(results.due) if results.due else "",
        handed_in=handed_in,
        waiting=[row for row in handed_in if row.waiting],
        late=[row for row in handed_in if row.late],
        tasks=todo,
        kinds={row.student: [task.kind for task in todo if row in task.rows] for row in results.rows},
        totals=spread_of(comparable(results).values()),
        worth=worth,
        left_out=left_out,
        sandboxes=Counter(row.log.sandbox for row in handed_in if row.log and row.log.sandbox),
        unsafe=unsafe(results),
        unsafe_note=UNSAFE_NOTE,
        unknown=[row for row in handed_in if row.log is None],
        no_log=NO_LOG,
        spreads=[distribution(results, column) for column in results.columns],
        items=items,
        negative=[item for item in items if item.negative],
        enough=ENOUGH,
        meanings={(e.name, a.name): a.meaning for e in exercises for a in e.aspects},
        leaderboards=leaderboards(results),
        named=named,
        mistakes=mistakes(results),
        top=TOP,
        hints={(e.name, m.name): m.hint for e in exercises for m in e.misconceptions},
        stumbling=stumbling,
        about_lines=LINES,
        without_line=without_line,
        notes={kind: [flag for flag in noted if flag.kind == kind] for kind in NOTES
               if any(flag.kind == kind for flag in noted)},
        outliers=outliers(results),
        outlier_rule=OUTLIER_RULE,
        pairs=pairs[:SHOWN],
        more_pairs=len(pairs[SHOWN:]),
        aligned=aligned,
        why=lambda row: why(row, results),
        late_cell=late_cell,
        total_cell=total_cell,
        files=files,
        full_share=full_share,
    )  # fmt: skip


def term_page(
    term: Sequence[Results],
    rows: Sequence[TermRow],
    found: Sequence[Recurring],
    folder: Path,
    pages: Mapping[str, Path],
    files: Sequence[Path] = (),
) -> str:
    """The report on several assignments as HTML. `pages` are those of single assignments that are there."""
    spreads = {one.assignment: spread_of(comparable(one).values()) for one in term}
    return _rendered(
        "term.html",
        folder,
        term=term,
        rows=rows,
        todo={one.assignment: tasks(one) for one in term},
        medians={name: spread.median for name, spread in spreads.items()},
        totals=spread_of(row.comparable for row in rows),
        found=found,
        again=[one for one in found if len(one.seen) > 1],
        once=[one for one in found if len(one.seen) == 1],
        changed=CHANGED,
        pages=pages,
        files=files,
    )


def _rendered(template: str, folder: Path, **about: Any) -> str:
    """A page that will lie in `folder`."""
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8").strip()
    content = f"\n{script}\n"  # all that stands between the tags
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return _environment().get_template(template).render(
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'",
        css=Markup((TEMPLATES / "report.css").read_text(encoding="utf-8").strip()),
        script=Markup(script),
        link=lambda path: _link(path, folder),
        svg=_svg,
        students=lambda n: _many(n, "student"),
        some=some,
        percent=percent,
        **about,
    )  # fmt: skip


def flat(text: object) -> str:
    """The same on one line."""
    return " ".join(visible(text).split())


def full_share(spread: Distribution) -> str:
    """How many of the students that have a mark have all the points."""
    share = f" ({100 * spread.full / spread.marked:.0f} %)" if spread.marked else ""
    return f"all points: {spread.full} of {spread.marked}{share}"


def without_line(one: Stumbling) -> list[str]:
    """How many of an exercise's wrong answers have no line, in words."""
    parts = [(one.nothing, "none found in"), (one.left, "not searched, as the time was up:")]
    return [
        f"{words} {_many(len(answers), 'answer')} ({_many(sum(map(len, answers)), 'student')})"
        for answers, words in parts
        if answers
    ]


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'s' if n != 1 else ''}"


def visible(text: object) -> str:
    """A text from a student, fit to be shown: what would steer a terminal or turn the direction of reading is spelt."""
    text = str(text)
    cut = text[:LONGEST] + (" …" if len(text) > LONGEST else "")
    return "".join(
        f"⟨U+{ord(c):04X}⟩" if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cf", "Cs") else c for c in cut
    )


def _code(text: str) -> Markup:
    """As on a verdict's card."""
    from lessonkit.exercises.verdict import as_html  # torch with it

    return Markup(as_html(visible(text)))


def _link(path: Path, folder: Path) -> str:
    try:
        return quote(Path(os.path.relpath(path, folder)).as_posix())
    except ValueError:  # another drive
        return path.resolve().as_uri()


def _anchor(text: object) -> str:
    return re.sub(r"\W+", "-", str(text))


def _breakable(name: str) -> Markup:
    """A name that may be broken between its words."""
    return Markup(re.sub(r"(_)(?=\w)|(?<=[a-z])(?=[A-Z])", r"\1<wbr>", str(escape(visible(name)))))


def some(rows: Sequence[Row]) -> str:
    """The first names of many."""
    more = f" and {len(rows) - NAMES} more" if len(rows) > NAMES else ""
    return ", ".join(row.name for row in rows[:NAMES]) + more


def percent(share: float | None) -> str:
    """Whole percents; a dash where there is nothing to share."""
    return "–" if share is None else f"{100 * share:.0f} %"


def _svg(bars: Sequence[tuple[str, int]], what: str) -> Markup:
    """Bars with the numbers on them, and the same in words for who does not see it. `what` says what is counted."""
    bar, gap, height = max(34, 8 * max(len(points) for points, _ in bars)), 10, 90
    most = max(count for _, count in bars)
    width = len(bars) * (bar + gap) + gap
    said = ", ".join(f"{count} × {points}" for points, count in bars if count)
    parts = []
    for i, (points, count) in enumerate(bars):
        x, h = gap + i * (bar + gap), round(height * count / most, 1)
        middle, top = x + bar / 2, 22 + height - h
        parts.append(f'<rect x="{x}" y="{top:g}" width="{bar}" height="{h:g}"/>' if count else "")
        parts.append(f'<text x="{middle:g}" y="{top - 6:g}">{count}</text>')
        parts.append(f'<text x="{middle:g}" y="{22 + height + 17}" class="points">{escape(points)}</text>')
    parts.append(f'<line x1="0" x2="{width}" y1="{22 + height}" y2="{22 + height}"/>')
    size = f'viewBox="0 0 {width} {height + 44}" width="{width}" height="{height + 44}"'
    label = escape(visible(f"{what}: {said}"))
    return Markup(f'<svg role="img" aria-label="{label}" {size}>{"".join(parts)}</svg>')


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters |= {"code": _code, "anchor": _anchor, "breakable": _breakable}
    return environment


def _finalize(value: Any) -> Any:
    """Everything that is not markup of ours is shown as text."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
