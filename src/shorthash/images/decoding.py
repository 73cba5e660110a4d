"""Decode images from files or bytes, in this process or in several, and compute their feature rows.

Image files are not trusted: whatever they contain, the result is RGB pixels or one ``UnreadableImage``, and an image
that crashes its decoder does not stop the others. Worker processes are limited in memory, killed when an image takes
too long, and replaced when they end. A worker reports every image that it starts with, so it is known which one it was
at when it was killed or crashed: that image fails, and the others are decoded again by a new process.
"""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import os
import queue
import signal
import stat
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shorthash._progress import OnStep
from shorthash._validation import check_count, require_extra
from shorthash.errors import DataFileError, MissingExtra, UnreadableImage
from shorthash.images.features import FeatureCache, ImageFeatures
from shorthash.images.files import NOT_A_FILE, NOT_AN_IMAGE, READ, as_text, kind_by_ending

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")  # no format whose decoder runs another program
AVIF_BRANDS = {b"avif", b"avis"}
HEIF_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}
MAX_PIXELS = 80_000_000  # 240 MB as RGB; Pillow itself starts to warn at 89 million
LONGEST_SIDE = 65_500
MAX_BYTES = 1 << 28  # of a file; an uncompressed picture of MAX_PIXELS has fewer
MOST_SCANS = 100  # of a JPEG; every scan goes over all pixels, and progressive ones have about ten
PIXELS_PER_BYTE = 2000  # a picture of one colour has about 1 000 in PNG
SMALL_IMAGE = 4_000_000  # pixels that are decoded regardless of the size of the file
JPEG_START, START_OF_SCAN = b"\xff\xd8", b"\xff\xda"
PIXEL_BYTES, LEAST_MEMORY = 16, 1 << 29  # memory of a worker: per pixel, and at least
HASH_DIGITS = 32  # 128 bits, so different contents never share a hash by chance
BATCH = 32  # images per batch
ENOUGH_DETAIL = 512  # a JPEG may be decoded at this size; no recipe uses more
SECONDS = 20.0  # for one image
MEMORY = 1 << 30  # bytes that a worker may take besides what it needs to start
STARTING = 60.0  # seconds that a new process may take until it is ready
PRELOADED = ("PIL.Image", "PIL.ImageOps", "PIL.JpegImagePlugin", "scipy.fft")  # before memory is limited
CRASHED = "decoding it crashed the decoder; convert or remove it."
EMPTY, DAMAGED, TOO_LARGE, TOO_HARD = "empty", "damaged", "too large", "not decodable"

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
    kind : the same in a word or two; see ``UnreadableImage``
    """

    name: str
    place: Place
    content: str = ""
    row: NDArray[np.float32] | None = None
    thumbnail: bytes | None = None
    error: str = ""
    kind: str = ""

    @property
    def metadata(self) -> dict[str, str]:
        """What a collection stores about the image, besides code, label and vector."""
        metadata = {"name": as_text(self.name), "content": self.content}
        if not isinstance(self.place, bytes):
            metadata["source"] = as_text(str(Path(self.place).absolute()))
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
    octets = read_bytes(source)
    if not octets:
        raise UnreadableImage("the file is empty; copy it again.", EMPTY)
    n_scans = octets.count(START_OF_SCAN) if octets.startswith(JPEG_START) else 0
    if n_scans > MOST_SCANS:
        raise UnreadableImage(
            f"it is a JPEG of {n_scans} scans, and at most {MOST_SCANS} are decoded; convert it.", TOO_HARD
        )
    formats = (*FORMATS, *_container(octets))
    # Pillow warns about damaged metadata; only errors matter here. Restoring the filters would not be thread-safe.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    try:
        with pillow.open(io.BytesIO(octets), formats=formats) as image:
            _check_size(image.size, max_pixels, len(octets))
            if at_least is not None and min(image.size) > at_least:
                image.draft("RGB", (at_least, at_least))
            image.load()
            return _as_rgb(_upright(image), pillow)
    except UnreadableImage:
        raise
    except MemoryError:
        raise UnreadableImage("decoding it needs too much memory; shrink it.", TOO_LARGE) from None
    except pillow.DecompressionBombError as error:
        raise UnreadableImage(f"the image has too many pixels ({error}); shrink it.", TOO_LARGE) from error
    except pillow.UnidentifiedImageError as error:
        raise UnreadableImage(
            f"it is not an image, or not one of {', '.join(READ)}; convert it.", NOT_AN_IMAGE
        ) from error
    except Exception as error:  # decoders raise anything for a damaged file: OSError, struct.error, SyntaxError ...
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise UnreadableImage(f"the image is damaged or truncated ({reason}); copy it again.", DAMAGED) from error


def _container(octets: bytes) -> tuple[str, ...]:
    """Pillow's format of an image in the container that HEIC and AVIF share; none if it is something else."""
    if octets[4:8] != b"ftyp":
        return ()
    header = octets[8 : min(int.from_bytes(octets[:4], "big"), 256)]
    brands = {header[i : i + 4] for i in range(0, len(header), 4)}
    if brands & AVIF_BRANDS:
        supported: Any = require_extra("PIL.features", "images", "Reading images")
        if not supported.check("avif"):
            raise UnreadableImage(
                "it is an AVIF image, which this Pillow does not read; run: pip install --upgrade pillow", "AVIF"
            )
        return ("AVIF",)
    if not brands & HEIF_BRANDS:
        return ()
    try:
        heif: Any = require_extra("pillow_heif", "images", "Reading HEIC images")
    except MissingExtra as error:
        raise UnreadableImage(
            "it is a HEIC image, and pillow-heif is not installed; run: pip install pillow-heif", "HEIC"
        ) from error
    heif.register_heif_opener()
    return ("HEIF",)


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
    workers: Workers | None = None,
    progress: OnStep | None = None,
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
    n_workers : processes that decode; an image that takes too long or too much memory ends its process, and fails. 0
        decodes in this one. A script that uses processes needs an ``if __name__ == "__main__"`` guard
    workers : processes to use, which stay open; None starts ``n_workers``
    progress : called with (what, done, total)
    """
    check_count(batch_size, "batch_size", "extract")
    n_workers = check_count(n_workers, "n_workers", "extract", low=0, high=256)
    images = [Extracted(*s) if isinstance(s, tuple) else Extracted(os.fspath(s), Path(s)) for s in sources]
    work = partial(_decode_batch, features=features, thumbnail=thumbnail, max_pixels=max_pixels)
    with ExitStack() as resources:
        rows = _open_cache(cache, features)
        if rows is not None:
            resources.callback(rows.close)
        if workers is None and n_workers:
            n_batches = -(-len(images) // batch_size)
            workers = Workers(max(1, min(n_workers, n_batches)), memory=memory_for(max_pixels))
            resources.callback(workers.close)

        def started() -> Iterator[tuple[list[Extracted], list[Extracted], Callable[[], list[Any]]]]:
            for start in range(0, len(images), batch_size):
                batch = images[start : start + batch_size]
                _look_up(batch, rows)
                pending = [image for image in batch if not image.error and (image.row is None or thumbnail)]
                jobs = [(image.place, image.row is None) for image in pending]
                yield batch, pending, partial(work, jobs) if workers is None else workers.submit(work, jobs).result

        done = 0
        for batch, pending, result in _read_ahead(started(), 0 if workers is None else 2 * workers.n_workers):
            _complete(pending, result(), features, rows)
            done += len(batch)
            if progress is not None:
                progress("reading images", done, len(images))
            yield batch


def memory_for(max_pixels: int) -> int:
    """Memory, in bytes, for decoding one image of at most ``max_pixels`` pixels."""
    return LEAST_MEMORY + PIXEL_BYTES * max_pixels


def _open_cache(cache: str | os.PathLike[str] | None, features: ImageFeatures) -> FeatureCache | None:
    """The cache; None, with a warning, if it cannot be used."""
    try:
        return None if cache is None else FeatureCache(cache, features.recipe)
    except DataFileError as error:
        warnings.warn(f"{error} Features are computed without it.", stacklevel=3)
        return None


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
            _check_ending(image.name)
            image.content = content_hash(read_bytes(image.place))
        except UnreadableImage as error:
            image.error, image.kind = str(error), error.kind
    if cache is not None:
        known = cache.get([image.content for image in batch if image.content])
        for image in batch:
            image.row = known.get(image.content)


def _check_ending(name: str) -> None:
    """Raise for the endings of files that are not supported; some RAW files begin like a TIFF image."""
    kind = kind_by_ending(name)
    if kind == "video":
        raise UnreadableImage("it is a video, which is not supported; export single frames as JPEG.", kind)
    if kind == "RAW":
        raise UnreadableImage("it is a RAW photograph, which is not supported; export it as JPEG.", kind)


def _complete(
    pending: Sequence[Extracted], decoded: Sequence[_Decoded | str], features: ImageFeatures, cache: FeatureCache | None
) -> None:
    """Fill in what was decoded, and compute and cache the missing rows."""
    new: list[Extracted] = []
    arrays: list[NDArray[Any]] = []
    for image, result in zip(pending, decoded, strict=True):
        found = _Decoded(error=result, kind=TOO_HARD) if isinstance(result, str) else result
        image.thumbnail, image.error, image.kind = found.thumbnail, found.error, found.kind
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


@dataclass
class _Decoded:
    """One image, decoded: its prepared array, or its row where features are computed by the workers."""

    thumbnail: bytes | None = None
    array: NDArray[Any] | None = None
    error: str = ""
    kind: str = ""


def _decode_batch(
    jobs: Sequence[tuple[Place, bool]],
    started: Callable[[int], object] | None = None,
    *,
    features: ImageFeatures,
    thumbnail: int,
    max_pixels: int,
) -> list[_Decoded]:
    """Decode images; runs in a worker process, if there are any, and reports every image that it starts with.

    A job is an image, and whether its features are needed or only a thumbnail.
    """
    results = []
    for number, (place, needs_row) in enumerate(jobs):
        if started is not None:
            started(number)
        result = _Decoded()
        try:
            image = decode(place, max_pixels=max_pixels, at_least=ENOUGH_DETAIL)
            result.thumbnail = to_jpeg(image, thumbnail) if thumbnail else None
            result.array = features.prepare(image) if needs_row else None
        except UnreadableImage as error:
            result.error, result.kind = str(error), error.kind
        results.append(result)
    prepared = [result for result in results if result.array is not None]
    if prepared and features.in_workers:
        rows = features.rows(np.stack([result.array for result in prepared]))  # type: ignore[misc]
        for result, row in zip(prepared, rows, strict=True):
            result.array = row
    return results


def read_bytes(source: Place) -> bytes:
    """The bytes of a file of ordinary size, or the bytes given."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    try:
        handle = os.open(source, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(handle, "rb") as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode):
                raise UnreadableImage("it is not a file; remove it.", NOT_A_FILE)
            if state.st_size > MAX_BYTES:
                raise UnreadableImage(
                    f"the file has {state.st_size} bytes, and at most {MAX_BYTES} are read; shrink it.", TOO_LARGE
                )
            return file.read(MAX_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableImage(f"the file cannot be read ({reason}); check path and permissions.") from error


def _check_size(size: tuple[int, int], max_pixels: int, n_bytes: int) -> None:
    width, height = size
    if width * height > max_pixels or max(size) > LONGEST_SIDE:
        raise UnreadableImage(
            f"the image has {width} x {height} pixels, and at most {max_pixels} (and {LONGEST_SIDE} on a side) are "
            "decoded; shrink it.",
            TOO_LARGE,
        )
    if width * height > max(SMALL_IMAGE, PIXELS_PER_BYTE * n_bytes):
        raise UnreadableImage(
            f"it has {width} x {height} pixels in only {n_bytes} bytes, which is implausible; convert it.", TOO_LARGE
        )


def _upright(image: Image) -> Image:
    """The image rotated according to its EXIF data; invalid EXIF data are ignored."""
    operations: Any = require_extra("PIL.ImageOps", "images", "Reading images")
    try:
        turned = operations.exif_transpose(image)
    except Exception:  # the image can be used without its EXIF data
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


# worker processes -----------------------------------------------------------------------------------------------------


class Workers:
    """A pool of worker processes, started when they are needed.

    Parameters
    ----------
    n_workers : largest number of processes
    seconds : that one image may take; the process is killed then
    memory : bytes that a process may take
    """

    def __init__(self, n_workers: int, *, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        self.n_workers = n_workers
        self._threads = ThreadPoolExecutor(n_workers, thread_name_prefix="shorthash-decode")
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
        for _ in range(n_workers):
            self._idle.put(_Worker(seconds, memory))

    def submit(self, work: Callable[..., list[Any]], jobs: Sequence[Any]) -> Future[list[Any]]:
        """Start ``work(jobs, started)`` in a process; the result of an image that ended it is a string, the reason."""
        return self._threads.submit(self._run, work, list(jobs))

    def close(self) -> None:
        """End the processes."""
        self._threads.shutdown(cancel_futures=True)
        while not self._idle.empty():
            self._idle.get().stop()

    def _run(self, work: Callable[..., list[Any]], jobs: list[Any]) -> list[Any]:
        worker = self._idle.get()
        try:
            results: dict[int, Any] = {}
            while len(results) < len(jobs):
                rest = [number for number in range(len(jobs)) if number not in results]
                done, reason = worker.run(work, [jobs[number] for number in rest])
                if isinstance(done, int):
                    results[rest[done]] = reason
                else:
                    results |= dict(zip(rest, done, strict=True))
            return [results[number] for number in range(len(jobs))]
        finally:
            self._idle.put(worker)


@lru_cache(maxsize=1)
def shared_workers(n_workers: int, seconds: float, memory: int) -> Workers:
    """The workers of this process's servers; they end with it."""
    return Workers(n_workers, seconds=seconds, memory=memory)


class _Worker:
    """One process, and the connection to it."""

    def __init__(self, seconds: float, memory: int) -> None:
        self._seconds, self._memory = seconds, memory
        self._process: Any = None
        self._connection: Any = None

    def run(self, work: Callable[..., list[Any]], jobs: list[Any]) -> tuple[list[Any] | int, str]:
        """The results; or the number of the image that ended the process, and the reason."""
        at, reason = 0, CRASHED
        try:
            self._start()
            self._connection.send((work, jobs))
            while True:
                if not self._connection.poll(self._seconds):
                    reason = f"decoding it took longer than {self._seconds:g} seconds; convert or remove it."
                    break
                message = self._connection.recv()
                if not isinstance(message, int):
                    if isinstance(message, BaseException):
                        raise message
                    return message, ""
                at = message
        except (EOFError, OSError):
            pass
        self.stop()
        return at, reason

    def stop(self) -> None:
        """Kill the process."""
        if self._process is not None:
            with suppress(OSError):
                self._connection.close()
            self._process.kill()
            self._process.join()
            self._process = None

    def _start(self) -> None:
        if self._process is not None and self._process.is_alive():
            return
        self.stop()
        context = multiprocessing.get_context("spawn")  # forking threads risks deadlocks
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, self._memory), daemon=True)
        with _starting:
            self._process.start()
        other.close()
        try:
            ready = self._connection.poll(STARTING) and self._connection.recv()
        except (EOFError, OSError):
            ready = None
        if not ready:
            self.stop()
            raise DataFileError(
                "The processes that decode images do not start; in a script, call shorthash under "
                "if __name__ == '__main__', or use n_workers=0."
            )


_starting = threading.Lock()


def _serve(connection: Connection, memory: int) -> None:
    """The life of a worker: batches in, numbers of images and results out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the process that waits
    for module in PRELOADED:
        with suppress(ImportError):
            import_module(module)
    _limit_memory(memory)
    try:
        connection.send("ready")
        while True:
            work, jobs = connection.recv()
            try:
                connection.send(work(jobs, connection.send))
            except (MemoryError, OSError):
                raise
            except Exception as error:
                connection.send(error)
    except BaseException:  # the parent has ended, or memory is short, which the parent reports
        os._exit(1)


def _limit_memory(memory: int) -> None:
    """Let this process take ``memory`` bytes more than it has now; where the system cannot, nothing is limited."""
    try:
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    except (ImportError, OSError, ValueError):
        return
