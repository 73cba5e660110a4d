"""Level counts of some queries in, every score of those queries out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Counts, Floats
from shorthash.evaluation.conventions import Convention
from shorthash.evaluation.metrics import average_precision, ndcg, precision, recall
from shorthash.evaluation.metrics.pr_curve import RadiusSums
from shorthash.evaluation.ranking import Ranking, ideal_ranking, rank_by_levels, rank_items

__all__ = ["BY_K", "BY_QUERY", "CountedQueries", "measure_all"]

BY_RADIUS = ("map_at_radius", "precision_at_radius", "recall_at_radius", "empty_balls")
BY_QUERY = ("map", "map_worst", "map_best", *BY_RADIUS)
BY_K = ("precision_at_k", "recall_at_k", "map_at_k", "ndcg_at_k")


@dataclass(frozen=True)
class CountedQueries:
    """Some queries with their level counts.

    Attributes
    ----------
    rows : which queries
    total : (m, n_levels) items at every distance, nearest first
    graded : (n_grades, m, n_levels) those that share 1, 2, ... labels with the query
    ball : (m,) items within the radius; None where there is no radius
    by_radius : whether level t holds the items at distance t exactly, so that radii can be summed over queries
    listed : the grades of all items in database order inside ties, nearest first, for the i-th of these queries
    """

    rows: slice
    total: Counts
    graded: Counts
    ball: Counts | None
    by_radius: bool
    listed: Callable[[int], NDArray[np.integer[Any]]]


def measure_all(
    blocks: Iterable[CountedQueries], rules: Convention, gains: Floats, copies: Counts
) -> tuple[dict[str, Floats], NDArray[np.bool_], RadiusSums | None]:
    """Score all queries, block by block.

    Returns
    -------
    columns : per score (m,), or (m, n_k) for the scores by k; nan marks queries that a rule leaves out
    lost : (m,) which queries have no relevant item in the database
    sums : what the precision-recall curve by radius needs; None if there is no such curve
    """
    m = len(copies)
    columns = {name: np.zeros(m) for name in BY_QUERY} | {name: np.zeros((m, len(rules.k))) for name in BY_K}
    lost = np.zeros(m, dtype=bool)
    sums: RadiusSums | None = None
    for block in blocks:
        lost[block.rows] = missing = block.graded.sum(axis=(0, 2)) == 0
        for name, values in _measure(block, rules, gains).items():
            if rules.without_relevant == "drop":
                values[missing] = np.nan
            elif block.ball is not None or name not in BY_RADIUS:
                values[missing] = np.nan_to_num(values[missing])
            columns[name][block.rows] = values
        if block.by_radius:
            dropped = missing & (rules.without_relevant == "drop")
            some = RadiusSums.of(block.total, block.graded.sum(axis=0), np.where(dropped, 0, copies[block.rows]))
            sums = some if sums is None else sums + some
    return columns, lost, sums


def _measure(block: CountedQueries, rules: Convention, gains: Floats) -> dict[str, Floats]:
    """Every score of a block; queries without relevant items are left to the caller's rule."""
    worst = rank_by_levels(block.total, block.graded, gains, "worst")
    best = rank_by_levels(block.total, block.graded, gains, "best")
    bounds = {"map_worst": average_precision(worst), "map_best": average_precision(best)}
    ideal = ideal_ranking(block.graded, gains)
    if rules.ties != "stable":
        ranking = rank_by_levels(block.total, block.graded, gains, rules.ties)
        return _scores_of(ranking, ideal, block.ball, rules) | bounds
    pieces = []
    for i in range(len(block.total)):
        ball = None if block.ball is None else block.ball[i : i + 1]
        one = Ranking(ideal.total[i : i + 1], ideal.relevant[i : i + 1], ideal.gain[i : i + 1])
        pieces.append(_scores_of(rank_items(block.listed(i), gains), one, ball, rules))
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]} | bounds


def _scores_of(ranking: Ranking, ideal: Ranking, ball: Counts | None, rules: Convention) -> dict[str, Floats]:
    """The scores that depend on the tie policy."""
    m, k = len(ranking.total), rules.k
    scores = {"map": average_precision(ranking)}
    if ball is None:
        scores |= {name: np.full(m, np.nan) for name in BY_RADIUS}
    else:
        scores["map_at_radius"] = _list_map(ranking, ball, rules.divisor_at_radius, rules.no_hit)
        scores["precision_at_radius"] = precision(ranking, ball)
        scores["recall_at_radius"] = recall(ranking, ball)
        scores["empty_balls"] = (ball == 0).astype(np.float64)
    scores["precision_at_k"] = _by_k([precision(ranking, cut) for cut in k], m)
    scores["recall_at_k"] = _by_k([recall(ranking, cut) for cut in k], m)
    scores["map_at_k"] = _by_k([_list_map(ranking, cut, rules.divisor_at_k, rules.no_hit) for cut in k], m)
    scores["ndcg_at_k"] = _by_k([ndcg(ranking, ideal, cut) for cut in k], m)
    return scores


def _list_map(ranking: Ranking, cut: int | Counts, divisor: str, no_hit: str) -> Floats:
    """Average precision of a list; a list that cannot show a relevant item is 0 or left out, an empty one is 0."""
    values = average_precision(ranking, cut, divisor)
    if no_hit == "drop":
        values[(ranking.hits(cut) == 0) & (ranking.cuts(cut) > 0)] = np.nan
    return values


def _by_k(columns: list[Floats], m: int) -> Floats:
    """Columns side by side, (m, n_k)."""
    return np.stack(columns, axis=1) if columns else np.zeros((m, 0))
