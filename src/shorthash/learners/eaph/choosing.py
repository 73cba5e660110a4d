"""Which posteriors and which codes: candidates judged by what they would retrieve, on training rows alone.

Two things can be searched. If it is *other rows* than those learned from, a candidate is judged by the mAP of
out-of-fold codes among themselves. If it is the *training rows*, a model that remembers them codes them more surely,
and is the better one although it is no better on queries; then a candidate is judged by the mAP of out-of-fold queries
against in-sample codes, each row's own item left out. Log-loss would not choose such a model, and queries must not be
used to choose. Where it is not known what is searched, the model that is best for training rows is taken among those
that lose at most ``WORTH`` on other rows. Few rows are remembered by a model made for it (``fit_remembered``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Floats
from shorthash._labels import LabelGroups
from shorthash._progress import shown
from shorthash.codes.levels import expected_average_precision, leave_one_out_map, level_blocks
from shorthash.learners.eaph.refinement import ROWS_PER_CLASS, Design, best_rows, design_codes
from shorthash.learners.posteriors.folds import Fitted, Posteriors

WORTH = 0.005  # mAP on other rows that may be given up for the training rows, where either may be searched


@dataclass(frozen=True)
class Candidate:
    """Posteriors to make codes of.

    Attributes
    ----------
    name : what the report calls them
    fitted : the model and its out-of-fold posteriors
    inside : (m, u) its posteriors of the same rows, which it has learned from
    remembers : whether training rows are coded by their labels
    plain : name of the posteriors that these are, but for training rows
    """

    name: str
    fitted: Fitted
    inside: Posteriors
    remembers: bool = False
    plain: str = ""


@dataclass(frozen=True)
class Judged:
    """Posteriors with codes, and the mAP to expect where other rows and where the training rows are searched."""

    candidate: Candidate
    design: Design
    disjoint: float
    training: float

    def score(self, database: str) -> float:
        """What counts for a database; both where it is not known; -1 where no two rows share a label."""
        both = {"disjoint": self.disjoint, "training": self.training}
        value = both.get(database, (self.disjoint + self.training) / 2)
        return value if value == value else -1.0

    def line(self, *, taken: bool) -> dict[str, Any]:
        """A line of the report."""
        return {
            "posteriors": self.candidate.name,
            "codes": self.design.kind,
            "disjoint_map": self.disjoint,
            "training_map": self.training,
            "taken": taken,
        }


@dataclass(frozen=True)
class Choice:
    """How candidates are judged.

    Attributes
    ----------
    groups : label sets of the rows that were held out
    rel : which label sets share a label; None for the identity
    n_bits : bits of the table
    seed : of every design
    database : "disjoint", "training" or "auto"
    options : as in ``design_codes``
    beside : an array on the device where tables are refined; None for the CPU
    known : codebooks annealed so far; those of the posteriors that are taken need not be annealed twice
    """

    groups: LabelGroups
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
        weighted = oof * share_weights(self.groups.ids)[:, None]
        options = {**self.options, "refine": refine, "beside": self.beside, "known": self.known}
        for design in design_codes(weighted, self.rel, self.n_bits, rng, **options):
            queries = design.cells[best_rows(oof, design.table)]
            items = design.cells[best_rows(candidate.inside, design.table)]
            disjoint = leave_one_out_map(queries, self.groups.rows[self.groups.ids], self.n_bits)
            training = searched_map(queries, items, self.groups, self.n_bits)
            found.append(Judged(candidate, design, disjoint, training))
        return found

    def posteriors(self, candidates: list[Candidate]) -> tuple[Candidate, list[Judged]]:
        """The best candidate, and all of them as judged with codewords, which are quick to make.

        Posteriors that remember rows are compared only with the best of the others, which they are otherwise.
        """
        if len(candidates) == 1:
            return candidates[0], []
        tried = [self.judged(candidate, refine=False)[0] for candidate in candidates if not candidate.remembers]
        best = self._best(tried)
        others = [candidate for candidate in candidates if candidate.plain == best.candidate.name]
        more = [self.judged(candidate, refine=False)[0] for candidate in others]
        return self._best([best, *more]).candidate, tried + more

    def _best(self, tried: list[Judged]) -> Judged:
        """The best; where it is not known what is searched, for training rows of those that lose little on others."""
        if self.database != "auto":
            return max(tried, key=lambda found: found.score(self.database))
        most = max(found.score("disjoint") for found in tried)
        close = [found for found in tried if found.score("disjoint") >= most - WORTH]
        return max(close, key=lambda found: found.score("training"))

    @shown("designing codes")
    def codes(self, candidates: list[Candidate]) -> tuple[Judged, list[dict[str, Any]]]:
        """The best posteriors with the best codes for them, and a report of what was tried."""
        best, tried = self.posteriors(candidates)
        finalists = self.judged(best, refine=self.options["refine"])
        taken = self._taken(finalists)
        others = [found for found in tried if found.candidate is not best]
        return taken, [found.line(taken=found is taken) for found in (*others, *finalists)]

    def _taken(self, finalists: list[Judged]) -> Judged:
        """The best codes for posteriors; the first are codewords."""
        codewords, database = finalists[0], self.database
        if database == "auto" and self.options["rows_per_class"] < ROWS_PER_CLASS:
            # scores of few rows are not to be weighed against each other: a table must serve both
            least = codewords.score("training") - WORTH
            finalists = [codewords, *(found for found in finalists[1:] if found.score("training") >= least)]
            database = "disjoint"
        elif database == "auto" and codewords.candidate.remembers:
            database = "disjoint"  # training rows that are remembered are found with any codes
        return max(finalists, key=lambda found: found.score(database))


def share_weights(ids: NDArray[np.intp]) -> NDArray[np.float32]:
    """Weights of rows that make the shares of the label sets what they are expected to be in other rows.

    Label sets that are equally frequent have different numbers of rows by chance, and codes would be designed for the
    chance. As far as the numbers vary no more than chance makes them (their variance is their mean), they are drawn
    towards their mean.
    """
    counts = np.bincount(ids)
    present = counts[counts > 0]
    mean = present.mean()
    beyond_chance = max(float(present.var()) - mean, 0.0)
    expected = mean + beyond_chance / (beyond_chance + mean) * (counts - mean)
    return np.asarray((expected / np.maximum(counts, 1))[ids], dtype=np.float32)


def searched_map(
    queries: NDArray[np.unsignedinteger[Any]],
    items: NDArray[np.unsignedinteger[Any]],
    groups: LabelGroups,
    n_bits: int,
) -> float:
    """Tie-aware mAP of packed query codes against packed item codes of the same rows, a row's own item left out."""
    own = np.bitwise_count(queries ^ items)
    total, count = 0.0, 0
    for block in level_blocks(queries, groups, items, groups, n_bits):
        everyone, relevant = block.total.copy(), block.relevant.copy()
        here = np.arange(len(everyone)), own[block.rows]
        everyone[here] -= 1
        relevant[here] -= 1
        precision = expected_average_precision(everyone, relevant)
        scored = ~np.isnan(precision)
        total, count = total + float(precision[scored].sum()), count + int(scored.sum())
    return total / count if count else float("nan")
