r"""Few labels: rows without one get the label that spreads to them along a graph of nearest rows.

.. math:: F \leftarrow \alpha\, D^{-1/2} W D^{-1/2} F + (1 - \alpha)\, Y

with W the graph in which every row is tied to its nearest rows, D its degrees, and Y the known labels, each class with
the same mass. The columns of F are scaled to the same mass, and a row takes the class of its largest entry (Zhou,
Bousquet, Lal, Weston, Schoelkopf: Learning with Local and Global Consistency, NIPS 2003; scaled as in Zhu, Ghahramani,
Lafferty: Semi-Supervised Learning Using Gaussian Fields and Harmonic Functions, ICML 2003).

With few labels per class the graph knows more than a model of the labelled rows; with more of them either knows what
the other does not, and F counts as a chance that is multiplied by the posteriors of that model. Which is done, and
whether any of it, is decided on labelled rows: either half of the labels is hidden once, and must be recovered from the
other more often than by the model alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from shorthash._arrays import Floats, is_foreign
from shorthash._labels import label_rows, missing_labels
from shorthash.data.rows import nearest_rows
from shorthash.learners.posteriors.folds import PosteriorModel, draw_folds
from shorthash.learners.posteriors.models import fit_posteriors

MOST_ROWS = 12_000  # labelled and unlabelled together, in the graph; unlabelled ones beyond that are left out
NEIGHBOURS = 10
ALPHA = 0.95  # share of a row's label that comes from its neighbours
STEPS = 50
FEWEST = 2  # labelled rows per class that allow half of them to be hidden
SMALLEST = 1e-300


def missing_in(y: ArrayLike | None) -> NDArray[np.bool_] | None:
    """Which rows have no class, (n,); None where all have one, or where labels are a matrix."""
    if y is None or is_foreign(y) or sparse.issparse(y):
        return None
    values = label_rows(y)
    missing = missing_labels(values) if values.ndim == 1 else np.zeros(1, dtype=bool)
    return missing if missing.any() and not missing.all() else None


def spread_labels(
    X: NDArray[np.float32], y: ArrayLike, missing: NDArray[np.bool_], metric: str, rng: np.random.RandomState
) -> tuple[NDArray[np.intp], NDArray[Any], bool]:
    """Rows to learn from, their labels, known or spread, and whether labels were spread.

    Parameters
    ----------
    X : (n, d) rows
    y : (n,) labels, or sets of labels
    missing : (n,) rows without one
    metric : what the nearest rows are
    rng : draws a sample of the unlabelled rows where there are very many
    """
    labels = label_rows(y)
    known, others = np.flatnonzero(~missing), np.flatnonzero(missing)
    room = max(MOST_ROWS - len(known), 0)
    rows = np.sort(np.concatenate([known, rng.permutation(others)[:room]]))
    names, ids = _numbered(labels[known])
    place = np.searchsorted(rows, known)
    if not room or len(names) < 2:
        return known, labels[known], False
    graph = _graph(X[rows], metric)
    way = _best_way(X[known], ids, len(names), graph, place, rng)
    if way == "model":
        return known, labels[known], False
    F = _spread(graph, place, ids, len(names))
    if way == "both":
        F *= _model(X[known], ids, len(names), rng).predict(X[rows])
    found = F.argmax(axis=1)
    found[place] = ids
    return rows, names[found], True


def _numbered(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Distinct labels, or sets of labels, and the number of each row's."""
    if labels.dtype.kind != "O":
        names, ids = np.unique(labels, return_inverse=True)
        return names, ids.reshape(-1)
    keys = [tuple(sorted(label)) if isinstance(label, list | tuple | set | frozenset) else label for label in labels]
    order = {key: i for i, key in enumerate(sorted(set(keys), key=lambda key: (str(type(key)), key)))}
    ids = np.array([order[key] for key in keys], dtype=np.intp)
    names = np.empty(len(order), dtype=object)
    names[ids] = labels
    return names, ids


def _graph(X: NDArray[np.float32], metric: str) -> Any:
    """Every row tied to its nearest rows and to those it is near to, with symmetric normalisation, (n, n), sparse."""
    n = len(X)
    k = min(NEIGHBOURS, n - 1)
    near = nearest_rows(X, X, k, metric, own=np.arange(n))
    one_way: Any = sparse.csr_array((np.ones(n * k), (np.repeat(np.arange(n), k), near.ravel())), shape=(n, n))
    W = one_way + one_way.T
    scale: Any = sparse.diags_array(1 / np.sqrt(W.sum(axis=1)))
    return (scale @ W @ scale).tocsr()


def _spread(graph: Any, place: NDArray[np.intp], ids: NDArray[np.intp], n_classes: int) -> Floats:
    """Shares of the classes in what spreads to every row, (n, n_classes); equal ones where nothing does."""
    Y = np.zeros((graph.shape[0], n_classes))
    Y[place, ids] = 1 / np.maximum(np.bincount(ids, minlength=n_classes), 1)[ids]
    F: Floats = Y
    for _ in range(STEPS):
        F = ALPHA * (graph @ F) + (1 - ALPHA) * Y
    F = F / np.maximum(F.sum(axis=0), SMALLEST) + SMALLEST
    return np.asarray(F / F.sum(axis=1, keepdims=True))


def _model(X: NDArray[np.float32], ids: NDArray[np.intp], n_classes: int, rng: np.random.RandomState) -> PosteriorModel:
    """A model of labelled rows alone."""
    Yg = np.eye(n_classes, dtype=np.uint8)
    [(_, fitted)] = fit_posteriors("logistic", X, ids, Yg, draw_folds(ids, rng, every=True))
    return fitted.model


def _best_way(
    X: NDArray[np.float32],
    ids: NDArray[np.intp],
    n_classes: int,
    graph: Any,
    place: NDArray[np.intp],
    rng: np.random.RandomState,
) -> str:
    """What recovers hidden labels most often: "graph", "model" (of the labelled rows alone) or "both".

    Where there is one label per class there is nothing to compare: "graph".
    """
    counts = np.bincount(ids, minlength=n_classes)
    if np.median(counts) < FEWEST:
        return "graph"
    order = rng.permutation(len(ids))
    order = order[np.argsort(ids[order], kind="stable")]
    rank = np.arange(len(ids)) - (np.cumsum(counts) - counts)[ids[order]]
    recovered = {"graph": 0, "model": 0, "both": 0}
    for part in (0, 1):
        hide = (rank % 2 == part) & (counts[ids[order]] > 1)
        shown, hidden = np.sort(order[~hide]), np.sort(order[hide])
        F = _spread(graph, place[shown], ids[shown], n_classes)[place[hidden]]
        P = _model(X[shown], ids[shown], n_classes, rng).predict(X[hidden])
        for way, scores in (("graph", F), ("model", P), ("both", F * P)):
            recovered[way] += int((scores.argmax(axis=1) == ids[hidden]).sum())
    return max(recovered, key=lambda way: recovered[way])  # the first of equal ones
