"""Column Sampling based Discrete Supervised Hashing (COSDISH). W.-C. Kang, W.-J. Li, Z.-H. Zhou, AAAI 2016.

A few columns of the similarity are sampled at a time. The codes of the sampled items are learned bit by bit, each by a
binary quadratic programme; the codes of all other items follow in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.random import sample_without_replacement

from shorthash._arrays import Codes, Floats
from shorthash._labels import shared_label
from shorthash.codes.signs import sign
from shorthash.learners.samples import Outcome, SampleHasher, Samples
from shorthash.learners.solvers import Ridge

TIE = 1e-5  # bits with smaller scores do not change
DIGITS = 9  # after the point, of coefficients of which the largest is 1


@dataclass(eq=False, repr=False)
class COSDISH(SampleHasher):
    r"""Column Sampling based Discrete Supervised Hashing.

    Fits codes to some sampled columns of the pairwise similarity at a time. The codes of the sampled items minimise,
    bit by bit, the squared error, and those of all others, in closed form, the weighted absolute error

    .. math::
        \sum_i \sum_{j \in \Omega} (L s_{ij} - h_ih_j^T)^2, \qquad
        \sum_{i \notin \Omega} \sum_{j \in \Omega} |s_{ij}|\, \bigl|L \operatorname{sgn}(s_{ij}) - h_ih_j^T\bigr|

    where

    - :math:`h_i \in \{-1, +1\}^L` is the code of a sample,
    - :math:`\Omega` are L samples, drawn again in every round,
    - :math:`s_{ij}` is 1 for a shared label, and -r or +r for none, with r the number of similar over that of
      dissimilar pairs.

    The hash function regresses the learned codes by ridge.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64.
    dissimilar : {"negative", "positive"}, default="negative"
        The similarity of samples that share no label: -r, which makes the sampled columns sum to 0, or +r, as a
        circulating copy of the authors' code has it.
    n_alternations : int, default=3
        Alternations between sampled and other samples in a round.
    ridge : float, default=1
        Penalty of the hash function.
    max_iter : int, default=10
        Number of rounds.
    drop_unlabelled : bool, int or str, default=False
        Drop rows without a label (None, NaN, "", an empty set, a row of zeros) instead of raising; a value such as -1
        or "unknown" also drops the rows that have it as their label.
    random_state : int, RandomState instance or None, default=None
        Draws the initial random codes and the sampled columns.

    Attributes
    ----------
    projection_ : (n_features_in, n_bits) the hash function is ``sign(X @ projection_ + intercept_)``
    intercept_ : (n_bits,) 0, or the bit itself if all samples share it
    classes_ : (c,) the classes
    label_sets_ : (u, c) the label rows that occurred; the identity for single-label data
    codewords_ : (u, n_bits) for every label set, the majority bits of its samples
    codes_ : (n_samples, n_bits) learned codes of the training rows
    n_iter_ : int, rounds done
    n_dropped_ : int, rows without label

    References
    ----------
    W.-C. Kang, W.-J. Li, Z.-H. Zhou. Column Sampling Based Discrete Supervised Hashing. AAAI 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_iris(return_X_y=True)
    >>> hasher = COSDISH(n_bits=4, random_state=0).fit(scale(X), y)
    >>> hasher.transform(scale(X)).shape
    (150, 4)
    """

    n_bits: int = 8
    dissimilar: Literal["negative", "positive"] = "negative"
    n_alternations: int = 3
    ridge: float = 1
    max_iter: int = 10
    drop_unlabelled: bool | int | str = False
    random_state: int | np.random.RandomState | None = None

    def _solve(self, samples: Samples, rng: np.random.RandomState) -> Outcome:
        n_columns = min(self.n_bits, samples.n - 1)
        H = sign(rng.normal(size=(samples.n, self.n_bits)))
        for _ in range(self.max_iter):
            columns = np.asarray(sample_without_replacement(samples.n, n_columns, random_state=rng))
            S = _similarity(samples, columns, -1.0 if self.dissimilar == "negative" else 1.0)
            for _ in range(self.n_alternations):
                H = _omega_step(H, S, columns)
                H = _gamma_step(H, S, columns)
        P = Ridge(samples.K, self.ridge).solve(samples.X.transposed_times(H))
        return Outcome(P, H, self.max_iter)


def _similarity(samples: Samples, columns: NDArray[np.intp], direction: float) -> Floats:
    """Columns of S, (n, k): 1 for a shared label, direction * r for none."""
    label_rows = samples.statistics.rows
    shared = shared_label(label_rows, label_rows[samples.ids[columns]])[samples.ids]
    n_dissimilar = shared.size - int(shared.sum())
    ratio = shared.sum() / n_dissimilar if n_dissimilar else 0.0
    return np.where(shared, 1.0, direction * ratio)


def _omega_step(H: Codes, S: Floats, columns: NDArray[np.intp]) -> Codes:
    """The bits of the sampled items, one after the other, each fitted to the residual of the bits before it.

    With R = L S - sum_{m<k} h_m h_m', bit k minimises ||R_O - b b'||^2 + ||R_G - h_k b'||^2, that is
    -2 b'R_O b - 2 (R_G'h_k)'b, over b in {-1, +1}.

    Paper: the approximate solution is taken whatever it is worth. Here it must not be worse than the bits it replaces
    (``test_no_bit_step_raises_its_cost``).
    """
    H = H.copy()
    others = np.ones(len(H), dtype=bool)
    others[columns] = False
    residual = H.shape[1] * S  # (n, k)
    for bit in range(H.shape[1]):
        quadratic = -2 * residual[columns]
        np.fill_diagonal(quadratic, 0.0)
        linear = -2 * (residual[others].T @ H[others, bit].astype(np.float64))
        old = H[columns, bit].astype(np.float64)
        new = _balanced_half(quadratic, linear)
        before = _cost(old, quadratic, linear)
        if _cost(new, quadratic, linear) <= before + 10.0**-DIGITS * abs(before):
            H[columns, bit] = new
        residual -= np.outer(H[:, bit], H[columns, bit])
    return H


def _gamma_step(H: Codes, S: Floats, columns: NDArray[np.intp]) -> Codes:
    """H_G = sgn(S_G H_O) for all items but the sampled ones; bits stay where the score is 0."""
    scores = S @ H[columns].astype(np.float64)
    fresh = np.where(np.abs(scores) < TIE, H, sign(scores)).astype(np.int8)
    fresh[columns] = H[columns]
    return fresh


def _cost(b: Floats, quadratic: Floats, linear: Floats) -> float:
    """The value b'A b + p'b."""
    return float(b @ quadratic @ b + linear @ b)


def _balanced_half(quadratic: Floats, linear: Floats) -> Floats:
    """Approximate argmin of b'A b + p'b over signs of which half are +1, (k,).

    With b = 2 x - 1 the problem is to choose half of the items, a constant one among them, with small x'Q x. In the
    geometry of a factor of lam I - Q that is the tightest cluster of that size: the best among the neighbourhoods of
    single items is within a factor of 2. The squared distance of two items is 2 lam + 2 Q_ij, so no factor is needed.
    Items of one class are often equal, so Q is rounded: the choice must not depend on the order of summation.
    """
    k = len(linear)
    Q = np.zeros((k + 1, k + 1))
    Q[:k, :k] = 4 * quadratic
    Q[:k, k] = Q[k, :k] = linear - 2 * quadratic.sum(axis=1)
    Q = np.round(Q / max(float(np.abs(Q).max()), np.finfo(float).tiny), DIGITS)
    distances = Q[:, :k].copy()
    distances[np.arange(k), np.arange(k)] = -np.inf  # the nearest item of an item is itself
    chosen = np.argsort(distances, axis=1, kind="stable")[:, : (k + 2) // 2 - 1]
    x = np.zeros((k + 1, k + 1))
    np.put_along_axis(x, chosen, 1.0, axis=1)
    x[:, k] = 1.0
    costs = np.round(np.sum((x @ Q) * x, axis=1), DIGITS)
    return np.asarray(2 * x[costs.argmin(), :k] - 1)
