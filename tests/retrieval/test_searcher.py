"""One search call on every index and store, against loops over all items."""

from math import inf, nan, sqrt

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from stores import EVERY_STORE

from shorthash import EAPH, LSH, Searcher, make_hasher, open_store
from shorthash.errors import InvalidInput
from shorthash.index import BucketIndex, FaissIndex, ScanIndex
from shorthash.persistence import describe, load, save

N_BITS = 6
X, y = make_blobs(400, n_features=5, centers=7, cluster_std=3.0, random_state=0)
X_items, X_queries = X[:360].astype(np.float32), X[360:368].astype(np.float32)
every_index = pytest.mark.parametrize("make", [ScanIndex, BucketIndex, FaissIndex, *EVERY_STORE])


@pytest.fixture(scope="module")
def hasher():
    return EAPH(n_bits=N_BITS, n_iter=4, n_starts=1, random_state=0).fit(X[:200], y[:200])


@pytest.fixture(scope="module")
def truth(hasher):
    """(code, posterior, vector) of every item by id; ids are not in the order of the rows."""
    codes = (hasher.transform(X_items) > 0) @ (1 << np.arange(N_BITS))
    rows = zip(codes.tolist(), hasher.predict_proba(X_items).tolist(), X_items.tolist(), strict=True)
    return dict(zip(IDS, rows, strict=True))


IDS = [(37 * i) % 360 + 5 for i in range(360)]


def build(make, hasher):
    searcher = Searcher(hasher, make(N_BITS), vectors="float32", posterior_bytes=4)
    return searcher.add(X_items[:300], IDS[:300]).add(X_items[300:], IDS[300:])


def slow_posterior(p, wanted):
    """Two label sets are kept, the rest is spread evenly."""
    top = sorted(range(len(p)), key=lambda s: (-p[s], s))[:2]
    kept = [(s, (round(255 * sqrt(p[s])) / 255) ** 2) for s in top]
    kept = [(s, v) for s, v in kept if v > 0]
    rest = max(0.0, 1 - sum(v for _, v in kept))
    others = [wanted[s] for s in range(len(p)) if s not in dict(kept)]
    return sum(v * wanted[s] for s, v in kept) + rest * sum(others) / len(others)


def slow_cosine(a, b):
    return sum(x * z for x, z in zip(a, b, strict=True)) / sqrt(sum(x * x for x in a) * sum(z * z for z in b))


def slow_search(hasher, truth, row, cells, shares, enough, rerank):
    """Scores of all items looked at by id, cells and items looked at, by definition."""
    wanted, looked, expected = hasher.predict_proba(row[None])[0].tolist(), [], 0.0
    n_cells = 0
    for cell, share in zip(cells, shares, strict=True):
        if expected >= enough:
            break
        items = [i for i, (code, _, _) in truth.items() if code == cell]
        looked += [(i, share) for i in items]
        expected += share * len(items)
        n_cells += 1
    score = {
        "posterior": lambda i, _: slow_posterior(truth[i][1], wanted),
        "cosine": lambda i, _: slow_cosine(truth[i][2], row.tolist()),
        None: lambda _, share: share,
    }[rerank]
    return {i: score(i, share) for i, share in looked}, n_cells, len(looked)


def check_hits(hits, scores_by_id, k):
    """The k best, best first, and equal scores by id; rounding decides where scores are all but equal."""
    ids, scores = hits[0].tolist(), hits[1].tolist()
    assert len(set(ids)) == len(ids) == min(k, len(scores_by_id))
    np.testing.assert_allclose(scores, [scores_by_id[i] for i in ids], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scores, sorted(scores_by_id.values(), reverse=True)[:k], rtol=1e-5, atol=1e-6)
    assert [(-s, i) for i, s in zip(ids, scores, strict=True)] == sorted((-s, i) for i, s in zip(*hits, strict=True))


def learned(hasher, row, n_probes, least=0.0):
    shares = (hasher.predict_proba(row[None]) @ hasher.profiles_.T)[0].tolist()
    order = sorted(range(len(shares)), key=lambda z: (-shares[z], z))[:n_probes]
    order = [z for i, z in enumerate(order) if i == 0 or shares[z] >= least]
    return [int(hasher.cells_[z]) for z in order], [shares[z] for z in order]


@every_index
@pytest.mark.parametrize("rerank", [None, "posterior", "cosine"])
def test_learned_probes_equal_loops(make, rerank, hasher, truth):
    searcher = build(make, hasher)
    for k, probes, enough, least in [
        (5, 1, None, None),
        (20, 4, None, None),
        (8, 9, 12.5, None),
        (500, "auto", 30, 0.1),
    ]:
        found = searcher.search(X_queries, k, probes=probes, rerank=rerank, enough=enough, least_share=least)
        for query, row in enumerate(X_queries):
            cells, shares = learned(hasher, row, 10**6 if probes == "auto" else probes, least or 0.0)
            stop = inf if enough is None else enough
            scores, n_cells, n_items = slow_search(hasher, truth, row, cells, shares, stop, rerank)
            check_hits(found[query], scores, k)
            assert (found.n_cells[query], found.n_items[query]) == (n_cells, n_items)
            assert found.looked_up(query).tolist() == cells[:n_cells]
            part = slice(found.offsets[query], found.offsets[query + 1])
            assert found.codes[part].tolist() == [truth[i][0] for i in found[query][0].tolist()]


@every_index
@pytest.mark.parametrize("rerank", [None, "posterior", "cosine"])
def test_rings_equal_loops(make, rerank, hasher, truth):
    searcher = build(make, hasher)
    codes = ((hasher.transform(X_queries) > 0) @ (1 << np.arange(N_BITS))).tolist()
    found = searcher.search(X_queries, 25, radius=1, rerank=rerank)
    for query, row in enumerate(X_queries):
        cells = [c for c in range(1 << N_BITS) if (c ^ codes[query]).bit_count() <= 1]
        nearness = [-(c ^ codes[query]).bit_count() for c in cells]
        scores, n_cells, n_items = slow_search(hasher, truth, row, cells, nearness, inf, rerank)
        check_hits(found[query], scores, 25)
        assert (found.n_cells[query], found.n_items[query]) == (n_cells, n_items) == (1 + N_BITS, n_items)
    plain = searcher.search(X_queries, 25)
    expected = searcher.index.search(hasher.transform(X_queries), 25)
    assert plain.ids.reshape(-1, 25).tolist() == expected.ids.tolist()
    assert (-plain.scores.reshape(-1, 25)).tolist() == expected.distances.tolist()


@every_index
def test_filters_count_only_what_may_be_found(make, hasher, truth):
    searcher = build(make, hasher)
    allowed = [i for i in IDS if i % 3 == 0]
    some = {i: row for i, row in truth.items() if i % 3 == 0}
    for where in (allowed, lambda ids: ids % 3 == 0):
        found = searcher.search(X_queries[:2], 9, probes=8, enough=5, rerank="posterior", where=where)
        for query in range(2):
            cells, shares = learned(hasher, X_queries[query], 8)
            scores, n_cells, n_items = slow_search(hasher, some, X_queries[query], cells, shares, 5, "posterior")
            check_hits(found[query], scores, 9)
            assert (found.n_cells[query], found.n_items[query]) == (n_cells, n_items)


@pytest.mark.parametrize("make", EVERY_STORE)
def test_stores_filter_by_fields(make, hasher):
    searcher = Searcher(hasher, make(N_BITS))
    searcher.add(X_items, IDS, classes=y[:360].tolist(), metadata=[{"odd": bool(i % 2)} for i in IDS])
    found = searcher.search(X_queries[:1], 30, probes=20, rerank="posterior", where={"odd": True, "class": int(y[360])})
    label = dict(zip(IDS, y.tolist(), strict=False))
    assert len(found.ids)
    assert all(i % 2 and label[i] == y[360] for i in found.ids.tolist())
    assert np.isnan(found.recall).all()


def test_predictions_are_those_of_the_definition(hasher):
    searcher = build(BucketIndex, hasher)
    found = searcher.search(X_queries, 10, probes=3)
    sizes = dict(zip(*(column.tolist() for column in searcher.index.buckets()), strict=True))
    for query, row in enumerate(X_queries):
        cells, shares = learned(hasher, row, 10**6)
        expected = [sizes.get(c, 0) * s for c, s in zip(cells, shares, strict=True)]
        assert found.recall[query] == pytest.approx(sum(expected[:3]) / sum(expected), rel=1e-5)
        assert found.precision[query] == pytest.approx(found[query][1].mean(), rel=1e-6)
    by_posterior = searcher.search(X_queries, 10, probes=3, rerank="posterior")
    assert by_posterior.precision == pytest.approx([scores.mean() for _, scores in by_posterior], rel=1e-6)
    everything = searcher.search(X_queries, 10, probes=10**6, rerank="cosine")
    assert everything.recall == pytest.approx(np.ones(8))


def test_items_follow_removals_and_new_rows(hasher):
    searcher = build(BucketIndex, hasher)
    searcher.search(X_queries, 5, probes=2)  # sorted in
    searcher.remove(IDS[:50]).add(X_items[:1], ids=[IDS[3]])
    fresh = Searcher(hasher, ScanIndex(N_BITS), vectors="float32", posterior_bytes=4)
    fresh.add(X_items[50:], IDS[50:]).add(X_items[:1], ids=[IDS[3]])
    for rerank in (None, "posterior", "cosine"):
        found = searcher.search(X_queries, 40, probes=6, rerank=rerank)
        assert found.ids.tolist() == fresh.search(X_queries, 40, probes=6, rerank=rerank).ids.tolist()


def test_posteriors_can_be_kept_for_items_added_elsewhere(hasher):
    index = BucketIndex(N_BITS).add(hasher.transform(X_items), IDS)
    searcher = Searcher(hasher, index, posterior_bytes=4)
    with pytest.raises(InvalidInput, match=r"add items by Searcher.add, or call keep_posteriors"):
        searcher.search(X_queries, 5, probes=2, rerank="posterior")
    found = searcher.keep_posteriors(IDS, X_items).search(X_queries, 5, probes=2, rerank="posterior")
    assert (
        found.ids.tolist() == build(BucketIndex, hasher).search(X_queries, 5, probes=2, rerank="posterior").ids.tolist()
    )


@pytest.mark.parametrize("kind", [BucketIndex, ScanIndex])
@pytest.mark.parametrize("mmap", [False, True])
def test_posteriors_are_saved_with_the_index(kind, mmap, hasher, tmp_path):
    searcher = build(kind, hasher)
    searcher.remove(IDS[:50])
    path = save(searcher.index, tmp_path / "index")
    assert describe(path)["posterior_bytes"] == 4
    found = Searcher(hasher, load(path, mmap=mmap)).search(X_queries, 9, probes=4, rerank="posterior")
    expected = searcher.search(X_queries, 9, probes=4, rerank="posterior")
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.scores.tolist() == expected.scores.tolist()


def test_an_index_saved_without_posteriors_is_loaded(hasher):
    state = build(BucketIndex, hasher).index.export_state()
    del state["posteriors"]  # as in files of older versions
    assert BucketIndex.from_state(N_BITS, state).posterior_bytes == 0
    state["posteriors"] = np.zeros((3, 4), dtype=np.uint8)
    with pytest.raises(InvalidInput, match=r"posteriors.*saved index"):
        BucketIndex.from_state(N_BITS, state)


@pytest.mark.parametrize("kind", [BucketIndex, ScanIndex])
def test_posteriors_of_an_index_follow_its_items(kind):
    def rows(*values):
        return np.array([[0, value] for value in values], dtype=np.uint8)

    index = kind(3).add([1, 2], posteriors=rows(11, 12)).add([3]).add([4], ids=[9], posteriors=rows(14))
    assert index.posteriors.tolist() == [[0, 11], [0, 12], [0, 0], [0, 14]]
    index.update([1], [7]).upsert([5, 6], [0, 2], posteriors=rows(21, 22)).remove([9])
    known = dict(zip(index.ids.tolist(), index.posteriors[:, 1].tolist(), strict=True))
    assert known == {0: 21, 1: 0, 2: 22}
    assert index.add([1], posteriors=rows(15)).ids.tolist()[-1] == 10
    merged = kind(3).add([1], ids=[50]).merge(index, kind(3).add([2], ids=[60]))
    known |= {10: 15, 50: 0, 60: 0}
    assert dict(zip(merged.ids.tolist(), merged.posteriors[:, 1].tolist(), strict=True)) == known
    assert merged.keep_posteriors([60], rows(33)).posteriors[-1].tolist() == [0, 33]
    before = merged.ids.tolist()
    for wrong, message in [(np.zeros((1, 4), np.uint8), "have 2 bytes. Got 4"), (np.zeros((1, 2)), "must be uint8")]:
        with pytest.raises(InvalidInput, match=message):
            merged.add([1], posteriors=wrong)
    with pytest.raises(InvalidInput, match="Id 70 is not in the index"):
        merged.keep_posteriors([70], rows(1))
    assert merged.ids.tolist() == before
    assert kind(3).add([1], ids=["x"], posteriors=rows(5)).posteriors.tolist() == [[0, 5]]


@every_index
def test_empty_index_and_no_queries(make, hasher):
    searcher = Searcher(hasher, make(N_BITS), vectors="float32")
    assert len(searcher.search(X_queries[:2], 3, probes=2).ids) == 0
    searcher.add(X_items[:5])
    for rerank in (None, "posterior", "cosine"):
        found = searcher.search(X_queries[:1], 10, probes=10**6, rerank=rerank)
        assert sorted(found.ids.tolist()) == [0, 1, 2, 3, 4]


def test_pipelines_are_searched_with_rows(hasher):
    pipeline = make_hasher("auto", n_bits=4, random_state=0).fit(X[:200], y[:200])
    found = Searcher(pipeline).add(X_items).search(X_queries, 10, probes=3, rerank="posterior")
    learner = Searcher(pipeline[-1]).add(X_items).search(X_queries, 10, probes=3, rerank="posterior")
    assert found.ids.tolist() == learner.ids.tolist()
    assert np.mean([np.mean(y[ids] == label) for (ids, _), label in zip(found, y[360:368], strict=True)]) > 0.5


def test_hashers_without_posteriors_search_rings(hasher):
    plain = Searcher(LSH(n_bits=N_BITS, random_state=0).fit(X[:200]), vectors="float16").add(X_items)
    found = plain.search(X_queries, 7, radius=2, rerank="cosine")
    assert np.isnan(found.precision).all()
    assert found.counts.tolist() == [7] * 8
    for policy in ({"probes": 3}, {"rerank": "posterior"}):
        with pytest.raises(InvalidInput, match="that has learned posteriors"):
            plain.search(X_queries, 7, **policy)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"probes": 2, "radius": 1}, "takes probes or a radius. Got both"),
        ({"probes": 0}, "The 'probes' parameter"),
        ({"probes": "all"}, "must be a number, 'auto' or None. Got 'all'"),
        ({"k": 0}, "The 'k' parameter"),
        ({"rerank": "dot"}, "must be one of 'posterior', 'cosine'"),
        ({"radius": -1}, "The 'radius' parameter"),
        ({"rerank": "cosine"}, "needs items with vectors"),
    ],
)
def test_bad_policies_are_refused(call, message, hasher):
    searcher = Searcher(hasher).add(X_items)
    with pytest.raises(InvalidInput, match=message):
        searcher.search(X_queries, **call)


def test_wrong_parts_are_refused(hasher):
    with pytest.raises(InvalidInput, match="have 6 bits, those of the index 5; use the hasher that encoded"):
        Searcher(hasher, BucketIndex(5))
    with pytest.raises(InvalidInput, match="must be one of 'float16', 'float32'"):
        Searcher(hasher, vectors="int8")
    with pytest.raises(InvalidInput, match="The 'posterior_bytes' parameter"):
        Searcher(hasher, posterior_bytes=1)


def test_nothing_is_predicted_without_hits(hasher):
    found = Searcher(hasher).add(X_items[:1]).search(X_queries[:1], 3, probes=1, where=[])
    assert len(found.ids) == 0
    assert found.precision.tolist() == pytest.approx([nan], nan_ok=True)


def border_rows(hasher, n=12, steps=60):
    """Rows between two others where the order of the cells changes: rounding decides there, if anything does."""
    rng, found = np.random.default_rng(0), []
    for _ in range(10 * n):
        if len(found) == n:
            break
        a, b = X[rng.choice(200, 2, replace=False)]
        first, last = (hasher.probes(row[None], 20)[0] for row in (a, b))
        if np.array_equal(first, last):
            continue
        for _ in range(steps):
            middle = (a + b) / 2
            a, b = (middle, b) if np.array_equal(hasher.probes(middle[None], 20)[0], first) else (a, middle)
        found += [a, b]
    assert len(found) == n
    return np.array(found)


@pytest.mark.parametrize("labels", ["one", "several"])
def test_the_order_of_cells_does_not_depend_on_the_batch(hasher, labels):
    if labels == "several":
        tags = np.stack([y[:200] == c for c in range(4)] + [y[:200] >= 4], axis=1)
        hasher = EAPH(n_bits=N_BITS, n_iter=4, n_starts=1, random_state=0).fit(X[:200], tags.astype(int))
    rows = np.concatenate([border_rows(hasher), X[:200]])
    searcher = Searcher(hasher).add(X_items)
    order = np.random.default_rng(1).permutation(len(rows))
    at_once = hasher.probes(rows, 30)
    ways = {
        "alone": np.concatenate([hasher.probes(row[None], 30) for row in rows[:60]]),
        "by 7": np.concatenate([hasher.probes(rows[i : i + 7], 30) for i in range(0, 60, 7)])[:60],
        "shuffled": hasher.probes(rows[order], 30)[np.argsort(order)][:60],
    }
    for way, cells in ways.items():
        assert np.array_equal(cells, at_once[:60]), way
    policy = {"k": 15, "probes": "auto", "rerank": "posterior"}
    together = searcher.search(rows[:40], **policy)
    for i, row in enumerate(rows[:40]):
        one = searcher.search(row[None], **policy)
        assert one.looked_up(0).tolist() == together.looked_up(i).tolist()
        assert one.ids.tolist() == together[i][0].tolist()
        assert one.scores.tolist() == together[i][1].tolist()


def test_relevance_is_a_sum_without_rounding(hasher):
    """Fractions add up exactly."""
    from fractions import Fraction

    wanted = [[Fraction(v) for v in row] for row in hasher.wanted(X_queries).tolist()]
    profiles = [[Fraction(v) for v in row] for row in hasher.profiles_.tolist()]
    exact = [[float(sum(a * b for a, b in zip(w, p, strict=True))) for p in profiles] for w in wanted]
    assert hasher.relevance(X_queries).tolist() == exact
    np.testing.assert_allclose(hasher.wanted(X_queries), hasher.predict_proba(X_queries), atol=2.0**-22)


def test_a_store_without_posteriors_cannot_rank_by_them(tmp_path):
    X, y = make_blobs(120, 6, centers=4, random_state=0)
    hasher = make_hasher("auto", n_bits=4, random_state=0).fit(X[:60], y[:60])
    with open_store(f"sqlite:///{tmp_path}/items.db", n_bits=4) as store:
        store.add(hasher.transform(X))
        with pytest.raises(InvalidInput, match="No posterior of an item is known; add items by Searcher"):
            Searcher(hasher, store).search(X[:2], k=3, probes=3, rerank="posterior")


def test_a_hasher_must_be_fitted():
    with pytest.raises(NotFittedError):
        Searcher(make_hasher("auto", n_bits=4))
