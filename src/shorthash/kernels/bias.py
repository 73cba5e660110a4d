"""A constant column, for methods whose hash functions have a threshold of their own."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from shorthash._arrays import to_numpy
from shorthash._rounding import Rounded

__all__ = ["Bias"]


class Bias(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Append a column of ones.

    Examples
    --------
    >>> Bias().fit_transform([[2.0, 3.0]]).tolist()
    [[2.0, 3.0, 1.0]]
    """

    def fit(self, X: ArrayLike, y: object = None) -> Self:  # noqa: ARG002
        """Remember the number of columns."""
        validate_data(self, X)
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """``X`` with a last column of ones."""
        check_is_fitted(self)
        values = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return np.hstack([values, np.ones((len(values), 1), dtype=values.dtype)])

    def rounded(self, X: Rounded, *, exact: bool) -> Rounded:  # noqa: ARG002
        """The same with a bound of the rounding error (see ``_rounding``)."""
        values = to_numpy(X.values)
        return Rounded(np.hstack([values, np.ones((len(values), 1))]), to_numpy(X.error))

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """Names of the columns, the last one "bias"."""
        names = getattr(self, "feature_names_in_", None) if input_features is None else np.asarray(input_features)
        if names is None:
            names = np.array([f"x{i}" for i in range(self.n_features_in_)])
        return np.array([*names, "bias"], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
