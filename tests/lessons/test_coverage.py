"""docs/coverage.md says what the marks in the lectures say, and no idea of the decks is forgotten."""

import pytest

from attncourse_lessons import coverage
from attncourse_lessons.slides.ideas import BY_LETTER, IDEAS, LEFT_OUT

NAMES = [idea.name for idea in IDEAS]


def test_the_file_is_what_the_marks_say(capsys):
    assert coverage.main([]) == 0, "python -m attncourse_lessons.coverage --write"
    assert "is what the marks say" in capsys.readouterr().out


def test_every_mark_is_an_ideas_name_and_every_section_has_a_title():
    marked = coverage.taught()
    assert {*marked} <= {*NAMES} and len({*NAMES}) == len(NAMES)
    assert all(place.section for places in marked.values() for place in places)


@pytest.mark.parametrize("idea", IDEAS, ids=lambda idea: idea.name)
def test_an_idea_is_taught_or_the_list_says_what_becomes_of_it(idea):
    marked = coverage.taught()
    assert {*idea.letters} <= {*BY_LETTER} and idea.decks
    assert (idea.name in marked) != (idea.name in LEFT_OUT)


def test_what_is_left_out_is_an_idea():
    assert {*LEFT_OUT} <= {*NAMES}


def test_a_mark_is_about_the_section_in_which_its_cell_ends_or_about_one_that_it_names():
    text = '# %% [markdown] teaches="a; b @ One"\n# # Title\n# ## One\n# ## Two\n\n# %% teaches="c"\n1 + 1\n'
    found = coverage.places(text, "lookup")
    assert {name: place.section for name, place in found.items()} == {"a": "Two", "b": "One", "c": "Two"}
    assert {place.lesson for place in found.values()} == {"lookup"}
