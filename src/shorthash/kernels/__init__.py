"""X -> phi(X): feature maps that make linear hash functions curved.

In: feature rows. Out: kernel features, one column per anchor, and a constant column where a method wants one.
"""

from shorthash.kernels.rbf import AnchorRBF, Bias

__all__ = ["AnchorRBF", "Bias"]
