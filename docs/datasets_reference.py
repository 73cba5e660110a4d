"""The tables of named data sets in docs/guide/datasets.md, written by docs/generate.py."""

from __future__ import annotations

from shorthash.data.datasets import CATALOGUE, Entry
from shorthash.data.splits import PerClassQueries, RandomQueries


def render() -> str:
    """Two tables: sizes, features and protocols; files, sources and licences."""
    lines = ["| name | data set | rows | features | classes | protocol |", "|---|---|---|---|---|---|"]
    for name, entry in CATALOGUE.items():
        classes = f"{entry.classes}, several per row" if entry.several else str(entry.classes)
        sizes = f"{entry.rows} | {entry.dims}: {entry.features} | {classes}"
        lines.append(f"| `{name}` | {entry.title} | {sizes} | {_protocol(entry)} |")
    lines += ["", "| name | file | original | checksum | licence |", "|---|---|---|---|---|"]
    for name, entry in CATALOGUE.items():
        place = f"`{entry.file}`" if entry.file else ("-" if entry.reader == "sklearn" else f"`originals/{name}/`")
        lines.append(f"| `{name}` | {place} | {entry.obtain} | {_checksums(entry)} | {entry.licence} |")
    return "\n".join(lines)


def _protocol(entry: Entry) -> str:
    protocol = entry.protocol
    assert isinstance(protocol, PerClassQueries | RandomQueries)
    queries = (
        f"{protocol.per_class} random queries of every class"
        if isinstance(protocol, PerClassQueries)
        else f"{protocol.n_queries} random queries"
    )
    train = "all other rows" if protocol.n_train is None else f"{protocol.n_train} other rows"
    return f"{queries}; training: {train}; database: all other rows"


def _checksums(entry: Entry) -> str:
    if not entry.originals:
        return "-"
    known = [original.checksum for original in entry.originals if original.checksum]
    if len(known) < len(entry.originals):
        return "not known: stored at the first download, compared later"
    return "; ".join(f"`{each}`" for each in known)
