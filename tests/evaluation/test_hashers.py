import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from shorthash.codes.levels import leave_one_out_map
from shorthash.codes.signs import sign
from shorthash.errors import InvalidInput
from shorthash.evaluation import evaluate, evaluate_hasher, learned_codes, map_scorer


class SignHasher(BaseEstimator):
    """Signs of the features, times a parameter that turns good codes into constant ones."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def fit(self, X, y):
        self.codes_ = np.where(np.eye(3)[y] > 0, 1, -1)
        return self

    def transform(self, X):
        return sign(self.scale * np.asarray(X))


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 90)
    return rng.normal(0, 1.0, (90, 3)) + 2 * np.eye(3)[y] - 1, y


def test_the_scorer_is_leave_one_out_map(data):
    X, y = data
    hasher = SignHasher().fit(X, y)
    assert map_scorer(hasher, X, y) == leave_one_out_map(sign(X), y)


def test_grid_search_finds_the_better_parameter(data):
    search = GridSearchCV(SignHasher(), {"scale": [0.0, 1.0]}, scoring=map_scorer, cv=3).fit(*data)
    assert search.best_params_ == {"scale": 1.0}


def test_symmetric_evaluation_encodes_both_sides(data):
    X, y = data
    hasher = SignHasher().fit(X[30:], y[30:])
    scores = evaluate_hasher(hasher, X[:30], y[:30], X[30:], y[30:], k=5)
    assert scores.to_dict() == evaluate(sign(X[:30]), y[:30], sign(X[30:]), y[30:], k=5).to_dict()


@pytest.mark.parametrize("wrap", [lambda h: h, lambda h: make_pipeline(StandardScaler(with_mean=False), h)])
def test_asymmetric_evaluation_uses_the_learned_codes(data, wrap):
    X, y = data
    hasher = wrap(SignHasher()).fit(X[30:], y[30:])
    scores = evaluate_hasher(hasher, X[:30], y[:30], None, y[30:], database_codes="learned")
    expected = evaluate(hasher.transform(X[:30]), y[:30], np.where(np.eye(3)[y[30:]] > 0, 1, -1), y[30:])
    assert scores.to_dict() == expected.to_dict()
    assert scores.map > evaluate_hasher(hasher, X[:30], y[:30], X[30:], y[30:]).map


def test_learned_codes_belong_to_the_training_rows(data):
    X, y = data
    hasher = SignHasher().fit(X, y)
    with pytest.raises(InvalidInput, match="90 training rows, but 60 database labels were given"):
        evaluate_hasher(hasher, X, y, None, y[:60], database_codes="learned")


def test_a_hasher_without_learned_codes_says_so():
    with pytest.raises(InvalidInput, match="SignHasher has no learned codes of its training rows; fit it first"):
        learned_codes(SignHasher())


def test_encoding_needs_rows(data):
    X, y = data
    with pytest.raises(InvalidInput, match="needs X_database to encode the database"):
        evaluate_hasher(SignHasher().fit(X, y), X, y, None, y)


def test_unknown_database_codes_are_named(data):
    X, y = data
    with pytest.raises(InvalidInput, match="'database_codes' parameter of evaluate_hasher must be one of 'encoded'"):
        evaluate_hasher(SignHasher().fit(X, y), X, y, X, y, database_codes="both")
