"""What makes feature rows of images: a recipe that can be written down, and the two halves of the work.

``prepare`` makes an array of fixed shape of one image (cheap, done where images are decoded, in worker processes if
there are any), ``compute`` makes rows of a batch of them.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shorthash._validation import check_count, require_extra
from shorthash.errors import InvalidInput
from shorthash.images.gist import DIMENSION, gist, grey_square

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["CallableFeatures", "GistFeatures", "ImageFeatures", "make_features", "middle_square", "recipe_key"]

Rows = NDArray[np.float32]
Recipe = dict[str, Any]


class ImageFeatures(ABC):
    """Features of images: one row of unit length per image.

    Attributes
    ----------
    in_workers : whether ``compute`` is better done in worker processes, too
    """

    in_workers = False
    _stays_here: tuple[str, ...] = ()  # attributes that worker processes do not need, and may not be able to get

    @property
    @abstractmethod
    def recipe(self) -> Recipe:
        """All that decides the rows, as plain values; ``make_features`` reads it back."""

    @property
    def files(self) -> list[Path]:
        """Files that the recipe names; whoever keeps the recipe keeps them beside it."""
        return []

    @abstractmethod
    def prepare(self, image: Image) -> NDArray[Any]:
        """An array of an RGB image; of one shape and type for all images."""

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
        return {**self.__dict__, **dict.fromkeys(self._stays_here)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.recipe})"


class GistFeatures(ImageFeatures):
    """GIST-512, see :mod:`shorthash.images.gist`; needs no model and no download.

    Parameters
    ----------
    size : side of the grey square that an image becomes, even
    """

    in_workers = True

    def __init__(self, size: int = 128) -> None:
        self.size = check_count(size, "size", "GistFeatures", low=16, high=1024)

    @property
    def recipe(self) -> Recipe:
        """Kind, size and dimension."""
        return {"kind": "gist", "size": self.size, "dimension": DIMENSION}

    def prepare(self, image: Image) -> NDArray[Any]:
        """The grey square."""
        return grey_square(image, self.size)

    def compute(self, batch: NDArray[Any]) -> NDArray[Any]:
        """GIST."""
        return gist(batch)


class CallableFeatures(ImageFeatures):
    """Features by a function of yours.

    Parameters
    ----------
    function : takes (n, size, size, 3) uint8 and returns (n, dimension) numbers
    name : what the recipe calls it; give it another name when its outcome changes
    size : side of the square that is cut from the middle of an image
    """

    _stays_here = ("function",)

    def __init__(self, function: Callable[[NDArray[np.uint8]], Any], name: str, size: int = 224) -> None:
        self.function, self.name = function, str(name)
        self.size = check_count(size, "size", "CallableFeatures")

    @property
    def recipe(self) -> Recipe:
        """Kind, name and size; the function itself must be given again to whoever opens the recipe."""
        return {"kind": "callable", "name": self.name, "size": self.size}

    def prepare(self, image: Image) -> NDArray[Any]:
        """The middle square."""
        return middle_square(image, self.size)

    def compute(self, batch: NDArray[Any]) -> NDArray[Any]:
        """What the function says."""
        return np.asarray(self.function(batch))


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
        or features, which are returned as they are
    folder : where the files that a recipe names are

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
        from shorthash.images.cnn import EfficientNetLite0

        return EfficientNetLite0()
    if kind == "onnx":
        from shorthash.images.cnn import OnnxFeatures

        return OnnxFeatures.from_recipe(recipe, folder)
    if kind == "callable":
        raise InvalidInput(
            f"These features were made by a function called {recipe.get('name')!r}, which no file can hold; pass "
            "features=CallableFeatures(function, name) again."
        )
    raise InvalidInput(f"Image features of kind {kind!r} are not known here; upgrade shorthash, or fit anew.")


def recipe_key(recipe: Mapping[str, Any]) -> str:
    """A short name of a recipe, equal for equal recipes; what its file is called does not matter."""
    text = json.dumps(
        {key: value for key, value in recipe.items() if key != "file"}, sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _recipe_of(name: str) -> Recipe:
    """A recipe for what stands on a command line."""
    kinds = {"gist": "gist", "cnn": "efficientnet-lite0", "efficientnet-lite0": "efficientnet-lite0"}
    if name in kinds:
        return {"kind": kinds[name]}
    if Path(name).suffix.lower() == ".onnx":
        return {"kind": "onnx", "file": name}
    raise InvalidInput(f"Image features must be 'gist', 'cnn' or the path of an .onnx file. Got {name!r} instead.")
