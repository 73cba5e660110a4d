"""Search among codes in memory: the exhaustive scan (the reference) and the bucket index (the fast one).

In: codes as int8 signs or packed integers. Out: ``SearchResult`` and ``RadiusResult``.
"""

from shorthash.index.base import HammingIndex, LookupResult, Probes, RadiusResult, RerankResult, SearchResult
from shorthash.index.buckets import BucketIndex, BucketSlices
from shorthash.index.memory import MemoryIndex
from shorthash.index.scan import FaissIndex, ScanIndex

__all__ = [
    "BucketIndex",
    "BucketSlices",
    "FaissIndex",
    "HammingIndex",
    "LookupResult",
    "MemoryIndex",
    "Probes",
    "RadiusResult",
    "RerankResult",
    "ScanIndex",
    "SearchResult",
]
