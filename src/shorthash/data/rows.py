"""Feature rows read in batches, so that memory does not grow with the data; checks of ``X``; exact nearest rows."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from shorthash._arrays import Features, Floats, as_floats, is_foreign, like, to_numpy
from shorthash._progress import reporting
from shorthash._validation import check_finite
from shorthash.errors import InvalidInput

BATCH_ROWS = 4096  # 4096 x 1000 kernel features are 33 MB in float64: little memory, but large enough for BLAS
DEVICE_BATCH_ROWS = 65_536  # small products use only part of a GPU
FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
METRICS = ("cosine", "dot", "euclidean")
NEAREST_BLOCK = 1 << 24  # similarities held at once: 64 MB
SMALLEST = 1e-30  # keeps rows of zeros finite
SAME_FEATURES = "give rows made the same way as those it was fitted on, or fit it again"


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of an array or memory map, read in batches and passed through row-wise maps.

    Parameters
    ----------
    X : (n_rows, n_columns) array; a memory map is read batch by batch, and pages that were read are released
    owner : the estimator that reads, for error messages
    maps : functions of a batch, applied one after the other
    kept : numbers of the rows to read, ascending; None for all
    first : number of the first row in the longer array that these rows are part of, for error messages
    size : rows per batch; None for 4096, or 65 536 on a GPU

    Examples
    --------
    >>> rows = Rows(np.arange(6.0).reshape(3, 2), "example").through(lambda batch: batch * 10)
    >>> [batch.tolist() for _, batch in rows]
    [[[0.0, 10.0], [20.0, 30.0], [40.0, 50.0]]]
    """

    X: NDArray[Any]
    owner: str
    maps: tuple[Callable[[Features], Features], ...] = ()
    kept: NDArray[np.intp] | None = None
    first: int = 0
    size: int | None = None

    def __len__(self) -> int:
        return len(self.X) if self.kept is None else len(self.kept)

    def __iter__(self) -> Iterator[tuple[slice, Features]]:
        """Yield every batch with the slice of rows it covers; raises if a batch holds NaN or infinity."""
        size = self.size or (DEVICE_BATCH_ROWS if is_foreign(self.X) else BATCH_ROWS)
        for start in range(0, len(self), size):
            part = slice(start, min(start + size, len(self)))
            if self.kept is None:
                yield part, self._read(self.X[part], range(self.first + part.start, self.first + part.stop))
                _release(self.X, part)
            else:
                yield part, self.take(np.arange(part.start, part.stop))

    def reported(self, what: str) -> Iterator[tuple[slice, Features]]:
        """The same batches, and progress where that is switched on."""
        with reporting() as step:
            for part, batch in self:
                step(what, part.start, len(self))
                yield part, batch

    def take(self, indices: NDArray[np.intp]) -> Features:
        """Some rows, mapped, as one array, in ascending order of their number."""
        ascending = np.sort(indices) if self.kept is None else self.kept[np.sort(indices)]
        picked = self._read(self.X[like(ascending, self.X)], self.first + ascending)
        _release(self.X, slice(0, len(self.X)))
        return picked

    def through(self, function: Callable[[Features], Features]) -> Rows:
        """The same rows, passed through one more row-wise map."""
        return replace(self, maps=(*self.maps, function))

    def by(self, size: int) -> Rows:
        """The same rows, in batches of ``size`` rows."""
        return replace(self, size=size)

    def keep(self, mask: NDArray[np.bool_] | None) -> Rows:
        """The rows where ``mask`` is true, or all rows for None; nothing is copied."""
        if mask is None:
            return self
        chosen = np.flatnonzero(mask)
        return replace(self, kept=chosen if self.kept is None else self.kept[chosen])

    def times(self, P: Floats) -> Floats:
        """X P, (n, L), for P (d, L)."""
        out = np.empty((len(self), P.shape[1]))
        for part, batch in self:
            out[part] = to_numpy(batch) @ P
        return out

    def transposed_times(self, A: NDArray[Any]) -> Floats:
        """X'A, (d, L), for A (n, L)."""
        return np.asarray(sum(to_numpy(batch).T.astype(np.float64) @ A[part] for part, batch in self))

    def check_varied(self) -> None:
        """Raise if all rows are equal; reads no further than the first row that differs."""
        first = self.X[0]
        for start in range(0, len(self.X), BATCH_ROWS):
            if (self.X[start : start + BATCH_ROWS] != first).any():
                return
        raise InvalidInput(
            f"All {len(self.X)} rows of X of {self.owner} are equal (constant features), so there is nothing to learn; "
            "check how the features were made."
        )

    def _read(self, raw: NDArray[Any], row_numbers: Sequence[int] | NDArray[np.intp]) -> Features:
        check_finite(raw, self.owner, row_numbers=row_numbers)
        batch: Features = as_floats(raw)
        for function in self.maps:
            batch = function(batch)
        return batch


def validated(
    estimator: BaseEstimator, X: ArrayLike, *, reset: bool, min_samples: int = 1, keep_device: bool = False
) -> NDArray[Any]:
    """Check ``X`` as scikit-learn does, except for NaN, which :class:`Rows` looks for batch by batch.

    Parameters
    ----------
    estimator : the estimator; ``n_features_in_`` is set or compared
    X : (n_samples, n_features) rows
    reset : set ``n_features_in_`` (in ``fit``) instead of comparing with it
    min_samples : least number of rows
    keep_device : leave a torch or CuPy array as it is instead of copying it into a NumPy array
    """
    if not reset and _is_plain(estimator, X, min_samples):
        return X  # type: ignore[return-value]
    if is_foreign(X) and keep_device:
        _check_device_array(estimator, X, reset=reset, min_samples=min_samples)
        return X  # type: ignore[return-value]
    if sparse.issparse(X):
        raise InvalidInput(_sparse_message(type(estimator).__name__, X))
    options = {"dtype": "numeric", "ensure_all_finite": False, "ensure_min_samples": min_samples}
    try:
        return np.asarray(validate_data(estimator, to_numpy(X) if is_foreign(X) else X, reset=reset, **options))
    except ValueError as error:
        if "features as input" not in str(error):
            raise
        raise InvalidInput(f"{str(error).rstrip('.')}; {SAME_FEATURES}.") from error


def unit_rows(X: Features) -> NDArray[np.float32]:
    """Rows divided by their Euclidean norm; a row of zeros stays one."""
    values = np.asarray(X, dtype=np.float32)
    return np.asarray(values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), np.float32(SMALLEST)))


def nearest_rows(
    queries: Features, items: Features, k: int, metric: str = "cosine", own: NDArray[np.integer] | None = None
) -> NDArray[np.intp]:
    """Numbers of the k items nearest to every query, nearest first, (m, k); ties are broken by row number.

    Parameters
    ----------
    queries, items : (m, d), (n, d) rows
    k : number of items, at most n (n - 1 with ``own``)
    metric : "cosine", "dot" (largest product) or "euclidean"
    own : (m,) the number of every query among the items, which is left out; -1 if it is not among them

    Examples
    --------
    >>> nearest_rows(np.array([[1.0, 0.1]]), np.array([[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]]), k=2)
    array([[1, 2]])
    """
    Q, Y = (unit_rows(rows) if metric == "cosine" else np.asarray(rows, dtype=np.float32) for rows in (queries, items))
    shift = 0.5 * np.einsum("ij,ij->i", Y, Y) if metric == "euclidean" else np.zeros(len(Y), dtype=np.float32)
    found = np.empty((len(Q), k), dtype=np.intp)
    step = max(1, NEAREST_BLOCK // max(len(Y), 1))
    for start in range(0, len(Q), step):
        part = slice(start, start + step)
        distance = shift - Q[part] @ Y.T
        if own is not None:
            known = np.flatnonzero(own[part] >= 0)
            distance[known, own[part][known]] = np.inf
        limits = np.partition(distance, k - 1, axis=1)[:, k - 1]
        for i, (row, limit) in enumerate(zip(distance, limits, strict=True), start):
            near = np.flatnonzero(row <= limit)
            found[i] = near[np.argsort(row[near], kind="stable")[:k]]
    return found


def _is_plain(estimator: BaseEstimator, X: Any, min_samples: int) -> bool:
    """Whether scikit-learn's checks, which take longer than encoding a row, would return ``X`` as it is."""
    return (
        type(X) is np.ndarray
        and X.dtype in FLOATS
        and X.ndim == 2
        and X.shape[0] >= min_samples
        and X.shape[1] == getattr(estimator, "n_features_in_", None)
        and not hasattr(estimator, "feature_names_in_")
    )


def _sparse_message(name: str, X: Any) -> str:
    """What to do about sparse rows, with the memory that dense ones take."""
    size = 8 * int(np.prod(X.shape)) / 2**20
    shown = f"{np.ceil(size):.0f} MiB" if size < 1000 else f"{size / 1024:.1f} GiB"
    return (
        f"Sparse data was passed for X, but {name} computes with dense rows. Got a sparse matrix of shape {X.shape}; "
        f"as a dense one (X.toarray()) it takes {shown}, half of that as float32; or reduce its columns first, for "
        "instance with sklearn.decomposition.TruncatedSVD."
    )


def _check_device_array(estimator: BaseEstimator, X: Any, *, reset: bool, min_samples: int) -> None:
    """The same checks for an array of torch or CuPy."""
    name = type(estimator).__name__
    if X.ndim != 2:
        raise InvalidInput(f"X of {name} must have shape (n_samples, n_features). Got shape {tuple(X.shape)} instead.")
    if X.shape[0] < min_samples or not X.shape[1]:
        raise InvalidInput(
            f"X of {name} must have {min_samples} samples or more and a feature. Got shape {tuple(X.shape)} instead; "
            "give more rows."
        )
    if reset:
        estimator.n_features_in_ = X.shape[1]
    elif X.shape[1] != estimator.n_features_in_:
        raise InvalidInput(
            f"X has {X.shape[1]} features, but {name} is expecting {estimator.n_features_in_} features as input; "
            f"{SAME_FEATURES}."
        )


def _release(X: NDArray[Any], part: slice) -> None:
    """Allow the system to release the pages of a memory map that have been read."""
    owner: Any = X
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if not isinstance(owner, mmap.mmap) or not X.flags.c_contiguous or X.flags.writeable:
        return
    page = mmap.PAGESIZE
    start = X.ctypes.data - np.frombuffer(owner, dtype=np.uint8).ctypes.data
    first = -(-(start + part.start * X.strides[0]) // page) * page
    length = (start + part.stop * X.strides[0] - first) // page * page
    if length > 0 and hasattr(mmap, "MADV_DONTNEED"):
        owner.madvise(mmap.MADV_DONTNEED, first, length)
