"""Evaluation: codes and labels become Scores, exact for tied distances, under named conventions.

=============================  ======================================================================================
``evaluate``                   codes of queries and database
``evaluate_hasher``            a fitted hasher, on feature rows
``evaluate_histogram``         a database of any size, given by its histogram
``evaluate_distances``         a ranking by real-valued distances
``evaluate_cells``             a ranking of cells, such as codes with learned distances
``evaluate_reranked``          codes whose ties are broken by vectors
``evaluate_neighbours``        codes without labels: the nearest rows are relevant
``read_qrels``                 judgements of a TREC file, for ``evaluate(relevance=)``
``summarise``                  intervals over seeds
``compare_scores``             paired comparisons over queries
``plot_precision_recall``      a figure: precision and recall by radius
=============================  ======================================================================================
"""

from shorthash.evaluation.conventions import CONVENTIONS, Convention
from shorthash.evaluation.rankings import (
    CodeHistogram,
    NeighbourScores,
    evaluate_cells,
    evaluate_distances,
    evaluate_histogram,
    evaluate_neighbours,
    evaluate_reranked,
)
from shorthash.evaluation.relevance import read_qrels
from shorthash.evaluation.scores import (
    Scores,
    evaluate,
    evaluate_hasher,
    learned_codes,
    map_scorer,
    plot_precision_recall,
)
from shorthash.evaluation.statistics import Comparison, Summary, compare_scores, summarise

__all__ = [
    "CONVENTIONS",
    "CodeHistogram",
    "Comparison",
    "Convention",
    "NeighbourScores",
    "Scores",
    "Summary",
    "compare_scores",
    "evaluate",
    "evaluate_cells",
    "evaluate_distances",
    "evaluate_hasher",
    "evaluate_histogram",
    "evaluate_neighbours",
    "evaluate_reranked",
    "learned_codes",
    "map_scorer",
    "plot_precision_recall",
    "read_qrels",
    "summarise",
]
