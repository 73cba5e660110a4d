"""The one verb, ``evaluate``, and what it returns, ``Scores``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from shorthash._labels import group_labels
from shorthash._types import Floats
from shorthash._validation import check_choice, require_extra
from shorthash.errors import InvalidInput
from shorthash.evaluation.conventions import Convention, convention_rules
from shorthash.evaluation.counting import count_by_codes, count_by_distances, prepare
from shorthash.evaluation.measure import BY_K, BY_QUERY, measure_all
from shorthash.evaluation.metrics.pr_curve import PRCurve, RadiusSums, pr_curve

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Scores", "evaluate", "evaluate_distances", "scores_of"]


@dataclass(frozen=True)
class Scores:
    """How well codes (or distances) retrieve.

    Every number is a mean over the queries; ``per_query`` holds the values it is the mean of, with nan where a rule
    leaves a query out.

    Attributes
    ----------
    map : mean average precision of the whole ranking, under the tie policy
    map_worst, map_best : the same if every tie fell badly, or well: no order of the database can leave this range
    map_at_radius, precision_at_radius, recall_at_radius : of the items within ``radius``
    empty_balls : share of queries without any item within ``radius``
    precision_at_k, recall_at_k, map_at_k, ndcg_at_k : by list length
    pr_curve : precision and recall at every radius; None for real-valued distances
    per_query : arrays of shape (n_queries,), or (n_queries, n_k) for the scores by k
    n_queries, n_database, n_bits : sizes; n_bits is 0 for real-valued distances
    n_without_relevant : queries for which the database has no relevant item
    radius : the radius; None if there is none
    rules : the convention, with what was asked for explicitly put in its place
    """

    map: float
    map_worst: float
    map_best: float
    map_at_radius: float
    precision_at_radius: float
    recall_at_radius: float
    empty_balls: float
    precision_at_k: Mapping[int, float]
    recall_at_k: Mapping[int, float]
    map_at_k: Mapping[int, float]
    ndcg_at_k: Mapping[int, float]
    pr_curve: PRCurve | None
    per_query: Mapping[str, Floats] = field(repr=False)
    n_queries: int
    n_database: int
    n_bits: int
    n_without_relevant: int
    radius: float | None
    rules: Convention

    @property
    def pr_area(self) -> float:
        """Area under the pooled precision-recall curve by radius; nan for real-valued distances."""
        return float("nan") if self.pr_curve is None else self.pr_curve.area

    @property
    def headline(self) -> float:
        """The number that the convention calls its mAP."""
        value = getattr(self, self.rules.headline)
        return float(value[self.rules.k[0]] if isinstance(value, Mapping) else value)

    def by_class(self, query_labels: ArrayLike, score: str = "map") -> dict[Any, float]:
        """Mean of a score over the queries of every class; a query with several labels counts for each."""
        check_choice(score, "score", "Scores.by_class", BY_QUERY)
        groups = group_labels(query_labels, owner="Scores.by_class", allow_unlabelled=True)
        if groups.n_samples != self.n_queries:
            raise InvalidInput(
                f"Scores.by_class needs one label per query: there are {self.n_queries} queries, but "
                f"{groups.n_samples} labels; pass the query labels given to evaluate."
            )
        values = self.per_query[score]
        members = groups.rows[groups.ids].astype(bool)
        return {name: _mean(values[members[:, c]]) for c, name in enumerate(groups.classes.tolist())}

    def to_dict(self) -> dict[str, Any]:
        """All means and sizes, flat: one row of a table."""
        row: dict[str, Any] = {name: getattr(self, name) for name in BY_QUERY}
        for name in BY_K:
            row |= {f"{name[:-1]}{k}": value for k, value in getattr(self, name).items()}
        row["pr_area"] = self.pr_area
        for name in ("n_queries", "n_database", "n_bits", "n_without_relevant", "radius"):
            row[name] = getattr(self, name)
        rules = self.rules
        return row | {"convention": rules.name, "ties": rules.ties, "without_relevant": rules.without_relevant}

    def to_json(self, path: str | Path | None = None) -> str:
        """The same as JSON, with null for nan; written to ``path`` too, if given."""
        row = {name: None if value != value else value for name, value in self.to_dict().items()}
        text = json.dumps(row, indent=2, allow_nan=False) + "\n"
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_frame(self, *, per_query: bool = False) -> pd.DataFrame:
        """The same as a table of one row, or of one row per query."""
        pandas = require_extra("pandas", "tables", "Scores.to_frame")
        if not per_query:
            return cast("pd.DataFrame", pandas.DataFrame([self.to_dict()]))
        columns = {name: self.per_query[name] for name in BY_QUERY}
        for name in BY_K:
            columns |= {f"{name[:-1]}{k}": self.per_query[name][:, i] for i, k in enumerate(self.rules.k)}
        return cast("pd.DataFrame", pandas.DataFrame(columns))

    def __str__(self) -> str:
        codes = f"{self.n_bits} bits" if self.n_bits else "real-valued distances"
        rules = f"convention {self.rules.name}, ties {self.rules.ties}"
        bounds = f"from {self.map_worst:.4f} to {self.map_best:.4f} by tie order"
        lines = [
            f"{self.n_queries} queries against {self.n_database} items, {codes} ({rules})",
            f"  {'mAP':<17}{self.map:.4f}   {bounds}",
        ]
        if self.radius is not None:
            within = f"@H<={self.radius:g}"
            lines += [
                f"  {'mAP' + within:<17}{self.map_at_radius:.4f}",
                f"  {'precision' + within:<17}{self.precision_at_radius:.4f}",
                f"  {'recall' + within:<17}{self.recall_at_radius:.4f}   empty balls {100 * self.empty_balls:.1f} %",
            ]
        if self.rules.k:
            lines.append((f"  {'k':<17}" + "".join(f"{k:<9}" for k in self.rules.k)).rstrip())
            for name, title in zip(BY_K, ("precision@k", "recall@k", "mAP@k", "nDCG@k"), strict=True):
                lines.append((f"  {title:<17}" + "".join(f"{v:<9.4f}" for v in getattr(self, name).values())).rstrip())
        if self.n_without_relevant:
            fate = "left out" if self.rules.without_relevant == "drop" else "scored 0"
            lines.append(f"  {self.n_without_relevant} queries without relevant items, {fate}")
        return "\n".join(lines)


def evaluate(
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    database_codes: ArrayLike | None = None,
    database_labels: ArrayLike | None = None,
    *,
    n_bits: int | None = None,
    convention: str | Convention = "shorthash",
    ties: str | None = None,
    radius: int = 2,
    k: int | Sequence[int] | None = None,
    without_relevant: str | None = None,
    gain: str = "shared",
    engine: str = "auto",
) -> Scores:
    """Score codes exactly, ties included.

    Queries and database may be coded differently (asymmetric evaluation: learned codes for the database, the hash
    function for the queries); only the codes given here count. Without a database every row queries all the others.

    Parameters
    ----------
    query_codes, database_codes : (n, n_bits) signs, or (n,) integers, which need ``n_bits``
    query_labels, database_labels : class labels of any type, (n,), or indicator matrices, (n, n_classes)
    n_bits : code length of packed codes
    convention : a name from :data:`shorthash.evaluation.CONVENTIONS`, or a :class:`Convention` of your own
    ties : "expected" (exact mean over all orders of tied items), "best", "worst" or "stable" (database order);
        default: as the convention says
    radius : Hamming radius of the ball, inclusive
    k : list length or lengths; default: as the convention says. Beyond the database, the whole of it
    without_relevant : "drop" or "zero", for queries without any relevant item; default: as the convention says
    gain : what an item is worth to nDCG: "shared" labels, "exponential" (2**shared - 1) or "binary"
    engine : "auto", "table" or "count": how items are counted, see :mod:`shorthash.codes.levels`; all agree

    Returns
    -------
    Scores

    Examples
    --------
    >>> queries, database = [[1, 1, 1]], [[1, 1, 1], [1, 1, -1], [1, -1, 1], [-1, -1, -1]]
    >>> scores = evaluate(queries, ["cat"], database, ["cat", "dog", "cat", "dog"], k=2)
    >>> scores.map, scores.map_worst, scores.map_best  # one of two tied items is the second cat
    (0.9166666666666666, 0.8333333333333333, 1.0)
    >>> scores.precision_at_k[2]
    0.75
    >>> print(scores)
    1 queries against 4 items, 3 bits (convention shorthash, ties expected)
      mAP              0.9167   from 0.8333 to 1.0000 by tie order
      mAP@H<=2         0.9167
      precision@H<=2   0.6667
      recall@H<=2      1.0000   empty balls 0.0 %
      k                2
      precision@k      0.7500
      recall@k         0.7500
      mAP@k            0.7500
      nDCG@k           0.8066
    """
    rules = convention_rules(convention, ties=ties, without_relevant=without_relevant, k=k)
    problem = prepare(query_codes, query_labels, database_codes, database_labels, n_bits, rules, radius, gain)
    columns, lost, sums = measure_all(count_by_codes(problem, engine), rules, problem.gains, problem.queries.copies)
    rows = problem.queries.rows
    return scores_of(
        {name: columns.pop(name)[rows] for name in list(columns)},  # never both in memory
        sums,
        rules,
        n_database=len(problem.items) - problem.alone,
        n_bits=problem.n_bits,
        n_without_relevant=int(lost[rows].sum()),
        radius=problem.radius,
    )


def evaluate_distances(
    distances: ArrayLike,
    query_labels: ArrayLike,
    database_labels: ArrayLike,
    *,
    convention: str | Convention = "shorthash",
    ties: str | None = None,
    radius: float | None = None,
    k: int | Sequence[int] | None = None,
    without_relevant: str | None = None,
    gain: str = "shared",
) -> Scores:
    """Score a ranking by real-valued distances, such as one re-ranked by features.

    Parameters
    ----------
    distances : (n_queries, n_database), smaller is nearer; equal values are ties. Negate similarities
    query_labels, database_labels, convention, ties, k, without_relevant, gain : as in :func:`evaluate`
    radius : items at most this far form the ball; without it the scores by radius are nan

    Examples
    --------
    >>> evaluate_distances([[0.1, 0.4, 0.4]], ["cat"], ["cat", "dog", "cat"], k=1).map
    0.9166666666666666
    """
    rules = convention_rules(convention, ties=ties, without_relevant=without_relevant, k=k, owner="evaluate_distances")
    blocks, gains, shape = count_by_distances(distances, query_labels, database_labels, rules, radius, gain)
    columns, lost, _ = measure_all(blocks, rules, gains, np.ones(shape[0], dtype=np.int64))
    return scores_of(
        columns, None, rules, n_database=shape[1], n_bits=0, n_without_relevant=int(lost.sum()), radius=radius
    )


def scores_of(columns: dict[str, Floats], sums: RadiusSums | None, rules: Convention, **sizes: Any) -> Scores:
    """Means of the columns, and the columns themselves, read-only."""
    for values in columns.values():
        values.setflags(write=False)
    means: dict[str, Any] = {name: _mean(columns[name]) for name in BY_QUERY}
    for name in BY_K:
        means[name] = {k: _mean(columns[name][:, i]) for i, k in enumerate(rules.k)}
    return Scores(
        **means,
        pr_curve=None if sums is None else pr_curve(sums),
        per_query=columns,
        n_queries=len(columns["map"]),
        rules=rules,
        **sizes,
    )


def _mean(values: Floats) -> float:
    """Mean of the values that are not nan; nan if there are none."""
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if len(kept) else float("nan")
