"""The drawing of an encoder and a decoder joins what feeds what."""

from itertools import pairwise

import numpy as np
from drawn import axes, boxed, joined, places, strokes
from proven import proven

from attncourse_lessons import course

figures = course.part("cross_attention", "figures")


@proven
def test_a_decoding_step_goes_from_the_words_by_scores_and_weights_to_the_next_token():
    (ax,) = axes(figures.encoder_decoder)
    words, states = ["ninety-", "one", ",", "two"], [f"$h_{i}$" for i in (1, 2, 3, 4)]
    scores, weights = ["0.3", "3.1", "−0.9", "0.6"], ["0.05", "0.86", "0.02", "0.07"]
    columns = zip(words, states, scores, weights, ["$a_t$"] * 4, strict=True)
    ways = [step for column in columns for step in pairwise(column)]
    assert set(joined(ax)) == {
        *ways, *pairwise(states),
        ("$s_{t-1}$", "$s_t$"), (r"token before, $\tilde a_{t-1}$", "$s_t$"), ("$s_t$", r"$[a_t;\, s_t]$"),
        ("$a_t$", r"$[a_t;\, s_t]$"), (r"$[a_t;\, s_t]$", r"$\tilde a_t$"), (r"$\tilde a_t$", "next token: ein"),
    }  # fmt: skip
    assert boxed(ax) == [
        *(box for column in zip(states, scores, weights, strict=True) for box in column),
        "$a_t$", "$s_t$", r"$[a_t;\, s_t]$", r"$\tilde a_t$",
    ]  # fmt: skip
    shares = np.exp([0.3, 3.1, -0.9, 0.6])
    assert [f"{share:.2f}" for share in shares / shares.sum()] == weights
    # The query meets every encoder state, on a line between the states and the scores.
    at = places(ax, "$h_1$", "0.3", "$s_t$", "one")
    down, across = strokes(ax)
    assert down[0] == (at["$s_t$"][0], 2.45) and down[1] == across[1]
    assert across[0][0] == at["$h_1$"][0] < at["one"][0] < across[1][0]
    assert at["$h_1$"][1] < across[0][1] == across[1][1] < at["0.3"][1]
