"""Drills: each is answered rightly by the solution it comes from, and by no other of its options."""

import ast
import re
from collections import Counter

import pytest

from attncourse_lessons import course
from attncourse_lessons.l06_masking import drills as masks
from lessonkit.exercises import drill
from lessonkit.exercises.drill import FAILS, LINE, LINES_FOR, PASSES, Question
from lessonkit.exercises.exercise import body_of
from lessonkit.exercises.judge import judge, observe_known

CARDS = list(drill.cards(course, course.assignments()))
OF_EXERCISES = [card for card in CARDS if card.exercise]
OTHERS = [card for card in CARDS if not card.exercise]
ON_THE_PAGE = 4


def points(exercise, answer):
    verdict = judge(exercise, observe_known(exercise, answer, 0), 0, name=False)
    return {line.name for line in verdict.aspects if line.ok}, {line.name for line in verdict.aspects}


@pytest.mark.parametrize("card", OF_EXERCISES, ids=lambda card: card.name)
def test_the_right_option_is_right_by_the_check_and_no_other_is(card, pytestconfig):
    """On one seed: that a slip fails the same aspects on all, and solutions none, is proven in test_graders.py."""
    asked = card.questions if pytestconfig.getoption("all") else card.questions[:ON_THE_PAGE]
    assert asked and len({each.key for each in card.questions}) == len(card.questions)
    for question in asked:
        made = question.drill()
        assert len(set(made.options)) == len(made.options) >= 3
        if question.kind == LINE:
            mends_by_its_own_line_alone(card.exercise, question, made)
        else:
            is_the_one_aspect(question, made)


def is_the_one_aspect(question, made):
    passing = {line.name for line in made.verdict.aspects if line.ok}
    failing = {line.name for line in made.verdict.aspects if not line.ok}
    assert failing == set(question.slip.fails)
    right = failing if question.kind == FAILS else passing
    named = [option.partition(": ")[0] for option in made.options]
    assert [name in right for name in named] == [place == made.right for place in range(len(named))]


def mends_by_its_own_line_alone(exercise, question, made):
    """With its line as a right answer has it, everything is right; the others are in that answer as they are."""
    lines = made.code.splitlines()
    stripped = [line.strip() for line in lines]
    at = stripped.index(made.options[made.right])
    indent = lines[at][: len(lines[at]) - len(stripped[at])]
    mended = "\n".join([*lines[:at], indent + made.mended, *lines[at + 1 :]])
    assert mended == drill.shown(exercise, body_of(question.slip.base))
    passing, every = points(exercise, drill.made(exercise, question.slip.base, mended, "<mended>"))
    assert passing == every
    passing, _ = points(exercise, drill.made(exercise, question.slip.base, made.code, "<a slip>"))
    assert passing < every  # so it is in what is shown, too, which has no comments
    others = [option for place, option in enumerate(made.options) if place != made.right]
    assert made.mended not in made.options
    assert all(stripped.count(option) == 1 and stripped.index(option) + 1 not in question.others for option in others)


PROVEN = ["softmax", "self_attention_loop", "masked_attention"]


@pytest.mark.parametrize("name", PROVEN)
def test_the_lines_at_which_another_change_would_do_are_found_again(name):
    exercise, kept = course.exercise(name), drill.kept_proofs(course)[name]
    key = max(kept, key=lambda each: len(kept[each]))
    slip = next(s for s in drill.slips(exercise) if drill.digest(drill.shown(exercise, s.body)) == key)
    assert drill.mending_lines(exercise, slip) == kept[key]


def test_a_line_that_only_moved_to_the_right_is_not_asked_for():
    right = "def f(x):\n    for y in x:\n        y.grow()\n    return x"
    assert drill.changed_line(right, right.replace("    return", "        return")) is None
    assert drill.changed_line(right, right.replace("return x", "return y")) == 3


def test_every_proof_is_of_a_slip_as_it_is_now():
    """Else: `attncourse practice --prove`."""
    for name, kept in drill.kept_proofs(course).items():
        exercise = course.exercise(name)
        assert 0 < len(kept) <= LINES_FOR
        assert set(kept) <= {drill.digest(drill.shown(exercise, slip.body)) for slip in drill.slips(exercise)}


def test_nearly_every_exercise_has_drills_and_every_lesson_many():
    asked = Counter()
    for card in CARDS:
        asked[card.assignment] += len(card.questions)
    assert set(asked) == set(course.assignments()) and min(asked.values()) >= 50
    without = set(course.all_exercises()) - {card.name for card in OF_EXERCISES}
    assert len(without) <= 6, "too few aspects to choose from, or no slips"
    kinds = Counter(each.kind for card in OF_EXERCISES for each in card.questions[:ON_THE_PAGE])
    assert min(kinds[kind] for kind in (LINE, FAILS, PASSES)) >= 60


def test_no_place_and_no_first_aspect_can_be_learned():
    places, first = Counter(), 0
    by_aspect = [each for card in OF_EXERCISES for each in card.questions if each.kind != LINE]
    for each in by_aspect:
        options, right = each._choices()
        places[right] += 1
        first += options[right].startswith(f"{each.exercise.aspects[0].name}: ")
    assert max(places.values()) < 0.45 * len(by_aspect)
    assert first < 0.45 * len(by_aspect)


def test_the_longest_line_is_a_bad_guess():
    longest, by_line = 0, [each for card in OF_EXERCISES for each in card.questions if each.kind == LINE]
    for each in by_line:
        options, right = each._choices()
        longest += len(options[right]) == max(map(len, options))
    assert len(by_line) >= 200 and longest < 0.3 * len(by_line)


def test_what_is_shown_has_neither_comments_nor_empty_lines_and_can_be_run():
    for card in OF_EXERCISES:
        for each in card.questions:
            assert isinstance(each, Question)
            assert "#" not in re.sub(r"(['\"]).*?\1", "", each.code) and "\n\n" not in each.code
            ast.parse(each.code)


@pytest.mark.parametrize("card", OTHERS, ids=lambda card: card.name)
def test_a_lessons_own_drills_have_different_options_and_show_no_more_than_the_lecture(card):
    solved = [exercise.solution_body for exercise in course.exercises_of(card.assignment)]
    lecture = (course.lesson(card.assignment).folder / "lecture.py").read_text("utf-8")
    for each in card.questions:
        assert len(set(each.options)) == len(each.options) == 4 and each.table and each.why
        told = [option for option in each.options if any(option in body for body in solved)]
        assert all(re.sub(r"^\w+", "", option) in lecture for option in told)
    assert len({each.right for each in card.questions}) == 4  # in no place that could be learned


def test_the_masks_are_those_of_the_lectures_zoo():
    source = (course.lesson("a06").folder / "lecture.py").read_text("utf-8")
    zoo = source.partition("figures.mask_zoo({\n    \"bidirectional")[2].partition("})")[0]
    titles = re.findall(r'^ *"(.*?)": \(', '    "bidirectional' + zoo, re.MULTILINE)
    assert [title.replace("\\n", " ") for title in titles] == list(masks.ZOO)
