"""Scores of codes (``evaluate``) and of fitted hashers (``evaluate_hasher``)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._arrays import Codes, Counts, Floats
from shorthash._display import SMALL, axes_in_style, html_table, line_style
from shorthash._labels import group_labels
from shorthash._progress import reporting
from shorthash._validation import check_choice, check_count, require_extra, steps_of
from shorthash.codes.levels import distinct_queries, leave_one_out_map
from shorthash.codes.signs import as_codes, as_packed, code_length
from shorthash.errors import InvalidInput
from shorthash.evaluation.metrics import (
    Convention,
    PRCurve,
    RadiusSums,
    Ranking,
    average_precision,
    convention_rules,
    gains_by_grade,
    ideal_ranking,
    ndcg,
    pr_curve,
    precision,
    rank_by_levels,
    rank_items,
    recall,
)
from shorthash.evaluation.relevance import (
    CodedItems,
    CountedQueries,
    as_judgements,
    count_by_codes,
    count_by_judgements,
    gains_of,
    label_groups,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

BY_RADIUS = ("map_at_radius", "precision_at_radius", "recall_at_radius", "empty_balls")
BY_QUERY = ("map", "map_worst", "map_best", *BY_RADIUS)
NAMED_RADII = 3  # points of a precision-recall curve that are named
BY_K = ("precision_at_k", "recall_at_k", "map_at_k", "ndcg_at_k")


@dataclass(frozen=True)
class Scores:
    """Retrieval scores of codes or distances.

    Every number is a mean over the queries; ``per_query`` holds the values it is the mean of, with nan where a rule
    ignores a query.

    Attributes
    ----------
    map : mean average precision of the whole ranking, under the tie policy
    map_worst, map_best : the same with every tie in the worst, or best, order: bounds for any order of the database
    map_at_radius, precision_at_radius, recall_at_radius : of the items within ``radius``
    empty_balls : share of queries without any item within ``radius``
    precision_at_k, recall_at_k, map_at_k, ndcg_at_k : by list length
    pr_curve : precision and recall at every radius; None for real-valued distances
    per_query : arrays of shape (n_queries,), or (n_queries, n_k) for the scores by k
    n_queries, n_database, n_bits : sizes; n_bits is 0 for real-valued distances
    n_without_relevant : queries for which the database has no relevant item
    radius : the radius; None if there is none
    rules : the convention, with the explicit arguments in place
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
        """``to_dict`` as JSON, with null for nan; also written to ``path``, if given."""
        row = {name: None if value != value else value for name, value in self.to_dict().items()}
        text = json.dumps(row, indent=2, allow_nan=False) + "\n"
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_frame(self, *, per_query: bool = False) -> pd.DataFrame:
        """``to_dict`` as a data frame of one row, or one row per query."""
        pandas = require_extra("pandas", "tables", "Scores.to_frame")
        if not per_query:
            return cast("pd.DataFrame", pandas.DataFrame([self.to_dict()]))
        columns = {name: self.per_query[name] for name in BY_QUERY}
        for name in BY_K:
            columns |= {f"{name[:-1]}{k}": self.per_query[name][:, i] for i, k in enumerate(self.rules.k)}
        return cast("pd.DataFrame", pandas.DataFrame(columns))

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw precision against recall by radius; for several Scores, :func:`plot_precision_recall`."""
        return plot_precision_recall(self, ax=ax)

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        head, *lines = str(self).splitlines()
        rows = [line.split(maxsplit=1) for line in lines if not line.strip()[0].isdigit()]
        return html_table(("score", "value"), rows, head)

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
            treatment = "left out" if self.rules.without_relevant == "drop" else "scored 0"
            lines.append(f"  {self.n_without_relevant} queries without relevant items, {treatment}")
        return "\n".join(lines)


def plot_precision_recall(scores: Scores | PRCurve | Mapping[str, Scores | PRCurve], *, ax: Axes | None = None) -> Axes:
    """Draw precision against recall, one point per Hamming radius.

    Parameters
    ----------
    scores : Scores of codes, or several by name
    ax : axes to draw on; by default those of a new figure

    Returns
    -------
    Axes
        The axes that were drawn on.

    Examples
    --------
    >>> from shorthash import evaluate
    >>> from shorthash.evaluation import plot_precision_recall
    >>> codes = [[1, 1], [1, -1], [-1, -1], [-1, -1]]
    >>> ax = plot_precision_recall({"two bits": evaluate(codes, [0, 0, 1, 1])})
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('recall', 'precision')
    """
    given = scores if isinstance(scores, Mapping) else {"": scores}
    curves = {name: each if isinstance(each, PRCurve) else each.pr_curve for name, each in given.items()}
    drawn = {name: curve for name, curve in curves.items() if curve is not None}
    if not drawn or len(drawn) < len(curves):
        raise InvalidInput("plot_precision_recall needs scores of codes: real-valued distances have no radius.")
    with axes_in_style(ax) as axes:
        for number, (name, curve) in enumerate(drawn.items()):
            axes.plot(curve.recall, curve.precision, **line_style(number), label=name)
        lowest = min(float(curve.recall[0]) for curve in drawn.values())
        left = max(0.0, 1 - 1.5 * (1 - lowest)) if lowest > 0.5 else 0.0  # zoom in if recall starts high
        margin = 0.04 * (1 - left)
        axes.set_xlim(left - margin, 1 + margin)
        axes.set_ylim(0, 1.12)
        axes.set_xlabel("recall")
        axes.set_ylabel("precision")
        _name_radii(axes, max(drawn.values(), key=lambda curve: len(curve.radius)), 1 - left)
        if any(drawn):
            axes.legend(loc="lower left")
    return axes


def _name_radii(axes: Axes, curve: PRCurve, width: float) -> None:
    """Label the first radii; points that are close share one label."""
    named: list[tuple[float, float, list[str]]] = []
    for radius, x, y in zip(curve.radius[:NAMED_RADII], curve.recall, curve.precision, strict=False):
        if named and abs(x - named[-1][0]) < 0.05 * width and abs(y - named[-1][1]) < 0.05:
            named[-1][2].append(str(radius))
        else:
            named.append((float(x), float(y), [str(radius)]))
    for x, y, radii in named:
        text = f"radius {', '.join(radii)}"
        axes.annotate(text, (x, y), (0, 7), textcoords="offset points", ha="center", **SMALL)


def evaluate(
    query_codes: ArrayLike,
    query_labels: ArrayLike | None = None,
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
    relevance: Any = None,
) -> Scores:
    """Score codes exactly, ties included.

    Queries and database may be coded differently (asymmetric evaluation: learned codes for the database, the hash
    function for the queries); only the codes given here count. Without a database every row queries all the others.

    Parameters
    ----------
    query_codes, database_codes : (n, n_bits) signs, or (n,) integers, which need ``n_bits``
    query_labels, database_labels : class labels of any type, (n,), sets of labels, or indicator matrices,
        (n, n_classes); items that share a label with the query are relevant
    n_bits : code length of packed codes
    convention : a name from :data:`shorthash.evaluation.CONVENTIONS`, or a :class:`Convention` of your own
    ties : "expected" (exact mean over all orders of tied items), "best", "worst" or "stable" (database order);
        default: that of the convention
    radius : Hamming radius of the ball, inclusive
    k : list length or lengths; default: that of the convention. If larger than the database, all of it
    without_relevant : "drop" or "zero", for queries without any relevant item; default: that of the convention
    gain : what an item is worth to nDCG: "shared" labels, "exponential" (2**shared - 1) or "binary"
    engine : "auto", "table" or "count": how items are counted, see :mod:`shorthash.codes.levels`; all agree
    relevance : judgements in place of labels: a dense or sparse matrix, (n_queries, n_items), of 0 (not relevant) and
        grades 1, 2, ..., which count for nDCG as shared labels do; :func:`read_qrels` reads files of TREC

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
    if relevance is not None and (query_labels is not None or database_labels is not None):
        raise InvalidInput("evaluate takes labels or relevance=..., not both; leave the labels out (None).")
    if relevance is None and (database_codes is None) != (database_labels is None):
        raise InvalidInput(
            "evaluate needs database codes and database labels together, or neither; without a database every row "
            "is a query against all other rows."
        )
    alone = database_codes is None
    n_bits = _common_length(query_codes, database_codes, n_bits)
    codes = as_packed(query_codes, n_bits)
    database = codes if database_codes is None else as_packed(database_codes, n_bits)
    radius = min(check_count(radius, "radius", "evaluate", low=0), n_bits)
    sizes: dict[str, Any] = {"n_database": len(database) - alone, "n_bits": n_bits, "radius": radius}
    if relevance is not None:
        R = as_judgements(relevance, (len(codes), len(database)), alone=alone)
        gains = gains_by_grade(gain, max(1, int(R.data.max(initial=0))))
        counted = count_by_judgements(codes, database, R, radius, len(gains), n_bits, alone=alone)
        return score_queries(counted, rules, gains, np.ones(len(codes), dtype=np.int64), **sizes)
    labels: Any = query_labels if database_labels is None else database_labels
    groups, item_groups = label_groups(query_labels, len(codes), labels, len(database), rules, "evaluate")
    queries = distinct_queries(codes, groups, each_row=alone and rules.ties == "stable")
    items = CodedItems(database, item_groups, n_bits)
    gains = gains_of(gain, item_groups)
    blocks = count_by_codes(queries, items, radius=radius, n_grades=len(gains), alone=alone, engine=engine)
    return score_queries(blocks, rules, gains, queries.copies, queries.rows, **sizes)


class Encoder(Protocol):
    """Anything that turns rows into codes."""

    def transform(self, X: ArrayLike) -> Codes:
        """Codes, (n_samples, n_bits), of signs."""


def map_scorer(estimator: Encoder, X: ArrayLike, y: ArrayLike) -> float:
    """Tie-aware mAP where every row of ``X`` is a query: a scorer for ``GridSearchCV(scoring=...)``.

    Parameters
    ----------
    estimator : a fitted hasher
    X : (n, n_features) rows
    y : labels of the rows

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
    **options : passed on to :func:`evaluate`

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
    check_choice(database_codes, "database_codes", "evaluate_hasher", ["encoded", "learned"])
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
    """The codes that were learned for the training rows; the hash function may encode the same rows differently.

    Parameters
    ----------
    hasher : a fitted hasher, or a pipeline that ends in one

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shorthash import RSLH
    >>> X, y = load_iris(return_X_y=True)
    >>> learned_codes(RSLH(n_bits=4, random_state=0).fit(X, y)).shape
    (150, 4)
    """
    learner = steps_of(hasher)[-1]
    if not hasattr(learner, "codes_"):
        raise InvalidInput(
            f"{type(learner).__name__} has no learned codes of its training rows; fit it first, or encode the database "
            "with its hash function."
        )
    return as_codes(learner.codes_)


def score_queries(
    blocks: Iterable[CountedQueries],
    rules: Convention,
    gains: Floats,
    copies: Counts,
    rows: NDArray[np.intp] | None = None,
    **sizes: Any,
) -> Scores:
    """Scores from level counts, block by block.

    Parameters
    ----------
    blocks : level counts of all queries
    rules : the convention
    gains : (n_grades,) gain of every grade
    copies : (m,) number of given queries that are equal to each counted query
    rows : (n,) for every given query, which of the counted ones it is; None if they are the same
    **sizes : ``n_database``, ``n_bits`` and ``radius``
    """
    m = len(copies)
    columns = {name: np.zeros(m) for name in BY_QUERY} | {name: np.zeros((m, len(rules.k))) for name in BY_K}
    without = np.zeros(m, dtype=bool)  # queries for which the database has no relevant item
    sums: RadiusSums | None = None
    for block in _reported(blocks, m):
        without[block.rows] = missing = block.graded.sum(axis=(0, 2)) == 0
        for name, values in _measure(block, rules, gains).items():
            if rules.without_relevant == "drop":
                values[missing] = np.nan
            elif block.ball is not None or name not in BY_RADIUS:
                values[missing] = np.nan_to_num(values[missing])
            columns[name][block.rows] = values
        if block.by_radius:
            dropped = missing & (rules.without_relevant == "drop")
            some = RadiusSums.of(block.total, block.graded.sum(axis=0), np.where(dropped, 0, copies[block.rows]))
            sums = some if sums is None else sums.plus(some)
    if rows is not None:
        columns = {name: columns.pop(name)[rows] for name in list(columns)}  # never both in memory
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
        n_without_relevant=int(without[slice(None) if rows is None else rows].sum()),
        rules=rules,
        **sizes,
    )


def _reported(blocks: Iterable[CountedQueries], n_queries: int) -> Iterator[CountedQueries]:
    """The blocks, and progress where that is switched on."""
    done = 0
    with reporting() as step:
        step("scoring", 0, n_queries)
        for block in blocks:
            yield block
            done += len(block.total)
            step("scoring", done, n_queries)


def _measure(block: CountedQueries, rules: Convention, gains: Floats) -> dict[str, Floats]:
    """Every score of a block; the caller handles queries without relevant items."""
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


def _common_length(codes: ArrayLike, others: ArrayLike | None, n_bits: int | None) -> int:
    """The common code length of signs, or the one given for packed codes."""
    lengths = [np.shape(a)[1] for a in (codes, others) if a is not None and np.ndim(a) == 2]
    if len(lengths) == 2 and lengths[0] != lengths[1]:
        raise InvalidInput(
            f"Query codes and database codes must have the same length, but one has {lengths[0]} bits and the other "
            f"{lengths[1]}; encode both with the same hasher."
        )
    return code_length(codes, n_bits if n_bits is not None or not lengths else lengths[0], "evaluate")


def _mean(values: Floats) -> float:
    """Mean of the values that are not nan; nan if there are none."""
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if len(kept) else float("nan")
