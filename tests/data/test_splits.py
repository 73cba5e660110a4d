from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shorthash.data.splits import (
    PROTOCOLS,
    FewRows,
    OfficialTest,
    PerClassQueries,
    RandomQueries,
    UnseenClasses,
    protocol_from_dict,
)
from shorthash.errors import InvalidInput

RNG = np.random.default_rng(0)
LABELS = RNG.permutation(np.repeat(np.arange(10), 60))
TEST = RNG.random(600) < 0.2
EVERY = [
    PerClassQueries(per_class=5, n_train=50),
    PerClassQueries(per_class=5, n_train=50, train_in_database=False),
    RandomQueries(n_queries=40),
    RandomQueries(n_queries=40, n_train=100, train_in_database=False),
    FewRows(n_queries=40, per_class=3),
    FewRows(n_queries=40, per_class=3, train_in_database=False),
    UnseenClasses(n_unseen=3, n_queries=30, n_train=100),
    OfficialTest(),
    OfficialTest(n_queries=20, n_train=100),
]


@pytest.mark.parametrize("protocol", EVERY, ids=repr)
def test_queries_are_never_learned_from_nor_searched(protocol):
    split = protocol.split(LABELS, TEST)
    query, train, database = (set(rows.tolist()) for rows in (split.query, split.train, split.database))
    assert query
    assert train
    assert database
    assert not query & train
    assert not query & database
    for rows in (split.query, split.train, split.database):
        assert (np.diff(rows) > 0).all()
        assert rows.min() >= 0
        assert rows.max() < 600


@pytest.mark.parametrize("protocol", EVERY, ids=repr)
def test_the_seed_decides(protocol):
    one, same = protocol.split(LABELS, TEST), protocol.split(LABELS, TEST)
    for a, b in zip(vars(one).values(), vars(same).values(), strict=True):
        np.testing.assert_array_equal(a, b)
    other = replace(protocol, seed=1).split(LABELS, TEST)
    drawn = [np.array_equal(a, b) for a, b in zip(vars(one).values(), vars(other).values(), strict=True)]
    assert all(drawn) == (protocol == OfficialTest())  # which draws nothing


@pytest.mark.parametrize("protocol", EVERY, ids=repr)
def test_protocols_travel_as_dicts(protocol):
    values = protocol.to_dict()
    assert all(isinstance(value, (str, int, bool, type(None))) for value in values.values())
    assert protocol_from_dict(values) == protocol


def test_per_class_queries_are_equally_many():
    split = PerClassQueries(per_class=7, n_train=100).split(LABELS)
    assert np.bincount(LABELS[split.query]).tolist() == [7] * 10
    assert len(split.train) == 100
    assert len(split.database) == 530
    assert np.isin(split.train, split.database).all()


def test_training_rows_can_be_left_out_of_the_database():
    split = PerClassQueries(per_class=7, n_train=100, train_in_database=False).split(LABELS)
    assert len(split.database) == 430
    assert not np.isin(split.train, split.database).any()


def test_all_other_rows_are_training_rows_by_default():
    split = RandomQueries(n_queries=100).split(LABELS)
    assert len(split.query) == 100
    np.testing.assert_array_equal(split.train, split.database)
    assert len(split.database) == 500


def test_random_queries_take_label_sets():
    Y = RNG.integers(0, 2, (50, 4))
    assert len(RandomQueries(n_queries=10, n_train=20).split(Y).train) == 20


def test_few_rows_of_every_class():
    split = FewRows(n_queries=40, per_class=3).split(LABELS)
    assert np.bincount(LABELS[split.train]).tolist() == [3] * 10
    rare = np.r_[np.zeros(50, dtype=int), [1, 1]]
    assert np.bincount(rare[FewRows(n_queries=5, per_class=4, seed=2).split(rare).train])[0] == 4
    with pytest.raises(InvalidInput, match="FewRows leaves no row for the database"):
        FewRows(n_queries=40, per_class=60, train_in_database=False).split(LABELS)


def test_unseen_classes_are_unseen():
    split = UnseenClasses(n_unseen=3, n_queries=30).split(LABELS)
    seen, unseen = set(LABELS[split.train]), set(LABELS[split.database])
    assert len(seen) == 7
    assert len(unseen) == 3
    assert not seen & unseen
    assert set(LABELS[split.query]) <= unseen
    assert len(split.query) + len(split.database) == 180
    assert len(split.train) == 420


def test_official_test_rows_are_the_queries():
    split = OfficialTest().split(LABELS, TEST)
    np.testing.assert_array_equal(split.query, np.flatnonzero(TEST))
    np.testing.assert_array_equal(split.database, np.flatnonzero(~TEST))
    some = OfficialTest(n_queries=20).split(LABELS, TEST)
    assert len(some.query) == 20
    assert TEST[some.query].all()
    assert not TEST[some.database].any()


@given(st.integers(1, 8), st.integers(0, 5))
def test_per_class_draws_are_those_of_the_generator(per_class, seed):
    """The draw, spelled out: class by class, then training rows, from one generator."""
    y = np.array(["b", "a"] * 10)
    split = PerClassQueries(per_class=per_class, n_train=3, seed=seed).split(y)
    rng = np.random.default_rng(seed)
    queries = [row for name in "ab" for row in rng.choice(np.flatnonzero(y == name), per_class, replace=False)]
    train = rng.choice([row for row in range(20) if row not in queries], 3, replace=False)
    assert split.query.tolist() == sorted(queries)
    assert split.train.tolist() == sorted(train)


def test_protocols_are_frozen():
    with pytest.raises(FrozenInstanceError, match="cannot assign"):
        RandomQueries().seed = 1


@pytest.mark.parametrize(
    ("protocol", "y", "test", "message"),
    [
        (
            PerClassQueries(per_class=61),
            LABELS,
            None,
            "draws 61 queries of every class, but class number 0 has 60",
        ),
        (PerClassQueries(per_class=0), LABELS, None, "'per_class' parameter of PerClassQueries must be an int >= 1"),
        (PerClassQueries(per_class=1), [[1, 1], [0, 1]], None, "needs one class per row, but some rows have several"),
        (PerClassQueries(per_class=60), LABELS, None, "leaves no row for the database"),
        (
            PerClassQueries(per_class=1, n_train=591),
            LABELS,
            None,
            r"'n_train' .* an int in the range \[1, 590\]",
        ),
        (
            RandomQueries(n_queries=600),
            LABELS,
            None,
            "'n_queries' parameter of RandomQueries must leave some rows",
        ),
        (RandomQueries(n_queries=1, train_in_database=False), LABELS, None, "leaves no row for the database"),
        (UnseenClasses(n_unseen=10), LABELS, None, "'n_unseen' .* must leave some classes. Got 10 of 10 classes"),
        (UnseenClasses(n_unseen=1, n_queries=60), LABELS, None, "must leave some rows. Got 60 of 60 rows"),
        (OfficialTest(), LABELS, None, "OfficialTest needs test=, 600 booleans .* Got none instead"),
        (OfficialTest(), LABELS, TEST[:5], r"Got bool of shape \(5,\) instead"),
        (OfficialTest(), LABELS, np.zeros(600, bool), "true for some rows and not for all"),
        (
            OfficialTest(n_queries=601),
            LABELS,
            TEST,
            "'n_queries' parameter of OfficialTest must be an int in",
        ),
    ],
)
def test_impossible_protocols_say_why(protocol, y, test, message):
    with pytest.raises(InvalidInput, match=message):
        protocol.split(y, test)


def test_unknown_protocols_and_settings_are_named():
    with pytest.raises(InvalidInput, match="'kind' parameter of protocol_from_dict must be one of 'per_class_queries'"):
        protocol_from_dict({"kind": "bootstrap"})
    with pytest.raises(
        InvalidInput, match="'setting' parameter of protocol 'random_queries' must be one of 'n_queries'"
    ):
        protocol_from_dict({"kind": "random_queries", "queries": 5})
    assert set(PROTOCOLS) == {"per_class_queries", "random_queries", "few_rows", "unseen_classes", "official_test"}
