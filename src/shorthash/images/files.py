"""Image files in folders, their names, and their labels: class folders, or a table of names and labels."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash.errors import DataFileError, InvalidInput
from shorthash.images.results import split_label

__all__ = ["ENDINGS", "as_targets", "image_files", "labels_by_folder", "labels_by_table", "named_images"]

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".mpo", ".ppm", ".pgm", ".pbm")


def image_files(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """All image files in folders (recursively, sorted by path) and the files given by name.

    In a folder, files are recognised by their ending and hidden ones are skipped; files given by name are always taken.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = (p for p in path.rglob("*") if p.suffix.lower() in ENDINGS and p.is_file())
            found += sorted(p for p in inside if not any(part.startswith(".") for part in p.relative_to(path).parts))
        elif path.exists():
            found.append(path)
        else:
            raise InvalidInput(f"There is no file or folder {path}; check the path.")
    return list(dict.fromkeys(found))


def named_images(
    paths: Sequence[str | os.PathLike[str]], label: str | None = None, table: str | os.PathLike[str] | None = None
) -> tuple[list[tuple[str, Path]], list[str | None]]:
    """Images in folders and images given by name, as (name, path), with their labels.

    The name of an image in a folder is its path relative to that folder; otherwise it is the file name. Labels are
    ``label`` for all, or come from ``table`` (see ``labels_by_table``), or from the class folders of every folder.
    """
    sources: list[tuple[str, Path]] = []
    labels: list[str | None] = []
    for path in map(Path, paths):
        files = image_files([path])
        names = [file.relative_to(path).as_posix() if path.is_dir() else file.name for file in files]
        sources += zip(names, files, strict=True)
        labels += labels_by_folder(names)
    names = [name for name, _ in sources]
    if table is not None and names:
        labels, _ = labels_by_table(table, names)
    return sources, labels if label is None else [label] * len(sources)


def labels_by_folder(names: Sequence[str]) -> list[str | None]:
    """The first folder of every name as its label; None for all if an image is in no folder, or all are in one.

    Examples
    --------
    >>> labels_by_folder(["cats/1.jpg", "dogs/old/2.jpg"])
    ['cats', 'dogs']
    >>> labels_by_folder(["cats/1.jpg", "2.jpg"])
    [None, None]
    """
    parts = [Path(name).parts for name in names]
    folders = [part[0].replace(";", ",") if len(part) > 1 else None for part in parts]
    classes = set(folders)
    return [None] * len(names) if None in classes or len(classes) < 2 else list(folders)


def labels_by_table(path: str | os.PathLike[str], names: Sequence[str]) -> tuple[list[str | None], list[str]]:
    """Labels from a CSV file of ``name,label`` or ``name,label;label``, with or without a header.

    A name is a path relative to the folder of the images, or a file name that only one image has. Images that are not
    in the table, or have no label there, stay unlabelled.

    Returns
    -------
    labels : one per name
    unmatched : names of the table that no image has
    """
    rows_by_name = {name: [row] for row, name in enumerate(names)}
    rows_by_file: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        rows_by_file.setdefault(Path(name).name, []).append(row)
    labels: list[str | None] = [None] * len(names)
    unmatched = []
    for name, label in _table_entries(Path(path)):
        rows = rows_by_name.get(name) or rows_by_file.get(name, [])
        if len(rows) > 1:
            raise DataFileError(f"{path}: {len(rows)} images have the name {name!r}; add their folders to the names.")
        if not rows:
            unmatched.append(name)
            continue
        labels[rows[0]] = ";".join(dict.fromkeys(part.strip() for part in label.split(";") if part.strip())) or None
    if not any(labels):
        raise DataFileError(
            f"{path} labels none of the {len(names)} images; give lines of NAME,LABEL with names such as {names[0]!r}."
        )
    return labels, unmatched


def as_targets(labels: Sequence[str]) -> NDArray[Any]:
    """Labels in the form that learners take: (n,) classes, or an indicator matrix if an image has several.

    Examples
    --------
    >>> as_targets(["cat", "dog"]).tolist(), as_targets(["cat;dog", "dog"]).tolist()
    (['cat', 'dog'], [[1, 1], [0, 1]])
    """
    sets = [split_label(label) for label in labels]
    if all(len(s) == 1 for s in sets):
        return np.array(list(labels))
    columns = {label: j for j, label in enumerate(sorted({str(x) for s in sets for x in s}))}
    Y = np.zeros((len(sets), len(columns)), dtype=np.int8)
    for row, found in enumerate(sets):
        Y[row, [columns[str(label)] for label in found]] = 1
    return Y


def _table_entries(path: Path) -> list[tuple[str, str]]:
    """Names and labels of a table."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row and any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataFileError(f"{path} cannot be read as a table of labels: {error}; save it as CSV.") from error
    bad = next((number for number, row in enumerate(rows, start=1) if len(row) != 2), None)
    if bad is not None:
        raise DataFileError(
            f"{path} must have two columns, NAME,LABEL (several labels joined by ;), but line {bad} has "
            f"{len(rows[bad - 1])}."
        )
    header = rows and rows[0][1].strip().lower() in ("label", "labels", "class", "classes")
    return [(name.strip(), label) for name, label in (rows[1:] if header else rows)]
