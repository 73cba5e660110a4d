"""What is public is complete, sorted and importable."""

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import shorthash

MODULES = sorted(
    m.name for m in pkgutil.walk_packages(shorthash.__path__, "shorthash.") if not m.name.endswith("__main__")
)


def test_top_level_names_are_importable():
    for name in shorthash.__all__:
        assert getattr(shorthash, name).__name__ == name
    assert set(shorthash.__all__) <= set(dir(shorthash))


def test_the_stub_lists_what_it_imports():
    tree = ast.parse(Path(shorthash.__file__).with_suffix(".pyi").read_text())
    imported = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported == set(shorthash.__all__)


def test_the_promised_names():
    from shorthash import RSLH, AnchorRBF, BucketIndex, ScanIndex, evaluate, make_hasher

    assert all(callable(x) for x in (RSLH, AnchorRBF, BucketIndex, ScanIndex, evaluate, make_hasher))


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = shorthash.nonsense


def test_all_is_true():
    modules = [importlib.import_module(name) for name in MODULES]
    wrong = [f"{m.__name__}.{name}" for m in modules for name in getattr(m, "__all__", []) if not hasattr(m, name)]
    assert not wrong, f"named in __all__ but not defined: {wrong}"


def test_the_version_stands_in_three_places():
    root = Path(shorthash.__file__).parents[2]
    version = shorthash.__version__
    assert re.search(rf'^version = "{re.escape(version)}"$', (root / "pyproject.toml").read_text(), re.M)
    assert f"## {version}" in (root / "CHANGELOG.md").read_text()
    assert re.search(rf"^version: {re.escape(version)}$", (root / "CITATION.cff").read_text(), re.M)
