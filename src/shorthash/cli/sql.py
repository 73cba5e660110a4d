"""shorthash sql: what to type into somebody's own database."""

from __future__ import annotations

from typing import Annotated

from shorthash.cli import output
from shorthash.cli.options import option

__all__ = ["sql"]


def sql(
    bits: Annotated[int, option("--bits", metavar="N", text="Length of the codes, 1 to 64.")],
    radius: Annotated[int, option("--radius", metavar="N", text="Largest Hamming distance.", default=True)] = 2,
    dialect: Annotated[
        str, option("--dialect", metavar="NAME", text="sqlite or postgresql.", default=True)
    ] = "postgresql",
    table: Annotated[
        str, option("--table", metavar="NAME", text="Your table, with columns id and code.", default=True)
    ] = "items",
) -> None:
    """Print the two lines of SQL that search codes in a database of your own.

    The first makes a B-tree; the second finds the 100 nearest items within a radius of :code. No extension is needed.
    Codes are packed integers; those of 64 bits are stored as signed ones with the same bits.

    \b
    Examples:
      shorthash sql --bits 12 --radius 2
      shorthash sql --bits 8 --dialect sqlite | sqlite3 items.db -cmd '.param set :code 5'
    """
    from shorthash.store.example_sql import example_sql

    for line in example_sql(bits, radius, dialect, table):
        output.say(line)
