"""The picture of a run is drawn as it goes, and says in words what it shows."""

import pytest

from attncourse.training import curves as live
from attncourse.training.recipe import Recipe
from attncourse.training.trainer import Progress, Step


def progress(steps, ended="", scores=()):
    losses = [Step(step, 4.0 / step, 1e-3, 1.0) for step in range(1, steps + 1)]
    return Progress(Recipe(steps=40), losses, list(scores), ended=ended)


def test_the_words_say_how_far_it_is_what_the_loss_did_and_each_score():
    scores = [{"step": 10, "exact": 0.25}, {"step": 20, "exact": 0.875}]
    _, alt = live.progress_figure(progress(20, scores=scores), "exact")
    assert alt.startswith("20 of 40 steps so far: training loss from 4.00 to 0.20 nats a token.")
    assert alt.endswith("exact on the validation pairs: 0.25 at step 10, 0.875 at step 20.")
    for ended, said in (("steps", "and done"), ("patience", "as it got no better"), ("interrupted", "by hand")):
        assert said in live.progress_figure(progress(40, ended), "exact")[1]


def test_a_run_without_a_step_has_no_picture():
    with pytest.raises(ValueError, match="got a run without a step"):
        live.progress_figure(progress(0), "exact")


def test_one_picture_is_drawn_again_in_its_place_not_too_often_and_at_the_end(monkeypatch):
    events = []

    class Handle:
        def update(self, data, **rest):
            events.append(("update", data["text/plain"]))

    def display(data, **rest):
        events.append(("display", data["text/plain"]))
        return Handle()

    monkeypatch.setattr(live, "display", display)
    listener = live.LiveCurves("exact", seconds=1000)
    for step in (1, 2, 3):
        listener(progress(step))
    listener(progress(4, ended="steps"))
    assert [kind for kind, _ in events] == ["display", "update"]
    assert "4 of 40 steps and done" in events[-1][1]
