"""
Images
======

From a folder of images to neighbours: three kinds of drawn pictures, GIST features, 4 bits.

With your own photographs, one folder per class, only the calls below ``main`` are needed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from shorthash import Collection, fit_images


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        photos, model = Path(folder) / "photos", Path(folder) / "photos.model"
        draw_photos(photos, 10)
        report = fit_images(photos, model, n_bits=4, features={"kind": "gist", "size": 64})
        facts = report.facts
        print(f"{facts['n_items']} images, {facts['n_classes']} classes, mAP {facts['evaluation']['map']:.2f}")

        with Collection(model) as collection:
            draw("rings", 99).save(Path(folder) / "new.png")
            found = collection.search(image=Path(folder) / "new.png", k=4, rerank=True)
            for item, distance in zip(collection.items(found.ids), found.distances, strict=True):
                print(f"  distance {distance}: {item.name}")
            added = collection.add_images([Path(folder) / "new.png"], labels=["rings"])
            print(f"added as item {added.added[0]}; {len(collection)} items")


def draw_photos(folder: Path, per_class: int) -> None:
    """One folder per kind of picture."""
    for kind in ("checks", "rings", "stripes"):
        (folder / kind).mkdir(parents=True)
        for number in range(per_class):
            draw(kind, number).save(folder / kind / f"{number}.png")


def draw(kind: str, seed: int) -> Image.Image:
    """A noisy picture with waves of some kind."""
    rng = np.random.default_rng(seed)
    x, y = np.meshgrid(np.arange(96), np.arange(72))
    period, left, top = rng.uniform(10, 14), rng.uniform(0, 12), rng.uniform(0, 12)
    across, down = np.sin(2 * np.pi * (x + left) / period), np.sin(2 * np.pi * (y + top) / period)
    round_ = np.sin(2 * np.pi * np.hypot(x - 48 + left, y - 36 + top) / period)
    waves = {"checks": across * down, "rings": round_, "stripes": across}[kind]
    grey = 128 + 80 * waves + rng.normal(scale=25, size=waves.shape)
    return Image.fromarray(np.clip(grey, 0, 255).astype(np.uint8)).convert("RGB")


if __name__ == "__main__":
    main()
