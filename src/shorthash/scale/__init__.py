"""Any number of rows: fit hashers on streams and Dask collections, save and merge their sums, encode and score.

Streams are defined in :mod:`shorthash.data.streams`; ``as_stream`` makes one of a file, a folder, batches or an array.
"""

from __future__ import annotations

from shorthash.data.streams import ArrayStream, BatchStream, Stream, TableStream, as_stream
from shorthash.scale.codes import (
    EncodedFile,
    bucket_index,
    code_histogram,
    encode_to_file,
    encoded,
    evaluate_collection,
)
from shorthash.scale.fitting import Collected, collect, fit_collected, fit_stream, load_collected, save_collected

__all__ = [
    "ArrayStream",
    "BatchStream",
    "Collected",
    "EncodedFile",
    "Stream",
    "TableStream",
    "as_stream",
    "bucket_index",
    "code_histogram",
    "collect",
    "encode_to_file",
    "encoded",
    "evaluate_collection",
    "fit_collected",
    "fit_stream",
    "load_collected",
    "save_collected",
]
