"""Long codes searched by parts: every path against the scan, and against looking at every code."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shorthash.index import BucketIndex, ScanIndex
from shorthash.index import table as tables
from shorthash.index.parts import CodeParts, expected_looks, fill_compared, n_parts, size_compared
from shorthash.index.table import BucketTable


def random_words(rng, n, n_bits):
    words = rng.integers(0, 2**63, size=n, dtype=np.uint64) << np.uint64(1)
    words |= rng.integers(0, 2, size=n, dtype=np.uint64)
    return words >> np.uint64(64 - n_bits)


def near(rng, words, n_bits, flips):
    """Words with up to so many bits flipped."""
    for _ in range(flips):
        words = words ^ (np.uint64(1) << rng.integers(0, n_bits, size=len(words), dtype=np.uint64))
    return words


@pytest.mark.parametrize("n_bits", [25, 31, 32, 40, 63, 64])
@pytest.mark.parametrize("clustered", [False, True])
def test_parts_equal_the_scan(n_bits, clustered):
    rng = np.random.default_rng(n_bits)
    codes = random_words(rng, 8000, n_bits)
    if clustered:
        codes = near(rng, rng.choice(codes[:6], size=8000), n_bits, 6)
    fast, slow = BucketIndex(n_bits).add(codes), ScanIndex(n_bits).add(codes)
    queries = near(rng, codes[:6], n_bits, 2)
    table = fast._settle().table
    used = [radius for radius in range(n_bits) if table._plan(radius).in_parts]
    assert used or len(table.keys) < tables.FEW_CODES
    for radius in {0, 2, 5, 9, *used[-1:]}:
        a, b = fast.within(queries, radius), slow.within(queries, radius)
        assert a.ids.tolist() == b.ids.tolist()
        assert a.distances.tolist() == b.distances.tolist()
        assert fast.counts(queries, radius).tolist() == slow.counts(queries, radius).tolist()
        slices = fast.slices(queries, radius)
        assert sorted(i for row in slices for _, p in row for i in p.tolist()) == sorted(b.ids.tolist())
    for k in (1, 10, 3000):
        assert fast.search(queries, k).ids.tolist() == slow.search(queries, k).ids.tolist()
    removed = np.arange(0, 8000, 9)
    fast.remove(removed)
    slow.remove(removed)
    assert fast.within(queries, 4).ids.tolist() == slow.within(queries, 4).ids.tolist()
    assert fast.search(queries, 7).ids.tolist() == slow.search(queries, 7).ids.tolist()


@settings(max_examples=80)
@given(data=st.data(), n_bits=st.integers(25, 64))
def test_no_code_is_missed_or_met_twice(data, n_bits):
    """The kernels themselves, on few codes, where parts would not be used by choice."""
    code = st.integers(0, 2**n_bits - 1)
    codes = np.unique(np.array(data.draw(st.lists(code, min_size=1, max_size=60)), dtype=np.uint64))
    query = np.array([data.draw(code | st.sampled_from(codes.tolist()))], dtype=np.uint64)
    radius = data.draw(st.integers(0, min(n_bits, 8)))
    m = data.draw(st.sampled_from([0, n_parts(n_bits, len(codes))]))  # 0 compares every code
    parts, order = CodeParts.build(codes, n_bits, m).within(radius), np.arange(len(codes), dtype=np.uint32)
    bounds, everyone = np.arange(len(codes) + 1, dtype=np.uint32), np.empty(0, dtype=np.bool_)
    n_slices, n_items = np.empty(1, dtype=np.int64), np.empty(1, dtype=np.int64)
    size_compared(query, radius, parts, bounds, order, everyone, 10**9, n_slices, n_items)
    truth = np.bitwise_count(codes ^ query)
    inside = np.flatnonzero(truth <= radius)
    assert n_slices[0] == n_items[0] == len(inside)
    starts, stops, distances = (np.empty(len(inside), dtype=dtype) for dtype in (np.int64, np.int64, np.uint8))
    fill_compared(query, radius, parts, bounds, (np.array([0, len(inside)]), starts, stops, distances))
    assert sorted(starts.tolist()) == inside.tolist()
    assert distances.tolist() == sorted(truth[inside].tolist())
    assert distances.tolist() == truth[starts].tolist()


def test_parts_are_built_only_where_they_pay():
    rng = np.random.default_rng(0)
    few = BucketTable.build(random_words(rng, 1000, 64), 64)
    assert not any(few._plan(radius).in_parts for radius in range(64))
    many = BucketTable.build(random_words(rng, 20_000, 64), 64)
    assert many._plan(3).in_parts
    assert not many._plan(64).in_parts
    assert not BucketTable.build(random_words(rng, 20_000, 24).astype(np.uint32), 24)._plan(2).in_parts


def test_as_many_parts_as_it_takes_to_count_the_codes():
    assert n_parts(64, 1_000_000) == 4  # 20 bits count a million
    assert n_parts(64, 10**9) == 3  # 24 bits at most
    assert n_parts(25, 5000) == 2
    assert expected_looks(64, 1_000_000, 2) < 1000 < expected_looks(64, 1_000_000, 12)
