"""Search from feature rows to answers: Hamming rings, learned probes and re-ranking in one call.

In: rows, a fitted hasher, an index or a store. Out: ``Answers``, with what the search cost and what to expect of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from shorthash._arrays import Codes, Floats, PackedCodes
from shorthash._validation import check_choice, check_count, steps_of
from shorthash.codes import as_packed, ball_size
from shorthash.errors import InvalidInput
from shorthash.index import BucketIndex, HammingIndex, LookupResult, MemoryIndex, Probes
from shorthash.index.base import ByQuery, check_k
from shorthash.index.items import best_order, compact_posteriors, entry_bytes, score_posteriors
from shorthash.index.kernels import ball
from shorthash.store.base import Store
from shorthash.store.items import Items

RERANKS = ("posterior", "cosine")
VECTOR_TYPES = ("float16", "float32")
RERANK_RADIUS = 2  # of the ball that is re-ranked if neither probes nor a radius is given
MOST_CELLS = 100_000  # largest ball whose cells are listed
ENOUGH = 2.0  # with probes="auto", relevant items to expect, in multiples of k
SAMPLE = 16  # items whose codes are compared with those of the hasher
LEAST_SAME = 0.5  # of them; vectors are stored as float32, so a few may differ
LEAST_SHARE = 0.02  # with probes="auto", the share below which a cell is not looked up


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


class Searcher:
    """Search with feature rows: a fitted hasher, and an index or a store that holds the codes of the items.

    With ``probes`` a search looks up the cells that hold the largest expected share of relevant items, which a hasher
    with posteriors (``EAPH``) has learned; without, it looks at Hamming rings around the query's code. ``rerank``
    orders what it finds: by "posterior", the probability that an item is relevant, or by "cosine" between vectors.

    Parameters
    ----------
    hasher : a fitted hasher or pipeline
    index : an index or a store with the codes of the hasher; None: a new ``BucketIndex``
    posterior_bytes : bytes per item that ``add`` keeps of its posterior, for ``rerank="posterior"``; 0 keeps none
    vectors : "float16" or "float32" if ``add`` keeps the rows, for ``rerank="cosine"``; None keeps none. A store keeps
        float32

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shorthash import EAPH, Searcher
    >>> X, y = load_iris(return_X_y=True)
    >>> searcher = Searcher(EAPH(n_bits=4, random_state=0).fit(X, y)).add(X)
    >>> found = searcher.search(X[:1], k=10, probes=2, rerank="posterior")
    >>> set(y[found.ids].tolist()), found.n_cells.tolist()
    ({0}, [2])
    """

    def __init__(
        self,
        hasher: Any,
        index: HammingIndex | None = None,
        *,
        posterior_bytes: int = 8,
        vectors: str | None = None,
    ) -> None:
        self.hasher, self.learner = hasher, steps_of(hasher)[-1]
        check_is_fitted(self.learner)
        n_bits = int(self.learner.n_bits)
        self.index = BucketIndex(n_bits) if index is None else index
        if self.index.n_bits != n_bits:
            raise InvalidInput(
                f"The codes of {type(self.learner).__name__} have {n_bits} bits, those of the index "
                f"{self.index.n_bits}; use the hasher that encoded the items."
            )
        if vectors is not None:
            check_choice(vectors, "vectors", "Searcher", VECTOR_TYPES)
        self.vectors = vectors
        self.posterior_bytes = check_count(posterior_bytes, "posterior_bytes", "Searcher", low=0)
        if self.posterior_bytes and self.has_posteriors:
            entry = entry_bytes(np.asarray(self.learner.profiles_).shape[1])
            check_count(self.posterior_bytes, "posterior_bytes", "Searcher", low=entry)

    @property
    def has_posteriors(self) -> bool:
        """Whether the hasher knows which cells hold relevant items, as EAPH does."""
        return hasattr(self.learner, "wanted")

    def __len__(self) -> int:
        return len(self.index)

    def add(self, X: ArrayLike, ids: ArrayLike | None = None, **more: Any) -> Self:
        """Encode rows and add them, with what re-ranking needs.

        Parameters
        ----------
        X : (n, n_features) feature rows
        ids : (n,) integers or strings not yet in the index; None numbers the items
        **more : ``classes`` and ``metadata`` of the items, if the index is a store
        """
        rows = np.asarray(X)
        codes = self._encode(rows)
        if self.vectors is not None:
            more["vectors"] = rows.astype(self.vectors)
        keeps = bool(self.posterior_bytes) and self.has_posteriors and len(rows) > 0
        index: Any = self.index
        index.add(codes, ids, posteriors=self.compact(rows) if keeps else None, **more)
        return self

    def remove(self, ids: ArrayLike) -> Self:
        """Remove items, all or none; an id that is not in the index is an error."""
        self.index.remove(ids)
        return self

    def compact(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Compact posteriors of rows, (n, posterior_bytes)."""
        self._check_posteriors("compact")
        return compact_posteriors(self.learner.predict_proba(self._features(X)), self.posterior_bytes)

    def encode_items(self, items: Items) -> tuple[Codes, NDArray[np.uint8] | None]:
        """Codes and compact posteriors of items of a store, from their vectors; what ``Store.migrate`` takes.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from shorthash import EAPH, Searcher, open_store
        >>> X, y = load_iris(return_X_y=True)
        >>> store = open_store("sqlite://:memory:", n_bits=4)
        >>> old = Searcher(EAPH(n_bits=4, random_state=0).fit(X, y), store, vectors="float32").add(X)
        >>> new = Searcher(EAPH(n_bits=6, random_state=0).fit(X, y), store.add_version("v2", n_bits=6))
        >>> store.migrate("v2", new.encode_items)
        150
        >>> len(new.search(X[:1], k=10, probes=2, rerank="posterior").ids)
        10
        """
        if items.vectors is None or np.isnan(items.vectors[:, :1]).any():
            raise InvalidInput(
                "Items are encoded from their vectors, and some have none; give their features instead, as the ROWS of "
                "shorthash index migrate."
            )
        keeps = bool(self.posterior_bytes) and self.has_posteriors
        return self._encode(items.vectors), self.compact(items.vectors) if keeps else None

    def check_codes(self) -> None:
        """Raise if codes in the store are not those that the hasher gives the vectors beside them.

        Sixteen items are compared; as vectors are stored in float32, half of them may differ. Without vectors there is
        nothing to compare.
        """
        store = self.index
        if not isinstance(store, Store):
            return
        ids = store.search(np.zeros(1, dtype=np.uint64), SAMPLE).ids[0]
        items = store.items(ids, skip_missing=True)
        if not len(items) or items.vectors is None or np.isnan(items.vectors[:, 0]).any():
            return
        same = 0.0
        if items.vectors.shape[1] == int(self.hasher.n_features_in_):
            same = float(np.mean(as_packed(self._encode(items.vectors), store.n_bits) == items.codes))
        if same < LEAST_SAME:
            raise InvalidInput(
                f"The codes of version {store.version!r} of collection {store.collection!r} are not those of this "
                f"model: {same:.0%} of {len(items)} vectors have the code that is stored; give the model that encoded "
                "them, or another --version."
            )

    def keep_posteriors(self, ids: ArrayLike, X: ArrayLike) -> Self:
        """Keep the posteriors of items that were added to the index (in memory) by other means.

        Parameters
        ----------
        ids : (n,) ids of the items
        X : (n, n_features) their rows
        """
        if not isinstance(self.index, MemoryIndex):
            raise InvalidInput("Searcher.keep_posteriors is for an index in memory; upsert the items of a store.")
        self.index.keep_posteriors(ids, self.compact(X))
        return self

    def search(
        self,
        X: ArrayLike,
        k: int = 10,
        *,
        probes: int | str | None = None,
        radius: int | None = None,
        rerank: str | None = None,
        where: Any = None,
        enough: float | None = None,
        least_share: float | None = None,
        most: int | None = None,
    ) -> Answers:
        """Find the k best items of every query.

        Parameters
        ----------
        X : (n_queries, n_features) feature rows
        k : number of items to find, at least 1
        probes : how many cells to look up, those with the largest expected share of relevant items first; "auto": as
            many as it takes to expect 2 k relevant items, none with an expected share below 0.02. None: Hamming rings
        radius : largest Hamming distance of the rings, without ``probes``; None: as far as it takes to find k items, or
            2 with ``rerank``
        rerank : order what was looked at by "posterior" or by "cosine"; None: by the expected share of the cell (by the
            ring), then by id
        where : only these items may be found: what the index or store takes
        enough : stop once this many relevant items are expected in the cells looked up; None: no limit ("auto": 2 k)
        least_share : skip cells with a smaller expected share of relevant items, except the first; None: 0
            ("auto": 0.02)
        most : raise rather than look at more items than this for all queries together; None: no limit
        """
        owner = "Searcher.search"
        if most is not None:
            check_count(most, "most", owner)
        k = check_k(k, owner)
        self._check_policy(probes, radius, rerank, owner)
        rows = np.asarray(X)
        if probes is None:
            return self._in_rings(rows, k, radius, rerank, where, most)
        self._check_posteriors("probes")
        n_probes = self._n_probes(probes)
        if probes == "auto":
            enough = ENOUGH * k if enough is None else enough
            least_share = LEAST_SHARE if least_share is None else least_share
        features = self._features(rows)
        wanted = self.learner.wanted(features)
        shares = self.learner.relevance_of(features, wanted)
        given = self._learned(shares, n_probes, least_share or 0.0, np.inf if enough is None else float(enough))
        found = self._look(given, rows, rerank, where, most)
        recall = self._expected_recall(given, found, shares, where)
        return self._ordered(found, given, given.shares.astype(np.float32), wanted, k, rerank, recall)

    def _check_policy(self, probes: int | str | None, radius: int | None, rerank: str | None, owner: str) -> None:
        if rerank is not None:
            check_choice(rerank, "rerank", owner, RERANKS)
        if rerank == "posterior":
            self._check_posteriors("rerank='posterior'")
        if radius is not None:
            if probes is not None:
                raise InvalidInput(f"{owner} takes probes or a radius. Got both; leave one out.")
            check_count(radius, "radius", owner, low=0)

    def _check_posteriors(self, what: str) -> None:
        if not self.has_posteriors:
            raise InvalidInput(
                f"{what} needs a hasher that has learned posteriors, such as EAPH. Got {type(self.learner).__name__}; "
                "search Hamming rings instead, or fit method 'auto'."
            )

    def _n_probes(self, probes: int | str) -> int:
        if probes == "auto":
            return len(self.learner.cells_)
        if isinstance(probes, str):
            raise InvalidInput(f"The 'probes' of Searcher.search must be a number, 'auto' or None. Got {probes!r}.")
        return min(check_count(probes, "probes", "Searcher.search"), len(self.learner.cells_))

    def _features(self, X: ArrayLike) -> Any:
        """Rows as the learner takes them."""
        return self.hasher[:-1].transform(X) if len(getattr(self.hasher, "steps", ())) > 1 else X

    def _learned(self, shares: Floats, n_probes: int, least_share: float, enough: float) -> Probes:
        """The cells with the largest shares of every query."""
        taken = [_largest(row, n_probes, least_share) for row in shares]
        offsets = np.cumsum([0, *map(len, taken)], dtype=np.int64)
        cells = np.concatenate([np.empty(0, dtype=np.intp), *taken])
        rows = np.repeat(np.arange(len(shares)), np.diff(offsets))
        return Probes(np.asarray(self.learner.cells_)[cells], shares[rows, cells], offsets, enough)

    def _look(
        self, probes: Probes, rows: NDArray[Any], rerank: str | None, where: Any, most: int | None
    ) -> LookupResult:
        if most is not None:
            self._check_size(probes, where, most)
        index, by_posterior = self.index, rerank == "posterior"
        unknown = "No posterior of an item is known; add items by Searcher.add, or call keep_posteriors."
        if by_posterior and isinstance(index, MemoryIndex) and len(index) and not index.posterior_bytes:
            raise InvalidInput(unknown)
        vectors = rows if rerank == "cosine" else None
        found = index.lookup(probes, where=where, vectors=vectors, posteriors=by_posterior)
        if by_posterior and len(found.ids) and (found.posteriors is None or not found.posteriors.any()):
            raise InvalidInput(unknown)
        return found

    def _check_size(self, probes: Probes, where: Any, most: int) -> None:
        """Raise if the cells that will be looked up hold more than ``most`` items."""
        index, n = self.index, 0
        for a, b in pairwise(probes.offsets.tolist()):
            cells = probes.cells[a:b]
            if isinstance(index, Store):
                sizes = index.cell_sizes(cells, where=where)
            else:
                sizes = index.counts(cells, 0, where=where)
            expected = np.cumsum(sizes * probes.shares[a:b])
            n += int(sizes[np.append(0.0, expected)[:-1] < probes.enough].sum())
        if n > most:
            raise InvalidInput(f"This search looks at {n} items, more than {most}; use fewer probes or a smaller ball.")

    def _in_rings(
        self, rows: NDArray[Any], k: int, radius: int | None, rerank: str | None, where: Any, most: int | None
    ) -> Answers:
        codes, n_bits = as_packed(self._encode(rows), self.index.n_bits), self.index.n_bits
        if rerank is None and radius is None:
            return self._nearest(codes, k, where)
        radius = min(RERANK_RADIUS if radius is None else radius, n_bits)
        if ball_size(n_bits, radius) > MOST_CELLS:
            raise InvalidInput(
                f"A ball of radius {radius} has {ball_size(n_bits, radius)} codes of {n_bits} bits, more than "
                f"{MOST_CELLS}; take a smaller radius, or search the index itself."
            )
        masks = ball(self.index.n_bits, radius)[0]
        cells = (codes.astype(np.uint64)[:, None] ^ masks).astype(codes.dtype)
        distances = -np.bitwise_count(masks).astype(np.float32)
        offsets = np.arange(len(codes) + 1) * len(masks)
        features = self._features(rows) if self.has_posteriors else None
        wanted = self.learner.wanted(features) if self.has_posteriors else None
        shares = np.zeros(cells.shape) if wanted is None else self._shares_of(cells, features, wanted)
        probes = Probes(cells.ravel(), shares.ravel(), offsets)
        found = self._look(probes, rows, rerank, where, most)
        recall = np.full(len(codes), np.nan)
        return self._ordered(found, probes, np.tile(distances, len(codes)), wanted, k, rerank, recall)

    def _nearest(self, codes: PackedCodes, k: int, where: Any) -> Answers:
        """The k nearest items by Hamming distance, then id, however far they are."""
        top, m = self.index.search(codes, k, where=where), len(codes)
        n_bits, width = self.index.n_bits, top.ids.shape[1]
        reach = top.distances[:, -1].tolist() if width else [n_bits] * m
        return Answers(
            top.ids.reshape(-1),
            -top.distances.reshape(-1).astype(np.float32),
            np.arange(m + 1) * width,
            np.array([ball_size(n_bits, r) for r in reach], dtype=np.int64),
            np.full(m, width),
            np.full(m, np.nan),
            np.full(m, np.nan),
        )

    def _encode(self, rows: NDArray[Any]) -> Codes:
        return np.asarray(self.hasher.transform(rows)) if len(rows) else np.empty((0, self.index.n_bits), dtype=np.int8)

    def _shares_of(self, cells: PackedCodes, features: Any, wanted: Floats) -> Floats:
        """Expected shares of relevant items in cells, (n_queries, n); the prior where no training row is."""
        order = np.argsort(self.learner.cells_, kind="stable")
        known = np.asarray(self.learner.cells_)[order]
        places = np.minimum(np.searchsorted(known, cells), len(known) - 1)
        shares = self.learner.relevance_of(features, wanted)
        prior = shares.mean(axis=1, keepdims=True)
        return np.asarray(np.where(known[places] == cells, np.take_along_axis(shares, order[places], 1), prior))

    def _expected_recall(self, probes: Probes, found: LookupResult, shares: Floats, where: Any) -> Floats:
        """Share of the relevant items that the cells looked up hold, by the sizes of all cells."""
        if not isinstance(self.index, MemoryIndex):
            return np.full(len(probes), np.nan)
        sizes = self.index.counts(np.asarray(self.learner.cells_), 0, where=where)
        total = shares @ sizes
        rows = np.repeat(np.arange(len(probes)), np.diff(found.offsets))
        held = np.bincount(rows, weights=probes.shares[probes.offsets[rows] + found.places], minlength=len(probes))
        return np.asarray(np.divide(held, total, out=np.full(len(probes), np.nan), where=total > 0))

    def _ordered(
        self,
        found: LookupResult,
        probes: Probes,
        by_cell: NDArray[np.float32],
        wanted: Floats | None,
        k: int,
        rerank: str | None,
        recall: Floats,
    ) -> Answers:
        """The k best of the items looked at; ``by_cell`` is the score of an item of every cell without ``rerank``."""
        taken, scores, expected = [], [], np.full(len(probes), np.nan)
        of_item = np.repeat(probes.offsets[:-1], found.counts) + found.places
        for query in range(len(probes)):
            a, b = found.offsets[query], found.offsets[query + 1]
            score = by_cell[of_item[a:b]] if rerank is None else _scores(found, wanted, query)
            known = np.flatnonzero(score > -np.inf)
            order = known[best_order(score[known], found.ids[a:b][known], k)]
            best, own = a + order, score[order]
            taken.append(best)
            scores.append(own)
            if wanted is not None and len(best):
                expected[query] = own.mean() if rerank == "posterior" else probes.shares[of_item[best]].mean()
        flat = np.concatenate([np.empty(0, dtype=np.int64), *taken])
        return Answers(
            found.ids[flat],
            np.concatenate([np.empty(0, dtype=np.float32), *scores]).astype(np.float32),
            np.cumsum([0, *map(len, taken)], dtype=np.int64),
            found.n_cells,
            found.counts,
            expected,
            recall,
            probes.cells[of_item[flat]],
            probes,
        )


def _scores(found: LookupResult, wanted: Floats | None, query: int) -> NDArray[np.float32]:
    """Scores of the items of one query: by posteriors if they were read, else those of the vectors."""
    part = slice(found.offsets[query], found.offsets[query + 1])
    if found.posteriors is not None and wanted is not None:
        return score_posteriors(found.posteriors[part], wanted[query])
    if found.scores is None:
        return np.full(part.stop - part.start, -np.inf, dtype=np.float32)  # a store without any posterior
    return found.scores[part]


def _largest(shares: Floats, n: int, least: float) -> NDArray[np.intp]:
    """The n cells with the largest shares, of at least ``least`` except the first; equal ones by number."""
    if n < len(shares):
        bound = np.partition(shares, len(shares) - n)[len(shares) - n]
        some = np.flatnonzero(shares >= bound)
    else:
        some = np.arange(len(shares))
    order = some[np.argsort(-shares[some], kind="stable")][:n]
    return order[: max(1, int(np.count_nonzero(shares[order] >= least)))]
