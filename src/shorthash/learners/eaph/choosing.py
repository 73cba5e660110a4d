"""Which posteriors and which codes: candidates judged by what they would retrieve, on training rows alone.

Two things can be searched. If it is *other rows* than those learned from, a candidate is judged by the mAP of
out-of-fold codes among themselves. If it is the *training rows*, a model that remembers them codes them more surely,
and is the better one although it is no better on queries; then a candidate is judged by the mAP of out-of-fold queries
against in-sample codes, each row's own item left out. Log-loss would not choose such a model, and queries must not be
used to choose. Where it is not known what is searched, the model that is best for training rows is taken among those
that lose at most ``WORTH`` on other rows. Training rows that are remembered (``posteriors/memory.py``) are found with
any codes, so then candidates are judged by other rows.

The scores of few rows are rough. So which posteriors are best, whether a table is better than codewords, and whether it
is better to remember rows, is expected before rows are looked at, and they decide as far as there are enough of them
(``is_worse``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from shorthash._arrays import Floats
from shorthash._labels import LabelGroups, most_learned
from shorthash._progress import shown
from shorthash.codes.levels import expected_average_precision, level_blocks
from shorthash.learners.eaph.drawing import PRIOR_ROWS, RowModel, expected_counts, fit_rows, rows_per_class
from shorthash.learners.eaph.refinement import ROWS_PER_CLASS, Design, best_rows, design_codes
from shorthash.learners.eaph.table import TABLE_BITS
from shorthash.learners.posteriors import models
from shorthash.learners.posteriors.folds import Fitted, Folds, Posteriors, in_threads
from shorthash.learners.posteriors.memory import Remembered

WORTH = 0.005  # mAP on other rows that may be given up for the training rows, where either may be searched; and for the
# first posteriors, which are expected to be best
GAIN, GAIN_ERROR = 0.03, 0.015  # of mAP that is expected of a table, or of the first posteriors, before rows are seen
JUDGING_ROWS = 2048  # that are queries, where there are so many label sets that every one is dear
LEAST_VARIANCE = 0.01  # of differences between average precisions; that of few rows may be less by chance
EXPECTED = "preferred before rows are looked at"  # in the report


@dataclass(frozen=True)
class Candidate:
    """Posteriors to make codes of.

    Attributes
    ----------
    name : what the report calls them
    fitted : the model and its out-of-fold posteriors
    inside : (m, u) its posteriors of the same rows, which it has learned from
    source : where rows are drawn from to design codes with, or their posteriors; None where there are rows enough
    plain : the same where training rows are not remembered; None if they are not
    """

    name: str
    fitted: Fitted
    inside: Posteriors
    source: RowModel | Posteriors | None = None
    plain: Candidate | None = None

    @property
    def remembers(self) -> bool:
        """Whether training rows are coded by their labels."""
        return self.plain is not None

    @cached_property
    def drawn(self) -> Posteriors | None:
        """Posteriors of drawn rows."""
        return self.source.posteriors(self.fitted) if isinstance(self.source, RowModel) else self.source

    def remembering(self, remembered: Remembered) -> Candidate:
        """The same posteriors, but for training rows."""
        fitted, inside = remembered.added(self.fitted, self.inside)
        return replace(self, name=f"{self.name}, rows remembered", fitted=fitted, inside=inside, plain=self)


@dataclass(frozen=True)
class Judged:
    """Posteriors with codes, and what rows held out would find.

    Attributes
    ----------
    candidate, design : posteriors and codes
    among_others, among_training : (m,) average precision of every row as a query, where other rows and where the
        training rows are searched; nan where no other row shares a label
    """

    candidate: Candidate
    design: Design
    among_others: Floats
    among_training: Floats

    def precisions(self, database: str) -> Floats:
        """What counts for a database; the mean of both where it is not known."""
        known = {"disjoint": self.among_others, "training": self.among_training}
        return known.get(database, (self.among_others + self.among_training) / 2)

    def score(self, database: str) -> float:
        """The mAP to expect; -1 where no two rows share a label."""
        value = _mean(self.precisions(database))
        return value if value == value else -1.0

    @property
    def disjoint(self) -> float:
        """The mAP where other rows are searched."""
        return _mean(self.among_others)

    @property
    def training(self) -> float:
        """The mAP where training rows are searched."""
        return _mean(self.among_training)

    def behind(self, other: Judged, database: str) -> float:
        """How much more the other finds; nan where no row has a relevant one."""
        return _mean(other.precisions(database) - self.precisions(database))

    def needed(self, other: Judged, database: str, allowed: float = 0.0) -> float:
        """How much more the other has to find, since these are expected to be better.

        Before rows are looked at, they are expected to gain ``GAIN``, give or take ``GAIN_ERROR``, where the mAP of the
        other is 0.5, and less where there is little to find or to gain; the fewer rows, the less they count.
        """
        difference = self.precisions(database) - other.precisions(database)
        difference = difference[~np.isnan(difference)]
        if not len(difference):
            return allowed
        variance = max(float(difference.var()), LEAST_VARIANCE) / len(difference)
        before = 4 * other.score(database) * (1 - other.score(database)) * GAIN
        return allowed + variance * before / GAIN_ERROR**2

    def is_worse(self, other: Judged, database: str, allowed: float = 0.0) -> bool:
        """Whether these, which are expected to be better than the other, find less by more than is allowed."""
        return self.behind(other, database) > self.needed(other, database, allowed)

    def why_not(self, other: Judged, database: str, allowed: float = 0.0) -> str:
        """How the other compares with these, which are expected to be better, for the report."""
        more = self.behind(other, database)
        measure = {"disjoint": "disjoint_map", "training": "training_map"}.get(database, "mean of both mAPs")
        if more > 0:
            needed = self.needed(other, database, allowed)
            return f"{measure} {more:.4f} above what is preferred, {needed:.4f} needed"
        return f"{measure} {-more:.4f} below what is preferred" if more <= 0 else "no row has a relevant one"

    def line(self, why: str, *, taken: bool) -> dict[str, Any]:
        """A line of the report."""
        return {
            "posteriors": self.candidate.name,
            "codes": self.design.kind,
            "disjoint_map": self.disjoint,
            "training_map": self.training,
            "taken": taken,
            "why": why,
        }


@dataclass(frozen=True)
class Choice:
    """How candidates are judged.

    Attributes
    ----------
    groups : label sets of the rows that were held out, as they are learned
    labels : the same as they were given, by which codes are judged
    rel : which label sets share a label; None for the identity
    n_bits : bits of the table
    seed : of every design
    database : "disjoint", "training" or "auto"
    options : as in ``design_codes``
    beside : an array on the device where tables are refined; None for the CPU
    known : codebooks annealed so far; those of the posteriors that are taken need not be annealed twice
    """

    groups: LabelGroups
    labels: LabelGroups
    rel: Floats | None
    n_bits: int
    seed: int
    database: str
    options: dict[str, Any]
    beside: Any = None
    known: dict[Any, Any] = field(default_factory=dict)

    def judged(self, candidate: Candidate, *, refine: bool) -> list[Judged]:
        """A candidate with codewords and, where requested and possible, with the refined table."""
        oof, found = candidate.fitted.oof, []
        rng = np.random.RandomState(self.seed)
        P, options = oof * share_weights(self.groups.ids)[:, None], {**self.options, "refine": refine}
        if refine and not self.options["new_classes"] and candidate.drawn is not None:
            mass = PRIOR_ROWS / rows_per_class(self.groups.rows, self.groups.ids) * len(oof)
            P = np.concatenate([P, np.float32(mass / len(candidate.drawn)) * candidate.drawn])
            options["rows_per_class"] += PRIOR_ROWS
        for design in design_codes(P, self.rel, self.n_bits, rng, beside=self.beside, known=self.known, **options):
            queries = design.cells[best_rows(oof, design.table)]
            items = design.cells[best_rows(candidate.inside, design.table)]
            precisions = (row_precisions(queries, searched, self.labels, self.n_bits) for searched in (queries, items))
            found.append(Judged(candidate, design, *precisions))
        return found

    def posteriors(self, candidates: list[Candidate]) -> tuple[Candidate, list[tuple[Judged, str]]]:
        """The best candidate, and how all were judged with codewords, which are quick to make, with what that says.

        Where rows are remembered, posteriors are chosen for other rows, whatever is searched.
        """
        if len(candidates) == 1:
            return candidates[0], []
        tried = [self.judged(candidate, refine=False)[0] for candidate in candidates]
        best, why = self._best(tried, "disjoint" if candidates[0].remembers else self.database)
        return best.candidate, list(zip(tried, why, strict=True))

    def _best(self, tried: list[Judged], database: str) -> tuple[Judged, list[str]]:
        """The best, and why any of them is or is not.

        Where it is not known what is searched, it is the best for training rows of those that lose little on others.
        For other rows the first are expected to be best, and may lose ``WORTH``.
        """
        first = tried[0]
        if database == "disjoint":
            better = [found for found in tried if first.is_worse(found, database, allowed=WORTH)]
            best = max(better or [first], key=lambda found: found.score(database))
            return best, [EXPECTED, *(first.why_not(found, database, allowed=WORTH) for found in tried[1:])]
        most = max(found.score("disjoint") for found in tried)
        close = [found for found in tried if database == "training" or found.score("disjoint") >= most - WORTH]
        best, top = max(close, key=lambda found: found.score("training")), "largest training_map"
        if database != "training":
            top += f" of those with a disjoint_map at most {WORTH} below the largest"
        return best, [top if found is best else f"not the {top}" for found in tried]

    @shown("designing codes")
    def codes(self, candidates: list[Candidate]) -> tuple[Judged, list[dict[str, Any]]]:
        """The best posteriors with the best codes for them, and a report of what was tried."""
        best, tried = self.posteriors(candidates)
        finalists = self.judged(best, refine=self.options["refine"])
        taken, why = self._taken(finalists)
        report = [found.line(f"posteriors: {reason}", taken=False) for found, reason in tried]
        for found, reason in zip(finalists, why, strict=True):
            report.append(found.line(f"codes: {reason}", taken=found is taken))
        return taken, report

    def _taken(self, finalists: list[Judged]) -> tuple[Judged, list[str]]:
        """The codes to take, and why they or others are not; the first are codewords, the last a table."""
        codewords, table, database = finalists[0], finalists[-1], self.database
        if len(finalists) == 1:
            return codewords, ["no others were made"]
        if database == "auto" and codewords.candidate.remembers:
            database = "disjoint"  # training rows that are remembered are found with any codes
        elif database == "auto" and self.options["rows_per_class"] < ROWS_PER_CLASS:
            # scores of few rows are not to be weighed against each other: a table must serve both
            if table.is_worse(codewords, "training", allowed=WORTH):
                return codewords, [table.why_not(codewords, "training", allowed=WORTH), EXPECTED]
            database = "disjoint"
        taken = codewords if table.is_worse(codewords, database) else table
        return taken, [table.why_not(codewords, database), EXPECTED]


def learned_candidates(
    kind: str | BaseEstimator, X: NDArray[np.float32], groups: LabelGroups, folds: Folds, seed: int
) -> list[Candidate]:
    """Posteriors of a kind (``fit_posteriors``), the one that is expected to be best first.

    Parameters
    ----------
    kind : name of a model, a classifier, or a model that was fitted before
    X, groups : rows and their label sets
    folds : which rows are held out together
    seed : of drawn rows
    """
    if models.is_prefit(kind):
        fitted = models.fit_prefit(kind, X, groups, folds)
        return [Candidate("prefit", fitted, fitted.oof)]
    ids, judged = groups.ids[folds.rows], folds.judged(groups.ids)
    source = fit_rows(X, groups.ids, groups.rows, seed)

    def candidate(learned: tuple[str, Fitted]) -> Candidate:
        name, fitted = learned
        fitted = fitted if source is None or len(judged) else source.sharpened(fitted)
        known = models.for_other_rows(fitted, ids, judged, groups.rows)
        return Candidate(name, known, known.model.predict(X[folds.rows]), source=source)

    return in_threads(candidate, models.fit_posteriors(kind, X, groups.ids, groups.rows, folds))


def share_weights(ids: NDArray[np.intp]) -> NDArray[np.float32]:
    """Weights of rows that make the shares of the label sets what they are expected to be in other rows."""
    counts = np.bincount(ids)
    return np.asarray((expected_counts(counts) / np.maximum(counts, 1))[ids], dtype=np.float32)


def row_precisions(
    queries: NDArray[np.unsignedinteger[Any]],
    items: NDArray[np.unsignedinteger[Any]],
    groups: LabelGroups,
    n_bits: int,
) -> Floats:
    """Tie-aware average precision of packed query codes against packed item codes of the same rows, (m,).

    A row's own item is left out; nan where no other row shares a label. Equal rows are computed once. With more label
    sets than are learned, some rows are queries, and nan is that of all others.
    """
    learned = groups.single or len(groups.rows) <= most_learned(len(groups.classes))
    every = 1 if learned else -(-len(queries) // JUDGING_ROWS)
    some = np.arange(0, len(queries), every)
    own = np.bitwise_count(queries ^ items)[some]
    keys = (groups.ids[some].astype(np.int64) << TABLE_BITS | queries[some]) << TABLE_BITS | own
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    different = LabelGroups(groups.classes, groups.rows, groups.ids[some][first])
    found = np.empty(len(first))
    for block in level_blocks(queries[some][first], different, items, groups, n_bits):
        everyone, relevant = block.total.copy(), block.relevant.copy()
        here = np.arange(len(everyone)), own[first][block.rows]
        everyone[here] -= 1
        relevant[here] -= 1
        found[block.rows] = expected_average_precision(everyone, relevant)
    precisions = np.full(len(queries), np.nan)
    precisions[some] = found[place]
    return precisions


def _mean(precisions: Floats) -> float:
    """The mean over rows that have a relevant one."""
    known = precisions[~np.isnan(precisions)]
    return float(known.mean()) if len(known) else float("nan")
