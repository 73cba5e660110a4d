"""Collections as files: duplicates and export of shorthash images, and fsck, backup and restore."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from shorthash.cli import terminal as cli

if TYPE_CHECKING:
    from shorthash.images import Checked, Collection
    from shorthash.images.duplicates import Duplicates

SHOWN = 20  # groups of duplicates that are printed
NAMED = 20  # problems that are listed
SQLITE = b"SQLite format 3"
NewFolder = Annotated[Path, cli.argument("TARGET", "Folder to write; it must be new or empty.")]


def duplicates(
    model: cli.CollectionFolder,
    out: Annotated[
        Path | None, cli.option("FILE", "Write all pairs to this file: .csv, .parquet or .jsonl.", names="--out -o")
    ] = None,
    html: Annotated[Path | None, cli.option("FILE", "Write a page with all groups to this .html file.")] = None,
    threshold: Annotated[float, cli.option("N", "Least similarity of near duplicates, in (0, 1].")] = 0.95,
) -> cli.Result:
    """Find files of equal content and near duplicates: resized, recompressed, brightened, slightly cropped.

    Every pair of items with similar features is found, and confirmed by the pixels of the thumbnails. The first file of
    a group is the largest one. Nothing is removed.

    \b
    Examples:
      shorthash images duplicates photos.model --html duplicates.html
      shorthash images duplicates photos.model --out pairs.csv --threshold 0.98
    """
    from shorthash.images import Collection, find_duplicates

    cli.check_file(out, "--out")
    cli.check_file(html, "--html", ".html", ".htm")
    with Collection(model, readonly=True) as collection, cli.progress() as step:
        found = find_duplicates(collection, threshold=threshold, progress=step)
        if html is not None:
            _write_groups(html, collection, found)
    if out is not None:
        _write_pairs(out, found)
    data = {
        "model": str(model),
        "n_items": found.n_items,
        "n_groups": len(found.groups),
        "n_exact_pairs": found.n_exact,
        "n_near_pairs": len(found.pairs) - found.n_exact,
        "threshold": threshold,
        "groups": [[{"id": file.id, "name": file.name, "source": file.source} for file in g] for g in found.groups],
        "pairs": out,
        "page": html,
    }
    rows = [(n, file.id, file.name) for n, group in enumerate(found.groups[:SHOWN]) for file in group]
    tables = [cli.table(["group", "id", "name"], rows, text=["name"])] if rows and out is None else []
    more = len(found.groups) - SHOWN
    notes = [f"{more} more groups; --out or --html writes all"] if tables and more > 0 else []
    return cli.Result(data, None, tables, notes)


def _write_groups(path: Path, collection: Collection, found: Duplicates) -> None:
    from shorthash.images.results import Picture, write_sheet

    sections = []
    for number, group in enumerate(found.groups):
        pictures = [
            Picture(
                file.name,
                f"id {file.id}" + (f", {file.n_bytes / 1000:.0f} kB" if file.n_bytes else ""),
                collection.thumbnail_bytes(file.content),
            )
            for file in group
        ]
        sections.append((f"Group {number}: {len(group)} files", pictures))
    about = f"{len(found.groups)} groups in {found.n_items} items; the largest file of a group comes first."
    write_sheet(path, f"Duplicates in {collection.path.name}", about, sections)


def _write_pairs(path: Path, found: Duplicates) -> None:
    import numpy as np

    from shorthash.data.files import write_table
    from shorthash.images import DuplicatePair

    names = [field.name for field in dataclasses.fields(DuplicatePair)]
    write_table(path, {name: np.array([getattr(pair, name) for pair in found.pairs]) for name in names})


def export(
    model: cli.CollectionFolder,
    out: Annotated[Path, cli.option("FILE", "File of items and codes: .csv, .parquet or .jsonl.", names="--out -o")],
    vectors: Annotated[
        Path | None, cli.option("FILE", "Also write the features to this .npy file, in the same order.")
    ] = None,
    bits: Annotated[bool, cli.flag("--bits", "Also write the code as a string of 0 and 1, highest bit first.")] = False,
) -> cli.Result:
    """Write all items: id, code, label, name, and the file that each was read from.

    Codes are packed integers: bit j of an integer is bit j of the code. Rows of --vectors are those of --out; a row of
    nan belongs to an item without features.

    \b
    Examples:
      shorthash images export photos.model --out codes.csv
      shorthash images export photos.model --out codes.parquet --vectors vectors.npy
    """
    import numpy as np

    from shorthash.data.files import replacing, write_table
    from shorthash.images import Collection

    cli.check_file(out, "--out")
    cli.check_file(vectors, "--vectors", ".npy")
    with Collection(model, readonly=True) as collection:
        ids, n_bits = collection.ids, collection.n_bits
        items = collection.items(ids)
        columns: dict[str, Any] = {"id": ids, "code": collection.codes_of(ids)}
        if bits:
            columns["bits"] = np.array([f"{item.code:0{n_bits}b}" for item in items], dtype=np.str_)
        columns["label"] = np.array(["" if item.label is None else item.label for item in items], dtype=np.str_)
        columns["name"] = np.array([item.name for item in items], dtype=np.str_)
        columns["source"] = np.array(collection.sources_of(ids), dtype=np.str_)
        rows = collection.vectors_of(ids) if vectors is not None else None
        n_features = collection.n_features
    write_table(out, columns)
    if vectors is not None:
        matrix = np.full((len(ids), n_features), np.nan, dtype=np.float32) if rows is None else rows
        with replacing(vectors) as temporary:
            np.save(temporary, matrix, allow_pickle=False)
    data = {"model": str(model), "n_items": len(ids), "n_bits": n_bits, "codes": out, "vectors": vectors}
    return cli.Result(data)


def fsck(
    model: Annotated[Path, cli.argument("MODEL", "A collection, a model, an index, or an SQLite store.")],
    repair: Annotated[
        bool, cli.flag("--repair", "Remove unused thumbnails and unfinished files; compute missing posteriors.")
    ] = False,
) -> cli.Result:
    """Read every byte and compare it with its checksums; the exit status is 1 if something is wrong.

    A collection consists of description, encoder, items, vectors and thumbnails. Damaged data cannot be repaired;
    restore a backup instead. Without --repair nothing is changed, and a server may keep running. --repair also computes
    the posteriors of items that an older version added, which images search --posterior needs.

    \b
    Examples:
      shorthash fsck photos.model
      shorthash fsck photos.model --repair
    """
    from shorthash.images import check_collection, is_collection
    from shorthash.persistence import verify

    if is_collection(model):
        found = check_collection(model, repair=repair)
        return _report(found, status=0 if found.sound else 1)
    if repair:
        raise cli.misuse("only a collection can be repaired", "--repair")
    if model.is_file() and _starts_with(model, SQLITE):
        from shorthash.store import SQLiteStore

        with SQLiteStore(model, readonly=True) as store:
            store.verify()
            n_items = len(store)
        return cli.Result({"model": str(model), "n_items": n_items, "sound": True})
    verify(model)
    return cli.Result({"model": str(model), "sound": True})


def backup(model: cli.CollectionFolder, target: NewFolder) -> cli.Result:
    """Copy a collection, even while a server writes to it; the copy is checked and can be used as a collection.

    \b
    Example:
      shorthash backup photos.model photos-may.backup
    """
    from shorthash.images import backup_collection

    return _report(backup_collection(model, target))


def restore(
    source: Annotated[Path, cli.argument("BACKUP", "Folder written by shorthash backup.")],
    target: NewFolder,
) -> cli.Result:
    """Check a backup and copy it to a new folder; to replace a collection, move it away first.

    \b
    Example:
      shorthash restore photos-may.backup photos.model
    """
    from shorthash.images import restore_collection

    return _report(restore_collection(source, target))


def _report(found: Checked, status: int = 0) -> cli.Result:
    """What was found; problems are named on standard error."""
    problems = [("damaged", problem) for problem in found.damaged]
    problems += [("missing", name) for name in found.missing_thumbnails[:NAMED]]
    if not found.repaired:
        problems += [("superfluous", name) for name in found.orphans[:NAMED]]
    for kind, name in problems:
        cli.complain(kind, name)
    data = {**dataclasses.asdict(found), "path": str(found.path), "sound": found.sound}
    return cli.Result(data, status=status)


def _starts_with(path: Path, start: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(start)) == start
