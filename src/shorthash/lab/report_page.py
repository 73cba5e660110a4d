"""A report as files: one HTML page that stands alone, and beside it every table and figure in its own file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import shorthash
from shorthash._validation import require_extra
from shorthash.lab.figures import save_figure, to_svg
from shorthash.lab.page import render_page, table_summary, write_page
from shorthash.lab.sections import Section
from shorthash.lab.tables import Table, to_markdown

__all__ = ["Report", "report_summary", "write_report"]

PAGE = "index.html"


@dataclass(frozen=True)
class Report:
    """Everything a page shows.

    Attributes
    ----------
    title, lede : what it is about
    sections : its parts, in order
    extras : title -> (caption, table of words): sentences, errata
    provenance : title -> table: where the numbers come from
    facts : (value, label), the few numbers to take home
    footer : how it was made
    """

    title: str
    lede: str
    sections: Sequence[Section]
    extras: Mapping[str, tuple[str, Table]] = field(default_factory=dict)
    provenance: Mapping[str, Table] = field(default_factory=dict)
    facts: Sequence[tuple[str, str]] = ()
    footer: str = "from stored records; nothing was learned for this page"


def write_report(report: Report, folder: str | Path) -> Path:
    """Write ``index.html``, and every table (.md, .tex, .csv) and figure (.png, .svg) beside it; return the page.

    Parameters
    ----------
    report : what to write
    folder : where to; it is made if need be
    """
    for module in ("matplotlib", "jinja2"):  # now, not after half of the files
        require_extra(module, "report", "Writing a report")
    html = render_page("report.html", report_summary(report))
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for section in report.sections:
        for name, text in section.texts.items():
            write_page(target / name, text)
        for name, (figure, _) in section.figures.items():
            for ending in (".png", ".svg"):
                save_figure(figure, target / f"{name}{ending}")
    for title, (caption, table) in report.extras.items():
        write_page(target / f"{_anchor(title)}.md", f"# {title}\n\n{caption}\n\n{to_markdown(table)}")
    return write_page(target / PAGE, html)


def report_summary(report: Report) -> dict[str, Any]:
    """Everything the page says, as text, numbers, lists and dicts.

    Parameters
    ----------
    report : what to say
    """
    return {
        "title": report.title,
        "lede": report.lede.replace("<=", "≤"),
        "facts": [{"value": value, "label": label} for value, label in report.facts],
        "sections": [_section(section) for section in report.sections],
        "missing": _missing(report.sections),
        "extras": [
            {"name": _anchor(title), "title": title, "caption": caption, "content": table_summary(table)}
            for title, (caption, table) in report.extras.items()
        ],
        "provenance": [{"title": title, "content": table_summary(table)} for title, table in report.provenance.items()],
        "footer": f"Made by shorthash {shorthash.__version__} {report.footer}.",
    }


def _section(section: Section) -> dict[str, Any]:
    return {
        "name": section.name,
        "title": section.title,
        "caption": section.caption,
        "n_runs": section.n_runs,
        "n_missing": section.n_missing,
        "figures": [
            {"name": name, "svg": to_svg(figure, name), "caption": caption}
            for name, (figure, caption) in section.figures.items()
        ],
        "tables": [{"title": title, "content": table_summary(table)} for title, table in section.tables.items()],
    }


def _missing(sections: Sequence[Section]) -> list[dict[str, Any]]:
    """Commands that would run what is missing, each once, with how many runs they would make."""
    found: dict[str, dict[str, Any]] = {}
    for section in sections:
        if section.n_missing:
            entry = found.setdefault(section.command, {"command": section.command, "n_missing": 0, "n_runs": 0})
            entry["n_missing"] += section.n_missing
            entry["n_runs"] += section.n_runs
    return list(found.values())


def _anchor(title: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())
