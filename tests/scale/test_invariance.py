"""The code of a row is the same whichever way the row comes: array, batches, Parquet, Dask, torch."""

import numpy as np
import pytest
from hostile import hostile_rows
from scale.exact import hasher, rows

from shorthash import make_hasher
from shorthash.codes.signs import pack
from shorthash.data import streams
from shorthash.scale import BatchStream, encode_to_file

X, y = rows()


@pytest.fixture(scope="module", params=["rslh", "auto"])
def encoder(request):
    if request.param == "auto":
        return make_hasher("auto", 6, random_state=0).fit(X[:600], y[:600])
    return hasher().fit(X, y)


@pytest.fixture(scope="module")
def mixed(encoder):
    """Rows, some of them at the boundary between two codes, and their codes."""
    Z = np.random.default_rng(0).permutation(np.concatenate([X[:300], hostile_rows(encoder, X[:400], 40)]))
    return Z, pack(encoder.transform(Z))


@pytest.mark.parametrize("size", [1, 7, 64])
def test_batches_written_to_a_file(encoder, mixed, size, tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK_ROWS", size)
    Z, codes = mixed
    source = BatchStream(lambda: (Z[i : i + size] for i in range(0, len(Z), size)))
    encode_to_file(encoder, source, tmp_path / "codes.npy")
    assert np.count_nonzero(np.load(tmp_path / "codes.npy") != codes) == 0


def test_parquet(encoder, mixed, tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    monkeypatch.setattr(streams, "BLOCK_ROWS", 50)
    Z, codes = mixed
    table = pyarrow.table({f"x{j}": Z[:, j] for j in range(Z.shape[1])})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=33)
    encode_to_file(encoder, tmp_path / "rows.parquet", tmp_path / "codes.parquet")
    found = parquet.read_table(tmp_path / "codes.parquet")["code"].to_numpy()
    assert np.count_nonzero(found != codes) == 0


@pytest.mark.parametrize("size", [7, 64, 2000])
def test_dask(encoder, mixed, size):
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    Z, codes = mixed
    found = encoder.transform(da.from_array(Z, chunks=(size, 5))).compute(scheduler="threads")
    assert np.count_nonzero(pack(found) != codes) == 0


def test_torch(encoder, mixed):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    Z, codes = mixed
    for size in (7, 64, 2000):
        parts = [encoder.transform(torch.asarray(Z[i : i + size])).numpy() for i in range(0, len(Z), size)]
        assert np.count_nonzero(pack(np.concatenate(parts)) != codes) == 0
