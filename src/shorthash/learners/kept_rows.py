"""A uniform sample of all rows seen so far, of bounded size: the memory of a learner that needs rows again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Floats


@dataclass(frozen=True)
class KeptRows:
    """Every row drew a number when it came; those with the smallest are kept, in the order of their coming.

    Attributes
    ----------
    X : (m, d) the rows
    Y : (m, c) their labels, 0 or 1
    numbers : (m,) what they drew
    seen : rows that came so far
    capacity : most rows kept
    """

    X: NDArray[np.float32]
    Y: NDArray[np.uint8]
    numbers: Floats
    seen: int
    capacity: int

    @classmethod
    def none(cls, n_features: int, n_classes: int, capacity: int) -> Self:
        """No rows yet."""
        X, Y = np.empty((0, n_features), dtype=np.float32), np.empty((0, n_classes), dtype=np.uint8)
        return cls(X, Y, np.empty(0), 0, capacity)

    def add(self, X: NDArray[np.float32], Y: NDArray[np.uint8], rng: np.random.RandomState) -> Self:
        """With more rows."""
        return self.join(type(self)(X, Y, rng.random_sample(len(X)), len(X), self.capacity))

    def join(self, other: Self) -> Self:
        """The sample of the rows of both."""
        numbers = np.concatenate([self.numbers, other.numbers])
        rows, labels = np.concatenate([self.X, other.X]), np.concatenate([self.Y, other.Y])
        if len(numbers) > self.capacity:
            kept = np.sort(np.argpartition(numbers, self.capacity)[: self.capacity])
            rows, labels, numbers = rows[kept], labels[kept], numbers[kept]
        return type(self)(rows, labels, numbers, self.seen + other.seen, self.capacity)
