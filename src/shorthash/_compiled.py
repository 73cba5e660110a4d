"""numba's ``njit``, for machines where compiled code can be kept and for those where nothing can be written."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def njit(**options: Any) -> Callable[[F], F]:
    """``numba.njit`` that does not keep compiled code on disk where it cannot: read-only folders, a full disk.

    Parameters
    ----------
    **options : of ``numba.njit``
    """

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
