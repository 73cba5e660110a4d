"""RSLH: the estimator, the steps both solvers share, and the two solvers."""

from shorthash.learners.rslh.estimator import RSLH

__all__ = ["RSLH"]
