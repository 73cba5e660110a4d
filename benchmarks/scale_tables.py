"""The records of benchmarks/scale.py and benchmarks/gpu.py as tables for docs/guide/scale.md, and as a figure.

Run ``python benchmarks/scale_tables.py`` to draw docs/images/scale.png; ``docs/generate.py`` makes the tables.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[1] / "docs" / "data"
RECORD = DATA / "scale.json"
GPU_RECORD = DATA / "gpu.json"


def draw() -> None:
    """Rows/s by rows, anchors, bits and workers, and memory by rows, from the record, as docs/images/scale.png."""
    from matplotlib.figure import Figure

    from shorthash._display import SERIES, figure_style
    from shorthash.lab.figures import save_figure

    record = json.loads(RECORD.read_text())
    curves = record["curves"]
    rates = {"fit": "rows_per_second", "encode": "encode_rows_per_second"}
    panels = [
        (name, {line: {int(x): point[key] for x, point in curves[name].items()} for line, key in rates.items()})
        for name in ("rows", "anchors", "bits")
    ]
    panels.append(("workers", {"fit": {int(x): rate for x, rate in record["dask"]["rows_per_second"].items()}}))
    panels.append(("rows", {"memory": {int(x): point["peak_gib"] for x, point in curves["rows"].items()}}))
    with figure_style():
        figure = Figure(figsize=(11, 2.8), layout="constrained")
        for axes, (name, lines) in zip(figure.subplots(1, len(panels)), panels, strict=True):
            for number, (line, points) in enumerate(lines.items()):
                axes.plot(list(points), list(points.values()), marker="os"[number], color=SERIES[number], label=line)
            axes.set_xlabel(name)
            axes.set_xscale("log", base=2)
            axes.set_xticks(list(points), [f"{x // 1000}k" if x >= 10_000 else str(x) for x in points], minor=False)
            axes.minorticks_off()
            axes.set_ylim(bottom=0)
            axes.set_title("GiB" if "memory" in lines else "rows/s", loc="left", fontsize=9)
            if len(lines) > 1:
                axes.legend(fontsize=8)
            elif "memory" not in lines:
                axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1000:.0f}k")
            if len(lines) > 1:
                axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1000:.0f}k")
        save_figure(figure, RECORD.parents[1] / "images" / "scale.png")


def render() -> str:
    """The record as tables."""
    record = json.loads(RECORD.read_text())
    return "\n\n".join([_measurements(record), _curves(record["curves"])])


def render_growth() -> str:
    """CPU seconds of EAPH by rows, classes and bits."""
    growth = json.loads(RECORD.read_text())["growth"]
    kept = f"{growth['growth_rows']:,} rows", f"{growth['growth_classes']} classes", f"{growth['growth_bits']} bits"
    tables = []
    for number, name in enumerate(("rows", "classes", "bits")):
        points = growth[name]
        others = ", ".join(text for place, text in enumerate(kept) if place != number)
        head = [_row(f"{name} ({others})", *(f"{int(x):,}" for x in points)), "|---|" + "---:|" * len(points)]
        fit = _row("fit, CPU seconds", *(f"{point['fit_seconds']:.1f}" for point in points.values()))
        codes = [f"{point['encode_microseconds_per_row']:.1f}" for point in points.values()]
        tables.append("\n".join([*head, fit, _row("encode, microseconds per row", *codes)]))
    return "\n\n".join(tables)


def render_arithmetic() -> str:
    """The time that 10^9 rows would take, computed from the record."""
    record = json.loads(RECORD.read_text())
    alone, gain = record["dask"]["rows_per_second"]["1"], record["dask"]["ratio"] / 2
    rates = {f"one machine, {record['cores']} cores, from Parquet": record["stream"]["rows_per_second"]}
    rates["one worker of one core"] = alone
    for workers in (2, 16, 64, 256):
        rates[f"{workers} such workers, each at {gain:.0%} of one alone"] = round(alone * workers * gain)
    if GPU_RECORD.exists():
        gpu = json.loads(GPU_RECORD.read_text())
        rates[f"one {gpu['machine']}"] = gpu["fit"]["rows_per_second"]
    table = [_row("engine", "rows/s", f"10^9 rows, {record['dask']['anchors']:,} anchors"), "|---|---:|---:|"]
    table += [_row(name, f"{rate:,}", _duration(1e9 / rate)) for name, rate in rates.items()]
    sums = record["stream"]["anchors"] ** 2 * 8 / 2**20
    return "\n".join([*table, "", f"A worker sends only its sums: {sums:.0f} MiB, whatever the number of rows."])


def render_gpu() -> str:
    """The record of the GPU as a table."""
    gpu = json.loads(GPU_RECORD.read_text())
    fit, codes, exact = gpu["fit"], gpu["encode"], gpu["exactness"]
    sizes = f"{gpu['rows']:,} x {gpu['columns']} rows, {gpu['anchors']:,} anchors, {gpu['classes']} classes"
    making = f"fit, float64 sums, rows made on the device (twice: {fit['making_seconds']:.1f} s of it)"
    small = f"{exact['of_them_nearly_zero']} of them with a score below 1e-6 of the largest"
    lines = [
        _row(f"{sizes}, {gpu['bits']} bits, {gpu['machine']}", "measured"),
        "|---|---|",
        _row(making, f"{fit['seconds']:.1f} s"),
        _row("encode, rows on the device", f"{codes['rows_per_second'] / 1e6:.0f} million rows/s"),
        _row(
            f"relative difference of projections to the CPU, {exact['rows']:,} rows",
            f"{exact['projection_relative']:.1e}",
        ),
        _row("bits that differ", f"{exact['bits_that_differ']} of {exact['bits']:,}, {small}"),
    ]
    return "\n".join([*lines, *_gpu_eaph(gpu["eaph"])])


def _gpu_eaph(eaph: dict[str, Any]) -> list[str]:
    differ = f"{eaph['rows_that_differ_when_fitted_on_the_cpu']} of {eaph['check_rows']:,}"
    return [
        _row(f"EAPH (`auto`): fit {eaph['rows']:,} rows of {eaph['classes']:,} classes", f"{eaph['seconds']:.1f} s"),
        _row("EAPH: encode", f"{eaph['encoded_rows_per_second'] / 1e6:.1f} million rows/s"),
        _row("EAPH: rows whose code differs when fitted on the CPU", differ),
    ]


def _measurements(record: dict[str, Any]) -> str:
    fit, workers, codes, scores = record["stream"], record["dask"], record["encode"], record["evaluate"]
    rates = f"{fit['rows_per_second']:,} over {fit['bare_rows_per_second']:,}; {fit['seconds']:.0f} s"
    clocks = f"{workers['seconds']['1']:.1f} s and {workers['seconds']['2']:.1f} s"
    parts = f"{scores['count_seconds']:.1f} s to count, {scores['score_seconds']:.1f} s to score"
    sizes = f"{scores['items']:,} codes, {scores['bits']} bits, {scores['classes']} classes"
    rows = {
        f"fit of {fit['rows']:,} x {fit['columns']} from Parquet, {fit['anchors']:,} anchors: rows/s over those of the "
        "bare kernel map and Gram product": f"{fit['ratio']:.2f} ({rates})",
        "its peak memory above the interpreter": f"{fit['peak_gib']:.2f} GiB (the file: {fit['file_gib']:.2f} GiB)",
        f"Dask: two one-thread workers over one, {workers['rows']:,} rows": f"{workers['ratio']:.2f} ({clocks})",
        f"encode {codes['rows']:,} rows into Parquet: time over that of the two bare matrix products": (
            f"{codes['ratio']:.2f} ({codes['seconds']:.0f} s, {codes['rows_per_second']:,} rows/s)"
        ),
        f"evaluate {scores['queries']:,} queries against {sizes}": f"{scores['seconds']:.1f} s ({parts})",
        "its peak memory above the input": f"{scores['peak_gib']:.2f} GiB (the input: {scores['input_gib']:.2f} GiB)",
    }
    if "eaph" in record:
        eaph = record["eaph"]
        sizes = f"{eaph['rows']:,} x {eaph['columns']} from Parquet, {eaph['classes']:,} classes, {eaph['bits']} bits"
        rows[f"fit of EAPH: {sizes}"] = f"{eaph['seconds']:.0f} s, {eaph['peak_gib']:.2f} GiB above the interpreter"
    head = _row(f"{record['cores']} cores", "measured")
    return "\n".join([head, "|---|---|", *(_row(what, value) for what, value in rows.items())])


def _curves(curves: dict[str, Any]) -> str:
    rates = {"fit, rows/s": "rows_per_second", "encode, rows/s": "encode_rows_per_second"}
    lines = []
    for name in ("rows", "anchors", "bits"):
        points = curves[name]
        lines += [_row(name, *(f"{int(size):,}" for size in points)), "|---|" + "---:|" * len(points)]
        lines += [_row(title, *(f"{p[key]:,}" for p in points.values())) for title, key in rates.items()]
        lines += [_row("peak memory, GiB", *(f"{p['peak_gib']:.2f}" for p in points.values())), ""]
    return "\n".join(lines).rstrip()


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


if __name__ == "__main__":
    draw()
