"""Scores of a search that looks up cells in an order of its own: a distance per query and cell, learned or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._labels import LabelGroups, group_label_pair
from shorthash._types import Counts, Floats
from shorthash._validation import check_same_length
from shorthash.errors import InvalidInput
from shorthash.evaluation.conventions import Convention, convention_rules
from shorthash.evaluation.counting import gains_of, grades_of
from shorthash.evaluation.measure import CountedQueries, measure_all
from shorthash.evaluation.scores import Scores, scores_of

__all__ = ["evaluate_cells"]


def evaluate_cells(
    distances: ArrayLike,
    query_labels: ArrayLike,
    item_cells: ArrayLike,
    database_labels: ArrayLike,
    *,
    convention: str | Convention = "shorthash",
    ties: str | None = None,
    k: int | Sequence[int] | None = None,
    without_relevant: str | None = None,
    gain: str = "shared",
) -> Scores:
    """Score a ranking of cells, and so of the items in them; items of one cell are tied.

    The same as :func:`evaluate_distances` with ``distances[:, item_cells]``, but counted per cell, so it costs nothing
    in the size of the database.

    Parameters
    ----------
    distances : (n_queries, n_cells), smaller is nearer, for instance ``-hasher.relevance(X)``; equal values are ties
    query_labels, database_labels : class labels of any type, (n,), or indicator matrices, (n, n_classes)
    item_cells : (n_database,) the column of every item
    convention, ties, k, without_relevant, gain : as in :func:`evaluate`; ties in database order are not to be had here

    Examples
    --------
    >>> evaluate_cells([[0.1, 0.4]], ["cat"], [0, 1, 1], ["cat", "dog", "cat"], k=1).map
    0.9166666666666666
    """
    owner = "evaluate_cells"
    rules = convention_rules(convention, ties=ties, without_relevant=without_relevant, k=k, owner=owner)
    if rules.ties == "stable":
        raise InvalidInput(
            "evaluate_cells cannot break ties by database order ('stable'), because it only counts who is in a cell; "
            "use ties='expected', or evaluate_distances."
        )
    D, cells = np.asarray(distances, dtype=np.float64), np.asarray(item_cells)
    if D.ndim != 2 or np.isnan(D).any():
        raise InvalidInput(
            f"Distances to cells must be numbers without NaN of shape (n_queries, n_cells). Got shape {D.shape}."
        )
    if (
        cells.ndim != 1
        or cells.dtype.kind not in "iu"
        or (len(cells) and not 0 <= cells.min() <= cells.max() < D.shape[1])
    ):
        raise InvalidInput(f"The cells of items must be column numbers of the distances, 0 to {D.shape[1] - 1}.")
    check_same_length(D, query_labels, owner)
    check_same_length(cells, database_labels, owner)
    groups, others = group_label_pair(query_labels, database_labels, owner=owner)
    gains, graded = gains_of(gain, others)
    held = np.zeros((D.shape[1], len(others.rows)), dtype=np.int64)  # (m, u) items of every label set in every cell
    np.add.at(held, (cells, others.ids), 1)
    blocks = _count(D, groups.ids, held, others, graded, len(gains))
    columns, lost, _ = measure_all(blocks, rules, gains, np.ones(len(D), dtype=np.int64))
    sizes = {"n_database": len(cells), "n_bits": 0, "n_without_relevant": int(lost.sum()), "radius": None}
    return scores_of(columns, None, rules, **sizes)


def _count(
    D: Floats, ids: NDArray[np.intp], held: Counts, groups: LabelGroups, graded: bool, n_grades: int
) -> Iterator[CountedQueries]:
    """Level counts, one query at a time: a level per different distance."""
    size = held.sum(axis=1)
    for i in range(len(D)):
        grades = grades_of(int(ids[i]), groups, graded)  # (u,)
        by_grade = np.stack([held @ (grades == grade) for grade in range(1, n_grades + 1)])  # (n_grades, m)
        order = np.argsort(D[i], kind="stable")
        near = D[i][order]
        starts = np.flatnonzero(np.concatenate([[True], near[1:] != near[:-1]]))
        total = np.add.reduceat(size[order], starts)[None]
        counts = np.add.reduceat(by_grade[:, order], starts, axis=1)[:, None]
        yield CountedQueries(slice(i, i + 1), total, counts, None, False, _unlisted)


def _unlisted(i: int) -> NDArray[np.int64]:
    raise AssertionError(f"query {i} has no order inside its cells")
