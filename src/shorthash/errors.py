"""The errors and warnings of shorthash.

::

    ShorthashError
    ├── InvalidInput        (also a ValueError)   a parameter, an array or a label that breaks a stated rule
    │   └── NoLabels                              rows none of which has a label
    ├── DataFileError       (also a ValueError)   a feature or label file that cannot be used
    │   └── UnreadableImage                       an image that cannot, or may not, be decoded
    ├── PersistenceError    (also a ValueError)   a saved model or index that cannot be used
    │   ├── DamagedFile                           truncated, or its checksum differs
    │   ├── ForeignFile                           not written by shorthash
    │   ├── NewerVersion                          written by a newer shorthash
    │   └── OutcomeUnknown                        a change of a database that may or may not have been made
    └── MissingExtra        (also an ImportError) an optional dependency is not installed

    UserWarning
    └── ShorthashWarning
        ├── CollisionWarning   fewer codes than classes: some classes must share one
        ├── AnchorWarning      n_anchors is larger than the number of rows
        ├── CodesChangedWarning  learning on changed the codes of rows that were learned from before
        ├── GuardWarning       the one-pass solver could not prove its codes; the message says what it did instead
        └── TieOrderWarning    ties are broken by database order, and that order follows the labels

Messages name the object, the rule, the value and what to do, in one sentence. They name parameters and calls of Python;
a program with other names, such as the command line, replaces them (``worded``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class ShorthashError(Exception):
    """Root of every error that shorthash raises on purpose."""


class InvalidInput(ShorthashError, ValueError):
    """A parameter, an array or a label breaks a stated rule."""


class NoLabels(InvalidInput):
    """None of some rows has a label; a stream goes on with the next ones."""


class DataFileError(ShorthashError, ValueError):
    """A feature or label file cannot be used."""


class UnreadableImage(DataFileError):
    """An image cannot be decoded, or is larger than allowed.

    Attributes
    ----------
    kind : why, in a word or two: "damaged", "empty", "too large", "not an image", ...
    """

    def __init__(self, message: str = "", kind: str = "unreadable") -> None:
        super().__init__(message)
        self.kind = kind


class PersistenceError(ShorthashError, ValueError):
    """A saved model or index cannot be used."""


class DamagedFile(PersistenceError):
    """A saved file is truncated or its checksum differs."""


class ForeignFile(PersistenceError):
    """A file was not written by shorthash."""


class NewerVersion(PersistenceError):
    """A file was written by a newer shorthash."""


class OutcomeUnknown(PersistenceError):
    """The connection to a database was lost while a change was committed."""


class MissingExtra(ShorthashError, ImportError):
    """An optional dependency is not installed."""


class ShorthashWarning(UserWarning):
    """Root of every warning of shorthash."""


class CollisionWarning(ShorthashWarning):
    """Fewer codes than classes: some classes must share one."""


class AnchorWarning(ShorthashWarning):
    """``n_anchors`` is larger than the number of rows."""


class CodesChangedWarning(ShorthashWarning):
    """``partial_fit`` changed the codes of rows that were learned from before."""


class GuardWarning(ShorthashWarning):
    """The one-pass solver could not prove that its codes are those of the per-sample solver."""


class TieOrderWarning(ShorthashWarning):
    """Ties are broken by database order, and that order follows the labels."""


_words: dict[str, str] = {}  # of the program that shows the messages, by those of the library


@contextmanager
def worded(words: Mapping[str, str]) -> Iterator[None]:
    """In this block, messages of errors use the names of another program, such as options of the command line.

    Parameters
    ----------
    words : name of a parameter, or phrase of the library -> what to show instead

    Examples
    --------
    >>> from shorthash import BucketIndex
    >>> with worded({"n_bits": "--bits"}):
    ...     BucketIndex(n_bits=65)
    Traceback (most recent call last):
    shorthash.errors.InvalidInput: --bits must be an int in the range [1, 64]. Got 65 instead.
    """
    before = dict(_words)
    _words.clear()
    _words.update(words)
    try:
        yield
    finally:
        _words.clear()
        _words.update(before)


def phrase(text: str) -> str:
    """A phrase of a message, in the words of the program that shows it."""
    return _words.get(text, text)


def named(name: str, owner: str, kind: str = "parameter of") -> str:
    """The beginning of a message about a parameter."""
    return _words.get(f"{name} of {owner}") or _words.get(name) or f"The '{name}' {kind} {owner}"


def setting(name: str, value: object, owner: str = "") -> str:
    """A parameter and its value, inside a message."""
    if name in _words:
        return f"{_words[name]} {value}"
    return f"{name}={value!r} of {owner}" if owner else f"{name}={value!r}"
