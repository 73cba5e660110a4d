"""Classifier codes: the predicted class, written in bits. The baseline of A. Sablayrolles et al., 2017.

If items are relevant to each other exactly when they share a class, then a classifier and a number per class are a
hashing method, and one that must be beaten before any other is called good.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_random_state

from shorthash._arrays import Codes, Floats, to_numpy
from shorthash._rounding import SURE, Rounded, Scored, by_itself, linear, softmax
from shorthash._validation import check_choice, check_finite
from shorthash.data.rows import Rows
from shorthash.errors import InvalidInput
from shorthash.learners.base import SupervisedHasher
from shorthash.learners.boosting import seeded_clone
from shorthash.learners.codebooks import CODEBOOKS
from shorthash.learners.solvers import centred


@dataclass(eq=False, repr=False)
class ClassifierCode(SupervisedHasher):
    r"""The class that a classifier predicts, written as a codeword.

    .. math:: h(x) = C_{k(x)}, \quad |s_l(x)| = \sum_{k:\, C_{kl} = h_l(x)} p_k(x)

    where

    - :math:`k(x)` is the predicted class and :math:`C` (c, L) the codebook,
    - :math:`p_k(x)` is the probability the classifier gives to class k,
    - :math:`|s_l(x)|` is the magnitude of the l-th score: the probability that the bit is right (1 for a classifier
      without probabilities).

    The publication writes the class as a number in binary (``codebook="binary"``) or as a one-hot vector. The balanced
    codebook is ours: distances between codewords mean nothing to a classifier, but a database is searched by them.

    Codes of classes never seen in training are those of the classes they resemble: where classes are unknown
    beforehand, compare with a method that does not predict them.

    Parameters
    ----------
    estimator : scikit-learn classifier or None, default=None
        What predicts the class; cloned. None is logistic regression: it minimises the mean log-loss plus
        :math:`\lambda v \|w\|^2`, where :math:`v` is the mean variance of the features, so their scale does not matter.
    n_bits : int, default=8
        Code length, 1 to 64.
    codebook : {"balanced", "binary", "random", "separated"} or (n_classes, n_bits) array of signs, default="balanced"
        - "balanced": every bit splits the classes in halves; of 200 draws the one with the largest smallest distance;
        - "binary": the number of the class in binary;
        - "random": random codewords;
        - "separated": of up to 4 000 draws of random codewords the least crowded one;
        - an array: its rows are the codewords, in the order of the sorted classes.

        The codewords of the first four are distinct; with more classes than codes some share one, with a warning.
    random_state : int, RandomState instance or None, default=None
        Draws the codebook and seeds the classifier.
    penalty : float, default=0.003
        :math:`\lambda` of the default classifier, chosen by cross-validation on the training rows of three data sets
        (experiments/penalty.toml).
    drop_unlabelled : bool, int or str, default=False
        Drop rows without a label (None, NaN, "", an empty set, a row of zeros) instead of raising; a value such as -1
        or "unknown" also drops the rows that have it as their label.

    Attributes
    ----------
    estimator_ : the fitted classifier; it predicts positions in ``classes_``
    classes_ : (c,) the classes
    codewords_ : (c, n_bits) the codebook
    codes_ : (n_samples, n_bits) codewords of the training rows by their true class

    References
    ----------
    A. Sablayrolles, M. Douze, N. Usunier, H. Jegou. How Should We Evaluate Supervised Hashing? ICASSP 2017,
    pages 1732-1736.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> hasher = ClassifierCode(n_bits=4, random_state=0).fit(X, y)
    >>> hasher.transform(X).shape, hasher.codewords_.shape, hasher.score(X, y) > 0.9
    ((150, 4), (3, 4), True)
    """

    estimator: BaseEstimator | None = None
    n_bits: int = 8
    codebook: str | ArrayLike = "balanced"
    random_state: int | np.random.RandomState | None = None
    penalty: float = 0.003
    drop_unlabelled: bool | int | str = False

    _positive: ClassVar[tuple[str, ...]] = ("penalty",)
    _multilabel: ClassVar[bool] = False

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Draw the codebook and fit the classifier.

        Parameters
        ----------
        X : (n_samples, n_features) training rows
        y : (n_samples,) class labels, or an (n_samples, n_classes) indicator matrix with one label per row
        """
        self._check_params()
        rows = self._training_rows(X)
        check_finite(rows.X, "ClassifierCode")
        groups = self._training_groups(y, len(rows), drop_unlabelled=self.drop_unlabelled)
        labelled = rows.keep(groups.kept)
        self._check_groups(groups)
        n_bits = self._check_length(self.n_features_in_)
        self._warn_of_collisions(len(groups.rows))
        rng = check_random_state(self.random_state)
        C = self._draw_codebook(len(groups.rows), n_bits, rng)
        template = _default_classifier(labelled, self.penalty) if self.estimator is None else self.estimator
        X = rows.X if groups.kept is None else rows.X[groups.kept]
        self.estimator_ = seeded_clone(template, rng).fit(X, groups.ids)
        self.classes_ = groups.classes[groups.rows.argmax(axis=1)]
        self.codewords_ = C
        self.codes_ = C[groups.ids]
        return self

    def _scores(self, X: Rounded, *, exact: bool) -> Scored:
        """Scores, (n_samples, n_bits): the sign is the bit of the predicted class, the magnitude its probability."""
        S, model = self._class_scores(X, exact=exact), self.estimator_
        if isinstance(model, LogisticRegression):
            limit = S.values.max(axis=1, keepdims=True) - (2 * S.bound.max(axis=1, keepdims=True) if exact else 0.0)
            predicted = np.argmax(S.values >= limit, axis=1)
        else:
            predicted = by_itself(lambda rows: self.estimator_.predict(rows)[:, None], _rows(X), exact=exact).values[
                :, 0
            ]
        codes = self.codewords_[predicted]
        if exact or S.values.shape[1] == 1:
            bound = np.zeros((len(codes), 1))
        else:
            second, first = np.partition(S.values, -2, axis=1)[:, -2:].T
            worst = np.broadcast_to(S.bound, S.values.shape).max(axis=1)
            bound = np.where(first - second > 2 * SURE * worst, 0.0, np.inf)[:, None]
        return Scored(codes * self._confidence(X, S, codes), bound)

    def _class_scores(self, X: Rounded, *, exact: bool) -> Scored:
        """What decides between the classes, (n, c), with a bound of the rounding error; one column if unknown."""
        model = self.estimator_
        if isinstance(model, LogisticRegression):
            S = linear(X, model.coef_.T, model.intercept_, exact=exact)
            if S.values.shape[1] > 1:
                return S
            return Scored(np.hstack([np.zeros_like(S.values), S.values]), S.bound)
        for name in ("decision_function", "predict_proba"):
            if hasattr(model, name):
                found = by_itself(partial(_two_columns, getattr(model, name)), _rows(X), exact=exact)
                return Scored(np.asarray(found.values, dtype=np.float64), found.error)
        return Scored(np.zeros((len(X.values), 1)), 0.0)

    def _confidence(self, X: Rounded, S: Scored, codes: Codes) -> Floats | float:
        """Probability that each bit is right; 1 where the classifier gives no probabilities."""
        if isinstance(self.estimator_, LogisticRegression):
            p = softmax(S).values
        elif hasattr(self.estimator_, "predict_proba"):
            p = np.asarray(self.estimator_.predict_proba(_rows(X)), dtype=np.float64)  # (b, c)
        else:
            return 1.0
        chance: Floats = np.where(codes > 0, p @ (self.codewords_ > 0), p @ (self.codewords_ < 0))
        return np.maximum(chance, np.finfo(float).tiny)  # a bit keeps its sign even where its probability vanishes

    def _draw_codebook(self, n_classes: int, n_bits: int, rng: np.random.RandomState) -> Codes:
        if isinstance(self.codebook, str):
            return CODEBOOKS[self.codebook](n_classes, n_bits, rng)
        C = np.asarray(self.codebook)
        if C.shape != (n_classes, n_bits) or not np.isin(C, (-1, 1)).all():
            raise InvalidInput(
                f"A codebook of ClassifierCode must hold -1/+1 in the shape ({n_classes}, {n_bits}), one row per "
                f"class. Got shape {C.shape} instead; give one of {', '.join(map(repr, CODEBOOKS))} to have one drawn."
            )
        return C.astype(np.int8)

    def _check_params(self) -> None:
        if isinstance(self.codebook, str):
            check_choice(self.codebook, "codebook", "ClassifierCode", list(CODEBOOKS))
        super()._check_params()
        given = self.estimator
        if given is not None and not (isinstance(given, BaseEstimator) and is_classifier(given)):
            raise InvalidInput(
                "The 'estimator' parameter of ClassifierCode must be a scikit-learn classifier or None. Got "
                f"{given!r} instead."
            )

    @property
    def _n_features_out(self) -> int:
        return int(self.codewords_.shape[1])


def _two_columns(function: Callable[[Any], NDArray[Any]], rows: Any) -> NDArray[Any]:
    """Scores of classes; a column for each of two classes, where there is one score for both."""
    scores = function(rows)
    return np.stack([np.zeros_like(scores), scores], axis=1) if scores.ndim == 1 else scores


def _rows(X: Rounded) -> Floats:
    return np.asarray(to_numpy(X.values), dtype=np.float64)


def _default_classifier(rows: Rows, penalty: float) -> LogisticRegression:
    """Logistic regression with a penalty in units of the mean feature variance.

    scikit-learn minimises ``C * (sum of losses) + ||w||^2 / 2``.
    """
    _, moved = centred(rows)
    squares = sum(float((batch**2).sum()) for _, batch in moved)  # n d v
    return LogisticRegression(C=rows.X.shape[1] / (2 * penalty * squares), max_iter=1000)
