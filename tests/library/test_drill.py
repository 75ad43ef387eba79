"""A drill asks for shapes that torch says, and takes answers that it offered."""

import pytest
import torch
from drawn import axes, texts
from proven import proven
from traitlets import TraitError

from attncourse import viz
from attncourse_lessons import course

MEAN = viz.Question({"x": (2, 3, 4)}, "x.mean(dim=1)", ["(2, 3)", "(3, 4)"], "dim names the axis that goes.")
ERROR = viz.Question({"a": (3,), "b": (3, 4)}, "a - b", ["(3, 4)", "(3,)"], "Flush right.")
NONE = viz.Question({"x": (5,)}, "x.sum()", ["(1,)"], "Nothing is left.")


def test_what_is_right_is_what_torch_does():
    assert [question.right for question in (MEAN, ERROR, NONE)] == ["(2, 4)", "an error", "()"]
    widget = viz.shape_drill([MEAN, ERROR, NONE])
    for question in widget.questions:
        assert question["choices"].count(question["right"]) == 1


def test_the_right_answer_does_not_always_stand_in_one_place():
    widget = viz.shape_drill([MEAN] * 6)
    assert len({question["choices"].index("(2, 4)") for question in widget.questions}) == 3


def test_the_score_counts_the_answers_that_were_given():
    widget = viz.shape_drill([MEAN, ERROR, NONE])
    assert widget.score == (0, 0)
    widget.answers = ["(2, 4)", "(3,)", ""]
    assert widget.score == (1, 2)


def test_an_answer_that_was_not_offered_and_a_question_that_is_not_there_are_refused():
    widget = viz.shape_drill([MEAN, ERROR])
    for answers in (["(7,)", ""], [""]):
        with pytest.raises((ValueError, TraitError), match="answers: got"):
            widget.answers = answers
    with pytest.raises((ValueError, TraitError), match="at: got 2, expected a question from 0 to 1"):
        widget.at = 2


def test_bad_questions_are_refused():
    with pytest.raises(ValueError, match="questions: got none"):
        viz.shape_drill([])
    with pytest.raises(ValueError, match=r"expected different ones, and not \(2, 4\)"):
        viz.shape_drill([MEAN._replace(wrong=["(2, 4)", "(2, 3)"])])
    with pytest.raises(ValueError, match="expected different ones"):
        viz.shape_drill([MEAN._replace(wrong=["(2, 3)", "(2, 3)"])])
    with pytest.raises(NameError):
        viz.shape_drill([MEAN._replace(code="y.mean()")])


@proven
def test_the_still_picture_has_all_questions_and_the_answers_below():
    (ax,) = axes(viz.shape_drill, [MEAN, ERROR])
    said = [words for words, *_ in texts(ax)]
    assert said == [
        "given", "line", "which shape?",
        "1", "x (2, 3, 4)", "x.mean(dim=1)", "(2, 3)   (3, 4)   (2, 4)",
        "2", "a (3,), b (3, 4)", "a - b", "(3, 4)   an error   (3,)",
        "answers   1: (2, 4);  2: an error",
    ]  # fmt: skip
    heights = [y for _, _, y in texts(ax)]
    assert heights[3:7] == [0] * 4 and heights[7:11] == [1] * 4 and heights[11] > 1
    _, words = viz.shape_drill([MEAN]).still()
    assert words == (
        "A drill: say the shape. 1. x (2, 3, 4): x.mean(dim=1). (2, 3), or (3, 4), or (2, 4)? Answers: 1: (2, 4)."
    )


def test_where_the_page_tells_the_answers_the_picture_and_its_words_do_not():
    drawn, words = viz.shape_drill([MEAN], told=False).still()
    assert words == "A drill: say the shape. 1. x (2, 3, 4): x.mean(dim=1). (2, 3), or (3, 4), or (2, 4)?"
    (ax,) = drawn.axes
    assert not any("answers" in text.get_text() for text in ax.texts)


def test_the_lectures_drill_has_every_kind_of_line_and_an_error_among_them():
    questions = course.part("getting_ready", "figures").SAY_THE_SHAPE
    assert len(questions) >= 8 and "an error" in {question.right for question in questions}
    viz.shape_drill(questions)
    for question in questions:
        shapes = [shape for shape in question.shapes.values() if len(shape) > 1]
        assert all(torch.tensor(shape).unique().numel() > 1 for shape in shapes), "sizes that can be told apart"
