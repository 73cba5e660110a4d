"""Labels of every accepted form as groups of samples with the same label row.

Supervised methods use only two facts about labels: which samples have exactly the same labels (a *group*: a class, or
for multi-label data a distinct label set), and which groups share a label. Groups have a canonical order, so results do
not depend on the order of the samples.

A label of None, NaN, NA or "" is missing: the sample is *unlabelled*, as one whose indicator row is all zero and one
whose set of labels is empty.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from shorthash._arrays import Labels, is_foreign, namespace, to_numpy
from shorthash._validation import check_same_length
from shorthash.errors import InvalidInput, NoLabels, phrase

MOST_SETS = 512  # of several labels, that are learned; with many more, posteriors of each would be rough
BLOCK_SETS = 4096  # compared with those at once


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

    def merged(self, known: NDArray[np.uint8] | None = None) -> LabelGroups:
        """Groups of the label sets to learn (``frequent_sets``).

        Those are the ``known``, if each still has rows and no label is missing in them. Samples of any other label set
        are in the group of the one most like it.
        """
        if known is not None and not self.single and len(self.rows) > most_learned(self.rows.shape[1]):
            ids = most_alike(self.rows, known)[self.ids]
            lacking = self.rows.any(axis=0) & ~known.any(axis=0)
            if not lacking.any() and np.bincount(ids, minlength=len(known)).all():
                return replace(self, rows=known, ids=ids)
        kept, places = frequent_sets(self.rows, np.bincount(self.ids, minlength=len(self.rows)))
        return replace(self, rows=self.rows[kept], ids=places[self.ids])


@dataclass(frozen=True)
class _Given:
    """Labels of one form.

    Attributes
    ----------
    values : (n,) class labels, or an (n, c) matrix of 0/1
    missing : (n,) bool, the samples without any label
    names : (c,) the classes of a matrix that was made from sets of labels; None: not known
    """

    values: NDArray[Any]
    missing: NDArray[np.bool_]
    names: Labels | None = None


def group_labels(
    y: ArrayLike | None,
    *,
    owner: str,
    n_samples: int | None = None,
    classes: ArrayLike | None = None,
    drop_unlabelled: bool | int | str = False,
    allow_unlabelled: bool = False,
    keep_device: bool = False,
) -> LabelGroups:
    """Group samples by label row.

    Parameters
    ----------
    y : (n,) class labels of any sortable type; n sets or lists of labels; or an (n, c) matrix of 0/1 or -1/+1,
        dense or sparse
    owner : the caller, for error messages
    n_samples : required number of samples
    classes : all classes, if known (for an indicator matrix: one name per column)
    drop_unlabelled : drop samples without any label instead of raising; a value other than True and False, such as -1,
        is a class label that means the same
    allow_unlabelled : keep them, in a separate group
    keep_device : leave ``ids`` of integer class labels on the device that the labels are on
    """
    mark = None if isinstance(drop_unlabelled, bool) else drop_unlabelled
    if keep_device and mark is None and _integers_on_device(y):
        distinct = namespace(y).unique_inverse(y)
        found = group_labels(to_numpy(distinct.values), owner=owner, classes=classes)
        check_same_length(n_samples, len(distinct.inverse_indices), owner)
        return replace(found, ids=distinct.inverse_indices)
    given = _as_given(y, owner, mark)
    check_same_length(n_samples, len(given.values), owner)
    kept: NDArray[np.bool_] | None = None
    if given.missing.any() and not allow_unlabelled:
        _check_some_labelled(given, owner, drop=drop_unlabelled is not False)
        kept = ~given.missing
        given = replace(given, values=given.values[kept], missing=given.missing[kept])
    group = _group_classes if given.values.ndim == 1 else _group_indicator
    return replace(group(given, classes, owner), kept=kept)


def group_label_pair(y: ArrayLike, z: ArrayLike, *, owner: str) -> tuple[LabelGroups, LabelGroups]:
    """Group two label arrays over the same classes and the same label rows (queries and database)."""
    first, second = _as_given(y, owner), _as_given(z, owner)
    if first.names is not None or second.names is not None:  # sets of labels, and classes as sets of one
        first, second = _over_the_same_names(first, second, owner)
    a, b = first.values, second.values
    if b.ndim == 1 and second.missing.all():  # no label, so of no type
        b = np.zeros(len(b), dtype=a.dtype if a.ndim == 1 else b.dtype)
    elif a.ndim == 1 and first.missing.all():
        a = np.zeros(len(a), dtype=b.dtype if b.ndim == 1 else a.dtype)
    if a.ndim != b.ndim:
        raise InvalidInput(
            f"Labels of {owner} must be of one form, but the two sides have shapes {a.shape} and {b.shape}; "
            "give both as class labels or both as indicator matrices."
        )
    if a.ndim == 1 and (a.dtype.kind in "OUS") != (b.dtype.kind in "OUS"):
        raise InvalidInput(f"Labels of {owner} must be of one type. Got {a.dtype} and {b.dtype}; convert one of them.")
    if a.ndim == 2 and a.shape[1] != b.shape[1]:
        raise InvalidInput(
            f"Label matrices of {owner} must have the same columns, but one has {a.shape[1]} and the other "
            f"{b.shape[1]}; build both with the same class list."
        )
    both = _Given(np.concatenate([a, b]), np.concatenate([first.missing, second.missing]), first.names)
    found = (_group_classes if a.ndim == 1 else _group_indicator)(both, None, owner)
    return replace(found, ids=found.ids[: len(a)]), replace(found, ids=found.ids[len(a) :])


def label_rows(y: Any) -> NDArray[Any]:
    """Labels of any form as an array with one entry or row per sample, to be picked from by row numbers.

    Sets and lists of labels become an array of objects, and a sparse indicator matrix becomes a dense one.
    """
    if sparse.issparse(y):
        matrix: Any = y
        return np.asarray(matrix.toarray())
    rows: Any = None
    try:
        values = to_numpy(y)
        if values.ndim == 2 and values.shape[1] > 1 and any(isinstance(cell, str) for cell in values[:1].flat):
            rows = values.tolist()  # lists of names, of the same length
    except ValueError:  # lists of different lengths
        rows = [row if _is_set(row) else [row] for row in y]
    if rows is not None:
        values = np.empty(len(rows), dtype=object)
        for i, row in enumerate(rows):
            values[i] = row
    return values


def label_matrix(y: NDArray[Any], owner: str) -> NDArray[np.uint8]:
    """Return an indicator matrix of 0/1 or -1/+1 as 0/1."""
    values = np.unique(y)
    if not (np.isin(values, (0, 1)).all() or np.isin(values, (-1, 1)).all()):
        shown = ", ".join(str(v) for v in values[:4]) + (", ..." if len(values) > 4 else "")
        raise InvalidInput(
            f"A label matrix of {owner} must hold only 0/1 or only -1/+1. Got the values {shown} instead; "
            "pass one class label per row as a 1-d array, or a set of them per row, if the labels are class names."
        )
    return np.ascontiguousarray(y == 1).view(np.uint8)


def most_learned(n_labels: int) -> int:
    """Up to so many label sets, each is learned."""
    return max(MOST_SETS, n_labels)


def frequent_sets(rows: NDArray[np.uint8], counts: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The label sets to learn, and for every label set its place among those.

    Rows with several labels can have as many label sets as there are rows. The ``MOST_SETS`` most frequent are learned,
    and more where these lack a label; for any other set stands the one of them that is most like it. Every set is
    learned where every row has one label, or where there are no more sets than labels.

    Parameters
    ----------
    rows : (u, c) label rows
    counts : (u,) how often they occur
    """
    u = len(rows)
    if u <= most_learned(rows.shape[1]):
        return np.arange(u), np.arange(u)
    order = np.argsort(-np.asarray(counts), kind="stable")
    missing = rows.any(axis=0) & ~rows[order[:MOST_SETS]].any(axis=0)
    first = rows[order][:, missing].argmax(axis=0)  # the most frequent set with the label
    kept = np.sort(order[np.unique(np.concatenate([np.arange(MOST_SETS), first]))])
    return kept, most_alike(rows, rows[kept])


def most_alike(rows: NDArray[np.uint8], others: NDArray[np.uint8]) -> NDArray[np.intp]:
    """The one of the ``others`` with which every label row has most in common, the first of equal ones.

    That is the share of the labels they have in common in all that either has (Jaccard).
    """
    found = np.empty(len(rows), dtype=np.intp)
    B, sizes = others.T.astype(np.float32), others.sum(axis=1, dtype=np.float32)
    for start in range(0, len(rows), BLOCK_SETS):
        A = rows[start : start + BLOCK_SETS].astype(np.float32)
        common = np.asarray(sparse.csr_array(A) @ B)
        found[start : start + BLOCK_SETS] = (common / (A.sum(axis=1)[:, None] + sizes - common)).argmax(axis=1)
    return found


def shared_label(rows: NDArray[np.uint8], others: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which label rows share a label, (u, v); callers pass blocks of rows to bound memory."""
    A = sparse.csr_array(rows.astype(np.float32))
    return np.asarray((A @ others.T.astype(np.float32)) > 0)


def _integers_on_device(y: Any) -> bool:
    """Whether labels are integers, one per sample, in a torch or CuPy array."""
    return is_foreign(y) and len(y.shape) == 1 and bool(namespace(y).isdtype(y.dtype, "integral"))


def _as_given(y: ArrayLike | None, owner: str, mark: int | str | None = None) -> _Given:
    """Labels, checked; a single column becomes 1-d with scikit-learn's warning; ``mark`` is a label that means none."""
    if y is None:
        raise InvalidInput(f"{owner} requires y to be passed, but the target y is None; give one label per row.")
    values = label_rows(y)
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
    if values.ndim == 1 and values.dtype.kind == "O" and any(_is_set(row) for row in values):
        return _given_sets(values, owner, mark)
    missing = missing_labels(values)
    if values.dtype.kind == "f" and np.isinf(values).any():
        raise InvalidInput(f"Input y of {owner} contains infinity; give every sample a label or None.")
    if values.ndim == 2:
        return _given_matrix(values, missing, owner)
    if values.dtype.kind == "O":
        values = _uniform(values, missing, owner)
    if mark is not None and (values.dtype.kind in "US") == isinstance(mark, str):
        missing = missing | (values == mark)
    return _Given(values, missing)


def missing_labels(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which labels, or cells, of an array are missing: None, NaN, NA, NaT, or an empty string.

    Examples
    --------
    >>> missing_labels(np.array(["a", None, "", float("nan"), 0], dtype=object)).tolist()
    [False, True, True, True, False]
    """
    if values.dtype.kind == "f":
        return np.asarray(np.isnan(values))
    if values.dtype.kind in "US":
        return np.asarray(values == np.zeros((), dtype=values.dtype))
    if values.dtype.kind != "O":
        return np.zeros(values.shape, dtype=bool)
    flat = np.fromiter((_is_missing(value) for value in values.ravel()), dtype=bool, count=values.size)
    return flat.reshape(values.shape)


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # pandas is not imported for this
        return True
    return value == "" if isinstance(value, str) else isinstance(value, float | np.floating) and bool(np.isnan(value))


def _is_set(row: Any) -> bool:
    """Whether a sample has a collection of labels."""
    return isinstance(row, list | tuple | set | frozenset | np.ndarray)


def _given_sets(rows: Iterable[Any], owner: str, mark: int | str | None) -> _Given:
    """Collections of labels as an indicator matrix; a sample may also have a single label, or None."""
    found = [[label for label in (row if _is_set(row) else [row]) if not _is_missing(label)] for row in rows]
    lengths = np.array([len(row) for row in found])
    flat = np.empty(lengths.sum(), dtype=object)
    flat[:] = [label for row in found for label in row]
    names, columns = np.unique(_uniform(flat, np.zeros(len(flat), dtype=bool), owner), return_inverse=True)
    Y = np.zeros((len(found), len(names)), dtype=np.uint8)
    Y[np.repeat(np.arange(len(found)), lengths), columns.reshape(-1)] = 1
    if mark is not None:
        Y, names = Y[:, names != mark], names[names != mark]
    return _Given(Y, np.asarray(~Y.any(axis=1)), names)


def _given_matrix(values: NDArray[Any], missing: NDArray[np.bool_], owner: str) -> _Given:
    """An indicator matrix; a row whose cells are all missing has no label."""
    bare = np.asarray(missing.all(axis=1))
    if missing[~bare].any():
        row = int(np.argmax(missing.any(axis=1) & ~bare))
        raise InvalidInput(f"Row {row} of the label matrix of {owner} has missing cells; fill all of a row, or none.")
    if bare.any():
        values = np.where(bare[:, None], values[~bare].min(initial=0) if len(values[~bare]) else 0, values)
    if values.dtype.kind == "O":
        values = np.array(values.tolist())
    Y = label_matrix(values, owner)
    return _Given(Y, np.asarray(~Y.any(axis=1)))


def _over_the_same_names(first: _Given, second: _Given, owner: str) -> tuple[_Given, _Given]:
    """Sets of labels, or classes, of two sides as matrices with the same columns."""
    sides = []
    for given in (first, second):
        if given.values.ndim == 2 and given.names is None:
            raise InvalidInput(
                f"Labels of {owner} must be of one form, but one side has sets of labels and the other an indicator "
                "matrix, whose columns have no names; give sets on both sides."
            )
        if given.names is None:
            rows = np.empty(len(given.values), dtype=object)
            rows[:] = [[] if bare else [v] for v, bare in zip(given.values.tolist(), given.missing, strict=True)]
            given = _given_sets(rows, owner, None)
        sides.append(given)
    a, b = (given.names for given in sides)
    assert a is not None
    assert b is not None
    if len(a) and len(b) and (a.dtype.kind in "US") != (b.dtype.kind in "US"):
        raise InvalidInput(f"Labels of {owner} must be of one type. Got {a.dtype} and {b.dtype}; convert one of them.")
    names = a if not len(b) else b if not len(a) else np.union1d(a, b)
    return _with_columns(sides[0], names), _with_columns(sides[1], names)


def _with_columns(given: _Given, names: Labels) -> _Given:
    """A named matrix with a column for each of ``names``, which include its own."""
    Y = np.zeros((len(given.values), len(names)), dtype=np.uint8)
    if given.names is not None and len(given.names):
        Y[:, np.searchsorted(names, given.names)] = given.values
    return _Given(Y, given.missing, names)


def _check_some_labelled(given: _Given, owner: str, *, drop: bool) -> None:
    """Raise if samples without a label are not to be dropped, or if there are no others."""
    n_bare, n = int(given.missing.sum()), len(given.missing)
    if not drop:
        kind = "all-zero rows of the label matrix" if given.values.ndim == 2 else "labels missing"
        way_out = phrase("drop those rows (a learner does so with drop_unlabelled=True)")
        if n_bare == n:
            way_out = "give labels, or leave out y for a method that learns without"
        raise InvalidInput(
            f"{n_bare} of {n} samples of {owner} have no label (first: {int(np.argmax(given.missing))}; {kind}), but "
            f"every sample needs one; {way_out}."
        )
    if n_bare == n:
        raise NoLabels(f"None of the {n} samples of {owner} has a label; give labels to learn from.")


def _uniform(values: NDArray[Any], missing: NDArray[np.bool_], owner: str) -> NDArray[Any]:
    """Object labels as an array of one plain type, with any value where they are missing."""
    present = values[~missing].tolist()
    kinds = {type(v) for v in present}
    if any(issubclass(k, str) for k in kinds) and not all(issubclass(k, str) for k in kinds):
        names = ", ".join(sorted(k.__name__ for k in kinds))
        raise InvalidInput(f"Labels of {owner} must be of one type. Got {names} instead; convert them all to str.")
    plain = np.array(present)
    if not missing.any():
        return plain
    filled = np.empty(len(values), dtype=plain.dtype if len(plain) else np.int64)
    filled[~missing] = plain
    filled[missing] = plain[0] if len(plain) else 0
    return filled


def _continuous(values: NDArray[Any]) -> bool:
    from sklearn.utils.multiclass import type_of_target

    return bool(type_of_target(values) == "continuous")


def _group_classes(given: _Given, classes: ArrayLike | None, owner: str) -> LabelGroups:
    """Groups of 1-d class labels: the classes that occur, in class order; then the samples without a label."""
    labelled = ~given.missing
    values = given.values[labelled]
    if values.dtype.kind == "f" and _continuous(values):
        raise InvalidInput(f"Unknown label type: continuous. y of {owner} must hold class labels; bin values first.")
    seen, ids = _distinct(values)
    names = seen if classes is None else np.unique(np.asarray(classes))
    columns = _columns_of(seen, names, owner)
    rows = np.zeros((len(seen) + int(not labelled.all()), len(names)), dtype=np.uint8)
    rows[np.arange(len(seen)), columns] = 1
    if labelled.all():
        return LabelGroups(names, rows, ids.reshape(-1))
    every = np.full(len(labelled), len(seen), dtype=np.intp)
    every[labelled] = ids.reshape(-1)
    return LabelGroups(names, rows, every)


def _columns_of(seen: Labels, names: Labels, owner: str) -> NDArray[np.intp]:
    """The place of every label among ``names``; a label that is not there is an error."""
    if not len(seen):
        return np.zeros(0, dtype=np.intp)
    columns = np.searchsorted(names, seen)
    unknown = seen[names[np.minimum(columns, len(names) - 1)] != seen]
    if len(unknown):
        shown = ", ".join(repr(v) for v in unknown[:5].tolist()) + (", ..." if len(unknown) > 5 else "")
        raise InvalidInput(f"y of {owner} contains unknown classes: {shown}; name them all at the first partial_fit.")
    return columns


def _group_indicator(given: _Given, classes: ArrayLike | None, owner: str) -> LabelGroups:
    """Groups of indicator rows: the distinct rows, descending."""
    Y = given.values
    if given.names is not None and classes is not None:
        names = np.unique(np.asarray(classes))
        _columns_of(given.names, names, owner)
        Y = _with_columns(given, names).values
    elif given.names is not None:
        names = given.names
    else:
        names = np.arange(Y.shape[1]) if classes is None else np.asarray(classes)
    if len(names) != Y.shape[1]:
        raise InvalidInput(f"The label matrix of {owner} has {Y.shape[1]} columns, but {len(names)} classes are given.")
    packed = np.packbits(Y, axis=1)  # big-endian bits keep the lexicographic order
    distinct, ids = np.unique(packed, axis=0, return_inverse=True)
    rows = np.unpackbits(distinct[::-1], axis=1, count=Y.shape[1])
    return LabelGroups(names, rows, (len(distinct) - 1 - ids).reshape(-1))


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
