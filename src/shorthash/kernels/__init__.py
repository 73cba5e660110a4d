"""X -> phi(X): feature maps that make linear hash functions curved.

In: feature rows. Out: kernel features, one column per anchor.
"""

from shorthash.kernels.rbf import AnchorRBF

__all__ = ["AnchorRBF"]
