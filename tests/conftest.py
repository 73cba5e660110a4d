"""Settings and data that hold for every test. Arrays are read-only, so that no test can leak into another."""

import gc
import os
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

# processes that tests start use this checkout's package, installed or not
os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1] / "src")

settings.register_profile("house", deadline=None)  # the first call of a compiled function takes a second
settings.load_profile("house")


# groups of tests that may be skipped: words of the reason, what the tests need, the command that runs them, too
GROUPS = [
    ("SHORTHASH_DATA", "the real data files", "SHORTHASH_DATA=their/folder make test"),
    ("GPU", "a GPU", "run `make cnn test` on a machine with one"),
    ("torch|onnx", "CNN packages", "make cnn test"),
    ("Chromium", "a browser", "apt-get install chromium, then make test"),
    ("pgvector|Postgres", "a PostgreSQL server (for some, with pgvector)", "SHORTHASH_POSTGRES=its-url make test"),
    ("not installed|needs? pyarrow|could not import", "optional packages", "make install test"),
]


def pytest_terminal_summary(terminalreporter):
    """Say which groups of tests were skipped, and how to run each."""
    groups = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        known = (group[1:] for group in GROUPS if re.search(group[0], reason))
        groups[next(known, (reason.removeprefix("Skipped: "), ""))] += 1
    for (need, command), count in groups.most_common():
        line = f"skipped {count} for lack of {need}; to run them: {command}" if command else f"skipped {count}: {need}"
        terminalreporter.write_line(line)


def pytest_xdist_auto_num_workers(config):
    """One more than there are cores: many tests wait for processes that they start."""
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else None


def pytest_configure(config):
    # what is imported and collected stays to the end: look at it seldom (frozen, it would hide its references, which
    # Hypothesis looks for)
    gc.set_threshold(100_000, 50, 100)
    if "PYTEST_XDIST_WORKER" in os.environ:
        from processes import compile_once

        compile_once()


def pytest_generate_tests(metafunc):
    """Tests that take ``seed`` run with 0; SHORTHASH_SEEDS=20 runs them with 0 to 19."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(int(os.environ.get("SHORTHASH_SEEDS", "1"))))


def frozen(*arrays):
    for array in arrays:
        array.flags.writeable = False
    return arrays


@pytest.fixture
def forked_workers(monkeypatch):
    """Worker processes of experiments and images are forked from one that has imported the package."""
    import multiprocessing

    from processes import CONTEXT

    usual = multiprocessing.get_context
    monkeypatch.setattr(multiprocessing, "get_context", lambda kind=None: CONTEXT if kind == "spawn" else usual(kind))


@pytest.fixture(scope="session")
def digits():
    """scikit-learn's digits: (1797, 64) float64 and (1797,) labels."""
    from sklearn.datasets import load_digits

    return frozen(*load_digits(return_X_y=True))


@pytest.fixture(scope="session")
def blobs():
    """Five overlapping clusters: (300, 12) and (300,) labels."""
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=300)
    X = rng.normal(size=(5, 12))[y] + 0.8 * rng.normal(size=(300, 12))
    return frozen(X, y)


@pytest.fixture(scope="session")
def tagged():
    """Multi-label rows: (300, 12) and a (300, 4) indicator matrix without empty rows."""
    rng = np.random.default_rng(1)
    Y = (rng.random((300, 4)) < 0.35).astype(np.int64)
    Y[Y.sum(axis=1) == 0, 0] = 1
    X = Y @ rng.normal(size=(4, 12)) + 0.5 * rng.normal(size=(300, 12))
    return frozen(X, Y)


@pytest.fixture(scope="session")
def data_folder():
    """The folder of real data files; tests that use it are marked ``data``."""
    folder = os.environ.get("SHORTHASH_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("real data files are not here; set SHORTHASH_DATA to their folder")
    return Path(folder)


@pytest.fixture(scope="session")
def real_features(data_folder):
    """Load features and labels of a data file by its stem, rows with unit norm."""

    def read(stem):
        with np.load(data_folder / f"{stem}.npz") as file:
            X = file["X"].astype(np.float32) * file["scale"]
            y = file["y"] if "y" in file else file["Y"]
        return frozen(X / np.linalg.norm(X, axis=1, keepdims=True), y)

    return read
