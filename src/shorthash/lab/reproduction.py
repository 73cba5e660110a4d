"""What of the paper reproduces: order of methods, winners, trends and scale, computed from a grid of results.

Everything works on whatever part of the grid has been run, and says so where that is nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from shorthash.lab.claims import PROPOSED, SUPERVISED, UNSUPERVISED, Claim
from shorthash.lab.grid import NOT_RUN, ResultGrid
from shorthash.lab.sections import HeatMap
from shorthash.lab.tables import Column, Table

__all__ = ["agreement_table", "figure_claims", "scale_table", "trend_table", "verdict"]

TEN = (*UNSUPERVISED, *SUPERVISED, PROPOSED)
SHORT, LONG = 16, 32  # bits: up to the first a code is short, beyond the second the paper sees the advantage vanish
Curves = dict[str, list[tuple[float, list[float]]]]


def agreement_table(grid: ResultGrid, metric: str) -> Table:
    """Per column: rank correlation of the methods, ours against printed, and who is first.

    Parameters
    ----------
    grid : results of all methods, with the printed numbers
    metric : which of them
    """
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
    for dataset, bits in grid.columns:
        ours, printed = _pair(grid, metric, dataset, bits)
        if not printed:
            continue
        both = [name for name in printed if name in ours]
        gap = np.mean([ours[name] - printed[name] for name in both]) if both else math.nan
        rows.append(
            (
                dataset,
                bits,
                len(both),
                _correlation([ours[n] for n in both], [printed[n] for n in both]),
                _first(printed),
                _first(ours) if both else NOT_RUN,
                f"{gap:+.3f}" if both else None,
            )
        )
    return Table(columns, tuple(rows))


def trend_table(grid: ResultGrid, metric: str) -> Table:
    """Per method: on how many data sets the score rises from every length to the next, in print and here.

    Parameters
    ----------
    grid : results of all methods, with the printed numbers
    metric : which of them
    """
    columns = (Column("method", text=True), Column("rises in print"), Column("rises here"))
    rows = []
    for row in grid.rows:
        answers = [_rises(grid, metric, row, printed) for printed in (True, False)]
        rows.append((row, *answers))
    return Table(columns, tuple(rows))


def scale_table(grid: ResultGrid, metric: str, row: str = PROPOSED) -> Table:
    """One method: ours, printed, and their difference in standard deviations over seeds.

    Parameters
    ----------
    grid : results, with the printed numbers
    metric : which of them
    row : the method
    """
    columns = (
        Column("data set", text=True),
        Column("bits"),
        Column("ours", 4),
        Column("printed", 4),
        Column("difference"),
        Column("in std over seeds", 1),
    )
    rows = []
    for dataset, bits in grid.columns:
        cell = grid.cell(metric, row, dataset, bits)
        if cell is not None and cell.printed is not None:
            gap = cell.difference
            relative = gap / cell.std if cell.std and not math.isnan(cell.std) else math.nan
            rows.append((dataset, bits, cell, cell.printed, None if math.isnan(gap) else f"{gap:+.4f}", relative))
    return Table(columns, tuple(rows))


def verdict(grid: ResultGrid, metric: str) -> str:
    """One sentence about a metric: how many columns were run, how well the order agrees, who is first, which scale.

    Parameters
    ----------
    grid : results of all methods, with the printed numbers
    metric : which of them
    """
    found = [(*_pair(grid, metric, d, b), d, b) for d, b in grid.columns]
    full = [(ours, printed) for ours, printed, _, _ in found if len(set(ours) & set(printed)) > 2]
    if not full:
        return f"{metric}: nothing has been run yet."
    correlations = [_correlation([o[n] for n in p if n in o], [p[n] for n in p if n in o]) for o, p in full]
    same = sum(_first(o) == _first(p) for o, p in full)
    gaps = [o[n] - p[n] for o, p in full for n in p if n in o]
    return (
        f"{metric}: in {len(full)} of {sum(bool(p) for _, p, _, _ in found)} columns, the rank correlation of the "
        f"methods with print is {min(correlations):.2f} to {max(correlations):.2f} (median "
        f"{float(np.median(correlations)):.2f}); the first of the ten is the printed one in {same}; ours minus printed "
        f"is {float(np.mean(gaps)):+.3f} on average and {float(np.mean(np.abs(gaps))):.3f} in size."
    )


def figure_claims(
    lines: Sequence[ResultGrid] = (),
    maps: Sequence[HeatMap] = (),
    curves: Curves | None = None,
    cost: ResultGrid | None = None,
) -> tuple[Claim, ...]:
    """Sentences about figures and costs, which print no numbers: what our runs say about them.

    Parameters
    ----------
    lines : scores by length (Figure 1 a-c)
    maps : scores over alpha and gamma (Figure 1 d-f)
    curves : objectives by data set (Figure 2 d)
    cost : fit time and memory of variants (Table 2)
    """
    return (*_advantage(lines), *_boosting(lines), *_stability(maps), *_convergence(curves or {}), *_memory(cost))


def _advantage(lines: Sequence[ResultGrid]) -> list[Claim]:
    """RSLH minus the best of the nine others, at short and at long codes."""
    claims = []
    for grid in lines:
        for metric in grid.metrics:
            for dataset in grid.datasets:
                gains = _gains_by_length(grid, metric, dataset)
                short, long = [g for b, g in gains.items() if b <= SHORT], [g for b, g in gains.items() if b > LONG]
                if not gains and (PROPOSED, dataset, grid.lengths(dataset)[0]) not in grid.metrics[metric]:
                    continue
                said = f"{_mean(short)} and {_mean(long)}" if gains else NOT_RUN
                text = (
                    f"Figure 1, {dataset}: RSLH is ahead in {metric} at short codes, and less so beyond {LONG} bits "
                    f"(points against the best other, mean up to {SHORT} bits and beyond {LONG})"
                )
                claims.append(Claim(text, "yes", "-", said))
    return claims


def _boosting(lines: Sequence[ResultGrid]) -> list[Claim]:
    """RSLH minus RSLH-B."""
    claims = []
    for grid in lines:
        for metric in grid.metrics:
            for dataset in grid.datasets:
                found = [grid.values(metric, dataset, bits) for bits in grid.lengths(dataset)]
                gains = [100 * (f[PROPOSED] - f["RSLH-B"]) for f in found if PROPOSED in f and "RSLH-B" in f]
                if "RSLH-B" in grid.rows:
                    text = f"Figure 1, {dataset}: boosting raises {metric} (RSLH minus RSLH-B, points, all lengths)"
                    claims.append(Claim(text, "yes", "-", _mean(gains) if gains else NOT_RUN))
    return claims


def _stability(maps: Sequence[HeatMap]) -> list[Claim]:
    claims = []
    for each in maps:
        values = np.asarray(each.values, dtype=np.float64)
        known = values[~np.isnan(values)]
        said = f"{known.min():.3f} to {known.max():.3f}" if len(known) else NOT_RUN
        text = f"Figure 1, {each.title}: the score is stable over alpha and gamma (lowest to highest)"
        claims.append(Claim(text, "yes", "-", said))
    return claims


def _convergence(curves: Curves) -> list[Claim]:
    claims = []
    for dataset, runs in curves.items():
        falls = [100 * values[-1] / values[0] for _, values in runs]
        steps = max((len(values) for _, values in runs), default=0)
        said = f"{float(np.mean(falls)):.2f} % after {steps}" if runs else NOT_RUN
        text = f"Figure 2 (d), {dataset}: the objective falls over iterations (last value in per cent of the first)"
        claims.append(Claim(text, "yes", "-", said))
    return claims


def _memory(cost: ResultGrid | None) -> list[Claim]:
    memory = next((m for m in ("added MiB", "peak MiB") if cost is not None and m in cost.metrics), None)
    if cost is None or memory is None:
        return []
    claims = []
    for dataset, bits in cost.columns:
        found = cost.values(memory, dataset, bits)
        said = ", ".join(f"{row} {value:.0f} MiB" for row, value in found.items()) or NOT_RUN
        claims.append(
            Claim(f"G needs less memory than S ({dataset}, {bits} bits: {memory} of a fit)", "yes", "-", said)
        )
    return claims


def _gains_by_length(grid: ResultGrid, metric: str, dataset: str) -> dict[int, float]:
    """RSLH minus the best of the others, in points, where both were run."""
    gains = {}
    for bits in grid.lengths(dataset):
        found = grid.values(metric, dataset, bits)
        others = [found[row] for row in (*UNSUPERVISED, *SUPERVISED) if row in found]
        if PROPOSED in found and others:
            gains[bits] = 100 * (found[PROPOSED] - max(others))
    return gains


def _mean(values: Sequence[float]) -> str:
    return f"{float(np.mean(values)):+.2f}" if values else NOT_RUN


def _pair(grid: ResultGrid, metric: str, dataset: str, bits: int) -> tuple[dict[str, float], dict[str, float]]:
    """Ours and the printed numbers of the ten methods in one column."""
    ours, printed = (grid.values(metric, dataset, bits, printed=p) for p in (False, True))
    return {n: v for n, v in ours.items() if n in TEN}, {n: v for n, v in printed.items() if n in TEN}


def _correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's rank correlation; nan where it means nothing."""
    if len(first) < 3 or len(set(first)) == 1 or len(set(second)) == 1:
        return math.nan
    return float(stats.spearmanr(first, second).statistic)


def _first(values: dict[str, float]) -> str:
    return max(values, key=lambda name: values[name])


def _rises(grid: ResultGrid, metric: str, row: str, printed: bool) -> str | None:
    """On how many data sets, as in "2 of 3", every step to more bits raises the score."""
    rises, seen = 0, 0
    for dataset in grid.datasets:
        values = [grid.values(metric, dataset, bits, printed=printed).get(row) for bits in grid.lengths(dataset)]
        known = [value for value in values if value is not None]
        if len(known) == len(values) and len(values) > 1:
            seen += 1
            rises += all(a < b for a, b in itertools.pairwise(known))
    return f"{rises} of {seen}" if seen else None if printed else NOT_RUN
