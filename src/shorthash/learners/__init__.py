"""phi(X), y -> a fitted hasher. One acronym, one file.

In: feature rows and labels. Out: estimators whose ``project`` gives real scores and ``transform`` int8 codes.
"""

from shorthash.learners.base import BaseHasher, SupervisedHasher
from shorthash.learners.rslh import RSLH
from shorthash.learners.sums import SumHasher

__all__ = ["RSLH", "BaseHasher", "SumHasher", "SupervisedHasher"]
