"""`lessonkit variations aNN`: a notebook for each student, in which exercises ask a variation drawn for them."""

from __future__ import annotations

import argparse
import copy
import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from commandkit.files import write_whole

with require_extra(typed("variations"), "grading"):
    import nbformat
    from nbformat import NotebookNode
    from nbgrader.api import Gradebook

    from lessonkit.course import Course, course_of
    from lessonkit.exercises.variation import answer_cell, check_cell
    from lessonkit.grading.gradebook.nbgrader_app import application, find_course
    from lessonkit.grading.submission.check_cells import exercise_of, grading
    from lessonkit.grading.submission.records import grading_folder
    from lessonkit.grading.submission.variations import FILE, Variations, variations_in

LIST = "variations.csv"  # who has which

EXAMPLES = """
PROGRAM variations a06 --seed 7 --to handed_out
PROGRAM variations a06 --seed 7 --to handed_out --students students.csv --only causal_mask
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("assignment", help="such as a06")
    parser.add_argument("--seed", type=int, required=True, metavar="N", help="which student gets which depends on it")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="gets STUDENT/a06/NOTEBOOK for each one")
    ids = "their ids, a line each, or a CSV with a column id (default: those in the gradebook)"
    parser.add_argument("--students", type=Path, metavar="FILE", help=ids)
    parser.add_argument("--only", action="append", metavar="EXERCISE", help="vary this exercise (may be given again)")


def main(args: argparse.Namespace) -> int:
    root = find_course(Path())
    app = application(root, "autograde")
    course = course_of(app.config)
    offered = on_offer(course, args.assignment, args.only)
    students = _listed(args.students) if args.students else _known(app.coursedir.db_url)
    path = root / app.coursedir.format_path(app.coursedir.release_directory, ".", args.assignment)
    notebooks = sorted(path.glob("*.ipynb"))
    if not notebooks:
        raise CommandError(f"no notebook in {path}: run `nbgrader generate_assignment {args.assignment}` first")
    wanted, folder = Variations(args.seed, offered), grading_folder(root, args.assignment)
    kept = variations_in(folder)
    if kept.offered and kept != wanted:
        raise CommandError(
            f"{folder / FILE} has others, drawn with the seed {kept.seed}: students may have them. "
            "Take the same options as then, or delete it to begin anew"
        )
    made: dict[Path, str] = {}
    for notebook in notebooks:
        given = nbformat.read(notebook, as_version=4)
        for student in students:
            place = args.to / student / args.assignment / notebook.name
            made[place] = nbformat.writes(varied(given, course, wanted.of(student))) + "\n"
    for place, text in made.items():
        if place.exists() and place.read_text(encoding="utf-8") != text:
            raise CommandError(f"{place} is there already, and is another notebook: name another folder")
    wanted.keep(folder)
    for place, text in made.items():
        write_whole(place, text)
    write_whole(args.to / LIST, _table(wanted, students))
    print(f"{args.to}: {len(students)} students, {_said(offered)}; who has which is in {args.to / LIST}")
    print(f"{typed('grade')} {args.assignment} judges each by their own: keep {_from_here(folder / FILE)}")
    return 0


def on_offer(course: Course, assignment: str, only: Sequence[str] | None = None) -> dict[str, tuple[str, ...]]:
    """The variations that an assignment's exercises have, by exercise. CommandError where there is none."""
    found = {each.name: tuple(each.variations) for each in course.exercises_of(assignment) if each.variations}
    if unknown := sorted(set(only or ()) - found.keys()):
        raise CommandError(f"{', '.join(unknown)}: no exercise of {assignment} with variations ({', '.join(found)})")
    if not found:
        others = [each for each in course.assignments() if any(e.variations for e in course.exercises_of(each))]
        raise CommandError(f"no exercise of {assignment} has variations; there are some in {', '.join(others)}")
    return {name: names for name, names in found.items() if not only or name in only}


def varied(notebook: NotebookNode, course: Course, variations: Mapping[str, str]) -> NotebookNode:
    """A released notebook whose cells ask these variations, by exercise."""
    made = copy.deepcopy(notebook)
    for cell in made.cells:
        checked, name = exercise_of(cell), str(grading(cell).get("grade_id"))
        if checked is not None and checked in variations:
            cell.source = check_cell(cell.source, checked, variations[checked])
        elif name in variations and cell.cell_type == "code" and grading(cell)["solution"]:
            cell.source = answer_cell(cell.source, course.exercise(name, variations[name]))
    return made


def _listed(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: cannot be read: {error}") from None
    rows = [row for row in csv.reader(io.StringIO(text)) if any(field.strip() for field in row)]
    column = rows[0].index("id") if rows and "id" in rows[0] else 0
    found = [row[column].strip() for row in (rows[1:] if rows and "id" in rows[0] else rows) if len(row) > column]
    return _ids(found, str(path))


def _known(db_url: str) -> list[str]:
    path = db_url.removeprefix("sqlite:///")
    if db_url.startswith("sqlite") and not Path(path).is_file():
        raise CommandError(f"there is no gradebook at {path}: name the students, --students FILE")
    with Gradebook(db_url) as gradebook:
        return _ids([student.id for student in gradebook.students], "the gradebook")


def _ids(found: Sequence[str], where: str) -> list[str]:
    ids = sorted(set(found) - {""})
    if not ids:
        raise CommandError(f"there is no student in {where}: name some, --students FILE")
    for student in ids:
        if student.startswith(".") or any(mark in student for mark in "/\\\n"):
            raise CommandError(f"{where}: {student!r} cannot be the name of a folder")
    return ids


def _table(variations: Variations, students: Sequence[str]) -> str:
    table = io.StringIO()
    write = csv.writer(table, lineterminator="\n")
    write.writerow(["student", *variations.offered])
    write.writerows([student, *variations.of(student).values()] for student in students)
    return table.getvalue()


def _said(offered: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{name} in {len(names)} variations" for name, names in offered.items())


def _from_here(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
