"""EAPH without labels: clusters, their relevance, codes by neighbours of rows that were held out."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from shorthash import EAPH, load, make_hasher, save
from shorthash.codes.levels import expected_average_precision, level_counts, list_levels
from shorthash.codes.signs import pack
from shorthash.data.rows import METRICS, nearest_rows
from shorthash.data.streams import BatchStream
from shorthash.errors import InvalidInput
from shorthash.learners.eaph.groups import estimate_relevance, temperature_of
from shorthash.learners.posteriors.folds import softmax


@pytest.fixture(scope="module")
def blobs():
    X, y = make_blobs(1200, n_features=8, centers=20, cluster_std=1.5, random_state=0)
    return X[:1000].astype(np.float32), X[1000:].astype(np.float32), y


@pytest.fixture(scope="module")
def fitted(blobs):
    return EAPH(6, random_state=0, n_neighbors=20, metric="euclidean").fit(blobs[0])


def neighbour_map(hasher, X, queries, k=20, metric="euclidean"):
    items, codes = pack(hasher.transform(X)), pack(hasher.transform(queries))
    n_bits = hasher.transform(queries[:1]).shape[1]
    lists = nearest_rows(queries, X, k, metric)
    levels = level_counts(codes, items, n_bits), list_levels(codes, items, lists, n_bits)
    return expected_average_precision(*levels).mean()


def test_codes_find_neighbours_better_than_itq(blobs, fitted):
    X, queries, _ = blobs
    itq = make_hasher("pcaitq", 6, random_state=0).fit(X)
    assert neighbour_map(fitted, X, queries) > 1.2 * neighbour_map(itq, X, queries)
    assert fitted.near_map_ == pytest.approx(neighbour_map(fitted, X, queries), rel=0.25)


def test_cells_in_order_of_relevance_find_more_than_hamming_rings(blobs, fitted):
    X, queries, _ = blobs
    share = np.bincount(np.searchsorted(fitted.cells_, pack(fitted.transform(X))), minlength=len(fitted.cells_))
    lists = nearest_rows(queries, X, 20, "euclidean")
    cells = np.searchsorted(fitted.cells_, pack(fitted.transform(X)))
    order = np.argsort(-fitted.relevance(queries), axis=1, kind="stable")
    place = np.argsort(order, axis=1)
    read = np.take_along_axis(np.cumsum(share[order], axis=1), place, axis=1)  # rows read when a cell is done
    by_relevance = np.mean([(read[i, cells[lists[i]]] <= 100).mean() for i in range(len(queries))])
    codes = pack(fitted.transform(queries))
    total = np.cumsum(level_counts(codes, pack(fitted.transform(X)), 6), axis=1)
    near = np.cumsum(list_levels(codes, pack(fitted.transform(X)), lists, 6), axis=1)
    by_rings = np.mean([near[i][total[i] <= 100].max(initial=0) / 20 for i in range(len(queries))])
    assert by_relevance > by_rings
    assert np.array_equal(fitted.probes(queries, 3), fitted.cells_[order[:, :3]])


def test_report_and_attributes(fitted):
    assert sum(line["taken"] for line in fitted.report_) == 1
    assert {"ITQ", "64 groups", "32 groups", "means of cells"} == {line["start"] for line in fitted.report_}
    taken = next(line for line in fitted.report_ if line["taken"])
    assert (taken["near_map"], taken["weight"]) == (fitted.near_map_, fitted.cell_centers_.weight)
    means = [line for line in fitted.report_ if "weight" in line]
    least = {name: 0.95 * means[0][name] for name in ("near_map", "wide_map")}
    allowed = [line for line in means if all(line[name] >= value for name, value in least.items())]
    values = [line["near_map"] * line["wide_map"] * line.get("far_map", 1.0) ** (1 / 3) for line in allowed]
    assert allowed[int(np.argmax(values))] == taken
    assert not hasattr(fitted, "classes_")
    assert not hasattr(fitted, "label_sets_")


def test_labels_after_no_labels_and_back(blobs):
    X, y = blobs[0], blobs[2] % 3
    both = EAPH(4, random_state=0).fit(X[:200]).fit(X[:200], y[:200])
    assert not hasattr(both, "relevance_")
    assert np.array_equal(both.transform(X), EAPH(4, random_state=0).fit(X[:200], y[:200]).transform(X))
    both.fit(X[:200])
    assert not hasattr(both, "classes_")
    with pytest.raises(InvalidInput, match="fitted with labels"):
        both.update_codes()
    with pytest.raises(InvalidInput, match="fitted with labels"):
        both.partial_fit(X[:200], y[:200])


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("n_bits", [1, 20])
def test_metrics_lengths_saving(blobs, metric, n_bits, tmp_path):
    X, queries, _ = blobs
    hasher = make_hasher("auto", n_bits, random_state=0, metric=metric, n_iter=2).fit(X[:150])
    codes = hasher.transform(queries)
    assert codes.shape == (200, n_bits)
    again = load(save(hasher, tmp_path / "model"))
    assert np.array_equal(again.transform(queries), codes)
    assert np.array_equal(again[-1].probes(queries, 2), hasher[-1].probes(queries, 2))


@pytest.mark.parametrize("n", [2, 3, 6, 30])
def test_few_rows_duplicates_and_constant_columns(n):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(n, 3)), np.ones(n), np.zeros(n)])
    X[n // 2 :] = X[: n - n // 2]
    X[0, 0] += 1
    for metric in METRICS:
        codes = EAPH(5, random_state=0, metric=metric).fit(X).transform(X)
        assert codes.shape == (n, 5)
        assert n < 30 or len(np.unique(codes, axis=0)) > 3


def test_equal_rows_are_an_error():
    with pytest.raises(InvalidInput, match="equal"):
        EAPH(4).fit(np.ones((10, 3)))


def test_a_stream_is_learned_from_a_sample(blobs, monkeypatch):
    X, queries, _ = blobs
    monkeypatch.setattr("shorthash.learners.eaph.estimator.MOST_ROWS", 400)
    stream = BatchStream(lambda: iter([X[:300], X[300:700], X[700:]]))
    streamed = make_hasher("auto", 5, random_state=0, n_neighbors=20).fit(stream)
    held = make_hasher("auto", 5, random_state=0, n_neighbors=20).fit(X)
    assert neighbour_map(streamed, X, queries, metric="cosine") > 0.8 * neighbour_map(held, X, queries, metric="cosine")


def test_relevance_explains_lists_as_well_as_the_one_they_were_drawn_with():
    rng = np.random.default_rng(0)
    n, k, R = 800, 40, np.array([[0.3, 0.1, 0.0], [0.1, 0.2, 0.02], [0.0, 0.02, 0.4]])
    P = rng.dirichlet([0.3] * 3, size=n).astype(np.float32)
    chances = P @ R @ P.T
    lists = np.array([rng.choice(n, size=k, replace=False, p=row / row.sum()) for row in chances])

    def likelihood(R):
        R = R * n * k / (P @ R @ P.T).sum()
        return np.log(np.einsum("ia,ab,ijb->ij", P, R, P[lists])).mean()

    found = estimate_relevance(P, np.arange(n), lists)
    assert likelihood(found) >= likelihood(R) > likelihood(np.ones((3, 3))) + 0.1
    assert found[0, 2] < 0.2 * min(found[0, 0], found[2, 2])
    assert np.array_equal(found, found.T)


def test_hard_memberships_give_counts():
    P = np.eye(3, dtype=np.float32)[[0, 0, 1, 1, 1, 2]]
    listed, lists = np.array([0, 2, 5]), np.array([[1, 2], [3, 4], [0, 1]])
    counts = np.array([[1, 1, 0], [0, 2, 0], [2, 0, 0]])
    expected = counts / np.outer([1, 1, 1], [2, 3, 1])
    assert estimate_relevance(P, listed, lists) == pytest.approx((expected + expected.T) / 2)


@pytest.mark.parametrize("softness", [0.25, 0.6])
def test_temperature_reaches_the_softness(softness):
    S = np.random.default_rng(0).normal(size=(500, 12)).astype(np.float32)
    assert softmax(temperature_of(S, softness) * S).max(axis=1).mean() == pytest.approx(softness, abs=0.01)
    assert temperature_of(np.ones((5, 3), dtype=np.float32), softness) == 1.0
