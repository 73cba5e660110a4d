"""One folder that holds everything to search with: encoder, items with codes, vectors and labels, thumbnails.

In: a fitted hasher; images or vectors. Out: neighbours, buckets, explanations; what is added stays.
"""

from shorthash.collection.collection import Collection
from shorthash.collection.fitting import FitReport, fit_images
from shorthash.collection.folder import is_collection
from shorthash.collection.results import AddReport, BitExplanation, Bucket, Encoded, Found, Item

__all__ = [
    "AddReport",
    "BitExplanation",
    "Bucket",
    "Collection",
    "Encoded",
    "FitReport",
    "Found",
    "Item",
    "fit_images",
    "is_collection",
]
