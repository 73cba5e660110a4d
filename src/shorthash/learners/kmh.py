"""K-means Hashing (KMH). K. He, F. Wen, J. Sun, 2013.

Cells of k-means are numbered so that the root of the Hamming distance of two numbers is the distance of the two
centres: k-means with a second term that pulls centres to where their numbers want them. For longer codes features are
split in parts with k-means each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from shorthash._arrays import Codes, Floats
from shorthash._rounding import Rounded, Scored, best_word, linear
from shorthash._validation import MAX_BITS, check_count
from shorthash.codes.signs import unpack
from shorthash.data.rows import Rows
from shorthash.learners.base import UnsupervisedHasher
from shorthash.learners.pcarr import PCA_LIMIT
from shorthash.learners.solvers import principal_directions

MOST_ROWS = 20_000  # a sample that centres are learned from, of more rows
MOST_PART_BITS = 8
DESCENT = 20  # steps of L-BFGS in every update of the centres
SMALLEST = 1e-12  # keeps slopes of distances finite


@dataclass(eq=False, repr=False)
class KMH(UnsupervisedHasher):
    r"""K-means Hashing.

    In every part of the features, minimises by alternation over cells and centres

    .. math::
        \frac1n \sum_x \|x - c_{i(x)}\|^2 + \lambda \sum_{i,j} w_{ij} \bigl(\|c_i - c_j\| - s \sqrt{h(i, j)}\bigr)^2

    where

    - :math:`i(x)` is the cell of a row, that of the nearest of the :math:`2^b` centres c,
    - :math:`w_{ij} = n_i n_j / n^2`, with n the numbers of rows in cells,
    - :math:`h(i, j)` is the Hamming distance of the numbers of two cells, and s a scale,
    - :math:`\lambda` is ``lam``.

    Hash functions are not linear and have no ``projection_``.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64, and at most the number of features.
    part_bits : int, default=4
        Most bits b of a part, 1 to 8: it has :math:`2^b` centres.
    lam : float, default=10.0
        Weight of the distances between centres.
    max_iter : int, default=50
        Maximum number of iterations; fewer if cells stop changing.
    random_state : int, RandomState instance or None, default=None
        Draws a sample of more than 20 000 rows.

    Attributes
    ----------
    mean_ : (n_features_in,) the training mean
    centers_ : list of (2**b, n_features_in) arrays, the centres of every part, less the mean
    scale_ : list of float, s of every part
    objective_ : list of (n_iter,) arrays, the objective of every part after every iteration
    n_iter_ : int, iterations of the part that needed most

    References
    ----------
    K. He, F. Wen, J. Sun. K-means Hashing: An Affinity-Preserving Quantization Method for Learning Binary Compact
    Codes. CVPR 2013, pages 2938-2945.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, _ = load_iris(return_X_y=True)
    >>> hasher = KMH(n_bits=3).fit(X)
    >>> hasher.transform(X).shape, [len(centers) for centers in hasher.centers_]
    ((150, 3), [8])
    """

    # Paper: parts have b bits each, so the length is a multiple of b. We take as few parts as b allows and share bits
    # and features evenly, so any length is defined: principal directions are dealt out in turn, the largest first
    # (test_parts_share_bits_and_features).
    # Paper: centres are updated one after the other. We update all at once, which descends the same objective
    # (test_objective_never_rises).

    _limit: ClassVar[tuple[str, str]] = PCA_LIMIT
    _positive: ClassVar[tuple[str, ...]] = ("lam",)

    n_bits: int = 8
    part_bits: int = 4
    lam: float = 10.0
    max_iter: int = 50
    random_state: int | np.random.RandomState | None = None

    def max_bits(self, n_features: int, n_classes: int | None = None) -> int:  # noqa: ARG002
        """One bit per principal direction."""
        return min(MAX_BITS, n_features)

    def _check_params(self) -> None:
        super()._check_params()
        check_count(self.part_bits, "part_bits", "KMH", high=MOST_PART_BITS)

    def _learn(self, rows: Rows, mean: Floats, rng: np.random.RandomState) -> None:
        """Centres of every part."""
        sample = np.sort(rng.permutation(len(rows))[:MOST_ROWS])
        X = np.asarray(rows.take(sample), dtype=np.float64)
        V = principal_directions(rows, len(mean))
        n_parts = -(-self.n_bits // self.part_bits)
        centers, scales, objectives = [], [], []
        for part in range(n_parts):
            directions = V[:, part::n_parts]
            n_bits = (self.n_bits - part + n_parts - 1) // n_parts
            C, scale, objective = learn_centers(X @ directions, n_bits, self.lam, self.max_iter)
            centers.append(C @ directions.T)
            scales.append(scale)
            objectives.append(objective)
        self.mean_, self.centers_, self.scale_, self.objective_ = mean, centers, scales, objectives
        self.n_iter_ = max(map(len, objectives))

    def _scores(self, X: Rounded, *, exact: bool) -> Scored:
        """Bits of the nearest centre of every part; the magnitude is how much nearer than one with the other bit."""
        parts = []
        for C in self.centers_:
            shift = -2 * C @ self.mean_ - np.einsum("ij,ij->i", C, C)
            parts.append(best_word(linear(X, 2 * C.T, shift, exact=exact), _words(len(C)), exact=exact))
        values = np.hstack([part.values for part in parts])
        bounds = np.hstack([np.broadcast_to(part.bound, part.values.shape) for part in parts])
        return Scored(values, bounds)

    @property
    def _n_features_out(self) -> int:
        return int(sum(np.log2(len(C)) for C in self.centers_))


# Legend: Z (n, p) rows of a part, C (K, p) centres with K = 2^b, H (K, K) roots of Hamming distances, cell (n,).


def learn_centers(Z: Floats, n_bits: int, lam: float, max_iter: int) -> tuple[Floats, float, Floats]:
    """Centres of one part, the scale s, and the objective after every iteration.

    Parameters
    ----------
    Z : (n, p) centred rows, directions of large variance first
    n_bits : b
    lam, max_iter : as in the class
    """
    H = _root_distances(n_bits)
    cell = ((Z[:, :n_bits] >= 0) @ (1 << np.arange(n_bits))).astype(np.intp)  # signs of principal directions
    spread = Z[:, :n_bits].std(axis=0)
    C = np.zeros((1 << n_bits, Z.shape[1]))
    C[:, :n_bits] = _words(len(C)) * spread  # of empty cells
    counts, means = _cells(Z, cell, len(C))
    C = np.where(counts[:, None] > 0, means, C)
    W = np.outer(counts, counts) / len(Z) ** 2
    scale = float((W * H * _distances(C)).sum() / max((W * H**2).sum(), SMALLEST))
    values: list[float] = []
    while len(values) < max_iter:
        C = _c_step(Z, cell, C, scale * H, lam)
        after = _cell_step(Z, C)
        values.append(objective(Z, after, C, scale * H, lam))
        if np.array_equal(after, cell):
            break
        cell = after
    return C, scale, np.array(values)


def objective(Z: Floats, cell: NDArray[np.intp], C: Floats, wanted: Floats, lam: float) -> float:
    """What is minimised.

    Parameters
    ----------
    Z, cell, C : rows, their cells, centres
    wanted : (K, K) distances that centres should have
    lam : weight of the distances
    """
    n = np.bincount(cell, minlength=len(C)) / len(Z)
    error = float(((Z - C[cell]) ** 2).sum()) / len(Z)
    return error + lam * float((np.outer(n, n) * (_distances(C) - wanted) ** 2).sum())


def _cell_step(Z: Floats, C: Floats) -> NDArray[np.intp]:
    """The nearest centre of every row."""
    return np.asarray((2 * Z @ C.T - np.einsum("ij,ij->i", C, C)).argmax(axis=1))


def _c_step(Z: Floats, cell: NDArray[np.intp], C: Floats, wanted: Floats, lam: float) -> Floats:
    """Some steps of L-BFGS towards the best centres for the cells."""
    counts, means = _cells(Z, cell, len(C))
    share = counts / len(Z)
    W = np.outer(share, share)

    def loss(v: Floats) -> tuple[float, Floats]:
        C = v.reshape(means.shape)
        D = _distances(C)
        away = C - means
        pull = W * (D - wanted) / np.maximum(D, SMALLEST)
        np.fill_diagonal(pull, 0.0)
        slope = 2 * share[:, None] * away + 4 * lam * (pull.sum(axis=1, keepdims=True) * C - pull @ C)
        value = (share[:, None] * away**2).sum() + lam * (W * (D - wanted) ** 2).sum()
        return float(value), slope.ravel()

    found = minimize(loss, C.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": DESCENT})
    return np.asarray(found.x).reshape(C.shape)


def _cells(Z: Floats, cell: NDArray[np.intp], K: int) -> tuple[Floats, Floats]:
    """Number and mean of the rows in every cell; the mean of none is 0."""
    counts = np.bincount(cell, minlength=K).astype(np.float64)
    sums = np.zeros((K, Z.shape[1]))
    np.add.at(sums, cell, Z)
    return counts, sums / np.maximum(counts, 1)[:, None]


def _distances(C: Floats) -> Floats:
    """Euclidean distances of centres, (K, K)."""
    return np.asarray(np.sqrt(((C[:, None] - C[None]) ** 2).sum(axis=2)))


def _root_distances(n_bits: int) -> Floats:
    """Roots of the Hamming distances of the numbers below 2^b, (K, K)."""
    numbers = np.arange(1 << n_bits)
    return np.asarray(np.sqrt(np.bitwise_count(numbers[:, None] ^ numbers).astype(np.float64)))


def _words(K: int) -> Codes:
    """The bits of the numbers below K, (K, b)."""
    return unpack(np.arange(K, dtype=np.uint8), int(np.log2(K)))
