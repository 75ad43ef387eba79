"""Whole models as drawings: an encoder and a decoder, with attention and without, and the Transformer."""

from collections.abc import Mapping, Sequence
from itertools import pairwise, product

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from numpy.typing import ArrayLike

from attncourse._checks import check_one_of
from attncourse.viz.diagrams import arrow, box, rgb
from attncourse.viz.figures import check_shares
from attncourse.viz.style import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    Link,
    check_places,
    figure,
    hold_still,
    show,
    show_linked,
    stage,
)

FAINT = "#949494"  # thin lines that stay behind, but can be seen on white


def encoder_decoder(
    attention: bool = True,
    source: Sequence[str] = ("ninety-", "one"),
    target: Sequence[str] = ("ein", "und", "neunzig"),
    bidirectional: bool = False,
    step: int = 1,
    weights: ArrayLike | None = None,
    named: bool = False,
    alt: str = "",
) -> None:
    """An encoder reads `source`, a decoder writes `target`; between them one vector, or a context vector a token.

    Without attention the encoder's last state is the context vector c, and all that the decoder gets. With attention
    each step t has a context vector c_t of its own, an average of all encoder states, which is joined with the state
    s_t to the vector s̃_t that predicts the token; the c_t of `step` (from 1) is drawn boldly, its arrows as thick as
    `weights` (n_source; all equal where they are not given), which are written on them. `bidirectional` encoders hand
    states along in both directions. With attention, `named` writes beside each kind of vector what it is called. Raises
    ValueError for a step that is not there, and for weights that are not one a source token or no shares: NaN, or not
    summing to 1.
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
    top = 7.9 if attention else 4.3
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
    if attention and bidirectional:  # the backward direction ends at the first token, and s_0 is made of both ends
        start, end = (encoder[0] + 0.4, 1.35), (middle, 1.35)
        below = f"arc3,rad={1.2 / (end[0] - start[0]):.4f}"  # as deep for a long source as for a short one
        ax.add_patch(
            FancyArrowPatch(start, end, connectionstyle=below, arrowstyle="-|>", mutation_scale=10.2, linewidth=1.2,
                            color=GREEN, shrinkA=0, shrinkB=0)
        )  # fmt: skip
    others = [x for t, x in enumerate(decoder, start=1) if attention and t != step]
    for h, x in product(encoder, others):  # first, so that the arrows of `step` lie over them
        arrow(ax, (h, 2.45), (x - 0.98, 3.95), FAINT, 0.8)
    for t, (x, read, written) in enumerate(zip(decoder, ("<bos>", *target), (*target, "<eos>"), strict=True), start=1):
        state(x, f"$s_{{{t}}}$", read, GREEN)
        ax.text(x, top, written, ha="center", va="center", fontsize=10.5, color=INK, fontweight="bold")
        if attention:
            here = t == step
            if here:
                for h, share in zip(encoder, shares, strict=True):
                    arrow(ax, (h, 2.45), (x - 0.98, 3.95), ORANGE, 0.8 + 4 * share)
                    if weights is not None:
                        ax.text(h + 0.35 * (x - 0.98 - h), 2.975, f"{share:g}", ha="center", va="center", fontsize=9,
                                color=ORANGE, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
                ax.text(x - 0.03, 3.1, "query", ha="center", va="center", fontsize=9, color=GREEN,
                        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
            arrow(ax, (x - 0.5, 2.45), (x - 0.5, 3.75), GREEN if here else FAINT, 1.6)
            box(ax, x - 0.5, 4.3, f"$c_{{{t}}}$", ORANGE if here else GREY, width=0.9, fill=None if here else "white")
            # Context vector and state are joined to the attentional vector, and it predicts the token.
            box(ax, x, 6.1, rf"$\tilde s_{{{t}}}$", PURPLE if here else GREY, fill=None if here else "white")
            arrow(ax, (x - 0.5, 4.85), (x - 0.3, 5.55), ORANGE if here else GREY)
            arrow(ax, (x + 0.4, 2.45), (x + 0.4, 5.55))
            arrow(ax, (x, 6.65), (x, top - 0.35))
        else:
            arrow(ax, (x, 2.45), (x, 3.95))
    for left, right in pairwise(decoder):
        arrow(ax, (left + 0.6, 1.9), (right - 0.6, 1.9), GREEN)
    ends = ("encoder: hidden states $h_i$", "decoder: states $s_t$") if named else ("encoder", "decoder")
    for xs, name, colour in zip((encoder, decoder), ends, (BLUE, GREEN), strict=True):
        ax.text((xs[0] + xs[-1]) / 2, -0.85, name, ha="center", va="center", fontsize=11, color=colour)
    if attention and named:
        for x, y, name, colour, side in (
            (decoder[0] - 1.2, 4.6, "context vector $c_t$:\nan average of all $h_i$", ORANGE, "right"),
            (decoder[0] - 0.8, 6.1, "attentional vector $\\tilde s_t$:\n$c_t$ and $s_t$ combined", PURPLE, "right"),
            (middle, 0.3, "initial state $s_0$" + (":\nfrom both ends" if bidirectional else ""), GREEN, "center"),
        ):
            ax.text(x, y, name, ha=side, va="center", fontsize=10.5, color=colour)
    elif attention:
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
        first = "The states at both ends make s0. " if bidirectional else ""
        between = (
            f"{first}From s0 the decoder goes through the states s1 to s{m + 1}. At each step t its state asks, and an "
            f"average of all encoder states, the context vector c_t, comes back; for step {step} it is {said}. State "
            f"and context vector are joined to the vector s̃_t; these vectors give {order}, and the end."
        )
    else:
        between = (
            f"Its last state h{n} is the context vector c, the one vector that is handed over. From it the decoder "
            f"goes through the states s1 to s{m + 1}, which give {order}, and the end."
        )
    show(drawn, alt or f"{states}. {between} Each decoder step reads the token before.")


# The parts of a Transformer, by the names under which `transformer_architecture` takes their links.
PARTS = (
    "embedding", "positions", "multi-head", "self-attention", "causal", "cross-attention", "feed-forward", "norm",
    "shifted right", "linear", "softmax",
)  # fmt: skip


class _Tower:
    """One column of the drawing, from its tokens upwards: a path with boxes on it, and what goes around them."""

    def __init__(self, ax: Axes, x: float, way_round: float):
        self.ax, self.x, self.y, self.side = ax, x, 0.0, x + way_round
        self.regions: list[tuple[str, tuple[float, float, float, float]]] = []

    def climb(self, to: float) -> None:
        arrow(self.ax, (self.x, self.y), (self.x, to), INK)
        self.y = to

    def put(self, lines: Sequence[tuple[str, str]], colour: str, gap: float = 0.45) -> float:
        """A box further up, a line for each of (what it says, which part that is). Returns where its middle is."""
        line = 0.54 if len(lines) == 1 else 0.42
        half = line * len(lines) / 2
        low = self.y + gap
        self.climb(low)
        self.ax.add_patch(
            FancyBboxPatch(
                (self.x - 1.68, low), 3.36, 2 * half, boxstyle="round,pad=0.0,rounding_size=0.1", linewidth=1.5,
                edgecolor=colour, facecolor=(*rgb(colour), 0.14),
            )
        )  # fmt: skip
        for i, (words, part) in enumerate(reversed(lines)):
            foot = low + line * i
            self.ax.text(self.x, foot + line / 2, words, ha="center", va="center", fontsize=10, color=INK)
            self.regions.append((part, (self.x - 1.68, foot, self.x + 1.68, foot + line)))
        self.y = low + 2 * half
        return low + half

    def add(self, gap: float = 0.35) -> float:
        """A sum on the path. Returns where it is."""
        at = self.y + gap + 0.2
        self.climb(at - 0.2)
        self.ax.plot(self.x, at, "o", markersize=15, markerfacecolor="white", markeredgecolor=INK, zorder=5)
        self.ax.text(self.x, at, "+", ha="center", va="center", fontsize=12, color=INK, zorder=6)
        self.y = at + 0.2
        return at

    def around(self, start: float, end: float, inner: float) -> None:
        """The residual connection: from the path at `start` round to `end`, where it arrives `inner` from the path."""
        self.ax.plot([self.x, self.side, self.side], [start, start, end], color=GREY, linewidth=1.2)
        arrow(self.ax, (self.side, end), (self.x + (inner if self.side > self.x else -inner), end))


def transformer_architecture(
    links: Mapping[str, str], norm_place: str = "post", alt: str = "", times: str = "N"
) -> None:
    """The Transformer of 2017: an encoder, a decoder, and what goes from one to the other. Its boxes can be clicked.

    `links` are the addresses behind the parts (`PARTS`); a part without one is drawn and leads nowhere. With
    `norm_place` "post" each norm stands after its sum, as published; with "pre" in front of its sublayer, with one more
    at the end of each stack. `times` is what the number of blocks is called. Raises ValueError for another place or
    part. Vaswani et al. 2017, figure 1; Xiong et al. 2020, figure 1.
    """
    check_one_of("norm_place", norm_place, ("post", "pre"))
    for part in links:
        check_one_of("links", part, PARTS)
    pre = norm_place == "pre"
    drawn, ax = figure()
    hold_still(drawn, left=0.0, right=1.0, bottom=0.0, top=1.0)
    encoder, decoder = _Tower(ax, 2.9, -2.1), _Tower(ax, 8.6, 2.1)
    self_attention = [("multi-head", "multi-head"), ("bidirectional self-attention", "self-attention")]
    masked = [("multi-head", "multi-head"), ("causal self-attention", "causal")]
    cross = [("multi-head", "multi-head"), ("cross-attention", "cross-attention")]
    network = [("position-wise", "feed-forward"), ("feed-forward network", "feed-forward")]
    norm = [("LayerNorm", "norm")]
    brought = {"self-attention": "Q, K, V", "causal": "Q, K, V", "cross-attention": "Q"}

    def come_in(tower: _Tower, lines: Sequence[tuple[str, str]], y: float) -> None:
        """Beside the path into attention, away from the residual connection: what it brings."""
        if words := brought.get(lines[-1][1]):
            away, side = (-0.15, "right") if tower.side > tower.x else (0.15, "left")
            ax.text(tower.x + away, y, words, ha=side, va="center", fontsize=9.5, color=INK)

    def sublayer(tower: _Tower, lines: Sequence[tuple[str, str]], colour: str) -> float:
        """A sublayer, its residual connection, its norm. Returns where the sublayer is."""
        start = tower.y + 0.2
        if pre:
            tower.put(norm, AMBER)
            middle = tower.put(lines, colour, gap=0.3)
            come_in(tower, lines, middle - 0.57)
            tower.around(start, tower.add(), 0.2)
            return middle
        middle = tower.put(lines, colour)
        come_in(tower, lines, middle - 0.64)
        tower.around(start, tower.put([("add, then LayerNorm", "norm")], AMBER, gap=0.3), 1.68)
        return middle

    def stack(tower: _Tower, sublayers: Sequence[tuple[Sequence[tuple[str, str]], str]]) -> list[float]:
        """The blocks: a frame around one of them, N times. Returns where its sublayers are."""
        foot = tower.y + 0.12
        tower.y += 0.12
        middles = [sublayer(tower, *each) for each in sublayers]
        outer = 2.45 if tower.side > tower.x else -2.45
        left, right = sorted((tower.x + outer, tower.x - (1.95 if outer > 0 else -1.95)))
        head = tower.y + 0.15
        frame = Rectangle((left, foot), right - left, head - foot, fill=False, edgecolor=GREY, linestyle="--")
        ax.add_patch(frame)
        at = right + 0.1 if outer > 0 else left - 0.1
        side = "left" if outer > 0 else "right"
        ax.text(at, head - 0.3, f"{times} ×", ha=side, va="center", fontsize=11, color=INK)
        if pre:
            tower.put(norm, AMBER)
        return middles

    for tower, read, part in ((encoder, "source", ""), (decoder, "target, shifted right", "shifted right")):
        ax.text(tower.x, -0.12, read, ha="center", va="center", fontsize=10.5, color=INK)
        tower.y = 0.12
        if part:
            tower.regions.append((part, (tower.x - 1.68, -0.33, tower.x + 1.68, 0.1)))
        tower.put([("embedding", "embedding")], PURPLE, gap=0.3)
        at = tower.add()
        away = 2.15 if tower is decoder else -2.15
        ax.text(tower.x + away, at, "positional\nencoding", ha="center", va="center", fontsize=10, color=INK)
        sign = 1 if away > 0 else -1
        arrow(ax, (tower.x + away - 0.75 * sign, at), (tower.x + 0.2 * sign, at))
        tower.regions.append(("positions", (tower.x + away - 0.75, at - 0.4, tower.x + away + 0.75, at + 0.4)))

    stack(encoder, [(self_attention, BLUE), (network, GREEN)])
    _, reads, _ = stack(decoder, [(masked, BLUE), (cross, ORANGE), (network, GREEN)])
    # One memory, from the top of the encoder across to every block of the decoder.
    between = (encoder.x + decoder.x) / 2 - 0.15
    encoder.climb(encoder.y + 0.45)
    ax.plot([encoder.x, between, between], [encoder.y, encoder.y, reads], color=ORANGE, linewidth=1.8)
    arrow(ax, (between, reads), (decoder.x - 1.68, reads), ORANGE, 1.8)
    ax.text(between + 0.1, reads + 0.22, "K, V", ha="left", va="center", fontsize=9.5, color=INK)
    ax.text(encoder.x, encoder.y + 0.3, "memory: keys and values", ha="center", va="center", fontsize=10, color=INK)
    decoder.put([("linear", "linear")], PURPLE)
    decoder.put([("softmax", "softmax")], PURPLE, gap=0.3)
    decoder.climb(decoder.y + 0.4)
    top = decoder.y + 0.5
    stage(ax, (-0.2, 11.9), (-0.35, top))
    drawn.set_size_inches(7.4, 0.62 * (top + 0.35))
    ax.text(decoder.x, decoder.y + 0.25, "probabilities of the next token", ha="center", va="center", fontsize=10.5)
    regions = [
        Link(*region, links[part], part) for tower in (encoder, decoder) for part, region in tower.regions
        if part in links
    ]  # fmt: skip
    norms = "in front of each sublayer, and one at the end of each stack" if pre else "after each sum"
    show_linked(
        drawn,
        alt
        or f"The Transformer. On the left the encoder: the source is embedded, positions are added, and {times} blocks "
        "follow, each of multi-head self-attention and a position-wise feed-forward network. On the right the decoder: "
        f"the target, shifted right, is embedded, positions are added, and {times} blocks follow, each of multi-head "
        "causal self-attention, multi-head cross-attention, whose keys and values are the memory from the encoder's "
        "top, and a position-wise feed-forward network. A linear layer and a softmax give the probabilities of the "
        f"next token. Around each sublayer goes a residual connection; a LayerNorm stands {norms}.",
        ax,
        regions,
    )
