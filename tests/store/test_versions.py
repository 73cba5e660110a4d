"""Several encoders' codes side by side, and the way from one to the next."""

import numpy as np
import pytest
from stores import every_store

from shorthash import BucketIndex
from shorthash.errors import InvalidInput


def old_codes(ids):
    return (np.asarray(ids) * 37 % 64).astype(np.uint64)


def new_codes(ids):
    return (np.asarray(ids) * 101 % 512).astype(np.uint64)


def filled(make, n=50):
    return make(6).add(old_codes(range(n)), classes=list(range(n)), metadata=[{"i": i} for i in range(n)])


def truth(n_bits, codes, ids):
    return BucketIndex(n_bits).add(codes, ids=ids)


@every_store
def test_a_collection_has_several_versions(make):
    store = filled(make)
    new = store.add_version("v2", 9)
    assert store.versions == {"v1": 6, "v2": 9}
    assert (len(store), len(new), new.version, new.current_version) == (50, 0, "v2", "v1")
    assert store.n_lacking("v2") == 50
    assert new.search(packed([1]), 3).ids.shape == (1, 0)
    store.add({"v1": packed([1]), "v2": packed([500])}, ids=[77])
    assert new.ids.tolist() == [77]
    assert new.codes.tolist() == [500]
    assert store.search(packed([1]), 60).ids.shape == (1, 51)
    new.add(packed([3]), ids=[78])
    assert (78 in store, 78 in new) == (False, True)
    with pytest.raises(InvalidInput, match="Id 78 is already in the store"):
        store.add(packed([3]), ids=[78])


def packed(codes):
    return np.array(codes, dtype=np.uint64)


@every_store
def test_a_migration_gives_every_item_a_new_code(make):
    store = filled(make)
    store.add_version("v2", 9)
    batches = []

    def encode(items):
        batches.append(len(items))
        assert [m["i"] for m in items.metadata] == items.classes == items.ids.tolist()
        assert items.codes.tolist() == old_codes(items.ids).tolist()
        return new_codes(items.ids)

    assert store.migrate("v2", encode, batch_size=20) == 50
    assert batches == [20, 20, 10]
    assert store.migrate("v2", encode) == 0
    new = store.at("v2")
    expected = truth(9, new_codes(range(50)), list(range(50)))
    assert new.ids.tolist() == list(range(50))
    assert new.search(packed([7, 300]), 20).ids.tolist() == expected.search(packed([7, 300]), 20).ids.tolist()
    assert store.ids.tolist() == list(range(50))

    opened = store.switch("v2")
    assert (opened.version, opened.current_version) == ("v2", "v2")
    assert opened.sibling(opened.collection).version == "v2"
    opened.drop_version("v1")
    assert opened.versions == {"v2": 9}
    assert opened.search(packed([7]), 5).ids.tolist() == expected.search(packed([7]), 5).ids.tolist()
    assert opened.items([4]).metadata == [{"i": 4}]
    third = opened.add_version("v1", 3)
    assert (len(third), third.n_bits) == (0, 3)


@every_store
def test_a_migration_can_be_interrupted_and_goes_on(make):
    store = filled(make)
    store.add_version("v2", 9)

    def fail_later(items, calls=[]):  # noqa: B006
        calls.append(1)
        if len(calls) > 2:
            raise RuntimeError("power cut")
        return new_codes(items.ids)

    with pytest.raises(RuntimeError, match="power cut"):
        store.migrate("v2", fail_later, batch_size=10)
    assert store.n_lacking("v2") == 30
    assert store.migrate("v2", lambda items: new_codes(items.ids), batch_size=7) == 30
    assert store.n_lacking("v2") == 0


@every_store
def test_items_that_change_during_a_migration_are_done_again(make):
    store = filled(make)
    new = store.add_version("v2", 9)
    seen = []

    def encode(items):
        if not seen:
            store.update([3], packed([9])).remove([4])  # after their batch was read
            store.add(old_codes([900]), ids=[900])
            store.add(old_codes([-5]), ids=[-5])
        seen.extend(items.ids.tolist())
        return new_codes(items.ids + 2 * (items.codes == 9))

    store.migrate("v2", encode, batch_size=100)
    assert sorted(set(new.ids.tolist())) == sorted(store.ids.tolist()) == [-5, *(i for i in range(50) if i != 4), 900]
    assert seen.count(3) == 2
    assert new.items([3]).codes.tolist() == new_codes([5]).tolist()


@every_store
def test_a_new_code_in_one_version_deletes_the_others(make):
    store = filled(make, 5)
    new = store.add_version("v2", 9)
    store.migrate("v2", lambda items: new_codes(items.ids))
    store.update([2], packed([1]))
    assert sorted(new.ids.tolist()) == [0, 1, 3, 4]
    assert store.n_lacking("v2") == 1
    with pytest.raises(InvalidInput, match=r"1 items have no code in version 'v2'; call migrate\('v2', encode\) first"):
        store.switch("v2")


@every_store
def test_dual_search_finds_every_item_once_all_the_way(make):
    store = filled(make)
    store.add_version("v2", 9)
    query = {"v1": packed([11, 40]), "v2": packed([200, 7])}

    def check():
        result, by_new = store.dual_search(query, 200)
        migrated = set(store.at("v2").ids.tolist())
        for row in range(2):
            assert sorted(result.ids[row].tolist()) == list(range(50))
            assert [i in migrated for i in result.ids[row].tolist()] == by_new[row].tolist()
            shares = []
            for i, distance, new in zip(result.ids[row], result.distances[row], by_new[row], strict=True):
                code = int(query["v2" if new else "v1"][row])
                assert distance == bin(code ^ int((new_codes if new else old_codes)(i))).count("1")
                shares.append((distance / (9 if new else 6), i))
            assert shares == sorted(shares)
        return result, by_new

    result, by_new = check()
    assert not by_new.any()
    assert result.ids.tolist() == store.search(query["v1"], 200).ids.tolist()
    state = {"left": 3}

    def encode(items):
        check()
        state["left"] -= 1
        return new_codes(items.ids)

    store.migrate("v2", encode, batch_size=15)
    result, by_new = check()
    assert by_new.all()
    assert result.ids.tolist() == store.at("v2").search(query["v2"], 200).ids.tolist()
    few, _ = store.dual_search(query, 4, where={"class": [1, 2, 3]})
    assert sorted(few.ids[0].tolist()) == [1, 2, 3]


@every_store
def test_a_dropped_version_says_so(make):
    """Not even if another version has got its name."""
    store = filled(make, 5)
    store.add_version("v2", 9)
    store.migrate("v2", lambda items: new_codes(items.ids))
    new = store.switch("v2").drop_version("v1")
    for _ in range(2):
        for call in (
            lambda: store.add(packed([1])),
            lambda: store.upsert(packed([1]), [1]),
            lambda: store.update([1], packed([1])),
            lambda: store.items([1]),
            lambda: store.search(packed([1]), 1),
            lambda: store.search(packed([1, 2]), 1, where={"class": 1}),
            lambda: store.within(packed([1]), 1),
            lambda: store.counts(packed([1]), 1),
            lambda: list(store.iterate(packed([1]))),
            lambda: len(store),
            lambda: store.ids,
            lambda: store.codes,
            lambda: 1 in store,
        ):
            with pytest.raises(InvalidInput, match="Version 'v1' was dropped by another process; open the store again"):
                call()
        if "v1" not in new.versions:
            new.add_version("v1", 6)
    assert new.codes.tolist() == new_codes(range(5)).tolist()


@every_store
def test_refused_steps_change_nothing(make):
    store = filled(make, 3)
    store.add_version("v2", 9)
    for call, message in [
        (lambda: store.add_version("v2", 4), "already has a version 'v2'; choose another name"),
        (lambda: store.add_version("V 3", 4), "The name of a version must be"),
        (lambda: store.add_version("v3", 65), "The 'n_bits' parameter of .*add_version must be"),
        (lambda: store.switch("v9"), "has no version 'v9'; it has 'v1', 'v2'"),
        (lambda: store.drop_version("v1"), "Version 'v1' is the current one; switch"),
        (lambda: store.drop_version("v9"), "has no version 'v9'"),
        (lambda: store.migrate("v9", len), "has no version 'v9'"),
        (lambda: store.migrate("v2", lambda items: packed([1])), "must return one code per item. Got 1 for 3 items"),
        (lambda: store.migrate("v2", lambda items: packed([512] * 3)), "must lie in the range"),
        (lambda: store.migrate("v2", len, batch_size=0), "The 'batch_size' parameter"),
        (lambda: store.add({"v2": packed([1])}), "must name the opened one, 'v1'. Got \\['v2'\\]"),
        (lambda: store.add({"v1": packed([1]), "v2": packed([1, 2])}), "must have the same number in every version"),
        (lambda: store.dual_search({"v1": packed([1])}, 1), "takes codes of two versions. Got 1"),
        (lambda: store.dual_search({"v1": packed([1]), "v9": packed([1])}, 1), "has no version 'v9'"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            call()
    assert store.versions == {"v1": 6, "v2": 9}
    assert store.n_lacking("v2") == 3


@every_store
def test_every_version_has_posteriors_of_its_own(make):
    first, second = np.full((3, 2), 7, dtype=np.uint8), np.full((3, 4), 9, dtype=np.uint8)
    store = make(6).add(packed([1, 2, 3]), posteriors=first)
    new = store.add_version("v2", 9)
    store.migrate("v2", lambda items: (new_codes(items.ids), second[: len(items)]), batch_size=2)
    assert new.items([0, 2]).posteriors.tolist() == [[9] * 4] * 2
    assert store.items([0, 2]).posteriors.tolist() == [[7] * 2] * 2
    new.update([1], packed([5]))  # new content: what the old one was like is forgotten
    assert new.items([0, 1]).posteriors.tolist() == [[9] * 4, [0] * 4]
    with pytest.raises(InvalidInput, match=r"'posteriors' of .*migrate must be uint8"):
        store.remove([1]).add(packed([1])).migrate("v2", lambda items: (new_codes(items.ids), second))
    store.migrate("v2", lambda items: new_codes(items.ids))
    new = new.switch("v2").drop_version("v1")
    assert new.items([0]).posteriors.tolist() == [[9] * 4]
