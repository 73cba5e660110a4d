"""A named set of feature rows with their labels, and where they come from."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Features, Labels
from shorthash.errors import InvalidInput

__all__ = ["Dataset"]


@dataclass(frozen=True)
class Dataset:
    """Features and labels that belong together.

    Parameters
    ----------
    name : short name, used in tables and file names
    X : (n, n_features) feature rows; a memory map stays one
    y : (n,) class labels, or an (n, n_classes) indicator matrix
    provenance : where rows and labels come from, in a sentence
    test : (n,) bool, the test rows that the data set names; None if it names none

    Examples
    --------
    >>> data = Dataset("toy", np.zeros((3, 2)), np.array(["cat", "dog", "cat"]), "made up")
    >>> data
    Dataset('toy', 3 rows x 2 features, 2 classes)
    >>> data.take([0, 2]).y.tolist()
    ['cat', 'cat']
    """

    name: str
    X: Features = field(repr=False)
    y: Labels = field(repr=False)
    provenance: str = ""
    test: NDArray[np.bool_] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        X, y = np.asanyarray(self.X), np.asarray(self.y)
        if X.ndim != 2:
            raise InvalidInput(
                f"X of dataset {self.name!r} must have shape (n_rows, n_features). Got {X.shape} instead; put one "
                "sample per row."
            )
        for part, values in (("y", y), ("test", self.test)):
            if values is not None and (np.ndim(values) == 0 or len(values) != len(X)):
                found = "a single value" if np.ndim(values) == 0 else f"{len(values)}"
                raise InvalidInput(
                    f"{part} of dataset {self.name!r} must have one entry for each of the {len(X)} rows of X. Got "
                    f"{found} instead."
                )
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "y", y)
        if self.test is not None:
            object.__setattr__(self, "test", np.asarray(self.test, dtype=bool))

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        shape = f"{len(self.X)} rows x {self.X.shape[1]} features"
        return f"Dataset({self.name!r}, {shape}, {self.n_classes} classes)"

    @property
    def multilabel(self) -> bool:
        """Whether the labels are an indicator matrix."""
        return self.y.ndim == 2

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.y.shape[1]) if self.multilabel else len(np.unique(self.y))

    def take(self, rows: NDArray[np.intp] | list[int]) -> Dataset:
        """Some of the rows, as a dataset of the same name."""
        chosen = np.asarray(rows)
        test = None if self.test is None else self.test[chosen]
        return Dataset(self.name, self.X[chosen], self.y[chosen], self.provenance, test)
