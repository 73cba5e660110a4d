"""Decode images from files or bytes, in this process or in several, and compute their feature rows.

Image files are not trusted: whatever they contain, the result is RGB pixels or one ``UnreadableImage``, and an image
that crashes its decoder does not stop the others.
"""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shorthash._validation import check_count, require_extra
from shorthash.errors import UnreadableImage
from shorthash.images.features import FeatureCache, ImageFeatures

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")  # no format whose decoder runs another program
MAX_PIXELS = 80_000_000  # 240 MB as RGB; Pillow itself starts to warn at 89 million
LONGEST_SIDE = 65_500
HASH_DIGITS = 32  # 128 bits, so different contents never share a hash by chance
BATCH = 32  # images per batch
ENOUGH_DETAIL = 512  # a JPEG may be decoded at this size; no recipe uses more
FEW = 2 * BATCH  # for fewer images, starting processes takes longer than decoding

T = TypeVar("T")

Place = str | os.PathLike[str] | bytes
"""The path of an image file, or its bytes."""

Source = str | os.PathLike[str] | tuple[str, Place]
"""An image: a path, or (name, path or bytes)."""


@dataclass
class Extracted:
    """One image and its features.

    Attributes
    ----------
    name : its path or name
    place : where it was read from, or its bytes
    content : hash of its bytes; "" if they could not be read
    row : (dimension,) float32; None if it failed
    thumbnail : JPEG, if thumbnails were requested
    error : why it failed, in a sentence; "" if it did not
    """

    name: str
    place: Place
    content: str = ""
    row: NDArray[np.float32] | None = None
    thumbnail: bytes | None = None
    error: str = ""

    @property
    def metadata(self) -> dict[str, str]:
        """What a collection stores about the image, besides code, label and vector."""
        metadata = {"name": self.name, "content": self.content}
        if not isinstance(self.place, bytes):
            metadata["source"] = str(Path(self.place).absolute())
        return metadata


def decode(source: Place, *, max_pixels: int = MAX_PIXELS, at_least: int | None = None) -> Image:
    """Decode an image to RGB, upright.

    The rotation of its EXIF data is applied; CMYK, 16 bits per channel, palettes and grey become RGB; transparent parts
    become white; of an animation, the first frame is taken. The size is read from the header, and too large an image
    is refused before any pixel is decoded.

    Parameters
    ----------
    source : a path, or the bytes of a file
    max_pixels : images with more pixels are refused
    at_least : a JPEG may be decoded at a fraction of its size if no side becomes shorter than this; None decodes it at
        full size

    Returns
    -------
    image : a ``PIL.Image.Image`` of mode RGB

    Raises
    ------
    UnreadableImage
        If it is not an image of a known format, is empty, truncated or damaged, or has too many pixels.
    """
    pillow: Any = require_extra("PIL.Image", "images", "Reading images")
    octets = _read_bytes(source)
    if not octets:
        raise UnreadableImage("the file is empty; copy it again.")
    # Pillow warns about damaged metadata; only errors matter here. Restoring the filters would not be thread-safe.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    try:
        with pillow.open(io.BytesIO(octets), formats=FORMATS) as image:
            _check_size(image.size, max_pixels)
            if at_least is not None and min(image.size) > at_least:
                image.draft("RGB", (at_least, at_least))
            image.load()
            return _as_rgb(_upright(image), pillow)
    except UnreadableImage:
        raise
    except pillow.DecompressionBombError as error:
        raise UnreadableImage(f"the image has too many pixels ({error}); shrink it.") from error
    except pillow.UnidentifiedImageError as error:
        raise UnreadableImage(f"it is not an image, or not one of {', '.join(FORMATS)}; convert it.") from error
    except Exception as error:  # decoders raise anything for a damaged file: OSError, struct.error, SyntaxError ...
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise UnreadableImage(f"the image is damaged or truncated ({reason}); copy it again.") from error


def content_hash(octets: bytes) -> str:
    """A hash that identifies a file's content, 32 hexadecimal digits.

    Examples
    --------
    >>> content_hash(b"") == content_hash(b"x"), len(content_hash(b""))
    (False, 32)
    """
    return hashlib.sha256(octets).hexdigest()[:HASH_DIGITS]


def to_jpeg(image: Image, longest_side: int) -> bytes:
    """A JPEG of an RGB image, shrunk (never enlarged) so that no side is longer than ``longest_side``."""
    small = image.copy()
    small.thumbnail((longest_side, longest_side))
    target = io.BytesIO()
    small.save(target, "JPEG", quality=85)
    return target.getvalue()


def extract(
    sources: Iterable[Source],
    features: ImageFeatures,
    *,
    cache: str | os.PathLike[str] | None = None,
    thumbnail: int = 0,
    max_pixels: int = MAX_PIXELS,
    batch_size: int = BATCH,
    n_workers: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Iterator[list[Extracted]]:
    """Yield images with their features, batch by batch, in order.

    An image that cannot be decoded is reported in its place and does not stop the others, even if it crashes the
    process that decodes it.

    Parameters
    ----------
    sources : paths, or (name, path or bytes)
    features : what to compute
    cache : file in which rows are looked up and stored, by content; interrupted work continues from it
    thumbnail : longest side of the thumbnails to make; 0 makes none
    max_pixels : larger images are refused
    batch_size : images per batch
    n_workers : processes that decode; 0 decodes in this one. A script that uses processes needs an
        ``if __name__ == "__main__"`` guard
    progress : called with (what, done, total)
    """
    check_count(batch_size, "batch_size", "extract")
    n_workers = check_count(n_workers, "n_workers", "extract", low=0, high=256)
    images = [Extracted(*s) if isinstance(s, tuple) else Extracted(os.fspath(s), Path(s)) for s in sources]
    opened: AbstractContextManager[Any] = (
        nullcontext() if cache is None else closing(FeatureCache(cache, features.recipe))
    )
    work = partial(_decode_batch, features=features, thumbnail=thumbnail, max_pixels=max_pixels)
    with opened as rows, closing(_Decoders(work, n_workers if len(images) >= FEW else 0)) as decoders:

        def started() -> Iterator[tuple[list[Extracted], list[Extracted], Callable[[], list[_Decoded]]]]:
            for start in range(0, len(images), batch_size):
                batch = images[start : start + batch_size]
                _look_up(batch, rows)
                pending = [image for image in batch if not image.error and (image.row is None or thumbnail)]
                yield batch, pending, decoders.submit([(image.place, image.row is None) for image in pending])

        done = 0
        for batch, pending, result in _read_ahead(started(), 2 * decoders.n_workers):
            _complete(pending, result(), features, rows)
            done += len(batch)
            if progress is not None:
                progress("reading images", done, len(images))
            yield batch


def _read_ahead(items: Iterator[T], n: int) -> Iterator[T]:
    """The items of an iterator, each taken from it while the n before it are still waiting."""
    waiting: deque[T] = deque()
    for item in items:
        waiting.append(item)
        if len(waiting) > n:
            yield waiting.popleft()
    yield from waiting


def _look_up(batch: Sequence[Extracted], cache: FeatureCache | None) -> None:
    """Fill in the content hash of every image, and the row where the cache has it."""
    for image in batch:
        try:
            image.content = content_hash(_read_bytes(image.place))
        except UnreadableImage as error:
            image.error = str(error)
    if cache is not None:
        known = cache.get([image.content for image in batch if image.content])
        for image in batch:
            image.row = known.get(image.content)


def _complete(
    pending: Sequence[Extracted], decoded: Sequence[_Decoded], features: ImageFeatures, cache: FeatureCache | None
) -> None:
    """Fill in what was decoded, and compute and cache the missing rows."""
    new: list[Extracted] = []
    arrays: list[NDArray[Any]] = []
    for image, found in zip(pending, decoded, strict=True):
        image.thumbnail, image.error = found.thumbnail, found.error
        if found.error:
            image.row = None
        elif found.array is not None:
            new.append(image)
            arrays.append(found.array)
    if not new:
        return
    rows = np.stack(arrays) if features.in_workers else features.rows(np.stack(arrays))
    for image, row in zip(new, rows, strict=True):
        image.row = row
    if cache is not None:
        cache.put([image.content for image in new], rows)


_Job = tuple[Place, bool]
"""An image to decode, and whether its features are needed (or only a thumbnail)."""


@dataclass
class _Decoded:
    """One image, decoded: its prepared array, or its row where features are computed by the workers."""

    thumbnail: bytes | None = None
    array: NDArray[Any] | None = None
    error: str = ""


def _decode_batch(jobs: Sequence[_Job], *, features: ImageFeatures, thumbnail: int, max_pixels: int) -> list[_Decoded]:
    """Decode images; runs in a worker process, if there are any."""
    results = []
    for place, needs_row in jobs:
        result = _Decoded()
        try:
            image = decode(place, max_pixels=max_pixels, at_least=ENOUGH_DETAIL)
            result.thumbnail = to_jpeg(image, thumbnail) if thumbnail else None
            result.array = features.prepare(image) if needs_row else None
        except UnreadableImage as error:
            result.error = str(error)
        results.append(result)
    prepared = [result for result in results if result.array is not None]
    if prepared and features.in_workers:
        rows = features.rows(np.stack([result.array for result in prepared]))  # type: ignore[misc]
        for result, row in zip(prepared, rows, strict=True):
            result.array = row
    return results


class _Decoders:
    """Decodes batches, in this process or in worker processes, which may crash."""

    def __init__(self, work: Callable[[Sequence[_Job]], list[_Decoded]], n_workers: int) -> None:
        self.work, self.n_workers = work, n_workers
        self._pool = _start_pool(n_workers) if n_workers else None

    def submit(self, jobs: Sequence[_Job]) -> Callable[[], list[_Decoded]]:
        """Start a batch, and return a function that waits for its result."""
        pool = self._pool
        if pool is None:
            return partial(self.work, jobs)
        future: Future[list[_Decoded]] | None = None
        with suppress(BrokenProcessPool):
            future = pool.submit(self.work, jobs)
        return partial(self._result, future, jobs, pool)

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _result(
        self, future: Future[list[_Decoded]] | None, jobs: Sequence[_Job], pool: ProcessPoolExecutor
    ) -> list[_Decoded]:
        if future is not None:
            with suppress(BrokenProcessPool):
                return future.result()
        return self._one_by_one(jobs, pool)

    def _one_by_one(self, jobs: Sequence[_Job], broken: ProcessPoolExecutor) -> list[_Decoded]:
        """After a crash: decode every image in a process of its own, to find the one that crashes."""
        if self._pool is broken:
            self._pool = _start_pool(self.n_workers)
        broken.shutdown(cancel_futures=True)
        results: list[_Decoded] = []
        for job in jobs:
            with _start_pool(1) as alone:
                try:
                    results += alone.submit(self.work, [job]).result()
                except BrokenProcessPool:
                    results.append(_Decoded(error="decoding it crashed the decoder; convert or remove it."))
        return results


def _start_pool(n_workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(n_workers, multiprocessing.get_context("spawn"))  # forking threads risks deadlocks


def _read_bytes(source: Place) -> bytes:
    """The bytes of a file, or the bytes given."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    try:
        return Path(source).read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreadableImage(f"the file cannot be read ({reason}); check path and permissions.") from error


def _check_size(size: tuple[int, int], max_pixels: int) -> None:
    width, height = size
    if width * height > max_pixels or max(size) > LONGEST_SIDE:
        raise UnreadableImage(
            f"the image has {width} x {height} pixels, and at most {max_pixels} (and {LONGEST_SIDE} on a side) are "
            "decoded; shrink it."
        )


def _upright(image: Image) -> Image:
    """The image rotated as its EXIF data say; invalid EXIF data are ignored."""
    operations: Any = require_extra("PIL.ImageOps", "images", "Reading images")
    try:
        turned = operations.exif_transpose(image)
    except Exception:  # damaged EXIF data are no reason to refuse the whole image
        return image
    return image if turned is None else turned


def _as_rgb(image: Image, pillow: Any) -> Image:
    """An image of any mode as RGB."""
    if image.mode.startswith("I") or image.mode == "F":
        return pillow.fromarray(_eight_bits(np.asarray(image), image.mode)).convert("RGB")  # type: ignore[no-any-return]
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        layer = image.convert("RGBA")
        white = pillow.new("RGBA", layer.size, (255, 255, 255, 255))
        return pillow.alpha_composite(white, layer).convert("RGB")  # type: ignore[no-any-return]
    return image.copy() if image.mode == "RGB" else image.convert("RGB")


def _eight_bits(values: NDArray[Any], mode: str) -> NDArray[np.uint8]:
    """Grey values of 16 or 32 bits, or floats, as 0 to 255."""
    grey = np.nan_to_num(values.astype(np.float64))
    if mode == "F":
        top = 1.0 if grey.size and grey.max() <= 1 else 255.0
    else:
        top = 255.0 if mode == "I" and grey.size and grey.max() <= 255 else 65535.0
    return np.clip(np.rint(grey * (255 / top)), 0, 255).astype(np.uint8)
