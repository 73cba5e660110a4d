"""Probability Ordinal-preserving Semantic Hashing (POSH). Z. Zhang, X. Zhu, G. Lu, Y. Zhang, TKDD 2021.

Codes agree with a regression on labels and with projected features; the projection is smooth over a graph of anchors
and sparse in features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import linalg, sparse
from sklearn.utils.random import sample_without_replacement

from shorthash._arrays import Codes, Floats
from shorthash.codes.signs import sign
from shorthash.learners.samples import AlternatingHasher, Samples
from shorthash.learners.solvers import LabelGram, Ridge

EPS = np.finfo(float).eps  # keeps the weight of a row of P that is 0 finite
BLOCK_ROWS = 512  # rows whose distances to all anchors are held at once


@dataclass(eq=False, repr=False)
class POSH(AlternatingHasher):
    r"""Probability Ordinal-preserving Semantic Hashing.

    Alternates on the objective of the authors' code:

    .. math::
        \|H - YR\|^2 + \lambda\|R\|^2 + \gamma\|H - XP\|^2 + \eta\,\mathrm{tr}\bigl(P^TX^T(I - A)XP\bigr)
        + \lambda\|P\|_{2,1}, \quad H \in \{-1, +1\}^{n \times L}

    where

    - :math:`X` (n, d) are the features and :math:`Y` (n, c) the labels,
    - :math:`R` (c, L) and :math:`P` (d, L) regress codes on labels and on features,
    - :math:`A = ZMZ^T` is the affinity of the samples through their nearest anchors: row-normalised Gaussian weights
      :math:`Z` and the inverse :math:`M` of its column sums,
    - :math:`\|P\|_{2,1}` is the sum of the norms of the rows of P.

    The hash function regresses the learned codes by ridge.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64.
    gamma : float, default=1
        Weight of the agreement of codes and projected features.
    eta : float, default=10
        Weight of the smoothness over the graph.
    lam : float, default=0.01
        Ridge on R and weight of the row sparsity of P, above 0.
    n_anchors : int, default=1000
        Anchors of the graph, drawn from the rows; with fewer rows, every row is an anchor.
    n_neighbors : int, default=2
        Number of nearest anchors per row.
    ridge : float, default=1
        Penalty of the final projection.
    max_iter : int, default=5
        Maximum number of iterations; the alternation stops when the codes stop changing.
    drop_unlabelled : bool, int or str, default=False
        Drop rows without a label (None, NaN, "", an empty set, a row of zeros) instead of raising; a value such as -1
        or "unknown" also drops the rows that have it as their label.
    random_state : int, RandomState instance or None, default=None
        Draws the anchors and the initial random codes.

    Attributes
    ----------
    projection_ : (n_features_in, n_bits) the hash function is ``sign(X @ projection_ + intercept_)``
    intercept_ : (n_bits,) 0, or the bit itself if all samples share it
    classes_ : (c,) the classes
    label_sets_ : (u, c) the label rows that occurred; the identity for single-label data
    codewords_ : (u, n_bits) for every label set, the majority bits of its samples
    codes_ : (n_samples, n_bits) learned codes of the training rows
    objective_ : (n_iter_,) the objective after every iteration
    n_iter_ : int, iterations done
    n_dropped_ : int, rows without label

    References
    ----------
    Z. Zhang, X. Zhu, G. Lu, Y. Zhang. Probability Ordinal-preserving Semantic Hashing for Large-Scale Image Retrieval.
    ACM Transactions on Knowledge Discovery from Data 15(3), 2021.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_iris(return_X_y=True)
    >>> hasher = POSH(n_bits=4, random_state=0).fit(scale(X), y)
    >>> hasher.transform(scale(X)).shape
    (150, 4)
    """

    n_bits: int = 8
    gamma: float = 1
    eta: float = 10
    lam: float = 0.01
    n_anchors: int = 1000
    n_neighbors: int = 2
    ridge: float = 1
    max_iter: int = 5
    drop_unlabelled: bool | int | str = False
    random_state: int | np.random.RandomState | None = None

    _positive: ClassVar[tuple[str, ...]] = ("lam",)

    def _iterate(self, samples: Samples, rng: np.random.RandomState) -> Iterator[tuple[Codes, Floats, float]]:
        smooth = samples.K - _affinity_gram(samples, self.n_anchors, self.n_neighbors, rng)  # X'(I - A) X
        label_gram = LabelGram(samples.Yg, samples.N)
        H = sign(rng.normal(size=(samples.n, self.n_bits)))
        XtH = samples.X.transposed_times(H)
        weights, p_ridge = np.ones(len(samples.K)), Ridge(samples.K, self.ridge)
        while True:
            P = _p_step(self.eta * smooth + self.gamma * samples.K, XtH, weights, self.gamma, self.lam)
            R = label_gram.solve(samples.label_sums(H), self.lam)
            H = _h_step(samples, R, P, self.gamma)
            XtH = samples.X.transposed_times(H)
            weights = 0.5 / np.sqrt(np.sum(P**2, axis=1) + EPS)
            features = self.gamma * samples.projection_error(XtH, P) + self.eta * float(np.sum(P * (smooth @ P)))
            features += self.lam * float(np.sum(np.sqrt(np.sum(P**2, axis=1) + EPS)))
            yield H, p_ridge.solve(XtH), _label_terms(samples, H, R, self.lam) + features


def _p_step(A: Floats, XtH: Floats, weights: Floats, gamma: float, lam: float) -> Floats:
    """P = (eta X'(I - A) X + gamma X'X + lam D)^-1 gamma X'H with D = diag(1 / 2 ||row of P||), (d, L).

    With D from the last P this majorises the row sparsity, so that the objective cannot rise.
    """
    left = A + lam * np.diag(weights)
    return np.asarray(linalg.solve(left, gamma * XtH, assume_a="pos", check_finite=False))


def _h_step(samples: Samples, R: Floats, P: Floats, gamma: float) -> Codes:
    """H = sgn(Y R + gamma X P)."""
    return sign(samples.by_label(R) + gamma * samples.X.times(P))


def _label_terms(samples: Samples, H: Codes, R: Floats, lam: float) -> float:
    """``||H - Y R||^2 + lam ||R||^2``, expanded into sums."""
    YR = samples.Yg @ R  # (u, L)
    fitted = float(np.sum(samples.N[:, None] * YR**2))
    return float(H.size) - 2 * float(np.sum(R * samples.label_sums(H))) + fitted + lam * float(np.sum(R**2))


def _affinity_gram(samples: Samples, n_anchors: int, n_neighbors: int, rng: np.random.RandomState) -> Floats:
    """X'A X = (X'Z) M (Z'X), (d, d)."""
    n = samples.n
    m = min(n_anchors, n)
    anchors = samples.X.take(np.asarray(sample_without_replacement(n, m, random_state=rng))).astype(np.float64)
    nearest, squares = _nearest(samples, anchors, min(n_neighbors, m))
    width = float(np.sqrt(squares[:, -1]).mean())  # mean distance to the last of the neighbours
    weights = np.exp(-squares / width**2) if width > 0 else np.ones_like(squares)
    weights /= weights.sum(axis=1, keepdims=True)
    rows = np.repeat(np.arange(n), nearest.shape[1])
    Z: Any = sparse.csr_array((weights.ravel(), (rows, nearest.ravel())), shape=(n, m))
    reached = np.asarray(Z.sum(axis=0))
    M = np.divide(1.0, reached, out=np.zeros(m), where=reached > 0)
    XtZ = np.zeros((len(samples.K), m))
    for part, batch in samples.X:
        XtZ += (Z[part].T @ batch).T
    return np.asarray((XtZ * M) @ XtZ.T)


def _nearest(samples: Samples, anchors: Floats, k: int) -> tuple[Any, Floats]:
    """Numbers of the k nearest anchors of every sample and their squared distances, (n, k), ascending."""
    nearest = np.empty((samples.n, k), dtype=np.intp)
    squares = np.empty((samples.n, k))
    lengths = np.sum(anchors**2, axis=1)
    for part, batch in samples.X:
        for start in range(0, len(batch), BLOCK_ROWS):
            X = batch[start : start + BLOCK_ROWS].astype(np.float64)
            here = slice(part.start + start, part.start + start + len(X))
            distances = np.maximum(np.sum(X**2, axis=1)[:, None] + lengths - 2 * (X @ anchors.T), 0.0)
            some = np.argpartition(distances, k - 1, axis=1)[:, :k]
            order = np.argsort(np.take_along_axis(distances, some, axis=1), axis=1, kind="stable")
            nearest[here] = np.take_along_axis(some, order, axis=1)
            squares[here] = np.take_along_axis(distances, nearest[here], axis=1)
    return nearest, squares
