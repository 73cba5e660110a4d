"""The figures of the paper, drawn from results: scores by length, heat maps, codes in the plane, convergence.

All return a ``matplotlib.figure.Figure`` in the style of :mod:`shorthash.lab.figures`. With more methods than
colours can tell apart, line style and marker carry the name too: dashed grey is unsupervised, thick is what the paper
proposes and what we recommend.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash.lab.figures import MARKERS, PALETTE, SERIES, figure_style, new_axes, settled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_heat_map", "draw_objective", "draw_scores_by_length", "line_style"]

WIDE, TALL = 6.6, 4.2  # inches: room for thirteen lines and their legend
GREY, INK = PALETTE["quiet"], PALETTE["ink"]
HOLLOW = PALETTE["on-series"]

# methods of the paper's figures: kinds share a stroke, markers are all different
STYLES: dict[str, dict[str, Any]] = {
    "SH": {"color": GREY, "marker": "o", "linestyle": "--", "markerfacecolor": HOLLOW},
    "PCA-ITQ": {"color": GREY, "marker": "s", "linestyle": "--", "markerfacecolor": HOLLOW},
    "PCA-RR": {"color": GREY, "marker": "^", "linestyle": "--", "markerfacecolor": HOLLOW},
    "MFH": {"color": GREY, "marker": "D", "linestyle": "--", "markerfacecolor": HOLLOW},
    "SDH": {"color": SERIES[0], "marker": "s"},
    "NSH": {"color": SERIES[2], "marker": "^"},
    "FSSH": {"color": SERIES[3], "marker": "D"},
    "SSLH": {"color": SERIES[4], "marker": "v"},
    "SDHMLR": {"color": SERIES[5], "marker": "P"},
    "RSLH-B": {"color": SERIES[1], "marker": "o", "linestyle": "--", "markerfacecolor": HOLLOW},
    "RSLH": {"color": SERIES[1], "marker": "o", "linewidth": 2.6, "markersize": 6, "zorder": 4},
    "classifier": {"color": INK, "marker": "X", "linestyle": ":"},
    "EAPH": {"color": INK, "marker": "*", "linewidth": 2.6, "markersize": 10, "zorder": 5},
}
ALIASES = {"pcaitq": "PCA-ITQ", "pcarr": "PCA-RR", "auto": "EAPH", "classifier code": "classifier"}
STROKES = ("-", "--", ":")


def line_style(name: str, number: int) -> dict[str, Any]:
    """Colour, marker and stroke of a series: fixed for the methods of the paper, by number for others.

    Parameters
    ----------
    name : name of the series
    number : its place among the series
    """
    known = ALIASES.get(name, name if name in STYLES else name.upper())
    if known in STYLES:
        return {"linewidth": 1.5, **STYLES[known]}
    rounds, place = divmod(number, len(SERIES))
    marker = MARKERS[(number + rounds) % len(MARKERS)]
    return {"color": SERIES[place], "marker": marker, "linestyle": STROKES[rounds % len(STROKES)], "linewidth": 1.5}


def draw_scores_by_length(
    curves: Mapping[str, Mapping[int, tuple[float, float]]], *, title: str, score: str = "precision"
) -> Figure:
    """A score by code length, one line per method, bars for the spread over seeds.

    Parameters
    ----------
    curves : method -> (mean, standard deviation) by code length; a method without any is left out
    title : what is drawn, usually the data set
    score : name of the score
    """
    with figure_style():
        figure, axes = new_axes("bits", score.replace("<=", "≤"), title, width=WIDE, height=TALL)
        drawn = {name: curve for name, curve in curves.items() if curve}
        for number, (name, curve) in enumerate(drawn.items()):
            lengths = sorted(curve)
            means, spreads = zip(*(curve[n] for n in lengths), strict=True)
            bars = np.nan_to_num(np.asarray(spreads, dtype=np.float64))
            axes.errorbar(lengths, means, yerr=bars, capsize=2, elinewidth=0.8, **line_style(name, number), label=name)
        _length_axis(axes, sorted({n for curve in drawn.values() for n in curve}))
        axes.set_ylim(bottom=0)
        if drawn:
            figure.legend(loc="outside right center", frameon=False, labelcolor=INK, handlelength=2.6)
    return settled(figure)


def draw_heat_map(
    values: ArrayLike, rows: Sequence[float], columns: Sequence[float], *, title: str, names: tuple[str, str]
) -> Figure:
    """A score over two parameters: a cell per pair, shaded and numbered.

    Parameters
    ----------
    values : (n_rows, n_columns) scores; nan where nothing was run
    rows, columns : values of the two parameters
    title : what is drawn
    names : names of the two parameters
    """
    grid = np.asarray(values, dtype=np.float64)
    with figure_style():
        height = 1.2 + 0.42 * len(rows)
        figure, axes = new_axes(names[1], names[0], title, width=max(4.4, 1.3 + 0.78 * len(columns)), height=height)
        low, high = _range(grid)
        mesh = axes.pcolormesh(np.ma.masked_invalid(grid), cmap="cividis", vmin=low, vmax=high, edgecolors="face")
        for (i, j), value in np.ndenumerate(grid):
            dark = math.isnan(value) or (value - low) / (high - low) > 0.45
            text = "-" if math.isnan(value) else f"{value:.3f}"
            colour = GREY if math.isnan(value) else "#000000" if dark else "#ffffff"
            axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=8, color=colour)
        axes.set_xticks(np.arange(len(columns)) + 0.5, [f"{x:g}" for x in columns])
        axes.set_yticks(np.arange(len(rows)) + 0.5, [f"{x:g}" for x in rows])
        axes.grid(visible=False)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        bar = figure.colorbar(mesh, ax=axes, fraction=0.05, pad=0.03)
        bar.outline.set_visible(False)
    return settled(figure)


def draw_objective(
    curves: Mapping[str, Sequence[tuple[float, Sequence[float]]]], *, title: str, from_start: bool = False
) -> Figure:
    """The objective by iteration, in per cent of its first value; one line per run.

    Parameters
    ----------
    curves : data set -> runs, each (value at the initial point, values after every iteration)
    title : what is drawn
    from_start : count the initial point as iteration 0, and in per cent of it
    """
    with figure_style():
        what = "the initial point" if from_start else "the first iteration"
        figure, axes = new_axes("iteration", f"per cent of {what}", title, width=WIDE, height=3.4)
        last, lowest = 1, 100.0
        for number, (name, runs) in enumerate((n, r) for n, r in curves.items() if r):
            for run, (initial, values) in enumerate(runs):
                line = np.asarray([initial, *values] if from_start else values, dtype=np.float64)
                line = 100 * line / line[0]
                x = np.arange(len(line)) + (0 if from_start else 1)
                look = {**line_style(name, number), "alpha": 0.85, "markersize": max(3.0, 10 - 2 * number)}
                axes.plot(x, line, **look, label=name if run == 0 else None)  # smaller on top: all can be seen
                last, lowest = max(last, int(x[-1])), min(lowest, float(line.min()))
        axes.set_xticks(np.arange(0 if from_start else 1, last + 1))
        axes.set_ylim(min(95.0, lowest - 0.05 * (100 - lowest)), 100 + max(0.3, 0.05 * (100 - lowest)))
        axes.ticklabel_format(axis="y", useOffset=False)
        if axes.get_legend_handles_labels()[0]:
            figure.legend(loc="outside right center", frameon=False, labelcolor=INK, handlelength=2.6)
    return settled(figure)


def _length_axis(axes: Axes, lengths: list[int]) -> None:
    """Lengths on a scale of doublings; names only where there is room."""
    if not lengths:
        return
    if lengths[-1] / lengths[0] > 4:
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
    at = np.log2(lengths) if axes.get_xscale() == "log" else np.asarray(lengths, dtype=np.float64)
    room = (at[-1] - at[0]) / 18
    labels, before = [], -math.inf
    for n, place in zip(lengths, at, strict=True):
        fits = place - before >= room
        labels.append(str(n) if fits else "")
        before = place if fits else before
    axes.set_xticks(lengths, labels)


def _range(grid: NDArray[np.float64]) -> tuple[float, float]:
    """Lowest and highest shade; a flat map has a range, too."""
    known = grid[~np.isnan(grid)]
    if not len(known):
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    return (low, high) if high - low > 0.02 else (low - 0.01, high + 0.01)
