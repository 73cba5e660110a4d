"""Every measured number in README and docs comes from a stored record.

What stands in a generated block is checked by ``docs/generate.py --check``. Outside of those blocks a decimal, or a
number with a unit of time, size or share, must be computed again here (``TRACED``) or be no measurement at all
(``STATED``, with the reason). An entry that no page needs any more fails, too.
"""

import importlib.util
import inspect
import math
import re
from pathlib import Path

import numpy as np
import pytest

from shorthash import RSLH, BucketIndex, Searcher
from shorthash.codes import ball_size, packed_dtype
from shorthash.images import decoding
from shorthash.lab.running import read_records
from shorthash.learners.eaph.estimator import EAPH
from shorthash.learners.posteriors.memory import Memory, Sketching
from shorthash.methods import RECIPES
from shorthash.retrieval import LEAST_SHARE
from shorthash.web import limits as web_limits

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
CODE = {"python", "toml", "sql", "bash", "sh", "json", "make"}  # fences that are input, not output
UNIT = r"(?:x|times|%|per cent|points?|[mµun]?s|seconds?|minutes?|hours?|bytes|B|[kKMGT]i?B)(?![\w-])"
NUMBER = re.compile(rf"(?<![\w.:/-])(?:\d{{1,3}}(?:[ ,]\d{{3}})+|\d+)?(?:\.\d+)?(?<=\d)(?:e-?\d+)?(?:\s?{UNIT})?")
AUTHORS = RECIPES["rslh"].presets["authors-code"]["settings"]


def short(value):
    """A weight as prose has it: 1e-5, 0.1."""
    mantissa, _, exponent = f"{value:e}".partition("e")
    return f"{value:g}" if abs(int(exponent)) < 2 else f"{float(mantissa):g}e{int(exponent)}"


def share(n_bits):
    """Codes within radius 2, in per cent of all."""
    percent = 100 * ball_size(n_bits, 2) / 2**n_bits
    return f"{percent:.0f} %" if percent > 10 else f"{percent:.1f} %"


def item_bytes(moment):
    """Bytes per item of an index of a million codes of 12 bits."""
    n = 1_000_000
    codes = np.random.default_rng(0).integers(4096, size=n).astype(np.uint16)
    index = BucketIndex(n_bits=12).add(codes)
    if moment != "added":
        index.search(codes[:1], 1)
    if moment == "removed":
        index.remove([5])
    text = f"{index.nbytes / n:.2f}"
    return text if moment != "searched" else f"{float(text):.0f} bytes"


def remembered_bytes():
    """Bytes that a remembered row adds to a model."""
    X = np.random.default_rng(0).normal(size=(100, 8)).astype(np.float32)
    sketching = Sketching.of_rows(X)
    known = Memory.of_rows(sketching, sketching.sketches(X), np.zeros(100, dtype=np.intp))
    return f"{(known.sketches.nbytes + known.sets.nbytes + known.counts.nbytes) // 100} bytes"


def longest_id():
    from shorthash.store.items import LONGEST

    return f"{LONGEST} bytes"


def posterior_bytes():
    return inspect.signature(Searcher).parameters["posterior_bytes"].default


def kills():
    return re.search(r"SHORTHASH_FAULTS=(\d+)", (ROOT / "Makefile").read_text()).group(1) + " times"


def oldest_python():
    return re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text()).group(1)


def largest_worker():
    """What the largest stored run held, in whole GiB, rounded up."""
    records = read_records(ROOT / "experiments" / "results").values()
    peaks = [record.get("peak_memory_mib", 0) for record in records if record["spec"]["task"] != "cost"]
    return f"{math.ceil(max(peaks) / 1024)} GiB"


RSLH_PAGE = "docs/paper/rslh.md"
TRACED = {  # (page, number) -> how it comes about
    ("README.md", "3.11"): oldest_python,
    ("docs/start.md", "3.11"): oldest_python,
    ("docs/guide/bench.md", "4 GiB"): largest_worker,
    ("docs/guide/eaph.md", "64 bytes"): remembered_bytes,
    ("docs/guide/search.md", "69 %"): lambda: share(4),
    ("docs/guide/search.md", "34 %"): lambda: share(6),
    ("docs/guide/search.md", "14 %"): lambda: share(8),
    ("docs/guide/search.md", "1.9 %"): lambda: share(12),
    ("docs/guide/search.md", "4 bytes"): lambda: item_bytes("searched"),
    ("docs/guide/search.md", "2.52"): lambda: item_bytes("added"),
    ("docs/guide/search.md", "7.02"): lambda: item_bytes("removed"),
    ("docs/guide/serve.md", "10 seconds"): lambda: f"{web_limits.HEADER_SECONDS:g} seconds",
    ("docs/guide/serve.md", "20 seconds"): lambda: f"{decoding.SECONDS:g} seconds",
    ("docs/guide/serve.md", "32 KiB"): lambda: f"{web_limits.HEADER_BYTES >> 10} KiB",
    ("docs/guide/semantic-search.md", "0.02"): lambda: f"{LEAST_SHARE:g}",
    ("docs/guide/semantic-search.md", "2 bytes"): lambda: f"{packed_dtype(12).itemsize} bytes",
    ("docs/guide/semantic-search.md", "8 bytes"): lambda: f"{posterior_bytes()} bytes",
    ("docs/guide/semantic-search.md", "512 bytes"): lambda: f"{256 * np.dtype('float16').itemsize} bytes",
    ("docs/guide/store.md", "500 bytes"): longest_id,
    ("docs/guide/store.md", "50 times"): kills,
    ("docs/paper/eaph.md", "16 times"): lambda: f"{EAPH().n_iter} times",
    (RSLH_PAGE, "0.1"): lambda: short(RSLH().lam / RSLH().mu),
    (RSLH_PAGE, "1e-2"): lambda: short(RSLH().beta),
    (RSLH_PAGE, "1e-4"): lambda: short(AUTHORS["gamma"]),
    (RSLH_PAGE, "1e-5"): lambda: short(RSLH().gamma),
    (RSLH_PAGE, "1e-6"): lambda: short(RSLH().lam),
}
STATED = {  # (page, number) -> why it is no measurement
    ("docs/contribute/releases.md", "1.0"): "a version",
    ("docs/guide/serve.md", "10s"): "a setting of nginx",
    ("docs/numerics.md", "1e-5"): "a tolerance, SINGLE_ERROR in _rounding.py",
    ("docs/numerics.md", "1e-8"): "the tolerance of tests/scale",
    ("docs/numerics.md", "1e-9"): "an order of magnitude",
    ("docs/numerics.md", "1e-10"): "a tolerance, DOUBLE_ERROR in _rounding.py, and an order of magnitude",
    ("docs/numerics.md", "1e-12"): "a tolerance of the tests of metrics",
    ("docs/numerics.md", "1e-13"): "an order of magnitude, from tests/test_rounding.py",
    ("docs/numerics.md", "1e-15"): "rounding of float64",
    (RSLH_PAGE, "2.2"): "a section of the paper",
    (RSLH_PAGE, "1e-16"): "rounding of float64",
    (RSLH_PAGE, "1e-9"): "an order of magnitude; test_a_failing_guard_falls_back_and_says_so holds the rule",
    (RSLH_PAGE, "1e-8"): "the tolerance of the tests named beside it",
    (RSLH_PAGE, "0.6"): "an order of magnitude, set up in test_the_ridge_solution_survives_uncentred_kernel_features",
    (RSLH_PAGE, "0.5"): "the range of random numbers in the authors' code",
}


def prose(text):
    """A page without generated blocks, code, formulas, links and identifiers."""
    text = re.sub(r"<!-- begin: (\w+) -->\n.*?<!-- end: \1 -->", "", text, flags=re.S)
    text = re.sub(r"```(\w*)\n(.*?)```", lambda m: "" if m.group(1) in CODE else m.group(2), text, flags=re.S)
    return re.sub(r"`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]*\$|\]\([^)]*\)|arXiv:\S+", " ", text, flags=re.S)


def measured(text):
    """Numbers that look measured: with decimals, with a power of ten, or with a unit."""
    found = (" ".join(match.group().split()) for match in NUMBER.finditer(prose(text)))
    return {number for number in found if re.search(r"\.\d|[a-zµ%]", number)}


FOUND = {(str(page.relative_to(ROOT)), number) for page in PAGES for number in measured(page.read_text("utf-8"))}


def test_every_number_is_generated_computed_or_explained():
    loose = [f"{page}: {number}" for page, number in sorted(FOUND - {*TRACED, *STATED})]
    assert not loose, (
        f"numbers without a source: {', '.join(loose)}; generate them (docs/generate.py), compute them in TRACED, "
        "or say in STATED why they are no measurement"
    )


def test_computed_numbers_are_true():
    wrong = {place: found for place, source in TRACED.items() if (found := source()) != place[1]}
    assert not wrong


def test_every_block_has_a_generator():
    """Nobody escapes by calling a paragraph generated."""
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    known = {(place, name) for place, name, _ in generate.BLOCKS}
    pages = {str(page.relative_to(ROOT)): page.read_text("utf-8") for page in PAGES}
    named = {(page, name) for page, text in pages.items() for name in re.findall(r"<!-- begin: (\w+) -->", text)}
    assert named <= known


def test_no_explanation_outlives_its_number():
    assert not {*TRACED, *STATED} - FOUND


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("mAP rises to 0.558, by .02.", {"0.558", ".02"}),
        ("It is 12x faster, 3.2 s instead of 40 seconds, 1 500 MB, 20 % less.", {"12x", "3.2 s", "40 seconds"}),
        ("With 8 bits and 1 000 queries, eq. 13, seed 0, docs/v1.2.md and `0.5`.", set()),
        ("<!-- begin: a -->\n0.123\n<!-- end: a -->\n```python\nx = 0.5\n```\n", set()),
        ("```\nmAP 0.99\n```", {"0.99"}),
        ("A row adds 48\nbytes.", {"48 bytes"}),
    ],
)
def test_what_counts_as_measured(text, numbers):
    assert numbers <= measured(text)
    assert bool(numbers) == bool(measured(text))
