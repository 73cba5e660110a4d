"""What a search from rows returns: items, what they were ordered by, what it cost and what to expect of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Floats, PackedCodes
from shorthash.index.results import ByQuery, Probes


@dataclass(frozen=True)
class Answers(ByQuery):
    """The best items of every query, best first, in flat arrays, because queries may find fewer than k.

    Attributes
    ----------
    ids : (n_hits,) int64 or str, the hits of the first query, then those of the second, ...
    scores : (n_hits,) float32, what items are ordered by, larger is better: cosine, probability of being relevant,
        expected share of relevant items in the item's cell, or minus the Hamming distance
    offsets : (n_queries + 1,) int64; query i owns ``ids[offsets[i]:offsets[i + 1]]``
    n_cells : (n_queries,) int64, cells (codes) looked up
    n_items : (n_queries,) int64, items looked at
    precision : (n_queries,) expected share of relevant items among the hits; nan without posteriors
    recall : (n_queries,) expected share of all relevant items that the cells hold; nan where the size of the other
        cells is not known: in a store, in rings, and without posteriors
    codes : (n_hits,) packed codes of the items; None if rings were searched without a radius
    probes : the cells, in order; query i looked up the first ``n_cells[i]``; None as ``codes``
    """

    ids: NDArray[Any]
    scores: NDArray[np.float32]
    offsets: NDArray[np.int64]
    n_cells: NDArray[np.int64]
    n_items: NDArray[np.int64]
    precision: Floats
    recall: Floats
    codes: PackedCodes | None = None
    probes: Probes | None = None

    def __getitem__(self, query: int) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Ids and scores of one query, as views."""
        rows = self._rows_of(query)
        return self.ids[rows], self.scores[rows]

    def looked_up(self, query: int) -> PackedCodes:
        """The cells that one query looked up, in order; empty if rings were searched without a radius."""
        row = range(len(self))[query]
        if self.probes is None:
            return np.empty(0, dtype=np.uint64)
        start = int(self.probes.offsets[row])
        return self.probes.cells[start : start + int(self.n_cells[row])]
