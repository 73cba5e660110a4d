"""PCA with Iterative Quantization (PCA-ITQ). Y. Gong and S. Lazebnik, 2011.

The rotation of the principal directions that brings the rows nearest to the corners of a cube, found by alternation:
codes for a given rotation, then the rotation for given codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shorthash._arrays import Codes, Floats
from shorthash._validation import MAX_BITS
from shorthash.codes.signs import sign
from shorthash.data.rows import Rows
from shorthash.learners.base import UnsupervisedHasher
from shorthash.learners.pcarr import PCA_LIMIT
from shorthash.learners.solvers import polar, principal_directions, random_rotation


@dataclass(eq=False, repr=False)
class PCAITQ(UnsupervisedHasher):
    r"""PCA with Iterative Quantization.

    Minimises the quantisation error by alternation over codes and rotation,

    .. math:: \|H - ZR\|^2, \quad R^TR = I,\ H \in \{-1, +1\}^{n \times L}

    where

    - :math:`Z` (n, L) are the centred rows in their first L principal directions,
    - :math:`R` (L, L) is the rotation, random at first,
    - :math:`H` (n, L) are the codes.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64, and at most the number of features.
    max_iter : int, default=50
        Maximum number of iterations, as in the paper; fewer if the codes stop changing.
    random_state : int, RandomState instance or None, default=None
        Draws the first rotation.

    Attributes
    ----------
    projection_ : (n_features_in, n_bits) the rotated principal directions
    intercept_ : (n_bits,) -mean_ @ projection_
    mean_ : (n_features_in,) the training mean
    rotation_ : (n_bits, n_bits) R
    objective_ : (n_iter_,) the quantisation error after every iteration
    n_iter_ : int, iterations done

    References
    ----------
    Y. Gong, S. Lazebnik. Iterative Quantization: A Procrustean Approach to Learning Binary Codes. CVPR 2011,
    pages 817-824.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, _ = load_iris(return_X_y=True)
    >>> hasher = PCAITQ(n_bits=3, random_state=0).fit(X)
    >>> hasher.transform(X).shape, bool(hasher.objective_[-1] <= hasher.objective_[0])
    ((150, 3), True)
    """

    _limit: ClassVar[tuple[str, str]] = PCA_LIMIT

    n_bits: int = 8
    max_iter: int = 50
    random_state: int | np.random.RandomState | None = None

    def max_bits(self, n_features: int, n_classes: int | None = None) -> int:  # noqa: ARG002
        """One bit per principal direction."""
        return min(MAX_BITS, n_features)

    def _learn(self, rows: Rows, mean: Floats, rng: np.random.RandomState) -> None:
        """Find the principal directions and the rotation."""
        V = principal_directions(rows, self.n_bits)
        self.rotation_, self.objective_ = learn_rotation(rows.times(V), self.max_iter, rng)
        self.n_iter_ = len(self.objective_)
        self._set_hyperplanes(mean, V @ self.rotation_)


def learn_rotation(Z: Floats, max_iter: int, rng: np.random.RandomState) -> tuple[Floats, Floats]:
    """The rotation R, (L, L), and the error ``||H - Z R||^2`` after every iteration, which never rises.

    Legend: Z (n, L) embedded rows, H (n, L) codes, R (L, L) rotation; symbols as in the paper (V, B, R).
    """
    n, n_bits = Z.shape
    squares = float((Z**2).sum())
    R = random_rotation(n_bits, rng)
    H = sign(Z @ R)
    errors: list[float] = []
    while len(errors) < max_iter:
        R, fit = _r_step(Z, H)
        errors.append(n * n_bits - 2.0 * fit + squares)
        after = sign(Z @ R)
        if np.array_equal(after, H):  # R is optimal for these codes already
            break
        H = after
    return R, np.array(errors)


def _r_step(Z: Floats, H: Codes) -> tuple[Floats, float]:
    """R = argmax tr(R'Z'H) over rotations, and that maximum."""
    ZtH = Z.T @ H.astype(np.float64)
    R = polar(ZtH)
    return R, float((R * ZtH).sum())
