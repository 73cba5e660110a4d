"""shorthash info: what a saved folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from shorthash.cli import output
from shorthash.cli.images_info import show_collection
from shorthash.cli.options import AsJson, argument

__all__ = ["info"]

TITLES = {
    "n_bits": "bits",
    "n_items": "items",
    "n_features_in": "features",
    "n_samples_seen": "rows learned from",
}


def info(
    folder: Annotated[Path, argument("MODEL", "A saved model, index or collection.")],
    as_json: AsJson = False,
) -> None:
    """Tell what a saved folder holds, without loading it.

    \b
    Example:
      shorthash info digits.model
    """
    from shorthash.images.folder import is_collection
    from shorthash.persistence import describe

    if is_collection(folder):
        show_collection(folder, as_json)
        return
    data = describe(folder)
    facts = {
        "kind": data["kind"],
        "class": data["class"],
        **{title: str(data[name]) for name, title in TITLES.items() if name in data},
        "size": _size(data["bytes"]),
        "written by": f"shorthash {data['shorthash_version']} (format {data['format_version']})",
    }
    if data["kind"] != "index":
        facts["further learning"] = "possible" if data["statistics"] else "not possible: saved without its sums"
    steps = dict(data["params"].get("steps", [[data["class"], data["params"]]]))
    tables = tuple(_parameters(name, params) for name, params in steps.items() if params)
    output.show(output.Answer(data, facts, tables), as_json=as_json)


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:.1f} kB"


def _parameters(name: str, params: dict[str, Any]) -> Any:
    """Parameters of one step."""
    from shorthash.lab.tables import Column, Table

    title = f"{name}: {params['class']}" if "class" in params else name
    rows = tuple((key, str(value)) for key, value in params.items() if key != "class")
    return Table((Column(title, text=True), Column("value", text=True)), rows)
