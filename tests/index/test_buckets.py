"""What only the bucket index has: slices, cheap adds, snapshots, two ways to address and two ways to look."""

import threading

import numpy as np
import pytest

from shorthash.codes import ball_size
from shorthash.errors import InvalidInput
from shorthash.index import BucketIndex, ScanIndex, sorting
from shorthash.index import table as tables
from shorthash.index.table import BucketTable


def random_codes(rng, n, n_bits):
    """Codes drawn around 20 centres, so that buckets differ in size."""
    centres = rng.integers(0, 2**n_bits, size=20, dtype=np.uint64, endpoint=False) if n_bits < 64 else None
    if centres is None:
        centres = rng.integers(0, 2**64 - 1, size=20, dtype=np.uint64, endpoint=True)
    flips = np.zeros(n, dtype=np.uint64)
    for bit in range(n_bits):
        flips |= (rng.random(n) < 0.15).astype(np.uint64) << np.uint64(bit)
    return rng.choice(centres, size=n) ^ flips


def same(a, b):
    assert a.ids.tolist() == b.ids.tolist()
    assert a.distances.tolist() == b.distances.tolist()


@pytest.mark.parametrize("n_bits", [1, 5, 8, 12, 14, 16, 24, 25, 40, 64])
@pytest.mark.parametrize("ties", ["id", "insertion", "shuffle"])
def test_thousands_of_items_equal_the_scan(n_bits, ties):
    rng = np.random.default_rng(n_bits)
    codes = random_codes(rng, 6000, n_bits)
    ids = rng.permutation(6000)
    fast, slow = BucketIndex(n_bits).add(codes, ids=ids), ScanIndex(n_bits).add(codes, ids=ids)
    some = rng.choice(ids, size=500, replace=False)
    queries = np.concatenate([codes[:3], random_codes(rng, 3, n_bits)])
    for removed in ([], some):
        fast.remove(removed)
        slow.remove(removed)
        for radius in {0, min(1, n_bits), min(3, n_bits), n_bits}:
            same(fast.within(queries, radius, ties=ties), slow.within(queries, radius, ties=ties))
            assert fast.counts(queries, radius).tolist() == slow.counts(queries, radius).tolist()
        for k in (1, 7, 100, 5500):
            same(fast.search(queries, k, ties=ties), slow.search(queries, k, ties=ties))


@pytest.mark.parametrize("n_bits", [10, 30])
def test_batches_shared_by_threads_equal_single_queries(n_bits):
    rng = np.random.default_rng(0)
    codes = random_codes(rng, 20_000, n_bits)
    index = BucketIndex(n_bits).add(codes)
    queries = codes[:400]
    batch, nearest = index.within(queries, 3), index.search(queries, 50)
    for i in (0, 1, 17, 399):
        single = index.within(queries[i : i + 1], 3)
        assert batch[i][0].tolist() == single.ids.tolist()
        assert batch[i][1].tolist() == single.distances.tolist()
        assert nearest.ids[i].tolist() == index.search(queries[i : i + 1], 50).ids[0].tolist()
    assert index.counts(queries, 3).tolist() == batch.counts.tolist()


@pytest.mark.parametrize("n_bits", [6, 10, 30])
@pytest.mark.parametrize("removed", [False, True])
def test_one_call_and_many_threads_give_the_same(n_bits, removed, monkeypatch):
    rng = np.random.default_rng(n_bits)
    codes = random_codes(rng, 5000, n_bits)
    index = BucketIndex(n_bits).add(codes, ids=rng.permutation(5000))
    if removed:
        index.remove(rng.choice(5000, size=600, replace=False))
    queries = codes[:37]
    searches = [(radius, ties) for radius in (0, 2, 4) for ties in ("id", "insertion", "any")]
    quick = [index.within(queries, radius, ties=ties) for radius, ties in searches]
    monkeypatch.setattr(tables, "WORTH_THREADS", 0)
    monkeypatch.setattr(tables, "_n_threads", lambda: 3)
    for (radius, ties), one in zip(searches, quick, strict=True):
        many = index.within(queries, radius, ties=ties)
        same(one, many)
        assert one.offsets.tolist() == many.offsets.tolist()


@pytest.mark.parametrize("n_bits", [1, 4, 11])
def test_counting_around_every_code_at_once_equals_the_scan(n_bits):
    rng = np.random.default_rng(n_bits)
    items, every_code = random_codes(rng, 700, n_bits), np.arange(2**n_bits)
    table, scan = BucketTable.build(items, n_bits), ScanIndex(n_bits).add(items)
    index = BucketIndex(n_bits).add(items)
    for radius in range(min(n_bits, 4) + 1):
        truth = scan.counts(every_code, radius).tolist()
        assert table.ball_counts(radius).tolist() == truth
        assert index.counts(every_code, radius).tolist() == truth
        assert index.counts(every_code[:1], radius).tolist() == truth[:1]


def test_few_bits_are_addressed_directly_and_many_are_not():
    assert BucketTable.build(np.zeros(0, dtype=np.uint16), 12).direct
    assert not BucketTable.build(np.zeros(10, dtype=np.uint16), 16).direct
    assert BucketTable.build(np.zeros(20_000, dtype=np.uint16), 16).direct
    assert not BucketTable.build(np.zeros(10, dtype=np.uint64), 64).direct


def test_a_table_gives_its_codes_back():
    rng = np.random.default_rng(0)
    for n_bits in (1, 9, 16, 33, 64):
        for n in (0, 1, 300):
            codes = random_codes(rng, n, n_bits)
            assert BucketTable.build(codes, n_bits).codes().tolist() == codes.tolist()


def test_slices_are_ranges_of_one_array():
    rng = np.random.default_rng(0)
    index = BucketIndex(8).add(rng.integers(0, 256, size=500))
    queries = rng.integers(0, 256, size=9)
    slices, found = index.slices(queries, 2), index.within(queries, 2, ties="any")
    assert len(slices) == 9
    for (ids, distances), buckets in zip(found, slices, strict=True):
        assert [d for d, _ in buckets] == sorted(d for d, _ in buckets)
        assert np.concatenate([p for _, p in buckets]).tolist() == ids.tolist()
        assert np.concatenate([[d] * len(p) for d, p in buckets]).tolist() == distances.tolist()
        assert all(np.shares_memory(p, slices.positions) for _, p in buckets)
        assert len(buckets) <= ball_size(8, 2)
    with pytest.raises(ValueError, match="read-only"):
        slices.positions[0] = 1


def test_slices_leave_removed_items_out():
    index = BucketIndex(4).add(np.array([1, 1, 2])).remove([0])
    slices = index.slices(np.array([1]), 4)
    assert [(d, index.ids[p].tolist()) for d, p in slices[0]] == [(0, [1]), (2, [2])]


def test_memory_at_12_bits_is_at_most_5_bytes_per_item():
    index = BucketIndex(12).add(np.random.default_rng(0).integers(0, 4096, size=200_000))
    index.counts(np.array([0]), 0)
    assert index.nbytes / len(index) <= 5


def test_single_adds_are_found_at_once_and_settled_in_time():
    index = BucketIndex(10)
    for i in range(3000):
        index.add(np.array([i % 1024]))
        if i % 250 == 0:
            ids, _ = index.within(np.array([i % 1024]), 0)[0]
            assert ids.tolist() == list(range(i % 1024, i + 1, 1024))
    assert index.counts(np.array([5]), 0).tolist() == [3]
    assert index.ids.tolist() == list(range(3000))


def test_a_search_sees_one_state_while_another_thread_writes():
    """The writer adds a code and its complement in one call, and moves both in one call: totals stay even."""
    index = BucketIndex(8).add(np.array([0, 255]))
    stop, failures = threading.Event(), []

    def write():
        rng = np.random.default_rng(0)
        for i in range(300):
            code = int(rng.integers(256))
            index.add(np.array([code, 255 - code]))
            index.update([2 * i, 2 * i + 1], np.array([255 - code, code]))
            if i % 7 == 6:
                index.remove([2 * i - 2, 2 * i - 1])
        stop.set()

    def read():
        while not stop.is_set():
            total = int(index.counts(np.array([7]), 8)[0])
            found = index.within(np.array([0]), 8)
            distances = np.bincount(found.distances, minlength=9)
            unique = len(set(found.ids.tolist())) == len(found.ids)
            if total % 2 or not unique or distances.tolist() != distances[::-1].tolist():
                failures.append((total, distances.tolist()))
            index.search(np.array([3, 4]), 10)

    threads = [threading.Thread(target=read) for _ in range(2)] + [threading.Thread(target=write)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert stop.is_set()
    assert failures == []


def test_an_iteration_keeps_the_state_it_began_with():
    index = BucketIndex(4).add(np.array([0, 1, 3]))
    walk = index.iterate(0)
    index.remove([2]).add(np.array([0]))
    assert [(d, ids.tolist()) for d, ids in walk] == [(0, [0]), (1, [1]), (2, [2])]


@pytest.mark.parametrize(
    "damage",
    [
        {"order": np.array([0, 9], dtype=np.uint32)},
        {"order": np.array([0], dtype=np.uint32)},
        {"order": np.array([0, 1], dtype=np.int64)},
        {"bounds": np.array([0, 2], dtype=np.uint32)},
        {"bounds": np.array([0, 2, 1, 2, 2], dtype=np.uint32)},
        {"keys": np.array([3, 1], dtype=np.uint64)},
        {"keys": np.array([1, 7], dtype=np.uint64), "bounds": np.array([0, 1, 2], dtype=np.uint32)},
    ],
)
def test_contradictory_arrays_are_refused(damage):
    state = BucketIndex(2).add(np.array([1, 1])).export_state()
    with pytest.raises(InvalidInput, match="inconsistent; build the index again"):
        BucketIndex.from_state(2, state | damage)


def test_bounds_that_fall_are_refused_even_when_opening_quickly():
    state = BucketIndex(2).add(np.array([1, 1])).export_state()
    falling = {"bounds": np.array([0, 9, 1, 2, 2], dtype=np.uint32)}
    with pytest.raises(InvalidInput, match="inconsistent; build the index again"):
        BucketIndex.from_state(2, state | falling, thorough=False)


def test_ids_of_the_wrong_length_are_refused():
    state = BucketIndex(2).add(np.array([1, 1])).export_state()
    with pytest.raises(InvalidInput, match="2 items has inconsistent ids"):
        BucketIndex.from_state(2, state | {"ids": np.array([4])})


@pytest.mark.parametrize("n", [100, 5_000, 300_000, 3_000_000])
def test_positions_are_sorted_whatever_their_number(n):
    """By insertion, by radix in two and more passes, by bits; spread evenly, and in clumps of neighbours."""
    rng, scratch = np.random.default_rng(n), sorting.sort_space(n)
    sizes = [0, 1, 2, 48, 49, 91, 600, n // 81, n // 79, n // 2, n - 1, n]
    for size in sizes if n <= 300_000 else sizes[:8]:
        size = min(size, n)
        spread = rng.permutation(n)[:size] if n <= 300_000 else np.unique(rng.integers(0, n, size))
        clumps = np.unique((rng.integers(0, n, 1 + size // 90)[:, None] + np.arange(90)) % n)[:size]
        for given in (spread, rng.permutation(clumps)):
            values = given.astype(np.int64)
            sorting.sort(values, scratch, n)
            assert np.array_equal(values, np.sort(given))
            assert not sorting.bitmap(scratch, n).any()


READERS = [sorting.read_any, *([sorting.read_wide] if sorting.has_compress() else [])]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("share", [0.01, 0.2, 0.9, 1.0])
@pytest.mark.parametrize("usual", [0, 4, 64])
def test_bits_are_read_in_order_while_a_word_fits(read, share, usual):
    """Whatever is usual: words with more bits, and with fewer; nothing is written behind the values."""
    chosen = np.random.default_rng(0).random(200 * 64) < share
    bits = np.packbits(chosen, bitorder="little").view(np.uint64)
    found, expected = np.full(len(chosen), -1), np.flatnonzero(chosen)
    word, at = read(bits, found[: len(expected)], usual)
    assert at > len(expected) - 64
    assert at == np.count_nonzero(chosen[: 64 * word])
    assert np.array_equal(found[:at], expected[:at])
    assert (found[len(expected) :] == -1).all()
    assert not bits[:word].any()
    assert np.bitwise_count(bits[word:]).sum() == len(expected) - at


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 1000])
def test_bits_of_the_codes_at_a_distance(n):
    rng = np.random.default_rng(n)
    codes = rng.integers(0, 256, n).astype(np.uint8)
    for query, distance in ((0, 0), (255, 1), (90, 2), (1, 8)):
        bits = np.zeros(n // 64 + 1, dtype=np.uint64)
        sorting.set_equal(bits, codes, np.uint64(query), distance)
        marked = np.unpackbits(bits.view(np.uint8), bitorder="little")
        assert np.array_equal(np.flatnonzero(marked), np.flatnonzero(np.bitwise_count(codes ^ query) == distance))


@pytest.mark.parametrize("n_bits", [4, 9, 14])
@pytest.mark.parametrize("removed", [0, 500])
def test_every_order_holds_the_same_items(n_bits, removed):
    codes = np.random.default_rng(n_bits).integers(0, 1 << n_bits, 30_000) & np.arange(30_000)  # unequal buckets
    index = BucketIndex(n_bits).add(codes)
    if removed:
        index.remove(np.arange(removed) * 7)
    for m in (1, 40):
        by_id, unordered = index.within(codes[:m], 2), index.within(codes[:m], 2, ties="any")
        assert by_id.offsets.tolist() == unordered.offsets.tolist()
        for (ids, distances), (others, their) in zip(by_id, unordered, strict=True):
            order = np.lexsort((others, their))
            assert np.array_equal(ids, others[order])
            assert np.array_equal(distances, their[order])
        nearest = index.search(codes[:m], 50)
        assert np.array_equal(
            nearest.ids, np.stack([index.within(codes[i : i + 1], n_bits).ids[:50] for i in range(m)])
        )
