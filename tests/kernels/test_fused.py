"""What the GPU is given, put together here as it does it there; the kernels themselves run where there is a GPU."""

import numpy as np
import pytest

from shorthash import make_hasher
from shorthash._rounding import SURE, Scored
from shorthash.kernels import fused
from shorthash.kernels.fused import FusedScores, cached

torch = pytest.importorskip("torch", reason="torch is not installed")

SHAPES = [(3, 40, 1, True), (37, 150, 12, True), (64, 128, 20, False)]


def fitted(columns=37, anchors=150, bits=12, center=True, n=3000):
    rng, n_classes = np.random.default_rng(columns), min(8, 2**bits)
    y = rng.integers(n_classes, size=n)
    X = (rng.normal(size=(n_classes, columns))[y] + rng.normal(size=(n, columns)) + 5).astype(np.float32)
    kernel = {"n_anchors": anchors, "center": center}
    return make_hasher("rslh", bits, random_state=0, kernel=kernel).fit(X, y), X


def parts_of(hasher):
    features, learner = hasher[0].features(), hasher[-1]
    intercept = learner.intercept_ - hasher[0].mean_ @ learner.projection_
    return FusedScores(features.shift, features.weights, hasher[0].mean_, learner.projection_, intercept)


def emulated(parts, X):
    """The two kernels in NumPy, float64."""
    shift, w, w_rest, bias, mean, p, p_rest, unit, constant, _ = parts.copies.arrays
    x = np.pad(np.asarray(X), ((0, 0), (0, len(shift) - X.shape[1]))).astype(np.float64) - shift
    product = x @ (w.astype(np.float64) + w_rest).T * parts.scale
    exponent = product - parts.norm_scale * (x**2).sum(axis=1, keepdims=True) + bias
    Z = np.exp2(np.minimum(exponent, 0)) * 2**fused.TOP - mean
    return (Z @ (p.astype(np.float64) + p_rest) * unit + constant)[:, : parts.n_bits]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_parts_put_together_are_the_scores(shape):
    hasher, X = fitted(*shape)
    parts, scores = parts_of(hasher), hasher.project(X)
    assert all(array.flags.c_contiguous for array in parts.copies.arrays)
    assert all(len(array) % fused.ANCHORS == 0 for array in parts.copies.arrays[1:7])
    difference = np.abs(emulated(parts, X) - scores)
    assert (difference < parts.doubt).all()  # float64 against float32: rounding stays within what is in doubt
    assert (parts.doubt < 1e-3 * np.abs(scores).max(axis=0)).all()


def test_halves_keep_what_float32_keeps():
    values = np.random.default_rng(0).normal(size=(50, 30)) * 1e-7
    scaled, unit = fused._within_halves(values.T)
    high, rest = fused._halves(scaled)
    assert 2**13 <= np.abs(scaled).max() < 2**14
    assert high.flags.c_contiguous
    assert rest.flags.c_contiguous
    again = (high.astype(np.float64) + rest).T * unit
    large = np.abs(values) > 1e-4 * np.abs(values).max()
    np.testing.assert_allclose(again[large], values[large], rtol=2.0**-23)
    _, units = fused._within_halves(np.array([[1.0, 0.0, 1e9], [3.0, 0.0, 1.0]]), axis=0)
    assert units.tolist() == [[2.0**-12, 2.0**-14, 2.0**16]]  # a bit of its own each; columns that fill up stay 0


def test_a_pipeline_takes_this_way_and_gives_the_codes_of_the_cpu(monkeypatch):
    hasher, X = fitted()
    expected = hasher.transform(X)
    noise = np.random.default_rng(0).normal(size=expected.shape)

    def noisy(parts, batch):
        off = torch.asarray(emulated(parts, batch.numpy()) + 0.2 * parts.doubt * noise[: len(batch)])
        return Scored(off, torch.asarray(parts.doubt) / SURE)

    monkeypatch.setattr(FusedScores, "usable", staticmethod(lambda X: isinstance(X, torch.Tensor)))
    monkeypatch.setattr(FusedScores, "__call__", noisy)
    codes = hasher.transform(torch.asarray(X))
    np.testing.assert_array_equal(codes.numpy(), expected)
    assert hasher._fused(torch.asarray(X)) is hasher._fused(torch.asarray(X))
    hasher[-1].projection_ *= -1.0  # written over: seen nevertheless
    np.testing.assert_array_equal(hasher.transform(torch.asarray(X)).numpy(), -expected)


def test_what_is_remembered():
    made = []

    def make():
        made.append(len(made))
        return made[-1]

    a = np.arange(3.0)
    assert [cached((a, 0.0), make), cached((a.copy(), 0.0), make)] == [0, 0]
    assert cached((a.astype(np.float32), 0.0), make) == 1
    assert cached((a, 1.0), make) == 2
    assert cached((a[:2], 1.0), make) == 3


def test_the_cpu_goes_the_ordinary_way():
    assert not FusedScores.usable(torch.zeros(3, 2))
    assert not FusedScores.usable(np.zeros((3, 2), dtype=np.float32))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernels(shape, monkeypatch):
    hasher, X = fitted(*shape)
    monkeypatch.setattr(fused, "BATCH_NUMBERS", 64 * 2000)  # in several batches
    there = torch.asarray(X).cuda()
    parts = parts_of(hasher)
    assert (np.abs(parts(there).values.cpu().numpy() - hasher.project(X)) < parts.doubt).all()
    np.testing.assert_array_equal(hasher.transform(there).cpu().numpy(), hasher.transform(X))
