"""What the paper "Reinforcing Short-Length Hashing" states in numbers, beside what its printed tables and our runs say.

A printed table is a ``ResultGrid`` like ours, so every claim is one function that is applied to both. Gains are in
percentage points, averaged over the lengths of a data set. Everything works on whatever has been run so far, and says
so where that is nothing.
"""

from __future__ import annotations

import csv
import itertools
import math
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from shorthash.errors import DataFileError
from shorthash.lab.tables import NOT_RUN, Cell, Column, ResultGrid, Table

HERE = Path(__file__).resolve().parent
UNSUPERVISED = ("SH", "PCA-ITQ", "PCA-RR", "MFH")
SUPERVISED = ("SDH", "NSH", "FSSH", "SSLH", "SDHMLR")
PROPOSED = "RSLH"
TEN = (*UNSUPERVISED, *SUPERVISED, PROPOSED)
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
SHORT, LONG = 16, 32  # bits: up to the first a code is short; beyond the second the paper sees the advantage vanish
HALF = 1e-9  # sums of printed decimals may fall short of the half they are
FIELDS = ("table", "metric", "method", "dataset", "bits", "value")
Columns = Sequence[tuple[str, int]]
Compute = Callable[[ResultGrid, Columns], str]
Curves = Mapping[str, Sequence[tuple[float, Sequence[float]]]]


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


def read_printed(path: Path = HERE / "printed.csv") -> dict[str, ResultGrid]:
    """The printed tables by name ("Table 1"), each as a grid."""
    cells: dict[str, dict[str, dict[tuple[str, str, int], Cell]]] = {}
    with path.open(newline="", encoding="utf-8") as lines:
        reader = csv.DictReader(lines)
        if tuple(reader.fieldnames or ()) != FIELDS:
            raise DataFileError(
                f"The first line of {path} must be {','.join(FIELDS)}. Got {reader.fieldnames} instead."
            )
        for row in reader:
            try:
                place, value = (row["method"], row["dataset"], int(row["bits"])), float(row["value"])
            except (TypeError, ValueError):
                raise DataFileError(
                    f"Line {reader.line_num} of {path} must hold a whole number of bits and a value. Got "
                    f"{row['bits']!r} and {row['value']!r} instead; correct that line."
                ) from None
            cells.setdefault(row["table"], {}).setdefault(row["metric"], {})[place] = Cell(value)
    grids = {}
    for table, metrics in cells.items():
        places = [place for by_place in metrics.values() for place in by_place]
        rows = tuple(dict.fromkeys(method for method, _, _ in places))
        columns = tuple(dict.fromkeys((dataset, bits) for _, dataset, bits in places))
        grids[table] = ResultGrid(table, rows, columns, metrics)
    return grids


def claims_table(claims: Iterable[Claim]) -> Table:
    """Claims as a table."""
    columns = [Column("sentence", text=True), Column("claimed"), Column("printed tables"), Column("our runs")]
    return Table(tuple(columns), tuple((c.sentence, c.claimed, c.printed, c.ours) for c in claims))


def errata_table() -> Table:
    """What is wrong, missing or ambiguous in the paper, one remark a row."""
    errata = tomllib.loads((HERE / "errata.toml").read_text(encoding="utf-8"))["errata"]
    rows = tuple((each["where"], each["kind"], each["printed"], each["decision"]) for each in errata)
    return Table(tuple(Column(title, text=True) for title in ("where", "kind", "in print", "here")), rows)


def difference_table(ours: ResultGrid, printed: ResultGrid, metric: str, dataset: str, digits: int = 4) -> Table:
    """Ours, printed and their difference, side by side for every length of a data set."""
    lengths = ours.lengths(dataset)
    columns = [Column("method", text=True)]
    for bits in lengths:
        columns += [Column(f"{bits} bits", digits, "high"), Column("printed", digits, "high"), Column("difference")]
    rows = []
    for name in ours.rows:
        row: list[object] = [name]
        for bits in lengths:
            cell, number = ours.cell(metric, name, dataset, bits), printed.cell(metric, name, dataset, bits)
            gap = math.nan if cell is None or number is None else cell.mean - number.mean
            row += [cell, number, None if math.isnan(gap) else f"{gap:+.{digits}f}"]
        rows.append(tuple(row))
    return Table(tuple(columns), tuple(rows))


def table_claims(
    ours: ResultGrid, printed: ResultGrid, ours2: ResultGrid | None, printed2: ResultGrid | None
) -> tuple[Claim, ...]:
    """All numeric sentences about the tables.

    Parameters
    ----------
    ours, printed : Table 1
    ours2, printed2 : Table 2; None leaves out what is said about it
    """
    claims = [*_gains(ours, printed), *_wins(ours, printed), *_lengths(), *_degradation(ours, printed)]
    return (*claims, *(() if ours2 is None or printed2 is None else _ablation(ours2, printed2, printed)))


def figure_claims(
    lines: Sequence[ResultGrid], maps: Mapping[str, ArrayLike], curves: Curves, cost: ResultGrid | None
) -> tuple[Claim, ...]:
    """Sentences about figures and costs, which print no numbers: what our runs say about them.

    Parameters
    ----------
    lines : scores by length (Figure 1 a-c)
    maps : title -> scores over alpha and gamma (Figure 1 d-f)
    curves : objectives by data set (Figure 2 d)
    cost : fit time and memory of variants (Table 2)
    """
    places = [(grid, metric, dataset) for grid in lines for metric in grid.metrics for dataset in grid.datasets]
    claims = [_advantage(*place) for place in places]
    claims += [_boosting(*place) for place in places if "RSLH-B" in place[0].rows]
    for title, values in maps.items():
        known = np.asarray(values)[~np.isnan(values)]
        said = f"{known.min():.3f} to {known.max():.3f}" if len(known) else NOT_RUN
        text = f"Figure 1, {title}: the score is stable over alpha and gamma (lowest to highest)"
        claims.append(Claim(text, "yes", "-", said))
    for dataset, runs in curves.items():
        falls = [100 * values[-1] / values[0] for _, values in runs]
        steps = max((len(values) for _, values in runs), default=0)
        text = f"Figure 2 (d), {dataset}: the objective falls over iterations (last value in per cent of the first)"
        claims.append(Claim(text, "yes", "-", f"{np.mean(falls):.2f} % after {steps}" if runs else NOT_RUN))
    return (*claims, *(() if cost is None else _memory(cost)))


def agreement_table(ours: ResultGrid, printed: ResultGrid, metric: str) -> Table:
    """Per column: rank correlation of the ten methods, ours against printed, and who is first."""
    columns = (
        Column("data set", text=True),
        Column("bits"),
        Column("methods"),
        Column("rank correlation", 2),
        Column("first in print", text=True),
        Column("first here", text=True),
        Column("mean difference"),
    )
    rows = []
    for dataset, bits in printed.columns:
        here, there = _of_the_ten(ours, metric, dataset, bits), _of_the_ten(printed, metric, dataset, bits)
        both = [name for name in there if name in here]
        if there:
            gap = np.mean([here[name] - there[name] for name in both]) if both else math.nan
            first = _first(here) if both else NOT_RUN
            shown = f"{gap:+.3f}" if both else None
            rows.append((dataset, bits, len(both), _correlation(here, there), _first(there), first, shown))
    return Table(columns, tuple(rows))


def trend_table(ours: ResultGrid, printed: ResultGrid, metric: str) -> Table:
    """Per method: on how many data sets the score rises from every length to the next, in print and here."""
    columns = (Column("method", text=True), Column("rises in print"), Column("rises here"))
    rows = ((row, _rises(printed, metric, row), _rises(ours, metric, row) or NOT_RUN) for row in ours.rows)
    return Table(columns, tuple(rows))


def scale_table(ours: ResultGrid, printed: ResultGrid, metric: str, row: str = PROPOSED) -> Table:
    """One method: ours, printed, and their difference in standard deviations over seeds."""
    columns = (
        Column("data set", text=True),
        Column("bits"),
        Column("ours", 4),
        Column("printed", 4),
        Column("difference"),
        Column("in std over seeds", 1),
    )
    rows = []
    for dataset, bits in ours.columns:
        cell, number = ours.cell(metric, row, dataset, bits), printed.cell(metric, row, dataset, bits)
        if cell is not None and number is not None:
            gap = cell.mean - number.mean
            relative = gap / cell.std if cell.std and not math.isnan(cell.std) else math.nan
            rows.append((dataset, bits, cell, number, None if math.isnan(gap) else f"{gap:+.4f}", relative))
    return Table(columns, tuple(rows))


def verdict(ours: ResultGrid, printed: ResultGrid, metric: str) -> str:
    """One sentence about a metric: how many columns were run, how well the order agrees, who is first, which scale."""
    columns = [(_of_the_ten(ours, metric, d, b), _of_the_ten(printed, metric, d, b)) for d, b in printed.columns]
    full = [(here, there) for here, there in columns if len(set(here) & set(there)) > 2]
    if not full:
        return f"{metric}: nothing has been run yet."
    correlations = [_correlation(here, there) for here, there in full]
    same = sum(_first(here) == _first(there) for here, there in full)
    gaps = [here[name] - there[name] for here, there in full for name in there if name in here]
    return (
        f"{metric}: in {len(full)} of {sum(bool(there) for _, there in columns)} columns, the rank correlation of the "
        f"methods with print is {min(correlations):.2f} to {max(correlations):.2f} (median "
        f"{float(np.median(correlations)):.2f}); the first of the ten is the printed one in {same}; ours minus printed "
        f"is {float(np.mean(gaps)):+.3f} on average and {float(np.mean(np.abs(gaps))):.3f} in size."
    )


def _claim(
    text: str, claimed: str, ours: ResultGrid, printed: ResultGrid, compute: Compute, dataset: str = ""
) -> Claim:
    """A claim, computed from the printed numbers and from ours, over the columns that the paper prints."""
    columns = [(d, b) for d, b in printed.columns if dataset in ("", d) and printed.values("mAP", d, b)]
    return Claim(text, claimed, compute(printed, columns), compute(ours, columns))


def _gains(ours: ResultGrid, printed: ResultGrid) -> Iterator[Claim]:
    """RSLH against others, averaged over lengths; where the text says SSLH, also against the best of every column."""
    for (metric, rival), claimed in GAINS.items():
        rows = ("SSLH",) if rival == "SSLH" else UNSUPERVISED
        for dataset, points in zip(DATASETS, claimed, strict=True):
            text = f"{metric} on {dataset} rises over {rival} by this many points, averaged over lengths"
            yield _claim(text, f"{points:.2f}", ours, printed, partial(_gain, metric=metric, rivals=rows), dataset)
            if rival == "SSLH":
                text = f"the same against the best other method of every length ({metric}, {dataset})"
                others = (*UNSUPERVISED, *SUPERVISED)
                yield _claim(text, "-", ours, printed, partial(_gain, metric=metric, rivals=others), dataset)


def _wins(ours: ResultGrid, printed: ResultGrid) -> Iterator[Claim]:
    """In how many columns the proposed method is first, and supervised methods are above unsupervised ones."""
    for metric in printed.metrics:
        text = f"RSLH is better than all nine others in {metric}, in every column"
        yield _claim(text, "all", ours, printed, partial(_count, metric=metric, high=(PROPOSED,), low=TEN[:-1]))
    text = "supervised methods outperform unsupervised ones (mAP: columns in which the worst of them beats the best)"
    yield _claim(text, "yes", ours, printed, partial(_count, metric="mAP", high=SUPERVISED, low=UNSUPERVISED))


def _lengths() -> Iterator[Claim]:
    """The logarithm of the number of classes."""
    for dataset, claimed in LOG_CLASSES.items():
        value = f"{math.log2(CLASSES[dataset]):.2f}"
        yield Claim(f"log2 of the number of classes of {dataset}", f"{claimed:g}", value, value)


def _degradation(ours: ResultGrid, printed: ResultGrid) -> Iterator[Claim]:
    """What the shortest code loses against the longest."""
    for dataset in DATASETS:
        text = (
            f"accuracy falls with the length (mAP of RSLH on {dataset}: points from the longest code to the shortest)"
        )
        yield _claim(text, "yes", ours, printed, _loss, dataset)


def _ablation(ours: ResultGrid, printed: ResultGrid, table1: ResultGrid) -> Iterator[Claim]:
    """What Table 2 says about boosting and about G."""
    for better, worse, text in (
        ("G+MB", "G+OB", "the modified boosting beats the original one (G+MB minus G+OB, mAP, points, all columns)"),
        ("G+MB", "G", "boosting helps (G+MB minus G, mAP, points, all columns)"),
        ("G", "S", "G costs little against S (G minus S, mAP, points, all columns)"),
    ):
        yield _claim(text, "yes", ours, printed, partial(_paired, first=better, second=worse))
    columns = [column for column in printed.columns if column in table1.columns]
    same = [table1.values("mAP", *c).get(PROPOSED) == printed.values("mAP", *c).get("G+MB") for c in columns]
    text = "MB is the original boosting and OB the proposed one (columns in which row G+MB is row RSLH)"
    yield Claim(text, "0", f"{sum(same)} of {len(same)}", "-")


def _gain(grid: ResultGrid, columns: Columns, metric: str, rivals: Sequence[str]) -> str:
    """Mean over columns of the proposed method minus the best rival, in points."""
    gains = []
    for dataset, bits in columns:
        found = grid.values(metric, dataset, bits)
        others = [found[row] for row in rivals if row in found]
        if PROPOSED not in found or len(others) < len(rivals):
            return NOT_RUN
        gains.append(found[PROPOSED] - max(others))
    return f"{100 * float(np.mean(gains)) + HALF:.2f}" if gains else NOT_RUN


def _count(grid: ResultGrid, columns: Columns, metric: str, high: Sequence[str], low: Sequence[str]) -> str:
    """Columns in which the worst of the high methods beats the best of the low ones."""
    wins, seen = 0, 0
    for dataset, bits in columns:
        found = grid.values(metric, dataset, bits)
        above, below = [found[r] for r in high if r in found], [found[r] for r in low if r in found]
        if above and below:
            seen += 1
            wins += min(above) > max(below)
    return f"{wins} of {seen}" if seen else NOT_RUN


def _loss(grid: ResultGrid, columns: Columns) -> str:
    """Longest minus shortest code of the proposed method, in points."""
    ends = sorted(columns, key=lambda column: column[1])
    found = [grid.values("mAP", *end).get(PROPOSED) for end in ends[:1] + ends[-1:]]
    if not found or found[0] is None or found[1] is None:
        return NOT_RUN
    return f"{100 * (found[1] - found[0]):.2f}"


def _paired(grid: ResultGrid, columns: Columns, first: str, second: str) -> str:
    """Mean difference of two rows over the columns, in points, and how often it is positive."""
    both = [grid.values("mAP", dataset, bits) for dataset, bits in columns]
    gains = [found[first] - found[second] for found in both if first in found and second in found]
    if not gains:
        return NOT_RUN
    return f"{100 * float(np.mean(gains)):+.2f} ({sum(gain > 0 for gain in gains)} of {len(gains)} columns)"


def _advantage(grid: ResultGrid, metric: str, dataset: str) -> Claim:
    """RSLH minus the best of the nine others, at short and at long codes."""
    gains = {}
    for bits in grid.lengths(dataset):
        found = grid.values(metric, dataset, bits)
        others = [found[row] for row in TEN[:-1] if row in found]
        if PROPOSED in found and others:
            gains[bits] = 100 * (found[PROPOSED] - max(others))
    short, long = [g for b, g in gains.items() if b <= SHORT], [g for b, g in gains.items() if b > LONG]
    text = (
        f"Figure 1, {dataset}: RSLH is ahead in {metric} at short codes, and less so beyond {LONG} bits "
        f"(points against the best other, mean up to {SHORT} bits and beyond {LONG})"
    )
    return Claim(text, "yes", "-", f"{_mean(short)} and {_mean(long)}" if gains else NOT_RUN)


def _boosting(grid: ResultGrid, metric: str, dataset: str) -> Claim:
    """RSLH minus RSLH-B."""
    found = [grid.values(metric, dataset, bits) for bits in grid.lengths(dataset)]
    gains = [100 * (f[PROPOSED] - f["RSLH-B"]) for f in found if PROPOSED in f and "RSLH-B" in f]
    text = f"Figure 1, {dataset}: boosting raises {metric} (RSLH minus RSLH-B, points, all lengths)"
    return Claim(text, "yes", "-", _mean(gains))


def _memory(cost: ResultGrid) -> Iterator[Claim]:
    memory = next(metric for metric in ("added MiB", "peak MiB") if metric in cost.metrics)
    for dataset, bits in cost.columns:
        found = cost.values(memory, dataset, bits)
        said = ", ".join(f"{row} {value:.0f} MiB" for row, value in found.items()) or NOT_RUN
        yield Claim(f"G needs less memory than S ({dataset}, {bits} bits: {memory} of a fit)", "yes", "-", said)


def _of_the_ten(grid: ResultGrid, metric: str, dataset: str, bits: int) -> dict[str, float]:
    return {name: value for name, value in grid.values(metric, dataset, bits).items() if name in TEN}


def _mean(values: Sequence[float]) -> str:
    return f"{float(np.mean(values)):+.2f}" if values else NOT_RUN


def _correlation(here: Mapping[str, float], there: Mapping[str, float]) -> float:
    """Spearman's rank correlation of the methods in both; nan where it means nothing."""
    both = [name for name in there if name in here]
    first, second = [here[name] for name in both], [there[name] for name in both]
    if len(both) < 3 or len(set(first)) == 1 or len(set(second)) == 1:
        return math.nan
    return float(stats.spearmanr(first, second).statistic)


def _first(values: Mapping[str, float]) -> str:
    return max(values, key=lambda name: values[name])


def _rises(grid: ResultGrid, metric: str, row: str) -> str | None:
    """On how many data sets, as in "2 of 3", every step to more bits raises the score; None where nothing is known."""
    rises, seen = 0, 0
    for dataset in grid.datasets:
        values = [grid.values(metric, dataset, bits).get(row) for bits in grid.lengths(dataset)]
        known = [value for value in values if value is not None]
        if len(known) == len(values) > 1:
            seen += 1
            rises += all(a < b for a, b in itertools.pairwise(known))
    return f"{rises} of {seen}" if seen else None
