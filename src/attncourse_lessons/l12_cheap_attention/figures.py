"""Whole tables of weights as pictures: columns, diagonals, and what else a head may do with a long sequence."""

from collections.abc import Mapping

import torch
from torch import Tensor

from attncourse._checks import check_shape
from attncourse.viz.figures import check_shares
from attncourse.viz.style import INK, WEIGHTS, bare, figure, show


def weight_maps(maps: Mapping[str, Tensor], alt: str = "") -> None:
    """Tables too large for labels or numbers, side by side, darker for more: {title: weights (n_query, n_key)}.

    Without `alt` the text says which column or diagonal of each table has most of its weight, and how much.
    Raises ValueError for a table that is no matrix, and for what are no weights.
    """
    drawn, _ = figure(2.2 * len(maps), 2.7, columns=len(maps))
    said = []
    for ax, (title, weights) in zip(drawn.axes, maps.items(), strict=True):
        check_shape(f"maps, {title}", weights, "n_query n_key")
        table = weights.detach().float().cpu()
        check_shares(f"maps, {title}", table.numpy())
        ax.imshow(table.numpy(), cmap=WEIGHTS, vmin=0, vmax=max(1e-9, table.max().item()), interpolation="nearest")
        bare(ax, INK)
        ax.set_xlabel("key")
        ax.set_ylabel("query")
        ax.set_title(title)
        said.append(f"{title}: {_shape_in_words(table)}")
    show(drawn, alt or f"Tables of weights, rows ask and columns answer. {'; '.join(said)}.")


def _shape_in_words(table: Tensor) -> str:
    """Whether most of the weight lies in a column or along a diagonal, and which."""
    n_query, n_key = table.shape
    total = table.sum().item()
    column = int(table.sum(dim=0).argmax())
    i = torch.arange(n_query)
    down = {shift: table[i, (i + shift) % n_key].sum().item() for shift in range(-(n_key // 2), n_key - n_key // 2)}
    up = {sum_: table[i, (sum_ - i) % n_key].sum().item() for sum_ in range(n_key)}
    shift, sum_ = max(down, key=down.__getitem__), max(up, key=up.__getitem__)
    moved = f" moved by {abs(shift)} to the {'left' if shift < 0 else 'right'}" if shift else ""
    found = {
        f"the column of key {column + 1}": table[:, column].sum().item(),
        f"the diagonal{moved}": down[shift],
        f"the diagonal that rises, from key {sum_ % n_key + 1} at the top": up[sum_],
    }
    name = max(found, key=found.__getitem__)
    return f"{found[name] / total:.0%} lies in {name}"
