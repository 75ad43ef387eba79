"""Drawings of recurrence join what feeds what, and lines go through what was measured."""

import pytest
from drawn import arrows, axes, boxed, cells, curves, joined, labels, places, strokes, texts
from proven import proven

from attncourse import viz
from attncourse_lessons import course

figures = course.part("bottleneck", "figures")


@proven
def test_each_state_of_an_unrolled_network_reads_a_token_and_guesses_the_next():
    (ax,) = axes(figures.unrolled_rnn, ["<bos>", "Return", "the", "lamp"])
    assert joined(ax) == [
        ("$h_0$", "$h_1$"), ("<bos>", "$h_1$"), ("$h_1$", "Return"),
        ("$h_1$", "$h_2$"), ("Return", "$h_2$"), ("$h_2$", "the"),
        ("$h_2$", "$h_3$"), ("the", "$h_3$"), ("$h_3$", "lamp"),
    ]  # fmt: skip
    assert boxed(ax) == ["$h_1$", "$h_2$", "$h_3$"]
    below = places(ax, "<bos>", "is read")
    assert below["<bos>"][1] == below["is read"][1] and places(ax, "lamp")["lamp"][1] > below["<bos>"][1]


GATES = {
    "LSTM": [("$c_{t-1}$", "×"), ("×", "+"), ("+", "$c_t$"), ("$f$", "×"), ("$i$", "+"), (r"$\tilde c$", "+"),
             ("$o$", r"$h_t = o \circ \tanh c_t$")],
    "GRU": [("$h_{t-1}$", "×"), ("×", "+"), ("+", "$h_t$"), ("$z$", "×"), ("$1-z$", "+"), (r"$\tilde h$", "+")],
}  # fmt: skip


@proven
def test_gates_are_multiplied_into_the_old_state_and_the_candidate():
    panels = {ax.get_title(): ax for ax in axes(figures.lstm_and_gru)}
    assert [*panels] == [*GATES]
    for name, ax in panels.items():
        assert set(GATES[name]) <= set(joined(ax))
        inner = {box for pair in GATES[name] for box in pair} & set(boxed(ax))
        assert len(inner) == len(boxed(ax)) and {"×", "+"} < inner
        # One line carries the input and the old h below all gates and the candidate, with an arrow up to each.
        ((left, right),) = strokes(ax)
        gates = [x for words, x, y in texts(ax) if y == 2.6 and words in boxed(ax)]
        assert [left, right] == [(min(gates), 1.2), (max(gates), 1.2)]
        assert [start for start, _ in arrows(ax) if start[1] == 1.2] == [(x, 1.2) for x in gates]


@proven
def test_a_signal_walks_through_every_cell_or_straight_to_the_end():
    recurrent, attention = axes(figures.signal_path, 4, 2)
    assert recurrent.get_title() == "recurrent: the signal goes through 3 cells; 4 steps, one after the other"
    assert attention.get_title().startswith("attention: the signal goes through 1 average; 1 step")
    steps = [("1", "2"), ("2", "3"), ("3", "4")]
    assert sorted(joined(recurrent)) == sorted([*steps, *((f"$x_{{{t}}}$", f"{t}") for t in (1, 2, 3, 4))])
    assert lit(recurrent) == ["2", "3", "4"]
    assert sorted(end for _, end in arrows(attention)) == [(3, 1.05)] * 4
    assert sorted(start for start, _ in arrows(attention)) == [(t, 0.15) for t in range(4)]
    assert [words for words, *_ in texts(attention)[:4]] == ["1"] * 4
    assert [left for left, *_ in lit_cells(attention)] == [pytest.approx(2.7)]
    for ax in (recurrent, attention):
        assert places(ax, *(f"$x_{{{t + 1}}}$" for t in range(4))) == {f"$x_{{{t + 1}}}$": (t, -0.15) for t in range(4)}


def lit_cells(ax):
    return [place for place, (colour, _) in cells(ax).items() if colour != "#ffffff"]


def lit(ax):
    """The words in coloured boxes."""
    return [words for words, x, y in texts(ax) for left, low, width, height in lit_cells(ax)
            if left < x < left + width and low < y < low + height]  # fmt: skip


@proven
def test_measured_lines_have_a_tick_and_a_point_where_something_was_measured():
    lines = {"a": {100: 900.0, 200: 30.0, 4000: 50.0}, "b": {100: 50.0, 4000: 7.0}}
    (ax,) = axes(viz.line_plot, lines, "order", "perplexity", log_x=True, log_y=True, low=1)
    assert curves(ax) == {"a": {"100": 900, "200": 30, "4,000": 50}, "b": {"100": 50, "4,000": 7}}
    assert labels(ax.xaxis) == {100: "100", 200: "200", 4000: "4,000"}
    assert (ax.get_xscale(), ax.get_yscale(), ax.get_ylim()[0]) == ("log", "log", 1)
