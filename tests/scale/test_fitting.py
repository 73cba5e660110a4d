"""Streams of every kind give the hasher that all rows at once give, broken off or not."""

import os
import signal
import sys
import textwrap

import numpy as np
import pytest
from processes import run
from scale.exact import assert_same, hasher, rows

from shorthash.data import streams
from shorthash.errors import CollisionWarning, GuardWarning, InvalidInput, NoLabels
from shorthash.kernels.rbf import AnchorRBF
from shorthash.learners.rslh.estimator import RSLH
from shorthash.scale import ArrayStream, BatchStream, collect, fit_collected, fit_stream, load_collected

pyarrow = pytest.importorskip("pyarrow", reason="streams of tables need pyarrow")
import pyarrow.parquet as parquet  # noqa: E402

X, y = rows()


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Many blocks, whatever the number of rows."""
    monkeypatch.setattr(streams, "BLOCK_ROWS", 500)


@pytest.fixture(scope="module")
def in_memory():
    return hasher().fit(X, y)


@pytest.fixture
def table(tmp_path):
    columns = {f"x{j}": X[:, j] for j in range(X.shape[1])}
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({**columns, "label": y}), path, row_group_size=333)
    return path


def batches(size=170):
    return lambda: ((X[i : i + size], y[i : i + size]) for i in range(0, len(X), size))


def test_an_array(in_memory):
    assert_same(in_memory, hasher().fit(ArrayStream(X, y)), X)
    assert_same(in_memory, fit_stream(hasher(), X, y), X)


def test_a_memory_map_and_a_file(in_memory, tmp_path):
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    assert_same(in_memory, fit_stream(hasher(), tmp_path / "X.npy", tmp_path / "y.npy"), X)
    assert_same(in_memory, fit_stream(hasher(), np.load(tmp_path / "X.npy", mmap_mode="r"), y), X)


def test_a_parquet_file(in_memory, table):
    assert_same(in_memory, fit_stream(hasher(), table, label="label"), X)


def test_a_folder_of_files_with_vectors_in_one_column(in_memory, tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(X)), 3)):
        vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(X[part].ravel()), X.shape[1])
        names = pyarrow.array([f"class {c}" for c in y[part]]).dictionary_encode()
        parquet.write_table(pyarrow.table({"vector": vectors, "name": names}), folder / f"{number}.parquet")
    fitted = fit_stream(hasher(), folder, label="name")
    assert fitted[-1].classes_.tolist() == [f"class {c}" for c in range(6)]
    assert_same(hasher().fit(X, np.array([f"class {c}" for c in y])), fitted, X)


@pytest.mark.parametrize("size", [1, 170, 1234])
def test_batches_of_any_size(in_memory, size):
    if size == 1:
        few = slice(0, 300)
        one_by_one = BatchStream(lambda: ((X[i : i + 1], y[i : i + 1]) for i in range(300)))
        assert_same(hasher().fit(X[few], y[few]), fit_stream(hasher(), one_by_one), X)
    else:
        assert_same(in_memory, fit_stream(hasher(), batches(size)), X)


def test_batches_that_come_once_need_a_fitted_kernel(in_memory):
    with pytest.raises(InvalidInput, match="read only once cannot be counted"):
        fit_stream(hasher(), batches()())
    prepared = hasher()
    prepared[0].fit(X)
    assert_same(in_memory, fit_stream(prepared, batches()(), keep_kernel=True), X)


@pytest.mark.parametrize("method", ["nsh", "hcsdh", "sumeaph"])
def test_other_learners_of_sums(method):
    assert_same(hasher(method).fit(X, y), fit_stream(hasher(method), batches()), X)


def test_rows_as_they_come():
    centred = X - X.mean(axis=0)
    one, other = RSLH(6, random_state=0).fit(centred, y), RSLH(6, random_state=0).fit_stream(ArrayStream(centred, y))
    np.testing.assert_allclose(one.projection_, other.projection_, rtol=1e-8, atol=1e-12)
    collected = collect(ArrayStream(centred, y))
    again = fit_collected(RSLH(6, random_state=0), collected)
    np.testing.assert_allclose(one.projection_, again.projection_, rtol=1e-8, atol=1e-12)


@pytest.mark.filterwarnings("ignore::shorthash.errors.GuardWarning")
def test_several_labels(tmp_path):
    Y = (np.random.default_rng(1).random((len(X), 4)) < 0.4).astype(int)
    Y[Y.sum(axis=1) == 0, 0] = 1
    fitted = fit_stream(hasher(), X, Y)
    assert_same(hasher().fit(X, Y), fitted, X)
    columns = {f"x{j}": X[:, j] for j in range(X.shape[1])} | {f"is{j}": Y[:, j] for j in range(4)}
    parquet.write_table(pyarrow.table(columns), tmp_path / "many.parquet")
    named = fit_stream(hasher(), tmp_path / "many.parquet", label=[f"is{j}" for j in range(4)])
    assert_same(fitted, named, X)


def test_rows_without_label_can_be_dropped():
    Y = np.eye(6, dtype=int)[y]
    Y[::10] = 0
    with pytest.raises(InvalidInput, match="all-zero rows"):
        fit_stream(hasher(), X, Y)
    kind = hasher().set_params(hasher__drop_unlabelled=True)
    assert fit_stream(kind, X, Y)[-1].n_dropped_ == 300


def test_classes_may_first_occur_in_late_blocks(in_memory):
    order = np.argsort(y, kind="stable")  # every block knows one or two classes only
    assert_same(hasher().fit(X[order], y[order]), fit_stream(hasher(), X[order], y[order]), X)


def test_reading_is_resumed_after_a_checkpoint(tmp_path, table):
    place = tmp_path / "sums"
    reports = []

    def progress(what, done, total):
        reports.append((what, done, total))
        if done == 1500 and what.startswith("adding"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_stream(hasher(), X, y, checkpoint=place, checkpoint_seconds=0, progress=progress)
    assert reports[0] == ("drawing anchors", 0, 0)
    assert reports[-1][1:] == (1500, 3000)
    assert "rows/s" in reports[-1][0]
    assert load_collected(place).n_rows == 1000  # the block that was lost is read again
    resumed = fit_stream(hasher(), X, y, checkpoint=place)
    assert not place.exists()
    np.testing.assert_array_equal(resumed[-1].projection_, fit_stream(hasher(), X, y)[-1].projection_)


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    place = tmp_path / "sums"
    stop = iter([False, False, True])

    def progress(_what, done, _total):
        if done and next(stop):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_stream(hasher(), X, y, checkpoint=place, checkpoint_seconds=0, progress=progress)
    with pytest.raises(InvalidInput, match="belongs to other rows"):
        fit_stream(hasher(), X[:-1], y[:-1], checkpoint=place)
    with pytest.raises(InvalidInput, match="another kernel"):
        fit_stream(hasher(n_anchors=30), X, y, checkpoint=place)


KILLED = """
import os, signal, sys
import numpy as np
from scale.exact import hasher
from shorthash.data import streams
from shorthash.scale import fit_stream
streams.BLOCK_ROWS = 500
folder = sys.argv[1]
def progress(what, done, total):
    if done == 1500 and what.startswith("adding"):
        os.kill(os.getpid(), signal.SIGKILL)
options = {"checkpoint": folder + "/sums", "checkpoint_seconds": 0, "progress": progress}
fit_stream(hasher(), folder + "/X.npy", folder + "/y.npy", **options)
"""


def test_a_killed_process_is_resumed(tmp_path):
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    paths = os.pathsep.join(sys.path)
    done = run(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
        capture_output=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert 0 < load_collected(tmp_path / "sums").n_rows < len(X)
    resumed = fit_stream(hasher(), X, y, checkpoint=tmp_path / "sums")
    np.testing.assert_array_equal(resumed[-1].projection_, fit_stream(hasher(), X, y)[-1].projection_)


@pytest.mark.parametrize("method", ["ksh", "sdh", "pcaitq"])
def test_learners_that_need_all_rows_are_refused(method):
    from shorthash import make_hasher

    with pytest.raises(InvalidInput, match=r"needs all its rows at once.*sumeaph, rslh, nsh, hcsdh"):
        fit_stream(make_hasher(method, 4), X, y)
    with pytest.raises(InvalidInput, match="needs a pipeline of AnchorRBF and a learner of sums"):
        make_hasher(method, 4).fit(ArrayStream(X, y))


def test_errors():
    with pytest.raises(InvalidInput, match="hold 1 label set only"):
        fit_stream(hasher(), X, np.zeros(len(X), dtype=int))
    with pytest.raises(InvalidInput, match="learns from labels, but the stream has none"):
        fit_stream(hasher(), X)
    bad = X.copy()
    bad[1700, 3] = np.nan
    with pytest.raises(InvalidInput, match=r"NaN \(first at row 1700, column 3\)"):
        fit_stream(hasher(bandwidth=3.0), bad, y)
    with pytest.raises(InvalidInput, match="All 40 rows drawn as anchors"):
        fit_stream(hasher(), np.ones((500, 3)), np.arange(500) % 2)
    with pytest.warns(CollisionWarning, match="6 classes cannot all have different codes"):
        fit_stream(hasher().set_params(hasher__n_bits=2), X, y)
    with pytest.raises(InvalidInput, match="Labels must be of one type throughout"):
        fit_stream(hasher(), lambda: iter([(X[:900], y[:900]), (X[900:], y[900:].astype(str))]))


def test_a_failed_fit_leaves_the_fitted_hasher_alone():
    fitted = hasher().fit(X, y)
    before = fitted[0].anchors_.copy()
    with pytest.raises(InvalidInput, match=r"one label set|hold 1 label set"):
        fitted.fit(ArrayStream(X, np.zeros(len(X), dtype=int)))
    with pytest.raises(InvalidInput, match="hold 1 label set"):
        fit_stream(fitted, X, np.zeros(len(X), dtype=int))
    np.testing.assert_array_equal(fitted[0].anchors_, before)
    assert fitted.transform(X).shape == (3000, 6)


def test_the_guard_warns_when_rows_are_not_available():
    unsafe = hasher().set_params(hasher__beta=1e3, hasher__mu=1e3)
    with pytest.warns(GuardWarning, match="cannot prove its codes"):
        fit_stream(unsafe, X, y)


def test_the_kernel_may_be_fitted_on_a_sample():
    front = AnchorRBF(40, random_state=3).fit(X[:200])
    collected = collect(ArrayStream(X, y), front)
    np.testing.assert_array_equal(collected.kernel.anchors_, front.anchors_)
    fitted = fit_collected(hasher(), collected)
    assert fitted[-1].n_samples_seen_ == len(X)
    with pytest.raises(InvalidInput, match="12 features per row, but the kernel was fitted on 5"):
        collect(ArrayStream(X, y), AnchorRBF(5, random_state=0).fit(X[:200, :5]))


def test_blocks_without_any_label_are_left_out(tmp_path):
    some = np.where(np.arange(len(y)) < len(y) // 2, -1, y)
    kept = some >= 0
    kernel = hasher()[0].fit(X)
    saving = {"checkpoint": tmp_path / "sums", "checkpoint_seconds": 0.0}
    for order in (slice(None), slice(None, None, -1)):
        collected = collect(ArrayStream(X[order], some[order]), kernel, drop_unlabelled=-1, **saving)
        whole = collect(ArrayStream(X[kept], y[kept]), kernel)
        assert collected.sums.n_samples == kept.sum()
        np.testing.assert_allclose(collected.sums.gram, whole.sums.gram, rtol=1e-9, atol=1e-9)
        (tmp_path / "sums").unlink(missing_ok=True)
    with pytest.raises(NoLabels, match="has a label; give labels to learn from"):
        collect(ArrayStream(X, np.full(len(y), -1)), kernel, drop_unlabelled=-1)
