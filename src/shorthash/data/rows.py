"""Feature rows read in batches, so that nothing of the size of the data is ever allocated."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from shorthash._arrays import as_floats, is_foreign, like, to_numpy
from shorthash._types import Features
from shorthash._validation import check_finite
from shorthash.errors import InvalidInput

__all__ = ["BATCH_ROWS", "Rows", "validated"]

BATCH_ROWS = 4096  # 4096 x 1000 kernel features are 33 MB in float64: small beside d x d sums, large enough for BLAS
DEVICE_BATCH_ROWS = 65_536  # on a GPU small products leave most of it idle


class Rows:
    """Rows of an array or memory map, read in batches and passed through row-wise maps.

    Parameters
    ----------
    X : (n_rows, n_columns) array; a memory map is read batch by batch and its pages are given back
    owner : who reads; named in error messages
    maps : functions of a batch, applied one after the other
    kept : numbers of the rows to read, ascending; None for all
    first : the number of the first row, where these are part of something longer; only messages tell
    size : rows of a batch; None for what suits the place where the rows are

    Examples
    --------
    >>> rows = Rows(np.arange(6.0).reshape(3, 2), "example").through(lambda batch: batch * 10)
    >>> [batch.tolist() for _, batch in rows]
    [[[0.0, 10.0], [20.0, 30.0], [40.0, 50.0]]]
    """

    def __init__(
        self,
        X: NDArray[Any],
        owner: str,
        maps: tuple[Callable[[Features], Features], ...] = (),
        kept: NDArray[np.intp] | None = None,
        first: int = 0,
        size: int | None = None,
    ) -> None:
        self.X = X
        self.owner = owner
        self.maps = maps
        self.kept = kept
        self.first = first
        self.size = size

    def __len__(self) -> int:
        return len(self.X) if self.kept is None else len(self.kept)

    def __iter__(self) -> Iterator[tuple[slice, Features]]:
        """Yield every batch with the slice of rows it covers; batches are finite and real."""
        size = self.size or (DEVICE_BATCH_ROWS if is_foreign(self.X) else BATCH_ROWS)
        for start in range(0, len(self), size):
            part = slice(start, min(start + size, len(self)))
            if self.kept is None:
                yield part, self._read(self.X[part], range(part.start, part.stop))
                _give_back(self.X, part)
            else:
                yield part, self.take(np.arange(part.start, part.stop))

    def take(self, indices: NDArray[np.intp]) -> Features:
        """Some rows, mapped, as one array, in ascending order of their number."""
        ascending = np.sort(indices) if self.kept is None else self.kept[np.sort(indices)]
        picked = self._read(self.X[like(ascending, self.X)], ascending)
        _give_back(self.X, slice(0, len(self.X)))
        return picked

    def through(self, function: Callable[[Features], Features]) -> Rows:
        """The same rows, passed through one more row-wise map."""
        return Rows(self.X, self.owner, (*self.maps, function), self.kept, self.first, self.size)

    def by(self, size: int) -> Rows:
        """The same rows, in batches of another size."""
        return Rows(self.X, self.owner, self.maps, self.kept, self.first, size)

    def keep(self, mask: NDArray[np.bool_]) -> Rows:
        """The rows where ``mask`` is true; nothing is copied."""
        chosen = np.flatnonzero(mask)
        kept = chosen if self.kept is None else self.kept[chosen]
        return Rows(self.X, self.owner, self.maps, kept, self.first, self.size)

    def check_varied(self) -> None:
        """Raise if all rows are equal; reads no further than the first row that differs."""
        first = self.X[0]
        for start in range(0, len(self.X), BATCH_ROWS):
            if (self.X[start : start + BATCH_ROWS] != first).any():
                return
        raise InvalidInput(
            f"All {len(self.X)} rows of X of {self.owner} are equal (constant features), so there is nothing to learn "
            "from; check how the features were made."
        )

    def _read(self, raw: NDArray[Any], row_numbers: Sequence[int] | NDArray[np.intp]) -> Features:
        try:
            check_finite(raw, self.owner)
        except InvalidInput:
            check_finite(raw, self.owner, row_numbers=[self.first + int(number) for number in row_numbers])
        batch: Features = as_floats(raw)
        for function in self.maps:
            batch = function(batch)
        return batch


def validated(
    estimator: BaseEstimator, X: ArrayLike, *, reset: bool, min_samples: int = 1, stay: bool = False
) -> NDArray[Any]:
    """scikit-learn's checks of ``X`` for an estimator, but for NaN, which is looked for batch by batch.

    What scikit-learn says of a wrong number of features ends without a way out; it gets one here. An array that is not
    NumPy's becomes one, unless it may ``stay`` where it is.
    """
    if is_foreign(X) and not stay:
        X = to_numpy(X)
    if is_foreign(X):
        elsewhere: NDArray[Any] = _validated_elsewhere(estimator, X, reset=reset, min_samples=min_samples)
        return elsewhere
    options = {"dtype": "numeric", "ensure_all_finite": False, "ensure_min_samples": min_samples}
    try:
        return np.asarray(validate_data(estimator, X, reset=reset, **options))
    except ValueError as error:
        if "features as input" not in str(error):
            raise
        hint = "give rows made the same way as those it was fitted on, or fit it anew"
        raise InvalidInput(f"{str(error).rstrip('.')}; {hint}.") from error


def _validated_elsewhere(estimator: BaseEstimator, X: Any, *, reset: bool, min_samples: int) -> Any:
    """The same checks of an array that stays where it is."""
    name = type(estimator).__name__
    if X.ndim != 2:
        raise InvalidInput(f"X of {name} must have shape (n_samples, n_features). Got shape {tuple(X.shape)} instead.")
    if X.shape[0] < min_samples or not X.shape[1]:
        raise InvalidInput(
            f"X of {name} must have {min_samples} samples and a feature or more. Got shape {tuple(X.shape)} instead; "
            "give more rows."
        )
    if reset:
        estimator.n_features_in_ = X.shape[1]
    elif X.shape[1] != estimator.n_features_in_:
        raise InvalidInput(
            f"X has {X.shape[1]} features, but {name} is expecting {estimator.n_features_in_} features as input; "
            "give rows made the same way as those it was fitted on, or fit it anew."
        )
    return X


def _give_back(X: NDArray[Any], part: slice) -> None:
    """Let the system drop the pages of a memory map that have been read; they can be read again from the file."""
    owner: Any = X
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if not isinstance(owner, mmap.mmap) or not X.flags.c_contiguous or X.flags.writeable:
        return
    page, start = mmap.PAGESIZE, _address(X) - _address(np.frombuffer(owner, dtype=np.uint8))
    first = -(-(start + part.start * X.strides[0]) // page) * page
    length = (start + part.stop * X.strides[0] - first) // page * page
    if length > 0 and hasattr(mmap, "MADV_DONTNEED"):
        owner.madvise(mmap.MADV_DONTNEED, first, length)


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
