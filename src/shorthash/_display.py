"""How results are shown: figures in one style, tables as HTML, templates of HTML pages, and values for JSON.

Colours can be distinguished by colour-blind readers, and colour is never the only distinction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from decimal import Decimal
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shorthash._validation import require_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PALETTE = {  # name -> colour on white; a page may replace each of them for a dark background
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
STROKES = ("-", "--", ":")
WIDTH, HEIGHT = 4.4, 3.1  # inches; small, so that text is legible on a phone
SMALL: dict[str, Any] = {"fontsize": 8, "color": PALETTE["quiet"]}


def figure_style() -> AbstractContextManager[None]:
    """A context in which figures are drawn and saved in the common style."""
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
        "lines.linewidth": 1.5,
        "lines.markersize": 5,
        "legend.frameon": False,
        "legend.labelcolor": PALETTE["ink"],
        "figure.constrained_layout.use": True,
        "svg.fonttype": "none",
        "svg.hashsalt": "shorthash",
    }
    return matplotlib.rc_context(settings)  # type: ignore[no-any-return]


def line_style(number: int) -> dict[str, Any]:
    """Colour, marker and stroke of a series, different for the first 18."""
    rounds, place = divmod(number, len(SERIES))
    marker = MARKERS[(number + rounds) % len(MARKERS)]
    return {"color": SERIES[place], "marker": marker, "linestyle": STROKES[rounds % len(STROKES)]}


@contextmanager
def axes_in_style(ax: Axes | None, width: float = WIDTH, height: float = HEIGHT) -> Iterator[Axes]:
    """The given axes, or those of a new figure of pyplot; what is drawn in this context has the common style.

    Parameters
    ----------
    ax : axes to draw on
    width, height : inches of a new figure
    """
    with figure_style():
        if ax is None:
            pyplot = require_extra("matplotlib.pyplot", "report", "Drawing figures")
            _, ax = pyplot.subplots(figsize=(width, height))
        yield ax


def templates(folder: Path) -> Any:
    """The Jinja templates of a folder; text is escaped, and an undefined name is an error."""
    jinja2 = require_extra("jinja2", "report", "Writing a page")
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """A table as HTML; all text is escaped.

    Examples
    --------
    >>> html_table(["k"], [[1], ["<2"]])
    '<table><thead><tr><th>k</th></tr></thead><tbody><tr><td>1</td></tr><tr><td>&lt;2</td></tr></tbody></table>'
    """

    def line(cells: Sequence[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    body = "".join(line(row, "td") for row in rows)
    return f"<table>{title}<thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"


def plain(value: Any) -> Any:
    """A value as JSON holds it: arrays as lists, numbers of NumPy as Python's, times in ISO 8601, missing ones as None.

    Examples
    --------
    >>> plain({"map": float("nan"), 4: (1, 2)})
    {'map': None, '4': [1, 2]}
    """
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # of pandas
        return None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float | Decimal):
        return float(value) if math.isfinite(value) else None
    return value.isoformat() if hasattr(value, "isoformat") else value
