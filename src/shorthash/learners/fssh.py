"""Fast Scalable Supervised Hashing (FSSH). X. Luo, L. Nie, X. He, Y. Wu, Z.-D. Chen, X.-S. Xu, SIGIR 2018.

Pairwise similarity is factored into projected features times projected labels; the codes agree with both. The
similarity enters only through a small matrix computed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from shorthash._arrays import Codes, Floats
from shorthash.codes.signs import sign
from shorthash.learners.samples import AlternatingHasher, Samples
from shorthash.learners.solvers import LabelGram, Ridge, similar_sums

RANK_TOLERANCE = 1e-10  # eigenvalues of X'X below this share of the largest count as 0


@dataclass(eq=False, repr=False)
class FSSH(AlternatingHasher):
    r"""Fast Scalable Supervised Hashing.

    Alternates on

    .. math::
        \|S - (XW)(YG)^T\|^2 + \mu\|H - YG\|^2 + \theta\|H - XW\|^2, \quad H \in \{-1, +1\}^{n \times L}

    where

    - :math:`X` (n, d) are the features and :math:`Y` (n, c) the labels,
    - :math:`S` is the pairwise similarity: 1 for a shared label, 0 for none,
    - :math:`W` (d, L) and :math:`G` (c, L) project features and labels on codes.

    At short lengths several classes may get the same codeword, because the objective does not prevent it.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64.
    mu : float, default=1e4
        Weight of the agreement of codes and projected labels, above 0.
    theta : float, default=1e-2
        Weight of the agreement of codes and projected features, above 0.
    variant : {"ts", "os"}, default="ts"
        - "ts", two steps: the hash function regresses the learned codes by ridge;
        - "os", one step: the hash function is W itself, which is unstable at short lengths.
    ridge : float, default=1
        Ridge of the hash function of variant "ts".
    max_iter : int, default=5
        Maximum number of iterations; the alternation stops when the codes stop changing.
    drop_unlabelled : bool, int or str, default=False
        Drop rows without a label (None, NaN, "", an empty set, a row of zeros) instead of raising; a value such as -1
        or "unknown" also drops the rows that have it as their label.
    random_state : int, RandomState instance or None, default=None
        Seeds the random G and W it starts from.

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
    X. Luo, L. Nie, X. He, Y. Wu, Z.-D. Chen, X.-S. Xu. Fast Scalable Supervised Hashing. SIGIR 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_iris(return_X_y=True)
    >>> hasher = FSSH(n_bits=4, random_state=0).fit(scale(X), y)
    >>> hasher.transform(scale(X)).shape
    (150, 4)
    """

    n_bits: int = 8
    mu: float = 1e4
    theta: float = 1e-2
    variant: Literal["ts", "os"] = "ts"
    ridge: float = 1
    max_iter: int = 5
    drop_unlabelled: bool | int | str = False
    random_state: int | np.random.RandomState | None = None

    _positive: ClassVar[tuple[str, ...]] = ("mu", "theta")

    def _iterate(self, samples: Samples, rng: np.random.RandomState) -> Iterator[tuple[Codes, Floats, float]]:
        problem = _Problem(samples)
        G = rng.normal(size=(samples.Yg.shape[1], self.n_bits))
        W = rng.normal(size=(len(samples.K), self.n_bits))
        p_ridge = Ridge(samples.K, self.ridge)
        while True:
            H = _h_step(samples, G, W, self.mu, self.theta)
            XtH = samples.X.transposed_times(H)
            G = _g_step(problem, samples.label_sums(H), W, self.mu)
            W = _w_step(problem, XtH, G, self.theta)
            P = W if self.variant == "os" else p_ridge.solve(XtH)
            yield H, P, _objective(problem, H, XtH, G, W, self.mu, self.theta)


class _Problem:
    """Data of all steps: factorisations of X'X and Y'Y, and A = X'S Y (d, c)."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples
        self.label_gram = LabelGram(samples.Yg, samples.N)
        values, vectors = np.linalg.eigh(samples.K)
        kept = values > RANK_TOLERANCE * max(values[-1], np.finfo(float).tiny)
        self.basis, self.inverse = vectors[:, kept], 1.0 / values[kept]
        label_rows = samples.statistics.rows
        sums = samples.N[:, None] * label_rows  # E'Y, (u, c)
        ones = samples.N[:, None]  # E'1
        self.A = samples.statistics.sums @ _shared(similar_sums(label_rows, sums), sums)
        self.similarity_norm = float(samples.N @ _shared(similar_sums(label_rows, ones), ones)[:, 0])  # ||S||^2

    def divide_by_gram(self, right: Floats) -> Floats:
        """(X'X)^-1 right, the pseudo-inverse where features depend on each other."""
        return np.asarray(self.basis @ (self.inverse[:, None] * (self.basis.T @ right)))


def _shared(signed: Floats, sums: Floats) -> Floats:
    """Sums over the samples that share a label, from those in which dissimilar samples count -1."""
    return np.asarray((signed + sums.sum(axis=0)) / 2)


def _h_step(samples: Samples, G: Floats, W: Floats, mu: float, theta: float) -> Codes:
    """H = sgn(mu Y G + theta X W)."""
    return sign(mu * samples.by_label(G) + theta * samples.X.times(W))


def _g_step(problem: _Problem, YtH: Floats, W: Floats, mu: float) -> Floats:
    """G = (Y'Y)^-1 (mu Y'H + A'W) (mu I + W'X'X W)^-1, (c, L)."""
    inner = mu * np.eye(W.shape[1]) + W.T @ problem.samples.K @ W
    return np.asarray(np.linalg.solve(inner, problem.label_gram.solve(mu * YtH + problem.A.T @ W).T).T)


def _w_step(problem: _Problem, XtH: Floats, G: Floats, theta: float) -> Floats:
    """W = (X'X)^-1 (theta X'H + A G) (theta I + G'Y'Y G)^-1, (d, L)."""
    inner = theta * np.eye(G.shape[1]) + _label_product(problem, G)
    return np.asarray(np.linalg.solve(inner, problem.divide_by_gram(theta * XtH + problem.A @ G).T).T)


def _label_product(problem: _Problem, G: Floats) -> Floats:
    """G'Y'Y G, (L, L)."""
    YG = problem.samples.Yg @ G  # (u, L)
    return np.asarray(YG.T @ (problem.samples.N[:, None] * YG))


def _objective(problem: _Problem, H: Codes, XtH: Floats, G: Floats, W: Floats, mu: float, theta: float) -> float:
    """The objective, expanded into sums."""
    samples = problem.samples
    YtY, XtX = _label_product(problem, G), W.T @ samples.K @ W
    pairs = problem.similarity_norm - 2 * float(np.sum((problem.A.T @ W) * G)) + float(np.sum(XtX * YtY))
    labels = float(H.size - 2 * np.sum(G * samples.label_sums(H)) + np.trace(YtY))
    return pairs + mu * labels + theta * samples.projection_error(XtH, W)
