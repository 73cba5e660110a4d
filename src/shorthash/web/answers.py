"""What a collection found, as the values of a JSON answer; no path of this machine is among them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from fastapi.responses import JSONResponse

from shorthash.images import Found, Item

__all__ = ["Json", "bits_of", "item_json", "item_value", "search_json", "timed"]


class Json(JSONResponse):
    """An answer in JSON."""

    def render(self, content: Any) -> bytes:
        """The bytes; numpy arrays are welcome, and what is rendered already stays as it is."""
        if isinstance(content, bytes):
            return content
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


def bits_of(code: int, n_bits: int) -> str:
    """A code as zeros and ones, highest bit first.

    Examples
    --------
    >>> bits_of(5, 4)
    '0101'
    """
    return f"{code:0{n_bits}b}"


def item_value(item: Item, n_bits: int) -> dict[str, Any]:
    """An item; its source stays here."""
    return {
        "id": item.id,
        "label": item.label,
        "name": item.name,
        "code": item.code,
        "bits": bits_of(item.code, n_bits),
        "thumbnail": None if item.thumbnail is None else f"/thumbnails/{item.content}.jpg",
    }


def timed(answer: bytes, seconds: float) -> bytes:
    """An answer of ``search_json`` with the time it took.

    Examples
    --------
    >>> timed(b'{"count":0}', 0.5)
    b'{"count":0,"seconds":0.5}'
    """
    return b'%s,"seconds":%s}' % (answer[:-1], orjson.dumps(round(seconds, 6)))


def item_json(item: Item, n_bits: int) -> bytes:
    """An item as JSON, but for its end: what a search adds is its distance and its score."""
    return orjson.dumps(item_value(item, n_bits))[:-1]


def search_json(found: Found, items: Sequence[bytes], ring_sizes: Any) -> bytes:
    """Neighbours grouped by distance; inside a group bucket by bucket, or best first where they were re-ranked.

    Parameters
    ----------
    found : what was found
    items : what ``item_json`` tells about every one of them
    ring_sizes : items at every distance
    """
    ranked = found.scores is not None
    order = np.argsort(found.distances, kind="stable") if ranked else np.lexsort((found.codes, found.distances))
    distances = found.distances[order].tolist()
    rows = order.tolist()
    groups = []
    start = 0
    while start < len(rows):
        distance = distances[start]
        end = bisect_right(distances, distance, start)
        inside = _ranked(found, items, rows[start:end]) if ranked else _equal(items, rows[start:end], distance)
        groups.append(b'{"distance":%d,"items":[%s]}' % (distance, inside))
        start = end
    head = {
        "query": {"code": found.code, "bits": bits_of(found.code, found.n_bits)},
        "n_bits": found.n_bits,
        "count": len(rows),
        "ring_sizes": ring_sizes,
    }
    told = orjson.dumps(head, option=orjson.OPT_SERIALIZE_NUMPY)
    return b'%s,"groups":[%s]}' % (told[:-1], b",".join(groups))


def _equal(items: Sequence[bytes], rows: Sequence[int], distance: int) -> bytes:
    """Items of one group; all of them end alike."""
    end = b',"distance":%d,"score":null}' % distance
    return (end + b",").join([items[row] for row in rows]) + end


def _ranked(found: Found, items: Sequence[bytes], rows: Sequence[int]) -> bytes:
    """Items of one group with their scores; a cosine with a vector of zeros is none."""
    assert found.scores is not None
    ends = [(found.distances[row], orjson.dumps(float(found.scores[row]))) for row in rows]
    told = [b'%s,"distance":%d,"score":%s}' % (items[row], *end) for row, end in zip(rows, ends, strict=True)]
    return b",".join(told)
