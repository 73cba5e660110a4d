"""Data sets: checked, found by name, read, scaled, downloaded, and the errors for missing ones."""

import gzip
import hashlib
import re
import threading
from dataclasses import FrozenInstanceError, replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from shorthash.data.datasets import (
    CATALOGUE,
    Dataset,
    Original,
    data_folders,
    dataset_facts,
    default_protocol,
    download,
    fetch,
    file_checksum,
    read_dataset,
)
from shorthash.data.splits import OfficialTest
from shorthash.errors import DataFileError, InvalidInput

X = np.arange(12.0).reshape(4, 3)


@pytest.fixture(autouse=True)
def no_data_here(tmp_path, monkeypatch):
    """Tests see the data files of the machine only if they are marked."""
    monkeypatch.delenv("SHORTHASH_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; understands ranges, and can hang up in the middle."""

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.server.requests.append((self.path, self.headers.get("Range")))
        content = (self.server.folder / self.path.lstrip("/")).read_bytes()
        start = int(re.match(r"bytes=(\d+)-", self.headers.get("Range", "bytes=0-")).group(1))
        if start and start >= len(content):
            self.send_error(416)
            return
        ranged = bool(start) and self.server.ranges
        body = content[start:] if ranged else content
        self.send_response(206 if ranged else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.sent] if self.server.sent else body)


@pytest.fixture
def server(tmp_path):
    """A web server on this machine; ``sent`` bytes of an answer, then it hangs up."""
    folder = tmp_path / "published"
    folder.mkdir()
    served = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    served.folder, served.requests, served.sent, served.ranges = folder, [], 0, True
    thread = threading.Thread(target=served.serve_forever, args=(0.01,))
    thread.start()
    served.url = f"http://127.0.0.1:{served.server_port}"
    yield served
    served.shutdown()
    served.server_close()
    thread.join()


def md5(content):
    return f"md5:{hashlib.md5(content, usedforsecurity=False).hexdigest()}"


def test_download_and_keep(server, tmp_path):
    (server.folder / "a.bin").write_bytes(b"abc" * 1000)
    original = Original(f"{server.url}/a.bin", md5(b"abc" * 1000))
    reports = []
    path = download(original, tmp_path / "here", lambda *report: reports.append(report))
    assert path.read_bytes() == b"abc" * 1000
    assert reports[-1] == ("a.bin", 3000, 3000)
    assert download(original, tmp_path / "here") == path
    assert len(server.requests) == 1, "an existing file is only checked"


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_is_resumed(server, tmp_path, ranges):
    content = bytes(range(256)) * 40
    (server.folder / "a.bin").write_bytes(content)
    original = Original(f"{server.url}/a.bin", md5(content))
    server.sent, server.ranges = 4000, ranges
    with pytest.raises(DataFileError, match=r"cannot be downloaded .*put it at .*a\.bin"):
        download(original, tmp_path)
    assert not (tmp_path / "a.bin").exists()
    server.sent = 0
    assert download(original, tmp_path).read_bytes() == content
    assert server.requests[-1] == ("/a.bin", "bytes=4000-")
    assert not list(tmp_path.glob("*.part"))


def test_a_complete_part_is_taken(server, tmp_path):
    (server.folder / "a.bin").write_bytes(b"whole")
    (tmp_path / "a.bin.part").write_bytes(b"whole")
    assert download(Original(f"{server.url}/a.bin", md5(b"whole")), tmp_path).read_bytes() == b"whole"


def test_a_wrong_checksum(server, tmp_path):
    (server.folder / "a.bin").write_bytes(b"other")
    original = Original(f"{server.url}/a.bin", md5(b"whole"))
    with pytest.raises(DataFileError, match=r"md5 of a\.bin must be .* remove it and fetch it again"):
        download(original, tmp_path)
    assert not list(tmp_path.glob("a.bin*")), "nothing is left that could be taken for it"


def test_an_unknown_checksum_is_stored_and_compared(server, tmp_path):
    (server.folder / "a.bin").write_bytes(b"first")
    original = Original(f"{server.url}/a.bin")
    path = download(original, tmp_path)
    assert (tmp_path / "a.bin.sha256").read_text().strip() == file_checksum(path)
    path.write_bytes(b"changed")
    with pytest.raises(DataFileError, match=r"sha256 of a\.bin must be"):
        download(original, tmp_path)


def test_a_server_that_cannot_be_reached(tmp_path):
    with pytest.raises(DataFileError, match=r"cannot be downloaded .*put it at .* yourself"):
        download(Original("http://127.0.0.1:9/a.bin"), tmp_path)


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + b"".join(int(side).to_bytes(4, "big") for side in array.shape)
    return gzip.compress(head + array.astype(np.uint8).tobytes())


@pytest.fixture
def small_mnist(server, monkeypatch):
    """mnist with three training and two test images, on this machine."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(1, 255, (3, 2, 2)), np.array([4, 1, 2]), rng.integers(1, 255, (2, 2, 2)), np.array([9, 0])]
    originals = []
    for original, array in zip(CATALOGUE["mnist"].originals, arrays, strict=True):
        (server.folder / original.name).write_bytes(idx(array))
        originals.append(Original(f"{server.url}/{original.name}", md5(idx(array))))
    monkeypatch.setitem(CATALOGUE, "mnist", replace(CATALOGUE["mnist"], originals=tuple(originals)))
    return arrays


def test_fetch_and_read(small_mnist, tmp_path):
    with pytest.raises(DataFileError, match="run: shorthash datasets fetch mnist"):
        read_dataset("mnist")
    files = fetch("mnist")
    assert files[0].parent == tmp_path / "cache" / "shorthash" / "originals" / "mnist"
    data = read_dataset("mnist")
    assert data.y.tolist() == [4, 1, 2, 9, 0]
    assert data.test.tolist() == [False] * 3 + [True] * 2
    assert np.allclose(np.linalg.norm(data.X, axis=1), 1)
    ratio = small_mnist[0][0].reshape(-1) / data.X[0]
    assert np.allclose(ratio, ratio[0])
    assert dataset_facts("mnist")["place"] == data.path


def test_a_damaged_idx_file(small_mnist, tmp_path):
    fetch("mnist", tmp_path / "own")
    path = tmp_path / "own" / "originals" / "mnist" / CATALOGUE["mnist"].originals[1].name
    for content in (gzip.compress(b"\0\0\x08\x01\0\0\0\x09abc"), gzip.compress(b"nothing"), b"not packed"):
        path.write_bytes(content)
        with pytest.raises(DataFileError, match="fetch it again"):
            read_dataset("mnist", tmp_path / "own")


def test_what_no_program_can_fetch():
    with pytest.raises(
        DataFileError, match=r"'imagenet100' cannot be downloaded by a program: register at image-net\.org"
    ):
        fetch("imagenet100")
    with pytest.raises(InvalidInput, match="must be one of 'cifar10'"):
        fetch("cifar")


def test_digits():
    found = read_dataset("digits")
    assert len(found) == 1797
    assert np.allclose(np.linalg.norm(found.X, axis=1), 1)
    assert found.fingerprint == read_dataset("digits").fingerprint
    assert dataset_facts("digits")["place"] == "scikit-learn"


def write_cifar(folder, **more):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    X = rng.integers(-100, 100, (6, 4)).astype(np.int8)
    np.savez(folder / "cifar10_cnn256.npz", X=X, scale=np.float32(0.5), y=np.arange(6) % 2, **more)
    return X


def test_where_files_are_looked_for(tmp_path, monkeypatch):
    first, second, third = tmp_path / "a", tmp_path / "b", tmp_path / "cache" / "shorthash"
    monkeypatch.setenv("SHORTHASH_DATA", str(second))
    assert data_folders(first) == (first, second, third)
    with pytest.raises(DataFileError, match=f"in none of {re.escape(str(first))}, .*{re.escape(str(third))}"):
        read_dataset("cifar10", first)
    for folder in (third, second, first):
        write_cifar(folder)
        assert read_dataset("cifar10", first).path == str(folder / "cifar10_cnn256.npz")


def test_scaled_then_normalised(tmp_path):
    X = write_cifar(tmp_path, official_test=np.array([0, 0, 0, 0, 1, 1]))
    data = read_dataset("cifar10", tmp_path)
    assert np.allclose(data.X, X / np.linalg.norm(X.astype(float), axis=1, keepdims=True), atol=1e-6)
    assert data.test.tolist() == [False] * 4 + [True] * 2
    assert data.X.dtype == np.float32


def test_a_row_of_zeros_is_kept(tmp_path):
    np.savez(tmp_path / "own.npz", X=np.array([[0.0, 0.0], [3.0, 4.0]]), y=[0, 1])
    assert read_dataset(str(tmp_path / "own.npz")).X.tolist() == [[0.0, 0.0], [np.float32(0.6), np.float32(0.8)]]


def test_a_fingerprint_tells_contents_apart(tmp_path):
    prints = []
    for y in ([0, 1], [1, 0]):
        np.savez(tmp_path / "own.npz", X=np.eye(2), y=y)
        prints.append(read_dataset(str(tmp_path / "own.npz")).fingerprint)
    assert prints[0] != prints[1]


def test_a_folder_of_features_and_labels(tmp_path):
    np.save(tmp_path / "features.npy", np.eye(3))
    with pytest.raises(DataFileError, match=r"exactly one file named labels or y or Y .*Got 0"):
        read_dataset(str(tmp_path))
    (tmp_path / "labels.csv").write_text("cat\ndog\ncat\n")
    data = read_dataset(str(tmp_path))
    assert data.name == tmp_path.name
    assert data.y.tolist() == ["cat", "dog", "cat"]


def test_no_such_data_set():
    with pytest.raises(DataFileError, match=r"must be one of cifar10, .*, a \.npz file with X and y.*Got 'cifar11'"):
        read_dataset("cifar11")


def test_protocols():
    assert default_protocol("cifar10").n_train == 5000
    assert default_protocol("own.npz").n_queries == 1000


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_entries_are_complete(name):
    entry = CATALOGUE[name]
    assert all((entry.title, entry.features, entry.obtain, entry.licence))
    assert entry.reader in ("npz", "idx", "sklearn")
    assert bool(entry.file) == (entry.reader == "npz")
    for original in entry.originals:
        assert re.fullmatch(r"(md5:[0-9a-f]{32}|sha256:[0-9a-f]{64})?", original.checksum)


@pytest.mark.data
@pytest.mark.parametrize("name", [name for name, entry in CATALOGUE.items() if entry.reader == "npz"])
def test_real_files_are_what_the_catalogue_says(data_folder, name):
    entry, data = CATALOGUE[name], read_dataset(name, data_folder)
    assert (len(data), data.X.shape[1], data.n_classes) == (entry.rows, entry.dims, entry.classes)
    assert data.multilabel == entry.several
    split = entry.protocol.split(data.y, data.test)
    assert len(split.query) in (1000, 2000, 5000)


def test_rows_and_labels_belong_together():
    data = Dataset("toy", X, ["b", "a", "b", "a"], "made up", test=[False, True, False, False])
    assert (len(data), data.n_classes, data.multilabel) == (4, 2, False)
    some = data.take([1, 3])
    assert some.X.tolist() == [[3, 4, 5], [9, 10, 11]]
    assert some.y.tolist() == ["a", "a"]
    assert some.test.tolist() == [True, False]
    assert (some.name, some.provenance) == ("toy", "made up")
    assert OfficialTest().split(data.y, data.test).query.tolist() == [1]


def test_label_sets_are_multilabel():
    data = Dataset("toy", X, [[1, 0], [1, 1], [0, 1], [0, 1]])
    assert (data.n_classes, data.multilabel, data.test) == (2, True, None)
    assert data.take([1]).y.tolist() == [[1, 1]]


def test_a_memory_map_is_not_copied(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert isinstance(Dataset("toy", mapped, [0, 1, 0, 1]).X, np.memmap)


def test_datasets_are_frozen():
    with pytest.raises(FrozenInstanceError, match="cannot assign"):
        Dataset("toy", X, [0, 1, 0, 1]).name = "other"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X[0], [0, 1, 0]), r"X of dataset 'toy' must have shape \(n_rows, n_features\). Got \(3,\) instead"),
        ((X, [0, 1, 0]), "y of dataset 'toy' must have one entry for each of the 4 rows of X. Got 3 instead"),
        ((X, 5), "y of dataset 'toy' must have one entry for each of the 4 rows of X. Got a single value instead"),
        ((X, [0, 1, 0, 1], "", [True]), "test of dataset 'toy' must have one entry for each of the 4 rows of X. Got 1"),
    ],
)
def test_counts_that_differ_are_named(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        Dataset("toy", *arguments)
