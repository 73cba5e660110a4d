"""Rows on which codes would depend on the batch if rounding could change them."""

import numpy as np

from shorthash.codes.signs import pack, sign


def boundary_rows(encode, X, n):
    """Rows so close to a change of the code that the next representable row may have another one.

    Pairs of rows with different codes are brought together by bisection until nothing lies between them.
    """
    codes = encode(X)
    order = np.random.default_rng(1).permutation(len(X))
    first, second = order[:-1], order[1:]
    differ = codes[first] != codes[second]
    first, second = first[differ][:n], second[differ][:n]
    low, high = X[first].astype(np.float64), X[second].astype(np.float64)
    for _ in range(60):
        middle = (low + high) / 2
        same = (encode(middle) == codes[first])[:, None]
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return low


def hostile_rows(hasher, X, n):
    """Rows whose scores are rounding noise, and rows at the limit of what counts as 0."""
    last = hasher if len(hasher.steps) > 1 else hasher[-1]
    noise = boundary_rows(lambda X: pack(sign(last._scores_of(X, exact=False).values)), X, n // 2)
    limit = boundary_rows(lambda X: pack(hasher.transform(X)), X, n // 2)
    return np.concatenate([noise, limit])
