"""GIST against a slow reference that follows the recipe line by line, with loops and full transforms."""

import math

import numpy as np
import pytest
from pictures import CLASSES, picture
from PIL import Image

from shorthash.errors import InvalidInput
from shorthash.images.features import GistFeatures, gist, grey_square, make_features


def slow_gist(square):
    """One image, float64, shifted spectra, explicit loops."""
    s = len(square)
    v = np.log(1 + square)
    v = np.pad(v, 5, mode="symmetric")
    n = len(v) + len(v) % 2
    v = np.pad(v, [(0, n - len(v))] * 2, mode="symmetric")
    s1 = 4 / math.sqrt(math.log(2))
    g = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            g[i, j] = math.exp(-((i - n // 2) ** 2 + (j - n // 2) ** 2) / s1**2)
    g = np.fft.ifftshift(g)
    o = v - np.real(np.fft.ifft2(np.fft.fft2(v) * g))
    ls = np.sqrt(np.abs(np.fft.ifft2(np.fft.fft2(o**2) * g)))
    o = (o / (0.2 + ls))[5 : 5 + s, 5 : 5 + s]
    padded = np.pad(o, 32, mode="symmetric")
    p = len(padded)
    fx, fy = np.meshgrid(np.arange(-(p // 2), p - p // 2), np.arange(-(p // 2), p - p // 2))
    fr, angle = np.fft.ifftshift(np.sqrt(fx**2 + fy**2)), np.fft.ifftshift(np.angle(fx + 1j * fy))
    row = []
    for scale in range(1, 5):
        for j in range(1, 9):
            tr = angle + math.pi * (j - 1) / 8
            tr = np.where(tr < -math.pi, tr + 2 * math.pi, tr)
            tr = np.where(tr > math.pi, tr - 2 * math.pi, tr)
            G = np.exp(-10 * 0.35 * (fr / p / (0.3 / 1.85 ** (scale - 1)) - 1) ** 2 - 2 * math.pi * tr**2)
            response = np.abs(np.fft.ifft2(np.fft.fft2(padded) * G))[32 : 32 + s, 32 : 32 + s]
            edges = np.fix(np.linspace(0, s, 5)).astype(int)
            for column in range(4):
                for line in range(4):
                    block = response[edges[line] : edges[line + 1], edges[column] : edges[column + 1]]
                    row.append(block.mean())
    return np.array(row)


@pytest.mark.parametrize("size", [32, 38, 64])
def test_against_the_slow_reference(size):
    squares = np.stack([grey_square(picture(kind, 3), size) for kind in CLASSES])
    rows = gist(squares)
    assert rows.shape == (3, 512)
    for square, row in zip(squares, rows, strict=True):
        np.testing.assert_allclose(row, slow_gist(square.astype(np.float64)), rtol=2e-4, atol=1e-5)


def test_a_batch_is_its_images():
    squares = np.stack([grey_square(picture("rings", seed), 32) for seed in range(3)])
    np.testing.assert_array_equal(gist(squares), np.concatenate([gist(squares[i : i + 1]) for i in range(3)]))
    assert gist(squares[:0]).shape == (0, 512)


def test_stripes_excite_their_orientation():
    """Vertical stripes vary along x: the filters of orientation 1 (angle 0) answer, those at a right angle do not."""
    square = grey_square(picture("stripes", 0, size=(64, 64)), 64)
    by_orientation = gist(square[None]).reshape(4, 8, 16).mean(axis=(0, 2))
    assert by_orientation.argmax() == 0
    assert by_orientation[0] > 2 * by_orientation[4]


def test_grey_squares_cover_are_cut_and_stretched():
    wide = Image.fromarray(np.tile(np.arange(200, dtype=np.uint8)[None, :, None], (100, 1, 3)))
    square = grey_square(wide, 50)
    assert square.shape == (50, 50)
    assert (square.min(), square.max()) == (0.0, 255.0)
    assert (np.diff(square[0]) > 0).all()
    assert grey_square(Image.new("RGB", (9, 5), "grey"), 16).max() == 0


def test_flat_images_have_finite_features():
    assert np.isfinite(gist(np.zeros((1, 32, 32)))).all()
    assert np.isfinite(GistFeatures(32).rows(np.zeros((1, 32, 32)))).all()


def test_refusals():
    with pytest.raises(InvalidInput, match="grey squares of shape"):
        gist(np.zeros((2, 32, 30)))
    with pytest.raises(InvalidInput, match="even s"):
        gist(np.zeros((2, 33, 33)))
    with pytest.raises(InvalidInput, match="'gist', 'cnn' or the path"):
        make_features("sift")


@pytest.mark.data
def test_neighbours_of_photographs_share_a_class(data_folder):
    """Sixty photographs of six classes: chance is one in six."""
    from shorthash.images.decoding import extract

    classes = ("airplanes", "Motorbikes", "car_side", "grand_piano", "sunflower", "minaret")
    files = [f for c in classes for f in sorted((data_folder / "images24" / c).iterdir())[:10]]
    X = np.stack([e.row for batch in extract(files, GistFeatures()) for e in batch])
    S = X @ X.T - 2 * np.eye(len(X))
    y = np.repeat(np.arange(6), 10)
    assert (y[S.argmax(axis=1)] == y).mean() > 0.7
