"""What a fitted EAPH answers: codes, posteriors, the relevance of cells, codes to probe; and a second feature space.

One code for two feature spaces: posteriors of the second are learned, the table is that of the first. With labels they
are over the same label sets. With rows of both spaces that show the same things, and no labels, the posteriors (or
memberships) of the first are the targets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from shorthash._arrays import Codes, Floats, Labels, PackedCodes, is_foreign, like, to_numpy
from shorthash._labels import group_labels, label_rows, most_alike, most_learned, shared_label
from shorthash._rounding import (
    BLOCK,
    Rounded,
    Scored,
    best_table_word,
    best_word,
    on_grid,
    on_one_thread,
    softmax,
    table_gains,
)
from shorthash._validation import as_single, check_count, check_same_length
from shorthash.codes.signs import pack, packed_dtype, unpack
from shorthash.data.rows import Rows, validated
from shorthash.errors import InvalidInput, phrase
from shorthash.learners.base import SupervisedHasher
from shorthash.learners.eaph.encoding import CellCenters, extend, likeliest_words, lookup_of, profiles, wide_lookup_of
from shorthash.learners.eaph.groups import Memberships
from shorthash.learners.eaph.refinement import Design, best_rows
from shorthash.learners.posteriors.folds import Fitted, PosteriorModel, Posteriors, draw_folds
from shorthash.learners.posteriors.logistic import fit_soft
from shorthash.learners.posteriors.models import POSTERIORS, Classified, Prefit, auto_kind, fit_posteriors

SHARED = (  # attributes that hashers of two feature spaces have in common
    *("classes_", "label_sets_", "relevance_", "cells_", "table_", "codewords_", "profiles_", "n_features_out_"),
)
# large compared with rounding errors, so that few rows are near a border; small compared with what matters
WANTED_BITS = 22
PROFILE_STEP = 2.0**-26


class TableHasher(SupervisedHasher):
    """A hasher whose code is the row of a table that gains most from the posterior of an item."""

    posterior_: PosteriorModel
    label_sets_: NDArray[np.uint8]
    relevance_: Floats
    cell_centers_: CellCenters
    posterior: str | BaseEstimator
    n_dropped_: int

    def _relevance(self) -> Floats | None:
        """Which label sets share a label; None where each is relevant to itself alone; of clusters, as estimated."""
        if not hasattr(self, "label_sets_"):
            return self.relevance_
        rows = self.label_sets_
        return None if (rows.sum(axis=1) == 1).all() else shared_label(rows, rows).astype(np.float64)

    def _keep_table(
        self,
        design: Design,
        P: NDArray[np.float32],
        lengthened: Callable[[Codes], NDArray[np.intp]],
        place: NDArray[np.intp] | None = None,
    ) -> Self:
        """Keep the codes in use, as codes of full length.

        ``lengthened`` says which bits those repeat; ``place``, (m,), the cells of the rows, if not by the table alone.
        """
        place = best_rows(P, design.table) if place is None else place
        short = unpack(design.cells[place], design.n_bits)
        order = lengthened(short)
        codes = extend(unpack(design.cells, design.n_bits), order)
        self.n_features_out_ = len(order)
        self.cells_: PackedCodes = pack(codes).astype(packed_dtype(len(order)))
        self.table_ = design.table
        self.codewords_ = codes[self._posterior_table().argmax(axis=0)]
        self.codes_ = extend(short, order)
        # sums of products with numbers of WANTED_BITS are exact, so no order of summation changes the order of cells
        self.profiles_ = np.round(profiles(P, place, len(codes)) / PROFILE_STEP) * PROFILE_STEP
        self.expected_map_, self.objective_ = design.value, design.history
        return self

    def _scores(self, X: Rounded, *, exact: bool) -> Scored:
        """Scores of the bits: the sign is the bit, the magnitude what the best code with the other bit would lose."""
        P = softmax(self.posterior_.logits(X, exact=exact))
        if self._weighs_rows:
            return self._scores_by_rows(P, X, exact=exact)
        if not is_foreign(P.values):
            return best_table_word(P, self.table_, self._codebook(), exact=exact)
        found = best_table_word(Scored(*map(to_numpy, P)), self.table_, self._codebook(), exact=exact)
        return Scored(like(found.values, P.values), like(found.bound, P.values))

    def _signs(self, X: Rounded, *, exact: bool) -> Scored:
        """Signs of the best code, which is found without the gains of all others."""
        P = softmax(self.posterior_.logits(X, exact=exact))
        if self._weighs_rows:
            return wide_lookup_of(self).best(P, X, self._codebook())
        return likeliest_words(P, lookup_of(self), self._codebook())

    @property
    def _weighs_rows(self) -> bool:
        """Whether codes depend on the means of cells, too."""
        return hasattr(self, "cell_centers_") and self.cell_centers_.weight > 0

    def _posterior_table(self) -> NDArray[np.float32]:
        """The table for rows of which only posteriors are known."""
        if not self._weighs_rows or not isinstance(self.posterior_, Memberships):
            return self.table_
        return self.cell_centers_.of_posteriors(self.table_, self.posterior_.centers)

    def _scores_by_rows(self, P: Scored, X: Rounded, *, exact: bool) -> Scored:
        """``_scores`` where the means of cells count; in blocks."""
        parts, size = [], max(1, BLOCK // len(self.table_))
        for some in (slice(start, start + size) for start in range(0, len(P.values), size)):
            error = X.error[some] if np.ndim(X.error) else X.error
            posteriors = Scored(P.values[some], P.bound[some])
            gains = self.cell_centers_.gains(posteriors, Rounded(X.values[some], error), self.table_, exact=exact)
            parts.append(best_word(Scored(*map(to_numpy, gains)), self._codebook(), exact=exact))
        found = Scored(*(np.concatenate(part) for part in zip(*parts, strict=True)))
        return Scored(like(found.values, P.values), like(found.bound, P.values))

    def relevance(self, X: ArrayLike) -> Floats:
        r"""Expected share of relevant items in every cell in use, (n_samples, n_cells): a learned distance.

        .. math:: r_z(x) = \sum_{s, s'} p_s(x)\, R_{ss'}\, q_{s'}(z)

        where :math:`q(z)` is the mean posterior of the training rows in cell z (``profiles_``) and R says which label
        sets share a label. Searching cells in the order of it finds more than searching them by Hamming distance, with
        the same codes in the database; ``cells_`` names the columns. Without labels it is the expected share of nearest
        rows by the distance to the mean of the training rows in every cell (``cell_centers_``).
        """
        return self.relevance_of(X, None)

    def relevance_of(self, X: ArrayLike, wanted: Floats | None) -> Floats:
        """``relevance`` of rows whose ``wanted`` may be known."""
        check_is_fitted(self)
        if not hasattr(self, "cell_centers_"):
            return np.asarray((self.wanted(X) if wanted is None else wanted) @ self.profiles_.T)
        centers, values = self.cell_centers_, validated(self, X, reset=False)

        def logs(rows: Any, *, exact: bool) -> Scored:
            return centers.log_chances(Rounded(rows), exact=exact)

        found = [on_grid(batch, logs, WANTED_BITS) for _, batch in Rows(values, "EAPH")]
        return np.concatenate([centers.expected_shares(batch) for batch in found])

    def wanted(self, X: ArrayLike) -> Floats:
        r"""The probability that an item with a label set is relevant, (n_samples, n_label_sets): :math:`p(x) R`.

        Equal to ``predict_proba`` where every row has one label, but rounded to 22 bits of the largest, in a way that
        depends on the row alone. Its product with the posterior of an item is the probability that the item is
        relevant.
        """
        check_is_fitted(self)
        values, rel = validated(self, X, reset=False), self._relevance()

        def scores(rows: Any, *, exact: bool) -> Scored:
            P = softmax(self.posterior_.logits(Rounded(rows), exact=exact))
            return P if rel is None else table_gains(P, rel.T, exact=exact)

        return np.concatenate([on_grid(batch, scores, WANTED_BITS) for _, batch in Rows(values, "EAPH")])

    def probes(self, X: ArrayLike, n_probes: int) -> PackedCodes:
        """The codes to look up for every row, those with the largest expected share of relevant items first.

        Parameters
        ----------
        X : (n_samples, n_features) features of queries
        n_probes : codes wanted; all that are in use, if there are fewer
        """
        n_probes = check_count(n_probes, "n_probes", "EAPH.probes")
        scores = self.relevance(X)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :n_probes]
        return np.asarray(self.cells_[order])

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Posteriors over the label sets, (n_samples, n_label_sets)."""
        return np.concatenate([np.asarray(P, dtype=np.float64) for P in self._posteriors(X)])

    def _posteriors(self, X: ArrayLike) -> list[NDArray[np.float32]]:
        check_is_fitted(self)
        values = validated(self, X, reset=False)
        return [self.posterior_.predict(batch) for _, batch in Rows(values, "EAPH")]

    @property
    def _on_device(self) -> bool:
        return not isinstance(self.posterior_, Classified | Prefit)

    def _codebook(self) -> Codes:
        return unpack(self.cells_, self.n_features_out_)

    @on_one_thread
    def align(self, X: ArrayLike, y: ArrayLike | None = None, *, rows: ArrayLike | None = None) -> Self:
        """A hasher for another feature space whose codes can be compared with those of this one.

        It learns posteriors of its own and shares the table, so rows of one space find those of the other. It cannot be
        trained further; save and load it as any other.

        Parameters
        ----------
        X : (n_samples, n_features) rows of the other space
        y : their labels, of the same classes; rows whose label, or set of labels, is missing or not known here are left
            out. Only for a hasher that was fitted with labels
        rows : instead of labels, (n_samples, n_features_in_) rows of this space that show the same things as ``X``

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from shorthash import EAPH
        >>> X, y = load_iris(return_X_y=True)
        >>> flowers = EAPH(n_bits=4, random_state=0).fit(X[:, :2], y)  # sepals
        >>> petals = flowers.align(X[:, 2:], rows=X[:, :2])
        >>> petals.transform(X[:, 2:]).shape, np.array_equal(petals.codewords_, flowers.codewords_)
        ((150, 4), True)
        """
        check_is_fitted(self, "table_")
        if (y is None) == (rows is None):
            raise InvalidInput(
                f"align needs either labels y or {phrase('rows=...')}, rows of the first space; give one of them."
            )
        if y is not None and not hasattr(self, "classes_"):
            raise InvalidInput(
                f"align needs {phrase('rows=...')}, rows of the first space: this EAPH was fitted without labels."
            )
        other: Self = clone(self)
        values = as_single(validated(other, X, reset=True, min_samples=2), "EAPH")
        Rows(values, "EAPH").check_varied()
        targets = None if rows is None else self.predict_proba(rows).astype(np.float32)
        check_same_length(len(values), len(label_rows(y) if targets is None else targets), "EAPH")
        rng: np.random.RandomState = check_random_state(self.random_state)
        if targets is not None:
            fitted = posteriors_of_rows(values, targets, rng)
        else:
            known = self.classes_, self.label_sets_
            fitted, other.n_dropped_ = posteriors_of_labels(values, y, *known, self.posterior, rng)
        for name in SHARED:
            if hasattr(self, name):
                setattr(other, name, getattr(self, name))
        other.posterior_, other.posterior_loss_, other.aligned_ = fitted.model, fitted.loss, True
        other.table_ = self._posterior_table()
        other.codes_ = self._codebook()[best_rows(fitted.oof, other.table_)]
        return other

    @property
    def _n_features_out(self) -> int:
        return int(self.n_features_out_)


def posteriors_of_labels(
    X: NDArray[np.float32],
    y: ArrayLike | None,
    classes: Labels,
    label_sets: NDArray[np.uint8],
    posterior: str | BaseEstimator,
    rng: np.random.RandomState,
) -> tuple[Fitted, int]:
    """Posteriors over known label sets, and how many rows were left out because theirs is missing or unknown.

    For a set of known labels stands, where it is not known itself, the one most like it, if there are so many that the
    first space has learned them so.

    Parameters
    ----------
    X, y : rows of the second space, and their labels
    classes, label_sets : (c,), (u, c) those of the first
    posterior : the model of the first; one that is not learned from rows and label sets is replaced by that of "auto"
    rng : draws folds
    """
    groups = group_labels(y, owner="EAPH", n_samples=len(X), classes=classes, drop_unlabelled=True)
    given = groups.rows.astype(label_sets.dtype)
    if len(label_sets) >= most_learned(len(classes)) and not (label_sets.sum(axis=1) == 1).all():
        place = most_alike(given, label_sets)
    else:
        known = {row.tobytes(): number for number, row in enumerate(label_sets)}
        place = np.array([known.get(row.tobytes(), -1) for row in given])
    ids = place[groups.ids]
    used = np.flatnonzero(ids >= 0)
    if len(np.unique(ids[used])) < 2:
        raise InvalidInput(
            "y of align must have two or more of the classes or sets of labels that the hasher knows. Got "
            f"{len(np.unique(ids[used]))}; give more rows, or fit a hasher of its own."
        )
    rows = X if groups.kept is None else X[groups.kept]
    auto = auto_kind(len(used), X.shape[1], len(label_sets), "combo")
    kind = posterior if isinstance(posterior, str) and posterior in POSTERIORS else auto
    [(_, fitted), *_] = fit_posteriors(kind, rows[used], ids[used], label_sets, draw_folds(ids[used], rng))
    return fitted, len(X) - len(used)


def posteriors_of_rows(X: NDArray[np.float32], targets: Posteriors, rng: np.random.RandomState) -> Fitted:
    """Posteriors of rows of the second space that come near those of the same things in the first.

    Parameters
    ----------
    X : rows of the second space
    targets : (n, u) posteriors of the same things in the first
    rng : draws folds
    """
    return fit_soft(X, targets, draw_folds(targets.argmax(axis=1), rng))
