"""Still pictures of weights and of what was measured."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from attncourse._checks import check_boolean
from attncourse.viz.style import (
    GREY,
    INK,
    MOST_INCHES,
    PAGE,
    PALE,
    WEIGHTS,
    check_places,
    figure,
    line_style,
    name_lines,
    show,
)


def alignment_heatmap(
    weights,
    source: Sequence[str],
    target: Sequence[str],
    title: str = "",
    numbers: bool | None = None,
    alt: str = "",
) -> None:
    """Where each target token looked: one row a target token, one column a source token, rows sum to 1.

    `weights` (n_target, n_source). Numbers stand in the cells of small pictures. Without `alt` the text says, row by
    row, where most of the weight went. Raises ValueError where the shape does not fit the tokens, for more tokens than
    can be shown, and for what are no weights: NaN, or rows that do not sum to 1.
    """
    weights = as_weights(weights, target, source)
    drawn = alignment_figure(weights, source, target, title, numbers)
    show(drawn, alt or f"Alignment heatmap{f', {title}' if title else ''}. {describe(weights, source, target)}")


def alignment_figure(
    weights: np.ndarray, source: Sequence[str], target: Sequence[str], title: str = "", numbers: bool | None = None
) -> Figure:
    """The picture of `alignment_heatmap`, not yet shown."""
    n_target, n_source = weights.shape
    # A model that stammers writes long: rows get closer, as far as their labels allow.
    row = max(0.15, min(0.42, (MOST_INCHES - 1) / n_target))
    drawn, ax = figure(1.6 + 0.66 * n_source, 1.0 + row * n_target)
    cells(ax, weights, target, source, n_target * n_source <= 100 if numbers is None else numbers)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.set_xlabel("source (keys)", labelpad=6)
    ax.set_ylabel("target (queries)")
    if max(map(len, source)) > 7:
        turn_labels(ax)
    if title:
        ax.set_title(title, pad=10)
    return drawn


def _grid(count: int, width: float) -> tuple[int, int]:
    """Rows and columns of so many tables of a width in inches: none beside the page, rows as equal as can be."""
    rows = -(-count // min(count, max(1, int(PAGE / width))))
    return rows, -(-count // rows)                                            # 4 are 2 and 2


def draw_weights(
    matrices: Tensor | Mapping[str, Tensor],
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
    alt: str = "",
    row_name: str = "",
    column_name: str = "",
) -> None:
    """A small matrix with its numbers in the cells, scores or weights, darker for more; or several, by title.

    Each is (rows, columns); `row_name` and `column_name` say what these are. More tables than a page is wide begin
    another row. Raises ValueError where the shape does not fit the labels.
    """
    if not isinstance(matrices, Mapping):
        matrices = {title: matrices}
    width = 1.4 + (0.85 if len(matrices) == 1 else 0.62) * len(columns)
    n_rows, n_columns = _grid(len(matrices), width)
    drawn, _ = figure(width * n_columns, (0.9 + 0.5 * len(rows)) * n_rows, n_rows, n_columns)
    said = []
    for ax in drawn.axes[len(matrices) :]:
        ax.set_axis_off()
    for ax, (name, values) in zip(drawn.axes, matrices.items(), strict=False):
        matrix = as_matrix(values, rows, columns)
        cells(ax, matrix, rows, columns, numbers=True)
        ax.xaxis.tick_top()
        ax.xaxis.set_label_position("top")
        ax.set_xlabel(column_name)
        ax.set_ylabel(row_name)
        if name:
            ax.set_title(name, pad=10)
        table = "; ".join(
            f"{row}: " + ", ".join(f"{column} {_number(x)}" for column, x in zip(columns, line, strict=True))
            for row, line in zip(rows, matrix, strict=True)
        )
        said.append(f"Table{f' of {name}' if name else ''}. {table}.")
    show(drawn, alt or " ".join(said))


def draw_masks(masks: Tensor | Mapping[str, Tensor], title: str = "", alt: str = "") -> None:
    """Who may attend to whom, filled where allowed: one mask (n_query, n_key), or several by title, side by side.

    What is forbidden is hatched up to 1,024 pairs; of more, the cells are too small for it, and it is white. Raises
    TypeError for a mask that is not boolean, ValueError for one that is not a matrix.
    """
    if not isinstance(masks, Mapping):
        masks = {title: masks}
    drawn, _ = figure(2.6 * len(masks), 3.0, columns=len(masks))
    said = []
    for ax, (name, mask) in zip(drawn.axes, masks.items(), strict=True):
        check_boolean(f"mask {name!r}", mask, "a query may attend")
        if mask.ndim != 2:
            raise ValueError(f"mask {name!r}: got shape {tuple(mask.shape)}, expected (n_query, n_key)")
        n_query, n_key = mask.shape
        ax.imshow(mask.float().numpy(), cmap=WEIGHTS, vmin=0, vmax=1.2, interpolation="nearest",
                  extent=(0, n_key, n_query, 0))  # fmt: skip
        if n_query * n_key <= 1024:  # lines between the cells, while one can tell them apart
            hatch(ax, mask)
            ax.set_xticks(np.arange(n_key + 1), minor=True)
            ax.set_yticks(np.arange(n_query + 1), minor=True)
            ax.grid(which="minor", color=PALE, linewidth=0.6)
        ax.tick_params(which="both", length=0)
        ax.set_xticks([], [])
        ax.set_yticks([], [])
        ax.set_xlabel("key")
        ax.set_ylabel("query")
        if name:
            ax.set_title(name, pad=8)
        share = mask.float().mean().item()
        said.append(f"{name or 'mask'}: {n_query} queries by {n_key} keys, {share:.0%} of the pairs allowed")
    show(drawn, alt or f"Who may attend to whom. {'; '.join(said)}.")


def curves(
    lines: Mapping[str, Sequence[float]],
    xs: Sequence[float] | None = None,
    x_name: str = "training step",
    y_name: str = "loss (nats a token)",
    log_y: bool = False,
    log_x: bool = False,
    title: str = "",
    alt: str = "",
) -> None:
    """Named lines over one axis: losses against steps, gradients against distance. Long ones are smoothed over 1/40."""
    drawn, ax = figure(6.6, 3.4)
    for i, (name, line) in enumerate(lines.items()):
        ys = np.asarray(line, dtype=float)
        width = max(1, len(ys) // 40)
        ys = np.convolve(ys, np.ones(width) / width, mode="valid")
        at = np.asarray(xs if xs is not None else range(1, len(line) + 1), dtype=float)[width - 1 :]
        ax.plot(at, ys, label=name, markevery=max(1, len(ys) // 8), **line_style(i))
    if log_y:
        ax.set_yscale("log")
    if log_x:
        ax.set_xscale("log")
        if xs is not None and len(xs) <= 8:  # few enough to name them all, where powers of ten would be too few
            ax.set_xticks(xs, [f"{x:g}" for x in xs])
            ax.minorticks_off()
    name_lines(ax, x_name, y_name, title)
    said = "; ".join(f"{name} goes from {line[0]:.2g} to {line[-1]:.2g}" for name, line in lines.items())
    show(drawn, alt or f"{y_name} against {x_name}. {said}.")


def _most(row: np.ndarray, words: Sequence[str]) -> str:
    """Where most of a row's weight is, in words: all that have as much, to two digits."""
    if not np.isfinite(row).all():
        return "not a number"
    if not row.any():
        return "nowhere"
    first = [word for word, weight in zip(words, row, strict=True) if weight > row.max() - 0.005]
    if len(first) == len(words) > 1:
        return f"the same everywhere ({row.max():.2f} each)"
    return f"most at {' and '.join(first)} ({row.max():.2f}{' each' * (len(first) > 1)})"


def describe(weights: np.ndarray, source: Sequence[str], target: Sequence[str]) -> str:
    """Attention weights in words, one clause a target token."""
    return "; ".join(f"{name}: {_most(row, source)}" for name, row in zip(target, weights, strict=True)) + "."


def as_matrix(values, rows: Sequence[str], columns: Sequence[str], name: str = "weights") -> np.ndarray:
    """A tensor or nested lists as an array with a row and a column for each label, of which not too many."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().float().numpy()
    matrix = np.asarray(values, dtype=float)
    if matrix.shape != (len(rows), len(columns)):
        raise ValueError(f"{name}: got shape {matrix.shape}, expected {(len(rows), len(columns))}, a row a label")
    check_places(**{f"rows of {name}": len(rows), f"columns of {name}": len(columns)})
    return matrix


def as_weights(values, rows: Sequence[str], columns: Sequence[str]) -> np.ndarray:
    """A matrix as `as_matrix` gives it, whose rows are shares."""
    weights = as_matrix(values, rows, columns)
    check_shares("weights", weights)
    return weights


def check_shares(name: str, weights: np.ndarray, within: str = "") -> None:
    """Raises ValueError unless the last axis sums to 1, or is all zero: a padded query looks at nothing.

    The message says where: `within`, then head and query, as far as there are such axes.
    """
    axes = ("head", "query")[max(0, 3 - weights.ndim) :]

    def at(found: np.ndarray) -> str:
        place = ", ".join(filter(None, (within, *(f"{axis} {i}" for axis, i in zip(axes, found, strict=False)))))
        return f" ({place})" if place else ""

    if len(found := np.argwhere(~np.isfinite(weights))):
        value = weights[tuple(found[0])]
        raise ValueError(f"{name}: got {value}{at(found[0])}, expected shares from 0 to 1")
    if len(found := np.argwhere(weights < 0)):
        value = weights[tuple(found[0])]
        raise ValueError(f"{name}: got {value:.3g}{at(found[0])}, expected what comes after the softmax, 0 to 1")
    sums = weights.sum(axis=-1)                                                           # (*, n_query)
    # Half precision and bfloat16 sum to 1 within a hundredth.
    if len(found := np.argwhere((np.abs(sums - 1) > 0.01) & (sums > 0))):
        down = weights.ndim > 1 and np.abs(weights.sum(axis=-2) - 1).max() < 0.01
        hint = ": down each key they do, so normalise over the last axis" if down else ""
        hint = hint or ": dropout does that, model.eval() turns it off; so does a mask after the softmax"
        total = sums[tuple(found[0])]
        raise ValueError(f"{name}: got weights that sum to {total:.3g}{at(found[0])}, expected 1{hint}")


def cells(
    ax: Axes,
    matrix: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    numbers: bool,
    digits: int = 2,
    allowed: Tensor | None = None,
) -> None:
    """A table, darker for more, with its labels; and, if `numbers`, each with so many decimals.

    What the mask `allowed`, booleans (rows, columns), forbids is hatched and has no number.
    """
    top = max(1.0, float(np.nanmax(np.where(np.isfinite(matrix), matrix, np.nan))))
    bottom = min(0.0, float(np.nanmin(np.where(np.isfinite(matrix), matrix, np.nan))))
    ax.pcolormesh(np.clip(matrix, bottom, top), cmap=WEIGHTS, vmin=bottom, vmax=top, edgecolors="white", linewidth=1.5)
    ax.invert_yaxis()
    ax.set_aspect("auto")
    ax.set_xticks(np.arange(len(columns)) + 0.5, columns)
    ax.set_yticks(np.arange(len(rows)) + 0.5, rows)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    if allowed is not None:
        hatch(ax, allowed)
    for (i, j), value in np.ndenumerate(matrix) if numbers else ():
        if allowed is not None and not allowed[i, j]:
            continue
        dark = np.isfinite(value) and (value - bottom) / (top - bottom) > 0.7      # where white reads better than ink
        colour = "white" if dark else INK
        ax.text(j + 0.5, i + 0.5, _number(value, digits), ha="center", va="center", fontsize=9.5, color=colour)


def hatch(ax: Axes, allowed: Tensor) -> None:
    """Hatch what a mask, booleans (rows, columns), forbids: cell (i, j) lies between (j, i) and (j + 1, i + 1)."""
    for i, j in (~allowed).nonzero().tolist():
        ax.add_patch(Rectangle((j, i), 1, 1, facecolor="white", edgecolor=GREY, hatch="////", linewidth=0))


def turn_labels(ax: Axes) -> None:
    """Turn the tokens above a table, so that long ones do not touch."""
    for label in ax.get_xticklabels():
        label.set(rotation=40, ha="left", va="bottom", rotation_mode="anchor")


def _number(value: float, digits: int = 2) -> str:
    if not np.isfinite(value):
        return "−∞" if value < 0 else "NaN" if np.isnan(value) else "∞"
    return f"{value:.{digits}f}".replace("-", "−")


def weight_tables(
    named: Mapping[str, tuple[Sequence[str], Tensor]],
    numbers: bool = False,
    alt: str = "",
    digits: int = 1,
    allowed: Mapping[str, Tensor] | None = None,
) -> None:
    """Square tables of weights side by side, each with its own words: {title: (words, weights (n, n))}.

    A row for each query, a column for each key; `numbers` are printed with so many `digits`. More tables than a page is
    wide begin another row. What a mask in `allowed`, {title: booleans (n, n)}, forbids is hatched.

    Tables that went wrong are shown as they are, to be looked at. Without `alt` the text says for each row where most
    of it goes. Raises ValueError where words and table do not fit.
    """
    side = 0.9 + max((0.24 + 0.1 * digits if numbers else 0.3) * len(words) for words, _ in named.values())
    rows, columns = _grid(len(named), side + 0.5)
    drawn, _ = figure((side + 0.5) * columns, (side + 0.4) * rows, rows, columns)
    said = []
    for ax in drawn.axes[len(named) :]:
        ax.set_axis_off()
    for at, (ax, (title, (words, weights))) in enumerate(zip(drawn.axes, named.items(), strict=False)):
        matrix = as_matrix(weights, words, words)
        cells(ax, matrix, words, words, numbers, digits, (allowed or {}).get(title))
        ax.set_xlabel("key")
        if at % columns == 0:
            ax.set_ylabel("query")
        ax.xaxis.tick_top()
        ax.xaxis.set_label_position("bottom")
        if max(map(len, words)) > 2:
            turn_labels(ax)
        ax.set_title(title, pad=8)
        said.append(f"{title}. Rows are queries, columns keys. {describe(matrix, words, words)}")
    show(drawn, alt or f"Tables of weights. {' '.join(said)}")
