"""Figures of codes and scores, drawn with matplotlib; one style for all of them.

Every function returns a ``matplotlib.figure.Figure``; :func:`save_figure` writes it to a file, :func:`to_svg` gives the
text for a page. Colours can be told apart by colour-blind readers, and no meaning rests on colour alone.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._labels import group_labels
from shorthash._validation import require_extra
from shorthash.codes import as_codes, pack
from shorthash.data.files import replacing
from shorthash.errors import InvalidInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from shorthash.evaluation.metrics.pr_curve import PRCurve

__all__ = [
    "MAX_MAP_BITS",
    "PALETTE",
    "draw_bucket_map",
    "draw_convergence",
    "draw_map_by_length",
    "draw_pr_curve",
    "draw_precision_at_k",
    "draw_tie_bounds",
    "figure_style",
    "new_axes",
    "save_figure",
    "settled",
    "to_svg",
]

PALETTE = {  # name -> colour on white; pages may replace each by its counterpart on another ground
    "ink": "#1b2430",
    "quiet": "#5c6b7a",
    "grid": "#dfe5ea",
    "series-1": "#0072b2",
    "series-2": "#d55e00",
    "series-3": "#00916a",
    "series-4": "#b3568f",
    "series-5": "#7a6a00",
    "series-6": "#4fa3d9",
    "on-series": "#fefefe",
}
SERIES = [colour for name, colour in PALETTE.items() if name.startswith("series-")]
MARKERS = "osD^vP"
WIDTH, HEIGHT = 4.4, 3.1  # inches: small, so that letters stay legible on a phone
MAX_MAP_BITS = 12
LABELLED_CELLS = 8  # a map with at most so many columns has room for words in its cells
NAMED_RADII = 3  # points of a precision-recall curve that are named
SHOWN_SHARE = 0.1  # a class is named in a bucket if it makes up this share of it


def figure_style() -> AbstractContextManager[None]:
    """The one style, as a context: what is drawn and saved inside has it."""
    matplotlib = require_extra("matplotlib", "report", "Drawing figures")
    settings = {
        "font.size": 9,
        "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
        "axes.edgecolor": PALETTE["quiet"],
        "axes.labelcolor": PALETTE["quiet"],
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.grid": True,
        "grid.color": PALETTE["grid"],
        "grid.linewidth": 0.8,
        "text.color": PALETTE["ink"],
        "xtick.color": PALETTE["quiet"],
        "ytick.color": PALETTE["quiet"],
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "lines.linewidth": 1.8,
        "lines.markersize": 5,
        "figure.constrained_layout.use": True,
        "svg.fonttype": "none",
        "svg.hashsalt": "shorthash",
    }
    return matplotlib.rc_context(settings)  # type: ignore[no-any-return]


def draw_tie_bounds(lengths: Sequence[int], expected: ArrayLike, worst: ArrayLike, best: ArrayLike) -> Figure:
    """Mean average precision by code length, and the range in which the order of equal distances can move it.

    Parameters
    ----------
    lengths : code lengths
    expected, worst, best : mAP with the expectation over tie orders, and its bounds, one per length
    """
    means, low, high = np.asarray(expected), np.asarray(worst), np.asarray(best)
    with figure_style():
        figure, axes = new_axes("bits", "mAP", "mAP by code length")
        x = np.arange(len(lengths))
        axes.bar(x, high - low, bottom=low, width=0.34, color=SERIES[0], alpha=0.25, linewidth=0)
        axes.hlines([*low, *high], [*(x - 0.17)] * 2, [*(x + 0.17)] * 2, color=SERIES[0], linewidth=1.2)
        axes.plot(x, means, color=SERIES[0], marker="o", markersize=7, linestyle="none")
        for position, mean, bottom, top in zip(x, means, low, high, strict=True):
            axes.annotate(f"{mean:.3f}", (position + 0.22, mean), va="center", fontsize=9)
            if top - bottom > 0.1:  # room for the ends
                axes.annotate(
                    f"best {top:.2f}", (position, top), (0, 4), textcoords="offset points", ha="center", **_SMALL
                )
                axes.annotate(
                    f"worst {bottom:.2f}",
                    (position, bottom),
                    (0, -4),
                    textcoords="offset points",
                    ha="center",
                    va="top",
                    **_SMALL,
                )
        axes.set_xticks(x, [str(length) for length in lengths])
        axes.set_xlim(-0.5, len(lengths) - 0.2)
        axes.set_ylim(0, 1.1)
        axes.set_yticks(np.linspace(0, 1, 6))
        axes.grid(axis="x", visible=False)
    return settled(figure)


def draw_convergence(runs: Mapping[str, Sequence[Sequence[float]]]) -> Figure:
    """The objective after every iteration, in per cent of its value after the first.

    Parameters
    ----------
    runs : name -> one sequence of objective values per run
    """
    with figure_style():
        figure, axes = new_axes("iteration", "per cent of the first", "Objective by iteration")
        last = max((len(values) for several in runs.values() for values in several), default=1)
        for number, (name, several) in enumerate(runs.items()):
            for run, values in enumerate(several):
                line = 100 * np.asarray(values, dtype=np.float64) / values[0]
                label = name if run == 0 else None
                axes.plot(np.arange(1, len(line) + 1), line, **_series(number), alpha=0.85, label=label)
        axes.set_xticks(np.arange(1, last + 1))
        axes.ticklabel_format(axis="y", useOffset=False)
        axes.legend(frameon=False, loc="upper right", labelcolor=PALETTE["ink"])
    return settled(figure)


def draw_pr_curve(curves: Mapping[str, PRCurve]) -> Figure:
    """Precision against recall, one point per Hamming radius.

    Parameters
    ----------
    curves : name -> precision and recall at every radius, such as ``Scores.pr_curve``
    """
    with figure_style():
        figure, axes = new_axes("recall", "precision", "Precision and recall by radius")
        for number, (name, curve) in enumerate(curves.items()):
            axes.plot(curve.recall, curve.precision, **_series(number), label=name)
        lowest = min(float(curve.recall[0]) for curve in curves.values())
        left = max(0.0, 1 - 1.5 * (1 - lowest)) if lowest > 0.5 else 0.0  # recall that starts high deserves the room
        margin = 0.04 * (1 - left)
        axes.set_xlim(left - margin, 1 + margin)
        axes.set_ylim(0, 1.12)
        _name_radii(axes, max(curves.values(), key=lambda curve: len(curve.radius)), 1 - left)
        axes.legend(frameon=False, loc="lower left", labelcolor=PALETTE["ink"])
    return settled(figure)


def draw_precision_at_k(curves: Mapping[str, Mapping[int, float]]) -> Figure:
    """Precision among the first k items, ties counted with their expectation.

    Parameters
    ----------
    curves : name -> precision by k, such as ``Scores.precision_at_k``
    """
    with figure_style():
        figure, axes = new_axes("k", "precision", "Precision among the first k")
        for number, (name, curve) in enumerate(curves.items()):
            axes.plot(list(curve), list(curve.values()), **_series(number), label=name)
        every = sorted({k for curve in curves.values() for k in curve})
        if len(every) > 1:
            axes.set_xscale("log")
            axes.set_xticks(every, [str(k) for k in every])
            axes.minorticks_off()
        axes.set_ylim(0, 1.05)
        axes.legend(frameon=False, loc="lower left", labelcolor=PALETTE["ink"])
    return settled(figure)


def draw_map_by_length(curves: Mapping[str, Mapping[int, tuple[float, float]]]) -> Figure:
    """Mean average precision by code length, with the spread over folds or seeds.

    Parameters
    ----------
    curves : name -> (mean, standard deviation) by code length
    """
    with figure_style():
        figure, axes = new_axes("bits", "mAP", "Expected mAP by code length")
        for number, (name, curve) in enumerate(curves.items()):
            means, spreads = zip(*curve.values(), strict=True)
            axes.errorbar(list(curve), means, yerr=spreads, capsize=3, **_series(number), label=name)
        every = sorted({n_bits for curve in curves.values() for n_bits in curve})
        axes.set_xticks(every, [str(n_bits) for n_bits in every])
        axes.set_ylim(0, 1.05)
        axes.legend(frameon=False, loc="lower right", labelcolor=PALETTE["ink"])
    return settled(figure)


def draw_bucket_map(codes: ArrayLike, labels: ArrayLike | None = None) -> Figure:
    """All codes of a length as a grid whose neighbours differ in one bit, shaded by how many items each holds.

    The edges are neighbours too, as on a torus. Where there is room, a bucket names the classes that make up a tenth
    of it or more, the largest first, and its number of items.

    Parameters
    ----------
    codes : (n_samples, n_bits) signs, at most 12 bits
    labels : their class labels, or an indicator matrix; without them only numbers are shown
    """
    signs = as_codes(codes)
    n_bits = signs.shape[1]
    if n_bits > MAX_MAP_BITS:
        raise InvalidInput(f"A bucket map needs codes of at most {MAX_MAP_BITS} bits. Got {n_bits} instead.")
    grid = _gray_grid(n_bits)
    packed = pack(signs).astype(np.int64)
    counts = np.bincount(packed, minlength=1 << n_bits)[grid]
    names = _bucket_names(packed, labels)
    with figure_style():
        occupied = int(np.count_nonzero(counts))
        title = f"{n_bits} bits: {occupied} of {1 << n_bits} buckets hold items"
        figure, axes = new_axes("", "", title, height=0.5 + 3.6 * grid.shape[0] / grid.shape[1])
        _draw_cells(axes, grid, counts, names)
    return settled(figure)


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a figure to a .svg, .png or .pdf file; the file appears whole or not at all."""
    target = Path(path)
    with replacing(target) as temporary, figure_style():
        figure.savefig(temporary, dpi=200, **_metadata(target.suffix))
    return target


def to_svg(figure: Figure, name: str) -> str:
    """A figure as an ``<svg>`` element for a page; ``name`` keeps its ids apart from those of other figures.

    Colours of :data:`PALETTE` become CSS variables of the same names, so that the page decides on them.
    """
    out = io.StringIO()
    with figure_style():
        figure.savefig(out, format="svg", transparent=True, **_metadata(".svg"))
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    for colour_name, colour in PALETTE.items():
        text = text.replace(colour, f"var(--{colour_name})")
    return text


_SMALL: dict[str, Any] = {"fontsize": 8, "color": PALETTE["quiet"]}


def new_axes(x: str, y: str, title: str, *, width: float = WIDTH, height: float = HEIGHT) -> tuple[Figure, Axes]:
    """A figure with one plot; its title stands on the left."""
    figure_module = require_extra("matplotlib.figure", "report", "Drawing figures")
    figure = figure_module.Figure(figsize=(width, height))
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold", pad=10)
    return figure, axes


def settled(figure: Figure) -> Figure:
    """The figure with its layout computed once, so that it looks the same however often it is written."""
    with figure_style():
        figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def _series(number: int) -> dict[str, Any]:
    """Colour and marker of a series."""
    return {"color": SERIES[number % len(SERIES)], "marker": MARKERS[number % len(MARKERS)]}


def _metadata(suffix: str) -> dict[str, Any]:
    """No date in files, so that the same figure is the same file."""
    return {".svg": {"metadata": {"Date": None}}, ".pdf": {"metadata": {"CreationDate": None}}}.get(suffix.lower(), {})


def _name_radii(axes: Axes, curve: PRCurve, width: float) -> None:
    """Write the first radii at their points; points that touch share one name."""
    named: list[tuple[float, float, list[str]]] = []
    for radius, x, y in zip(curve.radius[:NAMED_RADII], curve.recall, curve.precision, strict=False):
        if named and abs(x - named[-1][0]) < 0.05 * width and abs(y - named[-1][1]) < 0.05:
            named[-1][2].append(str(radius))
        else:
            named.append((float(x), float(y), [str(radius)]))
    for x, y, radii in named:
        text = f"radius {', '.join(radii)}"
        axes.annotate(text, (x, y), (0, 7), textcoords="offset points", ha="center", **_SMALL)


def _gray_grid(n_bits: int) -> NDArray[np.int64]:
    """All codes in a grid, (2^floor(n/2), 2^ceil(n/2)): neighbours, also around the edges, differ in one bit."""
    low = (n_bits + 1) // 2
    columns, rows = np.arange(1 << low), np.arange(1 << (n_bits - low))
    gray_columns, gray_rows = columns ^ (columns >> 1), rows ^ (rows >> 1)
    return (gray_rows[:, None] << low) | gray_columns[None, :]


def _bucket_names(packed: NDArray[np.int64], labels: ArrayLike | None) -> dict[int, str]:
    """For every occupied code the classes that are common in it, the most frequent first."""
    if labels is None:
        return {}
    groups = group_labels(labels, owner="draw_bucket_map", n_samples=len(packed))
    titles = [", ".join(str(name) for name in groups.classes[row.astype(bool)].tolist()) for row in groups.rows]
    names = {}
    for code in np.unique(packed):
        ids, counts = np.unique(groups.ids[packed == code], return_counts=True)
        ranked = ids[np.argsort(-counts, kind="stable")]
        kept = ranked[: max(1, int((counts >= SHOWN_SHARE * counts.sum()).sum()))]
        names[int(code)] = " ".join(titles[i] for i in kept)
    return names


def _draw_cells(axes: Axes, grid: NDArray[np.int64], counts: NDArray[np.int64], names: dict[int, str]) -> None:
    """A grid of lines, and one square per occupied code; fuller is darker."""
    patches = require_extra("matplotlib.patches", "report", "Drawing figures")
    n_rows, n_columns = grid.shape
    lines: dict[str, Any] = {"color": PALETTE["grid"], "linewidth": 0.8, "clip_on": False}
    axes.hlines(np.arange(n_rows + 1), 0, n_columns, **lines)
    axes.vlines(np.arange(n_columns + 1), 0, n_rows, **lines)
    for row, column in np.argwhere(counts).tolist():
        share = counts[row, column] / counts.max()
        fill = {"facecolor": SERIES[0], "alpha": 0.15 + 0.85 * share, "linewidth": 0}
        axes.add_patch(patches.Rectangle((column, row), 1, 1, **fill))
        colour = PALETTE["on-series"] if share > 0.5 else PALETTE["ink"]
        name = names.get(int(grid[row, column]), "")
        _write_cell(axes, (column, row), name, int(counts[row, column]), colour, n_columns <= LABELLED_CELLS)
    axes.set_xlim(0, n_columns)
    axes.set_ylim(n_rows, 0)
    axes.set_aspect("equal")
    axes.axis("off")


def _write_cell(axes: Axes, corner: tuple[int, int], name: str, count: int, colour: str, roomy: bool) -> None:
    """What a bucket says: its classes above its number of items, or the classes alone where it is small."""
    x, y = corner[0] + 0.5, corner[1] + 0.5
    centred: dict[str, Any] = {"ha": "center", "va": "center", "color": colour}
    if not roomy:
        axes.text(x, y, name.split(" ")[0], fontsize=6, **centred)
    elif name:
        axes.text(x, y - 0.14, name, fontsize=10, fontweight="bold", **centred)
        axes.text(x, y + 0.24, str(count), fontsize=7.5, **centred)
    else:
        axes.text(x, y, str(count), fontsize=9, **centred)
