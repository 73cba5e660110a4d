"""shorthash encode: features become a file of codes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from shorthash.cli import output
from shorthash.cli.options import AsJson, Features, Model, flag, option
from shorthash.cli.progress import progress
from shorthash.cli.reading import encode_file, read_hasher

__all__ = ["encode"]


def encode(
    model: Model,
    features: Features,
    codes: Annotated[Path, option("--output", "-o", metavar="CODES", text="File to write.")],
    signs: Annotated[bool, flag("--signs", "Write -1 and +1, one column per bit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Encode feature rows with a saved model.

    CODES ends in .npy, .npz, .csv or .parquet. Codes are packed into the smallest unsigned integers: bit j of an
    integer is bit j of the code. A .npz file also keeps the length, as n_bits.

    \b
    Example:
      shorthash encode digits.model database.npy -o codes.npz
    """
    import numpy as np

    from shorthash.codes import pack
    from shorthash.features.files import check_target, write_codes

    check_target(codes)
    hasher = read_hasher(model)
    with progress() as tell:
        start = time.perf_counter()
        rows = encode_file(features, hasher, tell)
        seconds = time.perf_counter() - start
        write_codes(codes, rows, signs=signs)
    data = {
        "codes": codes,
        "n_rows": len(rows),
        "n_bits": rows.shape[1],
        "signs": signs,
        "distinct_codes": len(np.unique(pack(rows))),
        "seconds": round(seconds, 3),
    }
    facts = {
        "codes": str(codes),
        "rows": str(data["n_rows"]),
        "bits": f"{data['n_bits']}, {'as signs' if signs else f'packed into {pack(rows[:1]).dtype}'}",
        "buckets": f"{data['distinct_codes']} different codes",
        "seconds": f"{seconds:.2f}",
    }
    output.show(output.Answer(data, facts), as_json=as_json)
