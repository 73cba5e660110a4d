"""The whole verb against loops over queries and tie orders."""

import json
import pickle

import numpy as np
import pytest
import references
from drawing import as_lists, label_sets, problems, sign_codes
from hypothesis import given, settings
from hypothesis import strategies as st

import shorthash
from shorthash.codes.levels import leave_one_out_map
from shorthash.codes.signs import pack
from shorthash.errors import InvalidInput, TieOrderWarning
from shorthash.evaluation import evaluate, evaluate_distances

K = (1, 2, 4, 100)


def slow_scores(distances, gains, ties, radius):
    """All scores of one query, by loops; None without relevant items."""
    if not any(gains):
        return None
    binary = [min(g, 1) for g in gains]
    ball = sum(1 for d in distances if d <= radius)

    def of(metric, values=binary, policy=ties):
        return references.under_policy(distances, values, policy, metric)

    found = {
        "map": of(references.average_precision),
        "map_worst": of(references.average_precision, policy="worst"),
        "map_best": of(references.average_precision, policy="best"),
        "map_at_radius": of(lambda order: references.average_precision(order, ball, "retrieved")),
        "precision_at_radius": of(lambda order: references.precision(order, ball)),
        "recall_at_radius": of(lambda order: references.recall(order, ball)),
        "empty_balls": float(ball == 0),
    }
    found["precision_at_k"] = [of(lambda order, k=k: references.precision(order, k)) for k in K]
    found["recall_at_k"] = [of(lambda order, k=k: references.recall(order, k)) for k in K]
    found["map_at_k"] = [of(lambda order, k=k: references.average_precision(order, k, "possible")) for k in K]
    found["ndcg_at_k"] = [of(lambda order, k=k: references.ndcg(order, k), values=gains) for k in K]
    return found


def check_against_loops(scores, queries, ties, radius):
    """Compare per-query values and means with loops; ``queries`` yields (distances, gains)."""
    slow = [slow_scores(distances, gains, ties, radius) for distances, gains in queries]
    assert scores.n_without_relevant == slow.count(None)
    for name, values in scores.per_query.items():
        for value, expected in zip(values, slow, strict=True):
            if expected is None:
                assert np.isnan(value).all()
            else:
                np.testing.assert_allclose(value, expected[name], atol=1e-12, rtol=0)
        kept = [expected[name] for expected in slow if expected is not None]
        mean = getattr(scores, name)
        if not kept:
            assert all(np.isnan(v) for v in (mean.values() if isinstance(mean, dict) else [mean]))
        elif isinstance(mean, dict):
            np.testing.assert_allclose(list(mean.values()), np.mean(kept, axis=0), atol=1e-12)
        else:
            assert mean == pytest.approx(np.mean(kept), abs=1e-12)


EVERY_POLICY = pytest.mark.parametrize("ties", ["expected", "stable", "best", "worst"])


@pytest.mark.parametrize("engine", ["auto", "table", "count"])
@EVERY_POLICY
@settings(max_examples=15)
@given(problem=problems(max_items=5), radius=st.integers(0, 4), packed=st.booleans())
def test_evaluate_equals_loops_over_queries_and_tie_orders(problem, ties, radius, engine, packed):
    codes, labels, others, other_labels = problem
    n_bits = codes.shape[1]
    if engine == "table" and n_bits > 16:
        engine = "count"
    given_codes = (pack(codes), pack(others)) if packed else (codes, others)
    scores = evaluate(
        given_codes[0],
        labels,
        given_codes[1],
        other_labels,
        n_bits=n_bits,
        ties=ties,
        radius=radius,
        k=K,
        engine=engine,
    )
    check_against_loops(scores, rankings(problem), ties, radius)


def rankings(problem):
    """Distances and gains of every query, by loops."""
    codes, labels, others, other_labels = problem
    return [
        (
            [references.distance(code, other) for other in others.tolist()],
            [references.shared_labels(label, other) for other in as_lists(other_labels)],
        )
        for code, label in zip(codes.tolist(), as_lists(labels), strict=True)
    ]


@pytest.mark.parametrize("engine", ["table", "count"])
@EVERY_POLICY
def test_evaluate_equals_loops_on_random_problems(ties, engine):
    """Where a search for the simplest failure seldom looks: many labels, many distances, many ties."""
    for seed in range(25):
        rng = np.random.default_rng(seed)
        n_bits, radius = int(rng.integers(1, 7)), int(rng.integers(0, 4))
        codes = np.where(rng.random((10, n_bits)) < rng.uniform(0.2, 0.8), 1, -1)
        labels = rng.integers(0, 2, (10, 4)) if seed % 2 else rng.integers(0, 3, 10)
        problem = codes[:4], labels[:4], codes[4:], labels[4:]
        scores = evaluate(*problem, ties=ties, radius=radius, k=K, engine=engine)
        check_against_loops(scores, rankings(problem), ties, radius)


@st.composite
def collections(draw):
    n, n_bits = draw(st.integers(1, 6)), draw(st.sampled_from([1, 3, 16, 64]))
    return draw(sign_codes(n, n_bits)), draw(label_sets(n, draw(st.booleans())))


@EVERY_POLICY
@settings(max_examples=20)
@given(collection=collections())
def test_without_a_database_every_row_queries_the_others(collection, ties):
    codes, labels = collection
    scores = evaluate(codes, labels, ties=ties, k=K)
    queries = [
        (
            [references.distance(codes[i].tolist(), codes[j].tolist()) for j in range(len(codes)) if j != i],
            [references.shared_labels(as_lists(labels)[i], as_lists(labels)[j]) for j in range(len(codes)) if j != i],
        )
        for i in range(len(codes))
    ]
    assert scores.n_database == len(codes) - 1
    check_against_loops(scores, queries, ties, 2)
    if ties == "expected":
        assert scores.map == pytest.approx(leave_one_out_map(codes, labels), nan_ok=True)


@EVERY_POLICY
@settings(max_examples=20)
@given(
    distances=st.lists(
        st.lists(st.sampled_from([-1.5, 0.0, 0.25, 7.0]), min_size=5, max_size=5), min_size=1, max_size=3
    ),
    data=st.data(),
)
def test_evaluate_distances_equals_loops(distances, data, ties):
    labels = data.draw(label_sets(len(distances) + 5, data.draw(st.booleans())))
    n = len(distances)
    scores = evaluate_distances(distances, labels[:n], labels[n:], ties=ties, radius=0.25, k=K)
    queries = [
        (row, [references.shared_labels(label, other) for other in as_lists(labels[n:])])
        for row, label in zip(distances, as_lists(labels[:n]), strict=True)
    ]
    check_against_loops(scores, queries, ties, 0.25)
    assert scores.pr_curve is None
    assert np.isnan(scores.pr_area)


def problem(n_bits=8, n_queries=40, n_items=300, n_classes=5, seed=0):
    rng = np.random.default_rng(seed)
    codebook = rng.integers(0, 2, (n_classes, n_bits))
    y = rng.integers(0, n_classes, n_queries + n_items)
    bits = codebook[y] ^ (rng.random((n_queries + n_items, n_bits)) < 0.1)
    codes = np.where(bits, 1, -1).astype(np.int8)
    return codes[:n_queries], y[:n_queries], codes[n_queries:], y[n_queries:]


@pytest.mark.parametrize("n_bits", [1, 4, 12, 16])
@pytest.mark.parametrize("ties", ["expected", "best", "worst", "stable"])
def test_the_engines_agree_to_the_last_digit(n_bits, ties):
    table = evaluate(*problem(n_bits), ties=ties, engine="table")
    count = evaluate(*problem(n_bits), ties=ties, engine="count")
    assert table.to_dict() == count.to_dict()
    for name, values in table.per_query.items():
        np.testing.assert_array_equal(values, count.per_query[name])


def test_distances_of_codes_score_like_codes():
    queries, y, items, z = problem()
    distances = (8 - queries.astype(int) @ items.T.astype(int)) / 2
    by_codes, by_distances = evaluate(queries, y, items, z), evaluate_distances(distances, y, z, radius=2)
    for name, values in by_codes.per_query.items():
        np.testing.assert_allclose(by_distances.per_query[name], values, atol=1e-13)


def test_the_order_of_the_database_matters_only_to_stable():
    queries, y, items, z = problem()
    mixed = np.random.default_rng(1).permutation(len(items))
    assert evaluate(queries, y, items[mixed], z[mixed]).to_dict() == pytest.approx(
        evaluate(queries, y, items, z).to_dict()
    )
    before = evaluate(queries, y, items, z, ties="stable").map
    assert evaluate(queries, y, items[mixed], z[mixed], ties="stable").map != before


def test_asymmetric_codes_are_scored_as_given():
    queries, y, items, z = problem()
    learned = np.where(np.random.default_rng(3).integers(0, 2, (5, 8)), 1, -1)[z]  # one codeword per class
    assert evaluate(queries, y, learned, z).map != evaluate(queries, y, items, z).map


def test_inverted_codes_lose():
    """One sign wrong in the distance would turn the ranking round."""
    queries, y, items, z = problem()
    assert evaluate(queries, y, items, z).map > 0.6
    assert evaluate(-queries, y, items, z).map < 0.25


def test_queries_without_relevant_items_are_dropped_or_zero():
    queries, database = [[1, 1], [1, 1]], [[1, 1], [-1, -1]]
    dropped = evaluate(queries, ["a", "unseen"], database, ["a", "b"], k=1)
    zero = evaluate(queries, ["a", "unseen"], database, ["a", "b"], k=1, without_relevant="zero")
    assert (dropped.map, dropped.n_without_relevant, dropped.precision_at_k[1]) == (1.0, 1, 1.0)
    assert (zero.map, zero.n_without_relevant, zero.precision_at_k[1]) == (0.5, 1, 0.5)
    assert np.isnan(dropped.per_query["map"]).tolist() == [False, True]
    assert "1 queries without relevant items, left out" in str(dropped)
    assert "1 queries without relevant items, scored 0" in str(zero)


def test_empty_balls_are_counted_and_score_zero():
    scores = evaluate([[1, 1, 1, 1], [1, 1, 1, 1]], [0, 1], [[-1, -1, -1, 1], [-1, -1, -1, -1]], [0, 1], radius=2)
    assert (scores.empty_balls, scores.precision_at_radius, scores.map_at_radius, scores.map) == (1.0, 0.0, 0.0, 0.75)


def test_precision_recall_by_radius_equals_loops():
    queries, y, items, z = problem(n_bits=5, n_queries=7, n_items=30)
    scores = evaluate(queries, y, items, z)
    curve = scores.pr_curve
    for radius in range(6):
        one = evaluate(queries, y, items, z, radius=radius)
        assert curve.radius[radius] == radius
        assert curve.precision[radius] == pytest.approx(one.precision_at_radius)
        assert curve.recall[radius] == pytest.approx(one.recall_at_radius)
        assert curve.empty_balls[radius] == pytest.approx(one.empty_balls)
        pairs = [
            (references.distance(q, item), a == b)
            for q, a in zip(queries.tolist(), y, strict=True)
            for item, b in zip(items.tolist(), z, strict=True)
        ]
        inside = [hit for d, hit in pairs if d <= radius]
        assert curve.pooled_precision[radius] == pytest.approx(sum(inside) / len(inside) if inside else 0.0)
        assert curve.pooled_recall[radius] == pytest.approx(sum(inside) / sum(hit for _, hit in pairs))


def test_scores_by_class_are_means_over_their_queries():
    queries, y, items, z = problem()
    scores = evaluate(queries, y, items, z)
    by_class = scores.by_class(y)
    assert list(by_class) == [0, 1, 2, 3, 4]
    for label, value in by_class.items():
        assert value == pytest.approx(
            np.mean([v for v, c in zip(scores.per_query["map"], y, strict=True) if c == label])
        )
    with pytest.raises(InvalidInput, match="there are 40 queries, but 39 labels"):
        scores.by_class(y[:-1])
    with pytest.raises(InvalidInput, match=r"'score' parameter of Scores\.by_class must be one of 'map'"):
        scores.by_class(y, score="accuracy")


def test_scores_travel_as_dict_json_frame_and_pickle(tmp_path):
    scores = evaluate(*problem(), k=(10, 50))
    row = scores.to_dict()
    assert row["map"] == scores.map
    assert row["precision_at_50"] == scores.precision_at_k[50]
    assert (row["n_bits"], row["ties"], row["convention"]) == (8, "expected", "shorthash")
    assert json.loads(scores.to_json(tmp_path / "scores.json")) == row
    assert json.loads((tmp_path / "scores.json").read_text()) == row
    assert scores.to_frame().loc[0, "map"] == scores.map
    frame = scores.to_frame(per_query=True)
    assert len(frame) == 40
    assert frame["ndcg_at_10"].mean() == pytest.approx(scores.ndcg_at_k[10])
    assert pickle.loads(pickle.dumps(scores)).to_dict() == row


def test_nan_becomes_null_in_json():
    scores = evaluate([[1]], ["a"], [[1]], ["b"])
    assert np.isnan(scores.map)
    assert json.loads(scores.to_json())["map"] is None


def test_scores_are_read_only():
    scores = evaluate(*problem())
    with pytest.raises(ValueError, match="read-only"):
        scores.per_query["map"][0] = 1.0
    with pytest.raises(AttributeError, match="cannot assign"):
        scores.map = 1.0


def test_arguments_are_left_alone():
    arrays = problem()
    copies = [a.copy() for a in arrays]
    for array in arrays:
        array.setflags(write=False)
    evaluate(*arrays)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_the_top_level_name_is_the_same_verb():
    assert shorthash.evaluate is evaluate


def test_a_database_ordered_by_label_is_warned_about():
    queries, y, items, z = problem()
    order = np.argsort(z, kind="stable")
    with pytest.warns(TieOrderWarning, match="ordered by its labels.*use ties='expected'"):
        evaluate(queries, y, items[order], z[order], ties="stable")
    with pytest.warns(TieOrderWarning, match="ordered by its labels"):
        evaluate_distances(np.zeros((1, 300)), y[:1], z[order], ties="stable")


CODES = np.array([[1, 1, -1], [1, -1, -1]])


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((CODES, [0, 1], CODES[:, :2], [0, 1]), {}, "same length, but one has 3 bits and the other 2; encode both"),
        ((CODES, [0], CODES, [0, 1]), {}, "query must have one label .* for each of its 2 codes. Got 1 instead"),
        ((CODES, [0, 1], CODES, [0, 1, 1]), {}, "database must have one label .* of its 2 codes. Got 3 instead"),
        ((CODES, None, CODES, [0, 1]), {}, "query must have one label .* for each of its 2 codes. Got none instead"),
        ((CODES[:0], [], CODES, [0, 1]), {}, "query must have at least one row. Got 0 codes"),
        ((CODES, [0, 1], CODES[:0], []), {}, "database must have at least one row. Got 0 codes"),
        ((CODES, [0, 1], CODES), {}, "database codes and database labels together, or neither"),
        ((np.array([1, 2]), [0, 1]), {}, "evaluate needs n_bits when codes are packed"),
        ((np.array([1, 9]), [0, 1]), {"n_bits": 3}, r"3 bits must lie in the range \[0, 2\*\*3 - 1\]"),
        ((CODES * 2, [0, 1]), {}, r"must hold only -1 and \+1"),
        ((CODES, [0, 1], CODES, ["a", "b"]), {}, "Labels of evaluate must be of one type"),
        ((CODES, [0, 1], CODES, [[0, 1], [1, 0]]), {}, "Labels of evaluate must be of one form"),
        ((CODES, [0, 1]), {"ties": "random"}, "'ties' parameter of evaluate must be one of 'expected', 'stable'"),
        ((CODES, [0, 1]), {"convention": "trec"}, "'convention' parameter of evaluate must be one of 'shorthash'"),
        ((CODES, [0, 1]), {"engine": "gpu"}, "'engine' parameter of evaluate must be one of 'auto', 'table', 'count'"),
        ((CODES, [0, 1]), {"radius": -1}, "'radius' parameter of evaluate must be an int >= 0. Got -1 instead"),
        ((CODES, [0, 1]), {"k": 0}, "'k' parameter of evaluate must be an int >= 1. Got 0 instead"),
        ((CODES, [0, 1]), {"k": [5, 2.5]}, "'k' parameter of evaluate must be an int >= 1. Got 2.5 instead"),
        (
            (CODES, [0, 1]),
            {"without_relevant": "nan"},
            "'without_relevant' parameter of evaluate must be one of 'drop'",
        ),
        ((CODES, [0, 1]), {"gain": "cubic"}, "'gain' parameter of evaluate must be one of 'shared'"),
    ],
)
def test_wrong_calls_say_what_is_wrong(arguments, options, message):
    with pytest.raises(InvalidInput, match=message):
        evaluate(*arguments, **options)


@pytest.mark.parametrize(
    ("distances", "labels", "others", "message"),
    [
        ([0.0, 1.0], [0], [0, 1], r"must be real numbers .* Got float64 of shape \(2,\) instead"),
        ([[0.0, np.nan]], [0], [0, 1], "without NaN"),
        ([["a", "b"]], [0], [0, 1], "must be real numbers"),
        ([[0.0, 1.0]], [0, 1], [0, 1], "query must have one label .* its 1 distance rows. Got 2 instead"),
        ([[0.0, 1.0]], [0], [0], "database must have one label .* its 2 distance columns. Got 1 instead"),
    ],
)
def test_wrong_distances_say_what_is_wrong(distances, labels, others, message):
    with pytest.raises(InvalidInput, match=message):
        evaluate_distances(distances, labels, others)


def test_the_zero_rule_keeps_what_is_known_of_a_query():
    queries, database = [[1, 1, 1], [1, 1, 1]], [[-1, -1, -1], [1, 1, 1]]
    scores = evaluate(queries, ["a", "unseen"], database[:1], ["a"], radius=1, k=1, without_relevant="zero")
    assert scores.empty_balls == 1.0
    unknown = evaluate_distances([[0.0], [0.0]], ["a", "unseen"], ["a"], k=1, without_relevant="zero")
    assert unknown.map == 0.5
    assert np.isnan([unknown.map_at_radius, unknown.empty_balls]).all()


@pytest.mark.parametrize(("gain", "worth"), [("binary", lambda g: min(g, 1)), ("exponential", lambda g: 2**g - 1)])
@EVERY_POLICY
def test_gains_of_shared_labels_and_leaving_oneself_out(gain, worth, ties):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        codes, labels = np.where(rng.random((6, 3)) < 0.5, 1, -1), rng.integers(0, 2, (6, 4))
        scores = evaluate(codes, labels, ties=ties, gain=gain, k=K)
        for i in range(6):
            others = [j for j in range(6) if j != i]
            shared = [int(labels[i] @ labels[j]) for j in others]
            distances = [references.distance(codes[i].tolist(), codes[j].tolist()) for j in others]
            if not any(shared):
                assert np.isnan(scores.per_query["map"][i])
                continue
            expected = references.under_policy(
                distances, [min(g, 1) for g in shared], ties, references.average_precision
            )
            assert scores.per_query["map"][i] == pytest.approx(expected, abs=1e-12)
            gains = [worth(g) for g in shared]
            for column, k in enumerate(K):
                expected = references.under_policy(distances, gains, ties, lambda order, k=k: references.ndcg(order, k))
                assert scores.per_query["ndcg_at_k"][i, column] == pytest.approx(expected, abs=1e-12)
