"""What a server remembers: items, which the database is slow to tell, and whole answers to a code."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = ["KnownAnswers", "KnownItems"]

REMEMBERED = 1 << 19  # items; some 300 bytes each


class KnownItems:
    """A bounded memory of items in JSON, which never change while they live; the one learned first is forgotten first.

    Parameters
    ----------
    look_up : ids -> id and JSON of those that are there; asks the database
    most : items remembered

    Examples
    --------
    >>> known = KnownItems(lambda ids: {i: b"number %d" % i for i in ids if i < 9})
    >>> known.get([1, 2]) is None
    True
    >>> known.fetch([1, 2, 9])
    {1: b'number 1', 2: b'number 2'}
    >>> known.get([2, 1])
    [b'number 2', b'number 1']
    """

    def __init__(self, look_up: Callable[[list[Any]], dict[Any, bytes]], most: int = REMEMBERED) -> None:
        self._look_up, self._most = look_up, most
        self._told: dict[Any, bytes] = {}
        self._changes = 0
        self._changing = threading.Lock()

    def __len__(self) -> int:
        return len(self._told)

    def get(self, ids: Sequence[Any]) -> list[bytes] | None:
        """Items, if all of them are known."""
        try:
            return [self._told[item] for item in ids]
        except KeyError:
            return None

    def fetch(self, ids: Sequence[Any]) -> dict[Any, bytes]:
        """Items that are there; the database tells those not known yet."""
        told, changes = self._told, self._changes
        asked = ((item, told.get(item)) for item in ids)  # others may forget meanwhile
        known = {item: value for item, value in asked if value is not None}
        found = self._look_up([item for item in ids if item not in known])
        with self._changing:
            if changes == self._changes:  # else an id may have gone, or come back as another item
                told.update(found)
                while len(told) > self._most:
                    del told[next(iter(told))]
        return known | found

    def forget(self, ids: Iterable[Any]) -> None:
        """What changed is asked anew."""
        with self._changing:
            self._changes += 1
            for item in ids:
                self._told.pop(item, None)


class KnownAnswers:
    """Answers to searches, in JSON: of a short code there are few, and they stay the same until something is written.

    For one thread: the event loop puts, gets and forgets.

    Parameters
    ----------
    most : bytes remembered; 0: none; the oldest answer is forgotten first

    Examples
    --------
    >>> known = KnownAnswers(10)
    >>> for code in (1, 2):
    ...     known.put(code, b"123456", known.changes)
    >>> known.get(1), known.get(2)
    (None, b'123456')
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._answers: dict[Any, bytes] = {}
        self._size = 0
        self.changes = 0

    def get(self, query: Any) -> bytes | None:
        """The answer, if it is known."""
        return self._answers.get(query)

    def put(self, query: Any, answer: bytes, changes: int) -> None:
        """Remember an answer, unless something was written since ``changes`` was read."""
        if changes != self.changes or len(answer) > self._most or query in self._answers:
            return
        self._answers[query] = answer
        self._size += len(answer)
        while self._size > self._most:
            self._size -= len(self._answers.pop(next(iter(self._answers))))

    def forget(self) -> None:
        """Something was written; called before anybody is told."""
        self.changes += 1
        self._answers, self._size = {}, 0
