"""From photographs to codes: 24 classes, GIST beside CNN features, 8 bits: ``python benchmarks/images.py [--record]``.

Run with ``SHORTHASH_DATA`` set to the folder that holds ``images24`` (24 CALTECH-101 classes, 40 photographs each).
Per seed, 10 images of every class are queries; the other 30 are fitted on and searched. Tie-aware mAP of 8-bit codes by
``make_hasher("auto")``; and that of the features themselves, ranked by cosine. ``--record`` writes
``docs/data/images.json`` and draws ``docs/images/wall.png``: results of a few queries of seed 0. Needs ``make cnn``.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs" / "data" / "images.json"
WALL = ROOT / "docs" / "images" / "wall.png"
SEEDS, N_BITS, PER_CLASS = range(5), 8, 10
BUCKETS, PER_BUCKET = 4, 3  # what a line of the wall shows: the nearest buckets, and the first images in each
FEATURES = {"gist": "GIST-512", "cnn": "EfficientNet-Lite0"}
WALL_CLASSES = ("flamingo", "grand_piano", "kangaroo", "umbrella")  # classes on the wall; the first query of each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="store the figures and draw the wall")
    parser.add_argument("--cache", default=str(Path(tempfile.gettempdir()) / "shorthash-images24"), metavar="FILE")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    files, y = photographs()
    rows = {name: features(name, files, options.cache) for name in FEATURES}
    result: dict[str, Any] = {"n_images": len(files), "n_classes": len(set(y)), "n_bits": N_BITS, "features": {}}
    for name, (X, seconds) in rows.items():
        codes, cosine = zip(*(measure(X, y, seed) for seed in SEEDS), strict=True)
        result["features"][name] = {"codes": codes, "cosine": cosine, "ms_per_image": round(1e3 * seconds, 2)}
        print(name, json.dumps(result["features"][name]), flush=True)
    if options.record:
        RECORD.write_text(json.dumps(result, indent=1) + "\n")
        draw_wall(files, y, {name: X for name, (X, _) in rows.items()})
        print(render())


def photographs() -> tuple[list[Path], np.ndarray]:
    from shorthash.images.files import image_files

    folder = os.environ.get("SHORTHASH_DATA")
    if not folder:
        raise SystemExit("set SHORTHASH_DATA to the folder that holds images24")
    files = image_files([Path(folder) / "images24"])
    return files, np.array([file.parent.name for file in files])


def features(name: str, files: list[Path], cache: str) -> tuple[np.ndarray, float]:
    """Rows of all images, and seconds per image (decoding included, one process)."""
    from shorthash.images.decoding import extract
    from shorthash.images.features import make_features

    made = make_features(name)
    X = np.stack([e.row for batch in extract(files, made, cache=cache) for e in batch])
    list(extract(files[:1], made))
    start = time.perf_counter()
    list(extract(files[:64], made))
    return X, (time.perf_counter() - start) / 64


def split(y: np.ndarray, seed: int) -> Any:
    from shorthash.data.splits import PerClassQueries

    return PerClassQueries(per_class=PER_CLASS, seed=seed).split(y)


def measure(X: np.ndarray, y: np.ndarray, seed: int) -> tuple[float, float]:
    """Of one seed: mAP of codes, and of the features by cosine."""
    from shorthash import evaluate, make_hasher
    from shorthash.evaluation import evaluate_distances

    rows = split(y, seed)
    hasher = make_hasher("auto", n_bits=N_BITS, random_state=seed).fit(X[rows.train], y[rows.train])
    query, database = rows.query, rows.database
    codes = evaluate(hasher.transform(X[query]), y[query], hasher.transform(X[database]), y[database])
    cosine = evaluate_distances(1 - X[query] @ X[database].T, y[query], y[database])
    return round(codes.map, 5), round(cosine.map, 5)


def render() -> str:
    """The table for docs/guide/images.md."""
    record = json.loads(RECORD.read_text())
    lines = [
        f"| features | mAP of {record['n_bits']}-bit codes | mAP of the features, by cosine | ms per image |",
        "| --- | --- | --- | --- |",
    ]
    for name, found in record["features"].items():
        cells = [f"{np.mean(found[k]):.3f} ± {np.std(found[k], ddof=1):.3f}" for k in ("codes", "cosine")]
        lines.append(f"| {FEATURES[name]} (`{name}`) | {cells[0]} | {cells[1]} | {found['ms_per_image']:.0f} |")
    lines.append(
        f"\n{record['n_classes']} classes, {record['n_images'] // record['n_classes']} photographs each: per seed "
        f"{PER_CLASS} of every class are queries, the others are fitted on and searched; mean and standard deviation "
        f"over {len(found['codes'])} seeds (`benchmarks/images.py`; ms of one process, decoding included)."
    )
    return "\n".join(lines)


def draw_wall(files: list[Path], y: np.ndarray, rows: dict[str, np.ndarray]) -> None:
    """Queries, the buckets nearest to them, and a few images of each."""
    import matplotlib.pyplot as plt

    from shorthash import BucketIndex, make_hasher
    from shorthash._display import figure_style
    from shorthash.codes import pack

    parts = split(y, 0)
    queries = [next(q for q in parts.query if y[q] == name) for name in WALL_CLASSES]
    n_lines = len(queries) * len(rows)
    with figure_style():
        figure = plt.figure(figsize=(9.2, 0.82 * n_lines + 0.2), layout="none")
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(-1.75, BUCKETS * PER_BUCKET + 0.05)
        axes.set_ylim(n_lines * 1.3, -0.35)
        axes.axis("off")
        for j, (name, X) in enumerate(rows.items()):
            hasher = make_hasher("auto", n_bits=N_BITS, random_state=0).fit(X[parts.train], y[parts.train])
            codes = pack(hasher.transform(X))
            index = BucketIndex(N_BITS).add(codes[parts.database], ids=parts.database)
            for i, query in enumerate(queries):
                top = 1.3 * (i * len(rows) + j)
                if j == 0:
                    axes.text(-1.7, top + 0.1, "query:\n" + y[query].replace("_", " "), fontsize=8, va="bottom")
                    _picture(axes, files[query], -1.7, top + 0.16, 1.2)
                axes.text(-0.28, top + 0.5, FEATURES[name].split("-")[0], rotation=90, va="center", fontsize=7.5)
                _line(axes, files, y, index, codes[query], y[query], top)
        target = io.BytesIO()
        figure.savefig(target, dpi=110, facecolor="white")
        plt.close(figure)
    _save_small(target)


def _line(axes: Any, files: list[Path], y: np.ndarray, index: Any, code: int, label: str, top: float) -> None:
    """The nearest buckets of one query, each with a frame."""
    from matplotlib.patches import FancyBboxPatch

    from shorthash._display import PALETTE
    from shorthash.codes import hamming_distances

    known, loads = index.buckets()
    distances = hamming_distances(np.array([code], dtype=known.dtype), known, N_BITS)[0]
    for place, b in enumerate(np.lexsort((known, distances))[:BUCKETS]):
        left, ids = place * PER_BUCKET, index.within(known[b : b + 1], 0, ties="shuffle").ids
        frame = FancyBboxPatch(
            (left + 0.03, top - 0.01),
            PER_BUCKET - 0.1,
            1.02,
            boxstyle="round,pad=0,rounding_size=0.08",
            facecolor="none",
            edgecolor=PALETTE["ink"],
            linewidth=1.4,
        )
        axes.add_patch(frame)
        words = f"distance {distances[b]}   {int(known[b]):0{N_BITS}b}   {loads[b]} images"
        axes.text(left + 0.06, top - 0.07, words, fontsize=7)
        for column, item in enumerate(ids[:PER_BUCKET]):
            _picture(axes, files[item], left + 0.075 + 0.94 * column, top + 0.05, 0.9)
            _name(axes, y[item], left + 0.525 + 0.94 * column, top + 0.95, right=y[item] == label)


def _name(axes: Any, label: str, x: float, bottom: float, *, right: bool) -> None:
    """The class of an image, and whether it is that of the query."""
    from shorthash._display import PALETTE

    words = f"{'✓' if right else '✗'} {label.replace('_', ' ')}"
    ground = {"facecolor": PALETTE["series-3" if right else "series-2"], "edgecolor": "none", "pad": 0.8}
    axes.text(x, bottom - 0.03, words, fontsize=5.4, color="white", ha="center", va="bottom", bbox=ground, zorder=3)


def _picture(axes: Any, file: Path, left: float, top: float, size: float) -> None:
    from shorthash.images.decoding import decode
    from shorthash.images.features import middle_square

    square = middle_square(decode(file), 72, share=1.0)
    axes.imshow(square, extent=(left, left + size, top + size, top), aspect="auto", interpolation="lanczos", zorder=2)


def _save_small(target: io.BytesIO) -> None:
    """A palette of 128 colours is enough, and a third of the bytes."""
    from PIL import Image

    target.seek(0)
    WALL.parent.mkdir(parents=True, exist_ok=True)
    Image.open(target).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(WALL, optimize=True)


if __name__ == "__main__":
    main()
