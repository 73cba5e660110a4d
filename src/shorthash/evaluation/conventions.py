"""Conventions: how published code computes mAP, as named rules.

The same codes get different numbers from different evaluation scripts. A convention fixes every choice that such a
script makes, so that a published number can be compared under the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shorthash._validation import check_choice, check_count
from shorthash.evaluation.metrics import DIVISORS, TIES

WITHOUT_RELEVANT = ("drop", "zero")


@dataclass(frozen=True)
class Convention:
    """The choices behind a number.

    Attributes
    ----------
    name : its name
    headline : which score the convention calls its mAP: "map", "map_at_k", "map_at_radius" or "pr_area"
    ties : order of items at the same distance, see :mod:`shorthash.evaluation.metrics`
    without_relevant : queries for which the database has no relevant item are left out ("drop") or score 0 ("zero")
    no_hit : the same for queries that show no relevant item among the first k or in a ball that is not empty
    divisor_at_k : what average precision at k is divided by, see
        :func:`shorthash.evaluation.metrics.average_precision`
    k : list lengths to report by default
    family : published code that uses it
    divisor_at_radius : what average precision inside the radius is divided by

    Examples
    --------
    >>> own = replace(CONVENTIONS["hashnet"], name="own", no_hit="zero")
    >>> own.ties, own.no_hit
    ('stable', 'zero')
    """

    name: str
    headline: str
    ties: str
    without_relevant: str
    no_hit: str
    divisor_at_k: str
    k: tuple[int, ...]
    family: str
    divisor_at_radius: str = "retrieved"


_FAMILIES = {
    "shorthash": "this library: nothing depends on the order of the database",
    "sdh": "SDH, SSLH and RSLH in MATLAB: stable sort of the whole database",
    "fssh": "FSSH, LFH and COSDISH in MATLAB (calcMAP): stable sort, queries without a hit are left out",
    "hashnet": "HashNet and DeepHash (TensorFlow): mAP of the first k, queries without a hit are left out",
    "deephash": "DeepHash-pytorch: mAP of the first k, queries without a hit score 0",
    "dch": "DCH: mAP inside Hamming radius 2, empty balls score 0, balls without a hit are left out",
    "habir": "HABIR: area under the precision-recall curve by radius, pooled over all pairs",
}

_RULES: dict[str, tuple[str, str, str, str, str, tuple[int, ...]]] = {
    # name: headline, ties, without_relevant, no_hit, divisor_at_k, k
    "shorthash": ("map", "expected", "drop", "zero", "possible", (10, 100, 1000)),
    "sdh": ("map", "stable", "zero", "zero", "retrieved", (5000,)),
    "fssh": ("map", "stable", "drop", "drop", "retrieved", (5000,)),
    "hashnet": ("map_at_k", "stable", "drop", "drop", "retrieved", (1000,)),
    "deephash": ("map_at_k", "stable", "zero", "zero", "retrieved", (1000,)),
    "dch": ("map_at_radius", "expected", "drop", "drop", "retrieved", (1000,)),
    "habir": ("pr_area", "expected", "zero", "zero", "possible", (1000,)),
}

CONVENTIONS = {name: Convention(name, *rules, _FAMILIES[name]) for name, rules in _RULES.items()}
"""Conventions by name."""


def convention_rules(
    convention: str | Convention,
    *,
    ties: str | None = None,
    without_relevant: str | None = None,
    k: int | Sequence[int] | None = None,
    owner: str = "evaluate",
) -> Convention:
    """A convention by name, with the explicit arguments in place of its own choices.

    Examples
    --------
    >>> convention_rules("hashnet", k=[100, 1000]).k
    (100, 1000)
    >>> convention_rules("sdh", ties="expected").ties
    'expected'
    """
    if not isinstance(convention, Convention):
        check_choice(convention, "convention", owner, CONVENTIONS)
        convention = CONVENTIONS[convention]
    rules = replace(
        convention,
        ties=convention.ties if ties is None else ties,
        without_relevant=convention.without_relevant if without_relevant is None else without_relevant,
        k=convention.k if k is None else _list_lengths(k, owner),
    )
    check_choice(rules.ties, "ties", owner, TIES)
    for name in ("without_relevant", "no_hit"):
        check_choice(getattr(rules, name), name, owner, WITHOUT_RELEVANT)
    for name in ("divisor_at_k", "divisor_at_radius"):
        check_choice(getattr(rules, name), name, owner, DIVISORS)
    return rules


def _list_lengths(k: int | Sequence[int], owner: str) -> tuple[int, ...]:
    """One or several list lengths, each once, ascending."""
    lengths = list(k) if hasattr(k, "__iter__") else [k]
    return tuple(sorted({check_count(length, "k", owner) for length in lengths}))
