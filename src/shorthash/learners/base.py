"""What every hasher promises: scores, codes, a score, and scikit-learn's manners."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from shorthash._types import Codes, Floats
from shorthash.codes.signs import sign
from shorthash.codes.ties import leave_one_out_map
from shorthash.features.rows import Rows

__all__ = ["BaseHasher"]


class BaseHasher(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A hasher with a linear hash function: ``code(x) = sign(x @ projection_ + intercept_)``.

    A learner supplies ``fit`` and the attribute ``projection_`` of shape (n_features_in, n_bits), and ``intercept_`` of
    shape (n_bits,) where its hash functions do not pass through the origin; everything here follows from them. One
    with another kind of hash function overrides ``project`` and ``_n_features_out``.
    """

    projection_: Floats
    intercept_: Floats | float = 0.0

    def project(self, X: ArrayLike) -> Floats:
        """Real-valued scores, (n_samples, n_bits), whose signs are the code."""
        check_is_fitted(self)
        values = validate_data(self, X, reset=False, dtype="numeric", ensure_all_finite=False)
        scores = np.empty((len(values), self.projection_.shape[1]))
        for part, batch in Rows(values, type(self).__name__):
            scores[part] = batch @ self.projection_ + self.intercept_
        return scores

    def transform(self, X: ArrayLike) -> Codes:
        """Codes, (n_samples, n_bits), int8, -1 or +1."""
        return sign(self.project(X))

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Tie-aware mean average precision on ``X``: every row queries all the others.

        Ties count with their expectation over all orders; relevant means sharing a label; rows that share a label
        with no other row are left out.
        """
        return leave_one_out_map(self.transform(X), y)

    @property
    def _n_features_out(self) -> int:
        return int(self.projection_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # codes are int8 whatever comes in
        return tags
