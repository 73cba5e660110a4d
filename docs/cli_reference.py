"""The help of every command, for docs/cli.md; docs/generate.py writes and checks that page."""

from __future__ import annotations

from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from shorthash.cli.main import app

WIDTH = 100


def render() -> str:
    """The help of the group and of every command, in the order in which the group lists them."""
    return "\n".join(_sections(get_command(app), []))


def _sections(command: Any, path: list[str]) -> list[str]:
    """Sections of a command, and of the commands inside it."""
    sections = [_section(" ".join(["shorthash", *path]), path)]
    for name in getattr(command, "commands", {}):
        sections += _sections(command.get_command(None, name), [*path, name])
    return sections


def _section(title: str, arguments: list[str]) -> str:
    """One command and its help, at a fixed width and without colour."""
    result = CliRunner().invoke(
        app, [*arguments, "--help"], prog_name="shorthash", terminal_width=WIDTH, env={"NO_COLOR": "1"}
    )
    assert result.exit_code == 0, result.output
    lines = [line.rstrip() for line in result.output.rstrip("\n").split("\n")]
    return f"## {title}\n\n```text\n" + "\n".join(lines) + "\n```\n"
