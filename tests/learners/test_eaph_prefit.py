"""Posteriors of models that were fitted before: the same codes however they come, saved and loaded, honest."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from shorthash import EAPH, load, save
from shorthash.errors import InvalidInput, PersistenceError
from shorthash.evaluation import evaluate_hasher

X, numbers = make_classification(
    1500, 20, n_informative=8, n_classes=5, n_clusters_per_class=1, class_sep=1.0, random_state=0
)
y = np.array(["ant", "bee", "cow", "dog", "eel"])[numbers]
SEEN, GIVEN, NEW = slice(0, 500), slice(500, 1000), slice(1000, 1500)
CLASSIFIER = LogisticRegression(max_iter=1000).fit(X[SEEN], y[SEEN])
P = CLASSIFIER.predict_proba(X)


@pytest.fixture(scope="module")
def precomputed():
    return EAPH(4, posterior="precomputed", random_state=0).fit(P[GIVEN], y[GIVEN])


def assert_same_posteriors(hasher, precomputed):
    """Codes may differ: the annealing of the codebook ends elsewhere after a difference in the last bit."""
    np.testing.assert_allclose(hasher.predict_proba(X[NEW]), precomputed.predict_proba(P[NEW]), atol=1e-4)
    assert hasher.expected_map_ == pytest.approx(precomputed.expected_map_, abs=0.01)


def test_a_frozen_classifier_is_its_probabilities(precomputed, tmp_path):
    frozen = EAPH(4, posterior=FrozenEstimator(CLASSIFIER), random_state=0).fit(X[GIVEN], y[GIVEN])
    assert frozen.classes_.tolist() == ["ant", "bee", "cow", "dog", "eel"]
    assert_same_posteriors(frozen, precomputed)
    for model, rows in ((frozen, X[NEW]), (precomputed, P[NEW])):
        again = load(save(model, tmp_path / "model"))
        assert np.array_equal(again.transform(rows), model.transform(rows))
        assert np.array_equal(model.transform(rows[:1]), model.transform(rows)[:1])


def test_the_expected_map_is_that_of_new_rows(precomputed):
    measured = evaluate_hasher(precomputed, P[NEW], y[NEW], P[GIVEN], y[GIVEN]).map
    assert precomputed.expected_map_ == pytest.approx(measured, abs=0.05)  # 500 rows on either side
    overfit = EAPH(4, posterior="precomputed", random_state=0).fit(P[SEEN], y[SEEN])  # what the docs warn of
    assert overfit.expected_map_ > precomputed.expected_map_


def test_classes_may_be_fewer_than_the_classifier_knows():
    some = (y != "cow") & (np.arange(1500) >= 500)
    frozen = EAPH(3, posterior=FrozenEstimator(CLASSIFIER), random_state=0).fit(X[some], y[some])
    assert frozen.predict_proba(X[NEW]).shape == (500, 4)


def test_an_onnx_file(precomputed, tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    weights = onnx.numpy_helper.from_array(CLASSIFIER.coef_.T.astype(np.float32), "W")
    bias = onnx.numpy_helper.from_array(CLASSIFIER.intercept_.astype(np.float32), "b")
    node = helper.make_node("Gemm", ["X", "W", "b"], ["logits"])
    ends = [helper.make_tensor_value_info(name, kind, ["n", d]) for name, d in (("X", 20), ("logits", 5))]
    graph = helper.make_graph([node], "model", ends[:1], ends[1:], [weights, bias])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    hasher = EAPH(4, posterior=str(tmp_path / "model.onnx"), random_state=0).fit(X[GIVEN], y[GIVEN])
    assert_same_posteriors(hasher, precomputed)
    save(hasher, tmp_path / "saved")
    (tmp_path / "model.onnx").unlink()  # the saved model holds it
    assert np.array_equal(load(tmp_path / "saved").transform(X[NEW]), hasher.transform(X[NEW]))


def test_a_torch_module(precomputed, tmp_path):
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(20, 5).double()
    with torch.no_grad():
        module.weight[:] = torch.asarray(CLASSIFIER.coef_)
        module.bias[:] = torch.asarray(CLASSIFIER.intercept_)
    hasher = EAPH(4, posterior=module, random_state=0).fit(X[GIVEN], y[GIVEN])
    assert_same_posteriors(hasher, precomputed)
    with pytest.raises(PersistenceError, match=r"a torch module is code.*EAPH\(posterior='model.onnx'\)"):
        save(hasher, tmp_path / "saved")


def test_mistakes():
    for model, rows, labels, message in [
        (EAPH(4, posterior="precomputed"), X, y, r"must be probabilities.* apply a softmax first"),
        (EAPH(4, posterior="precomputed"), P[:, :4] / P[:, :4].sum(1, keepdims=True), y, "each of the 5 classes of y"),
        (EAPH(4, posterior=FrozenEstimator(CLASSIFIER)), X, np.char.add(y, "s"), "does not know the class 'ants'"),
        (EAPH(4, posterior="precomputed"), P, np.eye(5)[numbers] + np.eye(5)[0] > 0, "one label per row"),
        (EAPH(4, posterior="none.onnx"), X, y, "There is no file none.onnx"),
        (EAPH(4, posterior="softmax"), X, y, "'precomputed'. Got 'softmax'"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            model.fit(rows, labels)
