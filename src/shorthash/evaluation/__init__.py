"""Codes and labels become Scores: exact, ties included, every convention named.

In: codes (or distances) of queries and database, and their labels. Out: Scores, comparisons of Scores, figure data.
"""

from shorthash.evaluation.cells import evaluate_cells
from shorthash.evaluation.conventions import CONVENTIONS, Convention
from shorthash.evaluation.hashers import evaluate_hasher, learned_codes, map_scorer
from shorthash.evaluation.histograms import CodeHistogram, evaluate_histogram
from shorthash.evaluation.reranked import evaluate_reranked
from shorthash.evaluation.scores import Scores, evaluate, evaluate_distances
from shorthash.evaluation.statistics import Comparison, Summary, compare, summarise

__all__ = [
    "CONVENTIONS",
    "CodeHistogram",
    "Comparison",
    "Convention",
    "Scores",
    "Summary",
    "compare",
    "evaluate",
    "evaluate_cells",
    "evaluate_distances",
    "evaluate_hasher",
    "evaluate_histogram",
    "evaluate_reranked",
    "learned_codes",
    "map_scorer",
    "summarise",
]
