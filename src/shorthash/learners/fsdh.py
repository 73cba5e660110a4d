"""Fast Supervised Discrete Hashing (FSDH). J. Gui, T. Liu, Z. Sun, D. Tao, T. Tan, TPAMI 2018.

SDH with the regression reversed: codes are regressed on labels, not labels on codes, so the step of the codes is a
sign.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from shorthash._arrays import Floats
from shorthash.learners.samples import LabelCodeHasher
from shorthash.learners.solvers import LabelGram
from shorthash.learners.sums import GroupStatistics


@dataclass(eq=False, repr=False)
class FSDH(LabelCodeHasher):
    r"""Fast Supervised Discrete Hashing.

    Learns codes that a linear map of the labels predicts, by alternation on

    .. math::
        \|H - YW\|^2 + \lambda\|W\|^2 + \nu\bigl(\|H - XP\|^2 + \rho\|P\|^2\bigr), \quad H \in \{-1, +1\}^{n \times L}

    where

    - :math:`X` (n, d) are the features and :math:`Y` (n, c) the labels,
    - :math:`H` (n, L) are the codes,
    - :math:`W` (c, L) regresses codes on labels,
    - :math:`P` (d, L) projects features on codes, and :math:`\rho` is its ridge.

    With one label per sample the codes never change: W holds the means of the codes of each class, whose signs are
    those codes again, so the initial random codewords are the result. Training needs one pass over the rows: they can
    be added (``partial_fit``, ``merge``) and removed (``forget``).

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64.
    lam : float, default=1
        Ridge on W.
    nu : float, default=1e-5
        Weight of the agreement of codes and projected features.
    ridge : float, default=1e-2
        Ridge on P, during the alternation and for the final hash function.
    max_iter : int, default=5
        Maximum number of iterations; the alternation stops when the codes stop changing.
    drop_unlabelled : bool, int or str, default=False
        Drop rows without a label (None, NaN, "", an empty set, a row of zeros) instead of raising; a value such as -1
        or "unknown" also drops the rows that have it as their label.
    random_state : int, RandomState instance or None, default=None
        Seeds the initial random codewords.

    Attributes
    ----------
    projection_ : (n_features_in, n_bits) the hash function is ``sign(X @ projection_ + intercept_)``
    intercept_ : (n_bits,) 0, or the bit itself if all samples share it
    classes_ : (c,) the classes
    label_sets_ : (u, c) the label rows that occurred; the identity for single-label data
    codewords_ : (u, n_bits) the learned code of every label set; of every class, for single-label data
    codes_ : (n_samples, n_bits) learned codes of the training rows; only after ``fit`` on all rows
    statistics_ : GroupStatistics, the sums
    objective_ : (n_iter_,) the objective after every iteration
    n_iter_ : int, iterations done
    n_samples_seen_ : int, rows learned from and not forgotten
    n_dropped_ : int, rows without label in the last call

    References
    ----------
    J. Gui, T. Liu, Z. Sun, D. Tao, T. Tan. Fast Supervised Discrete Hashing. IEEE Transactions on Pattern Analysis and
    Machine Intelligence 40(2), 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> hasher = FSDH(n_bits=4, random_state=0).fit(X - X.mean(axis=0), y)
    >>> hasher.codewords_.shape
    (3, 4)
    """

    n_bits: int = 8
    lam: float = 1
    nu: float = 1e-5
    ridge: float = 1e-2
    max_iter: int = 5
    drop_unlabelled: bool | int | str = False
    random_state: int | np.random.RandomState | None = None

    def _label_term(self, seen: GroupStatistics) -> _Regression:
        return _Regression(seen, self.n_bits, self.lam)


class _Regression:
    """F = Yg W, the regression of codes on labels (Yg: label rows of the sets)."""

    def __init__(self, seen: GroupStatistics, n_bits: int, lam: float) -> None:
        self.Yg = sparse.csr_array(seen.rows.astype(np.float64))
        self.N = seen.counts
        self.gram = LabelGram(self.Yg, seen.counts)
        self.n_bits = n_bits
        self.lam = lam

    def start(self, rng: np.random.RandomState) -> Floats:
        """F for random codewords.

        Paper: every sample starts with a code of its own. The first W then holds the class means of random signs, whose
        signs are random codewords: the same start, drawn at once (``test_locks_itself_in``).
        """
        C = 2 * rng.randint(0, 2, size=(len(self.N), self.n_bits)) - 1
        return self.step(self.N[:, None] * C)[0]

    def step(self, EtH: Floats) -> tuple[Floats, float]:
        """W = (Y'Y + lam I)^-1 Y'H, (c, L); F = Yg W and the penalty lam ||W||^2."""
        W = self.gram.solve(np.asarray(self.Yg.T @ EtH), self.lam)
        return np.asarray(self.Yg @ W), self.lam * float(np.sum(W**2))
