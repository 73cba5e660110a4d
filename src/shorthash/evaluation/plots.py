"""Figures of scores, on axes of matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shorthash._display import SMALL, axes_in_style, line_style
from shorthash.errors import InvalidInput
from shorthash.evaluation.metrics import PRCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from shorthash.evaluation.scores import Scores

NAMED_RADII = 3  # points of a precision-recall curve that are named


def plot_precision_recall(scores: Scores | PRCurve | Mapping[str, Scores | PRCurve], *, ax: Axes | None = None) -> Axes:
    """Draw precision against recall, one point per Hamming radius.

    Parameters
    ----------
    scores : Scores of codes, or several by name
    ax : axes to draw on; by default those of a new figure

    Returns
    -------
    Axes
        What was drawn on.

    Examples
    --------
    >>> from shorthash import evaluate
    >>> from shorthash.evaluation import plot_precision_recall
    >>> codes = [[1, 1], [1, -1], [-1, -1], [-1, -1]]
    >>> ax = plot_precision_recall({"two bits": evaluate(codes, [0, 0, 1, 1])})
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('recall', 'precision')
    """
    given = scores if isinstance(scores, Mapping) else {"": scores}
    curves = {name: each if isinstance(each, PRCurve) else each.pr_curve for name, each in given.items()}
    drawn = {name: curve for name, curve in curves.items() if curve is not None}
    if not drawn or len(drawn) < len(curves):
        raise InvalidInput("plot_precision_recall needs scores of codes: real-valued distances have no radius.")
    with axes_in_style(ax) as axes:
        for number, (name, curve) in enumerate(drawn.items()):
            axes.plot(curve.recall, curve.precision, **line_style(number), label=name)
        lowest = min(float(curve.recall[0]) for curve in drawn.values())
        left = max(0.0, 1 - 1.5 * (1 - lowest)) if lowest > 0.5 else 0.0  # zoom in if recall starts high
        margin = 0.04 * (1 - left)
        axes.set_xlim(left - margin, 1 + margin)
        axes.set_ylim(0, 1.12)
        axes.set_xlabel("recall")
        axes.set_ylabel("precision")
        _name_radii(axes, max(drawn.values(), key=lambda curve: len(curve.radius)), 1 - left)
        if any(drawn):
            axes.legend(loc="lower left")
    return axes


def _name_radii(axes: Axes, curve: PRCurve, width: float) -> None:
    """Label the first radii; points that are close share one label."""
    named: list[tuple[float, float, list[str]]] = []
    for radius, x, y in zip(curve.radius[:NAMED_RADII], curve.recall, curve.precision, strict=False):
        if named and abs(x - named[-1][0]) < 0.05 * width and abs(y - named[-1][1]) < 0.05:
            named[-1][2].append(str(radius))
        else:
            named.append((float(x), float(y), [str(radius)]))
    for x, y, radii in named:
        text = f"radius {', '.join(radii)}"
        axes.annotate(text, (x, y), (0, 7), textcoords="offset points", ha="center", **SMALL)
