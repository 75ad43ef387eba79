"""`lessonkit exam`: a notebook, a sheet and a mark scheme, drawn by a seed. The notebook is graded as any other is."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from commandkit.files import write_whole

with require_extra(typed("exam"), "grading"):
    import nbformat

    from lessonkit.authoring.questions.bank import questions
    from lessonkit.course import course_of
    from lessonkit.grading.exams import paper as papers
    from lessonkit.grading.gradebook.nbgrader_app import Log, application, find_course, nbgrader
    from lessonkit.grading.submission.records import grading_folder
    from lessonkit.grading.submission.variations import Variations


EXAMPLES = """
PROGRAM exam --lessons 00-07 --points 60 --seed 7
PROGRAM exam --lessons 02-05 --points 30 --seed 1 --coding 1 --name quiz
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lessons", required=True, metavar="NN-NN", help="what it is about, such as 00-07 or 02,05")
    parser.add_argument("--points", type=int, required=True, metavar="N", help="all points, of notebook and sheet")
    parser.add_argument("--seed", type=int, required=True, metavar="N", help="another seed is another exam")
    share = "of the points, at most so many for exercises; the sheet has the rest (default: 2/3)"
    parser.add_argument("--coding", type=float, default=papers.CODING, metavar="SHARE", help=share)
    parser.add_argument("--name", default="exam", metavar="NAME", help="what nbgrader calls it (default: exam)")


def main(args: argparse.Namespace) -> int:
    root = find_course(Path())
    app = application(root, "generate_assignment")
    course = course_of(app.config)
    name, lessons = args.name, course.numbers(args.lessons)
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,40}", name) or name in course.assignments():
        raise CommandError(f"--name: {name!r} is no name for an exam: letters, digits, - and _, and no assignment's")
    if args.points < 1 or not 0 <= args.coding <= 1:
        raise CommandError("--points: at least 1; --coding: from 0 to 1")
    built = root / app.coursedir.source_directory
    source, folder = built / name / f"{name}.ipynb", grading_folder(root, name)
    if source.exists():
        raise CommandError(f"{source} is there already: students may have it. Take another --name, or delete it")
    bank = questions(course, lessons, args.seed)
    paper = papers.drawn(course, lessons, args.points, args.seed, bank, name, args.coding)
    made = papers.notebook(paper, course, built)
    offered = {exercise: (variation,) for exercise, variation in paper.variations().items()}
    Variations(args.seed, offered).keep(folder)
    write_whole(source, nbformat.writes(made) + "\n")
    try:
        nbgrader(root, "generate_assignment", name, "--force", log=Log(folder / "exam.log"))
    except CommandError:
        source.unlink()
        raise
    texts = {"mark_scheme": papers.mark_scheme(paper)} | ({"sheet": papers.sheet(paper)} if paper.questions else {})
    for what, text in texts.items():
        write_whole(folder / f"{what}.md", text)
        write_whole(folder / f"{what}.html", papers.page(text))
    for line in said(paper, root, source, folder, app.coursedir.release_directory):
        print(line)
    return 0


def said(paper: papers.Paper, root: Path, source: Path, folder: Path, release: str) -> list[str]:
    """What was made, where it is, and what to do with it."""
    name, here = paper.name, Path.cwd()

    def place(path: Path) -> Path:
        return path.relative_to(here) if path.is_relative_to(here) else path

    asked = ", ".join(f"{task.name} ({task.varied.name})" for task in paper.tasks if task.varied)
    lines = [
        f"{name}: {paper.points:g} points, about {paper.minutes:g} minutes",
        f"  {paper.coding:g} points in the notebook: {asked or 'no exercise'}",
        f"  {paper.points - paper.coding:g} points on the sheet: {len(paper.questions)} questions",
        f"for students:     {place(root / release / name / f'{name}.ipynb')}",
        f"to print:         {place(folder / 'sheet.html')}" if paper.questions else "",
        f"for you:          {place(folder / 'mark_scheme.html')}, {place(source)}",
        f"as an exam:       {typed('release')} --to exam.zip --exam-until TIME  (checks say right or wrong)",
        f"handed in:        {typed('grade')} {name}, {typed('report')} {name}",
    ]
    return [line for line in lines if line]
