r"""Codes from pairs of rows that belong together: clicks, duplicates, judgements.

Rows are grouped as without labels (``groups.py``), but pairs say how: first the space in which rows are clustered, then
the memberships, then the relevance between groups. Pairs are taken to be drawn by

.. math:: \Pr(x, x') = \frac1{n^2}\, p(x)' R\, p(x'), \qquad m' R\, m = 1, \quad m = \tfrac1n \textstyle\sum_x p(x),

and everything below raises the likelihood of pairs that were held out, or is left out:

1. *Space.* The rows as they are, or whitened by the covariance of differences within pairs, shrunk, so that directions
   in which partners differ count less.
2. *Memberships.* From the softmax of distances to clusters, a log-linear model is learned by expectation maximisation:
   each row of a pair takes the memberships that its partner makes likely,
   :math:`p(x) \circ R\, p(x')`, and the model is regressed on those, drawn towards the clusters.
3. *Relevance.* A mixture of the relevance by pairs, that by neighbours, and none, whose weights are those of maximum
   likelihood: the fewer the pairs, the more neighbours count.

The number of groups and how soft memberships are is chosen by the average precision of partners of held-out rows.

Legend::

    X       (n, d)    rows
    A, B    (k, K)    memberships of the first and the second rows of pairs
    R       (K, K)    relevance between groups
    m       (K,)      mean memberships of all rows
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from shorthash._arrays import Floats, PackedCodes
from shorthash._progress import shown
from shorthash.codes.levels import level_counts
from shorthash.errors import InvalidInput, phrase
from shorthash.learners.eaph.groups import (
    HELD_OUT,
    MOST_ROWS,
    NOTHING,
    GroupCodes,
    Memberships,
    Search,
    cluster,
    estimate_relevance,
    temperature_of,
)
from shorthash.learners.eaph.neighbours import Sample, draw_sample
from shorthash.learners.posteriors.folds import Posteriors, softmax
from shorthash.learners.posteriors.logistic import soft_gap, whitening

FEWEST = 10  # pairs, of which some can be held out
HELD_SHARE = 10  # one in this many rows with pairs is held out
MOST_PAIRS = 50_000  # for learning space and memberships; of more pairs a sample is used
SHRINKAGE = (0.5, 0.05)  # of the covariance of differences within pairs
FIRST_SOFTNESS = 0.4  # of memberships before they are learned
SOFTNESS = (0.4, 0.6, 0.8)  # tried afterwards
ROUNDS = 8  # of expectation maximisation, at most
DESCENT = 10  # steps of L-BFGS in every round
PENALTY = 1e-4  # of the squared distance from the clusters' weights, against the mean log-loss
MIXING = 50  # steps to the weights of the mixture
BLOCK = 8192  # pairs at once
GRID = 500  # points of the curve behind the lift


class RelevantPairs:
    """Pairs of rows that are relevant to each other, instead of labels.

    Parameters
    ----------
    pairs : (n_pairs, 2) numbers of rows of X; the order within a pair means nothing
    weights : (n_pairs,) how much each pair counts, such as its number of clicks; 1 if missing

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shorthash import RelevantPairs, make_hasher
    >>> X, y = load_iris(return_X_y=True)
    >>> rng = np.random.default_rng(0)
    >>> drawn = rng.integers(150, size=(600, 2))
    >>> clicks = drawn[(y[drawn[:, 0]] == y[drawn[:, 1]]) & (drawn[:, 0] != drawn[:, 1])]
    >>> hasher = make_hasher("auto", n_bits=4, random_state=0).fit(X, RelevantPairs(clicks))
    >>> hasher.score(X, y) > 0.8
    True
    """

    def __init__(self, pairs: ArrayLike, weights: ArrayLike | None = None) -> None:
        rows = np.asarray(pairs)
        if rows.ndim != 2 or rows.shape[1] != 2 or not len(rows) or rows.dtype.kind not in "iu":
            raise InvalidInput(
                f"'pairs' of {phrase('RelevantPairs')} must be whole numbers of shape (n_pairs, 2), at least one pair. "
                f"Got {rows.dtype} of shape {rows.shape} instead."
            )
        own = np.flatnonzero(rows[:, 0] == rows[:, 1])
        if len(own):
            raise InvalidInput(
                f"A pair of {phrase('RelevantPairs')} must name two different rows, but pair {own[0]} is "
                f"row {rows[own[0], 0]} twice ({len(own)} such pairs); leave them out."
            )
        self.pairs: NDArray[np.intp] = rows.astype(np.intp)
        self.weights = _checked_weights(weights, len(rows))

    def __len__(self) -> int:
        return len(self.pairs)

    def __repr__(self) -> str:
        return f"RelevantPairs of {len(self)} pairs"

    def __array__(self, *_: Any, **__: Any) -> NDArray[Any]:
        """Raise, because pairs are not labels."""
        return np.asarray(list(self))

    def __iter__(self) -> Iterator[Any]:
        raise InvalidInput(
            f"{phrase('RelevantPairs')} say which rows belong together and are no labels; learn from them with the "
            "method auto (EAPH), and score with evaluate_neighbours or evaluate(relevance=...)."
        )

    def check_rows(self, n_rows: int) -> None:
        """Raise unless every pair names rows of X.

        Parameters
        ----------
        n_rows : number of rows of X
        """
        wrong = np.flatnonzero(((self.pairs < 0) | (self.pairs >= n_rows)).any(axis=1))
        if len(wrong):
            first = self.pairs[wrong[0]]
            raise InvalidInput(
                f"{phrase('RelevantPairs')} must name rows 0 to {n_rows - 1} of X, but pair {wrong[0]} is "
                f"({first[0]}, {first[1]}) ({len(wrong)} such pairs); number rows from 0, in the order of X."
            )


def _checked_weights(weights: ArrayLike | None, n_pairs: int) -> Floats:
    """Weights of pairs, all 1 if missing."""
    if weights is None:
        return np.ones(n_pairs)
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (n_pairs,):
        raise InvalidInput(
            f"'weights' of {phrase('RelevantPairs')} must have one number per pair, shape ({n_pairs},). "
            f"Got shape {values.shape}."
        )
    wrong = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if len(wrong):
        raise InvalidInput(
            f"'weights' of {phrase('RelevantPairs')} must be finite and above 0, but pair {wrong[0]} has "
            f"{values[wrong[0]]:g} ({len(wrong)} such pairs); leave out pairs that do not count."
        )
    return values


@dataclass(frozen=True)
class Pairs:
    """Pairs by the rows they name.

    Attributes
    ----------
    X : (u, d) rows
    first, second : (k,) numbers of rows among ``X``
    weights : (k,) weights of pairs, 1 on average
    """

    X: NDArray[np.float32]
    first: NDArray[np.intp]
    second: NDArray[np.intp]
    weights: Floats

    @classmethod
    def of(cls, X: NDArray[np.float32], pairs: NDArray[np.intp], weights: Floats) -> Pairs:
        """The pairs of rows of X."""
        numbers, places = np.unique(pairs, return_inverse=True)
        first, second = places.reshape(pairs.shape).T
        return cls(X[numbers], first, second, weights / weights.mean())

    def mapped(self, model: Memberships) -> Pairs:
        """The same with rows in the space of a model."""
        return replace(self, X=model.prepared(self.X))


@shown("learning codes of pairs")
def fit_pairs(
    X: NDArray[np.float32],
    given: RelevantPairs,
    n_bits: int,
    rng: np.random.RandomState,
    *,
    metric: str,
    n_neighbors: int,
    table_bits: Callable[..., int],
    n_iter: int,
) -> GroupCodes:
    """Memberships and codes by which partners of rows that were held out are found best.

    Parameters
    ----------
    X : (n, d) training rows
    given : the pairs
    n_bits : code length
    rng : draws what is held out; seeds clustering, annealing and damping
    metric, n_neighbors : what the nearest rows are, and how many count as near
    table_bits : bits of the table, by the numbers of rows and of clusters
    n_iter : iterations of the refinement
    """
    known, hidden = _split(given.pairs, rng)
    learned = known[np.sort(rng.permutation(len(known))[:MOST_PAIRS])]
    pairs, few, held = (Pairs.of(X, given.pairs[some], given.weights[some]) for some in (known, learned, hidden))
    free = rng.permutation(len(X))[:MOST_ROWS]
    seed = int(rng.randint(np.iinfo(np.int32).max))
    best: tuple[float, Memberships, PairGoal] | None = None
    for space in _spaces(X[free], few, metric):
        own = np.random.RandomState(seed)
        rows = space.prepared(X[free])
        sample = draw_sample(rows, free[:0], np.arange(len(rows)), len(X), _metric(space, metric), n_neighbors, own)
        model = replace(space, centers=cluster(rows, own))
        model = replace(model, temperature=temperature_of(model.scores(sample.rows), FIRST_SOFTNESS))
        goal = PairGoal(sample, pairs.mapped(model), held.mapped(model))
        value = goal.likelihood(model)
        if best is None or value > best[0]:
            best = value, model, goal
    assert best is not None
    _, model, goal = best
    model = learn_memberships(model, few.mapped(model), goal)
    search = Search(goal, model, table_bits(len(goal.rows), model.n_sets), rng, n_iter, SOFTNESS)
    return search.run(n_bits)


def _split(pairs: NDArray[np.intp], rng: np.random.RandomState) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pairs to learn from, and those of rows that are held out; all for both where there are too few."""
    every, rows = np.arange(len(pairs)), np.unique(pairs)
    held = rng.permutation(rows)[: min(HELD_OUT, max(1, len(rows) // HELD_SHARE))]
    hidden = np.isin(pairs, held).any(axis=1)
    if len(pairs) < FEWEST or hidden.all():
        return every, every
    return every[~hidden], every[hidden]


def _spaces(X: NDArray[np.float32], pairs: Pairs, metric: str) -> list[Memberships]:
    """Rows as they are, and whitened by differences within pairs, more or less shrunk; without centres."""
    plain = Memberships(np.empty((0, X.shape[1])), 1.0, metric == "cosine")
    D = (pairs.X[pairs.first] - pairs.X[pairs.second]).astype(np.float64)
    within = (D * pairs.weights[:, None]).T @ D / (2 * len(D))
    scale = float(np.trace(within)) / len(within)
    if not scale > 0:
        return [plain]  # partners are equal
    shrunk = [(1 - share) * within + share * scale * np.eye(len(within)) for share in SHRINKAGE]
    shift = X.mean(axis=0, dtype=np.float64)
    return [plain, *(replace(plain, shift=shift, whitening=whitening(covariance)) for covariance in shrunk)]


def _metric(space: Memberships, metric: str) -> str:
    """What is near in a space: the given metric, or after whitening the angle or the distance."""
    if space.whitening is None:
        return metric
    return "cosine" if space.unit else "euclidean"


@dataclass(frozen=True)
class PairGoal:
    """Partners of rows are relevant to them.

    Attributes
    ----------
    sample : the database, and lists of neighbours in it
    pairs : to learn from, prepared
    held_pairs : pairs that were held out, prepared
    """

    sample: Sample
    pairs: Pairs
    held_pairs: Pairs

    @property
    def rows(self) -> NDArray[np.float32]:
        """The database that codes are designed for."""
        return self.sample.rows

    @property
    def held(self) -> NDArray[np.float32]:
        """First rows of the held-out pairs, then their partners."""
        pairs = self.held_pairs
        return np.asarray(pairs.X[np.concatenate([pairs.first, pairs.second])])

    def relevance(self, model: Memberships, P: Posteriors) -> tuple[Floats, Floats]:
        """The mixture of pairs, neighbours and nothing that makes held-out pairs most likely, twice."""
        R = self._mixed(model, P)[0]
        return R, R

    def likelihood(self, model: Memberships) -> float:
        """Mean log-likelihood of held-out pairs, against that of any two rows."""
        return self._mixed(model, memberships(model, self.rows))[1]

    def _mixed(self, model: Memberships, P: Posteriors) -> tuple[Floats, float]:
        m = P.mean(axis=0, dtype=np.float64)
        parts = [
            relevance_of_pairs(memberships(model, self.pairs.X), self.pairs, m),
            estimate_relevance(P, self.sample.listed, self.sample.lists[:, : self.sample.near]),
            np.ones((len(m), len(m))),
        ]
        parts = [part / max(float(m @ part @ m), NOTHING) for part in parts]
        Q, pairs = memberships(model, self.held_pairs.X), self.held_pairs
        A, B = Q[pairs.first].astype(np.float64), Q[pairs.second].astype(np.float64)
        chances = np.stack([np.einsum("ij,ij->i", A @ part, B) for part in parts], axis=1)
        shares, value = mixture(chances, pairs.weights)
        R = sum(share * part for share, part in zip(shares, parts, strict=True))
        return np.asarray(R), value

    def scores(self, held: PackedCodes, items: PackedCodes, n_bits: int) -> dict[str, float]:
        """Average precision of partners of held-out rows, in multiples of chance."""
        one, two = held[: len(held) // 2], held[len(held) // 2 :]
        weights = np.tile(self.held_pairs.weights, 2)
        queries, partners = np.concatenate([one, two]), np.concatenate([two, one])
        return {"lift": lift(queries, partners, items, n_bits, weights)}

    def value(self, scores: dict[str, float]) -> float:
        """The lift."""
        return scores["lift"]


def memberships(model: Memberships, X: NDArray[np.float32]) -> Posteriors:
    """Memberships of prepared rows, (n, K)."""
    return softmax(model.temperature * model.scores(X))


def relevance_of_pairs(P: Posteriors, pairs: Pairs, m: Floats) -> Floats:
    """R of maximum likelihood of pairs in either order, (K, K); P are memberships of their rows, m those of all."""
    first = np.concatenate([pairs.first, pairs.second])
    second = np.concatenate([pairs.second, pairs.first])
    return estimate_relevance(P, first, second[:, None], np.tile(pairs.weights, 2), items=m)


def mixture(chances: Floats, weights: Floats) -> tuple[Floats, float]:
    """Shares of a mixture of maximum likelihood, (c,), and the mean logarithm of it.

    Parameters
    ----------
    chances : (k, c) of every case under every part
    weights : (k,) of the cases
    """
    shares = np.full(chances.shape[1], 1 / chances.shape[1])
    for _ in range(MIXING):
        parts = chances * shares
        parts /= np.maximum(parts.sum(axis=1, keepdims=True), NOTHING)
        shares = np.average(parts, axis=0, weights=weights)
        shares /= shares.sum()
    return shares, float(np.average(np.log(np.maximum(chances @ shares, NOTHING)), weights=weights))


def lift(queries: PackedCodes, partners: PackedCodes, items: PackedCodes, n_bits: int, weights: Floats) -> float:
    r"""Average precision of partners in multiples of chance, by Hamming distance, ties in random order.

    .. math:: \int_0^1 \frac{F(u)}{u}\, dF(u),

    with F(u) the share of partners that are found when a share u of the database, the partner included, is read. In
    random order it is 1. A partner stands anywhere in its level of equal distance with the same chance, so F is linear
    there; the integral is taken on a grid.

    Parameters
    ----------
    queries, partners, items : codes of both rows of the pairs, and of the database
    n_bits : code length
    weights : (k,) of the pairs
    """
    rows = np.arange(len(queries))
    level = np.bitwise_count(queries ^ partners).astype(np.intp)
    total = level_counts(queries, items, n_bits).astype(np.float64)
    total[rows, level] += 1
    n = total.sum(axis=1)
    last = np.cumsum(total, axis=1)[rows, level] / n
    width = total[rows, level] / n
    first, share = last - width, weights / weights.sum()
    u = np.geomspace(width.min() / 4, 1.0, GRID)
    F = np.zeros(GRID)
    for start in range(0, len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        F += share[part] @ np.clip((u - first[part, None]) / width[part, None], 0.0, 1.0)
    area = np.cumsum(np.diff(u) * (F[1:] / u[1:] + F[:-1] / u[:-1]) / 2)
    G = np.concatenate([[0.0, F[0]], F[0] + area])  # F(u) / u is constant below the first point
    at = np.concatenate([[0.0], u])
    return float(share @ ((np.interp(last, at, G) - np.interp(first, at, G)) / width))


def learn_memberships(model: Memberships, pairs: Pairs, goal: PairGoal) -> Memberships:
    """The model after as many rounds of expectation maximisation as make held-out pairs more likely.

    Parameters
    ----------
    model : the model to begin with, and towards which weights are drawn
    pairs : to learn from, prepared
    goal : the held-out pairs
    """
    start, best = model, goal.likelihood(model)
    for _ in range(ROUNDS):
        m = memberships(model, goal.rows).mean(axis=0, dtype=np.float64)
        P = memberships(model, pairs.X)
        targets = partner_targets(P, relevance_of_pairs(P, pairs, m), pairs)
        after = _regressed(model, start, pairs.X, targets)
        value = goal.likelihood(after)
        if not value > best:
            break
        model, best = after, value
    return model


def partner_targets(P: Posteriors, R: Floats, pairs: Pairs) -> Posteriors:
    """What partners say of the memberships of every row: the mean of ``p * R p'``, normalised, of its pairs, (u, K)."""
    total = np.zeros(P.shape)
    for start in range(0, len(pairs.first), BLOCK):
        part = slice(start, start + BLOCK)
        for own, other in ((pairs.first[part], pairs.second[part]), (pairs.second[part], pairs.first[part])):
            T = P[own] * (P[other] @ R)
            T *= (pairs.weights[part] / np.maximum(T.sum(axis=1), NOTHING))[:, None]
            np.add.at(total, own, T)
    return np.asarray(total / np.maximum(total.sum(axis=1, keepdims=True), NOTHING), dtype=np.float32)


def _regressed(model: Memberships, start: Memberships, X: NDArray[np.float32], targets: Posteriors) -> Memberships:
    """Some steps towards the log-linear model of least log-loss of soft targets, drawn towards the start."""
    W0 = 2 * model.temperature * start.centers

    def loss(v: Floats) -> tuple[float, Floats]:
        return drawn_loss(v, X, targets, W0)

    found = minimize(loss, as_vector(model), jac=True, method="L-BFGS-B", options={"maxiter": DESCENT}).x
    return from_vector(found, model)


def as_vector(model: Memberships) -> Floats:
    """The weights, (K, d), and biases, (K,), of memberships as a softmax of linear scores, in one vector."""
    t = model.temperature
    return np.concatenate([2 * t * model.centers.ravel(), t * model.offsets()])


def from_vector(v: Floats, model: Memberships) -> Memberships:
    """The model with the weights and biases of ``as_vector``."""
    t, size = model.temperature, model.centers.size
    centers = v[:size].reshape(model.centers.shape) / (2 * t)
    return replace(model, centers=centers, bias=v[size:] / t + np.einsum("ij,ij->i", centers, centers))


def drawn_loss(v: Floats, X: NDArray[np.float32], targets: Posteriors, W0: Floats) -> tuple[float, Floats]:
    """Log-loss of soft targets, plus a penalty on the distance of the weights from W0, and its slope, at a vector."""
    W, b = v[: W0.size].reshape(W0.shape), v[W0.size :]
    value, gap = soft_gap(X @ W.T.astype(np.float32) + b.astype(np.float32), targets)
    away = W - W0
    slope = (gap.T @ X).astype(np.float64) / len(X) + PENALTY * away
    return value + PENALTY / 2 * float((away**2).sum()), np.concatenate([slope.ravel(), gap.mean(axis=0)])
