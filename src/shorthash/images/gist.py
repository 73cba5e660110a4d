r"""GIST-512: the distribution of energy of an image over scales, orientations and positions.

A. Oliva, A. Torralba. Modeling the Shape of the Scene: A Holistic Representation of the Spatial Envelope.
International Journal of Computer Vision, 2001. The steps and constants are those of the authors' program (LMgist): 4
scales, 8 orientations, a grid of 4 x 4 blocks.

Legend: n images, s the side of an image, p = s + 2 * BORDER the side with its border, f = 32 filters.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shorthash._types import Floats
from shorthash._validation import check_count, require_extra
from shorthash.errors import InvalidInput

if TYPE_CHECKING:
    from PIL.Image import Image

ORIENTATIONS = 8
SCALES = 4
BLOCKS = 4  # blocks along a side
BORDER = 32  # pixels by which an image is extended before it is filtered
PREFILTER_CYCLES = 4  # cycles per image below which the prefilter removes and normalises contrast
PREFILTER_BORDER = 5
DIMENSION = SCALES * ORIENTATIONS * BLOCKS**2

Singles = NDArray[np.float32]


def grey_square(image: Image, size: int = 128) -> Singles:
    """Step 1: a grey square of ``size`` pixels, from 0 to 255, (size, size).

    The image is scaled until it just covers the square, and the middle is cut out.
    """
    pillow: Any = require_extra("PIL.Image", "images", "GIST features")
    grey = np.asarray(image, dtype=np.float32).mean(axis=2)
    height, width = grey.shape
    scale = size / min(height, width)
    covering = max(size, round(width * scale)), max(size, round(height * scale))
    scaled = np.asarray(pillow.fromarray(grey).resize(covering, pillow.Resampling.BILINEAR))
    top, left = (scaled.shape[0] - size) // 2, (scaled.shape[1] - size) // 2
    square = scaled[top : top + size, left : left + size]
    square = square - square.min()
    return np.asarray(255 * square / max(1.0, float(square.max())), dtype=np.float32)


def gist(squares: NDArray[Any]) -> Singles:
    """GIST-512 of grey squares.

    Parameters
    ----------
    squares : (n, s, s) grey values from 0 to 255, as ``grey_square`` gives them; s is even

    Returns
    -------
    rows : (n, 512) float32, not normalised: filter by filter (scale, then orientation), blocks column by column

    Examples
    --------
    >>> rows = gist(np.random.default_rng(0).uniform(0, 255, size=(2, 32, 32)))
    >>> rows.shape, bool((rows > 0).all())
    ((2, 512), True)
    """
    values = np.asarray(squares)
    if values.ndim != 3 or values.shape[1] != values.shape[2] or values.shape[1] % 2:
        raise InvalidInput(
            f"gist() takes grey squares of shape (n, s, s) with an even s. Got {values.shape} instead; see grey_square."
        )
    check_count(values.shape[1], "size", "gist", low=2 * BLOCKS)
    if not len(values):
        return np.empty((0, DIMENSION), dtype=np.float32)
    return np.stack([_energies(_prefiltered(square)) for square in values.astype(np.float64)])


def _prefiltered(square: Floats) -> Floats:
    """Step 2: local contrast, which reduces the influence of illumination, (s, s)."""
    from scipy import fft

    s = len(square)
    v = np.pad(np.log1p(square), PREFILTER_BORDER, mode="symmetric")  # its side is even because s is
    lowpass = _lowpass(len(v))
    o = v - fft.irfft2(fft.rfft2(v) * lowpass, s=v.shape)
    local_energy = np.sqrt(np.abs(fft.irfft2(fft.rfft2(o * o) * lowpass, s=v.shape)))
    inside = slice(PREFILTER_BORDER, PREFILTER_BORDER + s)
    return np.asarray((o / (0.2 + local_energy))[inside, inside], dtype=np.float64)


def _energies(o: Floats) -> Singles:
    """Steps 3 and 4: mean modulus of every filter's response in every block, (512,)."""
    from scipy import fft

    s = len(o)
    spectrum = fft.fft2(np.pad(o, BORDER, mode="symmetric").astype(np.float32))
    responses = np.abs(fft.ifft2(spectrum[None] * _bank(s), overwrite_x=True))  # (f, p, p)
    inside = responses[:, BORDER : BORDER + s, BORDER : BORDER + s]
    edges = np.linspace(0, s, BLOCKS + 1).astype(int)
    rows = np.add.reduceat(inside, edges[:-1], axis=1, dtype=np.float64)
    sums = np.add.reduceat(rows, edges[:-1], axis=2)  # (f, block row, block column)
    means = sums / (np.diff(edges)[:, None] * np.diff(edges)[None, :])
    return np.asarray(means.transpose(0, 2, 1).reshape(-1), dtype=np.float32)


@lru_cache(maxsize=4)
def _lowpass(n: int) -> Floats:
    """Gaussian of the prefilter for the half spectrum of a real image, (n, n / 2 + 1)."""
    s1 = PREFILTER_CYCLES / np.sqrt(np.log(2))
    rows, columns = np.fft.fftfreq(n, 1 / n)[:, None], np.arange(n // 2 + 1)[None, :]
    return np.asarray(np.exp(-(rows**2 + columns**2) / s1**2))


@lru_cache(maxsize=4)
def _bank(s: int) -> Singles:
    """Transfer functions of all filters on a square with its border, (f, p, p)."""
    p = s + 2 * BORDER
    along = np.fft.fftfreq(p, 1 / p)
    fx, fy = along[None, :], along[:, None]
    fr, angle = np.hypot(fx, fy), np.arctan2(fy, fx)
    filters = []
    for scale in range(SCALES):
        f = 0.3 / 1.85**scale
        b = 16 * ORIENTATIONS**2 / 32**2
        for orientation in range(ORIENTATIONS):
            tr = angle + np.pi * orientation / ORIENTATIONS
            tr = tr + 2 * np.pi * (tr < -np.pi) - 2 * np.pi * (tr > np.pi)
            filters.append(np.exp(-10 * 0.35 * (fr / p / f - 1) ** 2 - 2 * b * np.pi * tr**2))
    return np.stack(filters).astype(np.float32)
