import numpy as np
import pytest

from shorthash.codes import hamming_distances
from shorthash.errors import InvalidInput
from shorthash.evaluation import evaluate, evaluate_cells, evaluate_distances


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return rng.integers(0, 4, (30, 9)) / 4, rng.integers(0, 9, 200), rng.integers(0, 3, 230), rng


@pytest.mark.parametrize("ties", ["expected", "best", "worst"])
@pytest.mark.parametrize("several", [False, True])
def test_it_is_the_ranking_by_distance(data, ties, several):
    distances, cells, y, rng = data
    labels = rng.integers(0, 2, (230, 4)) | np.eye(4, dtype=int)[y] if several else y
    ours = evaluate_cells(distances, labels[:30], cells, labels[30:], ties=ties, k=(5, 50))
    theirs = evaluate_distances(distances[:, cells], labels[:30], labels[30:], ties=ties, k=(5, 50))
    assert {k: v for k, v in ours.to_dict().items() if v == v} == pytest.approx(
        {k: v for k, v in theirs.to_dict().items() if v == v}
    )


def test_hamming_distances_between_cells_give_the_scores_of_codes(data):
    _, _, y, rng = data
    codes = np.where(rng.random((230, 4)) < 0.5, -1, 1)
    words, where = np.unique(codes[30:], axis=0, return_inverse=True)
    ours = evaluate_cells(hamming_distances(codes[:30], words), y[:30], where.reshape(-1), y[30:], k=10)
    assert ours.map == pytest.approx(evaluate(codes[:30], y[:30], codes[30:], y[30:], k=10).map)


def test_bad_input(data):
    distances, cells, y, _ = data
    with pytest.raises(InvalidInput, match="column numbers"):
        evaluate_cells(distances, y[:30], cells + 1, y[30:])
    with pytest.raises(InvalidInput, match="database order"):
        evaluate_cells(distances, y[:30], cells, y[30:], ties="stable")
    with pytest.raises(InvalidInput, match="without NaN"):
        evaluate_cells(distances * np.nan, y[:30], cells, y[30:])
    with pytest.raises(InvalidInput, match="evaluate_cells"):
        evaluate_cells(distances, y[:29], cells, y[30:])
