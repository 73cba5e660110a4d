"""Data sets: features with their labels, read by name, from a .npz file or from a folder; originals downloaded.

A name is an entry of ``CATALOGUE``: sizes, features, protocol, source and licence. Anything else is the path of a .npz
file with ``X`` and ``y`` (or ``Y``), or of a folder with ``features`` and ``labels`` files. Rows are scaled to unit
norm.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Features, Labels
from shorthash._progress import OnStep, Progress, reporting
from shorthash._validation import check_choice
from shorthash.data.files import ENDINGS, npz_array, read_features, read_labels
from shorthash.data.rows import unit_rows
from shorthash.data.splits import PerClassQueries, Protocol, RandomQueries
from shorthash.errors import DataFileError, InvalidInput

CHUNK = 1 << 20  # bytes read from a server at once
TIMEOUT = 30  # seconds without a single byte
CNN = "EfficientNet-Lite0 (ImageNet weights), pooled features at {} px, first 256 principal components, int8"


@dataclass(frozen=True)
class Original:
    """A file that the publisher of a data set offers.

    Attributes
    ----------
    url : where it is
    checksum : "md5:..." or "sha256:..." as the publisher or widely used loaders state it; "" if we know none for
        certain: then the sha256 of the first download is stored next to the file, and later ones are compared with it
    """

    url: str
    checksum: str = ""

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.url.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Entry:
    """A data set.

    Attributes
    ----------
    title : its usual name
    rows, dims, classes : sizes
    features : how the features were made
    file : the feature file; "" if features are read from the original files
    protocol : which rows are queries, training rows and database
    obtain : how a user gets the original
    originals : its files, if a program may download them
    licence : terms of use of its publisher
    reader : "npz", "idx" or "sklearn"
    several : whether a row may have several labels
    """

    title: str
    rows: int
    dims: int
    classes: int
    features: str
    file: str
    protocol: Protocol
    obtain: str
    licence: str
    originals: tuple[Original, ...] = field(default=())
    reader: str = "npz"
    several: bool = False


_CALTECH_GIST = Entry(
    title="CALTECH-101",
    rows=8677,
    dims=512,
    classes=101,
    features="GIST-512 of grey images stretched to 128 x 128 px: 4 scales x 8 orientations x 4 x 4 blocks, reflect "
    "padding; without the background class",
    file="caltech101_gist512.npz",
    protocol=RandomQueries(n_queries=1000),
    obtain="caltech-101.zip from data.caltech.edu/records/mzrjq-6wc02",
    licence="CC BY 4.0, by the Caltech data repository; cite Fei-Fei, Fergus and Perona, 2004",
    originals=(Original("https://data.caltech.edu/records/mzrjq-6wc02/files/caltech-101.zip"),),
)


def _pixels(name: str, title: str, licence: str, base: str, checksums: tuple[str, str, str, str]) -> Entry:
    """MNIST, or a data set published in the same form: pixels and labels for training, pixels and labels for test."""
    stems = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return Entry(
        title=title,
        rows=70_000,
        dims=784,
        classes=10,
        features="the 28 x 28 grey values; training rows, then test rows",
        file="",
        protocol=PerClassQueries(per_class=100, n_train=5000),
        obtain=f"shorthash datasets fetch {name}",
        licence=licence,
        originals=tuple(
            Original(f"{base}/{stem}-ubyte.gz", f"md5:{checksum}")
            for stem, checksum in zip(stems, checksums, strict=True)
        ),
        reader="idx",
    )


CATALOGUE: dict[str, Entry] = {
    "cifar10": Entry(
        title="CIFAR-10",
        rows=60_000,
        dims=256,
        classes=10,
        features=CNN.format(224),
        file="cifar10_cnn256.npz",
        protocol=PerClassQueries(per_class=100, n_train=5000),
        obtain="cifar-10-python.tar.gz from www.cs.toronto.edu/~kriz/cifar.html",
        licence="no licence stated; free for research, cite Krizhevsky, 2009",
        originals=(
            Original("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "md5:c58f30108f718f92721af3b95e74349a"),
        ),
    ),
    "imagenet100": Entry(
        title="ImageNet-100",
        rows=60_000,
        dims=256,
        classes=100,
        features=CNN.format(224) + "; the 100 classes x 600 images (84 px) of mini-ImageNet stand in for ImageNet-100",
        file="imagenet100_cnn256.npz",
        protocol=PerClassQueries(per_class=50, n_train=10_000),
        obtain="register at image-net.org, then take the images that mini-ImageNet (Vinyals et al., 2016) lists",
        licence="ImageNet terms of access: non-commercial research and education only",
    ),
    "caltech101": _CALTECH_GIST,
    "caltech101-cnn": replace(
        _CALTECH_GIST,
        title="CALTECH-101, CNN",
        dims=256,
        features=CNN.format(224) + "; without the background class",
        file="caltech101_cnn256.npz",
    ),
    "voc2012": Entry(
        title="PASCAL VOC 2012",
        rows=11_536,
        dims=256,
        classes=20,
        features=CNN.format(192) + "; trainval images, one column per class",
        file="voc2012_cnn256.npz",
        protocol=RandomQueries(n_queries=1000, n_train=4000),
        obtain="VOCtrainval_11-May-2012.tar from host.robots.ox.ac.uk/pascal/VOC/voc2012",
        licence="Flickr images: Flickr terms of use; annotations: see the challenge's page",
        originals=(
            Original(
                "http://host.robots.ox.ac.uk/pascal/VOC/voc2012/VOCtrainval_11-May-2012.tar",
                "md5:6cd6e144f989b92b3379bac3b3de84fd",
            ),
        ),
        several=True,
    ),
    "wordnet": Entry(
        title="WordNet glosses",
        rows=24_870,
        dims=192,
        classes=597,
        features="glosses of nouns: TF-IDF, first 192 singular vectors, int8; the class is the hypernym at depth 7",
        file="wordnet_text192.npz",
        protocol=RandomQueries(n_queries=2000),
        obtain="WNdb-3.0.tar.gz from wordnet.princeton.edu",
        licence="WordNet 3.0 licence; Princeton University",
    ),
    "digits": Entry(
        title="Digits",
        rows=1797,
        dims=64,
        classes=10,
        features="the 8 x 8 grey values",
        file="",
        protocol=RandomQueries(n_queries=300),
        obtain="comes with scikit-learn",
        licence="CC BY 4.0 (UCI: Optical Recognition of Handwritten Digits)",
        reader="sklearn",
    ),
    "mnist": _pixels(
        "mnist",
        "MNIST",
        "CC BY-SA 3.0, as widely stated; LeCun, Cortes and Burges, 1998",
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
    "fashion-mnist": _pixels(
        "fashion-mnist",
        "Fashion-MNIST",
        "MIT; Xiao, Rasul and Vollgraf, 2017",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
}


def default_protocol(name: str) -> Protocol:
    """The protocol of an entry of the catalogue; for other data 1000 random queries.

    Examples
    --------
    >>> default_protocol("cifar10").n_train, default_protocol("own.npz").n_queries
    (5000, 1000)
    """
    return CATALOGUE[name].protocol if name in CATALOGUE else RandomQueries(n_queries=1000)


@dataclass(frozen=True)
class Dataset:
    """Features and labels that belong together.

    Parameters
    ----------
    name : short name, used in tables and file names
    X : (n, n_features) feature rows; may be a memory map
    y : (n,) class labels, or an (n, n_classes) indicator matrix
    provenance : where rows and labels come from, in a sentence
    test : (n,) bool, the test rows that the data set names; None if it names none
    path : the file or folder it was read from; "" if none
    fingerprint : sha256 of labels and scaled features, before rows are divided by their norm; "" if not read by name

    Examples
    --------
    >>> data = Dataset("toy", np.zeros((3, 2)), np.array(["cat", "dog", "cat"]), "made up")
    >>> data
    Dataset('toy', 3 rows x 2 features, 2 classes)
    >>> data.take([0, 2]).y.tolist()
    ['cat', 'cat']
    """

    name: str
    X: Features = field(repr=False)
    y: Labels = field(repr=False)
    provenance: str = ""
    test: NDArray[np.bool_] | None = field(default=None, repr=False)
    path: str = ""
    fingerprint: str = ""

    def __post_init__(self) -> None:
        X, y = np.asanyarray(self.X), np.asarray(self.y)
        if X.ndim != 2:
            raise InvalidInput(
                f"X of dataset {self.name!r} must have shape (n_rows, n_features). Got {X.shape} instead; put one "
                "sample per row."
            )
        for part, values in (("y", y), ("test", self.test)):
            if values is not None and (np.ndim(values) == 0 or len(values) != len(X)):
                found = "a single value" if np.ndim(values) == 0 else f"{len(values)}"
                raise InvalidInput(
                    f"{part} of dataset {self.name!r} must have one entry for each of the {len(X)} rows of X. Got "
                    f"{found} instead."
                )
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "y", y)
        if self.test is not None:
            object.__setattr__(self, "test", np.asarray(self.test, dtype=bool))

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        shape = f"{len(self.X)} rows x {self.X.shape[1]} features"
        return f"Dataset({self.name!r}, {shape}, {self.n_classes} classes)"

    @property
    def multilabel(self) -> bool:
        """Whether the labels are an indicator matrix."""
        return self.y.ndim == 2

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.y.shape[1]) if self.multilabel else len(np.unique(self.y))

    def take(self, rows: NDArray[np.intp] | list[int]) -> Dataset:
        """Some of the rows, as a dataset of the same name."""
        chosen = np.asarray(rows)
        test = None if self.test is None else self.test[chosen]
        return Dataset(self.name, self.X[chosen], self.y[chosen], self.provenance, test)


def data_folders(data_dir: str | Path | None = None) -> tuple[Path, ...]:
    """Folders searched for data files, in order: ``data_dir``, SHORTHASH_DATA, a cache folder of the user."""
    named = [data_dir, os.environ.get("SHORTHASH_DATA")]
    return (*(Path(folder) for folder in named if folder), _user_cache())


def read_dataset(name: str, data_dir: str | Path | None = None) -> Dataset:
    """A data set by name, or from a file or folder; rows have unit norm.

    Parameters
    ----------
    name : an entry of the catalogue, or a path
    data_dir : folder to search first

    Examples
    --------
    >>> read_dataset("digits")
    Dataset('digits', 1797 rows x 64 features, 10 classes)
    """
    if name not in CATALOGUE:
        path = Path(name)
        return _normalised(path.stem, _read_path(path), f"from {path.name}", str(path))
    entry = CATALOGUE[name]
    if entry.reader == "sklearn":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        return _normalised(name, (X, y, None), entry.features, "")
    path = _find(name, data_dir)
    arrays = _read_npz(path) if entry.reader == "npz" else _read_idx(path, entry.originals)
    return _normalised(name, arrays, entry.features, str(path))


def dataset_facts(name: str, data_dir: str | Path | None = None) -> dict[str, Any]:
    """An entry of the catalogue as plain values for listings; "place" is where it was found, "" if nowhere.

    Parameters
    ----------
    name : a name of the catalogue
    data_dir : folder with data files, besides SHORTHASH_DATA

    Examples
    --------
    >>> dataset_facts("digits")["rows"]
    1797
    """
    entry = CATALOGUE[name]
    try:
        place = "scikit-learn" if entry.reader == "sklearn" else str(_find(name, data_dir))
    except DataFileError:
        place = ""
    return {
        "title": entry.title,
        "rows": entry.rows,
        "dims": entry.dims,
        "classes": entry.classes,
        "several_labels": entry.several,
        "features": entry.features,
        "protocol": ", ".join(f"{key}={value}" for key, value in entry.protocol.to_dict().items() if key != "seed"),
        "original": entry.obtain,
        "downloads": ", ".join(f"{file.url} ({file.checksum or 'no known checksum'})" for file in entry.originals),
        "licence": entry.licence,
        "place": place,
    }


def fetch(name: str, data_dir: str | Path | None = None, progress: OnStep | None = None) -> tuple[Path, ...]:
    """Download the original files of an entry into the folder ``originals/NAME``.

    Parameters
    ----------
    name : an entry of the catalogue
    data_dir : where to put that folder; default: the cache folder of the user
    progress : called with (file name, bytes so far, bytes in all or 0); None shows what ``set_config`` sets

    Returns
    -------
    files : paths of the files; files that exist already are checked, not downloaded again

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:  # files copied by hand, on a machine without a network
    ...     place = Path(folder, "originals", "caltech101")
    ...     place.mkdir(parents=True)
    ...     _ = Path(place, "caltech-101.zip").write_bytes(b"the images")
    ...     [file.name for file in fetch("caltech101", folder)]
    ['caltech-101.zip']
    """
    check_choice(name, "name", "fetch", list(CATALOGUE))
    entry = CATALOGUE[name]
    if not entry.originals:
        raise DataFileError(f"The data set {name!r} cannot be downloaded by a program: {entry.obtain}.")
    folder = (_user_cache() if data_dir is None else Path(data_dir)) / "originals" / name
    with reporting(cast("Progress | None", progress)) as step:
        return tuple(download(original, folder, step) for original in entry.originals)


def download(original: Original, folder: str | Path, progress: OnStep | None = None) -> Path:
    """Download a file into a folder, unless it exists there with the right checksum.

    An interrupted download is resumed, if the server can do that. The file gets its name only when it is complete and
    its checksum is right.

    Parameters
    ----------
    original : the file
    folder : destination; created if missing
    progress : called with (file name, bytes so far, bytes in all or 0)
    """
    target = Path(folder) / original.name
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        _check_checksum(target, original, target)
        return target
    part = target.with_name(f"{original.name}.part")
    try:
        _receive(original.url, part, progress or (lambda _name, _done, _total: None))
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        raise DataFileError(f"{original.url} cannot be downloaded ({reason}); put it at {target} yourself.") from error
    try:
        _check_checksum(part, original, target)
    except DataFileError:
        part.unlink()
        raise
    part.replace(target)
    return target


def file_checksum(path: str | Path, algorithm: str = "sha256") -> str:
    """The checksum of a file, in hexadecimal digits."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


Arrays = tuple[NDArray[Any], Labels, NDArray[np.bool_] | None]  # scaled features, labels, official test rows


def _normalised(name: str, arrays: Arrays, provenance: str, path: str) -> Dataset:
    """A data set with rows of unit norm (rows of zeros are kept), and the fingerprint of what was read."""
    X, y, test = arrays
    digest = hashlib.sha256()
    for array in (X, y):
        stored = np.ascontiguousarray(array)
        digest.update(f"{stored.dtype.str}{stored.shape}".encode())
        digest.update(stored.tobytes() if stored.dtype != object else repr(stored.tolist()).encode())
    return Dataset(name, unit_rows(X), y, provenance, test, path, digest.hexdigest())


def _read_path(path: Path) -> Arrays:
    """Features and labels of a .npz file, or of the two files of a folder."""
    if path.is_dir():
        return read_features(_only(path, "features", "X")), read_labels(_only(path, "labels", "y", "Y")), None
    if not path.exists() or path.suffix.lower() != ".npz":
        known = ", ".join(CATALOGUE)
        raise DataFileError(
            f"A data set must be one of {known}, a .npz file with X and y, or a folder with a features and a labels "
            f"file. Got {str(path)!r} instead."
        )
    return _read_npz(path)


def _read_npz(file: Path) -> Arrays:
    test = npz_array(file, "official_test")
    return read_features(file), read_labels(file), None if test is None else test.astype(bool)


def _only(folder: Path, *stems: str) -> Path:
    paths = [folder / f"{stem}{ending}" for stem in stems for ending in ENDINGS]
    existing = [path for path in paths if path.exists()]
    if len(existing) != 1:
        raise DataFileError(
            f"{folder} must hold exactly one file named {' or '.join(stems)} with one of the endings "
            f"{', '.join(ENDINGS)}. Got {len(existing)} instead; rename them."
        )
    return existing[0]


def _read_idx(folder: Path, originals: tuple[Original, ...]) -> Arrays:
    """Pixels and labels of four idx files, as of MNIST: training rows, then test rows."""
    pixels, labels, test_pixels, test_labels = (_idx_array(folder / original.name) for original in originals)
    X = np.concatenate([pixels, test_pixels]).reshape(len(pixels) + len(test_pixels), -1)
    return X, np.concatenate([labels, test_labels]).astype(np.int16), np.arange(len(X)) >= len(pixels)


def _idx_array(file: Path) -> NDArray[np.uint8]:
    """The array of an idx file of bytes, compressed or not."""
    opener: Callable[..., Any] = gzip.open if file.suffix == ".gz" else open
    try:
        with opener(file, "rb") as stream:
            octets = stream.read()
    except (OSError, EOFError) as error:
        raise DataFileError(f"{file} cannot be decompressed ({error}); remove it and fetch it again.") from error
    n_dims = octets[3] if octets[:3] == b"\0\0\x08" else 0
    start = 4 + 4 * n_dims
    shape = [int.from_bytes(octets[at : at + 4]) for at in range(4, start, 4)]
    if not n_dims or len(octets) != start + math.prod(shape):
        raise DataFileError(f"{file} is not an idx file of bytes, or it is damaged; remove it and fetch it again.")
    return np.frombuffer(octets, dtype=np.uint8, offset=start).reshape(shape)


def _find(name: str, data_dir: str | Path | None) -> Path:
    """The feature file of an entry, or the folder of its original files, in the first data folder that has it."""
    entry = CATALOGUE[name]
    place = Path(entry.file or f"originals/{name}")
    needed = [place] if entry.file else [place / original.name for original in entry.originals]
    folders = data_folders(data_dir)
    for folder in folders:
        if all((folder / file).exists() for file in needed):
            return folder / place
    searched = ", ".join(str(folder) for folder in folders)
    remedy = f"make it from the original ({entry.obtain}) as docs/guide/datasets.md says."
    if entry.reader == "idx":
        remedy = f"run: shorthash datasets fetch {name}"
    raise DataFileError(
        f"The data set {name!r} needs {needed[0]}{f' and {len(needed) - 1} more files' if needed[1:] else ''}, which "
        f"is in none of {searched}; set SHORTHASH_DATA or --data-dir to its folder, or {remedy}"
    )


def _user_cache() -> Path:
    if os.name == "nt":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "shorthash"


def _receive(url: str, part: Path, progress: OnStep) -> None:
    """Write all bytes of a URL to a file; if the server allows it, only those that the file does not have yet."""
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # 416: nothing is left to send, so the file is complete, or it is another one
            raise
        error.close()
        return
    with answer:
        resumed = answer.status == 206
        done = done if resumed else 0
        total = done + int(answer.headers.get("Content-Length") or 0)
        with part.open("ab" if resumed else "wb") as file:
            while chunk := answer.read(CHUNK):
                file.write(chunk)
                done += len(chunk)
                progress(url.rsplit("/", 1)[-1], done, total)
            file.flush()
            os.fsync(file.fileno())
    if done < total:
        raise ConnectionError(f"it ended after {done} of {total} bytes; run again to resume")


def _check_checksum(path: Path, original: Original, target: Path) -> None:
    """Compare with the known checksum, or with that of the first download, which is stored next to the file."""
    stored = target.with_name(f"{target.name}.sha256")
    known = original.checksum
    if not known and stored.exists():
        known = f"sha256:{stored.read_text(encoding='ascii').strip()}"
    if not known:
        stored.write_text(file_checksum(path) + "\n", encoding="ascii")
        return
    algorithm, _, expected = known.partition(":")
    found = file_checksum(path, algorithm)
    if found != expected:
        raise DataFileError(
            f"The {algorithm} of {target.name} must be {expected}. Got {found} instead; it is damaged or another "
            "file, so remove it and fetch it again."
        )
