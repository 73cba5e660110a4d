"""Sums that are saved, added up and taken away: shards combine to the whole."""

import numpy as np
import pytest
from scale.exact import assert_same, hasher, rows

from shorthash import load, save
from shorthash.errors import DamagedFile, ForeignFile, InvalidInput, PersistenceError
from shorthash.kernels.rbf import AnchorRBF
from shorthash.learners.rslh.estimator import RSLH
from shorthash.persistence import describe
from shorthash.scale import ArrayStream, collect, fit_collected, load_collected, save_collected

X, y = rows()
FRONT = AnchorRBF(40, random_state=0).fit(X)


def shard(part, labels=y):
    return collect(ArrayStream(X[part], labels[part]), FRONT)


def whole(labels=y):
    return hasher().fit(X, labels)


def test_shards_combine_to_the_whole(tmp_path):
    places = [
        save_collected(shard(part), tmp_path / f"{i}.stats") for i, part in enumerate((slice(900), slice(900, None)))
    ]
    first, second = map(load_collected, places)
    assert_same(whole(), fit_collected(hasher(), second.merge(first)), X)


def test_shards_need_not_know_all_classes():
    low, high = y < 2, y >= 2
    both = collect(ArrayStream(X[high], y[high]), FRONT).merge(collect(ArrayStream(X[low], y[low]), FRONT))
    np.testing.assert_array_equal(both.sums.classes, np.arange(6))
    assert_same(whole(), fit_collected(hasher(), both), X)
    names = np.array(["ant", "bee", "cow", "doe", "eel", "fox"])[y]
    mixed = shard(low, names).merge(shard(high, names))
    assert_same(whole(names), fit_collected(hasher(), mixed), X)


def test_a_shard_can_be_taken_away():
    everything = shard(slice(None))
    rest = everything.subtract(shard(slice(0, 700)))
    assert rest.n_rows == 2300
    assert_same(fit_collected(hasher(), shard(slice(700, None))), fit_collected(hasher(), rest), X)
    without = everything.subtract(collect(ArrayStream(X[y == 3], y[y == 3]), FRONT))
    assert len(without.sums.rows) == 5
    with pytest.raises(InvalidInput, match="Nothing is left"):
        rest.subtract(rest)
    with pytest.raises(InvalidInput, match="more samples of one label set than were learned"):
        rest.subtract(everything)
    with pytest.raises(InvalidInput, match="class 9 is not in them"):
        everything.subtract(collect(ArrayStream(X[:50], np.full(50, 9)), FRONT))


def test_one_collection_serves_any_length_and_method():
    sums = shard(slice(None))
    assert fit_collected(hasher().set_params(hasher__n_bits=12), sums).transform(X).shape == (3000, 12)
    assert_same(hasher("nsh").fit(X, y), fit_collected(hasher("nsh"), sums), X)


def test_only_sums_with_the_same_kernel_are_combined():
    other = collect(ArrayStream(X, y), AnchorRBF(40, random_state=5))
    plain = collect(ArrayStream(X, y))
    for different in (other, plain):
        with pytest.raises(InvalidInput, match="same anchors and bandwidth"):
            shard(slice(None)).merge(different)
    with pytest.raises(InvalidInput, match="sums over rows as they are"):
        fit_collected(hasher(), plain)
    with pytest.raises(InvalidInput, match="sums over kernel features"):
        fit_collected(RSLH(4), other)
    several = np.eye(6, dtype=int)[y]
    several[:, 0] = 1
    with pytest.raises(InvalidInput, match="build every label matrix with the same columns"):
        shard(slice(None), several).merge(shard(slice(None), np.column_stack([several, several[:, 0]])))


def test_files_are_checked(tmp_path):
    place = save_collected(shard(slice(200)), tmp_path / "sums")
    assert describe(place)["kind"] == "statistics"
    again = load_collected(place)
    np.testing.assert_array_equal(again.sums.gram, shard(slice(200)).sums.gram)
    assert (again.n_rows, again.n_total) == (200, 200)
    with pytest.raises(PersistenceError, match="There is no file"):
        load_collected(tmp_path / "none")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ForeignFile, match="holds no sums of shorthash"):
        load_collected(tmp_path / "text")
    from shorthash import BucketIndex

    save(BucketIndex(2).add([[1, 1]]), tmp_path / "index")
    with pytest.raises(ForeignFile, match="holds BucketIndex, but sums are needed"):
        load_collected(tmp_path / "index")
    octets = bytearray(place.read_bytes())
    octets[-9] ^= 1
    place.write_bytes(octets)
    with pytest.raises(DamagedFile, match="checksum"):
        load_collected(place)


def test_a_fitted_pipeline_keeps_learning(tmp_path):
    fitted = fit_collected(hasher(), shard(slice(0, 1500)))
    again = load(save(fitted, tmp_path / "model")).partial_fit(X[1500:], y[1500:])
    assert_same(whole(), again, X)
