"""Every block of docs/guide/coming-from.md runs, where the other library is installed."""

import doctest
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.slow  # fits several models

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "coming-from.md"
OTHERS = ("faiss", "imagededup", "lancedb", "sqlite_utils")


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A working directory with a folder of photographs, one of them also at half the size."""
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for name in ("alps", "beach", "cat", "dog", "ferry", "garden"):
        colours = rng.integers(0, 255, size=(5, 7, 3)).astype(np.uint8)
        image = Image.fromarray(colours).resize((140, 100), Image.Resampling.BICUBIC)
        image.save(tmp_path / "photos" / f"{name}.png")
        if name == "beach":
            image.resize((70, 50)).save(tmp_path / "photos" / "beach_small.png")
    monkeypatch.chdir(tmp_path)


def test_both_sides_of_the_page_run(photos):
    missing = [name for name in OTHERS if importlib.util.find_spec(name) is None]
    names: dict[str, object] = {}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)
    ran = 0
    for number, block in enumerate(blocks):
        if any(re.search(rf"(import|from) {name}\b", block) for name in missing):
            continue
        example = doctest.DocTestParser().get_doctest(block, names, f"block {number}", str(PAGE), 0)
        assert runner.run(example, clear_globs=False).failed == 0, block
        names.update(example.globs)
        ran += 1
    assert ran >= len(blocks) - len(missing)
