"""One contract for every index, checked against a dictionary and Python integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import EVERY_STORE

from shorthash.codes import unpack
from shorthash.errors import InvalidInput
from shorthash.index import BucketIndex, FaissIndex, ScanIndex

IN_MEMORY = [ScanIndex, BucketIndex, FaissIndex]
every_index = pytest.mark.parametrize("make", [*IN_MEMORY, *EVERY_STORE])
POLICIES = ["id", "insertion", "shuffle"]


class Model:
    """The truth: a dictionary from id to code, as integers, in insertion order."""

    def __init__(self):
        self.items = {}

    def add(self, codes, ids):
        self.items.update(zip(ids, codes, strict=True))

    def remove(self, ids):
        for i in ids:
            del self.items[i]

    def ranked(self, query, ties="id", seed=0, only=None):
        """(id, distance) of all items, best first."""
        keys = {
            "id": lambda place, i: i,
            "insertion": lambda place, i: place,
            "shuffle": lambda place, i: (shuffle_key(i, seed), i),
        }[ties]
        hits = [
            (bin(code ^ query).count("1"), keys(place, i), i)
            for place, (i, code) in enumerate(self.items.items())
            if only is None or i in only
        ]
        return [(i, d) for d, _, i in sorted(hits)]


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def shuffle_key(i, seed):
    key = mix(seed)
    if isinstance(i, int):
        return mix(i % 2**64 ^ key)
    for letter in i:
        key = mix(key ^ ord(letter))
    return key


@st.composite
def problems(draw):
    """(n_bits, item codes, query codes): items are drawn around a few centres, so that every distance occurs."""
    n_bits = draw(st.integers(1, 64))
    code = st.integers(0, 2**n_bits - 1)
    centres = draw(st.lists(code, min_size=1, max_size=3))
    near = st.builds(
        lambda centre, flips: centre ^ sum(1 << f for f in flips),
        st.sampled_from(centres),
        st.sets(st.integers(0, n_bits - 1), max_size=4),
    )
    items = draw(st.lists(near | code, max_size=40))
    queries = draw(st.lists(near | code, max_size=4))
    return n_bits, items, queries


def packed(codes):
    return np.array(codes, dtype=np.uint64)


def rows(result):
    return [list(zip(ids.tolist(), d.tolist(), strict=True)) for ids, d in result]


def table(result):
    return [list(zip(i, d, strict=True)) for i, d in zip(result.ids.tolist(), result.distances.tolist(), strict=True)]


def filled(make, n_bits, codes, ids):
    """An index with half of its items settled and half of them pending."""
    half = len(codes) // 2
    index = make(n_bits).add(packed(codes[:half]), ids=ids[:half])
    if isinstance(index, BucketIndex):
        index.slices(packed([0]), radius=0)
    return index.add(packed(codes[half:]), ids=ids[half:])


@every_index
@settings(max_examples=30)
@given(problem=problems(), data=st.data())
def test_every_search_equals_the_model(make, problem, data):
    n_bits, codes, queries = problem
    ids = data.draw(st.permutations([3 * i - 20 for i in range(len(codes))]))
    index, model = filled(make, n_bits, codes, ids), Model()
    model.add(codes, ids)
    k, radius = data.draw(st.integers(1, len(codes) + 2)), data.draw(st.integers(0, n_bits))
    ties, seed = data.draw(st.sampled_from(POLICIES)), data.draw(st.integers(0, 5))
    truth = [model.ranked(q, ties, seed) for q in queries]
    inside = [[(i, d) for i, d in row if d <= radius] for row in truth]

    found = index.search(packed(queries), k, ties=ties, seed=seed)
    assert table(found) == [row[:k] for row in truth]
    assert found.ids.shape == found.distances.shape == (len(queries), min(k, len(codes)))
    assert rows(index.within(packed(queries), radius, ties=ties, seed=seed)) == inside
    assert index.counts(packed(queries), radius).tolist() == [len(row) for row in inside]


@every_index
@settings(max_examples=30)
@given(problem=problems(), radius=st.integers(0, 6))
def test_any_order_is_the_same_set_by_distance(make, problem, radius):
    n_bits, codes, queries = problem
    index = make(n_bits).add(packed(codes))
    loose, strict = index.within(packed(queries), radius, ties="any"), index.within(packed(queries), radius)
    assert [sorted(row) for row in rows(loose)] == [sorted(row) for row in rows(strict)]
    assert loose.distances.tolist() == strict.distances.tolist()


@every_index
@settings(max_examples=30)
@given(problem=problems())
def test_radius_results_have_no_duplicates_and_grow_to_everything(make, problem):
    n_bits, codes, queries = problem
    index = make(n_bits).add(packed(codes))
    scan = ScanIndex(n_bits).add(packed(codes))
    before = [set()] * len(queries)
    for radius in sorted({0, 1, 2, n_bits // 2, n_bits}):
        found, truth = index.within(packed(queries), radius), scan.within(packed(queries), radius)
        for i, (ids, distances) in enumerate(found):
            assert len(set(ids.tolist())) == len(ids)
            assert set(ids.tolist()) <= set(truth[i][0].tolist())
            assert before[i] <= set(ids.tolist())
            assert np.all(distances <= radius)
            before[i] = set(ids.tolist())
    assert all(seen == set(range(len(codes))) for seen in before)
    assert rows(index.within(packed(queries), n_bits + 100)) == rows(scan.within(packed(queries), n_bits))


@every_index
@settings(max_examples=30)
@given(problem=problems(), data=st.data())
def test_iterate_gives_every_distance_once_in_order(make, problem, data):
    n_bits, codes, queries = problem
    ids = data.draw(st.permutations(range(len(codes))))
    index, model = filled(make, n_bits, codes, ids), Model()
    model.add(codes, ids)
    for query in queries:
        flat = [(i, d) for d, ids in index.iterate(query) for i in ids.tolist()]
        assert flat == model.ranked(query)
        distances = [d for d, _ in index.iterate(unpack(packed([query]), n_bits)[0])]
        assert distances == sorted(set(distances))


@every_index
@settings(max_examples=25)
@given(problem=problems(), data=st.data())
def test_filters_equal_the_model(make, problem, data):
    n_bits, codes, queries = problem
    ids = data.draw(st.permutations([f"item {i}" for i in range(len(codes))]))
    index, model = filled(make, n_bits, codes, ids), Model()
    model.add(codes, ids)
    only = data.draw(st.sets(st.sampled_from(ids))) if ids else set()
    mask = np.array([i in only for i in ids], dtype=bool)
    ties = data.draw(st.sampled_from(POLICIES))
    truth = [model.ranked(q, ties, 3, only) for q in queries]
    for where in (only, list(only), mask, lambda given: np.isin(given, sorted(only) or [""])):
        assert table(index.search(packed(queries), 5, ties=ties, seed=3, where=where)) == [row[:5] for row in truth]
        inside = [[(i, d) for i, d in row if d <= 2] for row in truth]
        assert rows(index.within(packed(queries), 2, ties=ties, seed=3, where=where)) == inside
        assert index.counts(packed(queries), 2, where=where).tolist() == [len(row) for row in inside]


@every_index
@settings(max_examples=20)
@given(problem=problems())
def test_buckets_are_the_codes_that_occur(make, problem):
    n_bits, codes, _ = problem
    values, counts = filled(make, n_bits, codes, list(range(len(codes)))).buckets()
    assert dict(zip(values.tolist(), counts.tolist(), strict=True)) == {c: codes.count(c) for c in codes}
    assert values.tolist() == sorted(values.tolist())


@every_index
def test_signs_and_integers_are_the_same_codes(make):
    signs = np.random.default_rng(0).choice(np.array([-1, 1], dtype=np.int8), size=(50, 9))
    codes = (signs > 0) @ (1 << np.arange(9))
    a, b = make(9).add(signs), make(9).add(codes)
    assert a.codes.tolist() == b.codes.tolist() == codes.tolist()
    assert table(a.search(codes[:5], 10)) == table(b.search(signs[:5], 10))


@every_index
def test_a_single_flipped_bit_is_distance_one(make):
    index = make(64).add(packed([1 << 63, 0, 2**64 - 1]))
    assert table(index.search(packed([0]), 3)) == [[(1, 0), (0, 1), (2, 64)]]


@every_index
def test_an_empty_index_answers(make):
    index = make(16)
    assert len(index) == 0
    assert index.search(packed([1, 2]), 3).ids.shape == (2, 0)
    assert index.within(packed([1, 2]), 16).offsets.tolist() == [0, 0, 0]
    assert index.counts(packed([1]), 16).tolist() == [0]
    assert list(index.iterate(5)) == []
    assert index.ids.dtype == np.int64
    assert index.add(packed([]), ids=[]).remove([]).codes.tolist() == []


@every_index
def test_items_are_numbered_on_and_numbers_are_not_given_again(make):
    index = make(4).add(packed([1, 2])).add(packed([3]))
    assert index.ids.tolist() == [0, 1, 2]
    index.remove([2, 0]).add(packed([4]))
    assert index.ids.tolist() == [1, 3]
    index.add(packed([5]), ids=[10]).add(packed([6]))
    assert index.ids.tolist() == [1, 3, 10, 11]
    assert index.codes.tolist() == [2, 4, 5, 6]
    index.remove([1, 3, 10, 11]).add(packed([7]))
    assert index.ids.tolist() == [12]


@every_index
def test_upsert_is_remove_and_add_in_one_step(make):
    index = make(4).add([1, 2, 3], ids=[10, 20, 30])
    with pytest.raises(InvalidInput):
        index.upsert([5, 6], ids=[20, 20])
    assert index.ids.tolist() == [10, 20, 30]  # all or none
    index.upsert([5, 6], ids=[20, 40])
    slow = make(4).add([1, 2, 3], ids=[10, 20, 30]).remove([20]).add([5, 6], ids=[20, 40])
    assert sorted(zip(index.ids.tolist(), index.codes.tolist(), strict=True)) == [(10, 1), (20, 5), (30, 3), (40, 6)]
    assert index.search([5], k=4).ids.tolist() == slow.search([5], k=4).ids.tolist()
    assert make(4).upsert([7], ids=[1]).ids.tolist() == [1]


@every_index
def test_update_changes_the_code_and_makes_the_item_the_newest(make):
    index = make(4).add(packed([1, 2, 3]), ids=["a", "b", "c"]).update(["a"], packed([15]))
    assert index.ids.tolist() == ["b", "c", "a"]
    assert index.codes.tolist() == [2, 3, 15]
    assert index.search(packed([15]), 1).ids.tolist() == [["a"]]
    assert "a" in index
    assert "d" not in index
    assert 1 not in index
    assert True not in index
    assert None not in index


@every_index
def test_strings_of_any_length_and_order(make):
    index = make(2).add(packed([0, 0]), ids=["zebra", "b"]).add(packed([0]), ids=["a long id, longer than the rest"])
    assert index.search(packed([0]), 3).ids.tolist() == [["a long id, longer than the rest", "b", "zebra"]]
    assert index.remove(["b"]).ids.tolist() == ["zebra", "a long id, longer than the rest"]
    index.remove(["zebra", "a long id, longer than the rest"]).add(packed([1]), ids=[7])
    assert index.ids.tolist() == [7]


@every_index
def test_failed_calls_change_nothing(make):
    index = make(4).add(packed([1, 2, 3]), ids=[5, 6, 7])
    for call, message in [
        (lambda: index.add(packed([4, 5]), ids=[8, 6]), "Id 6 is already in the (index|store)"),
        (lambda: index.add(packed([4, 5]), ids=[8, 8]), "must be unique, but 8 occurs twice"),
        (lambda: index.add(packed([4, 5]), ids=[8]), "Got 1 ids for 2 codes"),
        (lambda: index.add(packed([4]), ids=["x"]), f"of {make.__name__} are integers in this index. Got strings"),
        (lambda: index.add(packed([4]), ids=[0.5]), "must be all integers that fit int64, or all strings. Got float64"),
        (lambda: index.add(packed([4]), ids=packed([2**63])), "must be all integers that fit int64"),
        (lambda: index.add(packed([4, 5]), ids=["x", 1]), "or all strings. Got <U"),
        (lambda: index.add(packed([4]), ids=[[1]]), r"must have shape \(n_items,\). Got shape \(1, 1\)"),
        (lambda: index.add(packed([16])), "must lie in the range"),
        (lambda: index.add([[1, 1, 1]]), "must have 4 bits here. Got 3"),
        (lambda: index.remove([5, 9]), "Id 9 is not in the (index; remove|store; name) only ids"),
        (lambda: index.remove(["5"]), f"of {make.__name__} are integers in this index. Got strings"),
        (lambda: index.update([5, 9], packed([1, 1])), "Id 9 is not in the (index; update|store; name) only ids"),
        (lambda: index.search(packed([1]), 0), "The 'k' parameter .* must be an int >= 1. Got 0"),
        (lambda: index.search(packed([1]), 1, ties="random"), "'ties' parameter .* must be one of 'id', 'insertion'"),
        (lambda: index.search(packed([1]), 1, seed=-1), "The 'seed' parameter"),
        (
            lambda: index.search(packed([1]), 1, seed=2**64),
            r"The 'seed' parameter .* range \[0, 18446744073709551615\]",
        ),
        (lambda: index.within(packed([1]), 1, seed=2**70), "The 'seed' parameter"),
        (lambda: index.within(packed([1]), -1), "The 'radius' parameter .* must be an int >= 0. Got -1"),
        (lambda: index.within(packed([1]), 1.5), "The 'radius' parameter"),
        (lambda: index.counts(packed([1]), 1, where=np.array([True])), r"one entry per item, shape \(3,\)"),
        (lambda: index.counts(packed([1]), 1, where=lambda ids: ids), "function given as 'where' .* must return"),
        (
            lambda: index.counts(packed([1]), 1, where=["a"]),
            f"of {make.__name__} are integers in this index. Got strings",
        ),
        (lambda: index.iterate(packed([1, 2])), "takes one query. Got 2"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            call()
    assert index.ids.tolist() == [5, 6, 7]
    assert index.codes.tolist() == [1, 2, 3]


@every_index
@pytest.mark.parametrize("ties", POLICIES)
def test_a_huge_k_means_all(make, ties):
    index = make(4).add(packed([1, 2, 3]))
    found = index.search(packed([1, 9]), 10**30, ties=ties, seed=2**64 - 1)
    assert [sorted(ids) for ids in found.ids.tolist()] == [[0, 1, 2], [0, 1, 2]]
    assert index.search(packed([1]), 10**30, ties=ties).ids.shape == (1, 3)


@every_index
@pytest.mark.parametrize("ids", [["a\0"], ["a\0b"], np.array(["a\0b"]), np.array(["a\0"], dtype=object)], ids=repr)
def test_ids_with_nul_are_refused(make, ids):
    index = make(4).add(packed([1]), ids=["a"])
    with pytest.raises(InvalidInput, match="may not hold NUL characters; encode or rename such ids"):
        index.add(packed([2]), ids=ids)
    assert ("a" in index, "a\0" in index, "a\0b" in index) == (True, False, False)


@every_index
def test_the_largest_id_cannot_be_followed(make):
    index = make(4).add(packed([1]), ids=[2**63 - 1])
    with pytest.raises(InvalidInput, match="cannot be numbered beyond the id 9223372036854775807; pass ids="):
        index.add(packed([1]))
    assert index.add(packed([1]), ids=[-(2**63)]).search(packed([1]), 2).ids.tolist() == [[-(2**63), 2**63 - 1]]


@every_index
def test_shards_merge_into_one_index(make):
    shards = [make(6).add(packed([7 * i, 7 * i + 1]), ids=[10 * i, 10 * i + 1]) for i in range(4)]
    whole = make(6).merge(*shards[:2], make(6)).merge(*shards[2:])
    assert whole.ids.tolist() == [0, 1, 10, 11, 20, 21, 30, 31]
    assert whole.codes.tolist() == [0, 1, 7, 8, 14, 15, 21, 22]
    for others, message in [
        ([make(5)], "Indexes of 5 and 6 bits cannot be merged"),
        ([shards[0], shards[0]], "must be unique, but 0 occurs twice"),
        ([make(6).add(packed([1]), ids=[31])], "Id 31 is already in the (index|store)"),
        (
            [make(6).add(packed([1]), ids=["a"]), make(6).add(packed([1]))],
            "integer and with string ids cannot be merged",
        ),
    ]:
        with pytest.raises(InvalidInput, match=message):
            whole.merge(*others)
    assert len(whole) == 8


@every_index
def test_string_ids_are_not_numbered_on(make):
    with pytest.raises(InvalidInput, match="cannot be numbered; pass ids="):
        make(4).add(packed([1]), ids=["a"]).add(packed([1]))


@every_index
@pytest.mark.parametrize("n_bits", [0, 65, 8.0, True])
def test_the_code_length_is_checked(make, n_bits):
    with pytest.raises(InvalidInput, match=r"'n_bits' parameter of \w+ must be an int in the range \[1, 64\]"):
        make(n_bits)


@every_index
def test_views_are_read_only(make):
    index = make(4).add(packed([1, 2]))
    for view in (index.ids, index.codes):
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 3


@every_index
def test_arguments_are_not_changed_and_not_kept(make):
    codes, ids = np.array([1, 2, 3], dtype=np.uint8), np.array([4, 5, 6])
    index = make(4).add(codes, ids=ids)
    codes[:] = 0
    ids[:] = 0
    assert index.codes.tolist() == [1, 2, 3]
    assert index.ids.tolist() == [4, 5, 6]


@pytest.mark.parametrize("make", IN_MEMORY)
@settings(max_examples=20)
@given(problem=problems(), data=st.data())
def test_an_exported_index_comes_back_equal(make, problem, data):
    n_bits, codes, queries = problem
    names = [f"{i}" for i in range(len(codes))]
    ids = data.draw(st.sampled_from([None, names, list(range(len(codes), 0, -1))]))
    index = make(n_bits).add(packed(codes), ids=ids)
    copy = make.from_state(n_bits, index.export_state())
    assert copy.ids.tolist() == index.ids.tolist()
    assert copy.codes.tolist() == index.codes.tolist()
    assert table(copy.search(packed(queries), 5)) == table(index.search(packed(queries), 5))
    if ids is not names or not codes:
        assert copy.add(packed([0])).ids.tolist() == index.add(packed([0])).ids.tolist()


@every_index
def test_the_repr_says_what_it_holds(make):
    assert repr(make(4).add(packed([1, 2]))) == f"{make.__name__}(n_bits=4): 2 items"
