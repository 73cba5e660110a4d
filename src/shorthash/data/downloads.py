"""Original files from where they are published: fetched once, checked, and never left half written."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from shorthash.errors import DataFileError

__all__ = ["Original", "Tell", "download", "file_checksum"]

CHUNK = 1 << 20
TIMEOUT = 30  # seconds without a single byte
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Original:
    """A file that somebody publishes.

    Attributes
    ----------
    url : where it is
    checksum : "md5:..." or "sha256:..." as the publisher or widely used loaders state it; "" where none is known to us
        for certain: then the sha256 of the first download is written beside the file and every later one compared
    """

    url: str
    checksum: str = ""

    @property
    def name(self) -> str:
        """Name of the file."""
        return self.url.rsplit("/", 1)[-1]


def download(original: Original, folder: str | Path, tell: Tell | None = None) -> Path:
    """Fetch a file into a folder, or keep the one that is there if its checksum is right.

    An interrupted download goes on where it stopped, if the server can do that. The file gets its name only when it is
    complete and its checksum is right.

    Parameters
    ----------
    original : what to fetch
    folder : where to; created if missing
    tell : called with (name, bytes so far, bytes in all or 0)
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    target = place / original.name
    if target.exists():
        _check(target, original, target)
        return target
    part = place / f"{original.name}.part"
    try:
        _fetch(original.url, part, tell or (lambda _name, _done, _total: None))
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        raise DataFileError(
            f"{original.url} cannot be downloaded ({reason}); fetch it on a machine that can reach it and put it at "
            f"{target}."
        ) from error
    try:
        _check(part, original, target)
    except DataFileError:
        part.unlink()
        raise
    part.replace(target)
    return target


def file_checksum(path: str | Path, algorithm: str = "sha256") -> str:
    """The checksum of a file, in hexadecimal digits."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with Path(path).open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _fetch(url: str, part: Path, tell: Tell) -> None:
    """All bytes of a URL into a file; bytes that are there already are asked for only if the server does not skip."""
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # nothing is left to send: the file is complete, or it is another one
            raise
        error.close()
        return
    with answer:
        resumed = answer.status == 206
        done = done if resumed else 0
        total = done + int(answer.headers.get("Content-Length") or 0)
        with part.open("ab" if resumed else "wb") as file:
            _copy(answer, file, url.rsplit("/", 1)[-1], done, total, tell)
            file.flush()
            os.fsync(file.fileno())
    if total and part.stat().st_size < total:
        raise ConnectionError(f"it ended after {part.stat().st_size} of {total} bytes; run again to go on")


def _copy(source: BinaryIO, file: BinaryIO, name: str, done: int, total: int, tell: Tell) -> None:
    while chunk := source.read(CHUNK):
        file.write(chunk)
        done += len(chunk)
        tell(name, done, total)


def _check(path: Path, original: Original, target: Path) -> None:
    """Compare with the known checksum, or with that of the first download, which is kept beside the file."""
    noted = target.with_name(f"{target.name}.sha256")
    known = original.checksum
    if not known and noted.exists():
        known = f"sha256:{noted.read_text(encoding='ascii').strip()}"
    if not known:
        noted.write_text(file_checksum(path) + "\n", encoding="ascii")
        return
    algorithm, _, expected = known.partition(":")
    found = file_checksum(path, algorithm)
    if found != expected:
        raise DataFileError(
            f"The {algorithm} of {target.name} must be {expected}. Got {found} instead; it is damaged or another "
            "file, so remove it and fetch it again."
        )
