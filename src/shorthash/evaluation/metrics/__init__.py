"""One metric, one file: each takes a Ranking and returns one number per query.

In: groups of tied items, nearest first. Out: exact means over all orders inside the groups, (m,).
"""

from shorthash.evaluation.metrics.average_precision import DIVISORS, average_precision
from shorthash.evaluation.metrics.ndcg import ndcg
from shorthash.evaluation.metrics.pr_curve import PRCurve, pr_curve
from shorthash.evaluation.metrics.precision import precision
from shorthash.evaluation.metrics.recall import recall

__all__ = ["DIVISORS", "PRCurve", "average_precision", "ndcg", "pr_curve", "precision", "recall"]
