"""Codes in Dask arrays: histograms added up by the workers, scores from them, and one index of all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shorthash._types import PackedCodes
from shorthash._validation import check_n_bits, require_extra
from shorthash.codes import as_packed
from shorthash.errors import InvalidInput
from shorthash.evaluation.histograms import CodeHistogram, evaluate_histogram
from shorthash.evaluation.scores import Scores
from shorthash.index.buckets import BucketIndex
from shorthash.scale.dask_rows import added_up

__all__ = ["bucket_index", "code_histogram", "evaluate_collection"]


def code_histogram(codes: Any, labels: Any, n_bits: int | None = None) -> CodeHistogram:
    """How many items have each code and label set, counted by the workers and added up as a tree.

    Parameters
    ----------
    codes : Dask array, (n, n_bits) signs as ``transform`` gives them, or (n,) integers, which need ``n_bits``
    labels : Dask array or series of as many labels
    n_bits : length of packed codes
    """
    dask = require_extra("dask", "dask", "Counting codes on Dask")
    codes, labels = _cut_alike(codes, labels)
    length = check_n_bits(codes.shape[1] if codes.ndim == 2 else n_bits, "code_histogram")
    count = dask.delayed(CodeHistogram.of, pure=True)
    pairs = zip(codes.to_delayed().ravel(), labels.to_delayed().ravel(), codes.chunks[0], strict=True)
    return added_up([count(a, b, length) for a, b, n in pairs if n], CodeHistogram.merge)  # type: ignore[no-any-return]


def evaluate_collection(
    query_codes: ArrayLike, query_labels: ArrayLike, codes: Any, labels: Any, n_bits: int | None = None, **options: Any
) -> Scores:
    """Score queries against a database in Dask arrays; only its histogram leaves the workers.

    Parameters
    ----------
    query_codes, query_labels : the queries, in memory
    codes, labels, n_bits : the database, as for :func:`code_histogram`
    **options : as in :func:`shorthash.evaluation.evaluate`; ``ties="stable"`` is not possible
    """
    return evaluate_histogram(query_codes, query_labels, code_histogram(codes, labels, n_bits), **options)


def bucket_index(codes: Any, n_bits: int | None = None, ids: ArrayLike | None = None) -> BucketIndex:
    """An index of all items: packed by the workers, put together as a tree, sorted into buckets once.

    Parameters
    ----------
    codes : Dask array, (n, n_bits) signs, or (n,) integers, which need ``n_bits``
    n_bits : length of packed codes
    ids : (n,) ids; by default the items are numbered
    """
    dask = require_extra("dask", "dask", "Indexing codes on Dask")
    if codes.ndim == 2:
        codes = codes.rechunk({1: -1})
    length = check_n_bits(codes.shape[1] if codes.ndim == 2 else n_bits, "bucket_index")
    packed = dask.delayed(as_packed, pure=True)
    return BucketIndex(length).add(
        added_up([packed(part, length) for part in codes.to_delayed().ravel()], _end_to_end), ids=ids
    )


def _end_to_end(first: PackedCodes, second: PackedCodes) -> PackedCodes:
    return np.concatenate([first, second])


def _cut_alike(codes: Any, labels: Any) -> tuple[Any, Any]:
    """Codes with whole rows in their blocks, and labels cut in the same places."""
    da = require_extra("dask.array", "dask", "Counting codes on Dask")
    if hasattr(labels, "to_dask_array"):
        labels = labels.to_dask_array(lengths=True)
    if not hasattr(labels, "chunks"):
        labels = da.from_array(np.asarray(labels))
    if any(np.isnan(n) for n in codes.chunks[0]):
        codes = codes.compute_chunk_sizes()
    if labels.shape[0] != codes.shape[0]:
        raise InvalidInput(f"There are {codes.shape[0]} codes, but {labels.shape[0]} labels; give one label per code.")
    if codes.ndim == 2:
        codes = codes.rechunk({1: -1})
    return codes, labels.rechunk((codes.chunks[0], -1)[: labels.ndim])
