"""Near duplicates among photographs: ``python benchmarks/duplicates.py [--record]``.

Run with ``SHORTHASH_DATA`` set to the folder that holds ``images24``. Of 240 of its 960 photographs, four copies each
are made in a temporary folder: half the size, compressed again (JPEG quality 30), cropped by 5 %, brighter by 25 %.
Pairs of a photograph and its copies, or of two of its copies, are to be found. Compared with the hashes of imagededup
(``pip install imagededup``, which needs torch; left out where it is missing) at its default threshold, 10 of 64 bits.
Also timed: all pairs of 100 000 vectors of 512 numbers. ``--record`` writes ``docs/data/duplicates.json`` and needs
imagededup.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs" / "data" / "duplicates.json"
N_COPIED, SEED = 240, 0
HASHES = ("PHash", "DHash", "WHash", "AHash")
THRESHOLDS = (0.9, 0.93, 0.95, 0.97)
N_VECTORS, N_FEATURES, N_PLANTED = 100_000, 512, 1000

Pairs = set[tuple[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="store the figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "photographs"
        truth = make_copies(folder)
        result: dict[str, Any] = {"n_files": len(list(folder.iterdir())), "n_pairs": len(truth), "found": {}}
        for name, found in (imagededup(folder) | ours(folder, Path(place) / "model", truth)).items():
            right = len(found & truth)
            figures = {"precision": right / max(len(found), 1), "recall": right / len(truth)}
            result["found"][name] = {key: round(value, 4) for key, value in figures.items()}
            print(name, json.dumps(result["found"][name]), flush=True)
    result["all_pairs"] = all_pairs()
    print("all pairs", json.dumps(result["all_pairs"]))
    if options.record and "imagededup PHash" in result["found"]:
        RECORD.write_text(json.dumps(result, indent=1) + "\n")
        print(render())


def make_copies(folder: Path) -> Pairs:
    """Fill a folder with photographs and copies; the pairs of names that show the same photograph."""
    from PIL import Image, ImageEnhance

    from shorthash.images.files import image_files

    data = os.environ.get("SHORTHASH_DATA")
    if not data:
        raise SystemExit("set SHORTHASH_DATA to the folder that holds images24")
    files = image_files([Path(data) / "images24"])
    folder.mkdir()
    truth: Pairs = set()
    copied = set(np.random.default_rng(SEED).choice(len(files), N_COPIED, replace=False).tolist())
    for number, file in enumerate(files):
        (folder / f"{number:04d}.jpg").write_bytes(file.read_bytes())
        if number not in copied:
            continue
        with Image.open(file) as opened:
            image = opened.convert("RGB")
        width, height = image.size
        box = (round(0.025 * width), round(0.025 * height), round(0.975 * width), round(0.975 * height))
        copies = {
            "half": (image.resize((width // 2, height // 2), Image.Resampling.LANCZOS), 90),
            "again": (image, 30),
            "cropped": (image.crop(box), 90),
            "brighter": (ImageEnhance.Brightness(image).enhance(1.25), 90),
        }
        for kind, (copy, quality) in copies.items():
            copy.save(folder / f"{number:04d}-{kind}.jpg", quality=quality)
        names = [f"{number:04d}.jpg", *(f"{number:04d}-{kind}.jpg" for kind in copies)]
        truth |= set(itertools.combinations(sorted(names), 2))
    return truth


def ours(folder: Path, model: Path, truth: Pairs) -> dict[str, Pairs]:
    """Pairs by threshold; also what codes alone would do."""
    from shorthash.codes import hamming_distances
    from shorthash.images import Collection, find_duplicates, fit_images

    fit_images(folder, model, labels_from="none")
    found: dict[str, Pairs] = {}
    with Collection(model, readonly=True) as collection:
        for threshold in THRESHOLDS:
            pairs = find_duplicates(collection, threshold=threshold).pairs
            found[f"shorthash, threshold {threshold:g}"] = {
                (min(p.name, p.other_name), max(p.name, p.other_name)) for p in pairs
            }
        code = {item.name: item.code for item in collection.items(collection.ids)}
        left, right = (np.array([code[pair[side]] for pair in sorted(truth)], dtype=np.uint8) for side in (0, 1))
        apart = np.array([hamming_distances(left[i : i + 1], right[i : i + 1], 8)[0, 0] for i in range(len(left))])
        for radius in (0, 1, 2):
            print(f"codes that differ in at most {radius} bits: {np.mean(apart <= radius):.3f} of the pairs")
    return found


def imagededup(folder: Path) -> dict[str, Pairs]:
    """Pairs of each hash of imagededup, at its defaults."""
    try:
        import imagededup.methods as methods
    except ImportError as error:
        print(f"imagededup is left out, and nothing can be recorded: {error}")
        return {}
    logging.disable(logging.INFO)
    found: dict[str, Pairs] = {}
    for name in HASHES:
        hasher = getattr(methods, name)(verbose=False)
        near = hasher.find_duplicates(image_dir=str(folder), num_enc_workers=0, num_dist_workers=0)
        found[f"imagededup {name}"] = {(min(a, b), max(a, b)) for a, others in near.items() for b in others}
    return found


def all_pairs() -> dict[str, float]:
    """Time for all pairs of many vectors: clusters, whose members have cosines about 0.7, and planted copies."""
    from shorthash.images import near_pairs

    rng = np.random.default_rng(SEED)
    spectrum = (1 / np.sqrt(np.arange(1, N_FEATURES + 1))).astype(np.float32)
    centres = rng.normal(size=(200, N_FEATURES)).astype(np.float32)
    X = (centres[rng.integers(0, 200, N_VECTORS)] + 0.65 * rng.normal(size=(N_VECTORS, N_FEATURES))) * spectrum
    X = X.astype(np.float32)
    rows = rng.permutation(N_VECTORS)[: 2 * N_PLANTED].reshape(2, -1)
    X[rows[1]] = X[rows[0]] + 0.02 * np.linalg.norm(X[rows[0]], axis=1, keepdims=True) * rng.normal(
        size=(N_PLANTED, N_FEATURES)
    ).astype(np.float32) / np.sqrt(N_FEATURES)
    start = time.process_time()
    pairs, _ = near_pairs(X, 0.9)
    seconds = time.process_time() - start
    found = len({*map(tuple, pairs.tolist())} & {*map(tuple, np.sort(rows.T, axis=1).tolist())})
    return {"n": N_VECTORS, "seconds": round(seconds, 1), "n_pairs": len(pairs), "planted_found": found / N_PLANTED}


def render() -> str:
    """The table for docs/guide/images.md."""
    record = json.loads(RECORD.read_text())
    lines = ["| | precision | recall |", "| --- | --- | --- |"]
    for name, found in record["found"].items():
        lines.append(f"| {name} | {found['precision']:.3f} | {found['recall']:.3f} |")
    timed = record["all_pairs"]
    lines.append(
        f"\n{record['n_files']} files: photographs, and copies of some at half the size, compressed again, cropped by "
        f"5 %, and brighter; {record['n_pairs']} pairs to find. Hashes of imagededup at their default threshold; GIST "
        "features and 8 bits without labels for shorthash, whose default threshold is 0.95 "
        "(`benchmarks/duplicates.py`). "
        f"All pairs of {timed['n']} vectors of {N_FEATURES} numbers take {timed['seconds']:.0f} s of CPU time."
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
