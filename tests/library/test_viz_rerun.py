"""Who runs a cell again finds its widgets as they left them; who builds the notebook finds them at their start."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from attncourse import viz
from attncourse_lessons import course
from attncourse_lessons.errata import erratum

pattern_pad = course.part("cheap_attention", "pattern_pad")
review_game = course.part("errata_lab", "review_game")

WEIGHTS = torch.full((2, 3, 4, 4), 0.25)
WORDS = list("abcd")


def draw(height, colour="blue"):
    return viz.figure(1, 1)[0], f"a {colour} line that rises to {height}"


def explorer(start=2, heights=(1, 2, 3)):
    return viz.explore(draw, start={"height": start}, height=heights, colour=["blue", "red"])


WIDGETS = {
    "viewer": (
        lambda: viz.attention_viewer(WEIGHTS, WORDS),
        {"view": "all", "layer": 1, "head": None, "threshold": 0.2, "pinned": ["key", 2]},
    ),
    "pad": (lambda: pattern_pad.pattern_pad(n=4), {"rows": ["1000", "0100", "0010", "1111"], "asking": 0}),
    "slider and buttons": (explorer, {"chosen": ["3", "blue"]}),
    "drill": (
        lambda: viz.shape_drill([viz.Question({"x": (2, 3)}, "x.mT", ["(2, 3)"], "why")] * 2),
        {"answers": ["(3, 2)", ""], "at": 1},
    ),
    "game": (
        lambda: review_game.review_game([erratum("i > i"), erratum("unit mean")]),
        {"asked": ["shapes", ""], "judged": ["", "definite"], "at": 1},
    ),
    "steps": (lambda: viz.step_through(WEIGHTS[0, 0], WORDS, WORDS), {"chosen": ["3: c"]}),
}


def move(widget, to):
    for name, value in to.items():
        setattr(widget, name, value)


def stands(widget, like):
    return {name: getattr(widget, name) for name in like}


@pytest.fixture
def run(monkeypatch):
    """Run code as a cell of JupyterLab's, or of a notebook that is executed without it."""
    requests = itertools.count()
    monkeypatch.setattr("attncourse.viz.live_widget._runs", {})

    def run_cell(code, cell="a cell"):
        message = {"header": {"msg_id": str(next(requests))}, "metadata": {"cellId": cell} if cell else {}}
        kernel = SimpleNamespace(get_parent=lambda: message)
        monkeypatch.setattr("attncourse.viz.live_widget.get_ipython", lambda: kernel)
        return code()

    return run_cell


@pytest.mark.parametrize(("make", "moved"), WIDGETS.values(), ids=WIDGETS)
def test_a_cell_that_is_run_again_goes_on_where_the_reader_left_it(run, make, moved):
    start = stands(make(), moved)
    move(run(make), moved)
    assert stands(run(make, "another cell"), moved) == start != moved
    again = run(make)
    assert stands(again, moved) == moved
    assert stands(run(make), moved) == moved


@pytest.mark.parametrize(("make", "moved"), WIDGETS.values(), ids=WIDGETS)
def test_a_notebook_that_is_built_shows_the_start_however_often_a_cell_is_run(run, make, moved):
    first = run(make, cell=None)
    start = stands(first, moved)
    move(first, moved)
    assert stands(run(make, cell=None), moved) == start != moved


def test_the_picture_that_is_saved_is_that_of_what_the_reader_left(run):
    run(explorer).chosen = ["3", "blue"]
    assert run(explorer).still()[1] == "a blue line that rises to 3"


def test_several_widgets_of_a_cell_are_told_apart(run):
    def two():
        return pattern_pad.pattern_pad(n=4), pattern_pad.pattern_pad(n=4)

    first, second = run(two)
    second.asking = 0
    first.asking = 1
    assert [pad.asking for pad in run(two)] == [1, 0]


def test_a_start_that_was_edited_counts_and_what_else_was_left_stays(run):
    left = run(lambda: viz.attention_viewer(WEIGHTS, WORDS))
    left.layer, left.head = 1, 2
    again = run(lambda: viz.attention_viewer(WEIGHTS, WORDS, head=1))
    assert (again.layer, again.head) == (1, 1)


def test_what_cannot_stand_where_it_was_left_is_at_its_start(run):
    run(explorer).chosen = ["1", "red"]
    assert run(lambda: explorer(heights=(2, 3))).chosen == ["2", "red"]
    run(lambda: viz.attention_viewer(WEIGHTS, WORDS), "viewer").head = 2
    assert run(lambda: viz.attention_viewer(WEIGHTS[:, :1], WORDS), "viewer").head == 0
    pad = run(lambda: pattern_pad.pattern_pad(n=4, asking=1), "pad")
    pad.rows = ["1111"] * 4
    assert run(lambda: pattern_pad.pattern_pad(n=5, asking=1), "pad").mask.shape == (5, 5)


def test_a_cell_that_now_builds_another_widget_builds_it_at_its_start(run):
    run(lambda: viz.attention_viewer(WEIGHTS, WORDS)).layer = 1
    assert run(lambda: pattern_pad.pattern_pad(n=4)).asking == 2
