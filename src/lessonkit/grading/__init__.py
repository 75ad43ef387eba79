"""Grading a class with nbgrader: what its config plugs in, the report, the demo."""
