"""Counters and timers of the server, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
WORK_SECONDS = (0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)


class Metrics:
    """Counters of one application, in a registry of their own.

    Attributes
    ----------
    search : histogram of seconds from a code to its neighbours
    encode : histogram of seconds from vectors to codes; concurrent requests are encoded together
    encoded : counter of vectors encoded
    remembered : counter of searches answered from the cache
    """

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("shorthash_requests", "Requests.", ("method", "route", "status"), registry=registry)
        self._seconds = Histogram(
            "shorthash_request_seconds",
            "Seconds from request to answer.",
            ("route",),
            registry=registry,
            buckets=REQUEST_SECONDS,
        )
        self.search = Histogram(
            "shorthash_search_seconds", "Seconds from code to neighbours.", registry=registry, buckets=WORK_SECONDS
        )
        self.encode = Histogram(
            "shorthash_encode_seconds",
            "Seconds from vectors to codes; concurrent requests are encoded together.",
            registry=registry,
            buckets=WORK_SECONDS,
        )
        self.encoded = Counter("shorthash_encoded_vectors", "Vectors of queries encoded.", registry=registry)
        self.remembered = Counter(
            "shorthash_remembered_answers", "Searches answered from the cache.", registry=registry
        )
        self._items = Gauge("shorthash_items", "Items in the collection.", registry=registry)
        self._buckets = Gauge("shorthash_buckets", "Codes that occur in the collection.", registry=registry)
        self._n_bits = Gauge("shorthash_code_bits", "Length of the codes.", registry=registry)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request by its route template, so that the number of labels is bounded."""
        method = method if method in METHODS else "other"
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self, n_items: int, n_buckets: int, n_bits: int) -> bytes:
        """All metrics in the text format of Prometheus."""
        self._items.set(n_items)
        self._buckets.set(n_buckets)
        self._n_bits.set(n_bits)
        return generate_latest(self._registry)
