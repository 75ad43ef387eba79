"""A pad on which a reader draws a sparse pattern, and sees its cost and how receptive fields grow with layers."""

from pathlib import Path

import torch
import traitlets
from jaxtyping import Bool
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from attncourse.efficient import (
    any_of,
    bigbird,
    causal,
    dense_mask,
    dilated,
    global_tokens,
    longformer,
    random_keys,
    receptive_field,
    sliding_window,
)
from attncourse.viz.live_widget import LiveWidget
from attncourse.viz.style import BLUE, GREY, ORANGE, PALE, WEIGHTS, figure, stage

LAYERS, BLOCK = 4, 4
MOST = 48  # positions: more of them are too small to be drawn on


def pattern_presets(n: int = 16) -> dict[str, Bool[Tensor, "{n} {n}"]]:
    """The patterns that the pad offers, as `attncourse.efficient` makes them.

    "strided" is that of Child et al. 2019: those just before, and every fourth.
    """
    patterns = {
        "itself alone": sliding_window(0),
        "full": global_tokens(n),
        "causal": causal(),
        "window": sliding_window(2),
        "dilated": dilated(2, dilation=3),
        "global": global_tokens(1),
        "random": random_keys(n, n, n_random=min(3, n)),
        "window + global": longformer(2, n_global=1),
        "BigBird": bigbird(n, width=1, n_global=1, n_random=2),
        "strided": any_of(sliding_window(BLOCK, causal=True), dilated(n, BLOCK, causal=True)),
    }
    return {name: dense_mask(pattern, n) for name, pattern in patterns.items()}


class pattern_pad(LiveWidget):
    """Who may attend to whom, to be drawn by mouse or keyboard: all is counted in the browser, without a kernel.

    `start` is one of `pattern_presets`, `asking` the position whose receptive field is drawn, counted from 0. With a
    kernel, `mask` is what has been drawn. Raises ValueError for an unknown start, a position that is not there, and
    more positions than a pad can show.
    """

    _esm = Path(__file__).with_suffix(".js")
    _css = Path(__file__).with_suffix(".css")
    kept = ("rows", "asking")
    n = traitlets.Int().tag(sync=True)
    presets = traitlets.Dict().tag(sync=True)
    rows = traitlets.List(traitlets.Unicode()).tag(sync=True)
    asking = traitlets.Int().tag(sync=True)

    def __init__(self, start: str = "window", n: int = 16, asking: int | None = None):
        if not 1 <= n <= MOST:
            raise ValueError(f"n: got {n}, expected 1 to {MOST} positions")
        presets = {name: _as_rows(mask) for name, mask in pattern_presets(n).items()}
        if start not in presets:
            raise ValueError(f"start: got {start!r}, expected one of {', '.join(presets)}")
        super().__init__(n=n, presets=presets, rows=presets[start], asking=n // 2 if asking is None else asking)

    @traitlets.validate("asking")
    def _check_asking(self, proposal):
        if not 0 <= proposal["value"] < self.n:
            raise ValueError(f"asking: got {proposal['value']}, expected a position from 0 to {self.n - 1}")
        return proposal["value"]

    @traitlets.validate("rows")
    def _check_rows(self, proposal):
        if [len(row) for row in proposal["value"]] != [self.n] * self.n:
            raise ValueError(f"rows: got {proposal['value']}, expected {self.n} rows of {self.n} signs, 1 for allowed")
        return proposal["value"]

    @property
    def mask(self) -> Bool[Tensor, "n n"]:
        """What is drawn now, True where a query may attend."""
        return torch.tensor([[sign == "1" for sign in row] for row in self.rows])

    def still(self) -> tuple[Figure, str]:
        mask, asking, n = self.mask, self.asking, self.n
        drawn, (grid, told) = figure(8.4, 3.9, columns=2)
        stage(grid, (-2.2, n), (n, -1.6))
        grid.set_aspect("equal")
        grid.set_title("rows: queries; columns: keys", fontsize=10.5)
        grid.pcolormesh(mask.float().numpy(), cmap=WEIGHTS, vmin=0, vmax=1.3, edgecolors=PALE, linewidth=0.6)
        grid.add_patch(Rectangle((0, asking), n, 1, fill=False, edgecolor=ORANGE, linewidth=2))
        for i in range(n):
            colour = ORANGE if i == asking else GREY
            grid.text(-0.3, i + 0.5, f"{i + 1}", ha="right", va="center", fontsize=9, color=colour)
            grid.text(i + 0.5, -0.3, f"{i + 1}", ha="center", va="bottom", fontsize=9, color=GREY)

        reach = [receptive_field(mask, layers)[asking] for layers in range(1, LAYERS + 1)]
        stage(told, (-0.5, 1.6 * n), (-7.6, 5.2))
        lines = pattern_in_words(mask)
        for at, line in enumerate(lines):
            told.text(-0.5, 4.6 - 1.15 * at, line, fontsize=9.5, va="center")
        told.text(-0.5, -0.1, f"receptive field of position {asking + 1}", fontsize=9.5, va="center")
        for layer, row in enumerate(reach):
            y = -1.4 - 1.3 * layer
            for j, reached in enumerate(row.tolist()):
                mark = "s" if j == asking else "o"
                edge = ORANGE if j == asking else GREY
                told.plot(j, y, mark, markersize=6, color=BLUE if reached else "white", markeredgecolor=edge)
            said = f"{int(row.sum())} after {layer + 1} {'layer' if layer == 0 else 'layers'}"
            told.text(n + 0.3, y, said, fontsize=9.5, va="center")
        counts = ", ".join(f"{int(row.sum())} after {layer}" for layer, row in enumerate(reach, start=1))
        return drawn, (
            f"A pad of {n} queries by {n} keys on which to draw who may attend to whom. {'; '.join(lines)}. Position "
            f"{asking + 1} has a receptive field of {counts} layers."
        )


def pattern_in_words(mask: Bool[Tensor, "n n"]) -> list[str]:
    """What the pad says of a pattern: its pairs, the blocks that hold any, and when all fields are complete."""
    n = len(mask)
    is_causal = not mask.triu(1).any()
    wanted = torch.ones(n, n, dtype=torch.bool).tril() if is_causal else torch.ones(n, n, dtype=torch.bool)
    fill = -n % BLOCK
    blocks = torch.nn.functional.pad(mask, (0, fill, 0, fill)).unflatten(0, (-1, BLOCK)).unflatten(2, (-1, BLOCK))
    touched = blocks.any(dim=3).any(dim=1)                        # (n / BLOCK, n / BLOCK)
    after = next((k for k in range(1, n + 1) if torch.equal(receptive_field(mask, k), wanted)), None)
    all_reached = "each position is reached by all before it" if is_causal else "each position is reached by all"
    return [
        f"{int(mask.sum())} of {n * n} pairs, {mask.float().mean():.0%}",
        f"{int(touched.sum())} of {touched.numel()} blocks of {BLOCK} × {BLOCK} contain an allowed pair",
        "some never reach each other, in any number of layers" if after is None
        else f"after {after} {'layer' if after == 1 else 'layers'} {all_reached}",
    ]


def _as_rows(mask: Tensor) -> list[str]:
    return ["".join("1" if allowed else "0" for allowed in row) for row in mask.tolist()]
