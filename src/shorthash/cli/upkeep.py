"""Check, back up and restore what shorthash has written."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shorthash.cli import output
from shorthash.cli.options import AsJson, argument, flag

if TYPE_CHECKING:
    from shorthash.images import Checked

COLLECTION = "Folder written by shorthash images fit."
NAMED = 20  # problems that are listed
SQLITE = b"SQLite format 3"


def fsck(
    model: Annotated[Path, argument("MODEL", "A collection, a model, an index, or an SQLite store.")],
    repair: Annotated[
        bool, flag("--repair", "Remove thumbnails of no item and unfinished files; add posteriors.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read every byte and compare it with its checksums; the exit status is 1 if something is wrong.

    Of a collection: description, encoder, items, vectors and thumbnails. What is damaged cannot be repaired; restore a
    backup. Without --repair nothing is changed, and a server may run meanwhile. With it, items that an older version
    added get the posteriors that images search --posterior orders by.

    \b
    Examples:
      shorthash fsck photos.model
      shorthash fsck photos.model --repair
    """
    from shorthash.images import check_collection, is_collection
    from shorthash.persistence import verify

    if is_collection(model):
        _report(check_collection(model, repair=repair), as_json)
        return
    if repair:
        raise typer.BadParameter("only a collection can be repaired", param_hint="--repair")
    if model.is_file() and _starts_with(model, SQLITE):
        from shorthash.store import SQLiteStore

        with SQLiteStore(model, readonly=True) as store:
            store.verify()
            n_items = len(store)
        output.show({"model": str(model), "n_items": n_items, "sound": True}, as_json=as_json)
        return
    verify(model)
    output.show({"model": str(model), "sound": True}, as_json=as_json)


def backup(
    model: Annotated[Path, argument("MODEL", COLLECTION)],
    target: Annotated[Path, argument("TARGET", "Folder to write; it must be new or empty.")],
    as_json: AsJson = False,
) -> None:
    """Copy a collection, also while a server writes to it; the copy is checked and is a collection itself.

    \b
    Example:
      shorthash backup photos.model photos-may.backup
    """
    from shorthash.images import backup_collection

    _report(backup_collection(model, target), as_json, copied=True)


def restore(
    source: Annotated[Path, argument("BACKUP", "Folder written by shorthash backup.")],
    target: Annotated[Path, argument("TARGET", "Folder to write; it must be new or empty.")],
    as_json: AsJson = False,
) -> None:
    """Check a backup and copy it to a new folder; to replace a collection, move it away first.

    \b
    Example:
      shorthash restore photos-may.backup photos.model
    """
    from shorthash.images import restore_collection

    _report(restore_collection(source, target), as_json, copied=True)


def _report(found: Checked, as_json: bool, *, copied: bool = False) -> None:
    data: dict[str, Any] = {**dataclasses.asdict(found), "path": str(found.path), "sound": found.sound}
    facts = {
        "model": str(found.path),
        "items": str(found.n_items),
        "missing thumbnails": str(len(found.missing_thumbnails)),
        "files of no item": str(len(found.orphans)) + (", removed" if found.orphans and found.repaired else ""),
        **({"posteriors": f"{found.n_posteriors} added"} if found.n_posteriors else {}),
        "sound": "yes" if found.sound else "no",
    }
    output.show(data, facts, as_json=as_json)
    for problem in found.damaged:
        output.complain("damaged", problem)
    problems = [("missing", name) for name in found.missing_thumbnails]
    problems += [("superfluous", name) for name in found.orphans] if not found.repaired else []
    for kind, name in problems[:NAMED]:
        output.complain(kind, name)
    if not found.sound and not copied:
        raise typer.Exit(1)


def _starts_with(path: Path, start: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(start)) == start
