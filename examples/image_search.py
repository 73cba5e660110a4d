"""
Images
======

From a folder of images to neighbours: three kinds of drawn pictures, GIST features, 4 bits. With your own
photographs, one folder per class, only the calls of ``fit_images`` and ``Collection`` are needed.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from shorthash import Collection, fit_images


# %%
# Pictures with waves of three kinds, and noise:
def draw(kind, seed):
    rng = np.random.default_rng(seed)
    x, y = np.meshgrid(np.arange(96), np.arange(72))
    period, left, top = rng.uniform(10, 14), rng.uniform(0, 12), rng.uniform(0, 12)
    across, down = np.sin(2 * np.pi * (x + left) / period), np.sin(2 * np.pi * (y + top) / period)
    round_ = np.sin(2 * np.pi * np.hypot(x - 48 + left, y - 36 + top) / period)
    waves = {"checks": across * down, "rings": round_, "stripes": across}[kind]
    grey = 128 + 80 * waves + rng.normal(scale=25, size=waves.shape)
    return Image.fromarray(np.clip(grey, 0, 255).astype(np.uint8)).convert("RGB")


folder = tempfile.TemporaryDirectory()
photos, model = Path(folder.name) / "photos", Path(folder.name) / "photos.model"
for kind in ("checks", "rings", "stripes"):
    (photos / kind).mkdir(parents=True)
    for number in range(10):
        draw(kind, number).save(photos / kind / f"{number}.png")

# %%
# One call reads, learns and stores; folders are classes.
report = fit_images(photos, model, n_bits=4, features={"kind": "gist", "size": 64})
facts = report.facts
print(f"{facts['n_items']} images, {facts['n_classes']} classes, mAP {facts['evaluation']['map']:.2f}")

# %%
# Search with a new picture, then add it:
new = Path(folder.name) / "new.png"
draw("rings", 99).save(new)
with Collection(model) as collection:
    found = collection.search(image=new, k=4, rerank=True)
    items = collection.items(found.ids)
    added = collection.add_images([new], labels=["rings"])
    print(f"added as item {added.added[0]}; {len(collection)} items")

figure, axes = plt.subplots(1, 5, figsize=(7, 1.7), layout="constrained")
names = ["query", *(f"{item.name}\ndistance {distance}" for item, distance in zip(items, found.distances, strict=True))]
files = [new, *(photos / item.name for item in items)]
for ax, path, name in zip(axes, files, names, strict=True):
    ax.imshow(Image.open(path))
    ax.set_title(name, fontsize=8)
    ax.set_axis_off()

# %%
# ``shorthash serve photos.model`` shows the same in a browser.
folder.cleanup()
