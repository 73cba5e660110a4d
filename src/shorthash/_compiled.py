"""numba's ``njit``, for machines where compiled code can be kept and for those where nothing can be written.

Compiling takes most of the time of a first use. In compiled functions, ``np.int64(0)`` in the place of 0 as the first
value of an argument keeps numba from compiling the callee once more for the literal; loops in the place of ``a[:] = b``
keep it from compiling the messages of broadcasting; conditions in the place of ``min`` and ``max``, and arrays that the
caller allocates, save functions of numba; small functions of one caller have ``inline="always"``.

A loop over part of an array is a loop over a slice: from 0, numba sees that no index is negative, and the loop can be
vectorised.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def njit(*, inner: bool = False, allocates: bool = True, **options: Any) -> Callable[[F], F]:
    """``numba.njit`` that does not keep compiled code on disk where it cannot: read-only folders, a full disk.

    Parameters
    ----------
    inner : whether only compiled functions call this one; a part that takes arguments from Python is not compiled then
    allocates : whether arrays are made in the function; where none are, references to them are not counted
    **options : of ``numba.njit``; a division by zero is infinite or NaN, as in NumPy, if they say nothing else
    """
    usual = {"no_cfunc_wrapper": True, "no_cpython_wrapper": inner, "error_model": "numpy"}  # nothing is called from C
    options = {**usual, **({} if allocates else {"_nrt": False}), **options}

    def compiled(function: F) -> F:
        try:
            made: Any = numba.njit(**options)(function)
        except RuntimeError:  # numba finds no folder that it may write to
            made = numba.njit(**{**options, "cache": False})(function)
        cache: Any = getattr(made, "_cache", None)
        if hasattr(cache, "save_overload"):
            save = cache.save_overload

            def save_if_possible(*values: Any) -> None:
                with suppress(OSError):
                    save(*values)

            cache.save_overload = save_if_possible
        result: F = made
        return result

    return compiled
