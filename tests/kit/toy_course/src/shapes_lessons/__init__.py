"""A course of one lesson, on the areas of polygons."""

from lessonkit.course import Course

course = Course(__name__, library=("shapes",))
check, check_all, hint, progress = course.check, course.check_all, course.hint, course.progress
