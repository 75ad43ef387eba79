"""The command `lessonkit`: what can be done with any course, in its folder. A course may have a command of its own."""

import sys
from collections.abc import Sequence

from commandkit.commands import flat, run

LEARN = {
    "lab": ("lessonkit.learner.lab", "open JupyterLab in your own folder, work/, on the start page"),
    "progress": ("lessonkit.learner.terminal", "show the points of your own checks so far"),
    "hint": ("lessonkit.learner.terminal", "print a hint for an exercise"),
    "practice": ("lessonkit.learner.practice", "find the bug: drills on what you have solved, weakest first"),
    "reset": ("lessonkit.learner.reset", "begin an assignment anew; what was there is kept"),
    "doctor": ("lessonkit.doctor", "check this machine, and say what would mend it"),
}
TEACH = {
    "demo": ("lessonkit.grading.demo.command", "grade a class of made-up submissions and show what each one gets"),
    "grade": ("lessonkit.grading.engine.grade", "grade a class's submissions, many at a time and in a sandbox"),
    "feedback": ("lessonkit.grading.handback.command", "make each student's feedback page, and give the pages back"),
    "report": ("lessonkit.grading.report.command", "show the grades of a class, student by exercise"),
    "export": ("lessonkit.grading.export.command", "make an autograder for Gradescope or GitHub of an assignment"),
    "mark": ("lessonkit.grading.marking.command", "mark written answers by hand: one question, all students"),
    "variations": ("lessonkit.grading.exams.variations", "give each student a variation of an assignment's exercises"),
    "exam": ("lessonkit.grading.exams.exam", "put together an exam: a notebook, a sheet, and their mark scheme"),
    "handout": ("lessonkit.authoring.printing.handout", "make the handouts of lectures: six pages each, to write on"),
    "questions": (
        "lessonkit.authoring.questions.command",
        "multiple-choice questions, for Moodle, Canvas or a sheet of paper",
    ),
    "release": ("lessonkit.authoring.release", "put together what a student gets, without the solutions"),
}
MAINTAIN = {
    "build": ("lessonkit.authoring.build", "build the notebooks from the lessons' sources"),
    "site": ("lessonkit.authoring.site.command", "build the web book from the executed notebooks and docs"),
    "print": ("lessonkit.authoring.printing.book", "make one PDF of the course, its answers at the end"),
    "completion": ("commandkit.completion", "print what lets your shell complete commands with the Tab key"),
}
GROUPS = {"learn": LEARN, "teach": TEACH, "maintain": MAINTAIN}
COMMANDS = flat(GROUPS)


def main(argv: Sequence[str] | None = None) -> int:
    return run("lessonkit", "A kit for courses of notebooks with checked exercises.", GROUPS, argv)


if __name__ == "__main__":
    sys.exit(main())
