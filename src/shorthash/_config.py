"""Settings of the process, for library and command line: whether the progress of long work is shown."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from shorthash.errors import InvalidInput

VARIABLE = "SHORTHASH_PROGRESS"  # 0, 1 or lines; set_config overrides it

Style = bool | Literal["lines"] | None
WORDS: dict[str, Style] = {"": None, "0": False, "off": False, "1": True, "on": True, "lines": "lines"}


def set_config(*, progress: Style = None) -> None:
    """Set what holds for the whole process, as ``sklearn.set_config`` does.

    Parameters
    ----------
    progress : True shows the progress of work that takes more than two seconds (``fit``, ``transform``, ``search``,
        ``evaluate``, ``compare``, ...): a bar on a terminal, one line in a notebook, and elsewhere a line of standard
        error every ten seconds. "lines" writes a line for every step as it begins. False shows nothing. None leaves the
        setting as it is. Without a setting the variable ``SHORTHASH_PROGRESS`` (0, 1 or lines) counts; without that,
        the library is silent and the command line shows progress.

    Examples
    --------
    >>> from shorthash import config_context, get_config, set_config
    >>> with config_context():  # what is set inside ends with the block
    ...     set_config(progress=False)
    ...     get_config()
    {'progress': False}
    """
    if progress is not None:
        if not (isinstance(progress, bool) or progress == "lines"):
            raise InvalidInput(
                f"The 'progress' parameter of set_config must be True, False or 'lines'. Got {progress!r} instead."
            )
        _config["progress"] = progress


def get_config() -> dict[str, Style]:
    """The settings of ``set_config``; None where nothing is set.

    Examples
    --------
    >>> from shorthash import config_context, get_config
    >>> with config_context(progress=True):
    ...     get_config()
    {'progress': True}
    """
    if _config["progress"] is None:
        text = os.environ.get(VARIABLE, "").strip().lower()
        if text not in WORDS:
            raise InvalidInput(f"{VARIABLE} must be 0, 1 or lines. Got {text!r} instead.")
        return {"progress": WORDS[text]}
    return dict(_config)


@contextmanager
def config_context(*, progress: Style = None) -> Iterator[None]:
    """Settings for the time of a ``with`` block, as ``sklearn.config_context`` does.

    Parameters
    ----------
    progress : as in :func:`set_config`

    Yields
    ------
    None
        Nothing; the settings hold inside the block.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from shorthash import config_context, make_hasher
    >>> X, y = load_digits(return_X_y=True)
    >>> with config_context(progress=True):  # a bar, if it takes more than two seconds
    ...     hasher = make_hasher("classifier", n_bits=8).fit(X, y)
    """
    before = dict(_config)
    try:
        set_config(progress=progress)
        yield
    finally:
        _config.update(before)


_config: dict[str, Style] = {"progress": None}
