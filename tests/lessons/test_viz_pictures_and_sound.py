"""Pictures of patches, looks and spans say in words what they show."""

import pytest
import torch

from attncourse import viz


@pytest.fixture
def alt(monkeypatch):
    said = []
    monkeypatch.setattr("attncourse_lessons.l12_beyond_text.figures.show", lambda drawn, words: said.append(words))
    return said


def test_a_picture_that_is_cut_tells_how_many_patches_there_are(alt):
    viz.picture_to_sequence(torch.rand(8, 8), 2)
    viz.picture_to_sequence(torch.rand(4, 8), 4)
    assert "cut into 16 patches of 2 by 2" in alt[0] and "The 17 rows" in alt[0]
    assert "cut into 2 patches of 4 by 4" in alt[1] and "The 3 rows" in alt[1]
    with pytest.raises(ValueError, match="patch: got 3"):
        viz.picture_to_sequence(torch.rand(8, 8), 3)


def test_where_was_looked_is_said_by_row_and_column(alt):
    table = torch.zeros(4, 4)
    table[1, 2] = 0.8
    viz.looking([torch.rand(8, 8)], {"rollout": [table]}, ["a 3"])
    assert "a 3: rollout most at (2, 3)" in alt[0]
    _, words = viz.looking_frame(torch.rand(8, 8), table, asking=5, title="head 1")
    assert words == "head 1: of 80% that the patch in row 2, column 2 gives to patches, most goes to (2, 3)."


def test_maps_of_positions_compare_places_side_by_side_with_those_apart(alt):
    side = torch.arange(9) % 3
    line = torch.arange(9) // 3
    beside = ((side[:, None] - side).abs() + (line[:, None] - line).abs()) == 1
    viz.position_maps(beside.float(), side=3)
    assert "cosine of 1.00 on average, those further apart of 0.00" in alt[0]


def test_a_frame_of_spans_tells_the_share_and_the_longest_stretch():
    mask = torch.tensor([[True, True, False, True], [False, True, True, True]])
    _, words = viz.span_frame(mask, 0.5, "spans")
    assert "2 sounds of 4 frames" in words and "hidden: 75%" in words and "stretch has 3 frames" in words


def test_the_use_of_codes_names_the_most_used(alt):
    viz.codes_used({"even": torch.full((4,), 0.25), "one": torch.tensor([0.0, 1.0, 0.0, 0.0])})
    assert "even: the most used entry has 25%, 4 of 4" in alt[0]
    assert "one: the most used entry has 100%, 1 of 4" in alt[0]


def test_a_sound_and_the_game_say_what_they_show(alt):
    viz.sound(torch.randn(800), torch.randn(4, 101), [(0.0, 0.05, "hod"), (0.05, 0.1, "heed")], 8000, 200)
    viz.hide_and_guess()
    viz.pictures([torch.rand(8, 8)] * 2, ["one", "two"])
    assert "hod, heed" in alt[0] and "4 frames" in alt[0]
    assert "own code q5" in alt[1] and alt[2] == "2 pictures of 8 by 8 pixels: one, two."
