"""No function of a lecture, pasted under an exercise's name, earns more there than what one gets for nothing.

A lecture shows loops, single queries and calls of the package; the exercise asks for the batched form, without the
package. So every function and class that a lecture's cells define goes through the checks of its lesson's assignment,
as a learner's answer. Of the lecture, imports, definitions and constants are run, and nothing else: this takes seconds.
"""

import __future__

import ast
import inspect
import re
from functools import cache

import jupytext
import pytest

from attncourse_lessons import course
from lessonkit.exercises.judge import judge
from lessonkit.exercises.observe import observe

SEED = 0

# What a lecture's definition may earn all the same: {(its name, exercise): why}. One that is no longer needed fails a
# test: delete it, and the rule holds there, too.
PRINTED = "a lesson in its first edition: its page prints what the exercise asks for, which the second is to change"
HALF = "the wrong way that the lecture teaches against: the aspects that it is about are not earned"
ALLOWED = {
    ("naive_softmax", "softmax"): HALF,
    ("masked_mean", "masked_mean"): HALF,
    ("masked_mean, again", "masked_mean"): HALF,
