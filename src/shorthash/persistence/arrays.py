"""The safetensors format: a table of contents, then arrays, read as views of one piece of memory or disk.

Eight bytes for the length of the table, the table (JSON: type, shape and place of every array), the arrays. Wide types
come first, so that every array is aligned. Written and read here because a save needs checksums on the way, and views
of a memory map on the way back.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LARGEST_HEADER", "Array", "digest", "octets_of", "table_of_contents", "views", "write_parts"]

Array = NDArray[Any]

ALIGNMENT = 8  # the widest type
LARGEST_HEADER = 1 << 26  # a table of contents beyond this is nonsense

TYPES = {
    "BOOL": "bool",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
}
"""Types we write, by their names in safetensors files."""

TYPE_NAMES = {name: key for key, name in TYPES.items()}


def table_of_contents(
    arrays: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> tuple[bytes, list[str]]:
    """The table, padded so that arrays are aligned, and the order in which they follow."""
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    contents: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name in names:
        start, end = end, end + arrays[name].nbytes
        kind = TYPE_NAMES[arrays[name].dtype.name]
        contents[name] = {"dtype": kind, "shape": list(arrays[name].shape), "data_offsets": [start, end]}
    header = json.dumps(contents, separators=(",", ":")).encode()
    return header + b" " * (-len(header) % ALIGNMENT), names


def write_parts(file: Path, header: bytes, parts: list[bytes | memoryview]) -> str:
    """Write table and arrays, force them to disk, and return the checksum of the whole file."""
    checksum = hashlib.sha256()
    with file.open("wb") as target:
        first: list[bytes | memoryview] = [len(header).to_bytes(8, "little"), header]
        for part in first + parts:
            checksum.update(part)
            target.write(part)
        target.flush()
        os.fsync(target.fileno())
    return checksum.hexdigest()


def octets_of(array: Array) -> memoryview:
    """The bytes of a contiguous array, not copied."""
    return array.reshape(-1).view(np.uint8).data


def views(contents: Mapping[str, Any], body: Array) -> dict[str, Array]:
    """Views of the arrays in what follows the table."""
    arrays = {}
    for name, entry in contents.items():
        if name == "__metadata__":
            continue
        start, stop = entry["data_offsets"]
        dtype = np.dtype(TYPES[entry["dtype"]]).newbyteorder("<")
        arrays[name] = np.asarray(body[start:stop]).view(dtype).reshape(entry["shape"])
    return arrays


def digest(octets: bytes | memoryview) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(octets).hexdigest()
