"""Pictures of texts on their way: the words beside them say what is drawn."""

import pytest

from attncourse import viz


@pytest.fixture
def said(monkeypatch):
    """The words of what was shown."""
    words = []
    monkeypatch.setattr("attncourse_lessons.l10_training.figures.show", lambda drawn, alt: words.append(alt))
    return words


def test_the_pieces_of_each_word_are_named_and_counted():
    _, words = viz.pieces_frame({"undzehn": ["und", "ze", "hn"], "ab": ["ab"]}, "after 3 merges")
    assert words == "after 3 merges. Words cut into pieces. undzehn: und | ze | hn (3); ab: ab (1)."


def test_padding_is_counted_as_a_share_of_the_rectangles(said):
    viz.packed({"one": [[2, 4], [3, 3]], "other": [[5]]})
    assert "one: 14% of the rectangles is padding; they are 2 × 4, 2 × 3" in said[0]
    assert "other: 0% of the rectangles is padding" in said[0]


def test_a_search_says_what_it_kept_and_what_it_chose():
    tree = {("a",): 0.6, ("b",): 0.4, ("a", "x"): 0.3, ("b", "y"): 0.4}
    _, words = viz.search_frame(tree, {("b",), ("b", "y")}, ("b", "y"), "one beam")
    assert words == "one beam. Kept on the way: b (0.400), b y (0.400). Chosen: b y, probability 0.400."


def test_the_peak_of_each_schedule_is_named(said):
    viz.learning_rates({"up and down": [0.1, 0.3, 0.2]})
    assert said == ["Learning rate against the step. up and down is highest at step 2, 0.3, and ends at 0.2."]
