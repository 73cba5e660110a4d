"""The documentation is true: examples run, links lead somewhere, commands and tests named in it exist."""

import ast
import builtins
import doctest
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_the_quick_start_runs_and_is_in_the_readme(capsys):
    runpy.run_path(str(ROOT / "examples" / "quick_start.py"), run_name="__main__")
    assert capsys.readouterr().out.strip()
    block = re.search(r"<!-- begin: quick_start -->\n```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    code = block.group(1).strip()
    assert len([line for line in code.splitlines() if line]) == 7
    assert code in (ROOT / "examples" / "quick_start.py").read_text()


def test_examples_have_a_title_and_are_short():
    """The gallery shows the title; make docs runs every example."""
    assert len(EXAMPLES) >= 12
    assert not [p.name for p in EXAMPLES if not re.match(r'"""\n(.+)\n(=+)\n', p.read_text())]
    assert max(len(path.read_text().splitlines()) for path in EXAMPLES) < 110


def test_get_started_is_true(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(ROOT / "docs" / "start.md"), module_relative=False)
    assert tried > 10
    assert not failed


def python_blocks(page):
    """The Python blocks of a page, without prompts and output."""
    for block in re.findall(r"^```(?:python|\{code-block\} python)\n(.*?)^```", page.read_text(), re.S | re.M):
        examples = doctest.DocTestParser().get_examples(block)
        yield "".join(example.source for example in examples) or block


def bound_names(tree):
    """Names that code assigns, imports or defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg


def undefined_names(blocks):
    """Names that a block uses and neither it nor an earlier one defines."""
    known = {*dir(builtins), "__file__"}
    for block in blocks:
        tree = ast.parse(block)
        known |= set(bound_names(tree))
        yield from (n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id not in known)


def test_python_on_a_page_uses_no_name_that_the_page_does_not_define():
    assert list(undefined_names(["import numpy as np\nX = np.ones(3)", "X + y", "y = 1"])) == ["y"]
    missing = {str(page.relative_to(ROOT)): sorted(set(undefined_names(python_blocks(page)))) for page in PAGES}
    assert sum(len(list(python_blocks(page))) for page in PAGES) > 50
    assert {page: names for page, names in missing.items() if names} == {}


WRITTEN_BY_SPHINX = re.compile(r"(^|/)(api|methods|gallery)/")  # make docs checks links to them


def test_links_lead_somewhere():
    broken = []
    for page in PAGES:
        text = page.read_text()
        targets = re.findall(r"\]\(([^)#\s]+)", text) + re.findall(r'src="([^"]+)"', text)
        local = [t for t in targets if "://" not in t and not WRITTEN_BY_SPHINX.search(t)]
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
