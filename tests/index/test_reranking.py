"""Vectors and scores: every order against a loop over all items, and every change against lists."""

import math
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shorthash.errors import InvalidInput
from shorthash.index import BucketIndex, FaissIndex, ScanIndex
from shorthash.index.items import METRICS

INDEXES = [ScanIndex, BucketIndex, FaissIndex]
every_index = pytest.mark.parametrize("make", INDEXES)


def score(query, vector, asked_bits, code, n_bits, metric):
    """One score by the definition, in Python numbers."""
    if metric == "asymmetric":
        return sum(w if code >> j & 1 else -w for j, w in enumerate(asked_bits[:n_bits]))
    if metric == "euclidean":
        return -math.sqrt(sum((a - b) ** 2 for a, b in zip(query, vector, strict=True)))
    dot = sum(a * b for a, b in zip(query, vector, strict=True))
    if metric == "dot":
        return dot
    norms = math.hypot(*query) * math.hypot(*vector)
    return dot / norms if norms else 0.0


@st.composite
def problems(draw):
    """Codes with small whole vectors, so that scores are exact and tie."""
    n_bits = draw(st.sampled_from([1, 3, 8, 9, 20, 64]))
    codes = draw(st.lists(st.integers(0, 2**n_bits - 1) | st.integers(0, 3 if n_bits > 1 else 1), max_size=25))
    vector = st.lists(st.integers(-2, 2), min_size=3, max_size=3)
    vectors = draw(st.lists(vector, min_size=len(codes), max_size=len(codes)))
    query = draw(st.integers(0, 2**n_bits - 1))
    bits = draw(st.lists(st.integers(-3, 3), min_size=n_bits, max_size=n_bits))
    return n_bits, codes, vectors, query, draw(vector), bits


def filled(make, n_bits, codes, ids, vectors):
    """An index with half of its items settled and half of them pending."""
    half = len(codes) // 2
    parts = [slice(0, half), slice(half, None)]
    index = make(n_bits)
    for part in parts:
        rows = np.array(vectors[part], dtype=np.float32).reshape(-1, 3)
        index.add(np.array(codes[part], dtype=np.uint64), ids=ids[part], vectors=rows)
        if isinstance(index, BucketIndex) and part is parts[0]:
            index.slices(np.array([0]), radius=0)
    return index


@every_index
@settings(max_examples=30)
@given(problem=problems(), data=st.data())
def test_every_order_by_scores_equals_the_loop(make, problem, data):
    n_bits, codes, vectors, query, query_vector, bits = problem
    ids = data.draw(st.permutations(range(100, 100 + len(codes))))
    index = filled(make, n_bits, codes, ids, vectors)
    metric = data.draw(st.sampled_from(METRICS))
    k, radius = data.draw(st.integers(1, 30)), data.draw(st.integers(0, n_bits))
    only = data.draw(st.none() | st.sets(st.sampled_from(ids))) if ids else None
    rows = [
        (bin(code ^ query).count("1"), -score(query_vector, vector, bits, code, n_bits, metric), i)
        for i, code, vector in zip(ids, codes, vectors, strict=True)
        if only is None or i in only
    ]
    rows = [(d, float(np.float32(s)), i) for d, s, i in rows]
    given_vectors = np.array([bits if metric == "asymmetric" else query_vector], dtype=np.float64)
    queries = np.array([query], dtype=np.uint64)
    how = {"metric": metric, "where": only}

    found = index.search(queries, k, ties="scores", vectors=given_vectors, **how)
    assert found.distances[0].tolist() == [d for d, _, _ in sorted(rows)][:k]
    ball = index.within(queries, radius, ties="scores", vectors=given_vectors, **how)
    best = index.rerank(queries, given_vectors, k, radius=radius, **how)
    assert len(best) == 1
    inside = sorted(row for row in rows if row[0] <= radius)
    assert ball.distances.tolist() == [d for d, _, _ in inside]
    by_score = sorted((s, i) for d, s, i in inside)[:k]
    np.testing.assert_allclose(best[0][1], [-s for s, _ in by_score], rtol=1e-6, atol=1e-6)
    if metric != "cosine" and metric != "euclidean":  # roots may round differently and reorder equal scores
        assert found.ids[0].tolist() == [i for _, _, i in sorted(rows)][:k]
        assert ball.ids.tolist() == [i for _, _, i in inside]
        assert best[0][0].tolist() == [i for _, i in by_score]


@every_index
@pytest.mark.parametrize("metric", METRICS)
def test_batches_equal_single_queries_and_plain_sorting(make, metric):
    rng = np.random.default_rng(0)
    n, n_bits = 3000, 10
    codes, vectors = rng.integers(0, 1024, size=n), rng.normal(size=(n, 8)).astype(np.float32)
    index = make(n_bits).add(codes, vectors=vectors).remove(np.arange(0, n, 7))
    kept = np.flatnonzero(np.arange(n) % 7)
    queries = codes[:40]
    query_vectors = rng.normal(size=(40, n_bits if metric == "asymmetric" else 8)).astype(np.float32)
    batch = index.rerank(queries, query_vectors, 15, radius=2, metric=metric)
    signs = 2.0 * ((codes[:, None] >> np.arange(n_bits)) & 1) - 1
    for row in (0, 17, 39):
        inside = kept[np.bitwise_count(codes[kept] ^ queries[row]) <= 2]
        truth = {
            "dot": vectors[inside] @ query_vectors[row] if metric == "dot" else None,
            "cosine": vectors[inside] @ query_vectors[row, :8] / np.linalg.norm(vectors[inside], axis=1),
            "euclidean": -np.linalg.norm(vectors[inside] - query_vectors[row, :8], axis=1),
            "asymmetric": signs[inside] @ np.resize(query_vectors[row], n_bits),
        }[metric]
        best = inside[np.lexsort((inside, -np.float32(truth)))][:15]
        if metric == "cosine":
            truth = truth / np.linalg.norm(query_vectors[row])
        assert batch[row][0].tolist() == best.tolist()
        np.testing.assert_allclose(batch[row][1], np.sort(truth)[::-1][:15], rtol=1e-4)
        single = index.rerank(queries[row : row + 1], query_vectors[row : row + 1], 15, radius=2, metric=metric)
        assert single.ids.tolist() == best.tolist()
    assert [len(ids) for ids, _ in batch] == np.diff(batch.offsets).tolist()


@every_index
def test_types_of_vectors(make):
    for dtype in (np.float16, np.float32, np.float64):
        index = make(4).add(np.array([1, 2]), vectors=np.eye(2, dtype=dtype))
        assert index.vectors.dtype == dtype
        found = index.rerank(np.array([1]), [[0, 1]], 2, radius=4, metric="dot")
        assert (found.ids.tolist(), found.scores.tolist()) == ([1, 0], [1, 0])
    assert make(4).add(np.array([1]), vectors=[[1, 2]]).vectors.dtype == np.float32


@every_index
def test_an_empty_index_has_no_best(make):
    found = make(4).rerank(np.array([1, 2]), np.ones((2, 3)), 5, radius=4)
    assert found.offsets.tolist() == [0, 0, 0]
    assert make(4).search(np.array([1]), 3, ties="scores", vectors=[[1.0]]).ids.shape == (1, 0)


@every_index
def test_wrong_vectors_are_refused_and_change_nothing(make):
    plain = make(4).add(np.array([1, 2]))
    index = make(4).add(np.array([1, 2]), vectors=np.eye(2))
    one = np.array([1])
    for call, message in [
        (lambda: index.add(one), "Every item of this index has a vector of dimension 2; pass vectors="),
        (lambda: index.add(one, vectors=[[1, 2, 3]]), "must have the dimension of those in the index, 2. Got 3"),
        (lambda: index.add(one, vectors=np.eye(2)), r"must be numbers of shape \(1, dimension\).*Got float64 of shape"),
        (lambda: index.add(one, vectors=[[1, np.nan]]), "must be finite in float64, but row 0 holds NaN or infinity"),
        (lambda: index.add(one, vectors=[["a", "b"]]), r"must be numbers of shape \(1, dimension\)"),
        (lambda: index.update([0], one, vectors=[[1]]), "must have the dimension of those in the index, 2. Got 1"),
        (lambda: index.update([7], one), "Id 7 is not in the index"),
        (lambda: plain.add(one, vectors=[[1]]), "those in the index, none at all. Got 1"),
        (lambda: plain.update([0], one, vectors=[[1]]), "those in the index, none at all. Got 1"),
        (lambda: plain.rerank(one, [[1]], 1, radius=1), "needs items with vectors, .* or use metric='asymmetric'"),
        (lambda: index.rerank(one, [[1]], 1, radius=1), "must have 2 columns for metric='cosine'. Got 1"),
        (lambda: index.rerank(one, [[1, 1]], 1, radius=1, metric="asymmetric"), "must have 4 columns"),
        (lambda: index.rerank(one, np.eye(2), 1, radius=1), r"must be numbers of shape \(1, dimension\)"),
        (
            lambda: index.rerank(one, [[1, 1]], 1, radius=1, metric="l1"),
            "'metric' parameter .* must be one of 'cosine'",
        ),
        (lambda: index.search(one, 1, ties="scores"), "needs the vectors of queries; pass vectors="),
        (lambda: index.within(one, 1, vectors=[[1, 1]]), "are used with ties='scores' only"),
        (lambda: index.search(one, 1, ties="best"), "must be one of 'id', .* 'scores'"),
        (lambda: index.merge(plain), "Every item of this index has a vector"),
        (lambda: make(4).merge(plain, make(4).add(one, ids=[9], vectors=[[1]])), "with and without vectors"),
        (
            lambda: make(4).merge(index, make(4).add(one, ids=[9], vectors=[[1]])),
            "vectors differ in dimension cannot be merged",
        ),
    ]:
        with pytest.raises(InvalidInput, match=message):
            call()
    assert index.vectors.tolist() == np.eye(2).tolist()
    assert plain.vectors is None
    assert index.ids.tolist() == plain.ids.tolist() == [0, 1]
    assert index.search(one, 2).ids.tolist() == [[0, 1]]


@every_index
def test_vectors_are_merged_copied_and_read_only(make):
    rows = np.arange(4.0).reshape(2, 2)
    whole = make(4).merge(
        make(4).add(np.array([1, 2]), vectors=rows), make(4).add(np.array([3]), [7], vectors=[[8, 9]])
    )
    rows[:] = 0
    assert whole.vectors.tolist() == [[0, 1], [2, 3], [8, 9]]
    with pytest.raises(ValueError, match="read-only"):
        whole.vectors[0] = 1
    whole.remove(whole.ids).add(np.array([1]))  # an empty index takes other vectors
    assert whole.vectors is None


@every_index
def test_an_emptied_index_takes_other_vectors(make):
    index = make(4).add(np.array([1, 2]), vectors=np.eye(2, dtype=np.float32))
    for settle in (True, False):
        index.remove(index.ids)
        if settle:
            index.export_state()
        assert index.vectors is None
        assert index.dimension is None
        with pytest.raises(InvalidInput, match="Id 1 is not in the index"):
            index.update([1], np.array([3]))
        index.add(np.array([1, 2]), vectors=np.eye(2, 3, dtype=np.float16))
        assert index.vectors.tolist() == np.eye(2, 3).tolist()
    index.add(np.array([3]), vectors=np.full((1, 3), 0.5, dtype=np.float64))
    assert index.vectors.dtype == np.float16  # the type of the first
    assert index.vectors[-1].tolist() == [0.5, 0.5, 0.5]


class Interleavings(RuleBasedStateMachine):
    """Vectors stay with their items whatever happens."""

    @initialize(strings=st.booleans())
    def start(self, strings):
        self.strings = strings
        self.indexes = [ScanIndex(6), BucketIndex(6)]
        self.model = {}  # id -> (code, vector)
        self.next_id = 0

    def rows(self, data, n):
        codes = data.draw(st.lists(st.integers(0, 63), min_size=n, max_size=n))
        first = data.draw(st.integers(0, 1000))
        return codes, [[first + i, i] for i in range(n)]

    @rule(data=st.data(), n=st.integers(1, 8))
    def add(self, data, n):
        codes, vectors = self.rows(data, n)
        ids = [str(self.next_id + i) if self.strings else self.next_id + i for i in range(n)]
        for index in self.indexes:
            index.add(np.array(codes), ids=ids if self.strings else None, vectors=vectors)
        self.next_id += n
        self.model.update(zip(ids, zip(codes, vectors, strict=True), strict=True))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), n=st.integers(1, 6))
    def remove(self, data, n):
        for i in data.draw(st.lists(st.sampled_from(list(self.model)), unique=True, max_size=n)):
            for index in self.indexes:
                index.remove([i])
            del self.model[i]

    @precondition(lambda self: self.model)
    @rule(data=st.data(), keep=st.booleans())
    def update(self, data, keep):
        ids = data.draw(st.lists(st.sampled_from(list(self.model)), unique=True, max_size=4))
        codes, vectors = self.rows(data, len(ids))
        if keep:
            vectors = [self.model[i][1] for i in ids]
        for index in self.indexes:
            index.update(ids, np.array(codes, dtype=int), vectors=None if keep else np.reshape(vectors, (-1, 2)))
        for i in ids:
            del self.model[i]
        self.model.update(zip(ids, zip(codes, vectors, strict=True), strict=True))

    @rule()
    def settle(self):
        self.indexes[1].slices(np.array([0]), radius=0)

    @rule()
    def reload(self):
        self.indexes = [type(index).from_state(6, index.export_state()) for index in self.indexes]

    @precondition(lambda self: self.model)
    @rule(data=st.data(), radius=st.integers(0, 6))
    def rerank(self, data, radius):
        query, query_vectors = data.draw(st.integers(0, 63)), data.draw(st.integers(-3, 3))
        hits = [
            (-(query_vectors * v[0] + v[1]), i) for i, (c, v) in self.model.items() if (c ^ query).bit_count() <= radius
        ]
        for index in self.indexes:
            found = index.rerank(np.array([query]), [[query_vectors, 1]], 5, radius=radius, metric="dot")
            assert found.ids.tolist() == [i for _, i in sorted(hits)[:5]]

    @invariant()
    def same_vectors(self):
        for index in getattr(self, "indexes", ()):
            assert index.ids.tolist() == list(self.model)
            if self.model:
                assert index.vectors.tolist() == [v for _, v in self.model.values()]


Interleavings.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestInterleavings = Interleavings.TestCase


def test_a_ranking_sees_one_state_while_another_thread_writes():
    """Items and their vectors move together: the score of an item is always its code's."""
    index = BucketIndex(8).add(np.arange(200), vectors=np.arange(200.0)[:, None])
    stop, failures = threading.Event(), []

    def write():
        rng = np.random.default_rng(0)
        for _ in range(150):
            codes = rng.integers(0, 256, size=20)
            ids = rng.choice(200, size=20, replace=False)
            index.update(ids, codes, vectors=codes[:, None].astype(float))
        stop.set()

    def read():
        while not stop.is_set():
            found = index.rerank(np.array([7]), [[1.0]], 50, radius=8, metric="dot")
            near = index.rerank(np.array([7]), [[1.0]], 500, radius=0, metric="dot")
            if len(found.ids) != 50 or set(near.scores.tolist()) - {7.0}:
                failures.append((len(found.ids), near.scores.tolist()))

    threads = [threading.Thread(target=work) for work in (read, write)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert stop.is_set()
    assert failures == []
