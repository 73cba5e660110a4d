import numba
import numpy as np
import pytest
from drawing import as_lists, problems
from hypothesis import given, settings
from hypothesis import strategies as st
from references import distance, shared_labels
from references import level_counts as slow_counts

import shorthash.codes.levels as levels
from shorthash._labels import group_label_pair
from shorthash.codes.levels import distinct_queries, grades_of, level_blocks, level_counts, level_transform
from shorthash.codes.signs import pack
from shorthash.errors import InvalidInput


@given(problems(max_items=9), st.sampled_from(levels.ENGINES))
def test_level_counts_equal_a_loop_over_bits(problem, engine):
    queries, _, items, _ = problem
    n_bits = queries.shape[1]
    if engine == "table" and n_bits > 16:
        engine = "count"
    found = level_counts(pack(queries), pack(items), n_bits, engine=engine)
    assert found.tolist() == [slow_counts(q, items.tolist()) for q in queries.tolist()]


@pytest.mark.parametrize("n_bits", [1, 2, 5, 9, 12])
def test_level_transform_equals_all_pairs_of_codes(n_bits):
    histogram = np.random.default_rng(n_bits).integers(0, 5, 1 << n_bits)
    codes = np.arange(1 << n_bits)
    distances = np.bitwise_count(codes[:, None] ^ codes[None, :])
    expected = np.stack([(distances == t) @ histogram for t in range(n_bits + 1)], axis=1)
    np.testing.assert_array_equal(level_transform(histogram), expected)


def test_level_transform_leaves_its_argument_alone():
    histogram = np.array([1, 2, 3, 4])
    level_transform(histogram)
    assert histogram.tolist() == [1, 2, 3, 4]


def test_level_transform_needs_a_count_for_every_code():
    with pytest.raises(InvalidInput, match=r"must have 2\*\*n_bits entries. Got 3"):
        level_transform(np.array([1, 2, 3]))


@settings(max_examples=60)
@given(problems(), st.booleans(), st.sampled_from(levels.ENGINES), st.integers(1, 80))
def test_level_blocks_count_by_distance_and_shared_labels(problem, graded, engine, block_counts):
    queries, query_labels, items, item_labels = problem
    n_bits = queries.shape[1]
    if engine == "table" and n_bits > 16:
        engine = "count"
    groups, others = group_label_pair(query_labels, item_labels, owner="test")
    whole = levels.BLOCK_COUNTS
    levels.BLOCK_COUNTS = block_counts  # several blocks even for a handful of queries
    try:
        n_grades = int(others.rows.sum(axis=1).max(initial=1)) if graded else 1
        codes = pack(queries), groups, pack(items), others
        blocks = list(level_blocks(*codes, n_bits, engine=engine, n_grades=n_grades))
    finally:
        levels.BLOCK_COUNTS = whole
    assert [i for b in blocks for i in range(b.rows.start, b.rows.stop)] == list(range(len(queries)))
    item_labels = as_lists(item_labels)
    for block in blocks:
        for row, i in enumerate(range(block.rows.start, block.rows.stop)):
            label = as_lists(query_labels)[i]
            grades = [shared_labels(label, other) for other in item_labels]
            if not graded:
                grades = [min(g, 1) for g in grades]
            apart = [distance(queries[i].tolist(), item) for item in items.tolist()]
            for t in range(n_bits + 1):
                assert block.total[row, t] == apart.count(t)
                assert block.relevant[row, t] == sum(1 for d, g in zip(apart, grades, strict=True) if d == t and g)
                for grade in range(len(block.graded)):
                    expected = sum(1 for d, g in zip(apart, grades, strict=True) if (d, g) == (t, grade + 1))
                    assert block.graded[grade, row, t] == expected


@pytest.mark.parametrize(("engine", "n_bits"), [("table", 5), ("count", 5), ("count", 40)])
def test_weights_count_items_several_times(engine, n_bits):
    rng = np.random.default_rng(n_bits)
    codes = rng.integers(0, 2**n_bits, 30, dtype=np.uint64)
    weights = rng.integers(0, 4, 30)
    found = level_counts(codes[:3], codes, n_bits, weights=weights, engine=engine)
    np.testing.assert_array_equal(found, level_counts(codes[:3], np.repeat(codes, weights), n_bits, engine=engine))


@pytest.mark.parametrize("n_bits", [1, 12, 64])
@pytest.mark.parametrize("beyond", [-1, 0, 5])
def test_counting_in_pairs_equals_numpy(n_bits, beyond):
    rng = np.random.default_rng(n_bits)
    top = 2**n_bits - 1
    queries = rng.integers(0, top, 3, dtype=np.uint64, endpoint=True)
    items = rng.integers(0, top, 2 * levels.PAIR_BLOCK + beyond, dtype=np.uint64, endpoint=True)
    found = level_counts(queries, items, n_bits, engine="count")
    for query, counts in zip(queries, found, strict=True):
        assert counts.tolist() == np.bincount(np.bitwise_count(items ^ query), minlength=n_bits + 1).tolist()


def test_threads_count_the_same(monkeypatch):
    rng = np.random.default_rng(0)
    queries, items = rng.integers(0, 2**63, 13, dtype=np.uint64), rng.integers(0, 2**63, 9000, dtype=np.uint64)
    alone = level_counts(queries, items, 64, engine="count")
    monkeypatch.setattr(levels, "THREADED_PAIRS", 0)
    monkeypatch.setattr(numba, "get_num_threads", lambda: 3)
    np.testing.assert_array_equal(level_counts(queries, items, 64, engine="count"), alone)
    assert (alone.sum(axis=1) == 9000).all()


@pytest.mark.parametrize(
    ("n_queries", "n_items", "n_bits", "engine"),
    [(10_000, 1_000_000, 12, "table"), (3, 50, 16, "count"), (10_000, 1_000_000, 21, "count")],
)
def test_the_cheaper_engine_is_chosen(n_queries, n_items, n_bits, engine):
    assert levels._cheaper(n_queries, n_items, n_bits) == engine


def test_table_refuses_long_codes():
    codes = np.zeros(1, dtype=np.uint32)
    with pytest.raises(InvalidInput, match=r"up to 20 bits\. Got 21; use engine='count'"):
        level_counts(codes, codes, 21, engine="table")


def test_unknown_engine_is_named():
    codes = np.zeros(1, dtype=np.uint8)
    with pytest.raises(
        InvalidInput, match="'engine' parameter of level_counts must be one of 'auto', 'table', 'count'"
    ):
        level_counts(codes, codes, 4, engine="gpu")


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab")), min_size=1, max_size=10), st.booleans())
def test_distinct_queries_stand_for_all_of_them(pairs, each_row):
    codes, labels = np.array([c for c, _ in pairs], dtype=np.uint8), np.array([label for _, label in pairs])
    groups, _ = group_label_pair(labels, labels[:0], owner="test")
    queries = distinct_queries(codes, groups, each_row=each_row)
    assert queries.codes[queries.rows].tolist() == codes.tolist()
    assert queries.groups.ids[queries.rows].tolist() == groups.ids.tolist()
    assert queries.copies.tolist() == np.bincount(queries.rows).tolist()
    assert (np.diff(queries.groups.ids) >= 0).all()
    if each_row:
        assert queries.own[queries.rows].tolist() == list(range(len(pairs)))
    else:
        assert len(queries.codes) == len(set(pairs))
        assert (queries.own == -1).all()


def test_shared_labels_are_counted():
    Y = np.array([[1, 1, 0], [0, 1, 1], [1, 1, 1], [0, 0, 0]])
    groups, _ = group_label_pair(Y, Y[:0], owner="test")
    for i in range(4):
        assert grades_of(groups.ids[i], groups, 3)[groups.ids].tolist() == (Y @ Y[i]).tolist()
        assert grades_of(groups.ids[i], groups)[groups.ids].tolist() == np.minimum(Y @ Y[i], 1).tolist()
