"""Decoding: every unusual image becomes RGB, every broken one raises the same typed error."""

import contextlib
import io
import struct
import sys
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures import encoded, picture
from PIL import Image

from shorthash.errors import InvalidInput, UnreadableImage
from shorthash.images.decoding import content_hash, decode, to_jpeg
from shorthash.images.files import named_images

GOOD = encoded(picture("rings", 0), "JPEG")


def header_only(width, height):
    """A PNG whose header states a size that its data do not have."""
    chunks = [b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(b"\0" * 9)]
    framed = [struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def grey_ramp(mode, values):
    return encoded(Image.fromarray(values), "TIFF") if mode == "F" else encoded(Image.fromarray(values), "PNG")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_every_format_becomes_rgb(kind):
    image = decode(encoded(picture("rings", 0), kind))
    assert (image.mode, image.size) == ("RGB", (64, 48))


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK", "YCbCr", "LAB"])
def test_every_mode_becomes_rgb(mode):
    kind = {"CMYK": "TIFF", "LAB": "TIFF", "YCbCr": "JPEG"}.get(mode, "PNG")
    source = Image.new("LAB", (64, 48)) if mode == "LAB" else picture("rings", 0).convert(mode)
    image = decode(encoded(source, kind))
    assert (image.mode, image.size) == ("RGB", (64, 48))


def test_cmyk_jpeg_keeps_its_colours():
    red = Image.new("RGB", (32, 32), (200, 30, 30))
    colour = np.asarray(decode(encoded(red.convert("CMYK"), "JPEG"))).mean(axis=(0, 1))
    assert colour[0] > 150
    assert colour[1:].max() < 90


def test_sixteen_bits_are_scaled_not_truncated():
    ramp = np.tile(np.linspace(0, 65535, 64).astype(np.uint16), (8, 1))
    grey = np.asarray(decode(grey_ramp("I;16", ramp)))[0, :, 0].astype(int)
    assert (grey[0], grey[-1]) == (0, 255)
    assert abs(grey[32] - 130) <= 2


def test_floats_are_scaled():
    ramp = np.tile(np.linspace(0, 1, 64, dtype=np.float32), (8, 1))
    assert np.asarray(decode(grey_ramp("F", ramp)))[0, -1].tolist() == [255, 255, 255]


def test_transparent_parts_become_white():
    clear = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    assert np.asarray(decode(encoded(clear))).min() == 255
    palette = Image.new("P", (8, 8), 0)
    assert np.asarray(decode(encoded(palette, "PNG", transparency=0))).min() == 255


def test_exif_rotation_is_applied():
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90 degrees
    turned = decode(encoded(picture("rings", 0, size=(64, 32)), "JPEG", exif=exif))
    assert turned.size == (32, 64)


def test_damaged_exif_is_ignored():
    octets = encoded(picture("rings", 0), "JPEG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    assert decode(octets).size == (64, 48)


def test_first_frame_of_an_animation():
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue")]
    octets = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert np.asarray(decode(octets))[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize(
    ("octets", "says"),
    [
        (b"", "is empty"),
        (b"hello, this is no image", "not an image"),
        (b"%PDF-1.7 ...", "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "not an image"),
        (GOOD[: len(GOOD) // 2], "damaged or truncated"),
        (GOOD[:20], "damaged or truncated|not an image"),
        (header_only(50_000, 50_000), "pixels"),
        (header_only(12_000, 8_000), "pixels"),
        (header_only(70_000, 10), "pixels"),
        (header_only(64, 64), "damaged or truncated"),
    ],
)
def test_broken_images_are_one_typed_error(octets, says):
    with pytest.raises(UnreadableImage, match=says):
        decode(octets)


def test_a_smaller_limit_can_be_set():
    with pytest.raises(UnreadableImage, match="64 x 48 pixels, and at most 1000"):
        decode(GOOD, max_pixels=1000)


@given(st.binary(max_size=64), st.integers(0, 2000), st.integers(0, 255))
def test_fuzzed_images_are_decoded_or_refused(noise, place, value):
    octets = bytearray(GOOD)
    octets[place % len(GOOD)] = value
    octets[(place * 7) % len(GOOD) :][: len(noise)] = noise
    for candidate in (bytes(octets), noise, GOOD[: place % len(GOOD)] + noise):
        with contextlib.suppress(UnreadableImage):
            assert decode(candidate).mode == "RGB"


def test_large_jpegs_are_decoded_at_reduced_size_on_request():
    octets = encoded(picture("stripes", 0, size=(2048, 1536)), "JPEG")
    assert decode(octets).size == (2048, 1536)
    assert 512 <= min(decode(octets, at_least=512).size) < 1536


def test_missing_file(tmp_path):
    with pytest.raises(UnreadableImage, match="cannot be read"):
        decode(tmp_path / "nothing.jpg")


def test_thumbnails_shrink_and_never_grow():
    assert max(Image.open(io.BytesIO(to_jpeg(picture("rings", 0, size=(400, 300)), 256))).size) == 256
    assert Image.open(io.BytesIO(to_jpeg(picture("rings", 0), 256))).size == (64, 48)


def test_images_in_folders_and_files_given_by_name(tmp_path):
    for name in ("b/2.JPG", "a/1.png", "a/.hidden/3.png", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(GOOD)
    found = [path for _, path in named_images([tmp_path, tmp_path / "notes.txt"]).sources]
    assert [p.relative_to(tmp_path).as_posix() for p in found] == ["a/1.png", "b/2.JPG", "notes.txt"]
    with pytest.raises(InvalidInput, match="There is no file or folder"):
        named_images([tmp_path / "nothing"])


def test_content_hash_is_of_the_bytes():
    assert content_hash(GOOD) == content_hash(bytes(GOOD)) != content_hash(GOOD + b"\0")


@pytest.mark.parametrize("kind", ["HEIF", "AVIF"])
def test_photographs_of_phones(kind):
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.register_heif_opener()
    image = picture("rings", 5)
    again = np.asarray(decode(encoded(image, kind, quality=95)), dtype=int)
    assert np.abs(again - np.asarray(image, dtype=int)).mean() < 8
    with pytest.raises(UnreadableImage, match="pixels, and at most 100") as refused:
        decode(encoded(image, kind), max_pixels=100)
    assert refused.value.kind == "too large"
    with pytest.raises(UnreadableImage) as refused:
        decode(encoded(image, kind)[:400])
    assert refused.value.kind in ("damaged", "not an image")


def test_heic_without_its_decoder(monkeypatch):
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.register_heif_opener()
    octets = encoded(picture("rings", 5), "HEIF")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(UnreadableImage, match="HEIC image, and pillow-heif is not installed") as refused:
        decode(octets)
    assert refused.value.kind == "HEIC"
    with pytest.raises(UnreadableImage, match="it is not an image"):  # a video has the same container
        decode(b"\0\0\0\x14ftypqt  \0\0\0\0qt  " + bytes(100))
