"""SQL that searches codes in tables of your own: an integer column, a B-tree, and one query. Imports nothing heavy."""

from __future__ import annotations

import re
from itertools import combinations
from math import comb

from shorthash._validation import check_choice, check_count, check_n_bits
from shorthash.errors import InvalidInput

DIALECTS = ("sqlite", "postgresql")
MOST_MASKS = 10_000  # beyond this a printed query is too long to be of use

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
RESERVED = re.compile(r"(shorthash|sqlite|pg)_.*|.*_vectors")


def example_sql(n_bits: int, radius: int, dialect: str = "postgresql", table: str = "items") -> tuple[str, str]:
    """The statement that makes the B-tree, and the query for the 100 nearest items within ``radius`` of ``:code``.

    ``table`` has the columns ``id`` and ``code``. The query lists all masks with up to ``radius`` bits; XOR with the
    code gives the codes to look up. SQLite has no XOR, so for it ``a ^ b`` is written ``(a | b) - (a & b)``.

    Examples
    --------
    >>> index, query = example_sql(n_bits=3, radius=1, dialect="sqlite")
    >>> index
    'CREATE INDEX items_code ON items (code, id);'
    >>> query.partition(" SELECT")[0]
    'WITH masks(mask, distance) AS (VALUES (0,0),(1,1),(2,1),(4,1))'
    """
    n_bits = check_n_bits(n_bits, "example_sql")
    radius = min(check_count(radius, "radius", "example_sql", low=0), n_bits)
    check_name(table, "table")
    check_choice(dialect, "dialect", "example_sql", DIALECTS)
    n_masks = sum(comb(n_bits, distance) for distance in range(radius + 1))
    if n_masks > MOST_MASKS:
        raise InvalidInput(
            f"{n_masks} codes lie within radius {radius} of {n_bits}-bit codes, more than a query should list "
            f"({MOST_MASKS}); use a smaller radius."
        )
    values = [1 << bit for bit in range(n_bits)]
    if n_bits == 64:
        values[63] = -(1 << 63)  # databases hold signed integers
    masks = [(sum(bits), distance) for distance in range(radius + 1) for bits in combinations(values, distance)]
    index = f"CREATE INDEX {table}_code ON {table} (code, id);"
    order = "USING (code) ORDER BY distance, id LIMIT 100;"
    if dialect == "postgresql":
        listed = f"'{{{','.join(str(mask) for mask, _ in masks)}}}'::{integer_type(n_bits)}[]"
        ball = f"SELECT mask # :code, bit_count(mask::bigint::bit(64)) FROM unnest({listed}) AS mask"
        return index, f"SELECT id, distance FROM ({ball}) AS ball(code, distance) JOIN {table} {order}"
    pairs = ",".join(f"({mask},{distance})" for mask, distance in masks)
    ball = "SELECT (mask | :code) - (mask & :code) AS code, distance FROM masks"
    by = f"INDEXED BY {table}_code"  # the planner would make an index of its own for long lists
    with_masks = f"WITH masks(mask, distance) AS (VALUES {pairs})"
    return index, f"{with_masks} SELECT id, distance FROM ({ball}) CROSS JOIN {table} {by} {order}"


def integer_type(n_bits: int) -> str:
    """The smallest integer type of PostgreSQL that holds codes as they are; 64 bits use the sign."""
    return "smallint" if n_bits <= 15 else "integer" if n_bits <= 31 else "bigint"


def check_name(name: object, what: str) -> str:
    """Raise unless ``name`` is allowed for a collection or a version; only such names become part of a statement."""
    if not isinstance(name, str) or not NAME.fullmatch(name) or RESERVED.fullmatch(name):
        raise InvalidInput(
            f"The name of a {what} must be at most 40 lower-case letters, digits and '_', begin with a letter, and not "
            f"look like shorthash_..., sqlite_..., pg_... or ..._vectors. Got {name!r} instead."
        )
    return name
