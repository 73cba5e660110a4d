"""The numeric sentences of the paper's text, recomputed from its printed tables and from our runs.

Every claim is a function of a :class:`ResultGrid`, which is applied twice: to the printed numbers and to ours. Gains
are in percentage points, averaged over the lengths of a data set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from shorthash.lab.grid import ResultGrid
from shorthash.lab.tables import Column, Table

__all__ = ["PROPOSED", "SUPERVISED", "UNSUPERVISED", "Claim", "claims_table", "recompute"]

UNSUPERVISED = ("SH", "PCA-ITQ", "PCA-RR", "MFH")
SUPERVISED = ("SDH", "NSH", "FSSH", "SSLH", "SDHMLR")
PROPOSED = "RSLH"
DATASETS = ("CALTECH-101", "CIFAR-10", "ImageNet-100")
# what the text claims, in points: (metric, rivals as the text names them) -> gain per data set
GAINS: dict[tuple[str, str], tuple[float, float, float]] = {
    ("mAP", "the best unsupervised method"): (22.09, 30.65, 15.16),
    ("mAP", "SSLH"): (4.26, 4.31, 4.19),
    ("mAP@H<=2", "the best unsupervised method"): (30.31, 29.81, 13.85),
    ("mAP@H<=2", "SSLH"): (7.79, 4.17, 2.89),
}
CLASSES = {"CALTECH-101": 101, "CIFAR-10": 10, "ImageNet-100": 100}
LOG_CLASSES = {"CALTECH-101": 6.7, "CIFAR-10": 3.3, "ImageNet-100": 6.7}
HALF = 1e-9  # sums of printed decimals may fall short of the half they are
Columns = Sequence[tuple[str, int]]
Values = Callable[[str, str, int], Mapping[str, float]]  # metric, data set, bits -> row -> number


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper, and what the numbers say.

    Attributes
    ----------
    sentence : what is said, in our words
    claimed : the number, or "yes"
    printed : the same from the printed tables
    ours : the same from our runs; "not run" where they are missing
    """

    sentence: str
    claimed: str
    printed: str
    ours: str


def recompute(table1: ResultGrid, table2: ResultGrid | None = None) -> tuple[Claim, ...]:
    """All numeric sentences about the tables.

    Parameters
    ----------
    table1 : scores of all methods, with the printed numbers
    table2 : the ablation, with the printed numbers; None if there is none
    """
    claims = [*_gains(table1), *_wins(table1), *_supervision(table1), *_lengths(), *_degradation(table1)]
    return (*claims, *(() if table2 is None else _ablation(table2, table1)))


def claims_table(claims: Sequence[Claim]) -> Table:
    """Claims as a table."""
    columns = [Column("sentence", text=True), Column("claimed"), Column("printed tables"), Column("our runs")]
    return Table(tuple(columns), tuple((c.sentence, c.claimed, c.printed, c.ours) for c in claims))


def _gains(grid: ResultGrid) -> Iterator[Claim]:
    """RSLH against others, averaged over lengths; where the text says SSLH, also against the best of every column."""
    for (metric, rival), claimed in GAINS.items():
        rows = ("SSLH",) if rival == "SSLH" else UNSUPERVISED
        for dataset, points in zip(DATASETS, claimed, strict=True):
            text = f"{metric} on {dataset} rises over {rival} by so many points, averaged over lengths"
            yield _claim(text, f"{points:.2f}", grid, partial(_gain, metric=metric, rivals=rows), dataset)
            if rival == "SSLH":
                text = f"the same against the best other method of every length ({metric}, {dataset})"
                others = (*UNSUPERVISED, *SUPERVISED)
                yield _claim(text, "-", grid, partial(_gain, metric=metric, rivals=others), dataset)


def _wins(grid: ResultGrid) -> Iterator[Claim]:
    """In how many columns the proposed method is first."""
    for metric in grid.metrics:
        text = f"RSLH is better than all nine others in {metric}, in every column"
        yield _claim(text, "all", grid, partial(_count_wins, metric=metric))


def _supervision(grid: ResultGrid) -> Iterator[Claim]:
    """Whether supervised methods stand above unsupervised ones."""
    text = "supervised methods outperform unsupervised ones (mAP: columns in which the worst of them beats the best)"
    yield _claim(text, "yes", grid, _count_supervised)


def _lengths() -> Iterator[Claim]:
    """The logarithm of the number of classes."""
    for dataset, claimed in LOG_CLASSES.items():
        value = f"{math.log2(CLASSES[dataset]):.2f}"
        yield Claim(f"log2 of the number of classes of {dataset}", f"{claimed:g}", value, value)


def _degradation(grid: ResultGrid) -> Iterator[Claim]:
    """What the shortest code loses against the longest."""
    for dataset in DATASETS:
        text = (
            f"accuracy falls with the length (mAP of RSLH on {dataset}: points from the longest code to the shortest)"
        )
        yield _claim(text, "yes", grid, _loss, dataset)


def _ablation(table2: ResultGrid, table1: ResultGrid) -> Iterator[Claim]:
    """What Table 2 says about boosting and about G."""
    for better, worse, text in (
        ("G+MB", "G+OB", "the modified boosting beats the original one (G+MB minus G+OB, mAP, points, all columns)"),
        ("G+MB", "G", "boosting helps (G+MB minus G, mAP, points, all columns)"),
        ("G", "S", "G costs little against S (G minus S, mAP, points, all columns)"),
    ):
        yield _claim(text, "yes", table2, partial(_paired, first=better, second=worse))
    same = [
        table1.values("mAP", d, b, printed=True).get(PROPOSED) == table2.values("mAP", d, b, printed=True).get("G+MB")
        for d, b in table2.columns
        if (d, b) in table1.columns
    ]
    text = "MB is the original boosting and OB the proposed one (columns in which row G+MB is row RSLH)"
    yield Claim(text, "0", f"{sum(same)} of {len(same)}", "-")


def _claim(
    text: str, claimed: str, grid: ResultGrid, compute: Callable[[Values, Columns], str], dataset: str | None = None
) -> Claim:
    """A claim, from the printed numbers and from ours."""
    columns = [(d, b) for d, b in grid.columns if dataset in (None, d)]
    asked = [(d, b) for d, b in columns if grid.values("mAP", d, b, printed=True)]  # what the paper has
    return Claim(text, claimed, compute(partial(grid.values, printed=True), asked), compute(grid.values, asked))


def _gain(values: Values, columns: Columns, metric: str, rivals: Sequence[str]) -> str:
    """Mean over columns of the proposed method minus the best rival, in points."""
    gains = []
    for dataset, bits in columns:
        found = values(metric, dataset, bits)
        others = [found[row] for row in rivals if row in found]
        if PROPOSED not in found or len(others) < len(rivals):
            return "not run"
        gains.append(found[PROPOSED] - max(others))
    return f"{100 * float(np.mean(gains)) + HALF:.2f}" if gains else "not run"


def _count_wins(values: Values, columns: Columns, metric: str) -> str:
    """Columns in which the proposed method is first among the ten."""
    wins, seen = 0, 0
    for dataset, bits in columns:
        found = {r: v for r, v in values(metric, dataset, bits).items() if r in {*UNSUPERVISED, *SUPERVISED, PROPOSED}}
        if PROPOSED in found and len(found) > 1:
            seen += 1
            wins += max(found, key=lambda row: found[row]) == PROPOSED
    return f"{wins} of {seen}" if seen else "not run"


def _count_supervised(values: Values, columns: Columns) -> str:
    """Columns in which every supervised method beats every unsupervised one."""
    wins, seen = 0, 0
    for dataset, bits in columns:
        found = values("mAP", dataset, bits)
        low, high = [found[r] for r in SUPERVISED if r in found], [found[r] for r in UNSUPERVISED if r in found]
        if low and high:
            seen += 1
            wins += min(low) > max(high)
    return f"{wins} of {seen}" if seen else "not run"


def _loss(values: Values, columns: Columns) -> str:
    """Longest minus shortest code of the proposed method, in points."""
    ends = [min(columns, key=lambda c: c[1]), max(columns, key=lambda c: c[1])] if columns else []
    found = [values("mAP", *end).get(PROPOSED) for end in ends]
    if not found or found[0] is None or found[1] is None:
        return "not run"
    return f"{100 * (found[1] - found[0]):.2f}"


def _paired(values: Values, columns: Columns, first: str, second: str) -> str:
    """Mean difference of two rows over the columns, in points, and how often it is positive."""
    both = [values("mAP", dataset, bits) for dataset, bits in columns]
    gains = [found[first] - found[second] for found in both if first in found and second in found]
    if not gains:
        return "not run"
    return f"{100 * float(np.mean(gains)):+.2f} ({sum(gain > 0 for gain in gains)} of {len(gains)} columns)"
