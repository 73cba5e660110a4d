"""Radial basis features on anchors drawn from the training rows (paper, eq. 1), and a constant column."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.random import sample_without_replacement
from sklearn.utils.validation import check_is_fitted, validate_data

from shorthash._arrays import DeviceCopies, Features, Floats, capped_exp, is_foreign, like, namespace, to_numpy
from shorthash._rounding import FEW, UNIT, Rounded, norms
from shorthash._validation import check_choice, check_count, check_weight
from shorthash.data.rows import Rows, validated
from shorthash.data.streams import Stream
from shorthash.errors import AnchorWarning, InvalidInput

RULES = ("mean-min", "mean-min-authors", "mean")  # of the bandwidth
SMALLEST = 1e-150  # bandwidth
SAMPLE_ROWS = 10_000  # rows on which the bandwidth is estimated


@dataclass(eq=False, repr=False)
class AnchorRBF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Radial basis features on randomly drawn anchors.

    .. math:: \varphi_j(a) = \exp\bigl(-\|a - p_j\|^2 / 2\sigma^2\bigr) - m_j

    where

    - :math:`a` is a feature row,
    - :math:`p_j` is the j-th anchor, drawn without replacement from the training rows,
    - :math:`\sigma` is the bandwidth,
    - :math:`m_j` is the training mean of the j-th feature (0 with ``center=False``).

    Arithmetic is float64, on rows shifted by the median anchor (distances do not change, rounding does), so features do
    not depend on the batch beyond a relative error of about 1e-13. Rows are read in batches, so memory is bounded for
    memory maps of any size.

    Parameters
    ----------
    n_anchors : int, default=1000
        Number of anchors. With fewer rows, every row becomes an anchor, with a warning.
    bandwidth : {"mean-min", "mean-min-authors", "mean"} or float, default="mean-min"
        - "mean-min": mean distance of a training row to its nearest anchor, over the rows that are not anchors
          (if all rows are anchors: to the nearest other anchor);
        - "mean-min-authors": the same over all rows, anchors counting 0, as in the RSLH authors' code; it is too
          small when most rows are anchors;
        - "mean": mean distance of training rows to anchors;
        - a number: :math:`\sigma` itself.

        The rules use a sample of 10 000 rows if there are more.
    center : bool, default=True
        Subtract the training mean of every feature.
    random_state : int, RandomState instance or None, default=None
        Draws the anchors and that sample.

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

    n_anchors: int = 1000
    bandwidth: str | float = "mean-min"
    center: bool = True
    random_state: int | np.random.RandomState | None = None

    def fit(self, X: ArrayLike, y: object = None) -> Self:  # noqa: ARG002
        """Draw anchors, choose the bandwidth and compute the mean.

        Parameters
        ----------
        X : (n_samples, n_features) training rows
        y : ignored
        """
        rows = self.fit_anchors(X)
        if self.center:
            total = np.zeros(len(self.anchors_))
            for _, batch in rows.through(self.features()):
                xp = namespace(batch)
                total += to_numpy(xp.sum(batch, axis=0, dtype=xp.float64))
            self.mean_ = total / len(rows)
        return self

    def fit_anchors(self, X: ArrayLike) -> Rows:
        """Draw anchors and choose the bandwidth only; ``mean_`` is 0 until the caller sets it.

        Returns the validated rows, so that the caller need not validate again.
        """
        self._check_params()
        values = validated(self, X, reset=True, min_samples=2, keep_device=True)
        rows = Rows(values, "AnchorRBF")
        rows.check_varied()
        self._draw(rows, stacklevel=4)
        return rows

    def fit_anchors_of(self, source: Rows | Stream, n_columns: int) -> Self:
        """The same for a stream.

        Row numbers are drawn as for an array with as many rows, so a stream gives the same anchors and bandwidth as its
        rows in memory with the same ``random_state``.
        """
        self._check_params()
        self.n_features_in_ = n_columns
        self._draw(source, stacklevel=4)
        if len(self.anchors_) > 1 and (self.anchors_ == self.anchors_[0]).all():
            raise InvalidInput(
                f"All {len(self.anchors_)} rows drawn as anchors from X of AnchorRBF are equal (constant features), so "
                "there is nothing to learn; check how the features were made."
            )
        return self

    def _check_params(self) -> None:
        check_count(self.n_anchors, "n_anchors", "AnchorRBF")
        if isinstance(self.bandwidth, str):
            check_choice(self.bandwidth, "bandwidth", "AnchorRBF", RULES)
        else:
            check_weight(self.bandwidth, "bandwidth", "AnchorRBF", positive=True)

    def _draw(self, source: Rows | Stream, stacklevel: int) -> None:
        """Draw row numbers, then read those rows at once."""
        n, m = len(source), self.n_anchors
        if m > n:
            warnings.warn(
                f"AnchorRBF has n_anchors={m}, but there are only {n} rows: every row becomes an anchor.",
                AnchorWarning,
                stacklevel=stacklevel,
            )
            m = n
        rng = check_random_state(self.random_state)
        chosen = np.sort(sample_without_replacement(n, m, random_state=rng))
        if isinstance(self.bandwidth, str):
            anchors, bandwidth = _measured(self.bandwidth, source, chosen, rng)
        else:
            anchors, bandwidth = to_numpy(source.take(chosen)), float(self.bandwidth)
        self.anchors_, self.bandwidth_, self.mean_ = anchors, bandwidth, np.zeros(m)
        self._n_features_out = m

    def transform(self, X: ArrayLike) -> Floats:
        """Kernel features of ``X``, (n_samples, n_anchors), float64."""
        check_is_fitted(self)
        values = validated(self, X, reset=False, keep_device=True)
        rows = Rows(values, "AnchorRBF").through(self.features())
        if is_foreign(values):
            mean = like(self.mean_, values)
            return namespace(values).concat([batch - mean for _, batch in rows])  # type: ignore[no-any-return]
        out = np.empty((len(values), len(self.anchors_)))
        for part, batch in rows:
            np.subtract(batch, self.mean_, out=out[part])
        return out

    def features(self) -> ExponentialMap:
        """The map of a batch of rows to uncentred kernel features, float64; built once per fit."""
        made = _maps.get(self)
        if made is None or made.anchors is not self.anchors_ or made.bandwidth != self.bandwidth_:
            made = _maps[self] = ExponentialMap(self.anchors_, self.bandwidth_)
        return made

    def rounded(self, X: Rounded, *, exact: bool) -> Rounded:
        """Features with a bound on their rounding error (see ``_rounding``)."""
        values, error = self.features().rounded(X, exact=exact)
        values -= like(self.mean_, values)
        return Rounded(values, error + UNIT * (norms(values) + 2 * float(np.linalg.norm(self.mean_))))

    def check_loaded(self, n_anchors: int) -> None:
        """Raise ValueError unless a kernel that was read from a file is fitted and has ``n_anchors`` anchors."""
        if type(self.bandwidth_) is not float or type(self.center) is not bool or not 0 < self.bandwidth_ < np.inf:
            raise ValueError("its kernel is invalid")
        if self.anchors_.shape != (n_anchors, self.n_features_in_) or self.mean_.shape != (n_anchors,):
            raise ValueError("its kernel does not fit its sums")
        if not (np.isfinite(self.anchors_).all() and np.isfinite(self.mean_).all()):
            raise ValueError("its anchors are not finite")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # always float64
        return tags


class Bias(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Append a column of ones.

    Examples
    --------
    >>> Bias().fit_transform([[2.0, 3.0]]).tolist()
    [[2.0, 3.0, 1.0]]
    """

    def fit(self, X: ArrayLike, y: object = None) -> Self:  # noqa: ARG002
        """Store the number of columns."""
        validate_data(self, X)
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """``X`` with a last column of ones."""
        check_is_fitted(self)
        values = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return np.hstack([values, np.ones((len(values), 1), dtype=values.dtype)])

    def rounded(self, X: Rounded, *, exact: bool) -> Rounded:  # noqa: ARG002
        """The same with a bound on the rounding error (see ``_rounding``)."""
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


class ExponentialMap:
    """exp(-|x - p|^2 / 2 sigma^2) for all anchors p: exp of one matrix product, float64, on the device of the rows.

    Parameters
    ----------
    anchors : (m, d) the anchors
    bandwidth : sigma

    Attributes
    ----------
    shift : (d,) the median of the anchors, subtracted from rows and anchors
    weights : (d + 2, m) factors of x, |x|^2 and 1 in the exponent, x being shifted
    """

    def __init__(self, anchors: Features, bandwidth: float) -> None:
        if bandwidth <= SMALLEST or bandwidth >= 1 / SMALLEST:  # NaN: the rows have one, which is reported where it is
            raise InvalidInput(
                f"The bandwidth of AnchorRBF must lie between {SMALLEST:g} and {1 / SMALLEST:g}, so that its square is "
                f"a number. Got {bandwidth:g} instead; scale the features."
            )
        self.anchors = anchors
        self.bandwidth = bandwidth
        self.scale = 1.0 / (2.0 * bandwidth**2)
        self.shift: Floats = np.median(np.asarray(anchors, dtype=np.float64), axis=0)
        moved = np.asarray(anchors, dtype=np.float64) - self.shift
        squares = (moved**2).sum(axis=1)
        # [x, |x|^2, 1] times this is -|x - p|^2 / 2 sigma^2: one matrix product, no further pass over the result
        self.weights: Floats = np.vstack(
            [2 * self.scale * moved.T, np.full(len(moved), -self.scale), -self.scale * squares]
        )
        self.radius = float(np.sqrt(squares.max()))
        self.copies = DeviceCopies(self.shift, self.weights)

    def __call__(self, batch: Any) -> Any:
        """Kernel features of a batch, (n, m), not centred."""
        return self._with_norms(batch)[0]

    def rounded(self, X: Rounded, *, exact: bool) -> Rounded:
        """The same with a bound on the rounding error.

        The terms of an exponent are at most (|x| + |p|)^2 / 2 sigma^2 together, x and p being shifted; each of some
        2 d roundings is relative to that, and a feature is off by what its exponent is off, relative to itself. An
        anchor with |p| > 3 |x| is so far away that its feature and its error vanish. One row alone is computed from
        its differences to the anchors, whose terms are no larger than the exponent.
        """
        m, d = self.anchors.shape
        if exact:
            T = ((np.asarray(self.anchors, dtype=np.float64) - X.values) ** 2).sum(axis=1)[None] * self.scale
            values: Any = np.exp(-T)
            error = norms(values * ((d + FEW) * T + FEW) * UNIT)
        else:
            values, squares = self._with_norms(X.values)
            roundings = (2 * d + 4 * FEW) * UNIT
            length = squares**0.5
            reach = namespace(values).minimum(4 * length, length + self.radius)
            exponent = roundings * self.scale * reach**2
            error = (2 * exponent + FEW * UNIT) * norms(values) + 2 * roundings * m**0.5
            error[exponent > 1] = np.inf  # too far away for this formula
        # the slope of a feature is at most 0.61 / sigma
        steepest = 0.61 * (2 * self.scale * m) ** 0.5
        return Rounded(values, error + steepest * X.error)

    def _with_norms(self, batch: Any) -> tuple[Any, Any]:
        """Features, and squared norms of the shifted rows, (n, 1)."""
        xp = namespace(batch)
        shift, weights = self.copies.of(batch)
        n, d = batch.shape
        left = xp.empty((n, d + 2), dtype=xp.float64, **({"device": batch.device} if is_foreign(batch) else {}))
        left[:, :d] = batch
        left[:, :d] -= shift
        left[:, d] = xp.sum(left[:, :d] ** 2, axis=1)
        left[:, d + 1] = 1
        return capped_exp(left @ weights), left[:, d : d + 1]  # rounding may leave a squared distance below 0


_maps: WeakKeyDictionary[AnchorRBF, ExponentialMap] = WeakKeyDictionary()  # of every fitted kernel that was used


def _squared_distances(A: Features, B: Features) -> Floats:
    """Squared distances between rows, (n, m), clipped at 0."""
    shift = B.mean(axis=0, dtype=np.float64)
    a, b = A - shift, B - shift
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None, :] - 2.0 * (a @ b.T)
    return np.asarray(np.maximum(squares, 0.0))


def _measured(
    rule: str, source: Rows | Stream, chosen: NDArray[np.intp], rng: np.random.RandomState
) -> tuple[Features, float]:
    """Anchors and bandwidth; the rows for both are read together."""
    n = len(source)
    sample = _not_anchors(n, chosen, rng) if rule == "mean-min" else _some(n, rng)
    wanted = np.union1d(sample, chosen)
    rows = to_numpy(source.take(wanted))
    anchors, drawn = (rows[np.searchsorted(wanted, numbers)] for numbers in (chosen, sample))
    value = _mean(drawn, anchors) if rule == "mean" else _mean_min(drawn, anchors, np.isin(sample, chosen))
    if value > 0:
        return anchors, value
    return anchors, _mean(to_numpy(source.take(_some(n, rng))), anchors)  # every row equals an anchor


def _mean_min(sample: Features, anchors: Features, own: NDArray[np.bool_]) -> float:
    """Mean distance to the nearest anchor, 0 for rows that are anchors; without rows, to the nearest other anchor."""
    if not len(sample):
        squares = _squared_distances(anchors, anchors)
        np.fill_diagonal(squares, np.inf)
        return float(np.sqrt(squares.min(axis=1)).mean())
    parts = [sample[start : start + 1000] for start in range(0, len(sample), 1000)]
    nearest = np.concatenate([np.sqrt(_squared_distances(part, anchors).min(axis=1)) for part in parts])
    nearest[own] = 0.0
    return float(nearest.mean())


def _mean(sample: Features, anchors: Features) -> float:
    """Mean distance between rows and anchors."""
    total = 0.0
    for start in range(0, len(sample), 1000):
        total += float(np.sqrt(_squared_distances(sample[start : start + 1000], anchors)).sum())
    return total / (len(sample) * len(anchors))


def _some(n: int, rng: np.random.RandomState) -> NDArray[np.intp]:
    """At most SAMPLE_ROWS row numbers, ascending."""
    if n <= SAMPLE_ROWS:
        return np.arange(n)
    return np.sort(sample_without_replacement(n, SAMPLE_ROWS, random_state=rng))


def _not_anchors(n: int, chosen: NDArray[np.intp], rng: np.random.RandomState) -> NDArray[np.intp]:
    """At most SAMPLE_ROWS row numbers, ascending, that are not anchors; none if all are."""
    if len(chosen) == n:
        return np.empty(0, dtype=np.intp)
    if n <= 4 * SAMPLE_ROWS:
        others = np.delete(np.arange(n), chosen)
    else:
        drawn = np.asarray(sample_without_replacement(n, min(n, SAMPLE_ROWS + len(chosen)), random_state=rng))
        others = drawn[~np.isin(drawn, chosen)]
    if len(others) > SAMPLE_ROWS:
        others = others[sample_without_replacement(len(others), SAMPLE_ROWS, random_state=rng)]
    return np.sort(others)
