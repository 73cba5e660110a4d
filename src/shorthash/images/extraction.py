"""Images become rows: decoded in processes, computed in batches, remembered by content; bad ones are reported."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._validation import check_count
from shorthash.errors import UnreadableImage
from shorthash.images.image_cache import FeatureCache
from shorthash.images.image_features import ImageFeatures
from shorthash.images.images import MAX_PIXELS, content_hash, decode, read_bytes, to_jpeg

__all__ = ["BATCH", "Extracted", "Source", "extract", "named_sources"]

Place = str | os.PathLike[str] | bytes
"""Where the bytes of an image are: in a file, or here."""

Source = str | os.PathLike[str] | tuple[str, Place]
"""An image: a path, or what to call it and a path or the bytes of a file."""

BATCH = 32  # images per batch
ENOUGH_DETAIL = 512  # a JPEG may be decoded so small; no recipe looks at more
FEW = 2 * BATCH  # fewer images than this are not worth starting processes for


@dataclass(frozen=True)
class Extracted:
    """What became of one image.

    Attributes
    ----------
    name : its path or name
    content : hash of its bytes; "" if they could not be read
    row : (dimension,) float32; None if it failed
    thumbnail : JPEG, if asked for
    error : why it failed, in a sentence; "" if it did not
    """

    name: str
    content: str
    row: NDArray[np.float32] | None = None
    thumbnail: bytes | None = None
    error: str = ""


@dataclass(frozen=True)
class _Job:
    """One image on its way; ``wanted`` says whether features are needed, or known already."""

    name: str
    source: Place
    content: str = ""
    wanted: bool = True
    error: str = ""


@dataclass(frozen=True)
class _Settings:
    features: ImageFeatures
    thumbnail: int
    max_pixels: int


_Made = tuple[list[bytes | None], list[str], NDArray[Any] | None]
"""Of a batch: thumbnails, errors, and the prepared images (or finished rows) of those that are wanted and good."""


def extract(
    sources: Iterable[Source],
    features: ImageFeatures,
    *,
    cache: FeatureCache | None = None,
    thumbnail: int = 0,
    max_pixels: int = MAX_PIXELS,
    batch_size: int = BATCH,
    n_workers: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Iterator[list[Extracted]]:
    """Yield what becomes of images, batch by batch, in their order.

    An image that cannot be decoded is reported in its place and never stops the others, not even if it takes the
    process of its decoder with it.

    Parameters
    ----------
    sources : paths, or (name, path or bytes)
    features : what to compute
    cache : where rows are looked up and kept, by content; work that was interrupted goes on from there
    thumbnail : longest side of the thumbnails to make; 0 makes none
    max_pixels : larger images are refused
    batch_size : images per batch
    n_workers : processes that decode; 0 decodes here. Scripts that ask for processes must be guarded by
        ``if __name__ == "__main__"``
    progress : called with (what, done, total)
    """
    check_count(batch_size, "batch_size", "extract")
    n_workers = check_count(n_workers, "n_workers", "extract", low=0, high=256)
    named = named_sources(sources)
    settings = _Settings(features, thumbnail, max_pixels)
    starts = range(0, len(named), batch_size)
    batches = (named[start : start + batch_size] for start in starts)
    with _workers(settings, n_workers if len(named) >= FEW else 0) as work:
        done = 0
        for jobs, known, made in _ahead(batches, cache, work):
            finished = _finish(jobs, known, made, features, cache)
            done += len(finished)
            if progress is not None:
                progress("reading images", done, len(named))
            yield finished


def named_sources(sources: Iterable[Source]) -> list[tuple[str, Place]]:
    """Every source with what to call it."""
    return [s if isinstance(s, tuple) else (os.fspath(s), Path(s)) for s in sources]


def _ahead(
    batches: Iterable[list[tuple[str, Any]]], cache: FeatureCache | None, work: _Pool
) -> Iterator[tuple[list[_Job], dict[str, NDArray[np.float32]], _Made]]:
    """Batches as they are made, a few of them under way."""
    waiting: deque[tuple[list[_Job], dict[str, NDArray[np.float32]], Callable[[], _Made]]] = deque()
    for batch in batches:
        jobs = [_identified(name, source) for name, source in batch]
        known = {} if cache is None else cache.get([job.content for job in jobs if job.content])
        jobs = [replace(job, wanted=job.content not in known) for job in jobs]
        waiting.append((jobs, known, work.submit(jobs)))
        while len(waiting) > work.ahead:
            jobs, known, result = waiting.popleft()
            yield jobs, known, result()
    while waiting:
        jobs, known, result = waiting.popleft()
        yield jobs, known, result()


def _identified(name: str, source: Place) -> _Job:
    try:
        return _Job(name, source, content_hash(read_bytes(source)))
    except UnreadableImage as error:
        return _Job(name, source, error=str(error))


def _finish(
    jobs: Sequence[_Job],
    known: dict[str, NDArray[np.float32]],
    made: _Made,
    features: ImageFeatures,
    cache: FeatureCache | None,
) -> list[Extracted]:
    """Rows for what was prepared; rows that are new are remembered."""
    thumbnails, errors, prepared = made
    rows = dict(known)
    wanted = [job.content for job, error in zip(jobs, errors, strict=True) if job.wanted and not error]
    if prepared is not None and len(prepared):
        new = prepared if features.in_workers else features.rows(prepared)
        rows.update(zip(wanted, new, strict=True))
        if cache is not None:
            cache.put(wanted, new)
    return [
        Extracted(job.name, job.content, None if error else rows[job.content], None if error else thumb, error)
        for job, thumb, error in zip(jobs, thumbnails, errors, strict=True)
    ]


def _make(jobs: Sequence[_Job], settings: _Settings) -> _Made:
    """Decode a batch; what ``compute`` would do is done here, too, where the features say so."""
    thumbnails: list[bytes | None] = []
    errors: list[str] = []
    prepared: list[NDArray[Any]] = []
    for job in jobs:
        thumb, error = None, job.error
        if not error and (job.wanted or settings.thumbnail):
            try:
                image = decode(job.source, max_pixels=settings.max_pixels, at_least=ENOUGH_DETAIL)
                thumb = to_jpeg(image, settings.thumbnail) if settings.thumbnail else None
                if job.wanted:
                    prepared.append(settings.features.prepare(image))
            except UnreadableImage as refusal:
                error = str(refusal)
        thumbnails.append(thumb)
        errors.append(error)
    stacked = np.stack(prepared) if prepared else None
    if stacked is not None and settings.features.in_workers:
        stacked = settings.features.rows(stacked)
    return thumbnails, errors, stacked


class _Pool:
    """Makes batches, here or in processes."""

    def __init__(self, settings: _Settings, n_workers: int) -> None:
        self.settings, self.n_workers = settings, n_workers
        self.ahead = 2 * n_workers
        self._executor = self._started(n_workers) if n_workers else None

    def submit(self, jobs: Sequence[_Job]) -> Callable[[], _Made]:
        """Start a batch, and return what waits for its outcome."""
        if self._executor is None:
            return lambda: _make(jobs, self.settings)
        try:
            future = self._executor.submit(_make_there, jobs)
        except BrokenProcessPool:
            return lambda: self._one_by_one(jobs)
        return lambda: self._outcome(future, jobs)

    def close(self) -> None:
        """Let the processes go."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def _outcome(self, future: Future[_Made], jobs: Sequence[_Job]) -> _Made:
        try:
            return future.result()
        except BrokenProcessPool:
            return self._one_by_one(jobs)

    def _one_by_one(self, jobs: Sequence[_Job]) -> _Made:
        """After a process died: every image in a process of its own, until the culprit is found."""
        self.close()
        parts = []
        for job in jobs:
            alone = self._started(1)
            try:
                parts.append(alone.submit(_make_there, [job]).result())
            except BrokenProcessPool:
                parts.append(([None], ["decoding it crashed the decoder; convert or remove it."], None))
            finally:
                alone.shutdown()
        self._executor = self._started(self.n_workers)
        stacks = [prepared for _, _, prepared in parts if prepared is not None]
        thumbnails, errors = [thumb for t, _, _ in parts for thumb in t], [error for _, e, _ in parts for error in e]
        return thumbnails, errors, np.concatenate(stacks) if stacks else None

    def _started(self, n_workers: int) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")  # forking a process with threads is asking for a deadlock
        return ProcessPoolExecutor(n_workers, context, initializer=_remember, initargs=(self.settings,))


@contextmanager
def _workers(settings: _Settings, n_workers: int) -> Iterator[_Pool]:
    pool = _Pool(settings, n_workers)
    try:
        yield pool
    finally:
        pool.close()


_here: list[_Settings] = []  # of a worker process


def _remember(settings: _Settings) -> None:
    _here[:] = [settings]


def _make_there(jobs: Sequence[_Job]) -> _Made:
    return _make(jobs, _here[0])
