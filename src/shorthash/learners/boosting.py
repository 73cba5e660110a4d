"""Choosing the best L of T x L bits (paper, section 2.2): balanced, and unlike each other.

Both rules need only two sums over samples, so bits can be chosen from group statistics as well as from codes: the Gram
matrix of the bits, ``H'H``, and their sums, ``1'H``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from shorthash._types import Floats

__all__ = ["STRATEGIES", "select_bits"]


def select_bits(gram: Floats, sums: Floats, n_bits: int, strategy: str, rng: np.random.RandomState) -> NDArray[np.intp]:
    """Numbers of the ``n_bits`` chosen bits, ascending.

    Parameters
    ----------
    gram : (T L, T L) H'H of all bits of all runs
    sums : (T L,) 1'H of the same
    n_bits : L
    strategy : a key of ``STRATEGIES``
        - "mb": spectral clustering of the bits into L clusters by absolute correlation, the most balanced bit of each;
        - "ob": the L most balanced bits (MoBoost as we read it);
        - "positionwise": for every position, the most balanced of its T candidates.

    Paper: the text calls the proposed boosting OB and the original one MB; its tables have it the other way round
    (the row G+MB equals the row RSLH), and so have we.
    """
    return np.sort(STRATEGIES[strategy](np.abs(gram), np.abs(sums), n_bits, rng))


def _modified(affinity: Floats, imbalance: Floats, n_bits: int, rng: np.random.RandomState) -> NDArray[np.intp]:
    """The most balanced bit of every spectral cluster; clusters that stay empty are filled with the best left over."""
    labels = _spectral_clusters(affinity, n_bits, rng)
    chosen = []
    for cluster in range(n_bits):
        members = np.flatnonzero(labels == cluster)
        if len(members):
            chosen.append(members[np.argmin(imbalance[members])])  # ties: the first in order of (run, bit)
    by_balance = np.argsort(imbalance, kind="stable")
    left = by_balance[~np.isin(by_balance, chosen)]
    return np.concatenate([np.array(chosen, dtype=np.intp), left[: n_bits - len(chosen)]])


def _original(affinity: Floats, imbalance: Floats, n_bits: int, rng: np.random.RandomState) -> NDArray[np.intp]:  # noqa: ARG001
    """The most balanced bits of all."""
    return np.argsort(imbalance, kind="stable")[:n_bits]


def _positionwise(
    affinity: Floats,  # noqa: ARG001
    imbalance: Floats,
    n_bits: int,
    rng: np.random.RandomState,  # noqa: ARG001
) -> NDArray[np.intp]:
    """For every bit position the most balanced of its candidates."""
    by_run = imbalance.reshape(-1, n_bits)
    return np.asarray(by_run.argmin(axis=0) * n_bits + np.arange(n_bits))


def _spectral_clusters(affinity: Floats, n_clusters: int, rng: np.random.RandomState) -> NDArray[np.intp]:
    """k-means on the eigenvectors of the smallest eigenvalues of I - D^-1/2 A D^-1/2, rows not normalised."""
    if n_clusters == 1:
        return np.zeros(len(affinity), dtype=np.intp)
    root = 1.0 / np.sqrt(affinity.sum(axis=1))
    laplacian = np.eye(len(affinity)) - root[:, None] * affinity * root[None, :]
    _, vectors = np.linalg.eigh(laplacian)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # equal bits leave clusters empty; the caller fills them
        labels = KMeans(n_clusters, n_init=10, random_state=rng).fit_predict(vectors[:, :n_clusters])
    return np.asarray(labels, dtype=np.intp)


STRATEGIES: dict[str, Callable[[Floats, Floats, int, np.random.RandomState], NDArray[np.intp]]] = {
    "mb": _modified,
    "ob": _original,
    "positionwise": _positionwise,
}
