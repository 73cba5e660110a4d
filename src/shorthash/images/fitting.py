"""From a folder of images to a collection: features, an honest estimate, an encoder, and everything added."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._validation import check_n_bits
from shorthash.errors import DataFileError, InvalidInput
from shorthash.evaluation import evaluate
from shorthash.images.collection import THUMBNAIL, Collection
from shorthash.images.extraction import Extracted, extract
from shorthash.images.folder import THUMBNAILS, check_new_place, take_place, write_file
from shorthash.images.image_cache import FeatureCache
from shorthash.images.image_features import ImageFeatures, make_features
from shorthash.images.images import MAX_PIXELS, image_files
from shorthash.images.labels import as_targets, labels_by_folder, labels_by_table
from shorthash.images.results import AddReport, Label
from shorthash.persistence.files import temporary_path
from shorthash.recipes import make_hasher, recipes

__all__ = ["FitReport", "fit_images", "held_out"]

SUPERVISED, UNSUPERVISED = "auto", "pcaitq"  # what is taken where no method is named
MOST_QUERIES = 1000
ADDED_AT_ONCE = 1000
KERNEL = "kernel."  # settings whose name begins so are meant for the front end
ANCHORS = 1000  # what kernels take where nobody says otherwise
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class FitReport:
    """What ``fit_images`` did.

    Attributes
    ----------
    path : the collection
    n_images : image files found
    n_items : items of the collection
    n_labelled, n_classes : of them
    method : its name
    reason : why this method, where none was named; else ""
    recipe : of the features
    evaluation : what was measured on held-out queries; None if there was nothing to measure with
    added : what was added, what was there twice, and what could not be read
    unmatched : names in the table of labels that no image has
    facts : what the collection says about itself
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
    progress: Tell | None = None,
) -> FitReport:
    """Learn codes of the images in a folder and make a collection of them; it appears whole or not at all.

    Labels are the names of the folders that the images lie in, or come from a table. What is reported as mAP is
    measured before the encoder is made: a share of the images asks, an encoder learned from the others encodes both,
    and the others are searched. The encoder that is saved has learned from all of them.

    Parameters
    ----------
    folder : the images, with everything below
    output : the collection, a new or empty folder
    n_bits : length of the codes
    features : "gist", "cnn", the path of an ONNX model, a recipe, or features
    labels : a CSV file of NAME,LABEL (several labels joined by ";"); None takes the folders, where all images lie in
        at least two
    method : a name as ``make_hasher`` takes it; None: "auto" with labels, "pcaitq" without
    settings : parameters of the learner, and of the kernel in front of it: ``{"kernel.n_anchors": 500}``
    hold_out : share of the images of every class that asks, 0 for no measurement
    random_state : seed of everything random
    cache : file of features, by content; what was computed before an interruption is taken from there
    max_pixels : larger images are refused
    n_workers : processes that decode; 0 decodes here
    progress : called with (what, done, total)
    """
    check_n_bits(n_bits, "fit_images")
    if not 0 <= hold_out < 1:
        raise InvalidInput(f"The 'hold_out' parameter of fit_images must lie in [0, 1). Got {hold_out} instead.")
    source, target = Path(folder), Path(output)
    check_new_place(target)
    files = _files(source)
    names = [file.relative_to(source).as_posix() for file in files]
    told, unmatched = (labels_by_folder(names), []) if labels is None else labels_by_table(labels, names)
    chosen, reason = _method(method, told)
    made = make_features(features)
    target.parent.mkdir(parents=True, exist_ok=True)
    tell = progress or (lambda _what, _done, _total: None)
    clock = _Clock()
    with temporary_path(target, folder=True) as work:
        with nullcontext() if cache is None else FeatureCache(cache, made.recipe) as kept:
            batches = extract(
                list(zip(names, files, strict=True)),
                made,
                cache=kept,
                thumbnail=THUMBNAIL,
                max_pixels=max_pixels,
                n_workers=n_workers,
                progress=tell,
            )
            done = [_staged(extracted, work / THUMBNAILS) for batch in batches for extracted in batch]
        clock.lap("features")
        X, y, rows = _training(done, told)
        build = _builder(chosen, n_bits, random_state, dict(settings or {}), y)
        tell("measuring on held-out images", 0, 0)
        evaluation = _evaluated(build, X, y, rows, hold_out, random_state)
        clock.lap("evaluation")
        tell(f"learning {n_bits} bits from {len(X)} images", 0, 0)
        hasher = build(X if y is None else X[rows], y)
        clock.lap("fit")
        inner = work / "collection"
        with Collection.create(inner, hasher, features=made, method=chosen, evaluation=evaluation) as collection:
            if (work / THUMBNAILS).exists():
                (inner / THUMBNAILS).rmdir()
                (work / THUMBNAILS).rename(inner / THUMBNAILS)
            report = _added(collection, done, told, files, tell)
            facts = {**collection.facts(), "name": target.name}
            n_labelled = sum(label is not None for label in collection.labels_of(collection.ids))
        if hasattr(os, "sync"):
            os.sync()  # thumbnails; everything else has been forced to disk
        take_place(inner, target)
    clock.lap("add")
    return FitReport(
        target,
        len(files),
        len(report.added),
        n_labelled,
        facts["n_classes"],
        chosen,
        reason,
        made.recipe,
        evaluation,
        report,
        unmatched,
        facts,
        clock.laps,
    )


def held_out(y: NDArray[Any], share: float, seed: int) -> NDArray[np.intp]:
    """Rows that ask, ascending: ``share`` of every class with at least two rows (at least one); at most 1 000.

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
        return UNSUPERVISED, "no labels (images lie in no class folders): a method that needs none"
    known = recipes()
    if method in known and known[method].supervised and not labelled:
        unsupervised = ", ".join(name for name, recipe in known.items() if not recipe.supervised)
        raise InvalidInput(
            f"Method {method!r} needs labels, and there are none; put images into class folders, pass labels, or take "
            f"one of {unsupervised}."
        )
    return method, ""


def _staged(extracted: Extracted, folder: Path) -> Extracted:
    """Put the thumbnail where it will be found, and forget it."""
    if extracted.thumbnail is not None:
        place = folder / extracted.content[:2]
        place.mkdir(parents=True, exist_ok=True)
        write_file(place / f"{extracted.content}.jpg", extracted.thumbnail, sync=False)
    return replace(extracted, thumbnail=None)


def _training(
    done: Sequence[Extracted], labels: Sequence[str | None]
) -> tuple[NDArray[np.float32], NDArray[Any] | None, NDArray[np.intp]]:
    """Rows of the distinct images that could be read, targets of the labelled ones, and which rows those are."""
    seen: dict[str, tuple[NDArray[np.float32], str | None]] = {}
    for extracted, label in zip(done, labels, strict=True):
        if extracted.row is not None:
            seen.setdefault(extracted.content, (extracted.row, label))
    if not seen:
        name, reason = next((e.name, e.error) for e in done if e.error)
        raise DataFileError(f"None of the {len(done)} images can be read; {name}, for instance: {reason}")
    X = np.stack([row for row, _ in seen.values()])
    told = [label for _, label in seen.values()]
    rows = np.flatnonzero([label is not None for label in told])
    return X, as_targets([label for label in told if label is not None]) if len(rows) else None, rows


def _builder(
    method: str, n_bits: int, seed: int, settings: dict[str, Any], y: NDArray[Any] | None
) -> Callable[[NDArray[np.float32], NDArray[Any] | None], Any]:
    """A function that fits a hasher."""
    if method in ("auto", "eaph") and y is not None and y.ndim == 1 and len(y) < 2 * len(np.unique(y)):
        settings = {"database": "training", **settings}  # out of fold, a class of one image is never seen
    front = {name.removeprefix(KERNEL): value for name, value in settings.items() if name.startswith(KERNEL)}
    learner = {name: value for name, value in settings.items() if not name.startswith(KERNEL)}
    recipe = recipes().get(method)

    def build(X: NDArray[np.float32], y: NDArray[Any] | None) -> Any:
        fewer = {}
        if recipe is not None and "kernel" in recipe.front_end and "n_anchors" not in front:
            fewer["n_anchors"] = min(len(X), recipe.front_settings.get("n_anchors", ANCHORS))
        hasher = make_hasher(method, n_bits, random_state=seed, front_end={**fewer, **front}, **learner)
        return hasher.fit(X, y) if recipe is None or recipe.supervised else hasher.fit(X)

    return build


def _evaluated(
    build: Callable[..., Any],
    X: NDArray[np.float32],
    y: NDArray[Any] | None,
    rows: NDArray[np.intp],
    share: float,
    seed: int,
) -> dict[str, Any] | None:
    """Tie-aware mAP of held-out queries against the images that the encoder has learned from."""
    if y is None or not share:
        return None
    labelled = X[rows]
    asking = held_out(y, share, seed)
    searched = np.setdiff1d(np.arange(len(y)), asking)
    if not len(asking) or len(searched) < 2 or (y.ndim == 1 and len(np.unique(y[searched])) < 2):
        return None
    hasher = build(labelled[searched], y[searched])
    scores = evaluate(hasher.transform(labelled[asking]), y[asking], hasher.transform(labelled[searched]), y[searched])
    return {
        "map": scores.map,
        "map_worst": scores.map_worst,
        "map_best": scores.map_best,
        "n_queries": len(asking),
        "n_searched": len(searched),
        "protocol": "queries were held out; the encoder that was measured learned from the searched images only, the "
        "saved one from all",
    }


def _added(
    collection: Collection, done: Sequence[Extracted], labels: Sequence[Label], files: Sequence[Path], tell: Tell
) -> AddReport:
    report = AddReport()
    for start in range(0, len(done), ADDED_AT_ONCE):
        here = slice(start, start + ADDED_AT_ONCE)
        collection._add_batch(list(done[here]), labels[here], list(files[here]), report)
        tell("adding", min(start + ADDED_AT_ONCE, len(done)), len(done))
    return report


class _Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = now - self._last, now
