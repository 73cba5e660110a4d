"""Fitted models, pipelines and indexes on disk: a folder of ``meta.json`` and one file of arrays. Never pickle.

In: an object of a registered class. Out: a folder, and the object again.
"""

from shorthash.persistence.saves import describe, load, save, verify

__all__ = ["describe", "load", "save", "verify"]
