"""What every hasher promises: scores, codes, a score, and scikit-learn's manners."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from shorthash._arrays import namespace
from shorthash._labels import LabelGroups, group_labels
from shorthash._rounding import Rounded, Scored, linear, settled
from shorthash._types import Codes, Floats
from shorthash._validation import MAX_BITS, check_n_bits
from shorthash.codes.levels import leave_one_out_map
from shorthash.codes.signs import sign
from shorthash.data.rows import Rows, validated
from shorthash.data.streams import known_stream
from shorthash.errors import CollisionWarning, InvalidInput

__all__ = ["BaseHasher", "SupervisedHasher"]


class BaseHasher(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A hasher with a linear hash function: ``code(x) = sign(x @ projection_ + intercept_)``.

    A learner supplies ``fit`` and the attribute ``projection_`` of shape (n_features_in, n_bits), and ``intercept_`` of
    shape (n_bits,) where its hash functions do not pass through the origin; everything here follows from them. One
    with another kind of hash function overrides ``_scores`` and ``_n_features_out``; one that is not defined for every
    code length overrides ``max_bits`` and says in ``_limit`` why, and what to use instead.

    The code of a row depends on the row and the model alone, not on the rows around it, the number of threads or the
    size of the batch: signs that rounding could turn are decided row by row (``shorthash._rounding``).
    """

    n_bits: int
    projection_: Floats
    intercept_: Floats | float = 0.0
    _limit: ClassVar[tuple[str, str]] = ("", "")  # why there is a longest code, and the way out

    def max_bits(self, n_features: int, n_classes: int | None = None) -> int:  # noqa: ARG002
        """The longest code this method can learn from so many features and classes: 64, unless it says less.

        Parameters
        ----------
        n_features : columns of X
        n_classes : classes among the labels; None where there are none
        """
        return MAX_BITS

    def project(self, X: ArrayLike) -> Floats:
        """Real-valued scores, (n_samples, n_bits), whose signs are the code."""
        check_is_fitted(self)
        stream = known_stream(X)
        if stream is not None:
            return stream.mapped(self.project, self._n_features_out, np.float64)  # type: ignore[no-any-return]
        values = validated(self, X, reset=False, keep_device=self._is_linear())
        parts = [settled(batch, self._scores_of) for _, batch in Rows(values, type(self).__name__)]
        return namespace(parts[0]).concat(parts)  # type: ignore[no-any-return]

    def _is_linear(self) -> bool:
        """Whether the hash function is the one of this class."""
        return type(self)._scores is BaseHasher._scores and type(self).project is BaseHasher.project

    def _scores_of(self, rows: Any, *, exact: bool) -> Scored:
        return self._scores(Rounded(rows), exact=exact)

    def _scores(self, X: Rounded, *, exact: bool) -> Scored:
        """Scores with a bound of their rounding error; ``exact`` is for one row, in a fixed order of summation."""
        return linear(X, self.projection_, self.intercept_, exact=exact)

    def transform(self, X: ArrayLike, *, scores: Floats | None = None) -> Codes:
        """Codes, (n_samples, n_bits), int8, -1 or +1; of an array on a GPU, there; of a Dask collection, as one.

        Parameters
        ----------
        X : (n_samples, n_features) rows
        scores : what ``project(X)`` gave, if it is at hand
        """
        if scores is not None:
            return sign(scores)
        stream = known_stream(X)
        if stream is not None:
            return stream.mapped(self.transform, self._n_features_out, np.int8)  # type: ignore[no-any-return]
        return sign(self.project(X))

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Tie-aware mean average precision on ``X``: every row queries all the others.

        Ties count with their expectation over all orders; relevant means sharing a label; rows that share a label
        with no other row are left out.
        """
        return leave_one_out_map(self.transform(X), y)

    def _training_rows(self, X: ArrayLike) -> Rows:
        """Validated rows for ``fit``: two or more, not all equal, checked for NaN and infinity as they are read."""
        values = validated(self, X, reset=True, min_samples=2)
        rows = Rows(values, type(self).__name__)
        rows.check_varied()
        return rows

    def _check_length(self, n_features: int, n_classes: int | None = None) -> int:
        """``n_bits``, if the method is defined for it; raise otherwise."""
        name = type(self).__name__
        n_bits = check_n_bits(self.n_bits, name)
        longest = self.max_bits(n_features, n_classes)
        if n_bits > longest:
            reason, way_out = self._limit
            classes = "" if n_classes is None else f" and n_classes={n_classes}"
            raise InvalidInput(
                f"{name} learns at most {longest} bits from n_features={n_features}{classes}: {reason}. "
                f"Got n_bits={n_bits} instead; {way_out}."
            )
        return n_bits

    @property
    def _n_features_out(self) -> int:
        return int(self.projection_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # codes are int8 whatever comes in
        return tags


class SupervisedHasher(BaseHasher, ABC):
    """A hasher that learns from labels: reads them, and says what it thinks of them."""

    @abstractmethod
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from feature rows and their labels."""

    def _set_hash_function(self, projection: Floats, codes: Codes) -> None:
        """Keep a projection learned by regression of ``codes``, (n, n_bits) or one row per label set.

        A bit that is the same for all of them stays that bit: regressed on centred features it would be rounding noise.
        """
        constant = (codes == codes[0]).all(axis=0)
        self.projection_ = np.where(constant, 0.0, projection)
        self.intercept_ = np.where(constant, codes[0], 0).astype(np.float64)

    def _training_groups(
        self, y: ArrayLike | None, n_samples: int, *, drop_unlabelled: bool = False, keep_device: bool = False
    ) -> LabelGroups:
        """Labels as groups of rows; two or more groups."""
        name = type(self).__name__
        groups = group_labels(
            y, owner=name, n_samples=n_samples, drop_unlabelled=drop_unlabelled, keep_device=keep_device
        )
        if len(groups.rows) < 2:
            only = ", ".join(repr(name) for name in groups.classes[groups.rows[0].astype(bool)].tolist())
            raise InvalidInput(
                f"y of {name} holds one class only ({only}), but a code can be learned from 2 or more; add rows "
                "of another class, or use an unsupervised method."
            )
        return groups

    def _warn_of_collisions(self, n_classes: int, stacklevel: int = 3) -> None:
        """Say so if there are more classes than codes."""
        n_codes = 2**self.n_bits
        if n_classes > n_codes:
            needed = int(np.ceil(np.log2(n_classes)))
            warnings.warn(
                f"{n_classes} classes cannot all have different codes of n_bits={self.n_bits} ({n_codes} codes): "
                f"some must collide; use n_bits >= {needed} to tell all classes apart.",
                CollisionWarning,
                stacklevel=stacklevel,
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags
