"""Radial basis features on anchors drawn from the training rows (paper, eq. 1)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.random import sample_without_replacement
from sklearn.utils.validation import check_is_fitted

from shorthash._types import Features, Floats
from shorthash._validation import check_choice, check_count, check_weight
from shorthash.errors import AnchorWarning
from shorthash.features.rows import Rows, validated

__all__ = ["AnchorRBF"]

SAMPLE_ROWS = 10_000  # rows on which the bandwidth is estimated


class AnchorRBF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Radial basis features on randomly drawn anchors.

    .. math:: \varphi_j(a) = \exp\bigl(-\|a - p_j\|^2 / 2\sigma^2\bigr) - m_j

    where

    - :math:`a` is a feature row,
    - :math:`p_j` is the j-th anchor, drawn without replacement from the training rows,
    - :math:`\sigma` is the bandwidth,
    - :math:`m_j` is the training mean of the j-th feature (0 with ``center=False``).

    Arithmetic is float32 on rows shifted by the mean anchor (distances do not change, rounding does), sums are
    float64, and rows are read in batches, so memory stays bounded whatever the size of a memory map.

    Parameters
    ----------
    n_anchors : int, default=1000
        Number of anchors. With fewer rows than that, every row becomes an anchor, with a warning.
    bandwidth : {"mean-min", "mean-min-authors", "mean"} or float, default="mean-min"
        - "mean-min": mean distance of a training row to its nearest anchor, over the rows that are not anchors
          themselves (if every row is one: to the nearest other anchor);
        - "mean-min-authors": the same over all rows, anchors counting 0, as in the RSLH authors' code; it collapses
          when most rows are anchors;
        - "mean": mean distance of training rows to anchors;
        - a number: :math:`\sigma` itself.

        The rules use a seeded sample of 10 000 rows when there are more.
    center : bool, default=True
        Subtract the training mean of every feature.
    random_state : int, RandomState instance or None, default=None
        Draws the anchors and the sample.

    Attributes
    ----------
    anchors_ : (n_anchors, n_features_in) the anchors
    bandwidth_ : float, :math:`\sigma`
    mean_ : (n_anchors,) the training mean; zeros with ``center=False``

    References
    ----------
    W. Liu, J. Wang, R. Ji, Y.-G. Jiang, S.-F. Chang. Supervised Hashing with Kernels. CVPR 2012.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> AnchorRBF(n_anchors=10, random_state=0).fit_transform(X).shape
    (50, 10)
    """

    _n_features_out: int

    def __init__(
        self,
        n_anchors: int = 1000,
        bandwidth: str | float = "mean-min",
        center: bool = True,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_anchors = n_anchors
        self.bandwidth = bandwidth
        self.center = center
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None) -> Self:  # noqa: ARG002
        """Draw anchors, choose the bandwidth and measure the mean.

        Parameters
        ----------
        X : (n_samples, n_features) training rows
        y : ignored
        """
        rows = self.fit_anchors(X)
        if self.center:
            total = np.zeros(self._n_features_out)
            for _, batch in rows.through(self.features()):
                total += batch.sum(axis=0, dtype=np.float64)
            self.mean_ = total / len(rows)
        return self

    def fit_anchors(self, X: ArrayLike) -> Rows:
        """Draw anchors and choose the bandwidth only; ``mean_`` stays 0 until someone who sees all rows sets it.

        Returns the validated rows, so that a caller who streams them need not validate again.
        """
        m = check_count(self.n_anchors, "n_anchors", "AnchorRBF")
        if isinstance(self.bandwidth, str):
            check_choice(self.bandwidth, "bandwidth", "AnchorRBF", list(_RULES))
        else:
            check_weight(self.bandwidth, "bandwidth", "AnchorRBF", positive=True)
        values = validated(self, X, reset=True, min_samples=2)
        rows = Rows(values, "AnchorRBF")
        rows.check_varied()
        n = len(rows)
        if m > n:
            warnings.warn(
                f"AnchorRBF was asked for n_anchors={m} anchors, but there are only {n} rows: every row "
                "becomes an anchor.",
                AnchorWarning,
                stacklevel=3,
            )
            m = n
        rng = check_random_state(self.random_state)
        chosen = np.sort(sample_without_replacement(n, m, random_state=rng))
        anchors = rows.take(chosen)
        if isinstance(self.bandwidth, str):
            bandwidth = _RULES[self.bandwidth](rows, chosen, anchors, rng)
        else:
            bandwidth = float(self.bandwidth)
        self.anchors_, self.bandwidth_, self.mean_ = anchors, bandwidth, np.zeros(m)
        self._n_features_out = m
        return rows

    def transform(self, X: ArrayLike) -> NDArray[np.float32]:
        """Kernel features of ``X``, (n_samples, n_anchors), float32."""
        check_is_fitted(self)
        values = validated(self, X, reset=False)
        out = np.empty((len(values), len(self.anchors_)), dtype=np.float32)
        mean = self.mean_.astype(np.float32)
        for part, batch in Rows(values, "AnchorRBF").through(self.features()):
            np.subtract(batch, mean, out=out[part])
        return out

    def features(self) -> Callable[[Features], Features]:
        """The map of a batch of rows to uncentred kernel features, float32."""
        shift = self.anchors_.mean(axis=0)
        scale = 1.0 / (2.0 * self.bandwidth_**2)
        anchors = np.asarray(self.anchors_, dtype=np.float64) - shift
        # [x, |x|^2, 1] times this is -|x - p|^2 / 2 sigma^2: one matrix product, no further pass over the result
        weights = np.vstack([2 * scale * anchors.T, np.full(len(anchors), -scale), -scale * (anchors**2).sum(axis=1)])
        return _ExponentialMap(shift, weights.astype(np.float32))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # always float32
        return tags


class _ExponentialMap:
    """exp of a product with [x, |x|^2, 1], in float32."""

    def __init__(self, shift: Features, weights: NDArray[np.float32]) -> None:
        self.shift = shift
        self.weights = weights

    def __call__(self, batch: Features) -> Features:
        moved = batch - self.shift  # in the precision of the rows
        n, d = moved.shape
        left = np.empty((n, d + 2), dtype=np.float32)
        left[:, :d] = moved
        left[:, d] = np.einsum("ij,ij->i", moved, moved)
        left[:, d + 1] = 1
        exponent = left @ self.weights
        np.minimum(exponent, 0, out=exponent)  # rounding may leave a squared distance below 0
        return np.exp(exponent, out=exponent)


def _squared_distances(A: Features, B: Features) -> Floats:
    """Squared distances between rows, (n, m), clipped at 0."""
    shift = B.mean(axis=0, dtype=np.float64)
    a, b = A - shift, B - shift
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2.0 * (a @ b.T)
    clipped: Floats = np.maximum(squares, 0.0)
    return clipped


def _mean_min(rows: Rows, chosen: NDArray[np.intp], anchors: Features, rng: np.random.RandomState) -> float:
    """Mean distance to the nearest anchor, over rows that are not anchors."""
    n, m = len(rows), len(chosen)
    if m == n:
        squares = _squared_distances(anchors, anchors)
        np.fill_diagonal(squares, np.inf)
        return _never_zero(float(np.sqrt(squares.min(axis=1)).mean()), rows, chosen, anchors, rng)
    others = np.delete(np.arange(n), chosen) if n <= 4 * SAMPLE_ROWS else _others(n, chosen, rng)
    if len(others) > SAMPLE_ROWS:
        others = others[sample_without_replacement(len(others), SAMPLE_ROWS, random_state=rng)]
    nearest = _nearest_distances(rows, others, anchors)
    return _never_zero(float(nearest.mean()), rows, chosen, anchors, rng)


def _mean_min_authors(rows: Rows, chosen: NDArray[np.intp], anchors: Features, rng: np.random.RandomState) -> float:
    """Mean distance to the nearest anchor over all rows, where an anchor is at distance 0 from itself."""
    sample = _sample(len(rows), rng)
    nearest = _nearest_distances(rows, sample, anchors)
    nearest[np.isin(np.sort(sample), chosen)] = 0.0
    return _never_zero(float(nearest.mean()), rows, chosen, anchors, rng)


def _mean(rows: Rows, chosen: NDArray[np.intp], anchors: Features, rng: np.random.RandomState) -> float:  # noqa: ARG001
    """Mean distance between rows and anchors."""
    sample = np.sort(_sample(len(rows), rng))
    total = 0.0
    for start in range(0, len(sample), 1000):
        total += float(np.sqrt(_squared_distances(rows.take(sample[start : start + 1000]), anchors)).sum())
    return total / (len(sample) * len(anchors))


def _nearest_distances(rows: Rows, indices: NDArray[np.intp], anchors: Features) -> Floats:
    """Distance to the nearest anchor of some rows, in ascending order of their index."""
    indices = np.sort(indices)
    parts = [
        np.sqrt(_squared_distances(rows.take(indices[start : start + 1000]), anchors).min(axis=1))
        for start in range(0, len(indices), 1000)
    ]
    return np.concatenate(parts)


def _sample(n: int, rng: np.random.RandomState) -> NDArray[np.intp]:
    """At most SAMPLE_ROWS row numbers."""
    if n <= SAMPLE_ROWS:
        return np.arange(n)
    return np.asarray(sample_without_replacement(n, SAMPLE_ROWS, random_state=rng))


def _others(n: int, chosen: NDArray[np.intp], rng: np.random.RandomState) -> NDArray[np.intp]:
    """SAMPLE_ROWS row numbers, or a few less, that are not anchors."""
    drawn = np.asarray(sample_without_replacement(n, min(n, SAMPLE_ROWS + len(chosen)), random_state=rng))
    return drawn[~np.isin(drawn, chosen)]


def _never_zero(
    value: float, rows: Rows, chosen: NDArray[np.intp], anchors: Features, rng: np.random.RandomState
) -> float:
    """The value, or the mean-distance rule where it is 0 (every row has its twin among the anchors)."""
    return value if value > 0 else _mean(rows, chosen, anchors, rng)


_RULES: dict[str, Callable[[Rows, NDArray[np.intp], Features, np.random.RandomState], float]] = {
    "mean-min": _mean_min,
    "mean-min-authors": _mean_min_authors,
    "mean": _mean,
}
