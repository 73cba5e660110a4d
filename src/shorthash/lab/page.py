"""A plain summary dict becomes one self-contained HTML page: no request to anywhere."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shorthash._validation import require_extra
from shorthash.data.files import replacing
from shorthash.lab.tables import Table

__all__ = ["image_uri", "render_page", "table_summary", "write_page"]


def render_page(template: str, summary: Mapping[str, Any]) -> str:
    """Fill a template of ``report/templates`` with a summary.

    Text is escaped; only what the template itself calls safe (figures drawn by us) is not. A name that the summary
    lacks is an error, not a blank.

    Parameters
    ----------
    template : file name, for instance "demo.html"
    summary : what the template shows: text, numbers, lists and dicts of them
    """
    jinja2 = require_extra("jinja2", "report", "Writing a report")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return str(environment.get_template(template).render(summary))


def write_page(path: str | Path, html: str) -> Path:
    """Write a page; the file appears whole or not at all."""
    target = Path(path)
    with replacing(target) as temporary:
        temporary.write_text(html, encoding="utf-8")
    return target


def table_summary(table: Table) -> dict[str, Any]:
    """A table as a template shows it.

    Examples
    --------
    >>> from shorthash.lab.tables import Column
    >>> table_summary(Table((Column("bits"), Column("mAP", 2, "high")), ((4, 0.5),)))["rows"]
    [[{'text': '4', 'mark': ''}, {'text': '0.50', 'mark': 'best'}]]
    """
    return {
        "columns": [{"title": column.title, "is_text": column.text} for column in table.columns],
        "rows": [
            [{"text": cell, "mark": mark} for cell, mark in zip(cells, marks, strict=True)]
            for cells, marks in zip(table.cells(), table.marks(), strict=True)
        ],
    }


def image_uri(pixels: ArrayLike, low: float = 0.0, high: float = 1.0) -> str:
    """A small image as a ``data:`` address; the page scales it up without smoothing.

    Parameters
    ----------
    pixels : (height, width) ink, ``low`` is white and ``high`` is black
    """
    image = require_extra("matplotlib.image", "report", "Writing a report")
    out = io.BytesIO()
    image.imsave(out, np.asarray(pixels), cmap="gray_r", vmin=low, vmax=high, format="png", metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode("ascii")
