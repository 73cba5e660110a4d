"""The data behind the figures: Scores in, columns of numbers out. Nothing is drawn here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from shorthash._labels import group_labels
from shorthash._types import Counts, Floats, Labels, PackedCodes
from shorthash._validation import check_choice, check_same_length
from shorthash.codes.packing import as_packed
from shorthash.errors import InvalidInput
from shorthash.evaluation.measure import BY_K, BY_QUERY
from shorthash.evaluation.scores import Scores

__all__ = ["Curve", "Occupancy", "TieBounds", "by_k", "by_length", "occupancy", "tie_bounds"]


@dataclass(frozen=True)
class Curve:
    """One line of a figure.

    Attributes
    ----------
    x, y : (n,) points, x ascending
    x_name, y_name : what they are
    """

    x: Floats
    y: Floats
    x_name: str
    y_name: str


@dataclass(frozen=True)
class TieBounds:
    """Bars from the worst to the best tie order, with the expectation between them.

    Attributes
    ----------
    names : (n,) one per bar
    worst, expected, best : (n,) mAP
    """

    names: tuple[str, ...]
    worst: Floats
    expected: Floats
    best: Floats


@dataclass(frozen=True)
class Occupancy:
    """Who lives in which bucket.

    Attributes
    ----------
    codes : (b,) occupied codes, packed, fullest first
    items : (b,) items in each
    by_class : (b, n_classes) items of each class in each; an item with several labels counts for each of them
    classes : (n_classes,) class names
    """

    codes: PackedCodes
    items: Counts
    by_class: Counts
    classes: Labels


def by_k(scores: Scores, score: str = "precision_at_k") -> Curve:
    """A score by list length: evaluate with ``k=(1, 2, 5, 10, ...)`` first."""
    check_choice(score, "score", "by_k", BY_K)
    values = getattr(scores, score)
    return Curve(_numbers(values.keys()), _numbers(values.values()), "k", score)


def by_length(scores: Mapping[int, Scores], score: str = "map") -> Curve:
    """A score by code length, from Scores for each length.

    Examples
    --------
    >>> from shorthash.evaluation import evaluate
    >>> codes, labels = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]), [0, 0, 1, 1]
    >>> by_length({1: evaluate(codes[:, :1], labels), 2: evaluate(codes, labels)}).y
    array([1.  , 0.75])
    """
    check_choice(score, "score", "by_length", (*BY_QUERY, "headline", "pr_area"))
    lengths = sorted(scores)
    return Curve(_numbers(lengths), _numbers(getattr(scores[n], score) for n in lengths), "n_bits", score)


def tie_bounds(scores: Mapping[str, Scores]) -> TieBounds:
    """MAP of several methods with the range that tie order alone could give them.

    The Scores must have been made with ``ties="expected"``, so that the middle of the bar is the expectation.
    """
    for name, each in scores.items():
        if each.rules.ties != "expected":
            raise InvalidInput(
                f"tie_bounds needs Scores with ties='expected', but those of {name!r} have ties={each.rules.ties!r}; "
                "evaluate again."
            )
    return TieBounds(
        tuple(scores),
        _numbers(each.map_worst for each in scores.values()),
        _numbers(each.map for each in scores.values()),
        _numbers(each.map_best for each in scores.values()),
    )


def occupancy(codes: ArrayLike, labels: ArrayLike, n_bits: int | None = None) -> Occupancy:
    """Items per occupied bucket and class.

    Parameters
    ----------
    codes : (n, n_bits) signs, or (n,) integers, which need ``n_bits``
    labels : (n,) class labels, or an (n, n_classes) indicator matrix

    Examples
    --------
    >>> found = occupancy([[1, 1], [1, 1], [-1, 1]], ["cat", "dog", "dog"])
    >>> found.codes.tolist(), found.items.tolist(), found.by_class.tolist()
    ([3, 2], [2, 1], [[1, 1], [0, 1]])
    """
    if n_bits is None:
        if np.ndim(codes) != 2:
            raise InvalidInput("occupancy needs n_bits when codes are packed integers; pass n_bits=...")
        n_bits = np.shape(codes)[1]
    packed = as_packed(codes, n_bits)
    check_same_length(packed, labels, "occupancy")
    groups = group_labels(labels, owner="occupancy")
    occupied, bucket, items = np.unique(packed, return_inverse=True, return_counts=True)
    table = np.zeros((len(occupied), len(groups.rows)), dtype=np.int64)
    np.add.at(table, (bucket.reshape(-1), groups.ids), 1)
    order = np.argsort(-items, kind="stable")
    return Occupancy(
        occupied[order], items[order], table[order] @ groups.rows.astype(np.int64), np.asarray(groups.classes)
    )


def _numbers(values: object) -> Floats:
    """Numbers as an array."""
    return np.array(list(values), dtype=np.float64)  # type: ignore[call-overload]
