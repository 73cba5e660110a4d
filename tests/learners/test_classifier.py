import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from shorthash.errors import CollisionWarning, InvalidInput
from shorthash.learners.classifier import ClassifierCode


@pytest.fixture(scope="module")
def apart():
    """Four classes that a classifier cannot confuse."""
    rng = np.random.default_rng(0)
    y = np.repeat(["ape", "bee", "cat", "dog"], 30)
    centres = 30 * np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]])
    return np.repeat(centres, 30, axis=0) + rng.normal(size=(120, 3)), y


def test_separable_classes_get_their_codewords(apart):
    X, y = apart
    hasher = ClassifierCode(n_bits=5, random_state=0).fit(X, y)
    assert hasher.classes_.tolist() == ["ape", "bee", "cat", "dog"]
    expected = hasher.codewords_[np.searchsorted(hasher.classes_, y)]
    assert np.array_equal(hasher.transform(X), expected)
    assert np.array_equal(hasher.codes_, expected)
    assert hasher.score(X, y) == 1.0


def test_the_code_is_the_codeword_of_the_predicted_class(blobs):
    X, y = blobs
    hasher = ClassifierCode(KNeighborsClassifier(3), n_bits=6, random_state=0).fit(X, y)
    predicted = KNeighborsClassifier(3).fit(X, y).predict(X)
    assert np.array_equal(hasher.transform(X), hasher.codewords_[predicted])
    assert not np.array_equal(hasher.transform(X), hasher.codes_)  # learned codes are those of the true classes


def test_magnitudes_are_the_probabilities_of_the_bits(blobs):
    X, y = blobs
    hasher = ClassifierCode(n_bits=3, random_state=0).fit(X, y)
    p = hasher.estimator_.predict_proba(X)
    scores, C = hasher.project(X), hasher.codewords_
    for i in range(0, 300, 17):
        for bit in range(3):
            right = sum(p[i, k] for k in range(5) if C[k, bit] == C[p[i].argmax(), bit])
            assert scores[i, bit] == pytest.approx(C[p[i].argmax(), bit] * right, abs=1e-6)
    assert (np.abs(scores) <= 1 + 1e-12).all()


def test_the_default_classifier_is_penalised_in_units_of_the_features(blobs):
    X, y = blobs
    classifier = ClassifierCode(random_state=0).fit(X, y).estimator_
    expected = 1 / (2 * 0.003 * 300 * X.var(axis=0).mean())
    assert np.isclose(classifier.C, expected)
    scaled = ClassifierCode(random_state=0).fit(1e-2 * X + 1e-2, y)
    assert np.isclose(scaled.estimator_.C, 1e4 * expected)
    assert (scaled.estimator_.predict(1e-2 * X + 1e-2) == classifier.predict(X)).mean() > 0.98


def test_classifiers_without_probabilities_score_one(blobs):
    X, y = blobs
    hasher = ClassifierCode(RidgeClassifier(), n_bits=3, random_state=0).fit(X, y)
    assert np.array_equal(np.abs(hasher.project(X)), np.ones((300, 3)))


def test_the_seed_reaches_the_classifier(blobs):
    X, y = blobs
    tree = DecisionTreeClassifier(max_features=1)
    hashers = [ClassifierCode(tree, random_state=7).fit(X, y) for _ in range(2)]
    assert np.array_equal(hashers[0].project(X), hashers[1].project(X))
    assert tree.random_state is None


def test_own_codebook(apart):
    X, y = apart
    codebook = [[1, 1], [1, -1], [-1, 1], [-1, -1]]
    assert np.array_equal(ClassifierCode(n_bits=2, codebook=codebook).fit(X, y).codewords_, codebook)
    with pytest.raises(
        InvalidInput, match=r"must hold -1/\+1 in the shape \(4, 3\), one row per class. Got shape \(4, 2"
    ):
        ClassifierCode(n_bits=3, codebook=codebook).fit(X, y)
    with pytest.raises(InvalidInput, match=r"must hold -1/\+1"):
        ClassifierCode(n_bits=2, codebook=np.zeros((4, 2))).fit(X, y)


def test_more_classes_than_codes_collide_with_a_warning(apart):
    X, y = apart
    with pytest.warns(CollisionWarning, match="4 classes cannot all have different codes of n_bits=1"):
        hasher = ClassifierCode(n_bits=1, random_state=0).fit(X, y)
    assert sorted(hasher.codewords_[:, 0].tolist()) == [-1, -1, 1, 1]


def test_indicator_of_one_label_per_row(apart):
    X, y = apart
    Y = (y[:, None] == np.unique(y)).astype(int)
    one, two = ClassifierCode(random_state=0).fit(X, y), ClassifierCode(random_state=0).fit(X, Y)
    assert np.array_equal(one.transform(X), two.transform(X))


def test_classes_that_do_not_occur_have_no_codeword(apart):
    X, y = apart
    Y = (y[:, None] == np.array(["ape", "bat", "bee", "cat", "dog"])).astype(int)
    hasher = ClassifierCode(random_state=0).fit(X, Y)
    assert hasher.classes_.tolist() == [0, 2, 3, 4]
    assert len(hasher.codewords_) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"estimator": LinearRegression()},
            "'estimator' parameter of ClassifierCode must be a scikit-learn classifier",
        ),
        ({"estimator": "svm"}, "'estimator' parameter of ClassifierCode must be a scikit-learn classifier"),
        (
            {"codebook": "hadamard"},
            "'codebook' parameter of ClassifierCode must be one of 'balanced', 'binary', 'random'",
        ),
    ],
)
def test_bad_parameters(blobs, settings, message):
    with pytest.raises(InvalidInput, match=message):
        ClassifierCode(**settings).fit(*blobs)
