"""Any number of rows: streams on one machine, Dask collections on many, sums that can be saved and added up.

In: rows that come in blocks, wherever they are. Out: sums, fitted hashers, codes, histograms and bucket tables.
"""

from __future__ import annotations

from shorthash.data.streams import ArrayStream, BatchStream, Stream, as_stream
from shorthash.data.tables import TableStream
from shorthash.scale.collected import Collected, load_collected, save_collected
from shorthash.scale.encoding import encode_to_file, encoded
from shorthash.scale.streaming import collect, fit_collected, fit_stream

__all__ = [
    "ArrayStream",
    "BatchStream",
    "Collected",
    "Stream",
    "TableStream",
    "as_stream",
    "collect",
    "encode_to_file",
    "encoded",
    "fit_collected",
    "fit_stream",
    "load_collected",
    "save_collected",
]
