r"""Encoders for any learner with codewords: better hash functions than the linear one, for the same codewords.

The linear hash function of a learner with codewords C is ``sign(s(x) C)``, s(x) being class scores by ridge
regression: with many classes the small scores of the wrong ones outvote the right one. The encoders here use the same
codewords, the same features and the same bits.

Ridge scores are ``s(x) = x P`` with ``P = (K + ridge I)^-1 X'E``, the regression of the indicator E of the label sets
on the features. Ridge regression is linear in its target, so ``s(x) C`` is the regression of the codewords C: the
linear hash function of every learner that ends with one. Logistic scores are log-posteriors, less their mean.

An encoder makes its choices on *held-out* scores of the training rows: those of a model that did not see the row. For
ridge they are exact and need no further fit: with h = x (K + ridge I)^-1 x', the scores of a row that was left out are
``(s - h e) / (1 - h)``, e being the indicator of its own label set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse, special
from scipy.optimize import minimize_scalar
from sklearn.base import clone
from sklearn.utils import check_random_state

from shorthash._arrays import Codes, Features, Floats
from shorthash._labels import LabelGroups, shared_label
from shorthash._rounding import (
    FEW,
    SINGLE_ERROR,
    UNIT,
    Rounded,
    Scored,
    best_table_word,
    best_word,
    by_itself,
    linear,
    product,
    softmax,
    table_gains,
)
from shorthash.codes.levels import leave_one_out_map
from shorthash.codes.signs import pack, sign, unpack
from shorthash.data.rows import Rows
from shorthash.errors import InvalidInput
from shorthash.learners.base import BaseHasher, MetaHasher
from shorthash.learners.boosting import seeded_clone
from shorthash.learners.eaph.refinement import BACKGROUND, best_rows
from shorthash.learners.eaph.table import TABLE_BITS, ap_table
from shorthash.learners.posteriors.folds import SMALLEST, PosteriorModel, draw_folds
from shorthash.learners.posteriors.models import fit_posteriors
from shorthash.learners.solvers import Ridge
from shorthash.learners.sums import GroupStatistics

Encoder = Literal["linear", "soft", "nearest", "expected-ap"]
ENCODERS = get_args(Encoder)
"""Encoders by name."""

RIDGE = 1e-5  # penalty where the learner has none
TEMPERATURES = (1e-2, 1e4)  # limits of the calibrated one
FACTORS = np.exp2(np.arange(-5, 6))  # temperatures tried for "soft", in units of the calibrated one
TRIED_ROWS = 5000  # training rows on which they are tried
ROUNDS = 5  # times the training rows are encoded again for "expected-ap"
NEARLY_ONE = 1e-8  # lower bound of 1 - h: a row with h = 1 determines its own scores


@dataclass(eq=False, repr=False)
class CodewordHasher(MetaHasher):
    r"""The codewords of a learner with a better hash function.

    .. math::
        h(x) = \mathrm{sgn}\bigl(s(x) C\bigr) \ \text{(linear)},\quad
        \mathrm{sgn}\bigl(p(x) (C - \bar C)\bigr) \ \text{(soft)},\quad
        C_{\arg\max_k s_k(x)} \ \text{(nearest)},\quad
        \arg\max_z\ p(x) \cdot A_z \ \text{(expected-ap)}

    where

    - :math:`C` (u, L) are the learner's codewords, one per label set, and :math:`\bar C` is their mean,
    - :math:`s(x)` are scores of the label sets, from the same features,
    - :math:`p(x) = \mathrm{softmax}(\tau s(x))` with the temperature :math:`\tau`,
    - :math:`A_{zk}` is the expected tie-aware average precision of a query of label set k at code z.

    "linear" is the learner's own hash function where that is a ridge regression of its codes. "soft" tends to "linear"
    for small :math:`\tau` (if the scores of a row sum to 0, as those of centred features do) and to "nearest" for large
    :math:`\tau`. "expected-ap" starts from the nearest codewords and encodes the training rows again five times, each
    time for the masses in cells after the last time; it takes the table with the largest expected mAP.
    Queries and database are encoded by the same rule. It is ``EAPH`` without the effect of an item on the precision of
    others.

    Parameters
    ----------
    estimator : BaseHasher
        The learner of the codewords; cloned. It must set ``codewords_``, one per label set. In a pipeline,
        ``CodewordHasher`` takes the place of the learner, after the kernel, which should centre.
    encoder : {"linear", "soft", "nearest", "expected-ap"}, default="soft"
        How scores become codes; "expected-ap" is for codes of up to 16 bits.
    scores : {"ridge", "logistic"}, default="ridge"
        - "ridge": ridge regression of the label sets, without intercept;
        - "logistic": log-posteriors of a log-linear model, which chooses its own penalty out of fold.
    temperature : float or None, default=None
        :math:`\tau`. None chooses it on held-out scores of the training rows: for "soft" by the leave-one-out mAP of
        their codes, for "expected-ap" by log-loss.
    ridge : float or None, default=None
        Penalty of the ridge scores; None is that of the learner (its parameter ``ridge``), 1e-5 if it has none.
    random_state : int, RandomState instance or None, default=None
        Seeds the folds and the learner; None leaves the learner's own seeds as they are.

    Attributes
    ----------
    estimator_ : the fitted learner
    classes_ : (c,) the classes
    label_sets_ : (u, c) the label rows that occurred
    codewords_ : (u, n_bits) the learner's codewords; for "expected-ap", the code of an item whose label set is certain
    codes_ : (n_samples, n_bits) codewords of the training rows by their labels
    scores_ : the fitted scores
    temperature_ : float, the temperature; for "soft" and "expected-ap"
    cells_ : (m, n_bits) the codes in use; for "expected-ap"
    table_ : (m, u) float32, the rows of A for them; for "expected-ap"
    n_dropped_ : int, rows without label

    References
    ----------
    A. Sablayrolles, M. Douze, N. Usunier, H. Jegou. How Should We Evaluate Supervised Hashing? ICASSP 2017 ("nearest",
    as a baseline). The other two are ours.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shorthash.learners.rslh.estimator import RSLH
    >>> X, y = load_iris(return_X_y=True)
    >>> hasher = CodewordHasher(RSLH(n_bits=4, init="separated", boosting=None), encoder="nearest", random_state=0)
    >>> codes = hasher.fit(X - X.mean(axis=0), y).transform(X - X.mean(axis=0))
    >>> codes.shape, hasher.codewords_.shape
    ((150, 4), (3, 4))
    """

    _positive: ClassVar[tuple[str, ...]] = ("temperature",)
    _limit: ClassVar[tuple[str, str]] = (
        "its expected precisions fill a table of all codes",
        "use fewer bits, or encoder='soft'",
    )

    estimator: BaseHasher
    encoder: Encoder = "soft"
    scores: Literal["ridge", "logistic"] = "ridge"
    temperature: float | None = None
    ridge: float | None = None
    random_state: int | np.random.RandomState | None = None

    def max_bits(self, n_features: int, n_classes: int | None = None) -> int:
        """What the learner can learn, and the encoder encode."""
        longest = self.estimator.max_bits(n_features, n_classes)
        return min(longest, TABLE_BITS) if self.encoder == "expected-ap" else longest

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn codewords, scores, and the parameters of the encoder.

        Parameters
        ----------
        X : (n_samples, n_features) training rows
        y : labels, as the learner takes them
        """
        self._check_params()
        ridge = getattr(self.estimator, "ridge", RIDGE) if self.ridge is None else self.ridge
        rows = self._training_rows(X)
        rng = check_random_state(self.random_state)
        learner = clone(self.estimator) if self.random_state is None else seeded_clone(self.estimator, rng)
        self._check_table_length(learner)
        learner.fit(rows.X, y)
        groups = _label_sets_of(learner, y, len(rows))
        kept = rows.keep(groups.kept)
        model, held_out = fit_ridge(kept, groups, ridge) if self.scores == "ridge" else fit_logistic(kept, groups, rng)
        self.estimator_, self.scores_ = learner, model
        self.classes_, self.label_sets_ = learner.classes_, groups.rows
        self.codewords_ = np.asarray(learner.codewords_)
        self.n_dropped_ = len(rows) - len(kept)
        if self.encoder in ("soft", "expected-ap"):
            self._prepare(held_out(), groups, rng)
        self.codes_ = self.codewords_[groups.ids]
        return self

    def _scores(self, X: Rounded, *, exact: bool) -> Scored:
        """Scores of the bits, (n_samples, n_bits), whose signs are the code.

        For "nearest" and "expected-ap", the magnitude is what the best codeword, or code, with the other bit would
        lose.
        """
        S = self._class_scores(X, exact=exact)
        if self.encoder == "linear":
            return _linear(S, self.codewords_, exact=exact)
        if self.encoder == "soft":
            return _soft(S, self.codewords_, self.temperature_, exact=exact)
        if self.encoder == "nearest":
            return best_word(S, self.codewords_, exact=exact)
        return best_table_word(softmax(S, self.temperature_), self.table_, self.cells_, exact=exact)

    def _class_scores(self, X: Rounded, *, exact: bool) -> Scored:
        """Scores of the label sets, (n, u)."""
        if isinstance(self.scores_, RidgeScores):
            return linear(X, self.scores_.weights, 0.0, exact=exact)
        values, error = by_itself(self.scores_.predict, X.values, exact=exact, relative_error=SINGLE_ERROR)
        return Scored(np.asarray(values, dtype=np.float64), error)

    def _prepare(self, S: Floats, groups: LabelGroups, rng: np.random.RandomState) -> None:
        """Temperature and, for "expected-ap", the table; from held-out scores of the training rows."""
        tau = float(self.temperature) if self.temperature is not None else _calibrated(S, groups.ids)
        if self.encoder == "soft" and self.temperature is None:
            tau = _best_temperature(tau, S, self.codewords_, groups, rng)
        self.temperature_ = tau
        if self.encoder == "expected-ap":
            cells, self.table_ = _expected_ap_table(special.softmax(tau * S, axis=1), self.codewords_, groups)
            self.cells_ = unpack(cells, self.codewords_.shape[1])
            self.codewords_ = self.cells_[self.table_.argmax(axis=0)]

    def _check_table_length(self, learner: BaseHasher) -> None:
        """Raise if a table would be too large; lengths that the learner cannot learn are left to its own check."""
        n_bits, known = self.n_bits, isinstance(self.n_bits, int)
        if self.encoder == "expected-ap" and known and TABLE_BITS < n_bits <= learner.max_bits(self.n_features_in_):
            self._check_length(self.n_features_in_)

    @property
    def _n_features_out(self) -> int:
        return int(self.codewords_.shape[1])


@dataclass(frozen=True)
class RidgeScores:
    """Ridge regression of the indicator of the label sets."""

    weights: Floats  # (d, u)

    def predict(self, X: Features) -> Floats:
        """Scores of the label sets."""
        return np.asarray(X @ self.weights)


@dataclass(frozen=True)
class LogPosterior:
    """Logarithms of calibrated posteriors, less their mean over the label sets."""

    posterior: PosteriorModel

    def predict(self, X: Features) -> Floats:
        """Scores of the label sets."""
        return _centred_log(self.posterior.predict(np.asarray(X, dtype=np.float32)))


def fit_ridge(rows: Rows, groups: LabelGroups, ridge: float) -> tuple[RidgeScores, Callable[[], Floats]]:
    """Ridge scores, and a function that computes the held-out ones, (n, u), in a second pass."""
    seen = GroupStatistics.of(rows, groups)
    solver = Ridge(seen.gram, ridge)
    model = RidgeScores(solver.solve(seen.sums))

    def held_out() -> Floats:
        scores = np.empty((len(rows), len(groups.rows)))
        for part, batch in rows:
            X, ids = batch.astype(np.float64), groups.ids[part]
            h = np.einsum("ij,ji->i", X, solver.solve(X.T))
            S = model.predict(X)
            S[np.arange(len(ids)), ids] -= h
            scores[part] = S / np.maximum(1 - h, NEARLY_ONE)[:, None]
        return scores

    return model, held_out


def fit_logistic(
    rows: Rows, groups: LabelGroups, rng: np.random.RandomState
) -> tuple[LogPosterior, Callable[[], Floats]]:
    """Scores of a log-linear model, which chooses its own penalty; held-out scores are out-of-fold."""
    X = np.concatenate([np.asarray(batch, dtype=np.float32) for _, batch in rows])
    folds = draw_folds(groups.ids, rng, every=True)
    [(_, fitted)] = fit_posteriors("logistic", X, groups.ids, groups.rows, folds)
    return LogPosterior(fitted.model), lambda: _centred_log(fitted.oof)


def _centred_log(P: Features) -> Floats:
    logs = np.log(np.maximum(P.astype(np.float64), SMALLEST))
    return np.asarray(logs - logs.mean(axis=1, keepdims=True))


def _label_sets_of(learner: Any, y: ArrayLike, n_samples: int) -> LabelGroups:
    """The label set of every row, in the order of the learner's codewords."""
    if not hasattr(learner, "codewords_"):
        raise InvalidInput(
            f"CodewordHasher needs a learner with one codeword per class, but {type(learner).__name__} has none "
            "(no attribute 'codewords_'); use one that has, such as RSLH."
        )
    groups: LabelGroups = learner._training_groups(
        y, n_samples, drop_unlabelled=bool(getattr(learner, "drop_unlabelled", False))
    )
    assert len(learner.codewords_) == len(groups.rows)
    return groups


def _linear(S: Scored, C: Codes, *, exact: bool) -> Scored:
    """Score-weighted sums of the codewords; a bit that all of them share is constant."""
    shared = _shared(C)
    sums = product(S.values, C.astype(np.float64), exact=exact)
    size = np.abs(S.values).sum(axis=1, keepdims=True)
    bound = np.broadcast_to(S.bound, S.values.shape).sum(axis=1, keepdims=True) + (len(C) + FEW) * UNIT * size
    return Scored(np.where(shared, C[0], sums), np.where(shared, 0.0, bound))


def _soft(S: Scored, C: Codes, tau: float, *, exact: bool) -> Scored:
    """Posterior-weighted sums of the codewords, about their mean; a bit that all of them share is constant."""
    center = np.where(_shared(C), 0.0, C.mean(axis=0))
    return table_gains(softmax(S, tau), (C - center).T, exact=exact)


def _shared(C: Codes) -> NDArray[np.bool_]:
    """Which bits all codewords share, (L,)."""
    return np.asarray(np.abs(C.sum(axis=0, dtype=np.int64)) == len(C))


def _calibrated(S: Floats, ids: NDArray[np.intp]) -> float:
    """The temperature of least log-loss, which is convex in it."""
    own = S[np.arange(len(ids)), ids]

    def loss(log_tau: float) -> float:
        tau = np.exp(log_tau)
        return float(np.mean(special.logsumexp(tau * S, axis=1) - tau * own))

    found = minimize_scalar(loss, bounds=tuple(np.log(TEMPERATURES)), method="bounded", options={"xatol": 0.01})
    return float(np.exp(found.x))


def _best_temperature(tau: float, S: Floats, C: Codes, groups: LabelGroups, rng: np.random.RandomState) -> float:
    """Of some temperatures around ``tau`` the one whose codes retrieve best among the training rows."""
    tried = np.sort(rng.permutation(len(S))[:TRIED_ROWS])
    Y = groups.rows[groups.ids[tried]]
    held_out = Scored(S[tried], 0.0)
    values = [leave_one_out_map(sign(_soft(held_out, C, tau * factor, exact=False).values), Y) for factor in FACTORS]
    return tau * float(FACTORS[int(np.nanargmax(values))]) if np.isfinite(values).any() else tau


def _expected_ap_table(P: Floats, C: Codes, groups: LabelGroups) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Cells in use and their rows of A, from held-out posteriors P (n, u) of the training rows."""
    n, n_cells = len(P), 2 ** C.shape[1]
    rel = None if groups.single else shared_label(groups.rows, groups.rows).astype(np.float64)
    background = BACKGROUND * P.mean(axis=0)
    rows = P.astype(np.float32)
    z = pack(C).astype(np.int64)[P.argmax(axis=1)]

    def precisions(z: NDArray[np.int64]) -> tuple[NDArray[np.float32], float]:
        inside: Any = sparse.csr_array((np.full(n, 1 / n), (z, np.arange(n))), shape=(n_cells, n))
        table = ap_table(inside @ P, background, rel)
        return table.query, table.value

    A, _ = precisions(z)
    best: tuple[float, NDArray[np.int64], NDArray[np.float32]] | None = None
    for _ in range(ROUNDS):
        z, used_table = best_rows(rows, A), A
        A, value = precisions(z)
        if best is None or value > best[0]:
            best = value, np.unique(z), used_table
    assert best is not None
    return best[1], best[2][best[1]]
