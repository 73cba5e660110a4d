"""Images from files or bytes, decoded with suspicion: whatever is in them, out comes RGB or one typed error."""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shorthash._validation import require_extra
from shorthash.errors import InvalidInput, UnreadableImage

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["ENDINGS", "MAX_PIXELS", "content_hash", "decode", "image_files", "read_bytes", "to_jpeg"]

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")  # no format that runs a program to be read
ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".mpo", ".ppm", ".pgm", ".pbm")
MAX_PIXELS = 80_000_000  # 240 MB as RGB; Pillow itself starts to warn at 89 million
LONGEST_SIDE = 65_500
HASH_DIGITS = 32  # 128 bits: two contents share one by chance never


def decode(
    source: str | os.PathLike[str] | bytes, *, max_pixels: int = MAX_PIXELS, at_least: int | None = None
) -> Image:
    """Decode an image to RGB, upright.

    The rotation of its EXIF data is applied; CMYK, 16 bits per channel, palettes and grey become RGB; transparency is
    laid on white; of an animation the first frame is taken. The size is read from the header and refused there, before
    any pixel is decoded.

    Parameters
    ----------
    source : a path, or the bytes of a file
    max_pixels : more pixels than this are refused
    at_least : a JPEG may be decoded at a fraction of its size, as long as no side gets shorter than this; None decodes
        it at full size

    Returns
    -------
    image : a ``PIL.Image.Image`` of mode RGB

    Raises
    ------
    UnreadableImage
        If it is not an image of a known format, is empty, cut off or damaged, or has too many pixels.
    """
    pillow: Any = require_extra("PIL.Image", "images", "Reading images")
    octets = read_bytes(source)
    if not octets:
        raise UnreadableImage("the file is empty; copy it again.")
    # Pillow warns of damaged metadata; what matters is an error here. Restoring filters is not safe among threads.
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
        known = ", ".join(FORMATS)
        raise UnreadableImage(f"it is not an image, or not one of {known}; convert it.") from error
    except Exception as error:  # decoders raise whatever a broken file provokes: OSError, struct.error, SyntaxError ...
        raise UnreadableImage(f"the image is damaged or cut off ({_one_line(error)}); copy it again.") from error


def read_bytes(source: str | os.PathLike[str] | bytes) -> bytes:
    """The bytes of a file, or the bytes given."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    try:
        return Path(source).read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreadableImage(f"the file cannot be read ({reason}); check path and permissions.") from error


def content_hash(octets: bytes) -> str:
    """What names a content: equal for equal bytes, 32 hexadecimal digits.

    Examples
    --------
    >>> content_hash(b"") == content_hash(b"x"), len(content_hash(b""))
    (False, 32)
    """
    return hashlib.sha256(octets).hexdigest()[:HASH_DIGITS]


def image_files(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """All image files in folders (with everything below, sorted by path) and the files that were named.

    Files in folders count as images by their ending, hidden ones never; a file that is named is always taken.
    """
    found: list[Path] = []
    for given in paths:
        path = Path(given)
        if path.is_dir():
            inside = (p for p in path.rglob("*") if p.suffix.lower() in ENDINGS and p.is_file())
            found += sorted(p for p in inside if not any(part.startswith(".") for part in p.relative_to(path).parts))
        elif path.exists():
            found.append(path)
        else:
            raise InvalidInput(f"There is no file or folder {path}; check the path.")
    return list(dict.fromkeys(found))


def to_jpeg(image: Image, longest_side: int, quality: int = 85) -> bytes:
    """A JPEG of an RGB image, shrunk (never enlarged) so that no side is longer than ``longest_side``."""
    small = image.copy()
    small.thumbnail((longest_side, longest_side))
    target = io.BytesIO()
    small.save(target, "JPEG", quality=quality)
    return target.getvalue()


def _check_size(size: tuple[int, int], max_pixels: int) -> None:
    width, height = size
    if width * height > max_pixels or max(size) > LONGEST_SIDE:
        raise UnreadableImage(
            f"the image has {width} x {height} pixels, and at most {max_pixels} (and {LONGEST_SIDE} on a side) are "
            "decoded; shrink it."
        )


def _upright(image: Image) -> Image:
    """The image as its EXIF data say it was held; nonsense there is ignored."""
    operations: Any = require_extra("PIL.ImageOps", "images", "Reading images")
    try:
        turned = operations.exif_transpose(image)
    except Exception:  # damaged EXIF data are no reason to refuse a whole image
        return image
    return image if turned is None else turned


def _as_rgb(image: Image, pillow: Any) -> Image:
    """Any mode as RGB."""
    if image.mode.startswith("I") or image.mode == "F":
        return pillow.fromarray(_eight_bits(np.asarray(image), image.mode)).convert("RGB")  # type: ignore[no-any-return]
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        seen = image.convert("RGBA")
        ground = pillow.new("RGBA", seen.size, (255, 255, 255, 255))
        return pillow.alpha_composite(ground, seen).convert("RGB")  # type: ignore[no-any-return]
    return image.copy() if image.mode == "RGB" else image.convert("RGB")


def _eight_bits(values: NDArray[Any], mode: str) -> NDArray[np.uint8]:
    """Grey values of 16 or 32 bits, or floats, as 0 to 255."""
    grey = np.nan_to_num(values.astype(np.float64))
    if mode == "F":
        top = 1.0 if grey.size and grey.max() <= 1 else 255.0
    else:
        top = 255.0 if mode == "I" and grey.size and grey.max() <= 255 else 65535.0
    return np.clip(np.rint(grey * (255 / top)), 0, 255).astype(np.uint8)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
