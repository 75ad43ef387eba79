"""Marking by hand: one written question and the answers of all students on one page."""
