"""The question bank, read as a student reads it: of each question's options one is true, by running what is printed."""

import inspect
import random
import re
from collections import Counter

import pytest
import torch

from attncourse_lessons import course
from lessonkit.authoring.questions import bank
from lessonkit.authoring.questions.generate import picture
from lessonkit.authoring.questions.question import NotOne, Option, Question, ask
from lessonkit.exercises import drill
from lessonkit.exercises.judge import judge, observe_known

LESSONS = [lesson.number for lesson in course.lessons]
READ = ["00", "05", "06"]  # without --all
OTHER_SEEDS = (2, 3)  # than those that the questions were made on
BLOCK = re.compile(r"```text\n(.*?)\n```", re.DOTALL)


@pytest.fixture(scope="module", params=LESSONS)
def of_lesson(request):
    if request.param not in READ and not request.config.getoption("all"):
        pytest.skip("read with --all")
    return bank.questions(course, [request.param], seed=0)


def test_a_lesson_has_ten_generated_questions_and_at_least_five_written_ones(of_lesson):
    assert sum(question.generated for question in of_lesson) == bank.OF_A_LESSON
    assert sum(not question.generated for question in of_lesson) >= 5
    assert len({question.name for question in of_lesson}) == len(of_lesson)
    for question in of_lesson:
        assert question.minutes > 0 and question.points > 0
        assert len(question.options) == 4 and all(option.reason for option in question.options)
        words = re.sub(r"```.*?```|`[^`]*`", "", question.prompt, flags=re.DOTALL)
        assert "$" not in words and not re.search(r"@[a-z]", words)


def test_of_the_generated_options_one_is_true(of_lesson):
    asked = Counter()
    for question in of_lesson:
        exercise, _, kind = question.name.rpartition("-")[0].rpartition("-")
        if question.generated and kind in KINDS:
            true = KINDS[kind](course.exercise(exercise), question)
            assert [place for place, holds in enumerate(true) if holds] == [question.right], (question.name, true)
            asked[kind] += 1
    assert sum(asked.values()) >= 8 and len(asked) >= 4


def gap(exercise, question):
    """With which option in the gap the check gives everything."""
    code = BLOCK.findall(question.prompt)[-1]
    return [not fails(exercise, code.replace("________", line(option.text))) for option in question.options]


def cause(exercise, question):
    """With which option in its line the check gives the card."""
    numbered = BLOCK.findall(question.prompt)[-1].splitlines()
    lines = [each[4:] for each in numbered]
    card = set(re.findall(r"^- ✗ \*\*(.*?)\*\*", question.prompt, re.MULTILINE))
    assert card
    found = []
    for option in question.options:
        at = int(re.match(r"line (\d+): ", option.text)[1]) - 1
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        changed = [*lines[:at], indent + line(option.text.partition(": ")[2]), *lines[at + 1 :]]
        found.append(fails(exercise, "\n".join(changed)) == card)
    return found


def shows(exercise, question):
    """Which option names the aspects that fail."""
    seen = fails(exercise, BLOCK.findall(question.prompt)[-1])
    return [set(re.findall(r"\*\*(.*?)\*\*", option.text)) == seen for option in question.options]


def wrong_line(exercise, question):
    """Which option is no line of the solution, where the code is wrong."""
    assert fails(exercise, BLOCK.findall(question.prompt)[-1])
    right = [each.strip() for code in known(exercise) for each in code.splitlines()]
    return [line(option.text) not in right for option in question.options]


def drawn(exercise, question):
    """Which option is the table that the code makes."""
    code = BLOCK.findall(question.prompt)[-1]
    told = re.findall(r"`(\w+)` = `(.*?)`", question.prompt.partition("With ")[2])
    given = {name: torch.tensor(value) if isinstance(value := eval(text), list) else value for name, text in told}
    made = picture(answer(exercise, code), given)
    assert made
    return [option.text == made for option in question.options]


KINDS = {"complete": gap, "cause": cause, "shows": shows, "line": wrong_line, "picture": drawn}


def known(exercise):
    return {drill.shown(exercise, drill.body_of(slip.base)) for slip in drill.slips(exercise)}


def answer(exercise, code):
    return drill.made(exercise, exercise.solution, code, "<a question>")


def fails(exercise, code):
    """The aspects that fail on inputs which the question was not made on."""
    made = answer(exercise, code)
    found = [judge(exercise, observe_known(exercise, made, seed), seed, name=False) for seed in OTHER_SEEDS]
    sets = [{each.name for each in verdict.aspects if not each.ok} for verdict in found]
    assert sets[0] == sets[1], code
    return sets[0]


def line(text):
    return text.strip("`")


def test_the_written_ones_come_out_well_for_every_seed_and_vary_with_it():
    for lesson in course.lessons:
        varied = Counter()
        for seed in range(8):
            for question in bank.written(course, lesson, seed):
                varied[question.name, question.prompt, tuple(sorted(option.text for option in question.options))] += 1
        variants = Counter(name for name, _, _ in varied)
        assert len(variants) >= 5
        assert sum(count > 1 for count in variants.values()) >= 3, (lesson.number, variants)


def test_a_written_question_is_a_function_of_the_draw_alone():
    for lesson in course.lessons:
        module = course.part(lesson.name, "questions")
        for name, function in list(vars(module).items()):
            if inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_"):
                assert list(inspect.signature(function).parameters) == ["lots"]
        assert list(bank.written(course, lesson, 5)) == list(bank.written(course, lesson, 5))


def test_each_seed_asks_about_other_mistakes_and_the_same_seed_about_the_same():
    first, again, other = (bank.questions(course, ["04"], seed) for seed in (0, 0, 1))
    assert first == again
    names = [{question.name for question in each if question.generated} for each in (first, other)]
    assert len(names[0] & names[1]) <= 5


def test_nothing_is_guessed_from_place_or_length(of_lesson, guessed):
    for question in of_lesson:
        lengths = [len(option.text) for option in question.options]
        guessed["first"] += question.right == 0
        guessed["longest"] += question.right == lengths.index(max(lengths))
        guessed["shortest"] += question.right == lengths.index(min(lengths))
        guessed["all"] += 1
    if guessed["all"] >= 60:  # of one lesson it may be chance
        assert all(guessed[way] < 0.42 * guessed["all"] for way in ("first", "longest", "shortest")), guessed


@pytest.fixture(scope="module")
def guessed():
    return Counter()


def test_two_true_options_or_none_or_two_alike_are_refused():
    def of(*options):
        return Question("00", "q", "?", tuple(Option(text, right, "why") for text, right in options), 1, 1, False)

    assert of(("a", True), ("b", False)).right == 0
    for bad in ([("a", True), ("b", True)], [("a", False), ("b", False)], [("a", True), ("a", False)]):
        with pytest.raises(NotOne, match="00 q"):
            of(*bad)
    with pytest.raises(NotOne, match="3 options"):
        ask("?", ("a", True, ""), ("b", False, ""), ("c", False, ""))
    shuffled = {ask("?", *((text, text == "a", "") for text in "abcd")).question("00", "q", random.Random(seed)).right
                for seed in range(20)}  # fmt: skip
    assert shuffled == {0, 1, 2, 3}
