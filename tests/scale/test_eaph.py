"""EAPH on more rows than it holds in memory: any kind of stream gives what an array gives."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from shorthash import _labels, make_hasher
from shorthash.codes.levels import leave_one_out_map
from shorthash.data import streams
from shorthash.errors import InvalidInput, NoLabels
from shorthash.learners.eaph import estimator, refinement
from shorthash.learners.posteriors import sampling, streamed
from shorthash.learners.posteriors.logistic import minimise
from shorthash.learners.sums import BlockSums, GroupStatistics
from shorthash.scale import ArrayStream, BatchStream, fit_stream

N_CLASSES = 12
BLOCK = 400


@pytest.fixture(scope="module", autouse=True)
def _small():
    """Everything large at a thousand rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimator, "FOLDED_ROWS", 500)
        patch.setattr(sampling, "HELD_OUT", 200)
        patch.setattr(sampling, "PATH_ROWS", 300)
        patch.setattr(streams, "BLOCK_ROWS", BLOCK)
        yield


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = rng.integers(N_CLASSES, size=1200)
    X = rng.normal(size=(N_CLASSES, 8))[y] + rng.normal(size=(1200, 8))
    return X.astype(np.float32), y


@pytest.fixture(scope="module")
def whole(_small, rows):
    """A hasher fitted to the rows as an array."""
    return hasher().fit(*rows)


def hasher(**parameters):
    return make_hasher("auto", 5, random_state=0, **parameters)


def batches(X, y, size=BLOCK // 4):
    return lambda: ((X[i : i + size], y[i : i + size]) for i in range(0, len(X), size))


def assert_same(one, two, X):
    """Blocks of the same rows give the same model."""
    assert np.array_equal(one[-1].table_, two[-1].table_)
    assert np.array_equal(one.transform(X), two.transform(X))


def assert_as_good(one, two, X, y):
    """Blocks that are cut in another way, or sums on another device, give a model that is as good."""
    assert abs(one.score(X, y) - two.score(X, y)) < 0.02
    assert abs(one[-1].posterior_loss_ - two[-1].posterior_loss_) < 0.01


def test_streams_give_what_an_array_gives(rows, whole, tmp_path):
    X, y = rows
    assert 100 < len(whole[-1].oof_rows_) <= 200
    assert whole.score(X, y) > hasher().fit(X[:200], y[:200]).score(X, y)  # more rows are worth something
    assert_same(whole, hasher().fit(ArrayStream(X, y)), X)
    assert_same(whole, fit_stream(hasher(), BatchStream(batches(X, y))), X)
    assert_as_good(whole, fit_stream(hasher(), BatchStream(batches(X, y, 170))), X, y)
    np.save(tmp_path / "X.npy", X)
    assert_same(whole, fit_stream(hasher(), tmp_path / "X.npy", y), X)


def test_a_parquet_file(rows, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    X, y = rows
    names = np.array([f"class {k:02}" for k in range(N_CLASSES)])[y]
    table = pyarrow.table({**{f"x{j}": X[:, j] for j in range(X.shape[1])}, "label": names})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=BLOCK // 2)
    found = fit_stream(hasher(), tmp_path / "rows.parquet", label="label")
    assert_same(hasher().fit(X, names), found, X)


def test_a_dask_array(rows, whole):
    array = pytest.importorskip("dask.array")
    X, y = rows
    found = hasher().fit(array.from_array(X, chunks=(350, 8)), array.from_array(y, chunks=350))
    assert_as_good(whole, found, X, y)


def test_tensors(rows, whole):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    X, y = rows
    found = hasher().fit(torch.asarray(X.copy()), torch.asarray(y.copy()))
    assert_as_good(whole, found, X, y)
    codes = found.transform(torch.asarray(X.copy()))
    assert isinstance(codes, torch.Tensor)
    assert np.array_equal(codes.numpy(), found.transform(X))
    assert np.allclose(found.project(torch.asarray(X[:50].copy())), found.project(X[:50]))


def test_labels_go_where_the_rows_are(rows):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    X, y = rows
    sets = np.eye(len(np.unique(y)), dtype=np.uint8)
    labelling = sampling.Labelling("EAPH", np.unique(y), sets, sets, np.arange(len(sets)))
    _, ids, _ = labelling(streams.Block(0, torch.asarray(X.copy()), y))
    assert isinstance(ids, torch.Tensor)
    assert np.array_equal(ids.numpy(), np.unique(y, return_inverse=True)[1])


def test_the_table_is_refined_where_the_rows_are(rows, monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    X, y = rows
    refine, kinds = refinement.refine_table, []

    def spy(P, *rest):
        kinds.append(type(P))
        return refine(P, *rest)

    monkeypatch.setattr(refinement, "ROWS_PER_CLASS", 5)
    monkeypatch.setattr(refinement, "refine_table", spy)
    here, there = hasher().fit(X, y), hasher().fit(torch.asarray(X.copy()), torch.asarray(y.copy()))
    assert set(kinds) == {np.ndarray, torch.Tensor}
    assert there[-1].expected_map_ == pytest.approx(here[-1].expected_map_, abs=0.02)


def test_a_short_stream_is_read_into_memory(rows):
    X, y = rows
    found = fit_stream(hasher(), BatchStream(batches(X[:400], y[:400])))
    assert np.array_equal(found[-1].table_, hasher().fit(X[:400], y[:400])[-1].table_)


def test_a_long_stream_of_few_labels_is_read_into_memory(rows):
    X, y = rows
    Y = np.eye(N_CLASSES, dtype=int)[y]
    Y[::2] = 0
    Y[::3] = 0
    found, some = hasher(drop_unlabelled=True).fit(X, Y), Y.any(axis=1)
    assert some.sum() == 400
    assert found[-1].n_dropped_ == 800
    alone = hasher().fit(X[some], Y[some])[-1]
    assert np.array_equal(found[-1].table_, alone.table_)
    assert np.array_equal(found[-1].oof_rows_, np.flatnonzero(some)[alone.oof_rows_])
    assert hasher(drop_unlabelled=True, posterior="combo").fit(X, Y)[-1].n_dropped_ == 800


def test_what_is_remembered_are_rows_with_labels(rows, monkeypatch):
    X, y = rows
    monkeypatch.setattr(estimator, "MOST_REMEMBERED", 1000)
    Y = np.eye(N_CLASSES, dtype=int)[y]
    Y[::3] = 0
    assert len(hasher(drop_unlabelled=True).fit(X, Y)[-1].posterior_.memory.sets) == 800


def test_codes_are_judged_by_labels_as_given(rows, monkeypatch):
    X, y = rows
    Y = (np.random.default_rng(0).random((1200, N_CLASSES)) < 0.2).astype(int)
    Y[np.arange(1200), y] = 1
    monkeypatch.setattr(_labels, "MOST_SETS", 10)
    found = hasher(posterior="logistic").fit(X, Y)[-1]
    held = Y[found.oof_rows_]
    assert len(found.label_sets_) < 20 < len(np.unique(held, axis=0))
    assert found.disjoint_map_ == pytest.approx(leave_one_out_map(found.codes_, held), abs=1e-9)
    assert found.partial_fit(X[:2], Y[:2]).kept_rows_.Y.any(axis=1).all()


def test_several_labels_and_rows_without_any(rows):
    X, y = rows
    Y = np.eye(N_CLASSES, dtype=int)[y]
    Y[:300, 0] = 1
    Y[::10] = 0
    some = Y.any(axis=1)
    found = hasher(drop_unlabelled=True).fit(X, Y)
    assert found[-1].n_dropped_ == 120
    assert len(found[-1].label_sets_) == 2 * N_CLASSES - 1
    alone = hasher(posterior="ridge").fit(X[some], Y[some])
    assert found.score(X[some], Y[some]) > alone.score(X[some], Y[some]) - 0.05
    with pytest.raises(InvalidInput, match="all-zero rows"):
        hasher().fit(X, Y)


@pytest.mark.parametrize("kind", ["array", "dask"])
@pytest.mark.parametrize("n_labelled", [400, 700])  # learned in memory, and from the stream
def test_blocks_without_any_label_are_left_out(rows, n_labelled, kind):
    X, y = rows
    y = np.where(np.arange(1200) < n_labelled, y, -1)
    found, alone = hasher(drop_unlabelled=-1)[-1], hasher()[-1]
    if kind == "dask":
        da = pytest.importorskip("dask.array")
        found.fit(da.from_array(X, chunks=(200, -1)), da.from_array(y, chunks=200))
    else:
        found.fit_stream(ArrayStream(X, y))
    assert found.n_dropped_ == 1200 - n_labelled
    assert found.score(X, rows[1]) > alone.fit(X[:n_labelled], y[:n_labelled]).score(X, rows[1]) - 0.05
    nothing = ArrayStream(X, np.full(1200, -1))
    with pytest.raises(NoLabels, match="has a label; give labels to learn from"):
        found.fit_stream(nothing)


def test_a_classifier_does_not_learn_several_labels_of_few_rows_of_a_stream(rows):
    X, y = rows
    Y = np.eye(N_CLASSES, dtype=int)[y]
    Y[:300, 0], Y[np.arange(1200) % 3 > 0] = 1, 0
    with pytest.raises(InvalidInput, match="A classifier as posterior of EAPH needs one label per row"):
        hasher(posterior=GaussianNB(), drop_unlabelled=True)[-1].fit_stream(ArrayStream(X, Y))


@pytest.mark.parametrize("place", [(5, 2), (1199, 7)])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_values_beyond_single_precision_are_an_error_in_any_block(rows, place, kind):
    as_rows = np.asarray if kind == "numpy" else pytest.importorskip("torch").from_numpy
    X, y = rows[0].astype(np.float64), rows[1]
    X[place] = -1e39
    for learn in (hasher().fit, lambda X, y: hasher()[-1].fit_stream(ArrayStream(X, y))):
        with pytest.raises(InvalidInput, match=r"values up to 1e\+39.*single precision.*scale the features"):
            learn(as_rows(X), y)


def test_a_kernel_is_added_where_it_helps():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 4)).astype(np.float32)
    y = 2 * (X[:, 0] * X[:, 1] > 0) + (X[:, 2] * X[:, 3] > 0)  # no linear model tells these apart
    with_kernel, without = hasher().fit(X, y), hasher(posterior="prototypes").fit(X, y)
    assert with_kernel[-1].report_[0]["posteriors"].endswith("with a kernel, rows remembered")
    other = rng.normal(size=(600, 4))
    labels = 2 * (other[:, 0] * other[:, 1] > 0) + (other[:, 2] * other[:, 3] > 0)
    assert with_kernel.score(other, labels) > without.score(other, labels) + 0.1
    array = pytest.importorskip("dask.array")
    found = hasher().fit(array.from_array(X, chunks=(350, 4)), array.from_array(y, chunks=350))
    assert_as_good(with_kernel, found, X, y)


def test_rare_classes_are_in_the_sample(rows):
    X, y = rows
    y = np.where(np.arange(len(y)) < 1190, y % 3, 7)
    y[:2] = 9
    stream = ArrayStream(X, y)
    seen = stream.total(BlockSums("test"), GroupStatistics.join)
    seen, labelling = sampling.Labelling.of("test", seen)
    sample = sampling.draw_sample(stream, seen, labelling, np.random.RandomState(0))
    assert np.bincount(sample.ids)[-2:].tolist() >= [sampling.FEWEST, 2]
    assert np.array_equal(sample.X, X[sample.numbers])
    assert np.array_equal(seen.classes[sample.ids], y[sample.numbers])
    assert (np.diff(sample.numbers) > 0).all()


@pytest.mark.parametrize(("n_labelled", "expected"), [(600, 600), (1200, 620)])
def test_a_sample_has_as_many_rows_with_labels_where_most_have_none(monkeypatch, n_labelled, expected):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12_000, 3)).astype(np.float32)
    y = np.full(12_000, -1)
    y[rng.permutation(12_000)[:n_labelled]] = np.arange(n_labelled) % N_CLASSES
    drawn = []
    for size in (BLOCK, 777):
        monkeypatch.setattr(streams, "BLOCK_ROWS", size)
        stream = ArrayStream(X, y)
        seen = stream.total(BlockSums("test", None, -1), GroupStatistics.join)
        seen, labelling = sampling.Labelling.of("test", seen, -1)
        drawn.append(sampling.draw_sample(stream, seen, labelling, np.random.RandomState(0)))
    sample = drawn[0]
    assert len(sample.numbers) == expected
    assert np.array_equal(seen.classes[sample.ids], y[sample.numbers])
    assert sample.numbers.mean() == pytest.approx(6000, abs=6 * 12_000 / np.sqrt(12 * expected))
    for name in ("numbers", "X", "ids", "held"):
        np.testing.assert_array_equal(getattr(drawn[1], name), getattr(sample, name))


@pytest.mark.parametrize("scales", [None, 2.0 ** np.arange(-4, 4)], ids=["plain", "scaled"])
def test_passes_minimise_the_loss_of_rows_in_memory(rows, scales):
    X, y = rows
    stream = ArrayStream(X, y)
    seen = stream.total(BlockSums("test"), GroupStatistics.join)
    seen, labelling = sampling.Labelling.of("test", seen)
    held = np.arange(0, 1200, 6)
    left = np.setdiff1d(np.arange(1200), held)
    space = streamed._space(seen, seen.rows, scales)
    passes = streamed.Passes(stream, labelling, held, space)
    target, n = passes.target()
    assert n == len(left)
    Z = space.scaled(X[left])
    sums = np.stack([Z[y[left] == k].sum(axis=0, dtype=np.float64) for k in range(N_CLASSES)], axis=1)
    np.testing.assert_allclose(target.weights, sums / np.linalg.norm(sums, axis=0), rtol=1e-5, atol=1e-6)
    target = replace(target, penalty=0.01)
    model, expected = passes.minimised(target, target, 1e-9), minimise(Z, y[left], target, target, 1e-9)
    largest = np.abs(expected.scores(Z)).max()
    np.testing.assert_allclose(model.scores(Z), expected.scores(Z), atol=0.01 * largest)


def test_columns_of_other_units(rows, whole):
    X, y = rows
    units = (X * 10.0 ** np.array([-3, 3, 0, 0, 4, -2, 0, 2])).astype(np.float32)
    fitted = hasher().fit(units, y)
    assert fitted.score(units, y) > whole.score(X, y) - 0.03
    assert fitted[-1].posterior_loss_ == pytest.approx(whole[-1].posterior_loss_, abs=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"posterior": "ridge"}, "posterior='ridge' of EAPH needs all labelled rows in memory, at most 500"),
        ({"expect_new_classes": True}, "expect_new_classes=True of EAPH needs all labelled rows in memory"),
    ],
)
def test_posteriors_that_need_all_rows(rows, change, message):
    with pytest.raises(InvalidInput, match=message):
        fit_stream(hasher(**change), BatchStream(batches(*rows)))


def test_bad_streams(rows, tmp_path):
    X, y = rows
    with pytest.raises(InvalidInput, match="takes no checkpoint"):
        fit_stream(hasher(), X, y, checkpoint=tmp_path / "sums")
    with pytest.raises(InvalidInput, match="one class only"):
        fit_stream(hasher(), X, np.zeros(len(X)))
    with pytest.raises(InvalidInput, match="rows of X of EAPH are equal"):
        fit_stream(hasher(), np.ones_like(X), y)
    X = X.copy()
    X[700, 3] = np.nan
    with pytest.raises(ValueError, match="row 700, column 3"):
        fit_stream(hasher(), X, y)
    once = ((X[i : i + 100], y[i : i + 100]) for i in range(0, 600, 100))
    with pytest.raises(InvalidInput, match="only once"):
        fit_stream(hasher(), once)
