"""Arrays of torch take the same way as NumPy's: kernel map, sums, codes; CPU here, a GPU in benchmarks/gpu.py."""

import numpy as np
import pytest
from scale.exact import assert_same, hasher, rows

from shorthash import _arrays
from shorthash.errors import InvalidInput, MissingExtra
from shorthash.kernels.rbf import AnchorRBF
from shorthash.learners.rslh.estimator import RSLH
from shorthash.learners.sdh import SDH
from shorthash.learners.sums import GroupStatistics
from shorthash.methods import make_hasher, recipes
from shorthash.scale import ArrayStream, BatchStream

torch = pytest.importorskip("torch", reason="torch is not installed")

X, y = rows()
XT, YT = torch.asarray(X.copy()), torch.asarray(y.copy())


def test_a_pipeline_on_tensors():
    on_numpy, on_torch = hasher().fit(X, y), hasher().fit(XT, YT)
    assert isinstance(on_torch[-1].projection_, np.ndarray)
    assert_same(on_numpy, on_torch, X, tolerance=1e-5)
    codes = on_torch.transform(XT)
    assert isinstance(codes, torch.Tensor)
    assert codes.dtype == torch.int8
    np.testing.assert_array_equal(codes.numpy(), on_numpy.transform(X))
    np.testing.assert_array_equal(on_torch[-1].codes_, on_numpy[-1].codes_)
    assert on_numpy.transform(XT).shape == on_torch.transform(X).shape  # either takes what the other was fitted on


def test_streams_of_tensors():
    batches = BatchStream(lambda: ((XT[i : i + 700], YT[i : i + 700]) for i in range(0, len(XT), 700)))
    assert_same(hasher().fit(X, y), hasher().fit(batches), X, tolerance=1e-5)
    assert_same(hasher().fit(X, y), hasher().fit(ArrayStream(XT, y)), X, tolerance=1e-5)


def test_the_kernel_map():
    kernel = AnchorRBF(50, random_state=0).fit(XT)
    here = AnchorRBF(50, random_state=0).fit(X)
    assert kernel.bandwidth_ == here.bandwidth_
    np.testing.assert_allclose(kernel.mean_, here.mean_, rtol=1e-6)
    np.testing.assert_allclose(kernel.transform(XT).numpy(), here.transform(X), atol=1e-6)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")  # whatever others have set, ours stays float32
    try:
        np.testing.assert_allclose(kernel.transform(XT).numpy(), here.transform(X), atol=1e-6)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_sums_are_float64():
    wide = torch.full((5000, 3), 1.1, dtype=torch.float32)
    model = RSLH(2, boosting=None, random_state=0)
    sums = model.block_sums(None)(next(ArrayStream(wide, np.arange(5000) % 2).blocks()))
    assert isinstance(sums, GroupStatistics)
    np.testing.assert_allclose(sums.gram, 5000 * float(np.float32(1.1)) ** 2, rtol=1e-12)
    assert sums.largest_norm >= np.sqrt(3) * np.float32(1.1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32])
def test_other_types(dtype):
    tensor = (XT * 8).to(dtype)
    assert_same(hasher().fit(tensor.numpy(), y), hasher().fit(tensor, YT), X, tolerance=1e-5)


def test_labels_of_every_kind():
    names = np.array([f"c{c}" for c in y])
    assert_same(hasher().fit(X, names), hasher().fit(XT, names), X, tolerance=1e-5)
    indicator = torch.nn.functional.one_hot(YT)
    assert_same(hasher().fit(X, indicator.numpy()), hasher().fit(XT, indicator), X, tolerance=1e-5)
    some = indicator.clone()
    some[::7] = 0
    kind = hasher().set_params(hasher__drop_unlabelled=True)
    assert kind.fit(XT, some)[-1].n_dropped_ == 429


def test_nothing_is_differentiated():
    tensor = XT.clone().requires_grad_()
    assert not hasher().fit(tensor, YT).project(tensor).requires_grad


def test_learners_that_need_rows_get_numpy():
    model = SDH(4, random_state=0, max_iter=2)
    model.fit(XT, YT)
    assert model.transform(X).shape == (3000, 4)


def test_the_per_sample_fallback():
    slow = hasher().set_params(hasher__solver="per-sample")
    assert_same(hasher().set_params(hasher__solver="per-sample").fit(X, y), slow.fit(XT, YT), X, tolerance=1e-4)


def test_errors():
    fitted = hasher().fit(X, y)
    with pytest.raises(InvalidInput, match="X has 5 features, but AnchorRBF is expecting 12"):
        fitted.transform(XT[:, :5])
    with pytest.raises(InvalidInput, match=r"must have shape \(n_samples, n_features\)"):
        hasher().fit(XT[:, 0], YT)
    with pytest.raises(InvalidInput, match="2 samples"):
        hasher().fit(XT[:1], YT[:1])
    for value, word in ((float("nan"), "NaN"), (float("inf"), "infinity")):
        bad = XT.clone()
        bad[70, 2] = value
        with pytest.raises(InvalidInput, match=rf"{word} \(first at row 70, column 2\)"):
            fitted.transform(bad)
    with pytest.raises(InvalidInput, match="constant features"):
        hasher().fit(torch.ones(100, 3), YT[:100])
    with pytest.raises(InvalidInput, match="y has 10"):
        hasher().fit(XT, YT[:10])


def test_without_the_standard_there_is_a_way_out(monkeypatch):
    def fail(name):
        raise ImportError(name)

    monkeypatch.setattr(_arrays.importlib, "import_module", fail)
    with pytest.raises(MissingExtra, match="or pass NumPy arrays"):
        _arrays.namespace(XT)
    assert _arrays.namespace(X) is np


@pytest.mark.parametrize("name", recipes())
@pytest.mark.filterwarnings("ignore::shorthash.errors.AnchorWarning", "ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_method_returns_tensors_for_tensors(name):
    labels = np.arange(90) % 3
    values = np.random.default_rng(0).normal(size=(90, 6)) + 5 * np.eye(6)[labels]
    model = make_hasher(name, 2, random_state=0).fit(values, labels)
    for method in (model.transform, model.project):
        found = method(torch.asarray(values))
        assert isinstance(found, torch.Tensor)
        np.testing.assert_allclose(found.numpy(), method(values), rtol=1e-6, atol=1e-9)
