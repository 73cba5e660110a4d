"""shorthash methods: what can be learned with."""

from __future__ import annotations

from typing import Annotated, Any

from shorthash.cli import output
from shorthash.cli.options import AsJson, optional

__all__ = ["methods"]


def methods(
    name: Annotated[str | None, optional("[METHOD]", "Tell all about this one.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the methods that fit knows, or tell all about one: settings, presets, reference.

    Supervised methods need labels, and some learn from several labels per row. A preset is a further set of settings;
    all methods have the settings of their paper.

    \b
    Examples:
      shorthash methods
      shorthash methods rslh
    """
    from shorthash.recipes import method_facts, recipes

    if name is None:
        answer = _list({known: method_facts(known) for known in recipes()})
    else:
        answer = _one(name, method_facts(name))
    output.show(answer, as_json=as_json)


def _list(facts: dict[str, dict[str, Any]]) -> output.Answer:
    """One line per method."""
    from shorthash.lab.tables import Column, Table

    rows = tuple(
        (name, f["full_name"], f["year"], _yes(f["supervised"]), _several(f), ", ".join(f["presets"]))
        for name, f in facts.items()
    )
    titles = ("method", "name", "year", "supervised", "several labels", "presets")
    table = Table(tuple(Column(title, text=title != "year") for title in titles), rows)
    return output.Answer(facts, {}, (table,), ("\nSettings and reference of one: shorthash methods METHOD",))


def _one(name: str, facts: dict[str, Any]) -> output.Answer:
    """All about a method."""
    from shorthash.lab.tables import Column, Table

    presets = {
        preset: ", ".join(f"{key}={value!r}" for group in changes.values() for key, value in group.items())
        for preset, changes in facts["presets"].items()
    }
    lines = {
        "name": facts["full_name"],
        "year": str(facts["year"]),
        "supervised": _yes(facts["supervised"]),
        "several labels": _several(facts),
        "front end": " -> ".join(facts["front_end"]) or "features as they are",
        "reference": facts["reference"],
        **{f"preset {preset}": text for preset, text in presets.items()},
    }
    rows = tuple((key, repr(value)) for key, value in facts["parameters"].items())
    table = Table((Column("setting", text=True), Column("default", text=True)), rows)
    return output.Answer({name: facts}, lines, (table,) if rows else ())


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def _several(facts: dict[str, Any]) -> str:
    """Whether rows may have several labels; no question for methods that read none."""
    return _yes(facts["multilabel"]) if facts["supervised"] else "-"
