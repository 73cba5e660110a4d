import numpy as np
import pytest

from shorthash import make_hasher
from shorthash.data.rows import BATCH_ROWS, Rows, validated
from shorthash.errors import InvalidInput


def test_batches_cover_every_row_once_and_in_order():
    X = np.arange(2.0 * (2 * BATCH_ROWS + 5)).reshape(-1, 2)
    batches = list(Rows(X, "test"))
    assert len(batches) == 3
    assert np.array_equal(np.concatenate([batch for _, batch in batches]), X)
    assert [part.start for part, _ in batches] == [0, BATCH_ROWS, 2 * BATCH_ROWS]


def test_maps_apply_in_order():
    rows = Rows(np.ones((3, 1)), "test").through(lambda b: b + 1).through(lambda b: b * 10)
    assert next(iter(rows))[1].tolist() == [[20.0]] * 3
    assert rows.take(np.array([1])).tolist() == [[20.0]]


def test_integers_become_floats():
    assert next(iter(Rows(np.array([[1, 2]]), "test")))[1].dtype == np.float64


def test_memory_maps_read_the_same(tmp_path):
    X = np.random.default_rng(0).normal(size=(3 * BATCH_ROWS, 40)).astype(np.float32)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    rows = Rows(np.asarray(mapped), "test")
    for _ in range(2):  # pages given back are read again
        assert np.array_equal(np.concatenate([batch for _, batch in rows]), X)
    assert np.array_equal(rows.take(np.array([5, 9000])), X[[5, 9000]])


@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_the_first_bad_cell_is_named(value, name):
    X = np.zeros((BATCH_ROWS + 10, 3), dtype=np.float32)
    X[BATCH_ROWS + 4, 2] = value
    with pytest.raises(InvalidInput, match=f"contains {name} \\(first at row {BATCH_ROWS + 4}, column 2\\)"):
        list(Rows(X, "test"))


def test_large_finite_values_are_no_infinity():
    X = np.full((4, 2), np.finfo(np.float32).max, dtype=np.float32)
    assert len(list(Rows(X, "test"))) == 1


def test_constant_rows_are_refused():
    X = np.ones((BATCH_ROWS + 1, 2))
    with pytest.raises(InvalidInput, match=r"All 4097 rows.*constant"):
        Rows(X, "test").check_varied()
    X[-1, 0] = 2
    Rows(X, "test").check_varied()


def test_kept_rows_are_read_in_batches_and_numbered_as_they_were():
    X = np.arange(2.0 * (2 * BATCH_ROWS)).reshape(-1, 2)
    mask = np.arange(len(X)) % 3 != 0
    rows = Rows(X, "test").keep(mask)
    assert len(rows) == mask.sum()
    assert np.array_equal(np.concatenate([batch for _, batch in rows]), X[mask])
    assert np.array_equal(rows.take(np.array([0, 5])), X[mask][[0, 5]])
    assert np.array_equal(next(iter(rows.keep(np.arange(len(rows)) < 2)))[1], X[mask][:2])
    broken = X.copy()
    broken[7, 1] = np.nan
    with pytest.raises(InvalidInput, match="row 7, column 1"):
        list(Rows(broken, "test").keep(mask))


def test_plain_rows_are_checked_like_others():
    """An array of floats takes a short way: the same array, the same errors and warnings as on the long one."""
    X = np.random.default_rng(0).normal(size=(40, 3))
    hasher = make_hasher("pcaitq", n_bits=2, random_state=0).fit(X)[-1]
    for rows in (X, X.astype(np.float32), X[:1]):
        assert validated(hasher, rows, reset=False) is rows
    assert np.array_equal(validated(hasher, X.tolist(), reset=False), X)
    for wrong, message in [(X[:, :2], "X has 2 features"), (X[:0], "0 sample"), (X[0], "Expected 2D array")]:
        with pytest.raises(ValueError, match=message):
            validated(hasher, wrong, reset=False)
    hasher.feature_names_in_ = np.array(["a", "b", "c"])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        validated(hasher, X, reset=False)
