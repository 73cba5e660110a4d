"""From a folder of images to a collection: features, an estimate of its quality, an encoder, and all items added."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._validation import check_n_bits
from shorthash.errors import DataFileError, InvalidInput
from shorthash.evaluation import evaluate
from shorthash.images.collection import THUMBNAIL, Collection
from shorthash.images.decoding import MAX_PIXELS, Extracted, extract
from shorthash.images.features import FeatureCache, ImageFeatures, make_features
from shorthash.images.files import as_targets, image_files, labels_by_folder, labels_by_table
from shorthash.images.results import AddReport, Label
from shorthash.images.storage import THUMBNAILS, check_new_folder, move_folder, write_thumbnail
from shorthash.methods import make_hasher, recipes
from shorthash.persistence.files import temporary_path

__all__ = ["FitReport", "fit_images", "held_out"]

SUPERVISED, UNSUPERVISED = "auto", "pcaitq"  # the methods with and without labels, if none is named
MOST_QUERIES = 1000
ADDED_AT_ONCE = 1000
KERNEL = "kernel."  # prefix of settings of the kernel
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
    n_items : items of the collection
    n_labelled, n_classes : of the items
    method : its name
    reason : why this method, if none was named; else ""
    recipe : of the features
    evaluation : what was measured on held-out queries; None if it could not be measured
    added : what was added, which images were duplicates, and which could not be read
    unmatched : names in the table of labels that no image has
    facts : of the collection, see ``Collection.facts``
    seconds : by stage: features, evaluation, fit, add
    """

    path: Path
    n_images: int
    n_items: int
    n_labelled: int
    n_classes: int
    method: str
    reason: str
    recipe: Mapping[str, Any]
    evaluation: Mapping[str, Any] | None
    added: AddReport
    unmatched: list[str]
    facts: Mapping[str, Any]
    seconds: Mapping[str, float]


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
    max_pixels: int = MAX_PIXELS,
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
    settings : parameters of the learner, and of the kernel: ``{"kernel.n_anchors": 500}``
    hold_out : share of the images of every class that are queries, 0 for no measurement
    random_state : seed of everything random
    cache : file of features, by content; after an interruption, work continues from it
    max_pixels : larger images are refused
    n_workers : processes that decode; 0 decodes in this one
    progress : called with (what, done, total)
    """
    check_n_bits(n_bits, "fit_images")
    if not 0 <= hold_out < 1:
        raise InvalidInput(f"The 'hold_out' parameter of fit_images must be in [0, 1). Got {hold_out} instead.")
    source, target = Path(folder), Path(output)
    check_new_folder(target)
    files = _files(source)
    names = [file.relative_to(source).as_posix() for file in files]
    given, unmatched = (labels_by_folder(names), []) if labels is None else labels_by_table(labels, names)
    chosen, reason = _method(method, given)
    made = make_features(features)
    target.parent.mkdir(parents=True, exist_ok=True)
    report = progress or (lambda _what, _done, _total: None)
    times = [time.perf_counter()]
    with temporary_path(target, folder=True) as work:
        with nullcontext() if cache is None else FeatureCache(cache, made.recipe) as rows:
            batches = extract(
                list(zip(names, files, strict=True)),
                made,
                cache=rows,
                thumbnail=THUMBNAIL,
                max_pixels=max_pixels,
                n_workers=n_workers,
                progress=report,
            )
            images = [_with_thumbnail_saved(image, work) for batch in batches for image in batch]
        times.append(time.perf_counter())
        X, y, labelled = _training_set(images, given)
        fit = partial(_fit, chosen, n_bits, random_state, dict(settings or {}))
        report("measuring on held-out images", 0, 0)
        evaluation = None if y is None or not hold_out else _evaluate(fit, X[labelled], y, hold_out, random_state)
        times.append(time.perf_counter())
        report(f"learning {n_bits} bits from {len(X)} images", 0, 0)
        hasher = fit(X if y is None else X[labelled], y)
        times.append(time.perf_counter())
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
    times.append(time.perf_counter())
    return FitReport(
        path=target,
        n_images=len(files),
        n_items=len(added.added),
        n_labelled=n_labelled,
        n_classes=facts["n_classes"],
        method=chosen,
        reason=reason,
        recipe=made.recipe,
        evaluation=evaluation,
        added=added,
        unmatched=unmatched,
        facts=facts,
        seconds=dict(zip(("features", "evaluation", "fit", "add"), np.diff(times).tolist(), strict=True)),
    )


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


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise DataFileError(f"There is no folder {folder}; give the folder that holds the images.")
    files = image_files([folder])
    if not files:
        raise DataFileError(f"{folder} holds no images (.jpg, .png, .webp, ...); check the path.")
    return files


def _method(method: str | None, labels: Sequence[str | None]) -> tuple[str, str]:
    """The method, and why it was chosen."""
    labelled = any(label is not None for label in labels)
    if method is None:
        if labelled:
            return SUPERVISED, "images have labels: the recommended method"
        return UNSUPERVISED, "no labels (images are not in class folders): a method that needs none"
    known = recipes()
    if method in known and known[method].supervised and not labelled:
        unsupervised = ", ".join(name for name, recipe in known.items() if not recipe.supervised)
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
    return X, as_targets([label for label in known if label is not None]) if len(rows) else None, rows


def _fit(
    method: str, n_bits: int, seed: int, settings: dict[str, Any], X: NDArray[np.float32], y: NDArray[Any] | None
) -> Any:
    """A fitted hasher; a kernel gets no more anchors than there are rows, unless the settings say so."""
    if method in ("auto", "eaph"):
        settings = {"database": "training", **settings}  # the images learned from are the images searched
    kernel = {name.removeprefix(KERNEL): value for name, value in settings.items() if name.startswith(KERNEL)}
    learner = {name: value for name, value in settings.items() if not name.startswith(KERNEL)}
    recipe = recipes().get(method)
    if recipe is not None and "kernel" in recipe.preprocessing and "n_anchors" not in kernel:
        kernel["n_anchors"] = min(len(X), recipe.kernel.get("n_anchors", ANCHORS))
    hasher = make_hasher(method, n_bits, random_state=seed, front_end=kernel, **learner)
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
