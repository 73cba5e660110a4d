"""Posteriors over label sets, learned from the training rows and calibrated on rows they have not seen.

Everything that later steps optimise uses out-of-fold posteriors (OOF): those of models that did not see the row.

A model that was fitted before may be given instead: as rows of probabilities, a classifier, a network or an ONNX file.
Nothing is learned then but one temperature, so the rows must be ones that the model has not learned from: on its own
training rows it is surer than on others, and the expected mAP would be too high.

Legend: X (n, d), ids (n,) label set of every row, Yg (u, c) label rows of the sets, P (n, u) posteriors.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from sklearn.base import BaseEstimator, clone

from shorthash._arrays import Features, Floats, to_numpy
from shorthash._labels import LabelGroups, shared_label
from shorthash._progress import shown
from shorthash._rounding import FEW, UNIT, Rounded, Scored, by_itself, norms
from shorthash._validation import check_choice, require_extra
from shorthash.errors import InvalidInput
from shorthash.learners.posteriors.folds import (
    EXPECTED_ROWS,
    FOLDED_ROWS,
    SMALLEST,
    Fitted,
    Folds,
    PosteriorModel,
    Posteriors,
    calibrate,
    log,
    softmax,
    with_lone_rows,
)
from shorthash.learners.posteriors.logistic import LogLinear, fit_logistic, fit_prototypes
from shorthash.learners.posteriors.ridge import LEAST_ROWS, N_ANCHORS, KernelRidge, fit_ridge, kernel_tried

EXPECTED_POWER, POWER_ROWS = 0.6, 10  # of either model in a product, before rows are looked at; rows it counts as
NO_POWER = 0.01  # a model with less adds nothing to a product but the time to encode
COMPARED_SETS = 256  # label sets up to which a product is compared with its parts: codes of more take long to anneal
RELEVANCE_ROWS = 1000  # rows, and others, by which a model of rows with several labels is made as sure as it may be
LEAST_CHANCE, MOST_CHANGE = 1e-4, 2.0  # of sharing a label; of the logarithm of a temperature
LEAST_GAIN = 0.01  # relative decrease of the log-loss that a second model must bring
PRECOMPUTED = "precomputed"
SUM_TOLERANCE = 1e-3  # by which the probabilities of a row may miss 1


@dataclass(frozen=True)
class Combination(PosteriorModel):
    """A product of two models' posteriors, each raised to a power."""

    first: PosteriorModel
    second: PosteriorModel
    powers: Floats  # (2,)

    @property
    def n_sets(self) -> int:
        """Number of label sets."""
        return self.first.n_sets

    def logits(self, X: Rounded, *, exact: bool) -> Scored:
        """Weighted sums of the logits of both."""
        one, two = self.first.logits(X, exact=exact), self.second.logits(X, exact=exact)
        a, b = (float(power) for power in self.powers)
        size = a * abs(one.values) + b * abs(two.values)
        return Scored(a * one.values + b * two.values, a * one.bound + b * two.bound + FEW * UNIT * size)


@dataclass(frozen=True)
class Classified(PosteriorModel):
    """A scikit-learn classifier, its probabilities sharpened or flattened by one temperature."""

    classifier: Any
    temperature: float

    @property
    def n_sets(self) -> int:
        """Number of label sets."""
        return len(self.classifier.classes_)

    def logits(self, X: Rounded, *, exact: bool) -> Scored:
        """Logarithms of the probabilities, times the temperature."""
        rows = np.asarray(to_numpy(X.values), dtype=np.float64)
        return _logarithms(by_itself(self.classifier.predict_proba, rows, exact=exact), self.temperature)


def _logarithms(P: Rounded, temperature: float) -> Scored:
    """Logarithms of probabilities, times the temperature; all are assumed to have the relative error of their row."""
    values = np.asarray(P.values, dtype=np.float64)
    relative = P.error / np.maximum(norms(values), SMALLEST)
    return Scored(temperature * np.log(np.maximum(values, SMALLEST)), temperature * relative)


@shown("learning posteriors")
def fit_posteriors(
    kind: str | BaseEstimator,
    X: Features,
    ids: NDArray[np.intp],
    Yg: NDArray[np.uint8],
    folds: Folds,
) -> list[tuple[str, Fitted]]:
    """Fit a model by name, or any classifier with ``predict_proba``; returns names and models.

    "auto" gives the product of both models first, which is expected to be best, then its parts: codes of the least
    log-loss are not always those of the largest mAP. With many label sets it gives the product alone.
    """
    if not isinstance(kind, str):
        return [(type(kind).__name__, _fit_classifier(kind, X, ids, Yg, folds))]
    if kind == "ridge":
        ridge = fit_ridge(X, ids, Yg, folds)
        return [(ridge.called(kind), ridge)]
    if kind == "prototypes":
        return [(kind, fit_prototypes(X, ids, Yg, folds))]
    linear = fit_logistic(X, ids, Yg, folds)
    assert isinstance(linear.model, LogLinear)
    name = linear.called(f"logistic, penalty {linear.model.penalty:g}")
    if kind == "logistic":
        return [(name, linear)]
    ridge = fit_ridge(X, ids, Yg, folds)
    least_gain = LEAST_GAIN if kind == "combo" else None
    together = combined(linear, ridge, ids[folds.rows], folds.judged(ids), least_gain)
    product = [] if together is None else [(f"{name}, with a kernel", together)]
    if kind == "combo" or (product and len(Yg) > COMPARED_SETS):
        return product or [(name, linear)]
    return [*product, (name, linear), (ridge.called("ridge"), ridge)]


POSTERIORS = ["logistic", "ridge", "combo", "prototypes"]
"""Models by name."""


def auto_kind(n_rows: int, n_columns: int, n_sets: int, with_kernel: str) -> str:
    """``with_kernel``, or "logistic" where a kernel is not tried."""
    several = LEAST_ROWS <= n_rows <= FOLDED_ROWS
    return with_kernel if several and kernel_tried(n_rows, n_sets, n_columns) else "logistic"


def check_kind(posterior: object) -> None:
    """Raise unless posteriors can be learned by a parameter of EAPH."""
    if is_prefit(posterior):
        return
    if isinstance(posterior, str):
        check_choice(posterior, "posterior", "EAPH", ["auto", *POSTERIORS, PRECOMPUTED])
    elif not hasattr(posterior, "predict_proba"):
        raise InvalidInput(
            f"The 'posterior' parameter of EAPH must be one of 'auto', {str(POSTERIORS)[1:-1]} or a "
            f"classifier with predict_proba. Got {posterior!r} instead."
        )


def check_labels(posterior: object, given: LabelGroups) -> None:
    """Raise unless a parameter of EAPH can learn such label sets."""
    if not isinstance(posterior, str) and not given.single:
        raise InvalidInput(
            "A classifier as posterior of EAPH needs one label per row, but y has rows with several; use "
            "posterior='combo', 'logistic' or 'ridge'."
        )


def combined(
    one: Fitted,
    two: Fitted,
    labels: NDArray[np.intp],
    judged: NDArray[np.intp],
    least_gain: float | None = LEAST_GAIN,
) -> Fitted | None:
    """Two models together; their powers by the log-loss of rows that may be judged, which is convex in them.

    Before rows are looked at, both have the same power: the mean of two models that few rows cannot tell apart is
    better than the one that they prefer. None where the second model does not take away a share of ``least_gain`` of
    the log-loss, which pays for the time to encode with it; or, where any gain is welcome (None), where either has no
    power. Where no row may be judged, the powers are those expected, if every label set can have an anchor.
    """
    if not len(judged):
        expected = Combination(one.model, two.model, np.full(2, EXPECTED_POWER))
        missing = len(labels) > N_ANCHORS  # of label sets of one row each, some have no anchor
        return None if least_gain or missing else Fitted(expected, combine(one.oof, two.oof, expected.powers), 0.0)
    logs, labels, rows = (log(one.oof[judged]), log(two.oof[judged])), labels[judged], np.arange(len(judged))

    def loss(powers: Floats) -> tuple[float, Floats]:
        P = softmax(powers[0] * logs[0] + powers[1] * logs[1])
        value = -float(np.mean(log(P[rows, labels])))
        slope = [float(np.mean(np.sum(P * q, axis=1) - q[rows, labels])) for q in logs]
        return value, np.array(slope)

    def penalised(powers: Floats) -> tuple[float, Floats]:
        (value, slope), away, weight = loss(powers), powers - EXPECTED_POWER, POWER_ROWS / len(rows)
        return value + weight * float(away @ away) / 2, slope + weight * away

    start = np.full(2, EXPECTED_POWER)
    powers = minimize(penalised, start, jac=True, bounds=[(0.0, 2.0)] * 2, method="L-BFGS-B").x
    together, alone = loss(powers)[0], loss(np.array([1.0, 0.0]))[0]
    useless = powers.min() < NO_POWER if least_gain is None else together >= (1 - least_gain) * alone
    if useless:
        return None
    model = Combination(one.model, two.model, np.asarray(powers, dtype=np.float64))
    return Fitted(model, combine(one.oof, two.oof, model.powers), together)


def _fit_classifier(
    classifier: BaseEstimator, X: Features, ids: NDArray[np.intp], Yg: NDArray[np.uint8], folds: Folds
) -> Fitted:
    """Any classifier: out-of-fold probabilities, one temperature, then a fit on all rows."""
    P = np.zeros((len(folds.rows), len(Yg)), dtype=np.float32)
    for seen, held, places in folds:
        model = clone(classifier).fit(X[seen], ids[seen])
        P[np.ix_(places, model.classes_)] = model.predict_proba(X[held])
    temperature, loss = calibrate(log(P), ids[folds.rows], folds.judged(ids), expected=1.0)
    fitted = clone(classifier).fit(X, ids)
    return Fitted(Classified(fitted, temperature), softmax(temperature * log(P)), loss)


def combine(P: Posteriors, Q: Posteriors, powers: Floats) -> Posteriors:
    """p^a q^b, normalised."""
    return softmax(powers[0] * log(P) + powers[1] * log(Q))


def sharpened(model: Any, times: float) -> Any:
    """A model whose logits are multiplied."""
    if isinstance(model, Combination):
        return replace(model, powers=times * model.powers)
    if isinstance(model, KernelRidge):
        return replace(model, temperature=times * model.temperature, power=times * model.power)
    return replace(model, temperature=times * model.temperature)


def for_other_rows(fitted: Fitted, ids: NDArray[np.intp], judged: NDArray[np.intp], Yg: NDArray[np.uint8]) -> Fitted:
    """A model whose out-of-fold posteriors, of rows with the label sets ``ids``, stand for those of other rows."""
    if not (Yg.sum(axis=1) == 1).all():
        fitted = calibrated_by_relevance(fitted, ids, judged, Yg)
    return replace(fitted, oof=with_lone_rows(fitted.oof, ids, judged, Yg))


def calibrated_by_relevance(
    fitted: Fitted, ids: NDArray[np.intp], judged: NDArray[np.intp], Yg: NDArray[np.uint8]
) -> Fitted:
    """A model made as sure as it may be of which rows share a label, by the cross-entropy of that.

    Where rows have several labels, many have a set that no other row has. They are harder than the others and do not
    count in the log-loss, which leaves a model too sure; but what they share with other rows can be predicted.
    """
    some = np.random.RandomState(0).permutation(len(ids))[: 2 * RELEVANCE_ROWS]
    rows, (others, counts) = some[::2], np.unique(ids[some[1::2]], return_counts=True)
    logs, shares = log(fitted.oof[rows]), counts / counts.sum()
    shared, alike = (shared_label(sets, Yg[others]) for sets in (Yg, Yg[ids[rows]]))
    of_sets = shared.astype(np.float32)

    def loss(log_t: float) -> float:
        R = np.clip(softmax(np.exp(log_t) * logs) @ of_sets, LEAST_CHANCE, 1 - LEAST_CHANCE)
        found = -float(np.mean(np.log(np.where(alike, R, 1 - R)) @ shares))
        return found + EXPECTED_ROWS / len(rows) * log_t**2 / 2

    bounds = -MOST_CHANGE, MOST_CHANGE
    times = float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 0.01}).x))
    oof = softmax(times * log(fitted.oof))
    known = -float(np.mean(log(oof[judged, ids[judged]]), dtype=np.float64)) if len(judged) else 0.0
    return replace(fitted, model=sharpened(fitted.model, times), oof=oof, loss=known)


# models that were fitted before ---------------------------------------------------------------------------------------


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
        return _logarithms(by_itself(self.probabilities, rows, exact=exact), self.temperature)


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
    temperature, loss = calibrate(S, groups.ids[folds.rows], expected=1.0)
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
