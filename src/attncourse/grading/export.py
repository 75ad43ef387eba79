"""`nbgrader export --exporter=attncourse.grading.export.ExercisePoints`: the points of each exercise, as quoted CSV."""

from __future__ import annotations

import csv
from pathlib import Path

from nbgrader.api import Gradebook
from nbgrader.plugins import ExportPlugin

from attncourse.grading.report import why
from attncourse.grading.results import Results, read_results

ABOUT = ("assignment", "student_id", "last_name", "first_name", "total", "out_of", "what_went_wrong")


class ExercisePoints(ExportPlugin):
    """One line for each student and assignment. A cell is empty where no points were given, or not yet."""

    def export(self, gradebook: Gradebook) -> None:
        names = [str(name) for name in self.assignment] or [assignment.name for assignment in gradebook.assignments]
        results = [read_results(self.parent.coursedir, name) for name in names]
        people = {student.id: student for student in gradebook.students}
        graded = dict.fromkeys(_heading(result, c.name) for result in results for c in result.columns)
        path = Path(self.to or "grades.csv")
        self.log.info("Exporting grades to %s", path)
        with path.open("w", newline="", encoding="utf-8-sig") as file:  # the mark tells spreadsheets that it is UTF-8
            writer = csv.DictWriter(file, [*ABOUT[:4], *graded, *ABOUT[4:]], restval="")
            writer.writeheader()
            for result in results:
                for row in result.rows:
                    if self.student and row.student not in map(str, self.student):
                        continue
                    points = {_heading(result, c.name): row.points.get(c.grade_id) for c in result.columns}
                    person = people[row.student]
                    about = (result.assignment, row.student, person.last_name, person.first_name)
                    rest = (row.total, result.out_of, why(row, result))
                    writer.writerow(points | dict(zip(ABOUT, (*about, *rest), strict=True)))


def _heading(result: Results, column: str) -> str:
    return f"{result.assignment} {column}"
