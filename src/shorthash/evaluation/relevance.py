"""Judgements of one's own in place of labels: which items are relevant to which query, and how much."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from shorthash._types import Counts, PackedCodes
from shorthash.codes.levels import level_counts
from shorthash.errors import DataFileError, InvalidInput, ShorthashWarning
from shorthash.evaluation.counting import CountedQueries
from shorthash.evaluation.metrics import list_by_distance

BLOCK_QUERIES = 4096  # queries whose level counts are held at once
MOST_GRADES = 100  # of judgements; a score between 0 and 1000 is no grade

Judgements = sparse.csr_array
"""Grades, (n_queries, n_items); only those of relevant items are stored."""


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
        raise InvalidInput(
            f"The 'relevance' of evaluate must have a row per query and a column per item, {shape}. Got shape "
            f"{R.shape} instead."
        )
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


def check_labels_or_judgements(labels: Sequence[ArrayLike | None], relevance: Any) -> None:
    """Raise unless relevance comes from labels or from judgements."""
    if relevance is not None and any(given is not None for given in labels):
        raise InvalidInput("evaluate takes labels or relevance=..., not both; leave the labels out (None).")
