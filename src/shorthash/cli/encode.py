"""shorthash encode, and how all commands turn files into codes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from shorthash.cli import output
from shorthash.cli.options import AsJson, LabelColumns, Model, argument, flag, option

if TYPE_CHECKING:
    from shorthash._types import Codes

__all__ = ["encode", "load_model", "read_codes"]

CHUNK_ROWS = 65_536  # rows between two moves of the progress bar; a multiple of the batches the library reads


def encode(
    model: Model,
    features: Annotated[
        Path, argument("FEATURES", "Feature rows: .npy, .npz, .csv or .parquet, or a folder of tables.")
    ],
    codes: Annotated[Path, option("--output -o", "CODES", "File to write.")],
    signs: Annotated[bool, flag("--signs", "Write -1 and +1, one column per bit.")] = False,
    label: LabelColumns = None,
    as_json: AsJson = False,
) -> None:
    """Encode feature rows with a saved model.

    CODES ends in .npy, .npz, .csv or .parquet. Codes are packed into the smallest unsigned integers: bit j of an
    integer is bit j of the code. A .npz file also holds the length, as n_bits. If FEATURES is a .npy, .parquet or
    .arrow file, or a folder of tables, and CODES ends in .npy or .parquet, rows are read and written in blocks, so that
    memory does not limit them. Columns named by --label are not encoded.

    \b
    Example:
      shorthash encode digits.model database.npy -o codes.npz
    """
    import numpy as np

    from shorthash.codes import pack
    from shorthash.data.files import check_target, write_codes
    from shorthash.scale import as_stream, encode_to_file

    check_target(codes)
    hasher = load_model(model)
    readable = features.is_dir() or features.suffix.lower() in (".npy", ".parquet", ".arrow", ".feather")
    in_blocks = not signs and readable and codes.suffix.lower() in (".npy", ".parquet")
    with output.progress() as step:
        start = time.perf_counter()
        if in_blocks:
            stream = as_stream(features, label=label or None)
            _check_columns(features, stream.n_columns, hasher)
            counts = encode_to_file(hasher, stream, codes, progress=step)
            n_rows, n_bits, distinct = counts.n_rows, counts.n_bits, counts.distinct
        else:
            rows = read_codes(features, hasher, step)
            write_codes(codes, rows, signs=signs)
            (n_rows, n_bits), distinct = rows.shape, len(np.unique(pack(rows)))
        seconds = time.perf_counter() - start
    data = {"codes": codes, "n_rows": n_rows, "n_bits": n_bits, "signs": signs, "distinct_codes": distinct}
    output.show({**data, "seconds": round(seconds, 3)}, as_json=as_json)


def load_model(path: Path) -> Any:
    """Load a fitted model; an index, or a part of a model, is an error."""
    from shorthash.errors import InvalidInput
    from shorthash.persistence import describe, load

    saved = describe(path)
    if saved["kind"] == "index" or "n_bits" not in saved:
        raise InvalidInput(f"{path} holds {saved['class']}, but a model is needed; make one with shorthash fit.")
    return load(path)


def read_codes(path: Path, hasher: Any, step: output.Progress, n_bits: int | None = None) -> Codes:
    """Codes of a file: its feature rows encoded in chunks, or the codes that it holds if ``hasher`` is None."""
    import numpy as np

    from shorthash.data import files

    if hasher is None:
        return files.read_codes(path, n_bits)
    X = files.read_features(path)
    _check_columns(path, X.shape[1], hasher)
    parts = []
    for start in range(0, len(X), CHUNK_ROWS):
        step("encoding", start, len(X))
        parts.append(hasher.transform(X[start : start + CHUNK_ROWS]))
    return np.concatenate(parts)


def _check_columns(path: Path, n_columns: int, hasher: Any) -> None:
    """Raise if a file has other features than the model was learned from."""
    from shorthash.errors import InvalidInput

    if n_columns != hasher.n_features_in_:
        labels = "" if path.suffix == ".npy" else ", and say which columns are labels"
        raise InvalidInput(
            f"{path} has {n_columns} features per row, but the model was learned from {hasher.n_features_in_}; give "
            f"features made in the same way{labels}."
        )
