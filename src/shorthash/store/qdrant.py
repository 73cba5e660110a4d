"""A store in Qdrant, for collections that outgrow one machine: sharding and replication are Qdrant's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._validation import check_choice, check_count, require_extra
from shorthash.errors import InvalidInput, PersistenceError
from shorthash.store.base import Store
from shorthash.store.conditions import Allowed
from shorthash.store.qdrant_session import QdrantSession, create_collection, read_collection
from shorthash.store.reranking import VECTOR_METRICS, Ranked
from shorthash.store.session import Session, Version
from shorthash.store.versions import check_name, first_version, opened_version

__all__ = ["QdrantStore"]


class QdrantStore(Store):
    """Codes and items in a Qdrant collection: an integer payload index on the code, and a named vector.

    Qdrant has no transactions, so less is promised here than by other stores: let one process at a time write to a
    collection. A call checks everything before it writes; if it is interrupted while writing, some of its items are
    there, each of them whole, and calling ``upsert`` with the same items completes it. A search that needs several
    requests may see items change in between.

    Parameters
    ----------
    client : a ``qdrant_client.QdrantClient``, or the address of a server, "http://host:6333"; ":memory:" for a small
        collection inside the process
    n_bits : length of the codes; needed for a new collection, checked for one that exists
    collection : name of the collection
    version : which codes to open; None opens the current ones, and a new collection begins with "v1"
    dimension : of the vectors of a new collection; 0 for none
    metric : by which a new collection ranks vectors: "cosine" (Qdrant then keeps them scaled to length 1), "dot" or
        "euclidean"
    api_key : key of the server, if it wants one
    """

    def __init__(
        self,
        client: Any,
        n_bits: int | None = None,
        *,
        collection: str = "items",
        version: str | None = None,
        dimension: int = 0,
        metric: str = "cosine",
        api_key: str | None = None,
    ) -> None:
        check_name(collection, "collection")
        qdrant = require_extra("qdrant_client", "qdrant", "QdrantStore")
        check_choice(metric, "metric", "QdrantStore", VECTOR_METRICS)
        self._dimension, self._metric = check_count(dimension, "dimension", "QdrantStore", low=0), metric
        self._lock = threading.RLock()
        self._client = client
        if isinstance(client, str):
            where = (
                {"location": client}
                if client == ":memory:"
                else {"url": client, "api_key": api_key, "check_compatibility": False}
            )
            self._client = qdrant.QdrantClient(**where)
        super().__init__(collection, self._open(collection, n_bits, version))

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def _open(self, collection: str, n_bits: int | None, version: str | None) -> Version:
        with self._explained():
            known = read_collection(self._client, collection)
            if known is None:
                first = first_version(n_bits, version, collection, type(self).__name__)
                known = create_collection(self._client, collection, first, self._dimension, self._metric)
        return opened_version(known, n_bits, version)

    def _best(
        self,
        session: Session,
        query: int,
        vector: NDArray[np.float32],
        k: int,
        radius: int,
        metric: str,
        allowed: Allowed,
    ) -> Ranked:
        """Ball, filter and exact ranking in one request."""
        assert isinstance(session, QdrantSession)
        if metric == "asymmetric":
            return super()._best(session, query, vector, k, radius, metric, allowed)
        if metric != session.collection.vectors_at:
            raise InvalidInput(
                f"Collection {self.collection!r} was made with metric={session.collection.vectors_at!r}. "
                f"Got {metric!r} instead."
            )
        return session.best(self._version, query, vector, k, radius, metric, allowed)

    @contextmanager
    def _reading(self) -> Iterator[QdrantSession]:
        with self._explained():
            yield QdrantSession(self._client, self._collection)

    @contextmanager
    def _opened(self) -> Iterator[Session]:
        """As everywhere; but Qdrant finds nothing, and does not fail, where a version was dropped."""
        with super()._opened() as session:
            yield session
            self._check_version(session)

    @contextmanager
    def _writing(self) -> Iterator[QdrantSession]:
        with self._lock, self._explained():
            yield QdrantSession(self._client, self._collection)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What went wrong, in words."""
        errors = require_extra("qdrant_client.http.exceptions", "qdrant", "QdrantStore")
        try:
            yield
        except errors.ApiException as error:
            reason = " ".join(str(error).split())
            raise PersistenceError(f"Qdrant refused: {reason}; check the server, its address and your key.") from error
