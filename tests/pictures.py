"""Pictures for tests: drawn, not stored; every class has its own look."""

import io

import numpy as np
from PIL import Image

CLASSES = ("checks", "rings", "stripes")


def picture(kind, seed, size=(64, 48)):
    """An RGB image of a class."""
    rng = np.random.default_rng([CLASSES.index(kind), seed])
    x, y = np.meshgrid(np.arange(size[0]), np.arange(size[1]))
    period, shift = rng.uniform(9, 12), rng.uniform(0, 10, size=2)
    waves = {
        "checks": np.sin(2 * np.pi * (x + shift[0]) / period) * np.sin(2 * np.pi * (y + shift[1]) / period),
        "rings": np.sin(2 * np.pi * np.hypot(x - 32 + shift[0], y - 24 + shift[1]) / period),
        "stripes": np.sin(2 * np.pi * (x + shift[0]) / period),
    }[kind]
    grey = 128 + 90 * waves + rng.normal(scale=12, size=waves.shape)
    return Image.fromarray(np.clip(np.stack([grey] * 3, axis=2) + rng.integers(-20, 20, 3), 0, 255).astype(np.uint8))


def encoded(image, kind="PNG", **options):
    """The bytes of a file."""
    target = io.BytesIO()
    image.save(target, kind, **options)
    return target.getvalue()


def write_folder(folder, per_class=8, classes=CLASSES):
    """A folder of class folders."""
    for kind in classes:
        (folder / kind).mkdir(parents=True)
        for seed in range(per_class):
            (folder / kind / f"{seed}.png").write_bytes(encoded(picture(kind, seed)))
    return folder
