"""RSLH: the estimator, the steps, and the two solvers: sample by sample, and from sums alone."""

from shorthash.learners.rslh.estimator import RSLH

__all__ = ["RSLH"]
