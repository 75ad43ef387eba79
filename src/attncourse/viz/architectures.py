"""Whole models as drawings: an encoder and a decoder, with attention and without."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from attncourse.viz.diagrams import arrow, box
from attncourse.viz.figures import check_shares
from attncourse.viz.style import BLUE, GREEN, GREY, INK, ORANGE, PALE, check_places, figure, show, stage


def encoder_decoder(
    attention: bool = True,
    source: Sequence[str] = ("ninety-", "one"),
    target: Sequence[str] = ("ein", "und", "neunzig"),
    bidirectional: bool = False,
    step: int = 1,
    weights: ArrayLike | None = None,
    alt: str = "",
) -> None:
    """An encoder reads `source`, a decoder writes `target`; between them one vector, or a context vector a token.

    Without attention the encoder's last state is the context vector c, and all that the decoder gets. With attention
    each step t has a context vector c_t of its own, an average of all encoder states; the one of `step` (from 1) is
    drawn boldly, its arrows as thick as `weights` (n_source; all equal where they are not given). `bidirectional`
    encoders hand states along in both directions. Raises ValueError for a step that is not there, and for weights that
    are not one a source token or no shares: NaN, or not summing to 1.
    """
    n, m = len(source), len(target)
    check_places(source=n, target=m)
    shares = np.full(n, 1 / n) if weights is None else np.asarray(weights, dtype=float)
    if not 1 <= step <= m + 1:
        raise ValueError(f"step: got {step}, expected one from 1 to {m + 1}, a token of the target or <eos>")
    if shares.shape != (n,):
        raise ValueError(f"weights: got shape {shares.shape}, expected {(n,)}, one a source token")
    check_shares("weights", shares)
    wide = 2.1
    encoder = [wide * i for i in range(n)]
    middle = wide * n + 0.2
    decoder = [middle + 2.4 + wide * t for t in range(m + 1)]
    top = 6.4 if attention else 4.3
    drawn, ax = figure(0.62 * (decoder[-1] + 2.4), 0.62 * (top + 1.65))
    stage(ax, (-1.2, decoder[-1] + 1.2), (-1.15, top + 0.5))

    def state(x: float, label: str, read: str, colour: str) -> None:
        ax.text(x, 0.0, read, ha="center", va="center", fontsize=10.5, color=INK)
        arrow(ax, (x, 0.35), (x, 1.35))
        box(ax, x, 1.9, label, colour)

    for i, (x, word) in enumerate(zip(encoder, source, strict=True), start=1):
        state(x, f"$h_{{{i}}}$", word, BLUE)
    for left, right in pairwise(encoder):
        arrow(ax, (left + 0.6, 1.9), (right - 0.6, 1.9), both=bidirectional)
    bottleneck = ORANGE if not attention else GREEN
    box(ax, middle, 1.9, "$s_0$" if attention else "$c$", bottleneck, width=0.9)
    arrow(ax, (encoder[-1] + 0.6, 1.9), (middle - 0.5, 1.9), bottleneck, 2.4 if not attention else 1.2)
    arrow(ax, (middle + 0.5, 1.9), (decoder[0] - 0.6, 1.9), bottleneck, 2.4 if not attention else 1.2)
    for t, (x, read, written) in enumerate(zip(decoder, ("<bos>", *target), (*target, "<eos>"), strict=True), start=1):
        state(x, f"$s_{{{t}}}$", read, GREEN)
        ax.text(x, top, written, ha="center", va="center", fontsize=10.5, color=INK, fontweight="bold")
        if attention:
            here = t == step
            colour = ORANGE if here else PALE
            for h, share in zip(encoder, shares, strict=True):
                arrow(ax, (h, 2.45), (x - 0.98, 3.95), colour, 0.8 + 4 * share if here else 0.8)
            arrow(ax, (x - 0.5, 2.45), (x - 0.5, 3.75), GREEN if here else PALE, 1.6)
            if here:
                ax.text(x - 0.03, 3.1, "query", ha="center", va="center", fontsize=9, color=GREEN)
            box(ax, x - 0.5, 4.3, f"$c_{{{t}}}$", ORANGE if here else GREY, width=0.9, fill=None if here else "white")
            arrow(ax, (x - 0.5, 4.85), (x - 0.25, 6.05), colour if here else GREY)
            arrow(ax, (x + 0.4, 2.45), (x + 0.4, 6.05))
        else:
            arrow(ax, (x, 2.45), (x, 3.95))
    for left, right in pairwise(decoder):
        arrow(ax, (left + 0.6, 1.9), (right - 0.6, 1.9), GREEN)
    for xs, name, colour in ((encoder, "encoder", BLUE), (decoder, "decoder", GREEN)):
        ax.text((xs[0] + xs[-1]) / 2, -0.85, name, ha="center", va="center", fontsize=11, color=colour)
    if attention:
        at = decoder[step - 1] - 0.5
        ax.text((encoder[0] + at) / 2 - 0.6, 4.5, "attention: an average\nof all encoder states", ha="center",
                va="bottom", fontsize=10.5, color=ORANGE)  # fmt: skip
    else:
        ax.text(middle, 2.75, "context vector:\nall that is\nhanded over", ha="center", va="bottom", fontsize=10.5,
                color=ORANGE)  # fmt: skip
    order = ", then ".join(target)
    states = f"An encoder reads {' '.join(source)} into the states h1 to h{n}"
    states += ", from both sides" if bidirectional else ""
    if attention:
        said = ", ".join(f"h{i} {share:.2f}" for i, share in enumerate(shares, start=1))
        between = (
            f"From s0 the decoder goes through the states s1 to s{m + 1}. At each step t its state asks, and an "
            f"average of all encoder states, the context vector c_t, comes back; for step {step} it is {said}. State "
            f"and context vector together give {order}, and the end."
        )
    else:
        between = (
            f"Its last state h{n} is the context vector c, the one vector that is handed over. From it the decoder "
            f"goes through the states s1 to s{m + 1}, which give {order}, and the end."
        )
    show(drawn, alt or f"{states}. {between} Each decoder step reads the token before.")
