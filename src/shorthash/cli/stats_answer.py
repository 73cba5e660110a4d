"""Sums as an answer: of how many rows, over which features and classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shorthash.cli.options import argument
from shorthash.cli.output import Answer

__all__ = ["StatsFile", "stats_answer"]

StatsFile = argument("STATS", "File of sums, as shorthash stats collect writes it.")


def stats_answer(path: Path, collected: Any) -> Answer:
    """What there is to say about a file of sums."""
    sums, front = collected.sums, collected.front
    sizes = sums.counts
    data = {
        "stats": str(path),
        "n_rows": collected.n_rows,
        "n_labelled": sums.n_samples,
        "n_features": sums.n_features,
        "n_anchors": None if front is None else len(front.anchors_),
        "n_columns": sums.n_features if front is None else int(front.n_features_in_),
        "bandwidth": None if front is None else float(front.bandwidth_),
        "classes": sums.classes,
        "n_label_sets": len(sums.rows),
        "smallest_label_set": int(sizes.min()),
        "largest_label_set": int(sizes.max()),
        "bytes": path.stat().st_size,
    }
    kernel = "none" if front is None else f"{data['n_anchors']} anchors, bandwidth {data['bandwidth']:.4g}"
    facts = {
        "stats": str(path),
        "rows": f"{data['n_rows']} x {data['n_columns']} features, {data['n_labelled']} with labels",
        "kernel": kernel,
        "classes": str(len(sums.classes)),
        "label sets": f"{len(sums.rows)}, of {int(sizes.min())} to {int(sizes.max())} rows",
        "size": f"{data['bytes']} bytes",
    }
    return Answer(data, facts)
