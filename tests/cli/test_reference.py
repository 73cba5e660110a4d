"""docs/cli.md says what the commands say."""

import importlib.util
import re
from importlib.metadata import version
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def reference():
    spec = importlib.util.spec_from_file_location("cli_reference", DOCS / "cli_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def text(reference):
    return reference.render()


def test_the_page_is_up_to_date(text):
    locked = re.search(r"^typer==(\S+)", (DOCS.parent / "requirements.lock").read_text(), re.M).group(1)
    if version("typer") != locked:
        pytest.skip(f"the page has the words of typer {locked}")
    assert text in (DOCS / "cli.md").read_text(encoding="utf-8"), "run: make docs"


def test_the_text_does_not_depend_on_the_terminal(reference, text, monkeypatch):
    monkeypatch.setenv("COLUMNS", "55")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert reference.render() == text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_every_command_has_its_section(text):
    for command in ("methods", "fit", "encode", "search", "evaluate", "info", "demo"):
        assert f"\n## shorthash {command}\n\n```text\nUsage: shorthash {command} [OPTIONS]" in text
