"""The examples of docs/guide/semantic-search.md run."""

import doctest
from pathlib import Path


def test_the_guide_tells_the_truth():
    guide = Path(__file__).parents[2] / "docs" / "guide" / "semantic-search.md"
    results = doctest.testfile(str(guide), module_relative=False)
    assert results.attempted > 8
    assert results.failed == 0
