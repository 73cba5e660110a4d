"""EAPH without labels: cells with means, which codes depend on, and by which they are read."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs

from shorthash import EAPH, evaluate_neighbours
from shorthash._rounding import Rounded, softmax
from shorthash.codes.signs import pack, unpack
from shorthash.errors import InvalidInput
from shorthash.learners.eaph.encoding import RANGE, wide_lookup_of
from shorthash.learners.eaph.neighbours import fit_slopes

X, _ = make_blobs(1400, n_features=6, centers=25, cluster_std=2.0, random_state=3)
ROWS, QUERIES = X[:1200].astype(np.float32), X[1200:].astype(np.float32)


@pytest.fixture(scope="module")
def probing():
    return EAPH(6, random_state=0, n_neighbors=15, metric="euclidean", search="probes", n_iter=2).fit(ROWS)


@pytest.fixture(scope="module")
def weighted():
    """A cosine model in which gains of the table and distances both decide."""
    hasher = EAPH(6, random_state=1, n_neighbors=15, n_iter=2).fit(ROWS)
    object.__setattr__(hasher.cell_centers_, "weight", 0.3)
    return hasher


def slow_gains(hasher, rows):
    cells = hasher.cell_centers_
    P = softmax(hasher.posterior_.logits(Rounded(rows.astype(float)), exact=False)).values
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True) if cells.unit else rows
    away = ((rows[:, None, :].astype(float) - cells.centers[None]) ** 2).sum(axis=2)
    return P @ hasher.table_.T.astype(float) - cells.weight * away


@pytest.mark.parametrize("name", ["probing", "weighted"])
def test_codes_are_those_of_largest_gain(name, request):
    hasher = request.getfixturevalue(name)
    assert hasher.cell_centers_.weight > 0
    expected = hasher.cells_[slow_gains(hasher, QUERIES).argmax(axis=1)]
    assert np.array_equal(pack(hasher.transform(QUERIES)), expected)
    assert np.array_equal(np.sign(hasher.project(QUERIES)), unpack(expected, 6))
    apart = np.concatenate([hasher.transform(QUERIES[i : i + 7]) for i in range(0, len(QUERIES), 7)])
    assert np.array_equal(apart, hasher.transform(QUERIES))


def test_a_row_between_two_means_is_in_doubt_and_settled_alike(probing):
    cells = probing.cell_centers_
    middle = (cells.centers[:20].astype(float) + cells.centers[20:40]) / 2
    for _ in range(60):  # to the border between the two best cells
        gain = slow_gains(probing, middle)
        two = np.argsort(-gain, axis=1)[:, :2]
        lead = np.diff(np.take_along_axis(gain, two, axis=1), axis=1)
        away = cells.centers[two[:, 0]].astype(float) - cells.centers[two[:, 1]]
        middle = middle + lead * away / (2 * cells.weight * (away**2).sum(axis=1, keepdims=True))
    P = softmax(probing.posterior_.logits(Rounded(middle), exact=False))
    doubt = wide_lookup_of(probing).best(P, Rounded(middle), probing._codebook()).bound[:, 0]
    assert np.isinf(doubt).sum() > 5
    alone = np.concatenate([probing.transform(middle[i : i + 1]) for i in range(len(middle))])
    assert np.array_equal(probing.transform(middle), alone)
    assert np.array_equal(probing.transform(middle[::-1])[::-1], alone)


def test_codes_of_tensors(weighted):
    torch = pytest.importorskip("torch")
    found = weighted.transform(torch.asarray(QUERIES))
    assert np.array_equal(np.asarray(found), weighted.transform(QUERIES))


def test_relevance_is_an_expected_share(weighted):
    cells, found = weighted.cell_centers_, weighted.relevance(QUERIES)
    rows = QUERIES / np.linalg.norm(QUERIES, axis=1, keepdims=True)
    logs = cells.slope * rows @ cells.centers.T + cells.norm_slope * (cells.centers**2).sum(axis=1)
    odds = np.exp(logs - logs.max(axis=1, keepdims=True))
    expected = -np.expm1(-odds * cells.chance / (odds @ cells.shares)[:, None])
    assert found == pytest.approx(expected, abs=1e-4)
    assert (found @ cells.shares).mean() == pytest.approx(15 / 1200, rel=0.35)  # less where a share is near 1
    assert np.array_equal(found, np.concatenate([weighted.relevance(row[None]) for row in QUERIES]))
    logs = cells.log_chances(Rounded(QUERIES.astype(float)), exact=False)
    assert logs.values.max() == RANGE
    assert logs.values.min() >= 0


def test_probes_read_cells_of_k_means(probing):
    cells, items = probing.cell_centers_, pack(probing.transform(ROWS))
    away = ROWS - cells.centers[np.searchsorted(probing.cells_, items)]
    means = KMeans(len(cells.centers), n_init=1, random_state=0).fit(ROWS)
    assert (away**2).sum() < 1.15 * means.inertia_
    order = {"relevance": probing.relevance(QUERIES), "cells": probing.cells_}
    nearest = {"relevance": -means.transform(QUERIES), "cells": np.arange(means.n_clusters)}
    sides = {"X_query": QUERIES, "X_database": ROWS, "k": 15, "metric": "euclidean", "shares": [0.03, 0.1]}
    codes = probing.transform(QUERIES)
    ours = evaluate_neighbours(codes, unpack(items, 6), **sides, **order)
    theirs = evaluate_neighbours(np.zeros(len(QUERIES), int), means.labels_, n_bits=64, **sides, **nearest)
    assert all(ours.recall[share] > 0.97 * theirs.recall[share] for share in sides["shares"])
    assert ours.map > evaluate_neighbours(codes, unpack(items, 6), **sides).map


def test_an_aligned_hasher_has_the_cells_without_the_means(probing):
    other = probing.align(ROWS[:, ::-1] * 2 + 1, rows=ROWS)
    assert not hasattr(other, "cell_centers_")
    assert other.table_.shape == probing.table_.shape
    same = pack(other.transform(ROWS[:, ::-1] * 2 + 1)) == pack(probing.transform(ROWS))
    assert same.mean() > 0.5
    assert other.probes(ROWS[:3, ::-1] * 2 + 1, 4).shape == (3, 4)


def test_slopes_are_those_of_maximum_likelihood():
    rng = np.random.default_rng(0)
    F, shares = rng.normal(size=(2, 80, 12)), rng.dirichlet(np.ones(12))
    chances = np.exp(np.tensordot([1.5, -0.5], F, axes=1)) * shares
    near = np.stack([rng.choice(12, size=30, p=row / row.sum()) for row in chances])

    def loss(slopes):
        logits = np.tensordot(slopes, F, axes=1)
        total = np.log((np.exp(logits) * shares).sum(axis=1))
        return -np.mean(np.take_along_axis(logits, near, axis=1).mean(axis=1) - total)

    found = fit_slopes(F, near, shares)
    assert found == pytest.approx(minimize(loss, np.zeros(2)).x, abs=1e-3)
    assert found == pytest.approx([1.5, -0.5], abs=0.15)


def test_a_search_that_does_not_exist():
    with pytest.raises(InvalidInput, match=r"'search' parameter of EAPH must be one of 'rings', 'probes'"):
        EAPH(4, search="graph").fit(ROWS)
