"""Codes become a searchable structure: the exhaustive scan (the truth) and the bucket table (the fast one).

In: codes as int8 signs or packed integers. Out: ``SearchResult`` and ``RadiusResult``.
"""

from shorthash.index.base import HammingIndex
from shorthash.index.buckets import BucketIndex
from shorthash.index.faiss_index import FaissIndex
from shorthash.index.memory import MemoryIndex
from shorthash.index.results import BucketSlices, RadiusResult, RerankResult, SearchResult
from shorthash.index.scan import ScanIndex

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
