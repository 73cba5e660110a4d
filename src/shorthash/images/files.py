"""Which files of a folder are images, what the others are, and the labels of the images: by folder or by table."""

from __future__ import annotations

import csv
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shorthash._validation import check_choice
from shorthash.errors import DataFileError, InvalidInput, phrase, setting

READ = {
    "JPEG": ".jpg .jpeg .mpo",
    "PNG": ".png",
    "WebP": ".webp",
    "HEIC": ".heic .heif .hif",
    "AVIF": ".avif",
    "GIF": ".gif",
    "BMP": ".bmp",
    "TIFF": ".tif .tiff",
    "PPM": ".ppm .pgm .pbm",
}  # formats of images that are read, and their endings
NOT_READ = {
    "RAW": ".3fr .arw .cr2 .cr3 .crw .dng .erf .fff .iiq .kdc .mef .mos .mrw .nef .nrw .orf .pef .raf .raw .rw2 .rwl "
    ".sr2 .srf .srw .x3f",
    "video": ".3gp .avi .flv .insv .m2ts .m4v .mkv .mov .mp4 .mpeg .mpg .mts .ts .vob .webm .wmv",
    "other format": ".ai .eps .exr .hdr .icns .ico .jp2 .jxl .jxr .pcx .pdf .psb .psd .svg .tga .xcf",
}  # kinds of files that are skipped by their endings
ENDINGS = tuple(" ".join(READ.values()).split())
KINDS = {ending: kind for kind, endings in NOT_READ.items() for ending in endings.split()}
HIDDEN, NOT_A_FILE, NOT_AN_IMAGE = "hidden", "not a file", "not an image"
LABELS_FROM = ("folder", "csv", "none")

Skipped = dict[str, list[str]]
"""Kind -> names of the files that were skipped."""


@dataclass
class NamedImages:
    """Image files, what is known about them, and the files beside them.

    Attributes
    ----------
    sources : (name, path); the name of an image in a folder is its path relative to that folder, else the file name
    labels : one per image, None where there is none
    unmatched : names of the table of labels that no image has
    skipped : files in the folders that are not read, by kind
    """

    sources: list[tuple[str, Path]] = field(default_factory=list)
    labels: list[str | None] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    skipped: Skipped = field(default_factory=lambda: defaultdict(list))


def kind_by_ending(name: str | os.PathLike[str]) -> str:
    """What a file that is not read is, by its ending; "" if it may be an image.

    Examples
    --------
    >>> kind_by_ending("IMG_1.CR2"), kind_by_ending("clip.mov"), kind_by_ending("IMG_1.jpg")
    ('RAW', 'video', '')
    """
    return KINDS.get(Path(name).suffix.lower(), "")


def count_kinds(skipped: Mapping[str, Sequence[str]]) -> str:
    """Numbers of skipped files by kind, most frequent first.

    Examples
    --------
    >>> count_kinds({"video": ["a.mov"], "RAW": ["a.nef", "b.nef"]})
    'RAW 2, video 1'
    """
    counts = sorted(skipped.items(), key=lambda entry: -len(entry[1]))
    return ", ".join(f"{kind} {len(names)}" for kind, names in counts)


def _classified(path: Path) -> Iterator[tuple[Path, str]]:
    """The files in a folder, sorted by path, or one file; with why they are skipped, "" if they are not."""
    if not path.is_dir():
        if not path.exists():
            raise InvalidInput(f"There is no file or folder {path}; check the path.")
        yield path, ""
        return
    for place in sorted(path.rglob("*")):
        if place.is_dir():
            continue
        if any(part.startswith(".") for part in place.relative_to(path).parts):
            yield place, HIDDEN
        elif place.suffix.lower() in ENDINGS:
            yield place, "" if place.is_file() else NOT_A_FILE
        else:
            yield place, kind_by_ending(place) or NOT_AN_IMAGE


def named_images(
    paths: Sequence[str | os.PathLike[str]],
    label: str | None = None,
    table: str | os.PathLike[str] | None = None,
    labels_from: str | None = None,
) -> NamedImages:
    """Images in folders and images given by name, with their labels.

    Parameters
    ----------
    paths : folders and files
    label : the label of all images
    table : a file of labels, see ``labels_by_table``
    labels_from : "folder", "csv" (``table``) or "none"; None: ``label``, else ``table``, else class folders if all
        images of a folder are in one and there are at least two
    """
    _check_labels_from(labels_from, table, label)
    found = NamedImages()
    for path in map(Path, paths):
        names = []
        for file, kind in _classified(path):
            name = file.relative_to(path).as_posix() if path.is_dir() else file.name
            if kind:
                found.skipped[kind].append(as_text(name))
            else:
                names.append(name)
                found.sources.append((name, file))
        found.labels += _labels_by_folder(names)
    if labels_from == "none":
        found.labels = [None] * len(found.sources)
    elif labels_from == "folder" and found.sources and not any(found.labels):
        raise DataFileError(
            "There are no class folders to take labels from: an image is in no folder, or all are in one; put them "
            "into folders, one per class, or learn without labels: labels_from='none' (--no-labels)."
        )
    if table is not None and found.sources:
        found.labels, found.unmatched = labels_by_table(table, [name for name, _ in found.sources])
    if label is not None:
        found.labels = [label] * len(found.sources)
    return found


def _check_labels_from(labels_from: str | None, table: str | os.PathLike[str] | None, label: str | None) -> None:
    places = [phrase("label=...")] if label is not None else []
    places += [phrase("labels=...")] if table is not None else []
    if labels_from is not None:
        check_choice(labels_from, "labels_from", "fit_images", LABELS_FROM)
        if labels_from == "csv" and table is None:
            raise InvalidInput(f"{setting('labels_from', 'csv')} needs a CSV file; give it as {phrase('labels=...')}.")
        if labels_from != "csv":
            places.append(setting("labels_from", labels_from))
    if len(places) > 1:
        raise InvalidInput(f"Labels come from one place. Got {' and '.join(places)}; give one of them.")


def _labels_by_folder(names: Sequence[str]) -> list[str | None]:
    """The first folder of every name as its label; None for all if an image is in no folder, or all are in one.

    Examples
    --------
    >>> _labels_by_folder(["cats/1.jpg", "dogs/old/2.jpg"])
    ['cats', 'dogs']
    >>> _labels_by_folder(["cats/1.jpg", "2.jpg"])
    [None, None]
    """
    parts = [Path(name).parts for name in names]
    folders = [as_text(part[0]).replace(";", ",") if len(part) > 1 else None for part in parts]
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


def as_text(name: str) -> str:
    r"""A name of a file as text: bytes that are not UTF-8 become question marks.

    Examples
    --------
    >>> ascii(as_text("m\udcfcll.jpg"))
    "'m\\ufffdll.jpg'"
    """
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
