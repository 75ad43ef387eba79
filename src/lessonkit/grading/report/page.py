"""The report as one HTML page that needs nothing else: no network, no script; for light, for dark and for paper."""

from __future__ import annotations

import os
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from commandkit.commands import typed
from commandkit.errors import require_extra

with require_extra(typed("report"), "grading"):
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup, escape

    from lessonkit.grading.report.results import (
        OUTLIER_RULE,
        Distribution,
        Results,
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
    from lessonkit.grading.submission.lateness import written

if TYPE_CHECKING:
    from lessonkit.exercises.exercise import Exercise
    from lessonkit.grading.report.lines import Stumbling
    from lessonkit.grading.report.similarity import Pair

LINES = "lines that the class stumbles over: one small change there makes all right"
UNSAFE_NOTE = (
    "Nothing kept students’ code from writing marks, its own or others’: "
    "look at surprising marks yourself, or grade again where there is a sandbox."
)
NO_LOG = (
    f"time, memory, repairs and whether there was a sandbox, because `{typed('grade')}` did not grade this. "
    "Under plain `nbgrader autograde` students’ code can write marks."
)
SHOWN = 40  # pairs that the page lays side by side
LONGEST = 2000  # characters of a text from a student


def page(
    results: Results,
    exercises: Sequence[Exercise],
    pairs: Sequence[Pair],
    folder: Path,
    stumbling: Sequence[Stumbling] = (),
    named: bool = False,
) -> str:
    """The report as HTML. Links to the students' notebooks are relative to `folder`, where the page will lie.

    A leaderboard, which a class may want to see, says who is where only if it is to be `named`.
    """
    from lessonkit.grading.report.similarity import aligned

    handed_in = [row for row in results.rows if row.submitted]
    unknown = [row for row in handed_in if row.log is None]
    hints = {(e.name, m.name): m.hint for e in exercises for m in e.misconceptions}
    meanings = {(e.name, a.name): a.meaning for e in exercises for a in e.aspects}
    totals, worth, left_out = results.comparable()
    kinds: dict[str, list[Any]] = {}
    for flag in flags(results):
        kinds.setdefault(flag.kind, []).append(flag)
    return _template().render(
        results=results,
        handed_in=handed_in,
        missing=[row for row in results.rows if not row.submitted],
        waiting=[row for row in handed_in if row.waiting],
        late=[row for row in handed_in if row.late],
        median=statistics.median(totals.values()) if totals else None,
        worth=worth,
        left_out=left_out,
        late_cell=late_cell,
        total_cell=total_cell,
        written=written,
        sandboxes=Counter(row.log.sandbox for row in handed_in if row.log and row.log.sandbox),
        unsafe=unsafe(results),
        unsafe_note=UNSAFE_NOTE,
        unknown=unknown,
        no_log=NO_LOG,
        spreads=[distribution(results, column) for column in results.columns],
        meanings=meanings,
        leaderboards=leaderboards(results),
        named=named,
        mistakes=mistakes(results),
        hints=hints,
        stumbling=stumbling,
        about_lines=LINES,
        without_line=without_line,
        flags=kinds,
        outliers=outliers(results),
        outlier_rule=OUTLIER_RULE,
        pairs=pairs[:SHOWN],
        more_pairs=len(pairs[SHOWN:]),
        aligned=aligned,
        why=lambda row: why(row, results),
        link=lambda path: _link(path, folder),
        full_share=full_share,
        svg=_svg,
    )


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


def _svg(spread: Distribution) -> Markup:
    """The bars of a distribution, with the numbers on them, and the same in words for who does not see it."""
    bar, gap, height = 34, 10, 90
    most = max(count for _, count in spread.bars)
    width = len(spread.bars) * (bar + gap) + gap
    said = ", ".join(f"{count} × {points}" for points, count in spread.bars if count)
    parts = []
    for i, (points, count) in enumerate(spread.bars):
        x, h = gap + i * (bar + gap), round(height * count / most, 1)
        middle, top = x + bar / 2, 22 + height - h
        parts.append(f'<rect x="{x}" y="{top:g}" width="{bar}" height="{h:g}"/>' if count else "")
        parts.append(f'<text x="{middle:g}" y="{top - 6:g}">{count}</text>')
        parts.append(f'<text x="{middle:g}" y="{22 + height + 17}" class="points">{escape(points)}</text>')
    label = f"Students by points in {visible(spread.column.name)}: {said} points"
    parts.append(f'<line x1="0" x2="{width}" y1="{22 + height}" y2="{22 + height}"/>')
    size = f'viewBox="0 0 {width} {height + 44}" width="{width}" height="{height + 44}"'
    return Markup(f'<svg role="img" aria-label="{escape(label)}" {size}>{"".join(parts)}</svg>')


def _template() -> Any:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_finalize
    )
    environment.filters |= {"code": _code, "anchor": _anchor, "breakable": _breakable}
    return environment.from_string(TEMPLATE)


def _finalize(value: Any) -> Any:
    """Everything that is not markup of ours is shown as text."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


# Colours: text and lines follow the reader's light or dark; the one accent is Okabe and Ito's blue, which all can tell.
TEMPLATE = """\
{% macro who(row) %}<bdi>{% if row.submitted %}<a href="#{{ 'student-' ~ row.student | anchor }}">{{ row.name }}</a>\
{% else %}{{ row.name }}{% endif %}</bdi>{% endmacro %}
{% macro everyone(rows) %}{% for row in rows %}{{ who(row) }}{{ ", " if not loop.last }}{% endfor %}{% endmacro %}
{% macro students(n) %}{{ n }} student{{ "s" if n != 1 }}{% endmacro %}
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{{ results.assignment }}: report</title>
<style>
:root { color-scheme: light dark; --text: #1b1b1b; --page: #fff; --soft: #595959; --line: #c9c9c9; --fill: #f3f4f6;
  --accent: #0072b2; --link: #005a8e; --warn: #b34700; }
@media (prefers-color-scheme: dark) { :root { --text: #e8e8e8; --page: #16181b; --soft: #b0b0b0; --line: #45484d;
  --fill: #22252a; --accent: #56b4e9; --link: #7cc4f0; --warn: #ffa85c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 76rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.7rem; margin: 0; } h2 { font-size: 1.3rem; margin: 2.5rem 0 .6rem; padding-top: .6rem;
  border-top: 1px solid var(--line); } h3 { font-size: 1.05rem; margin: 1.4rem 0 .3rem; }
p, ul, dl { margin: .4rem 0; max-width: 60rem; } ul { padding-left: 1.3rem; }
a { color: var(--link); } a:focus-visible, summary:focus-visible, [tabindex]:focus-visible { outline: 3px solid
  var(--accent); outline-offset: 2px; }
code, pre, .code { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: .9em; }
.soft { color: var(--soft); } .skip { position: absolute; left: -99rem; } .skip:focus { position: static; }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; list-style: none; padding: 0; }
.warning { border: 2px solid var(--warn); border-left-width: .5rem; padding: .6rem 1rem; margin: 1rem 0; }
.numbers { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0; }
.numbers div { background: var(--fill); padding: .6rem 1rem; border-radius: .4rem; min-width: 8rem; }
.numbers dt { color: var(--soft); } .numbers dd { margin: 0; font-size: 1.5rem; font-weight: 600; }
.exercises { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(24rem, 100%), 1fr)); gap: 0 2rem; }
.scroll { overflow-x: auto; max-width: 100%; }
svg { display: block; max-width: 100%; height: auto; margin: .5rem 0; } svg rect { fill: var(--accent); }
svg line { stroke: var(--soft); } svg text { fill: var(--text); font: 13px system-ui, sans-serif; text-anchor: middle; }
svg .points { fill: var(--soft); }
table { border-collapse: collapse; margin: .5rem 0; } caption { text-align: left; color: var(--soft); }
th, td { text-align: left; vertical-align: top; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line); }
thead th { vertical-align: bottom; } th[scope=row] { font-weight: 600; } .soft { font-weight: 400; }
.number { text-align: right; font-variant-numeric: tabular-nums; } td.number { white-space: nowrap; }
.wrap { min-width: 16rem; overflow-wrap: anywhere; }
details { margin: .5rem 0; } summary { cursor: pointer; padding: .2rem 0; }
.diff { width: 100%; min-width: 44rem; table-layout: fixed; }
.diff td { border: none; padding: 0 .5rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.diff .sign { width: 2.2rem; text-align: center; } .diff th { padding: .2rem .5rem; }
.diff .same td { color: var(--soft); } .diff .differs td { background: var(--fill); }
@media print { :root { --text: #000; --page: #fff; --soft: #444; --line: #999; --fill: #eee; --link: #000; }
  body { max-width: none; padding: 0; font-size: 10pt; } nav, .skip { display: none; } a { text-decoration: none; }
  h2, h3 { break-after: avoid; } tr, section.one, svg { break-inside: avoid; } .scroll { overflow: visible; } }
</style>
</head>
<body>
<a class="skip" href="#main">To the report</a>
<header>
<h1>{{ results.assignment }}: report</h1>
<p class="soft">For instructors: names, marks and code of students. Do not pass it on.</p>
{% if unsafe %}
<div class="warning" role="note"><p><strong>Graded without a sandbox:</strong>
{{ "all submissions" if unsafe | length == handed_in | length else everyone(unsafe) }}.
{{ unsafe_note }}</p></div>
{% endif %}
<nav aria-label="Parts of the report"><ul>
<li><a href="#summary">Summary</a></li><li><a href="#exercises">Exercises</a></li>
{% if leaderboards %}<li><a href="#leaderboards">Leaderboard</a></li>{% endif %}
{% if mistakes %}<li><a href="#misconceptions">Misconceptions ({{ mistakes | length }})</a></li>{% endif %}
{% if stumbling %}<li><a href="#lines">Lines</a></li>{% endif %}
{% if flags %}<li><a href="#flags">Flags ({{ flags.values() | sum(start=[]) | length }})</a></li>{% endif %}
{% if outliers %}<li><a href="#outliers">Time and memory ({{ outliers | length }})</a></li>{% endif %}
{% if pairs %}<li><a href="#similar">Nearly identical ({{ pairs | length + more_pairs }})</a></li>{% endif %}
<li><a href="#students">Students ({{ results.rows | length }})</a></li>
</ul></nav>
</header>
<main id="main">

<section aria-labelledby="summary">
<h2 id="summary">Summary</h2>
<dl class="numbers">
<div><dt>handed in</dt><dd>{{ handed_in | length }}</dd></div>
<div><dt>missing</dt><dd>{{ missing | length }}</dd></div>
<div><dt>wait to be marked</dt><dd>{{ waiting | length }}</dd></div>
{% if results.due %}<div><dt>late</dt><dd>{{ late | length }}</dd></div>{% endif %}
<div><dt>median{{ " so far" if left_out }}</dt><dd>{{ "–" if median is none else "%g of %g" | format(median, worth) }}\
</dd></div>
</dl>
{% if results.due %}<p>Due {{ written(results.due) }}.
{% set unknown_time = handed_in | rejectattr("times.handed_in") | list %}
{% if unknown_time %}It is not known when {{ unknown_time | length }} of {{ handed_in | length }} were handed in.\
{% endif %}</p>{% endif %}
{% for student in results.strangers %}<p>extensions.csv: nobody is called {{ student }} here: is it a slip?</p>\
{% endfor %}
{% if missing %}<p>Nothing from: {{ everyone(missing) }}.</p>{% endif %}
{% if waiting %}<p>What waits to be marked by hand, in the formgrader, is left out of totals and median until then:
{% for spread in spreads if spread.waiting %}<code>{{ spread.column.name }}</code> ({{ spread.waiting }})\
{{ ", " if not loop.last }}{% endfor %}.</p>{% endif %}
{% if unknown %}<p><strong>Not known</strong>{% if unknown | length < handed_in | length %} of
{{ everyone(unknown) }}{% endif %}: {{ no_log | code }}</p>{% endif %}
{% if sandboxes %}<p class="soft">Sandbox:
{% for name, n in sandboxes.most_common() %}{{ name }} ({{ n }}){{ ", " if not loop.last }}{% endfor %}.</p>{% endif %}
</section>

<section aria-labelledby="exercises">
<h2 id="exercises">Exercises</h2>
<p class="soft">Each bar is the number of students with that many points.</p>
<div class="exercises">
{% for spread in spreads %}
<section class="one" aria-labelledby="exercise-{{ loop.index }}">
<h3 id="exercise-{{ loop.index }}"><code>{{ spread.column.name }}</code>
<span class="soft">{{ "%g points" | format(spread.column.out_of) if spread.column.out_of else "extra credit" }}\
</span></h3>
{% if spread.marked %}
{{ svg(spread) }}
<p>Mean {{ "%.3g" | format(spread.mean) }} of {{ "%g" | format(spread.out_of) }}; {{ full_share(spread) }}.
{% if spread.waiting %}{{ spread.waiting }} wait to be marked.{% endif %}
{% if spread.unwritten %}Not written: {{ spread.unwritten }}.{% endif %}</p>
{% if spread.missed %}<p>Most often missed:</p>
<ul>{% for name, n in spread.missed[:4] %}<li><strong>{{ name }}</strong>, {{ students(n) }}\
{% if (spread.column.name, name) in meanings %}: {{ meanings[(spread.column.name, name)] | code }}{% endif %}</li>
{% endfor %}</ul>{% endif %}
{% else %}<p>{{ students(spread.waiting) }} wait{{ "s" if spread.waiting == 1 }} to be marked.</p>{% endif %}
</section>
{% endfor %}
</div>
</section>

{% if leaderboards %}
<section aria-labelledby="leaderboards">
<h2 id="leaderboards">Leaderboard</h2>
{% for board in leaderboards %}
<h3><code>{{ board.exercise }}</code> <span class="soft">{{ board.metric }}</span></h3>
<table><thead><tr><th scope="col">place</th><th scope="col">{{ board.metric }}</th>
<th scope="col">students</th></tr></thead><tbody>
{% for place in board.places %}
<tr><td>{{ place.number }}</td><td>{{ "%.4g" | format(place.value) }}</td>
<td>{% if named %}{{ everyone(place.rows) }}{% else %}{{ place.rows | length }}{% endif %}</td></tr>
{% endfor %}
</tbody></table>
{% endfor %}
</section>
{% endif %}

{% if mistakes %}
<section aria-labelledby="misconceptions">
<h2 id="misconceptions">Misconceptions</h2>
{% for mistake in mistakes %}
<section class="one" aria-labelledby="misconception-{{ loop.index }}">
<h3 id="misconception-{{ loop.index }}">{{ students(mistake.rows | length) }}: {{ mistake.name }}
<span class="soft">in <code>{{ mistake.exercise }}</code></span></h3>
{% if (mistake.exercise, mistake.name) in hints %}<p>{{ hints[(mistake.exercise, mistake.name)] | code }}</p>{% endif %}
<p>Talk to {{ everyone(mistake.rows) }}.</p>
</section>
{% endfor %}
</section>
{% endif %}

{% if stumbling %}
<section aria-labelledby="lines">
<h2 id="lines">Lines</h2>
<p>{{ about_lines | capitalize }}. Another line may do as well, so read it before you show it. Lines that differ in
names and layout alone are one.</p>
{% for one in stumbling %}
<section class="one" aria-labelledby="lines-{{ loop.index }}">
<h3 id="lines-{{ loop.index }}"><code>{{ one.exercise }}</code></h3>
{% if one.lines %}<ul>{% for line in one.lines %}
<li><code dir="ltr">{{ line.text }}</code>\
{% if not line.is_all %}, at <code dir="ltr">{{ line.piece }}</code>{% endif %}:
{{ students(line.rows | length) }}, {{ everyone(line.rows) }}</li>
{% endfor %}</ul>{% endif %}
{% for words in without_line(one) %}<p class="soft">{{ words | capitalize }}.</p>{% endfor %}
</section>
{% endfor %}
</section>
{% endif %}

{% if flags %}
<section aria-labelledby="flags">
<h2 id="flags">Flags</h2>
{% for kind, found in flags.items() %}
<h3>{{ kind | capitalize }} ({{ found | length }})</h3>
<ul>{% for flag in found %}<li>{{ who(flag.row) }}: <bdi>{{ flag.text }}</bdi></li>{% endfor %}</ul>
{% endfor %}
</section>
{% endif %}

{% if outliers %}
<section aria-labelledby="outliers">
<h2 id="outliers">Time and memory</h2>
<p>These took far more than the class: {{ outlier_rule }}.</p>
<div class="scroll" tabindex="0" role="region" aria-label="Time and memory">
<table><thead><tr><th scope="col">student</th><th scope="col">what</th><th scope="col" class="number">took</th>
<th scope="col" class="number">median</th><th scope="col" class="number">limit</th><th scope="col">where</th></tr>
</thead>
<tbody>{% for o in outliers %}<tr><th scope="row">{{ who(o.row) }}</th><td>{{ o.what }}</td>
<td class="number">{{ o.amount(o.value) }}</td><td class="number">{{ o.amount(o.median) }}</td>
<td class="number">{{ o.amount(o.limit) }}</td><td>{{ o.where }}</td></tr>{% endfor %}
</tbody></table>
</div>
</section>
{% endif %}

{% if pairs %}
<section aria-labelledby="similar">
<h2 id="similar">Nearly identical</h2>
<p>These share more than chance would have it, after names, comments and layout are set aside. There are honest reasons,
such as a common source or work in pairs: look at them side by side, and ask.</p>
<p>Signs: <span class="code">=</span> the same line; <span class="code">≈</span> the same but for names, comments and
layout; <span class="code">≠</span> another line, or one that only one of the two has.</p>
{% for pair in pairs %}
<section class="one" aria-labelledby="pair-{{ loop.index }}">
<h3 id="pair-{{ loop.index }}">{{ who(pair.first) }} and \
{% if pair.second %}{{ who(pair.second) }}{% else %}{{ pair.other }}{% endif %}</h3>
<ul>{% for line in pair.evidence %}<li>{{ line }}</li>{% endfor %}</ul>
<details{{ " open" if loop.index <= 3 }}><summary>Side by side</summary>
{% for answers in pair.answers %}
<div class="scroll" tabindex="0" role="region" aria-label="{{ answers.exercise }}, side by side">
<table class="diff"><caption><code>{{ answers.exercise }}</code></caption>
<thead><tr><th scope="col">{{ pair.first.name }}</th><th scope="col" class="sign"><span class="skip">sign</span></th>
<th scope="col">{{ pair.other }}</th></tr></thead>
<tbody>{% for sign, a, b in aligned(answers) %}<tr class="{{ 'differs' if sign == '≠' else 'same' }}">\
<td class="code" dir="ltr">{{ a }}</td><td class="sign code">{{ sign }}</td><td class="code" dir="ltr">{{ b }}</td></tr>
{% endfor %}</tbody></table></div>
{% endfor %}
</details>
</section>
{% endfor %}
{% if more_pairs %}<p>And {{ more_pairs }} more pairs, which share less.</p>{% endif %}
</section>
{% endif %}

<section aria-labelledby="students">
<h2 id="students">Students</h2>
<p class="soft">… waits to be marked, and the total is of what is marked; – nothing handed in\
{% if results.due %}; ? not known when{% endif %}.</p>
<div class="scroll" tabindex="0" role="region" aria-label="Every student">
<table><thead><tr><th scope="col">student</th>
{% for spread in spreads %}<th scope="col" class="number">{{ spread.column.name | breakable }}<br><span class="soft">\
{{ "%g" | format(spread.column.out_of) if spread.column.out_of else "extra" }}</span></th>{% endfor %}
<th scope="col" class="number">total<br><span class="soft">{{ "%g" | format(results.out_of) }}</span></th>
{% if results.due %}<th scope="col" class="number">late</th>{% endif %}
<th scope="col">what went wrong</th><th scope="col">look at</th></tr></thead>
<tbody>
{% for row in results.rows %}
<tr id="{{ 'student-' ~ row.student | anchor }}"><th scope="row"><bdi>{{ row.name }}</bdi>\
{% if row.name != row.student %}<br><span class="soft">{{ row.student }}</span>{% endif %}</th>
{% for spread in spreads %}<td class="number">{% set mark = row.points.get(spread.column.grade_id) %}\
{% if mark is not none %}{{ "+" if not spread.column.out_of }}{{ "%g" | format(mark) }}\
{% else %}{{ "…" if row.submitted else "–" }}{% endif %}</td>{% endfor %}
<td class="number"><strong>{{ total_cell(row, results) }}</strong></td>
{% if results.due %}<td class="number">{{ late_cell(row) }}</td>{% endif %}
<td class="wrap"><bdi>{{ why(row) }}</bdi></td>
<td>{% for path in row.pages %}<a href="{{ link(path) }}">feedback<span class="skip"> of {{ row.name }}</span></a> \
{% endfor %}{% for path in row.notebooks %}<a href="{{ link(path) }}">notebook<span class="skip"> of {{ row.name }}\
</span></a> {% endfor %}</td></tr>
{% endfor %}
</tbody></table>
</div>
</section>
</main>
</body>
</html>
"""
