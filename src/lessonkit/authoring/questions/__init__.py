"""The question bank: multiple-choice questions of a course, generated from its known mistakes or written by hand."""
