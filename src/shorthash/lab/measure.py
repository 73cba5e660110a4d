"""Codes in, the scores of a record out: all of them in one go, with spread, and per query for the side file."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._types import Codes, Floats
from shorthash.evaluation.scores import evaluate
from shorthash.lab.stable import stable_scores

__all__ = ["FEW", "MANY", "measure", "rounded", "summary"]

FEW, MANY = 100, 5000  # list lengths; the second is that of the authors' code
DIGITS = 5  # significant ones, of every number in a record
KEPT = ("map", "map_h2", "precision_at_100", "precision_at_5000")  # per query, for the side file


def measure(
    query: Codes, query_labels: ArrayLike, database: Codes, database_labels: ArrayLike, seed: int
) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
    """Every score of a record, and the main ones per query.

    ``map_stable`` and ``precision_at_5000`` follow the authors' code (ties in database order), on a database shuffled
    with the seed; all others are exact expectations over ties, in particular ``precision_at_5000_expected``.

    Parameters
    ----------
    query, database : codes
    query_labels, database_labels : their labels
    seed : of the shuffle
    """
    scores = evaluate(query, query_labels, database, database_labels, k=(FEW, MANY))
    per_query = scores.per_query
    order = np.random.default_rng(seed).permutation(len(database))
    stable, head = stable_scores(query, query_labels, database[order], np.asarray(database_labels)[order], MANY)
    columns: dict[str, Floats] = {
        "map": per_query["map"],
        "map_best": per_query["map_best"],
        "map_worst": per_query["map_worst"],
        "map_h2": per_query["map_at_radius"],
        "map_stable": stable,
        "precision_at_100": per_query["precision_at_k"][:, 0],
        "precision_at_5000": head,
        "precision_at_5000_expected": per_query["precision_at_k"][:, 1],
        "precision_h2": per_query["precision_at_radius"],
        "recall_h2": per_query["recall_at_radius"],
    }
    summaries = {name: summary(values) for name, values in columns.items()}
    return summaries, {name: columns[name].astype(np.float32) for name in KEPT}


def summary(values: Floats) -> dict[str, Any]:
    """Mean, standard deviation and quartiles over the queries that count.

    Examples
    --------
    >>> summary(np.array([0.0, 0.25, 0.5, np.nan]))
    {'mean': 0.25, 'std': 0.25, 'quantiles': [0.0, 0.125, 0.25, 0.375, 0.5]}
    """
    kept = values[~np.isnan(values)]
    if not len(kept):
        return {"mean": None, "std": None, "quantiles": []}
    spread = float(kept.std(ddof=1)) if len(kept) > 1 else 0.0
    quantiles = [rounded(float(value)) for value in np.quantile(kept, (0, 0.25, 0.5, 0.75, 1))]
    return {"mean": rounded(float(kept.mean())), "std": rounded(spread), "quantiles": quantiles}


def rounded(value: float, digits: int = DIGITS) -> float:
    """So many significant digits."""
    return float(f"{value:.{digits}g}")
