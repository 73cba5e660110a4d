"""Supervised Hashing with Kernels (KSH). W. Liu, J. Wang, R. Ji, Y.-G. Jiang, S.-F. Chang, 2012.

Inner products of codes should be +L for rows that share a label and -L for rows that do not. Bits are learned one after
the other, each on the residual of the similarity, with a smooth function in place of the sign.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse
from sklearn.utils import check_random_state
from sklearn.utils.random import sample_without_replacement

from shorthash._arrays import Floats
from shorthash._labels import LabelGroups
from shorthash._validation import check_count
from shorthash.codes.signs import sign
from shorthash.learners.base import SupervisedHasher
from shorthash.learners.solvers import centred, similar_sums

HELD_GROUPS = 1024  # label sets up to which their pairwise similarity is held: 8 MB
DOUBLINGS = 50  # of the Lipschitz guess, at most, as in the authors' code
RANK_TOLERANCE = 1e-10  # directions with less than this share of the largest variance are left out


@dataclass(eq=False, repr=False)
class KSH(SupervisedHasher):
    r"""Supervised Hashing with Kernels.

    Greedy over the bits of

    .. math:: \Bigl\| L S - \sum_{l=1}^{L} h_l h_l^T \Bigr\|^2, \quad h_l = \mathrm{sgn}(K a_l)

    where

    - :math:`S` (n, n) is +1 for rows that share a label and -1 for others (it is never formed),
    - :math:`K` (n, d) are the centred features, for instance from ``AnchorRBF``,
    - :math:`a_l` (d) is the l-th column of the projection.

    Every bit starts at the leading generalised eigenvector of :math:`K^T S_l K` and :math:`K^T K`, where :math:`S_l` is
    the residual of :math:`L S`; an accelerated gradient then ascends :math:`s(Ka)^T S_l\, s(Ka)` with
    :math:`s(t) = 2 / (1 + e^{-t}) - 1` in place of the sign. The better of the two by its signs is kept.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64.
    n_labelled : int or None, default=2000
        Number of rows whose pairs are used, drawn at random; None for all rows.
    max_iter : int, default=500
        Maximum number of gradient steps per bit.
    tol : float, default=1e-2
        Stop when a step changes the value of a bit by less than this per row.
    drop_unlabelled : bool, int or str, default=False
        Drop rows without a label (None, NaN, "", an empty set, a row of zeros) instead of raising; a value such as -1
        or "unknown" also drops the rows that have it as their label.
    random_state : int, RandomState instance or None, default=None
        Draws the rows.

    Attributes
    ----------
    projection_ : (n_features_in, n_bits) the vectors a
    intercept_ : (n_bits,) -mean_ @ projection_
    mean_ : (n_features_in,) the training mean
    classes_ : (c,) the classes
    objective_ : (n_bits,) the objective after every bit, over the pairs used
    n_iter_ : int, largest number of gradient steps of a bit
    n_dropped_ : int, rows without label

    References
    ----------
    W. Liu, J. Wang, R. Ji, Y.-G. Jiang, S.-F. Chang. Supervised Hashing with Kernels. CVPR 2012, pages 2074-2081.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> hasher = KSH(n_bits=4, random_state=0).fit(X, y)
    >>> hasher.transform(X).shape, hasher.score(X, y) > 0.75
    ((150, 4), True)
    """

    n_bits: int = 8
    n_labelled: int | None = 2000
    max_iter: int = 500
    tol: float = 1e-2
    drop_unlabelled: bool | int | str = False
    random_state: int | np.random.RandomState | None = None

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn bit by bit.

        Parameters
        ----------
        X : (n_samples, n_features) features, for instance from ``AnchorRBF``
        y : (n_samples,) class labels, or an (n_samples, n_classes) indicator matrix of 0/1 or -1/+1
        """
        most = None if self.n_labelled is None else check_count(self.n_labelled, "n_labelled", "KSH", low=2)
        self._check_params()
        rows = self._training_rows(X)
        groups = self._training_groups(y, len(rows), drop_unlabelled=self.drop_unlabelled)
        n_bits = self._check_length(self.n_features_in_)
        rng = check_random_state(self.random_state)
        n_dropped = len(rows) - groups.n_samples
        mean, rows = centred(rows.keep(groups.kept))
        chosen = _labelled_rows(len(rows), most, rng)
        residual = _Residual.of(groups, chosen, n_bits)
        A, objective, n_iter = _solve(rows.take(chosen).astype(np.float64), residual, n_bits, self.max_iter, self.tol)
        self.n_dropped_ = n_dropped
        self.classes_ = groups.classes
        self.objective_ = objective
        self.n_iter_ = n_iter
        self._set_hyperplanes(mean, A)
        return self


def _labelled_rows(n: int, most: int | None, rng: np.random.RandomState) -> NDArray[np.intp]:
    """Ascending numbers of the rows whose pairs are used."""
    if most is None or n <= most:
        return np.arange(n)
    return np.sort(sample_without_replacement(n, most, random_state=rng))


# Legend, samples as rows:
#
#   code  paper      shape   is
#   K     K-bar_l    (n, d)  centred features of the rows looked at
#   S     S          (n, n)  +1 or -1 by shared label; only products with it are formed
#   S_l   R_(k-1)    (n, n)  what is left of L S before bit l: L S - sum of h h' of the bits before it
#   a     a_k        (d,)    one hash function
#   H     -          (n, l)  bits learned so far


@dataclass(frozen=True)
class _Residual:
    """S_l as an operator: pairs by group, minus the bits learned so far."""

    scale: int  # L
    label_rows: NDArray[np.uint8]  # (u, c)
    ids: NDArray[np.intp]  # (n,) group of every row
    Et: Any  # (u, n) sparse, the indicator of the groups
    T: Floats | None  # (u, u) similarity of groups; None where there are too many to hold it
    H: Floats  # (n, l)

    @classmethod
    def of(cls, groups: LabelGroups, chosen: NDArray[np.intp], n_bits: int) -> _Residual:
        present, ids = np.unique(groups.ids[chosen], return_inverse=True)
        n, u = len(chosen), len(present)
        Et = sparse.csr_array((np.ones(n), (ids.reshape(-1), np.arange(n))), shape=(u, n))
        T = similar_sums(groups.rows[present], np.eye(u)) if u <= HELD_GROUPS else None
        return cls(n_bits, groups.rows[present], ids.reshape(-1), Et, T, np.empty((n, 0)))

    def times(self, V: Floats) -> Floats:
        """S_l V, (n, k), for V (n, k)."""
        return np.asarray(self.scale * self._similar(self.Et @ V)[self.ids] - self.H @ (self.H.T @ V))

    def value(self, v: Floats) -> float:
        """v'S_l v."""
        Etv, Htv = self.Et @ v[:, None], self.H.T @ v
        return float(self.scale * (Etv * self._similar(Etv)).sum() - Htv @ Htv)

    def form(self, K: Floats) -> Floats:
        """K'S_l K, (d, d)."""
        V, HtK = np.asarray(self.Et @ K), self.H.T @ K
        return np.asarray(self.scale * (V.T @ self._similar(V)) - HtK.T @ HtK)

    def without(self, h: Floats) -> _Residual:
        """S_l - h h'."""
        return replace(self, H=np.column_stack([self.H, h]))

    def _similar(self, V: Floats) -> Floats:
        """T V, (u, k)."""
        return similar_sums(self.label_rows, V) if self.T is None else self.T @ V


def _solve(K: Floats, residual: _Residual, n_bits: int, max_iter: int, tol: float) -> tuple[Floats, Floats, int]:
    """The hash functions, (d, L), the objective after every bit, and the largest number of steps of a bit."""
    n = len(K)
    whitening = _whitening(K)
    A = np.empty((K.shape[1], n_bits))
    norm = float(n) ** 2 * n_bits**2  # ||L S||^2
    objective, n_iter = np.empty(n_bits), 0
    for bit in range(n_bits):
        start = _leading_direction(K, residual, whitening)
        end, steps = _ascend(K, residual, start, max_iter, tol)
        A[:, bit], h, gain = _better(K, residual, start, end)
        n_iter = max(n_iter, steps)
        norm += float(n) ** 2 - 2.0 * gain  # ||S - h h'||^2 = ||S||^2 - 2 h'S h + n^2
        objective[bit] = norm
        residual = residual.without(h)
    return A, objective, n_iter


def _whitening(K: Floats) -> Floats:
    """T, (d, r), with T'K'K T = I; directions without variance are left out."""
    values, vectors = linalg.eigh(K.T @ K, check_finite=False)
    kept = values > RANK_TOLERANCE * values[-1]
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))


def _leading_direction(K: Floats, residual: _Residual, whitening: Floats) -> Floats:
    """The a that maximises a'K'S_l K a under a'K'K a = n; its entry of largest magnitude is positive."""
    form = whitening.T @ residual.form(K) @ whitening
    r = len(form)
    _, vector = linalg.eigh((form + form.T) / 2, subset_by_index=[r - 1, r - 1], check_finite=False)
    a: Floats = whitening @ vector[:, 0] * np.sqrt(len(K))
    return a if a[np.abs(a).argmax()] > 0 else -a


def _ascend(K: Floats, residual: _Residual, a: Floats, max_iter: int, tol: float) -> tuple[Floats, int]:
    """Nesterov's gradient on the smooth value, with backtracking, and the number of steps."""
    n = len(K)
    before, inertia, steepness = a, (0.0, 1.0), 1.0
    value = _smooth_value(K, residual, a)
    steps = 0
    while steps < max_iter:
        steps += 1
        v = a + (inertia[0] - 1.0) / inertia[1] * (a - before)
        here, gradient = _smooth(K, residual, v)
        squared = float(gradient @ gradient)
        for _ in range(DOUBLINGS):
            after = v + gradient / steepness
            there = _smooth_value(K, residual, after)
            if there >= here + squared / (2.0 * steepness):
                break
            steepness *= 2.0
        before, a = a, after
        inertia = inertia[1], (1.0 + np.sqrt(1.0 + 4.0 * inertia[1] ** 2)) / 2.0
        if abs(there - value) <= tol * n:
            break
        value = there
    return a, steps


def _smooth_value(K: Floats, residual: _Residual, a: Floats) -> float:
    """s(Ka)'S_l s(Ka) with s(t) = 2 / (1 + e^-t) - 1 = tanh(t / 2)."""
    return residual.value(np.tanh(K @ a / 2.0))


def _smooth(K: Floats, residual: _Residual, a: Floats) -> tuple[float, Floats]:
    """The same, and its gradient in a."""
    s = np.tanh(K @ a / 2.0)
    Ss = residual.times(s[:, None])[:, 0]
    return float(s @ Ss), K.T @ (Ss * (1.0 - s**2))


def _better(K: Floats, residual: _Residual, first: Floats, second: Floats) -> tuple[Floats, Floats, float]:
    """Of two hash functions the one with the larger h'S_l h, its bit and that value."""
    candidates = []
    for a in (first, second):
        h = sign(K @ a).astype(np.float64)
        candidates.append((a, h, residual.value(h)))
    return max(candidates, key=lambda candidate: candidate[2])
