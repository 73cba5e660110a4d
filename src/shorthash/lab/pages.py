"""Self-contained HTML pages of facts, tables and figures, with the tables and figures also as files."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from shorthash._display import templates
from shorthash._validation import require_extra
from shorthash.data.files import replacing
from shorthash.lab.figures import save_figure, to_svg
from shorthash.lab.tables import NOT_RUN, Table, to_csv, to_latex, to_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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

    Text is escaped, except what the template marks as safe. A name that ``values`` lacks is an error.

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
