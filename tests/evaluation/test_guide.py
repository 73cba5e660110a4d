"""The guide's examples run and print what it shows."""

import doctest
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "evaluation.md"


def test_the_examples_of_the_guide():
    failed, attempted = doctest.testfile(str(GUIDE), module_relative=False)
    assert attempted > 10
    assert failed == 0
