"""Feature maps: with them, linear hash functions become non-linear in the rows.

In: feature rows. Out: kernel features, one column per anchor, and a constant column for methods that need one.
"""

from shorthash.kernels.rbf import AnchorRBF, Bias

__all__ = ["AnchorRBF", "Bias"]
