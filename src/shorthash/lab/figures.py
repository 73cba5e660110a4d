"""Figures of scores in one style, and self-contained HTML pages of facts, tables and figures.

A drawing function returns a ``matplotlib.figure.Figure``; :func:`save_figure` writes it to a file, :func:`to_svg` gives
the text for a page. :func:`write_page` writes a page, with its tables and figures also as files.
"""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from shorthash._display import HEIGHT, PALETTE, SERIES, SMALL, WIDTH, axes_in_style, figure_style, line_style, templates
from shorthash._validation import require_extra
from shorthash.data.files import replacing
from shorthash.lab.tables import NOT_RUN, Table, to_csv, to_latex, to_markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE, TALL = 6.6, 4.2  # inches; with space for a long legend


@contextmanager
def drawing(
    x: str, y: str, title: str, *, width: float = WIDTH, height: float = HEIGHT
) -> Iterator[tuple[Figure, Axes]]:
    """A figure with one plot; its layout is computed at the end, so that saving it twice gives the same file.

    Parameters
    ----------
    x, y, title : labels of the axes, and the title on the left
    width, height : inches
    """
    figure_module = require_extra("matplotlib.figure", "report", "Drawing figures")
    with figure_style():
        figure = figure_module.Figure(figsize=(width, height))
        axes = figure.add_subplot()
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold", pad=10)
        yield figure, axes
        figure.draw_without_rendering()
    figure.set_layout_engine("none")


def figure_of(
    plot: Callable[..., Axes], *given: Any, title: str, width: float = WIDE, height: float = TALL, **settings: Any
) -> Figure:
    """The figure that a ``plot_...`` function draws on new axes.

    Parameters
    ----------
    plot : function that takes the axes as ``ax``
    *given, **settings : its other arguments
    title : title on the left
    width, height : inches
    """
    with drawing("", "", title, width=width, height=height) as (figure, axes):
        plot(*given, **settings, ax=axes)
    return figure


def plot_scores_by_length(
    curves: Mapping[str, Mapping[int, tuple[float, float]]],
    *,
    score: str,
    styles: Mapping[str, Mapping[str, Any]] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a score by code length, one line per method, with bars for the spread.

    Parameters
    ----------
    curves : method -> code length -> (mean, standard deviation); a method without any is left out
    score : name of the score
    styles : method -> line properties of matplotlib that replace those of :func:`line_style`
    ax : axes to draw on; by default those of a new figure
    """
    with axes_in_style(ax, WIDE, TALL) as axes:
        drawn = {name: curve for name, curve in curves.items() if curve}
        for number, (name, curve) in enumerate(drawn.items()):
            lengths = sorted(curve)
            means, spreads = zip(*(curve[n] for n in lengths), strict=True)
            bars = np.nan_to_num(np.asarray(spreads, dtype=np.float64))
            look = (styles or {}).get(name) or line_style(number)
            axes.errorbar(lengths, means, yerr=bars, capsize=2, elinewidth=0.8, **look, label=name)
        _length_axis(axes, sorted({n for curve in drawn.values() for n in curve}))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("bits")
        axes.set_ylabel(score.replace("<=", "≤"))
        if drawn:
            axes.figure.legend(loc="outside right center", handlelength=2.6)
    return axes


def draw_convergence(curves: Mapping[str, Sequence[Sequence[float]]], *, first: int = 1) -> Figure:
    """The objective by iteration, in per cent of the first value given; one line per run.

    Parameters
    ----------
    curves : name -> one sequence of objective values per run
    first : number of the first value: 1 is the value after the first iteration, 0 that of the starting point
    """
    y = f"per cent of {'the first' if first else 'the starting point'}"
    with drawing("iteration", y, "Objective by iteration", width=WIDE, height=3.4) as (figure, axes):
        last, lowest = 1, 100.0
        for number, (name, runs) in enumerate((name, runs) for name, runs in curves.items() if runs):
            look = {**line_style(number), "alpha": 0.85, "markersize": max(3.0, 10 - 2 * number)}
            for run, values in enumerate(runs):  # later lines have smaller markers: all can be seen
                line = 100 * np.asarray(values, dtype=np.float64) / values[0]
                x = np.arange(len(line)) + first
                axes.plot(x, line, **look, label=name if run == 0 else None)
                last, lowest = max(last, int(x[-1])), min(lowest, float(line.min()))
        axes.set_xticks(np.arange(first, last + 1))
        axes.set_ylim(min(95.0, lowest - 0.05 * (100 - lowest)), 100 + max(0.3, 0.05 * (100 - lowest)))
        _mark_break(axes)
        axes.ticklabel_format(axis="y", useOffset=False)
        if any(curves.values()):
            figure.legend(loc="outside right center")
    return figure


def _mark_break(axes: Axes) -> None:
    """Two strokes across an axis that does not begin at 0."""
    if axes.get_ylim()[0] > 0:
        place: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False, "gid": "axis-break"}
        across, up = [-0.012, 0.012, np.nan, -0.012, 0.012], [0.008, 0.032, np.nan, 0.038, 0.062]
        axes.plot(across, up, color=PALETTE["ink"], linewidth=1, **place)


def draw_heat_map(
    values: ArrayLike, rows: Sequence[float], columns: Sequence[float], *, title: str, names: Sequence[str]
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
    known = grid[~np.isnan(grid)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    if high - low < 0.02:  # a constant map needs a range
        low, high = low - 0.01, high + 0.01
    size = {"width": max(4.4, 1.3 + 0.78 * len(columns)), "height": 1.2 + 0.42 * len(rows)}
    with drawing(names[1], names[0], title, **size) as (figure, axes):
        mesh = axes.pcolormesh(np.ma.masked_invalid(grid), cmap="cividis", vmin=low, vmax=high, edgecolors="face")
        for (i, j), value in np.ndenumerate(grid):
            if math.isnan(value):
                text, colour = "-", PALETTE["quiet"]
            else:
                text, colour = f"{value:.3f}", "#000000" if (value - low) / (high - low) > 0.45 else "#ffffff"
            axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=8, color=colour)
        axes.set_xticks(np.arange(len(columns)) + 0.5, [f"{x:g}" for x in columns])
        axes.set_yticks(np.arange(len(rows)) + 0.5, [f"{x:g}" for x in rows])
        axes.grid(visible=False)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        figure.colorbar(mesh, ax=axes, fraction=0.05, pad=0.03).outline.set_visible(False)
    return figure


def draw_tie_bounds(lengths: Sequence[int], expected: ArrayLike, worst: ArrayLike, best: ArrayLike) -> Figure:
    """Mean average precision by code length, and the range in which the order of equal distances can move it.

    Parameters
    ----------
    lengths : code lengths
    expected, worst, best : mAP with the expectation over tie orders, and its bounds, one per length
    """
    means, low, high = np.asarray(expected), np.asarray(worst), np.asarray(best)
    with drawing("bits", "mAP", "mAP by code length") as (figure, axes):
        x = np.arange(len(lengths))
        axes.bar(x, high - low, bottom=low, width=0.34, color=SERIES[0], alpha=0.25, linewidth=0)
        axes.hlines([*low, *high], [*(x - 0.17)] * 2, [*(x + 0.17)] * 2, color=SERIES[0], linewidth=1.2)
        axes.plot(x, means, color=SERIES[0], marker="o", markersize=7, linestyle="none")
        centred: dict[str, Any] = {"textcoords": "offset points", "ha": "center", **SMALL}
        for position, mean, bottom, top in zip(x, means, low, high, strict=True):
            axes.annotate(f"{mean:.3f}", (position + 0.22, mean), va="center", fontsize=9)
            if top - bottom > 0.1:  # space to label the ends
                axes.annotate(f"best {top:.2f}", (position, top), (0, 4), **centred)
                axes.annotate(f"worst {bottom:.2f}", (position, bottom), (0, -4), va="top", **centred)
        axes.set_xticks(x, [str(length) for length in lengths])
        axes.set_xlim(-0.5, len(lengths) - 0.2)
        axes.set_ylim(0, 1.1)
        axes.set_yticks(np.linspace(0, 1, 6))
        axes.grid(axis="x", visible=False)
    return figure


def draw_precision_at_k(curves: Mapping[str, Mapping[int, float]]) -> Figure:
    """Precision among the first k items, the mean over all orders of ties.

    Parameters
    ----------
    curves : name -> precision by k, such as ``Scores.precision_at_k``
    """
    with drawing("k", "precision", "Precision among the first k") as (figure, axes):
        for number, (name, curve) in enumerate(curves.items()):
            axes.plot(list(curve), list(curve.values()), **line_style(number), label=name)
        every = sorted({k for curve in curves.values() for k in curve})
        if len(every) > 1:
            axes.set_xscale("log")
            axes.set_xticks(every, [str(k) for k in every])
            axes.minorticks_off()
        axes.set_ylim(0, 1.05)
        axes.legend(loc="lower left")
    return figure


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a figure to a .svg, .png or .pdf file, all of it or nothing."""
    target = Path(path)
    with replacing(target) as temporary, figure_style():
        figure.savefig(temporary, dpi=200, **_metadata(target.suffix))
    return target


def to_svg(figure: Figure, name: str) -> str:
    """A figure as an ``<svg>`` element for a page; its ids begin with ``name``.

    Colours of :data:`PALETTE` become CSS variables of the same names, so that the page sets them.
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


def _metadata(suffix: str) -> dict[str, Any]:
    """No date in files, so that the same figure is the same file."""
    return {".svg": {"metadata": {"Date": None}}, ".pdf": {"metadata": {"CreationDate": None}}}.get(suffix.lower(), {})


def _length_axis(axes: Axes, lengths: list[int]) -> None:
    """Ticks at the code lengths, on a logarithmic scale if they span more than two doublings; labels that fit."""
    if not lengths:
        return
    at = np.asarray(lengths, dtype=np.float64)
    if lengths[-1] / lengths[0] > 4:
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
        at = np.log2(at)
    room = (at[-1] - at[0]) / 18
    labels, previous = [], -math.inf
    for n, place in zip(lengths, at, strict=True):
        fits = place - previous >= room
        labels.append(str(n) if fits else "")
        previous = place if fits else previous
    axes.set_xticks(lengths, labels)


# pages ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Section:
    """One part of a page.

    Attributes
    ----------
    name : anchor on the page; names of its files begin with it
    title, caption, note : text; a note is shown in grey
    tables : title -> table; a title may be empty
    figures : name -> (figure, caption)
    html : HTML below the tables, inserted as it is
    look : "words" for tables of long text, "small" for small print, "" for numbers
    folded : whether the tables are collapsed
    csv, latex : contents of these files, if they are not the tables
    """

    name: str
    title: str
    caption: str = ""
    note: str = ""
    tables: Mapping[str, Table] = field(default_factory=dict)
    figures: Mapping[str, tuple[Figure, str]] = field(default_factory=dict)
    html: str = ""
    look: str = ""
    folded: bool = False
    csv: str | None = None
    latex: str | None = None

    def texts(self) -> dict[str, str]:
        """File name -> content: the tables in markdown, LaTeX and CSV."""
        if not self.tables:
            return {}
        titled = [(f"## {title}\n\n" if title else "") + to_markdown(table) for title, table in self.tables.items()]
        latex = "\n".join(f"% {title}\n{to_latex(table)}" for title, table in self.tables.items())
        head = [f"# {self.title}\n", *([f"{self.caption}\n"] if self.caption else [])]
        return {
            f"{self.name}.md": "\n".join([*head, *titled]),
            f"{self.name}.tex": latex if self.latex is None else self.latex,
            f"{self.name}.csv": "\n".join(map(to_csv, self.tables.values())) if self.csv is None else self.csv,
        }


@dataclass(frozen=True)
class Page:
    """The contents of a page.

    Attributes
    ----------
    title, lede : heading and introduction
    sections : its parts, in order
    facts : (value, label), the main numbers
    footer : how it was made
    wide : whether it has wide tables and a list of its sections
    """

    title: str
    lede: str
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]] = ()
    footer: str = ""
    wide: bool = True


def write_page(page: Page, folder: str | Path, name: str = "index.html", *, files: bool = True) -> Path:
    """Write a page and, unless ``files`` is false, its tables (.md, .tex, .csv) and figures (.png, .svg) beside it.

    Parameters
    ----------
    page : what to write
    folder : created if necessary
    name : of the page
    files : whether tables and figures become files, too
    """
    html = page_html(page)  # first, so that a missing extra leaves no empty folder
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for section in page.sections if files else ():
        for file, text in section.texts().items():
            write_text(target / file, text)
        for figure_name, (figure, _) in section.figures.items():
            for ending in (".png", ".svg"):
                save_figure(figure, target / f"{figure_name}{ending}")
    return write_text(target / name, html)


def page_html(page: Page) -> str:
    """A page as HTML that needs no other file."""
    for module in ("matplotlib", "jinja2"):
        require_extra(module, "report", "Writing a report")
    return render("page.html", {**vars(page), "svg": to_svg, "not_run": NOT_RUN})


def render(template: str, values: Mapping[str, Any]) -> str:
    """Fill a template of ``lab/templates``.

    Text is escaped, except what the template marks as safe. A name that is not in ``values`` is an error.

    Parameters
    ----------
    template : file name, for instance "page.html"
    values : what the template shows: text, numbers, lists and dicts of them
    """
    environment = templates(Path(__file__).parent / "templates")
    environment.filters["math"] = lambda text: str(text).replace("<=", "≤")
    return str(environment.get_template(template).render(values))


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file, all of it or nothing."""
    target = Path(path)
    with replacing(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return target


def image_uri(pixels: ArrayLike) -> str:
    """A small grey image as a ``data:`` address; the page scales it up without smoothing.

    Parameters
    ----------
    pixels : (height, width) ink, 0 is white and 1 is black
    """
    image = require_extra("matplotlib.image", "report", "Writing a report")
    out = io.BytesIO()
    image.imsave(out, np.asarray(pixels), cmap="gray_r", vmin=0, vmax=1, format="png", metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode("ascii")
