"""Which penalty the default classifier of ``ClassifierCode`` should have: cross-validation on training rows only.

Run ``SHORTHASH_DATA=/path/to/data python benchmarks/classifier_penalty.py``. For the training rows of seed 0 of three
data sets, three folds, the accuracy at every penalty; no query and no database row is read. The penalty with the best
mean accuracy is the default. The record is ``docs/data/classifier_penalty.json``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score

RECORD = Path(__file__).resolve().parents[1] / "docs" / "data" / "classifier_penalty.json"
PENALTIES = (0.001, 0.003, 0.01, 0.03, 0.1)
FILES = {
    "CIFAR-10": ("cifar10_cnn256", 100, 5_000),
    "ImageNet-100": ("imagenet100_cnn256", 50, 10_000),
    "CALTECH-101": ("caltech101_gist512", None, None),
}


def main() -> None:
    accuracies = {name: [round(v, 4) for v in measure(*facts)] for name, facts in FILES.items()}
    means = np.mean(list(accuracies.values()), axis=0)
    record = {"penalties": PENALTIES, "accuracies": accuracies, "best": PENALTIES[int(means.argmax())]}
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    print(render())


def measure(stem: str, per_class: int | None, n_train: int | None) -> list[float]:
    from shorthash.data.splits import PerClassQueries, RandomQueries

    folder = os.environ.get("SHORTHASH_DATA")
    if not folder:
        raise SystemExit(f"set SHORTHASH_DATA to the folder that holds {stem}.npz")
    with np.load(Path(folder) / f"{stem}.npz") as file:
        X, y = file["X"].astype(np.float32) * file["scale"], file["y"]
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    rule = RandomQueries(n_queries=1000) if per_class is None else PerClassQueries(per_class, n_train=n_train)
    train = rule.split(y).train
    X, y = X[train], y[train]
    variance = float(X.var(axis=0).mean())
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    values = []
    for penalty in PENALTIES:
        model = LogisticRegression(C=1 / (2 * penalty * variance * len(X) * 2 / 3), max_iter=300, tol=1e-3)
        values.append(float(cross_val_score(model, X, y, cv=folds).mean()))
    return values


def render() -> str:
    """One row per data set."""
    record = json.loads(RECORD.read_text())
    lines = ["| penalty | " + " | ".join(f"{p:g}" for p in record["penalties"]) + " |"]
    lines += ["|---|" + "---|" * len(record["penalties"])]
    for name, values in record["accuracies"].items():
        lines.append(f"| {name} | " + " | ".join(f"{v:.3f}" for v in values) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
