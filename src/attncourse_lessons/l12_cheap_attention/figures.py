"""Cheap attention: tiles and memories, a window in blocks, scans, families of methods, runs, attention matrices."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Patch, Rectangle
from torch import Tensor

from attncourse._checks import check_shape
from attncourse.efficient import dense_mask, receptive_field, sliding_window
from attncourse.viz.diagrams import arrow, box, rgb
from attncourse.viz.figures import check_shares
from attncourse.viz.style import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    WEIGHTS,
    bare,
    check_places,
    figure,
    line_style,
    show,
    stage,
)


def weight_maps(maps: Mapping[str, Tensor], alt: str = "") -> None:
    """Matrices too large for labels or numbers, side by side, darker for more: {title: weights (n_query, n_key)}.

    Without `alt` the text says which column or diagonal of each matrix has most of its weight, and how much.
    Raises ValueError for what is no matrix, and for what are no weights.
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
    show(drawn, alt or f"Attention matrices, a row for each query, a column for each key. {'; '.join(said)}.")


def jobs_of_heads(maps: Tensor, marked: Tensor) -> list[str]:
    """What each head attends to most: "mark", "before" or "mirror".

    maps: (batch, n_heads, n, n), weights; marked: (batch, n), True at the one token that is marked.
    Raises ValueError where shapes do not fit.
    """
    check_shape("maps", maps, "batch n_heads n n")
    batch, _, n, _ = maps.shape
    check_shape("marked", marked, "batch n", batch=batch, n=n)
    i = torch.arange(n)
    on = {
        "mark": (maps * marked[:, None, None]).sum(dim=-1).mean(dim=(0, 2)),         # (n_heads,)
        "before": maps[..., i, (i - 1) % n].mean(dim=(0, 2)),
        "mirror": maps[..., i, n - 1 - i].mean(dim=(0, 2)),
    }
    names = list(on)
    return [names[int(best)] for best in torch.stack(list(on.values())).argmax(dim=0)]


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


def online_softmax_steps(scores: Tensor, values: Tensor, size: int) -> None:
    """Online softmax of a row, a panel for each chunk: bars are exp(e − m), outlines the old ones before the factor.

    scores, values: (n,). Above each panel stand the largest score m, the factor, the sum ℓ, and the sum o with the
    values; above the last also o / ℓ.
    Raises ValueError where shapes do not fit.
    """
    check_shape("scores", scores, "n")
    check_shape("values", values, "n", n=len(scores))
    e, v, n = scores.tolist(), values.tolist(), len(scores)
    chunks = [range(at, min(at + size, n)) for at in range(0, n, size)]
    drawn, grid = figure(9.0, 4.0, columns=len(chunks))
    m, total, output = -math.inf, 0.0, 0.0
    said = []
    for number, (ax, chunk) in enumerate(zip(np.atleast_1d(np.asarray(grid)), chunks, strict=True), 1):
        larger = max(m, *(e[j] for j in chunk))
        factor = math.exp(m - larger)
        for j in range(chunk.start if factor < 1 else 0):
            ax.add_patch(Rectangle((j - 0.4, 0), 0.8, math.exp(e[j] - m), fill=False, edgecolor=INK, linestyle="--",
                                   linewidth=1.2, zorder=4))  # fmt: skip
        heights = [math.exp(e[j] - larger) for j in range(chunk.stop)]
        if chunk.start:
            ax.bar(range(chunk.start), heights[: chunk.start], 0.8, color=BLUE, label="old, times the factor")
        ax.bar(chunk, heights[chunk.start :], 0.8, color=AMBER, hatch="///", edgecolor=INK, label="new")
        for j, height in enumerate(heights):
            ax.text(j, height + 0.02, f"{height:.2f}" if height < 1 else "1", ha="center", va="bottom", fontsize=9,
                    color=INK, zorder=5, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.2})  # fmt: skip
        new = sum(heights[chunk.start :]), sum(heights[j] * v[j] for j in chunk)
        was, total, output = (total, output), total * factor + new[0], output * factor + new[1]
        words = [f"$\\ell$ = {total:.3f}", f"$o$ = {output:.2f}"]
        if chunk.start:
            words = [f"factor = exp({m:g} − {larger:g}) = {factor:.2f}",
                     f"$\\ell$ = factor · {was[0]:.3f} + {new[0]:.3f} = {total:.3f}",
                     f"$o$ = factor · {was[1]:.2f} + {new[1]:.2f} = {output:.2f}"]  # fmt: skip
        words = [f"chunk {number}: $m$ = {larger:g}", *words]
        if chunk.stop == n:
            words.append(f"$o / \\ell$ = {output / total:.4f}")
        ax.set_title("\n".join(words), fontsize=9.5, linespacing=1.5)
        ax.set_xticks(range(n), [f"{e[j]:g}\n{v[j]:g}" if j < chunk.stop else "?" for j in range(n)])
        ax.set_xlim(-0.6, n - 0.4)
        ax.set_ylim(0, 1.12)
        ax.set_yticks([0, 0.5, 1])
        ax.set_xlabel("score $e_j$, below it the value $v_j$")
        said.append(f"After chunk {number} the largest is {larger:g}, the sum {total:.3f}, the sum with the values "
                    f"{output:.2f}, the average {output / total:.4f}")  # fmt: skip
        m = larger
    drawn.axes[0].set_ylabel("exp($e_j$ − $m$)")
    handles = [Patch(facecolor=AMBER, hatch="///", edgecolor=INK, label="new"),
               Patch(facecolor=BLUE, label="old, times the factor"),
               Patch(facecolor="white", edgecolor=INK, linestyle="--", label="old, before it")]  # fmt: skip
    drawn.legend(handles=handles, frameon=False, loc="outside lower center", ncols=3, fontsize=9.5)
    show(drawn, f"Online softmax of {n} scores in {len(chunks)} chunks. {'. '.join(said)}.")


def against_length(measures: Mapping[str, Mapping[str, Mapping[int, float]]]) -> None:
    """What was measured against the length, {measure: {name: {n: value}}}, a panel each, both axes logarithmic.

    At the end of each line stand its name and the factor by which it grows, on average, when the length doubles.
    """
    drawn, grid = figure(9.0, 3.4, columns=len(measures))
    said = []
    for ax, (measure, lines) in zip(np.atleast_1d(np.asarray(grid)), measures.items(), strict=True):
        for i, (name, line) in enumerate(lines.items()):
            style = line_style(i)
            ax.plot(list(line), list(line.values()), label=name, **style)
            first, last = min(line), max(line)
            factor = (line[last] / line[first]) ** (1 / math.log2(last / first))
            ax.annotate(f"{name}:\n× {factor:.1f} when n doubles", (last, line[last]), (12, 0), ha="left", va="center",
                        textcoords="offset points", fontsize=10, color=style["color"])  # fmt: skip
            said.append(f"{measure}, {name}: {line[first]:.3g} at {first:,} to {line[last]:.3g} at {last:,}, "
                        f"{factor:.1f} times as much when n doubles")  # fmt: skip
        ax.set_xscale("log")
        ax.set_yscale("log")
        lengths = sorted({x for line in lines.values() for x in line})
        ax.set_xlim(right=1.15 * lengths[-1])                                         # the names stand beside it
        ax.set_xticks(lengths, [f"{x:,}" for x in lengths])
        ax.minorticks_off()
        tens = [10**power for power in range(-2, 6)]
        low, high = ax.get_ylim()
        ax.set_yticks(tens, [f"{ten:g}" for ten in tens])
        ax.set_ylim(low, high)
        ax.set_xlabel("length n")
        ax.set_ylabel(measure)
        ax.grid(axis="y", color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
    show(drawn, f"Measures against the length, on logarithmic axes. {'; '.join(said)}.")


def memory_levels(moved: tuple[float, float]) -> None:
    """The memories of an A100 of 80 GB (Dao et al. 2022; Dao 2023), and what attention moves to and from HBM, as bars.

    `moved` are the numbers that usual attention and a fused kernel move, for an example that the caption names.
    """
    drawn, ax = figure(8.6, 3.0)
    stage(ax, (-0.1, 17.4), (-0.5, 6.4))
    rows = (
        (5.2, 5.0, "arithmetic: 312 TFLOP/s", GREEN),
        (2.9, 6.6, "SRAM, on the chip: 108 × 192 KB", ORANGE),
        (0.6, 8.2, "HBM, beside the chip: 80 GB", BLUE),
    )
    for y, width, name, colour in rows:
        box(ax, 4.1, y, name, colour, width=width)
    for low, rate in ((1.1, "2.0 TB/s"), (3.4, "about 19 TB/s")):
        arrow(ax, (4.1, low), (4.1, low + 1.3), both=True)
        ax.text(4.3, low + 0.65, rate, ha="left", va="center", fontsize=9.5, color=INK)
    ax.text(13.1, 6.0, "numbers moved to and from HBM", ha="center", va="center", fontsize=10.5, color=INK)
    bars = (
        (11.0, "usual attention:\nmost of it $4n^2$, scores and\nweights, each out and in"),
        (15.2, "one fused kernel:\n$Q$, $K$, $V$ in (some\nrepeatedly), $O$ out"),
    )
    for (x, words), numbers in zip(bars, moved, strict=True):
        height = 3.4 * numbers / max(moved)
        ax.add_patch(Rectangle((x - 0.7, 1.4), 1.4, height, facecolor=(*rgb(BLUE), 0.5), edgecolor=BLUE))
        ax.text(x, 1.5 + height, f"{numbers / 1e6:.0f} million", ha="center", va="bottom", fontsize=10, color=INK)
        ax.text(x, 1.2, words, ha="center", va="top", fontsize=9.5, color=INK)
    show(
        drawn,
        "A GPU from the top: arithmetic, 312 TFLOP/s in 16 bits; under it SRAM on the chip, 108 times 192 KB, at about "
        "19 TB/s; under that HBM beside the chip, 80 GB, at 2.0 TB/s. Beside it two bars for the numbers that cross to "
        f"and from HBM in the example: {moved[0] / 1e6:.0f} million in the usual attention, most of them scores and "
        f"weights, each out and in, 4n² numbers; {moved[1] / 1e6:.0f} million in one fused kernel, Q, K and V in and O "
        "out.",
    )


def roofline(
    peak: float,
    bandwidth: float,
    work: Mapping[str, float],
    measured: Mapping[str, tuple[float, float]] | None = None,
) -> None:
    """What a chip can do at most, of peak operations a second and bytes a second, for {name: operations per byte}.

    The slope is what memory allows, the flat part what arithmetic does; a dot for each piece of work. What was
    `measured`, {name: (lowest, highest share of the peak)} as Dao 2023 reports it, is a bracket in the right margin;
    then the axis is that of all speeds, and slope and roof say what they are.
    """
    drawn, ax = figure(8.6 if measured else 7.4, 3.8)
    ridge = peak / bandwidth
    low, high = 0.5, 4096.0
    ax.axvspan(low, ridge, color=(*rgb(ORANGE), 0.08), linewidth=0, zorder=0)
    ax.plot([low, ridge, high], [low * bandwidth / 1e12, peak / 1e12, peak / 1e12], color=INK, linewidth=2)
    ax.plot([ridge, ridge], [1, peak / 1e12], color=GREY, linewidth=1.2, linestyle="--", zorder=1)
    said = []
    for name, intensity in sorted(work.items(), key=lambda item: item[1]):
        reached = min(peak, intensity * bandwidth) / 1e12
        bound = intensity >= ridge
        ax.plot(intensity, reached, "o" if bound else "s", color=BLUE if bound else ORANGE, markersize=9, zorder=4)
        above = sum(peak <= each * bandwidth < intensity * bandwidth for each in work.values())
        at = (intensity, reached * 1.25 * 1.6**above) if bound else (intensity / 1.2, reached)
        side = "center" if bound else "right"
        if not bound and intensity < ridge / 16 and not measured:                    # no room to the left
            at, side = (intensity * 1.3, reached), "left"
        ax.text(*at, f"{name}: {intensity:.0f}", ha=side, va="center" if side == "left" else "bottom", fontsize=10,
                color=INK)  # fmt: skip
        said.append(f"{name}, {intensity:.3g} per byte, reaches at most {reached:.3g} TFLOP/s")
    for name, (lowest, highest) in (measured or {}).items():
        bottom, top = lowest * peak / 1e12, highest * peak / 1e12
        ax.plot([high * 1.15, high * 1.15], [bottom, top], "_-", color=GREEN, linewidth=2, markersize=8,
                markeredgewidth=2, clip_on=False)  # fmt: skip
        ax.annotate(f"{name}:\n{bottom:.0f} to {top:.0f}", (high * 1.15, math.sqrt(bottom * top)), (8, 0), ha="left",
                    va="center", textcoords="offset points", annotation_clip=False, fontsize=9, linespacing=1.05,
                    color=INK)  # fmt: skip
        said.append(f"measured, {name}: {bottom:.0f} to {top:.0f} TFLOP/s")
    if measured:
        ax.text(high / 1.1, peak / 1.1e12, f"roof: {peak / 1e12:.0f} TFLOP/s", ha="right", va="top",
                fontsize=10, color=INK)  # fmt: skip
        ax.text(4.6, 7.0, f"slope: {bandwidth / 1e12:.1f} TB/s × intensity", ha="left", va="top", fontsize=10,
                color=INK)  # fmt: skip
        ax.annotate("speeds that\nDao (2023)\nmeasured", (high * 1.15, 45), (-4, 0), ha="left", va="top",
                    textcoords="offset points", annotation_clip=False, fontsize=9, color=GREEN)  # fmt: skip
    ax.text(ridge / 1.1, 1.4, f"memory-bound, below {ridge:.0f}", ha="right", va="center", fontsize=10,
            color=ORANGE)  # fmt: skip
    ax.text(ridge * 1.1, 1.4, "compute-bound", ha="left", va="center", fontsize=10, color=BLUE)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    powers = [2**power for power in range(0, 12, 2)]
    ax.set_xticks(powers, [f"{power:g}" for power in powers])
    ax.set_yticks([1, 10, 100], ["1", "10", "100"])
    ax.set_xlim(low, high)
    ax.set_ylim(1, 700)
    ax.minorticks_off()
    ax.set_xlabel("arithmetic intensity, operations per byte of HBM traffic")
    ax.set_ylabel("speed, TFLOP/s" if measured else "highest possible, TFLOP/s")
    show(drawn, f"A roofline: it rises with the operations per byte up to {ridge:.0f}, then stays at "
                f"{peak / 1e12:.0f} TFLOP/s. {'; '.join(said)}.")  # fmt: skip


def tile_orders(rows: int = 4, columns: int = 4, now: int = 7, only_newer: bool = False) -> None:
    """In which order the tiles of the scores are computed, and what stays in SRAM while step `now` is one of many.

    The inner loop runs along an arrow. Orange tiles stay for the whole of it; pale ones are there for one step.
    With `only_newer` FlashAttention-2 stands alone. Raises ValueError for a step that there is not.
    """
    if not 1 <= now <= rows * columns:
        raise ValueError(f"now: got {now}, expected a step from 1 to {rows * columns}")
    drawn, _ = figure(4.4, 4.6) if only_newer else figure(7.4, 4.4, columns=2)
    orders = (
        (False, "FlashAttention (2022):\nouter loop over keys and values"),
        (True, "FlashAttention-2 (2023):\nouter loop over queries"),
    )
    passes = (*rgb(AMBER), 0.3)
    said = []
    for ax, (by_rows, title) in zip(drawn.axes, orders[-len(drawn.axes) :], strict=True):
        stage(ax, (-2.0, columns + 1.5), (rows + 0.75, -1.75))
        ax.set_title(title)
        major, minor = divmod(now - 1, columns if by_rows else rows)
        row, column = (major, minor) if by_rows else (minor, major)
        for i in range(rows):
            for j in range(columns):
                step = 1 + (i * columns + j if by_rows else j * rows + i)
                face = WEIGHTS(0.28) if step < now else "white"
                ax.add_patch(Rectangle((j, i), 1, 1, facecolor=face, edgecolor=GREY, linewidth=1))
                ax.text(j + 0.5, i + 0.5, f"{step}", ha="center", va="center", fontsize=11, color=INK)
        ax.add_patch(Rectangle((column, row), 1, 1, fill=False, edgecolor=INK, linewidth=2.6, zorder=4))
        for i in range(rows):
            for x, name, width in ((-1.15, "Q", 0.7), (columns + 0.35, "O", 0.7)):
                face = "white" if i != row else AMBER if by_rows else passes
                ax.add_patch(Rectangle((x, i + 0.08), width, 0.84, facecolor=face, edgecolor=GREY, linewidth=1))
                ax.text(x + width / 2, i + 0.5, f"${name}_{i + 1}$", ha="center", va="center", fontsize=11, color=INK)
        for j in range(columns):
            face = "white" if j != column else passes if by_rows else AMBER
            ax.add_patch(Rectangle((j + 0.08, -1.05), 0.84, 0.75, facecolor=face, edgecolor=GREY, linewidth=1))
            name = f"$K_{j + 1}, V_{j + 1}$"
            ax.text(j + 0.5, -0.68, name, ha="center", va="center", fontsize=9.5, color=INK)
        if by_rows:
            arrow(ax, (0.1, -1.3), (columns - 0.1, -1.3))
            ax.text(columns / 2, -1.55, "inner loop", ha="center", va="center", fontsize=10, color=INK)
        else:
            arrow(ax, (-1.4, 0.1), (-1.4, rows - 0.1))
            ax.text(-1.7, rows / 2, "inner loop", ha="center", va="center", fontsize=10, color=INK, rotation=90)
        per_step = "$K, V$ in" if by_rows else "$Q$ in; $O, m, \\ell$ in and out"
        crossing = "K and V come in" if by_rows else "Q comes in, and O, m and ℓ come in and go out"
        ax.text(columns / 2, rows + 0.42, f"moved at each step: {per_step}", ha="center", va="center", fontsize=10,
                color=INK)  # fmt: skip
        kept = f"Q and O tile {row + 1}" if by_rows else f"K and V tile {column + 1}"
        way = "along the rows" if by_rows else "down the columns"
        said.append(f"{title.splitlines()[0]} goes {way}: at step {now} "
                    f"query tile {row + 1} meets key tile {column + 1}, and {kept} stays for the whole inner loop, "
                    f"while at each step {crossing}")  # fmt: skip
    handles = [Patch(facecolor=AMBER, edgecolor=GREY, label="stays for the inner loop"),
               Patch(facecolor=passes, edgecolor=GREY, label="comes and goes"),
               Patch(facecolor="white", edgecolor=INK, linewidth=2.6, label=f"step {now}"),
               Patch(facecolor=WEIGHTS(0.28), edgecolor=GREY, label="done")]  # fmt: skip
    drawn.legend(handles=handles, frameon=False, loc="outside lower center", ncols=2 * len(drawn.axes), fontsize=9.5)
    show(
        drawn,
        f"Tiles of the score matrix, {rows} rows of queries by {columns} columns of keys, numbered in the order of "
        f"computing. {'. '.join(said)}.",
    )


def _check_multiple(n: int, name: str, size: int) -> None:
    check_places(n=n)
    if size < 1 or n % size:
        raise ValueError(f"n: got {n}, expected a multiple of the {name}, {size}")


def _pair(ax: Axes, i: int, j: int, used: bool, computed: bool = True) -> None:
    """The cell of query i and key j: coloured if it is used, hatched if it is computed and forbidden."""
    face, hatch = (BLUE, "") if used else ("white", "////" if computed else "")
    ax.add_patch(Rectangle((j, i), 1, 1, facecolor=face, hatch=hatch, edgecolor=PALE if used else GREY, linewidth=0.4))


def blocked_window(n: int, width: int) -> None:
    """Which scores a window in blocks computes and uses, computes and forbids (hatched), and never computes (white).

    Raises ValueError for an n that is not a multiple of the width.
    """
    _check_multiple(n, "width", width)
    drawn, ax = figure(6.2, 3.5)
    ax.set_aspect("equal")
    ax.set_xlim(0, n)
    ax.set_ylim(n, 0)
    used = computed = 0
    for i in range(n):
        for j in range(n):
            in_reach, near = abs(i // width - j // width) <= 1, abs(i - j) <= width
            computed, used = computed + in_reach, used + near
            _pair(ax, i, j, used=near, computed=in_reach)
    for at in range(0, n + 1, width):
        ax.axhline(at, color=INK, linewidth=1.4)
        ax.axvline(at, color=INK, linewidth=1.4)
    middles = [at + width / 2 for at in range(0, n, width)]
    ax.set_xticks(middles, [f"block {1 + k}" for k in range(n // width)])
    ax.set_yticks(middles, [f"block {1 + k}" for k in range(n // width)])
    ax.set_xlabel("keys")
    ax.set_ylabel("queries")
    ax.tick_params(length=0)
    handles = [Patch(facecolor=BLUE, label=f"used: {used}"),
               Patch(facecolor="white", hatch="////", edgecolor=GREY, label=f"computed, forbidden: {computed - used}"),
               Patch(facecolor="white", edgecolor=GREY, label=f"never computed: {n * n - computed}")]  # fmt: skip
    ax.legend(handles=handles, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1), fontsize=10)
    show(
        drawn,
        f"A window of {width} on each side over {n} positions, in blocks of {width}. Each block of queries meets its "
        f"own block of keys and the two beside it. {used} scores are used, {computed - used} are computed and "
        f"forbidden by the mask within the blocks, and {n * n - computed} are never computed.",
    )


def rolling_cache(w: int, times: Sequence[int]) -> None:
    """What stands in the w slots of a rolling cache after each of some tokens, a row for each: the newest is orange."""
    if w < 1 or min(times) < 0:
        raise ValueError(f"w, times: got {w} and {list(times)}, expected at least one slot, and tokens from 0 on")
    drawn, ax = figure(6.4, 0.9 + 0.42 * len(times))
    stage(ax, (-2.6, w + 4.9), (len(times) + 0.1, -0.9))
    for slot in range(w):
        ax.text(slot + 0.5, -0.3, f"slot {slot}", ha="center", va="center", fontsize=10, color=GREY)
    said = []
    for row, t in enumerate(times):
        for slot in range(w):
            token = t - (t - slot) % w
            face, hatch = ("white", "////") if token < 0 else (AMBER if token == t else WEIGHTS(0.28), "")
            ax.add_patch(Rectangle((slot, row), 1, 0.84, facecolor=face, hatch=hatch, edgecolor=GREY, linewidth=1))
            if token >= 0:
                ax.text(slot + 0.5, row + 0.42, f"$k_{{{token}}}, v_{{{token}}}$", ha="center", va="center",
                        fontsize=10.5, color=INK)  # fmt: skip
        first = max(0, t - w + 1)
        seen = f"tokens {first} to {t}" if first < t else f"token {t}"
        ax.text(-0.2, row + 0.42, f"after token {t}", ha="right", va="center", fontsize=10, color=INK)
        ax.text(w + 0.2, row + 0.42, f"token {t} attends to {seen}", ha="left", va="center", fontsize=10, color=INK)
        said.append(f"token {t} stands in slot {t % w} and attends to {seen}")
    show(drawn, f"A rolling cache with {w} slots. {'; '.join(said)}. Slots that are hatched are empty.")


def two_orders_of_products(n: int = 6, d: int = 2) -> None:
    """Q K^T V from the left, over a matrix (n, n), and from the right, over a state (d, d): drawn to scale, counted."""
    drawn, ax = figure(8.6, 5.6)
    stage(ax, (-0.6, 28.2), (-18.6, 1.6))
    ax.set_aspect("equal")
    sizes = {"n": n, "d": d}
    said = []
    q, k, v = ("$\\phi(Q)$", "nd", BLUE), ("$\\phi(K)^T$", "dn", ORANGE), ("$V$", "nd", GREEN)
    matrix, state, out = ("attention\nmatrix", "nn", GREY), ("$S$", "dd", GREY), ("$O$", "nd", AMBER)
    rows: list[tuple[float, str, tuple[Any, ...]]] = [
        (0.0, "softmax attention: the attention matrix first, {} multiplications",
         ((("$Q$", "nd", BLUE), ("$K^T$", "dn", ORANGE)), ("ndn", "exp, divide"), (matrix, v), ("nnd", ""), (out,))),
        (-9.9, "linear attention: the state first, {} multiplications",
         ((k, v), ("dnd", ""), (state,), None, (q, state), ("ndd", ""), (out,))),
    ]  # fmt: skip
    for top, title, steps in rows:
        x, middle, all_of_them = 0.0, top - 1.0 - n / 2, 0
        for step in steps:
            if step is None:                                                          # the next product begins
                ax.plot([x + 0.8, x + 0.8], [middle - n / 2, middle + n / 2], color=GREY, linewidth=1.2)
                x += 1.6
            elif isinstance(step[0], str):                                            # a product: what it costs
                cost = math.prod(sizes[size] for size in step[0])
                all_of_them += cost
                arrow(ax, (x + 0.3, middle), (x + 3.5, middle))
                ax.text(x + 1.9, middle - 0.3, f"${'·'.join(step[0])}$ = {cost}", ha="center", va="top", fontsize=10,
                        color=INK)  # fmt: skip
                ax.text(x + 1.9, middle + 0.3, step[1], ha="center", va="bottom", fontsize=10, color=INK)
                x += 3.8
            else:
                for at, (name, (high, wide), colour) in enumerate(step):
                    if at:
                        ax.text(x - 0.4, middle, "×", ha="center", va="center", fontsize=11, color=INK)
                    height, width = sizes[high], sizes[wide]
                    ax.add_patch(Rectangle((x, middle - height / 2), width, height, facecolor=(*rgb(colour), 0.25),
                                           edgecolor=GREY))  # fmt: skip
                    ax.text(x + width / 2, middle, name, ha="center", va="center", fontsize=10.5, color=INK)
                    ax.text(x + width / 2, middle - height / 2 - 0.25, f"${high} × {wide}$", ha="center", va="top",
                            fontsize=9.5, color=INK)  # fmt: skip
                    x += width + 0.8
                x -= 0.8
        ax.text(0, top, title.format(all_of_them), ha="left", va="bottom", fontsize=11, fontweight="bold", color=INK)
        said.append(title.format(all_of_them))
    show(
        drawn,
        f"Two orders of the products of queries, keys and values, for n = {n} and d = {d}. {'. '.join(said)}. With the "
        "softmax, exp stands between the two products, so Q K^T, n by n, comes first. Without it K^T V, d by d, can.",
    )


def chunkwise(n: int, chunk: int) -> None:
    """Causal linear attention in chunks: pairs within a chunk (blue), forbidden ones (hatched), and the states.

    Raises ValueError for an n that is not a multiple of the chunk.
    """
    _check_multiple(n, "chunk", chunk)
    drawn, ax = figure(6.0, 3.0)
    ax.set_aspect("equal")
    ax.set_xlim(0, 1.01 * n)
    ax.set_ylim(n, -0.01 * n)
    blocks = n // chunk
    for block in range(blocks):
        top = block * chunk
        if block:
            ax.add_patch(Rectangle((0, top), top, chunk, facecolor=(*rgb(GREEN), 0.3), edgecolor=GREY, linewidth=0.8))
            ax.text(top / 2, top + chunk / 2, f"$\\phi(Q_{block + 1})\\,S_{block}$", ha="center", va="center",
                    fontsize=10.5, color=INK)  # fmt: skip
        for i in range(top, top + chunk):
            for j in range(top, top + chunk):
                _pair(ax, i, j, used=j <= i)
        ax.add_patch(Rectangle((top, top), chunk, chunk, fill=False, edgecolor=INK, linewidth=1.4))
    middles = [at + chunk / 2 for at in range(0, n, chunk)]
    ax.set_xticks(middles, [f"$K_{k}, V_{k}$" for k in range(1, blocks + 1)])
    ax.set_yticks(middles, [f"$Q_{k}$" for k in range(1, blocks + 1)])
    ax.set_xlabel("keys and values, by chunk")
    ax.set_ylabel("queries, by chunk")
    ax.tick_params(length=0)
    within, earlier = blocks * chunk * (chunk + 1) // 2, chunk * chunk * blocks * (blocks - 1) // 2
    handles = [Patch(facecolor=BLUE, label=f"pairs written out: {within}"),
               Patch(facecolor="white", hatch="////", edgecolor=GREY,
                     label=f"forbidden, set to 0: {blocks * chunk * (chunk - 1) // 2}"),
               Patch(facecolor=(*rgb(GREEN), 0.3), edgecolor=GREY, label=f"through the state: {earlier}")]  # fmt: skip
    ax.legend(handles=handles, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1), fontsize=10)
    states = ["$S_1 = \\phi(K_1)^T V_1$", *(f"$S_{k} = S_{k - 1} + \\phi(K_{k})^T V_{k}$" for k in range(2, blocks))]
    for row, words in enumerate(states):
        ax.text(1.06, 0.5 - 0.13 * row, words, transform=ax.transAxes, ha="left", va="center", fontsize=10.5, color=INK)
    show(drawn, f"Causal linear attention of {n} positions in chunks of {chunk}. {within} pairs within the chunks are "
                f"written out; {earlier} pairs with earlier chunks are not: their keys and values come "
                "through the state after the chunk before.")  # fmt: skip


Round = list[tuple[int, int]]  # who is joined to whom: (the place it comes from, the place where the join stands)


def doubling_rounds(n: int) -> list[Round]:
    """In each round every position joins what ends `span` before it, and the span doubles. Hillis and Steele 1986."""
    spans = [2**r for r in range((n - 1).bit_length())]
    return [[(i - span, i) for i in range(span, n)] for span in spans]


def scan_circuit(n: int = 8) -> None:
    """A parallel scan of n steps, from the bottom up: a dot joins what comes from the left to what stands there.

    The joins that the last position needs are drawn stronger. Raises ValueError for fewer than two steps.
    """
    if n < 2:
        raise ValueError(f"n: got {n}, expected at least two steps")
    drawn, ax = figure(6.4, 3.2)
    rounds = doubling_rounds(n)
    stage(ax, (-2.6, n + 1.6), (-0.75, len(rounds) + 0.75))
    covers = [(i, i) for i in range(n)]
    needed = {n - 1}
    strong: set[tuple[int, int, int]] = set()
    for level, joined in reversed([*enumerate(rounds)]):
        strong |= {(level, start, end) for start, end in joined if end in needed}
        needed |= {start for start, end in joined if end in needed}
    for i in range(n):
        ax.plot([i, i], [0, len(rounds)], color=PALE, linewidth=1, zorder=1)
        ax.text(i, -0.25, f"{i + 1}", ha="center", va="top", fontsize=10, color=INK)
    for level, joined in enumerate(rounds):
        before = list(covers)
        first = max(0, n - 2 ** (level + 1)) + 1
        ax.text(n - 0.75, level + 1, f"{first}–{n}", ha="left", va="center", fontsize=10, color=ORANGE)
        for start, end in joined:
            needs = (level, start, end) in strong
            ax.plot([start, end], [level, level + 1], color=BLUE if needs else (*rgb(BLUE), 0.35),
                    linewidth=2.2 if needs else 1.1, zorder=2)  # fmt: skip
            ax.plot(end, level + 1, "o", color=ORANGE, markersize=8 if needs else 5, alpha=1 if needs else 0.5,
                    zorder=3)  # fmt: skip
            if before[start][1] + 1 != before[end][0]:
                raise ValueError(f"rounds: {before[start]} and {before[end]} are no neighbours")
            covers[end] = before[start][0], before[end][1]
        ax.text(-0.5, level + 1, f"round {level + 1}", ha="right", va="center", fontsize=10, color=INK)
    for i, (first, last) in enumerate(covers):
        ax.text(i, len(rounds) + 0.25, f"{first + 1}–{last + 1}" if last > first else f"{first + 1}", ha="center",
                va="bottom", fontsize=10, color=INK)  # fmt: skip
    for y, words in ((len(rounds) + 0.36, "steps joined"), (-0.37, "step")):
        ax.text(n - 0.4, y, words, ha="left", va="center", fontsize=10, color=GREY)
    joins = sum(map(len, rounds))
    show(
        drawn,
        f"A parallel scan of {n} steps in {len(rounds)} rounds with {joins} joins. At its end each position holds all "
        "steps up to its own, as written on top. A dot joins what comes from the left along the line to what stands "
        f"below it. The last position needs {len(strong)} of the joins.",
    )


def context_lengths(models: Mapping[str, tuple[int, int, int]], part: str = "pairs") -> None:
    """How long a context models read, {name: (year, n, d_model)}, beside 6 d_model, and the share of the part."""
    drawn, ax = figure(7.6, 3.6)
    said = []
    for i, (name, (year, n, d_model)) in enumerate(models.items()):
        half = 6 * d_model
        share = n / (n + half)
        ax.plot([i, i], [n, half], color=PALE, linewidth=2, zorder=1)
        ax.plot(i, half, "_", color=ORANGE, markersize=26, markeredgewidth=3)
        ax.plot(i, n, "o", color=BLUE, markersize=8)
        ax.annotate(f"{share:.0%}", (i, n), (9, 0), textcoords="offset points", ha="left", va="center", color=BLUE)
        said.append(f"{name}, {year}: n = {n:,}, 6 d_model = {half:,}, {part} {share:.0%}")
    named = max(0, len(models) // 2)                                                 # the model whose marks are named
    _, n, d_model = list(models.values())[named]
    ax.annotate(f"$6\\,d_\\mathrm{{model}}$: here the {part}\nare half of the operations", (named, 6 * d_model),
                (-20, 0), textcoords="offset points", ha="right", va="center", fontsize=10, color=ORANGE)  # fmt: skip
    ax.annotate(f"context n, and\nthe share of the {part}", (named, n), (-26, -10), textcoords="offset points",
                ha="left", va="top", fontsize=10, color=BLUE)  # fmt: skip
    ax.set_yscale("log", base=2)
    powers = [2**power for power in range(9, 18, 2)]
    ax.set_yticks(powers, [f"{power:,}" for power in powers])
    ax.set_xticks(range(len(models)), [f"{name}\n{year}" for name, (year, *_) in models.items()], fontsize=9.5)
    ax.set_xlim(-0.5, len(models) - 0.3)
    ax.set_ylabel("tokens")
    show(drawn, f"Contexts beside six times the width. {'; '.join(said)}.")


# What changes, and who does it; the attention matrix, which pairs of 6 by 6, and its size; what is kept of keys and
# values, (tokens, width), and its size. The first line gives the same result, the others another,
# and the last two have no softmax of scores.
FULL, FEW = torch.ones(6, 6), torch.tensor([[(2 * i * i + 3 * j) % 5 < 2 for j in range(6)] for i in range(6)]).float()
BAND = dense_mask(sliding_window(2), 6).float().tril()  # a causal window of 3 tokens
FAMILIES = {
    "same result": ("how it is computed", "FlashAttention 2022, KV cache", FULL, "n × n", (6, 1.4), "n × d"),
    "smaller cache": ("how much is kept of a key", "MQA 2019, GQA 2023, MLA 2024", FULL, "n × n", (6, 0.5),
                      "n × (less\nthan d)"),
    "sparse pattern": ("which pairs, fixed in advance", "Mistral 2023; BigBird 2020 keeps n × d", BAND, "n × w",
                       (3, 1.4), "w × d"),
    "chosen keys": ("which pairs, by their content", "Reformer 2020, NSA 2025", FEW, "n × few", (6, 1.4), "n × d"),
    "low rank": ("k mixtures replace n keys", "Linformer 2020, not causal", torch.ones(6, 2), "n × k", (2, 1.4),
                 "k × d"),
    "linear attention": ("a product of features replaces exp", "Katharopoulos 2020, DeltaNet 2021", None,
                         "none\nneeded", (2, 1.4), "d × d"),
    "recurrence": ("a state replaces the cache", "S4 2021, RWKV 2023, Mamba 2023", None, "none\nneeded", (2, 0.5),
                   "fixed"),
}  # fmt: skip


def taxonomy() -> None:
    """Families of cheaper attention: pairs, what is kept, what changes, examples. After Tay et al. 2020, figure 2."""
    drawn, ax = figure(9.0, 5.3)
    stage(ax, (-2.4, 15.4), (-9.5, 1.0))
    kinds = (("exact", BLUE, 1), ("softmax kept", ORANGE, 4), ("softmax\nreplaced", GREEN, 2))
    colours: list[str] = []
    for words, colour, rows in kinds:
        middle = -0.6 - 1.38 * (len(colours) + (rows - 1) / 2)
        ax.plot([-1.2, -1.2], [middle - 0.69 * rows + 0.1, middle + 0.69 * rows - 0.1], color=colour, linewidth=2)
        ax.text(-1.4, middle, words, ha="right", va="center", fontsize=10, rotation=90, color=INK)
        colours += rows * [colour]
    for words, x in (("pairs computed", 2.7), ("stored for keys, values", 5.5), ("what changes, for example", 9.2)):
        ax.text(x, 0.65, words, va="center", fontsize=10, style="italic", color=INK)
    unit = 0.19
    for row, ((name, family), colour) in enumerate(zip(FAMILIES.items(), colours, strict=True)):
        changed, members, pairs, computed, (tokens, width), kept = family
        y = -0.6 - 1.38 * row
        box(ax, 0.7, y, name, colour, width=3.3)
        if pairs is not None:
            high, wide = pairs.shape
            ax.imshow(pairs.numpy(), cmap=LinearSegmentedColormap.from_list(name, ["white", colour]), vmin=0, vmax=1.6,
                      interpolation="nearest", aspect="auto",
                      extent=(2.7, 2.7 + unit * wide, y - unit * high / 2, y + unit * high / 2))  # fmt: skip
            for at in range(wide + 1):
                x = 2.7 + unit * at
                ax.plot([x, x], [y - unit * high / 2, y + unit * high / 2], color=GREY, linewidth=0.5)
            for at in range(high + 1):
                level = y + unit * (at - high / 2)
                ax.plot([2.7, 2.7 + unit * wide], [level, level], color=GREY, linewidth=0.5)
        ax.text(4.0, y, computed, va="center", fontsize=10, color=INK)
        ax.add_patch(Rectangle((5.5, y - unit * width), unit * 1.4 * tokens, 2 * unit * width,
                               facecolor=(*rgb(colour), 0.5), edgecolor=INK, linewidth=1))  # fmt: skip
        ax.text(7.25, y, kept, va="center", fontsize=10, color=INK)
        ax.text(9.2, y + 0.24, changed, va="center", fontsize=10.5, color=INK)
        ax.text(9.2, y - 0.26, members, va="center", fontsize=9.5, color=GREY)
    ax.set_xlim(-2.4, 15.4)
    ax.set_ylim(-9.5, 1.0)
    said = "; ".join(f"{name}: {changed} ({members}), pairs {' '.join(computed.split())}, kept {' '.join(kept.split())}"
                     for name, (changed, members, _, computed, _, kept) in FAMILIES.items())  # fmt: skip
    show(drawn, f"Families of cheaper attention. {said}.")


def pattern_panels(masks: Mapping[str, Tensor]) -> None:
    """Sparse patterns side by side, {name: (n, n), True where allowed}: above each, its pairs and the layers it needs.

    That is, until every position can be reached from every other. Raises ValueError for what is no square.
    """
    drawn, grid = figure(2.7 * len(masks), 3.2, columns=len(masks))
    said = []
    for ax, (name, mask) in zip(np.atleast_1d(np.asarray(grid)), masks.items(), strict=True):
        layers = next((k for k in range(1, len(mask)) if receptive_field(mask, k).all()), None)
        needs = "never complete" if layers is None else f"{layers} {'layer' if layers == 1 else 'layers'}"
        ax.pcolormesh(mask.float().numpy(), cmap=WEIGHTS, vmin=0, vmax=1.3, edgecolors=PALE, linewidth=0.6)
        ax.set_aspect("equal")
        ax.invert_yaxis()
        bare(ax)
        ax.set_title(f"{name}:\n{int(mask.sum())} pairs, {needs}")
        ax.set_xlabel("key")
        said.append(f"{name}: {int(mask.sum())} of {mask.numel()} pairs, {needs}")
    drawn.axes[0].set_ylabel("query")
    show(drawn, "Sparse patterns, and the layers until every position can be reached from every other. "
                f"{'; '.join(said)}.")  # fmt: skip


def learning_steps(groups: Mapping[str, Mapping[str, Sequence[float | None]]], last: int) -> None:
    """After how many steps a task was learned, {group: {row: a number for each seed, or None for never}}.

    A group has its own colour and mark, and its name stands beside its first row; training ended after `last` steps.
    Marks that coincide stand one above the other.
    """
    rows = [(group, name, steps) for group, each in groups.items() for name, steps in each.items()]
    drawn, ax = figure(7.4, 0.8 + 0.42 * len(rows))
    order = list(groups)
    said = []
    for place, (group, name, steps) in enumerate(rows):
        style = line_style(order.index(group))
        ax.axhline(place, color=PALE, linewidth=0.8, zorder=1)
        learned = [step for step in steps if step is not None]
        words = ", ".join(f"{step:g}" for step in learned) or f"not after {last} steps"
        if learned:
            twins = [learned[:at].count(step) - (learned.count(step) - 1) / 2 for at, step in enumerate(learned)]
            heights = [place + 0.3 * twin for twin in twins]
            ax.plot(learned, heights, style["marker"], color=style["color"], markersize=8,
                    markerfacecolor="none", markeredgewidth=1.6, linestyle="none")  # fmt: skip
        else:
            ax.text(0.02 * last, place, f"not learned in {last} steps", ha="left", va="center", fontsize=10,
                    color=style["color"], bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
        if place == 0 or rows[place - 1][0] != group:
            ax.text(1.02 * last, place, group, ha="left", va="center", fontsize=10.5, fontweight="bold",
                    color=style["color"])  # fmt: skip
        said.append(f"{group}, {name}: {words}")
    ax.set_yticks(range(len(rows)), [name for _, name, _ in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(0, last)
    ax.set_xlabel("training steps until the loss is below 0.5")
    show(drawn, f"Training steps until the loss is below 0.5, one mark per seed. {'; '.join(said)}.")


Runs = Mapping[float, Sequence[float]]  # {x: a value for each seed}


def seed_lines(
    panels: Mapping[str, Mapping[str, Runs]],
    x_name: str,
    y_name: str,
    chance: float | None = None,
    beside: Mapping[str, Runs] | None = None,
    known: Mapping[str, tuple[float, str]] | None = None,
) -> None:
    """Shares against a size that doubles, {panel: {name: {x: a value a seed}}}: marks for seeds, lines through medians.

    A name has the same colour and mark in every panel; the first panel has all names. At the end of each line stand its
    name and its median in per cent. The lines `beside` are drawn broad and pale in every panel. A level `known`
    beforehand, {panel: (share, words)}, is dotted.
    """
    drawn, grid = figure(9.0, 3.6, columns=len(panels))
    axes = np.atleast_1d(np.asarray(grid))
    styles = {name: line_style(i) for i, name in enumerate(next(iter(panels.values())))}
    said = []
    for ax, (title, lines) in zip(axes, panels.items(), strict=True):
        parts, ends = [], []
        for name, runs in (beside or {}).items():
            middles = {x: statistics.median(values) for x, values in runs.items()}
            ax.plot(list(middles), list(middles.values()), label=name, color=PALE, linewidth=8, zorder=1,
                    solid_capstyle="round")  # fmt: skip
            ends.append((middles[max(middles)], max(middles), GREY, name))
            parts.append(f"{name}: " + ", ".join(f"{middle:.0%} at {x:g}" for x, middle in middles.items()))
        for name, runs in lines.items():
            style = styles[name] | {"markersize": 6.5, "markerfacecolor": "none", "markeredgewidth": 1.3}
            for x, values in runs.items():
                ax.plot([x] * len(values), list(values), **style | {"linestyle": "none"})
            middles = {x: statistics.median(values) for x, values in runs.items()}
            ax.plot(list(middles), list(middles.values()), label=name, **style | {"markevery": [], "linewidth": 1.8})
            ends.append((middles[max(middles)], max(middles), styles[name]["color"], name))
            parts.append(f"{name}: " + ", ".join(f"{middle:.0%} at {x:g}" for x, middle in middles.items()))
        low = -1.0
        for middle, last, colour, name in sorted(ends, key=lambda end: end[0]):       # labels must not cover each other
            low = max(middle, low + 0.09)
            ax.annotate(f"{name}: {middle:.0%}", (last, middle), (9, 190 * (low - middle)), textcoords="offset points",
                        ha="left", va="center", fontsize=10, color=colour)  # fmt: skip
        if chance is not None:
            ax.axhline(chance, color=GREY, linestyle=":", linewidth=1.4, zorder=1)
            ax.annotate("guessing", (0, chance), (3, 3), xycoords=("axes fraction", "data"),
                        textcoords="offset points", ha="left", va="bottom", fontsize=9.5, color=GREY)  # fmt: skip
        if known and title in known:
            share, words = known[title]
            ax.axhline(share, 0, 0.65, color=GREY, linestyle=":", linewidth=1.4, zorder=1)  # as far as the last mark
            ax.annotate(words, (0, share), (3, -9), xycoords=("axes fraction", "data"), textcoords="offset points",
                        ha="left", va="top", fontsize=9.5, color=GREY)  # fmt: skip
            parts.append(f"{words}, {share:.2f}, dotted")
        ax.set_xscale("log")
        xs = sorted({x for runs in lines.values() for x in runs})
        ax.set_xticks(xs, [f"{x:g}" for x in xs])
        ax.minorticks_off()
        ax.set_xlim(xs[0] / 1.3, xs[-1] * (xs[-1] / xs[0]) ** 0.55)                    # room for the names
        ax.set_ylim(0, 1.05)
        ax.set_title(title)
        ax.set_xlabel(x_name)
        ax.grid(axis="y", color=PALE, linewidth=0.8)
        ax.set_axisbelow(True)
        said.append(f"{title}: {'; '.join(parts)}")
    axes[0].set_ylabel(y_name)
    show(drawn, f"{y_name} against {x_name}, one mark per seed, lines through the medians. {'. '.join(said)}.")


def states_to_scale(shares: Mapping[tuple[int, int], Sequence[float]], name: str) -> None:
    """The share recalled, {(d_k, d_v): a value for each seed}, and under it each state as a rectangle d_k high."""
    drawn, (above, below) = figure(7.4, 4.3, rows=2)
    room = 1.4 * max(d_v for _, d_v in shares)
    most = max(d_k for d_k, _ in shares)
    said = []
    for place, ((d_k, d_v), values) in enumerate(shares.items()):
        middle, x = statistics.median(values), place * room
        style = {"color": BLUE, "markersize": 7, "markerfacecolor": "none", "markeredgewidth": 1.5, "linestyle": "none"}
        above.plot([x] * len(values), list(values), "o", **style)
        above.text(x + 0.07 * room, middle, f"{middle:.0%}", ha="left", va="center", fontsize=10.5, color=INK)
        below.add_patch(Rectangle((x - d_v / 2, -d_k), d_v, d_k, facecolor=(*rgb(ORANGE), 0.35), edgecolor=ORANGE))
        below.text(x, -most - 4, f"keys {d_k}, values {d_v}:\n{d_k * d_v:,} numbers", ha="center", va="top",
                   fontsize=10, color=INK)  # fmt: skip
        said.append(f"keys {d_k}, values {d_v}, {d_k * d_v:,} numbers: {middle:.0%}")
    ends = (-0.5 * room, (len(shares) - 0.5) * room)
    above.set_xlim(*ends)
    above.set_xticks([])
    above.set_ylim(0, 1.05)
    above.set_ylabel(name)
    above.grid(axis="y", color=PALE, linewidth=0.8)
    above.set_axisbelow(True)
    stage(below, ends, (-1.4 * most, 2))
    below.set_aspect("equal")
    show(drawn, f"{name}, one mark per seed; the medians, over states as rectangles, as high as keys and as broad as "
                f"values. {'; '.join(said)}.")  # fmt: skip


def cache_sizes(used: Mapping[str, float], plain: Mapping[str, float]) -> None:
    """GiB of KV cache by model, a row each: as it is (dots), and were all attention plain multi-head (triangles).

    Where the two differ, the factor stands between them.
    """
    drawn, ax = figure(7.4, 1.2 + 0.38 * len(used))
    kinds = ((plain, "^", ORANGE), (used, "o", BLUE))
    said = []
    for place, (name, gib) in enumerate(used.items()):
        ax.plot([gib, plain[name]], [place, place], color=PALE, linewidth=2, zorder=1)
        for sizes, marker, colour in kinds:
            ax.plot(sizes[name], place, marker, color=colour, markersize=8, linestyle="none", zorder=3)
        factor = plain[name] / gib
        size = f"{gib:.2g}" if factor > 1 else f"{gib:.2g}, no saving"
        ax.annotate(size, (gib, place), (-9, 0), textcoords="offset points", ha="right", va="center",
                    color=BLUE)  # fmt: skip
        words = f"{name}: {gib:.3g}"
        if factor > 1:
            ax.text(math.sqrt(gib * plain[name]), place, f"÷ {factor:.0f}", ha="center", va="center", fontsize=10,
                    color=INK, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5})  # fmt: skip
            words += f", {factor:.0f} times less than {plain[name]:.3g}"
        said.append(words)
    ax.set_xscale("log", base=2)
    powers = [2**power for power in range(-2, 11, 2)]
    ax.set_xlim(powers[0] / 1.4, powers[-1])
    ax.set_xticks(powers, [f"{power:g}" for power in powers])
    ax.set_yticks(range(len(used)), list(used))
    ax.set_ylim(len(used) - 0.5, -1.7)
    first = next(iter(used))
    ax.annotate("as it is", (used[first], 0), (0, 10), textcoords="offset points", ha="center", va="bottom",
                fontsize=10, color=BLUE)  # fmt: skip
    ax.annotate("with plain multi-head\nattention in every layer", (plain[first], 0), (0, 10), ha="center", va="bottom",
                textcoords="offset points", fontsize=10, color=ORANGE)  # fmt: skip
    ax.set_xlabel("KV cache, GiB")
    show(drawn, f"KV cache in GiB, by model, and how much less that is than with plain multi-head attention in every "
                f"layer. {'; '.join(said)}.")  # fmt: skip


def shares_in_rows(
    rows: Mapping[str, Mapping[str, Sequence[float]]],
    x_name: str,
    chance: float | None = None,
    named_in: str | None = None,
) -> None:
    """Numbers from 0 to 1, {row: {series: a value for each seed}}, as points on a line for each row.

    Marks that nearly coincide stand one above the other. The names of the series stand beside their marks in the row
    `named_in`, or, if there is none, in a legend.
    """
    drawn, ax = figure(7.2, 0.9 + 0.66 * len(rows))
    series = list(next(iter(rows.values())))
    said = []
    for place, (row, values) in enumerate(rows.items()):
        ax.axhline(place, color=PALE, linewidth=0.8, zorder=1)
        for i, name in enumerate(series):
            style = line_style(i)
            height = place + 0.28 * (i - (len(series) - 1) / 2)
            near = [[other for other in values[name] if abs(other - value) < 0.02] for value in values[name]]
            before = [sum(abs(other - value) < 0.02 for other in values[name][:at])
                      for at, value in enumerate(values[name])]  # fmt: skip
            apart = [0.075 * (at - (len(twins) - 1) / 2) for at, twins in zip(before, near, strict=True)]
            ax.plot(list(values[name]), [height + by for by in apart], style["marker"], color=style["color"],
                    markersize=6, markerfacecolor="none", markeredgewidth=1.4, label=name if place == 0 else None,
                    linestyle="none")  # fmt: skip
            if row == named_in:
                ax.annotate(name, (max(values[name]), height), (9, 0), textcoords="offset points", ha="left",
                            va="center", fontsize=10, color=style["color"])  # fmt: skip
        said.append(f"{row}: " + ", ".join(f"{name} {statistics.median(values[name]):.2f}" for name in series))
    if chance is not None:
        ax.axvline(chance, color=GREY, linestyle=":", linewidth=1.4, zorder=1)
        ax.text(chance, -0.75, " guessing", ha="left", va="center", fontsize=9.5, color=GREY)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylim(len(rows) - 0.5, -0.6 if chance is None else -1)                      # room for the word
    ax.set_xlim(-0.03, 1.05)
    ax.set_xlabel(x_name)
    if named_in is None:
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=1)
    show(drawn, f"{x_name}, one mark per seed; the medians. {'; '.join(said)}."
         + ("" if chance is None else f" Guessing gives {chance:.3g}."))  # fmt: skip
