"""Time of the steps of EAPH on one thread: posteriors and codes of ImageNet-100, encoding of CIFAR-10 and made rows.

Run ``SHORTHASH_DATA=/path/to/data python benchmarks/eaph.py [--record]``; the record is docs/data/eaph.json. Learning:
100 classes, 10 000 rows, 12 bits; encoding: 10 classes, 10 bits of CIFAR-10, and 100 and 1 000 classes, 12 bits of
clusters that benchmarks/scale.py makes (``--part encoding`` for these alone).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

RECORD = Path(__file__).resolve().parents[1] / "docs" / "data" / "eaph.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help=f"store the figures in {RECORD.name}")
    parser.add_argument("--part", choices=["encoding"], help="only encoding of made rows; the rest from the record")
    options = parser.parse_args()
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        record = json.loads(RECORD.read_text()) if options.part else dict(measure())
        record |= dict(made_clusters())
    if options.record:
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
    print(table(record))


def measure() -> Iterator[tuple[str, float]]:
    """Seconds of every step; for encoding, per row."""
    from shorthash import make_hasher
    from shorthash.learners.eaph.estimator import EAPH
    from shorthash.learners.posteriors.folds import draw_folds
    from shorthash.learners.posteriors.models import fit_posteriors

    X, y, train = training("imagenet100")
    EAPH(6, posterior="logistic").fit(X[:300], np.arange(300) % 5)  # compiles
    ids, eye = np.unique(y[train], return_inverse=True)[1], np.eye(100, dtype=np.uint8)
    for name in ("logistic", "ridge", "combo"):
        folds = draw_folds(ids, np.random.RandomState(0))
        yield (
            f"posteriors, {name}",
            seconds(lambda name=name, folds=folds: fit_posteriors(name, X[train], ids, eye, folds)),
        )
    hasher = EAPH(12, random_state=0).fit(X[train], y[train])
    yield "codes", seconds(hasher.update_codes)
    X, y, train = training("cifar10")
    for name, method, settings in (
        ("linear encoder", "rslh", {}),
        ("EAPH", "eaph", {}),
        ("EAPH, logistic", "eaph", {"posterior": "logistic"}),
    ):
        encoder = make_hasher(method, 10, random_state=0, **settings).fit(X[train], y[train])
        encoder.transform(X[:5000])
        yield f"encode, {name}", min(seconds(lambda e=encoder: e.transform(X)) for _ in range(3)) / len(X)


def made_clusters() -> Iterator[tuple[str, float]]:
    """Seconds to encode a row of made clusters, by classes and method."""
    import scale

    from shorthash import make_hasher

    for scale.CLASSES in (100, 1000):
        X, y = scale.make_rows(16_000, 0)
        block, _ = scale.make_rows(20_000, 10**9)
        for name, method, settings in (
            ("linear encoder", "rslh", {}),
            ("EAPH", "eaph", {}),
            ("SumEAPH", "sumeaph", {}),
            ("SumEAPH, nearest", "sumeaph", {"encoder": "nearest"}),
        ):
            encoder = make_hasher(method, 12, random_state=0, **settings).fit(X, y)
            encoder.transform(block[:5000])
            fastest = min(seconds(lambda e=encoder, b=block: e.transform(b)) for _ in range(3))
            yield f"encode, {name}: 12 bits, {scale.CLASSES} classes", fastest / len(block)


def training(name: str) -> tuple[np.ndarray, np.ndarray, Any]:
    """Rows and labels of a data set, and its training rows of seed 0."""
    from shorthash.data.datasets import default_protocol, read_dataset

    data = read_dataset(name)
    return data.X, data.y, default_protocol(name).split(data.y).train


def seconds(action: Callable[[], Any]) -> float:
    """CPU seconds of this process, whatever else the machine does."""
    start = time.process_time()
    action()
    return time.process_time() - start


def render() -> str:
    """The stored record as a table."""
    return table(json.loads(RECORD.read_text()))


def table(record: dict[str, float]) -> str:
    """One row per step."""
    lines = ["| CPU time on one core | |", "|---|---|"]
    for name, value in record.items():
        if name.startswith("encode"):
            what, _, case = name.partition(": ")
            linear = record["encode, linear encoder" + name[len(what) :]]
            cost = f"{1e6 * value:.1f} µs a row, {value / linear:.1f}x linear"
            lines.append(f"| {what} ({case or '10 bits, 10 classes'}) | {cost} |")
        else:
            lines.append(f"| {name} (12 bits, 100 classes, 10 000 rows) | {value:.1f} s |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
