"""Looking up named cells in a database: the cells of every query, in order, until enough is expected to be found."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shorthash.errors import InvalidInput
from shorthash.index.items import Vectors, score_codes, score_vectors
from shorthash.index.results import LookupResult, Probes
from shorthash.store.items import Row, StoreWhere, as_ids_array, from_signed, read_posteriors
from shorthash.store.sql import Clause, Session, all_of


def look_up(
    session: Session,
    probes: Probes,
    where: StoreWhere | None,
    vectors: Vectors | None,
    metric: str,
    *,
    posteriors: bool,
) -> LookupResult:
    """The items of some cells, in one session; what ``HammingIndex.lookup`` returns."""
    conditions, scores = session.conditions(where), None
    if posteriors and not session.has_posteriors():
        raise InvalidInput(f"No item of this {session.owner} has a posterior; add them with posteriors=...")
    if vectors is None:
        found = cell_rows(session, probes, conditions, (session.version.posterior if posteriors else "NULL", []))
    else:
        found, scores = _scored_rows(session, probes, conditions, vectors.astype(np.float32), metric)
    n_cells = np.zeros(len(probes), dtype=np.int64)
    for row in found:
        n_cells[row[0]] = row[1] + 1
    hits = [i for i, row in enumerate(found) if row[2] is not None]
    rows = [found[i] for i in hits]
    counts = np.bincount(np.array([row[0] for row in rows], dtype=np.int64), minlength=len(probes))
    return LookupResult(
        as_ids_array([row[2] for row in rows], "i" if rows else session.collection.id_kind),
        np.array([row[1] for row in rows], dtype=np.int64),
        np.append(0, np.cumsum(counts)).astype(np.int64),
        n_cells,
        None if scores is None else scores[hits],
        read_posteriors([row[3] for row in rows]) if posteriors else None,
    )


def cell_rows(session: Session, probes: Probes, conditions: list[Clause], column: Clause) -> list[Row]:
    """(query_no, probe_no, id, ``column``) of the items of the cells that are looked up, in that order.

    One statement: the database counts the items of the cells and stops by itself. A cell without items is a row
    without id.
    """
    name, code, rows = session.name, session.version.column, session.probe_rows(probes)
    condition, values = all_of(conditions)
    also = f" AND {condition}" if condition else ""
    steps, given = [f"probe(query_no, probe_no, cell, share) AS ({rows[0]})"], [*rows[1]]
    source, stop = "probe", ""
    if np.isfinite(probes.enough):
        n = f"SELECT count(*) FROM {name} WHERE {code} = cell{also}"
        before = "OVER (PARTITION BY query_no ORDER BY probe_no ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        steps += [
            f"sized AS (SELECT query_no, probe_no, cell, share * ({n}) AS expected FROM probe)",
            f"looked AS (SELECT query_no, probe_no, cell, coalesce(sum(expected) {before}, 0) AS found FROM sized)",
        ]
        source, stop, given = "looked", " WHERE found < ?", [*given, *values]
    return session.run(
        f"WITH {', '.join(steps)} SELECT query_no, probe_no, id, {column[0]} FROM {source}"
        f" LEFT JOIN {name} ON {code} = cell{also}{stop} ORDER BY query_no, probe_no, id",
        [*given, *column[1], *values, *([probes.enough] if stop else [])],
    )


def _scored_rows(
    session: Session, probes: Probes, conditions: list[Clause], vectors: NDArray[np.float32], metric: str
) -> tuple[list[Row], NDArray[np.float32]]:
    """Rows of the items of some cells, and scores of their vectors, computed by the database where it can."""
    found: list[Row] = []
    scores = [np.empty(0, dtype=np.float32)]
    for query, vector in enumerate(vectors):
        part = slice(probes.offsets[query], probes.offsets[query + 1])
        one = Probes(probes.cells[part], probes.shares[part], np.array([0, part.stop - part.start]), probes.enough)
        computed = session.score_column(vector, metric)
        rows = cell_rows(session, one, conditions, computed or (session.vector_column, []))
        found += [(query, *row[1:]) for row in rows]
        if computed is None:
            scores.append(scores_of(session, [row[1:] for row in rows], vector, metric))
        else:  # pgvector has no cosine of a vector of zeros
            given = np.array([-np.inf if row[3] is None else row[3] for row in rows], dtype=np.float32)
            scores.append(np.where(np.isnan(given), np.float32(0), given))
    return found, np.concatenate(scores)


def scores_of(session: Session, rows: list[Row], vector: Vectors, metric: str) -> NDArray[np.float32]:
    """Scores of items, (id or more, code, vector column); -infinity for those without a vector."""
    if metric == "asymmetric":
        n_bits = session.version.n_bits
        return score_codes(from_signed([row[1] for row in rows], n_bits), vector, n_bits)
    vectors = session.read_vectors([row[2] for row in rows])
    scores = np.full(len(rows), -np.inf, dtype=np.float32)
    known = np.flatnonzero(~np.isnan(vectors[:, 0])) if vectors.size else np.empty(0, dtype=np.int64)
    scores[known] = score_vectors(lambda positions: vectors[positions], known, vector.astype(np.float32), metric)
    return scores
