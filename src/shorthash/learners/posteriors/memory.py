r"""Rows that are remembered: where a training row is searched again its labels are known, and no model need guess them.

A training row is recognised by its sketch: a few random projections, all of which must be within a tolerance of those
of a row that was learned. Such a row has the posterior

.. math:: p(s \mid x) = \frac{n_s + a\, q(s \mid x)}{\sum_t n_t + a},

where

- :math:`n_s` is the number of training rows like it with label set s,
- :math:`q` is the model, which counts as a rows: hardly any, unless equal rows contradict each other.

The number a has the least log-loss of two kinds of rows together: training rows that are searched, whose own label is
remembered, and rows held out that are like learned ones. So where few rows have equal ones, these cannot make the model
doubt the labels of all others.

All other rows have the posterior of the model. The tolerance is a thousandth of the distance that rows usually have
from each other, or what single precision can change, if that is more, up to three hundredths. In three dimensions and
more, fewer than one other row in ten thousand is as near, wherever the origin is.

Legend: X (n, d), ids (n,) label set of every row, P (m, u) posteriors, C (m, u) remembered rows by label set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize_scalar

from shorthash._arrays import Features, Floats, is_foreign, like, namespace, njit, to_numpy
from shorthash._rounding import FEW, SURE, UNIT, Rounded, Scored, shifted_product
from shorthash.data.rows import BATCH_ROWS
from shorthash.errors import InvalidInput
from shorthash.learners.posteriors.folds import Fitted, Folds, PosteriorModel, Posteriors, log, scaled, uneven_scales

MOST_REMEMBERED = 100_000  # rows; a model grows by 64 bytes for each
N_DIRECTIONS = 6  # saves have as many as were drawn when they were made
TOLERANCE, MOST_TOLERANCE = 1e-3, 0.03  # of a projection, in median distances of a row to its nearest other row
SOME_ROWS, LOOKED_AT = 500, 2000  # different rows that this median is taken of, and rows among which these are
FAR = 20  # usual deviations from the median of its column, beyond which a value is moved there for that distance
EQUAL = 1e-12  # a square of a distance below this share of the squares of both rows may be rounding
MERGED = 0.5  # of the tolerance: rows of one label set so near are one; single precision changes no more than the rest
DOUBT, MOST_DOUBT = 1e-3, 1e4  # rows that the model counts as
HELD_OUT_WEIGHT = 3  # of rows held out, against searched training rows: of a query and a searched row, one is held out
# where training rows are searched, and both are where others are
SINGLE = 2.0**-23  # relative error of a row in single precision, and of one more that is compared with it
UNKNOWN, KNOWN, UNSURE = 0, 1, 2  # what rounding allows to say of a row


@dataclass(frozen=True)
class Sketching:
    """How rows are projected.

    Attributes
    ----------
    center : (d,) what is subtracted first
    directions : (d, k) of the projections
    tolerance : largest difference between projections of rows that are the same
    """

    center: Floats
    directions: Floats
    tolerance: float

    @classmethod
    def of_rows(cls, X: Features) -> Sketching:
        """Random projections; columns in units of their own spread, where those differ much."""
        usual = _Usual.of_rows(X)
        scales = uneven_scales(usual.rows)
        directions = np.random.RandomState(0).standard_normal((X.shape[1], N_DIRECTIONS))
        if scales is not None:
            directions *= scales[:, None]
        rounding = SINGLE * float((np.abs(X).max(axis=0).astype(np.float64) @ np.abs(directions)).max())
        nearest = nearest_distance(scaled(X, scales))
        tolerance = max(TOLERANCE * nearest, min(rounding, MOST_TOLERANCE * nearest))
        return cls(usual.center, directions, tolerance)

    def check_loaded(self) -> None:
        """Raise ValueError unless what a file held can be projections."""
        d, k = self.directions.shape
        if self.center.shape != (d,) or not k or {self.center.dtype, self.directions.dtype} != {np.dtype(np.float64)}:
            raise ValueError("its arrays do not fit each other")
        if not (np.isfinite(self.center).all() and np.isfinite(self.directions).all()):
            raise ValueError("its center or directions are not finite")
        if not (isinstance(self.tolerance, float) and 0 <= self.tolerance < np.inf):
            raise ValueError("its tolerance is not a finite number")

    def sketches(self, X: Features) -> Floats:
        """Projections of rows, (n, k), added up in the order of the columns, the same on every CPU."""
        found = np.zeros((len(X), self.directions.shape[1]))
        for start in range(0, len(X), BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            columns = np.ascontiguousarray((np.asarray(X[part], dtype=np.float64) - self.center).T)
            for column, direction in zip(columns, self.directions, strict=True):
                found[part] += column[:, None] * direction
        return found


@dataclass(frozen=True)
class _Usual:
    """Where most values of every column are, whatever a minority of rows holds in the place of missing values.

    Attributes
    ----------
    rows : (m, d) different rows, values far off moved to the limits
    center : (d,) medians of the columns
    reach : (d,) how far from those the limits are
    """

    rows: Floats
    center: Floats
    reach: Floats

    @classmethod
    def of_rows(cls, X: Features) -> _Usual:
        """Limits in multiples of the median deviation that is not 0; none where a column does not vary."""
        some = X[:: -(-len(X) // LOOKED_AT)] + 0.0  # turns -0.0 into 0.0
        first = {row.tobytes(): place for place, row in reversed(list(enumerate(some)))}
        places = np.sort(list(first.values()))
        rows = some[places[:: -(-len(places) // SOME_ROWS)]].astype(np.float64)
        center = np.median(rows, axis=0)
        away = np.sort(np.abs(rows - center), axis=0)
        zeros = (away == 0).sum(axis=0)
        middle = np.minimum((zeros + len(rows)) // 2, len(rows) - 1)
        spread = np.take_along_axis(away, middle[None], axis=0)[0]
        reach = np.where(spread > 0, FAR * spread, np.inf)
        return cls(np.clip(rows, center - reach, center + reach), center, reach)

    def moved(self, X: Features) -> Floats:
        """Rows from the center, none of their values farther off than the limits."""
        return np.clip(X - self.center, -self.reach, self.reach)


def nearest_distance(X: Features) -> float:
    """Median, over some rows, of the distance to the nearest row that is not equal; 0 if all are."""
    usual = _Usual.of_rows(X)
    A = usual.moved(usual.rows)
    nearest, lengths = np.full(len(A), np.inf), np.einsum("ij,ij->i", A, A)[:, None]
    for start in range(0, len(X), BATCH_ROWS):
        B = usual.moved(X[start : start + BATCH_ROWS])
        size = lengths + np.einsum("ij,ij->i", B, B)
        squares = size - 2 * A @ B.T
        squares[squares <= EQUAL * size] = np.inf
        nearest = np.minimum(nearest, squares.min(axis=1))
    known = nearest[np.isfinite(nearest)]
    return float(np.median(np.sqrt(known))) if len(known) else 0.0


@dataclass(frozen=True)
class Memory:
    """Sketches of rows with their label sets, ascending by the first projection.

    Attributes
    ----------
    sketching : how rows are projected
    sketches : (m, k) projections
    sets : (m,) label sets
    counts : (m,) how many rows have both
    """

    sketching: Sketching
    sketches: Floats
    sets: NDArray[np.int64]
    counts: NDArray[np.int64]

    @classmethod
    def of_rows(cls, sketching: Sketching, sketches: Floats, ids: NDArray[np.intp]) -> Memory:
        """Rows by their sketches; of one label set those in the same cell of a grid are kept once."""
        width = MERGED * sketching.tolerance
        cells = np.floor(sketches / width) if width else sketches
        order = np.lexsort((*sketches.T[::-1], ids, *cells.T))
        keys, new = np.column_stack([cells, ids])[order], np.ones(len(ids), dtype=bool)
        new[1:] = (keys[1:] != keys[:-1]).any(axis=1)
        kept, counts = order[new], np.diff(np.append(np.flatnonzero(new), len(ids)))
        ascending = np.lexsort((ids[kept], *sketches[kept].T[::-1]))
        kept = kept[ascending]
        return cls(sketching, sketches[kept], ids[kept].astype(np.int64), counts[ascending].astype(np.int64))

    def recognised(self, sketches: Floats, error: Floats) -> NDArray[np.uint8]:
        """Whether rows are known, (n,); not sure where the error of their sketches, (n,), could change it."""
        state = np.empty(len(sketches), dtype=np.uint8)
        _recognise(sketches, error, self.sketches, self.sketching.tolerance, state)
        return state

    @property
    def repeats(self) -> bool:
        """Whether some of the rows are like others."""
        one_set = replace(self, sets=np.zeros_like(self.sets))
        return bool((one_set.counted(self.sketches, 1).data > 1).any())

    def counted(self, sketches: Floats, n_sets: int) -> sparse.csr_array:
        """Numbers of remembered rows by label set, (n, n_sets)."""
        starts = np.zeros(len(sketches) + 1, dtype=np.int64)
        entries = self.sketches, self.sets, self.counts, self.sketching.tolerance
        for _ in range(2):  # how many there are, and which
            found, numbers = np.empty(starts[-1], dtype=np.int64), np.zeros(starts[-1])
            _count(sketches, *entries, np.full(n_sets, -1, dtype=np.int64), starts[1:], found, numbers)
        return sparse.csr_array((numbers, found, starts), shape=(len(sketches), n_sets))

    def check_loaded(self, n_sets: int) -> None:
        """Raise ValueError unless what a file held can be rows; compiled loops do not check shapes."""
        self.sketching.check_loaded()
        m, k = len(self.sets), self.sketching.directions.shape[1]
        if [self.sketches.shape, self.sets.shape, self.counts.shape] != [(m, k), (m,), (m,)]:
            raise ValueError("its arrays do not fit each other")
        if [a.dtype for a in (self.sketches, self.sets, self.counts)] != [np.float64, np.int64, np.int64]:
            raise ValueError("its arrays are of other types")
        if not np.isfinite(self.sketches).all() or (np.diff(self.sketches[:, 0]) < 0).any():
            raise ValueError("its sketches are not in order")
        if m and not (self.sets.min() >= 0 and self.sets.max() < n_sets):
            raise ValueError("its label sets do not exist")
        if m and not self.counts.min() >= 1:
            raise ValueError("its numbers of rows are not positive")


@dataclass(frozen=True)
class Remembering(PosteriorModel):
    """A model, and rows of which more is known.

    Attributes
    ----------
    model : posteriors of all other rows
    memory : the rows
    doubt : how many rows the model counts as
    """

    model: PosteriorModel
    memory: Memory
    doubt: float

    def check_decoded(self) -> None:
        """Raise ValueError unless what a file held can be a model with memory."""
        self.memory.check_loaded(self.n_sets)
        if not (isinstance(self.doubt, float) and 0 < self.doubt < np.inf):
            raise ValueError("the number of rows that its model counts as is not positive")

    @property
    def n_sets(self) -> int:
        """Number of label sets."""
        return self.model.n_sets

    def forgotten(self) -> PosteriorModel:
        """The model without memory, where what it says out of fold is the same."""
        if self.memory.repeats:
            raise InvalidInput(
                "update_codes of EAPH cannot forget training rows that occur more than once: what the model says of "
                "them without memory is not saved; call fit with database='disjoint'."
            )
        return self.model

    def logits(self, X: Rounded, *, exact: bool) -> Scored:
        """Logits of the model; of rows that are known, those of their label sets are raised."""
        S, sketching = self.model.logits(X, exact=exact), self.memory.sketching
        projected = shifted_product(X, sketching.center, sketching.directions, exact=exact)
        sketches = np.ascontiguousarray(to_numpy(projected.values))
        error = np.broadcast_to(to_numpy(projected.error), (len(sketches), 1))[:, 0]
        state = self.memory.recognised(sketches, np.zeros(len(sketches)) if exact else SURE * error)
        if not state.any():
            return S
        known, unsure = np.flatnonzero(state == KNOWN), np.flatnonzero(state == UNSURE)
        values, xp = S.values, namespace(S.values)
        bound = xp.max(xp.broadcast_to(S.bound, values.shape), axis=1, keepdims=True)
        places = like(known, values) if is_foreign(values) else known
        own, worst = np.asarray(to_numpy(values[places]), dtype=np.float64), np.asarray(to_numpy(bound[places]))
        top, C = own.max(axis=1), self.memory.counted(sketches[known], self.n_sets)
        total = top + np.log(np.exp(own - top[:, None]).sum(axis=1))
        rows, size = rows_of(C), 1 + np.abs(total)
        found = np.logaddexp(own[rows, C.indices], np.log(C.data) - np.log(self.doubt) + total[rows])
        own[rows, C.indices] = found
        np.maximum.at(size, rows, np.abs(found))
        values[places] = like(own, values)
        bound[places] = like(2 * worst + 2 * FEW * UNIT * size[:, None], values)
        bound[like(unsure, values) if is_foreign(values) else unsure] = np.inf
        return Scored(values, bound)


@dataclass(frozen=True)
class Remembered:
    """Rows that are remembered, and what they say of rows that were held out.

    Attributes
    ----------
    memory : all rows
    sketches : (m, k) of the rows that were held out once
    ids : (m,) their label sets
    judged : places of those whose label set the model of their fold has seen
    known : (h,) places of those that are like rows that were learned when they were held out
    counts : (h, u) numbers of learned rows like each of these, by label set; sparse
    """

    memory: Memory
    sketches: Floats
    ids: NDArray[np.intp]
    judged: NDArray[np.intp]
    known: NDArray[np.intp]
    counts: sparse.csr_array

    @classmethod
    def of_rows(
        cls,
        sketching: Sketching,
        sketches: Floats,
        ids: NDArray[np.intp],
        n_sets: int,
        folds: Folds,
        labelled: NDArray[np.bool_] | None = None,
    ) -> Remembered:
        """Rows by their sketches.

        Parameters
        ----------
        sketching, sketches : how rows are projected; (n, k) their projections
        ids : (n,) label sets
        n_sets : number of label sets
        folds : which rows are held out together
        labelled : (n,) rows to remember, if not all: labels of others are guessed
        """
        some = np.ones(len(ids), dtype=bool) if labelled is None else labelled
        known, counts = [], []
        for seen, held, places in folds:
            learned = seen[some[seen]]
            others = Memory.of_rows(sketching, sketches[learned], ids[learned])
            alike = others.recognised(sketches[held], np.zeros(len(held))) == KNOWN
            known.append(places[alike])
            counts.append(others.counted(sketches[held[alike]], n_sets))
        memory, rows = Memory.of_rows(sketching, sketches[some], ids[some]), folds.rows
        parts = np.concatenate(known), sparse.vstack(counts, format="csr")
        return cls(memory, sketches[rows], ids[rows], folds.judged(ids), *parts)

    def added(self, fitted: Fitted, inside: Posteriors) -> tuple[Fitted, Posteriors]:
        """A model with memory, its out-of-fold posteriors and log-loss; and its posteriors of the same rows."""
        doubt, oof = self._doubt(fitted.oof, inside), fitted.oof.copy()
        oof[self.known] = mixed(oof[self.known], self.counts, doubt)
        model, P = Remembering(fitted.model, self.memory, doubt), np.empty_like(inside)
        for part in self._parts():
            P[part] = mixed(inside[part], self.memory.counted(self.sketches[part], P.shape[1]), doubt)
        return replace(fitted, model=model, oof=oof, loss=self._loss(oof) if len(self.known) else fitted.loss), P

    def _loss(self, P: Posteriors) -> float:
        """Log-loss of rows that may be judged."""
        rows = self.judged
        return -float(np.mean(log(P[rows, self.ids[rows]]), dtype=np.float64)) if len(rows) else 0.0

    def _parts(self) -> list[slice]:
        """The rows in blocks."""
        return [slice(start, start + BATCH_ROWS) for start in range(0, len(self.sketches), BATCH_ROWS)]

    @cached_property
    def _own_counts(self) -> tuple[Floats, Floats]:
        """Of the rows like every row, itself included, how many have its label set, and how many there are."""
        own, everyone = [], []
        for part in self._parts():
            C = self.memory.counted(self.sketches[part], self.counts.shape[1])
            own.append(C[np.arange(C.shape[0]), self.ids[part]])
            everyone.append(C.sum(axis=1))
        return np.concatenate(own), np.concatenate(everyone)

    def _doubt(self, oof: Posteriors, inside: Posteriors) -> float:
        """How many rows the model counts as."""
        if not len(self.known):
            return DOUBT
        labels, rows = self.ids[self.known], np.arange(len(self.known))
        p, own, everyone = oof[self.known, labels], self.counts[rows, labels], self.counts.sum(axis=1)
        of_searched = inside[np.arange(len(inside)), self.ids], *self._own_counts

        def loss(log_a: float) -> float:
            a = np.exp(log_a)
            held_out, searched = (
                log((own + a * p) / (everyone + a)).sum(dtype=np.float64)
                for p, own, everyone in ((p, own, everyone), of_searched)
            )
            return -float(HELD_OUT_WEIGHT * held_out + searched)

        limits = np.log(DOUBT), np.log(MOST_DOUBT)
        return float(np.exp(minimize_scalar(loss, bounds=limits, method="bounded").x))


def mixed(P: Posteriors, C: sparse.csr_array, doubt: float) -> Posteriors:
    """Posteriors of rows that are like remembered ones, and of rows that are not."""
    Q, total, rows = doubt * P, C.sum(axis=1) + doubt, rows_of(C)
    counted = (C.data + Q[rows, C.indices]) / total[rows]
    Q /= total[:, None]
    Q[rows, C.indices] = counted
    return Q


def rows_of(C: sparse.csr_array) -> NDArray[np.intp]:
    """The row of every number of a sparse matrix."""
    return np.repeat(np.arange(C.shape[0]), np.diff(C.indptr))


@njit(cache=True, nogil=True, allocates=False)
def _first_within(sketches: Floats, low: float) -> int:
    """The first entry whose first projection is not below ``low``."""
    start, stop = 0, len(sketches)
    while start < stop:
        middle = (start + stop) // 2
        if sketches[middle, 0] < low:
            start = middle + 1
        else:
            stop = middle
    return start


@njit(cache=True, nogil=True, allocates=False)
def _difference(one: Floats, two: Floats, limit: float) -> float:
    """The largest difference of projections; infinite if one is beyond the limit."""
    largest = 0.0
    for k in range(one.shape[0]):
        difference = abs(one[k] - two[k])
        if not difference <= limit:  # NaN differs from everything
            return np.inf
        largest = difference if difference > largest else largest
    return largest


@njit(cache=True, nogil=True, allocates=False)
def _recognise(rows: Floats, error: Floats, sketches: Floats, tolerance: float, state: NDArray[np.uint8]) -> None:
    """Set the state of every row."""
    for i in range(len(rows)):
        reach, state[i] = tolerance + error[i], UNKNOWN
        j = _first_within(sketches, rows[i, 0] - reach)
        while j < len(sketches) and sketches[j, 0] <= rows[i, 0] + reach and state[i] != UNSURE:
            difference = _difference(rows[i], sketches[j], reach)
            if difference <= tolerance - error[i]:
                state[i] = KNOWN
            elif difference <= reach:
                state[i] = UNSURE
            j += 1


@njit(cache=True, nogil=True, allocates=False)
def _count(
    rows: Floats,
    sketches: Floats,
    sets: NDArray[np.int64],
    counts: NDArray[np.int64],
    tolerance: float,
    last: NDArray[np.int64],
    stops: NDArray[np.int64],
    found: NDArray[np.int64],
    numbers: Floats,
) -> None:
    """Add up counts of entries within the tolerance of every row, in one place for every label set among them.

    ``last`` is the last place of every label set, ``stops`` is set to where the places of every row end; ``found``, if
    not empty, to the label sets, and ``numbers`` to the sums.
    """
    place = np.int64(0)
    for i in range(len(rows)):
        start = place
        j = _first_within(sketches, rows[i, 0] - tolerance)
        while j < len(sketches) and sketches[j, 0] <= rows[i, 0] + tolerance:
            if _difference(rows[i], sketches[j], tolerance) <= tolerance:
                if last[sets[j]] < start:
                    last[sets[j]] = place
                    place += 1
                if len(found) > 0:
                    found[last[sets[j]]] = sets[j]
                    numbers[last[sets[j]]] += counts[j]
            j += 1
        stops[i] = place
