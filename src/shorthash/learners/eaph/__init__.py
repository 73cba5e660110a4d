"""EAPH: codes that maximise the expected tie-aware mean average precision."""

from shorthash.learners.eaph.estimator import EAPH

__all__ = ["EAPH"]
