"""shorthash encode: features become a file of codes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from shorthash.cli import output
from shorthash.cli.fit_streamed import LabelColumns
from shorthash.cli.options import AsJson, Model, argument, flag, option
from shorthash.cli.progress import progress
from shorthash.cli.reading import check_columns, encode_file, read_hasher

__all__ = ["encode"]


def encode(
    model: Model,
    features: Annotated[
        Path, argument("FEATURES", "Feature rows: .npy, .npz, .csv or .parquet, or a folder of tables.")
    ],
    codes: Annotated[Path, option("--output", "-o", metavar="CODES", text="File to write.")],
    signs: Annotated[bool, flag("--signs", "Write -1 and +1, one column per bit.")] = False,
    label: LabelColumns = None,
    as_json: AsJson = False,
) -> None:
    """Encode feature rows with a saved model.

    CODES ends in .npy, .npz, .csv or .parquet. Codes are packed into the smallest unsigned integers: bit j of an
    integer is bit j of the code. A .npz file also keeps the length, as n_bits. A .npy or .parquet file, or a folder of
    .parquet or .arrow files, is read and written in blocks where CODES ends in .npy or .parquet: any number of rows
    will do. Columns named by --label are not encoded.

    \b
    Example:
      shorthash encode digits.model database.npy -o codes.npz
    """
    import numpy as np

    from shorthash.codes import pack, packed_dtype
    from shorthash.data.files import check_target, write_codes

    check_target(codes)
    hasher = read_hasher(model)
    with progress() as tell:
        start = time.perf_counter()
        if not signs and in_blocks(features, codes):
            from shorthash.scale import as_stream, encode_to_file

            stream = as_stream(features, label=label or None)
            check_columns(features, stream.n_columns, hasher)
            counts = encode_to_file(hasher, stream, codes, tell=tell)
            n_rows, n_bits, distinct = counts.n_rows, counts.n_bits, counts.distinct
        else:
            rows = encode_file(features, hasher, tell)
            write_codes(codes, rows, signs=signs)
            (n_rows, n_bits), distinct = rows.shape, len(np.unique(pack(rows)))
        seconds = time.perf_counter() - start
    data = {"codes": codes, "n_rows": n_rows, "n_bits": n_bits, "signs": signs, "distinct_codes": distinct}
    facts = {
        "codes": str(codes),
        "rows": str(n_rows),
        "bits": f"{n_bits}, {'as signs' if signs else f'packed into {packed_dtype(n_bits)}'}",
        "buckets": "not counted" if distinct is None else f"{distinct} different codes",
        "seconds": f"{seconds:.2f}",
    }
    output.show(output.Answer({**data, "seconds": round(seconds, 3)}, facts), as_json=as_json)


def in_blocks(features: Path, codes: Path) -> bool:
    """Whether rows can be read, and codes written, a block at a time."""
    readable = features.is_dir() or features.suffix.lower() in (".npy", ".parquet", ".arrow", ".feather")
    return readable and codes.suffix.lower() in (".npy", ".parquet")
