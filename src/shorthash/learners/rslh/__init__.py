"""RSLH: the estimator with its solver from sums alone; the steps, with the solver sample by sample."""

from shorthash.learners.rslh.estimator import RSLH

__all__ = ["RSLH"]
