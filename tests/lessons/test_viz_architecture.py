"""Figures of blocks and of results say in words what they show."""

import pytest

from attncourse import viz
from attncourse_lessons.l09_transformer.figures import KINDS, block_lines


@pytest.mark.parametrize("kind", KINDS)
def test_every_line_of_a_block_ends_in_an_x_or_h_of_one_shape(kind):
    for line in block_lines(kind, batch=4, n=7, n_memory=5, d=64, heads=8, d_ff=256):
        assert line.shapes.endswith(("x (4, 7, 64)", "h (4, 7, 64)"))


def test_only_a_decoder_looks_at_a_memory():
    looking = {kind for kind in KINDS if any("memory" in line.code for line in block_lines(kind, 2, 3, 4, 8, 2, 16))}
    assert looking == {"decoder"}


def test_a_frame_names_its_line_and_its_shapes_and_all_are_done_past_the_last():
    assert "line 4 of 6: x = x + cross(h, memory, m_mask). memory (4, 5, 64); weights (4, 8, 7, 5)" in (
        viz.block_frame("decoder", 4)[1]
    )
    assert "all lines done" in viz.block_frame("encoder", 5)[1]


def test_another_kind_of_block_is_refused():
    with pytest.raises(ValueError, match="kind: got 'both'"):
        viz.block_frame("both", 1)


def test_the_towers_say_where_the_memory_goes(shown):
    viz.towers(2)
    assert "goes to each of the 2 blocks of the decoder" in shown[0]


def test_points_ranks_and_differences_are_read_out(shown):
    viz.labelled_points({"one": {"Transformer": (1e18, 27.3), "ByteNet": (1e20, 23.75)}}, "FLOPs", "BLEU")
    viz.ranking([("T5", 90.3)], "score")
    viz.differences({"here": {"RoPE": (-0.15, 0.02), "GELU": (0.01, 0.02)}})
    assert "one: Transformer 27.3 at 1e+18; ByteNet 23.75 at 1e+20" in shown[0]
    assert "T5 90.3" in shown[1]
    assert "RoPE −0.150 ± 0.020; GELU +0.010 ± 0.020" in shown[2]
