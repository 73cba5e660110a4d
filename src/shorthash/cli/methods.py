"""shorthash methods: what can be learned with."""

from __future__ import annotations

from shorthash.cli import output
from shorthash.cli.options import AsJson

__all__ = ["methods"]


def methods(as_json: AsJson = False) -> None:
    """List the methods that fit knows.

    Supervised methods need labels. A preset is a further set of settings; all methods have the settings of their paper.

    \b
    Example:
      shorthash methods
    """
    from shorthash.recipes import recipes
    from shorthash.report.tables import Column, Table

    known = recipes()
    rows = tuple(
        (name, recipe.full_name, recipe.year, "yes" if recipe.supervised else "no", ", ".join(recipe.presets))
        for name, recipe in known.items()
    )
    columns = (Column("method", text=True), Column("name", text=True), Column("year"))
    table = Table((*columns, Column("supervised", text=True), Column("presets", text=True)), rows)
    kept = ("full_name", "year", "supervised", "multilabel", "reference")
    data = {
        name: {key: getattr(recipe, key) for key in kept} | {"presets": list(recipe.presets)}
        for name, recipe in known.items()
    }
    output.show(output.Answer(data, {}, (table,)), as_json=as_json)
