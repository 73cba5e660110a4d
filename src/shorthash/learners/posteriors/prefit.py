"""Posteriors of a model that was fitted before: given as rows, or computed by a classifier, a network or an ONNX file.

Nothing is learned but one temperature, so the rows must be ones that the model has not learned from: on its own
training rows it is surer than on others, and the expected mAP would be too high.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._arrays import to_numpy
from shorthash._labels import LabelGroups
from shorthash._rounding import Rounded, Scored, by_itself, norms
from shorthash._types import Features, Floats
from shorthash._validation import require_extra
from shorthash.errors import InvalidInput
from shorthash.learners.posteriors.folds import SMALLEST, Fitted, Folds, PosteriorModel, calibrate, log, softmax

PRECOMPUTED = "precomputed"
SUM_TOLERANCE = 1e-3  # by which the probabilities of a row may miss 1


@dataclass(frozen=True)
class Prefit(PosteriorModel):
    """The probabilities of a model, sharpened or flattened by one temperature.

    Attributes
    ----------
    source : None if the rows are probabilities; else what computes them (``predict_proba``)
    columns : (u,) the column of every label set among them
    temperature : the power
    """

    source: Any
    columns: NDArray[np.int64]
    temperature: float

    @property
    def n_sets(self) -> int:
        """Number of label sets."""
        return len(self.columns)

    def probabilities(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Probabilities of the label sets."""
        P = rows if self.source is None else self.source.predict_proba(rows)
        return np.asarray(P)[:, self.columns]

    def logits(self, X: Rounded, *, exact: bool) -> Scored:
        """Logarithms of the probabilities, times the temperature."""
        rows = np.asarray(to_numpy(X.values), dtype=np.float64)
        P = by_itself(self.probabilities, rows, exact=exact)
        values = np.asarray(P.values, dtype=np.float64)
        relative = P.error / np.maximum(norms(values), SMALLEST)
        return Scored(self.temperature * np.log(np.maximum(values, SMALLEST)), self.temperature * relative)


@dataclass(frozen=True)
class OnnxModel:
    """An ONNX model in memory.

    Attributes
    ----------
    content : the bytes of its file
    softmax : whether its output is logits
    """

    content: NDArray[np.uint8]
    softmax: bool = False

    def predict_proba(self, X: NDArray[Any]) -> NDArray[Any]:
        """Probabilities of the classes."""
        session = self.__dict__.get("session")
        if session is None:
            runtime = require_extra("onnxruntime", "onnx", "An ONNX model as posterior")
            options = runtime.SessionOptions()
            options.intra_op_num_threads = 1
            session = runtime.InferenceSession(self.content.tobytes(), options, providers=["CPUExecutionProvider"])
            object.__setattr__(self, "session", session)
        found = session.run(None, {session.get_inputs()[0].name: np.asarray(X, dtype=np.float32)})
        matrices = [out for out in found if isinstance(out, np.ndarray) and out.ndim == 2 and out.dtype.kind == "f"]
        if not matrices:
            raise InvalidInput(
                "An ONNX model as posterior of EAPH must have a matrix of probabilities or logits, (n, n_classes), "
                "among its outputs; export it without a map of names."
            )
        return softmax(matrices[-1]) if self.softmax else matrices[-1]

    def __getstate__(self) -> dict[str, Any]:
        return {"content": self.content, "softmax": self.softmax}


@dataclass(frozen=True)
class TorchModule:
    """A torch module."""

    module: Any
    softmax: bool = False

    def predict_proba(self, X: NDArray[Any]) -> NDArray[Any]:
        """Probabilities of the classes."""
        torch = require_extra("torch", "cnn", "A torch module as posterior")
        place = next(iter(self.module.parameters()), torch.zeros(0))
        with torch.no_grad():
            out = self.module(torch.as_tensor(X, dtype=place.dtype, device=place.device)).cpu().numpy()
        return softmax(out) if self.softmax else np.asarray(out)


def is_prefit(posterior: object) -> bool:
    """Whether a posterior of EAPH was fitted before: "precomputed", an ONNX file, a frozen classifier or a network."""
    if isinstance(posterior, str | os.PathLike):
        return posterior == PRECOMPUTED or str(posterior).lower().endswith(".onnx")
    return type(posterior).__name__ == "FrozenEstimator" or _is_module(posterior)


def _is_module(posterior: object) -> bool:
    return callable(posterior) and hasattr(posterior, "state_dict") and hasattr(posterior, "parameters")


def fit_prefit(posterior: Any, X: Features, groups: LabelGroups, folds: Folds) -> Fitted:
    """The model with its temperature, by the log-loss of the rows."""
    if not groups.single:
        raise InvalidInput(
            "A posterior of EAPH that was fitted before needs one label per row, but y has rows with several; use "
            "posterior='combo', 'logistic' or 'ridge'."
        )
    source = _source(posterior)
    P = np.asarray(X if source is None else source.predict_proba(np.asarray(X, dtype=np.float64)), dtype=np.float64)
    if isinstance(source, OnnxModel | TorchModule) and not _are_probabilities(P):
        source = replace(source, softmax=True)
        P = np.asarray(softmax(P), dtype=np.float64)
    if not _are_probabilities(P):
        raise InvalidInput(
            "The rows of X, for posterior='precomputed' of EAPH, must be probabilities: not negative, and 1 in sum. "
            f"Got a row with minimum {P.min(axis=1).min():.4g} and sum {P.sum(axis=1)[0]:.4g}; apply a softmax first."
        )
    columns = _columns(source, groups, P.shape[1])
    S = log(P[np.ix_(folds.rows, columns)])
    temperature, loss = calibrate(S, groups.ids[folds.rows])
    return Fitted(Prefit(source, columns, temperature), softmax(temperature * S), loss)


def _source(posterior: Any) -> Any:
    """What computes the probabilities."""
    if isinstance(posterior, str | os.PathLike):
        if posterior == PRECOMPUTED:
            return None
        path = Path(posterior)
        if not path.is_file():
            raise InvalidInput(f"There is no file {path}; give the ONNX file of a classifier as posterior of EAPH.")
        return OnnxModel(np.frombuffer(path.read_bytes(), dtype=np.uint8).copy())
    return TorchModule(posterior) if _is_module(posterior) else posterior


def _are_probabilities(P: Floats) -> bool:
    return bool((P >= 0).all() and (np.abs(P.sum(axis=1) - 1) < SUM_TOLERANCE).all())


def _columns(source: Any, groups: LabelGroups, width: int) -> NDArray[np.int64]:
    """The column of every label set: by the classes of a classifier, else in the order of the classes of ``y``."""
    own = groups.classes[groups.rows.argmax(axis=1)]
    known = getattr(source, "classes_", None)
    if known is None:
        if width != len(groups.classes):
            raise InvalidInput(
                f"The probabilities for EAPH must have a column for each of the {len(groups.classes)} classes of y, in "
                f"their order. Got {width} columns instead; leave out the columns of other classes and normalise."
            )
        return np.asarray(groups.rows.argmax(axis=1), dtype=np.int64)
    places = {name: place for place, name in enumerate(np.asarray(known).tolist())}
    missing = [name for name in own.tolist() if name not in places]
    if missing:
        raise InvalidInput(
            f"The classifier that is the posterior of EAPH does not know the class {missing[0]!r}; drop such rows, or "
            "fit it with all classes."
        )
    return np.array([places[name] for name in own.tolist()], dtype=np.int64)
