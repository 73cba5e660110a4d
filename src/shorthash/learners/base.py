"""Base classes: scores, codes, parameter checks and the scikit-learn estimator interface, for every hasher."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import check_is_fitted

from shorthash._arrays import Codes, Floats, Labels, namespace, returned
from shorthash._labels import LabelGroups, group_labels
from shorthash._rounding import Rounded, Scored, linear, settled
from shorthash._validation import MAX_BITS, check_choice, check_count, check_n_bits, check_weight
from shorthash.codes.levels import leave_one_out_map
from shorthash.codes.signs import sign
from shorthash.data.rows import Rows, validated
from shorthash.data.streams import known_stream
from shorthash.errors import CollisionWarning, InvalidInput
from shorthash.learners.solvers import centred


class BaseHasher(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A hasher with a linear hash function: ``code(x) = sign(x @ projection_ + intercept_)``.

    A learner defines ``fit`` and sets ``projection_`` of shape (n_features_in, n_bits), and ``intercept_`` of shape
    (n_bits,) unless it is 0. A learner with another kind of hash function overrides ``_scores`` and
    ``_n_features_out``. One that is not defined for every code length overrides ``max_bits``, and explains the limit in
    ``_limit``.

    Learners are dataclasses: the fields are the parameters, and their types are the rules that ``_check_params``
    checks.

    The code of a row depends on the row and the model only, not on the other rows, the number of threads or the size of
    the batch: signs that rounding could change are decided row by row (``shorthash._rounding``).

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(eq=False)
    ... class FirstColumns(BaseHasher):
    ...     n_bits: int = 2
    ...     def fit(self, X, y=None):
    ...         self.n_features_in_ = np.shape(X)[1]
    ...         self.projection_ = np.eye(self.n_features_in_, self.n_bits)
    ...         self.intercept_ = np.zeros(self.n_bits)
    ...         return self
    >>> FirstColumns().fit([[3.0, -1.0, 0.5]]).transform([[3.0, -1.0, 0.5]]).tolist()
    [[1, -1]]
    """

    n_bits: int
    random_state: int | np.random.RandomState | None
    projection_: Floats
    intercept_: Floats | float = 0.0
    codes_: Codes
    _limit: ClassVar[tuple[str, str]] = ("", "")  # why there is a longest code, and what to do about it
    _positive: ClassVar[tuple[str, ...]] = ()  # float parameters that must not be 0

    def max_bits(self, n_features: int, n_classes: int | None = None) -> int:  # noqa: ARG002
        """The longest code that this method can learn: 64, unless features or classes limit it.

        Parameters
        ----------
        n_features : columns of X
        n_classes : number of classes; None without labels
        """
        return MAX_BITS

    def project(self, X: ArrayLike) -> Floats:
        """Real-valued scores, (n_samples, n_bits), whose signs are the code."""
        check_is_fitted(self)
        stream = known_stream(X)
        if stream is not None:
            return stream.mapped(self.project, self._n_features_out, np.float64)  # type: ignore[no-any-return]
        return self._settled(X, self._scores)  # type: ignore[no-any-return]

    def _settled(self, X: ArrayLike, first: Callable[..., Scored]) -> Any:
        """Scores whose signs depend on the row alone; ``first`` computes them for all rows of a batch."""
        values = validated(self, X, reset=False, keep_device=self._on_device)
        parts = [
            settled(batch, self._scores_of, lambda rows: first(Rounded(rows), exact=False))
            for _, batch in Rows(values, type(self).__name__).reported("encoding")
        ]
        return returned(namespace(parts[0]).concat(parts), X)

    @property
    def _is_linear(self) -> bool:
        """Whether the hash function is the one of this class."""
        return type(self)._scores is BaseHasher._scores and type(self).project is BaseHasher.project

    @property
    def _on_device(self) -> bool:
        """Whether rows of torch or CuPy are encoded where they are."""
        return self._is_linear

    def _scores_of(self, rows: Any, *, exact: bool) -> Scored:
        return self._scores(Rounded(rows), exact=exact)

    def _scores(self, X: Rounded, *, exact: bool) -> Scored:
        """Scores with a bound on their rounding error; ``exact`` is for one row, in a fixed order of summation."""
        return linear(X, self.projection_, self.intercept_, exact=exact)

    def _signs(self, X: Rounded, *, exact: bool) -> Scored:
        """Scores whose signs are those of ``_scores``, where that is faster; their magnitudes mean nothing."""
        return self._scores(X, exact=exact)

    def transform(self, X: ArrayLike, *, scores: Floats | None = None) -> Codes:
        """Codes, (n_samples, n_bits), int8, -1 or +1: a tensor on the device of ``X`` if that is one, or a Dask array.

        Parameters
        ----------
        X : (n_samples, n_features) rows
        scores : the result of ``project(X)``, if it is already computed
        """
        if scores is not None:
            return sign(scores)
        check_is_fitted(self)
        stream = known_stream(X)
        if stream is not None:
            return stream.mapped(self.transform, self._n_features_out, np.int8)  # type: ignore[no-any-return]
        if type(self).project is not BaseHasher.project:  # a learner that computes its scores in its own way
            return returned(sign(self.project(X)), X)  # type: ignore[no-any-return]
        return sign(self._settled(X, self._signs))

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Tie-aware mean average precision on ``X``: every row is a query against all other rows.

        Tied items contribute their expectation over all orders. Items are relevant if they share a label; rows that
        share a label with no other row are ignored.
        """
        return leave_one_out_map(self.transform(X), y)

    def _training_rows(self, X: ArrayLike) -> Rows:
        """Validated rows for ``fit``: two or more, not all equal, checked for NaN and infinity as they are read."""
        values = validated(self, X, reset=True, min_samples=2)
        rows = Rows(values, type(self).__name__)
        rows.check_varied()
        return rows

    def _check_params(self) -> None:
        """Check the parameters by their types: int >= 1, float >= 0 (> 0 if ``_positive``), bool, one of a Literal."""
        name = type(self).__name__
        for parameter, (kind, optional) in _parameter_types(type(self)).items():
            value = getattr(self, parameter)
            if value is None and optional:
                continue
            if get_origin(kind) is Literal:
                check_choice(value, parameter, name, get_args(kind))
            elif kind is bool:
                check_choice(value, parameter, name, [True, False])
            elif kind is int:
                check_count(value, parameter, name, high=MAX_BITS if parameter == "n_bits" else None)
            elif kind is float:
                check_weight(value, parameter, name, positive=parameter in self._positive)

    def _set_hyperplanes(self, mean: Floats, projection: Floats) -> None:
        """Set the hash function ``sign((x - mean) @ projection)``."""
        self.mean_ = mean
        self.projection_ = projection
        self.intercept_ = -mean @ projection

    def _check_length(self, n_features: int, n_classes: int | None = None) -> int:
        """``n_bits``, if the method is defined for it; raise otherwise."""
        name = type(self).__name__
        n_bits = check_n_bits(self.n_bits, name)
        longest = self.max_bits(n_features, n_classes)
        if n_bits > longest:
            reason, way_out = self._limit
            classes = "" if n_classes is None else f" and n_classes={n_classes}"
            raise InvalidInput(
                f"{name} learns at most {longest} bits from n_features={n_features}{classes}: {reason}. "
                f"Got n_bits={n_bits} instead; {way_out}."
            )
        return n_bits

    @property
    def _n_features_out(self) -> int:
        return int(self.projection_.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # codes are always int8
        return tags


def _parameter_types(cls: type[BaseHasher]) -> dict[str, tuple[Any, bool]]:
    """The type of every field of a learner that has one type besides None, and whether it may be None."""
    hints = get_type_hints(cls)
    found = {}
    for field in fields(cls) if is_dataclass(cls) else ():
        hint = hints[field.name]
        kinds = set(get_args(hint)) if isinstance(hint, UnionType) else {hint}
        if len(kinds - {NoneType}) == 1:
            found[field.name] = (kinds - {NoneType}).pop(), NoneType in kinds
    return found


class MetaHasher(BaseHasher, ABC):
    """A hasher that contains another one, ``estimator``, and has its code length."""

    estimator: BaseHasher

    @abstractmethod
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from feature rows and, if the estimator needs them, labels."""

    @property
    def n_bits(self) -> int:  # type: ignore[override]
        """Code length of the estimator."""
        return self.estimator.n_bits

    def max_bits(self, n_features: int, n_classes: int | None = None) -> int:
        """The longest code that the estimator can learn."""
        return self.estimator.max_bits(n_features, n_classes)

    def _check_params(self) -> None:
        name = type(self).__name__
        if not isinstance(self.estimator, BaseHasher):
            raise InvalidInput(
                f"The 'estimator' parameter of {name} must be a hasher. Got {self.estimator!r} instead; in a "
                f"pipeline, put {name} around the hasher, after the kernel."
            )
        super()._check_params()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if isinstance(self.estimator, BaseHasher):
            tags.target_tags = get_tags(self.estimator).target_tags
        return tags


class UnsupervisedHasher(BaseHasher, ABC):
    """A hasher that learns from rows without labels. A learner defines ``_learn``.

    Attributes
    ----------
    mean_ : (n_features_in,) the training mean

    Examples
    --------
    >>> from shorthash import PCAITQ
    >>> from shorthash.learners import UnsupervisedHasher
    >>> hasher = PCAITQ(n_bits=2, random_state=0).fit([[0.0, 1.0], [2.0, 3.0], [4.0, 2.0]])
    >>> isinstance(hasher, UnsupervisedHasher), hasher.mean_.tolist()
    (True, [2.0, 2.0])
    """

    random_state: int | np.random.RandomState | None = None

    def fit(self, X: ArrayLike, y: object = None) -> Self:  # noqa: ARG002
        """Learn from feature rows.

        Parameters
        ----------
        X : (n_samples, n_features) training rows
        y : ignored
        """
        self._check_params()
        rows = self._training_rows(X)
        self._check_length(self.n_features_in_)
        mean, rows = centred(rows)
        self._learn(rows, mean, check_random_state(self.random_state))
        return self

    @abstractmethod
    def _learn(self, rows: Rows, mean: Floats, rng: np.random.RandomState) -> None:
        """Set all fitted attributes from centred rows and their mean."""


class SupervisedHasher(BaseHasher, ABC):
    """A hasher that learns from labels.

    Attributes
    ----------
    classes_ : (c,) the classes

    Examples
    --------
    >>> from shorthash import RSLH
    >>> from shorthash.learners import SupervisedHasher
    >>> hasher = RSLH(n_bits=2, random_state=0).fit(np.eye(3)[[0, 1, 2] * 4], ["ape", "bee", "cat"] * 4)
    >>> isinstance(hasher, SupervisedHasher), hasher.classes_.tolist()
    (True, ['ape', 'bee', 'cat'])
    """

    classes_: Labels
    _multilabel: ClassVar[bool] = True  # whether a row may have several labels

    @abstractmethod
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from feature rows and their labels."""

    def _set_hash_function(self, projection: Floats, codes: Codes) -> None:
        """Set the hash function learned by regression of ``codes``, (n, n_bits) or one row per label set.

        A bit that all of them share becomes constant: regressed on centred features it would be rounding noise.
        """
        constant = (codes == codes[0]).all(axis=0)
        self.projection_ = np.where(constant, 0.0, projection)
        self.intercept_ = np.where(constant, codes[0], 0).astype(np.float64)

    def _training_groups(
        self,
        y: ArrayLike | None,
        n_samples: int,
        *,
        drop_unlabelled: bool | int | str = False,
        keep_device: bool = False,
    ) -> LabelGroups:
        """Labels as groups of rows; raises if there are fewer than two groups."""
        name = type(self).__name__
        groups = group_labels(
            y, owner=name, n_samples=n_samples, drop_unlabelled=drop_unlabelled, keep_device=keep_device
        )
        if len(groups.rows) < 2:
            only = ", ".join(repr(name) for name in groups.classes[groups.rows[0].astype(bool)].tolist())
            raise InvalidInput(
                f"y of {name} has one class only ({only}), but 2 or more are needed; add rows of another class, or use "
                "an unsupervised method."
            )
        return groups

    def _check_groups(self, groups: LabelGroups) -> None:
        """Raise if rows have several labels and the method needs one."""
        if not self._multilabel and not groups.single:
            raise InvalidInput(
                f"{type(self).__name__} has one codeword per class, but y has rows with several labels; give one "
                "label per row, or use a method for several labels, such as RSLH."
            )

    def _warn_not_converged(self, n_iter: int, stacklevel: int) -> None:
        """Warn that the codes were still changing after the last iteration."""
        warnings.warn(
            f"{type(self).__name__} stopped after max_iter={n_iter} iterations with codes still changing; "
            "increase max_iter to let them converge.",
            ConvergenceWarning,
            stacklevel=stacklevel + 1,
        )

    def _warn_of_collisions(self, n_classes: int, stacklevel: int = 3) -> None:
        """Warn if there are more classes than codes."""
        n_codes = 2**self.n_bits
        if n_classes > n_codes:
            needed = int(np.ceil(np.log2(n_classes)))
            warnings.warn(
                f"{n_classes} classes cannot all have different codes of n_bits={self.n_bits} ({n_codes} codes): "
                f"some must collide; use n_bits >= {needed} to tell all classes apart.",
                CollisionWarning,
                stacklevel=stacklevel,
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = self._multilabel
        return tags
