"""The documentation is true: examples run, links lead somewhere, commands and tests named in it exist."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_run(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()


def test_examples_are_short():
    assert max(len(path.read_text().splitlines()) for path in EXAMPLES) < 80


def test_the_quick_start_of_the_readme_is_the_tested_one():
    code = (ROOT / "examples" / "quick_start.py").read_text()
    assert code.strip() in (ROOT / "README.md").read_text()
    assert len(code.strip().splitlines()) <= 15


def test_links_lead_somewhere():
    broken = []
    for page in PAGES:
        text = page.read_text()
        targets = re.findall(r"\]\(([^)#\s]+)", text) + re.findall(r'src="([^"]+)"', text)
        local = [target for target in targets if "://" not in target]
        broken += [f"{page.relative_to(ROOT)}: {t}" for t in local if not (page.parent / t).exists()]
    assert not broken


def test_tests_named_in_the_documentation_exist():
    defined = set()
    for path in ROOT.glob("tests/**/*.py"):
        defined |= {path.stem, *re.findall(r"^ *def (test_\w+)", path.read_text(), re.M)}
    named = {
        (str(page.relative_to(ROOT)), name)
        for page in PAGES
        for name in re.findall(r"`(?:[\w/]+\.py::)?(test_\w+)`", page.read_text())
    }
    assert not sorted((page, name) for page, name in named if name not in defined)


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    missing = [p for p in ROOT.glob("docs/**/*.md") if str(p.relative_to(ROOT / "docs")) not in navigation]
    assert not missing


def test_every_make_target_is_explained():
    text = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z]+):", text, re.M)
    explained = re.findall(r"^([a-z]+):.*##", text, re.M)
    assert {"install", "demo", "test", "lint", "docs", "bench"} <= set(targets)
    assert targets == explained


def test_the_project_speaks_only_of_itself():
    """No machine paths in anything that is tracked."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.split():
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".yml", ".json", ".txt", ".html"} and path.exists():
            found = re.search(r"/(work|root|home)/\w", path.read_text())
            assert not found, f"{name} holds a machine path: {found.group()}"


def test_doctests_are_collected():
    """The suite runs the examples in docstrings; this one fails if the setting is lost."""
    settings = (ROOT / "pyproject.toml").read_text()
    assert "--doctest-modules" in settings
    assert '"src"' in settings
    assert sys.version_info >= (3, 11)
