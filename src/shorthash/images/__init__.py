"""Images: features of image files, and a collection of items that can be searched and added to.

In: image files, a fitted hasher. Out: feature rows; neighbours, buckets, explanations.
"""

from shorthash.images.collection import Collection
from shorthash.images.fitting import FitReport, fit_images
from shorthash.images.results import AddReport, BitExplanation, Bucket, Found, Item
from shorthash.images.storage import is_collection

__all__ = [
    "AddReport",
    "BitExplanation",
    "Bucket",
    "Collection",
    "FitReport",
    "Found",
    "Item",
    "fit_images",
    "is_collection",
]
