import numpy as np
import pytest

from shorthash.codes.packing import pack
from shorthash.errors import InvalidInput
from shorthash.evaluation import by_k, by_length, evaluate, occupancy, tie_bounds

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 50)
CODES = np.where(RNG.random((50, 6)) < 0.5, 1, -1)


def test_scores_by_list_length():
    scores = evaluate(CODES, LABELS, k=(20, 1, 5))
    curve = by_k(scores, "recall_at_k")
    assert curve.x.tolist() == [1, 5, 20]
    assert curve.y.tolist() == [scores.recall_at_k[k] for k in (1, 5, 20)]
    assert (curve.x_name, curve.y_name) == ("k", "recall_at_k")
    with pytest.raises(InvalidInput, match="'score' parameter of by_k must be one of 'precision_at_k'"):
        by_k(scores, "map")


def test_scores_by_code_length():
    scores = {n: evaluate(CODES[:, :n], LABELS) for n in (4, 2, 6)}
    curve = by_length(scores, "precision_at_radius")
    assert curve.x.tolist() == [2, 4, 6]
    assert curve.y.tolist() == [scores[n].precision_at_radius for n in (2, 4, 6)]
    with pytest.raises(InvalidInput, match="'score' parameter of by_length must be one of 'map'"):
        by_length(scores, "accuracy")


def test_tie_bounds_hold_the_expectation_between_them():
    scores = {"two bits": evaluate(CODES[:, :2], LABELS), "six bits": evaluate(CODES, LABELS)}
    bars = tie_bounds(scores)
    assert bars.names == ("two bits", "six bits")
    assert (bars.worst < bars.expected).all()
    assert (bars.expected < bars.best).all()
    assert bars.best[0] == scores["two bits"].map_best
    assert bars.best[0] - bars.worst[0] > bars.best[1] - bars.worst[1]  # more bits, fewer ties


def test_tie_bounds_need_the_expectation():
    with pytest.raises(InvalidInput, match="those of 'x' have ties='best'; evaluate again"):
        tie_bounds({"x": evaluate(CODES, LABELS, ties="best")})


def test_occupancy_counts_items_by_bucket_and_class():
    found = occupancy(CODES, LABELS)
    assert found.items.sum() == 50
    assert (np.diff(found.items) <= 0).all()
    packed = pack(CODES)
    for code, items, by_class in zip(found.codes, found.items, found.by_class, strict=True):
        inside = LABELS[packed == code]
        assert items == len(inside)
        assert by_class.tolist() == [int((inside == c).sum()) for c in range(3)]


def test_occupancy_of_packed_codes_and_several_labels():
    found = occupancy(np.array([2, 2, 0], dtype=np.uint8), [[1, 1], [1, 0], [0, 1]], n_bits=2)
    assert found.codes.tolist() == [2, 0]
    assert found.items.tolist() == [2, 1]
    assert found.by_class.tolist() == [[2, 1], [0, 1]]
    with pytest.raises(InvalidInput, match="occupancy needs n_bits"):
        occupancy(np.array([2]), [0])
