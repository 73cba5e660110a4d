"""Scores of a fitted hasher: on queries and a database, or as a scorer for scikit-learn."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from shorthash._types import Codes
from shorthash._validation import check_choice
from shorthash.codes.levels import leave_one_out_map
from shorthash.codes.signs import as_codes
from shorthash.errors import InvalidInput
from shorthash.evaluation.scores import Scores, evaluate

__all__ = ["DATABASE_CODES", "evaluate_hasher", "learned_codes", "map_scorer"]

DATABASE_CODES = ("encoded", "learned")


class Encoder(Protocol):
    """Anything that turns rows into codes."""

    def transform(self, X: ArrayLike) -> Codes:
        """Codes, (n_samples, n_bits), of signs."""


def map_scorer(estimator: Encoder, X: ArrayLike, y: ArrayLike) -> float:
    """Tie-aware mAP where every row of ``X`` queries all the others: a scorer for ``GridSearchCV(scoring=...)``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import GridSearchCV
    >>> from shorthash.learners.rslh.estimator import RSLH
    >>> X, y = load_iris(return_X_y=True)
    >>> search = GridSearchCV(RSLH(n_bits=4, random_state=0), {"alpha": [0.1, 1.0]}, scoring=map_scorer).fit(X, y)
    >>> search.best_score_ > 0.4
    np.True_
    """
    return leave_one_out_map(estimator.transform(X), y)


def evaluate_hasher(
    hasher: Encoder,
    X_query: ArrayLike,
    y_query: ArrayLike,
    X_database: ArrayLike | None,
    y_database: ArrayLike,
    *,
    database_codes: str = "encoded",
    **options: Any,
) -> Scores:
    """Encode and score.

    Parameters
    ----------
    hasher : a fitted hasher or pipeline
    X_query, y_query : queries
    X_database, y_database : database; with learned codes ``X_database`` is not read and may be None
    database_codes : "encoded" by the hash function (symmetric), or "learned" while fitting (asymmetric; the database
        is then the training rows, in their order, and the score mostly measures classification accuracy)
    options : passed on to :func:`evaluate`

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shorthash import RSLH
    >>> X, y = load_iris(return_X_y=True)
    >>> hasher = RSLH(n_bits=4, random_state=0).fit(X[::2], y[::2])
    >>> evaluate_hasher(hasher, X[1::2], y[1::2], X[::2], y[::2]).n_database
    75
    >>> evaluate_hasher(hasher, X[1::2], y[1::2], None, y[::2], database_codes="learned").n_database
    75
    """
    check_choice(database_codes, "database_codes", "evaluate_hasher", DATABASE_CODES)
    if database_codes == "learned":
        items = learned_codes(hasher)
        if len(items) != len(np.asarray(y_database)):
            raise InvalidInput(
                f"Learned codes belong to the {len(items)} training rows, but {len(np.asarray(y_database))} database "
                "labels were given; pass the training labels, or use database_codes='encoded'."
            )
    elif X_database is None:
        raise InvalidInput("evaluate_hasher needs X_database to encode the database; pass its feature rows.")
    else:
        items = hasher.transform(X_database)
    return evaluate(hasher.transform(X_query), y_query, items, y_database, **options)


def learned_codes(hasher: Any) -> Codes:
    """The codes that were learned for the training rows; the hash function may encode the same rows differently."""
    learner = hasher[-1] if hasattr(hasher, "steps") else hasher
    if not hasattr(learner, "codes_"):
        raise InvalidInput(
            f"{type(learner).__name__} has no learned codes of its training rows; fit it first, or encode the database "
            "with its hash function."
        )
    return as_codes(learner.codes_)
