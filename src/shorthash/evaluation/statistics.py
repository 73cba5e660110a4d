"""Uncertainty of scores: means over seeds, bootstrap intervals, paired comparisons on the same queries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from shorthash._arrays import Floats
from shorthash._validation import check_choice, check_count, check_weight
from shorthash.errors import InvalidInput
from shorthash.evaluation.scores import BY_QUERY, Scores

EXACT_PAIRS = 14  # up to this many pairs all 2**n signs are tried: 16 384
CHUNK = 1 << 22  # resampled values held at once: 32 MB


@dataclass(frozen=True)
class Summary:
    """A score over repeated runs.

    Attributes
    ----------
    mean, std : mean and sample standard deviation (n - 1) of the runs; std is nan for a single run
    low, high : bootstrap percentile interval of the mean
    n : number of runs
    confidence : coverage of the interval
    """

    mean: float
    std: float
    low: float
    high: float
    n: int
    confidence: float

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.std:.4f} [{self.low:.4f}, {self.high:.4f}] (n = {self.n})"


@dataclass(frozen=True)
class Comparison:
    """Two methods on the same queries (or seeds).

    Attributes
    ----------
    difference : mean of first minus second
    low, high : bootstrap percentile interval of that mean
    p_value : two-sided, of a sign-flip test: how often a difference at least this large comes from swapping the two
        methods at random, query by query
    wins, losses, draws : queries on which the first is better, worse, equal
    n : number of queries
    confidence : coverage of the interval
    """

    difference: float
    low: float
    high: float
    p_value: float
    wins: int
    losses: int
    draws: int
    n: int
    confidence: float

    def __str__(self) -> str:
        return (
            f"{self.difference:+.4f} [{self.low:+.4f}, {self.high:+.4f}], p = {self.p_value:.4g}, "
            f"{self.wins} wins, {self.losses} losses, {self.draws} draws (n = {self.n})"
        )


def summarise(
    values: ArrayLike, *, confidence: float = 0.95, n_resamples: int = 10_000, random_state: int = 0
) -> Summary:
    """Mean, spread and bootstrap interval of one score over repeated seeds.

    Parameters
    ----------
    values : (n,) one score per run
    confidence : coverage of the interval, between 0 and 1
    n_resamples : bootstrap resamples
    random_state : seed of the bootstrap

    Examples
    --------
    >>> print(summarise([0.51, 0.53, 0.52, 0.55]))
    0.5275 ± 0.0171 [0.5150, 0.5425] (n = 4)
    """
    runs = _sample(values, "values", "summarise")
    low, high = _interval(runs, _share(confidence, "summarise"), n_resamples, random_state)
    std = float(runs.std(ddof=1)) if len(runs) > 1 else float("nan")
    return Summary(float(runs.mean()), std, low, high, len(runs), confidence)


def compare_scores(
    first: Scores | ArrayLike,
    second: Scores | ArrayLike,
    *,
    score: str = "map",
    confidence: float = 0.95,
    n_resamples: int = 10_000,
    random_state: int = 0,
) -> Comparison:
    """Compare two methods on the same queries, or on the same seeds.

    Queries without a score (nan) in either are left out. The interval and the p-value apply to other queries of the
    same kind, not to other training sets; for those compare means over seeds.

    Parameters
    ----------
    first, second : Scores of the same queries in the same order, or arrays of one value per query (or per seed)
    score : which score to take from Scores
    confidence, n_resamples, random_state : as in :func:`summarise`

    Examples
    --------
    >>> print(compare_scores([0.6, 0.7, 0.9, 0.8], [0.5, 0.7, 0.6, 0.7]))
    +0.1250 [+0.0250, +0.2500], p = 0.25, 3 wins, 0 losses, 1 draws (n = 4)
    """
    a, b = _column(first, score), _column(second, score)
    if a.shape != b.shape:
        raise InvalidInput(
            f"compare_scores needs values of the same queries, but the first has {len(a)} and the second {len(b)}; "
            "evaluate both on one split."
        )
    pairs = (a - b)[~(np.isnan(a) | np.isnan(b))]
    differences = _sample(pairs, "differences", "compare_scores")
    low, high = _interval(differences, _share(confidence, "compare_scores"), n_resamples, random_state)
    return Comparison(
        difference=float(differences.mean()),
        low=low,
        high=high,
        p_value=_sign_flip(differences, n_resamples, random_state),
        wins=int((differences > 0).sum()),
        losses=int((differences < 0).sum()),
        draws=int((differences == 0).sum()),
        n=len(differences),
        confidence=confidence,
    )


def _interval(values: Floats, confidence: float, n_resamples: int, seed: int) -> tuple[float, float]:
    """Percentile interval of the mean over resamples with replacement."""
    n_resamples = check_count(n_resamples, "n_resamples", "the bootstrap")
    rng, n = np.random.default_rng(seed), len(values)
    means = np.empty(n_resamples)
    step = max(1, CHUNK // n)
    for low in range(0, n_resamples, step):
        size = min(step, n_resamples - low)
        means[low : low + size] = values[rng.integers(0, n, (size, n))].mean(axis=1)
    tail = (1.0 - confidence) / 2.0
    low_end, high_end = np.quantile(means, [tail, 1.0 - tail])
    return float(low_end), float(high_end)


def _sign_flip(differences: Floats, n_resamples: int, seed: int) -> float:
    """Two-sided p-value: exact over all signs for few pairs, by random signs for many."""
    n, observed = len(differences), abs(float(differences.sum()))
    limit = observed - 1e-12 * float(np.abs(differences).sum())  # equal sums must count as equal in any order
    if n <= EXACT_PAIRS:
        signs = 1 - 2 * ((np.arange(1 << n)[:, None] >> np.arange(n)) & 1)
        return float(np.mean(np.abs(signs @ differences) >= limit))
    rng, beyond = np.random.default_rng(seed), 0
    step = max(1, CHUNK // n)
    for low in range(0, n_resamples, step):
        signs = 1 - 2 * rng.integers(0, 2, (min(step, n_resamples - low), n), dtype=np.int8)
        beyond += int(np.count_nonzero(np.abs(signs @ differences) >= limit))
    return (beyond + 1) / (n_resamples + 1)


def _column(values: Scores | ArrayLike, score: str) -> Floats:
    """The values to compare, one per query."""
    if isinstance(values, Scores):
        check_choice(score, "score", "compare_scores", BY_QUERY)
        return values.per_query[score]
    return np.asarray(values, dtype=np.float64)


def _sample(values: ArrayLike, name: str, owner: str) -> Floats:
    """At least one finite number."""
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or len(sample) == 0 or not np.isfinite(sample).all():
        raise InvalidInput(
            f"The '{name}' of {owner} must be one or more finite numbers. Got {sample.size} of shape {sample.shape} "
            "instead; drop runs or queries without a score first."
        )
    return sample


def _share(confidence: float, owner: str) -> float:
    """A number strictly between 0 and 1."""
    value = check_weight(confidence, "confidence", owner, positive=True)
    if value >= 1:
        raise InvalidInput(f"The 'confidence' parameter of {owner} must lie between 0 and 1. Got {value!r} instead.")
    return value
