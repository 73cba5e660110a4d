"""shorthash: extremely short binary codes, learned, searched and evaluated.

The packages follow the flow of the data; each imports only packages to its left::

    data -> kernels -> learners -> codes -> index, store -> evaluation
    rows    phi(X)     hashers     +-1      buckets, SQL    Scores

    >>> from shorthash import BucketIndex, make_hasher                  # doctest: +SKIP
    >>> hasher = make_hasher(n_bits=8, random_state=0).fit(X, y)        # doctest: +SKIP
    >>> index = BucketIndex(n_bits=8).add(hasher.transform(X))          # doctest: +SKIP

The public names are listed in ``__init__.pyi`` and imported on first use, so ``import shorthash`` is fast.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
