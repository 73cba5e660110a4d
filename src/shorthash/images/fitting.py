"""From folders of images to a collection: files and labels, features, a measured mAP, an encoder, items added."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import MultiLabelBinarizer

from shorthash._progress import OnStep, with_progress
from shorthash._validation import check_n_bits
from shorthash.codes import pack
from shorthash.errors import DataFileError, InvalidInput, named
from shorthash.evaluation import evaluate
from shorthash.images.collection import THUMBNAIL, Collection
from shorthash.images.decoding import Extracted, extract
from shorthash.images.features import ImageFeatures, make_features
from shorthash.images.files import NamedImages, Skipped, count_kinds, named_images
from shorthash.images.results import AddReport, split_label
from shorthash.images.storage import THUMBNAILS, check_new_folder, move_folder, write_thumbnail
from shorthash.methods import make_hasher, recipes
from shorthash.persistence.files import temporary_path

METHOD = "auto"  # if none is named
MOST_QUERIES = 1000
ADDED_AT_ONCE = 1000
ANCHORS = 1000  # default of the kernels
LEAST_QUERIES = 5  # with fewer queries the mAP is not conclusive
LEAST_LIFT = 0.05  # of the way from the mAP by chance to 1; less is no better than chance
SHUFFLES = 10  # of the queries' labels, to see what chance gives
NEARLY_ALL = 0.9  # share of the images in one bucket with which a search finds nothing
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
    doubt : why the labels seem unrelated to the images, in a sentence; else ""
    added : what was added, which images were duplicates, which could not be read, and which files were skipped
    unmatched : names in the table of labels that no image has
    facts : of the collection, see ``Collection.facts``: method, features, measured mAP, numbers of items and classes
    seconds : time for everything
    """

    path: Path
    n_images: int
    n_labelled: int
    reason: str
    doubt: str
    added: AddReport
    unmatched: list[str]
    facts: Mapping[str, Any]
    seconds: float


@with_progress
def fit_images(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    n_bits: int = 8,
    features: str | os.PathLike[str] | Mapping[str, Any] | ImageFeatures = "gist",
    labels: str | os.PathLike[str] | None = None,
    labels_from: str | None = None,
    method: str | None = None,
    settings: Mapping[str, Any] | None = None,
    hold_out: float = 0.2,
    random_state: int = 0,
    cache: str | os.PathLike[str] | None = None,
    n_workers: int = 0,
    progress: OnStep | None = None,
) -> FitReport:
    """Learn codes of the images in a folder and make a collection of them; it is created completely or not at all.

    Labels are the names of the folders that contain the images, or come from a table. The mAP is measured before the
    final encoder is fitted: a share of the images are queries, an encoder fitted on the other images encodes both, and
    the other images are searched. The encoder that is saved is fitted on all images.

    Folders may be albums rather than classes. If that mAP is no better than chance, or one bucket holds nearly all
    images, codes are learned without labels, from the features alone, and a warning says so. Labels that were
    requested, by ``labels``, ``labels_from`` or a ``method`` that needs them, are used anyway; then there is only the
    warning.

    Parameters
    ----------
    folder : the images, recursively
    output : the collection, a new or empty folder
    n_bits : length of the codes
    features : "gist", "cnn", the path of an ONNX model, a recipe, or features
    labels : a CSV file of NAME,LABEL (several labels joined by ";"); None takes the folders, if all images are in
        folders and there are at least two
    labels_from : "folder", "csv" (``labels``) or "none"; None: ``labels``, or else folders
    method : a name as ``make_hasher`` takes it; None: "auto"
    settings : parameters of the learner, and of the kernel: ``{"kernel__n_anchors": 500}``
    hold_out : share of the images of every class that are queries, 0 for no measurement
    random_state : seed of everything random
    cache : file of features, by content; after an interruption, work continues from it
    n_workers : processes that decode; 0 decodes in this one
    progress : called with (what, done, total); None shows what ``set_config`` sets

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> from shorthash import Collection, fit_images
    >>> rng = np.random.default_rng(0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for label, lightness in (("dark", 0), ("light", 150)):
    ...         Path(folder, "photos", label).mkdir(parents=True)
    ...         for number in range(8):
    ...             pixels = rng.integers(lightness, lightness + 100, (16, 16, 3), dtype=np.uint8)
    ...             Image.fromarray(pixels).save(f"{folder}/photos/{label}/{number}.png")
    ...     gist = {"kind": "gist", "size": 16}
    ...     report = fit_images(f"{folder}/photos", f"{folder}/model", n_bits=2, features=gist, method="classifier")
    ...     with Collection(f"{folder}/model", readonly=True) as collection:
    ...         found = collection.search(image=f"{folder}/photos/dark/0.png", k=3)
    >>> report.n_images, found.labels
    (16, ['dark', 'dark', 'dark'])
    """
    assert progress is not None
    check_n_bits(n_bits, "fit_images")
    if not 0 <= hold_out < 1:
        raise InvalidInput(f"{named('hold_out', 'fit_images')} must be in [0, 1). Got {hold_out} instead.")
    start = time.perf_counter()
    source, target = Path(folder), Path(output)
    check_new_folder(target)
    if not source.is_dir():
        raise DataFileError(f"There is no folder {source}; give the folder that holds the images.")
    found = named_images([source], table=labels, labels_from=labels_from)
    if not found.sources:
        raise DataFileError(_no_images(source, found.skipped))
    chosen, reason = _method(method, found.labels)
    on_doubt = _on_doubt(chosen, requested=labels is not None or labels_from is not None)
    made = make_features(features)
    target.parent.mkdir(parents=True, exist_ok=True)
    with temporary_path(target, folder=True) as work:
        batches = extract(found.sources, made, cache=cache, thumbnail=THUMBNAIL, n_workers=n_workers, progress=progress)
        images = [_with_thumbnail_saved(image, work) for batch in batches for image in batch]
        fit = partial(_fit, chosen, n_bits, random_state, dict(settings or {}))
        hasher, evaluation, doubt = _learn(fit, images, found, (hold_out, random_state), on_doubt, progress)
        inner = work / "collection"
        with Collection.create(
            inner,
            hasher,
            features=made,
            method=chosen,
            evaluation=evaluation,
            n_trained=len({image.content for image in images if image.row is not None}),
        ) as collection:
            if (work / THUMBNAILS).exists():
                (inner / THUMBNAILS).rmdir()
                (work / THUMBNAILS).rename(inner / THUMBNAILS)
            added = _add(collection, images, found, progress)
            facts = {**collection.facts(), "name": target.name}
            n_labelled = sum(label is not None for label in collection.labels_of(collection.ids))
        if hasattr(os, "sync"):
            os.sync()  # thumbnails; everything else has been forced to disk
        move_folder(inner, target)
    if doubt:
        warnings.warn(doubt, stacklevel=3)  # past with_progress
    if doubt and not any(found.labels):
        reason = "the folders are not classes: similar images get similar codes"
    seconds = time.perf_counter() - start
    return FitReport(target, len(found.sources), n_labelled, reason, doubt, added, found.unmatched, facts, seconds)


def _learn(
    fit: Fit,
    images: Sequence[Extracted],
    found: NamedImages,
    measuring: tuple[float, int],
    on_doubt: str,
    progress: OnStep,
) -> tuple[Any, dict[str, Any] | None, str]:
    """A hasher fitted to all images, what was measured, and why the labels are in doubt ("" if they are not).

    Parameters
    ----------
    fit : takes rows, and targets or None
    images : with their rows
    found : the images; its labels become None if they are dropped
    measuring : share of the images to hold out, and the seed
    on_doubt : what to do with such labels: "drop", "warn" or "ignore"
    progress : called with (what, done, total)
    """
    X, y, labelled = _training_set(images, found.labels)
    evaluation, doubt = None, ""
    if y is not None and measuring[0]:
        progress("measuring on held-out images", 0, 0)
        evaluation = _evaluate(fit, X[labelled], y, *measuring)
        doubt = _doubt(evaluation, on_doubt)
    if doubt and on_doubt == "drop":
        evaluation, y, found.labels = None, None, [None] * len(found.labels)
    progress(f"learning codes of {len(X)} images", 0, 0)
    return fit(X if y is None else X[labelled], y), evaluation, doubt


def _on_doubt(method: str, *, requested: bool) -> str:
    """What to do if labels seem unrelated to the images: "drop" them, "warn", or "ignore" it if they are not used."""
    recipe = recipes().get(method)
    if recipe is not None and not recipe.supervised:
        return "ignore"
    return "drop" if recipe is not None and recipe.labels_optional and not requested else "warn"


def _doubt(evaluation: Mapping[str, Any] | None, on_doubt: str) -> str:
    """Why labels seem unrelated to the images, and what follows, in two sentences; "" if they do not."""
    if evaluation is None or evaluation["n_queries"] < LEAST_QUERIES or on_doubt == "ignore":
        return ""
    gain, chance = evaluation["map"] - evaluation["chance"], evaluation["chance"]
    if gain < max(LEAST_LIFT * (1 - chance), 2 * evaluation["error"]):
        seen = "held-out images find images of the same label hardly more often than by chance (mAP "
        seen += f"{evaluation['map']:.3f}, by chance {chance:.3f})."
    elif evaluation["largest_bucket"] > NEARLY_ALL:
        seen = f"one bucket holds {evaluation['largest_bucket']:.0%} of the images."
    else:
        return ""
    if on_doubt == "warn":
        return f"The labels seem unrelated to the images: {seen} labels_from='none' (--no-labels) learns without them."
    return (
        f"The folders look like albums, not classes: {seen} Codes were learned without labels, so that similar "
        "images get similar codes; labels_from='folder' (--labels-from folder) learns from the folders anyway."
    )


def _no_images(folder: Path, skipped: Skipped) -> str:
    """The message for a folder without images."""
    n = sum(map(len, skipped.values()))
    others = f"; its {n} files were skipped ({count_kinds(skipped)})" if n else ""
    return f"{folder} holds no images (.jpg, .png, .heic, .webp, ...){others}. Check the path, or convert them to JPEG."


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
        return METHOD, "no labels: similar images get similar codes"
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
    codes, searched_codes = hasher.transform(X[queries]), hasher.transform(X[searched])
    scores = evaluate(codes, y[queries], searched_codes, y[searched])
    # by chance: queries with the label of another query. The searched images were learned from, so that even labels
    # without meaning sort them into buckets, and random orders would be too low a bar
    rng = np.random.default_rng(seed)
    shuffled = np.concatenate([rng.permutation(queries) for _ in range(SHUFFLES)])
    chance = evaluate(np.tile(codes, (SHUFFLES, 1)), y[shuffled], searched_codes, y[searched])
    loads = np.unique(pack(searched_codes), return_counts=True)[1]
    return {
        "map": scores.map,
        "map_worst": scores.map_worst,
        "map_best": scores.map_best,
        "chance": chance.map,
        "error": float(np.nanstd(scores.per_query["map"]) / np.sqrt(len(queries))),
        "largest_bucket": float(loads.max() / len(searched)),
        "n_queries": len(queries),
        "n_searched": len(searched),
        "protocol": "queries were held out; the measured encoder was fitted on the searched images only, the saved "
        "encoder on all",
    }


def _add(collection: Collection, images: Sequence[Extracted], found: NamedImages, progress: OnStep) -> AddReport:
    report = AddReport(skipped={kind: list(names) for kind, names in found.skipped.items()})
    for start in range(0, len(images), ADDED_AT_ONCE):
        rows = slice(start, start + ADDED_AT_ONCE)
        collection.add_extracted(images[rows], found.labels[rows], report)
        progress("adding", min(start + ADDED_AT_ONCE, len(images)), len(images))
    return report
