"""Choices inside EAPH and RSLH, each changed alone, scored on training rows: no query is read.

Run ``SHORTHASH_DATA=/path/to/data python experiments/constants.py``; it measures what docs/data/constants.json lacks.
From the training rows of every data set (seed 0 of its protocol) some are drawn; codes are learned on two thirds of
them and scored by the mAP of the other third, its rows searched among each other. Every row is once in that third.
Beside constants of EAPH: the order in which EAPH looks up cells, and the estimate of confusion behind the annealed
start of RSLH.

Constants that matter with few rows are scored with 1, 2 or 5 rows of every class of those rows; the other rows are
searched among each other.

Constants of codes without labels are scored likewise: rows that are a query of no seed are split in thirds; two thirds
are learned from and searched, the other third searches. Of the three scores (mAP by neighbours, recall of neighbours in
the first hundredth, mAP by class) the geometric mean over all data sets decides; a value in use is replaced by one that
is better by more than 1 %, since less is chance.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

RECORD = Path(__file__).resolve().parents[1] / "docs" / "data" / "constants.json"
LEARNERS = "shorthash.learners"
# constant, and values around the one in use
CONSTANTS: dict[str, tuple[float, ...]] = {
    "eaph.refinement.BACKGROUND": (0.001, 0.01, 0.1),
    "eaph.choosing.PRIOR_ROWS": (2, 10, 50),
    "eaph.choosing.GAIN": (0.01, 0.03, 0.1),
    "eaph.codebook.HEAT": (0.001, 0.004, 0.016),
    "eaph.codebook.PER_GROUP": (50, 200, 800),
    "posteriors.logistic.BIAS_PENALTY": (0.01, 0.1, 1.0),
    "posteriors.logistic.SHRINKAGE": (0.25, 0.5, 0.75),
    "posteriors.models.MOST_CHANGE": (0.001, 2.0),
}
SEVERAL_LABELS = ("posteriors.models.MOST_CHANGE",)  # matter only where rows have several; near 0: log-loss alone
DATASETS = {
    "cifar10": 3000,
    "imagenet100": 4000,
    "caltech101-cnn": 3000,
    "wordnet": 3000,
    "voc2012": 3000,
}  # rows drawn
# the same with few rows of every class, and how many
FEW_CONSTANTS: dict[str, tuple[tuple[float, ...], tuple[int, ...]]] = {
    "eaph.drawing.ALONE_SHARE": ((0.25, 0.5, 0.75), (1,)),
    "posteriors.models.EXPECTED_POWER": ((0.3, 0.6, 1.0), (1, 2, 5)),
    "posteriors.models.POWER_ROWS": ((3, 10, 30), (2, 5)),
    "posteriors.folds.EXPECTED_ROWS": ((1, 3, 10), (2, 5)),
    "posteriors.logistic.EXPECTED_PULL": ((0.4, 0.8, 1.6), (2, 5)),
    "posteriors.ridge.EXPECTED_ROWS": ((1, 3, 10), (2, 5)),
    "posteriors.ridge.EXPECTED_MULTIPLE": ((2.5, 5.0, 10.0), (1, 2, 5)),
    "posteriors.ridge.EXPECTED_LOG": ((0.0, 0.5, 1.0), (1, 2, 5)),
    "posteriors.ridge.EXPECTED_RIDGE": ((0.001, 0.01, 0.1), (1, 2, 5)),
    "posteriors.ridge.CHOICE_ROWS": ((0, 10, 30), (2, 5)),
    "eaph.choosing.PRIOR_ROWS": ((5, 10, 20), (2, 5)),
    "eaph.choosing.WORTH": ((0.0, 0.005, 0.01), (2, 5)),
    "eaph.drawing.LEAST_SURE": ((0.0, 0.3, 0.6), (2, 5)),
    "posteriors.ridge.MOST_SETS": ((16, 128), ()),
}
FEW_ROWS = (1, 2, 5)
FEW_DATASETS = ("cifar10", "cifar10 animals", "imagenet100", "caltech101-cnn")
ANIMALS = range(2, 8)  # classes of CIFAR-10 that "cifar10 animals" has to tell from the others: two classes
MANY_CLASSES = ("wordnet", 2)  # and what matters there
MANY_CONSTANTS = ("eaph.drawing.LEAST_SURE", "posteriors.ridge.MOST_SETS")
DRAWS = 2
# the same without labels
UNLABELLED_CONSTANTS: dict[str, tuple[float, ...]] = {
    "eaph.neighbours.FAR_SHARE": (5, 10, 20, 1_000_000),
    "eaph.neighbours.FAR_WEIGHT": (0.0, 1 / 3, 1.0),
    "eaph.neighbours.WIDE_WEIGHT": (1, 3, 10),
    "eaph.neighbours.MOST_LOST": (0.02, 0.05, 0.1),
}
UNLABELLED = ("cifar10", "imagenet100", "voc2012", "caltech101-cnn", "wordnet")
MOST_ROWS = 12_000
NEIGHBOURS = 100 / 59_000  # share of the rows that are relevant
SHARE = 0.01  # of the database, for the recall
SEEDS = 5  # of the protocols; rows that are a query of one are left out
BITS = 8
FOLDS = 3


def main() -> None:
    """Measure what has no record, and print all."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    from threadpoolctl import threadpool_limits

    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    with threadpool_limits(1):
        for kind, column, name, measured in choices():
            known = record.setdefault(kind, {}).setdefault(column, {})
            if name not in known:
                known[name] = measured()
                RECORD.write_text(json.dumps(record, indent=1) + "\n")
    print(render(), render_few(), render_unlabelled(), sep="\n\n")


def choices() -> Iterator[tuple[str, str, str, Callable[[], dict[str, Any]]]]:
    """Kind of codes, column of their table, a choice, and what measures its values."""
    for dataset in UNLABELLED:
        measured = partial(neighbour_scores, *free_rows(dataset))
        usual = cache(measured)
        for name, values in UNLABELLED_CONSTANTS.items():
            yield "no labels", dataset, name, partial(scores_by_value, name, values, measured, usual)
    for dataset, n_rows in DATASETS.items():
        X, y = training_rows(dataset, n_rows)
        usual = cache(partial(score, X, y))
        for name in ("random state", "confusion", "order of cells", *CONSTANTS):
            if y.ndim > 1 or name not in SEVERAL_LABELS:
                yield "labels", dataset, name, partial(measure, name, X, y, usual)
    for dataset, per_class in (*itertools.product(FEW_DATASETS, FEW_ROWS), MANY_CLASSES):
        measured = partial(few_score, *training_rows(dataset, DATASETS[dataset.split()[0]]), per_class)
        usual = cache(measured)
        yield "few rows", f"{dataset}, {per_class}", "random state", partial(by_random_state, measured)
        for name, (values, where) in FEW_CONSTANTS.items():
            if name in MANY_CONSTANTS if (dataset, per_class) == MANY_CLASSES else per_class in where:
                yield (
                    "few rows",
                    f"{dataset}, {per_class}",
                    name,
                    partial(scores_by_value, name, values, measured, usual),
                )


def training_rows(dataset: str, n_rows: int) -> tuple[Any, Any]:
    """Some training rows, and their labels."""
    from shorthash.data.datasets import default_protocol, read_dataset

    name, _, animals = dataset.partition(" ")
    data = read_dataset(name)
    train = default_protocol(name).split(data.y, data.test).train
    rows = np.random.default_rng(0).choice(train, n_rows, replace=False)
    return data.X[rows], np.isin(data.y[rows], ANIMALS) if animals else data.y[rows]


def measure(name: str, X: Any, y: Any, usual: Callable[[], float]) -> dict[str, float]:
    """Value -> mAP of one choice; ``usual`` is the mAP with all of them as they are in use."""
    if name == "confusion":
        return confusion(X, y)
    if name == "random state":
        return by_random_state(partial(score, X, y))
    if name == "order of cells":
        orders = [lookup(*each) for each in thirds(X, y, "auto")]
        return {key: mean([order[key] for order in orders]) for key in ("Hamming", "relevance")}
    return scores_by_value(name, CONSTANTS[name], partial(score, X, y), usual)


def by_random_state(measured: Callable[..., float]) -> dict[str, float]:
    """Random state -> mAP."""
    return {str(seed): measured(random_state=seed) for seed in range(3)}


def scores_by_value(
    name: str, values: tuple[float, ...], measured: Callable[[], Any], usual: Callable[[], Any]
) -> dict[str, Any]:
    """What is measured at every value of a constant, and with all constants as they are in use."""
    module, _, constant = f"{LEARNERS}.{name}".rpartition(".")
    place = importlib.import_module(module)
    own = getattr(place, constant)
    scores = {}
    for value in values:
        setattr(place, constant, value)
        scores[f"{value:.3g}"] = usual() if value == own else measured()
    setattr(place, constant, own)
    return scores


def free_rows(dataset: str) -> tuple[Any, Any]:
    """Some rows that are a query of no seed, and their labels."""
    from shorthash.data.datasets import read_dataset
    from shorthash.data.splits import RandomQueries

    data = read_dataset(dataset)
    queries = [RandomQueries(n_queries=1000, seed=seed).split(data.y).query for seed in range(SEEDS)]
    free = np.setdiff1d(np.arange(len(data.X)), np.concatenate(queries))
    rows = np.random.default_rng(0).permutation(free)[:MOST_ROWS]
    return data.X[rows], data.y[rows]


def neighbour_scores(X: Any, y: Any) -> list[float]:
    """The mAP by neighbours, recall in the first hundredth, and mAP by class of held-out thirds."""
    from shorthash import evaluate, evaluate_neighbours, make_hasher

    fold, scores = np.random.default_rng(1).permutation(len(X)) % FOLDS, []
    for k in range(FOLDS):
        kept, held = fold != k, fold == k
        n_neighbors = max(1, round(NEIGHBOURS * kept.sum()))
        hasher = make_hasher("auto", BITS, random_state=k, n_neighbors=n_neighbors).fit(X[kept])
        codes = hasher.transform(X[held]), hasher.transform(X[kept])
        found = evaluate_neighbours(*codes, X[held], X[kept], k=n_neighbors, shares=(SHARE,))
        scores.append([found.map, found.recall[SHARE], evaluate(codes[0], y[held], codes[1], y[kept]).map])
    return [mean(values) for values in zip(*scores, strict=True)]


def score(X: Any, y: Any, method: str = "auto", **settings: Any) -> float:
    """The mAP of held-out thirds."""
    from shorthash import evaluate

    held_out = thirds(X, y, method, **settings)
    return mean([evaluate(hasher.transform(X_out), y_out).map for hasher, X_out, y_out in held_out])


def few_score(X: Any, y: Any, n_rows: int, random_state: int = 0) -> float:
    """The mAP of other rows, where so many of every class are learned from."""
    from shorthash import evaluate, make_hasher

    scores = []
    for draw in range(DRAWS):
        order = np.random.default_rng(draw).permutation(len(X))
        classes = y[order]
        earlier = np.array([np.sum(classes[:i] == classes[i]) for i in range(len(X))])
        learned, others = order[earlier < n_rows], order[earlier >= n_rows]
        hasher = make_hasher("auto", BITS, random_state=draw + DRAWS * random_state).fit(X[learned], y[learned])
        scores.append(evaluate(hasher.transform(X[others]), y[others]).map)
    return mean(scores)


def thirds(X: Any, y: Any, method: str, **settings: Any) -> Iterator[tuple[Any, Any, Any]]:
    """A hasher fitted without a third of the rows, that third and its labels, three times."""
    from shorthash import make_hasher

    fold = np.random.default_rng(1).permutation(len(X)) % FOLDS
    for k in range(FOLDS):
        hasher = make_hasher(method, BITS, **{"random_state": 0, **settings}).fit(X[fold != k], y[fold != k])
        yield hasher, X[fold == k], y[fold == k]


def mean(values: list[float]) -> float:
    """The mean, rounded."""
    return round(float(np.mean(values)), 4)


def lookup(hasher: Any, X: Any, y: Any) -> dict[str, float]:
    """The mAP with cells in the order of their Hamming distance, and of their relevance."""
    from shorthash import evaluate, pack
    from shorthash.evaluation import evaluate_cells

    learner, codes = hasher[-1], hasher.transform(X)
    cells = np.searchsorted(learner.cells_, pack(codes))
    half = len(X) // 2  # a row must not find itself
    by_distance = evaluate(codes[:half], y[:half], codes[half:], y[half:]).map
    by_relevance = evaluate_cells(-learner.relevance(X[:half]), y[:half], cells[half:], y[half:]).map
    return {"Hamming": by_distance, "relevance": by_relevance}


def confusion(X: Any, y: Any) -> dict[str, float]:
    """RSLH with annealed codewords, by the estimate of how often classes are confused."""
    from shorthash.learners import codebooks
    from shorthash.learners.rslh import steps

    own = steps.expected_confusion

    def in_sample(statistics: Any) -> Any:
        centred = statistics.centred(statistics.mean())
        b = centred.counts / centred.counts.sum()
        joint = np.outer(b, b) + centred.sums.T @ codebooks.score_weights(centred)[0] / centred.counts.sum()
        joint = np.maximum(joint, np.diag(b**2))
        return joint / joint.sum()

    def none(statistics: Any) -> Any:
        return np.diag(statistics.counts / statistics.counts.sum())

    scores = {}
    for name, estimate in (("corrected", own), ("in-sample", in_sample), ("none", none)):
        steps.expected_confusion = estimate
        scores[name] = score(X, y, "rslh", init="annealed", boosting=None)
    steps.expected_confusion = own
    return scores


def value_in_use(name: str) -> str:
    """The present value of a constant."""
    module, _, constant = f"{LEARNERS}.{name}".rpartition(".")
    return f"{getattr(importlib.import_module(module), constant):.3g}"


def table(record: dict[str, dict[str, dict[str, float]]], in_use: dict[str, str]) -> str:
    """One row per choice and value; what is in use is bold."""
    lines = [f"| choice | value | {' | '.join(record)} |", "|---|---:|" + "---:|" * len(record)]
    for name, own in in_use.items():
        values = dict.fromkeys(value for data in record for value in record[data].get(name, {}))
        for value in values:
            measured = (record[data].get(name, {}).get(value) for data in record)
            scores = " | ".join("" if score is None else f"{score:.3f}" for score in measured)
            lines.append(f"| {name} | {f'**{value}**' if value == own else value} | {scores} |")
    return "\n".join(lines)


def render() -> str:
    """The record of codes from labels as a table."""
    in_use = {"random state": "", "confusion": "corrected", "order of cells": "relevance"}
    in_use |= {name: value_in_use(name) for name in CONSTANTS}
    return table(json.loads(RECORD.read_text())["labels"], in_use)


def render_few() -> str:
    """The record of codes from few rows as a table; a column per data set and number of rows of every class."""
    in_use = {"random state": "", **{name: value_in_use(name) for name in FEW_CONSTANTS}}
    return table(json.loads(RECORD.read_text())["few rows"], in_use)


def render_unlabelled() -> str:
    """The record of codes without labels as a table; the last column decides."""
    record = json.loads(RECORD.read_text())["no labels"]
    lines = [f"| choice | value | {' | '.join(record)} | mean |", "|---|---:|" + "---:|" * (len(record) + 1)]
    for name, values in UNLABELLED_CONSTANTS.items():
        own = value_in_use(name)
        for value in (f"{value:.3g}" for value in values):
            scores = [known[name][value] for known in record.values() if name in known]
            cells = " | ".join(" / ".join(f"{score:.3f}" for score in triple) for triple in scores)
            together = f"{np.exp(np.mean(np.log(scores))):.4f}"
            lines.append(f"| {name} | {f'**{value}**' if value == own else value} | {cells} | {together} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
