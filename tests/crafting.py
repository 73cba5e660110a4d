"""Saves whose contents were changed by somebody who knows the format: every checksum fits again."""

import hashlib
import json
from pathlib import Path

import numpy as np

from shorthash.persistence import files


def craft_file(path, change_arrays=None, change_save=None, change_contents=None):
    """Change arrays (a dict, in place), the description and the table of contents of a save in one file."""
    path = Path(path)
    with path.open("rb") as file:
        meta, contents, _ = files._read_file_header(path, file)
    arrays = {name: array.copy() for name, array in files.read_file(path, mmap=False)[1].items()}
    if change_arrays is not None:
        change_arrays(arrays)
    if change_save is not None:
        change_save(meta)
    meta["checksums"] = {name: files._digest(files._bytes_of(array)) for name, array in arrays.items()}
    contents, names = files._contents(arrays)
    if change_contents is not None:
        change_contents(contents)
    save = json.dumps(meta, separators=(",", ":"))
    contents = {"__metadata__": {"format": "shorthash", "save": save, "checksum": ""}, **contents}
    contents["__metadata__"]["checksum"] = files._header_checksum(contents)
    files._write_arrays(path, files._as_header(contents), [arrays[name] for name in names])


def craft_folder(path, change_arrays=None, change_meta=None):
    """Change arrays (a dict, in place) and the description of a save in a folder."""
    path = Path(path)
    meta, arrays = files.read_save(path, mmap=False)
    arrays = {name: np.array(array) for name, array in arrays.items()}
    if change_arrays is not None:
        change_arrays(arrays)
    meta["arrays"] = files._write_array_file(path / meta["arrays"]["file"], arrays)
    if change_meta is not None:
        change_meta(meta)
    meta["checksum"] = hashlib.sha256(files._canonical(meta)).hexdigest()
    (path / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")
