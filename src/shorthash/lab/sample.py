"""Codes and classes of a sample of items, packed into a record: enough to draw them again without training."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._types import Codes, Labels
from shorthash.codes.signs import sign
from shorthash.errors import InvalidInput

__all__ = ["SAMPLE", "pack_sample", "unpack_sample"]

SAMPLE = 1000  # items at most
LARGEST = 1100  # bytes before they are written as text: leaves room for the rest of a record


def pack_sample(codes: Codes, classes: ArrayLike, seed: int = 0) -> dict[str, Any]:
    """Up to 1 000 items as one string of bits.

    Parameters
    ----------
    codes : (n, n_bits) signs
    classes : (n,) class labels
    seed : which items are drawn, where there are more

    Examples
    --------
    >>> codes, classes = unpack_sample(pack_sample(np.array([[1, -1], [-1, -1]], dtype=np.int8), ["b", "a"]))
    >>> codes.tolist(), classes.tolist()
    ([[1, -1], [-1, -1]], ['b', 'a'])
    """
    names, ids = np.unique(np.asarray(classes), return_inverse=True)
    class_bits = max(1, int(np.ceil(np.log2(len(names)))))
    n_items = min(len(codes), SAMPLE, 8 * LARGEST // (codes.shape[1] + class_bits))
    chosen = np.sort(np.random.default_rng(seed).choice(len(codes), n_items, replace=False))
    numbers = (ids[chosen, None] >> np.arange(class_bits)) & 1
    bits = np.hstack([codes[chosen] > 0, numbers.astype(bool)])
    text = base64.b64encode(np.packbits(bits).tobytes()).decode("ascii")
    return {"items": n_items, "n_bits": codes.shape[1], "classes": names.tolist(), "packed": text}


def unpack_sample(sample: Mapping[str, Any]) -> tuple[Codes, Labels]:
    """Codes, (n, n_bits), and classes, (n,), of a packed sample."""
    names: NDArray[Any] = np.array(sample["classes"])
    n_items, n_bits = int(sample["items"]), int(sample["n_bits"])
    class_bits = max(1, int(np.ceil(np.log2(len(names)))))
    octets = np.frombuffer(base64.b64decode(sample["packed"]), dtype=np.uint8)
    needed = n_items * (n_bits + class_bits)
    if 8 * len(octets) < needed:
        raise InvalidInput(f"A sample of {n_items} items needs {needed} bits. Got {8 * len(octets)} instead.")
    bits = np.unpackbits(octets)[:needed].reshape(n_items, n_bits + class_bits)
    ids = bits[:, n_bits:].astype(np.int64) @ (1 << np.arange(class_bits))
    return sign(bits[:, :n_bits].astype(np.float64) - 0.5), names[ids]
