"""A class of any size, made up from an assignment's exercises: what a report reads, without grading anybody."""

import random
from datetime import datetime, timedelta

from attncourse_lessons import course as lessons
from lessonkit.grading.report.results import Column, Released, Results, Row, RunLog
from lessonkit.grading.submission.lateness import Times

DUE = datetime(2026, 11, 20, 18)
FIRST = ["Aisha", "Björn", "Chloé", "Daniel", "Efua", "Farid", "Grace", "Hiroshi", "Inés", "João", "Kateryna", "Liam"]
LAST = ["Adeyemi", "Bauer", "Costa", "Dubois", "Eriksen", "García", "Hoàng", "Ito", "Jansen", "Kaya"]


def made_up(n=60, assignment="a03", seed=0):
    """A class in which the better students lose fewer points, and some of whom a person has to look at.

    Of a class of 60, three have handed in nothing, one is not graded, six were late, the written answer of eight waits.
    """
    draw = random.Random(seed)
    exercises = lessons.exercises_of(assignment)
    columns = [Column("nb", f"check-{e.name}", 0.0 if e.extra else e.out_of, False) for e in exercises]
    columns.append(Column("nb", "why", 3.0, True))
    rows = []
    for i in range(n):
        row = Row(f"s{i:03}", f"{FIRST[i % 12]} {LAST[(i // 12 + i % 5) % 10]}")
        rows.append(row)
        if i % 20 == 7:
            row.submitted = False
            continue
        row.times = Times(DUE + timedelta(hours=5 if i % 10 == 3 else -draw.uniform(1, 90)), DUE)
        skill = draw.gauss(0, 1)
        for exercise in exercises:
            misconception = None if draw.gauss(0, 1) < skill else wrong(exercise, draw)
            row.verdicts[exercise.name] = verdict_of(exercise, misconception)
        row.points = {f"check-{name}": verdict["points"] for name, verdict in row.verdicts.items()}
        row.points["why"] = None if i % 7 == 4 else float(min(3, max(0, round(1.5 + skill))))
        row.total = sum(mark or 0.0 for mark in row.points.values())
        row.log = RunLog(draw.uniform(0.5, 1.5), draw.uniform(250, 300), sandbox="bubblewrap")
    special(rows)
    released = {e.name: Released(f"def {e.name}(): ...") for e in exercises}
    return Results(assignment, columns, rows, sum(c.out_of for c in columns), released, due=DUE)


def wrong(exercise, draw):
    """A misconception: the first ones of an exercise are the most frequent."""
    places = range(len(exercise.misconceptions))
    return draw.choices(exercise.misconceptions, [1 / (1 + place) for place in places])[0]


def verdict_of(exercise, misconception):
    fails = misconception.fails if misconception else ()
    aspects = [
        {"name": a.name, "ok": a.name not in fails, "out_of": a.points, "message": "made up"} for a in exercise.aspects
    ]
    points = sum(aspect["out_of"] for aspect in aspects if aspect["ok"])
    return {"exercise": exercise.name, "points": points, "out_of": exercise.out_of, "extra": False, "aspects": aspects,
            "misconceptions": [misconception.name] if misconception else [], "problem": None}  # fmt: skip


def special(rows):
    """What a class has beside points."""
    if len(rows) < 12:
        return
    rows[1].ungraded = "handed in again since it was graded"
    rows[2].tampering = ["a check cell was changed: it was put back"]
    strange = ("uses `sys._getframe` in `why`",)
    rows[5].log = RunLog(31.0, 400.0, "stopped after 30 seconds", suspicious=strange, sandbox="bubblewrap")
    rows[6].unreadable = "the submitted file is empty"
    rows[6].points = {name: 0.0 for name in rows[6].points}
    rows[6].total = 0.0
    rows[8].repairs = ["a cell was there twice: the second one was taken out"]
