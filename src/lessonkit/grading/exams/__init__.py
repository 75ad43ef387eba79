"""Notebooks that ask what nobody has seen: a variation for each student, and exams."""
