"""A kit for courses: notebooks built from text, exercises whose checks name the mistake, grading in a sandbox.

It knows nothing of what a course is about. docs/your_own_course.md makes one with it.
"""
