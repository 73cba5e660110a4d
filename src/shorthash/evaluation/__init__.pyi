from .metrics import CONVENTIONS as CONVENTIONS
from .metrics import Convention as Convention
from .rankings import CodeHistogram as CodeHistogram
from .rankings import NeighbourScores as NeighbourScores
from .rankings import evaluate_cells as evaluate_cells
from .rankings import evaluate_distances as evaluate_distances
from .rankings import evaluate_histogram as evaluate_histogram
from .rankings import evaluate_neighbours as evaluate_neighbours
from .rankings import evaluate_reranked as evaluate_reranked
from .relevance import read_qrels as read_qrels
from .scores import Scores as Scores
from .scores import evaluate as evaluate
from .scores import evaluate_hasher as evaluate_hasher
from .scores import learned_codes as learned_codes
from .scores import map_scorer as map_scorer
from .scores import plot_precision_recall as plot_precision_recall
from .statistics import Comparison as Comparison
from .statistics import Summary as Summary
from .statistics import compare_scores as compare_scores
from .statistics import summarise as summarise

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
