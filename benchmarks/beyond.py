"""Past the paper: EAPH beside RSLH and the strongest others, five seeds, on every data set.

Run ``SHORTHASH_DATA=/path/to/data python benchmarks/beyond.py``. It may be stopped at any time and goes on where it
stopped: every cell is written to ``docs/data/beyond.json`` as it is measured. ``docs/generate.py`` makes the tables in
docs/paper/eaph.md from that file; a cell that was not measured says so.

Tie-aware mAP, symmetric encoding, rows of unit norm. Everything is chosen on training rows; the constants of EAPH were
fixed on seed 0. "classifier, same posteriors" is the likeliest class under EAPH's own posteriors, written as a balanced
codeword; "vs" cells are the mean difference of EAPH to it over the queries of one seed, with its paired 95 % interval.
"re-ranked" orders items at equal distance by their vectors; "no bits" ranks by posteriors alone. ``--cost`` measures
times on one thread instead.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

RECORD = Path(__file__).resolve().parents[1] / "docs" / "data" / "beyond.json"
SEEDS = range(5)
RERANKED = 250  # queries that are re-ranked: sorting the whole database by vectors takes its time
CASES: dict[str, dict[str, Any]] = {
    "CIFAR-10": {"file": "cifar10_cnn256", "bits": (4, 6, 8, 10), "goals": (0.54, 0.57, 0.60, 0.615)},
    "ImageNet-100": {"file": "imagenet100_cnn256", "bits": (8, 10, 12), "goals": (0.49, 0.52, 0.54)},
    "VOC2012": {"file": "voc2012_cnn256", "bits": (8, 12, 16), "goals": (None, None, None)},
    "CALTECH-101": {"file": "caltech101_gist512", "bits": (8, 10, 12, 14), "goals": (None,) * 4},
    "CALTECH-101, disjoint": {"file": "caltech101_gist512", "bits": (8, 10, 12), "goals": (0.46, None, None)},
    "ImageNet-100, unseen classes": {"file": "imagenet100_cnn256", "bits": (8, 10, 12), "goals": (None,) * 3},
}
OTHERS = ("rslh", "scdh", "hcsdh", "classifier")  # of the other methods, those that score best (methods-results.md)
EVERYONE = ("sh", "pcaitq", "pcarr", "mfh", "lsh", "ccaitq", "ksh", "sdh", "fsdh", "nsh", "fssh", "sslh", "sdhmlr")
EVERYONE = (*EVERYONE, "lfh", "cosdish", "posh")  # where every method of the table is asked for, beside the others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), metavar="CASE")
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--methods", nargs="+", default=["eaph", "rerank", *OTHERS, *EVERYONE])
    parser.add_argument("--cost", action="store_true", help="measure times on one thread instead")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.cost:
        write(read() | {f"cost/{name}": value for name, value in costs()})
        return
    cells = read()
    for case in options.cases:
        X, y = load(CASES[case]["file"])
        for seed in options.seeds:
            split = protocol(case, seed).split(y)
            for method in options.methods:
                for name, value in measure(case, method, seed, X, y, split, cells):
                    cells[name] = value
                    write(cells)
                    print(name, value, flush=True)


def load(stem: str) -> tuple[np.ndarray, np.ndarray]:
    folder = os.environ.get("SHORTHASH_DATA")
    if not folder:
        raise SystemExit(f"set SHORTHASH_DATA to the folder that holds {stem}.npz")
    with np.load(Path(folder) / f"{stem}.npz") as file:
        X = file["X"].astype(np.float32) * file["scale"]
        y = file["y"] if "y" in file else file["Y"]
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def protocol(case: str, seed: int) -> Any:
    from shorthash.data.splits import PerClassQueries, RandomQueries, UnseenClasses

    return {
        "CIFAR-10": PerClassQueries(per_class=100, n_train=5000, seed=seed),
        "ImageNet-100": PerClassQueries(per_class=50, n_train=10_000, seed=seed),
        "VOC2012": RandomQueries(n_queries=1000, n_train=4000, seed=seed),
        "CALTECH-101": RandomQueries(n_queries=1000, seed=seed),
        "CALTECH-101, disjoint": RandomQueries(n_queries=1000, n_train=3838, train_in_database=False, seed=seed),
        "ImageNet-100, unseen classes": UnseenClasses(n_unseen=25, n_queries=1000, n_train=10_000, seed=seed),
    }[case]


def measure(
    case: str, method: str, seed: int, X: np.ndarray, y: np.ndarray, split: Any, cells: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Cells of one method on one split, length by length."""
    missing = [b for b in CASES[case]["bits"] if f"{case}/{method}/{b}/{seed}" not in cells]
    if not missing or (y.ndim == 2 and method in ("hcsdh", "classifier")):
        return
    if method in EVERYONE and case != "VOC2012" and (method, "unseen" in case) != ("pcaitq", True):
        return
    if method in ("eaph", "rerank"):
        if method == "eaph":
            yield from measure_eaph(case, seed, X, y, split, missing)
        elif not case.startswith(("VOC", "CALTECH")):
            yield from measure_reranked(case, seed, X, y, split, missing)
        return
    from shorthash import evaluate, make_hasher

    for n_bits in missing:
        hasher = make_hasher(method, n_bits=n_bits, random_state=seed).fit(X[split.train], y[split.train])
        yield f"{case}/{method}/{n_bits}/{seed}", round(scores(evaluate, hasher, X, y, split).map, 5)


def measure_eaph(
    case: str, seed: int, X: np.ndarray, y: np.ndarray, split: Any, lengths: list[int]
) -> Iterator[tuple[str, Any]]:
    """EAPH, and the classifier code with the same posteriors; posteriors are learned once for all lengths."""
    from shorthash import evaluate
    from shorthash.evaluation import compare
    from shorthash.learners.eaph.estimator import EAPH

    memory = case == "CALTECH-101"
    settings: dict[str, Any] = {"expect_new_classes": "unseen" in case, "random_state": seed}
    shared = EAPH(lengths[0], **settings).fit(X[split.train], y[split.train])
    told = EAPH(lengths[0], database="training", **settings)
    if memory:
        told.fit(X[split.train], y[split.train])
    for n_bits in lengths:
        shared.set_params(n_bits=n_bits, codebook="balanced", refine=False).update_codes()
        simple = scores(evaluate, shared, X, y, split)
        yield f"{case}/same posteriors/{n_bits}/{seed}", round(simple.map, 5)
        hasher = shared.set_params(codebook="annealed", refine=True).update_codes()
        if memory:
            yield f"{case}/eaph, not told/{n_bits}/{seed}", round(scores(evaluate, hasher, X, y, split).map, 5)
            hasher = told.set_params(n_bits=n_bits).update_codes()
        ours = scores(evaluate, hasher, X, y, split)
        gain = compare(ours, simple)
        yield f"{case}/vs/{n_bits}/{seed}", [round(v, 5) for v in (gain.difference, gain.low, gain.high)]
        yield f"{case}/eaph/{n_bits}/{seed}", round(ours.map, 5)


def measure_reranked(
    case: str, seed: int, X: np.ndarray, y: np.ndarray, split: Any, lengths: list[int]
) -> Iterator[tuple[str, Any]]:
    """EAPH's codes, items at equal distance ordered by posteriors or features; and posteriors without codes."""
    from shorthash.codes import pack
    from shorthash.evaluation import evaluate_cells, evaluate_reranked
    from shorthash.learners.eaph.estimator import EAPH

    settings: dict[str, Any] = {"expect_new_classes": "unseen" in case, "random_state": seed}
    hasher = EAPH(lengths[0], **settings).fit(X[split.train], y[split.train])
    query, database = np.random.default_rng(seed).permutation(split.query)[:RERANKED], split.database
    P = hasher.predict_proba(X[query]), hasher.predict_proba(X[database])
    mean = X[split.train].mean(axis=0)
    F = X[query] - mean, X[database] - mean

    def value(codes: list[np.ndarray], vectors: tuple[np.ndarray, np.ndarray], metric: str) -> float:
        sides = (codes[0], y[query], vectors[0], codes[1], y[database], vectors[1])
        return round(evaluate_reranked(*sides, metric=metric, k=100).map, 5)

    nothing = [np.ones((len(rows), 1), dtype=np.int8) for rows in (query, database)]
    alone = value(nothing, P, "dot")
    for n_bits in lengths:
        hasher.set_params(n_bits=n_bits).update_codes()
        codes = [hasher.transform(X[rows]) for rows in (query, database)]
        yield f"{case}/re-ranked by posteriors/{n_bits}/{seed}", value(codes, P, "dot")
        yield f"{case}/re-ranked by features/{n_bits}/{seed}", value(codes, F, "cosine")
        yield f"{case}/no bits/{n_bits}/{seed}", alone
        where = np.searchsorted(hasher.cells_, pack(codes[1]))  # cells in use are sorted
        learned = evaluate_cells(-hasher.relevance(X[query]), y[query], where, y[database], k=100)
        yield f"{case}/by relevance/{n_bits}/{seed}", round(learned.map, 5)
        yield f"{case}/rerank/{n_bits}/{seed}", True


def costs() -> Iterator[tuple[str, float]]:
    """Seconds of the steps, on one thread: 100 classes, 10 000 rows, 12 bits; encoding at 10 classes, 10 bits."""
    from threadpoolctl import threadpool_limits

    from shorthash import make_hasher
    from shorthash.learners.eaph.estimator import EAPH
    from shorthash.learners.posteriors.models import POSTERIORS

    with threadpool_limits(1):
        X, y = load(CASES["ImageNet-100"]["file"])
        split = protocol("ImageNet-100", 0).split(y)
        EAPH(6, posterior="logistic").fit(X[:300], np.arange(300) % 5)  # compiles
        ids, eye = np.unique(y[split.train], return_inverse=True)[1], np.eye(100, dtype=np.uint8)
        for name in ("logistic", "ridge", "combo"):
            yield (
                f"posteriors, {name}",
                seconds(lambda name=name: POSTERIORS[name](X[split.train], ids, eye, np.random.RandomState(0))),
            )
        hasher = EAPH(12, random_state=0).fit(X[split.train], y[split.train])
        yield "codes", seconds(hasher.update_codes)
        X, y = load(CASES["CIFAR-10"]["file"])
        split = protocol("CIFAR-10", 0).split(y)
        for name, method, settings in (
            ("linear encoder", "rslh", {}),
            ("EAPH", "eaph", {}),
            ("EAPH, logistic", "eaph", {"posterior": "logistic"}),
        ):
            encoder = make_hasher(method, 10, random_state=0, **settings).fit(X[split.train], y[split.train])
            encoder.transform(X[:5000])
            yield f"encode, {name}", min(seconds(lambda e=encoder: e.transform(X)) for _ in range(3)) / len(X)


def seconds(action: Any) -> float:
    """Seconds of one thread, whatever else the machine does."""
    start = time.process_time()
    action()
    return time.process_time() - start


def scores(evaluate: Any, hasher: Any, X: np.ndarray, y: np.ndarray, split: Any) -> Any:
    query, database = hasher.transform(X[split.query]), hasher.transform(X[split.database])
    return evaluate(query, y[split.query], database, y[split.database], k=(100,))


def read() -> dict[str, Any]:
    return json.loads(RECORD.read_text())["cells"] if RECORD.exists() else {}


def write(cells: dict[str, Any]) -> None:
    record = {"command": "python benchmarks/beyond.py", "cells": dict(sorted(cells.items()))}
    part = RECORD.with_suffix(".part")
    part.write_text(json.dumps(record, indent=0) + "\n")
    part.replace(RECORD)


NAMES = {
    "eaph": "**EAPH**",
    "eaph, not told": "EAPH, not told that the database is the training set",
    "same posteriors": "classifier, same posteriors",
    "classifier": "classifier code as it comes",
    "rslh": "RSLH (mb)",
    "scdh": "SCDH",
    "hcsdh": "HCSDH",
    "pcaitq": "PCA-ITQ",
    **{name: name.upper() for name in EVERYONE if name not in ("pcaitq", "posh", "cosdish")},
    "cosdish": "COSDISH",
    "posh": "POSH",
    "by relevance": "EAPH, cells in the order of `relevance`",
    "re-ranked by posteriors": "EAPH, re-ranked by posteriors",
    "re-ranked by features": "EAPH, re-ranked by features",
    "no bits": "*posteriors alone, no bits*",
}


def render() -> str:
    """Mean and 95 % interval over seeds, one table per case; then the costs."""
    cells, lines = read(), []
    for case, facts in CASES.items():
        rows = [name for name in NAMES if any(key.startswith(f"{case}/{name}/") for key in cells)]
        if not rows:
            continue
        lines += [f"**{case}**", "", "| | " + " | ".join(f"{b} bits" for b in facts["bits"]) + " |"]
        lines += ["|---|" + "---|" * len(facts["bits"])]
        lines += [
            "| " + " | ".join([NAMES[row], *(cell(cells, case, row, b) for b in facts["bits"])]) + " |" for row in rows
        ]
        if f"{case}/vs/{facts['bits'][0]}/0" in cells:
            gains = [gain(cells, case, b) for b in facts["bits"]]
            lines.append("| *EAPH less the classifier with the same posteriors, paired* | " + " | ".join(gains) + " |")
        if any(goal is not None for goal in facts["goals"]):
            goals = ["" if goal is None else f"{goal:.3f}" for goal in facts["goals"]]
            lines.append("| *goal for EAPH* | " + " | ".join(goals) + " |")
        lines.append("")
    return "\n".join(lines + render_costs(cells))


def render_costs(cells: dict[str, Any]) -> list[str]:
    """One table of times, if they were measured."""
    cost = {name.removeprefix("cost/"): value for name, value in cells.items() if name.startswith("cost/")}
    if not cost:
        return []
    linear = cost["encode, linear encoder"]
    lines = ["**Cost in seconds of one core**", "", "| | measured | goal |", "|---|---|---|"]
    for name, value in cost.items():
        if name.startswith("encode"):
            goal = "" if "linear" in name else "3.0x"
            ratio = f"{1e6 * value:.1f} µs a row, {value / linear:.1f}x the linear encoder"
            lines.append(f"| {name} (10 bits, 10 classes) | {ratio} | {goal} |")
        else:
            goal = "60 s" if name == "codes" else "30 s"
            lines.append(f"| {name} (12 bits, 100 classes, 10 000 rows) | {value:.1f} s | {goal} |")
    return [*lines, ""]


def cell(cells: dict[str, Any], case: str, method: str, n_bits: int) -> str:
    values = [cells[k] for s in SEEDS if (k := f"{case}/{method}/{n_bits}/{s}") in cells]
    if not values:
        return "not measured"
    if len(values) == 1:
        return f"{values[0]:.3f} (1 seed)"
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    note = "" if len(values) == len(SEEDS) else f" ({len(values)} seeds)"
    return f"{np.mean(values):.3f} ± {half:.3f}{note}"


def gain(cells: dict[str, Any], case: str, n_bits: int) -> str:
    """Mean difference over the queries, and the lowest end of the paired 95 % intervals of all seeds."""
    values = [cells[k] for s in SEEDS if (k := f"{case}/vs/{n_bits}/{s}") in cells]
    return (
        f"{np.mean([v[0] for v in values]):+.3f}, from {min(v[1] for v in values):+.3f}" if values else "not measured"
    )


if __name__ == "__main__":
    main()
