"""Evaluation protocols: which rows are queries, which are training rows, and which are searched.

A protocol is a small frozen object with a seed. For given labels it always gives the same split, and it can be stored
as a plain dict, so that a result can name the protocol it was measured under.

=====================  =============================================================================================
``PerClassQueries``    a number of queries per class (CIFAR-10: 100, ImageNet-100: 50)
``RandomQueries``      a number of queries overall (CALTECH-101, and multi-label data)
``FewRows``            a few training rows of every class
``UnseenClasses``      train on some classes, search among the others
``OfficialTest``       the test rows that the data set names are the queries
=====================  =============================================================================================

All rows that are not queries are the database, unless ``train_in_database=False`` removes the training rows from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._labels import group_labels, label_rows
from shorthash._validation import check_choice, check_count
from shorthash.errors import InvalidInput, named, phrase

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Split:
    """Row numbers, ascending.

    Attributes
    ----------
    query : rows to search for
    train : rows to fit on
    database : rows that are searched; may contain the training rows, never the queries
    """

    query: Rows
    train: Rows
    database: Rows


def given_split(
    n_rows: int, query: ArrayLike, train: ArrayLike | None = None, database: ArrayLike | None = None
) -> Split:
    """A split from row numbers that were chosen elsewhere.

    Parameters
    ----------
    n_rows : number of all rows
    query : numbers of the rows to search for
    train : rows to fit on; all of the database if missing
    database : rows that are searched; all but the queries if missing

    Examples
    --------
    >>> given_split(5, query=[0, 3], train=[1])
    Split(query=array([0, 3]), train=array([1]), database=array([1, 2, 4]))
    """
    parts = {"query": query, "train": train, "database": database}
    rows = {name: _row_numbers(part, name, n_rows) for name, part in parts.items() if part is not None}
    rows.setdefault("database", _without(np.arange(n_rows, dtype=np.intp), rows["query"]))
    rows.setdefault("train", rows["database"])
    for name in ("train", "database"):
        both = np.intersect1d(rows["query"], rows[name])
        if len(both):
            raise InvalidInput(f"Row {both[0]} is among the {_part(name)} and the {_part('query')}; drop it from one.")
    return Split(**rows)


def _part(name: str) -> str:
    """What messages call the rows of a part of a split."""
    return phrase(f"'{name}' rows")


def _row_numbers(part: ArrayLike, name: str, n_rows: int) -> Rows:
    """Row numbers, ascending, each once."""
    rows = np.asarray(part)
    if rows.ndim != 1 or not len(rows) or (rows.dtype.kind not in "iu" and not np.array_equal(rows, rows.astype(int))):
        raise InvalidInput(f"The {_part(name)} of a split must be a list of row numbers, counted from 0.")
    rows = rows.astype(np.intp)
    if rows.min() < 0 or rows.max() >= n_rows:
        worst = int(rows.min() if rows.min() < 0 else rows.max())
        raise InvalidInput(f"The {_part(name)} of a split must be from 0 to {n_rows - 1}. Got {worst} instead.")
    if len(np.unique(rows)) < len(rows):
        raise InvalidInput(f"The {_part(name)} of a split must be different; leave out those that are repeated.")
    return np.sort(rows)


@dataclass(frozen=True)
class Protocol:
    """Base class; subclasses define :meth:`split`."""

    kind: ClassVar[str]

    def split(self, y: ArrayLike, test: ArrayLike | None = None) -> Split:
        """Row numbers of queries, training rows and database.

        Parameters
        ----------
        y : (n,) class labels, or an (n, n_classes) indicator matrix
        test : (n,) bool, the test rows that the data set names; only ``OfficialTest`` uses them
        """
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The protocol as plain values; :func:`protocol_from_dict` reads it back."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class PerClassQueries(Protocol):
    """Draw ``per_class`` queries of every class, then ``n_train`` training rows from all others.

    Parameters
    ----------
    per_class : queries of every class
    n_train : training rows; None for all that are not queries
    train_in_database : whether training rows are searched too
    seed : seed of ``numpy.random.default_rng``

    Examples
    --------
    >>> split = PerClassQueries(per_class=1, n_train=2, seed=0).split(["a", "a", "a", "b", "b"])
    >>> len(split.query), len(split.train), len(split.database)
    (2, 2, 3)
    """

    kind: ClassVar[str] = "per_class_queries"
    per_class: int = 100
    n_train: int | None = None
    train_in_database: bool = True
    seed: int = 0

    def split(self, y: ArrayLike, test: ArrayLike | None = None) -> Split:  # noqa: ARG002
        """Draw class by class, in class order."""
        per_class = check_count(self.per_class, "per_class", "PerClassQueries")
        ids = _classes(y, "PerClassQueries")
        rng = np.random.default_rng(self.seed)
        drawn = []
        for label in range(int(ids.max()) + 1):
            members = np.flatnonzero(ids == label)
            if len(members) < per_class:
                raise InvalidInput(
                    f"PerClassQueries draws {per_class} queries of every class, but class number {label} has "
                    f"{len(members)} rows; lower per_class, or use RandomQueries."
                )
            drawn.append(rng.choice(members, per_class, replace=False))
        others = _without(np.arange(len(ids)), np.concatenate(drawn))
        train = _training_rows(rng, others, self.n_train, self.kind)
        return _with_database(self, np.concatenate(drawn), train, others)


@dataclass(frozen=True)
class RandomQueries(Protocol):
    """Draw ``n_queries`` queries overall, then ``n_train`` training rows from all others.

    Parameters
    ----------
    n_queries : queries
    n_train : training rows; None for all that are not queries
    train_in_database : whether training rows are searched too
    seed : seed of ``numpy.random.default_rng``

    Examples
    --------
    >>> split = RandomQueries(n_queries=2, seed=0).split([0, 0, 1, 1, 1])
    >>> split.train.tolist() == split.database.tolist(), len(split.database)
    (True, 3)
    """

    kind: ClassVar[str] = "random_queries"
    n_queries: int = 1000
    n_train: int | None = None
    train_in_database: bool = True
    seed: int = 0

    def split(self, y: ArrayLike, test: ArrayLike | None = None) -> Split:  # noqa: ARG002
        """Draw from all rows."""
        n = len(label_rows(y))
        n_queries = _some_of(self.n_queries, n, "n_queries", "RandomQueries")
        rng = np.random.default_rng(self.seed)
        queries = rng.choice(n, n_queries, replace=False)
        others = _without(np.arange(n), queries)
        return _with_database(self, queries, _training_rows(rng, others, self.n_train, self.kind), others)


@dataclass(frozen=True)
class FewRows(Protocol):
    """Draw ``n_queries`` queries overall, then ``per_class`` training rows of every class from all others.

    Parameters
    ----------
    n_queries : queries
    per_class : training rows of every class; all of a class that has fewer
    train_in_database : whether training rows are searched too
    seed : seed of ``numpy.random.default_rng``

    Examples
    --------
    >>> split = FewRows(n_queries=2, per_class=1, seed=0).split([0, 0, 1, 1, 1])
    >>> len(split.train), len(split.database)
    (2, 3)
    """

    kind: ClassVar[str] = "few_rows"
    n_queries: int = 1000
    per_class: int = 5
    train_in_database: bool = True
    seed: int = 0

    def split(self, y: ArrayLike, test: ArrayLike | None = None) -> Split:  # noqa: ARG002
        """Draw queries from all rows, then training rows class by class, in class order."""
        per_class = check_count(self.per_class, "per_class", "FewRows")
        ids = _classes(y, "FewRows")
        rng = np.random.default_rng(self.seed)
        queries = rng.choice(len(ids), _some_of(self.n_queries, len(ids), "n_queries", "FewRows"), replace=False)
        others = _without(np.arange(len(ids)), queries)
        order = rng.permutation(others)
        drawn = [order[ids[order] == label][:per_class] for label in range(int(ids.max()) + 1)]
        return _with_database(self, queries, np.sort(np.concatenate(drawn)), others)


@dataclass(frozen=True)
class UnseenClasses(Protocol):
    """Train on some classes; queries and database come from the others.

    Parameters
    ----------
    n_unseen : classes without training rows, drawn at random
    n_queries : queries among their rows; the rest of them is the database
    n_train : training rows from the seen classes; None for all
    seed : seed of ``numpy.random.default_rng``

    Examples
    --------
    >>> y = np.repeat([0, 1, 2, 3], 5)
    >>> split = UnseenClasses(n_unseen=2, n_queries=4, seed=0).split(y)
    >>> set(y[split.train].tolist()) & set(y[split.database].tolist())
    set()
    """

    kind: ClassVar[str] = "unseen_classes"
    n_unseen: int = 25
    n_queries: int = 1000
    n_train: int | None = None
    seed: int = 0

    def split(self, y: ArrayLike, test: ArrayLike | None = None) -> Split:  # noqa: ARG002
        """Draw the unseen classes, then queries among their rows, then training rows among the others."""
        ids = _classes(y, "UnseenClasses")
        n_classes = int(ids.max()) + 1
        n_unseen = _some_of(self.n_unseen, n_classes, "n_unseen", "UnseenClasses", what="classes")
        rng = np.random.default_rng(self.seed)
        unseen = np.isin(ids, rng.choice(n_classes, n_unseen, replace=False))
        rows = np.flatnonzero(unseen)
        queries = rng.choice(rows, _some_of(self.n_queries, len(rows), "n_queries", "UnseenClasses"), replace=False)
        train = _training_rows(rng, np.flatnonzero(~unseen), self.n_train, self.kind)
        return Split(np.sort(queries), train, _without(rows, queries))


@dataclass(frozen=True)
class OfficialTest(Protocol):
    """The test rows that the data set names are the queries; all other rows are the database.

    Parameters
    ----------
    n_queries : draw this many of the test rows; None for all
    n_train : training rows; None for all that are not test rows
    train_in_database : whether training rows are searched too
    seed : seed of ``numpy.random.default_rng``

    Examples
    --------
    >>> split = OfficialTest().split([0, 1, 0, 1], test=[False, False, True, True])
    >>> split.query.tolist(), split.database.tolist()
    ([2, 3], [0, 1])
    """

    kind: ClassVar[str] = "official_test"
    n_queries: int | None = None
    n_train: int | None = None
    train_in_database: bool = True
    seed: int = 0

    def split(self, y: ArrayLike, test: ArrayLike | None = None) -> Split:
        """Take, or draw from, the test rows; test rows that are not drawn are not used."""
        n = len(label_rows(y))
        mask = np.asarray([] if test is None else test)
        if mask.dtype != np.bool_ or mask.shape != (n,) or mask.all() or not mask.any():
            raise InvalidInput(
                f"OfficialTest needs test=, {n} booleans that are true for some rows and not for all. Got "
                f"{'none' if test is None else f'{mask.dtype} of shape {mask.shape}'} instead; pass the mask that "
                "comes with the data set, or use RandomQueries."
            )
        rng = np.random.default_rng(self.seed)
        queries = np.flatnonzero(mask)
        if self.n_queries is not None:
            check_count(self.n_queries, "n_queries", "OfficialTest", high=len(queries))
            queries = rng.choice(queries, self.n_queries, replace=False)
        others = np.flatnonzero(~mask)
        return _with_database(self, queries, _training_rows(rng, others, self.n_train, self.kind), others)


PROTOCOLS: dict[str, type[Protocol]] = {
    protocol.kind: protocol for protocol in (PerClassQueries, RandomQueries, FewRows, UnseenClasses, OfficialTest)
}


def protocol_from_dict(values: Mapping[str, Any]) -> Protocol:
    """The protocol that ``Protocol.to_dict`` wrote.

    Examples
    --------
    >>> protocol = RandomQueries(n_queries=500, seed=3)
    >>> protocol_from_dict(protocol.to_dict()) == protocol
    True
    """
    settings = dict(values)
    kind = settings.pop("kind", None)
    check_choice(kind, "kind", "protocol_from_dict", PROTOCOLS)
    known = [each.name for each in fields(PROTOCOLS[kind])]
    for name in settings:
        check_choice(name, "setting", f"protocol {kind!r}", known)
    return PROTOCOLS[kind](**settings)


def _with_database(protocol: Any, queries: Rows, train: Rows, others: Rows) -> Split:
    """The split whose database is the rows that are not queries, with or without the training rows."""
    database = others if protocol.train_in_database else _without(others, train)
    if len(database) == 0:
        owner = type(protocol).__name__
        raise InvalidInput(f"{owner} leaves no row for the database; keep the training rows in it, or draw fewer.")
    return Split(np.sort(queries), train, database)


def _training_rows(rng: np.random.Generator, rows: Rows, n_train: int | None, kind: str) -> Rows:
    """``n_train`` of the rows, or all of them if it is None."""
    if n_train is None:
        return rows
    check_count(n_train, "n_train", f"protocol {kind!r}", high=len(rows))
    return np.asarray(np.sort(rng.choice(rows, n_train, replace=False)))


def _without(rows: Rows, taken: Rows) -> Rows:
    """Rows that are not among ``taken``, in order."""
    return rows[~np.isin(rows, taken)]


def _classes(y: ArrayLike, owner: str) -> NDArray[np.intp]:
    """Class number of every row; raises if a row has several labels."""
    groups = group_labels(y, owner=owner)
    if not groups.single:
        raise InvalidInput(f"{owner} needs one class per row, but some rows have several labels; use RandomQueries.")
    return groups.ids


def _some_of(value: int, n: int, name: str, owner: str, what: str = "rows") -> int:
    """A count smaller than ``n``."""
    count = check_count(value, name, owner)
    if count >= n:
        raise InvalidInput(f"{named(name, owner)} must leave some {what}. Got {count} of {n} {what}; lower it.")
    return count
