"""The course: a folder for each lesson, with its lecture, its assignment, its exercises and its pictures."""

from lessonkit.course import Course

course = Course(
    __name__,
    library=("attncourse",),
    distribution="attncourse",
    widgets=("attncourse", "viz/live_widget.js"),
    demo="cross_attention",
)
check, hint, progress, solved = course.check, course.hint, course.progress, course.solved
