"""Expected-AP hashing where the database is the training set: codes that may remember.

A row that was learned from is coded more surely than a row that was not, and if exactly those rows are searched, a
model that memorises them is the better one, though it is no better on queries. Choosing it by log-loss would be wrong,
and by the queries dishonest. The rule here: every penalty of the logistic model, with codewords, is judged by the mAP
of out-of-fold queries against in-sample database codes, each row's own item left out; and for the best penalty so is
the refined table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._labels import LabelGroups
from shorthash._types import Features, Floats
from shorthash.codes.levels import expected_average_precision, level_blocks
from shorthash.learners.eaph.refinement import Design, best_rows, design_codes
from shorthash.learners.posteriors.folds import Fitted, Folds, Posteriors, with_lone_rows
from shorthash.learners.posteriors.logistic import logistic_path

__all__ = ["Remembered", "design_for_training_rows", "remember", "searched_map"]


@dataclass(frozen=True)
class Remembered:
    """One penalty of the logistic model: the model, and its posteriors of the rows it learned from."""

    fitted: Fitted
    inside: Posteriors


def remember(X: Features, groups: LabelGroups, folds: Folds) -> list[Remembered]:
    """Models of all penalties, the same for every code length."""
    steps = logistic_path(X, groups.ids, groups.rows, folds)
    models = [step.finished(X, groups.ids, groups.rows) for step in steps]
    known = [replace(fitted, oof=with_lone_rows(fitted.oof, groups.ids[folds.rows])) for fitted in models]
    return [Remembered(fitted, fitted.model.predict(X[folds.rows])) for fitted in known]


def design_for_training_rows(
    path: list[Remembered],
    groups: LabelGroups,
    rel: Floats | None,
    n_bits: int,
    rng: np.random.RandomState,
    **options: Any,
) -> tuple[Fitted, Design, float]:
    """Posteriors and table of the best estimated mAP, and the estimate."""

    def judged(known: Remembered, refine: bool) -> tuple[Remembered, Design, float]:
        design = design_codes(known.fitted.oof, rel, n_bits, rng, **{**options, "refine": refine})
        queries, items = best_rows(known.fitted.oof, design.table), best_rows(known.inside, design.table)
        return known, design, searched_map(design.cells[queries], design.cells[items], groups, n_bits)

    best = max((judged(known, refine=False) for known in path), key=lambda found: found[2])
    if options["refine"]:
        best = max(best, judged(best[0], refine=True), key=lambda found: found[2])
    return best[0].fitted, best[1], best[2]


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
