"""Figures of norms, wirings and gradients say in words what they show, counted from what they were given."""

import pytest
import torch

from attncourse import viz


def test_norm_steps_say_where_the_vectors_were_and_where_they_go(shown):
    viz.norm_steps(torch.tensor([[1.0, 1.0, 4.0], [-3.0, 0.0, 0.0]]))
    assert "2 vectors of three numbers" in shown[0]
    assert "between -1.7 and 3.5 along the direction (1, 1, 1)" in shown[0]
    assert "they lie 2.4 to 2.4 from the middle" in shown[0] and "circle of radius 1.73" in shown[0]


def test_norm_steps_refuse_vectors_that_no_plane_shows():
    with pytest.raises(ValueError, match=r"points: got shape \(5, 4\), expected \(m, 3\)"):
        viz.norm_steps(torch.randn(5, 4))


def test_wirings_are_read_out_step_by_step(shown):
    viz.wiring({"post": ["attention", "norm"], "pre": ["norm → attention"], "plain": ["only attention"]})
    assert "post: attention of x added to x, then a norm on the way of x." in shown[0]
    assert "pre: attention of a normalised x added to x." in shown[0]
    assert "plain: attention in place of x." in shown[0]


def test_a_gradient_that_explodes_is_shown_and_said():
    drawn, words = viz.gradient_flow([1.5, 3.0, 2e11], [float("inf"), 20.0], "residual, 2 deep")
    assert "x goes from size 1.5 to 2e+11" in words and "20 in the last block and inf in the first" in words
    assert [text.get_text() for text in drawn.axes[1].texts] == ["∞", "20"]


def test_frames_of_the_gradient_flow_have_the_same_axes():
    still, moved = (viz.gradient_flow([1.0, size], [size, 1.0])[0] for size in (1e-7, 1e7))
    assert [ax.get_ylim() for ax in still.axes] == [ax.get_ylim() for ax in moved.axes]


def test_landscapes_say_how_much_of_them_is_low(shown):
    side = torch.linspace(-1, 1, 5)
    bowl = 2 * (side[:, None] ** 2 + side**2) + 0.01
    viz.landscapes({"bowl": (side, bowl), "plain": (side, torch.full((5, 5), 0.05))})
    assert "bowl: 0.01 in the middle, at most 4; below 0.1 in 4% of it" in shown[0]
    assert "plain: 0.05 in the middle, at most 0.05; below 0.1 in 100% of it" in shown[0]


def test_runs_are_read_out_by_group(shown):
    viz.runs({"right": [0.25, 0.5], "wrong": [0.125]}, "loss")
    assert shown[0] == "loss, one mark a run, an upright line at each mean. right: 0.250, 0.500; wrong: 0.125."


def test_one_vector_normalised_in_several_ways_says_its_largest_numbers():
    _, words = viz.normed_vector({"inside": torch.tensor([-1.0, 1.0]), "none": torch.tensor([-2.0, 1.5])}, "a vector")
    assert words == "The numbers of a vector. The largest of them: inside 1.00, none 1.50."
