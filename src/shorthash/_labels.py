"""Labels of every accepted form as groups of samples with the same label row.

Supervised methods use only two facts about labels: which samples have exactly the same labels (a *group*: a class, or
for multi-label data a distinct label set), and which groups share a label. Groups have a canonical order, so results do
not depend on the order of the samples.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from shorthash._arrays import is_foreign, namespace, to_numpy
from shorthash._types import Labels
from shorthash._validation import check_same_length
from shorthash.errors import InvalidInput


@dataclass(frozen=True)
class LabelGroups:
    """Samples grouped by identical label row.

    Attributes
    ----------
    classes : (c,) class names, or column numbers for an indicator matrix
    rows : (u, c) uint8, the distinct label rows in canonical order: descending lexicographic, so that one-hot rows
        are in the order of the classes
    ids : (n,) the group of every sample; on the device of the labels with ``keep_device``
    kept : None, or (n_given,) bool: which of the given samples were kept (the others had no label)
    """

    classes: Labels
    rows: NDArray[np.uint8]
    ids: NDArray[np.intp]
    kept: NDArray[np.bool_] | None = None

    @property
    def n_samples(self) -> int:
        """Number of samples with a label."""
        return len(self.ids)

    @property
    def single(self) -> bool:
        """Whether every sample has exactly one label."""
        return bool(np.all(self.rows.sum(axis=1) == 1))


def group_labels(
    y: ArrayLike | None,
    *,
    owner: str,
    n_samples: int | None = None,
    classes: ArrayLike | None = None,
    drop_unlabelled: bool = False,
    allow_unlabelled: bool = False,
    keep_device: bool = False,
) -> LabelGroups:
    """Group samples by label row.

    Parameters
    ----------
    y : (n,) class labels of any sortable type, or an (n, c) indicator matrix of 0/1 or -1/+1
    owner : the caller, for error messages
    n_samples : required number of samples
    classes : all classes, if known (for an indicator matrix: one name per column)
    drop_unlabelled : drop samples without any label instead of raising
    allow_unlabelled : keep them, in a group of their own
    keep_device : leave ``ids`` of integer class labels on the device that the labels are on
    """
    if keep_device and _integers_on_device(y):
        distinct = namespace(y).unique_inverse(y)
        found = group_labels(to_numpy(distinct.values), owner=owner, classes=classes)
        check_same_length(n_samples, len(distinct.inverse_indices), owner)
        return replace(found, ids=distinct.inverse_indices)
    values = _as_label_array(y, owner)
    check_same_length(n_samples, len(values), owner)
    if values.ndim == 1:
        return _group_classes(values, classes, owner)
    return _group_indicator(label_matrix(values, owner), classes, owner, drop_unlabelled, allow_unlabelled)


def group_label_pair(y: ArrayLike, z: ArrayLike, *, owner: str) -> tuple[LabelGroups, LabelGroups]:
    """Group two label arrays over the same classes and the same label rows (queries and database)."""
    first, second = _as_label_array(y, owner), _as_label_array(z, owner)
    if first.ndim != second.ndim:
        raise InvalidInput(
            f"Labels of {owner} must be of one form, but the two sides have shapes {first.shape} and {second.shape}; "
            "give both as class labels or both as indicator matrices."
        )
    if first.ndim == 1:
        if (first.dtype.kind in "OUS") != (second.dtype.kind in "OUS"):
            raise InvalidInput(
                f"Labels of {owner} must be of one type, but one side has {first.dtype} and the other {second.dtype}; "
                "convert one of them."
            )
        both = group_labels(np.concatenate([first, second]), owner=owner)
    else:
        A, B = label_matrix(first, owner), label_matrix(second, owner)
        if A.shape[1] != B.shape[1]:
            raise InvalidInput(
                f"Label matrices of {owner} must have the same columns, but one has {A.shape[1]} and the other "
                f"{B.shape[1]}; build both with the same class list."
            )
        both = _group_indicator(np.concatenate([A, B]), None, owner, drop_unlabelled=False, allow_unlabelled=True)
    n = len(first)
    return (
        LabelGroups(both.classes, both.rows, both.ids[:n]),
        LabelGroups(both.classes, both.rows, both.ids[n:]),
    )


def label_matrix(y: NDArray[Any], owner: str) -> NDArray[np.uint8]:
    """Return an indicator matrix of 0/1 or -1/+1 as 0/1."""
    values = np.unique(y)
    if not (np.isin(values, (0, 1)).all() or np.isin(values, (-1, 1)).all()):
        shown = ", ".join(str(v) for v in values[:4]) + (", ..." if len(values) > 4 else "")
        raise InvalidInput(
            f"A label matrix of {owner} must hold only 0/1 or only -1/+1. Got the values {shown} instead; "
            "pass one class label per row as a 1-d array if the labels are class names."
        )
    return np.ascontiguousarray(y == 1).view(np.uint8)


def shared_label(rows: NDArray[np.uint8], others: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which label rows share a label, (u, v); callers pass blocks of rows to bound memory."""
    A = sparse.csr_array(rows.astype(np.float32))
    return np.asarray((A @ others.T.astype(np.float32)) > 0)


def _integers_on_device(y: Any) -> bool:
    """Whether labels are integers, one per sample, in a torch or CuPy array."""
    return is_foreign(y) and len(y.shape) == 1 and bool(namespace(y).isdtype(y.dtype, "integral"))


def _as_label_array(y: ArrayLike | None, owner: str) -> NDArray[Any]:
    """An array of labels with 1 or 2 dimensions; a single column becomes 1-d with scikit-learn's warning."""
    if y is None:
        raise InvalidInput(f"{owner} requires y to be passed, but the target y is None; give one label per row.")
    values = to_numpy(y)
    if values.ndim == 2 and values.shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning  # here, so that an index loads without scikit-learn

        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; please change the shape of y to (n_samples,), "
            "for example using ravel().",
            DataConversionWarning,
            stacklevel=4,
        )
        values = values.ravel()
    if values.ndim not in (1, 2):
        raise InvalidInput(f"Labels of {owner} must have 1 or 2 dimensions. Got shape {values.shape} instead.")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InvalidInput(f"Input y of {owner} contains NaN or infinity; give every sample a label or drop it.")
    if values.dtype.kind == "O" and any(v is None or v != v for v in values.ravel()):
        raise InvalidInput(f"Input y of {owner} contains a missing value; give every sample a label or drop it.")
    if values.dtype.kind == "O":
        values = _uniform(values, owner)
    return values


def _uniform(values: NDArray[Any], owner: str) -> NDArray[Any]:
    """Object labels as an array of one plain type."""
    kinds = {type(v) for v in values.ravel()}
    if any(issubclass(k, str) for k in kinds) and not all(issubclass(k, str) for k in kinds):
        names = ", ".join(sorted(k.__name__ for k in kinds))
        raise InvalidInput(f"Labels of {owner} must be of one type. Got {names} instead; convert them all to str.")
    return np.array(values.tolist())


def _continuous(values: NDArray[Any]) -> bool:
    from sklearn.utils.multiclass import type_of_target

    return bool(type_of_target(values) == "continuous")


def _group_classes(values: NDArray[Any], classes: ArrayLike | None, owner: str) -> LabelGroups:
    """Groups of 1-d class labels: the classes that occur, in class order."""
    if values.dtype.kind == "f" and _continuous(values):
        raise InvalidInput(
            f"Unknown label type: continuous. y of {owner} must hold class labels, but has fractional values; "
            "bin them into classes first."
        )
    seen, ids = _distinct(values)
    names = seen if classes is None else np.unique(np.asarray(classes))
    columns = np.searchsorted(names, seen)
    unknown = seen[names[np.minimum(columns, len(names) - 1)] != seen]
    if len(unknown):
        shown = ", ".join(repr(v) for v in unknown[:5].tolist()) + (", ..." if len(unknown) > 5 else "")
        raise InvalidInput(
            f"y of {owner} contains unknown classes: {shown}; name all classes in 'classes' at the first call of "
            "partial_fit."
        )
    rows = np.zeros((len(seen), len(names)), dtype=np.uint8)
    rows[np.arange(len(seen)), columns] = 1
    return LabelGroups(names, rows, ids.reshape(-1))


def _group_indicator(
    Y: NDArray[np.uint8],
    classes: ArrayLike | None,
    owner: str,
    drop_unlabelled: bool,
    allow_unlabelled: bool = False,
) -> LabelGroups:
    """Groups of indicator rows: the distinct rows, descending."""
    names = np.arange(Y.shape[1]) if classes is None else np.asarray(classes)
    if len(names) != Y.shape[1]:
        raise InvalidInput(
            f"The label matrix of {owner} has {Y.shape[1]} columns, but {len(names)} classes were given; "
            "give one column per class."
        )
    kept: NDArray[np.bool_] | None = None
    labelled: NDArray[np.bool_] = np.asarray(Y.any(axis=1))
    if not (labelled.all() or allow_unlabelled):
        n_bare = int((~labelled).sum())
        if not drop_unlabelled:
            raise InvalidInput(
                f"The label matrix of {owner} has {n_bare} all-zero rows (first: {int(np.argmin(labelled))}), but "
                "every sample needs at least one label; drop those rows (a learner does so with drop_unlabelled=True)."
            )
        if not labelled.any():
            raise InvalidInput(f"No row of the label matrix of {owner} has a label; give labels to learn from.")
        kept, Y = labelled, Y[labelled]
    packed = np.packbits(Y, axis=1)  # big-endian bits keep the lexicographic order
    distinct, ids = np.unique(packed, axis=0, return_inverse=True)
    rows = np.unpackbits(distinct[::-1], axis=1, count=Y.shape[1])
    return LabelGroups(names, rows, (len(distinct) - 1 - ids).reshape(-1), kept)


def _distinct(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Distinct values, ascending, and the position of each value among them; small integers without sorting."""
    if values.dtype.kind in "iu" and len(values):
        low, high = int(values.min()), int(values.max())
        if high - low <= 4 * len(values) and high < 2**62 and low > -(2**62):
            offsets = values.astype(np.int64) - low
            present = np.zeros(high - low + 1, dtype=bool)
            present[offsets] = True
            seen = (np.flatnonzero(present) + low).astype(values.dtype)
            return seen, (np.cumsum(present) - 1)[offsets]
    seen, ids = np.unique(values, return_inverse=True)
    return seen, ids.reshape(-1)
