"""A course of one lesson, on the areas of polygons."""

from lessonkit.course import Course

course = Course(__name__, library=("shapes",))
check, hint, progress = course.check, course.hint, course.progress
