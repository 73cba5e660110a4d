"""What is relevant to queries, by labels or judgements, counted at every distance: level counts, block by block.

An item is relevant to a query if they share a label; class labels are the case of one label each. The number of shared
labels is the *grade* of an item, which only nDCG uses. Judgements can take the place of labels: which items are
relevant to which query, and how much.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from shorthash._arrays import Counts, Floats, PackedCodes
from shorthash._labels import LabelGroups, group_label_pair, label_rows
from shorthash._validation import check_choice
from shorthash.codes.levels import ENGINES, Queries, grades_of, level_blocks, level_counts
from shorthash.errors import DataFileError, InvalidInput, ShorthashWarning, TieOrderWarning
from shorthash.evaluation.metrics import Convention, gains_by_grade, list_by_distance

CHANCE_LIMIT = 6.0  # standard deviations: one random order in a billion has as many equal neighbours
BLOCK_QUERIES = 4096  # queries whose level counts are held at once
MOST_GRADES = 100  # of judgements; larger values are scores, not grades

Judgements = sparse.csr_array
"""Grades, (n_queries, n_items); only those of relevant items are stored."""


@dataclass(frozen=True)
class CountedQueries:
    """Some queries with their level counts.

    Attributes
    ----------
    rows : which queries
    total : (m, n_levels) items at every distance, nearest first
    graded : (n_grades, m, n_levels) those that share 1, 2, ... labels with the query
    ball : (m,) items within the radius; None if there is no radius
    by_radius : whether level t holds the items at distance t exactly, so that radii can be summed over queries
    listed : function of i: the grades of all items for the i-th of these queries, nearest first, ties in database order
    """

    rows: slice
    total: Counts
    graded: Counts
    ball: Counts | None
    by_radius: bool
    listed: Callable[[int], NDArray[np.integer[Any]]]


@dataclass(frozen=True)
class CodedItems:
    """The database of a ranking by Hamming distance.

    Attributes
    ----------
    codes : (n,) packed codes
    groups : their label groups
    n_bits : code length
    weights : (n,) number of items of each entry; None for one
    """

    codes: PackedCodes
    groups: LabelGroups
    n_bits: int
    weights: Counts | None = None

    def __len__(self) -> int:
        return len(self.codes) if self.weights is None else int(self.weights.sum())


def label_groups(
    query_labels: ArrayLike | None,
    n_queries: int,
    database_labels: ArrayLike | None,
    n_items: int,
    rules: Convention,
    owner: str,
    *,
    what: tuple[str, str] = ("codes", "codes"),
) -> tuple[LabelGroups, LabelGroups]:
    """Label groups of queries and database, checked; warns if ties in database order would leak the labels."""
    sides = (("query", n_queries, query_labels, what[0]), ("database", n_items, database_labels, what[1]))
    for side, n, labels, kind in sides:
        if n == 0:
            raise InvalidInput(f"The {side} must have at least one row. Got 0 {kind}; encode some rows first.")
        rows = label_rows(labels)
        if rows.ndim == 0 or len(rows) != n:
            found = "none" if rows.ndim == 0 else str(len(rows))
            raise InvalidInput(
                f"The {side} must have one label (or one indicator row) for each of its {n} {kind}. Got {found} "
                "instead."
            )
    alone = database_labels is query_labels
    other_labels = label_rows(query_labels)[:0] if alone else database_labels
    groups, item_groups = group_label_pair(label_rows(query_labels), label_rows(other_labels), owner=owner)
    item_groups = groups if alone else item_groups
    if rules.ties == "stable" and order_follows_labels(item_groups.ids):
        warnings.warn(
            "ties='stable' breaks ties by database order, and this database is ordered by its labels, so scores "
            "measure the order too; shuffle the database, or use ties='expected'.",
            TieOrderWarning,
            stacklevel=3,
        )
    return groups, item_groups


def gains_of(gain: str, groups: LabelGroups) -> Floats:
    """The gain of every grade; a single grade if the number of shared labels does not matter."""
    graded = gain != "binary" and not groups.single
    return gains_by_grade(gain, int(groups.rows.sum(axis=1).max(initial=1)) if graded else 1)


def count_by_codes(
    queries: Queries, items: CodedItems, *, radius: int, n_grades: int, alone: bool = False, engine: str = "auto"
) -> Iterator[CountedQueries]:
    """Level counts by Hamming distance, in blocks of queries.

    Parameters
    ----------
    queries, items : the two sides, with label groups made together
    radius : radius of the ball
    n_grades : number of grades to distinguish
    alone : whether the queries are the database, each without itself
    engine : as in :func:`shorthash.codes.levels.level_blocks`
    """
    check_choice(engine, "engine", "evaluate", ENGINES)
    words = items.codes.astype(np.uint64)
    own_grade = np.minimum(items.groups.rows.sum(axis=1, dtype=np.int64), n_grades)  # what a query shares with itself
    sides = queries.codes, queries.groups, items.codes, items.groups, items.n_bits
    for block in level_blocks(*sides, weights=items.weights, n_grades=n_grades, engine=engine):
        ids, low = queries.groups.ids[block.rows], block.rows.start
        if alone:
            block.total[:, 0] -= 1
            labelled = np.flatnonzero(own_grade[ids])
            block.graded[own_grade[ids][labelled] - 1, labelled, 0] -= 1

        def listed(i: int, ids: NDArray[np.intp] = ids, low: int = low) -> NDArray[np.int64]:
            grades = grades_of(int(ids[i]), items.groups, n_grades)[items.groups.ids].astype(np.int64)
            query = np.uint64(queries.codes[low + i])
            return np.asarray(list_by_distance(query, words, grades, items.n_bits, queries.own[low + i]))

        ball = block.total[:, : radius + 1].sum(axis=1)
        yield CountedQueries(block.rows, block.total, block.graded, ball, True, listed)


def count_by_distances(
    distances: Iterable[NDArray[Any]],
    query_ids: NDArray[np.intp],
    items: LabelGroups,
    n_grades: int,
    radius: float | None = None,
    *,
    cells: NDArray[np.intp] | None = None,
    weights: Counts | None = None,
) -> Iterator[CountedQueries]:
    """Level counts by real-valued distance, one query at a time: a level per different distance.

    Parameters
    ----------
    distances : for every query, the distances of all items, or of all cells
    query_ids : the label group of every query
    items : label groups of the items
    n_grades : number of grades to distinguish
    radius : radius of the ball; None for none
    cells : the cell of every item; None if every item has its own distance
    weights : number of items of each entry; None for one
    """
    for i, row in enumerate(distances):
        order = np.argsort(row, kind="stable")
        near = row[order]
        level = np.empty(len(row), dtype=np.int64)
        level[order] = np.concatenate([[0], np.cumsum(near[1:] != near[:-1])])
        n_levels = int(level.max()) + 1
        grades = grades_of(int(query_ids[i]), items, n_grades)[items.ids].astype(np.int64)
        keys = grades * n_levels + (level if cells is None else level[cells])
        table = np.bincount(keys, weights, minlength=(n_grades + 1) * n_levels).astype(np.int64)
        table = table.reshape(n_grades + 1, 1, n_levels)
        ball = None if radius is None else np.array([np.count_nonzero(row <= radius)])

        def listed(_: int, grades: NDArray[np.int64] = grades[order] if cells is None else grades) -> NDArray[np.int64]:
            return grades

        yield CountedQueries(slice(i, i + 1), table.sum(axis=0), table[1:], ball, False, listed)


def order_follows_labels(ids: NDArray[Any]) -> bool:
    """Whether neighbours in the database have the same labels far more often than by chance.

    Examples
    --------
    >>> order_follows_labels(np.repeat([0, 1], 50)), order_follows_labels(np.random.default_rng(0).integers(0, 2, 100))
    (True, False)
    """
    n = len(ids)
    if n < 3:
        return False
    share = np.bincount(ids) / n
    chance = float(share @ share)
    spread = np.sqrt(max(1.0, (n - 1) * chance * (1.0 - chance)))
    same = int(np.count_nonzero(ids[1:] == ids[:-1]))
    return bool(same - (n - 1) * chance > CHANCE_LIMIT * spread)


# judgements -----------------------------------------------------------------------------------------------------------


def as_judgements(relevance: Any, shape: tuple[int, int], *, alone: bool = False) -> Judgements:
    """A matrix of grades, checked: integers, of which those above 0 are kept.

    Parameters
    ----------
    relevance : (n_queries, n_items), dense or sparse; 0 and less: not relevant
    shape : what its shape must be
    alone : whether the items are the queries; an item is then not relevant to itself

    Examples
    --------
    >>> as_judgements([[2, 0, -1], [0, 1, 1]], (2, 3)).toarray().tolist()
    [[2, 0, 0], [0, 1, 1]]
    """
    given: Any = relevance if sparse.issparse(relevance) else np.asarray(relevance)
    R: Any = sparse.csr_array(given)
    if R.shape != shape:
        raise InvalidInput(f"The 'relevance' of evaluate must have shape {shape}, a row per query. Got {R.shape}.")
    R.sum_duplicates()
    grades = np.asarray(R.data)
    if grades.dtype.kind not in "biuf" or not np.all(np.isfinite(grades)) or np.any(grades != np.round(grades)):
        raise InvalidInput("The 'relevance' of evaluate must hold whole numbers: 0, or the grade of a relevant item.")
    if grades.max(initial=0) > MOST_GRADES:
        raise InvalidInput(
            f"The 'relevance' of evaluate may have grades up to {MOST_GRADES}. Got {grades.max():g} instead; bin "
            "scores into grades first."
        )
    R = R.astype(np.int64)
    R.data = np.maximum(R.data, 0)
    if alone:
        R.setdiag(0)
    R.eliminate_zeros()
    return R  # type: ignore[no-any-return]


def read_qrels(path: str | Path, query_ids: Sequence[Any], item_ids: Sequence[Any]) -> Judgements:
    r"""Judgements of a file in the format of TREC: lines of ``query 0 item grade``.

    Parameters
    ----------
    path : the file
    query_ids, item_ids : ids of the queries and of the database, in their order; compared as text

    Returns
    -------
    sparse.csr_array
        (n_queries, n_items) grades. Lines about other queries are left out, and so are lines about other items, with a
        warning.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "judged.qrels"
    >>> _ = file.write_text("q1 0 a 2\nq1 0 b 0\nq2 0 b 1\n")
    >>> read_qrels(file, ["q1", "q2"], ["a", "b"]).toarray().tolist()
    [[2, 0], [0, 1]]
    """
    rows = {str(name): i for i, name in enumerate(query_ids)}
    columns = {str(name): j for j, name in enumerate(item_ids)}
    found: list[tuple[int, int, int]] = []
    n_lines = n_queries = n_unknown = 0
    for number, query, item, grade in _lines(Path(path)):
        n_lines = number
        if query not in rows:
            continue
        n_queries += 1
        if item in columns:
            found.append((rows[query], columns[item], grade))
        else:
            n_unknown += grade > 0
    if not n_queries:
        raise DataFileError(
            f"None of the {n_lines} lines of {path} is about a query of the {len(rows)} given, such as "
            f"{next(iter(rows), '')!r}; give the ids that the file uses."
        )
    if n_unknown:
        warnings.warn(
            f"{n_unknown} relevant items of {path} are not in the database, and are left out: recall counts only items "
            "that can be found.",
            ShorthashWarning,
            stacklevel=2,
        )
    i, j, grades = np.array(found, dtype=np.int64).reshape(-1, 3).T
    matrix = sparse.coo_array((grades, (i, j)), shape=(len(rows), len(columns)))
    return as_judgements(matrix, (len(rows), len(columns)))


def _lines(path: Path) -> Iterator[tuple[int, str, str, int]]:
    """Number, query, item and grade of every line."""
    if not path.is_file():
        raise DataFileError(f"There is no file {path}; check the path.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataFileError(f"{path} is not a text file in UTF-8; write lines of QUERY 0 ITEM GRADE.") from error
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        try:
            query, _, item, grade = words
            yield number, query, item, int(grade)
        except ValueError as error:
            raise DataFileError(
                f"{path}, line {number} must be of the form QUERY 0 ITEM GRADE with a whole number as grade. Got "
                f"{line[:80]!r} instead."
            ) from error


def count_by_judgements(
    codes: PackedCodes, items: PackedCodes, R: Judgements, radius: int, n_grades: int, n_bits: int, *, alone: bool
) -> Iterator[CountedQueries]:
    """Level counts by Hamming distance where judgements say what is relevant, in blocks of queries.

    Parameters
    ----------
    codes, items : packed codes of queries and database
    R : the judgements
    radius : radius of the ball
    n_grades : the highest grade
    n_bits : code length
    alone : whether the queries are the database, each without itself
    """
    words, item_words = codes.astype(np.uint64), items.astype(np.uint64)
    for low in range(0, len(codes), BLOCK_QUERIES):
        block = slice(low, min(low + BLOCK_QUERIES, len(codes)))
        m = block.stop - block.start
        distinct, inverse = np.unique(codes[block], return_inverse=True)
        total = level_counts(distinct, items, n_bits)[inverse.reshape(-1)]
        if alone:
            total[:, 0] -= 1
        entries: Any = R[block].tocoo()
        distances = np.bitwise_count(words[block][entries.row] ^ item_words[entries.col]).astype(np.int64)
        keys = ((np.minimum(entries.data, n_grades) - 1) * m + entries.row) * (n_bits + 1) + distances
        graded = np.bincount(keys, minlength=n_grades * m * (n_bits + 1)).reshape(n_grades, m, n_bits + 1)

        def listed(i: int, low: int = low) -> NDArray[np.int64]:
            grades = np.zeros(len(items), dtype=np.int64)
            row: Any = R[[low + i]].tocoo()
            grades[row.col] = np.minimum(row.data, n_grades)
            own = np.intp(low + i if alone else -1)
            return np.asarray(list_by_distance(words[low + i], item_words, grades, n_bits, own))

        ball: Counts = total[:, : radius + 1].sum(axis=1)
        yield CountedQueries(block, total, graded, ball, True, listed)
