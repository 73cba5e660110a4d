"""Streams: every kind gives the same rows; what becomes a stream; errors."""

import pickle

import numpy as np
import pytest

from shorthash.data import streams
from shorthash.data.streams import ArrayStream, BatchStream, Stream, as_stream
from shorthash.data.tables import TableStream
from shorthash.errors import DataFileError, InvalidInput

pyarrow = pytest.importorskip("pyarrow", reason="streams of tables need pyarrow")
import pyarrow.feather as feather  # noqa: E402
import pyarrow.parquet as parquet  # noqa: E402

X = np.arange(200.0).reshape(50, 4)
y = np.arange(50) % 3


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(streams, "BLOCK_ROWS", 8)


def table(**more):
    return pyarrow.table({**{f"x{j}": X[:, j] for j in range(4)}, **more})


@pytest.fixture
def file(tmp_path):
    parquet.write_table(table(label=y), tmp_path / "rows.parquet", row_group_size=7)
    return tmp_path / "rows.parquet"


def batches(size=3):
    return [(X[i : i + size], y[i : i + size]) for i in range(0, 50, size)]


def all_streams(file):
    return {
        "array": ArrayStream(X, y),
        "batches": BatchStream(batches()),
        "function": BatchStream(lambda: iter(batches(11))),
        "table": TableStream(file, label="label"),
        "dataset": TableStream(pyarrow.dataset.dataset(file), label="label"),
    }


@pytest.mark.parametrize("kind", ["array", "batches", "function", "table", "dataset"])
def test_every_stream_gives_the_same_rows(file, kind):
    stream = all_streams(file)[kind]
    assert isinstance(stream, Stream)
    assert (len(stream), stream.n_columns) == (50, 4)
    blocks = list(stream.blocks())
    assert min(len(block.X) for block in blocks[:-1]) >= 8
    np.testing.assert_array_equal(np.concatenate([block.X for block in blocks]), X)
    np.testing.assert_array_equal(np.concatenate([block.y for block in blocks]), y)
    assert [block.first for block in blocks] == np.cumsum([0, *(len(b.X) for b in blocks[:-1])]).tolist()
    np.testing.assert_array_equal(stream.take(np.array([49, 0, 17, 8])), X[[0, 8, 17, 49]])


@pytest.mark.parametrize("kind", ["array", "batches", "function", "table"])
def test_reading_can_start_at_any_row(file, kind):
    stream = all_streams(file)[kind]
    blocks = list(stream.blocks())
    for done in range(1, len(blocks)):
        rest = list(stream.blocks(blocks[done].first))
        assert [block.first for block in rest] == [block.first for block in blocks[done:]]
        np.testing.assert_array_equal(np.concatenate([b.X for b in rest]), X[blocks[done].first :])
    inside = list(stream.blocks(5))
    np.testing.assert_array_equal(np.concatenate([b.y for b in inside]), y[5:])


def test_totals_and_maps():
    stream = ArrayStream(X, y)
    assert stream.total(lambda block: block.X.sum(), lambda a, b: a + b) == X.sum()
    np.testing.assert_array_equal(stream.mapped(lambda rows: rows[:, :2] > 9, 2, bool), X[:, :2] > 9)
    with pytest.raises(InvalidInput, match="no rows"):
        ArrayStream(X[:0], y[:0]).total(len, max)


def test_arrow_and_feather_files(tmp_path):
    feather.write_feather(table(label=y), tmp_path / "rows.feather", chunksize=9)
    with (
        pyarrow.OSFile(str(tmp_path / "rows.arrow"), "wb") as sink,
        pyarrow.ipc.new_file(sink, table().schema) as writer,
    ):
        writer.write_table(table(), max_chunksize=6)
    for stream in (as_stream(tmp_path / "rows.feather", label="label"), as_stream(tmp_path / "rows.arrow", y)):
        assert len(stream) == 50
        np.testing.assert_array_equal(np.concatenate([block.X for block in stream.blocks()]), X)
        np.testing.assert_array_equal(np.concatenate([block.y for block in stream.blocks()]), y)


def test_columns_of_lists(tmp_path):
    vectors = pyarrow.array(X.tolist())
    marks = pyarrow.array(np.eye(3, dtype=int)[y].tolist())
    parquet.write_table(pyarrow.table({"v": vectors, "mark": marks}), tmp_path / "lists.parquet")
    stream = as_stream(tmp_path / "lists.parquet", label="mark")
    assert stream.n_columns == 4
    block = next(stream.blocks())
    np.testing.assert_array_equal(block.X[:8], X[:8])
    np.testing.assert_array_equal(block.y[:8], np.eye(3)[y[:8]])
    np.testing.assert_array_equal(stream.take(np.array([3, 30])), X[[3, 30]])
    uneven = pyarrow.array([[1.0, 2.0], [1.0]])
    parquet.write_table(pyarrow.table({"v": uneven}), tmp_path / "uneven.parquet")
    with pytest.raises(DataFileError, match="2 numbers in every row"):
        list(as_stream(tmp_path / "uneven.parquet").blocks())


def test_a_stream_of_tables_can_be_pickled(file):
    again = pickle.loads(pickle.dumps(TableStream(file, label="label")))
    np.testing.assert_array_equal(again.take(np.array([4])), X[[4]])


def test_what_becomes_a_stream(tmp_path, file):
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    np.savez(tmp_path / "both.npz", X=X, y=y)
    known = as_stream(X, y)
    assert as_stream(known) is known
    for stream in (
        as_stream(X.tolist(), y),
        as_stream(X.tolist()),
        as_stream(tmp_path / "X.npy", tmp_path / "y.npy"),
        as_stream(str(tmp_path / "both.npz"), tmp_path / "both.npz"),
        as_stream(file, label="label"),
        as_stream(batches()),
        as_stream(lambda: iter(batches())),
    ):
        np.testing.assert_array_equal(np.concatenate([block.X for block in stream.blocks()]), X)


def test_batches_that_come_once():
    stream = BatchStream(iter(batches()))
    assert stream.n_columns == 4
    np.testing.assert_array_equal(np.concatenate([block.X for block in stream.blocks()]), X)
    assert len(stream) == 50  # it has been counted on the way
    with pytest.raises(InvalidInput, match="cannot be read a second time"):
        list(stream.blocks())
    with pytest.raises(InvalidInput, match="cannot be sampled"):
        BatchStream(iter(batches())).take(np.array([0]))


def test_errors_of_batches():
    with pytest.raises(InvalidInput, match="should have 51 rows, but 50 were read"):
        list(BatchStream(batches(), n_rows=51).blocks())
    with pytest.raises(InvalidInput, match=r"must have 4 features, like the first. Got 2 in the batch of row 30"):
        list(BatchStream([X[:30], X[30:, :2]]).blocks())
    with pytest.raises(InvalidInput, match=r"needs one label per row. Got 2"):
        list(BatchStream([(X, y[:2])]).blocks())
    with pytest.raises(InvalidInput, match=r"\(n_rows, n_columns\)"):
        list(BatchStream([X[0]]).blocks())
    with pytest.raises(InvalidInput, match="no batches"):
        BatchStream([]).n_columns  # noqa: B018
    with pytest.raises(InvalidInput, match="contain their labels"):
        as_stream(lambda: iter(batches()), y)


def test_errors_of_arrays_and_tables(tmp_path, file):
    with pytest.raises(InvalidInput, match=r"50 rows needs one label per row. Got 3"):
        ArrayStream(X, y[:3])
    with pytest.raises(InvalidInput, match=r"\(n_rows, n_columns\)"):
        ArrayStream(y)
    with pytest.raises(InvalidInput, match="Only a table has columns with names"):
        as_stream(X, label="label")
    with pytest.raises(DataFileError, match="There is no file or folder"):
        as_stream(tmp_path / "none.parquet")
    with pytest.raises(DataFileError, match=r"no column 'mark'; it has x0, x1, x2, x3, label"):
        as_stream(file, label="mark")
    with pytest.raises(InvalidInput, match="50 rows, but there are 3 labels"):
        TableStream(file, y=y[:3])
    with pytest.raises(InvalidInput, match="from a column or from an array"):
        TableStream(file, label="label", y=y)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataFileError, match="must hold files of one kind"):
        as_stream(tmp_path / "empty")
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(DataFileError, match="not a readable table"):
        as_stream(tmp_path / "text.parquet")
    parquet.write_table(table(name=[str(i) for i in range(50)]), tmp_path / "words.parquet")
    with pytest.raises(DataFileError, match="column 'name' holds string, but features must be numbers"):
        as_stream(tmp_path / "words.parquet")
    parquet.write_table(table()[:0], tmp_path / "bare.parquet")
    with pytest.raises(DataFileError, match="holds no rows"):
        as_stream(tmp_path / "bare.parquet")
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(InvalidInput, match=r"is not a table of \.parquet.*, so it has no column 'label'"):
        as_stream(tmp_path / "X.npy", label="label")


def test_missing_numbers_are_found(tmp_path):
    columns = {"a": pyarrow.array([1.0, None, 3.0]), "b": pyarrow.array([1.0, 2.0, 3.0])}
    parquet.write_table(pyarrow.table(columns), tmp_path / "gaps.parquet")
    block = next(as_stream(tmp_path / "gaps.parquet").blocks())
    assert np.isnan(block.X[1, 0])


@pytest.mark.parametrize("first", [True, False])
def test_batches_with_and_without_labels_do_not_mix(first):
    X, y = np.ones((4, 2)), np.zeros(4)
    batches = [(X, y if first else None), (X, None if first else y)]
    with pytest.raises(InvalidInput, match=r"all batches of a stream have labels, or none has.*row 4 and (some|none)"):
        list(BatchStream(batches).blocks())
