"""Binary codes: signs, packed integers, Hamming distances, and how good a set of codes is.

A code is a row of int8 signs, (n_samples, n_bits), or the integer that these signs pack into. Level counts and the
average precision that follows from them are in :mod:`shorthash.codes.levels`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
