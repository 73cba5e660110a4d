"""From folders of images to a collection: files and labels, features, a measured mAP, an encoder, items added."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import MultiLabelBinarizer

from shorthash._validation import check_n_bits
from shorthash.errors import DataFileError, InvalidInput
from shorthash.evaluation import evaluate
from shorthash.images.collection import THUMBNAIL, Collection
from shorthash.images.decoding import Extracted, as_text, extract
from shorthash.images.features import ImageFeatures, make_features
from shorthash.images.results import AddReport, Label, split_label
from shorthash.images.storage import THUMBNAILS, check_new_folder, move_folder, write_thumbnail
from shorthash.methods import make_hasher, recipes
from shorthash.persistence.files import temporary_path

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".mpo", ".ppm", ".pgm", ".pbm")
METHOD = "auto"  # if none is named
MOST_QUERIES = 1000
ADDED_AT_ONCE = 1000
ANCHORS = 1000  # default of the kernels
Progress = Callable[[str, int, int], None]
Fit = Callable[[NDArray[np.float32], NDArray[Any] | None], Any]


@dataclass(frozen=True)
class FitReport:
    """What ``fit_images`` did.

    Attributes
    ----------
    path : the collection
    n_images : image files found
    n_labelled : items with a label
    reason : why this method, if none was named; else ""
    added : what was added, which images were duplicates, and which could not be read
    unmatched : names in the table of labels that no image has
    facts : of the collection, see ``Collection.facts``: method, features, measured mAP, numbers of items and classes
    seconds : time for everything
    """

    path: Path
    n_images: int
    n_labelled: int
    reason: str
    added: AddReport
    unmatched: list[str]
    facts: Mapping[str, Any]
    seconds: float


def fit_images(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    n_bits: int = 8,
    features: str | os.PathLike[str] | Mapping[str, Any] | ImageFeatures = "gist",
    labels: str | os.PathLike[str] | None = None,
    method: str | None = None,
    settings: Mapping[str, Any] | None = None,
    hold_out: float = 0.2,
    random_state: int = 0,
    cache: str | os.PathLike[str] | None = None,
    n_workers: int = 0,
    progress: Progress | None = None,
) -> FitReport:
    """Learn codes of the images in a folder and make a collection of them; it is created completely or not at all.

    Labels are the names of the folders that contain the images, or come from a table. The mAP is measured before the
    final encoder is fitted: a share of the images are queries, an encoder fitted on the other images encodes both, and
    the other images are searched. The encoder that is saved is fitted on all images.

    Parameters
    ----------
    folder : the images, recursively
    output : the collection, a new or empty folder
    n_bits : length of the codes
    features : "gist", "cnn", the path of an ONNX model, a recipe, or features
    labels : a CSV file of NAME,LABEL (several labels joined by ";"); None takes the folders, if all images are in
        folders and there are at least two
    method : a name as ``make_hasher`` takes it; None: "auto" with labels, "pcaitq" without
    settings : parameters of the learner, and of the kernel: ``{"kernel__n_anchors": 500}``
    hold_out : share of the images of every class that are queries, 0 for no measurement
    random_state : seed of everything random
    cache : file of features, by content; after an interruption, work continues from it
    n_workers : processes that decode; 0 decodes in this one
    progress : called with (what, done, total)
    """
    check_n_bits(n_bits, "fit_images")
    if not 0 <= hold_out < 1:
        raise InvalidInput(f"The 'hold_out' parameter of fit_images must be in [0, 1). Got {hold_out} instead.")
    start = time.perf_counter()
    source, target = Path(folder), Path(output)
    check_new_folder(target)
    if not source.is_dir():
        raise DataFileError(f"There is no folder {source}; give the folder that holds the images.")
    sources, given, unmatched = named_images([source], table=labels)
    if not sources:
        raise DataFileError(f"{source} holds no images (.jpg, .png, .webp, ...); check the path.")
    chosen, reason = _method(method, given)
    made = make_features(features)
    report = progress or (lambda _what, _done, _total: None)
    target.parent.mkdir(parents=True, exist_ok=True)
    with temporary_path(target, folder=True) as work:
        batches = extract(sources, made, cache=cache, thumbnail=THUMBNAIL, n_workers=n_workers, progress=report)
        images = [_with_thumbnail_saved(image, work) for batch in batches for image in batch]
        X, y, labelled = _training_set(images, given)
        fit = partial(_fit, chosen, n_bits, random_state, dict(settings or {}))
        report("measuring on held-out images", 0, 0)
        evaluation = None if y is None or not hold_out else _evaluate(fit, X[labelled], y, hold_out, random_state)
        report(f"learning {n_bits} bits from {len(X)} images", 0, 0)
        hasher = fit(X if y is None else X[labelled], y)
        inner = work / "collection"
        with Collection.create(inner, hasher, features=made, method=chosen, evaluation=evaluation) as collection:
            if (work / THUMBNAILS).exists():
                (inner / THUMBNAILS).rmdir()
                (work / THUMBNAILS).rename(inner / THUMBNAILS)
            added = _add(collection, images, given, report)
            facts = {**collection.facts(), "name": target.name}
            n_labelled = sum(label is not None for label in collection.labels_of(collection.ids))
        if hasattr(os, "sync"):
            os.sync()  # thumbnails; everything else has been forced to disk
        move_folder(inner, target)
    seconds = time.perf_counter() - start
    return FitReport(target, len(sources), n_labelled, reason, added, unmatched, facts, seconds)


def held_out(y: NDArray[Any], share: float, seed: int) -> NDArray[np.intp]:
    """Rows that are queries, ascending: ``share`` of every class with at least two rows (at least one); at most 1 000.

    Of rows with several labels, ``share`` of all.

    Examples
    --------
    >>> held_out(np.array(["a"] * 10 + ["b"] * 2 + ["c"]), 0.2, 0).tolist()
    [6, 7, 10]
    """
    rng = np.random.default_rng(seed)
    if y.ndim == 2:
        drawn = rng.choice(len(y), round(share * len(y)), replace=False)
    else:
        groups = [np.flatnonzero(y == label) for label in np.unique(y)]
        parts = [rng.choice(g, max(1, round(share * len(g))), replace=False) for g in groups if len(g) > 1]
        drawn = np.concatenate([np.empty(0, dtype=np.intp), *parts])
    return np.sort(rng.choice(drawn, MOST_QUERIES, replace=False) if len(drawn) > MOST_QUERIES else drawn)


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
) -> tuple[list[tuple[str, Path]], list[str | None], list[str]]:
    """Images in folders and images given by name, as (name, path); their labels; names of ``table`` that no image has.

    The name of an image in a folder is its path relative to that folder; otherwise it is the file name. Labels are
    ``label`` for all, or come from ``table`` (see ``labels_by_table``), or from the class folders of every folder.
    """
    sources: list[tuple[str, Path]] = []
    labels: list[str | None] = []
    for path in map(Path, paths):
        files = image_files([path])
        names = [file.relative_to(path).as_posix() if path.is_dir() else file.name for file in files]
        sources += zip(names, files, strict=True)
        labels += _labels_by_folder(names)
    unmatched: list[str] = []
    if table is not None and sources:
        labels, unmatched = labels_by_table(table, [name for name, _ in sources])
    return sources, labels if label is None else [label] * len(sources), unmatched


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


def _as_targets(labels: Sequence[str]) -> NDArray[Any]:
    """Labels in the form that learners take: (n,) classes, or an indicator matrix if an image has several.

    Examples
    --------
    >>> _as_targets(["cat", "dog"]).tolist(), _as_targets(["cat;dog", "dog"]).tolist()
    (['cat', 'dog'], [[1, 1], [0, 1]])
    """
    sets = [split_label(label) for label in labels]
    if all(len(s) == 1 for s in sets):
        return np.array(list(labels))
    return np.asarray(MultiLabelBinarizer().fit_transform(sets))


def _method(method: str | None, labels: Sequence[str | None]) -> tuple[str, str]:
    """The method, and why it was chosen."""
    labelled = any(label is not None for label in labels)
    if method is None:
        if labelled:
            return METHOD, "images have labels: the recommended method"
        return METHOD, "no labels (images are not in class folders): codes by which images are alike"
    known = recipes()
    if method in known and known[method].supervised and not known[method].labels_optional and not labelled:
        able = (name for name, recipe in known.items() if recipe.labels_optional or not recipe.supervised)
        unsupervised = ", ".join(able)
        raise InvalidInput(
            f"Method {method!r} needs labels, and there are none; put images into class folders, pass labels, or use "
            f"one of {unsupervised}."
        )
    return method, ""


def _with_thumbnail_saved(image: Extracted, folder: Path) -> Extracted:
    """Write the thumbnail, and drop it from memory."""
    if image.thumbnail is not None:
        write_thumbnail(folder, image.content, image.thumbnail, sync=False)
        image.thumbnail = None
    return image


def _training_set(
    images: Sequence[Extracted], labels: Sequence[str | None]
) -> tuple[NDArray[np.float32], NDArray[Any] | None, NDArray[np.intp]]:
    """Rows of the distinct images that could be read, targets of the labelled ones, and which rows those are."""
    distinct: dict[str, tuple[NDArray[np.float32], str | None]] = {}
    for image, label in zip(images, labels, strict=True):
        if image.row is not None:
            distinct.setdefault(image.content, (image.row, label))
    if not distinct:
        name, reason = next((image.name, image.error) for image in images if image.error)
        raise DataFileError(f"None of the {len(images)} images can be read; {name}, for instance: {reason}")
    X = np.stack([row for row, _ in distinct.values()])
    known = [label for _, label in distinct.values()]
    rows = np.flatnonzero([label is not None for label in known])
    return X, _as_targets([label for label in known if label is not None]) if len(rows) else None, rows


def _fit(
    method: str, n_bits: int, seed: int, settings: dict[str, Any], X: NDArray[np.float32], y: NDArray[Any] | None
) -> Any:
    """A fitted hasher; a kernel gets no more anchors than there are rows, unless the settings do."""
    if method in ("auto", "eaph"):
        settings = {"database": "training", **settings}  # the images learned from are the images searched
    recipe = recipes().get(method)
    if recipe is not None and "kernel" in recipe.preprocessing:
        settings = {"kernel__n_anchors": min(len(X), recipe.kernel.get("n_anchors", ANCHORS)), **settings}
    hasher = make_hasher(method, n_bits, random_state=seed, **settings)
    return hasher.fit(X, y) if recipe is None or recipe.supervised else hasher.fit(X)


def _evaluate(fit: Fit, X: NDArray[np.float32], y: NDArray[Any], share: float, seed: int) -> dict[str, Any] | None:
    """Tie-aware mAP of held-out queries against the images that the encoder was fitted on."""
    queries = held_out(y, share, seed)
    searched = np.setdiff1d(np.arange(len(y)), queries)
    if not len(queries) or len(searched) < 2 or (y.ndim == 1 and len(np.unique(y[searched])) < 2):
        return None
    hasher = fit(X[searched], y[searched])
    scores = evaluate(hasher.transform(X[queries]), y[queries], hasher.transform(X[searched]), y[searched])
    return {
        "map": scores.map,
        "map_worst": scores.map_worst,
        "map_best": scores.map_best,
        "n_queries": len(queries),
        "n_searched": len(searched),
        "protocol": "queries were held out; the measured encoder was fitted on the searched images only, the saved "
        "encoder on all",
    }


def _add(collection: Collection, images: Sequence[Extracted], labels: Sequence[Label], progress: Progress) -> AddReport:
    report = AddReport()
    for start in range(0, len(images), ADDED_AT_ONCE):
        rows = slice(start, start + ADDED_AT_ONCE)
        collection.add_extracted(images[rows], labels[rows], report)
        progress("adding", min(start + ADDED_AT_ONCE, len(images)), len(images))
    return report


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
