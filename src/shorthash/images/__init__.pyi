from .collection import Collection as Collection
from .duplicates import DuplicateFile as DuplicateFile
from .duplicates import DuplicatePair as DuplicatePair
from .duplicates import Duplicates as Duplicates
from .duplicates import find_duplicates as find_duplicates
from .duplicates import near_pairs as near_pairs
from .fitting import FitReport as FitReport
from .fitting import fit_images as fit_images
from .results import AddReport as AddReport
from .results import BitExplanation as BitExplanation
from .results import Bucket as Bucket
from .results import Found as Found
from .results import Item as Item
from .storage import is_collection as is_collection
from .upkeep import Checked as Checked
from .upkeep import backup_collection as backup_collection
from .upkeep import check_collection as check_collection
from .upkeep import restore_collection as restore_collection

__all__ = [
    "AddReport",
    "BitExplanation",
    "Bucket",
    "Checked",
    "Collection",
    "DuplicateFile",
    "DuplicatePair",
    "Duplicates",
    "FitReport",
    "Found",
    "Item",
    "backup_collection",
    "check_collection",
    "find_duplicates",
    "fit_images",
    "is_collection",
    "near_pairs",
    "restore_collection",
]
