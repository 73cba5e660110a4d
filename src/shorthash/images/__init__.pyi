from .collection import Collection as Collection
from .fitting import FitReport as FitReport
from .fitting import fit_images as fit_images
from .results import AddReport as AddReport
from .results import BitExplanation as BitExplanation
from .results import Bucket as Bucket
from .results import Found as Found
from .results import Item as Item
from .storage import is_collection as is_collection

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
