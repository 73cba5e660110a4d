"""SQL that searches codes in tables of your own: an integer column, a B-tree, and one query."""

from __future__ import annotations

import numpy as np

from shorthash._validation import check_choice, check_count, check_n_bits
from shorthash.codes import ball_masks, ball_size
from shorthash.errors import InvalidInput
from shorthash.store.items import to_signed
from shorthash.store.sql import check_name, integer_type

__all__ = ["DIALECTS", "example_sql"]

DIALECTS = ("sqlite", "postgresql")
MOST_MASKS = 10_000  # beyond this a printed query is too long to be of use


def example_sql(n_bits: int, radius: int, dialect: str = "postgresql", table: str = "items") -> tuple[str, str]:
    """The statement that makes the B-tree, and the query for the 100 nearest items within ``radius`` of ``:code``.

    ``table`` has the columns ``id`` and ``code``. The query lists all masks with up to ``radius`` bits; XOR with the
    code gives the codes to look up. SQLite has no XOR, so there ``a ^ b`` is written ``(a | b) - (a & b)``.

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
    if ball_size(n_bits, radius) > MOST_MASKS:
        raise InvalidInput(
            f"{ball_size(n_bits, radius)} codes lie within radius {radius} of {n_bits}-bit codes, more than a query "
            f"should list ({MOST_MASKS}); use a smaller radius."
        )
    masks, offsets = ball_masks(n_bits, radius)
    index = f"CREATE INDEX {table}_code ON {table} (code, id);"
    order = "USING (code) ORDER BY distance, id LIMIT 100;"
    signed = to_signed(masks).tolist()
    if dialect == "postgresql":
        listed = f"'{{{','.join(map(str, signed))}}}'::{integer_type(n_bits)}[]"
        ball = f"SELECT mask # :code, bit_count(mask::bigint::bit(64)) FROM unnest({listed}) AS mask"
        return index, f"SELECT id, distance FROM ({ball}) AS ball(code, distance) JOIN {table} {order}"
    distances = np.repeat(np.arange(radius + 1), np.diff(offsets)).tolist()
    pairs = ",".join(f"({mask},{distance})" for mask, distance in zip(signed, distances, strict=True))
    ball = "SELECT (mask | :code) - (mask & :code) AS code, distance FROM masks"
    by = f"INDEXED BY {table}_code"  # the planner would make an index of its own for long lists
    with_masks = f"WITH masks(mask, distance) AS (VALUES {pairs})"
    return index, f"{with_masks} SELECT id, distance FROM ({ball}) CROSS JOIN {table} {by} {order}"
