"""Search among codes in memory: the exhaustive scan (the reference) and the bucket index (the fast one).

In: codes as int8 signs or packed integers. Out: ``SearchResult`` and ``RadiusResult``.
"""

from shorthash.index.base import HammingIndex, MemoryIndex
from shorthash.index.buckets import BucketIndex
from shorthash.index.results import BucketSlices, RadiusResult, RerankResult, SearchResult
from shorthash.index.scan import FaissIndex, ScanIndex

__all__ = [
    "BucketIndex",
    "BucketSlices",
    "FaissIndex",
    "HammingIndex",
    "MemoryIndex",
    "RadiusResult",
    "RerankResult",
    "ScanIndex",
    "SearchResult",
]
