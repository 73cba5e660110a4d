"""One code for two feature spaces: posteriors of the second are learned, the table is that of the first.

With labels the posteriors of the second space are over the same label sets. With rows of both spaces that show the same
things, and no labels, the posteriors (or memberships) of the first are the targets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from shorthash._labels import group_labels
from shorthash._types import Labels
from shorthash.errors import InvalidInput
from shorthash.learners.posteriors.folds import FOLDED_ROWS, Fitted, Posteriors, draw_folds
from shorthash.learners.posteriors.models import POSTERIORS, fit_posteriors
from shorthash.learners.posteriors.ridge import kernel_tried
from shorthash.learners.posteriors.soft import fit_soft


def posteriors_of_labels(
    X: NDArray[np.float32],
    y: ArrayLike | None,
    classes: Labels,
    label_sets: NDArray[np.uint8],
    posterior: str | BaseEstimator,
    rng: np.random.RandomState,
) -> tuple[Fitted, int]:
    """Posteriors over known label sets, and how many rows were left out because theirs is missing or unknown.

    Parameters
    ----------
    X, y : rows of the second space, and their labels
    classes, label_sets : (c,), (u, c) those of the first
    posterior : the model of the first; one that is not learned from rows and label sets is replaced by that of "auto"
    rng : draws folds
    """
    groups = group_labels(y, owner="EAPH", n_samples=len(X), classes=classes, drop_unlabelled=True)
    known = {row.tobytes(): number for number, row in enumerate(label_sets)}
    place = np.array([known.get(row.tobytes(), -1) for row in groups.rows.astype(label_sets.dtype)])
    ids = place[groups.ids]
    used = np.flatnonzero(ids >= 0)
    if len(np.unique(ids[used])) < 2:
        raise InvalidInput(
            "y of align must have two or more of the classes or sets of labels that the hasher knows. Got "
            f"{len(np.unique(ids[used]))}; give more rows, or fit a hasher of its own."
        )
    rows = X if groups.kept is None else X[groups.kept]
    auto = "combo" if len(X) <= FOLDED_ROWS and kernel_tried(len(label_sets), X.shape[1]) else "logistic"
    kind = posterior if isinstance(posterior, str) and posterior in POSTERIORS else auto
    [(_, fitted), *_] = fit_posteriors(kind, rows[used], ids[used], label_sets, draw_folds(ids[used], rng))
    return fitted, len(X) - len(used)


def posteriors_of_rows(X: NDArray[np.float32], targets: Posteriors, rng: np.random.RandomState) -> Fitted:
    """Posteriors of rows of the second space that come near those of the same things in the first.

    Parameters
    ----------
    X : rows of the second space
    targets : (n, u) posteriors of the same things in the first
    rng : draws folds
    """
    return fit_soft(X, targets, draw_folds(targets.argmax(axis=1), rng))
