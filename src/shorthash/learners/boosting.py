"""Choosing the best L of T x L bits (paper, section 2.2): balanced, and dissimilar to each other.

All rules need only two sums over samples, so bits can be chosen from group statistics as well as from codes: the Gram
matrix of the bits, ``H'H``, and their sums, ``1'H``. RSLH chooses between its own runs with ``select_bits``;
``BitBoost`` does the same for any hasher.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone, is_clusterer
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from shorthash._arrays import Codes, Floats
from shorthash._validation import check_choice
from shorthash.data.rows import Rows
from shorthash.learners.base import BaseHasher, MetaHasher
from shorthash.learners.solvers import Ridge, centred, scatter


@dataclass(eq=False, repr=False)
class BitBoost(MetaHasher):
    r"""Several runs of a hasher combined into one code: the boosting of RSLH and MoBoost, for any hasher.

    The hasher is fitted T times with different seeds. Of the T L bits of the training codes the L best are chosen, and
    regressed on the features:

    .. math:: P = (X^TX + \lambda I)^{-1} X^T H^*, \quad h(x) = \mathrm{sgn}((x - m) P)

    where

    - :math:`H^*` (n, L) are the chosen bits of the training rows,
    - :math:`X` (n, d) are the centred rows and :math:`m` is their mean,
    - :math:`\lambda` is the ridge.

    Queries are encoded once, not T times. Bits are chosen from the codes that a hasher learned for its training rows
    (``codes_``), or from their encoding if it has none.

    The rule "ob" is our reconstruction of MoBoost. Known is that the training codes of several runs are combined by the
    balance of their bits, and that only the hash function is learned again.

    Parameters
    ----------
    estimator : BaseHasher
        The hasher to run; cloned. In a pipeline, ``BitBoost`` takes the place of the hasher, after the kernel.
    n_runs : int, default=3
        Runs to choose from (T).
    strategy : {"mb", "ob", "positionwise"}, default="mb"
        - "mb": the most balanced bit of every cluster of similar bits (RSLH);
        - "ob": the most balanced bits (MoBoost, as we read it);
        - "positionwise": for every position, the most balanced of its T candidates.
    clustering : "spectral" or scikit-learn clusterer, default="spectral"
        How "mb" clusters the bits: the spectral clustering of the RSLH authors, or a clusterer, cloned, whose
        ``n_clusters`` is set to the number of bits. The similarity of bits is their absolute correlation: a clusterer
        with ``affinity="precomputed"`` gets that, one with ``metric="precomputed"`` gets one minus that, any other the
        rows of the matrix of absolute correlations.
    ridge : float, default=1e-5
        Penalty of the final projection.
    random_state : int, RandomState instance or None, default=None
        Seeds the runs and the clustering.

    Attributes
    ----------
    projection_ : (n_features_in, n_bits) P
    intercept_ : (n_bits,) -mean_ @ projection_
    mean_ : (n_features_in,) the training mean
    codes_ : (n_samples, n_bits) the chosen bits of the training rows
    chosen_bits_ : (n_bits,) which of the ``n_runs * n_bits`` bits were chosen
    estimators_ : list of the fitted hashers, one per run

    References
    ----------
    X. Liu, X. Nie, Q. Dai, Y. Huang, Y. Yin. Reinforcing Short-Length Hashing. arXiv:2004.11511, 2020.

    X. Liu, X. Nie, Y. Yin. Fusion Hashing: A General Framework for Self-improvement of Hashing. arXiv:1810.00644, 2018;
    published as MoBoost, CIKM 2019.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shorthash.learners.pcarr import PCARR
    >>> X, _ = load_iris(return_X_y=True)
    >>> hasher = BitBoost(PCARR(n_bits=4), random_state=0).fit(X)
    >>> hasher.transform(X).shape, len(hasher.estimators_), hasher.chosen_bits_.shape
    ((150, 4), 3, (4,))
    """

    estimator: BaseHasher
    n_runs: int = 3
    strategy: Literal["mb", "ob", "positionwise"] = "mb"
    clustering: str | BaseEstimator = "spectral"
    ridge: float = 1e-5
    random_state: int | np.random.RandomState | None = None

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Run, choose, regress.

        Parameters
        ----------
        X : (n_samples, n_features) training rows
        y : labels, as the hasher takes them; None for one that needs none
        """
        self._check_params()
        rows = self._training_rows(X)
        rng = check_random_state(self.random_state)
        runs = [seeded_clone(self.estimator, rng) for _ in range(self.n_runs)]
        H = np.hstack([_training_codes(run.fit(rows.X, y), rows) for run in runs])  # (n, T L)
        gram, sums = _bit_sums(H)
        n_bits = H.shape[1] // self.n_runs
        chosen = select_bits(gram, sums, n_bits, self.strategy, rng, self.clustering)
        codes = np.ascontiguousarray(H[:, chosen])
        mean, rows = centred(rows)
        P = Ridge(scatter(rows), self.ridge).solve(rows.transposed_times(codes))
        self.estimators_ = runs
        self.chosen_bits_ = chosen
        self.codes_ = codes
        self._set_hyperplanes(mean, P)
        return self

    def _check_params(self) -> None:
        super()._check_params()
        if not (isinstance(self.clustering, BaseEstimator) and is_clusterer(self.clustering)):
            check_choice(self.clustering, "clustering", "BitBoost", ["spectral"])


def seeded_clone(estimator: BaseEstimator, rng: np.random.RandomState) -> Any:
    """A copy with newly drawn seeds, also for nested estimators."""
    copy = clone(estimator)
    names = [n for n in sorted(copy.get_params(deep=True)) if n == "random_state" or n.endswith("__random_state")]
    return copy.set_params(**{name: int(rng.randint(np.iinfo(np.int32).max)) for name in names})


def _training_codes(run: BaseHasher, rows: Rows) -> Codes:
    """Codes of the training rows: as learned, if there is one for every row, else as encoded."""
    learned = getattr(run, "codes_", None)
    return run.transform(rows.X) if learned is None or len(learned) != len(rows) else np.asarray(learned)


def _bit_sums(H: Codes) -> tuple[Floats, Floats]:
    """H'H and 1'H, batch by batch."""
    gram, sums = np.zeros((H.shape[1],) * 2), np.zeros(H.shape[1])
    for _, batch in Rows(H, "BitBoost"):  # float64
        gram += batch.T @ batch
        sums += batch.sum(axis=0)
    return gram, sums


def select_bits(
    gram: Floats,
    sums: Floats,
    n_bits: int,
    strategy: str,
    rng: np.random.RandomState,
    clustering: str | BaseEstimator = "spectral",
) -> NDArray[np.intp]:
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
    rng : seeds the clustering
    clustering : "spectral", or a scikit-learn clusterer: how "mb" clusters the bits

    Paper: the text calls the proposed boosting OB and the original one MB; its tables have it the other way round
    (the row G+MB equals the row RSLH), and so have we.
    """
    affinity = np.abs(gram)
    return np.sort(STRATEGIES[strategy](np.abs(sums), n_bits, lambda: _clusters(affinity, n_bits, clustering, rng)))


def _modified(imbalance: Floats, n_bits: int, clusters: _Clusters) -> NDArray[np.intp]:
    """The most balanced bit of every cluster; if there are too few clusters, the most balanced other bits are added."""
    labels = clusters()
    by_balance = np.argsort(imbalance, kind="stable")  # ties: the first in order of (run, bit)
    _, best = np.unique(labels[by_balance], return_index=True)
    chosen = by_balance[np.sort(best)[:n_bits]]
    left = by_balance[~np.isin(by_balance, chosen)]
    return np.concatenate([chosen, left[: n_bits - len(chosen)]])


def _original(imbalance: Floats, n_bits: int, clusters: _Clusters) -> NDArray[np.intp]:  # noqa: ARG001
    """The most balanced bits of all."""
    return np.argsort(imbalance, kind="stable")[:n_bits]


def _positionwise(imbalance: Floats, n_bits: int, clusters: _Clusters) -> NDArray[np.intp]:  # noqa: ARG001
    """For every bit position the most balanced of its candidates."""
    by_run = imbalance.reshape(-1, n_bits)
    return np.asarray(by_run.argmin(axis=0) * n_bits + np.arange(n_bits))


def _clusters(
    affinity: Floats, n_clusters: int, clustering: str | BaseEstimator, rng: np.random.RandomState
) -> NDArray[np.intp]:
    """The cluster of every bit."""
    if n_clusters == 1:
        return np.zeros(len(affinity), dtype=np.intp)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # equal bits leave clusters empty; the caller handles that
        if isinstance(clustering, str):
            return _spectral_clusters(affinity, n_clusters, rng)
        return _clusters_by(clustering, affinity / affinity.diagonal().max(), n_clusters, rng)


def _spectral_clusters(affinity: Floats, n_clusters: int, rng: np.random.RandomState) -> NDArray[np.intp]:
    """k-means on the eigenvectors of the smallest eigenvalues of I - D^-1/2 A D^-1/2, rows not normalised."""
    root = 1.0 / np.sqrt(affinity.sum(axis=1))
    laplacian = np.eye(len(affinity)) - root[:, None] * affinity * root[None, :]
    _, vectors = np.linalg.eigh(laplacian)
    labels = KMeans(n_clusters, n_init=10, random_state=rng).fit_predict(vectors[:, :n_clusters])
    return np.asarray(labels, dtype=np.intp)


def _clusters_by(
    clusterer: BaseEstimator, correlation: Floats, n_clusters: int, rng: np.random.RandomState
) -> NDArray[np.intp]:
    """Clusters by a scikit-learn clusterer; bits without a cluster (-1) get a cluster each."""
    copy = seeded_clone(clusterer, rng)
    known = copy.get_params()
    if "n_clusters" in known:
        copy.set_params(n_clusters=n_clusters)
    seen = correlation
    if known.get("metric") == "precomputed":
        seen = np.maximum(1.0 - correlation, 0.0)
    labels = np.asarray(copy.fit_predict(seen), dtype=np.intp)
    alone = labels < 0
    labels[alone] = labels.max() + 1 + np.arange(alone.sum())
    return labels


_Clusters = Callable[[], NDArray[np.intp]]

STRATEGIES: dict[str, Callable[[Floats, int, _Clusters], NDArray[np.intp]]] = {
    "mb": _modified,
    "ob": _original,
    "positionwise": _positionwise,
}
"""How bits are chosen, by name: functions of imbalance, number of bits, and a function that gives the clusters."""
