"""Small files that would cost a decoder much time or memory."""

import io

from PIL import Image


def many_scans(n=5000, size=(100, 100)):
    """A progressive JPEG whose last scan is repeated."""
    target = io.BytesIO()
    Image.effect_noise(size, 60).convert("RGB").save(target, "JPEG", progressive=True)
    octets = target.getvalue()
    last = octets.rindex(b"\xff\xda")
    return octets[:last] + octets[last:-2] * n + octets[-2:]


def wide_png(side=6300):
    """A PNG of one colour and 40 million pixels, in 120 kB."""
    target = io.BytesIO()
    Image.new("RGB", (side, side)).save(target, "PNG")
    return target.getvalue()


def tiny_gif(side=8000):
    """A GIF of 64 million pixels in a few bytes."""
    octets = bytearray(b"GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00!\xf9\x04\x01\x00\x00\x00\x00")
    octets += b",\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"
    octets[6:10] = side.to_bytes(2, "little") * 2
    return bytes(octets)
