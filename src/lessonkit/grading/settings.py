"""What the kit asks of nbgrader, for a course's nbgrader_config.py: `use_course(c, "its_lessons")`."""

import os
import sys
from pathlib import Path
from typing import Any


def use_course(c: Any, lessons: str) -> None:
    """Set up nbgrader, its commands and the formgrader, for the course whose lessons are in the package `lessons`.

    Whatever the config sets below this call wins.
    """
    c.Lessonkit.course = lessons
    c.CourseDirectory.source_directory = "solutions"
    c.CourseDirectory.release_directory = "assignments"

    # What a learner finds in place of a solution. The checks know NotImplementedError: "not written yet".
    c.ClearSolutions.code_stub = {"python": "# Your code here.\nraise NotImplementedError()"}
    c.ClearSolutions.text_stub = "*Your answer here.*"

    # A submission that cannot be read becomes a notebook that says so, with 0 points, instead of an error.
    # Before the first one is read, lessonkit.grading.repair.folder has looked through the submissions' folders.
    c.Autograde.exporter_class = "lessonkit.grading.repair.exporter.SubmissionExporter"
    # nbgrader's own list, after ours: cells that are missing, twice, renamed or without metadata are put right.
    c.Autograde.sanitize_preprocessors = [
        "lessonkit.grading.repair.cells.Repair",
        "nbgrader.preprocessors.ClearOutput",
        "nbgrader.preprocessors.DeduplicateIds",
        "nbgrader.preprocessors.OverwriteKernelspec",
        "nbgrader.preprocessors.OverwriteCells",
        "nbgrader.preprocessors.CheckCellMetadata",
    ]
    # What was repaired stays in the notebook's metadata, also where an instructor has this step enabled.
    c.ClearMetadataPreprocessor.preserve_nb_metadata_mask = {("language_info", "name"), "lessonkit"}
    # nbgrader's own list, with three of ours: execution that keeps what ran before a crash and takes points from the
    # verdicts of the checks and from nothing else; extra credit; and extensions, before points are taken off.
    c.Autograde.autograde_preprocessors = [
        "lessonkit.grading.engine.preprocessors.ExecuteOrReplay",
        "nbgrader.preprocessors.IgnorePattern",
        "nbconvert.preprocessors.ClearMetadataPreprocessor",
        "nbgrader.preprocessors.LimitOutput",
        "nbgrader.preprocessors.SaveAutoGrades",
        "lessonkit.grading.engine.preprocessors.SaveExtras",
        "lessonkit.grading.engine.preprocessors.GrantExtension",
        "nbgrader.preprocessors.AssignLatePenalties",
        "nbgrader.preprocessors.CheckCellMetadata",
    ]
    # Feedback says what is not marked yet, and what was late. It shows the card of a hidden check and not its seeds,
    # and no folder of the machine that graded.
    c.GenerateFeedback.exporter_class = "lessonkit.grading.handback.feedback.FeedbackPage"
    c.GenerateFeedback.preprocessors = [
        "lessonkit.grading.handback.feedback.Marks",
        "lessonkit.grading.handback.feedback.HideHiddenTests",
        "lessonkit.grading.handback.feedback.HidePaths",
        "nbconvert.preprocessors.CSSHTMLHeaderPreprocessor",
    ]
    # A submission's own HTML and Markdown run no script in a page made of it: in feedback, and in the formgrader.
    c.HTMLExporter.preprocessors = ["lessonkit.grading.handback.feedback.SafePage"]
    c.HTMLExporter.filters = {
        "markdown2html": "lessonkit.grading.handback.feedback.safe_markdown",
        "strip_files_prefix": "lessonkit.grading.handback.feedback.as_it_is",
    }

    # Seconds a cell, and seconds until a kernel must have started; a kernel that has done its work need not say
    # goodbye.
    c.Execute.timeout = 30
    c.Execute.startup_timeout = 120
    c.Execute.shutdown_kernel = "immediate"
    c.Execute.extra_arguments = ["--log-level=ERROR"]

    # nbgrader calls `alembic` by name: this finds it in an environment that was not activated.
    scripts = str(Path(sys.executable).parent)
    if scripts not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = scripts + os.pathsep + os.environ.get("PATH", "")
