"""Features and labels to fitted hashers. One acronym, one file.

In: feature rows and labels. Out: estimators whose ``project`` gives real scores and ``transform`` int8 codes. Learners
are imported from ``shorthash``; here are the base classes for new ones.
"""

from shorthash.learners.base import BaseHasher, SupervisedHasher, UnsupervisedHasher
from shorthash.learners.sums import SumHasher

__all__ = ["BaseHasher", "SumHasher", "SupervisedHasher", "UnsupervisedHasher"]
