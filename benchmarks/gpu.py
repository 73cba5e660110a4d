"""Fit and encode on a GPU: ``PYTHONPATH=src python benchmarks/gpu.py --output gpu.json``.

Rows are made on the device, block by block, twice: once to draw anchors from the whole, once to add up the sums. Needs
torch (or CuPy: ``--package cupy``), NumPy, SciPy, scikit-learn and numba. Four things are measured:

1. ``fit`` on all rows, in seconds, the making of the rows included, and what the making alone takes;
2. ``transform``, in rows per second, on blocks that lie in the memory of the device;
3. what differs from the same fit on the CPU, on some of the rows: projections, and bits of codes;
4. the same of EAPH (``auto``), on rows that lie in the memory of the device: fit, encode, mAP of other rows, and rows
   whose code differs from that of the model fitted on the CPU.

``--record FILE`` stores a result that another machine has written as docs/data/gpu.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from shorthash import make_hasher
from shorthash._arrays import to_numpy
from shorthash.data.streams import BatchStream

RECORD = Path(__file__).resolve().parents[1] / "docs" / "data" / "gpu.json"
SPREAD = 1.5  # noise of a feature beside the spread of the class centres
NEARLY_ZERO = 1e-6  # a bit may differ where its score is below this share of the largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--block", type=int, default=4_000_000, help="rows made at once")
    parser.add_argument("--columns", type=int, default=256)
    parser.add_argument("--anchors", type=int, default=1000)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--bits", type=int, default=12)
    parser.add_argument("--check-rows", type=int, default=100_000, help="rows of the comparison with the CPU")
    parser.add_argument("--eaph-rows", type=int, default=10_000_000)
    parser.add_argument("--eaph-classes", type=int, default=1000)
    parser.add_argument("--package", choices=["torch", "cupy"], default="torch")
    parser.add_argument("--device", default="cuda", help="device of torch")
    parser.add_argument("--output", type=Path, help="file to write the figures to")
    parser.add_argument("--record", type=Path, metavar="FILE", help="store the figures of FILE in docs/data/gpu.json")
    options = parser.parse_args()
    if options.record:
        RECORD.write_text(json.dumps(json.loads(options.record.read_text()), indent=1) + "\n")
        return
    report = measure(options)
    print(json.dumps(report, indent=1))
    if options.output:
        options.output.write_text(json.dumps(report, indent=1) + "\n")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All figures."""
    maker = maker_of(options)
    warm_up(maker, options)
    return {
        "rows": options.rows,
        "columns": options.columns,
        "anchors": options.anchors,
        "classes": options.classes,
        "bits": options.bits,
        "package": options.package,
        "machine": maker.machine(),
        "fit": timed_fit(maker, options),
        "encode": timed_encoding(maker, options),
        "exactness": compared_with_cpu(maker, options),
        "eaph": eaph(options),
        "versions": {"python": platform.python_version(), "numpy": np.__version__, **maker.versions()},
    }


def maker_of(options: argparse.Namespace) -> Any:
    """What makes rows."""
    return {"torch": TorchRows, "cupy": CupyRows}[options.package](options)


class TorchRows:
    """Rows around class centres, scaled to length 1, made by torch on a device."""

    def __init__(self, options: argparse.Namespace) -> None:
        import torch

        self.torch = torch
        self.options = options
        self.device = torch.device(options.device)
        self.centres = self._normal(0, (options.classes, options.columns))

    def block(self, number: int, n: int) -> tuple[Any, Any]:
        """The block of a number: always the same rows and labels."""
        y = self.torch.randint(
            self.options.classes, (n,), generator=self._generator(2 * number + 1), device=self.device
        )
        X = self._normal(2 * number + 2, (n, self.options.columns))
        X.mul_(SPREAD).add_(self.centres[y])
        X.div_(self.torch.linalg.vector_norm(X, dim=1, keepdim=True))
        return X, y

    def wait(self) -> None:
        """Until the device has done all it was told."""
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def machine(self) -> str:
        """What it runs on."""
        return self.torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else platform.machine()

    def versions(self) -> dict[str, str]:
        """Of the package."""
        return {"torch": self.torch.__version__}

    def _generator(self, seed: int) -> Any:
        return self.torch.Generator(device=self.device).manual_seed(seed)

    def _normal(self, seed: int, shape: tuple[int, int]) -> Any:
        return self.torch.randn(shape, generator=self._generator(seed), device=self.device)


class CupyRows:
    """The same, made by CuPy."""

    def __init__(self, options: argparse.Namespace) -> None:
        import cupy

        self.cupy = cupy
        self.options = options
        self.centres = self._normal(0, (options.classes, options.columns))

    def block(self, number: int, n: int) -> tuple[Any, Any]:
        """The block of a number: always the same rows and labels."""
        y = self.cupy.random.default_rng(2 * number + 1).integers(self.options.classes, size=n)
        X = self._normal(2 * number + 2, (n, self.options.columns))
        X *= SPREAD
        X += self.centres[y]
        X /= self.cupy.linalg.norm(X, axis=1, keepdims=True)
        return X, y

    def wait(self) -> None:
        """Until the device has done all it was told."""
        self.cupy.cuda.Device().synchronize()

    def machine(self) -> str:
        """What it runs on."""
        return str(self.cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())

    def versions(self) -> dict[str, str]:
        """Of the package."""
        return {"cupy": self.cupy.__version__}

    def _normal(self, seed: int, shape: tuple[int, int]) -> Any:
        return self.cupy.random.default_rng(seed).standard_normal(shape, dtype=self.cupy.float32)


def blocks_of(maker: Any, rows: int, size: int) -> Callable[[], Iterator[tuple[Any, Any]]]:
    """A function that starts the blocks anew."""
    return lambda: (maker.block(i, min(size, rows - low)) for i, low in enumerate(range(0, rows, size)))


def hasher_of(options: argparse.Namespace) -> Any:
    return make_hasher("rslh", options.bits, random_state=0, kernel={"n_anchors": options.anchors})


def warm_up(maker: Any, options: argparse.Namespace) -> None:
    """Load libraries and reserve memory, on a block of full size."""
    n = min(options.block, options.rows)
    X, y = maker.block(0, n)
    hasher_of(options).fit(BatchStream([(X, y)], n_rows=n)).transform(X)
    maker.wait()


def timed_fit(maker: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of a fit, and of making the rows twice."""
    make = blocks_of(maker, options.rows, options.block)
    start = time.perf_counter()
    for _ in range(2):
        for _block in make():
            pass
    maker.wait()
    making = time.perf_counter() - start
    start = time.perf_counter()
    hasher = hasher_of(options).fit(BatchStream(make, n_rows=options.rows))
    seconds = time.perf_counter() - start
    assert hasher[-1].n_samples_seen_ == options.rows
    return {
        "seconds": round(seconds, 3),
        "making_seconds": round(making, 3),
        "rows_per_second": round(options.rows / seconds),
        "goal_seconds": 10,
    }


def timed_encoding(maker: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Rows per second, over blocks that are there already, as many times as it takes to make up all rows."""
    size = min(options.block, options.rows)
    kept = [maker.block(i, size) for i in range(min(4, -(-options.rows // size)))]
    hasher = hasher_of(options).fit(BatchStream(kept, n_rows=size * len(kept)))
    rounds = max(1, options.rows // (size * len(kept)))
    maker.wait()
    start = time.perf_counter()
    for _ in range(rounds):
        for X, _ in kept:
            codes = hasher.transform(X)
    maker.wait()
    seconds = time.perf_counter() - start
    assert tuple(codes.shape) == (size, options.bits)
    n = rounds * size * len(kept)
    return {"rows": n, "seconds": round(seconds, 3), "rows_per_second": round(n / seconds), "goal": 100_000_000}


def compared_with_cpu(maker: Any, options: argparse.Namespace) -> dict[str, Any]:
    """What differs between the device and the CPU."""
    X, y = maker.block(0, options.check_rows)
    here, there = hasher_of(options).fit(to_numpy(X), to_numpy(y)), hasher_of(options).fit(X, y)
    P, Q = here[-1].projection_, there[-1].projection_
    assert np.array_equal(here[0].anchors_, there[0].anchors_)
    scores = here.project(to_numpy(X))
    differ = (scores >= 0) != (to_numpy(there.transform(X)) > 0)
    small = np.abs(scores) < NEARLY_ZERO * np.abs(scores).max()
    return {
        "rows": options.check_rows,
        "projection_relative": float(np.abs(P - Q).max() / np.abs(P).max()),
        "codewords_equal": bool(np.array_equal(here[-1].codewords_, there[-1].codewords_)),
        "bits": int(differ.size),
        "bits_that_differ": int(differ.sum()),
        "of_them_nearly_zero": int((differ & small).sum()),
        "largest_score_that_differs": float(np.abs(scores[differ]).max(initial=0.0) / np.abs(scores).max()),
    }


def eaph(options: argparse.Namespace) -> dict[str, Any]:
    """EAPH with many classes: fit and encode, and the same model as on the CPU."""
    maker = maker_of(argparse.Namespace(**{**vars(options), "classes": options.eaph_classes}))
    X, y = maker.block(0, min(options.check_rows, options.eaph_rows))
    here, there = (make_hasher("auto", options.bits, random_state=0).fit(f(X), f(y)) for f in (to_numpy, lambda a: a))
    codes = there.transform(X)
    differ = int((to_numpy(codes) != here.transform(to_numpy(X))).any(axis=1).sum())
    same = int((to_numpy(codes) != there.transform(to_numpy(X))).any(axis=1).sum())
    X, y = maker.block(1, options.eaph_rows)
    maker.wait()
    start = time.perf_counter()
    hasher = make_hasher("auto", options.bits, random_state=0).fit(X, y)
    seconds = time.perf_counter() - start
    hasher.transform(X)
    maker.wait()
    start = time.perf_counter()
    hasher.transform(X)
    maker.wait()
    encoding = time.perf_counter() - start
    others, labels = maker.block(2, 20_000)
    return {
        "rows": options.eaph_rows,
        "classes": options.eaph_classes,
        "seconds": round(seconds, 2),
        "goal_seconds": 60,
        "encoded_rows_per_second": round(options.eaph_rows / encoding),
        "map_of_20_000_other_rows": round(hasher.score(to_numpy(others), to_numpy(labels)), 4),
        "check_rows": options.check_rows,
        "rows_that_differ_when_fitted_on_the_cpu": differ,
        "rows_that_differ_when_encoded_on_the_cpu": same,
    }


if __name__ == "__main__":
    main()
