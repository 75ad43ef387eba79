"""The course: a folder for each lesson, with its lecture, its assignment, its exercises and its pictures."""

from lessonkit.course import Course

course = Course(
    __name__,
    library=("attncourse",),
    distribution="attncourse",
    widgets=("attncourse", "viz/live_widget.js"),
    demo="cross_attention",
)
check, check_all, hint = course.check, course.check_all, course.hint
practice, progress, solved = course.practice, course.progress, course.solved
