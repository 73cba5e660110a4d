"""Small classes to save, and a deep comparison."""

import dataclasses

import numpy as np
from sklearn.base import BaseEstimator

from shorthash.persistence.saves import NOT_SAVED


class Model(BaseEstimator):
    def __init__(self, n_bits=8, extra=None, random_state=None):
        self.n_bits = n_bits
        self.extra = extra
        self.random_state = random_state


class Unregistered(Model):
    pass


@dataclasses.dataclass(frozen=True)
class Sums:
    counts: object
    label: str


def fitted(value=None):
    model = Model(extra=(1, [2.5, None], {"a": True}))
    model.weights_ = np.arange(6.0).reshape(2, 3)
    model.statistics_ = Sums(np.ones(1000), "sums")
    model.n_features_in_ = 3
    model._seed = 7
    if value is not None:
        model.value_ = value
    return model


def same(a, b):
    """Equal in type and value, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | np.generic):
        order = a.ndim < 2 or a.dtype.kind == "U" or a.flags.f_contiguous == b.flags.f_contiguous
        return a.dtype == b.dtype and a.shape == b.shape and order and a.tobytes() == b.tobytes()
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, BaseEstimator):
        kept = [sorted((k, v) for k, v in vars(each).items() if k not in NOT_SAVED) for each in (a, b)]
        return same(*kept)
    return a == b or (a != a and b != b)
