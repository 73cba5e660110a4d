"""Expected-AP codes from sums over rows: a variant of EAPH that reads every row once. Not in the paper.

Class scores are a ridge regression, which needs sums only; so does the estimate of which classes it confuses
(codebooks.py), the annealed codebook, and the table of what every class gains at every code. No row is read twice, so
streaming, merging and forgetting work as in RSLH. Unlike EAPH, posteriors are not calibrated, and the table is not
refined on the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Codes, Floats, njit
from shorthash._labels import LabelGroups, shared_label
from shorthash._rounding import FEW, UNIT, Rounded, Scored, best_table_word, linear
from shorthash.codes.signs import pack, unpack
from shorthash.data.rows import Rows
from shorthash.learners.codebooks import CODEBOOKS, annealed_codebook, expected_confusion, score_weights
from shorthash.learners.eaph.encoding import likeliest_words, lookup_of
from shorthash.learners.eaph.refinement import BACKGROUND
from shorthash.learners.eaph.table import TABLE_BITS, ap_table, codeword_table
from shorthash.learners.sums import GroupStatistics, SumHasher


@dataclass(eq=False, repr=False)
class SumEAPH(SumHasher):
    r"""Expected-AP codes, or the codeword of the likeliest class, learned from sums over rows.

    .. math:: h(x) = \arg\max_z\ p(x) \cdot (A_z + D_z), \qquad p_s(x) \propto \max(b_s + x P_s, 0)^2

    where

    - :math:`P` is the ridge regression of the label sets on the features, :math:`b` their shares; the penalty is chosen
      by generalised cross-validation,
    - :math:`A_{zs}` and :math:`D_{zs}` are what a query and an item of label set s gain at code z (see EAPH), at the
      masses that the codewords of the predicted label sets would have.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64. Beyond 16 bits every item gets the codeword of its likeliest label set.
    codebook : {"annealed", "balanced", "binary", "random", "separated"}, default="annealed"
        Codewords of the label sets; "annealed" puts label sets that are confused close together.
    encoder : {"expected-ap", "nearest"}, default="expected-ap"
        "nearest" is the codeword of the likeliest label set: the classifier code, from sums.
    drop_unlabelled : bool, int or str, default=False
        Drop rows without a label (None, NaN, "", an empty set, a row of zeros) instead of raising; a value such as -1
        or "unknown" also drops the rows that have it as their label.
    random_state : int, RandomState instance or None, default=None
        Seeds the codebook.

    Attributes
    ----------
    classes_ : (c,) the classes
    codewords_ : (u, n_bits) the codeword of every label set
    label_sets_ : (u, c) the label rows that occurred; of several labels about 512 frequent ones stand for the others
    score_weights_ : (d, k) P; shares_ : (k,) b; of the k label sets that stand for all
    cells_ : (m,) codes of the table; table_ : (m, k) its rows
    statistics_ : GroupStatistics, the sums
    n_samples_seen_ : int, rows learned from and not forgotten
    n_dropped_ : int, rows without label in the last call

    References
    ----------
    See EAPH; docs/guide/scale.md.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> hasher = SumEAPH(n_bits=4, random_state=0).fit(X, y)
    >>> hasher.transform(X).shape, hasher.score(X, y) > 0.7
    ((150, 4), True)
    """

    n_bits: int = 8
    codebook: Literal["annealed", "balanced", "binary", "random", "separated"] = "annealed"
    encoder: Literal["expected-ap", "nearest"] = "expected-ap"
    drop_unlabelled: bool | int | str = False
    random_state: int | np.random.RandomState | None = None

    def _learn(self, rows: Rows | None = None, groups: LabelGroups | None = None) -> Self:  # noqa: ARG002
        """Solve from the statistics and set every fitted attribute."""
        mean = self.statistics_.mean()
        statistics, places = self.statistics_.merged()
        seen = statistics.centred(mean)
        P, _ = score_weights(seen)
        confusion = expected_confusion(statistics)
        C = self._codewords(seen, confusion)
        cells, table = self._table(seen, confusion, C)
        codes = None if groups is None else C[places[groups.ids]]
        self._keep(P @ C, C[places], codes)
        self.score_weights_ = P
        self.shares_ = seen.counts / seen.counts.sum() - mean @ P
        self.cells_, self.table_ = cells, table
        return self

    def _codewords(self, seen: GroupStatistics, confusion: Floats) -> Codes:
        rng = np.random.RandomState(self._seed)
        if self.codebook == "annealed":
            return annealed_codebook(seen.rows, confusion, self.n_bits, rng)
        return CODEBOOKS[self.codebook](len(seen.rows), self.n_bits, rng)

    def _table(
        self, seen: GroupStatistics, confusion: Floats, C: Codes
    ) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.float32]]:
        """Codes and gains of the label sets at them: all codes, or those of the label sets."""
        words = pack(C)
        if self.encoder == "nearest" or self.n_bits > TABLE_BITS:
            return codeword_table(words)
        rel = None if (seen.rows.sum(axis=1) == 1).all() else shared_label(seen.rows, seen.rows).astype(np.float64)
        masses = np.zeros((2**self.n_bits, len(C)))
        np.add.at(masses, words.astype(np.int64), confusion)  # an item gets the codeword of the predicted label set
        gains = ap_table(masses, BACKGROUND * confusion.sum(axis=0), rel)
        return np.arange(2**self.n_bits, dtype=words.dtype), gains.query + gains.database

    def _scores(self, X: Rounded, *, exact: bool) -> Scored:
        """Scores, (n_samples, n_bits): the sign is the bit, the magnitude what the best code without it would lose."""
        P = self._posteriors(X, exact=exact)
        return best_table_word(P, self.table_, self._words(), exact=exact)

    def _signs(self, X: Rounded, *, exact: bool) -> Scored:
        """Signs of the best code, which is found without the gains of all others."""
        P = self._posteriors(X, exact=exact)
        return likeliest_words(P, lookup_of(self), self._words())

    def _posteriors(self, X: Rounded, *, exact: bool) -> Scored:
        """Squares of what is positive of the scores, in shares, and a bound of the 1-norm of their error."""
        S = linear(X, self.score_weights_, self.shares_, exact=exact, bound_by_row=True)
        bound = np.broadcast_to(S.bound, (len(S.values), 1)).copy()
        _to_shares(S.values, bound)
        return Scored(S.values, np.minimum(bound, 2.0) + (S.values.shape[1] + FEW) * UNIT)

    def _words(self) -> Codes:
        return unpack(self.cells_, self.codewords_.shape[1])


@njit(cache=True, nogil=True)
def _to_shares(S: Floats, bound: Floats) -> None:
    """Scores (n, u) become shares of the squares of what is positive, in place; ``bound`` (n, 1) that of their 1-norm.

    A square is off by at most (2 s + e) e where its score s is off by e; shares by twice the sum of that over the
    total.
    """
    n, u = S.shape
    for i in range(n):
        plain, total, e = 0.0, 0.0, bound[i, 0]
        for s in range(u):
            value = max(S[i, s], 0.0)
            plain += value
            S[i, s] = value * value
            total += S[i, s]
        off = (2 * plain + u * e) * e
        if total > 0.0:
            bound[i, 0] = 2 * off / total
            for s in range(u):
                S[i, s] /= total
        else:
            bound[i, 0] = 2.0 if off > 0.0 else 0.0
