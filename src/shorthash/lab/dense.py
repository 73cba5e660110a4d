"""RSLH with the n x n similarity in memory, as a naive program has it: the third row of the cost table.

The same alternation as ``RSLH(similarity="S", boosting=None, solver="per-sample")`` (legend: learners/rslh/steps.py),
with every matrix in full. It exists to be measured, not to be used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.preprocessing import LabelBinarizer

from shorthash._types import Floats
from shorthash.codes.signs import sign

__all__ = ["DENSE", "fit_dense"]

DENSE = "rslh-dense"  # how a specification asks for it
ALPHA, BETA, GAMMA, MU, LAM, RIDGE = 3.0, 1e-2, 1e-5, 1e-5, 1e-6, 1e-5  # defaults of RSLH
MAX_ITER = 6


def fit_dense(X: Floats, y: ArrayLike, start: Floats) -> dict[str, Any]:
    """Alternate on full matrices, from codewords ``start`` (c, L); returns codewords, projection and iterations.

    Parameters
    ----------
    X : (n, d) features
    y : (n,) class labels
    start : (c, L) first codewords, in the order of the sorted classes
    """
    Y = LabelBinarizer(sparse_output=False).fit_transform(np.asarray(y)).astype(np.float64)
    X = np.asarray(X, dtype=np.float64)
    S = 2.0 * (Y @ Y.T > 0) - 1.0  # n x n: what all this is about
    H = Y @ start
    B, P = np.zeros(H.shape), np.zeros((X.shape[1], H.shape[1]))
    inverse = np.linalg.inv(np.eye(Y.shape[1]) + ALPHA * Y.T @ Y)
    XtX = X.T @ X
    n_iter = 0
    while n_iter < MAX_ITER:
        previous, n_iter = H, n_iter + 1
        W = (B + ALPHA * H).T @ Y @ inverse
        U, _, Vt = np.linalg.svd(Y @ W.T + BETA * H + GAMMA * S @ H + MU * X @ P, full_matrices=False)
        B = U @ Vt
        H = sign(ALPHA * Y @ W.T + BETA * B + GAMMA * S @ B).astype(np.float64)
        P = np.linalg.solve(XtX + LAM / MU * np.eye(len(XtX)), X.T @ B)
        if np.array_equal(H, previous):
            break
    projection = np.linalg.solve(XtX + RIDGE * np.eye(len(XtX)), X.T @ H)
    return {"codewords": sign(Y.T @ H), "projection": projection, "n_iter": n_iter}
