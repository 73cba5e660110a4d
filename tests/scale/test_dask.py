"""Dask collections give the hasher that all rows at once give, whoever computes the blocks, and however often."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from scale.exact import assert_same, hasher, rows

from shorthash import BucketIndex, evaluate
from shorthash.data.streams import as_stream
from shorthash.errors import InvalidInput
from shorthash.learners.rslh.estimator import RSLH
from shorthash.scale import bucket_index, code_histogram, collect, evaluate_collection, fit_collected, fit_stream

dask = pytest.importorskip("dask", reason="dask is not installed")
da = pytest.importorskip("dask.array", reason="dask is not installed")
dd = pytest.importorskip("dask.dataframe", reason="dask is not installed")
pd = pytest.importorskip("pandas", reason="pandas is not installed")


X, y = rows()
DX, DY = da.from_array(X, chunks=(430, 5)), da.from_array(y, chunks=700)


@pytest.fixture(scope="module")
def in_memory():
    return hasher().fit(X, y)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_arrays(in_memory, scheduler):
    with dask.config.set(scheduler=scheduler):
        fitted = hasher().fit(DX, DY)
        assert_same(in_memory, fitted, X)
        codes, scores = fitted.transform(DX), fitted.project(DX)
        assert (codes.dtype, codes.shape, codes.chunks[0]) == (np.int8, (3000, 6), DX.chunks[0])
        np.testing.assert_array_equal(codes.compute(), fitted.transform(X))
        np.testing.assert_allclose(scores.compute(), fitted.project(X), rtol=1e-12)


def test_data_frames(in_memory):
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(12)]).assign(label=y)
    parts = dd.from_pandas(frame, npartitions=5)
    features = parts.drop(columns="label")
    assert_same(in_memory, hasher().fit(parts, "label"), X)
    fitted = hasher().fit(features, parts["label"])
    assert_same(in_memory, fitted, X)
    np.testing.assert_array_equal(fitted.transform(features).compute(), in_memory.transform(X))


def test_blocks_of_unknown_length(in_memory):
    kept = da.from_array(np.arange(3000) % 1000 < 900, chunks=430)
    some = DX[kept]
    mask = kept.compute()
    assert np.isnan(some.shape[0])
    assert_same(hasher().fit(X[mask], y[mask]), hasher().fit(some, da.from_array(y, chunks=430)[kept]), X)


def test_labels_in_memory_and_other_ways_in(in_memory):
    assert_same(in_memory, hasher().fit(DX, y), X)
    assert_same(in_memory, fit_stream(hasher(), DX, DY), X)
    collected = collect(as_stream(DX, DY))
    assert collected.n_rows == 3000
    assert fit_collected(RSLH(6, random_state=0), collected).projection_.shape == (12, 6)


def test_a_learner_alone():
    centred = X - X.mean(axis=0)
    collection = da.from_array(centred, chunks=(430, 12))
    in_numpy, on_dask = RSLH(6, random_state=0).fit(centred, y), RSLH(6, random_state=0).fit(collection, DY)
    np.testing.assert_allclose(on_dask.projection_, in_numpy.projection_, rtol=1e-8, atol=1e-12)
    codes, scores = on_dask.transform(collection), on_dask.project(collection)
    assert isinstance(codes, da.Array)
    np.testing.assert_array_equal(codes.compute(), in_numpy.transform(centred))
    np.testing.assert_allclose(scores.compute(), in_numpy.project(centred), rtol=1e-8, atol=1e-10)


def test_blocks_can_be_read_here():
    stream = as_stream(DX, DY)
    np.testing.assert_array_equal(np.concatenate([block.X for block in stream.blocks()]), X)
    assert [block.first for block in stream.blocks(1000)] == [1290, 1720, 2150, 2580]
    np.testing.assert_array_equal(stream.take(np.array([2999, 5])), X[[5, 2999]])


def test_several_labels():
    Y = np.eye(6, dtype=int)[y] | np.eye(6, dtype=int)[(y + (X[:, 0] > 0)) % 6]
    assert_same(hasher().fit(X, Y), hasher().fit(DX, da.from_array(Y, chunks=(500, 2))), X)


def test_errors():
    with pytest.raises(InvalidInput, match="X has 3000 rows and y has 2999"):
        hasher().fit(DX, DY[1:])
    with pytest.raises(InvalidInput, match="2 dimensions"):
        hasher().fit(DX[:, 0], DY)
    with pytest.raises(InvalidInput, match="takes no checkpoint"):
        fit_stream(hasher(), DX, DY, checkpoint="sums")
    with pytest.raises(InvalidInput, match="NaN"):
        hasher().fit(da.where(DX > 1, np.nan, DX), DY)


def test_codes_are_scored_where_they_are(in_memory):
    codes = in_memory.transform(DX)
    queries = in_memory.transform(X[:50])
    on_dask = evaluate_collection(queries, y[:50], codes, DY, k=[10])
    in_numpy = evaluate(queries, y[:50], in_memory.transform(X), y, k=[10])
    assert on_dask.to_dict() == in_numpy.to_dict()
    histogram = code_histogram(codes, pd.Series(y))
    assert histogram.n_items == 3000
    with pytest.raises(InvalidInput, match="X has 3000 rows and y has 2999; give one label per row"):
        code_histogram(codes, DY[:-1])


def test_an_index_of_all(in_memory):
    codes = in_memory.transform(DX)
    on_dask, in_numpy = bucket_index(codes), BucketIndex(6).add(in_memory.transform(X))
    np.testing.assert_array_equal(on_dask.codes, in_numpy.codes)
    np.testing.assert_array_equal(
        on_dask.search(codes[:3].compute(), 5).ids, in_numpy.search(codes[:3].compute(), 5).ids
    )


def _block(block, marker=None):
    """Rows as they are; the worker that first gets in_numpy dies."""
    if marker is not None and block.size:
        try:
            Path(marker).touch(exist_ok=False)
        except FileExistsError:
            return block
        os.kill(os.getpid(), signal.SIGKILL)
    return block


@pytest.mark.slow
def test_two_worker_processes_one_of_them_killed(in_memory, tmp_path, forked_workers):
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    marker = tmp_path / "killed"
    doomed = da.concatenate(
        [DX[:2150], DX[2150:].map_blocks(_block, marker=str(marker), meta=np.empty((0, 0), np.float32))]
    )
    front = hasher()
    front[0].fit(X)
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 5, "distributed.worker.daemon": True}),
        distributed.LocalCluster(**options, silence_logs=50) as cluster,
        distributed.Client(cluster),
    ):
        front.fit_stream(as_stream(doomed, DY), keep_kernel=True)
        codes = front.transform(DX).compute()
    assert marker.exists()
    assert_same(in_memory, front, X)
    np.testing.assert_array_equal(codes, in_memory.transform(X))
