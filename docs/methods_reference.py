"""Every method and what there is to know about it, for docs/guide/methods.md; docs/generate.py puts it there."""

from __future__ import annotations

from typing import Any

from shorthash.methods import RECIPES, method_facts


def render() -> str:
    """Two tables: what the methods are, and how they are set."""
    facts = {name: method_facts(name) for name in RECIPES}  # ours; installed packages may add theirs
    return "\n".join([*_overview(facts), "", *_settings(facts)])


def _overview(facts: dict[str, dict[str, Any]]) -> list[str]:
    """Name, title, year, labels, preprocessing."""
    lines = ["| name | method | year | labels | several labels | preprocessing |", "|---|---|---|---|---|---|"]
    for name, f in facts.items():
        labels = "yes" if f["supervised"] else "no"
        several = ("yes" if f["multilabel"] else "no") if f["supervised"] else "-"
        front = " → ".join(f"`{step}`" for step in f["preprocessing"]) or "features as they are"
        lines.append(f"| `{name}` | {f['full_name']} | {f['year']} | {labels} | {several} | {front} |")
    return lines


def _settings(facts: dict[str, dict[str, Any]]) -> list[str]:
    """Hyper-parameters with their defaults, presets, reference."""
    lines = ["| name | hyper-parameters | presets | reference |", "|---|---|---|---|"]
    for name, f in facts.items():
        parameters = ", ".join(f"`{key}={value!r}`" for key, value in f["parameters"].items()) or "none"
        presets = ", ".join(f"`{preset}`" for preset in f["presets"]) or "-"
        lines.append(f"| `{name}` | {parameters} | {presets} | {f['reference']} |")
    return lines
