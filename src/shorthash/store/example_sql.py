"""SQL that searches codes in your own tables: an integer column, a B-tree, and one query. Imports nothing heavy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from math import comb

from shorthash._validation import check_choice, check_count, check_n_bits
from shorthash.errors import InvalidInput

MOST_MASKS = 10_000  # beyond this a printed query is too long to be of use
MOST_PARTITIONS = 1024  # each is a table with its own B-trees
LIMIT = 100  # items that the query returns at most

PARAMETERS = {
    "postgresql": {"named": ":code", "pyformat": "%(code)s", "qmark": "?", "numeric": "$1"},
    "sqlite": {"named": ":code", "qmark": "?", "numeric": "?1"},
    "duckdb": {"named": "$code", "qmark": "?", "numeric": "$1"},
    "mysql": {"named": ":code", "pyformat": "%(code)s", "qmark": "?"},
}
"""Dialects, and how drivers of each write a parameter."""

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
RESERVED = re.compile(r"(shorthash|sqlite|pg)_.*|.*_vectors")
KEYWORDS = re.compile(
    "all|and|any|as|asc|between|by|case|check|column|constraint|create|cross|default|delete|desc|distinct"
    "|drop|else|end|exists|false|for|foreign|from|full|grant|group|having|if|in|index|inner|insert|into|is"
    "|join|key|left|like|limit|not|null|offset|on|or|order|outer|primary|references|right|row|rows|select"
    "|set|table|then|to|true|union|unique|update|user|using|values|when|where|with"
)


def example_sql(
    n_bits: int,
    radius: int,
    dialect: str = "postgresql",
    table: str = "items",
    *,
    code_column: str = "code",
    id_column: str = "id",
    param_style: str = "named",
) -> tuple[str, str]:
    """The statement that makes the B-tree, and the query for the 100 nearest items within ``radius`` of a code.

    The query lists all masks with up to ``radius`` bits; XOR with the code, its only parameter, gives the codes to look
    up. SQLite has no XOR, so for it ``a ^ b`` is written ``(a | b) - (a & b)``.

    Parameters
    ----------
    n_bits : length of the codes
    radius : largest distance
    dialect : "postgresql", "sqlite", "duckdb" or "mysql" (also MariaDB)
    table : name of the table, or schema.table; quoted if necessary
    code_column, id_column : its columns, of integers and of ids
    param_style : how the code is written: "named", "pyformat", "qmark" or "numeric", as the driver takes it

    Examples
    --------
    >>> index, query = example_sql(n_bits=3, radius=1, dialect="sqlite")
    >>> index
    'CREATE INDEX IF NOT EXISTS items_code ON items (code, id);'
    >>> query.partition(", given")[0]
    'WITH masks(mask, distance) AS (VALUES (0,0),(1,1),(2,1),(4,1))'
    >>> example_sql(n_bits=3, radius=1, table="My Items", code_column="key")[0]
    'CREATE INDEX IF NOT EXISTS "My Items_key" ON "My Items" ("key", id);'
    """
    n_bits = check_n_bits(n_bits, "example_sql")
    radius = min(check_count(radius, "radius", "example_sql", low=0), n_bits)
    parameter, place, code, item, name = _parts(dialect, table, code_column, id_column, param_style, "example_sql")
    masks = _masks(n_bits, radius)
    listed, pairs = ",".join(str(mask) for mask, _ in masks), ",".join(f"({mask},{bits})" for mask, bits in masks)
    in_postgresql = f"unnest('{{{listed}}}'::{integer_type(n_bits)}[]) AS mask"
    in_duckdb = f"unnest([{listed}]::BIGINT[]) AS m(mask)"
    joined = f"AS ball({code}, distance) JOIN {place} USING ({code})"
    query = {
        "postgresql": f"SELECT {item}, distance FROM"
        f" (SELECT mask # {parameter}, bit_count(mask::bigint::bit(64)) FROM {in_postgresql}) {joined}",
        "sqlite": f"WITH masks(mask, distance) AS (VALUES {pairs}), given(value) AS (SELECT {parameter})"
        f" SELECT {item}, distance FROM (SELECT (mask | value) - (mask & value) AS {code}, distance FROM masks, given)"
        f" CROSS JOIN {place} INDEXED BY {name} USING ({code})",  # else it makes another index for long lists
        "duckdb": f"SELECT {item}, distance FROM"
        f" (SELECT xor(mask, {parameter}::BIGINT), bit_count(mask) FROM {in_duckdb}) {joined}",
        "mysql": f"SELECT {item}, BIT_COUNT(ball.mask) AS distance FROM"
        f" JSON_TABLE('[{listed}]', '$[*]' COLUMNS (mask BIGINT PATH '$')) AS ball"
        f" STRAIGHT_JOIN {place} ON {place}.{code} = CAST(ball.mask ^ {parameter} AS SIGNED)",
    }[dialect]
    return _create(dialect, name, place, code, item), f"{query} ORDER BY distance, {item} LIMIT {LIMIT};"


def probe_sql(
    n_bits: int,
    dialect: str = "postgresql",
    table: str = "items",
    *,
    code_column: str = "code",
    id_column: str = "id",
    param_style: str = "named",
) -> tuple[str, str]:
    """The statement that makes the B-tree, and the query for the first 100 items of a list of codes, in its order.

    Parameters are those of ``example_sql``; the list, the only parameter of the query, is an array in PostgreSQL and
    DuckDB, and JSON in SQLite and MySQL.

    Examples
    --------
    >>> index, query = probe_sql(12)
    >>> query.partition(" JOIN")[0]
    'SELECT id FROM unnest(:codes::smallint[]) WITH ORDINALITY AS probe(cell, probe_no)'
    """
    n_bits = check_n_bits(n_bits, "probe_sql")
    parameter, place, code, item, name = _parts(dialect, table, code_column, id_column, param_style, "probe_sql")
    given = parameter.replace("code", "codes")
    joined = {
        "postgresql": f"unnest({given}::{integer_type(n_bits)}[]) WITH ORDINALITY AS probe(cell, probe_no)"
        f" JOIN {place}",
        "sqlite": f"(SELECT value AS cell, key AS probe_no FROM json_each({given})) AS probe CROSS JOIN {place}"
        f" INDEXED BY {name}",
        "duckdb": f"(SELECT unnest(cells) AS cell, generate_subscripts(cells, 1) AS probe_no FROM"
        f" (SELECT {given}::BIGINT[] AS cells)) AS probe JOIN {place}",
        "mysql": f"JSON_TABLE({given}, '$[*]' COLUMNS (probe_no FOR ORDINALITY, cell BIGINT PATH '$')) AS probe"
        f" STRAIGHT_JOIN {place}",
    }[dialect]
    query = f"SELECT {item} FROM {joined} ON {code} = cell ORDER BY probe_no, {item} LIMIT {LIMIT};"
    return _create(dialect, name, place, code, item), query


def partition_sql(
    n_bits: int, partitions: int, table: str = "items", *, code_column: str = "code", id_column: str = "id"
) -> list[str]:
    """The statements that make a table of PostgreSQL whose rows are divided by equal ranges of the code.

    Parameters
    ----------
    n_bits : length of the codes
    partitions : how many ranges, and tables
    table : name of the table, or schema.table; quoted if necessary
    code_column, id_column : its columns

    Examples
    --------
    >>> for line in partition_sql(12, 2):
    ...     print(line)
    CREATE TABLE items(id bigint NOT NULL, code smallint NOT NULL) PARTITION BY RANGE (code);
    CREATE TABLE items_p0 PARTITION OF items FOR VALUES FROM (MINVALUE) TO (2048);
    CREATE TABLE items_p1 PARTITION OF items FOR VALUES FROM (2048) TO (MAXVALUE);
    """
    n_bits = check_n_bits(n_bits, "partition_sql")
    partitions = check_count(partitions, "partitions", "partition_sql", low=2, high=MOST_PARTITIONS)
    _, place, code, item, _ = _parts("postgresql", table, code_column, id_column, "named", "partition_sql")
    columns = f"{item} bigint NOT NULL, {code} {integer_type(n_bits)} NOT NULL"
    parts = [
        ".".join(_quoted(part, "postgresql", "table") for part in f"{table}_p{i}".split(".")) for i in range(partitions)
    ]
    return [f"{sql};" for sql in partitioned_table(place, columns, code, n_bits, partitions, parts)]


def partitioned_table(
    table: str, columns: str, code: str, n_bits: int, partitions: int, names: list[str] | None = None
) -> Iterator[str]:
    """The statements that make a table of ``columns``, partitioned by equal ranges of ``code`` if there are several."""
    if partitions == 1:
        yield f"CREATE TABLE {table}({columns})"
        return
    if partitions > 1 << n_bits:
        raise InvalidInput(f"There are {1 << n_bits} codes of {n_bits} bits, too few for {partitions} partitions.")
    yield f"CREATE TABLE {table}({columns}) PARTITION BY RANGE ({code})"
    lowest = -(1 << 63) if n_bits == 64 else 0  # codes of 64 bits are signed
    bounds = [str(lowest + (i << n_bits) // partitions) for i in range(1, partitions)]
    ranges = zip(["MINVALUE", *bounds], [*bounds, "MAXVALUE"], strict=True)
    for number, (low, high) in enumerate(ranges):
        name = f"{table}_p{number}" if names is None else names[number]
        yield f"CREATE TABLE {name} PARTITION OF {table} FOR VALUES FROM ({low}) TO ({high})"


def _parts(
    dialect: str, table: str, code_column: str, id_column: str, param_style: str, owner: str
) -> tuple[str, str, str, str, str]:
    """The parameter, and the names of the table, its columns and its B-tree as a statement writes them."""
    check_choice(dialect, "dialect", owner, tuple(PARAMETERS))
    check_choice(param_style, "param_style", f"{owner}('{dialect}')", tuple(PARAMETERS[dialect]))
    code, item = (
        _quoted(name, dialect, what) for name, what in ((code_column, "code column"), (id_column, "id column"))
    )
    place = ".".join(_quoted(part, dialect, "table") for part in table.split("."))
    name = _quoted(f"{table.split('.')[-1]}_{code_column}", dialect, "index")
    return PARAMETERS[dialect][param_style], place, code, item, name


def _create(dialect: str, name: str, place: str, code: str, item: str) -> str:
    once = "" if dialect == "mysql" else "IF NOT EXISTS "  # MySQL has no such clause for indexes
    return f"CREATE INDEX {once}{name} ON {place} ({code}, {item});"


def _masks(n_bits: int, radius: int) -> list[tuple[int, int]]:
    """All masks with up to ``radius`` bits, as signed integers, and their numbers of bits."""
    n_masks = sum(comb(n_bits, distance) for distance in range(radius + 1))
    if n_masks > MOST_MASKS:
        raise InvalidInput(
            f"{n_masks} codes lie within radius {radius} of {n_bits}-bit codes, more than a query should list "
            f"({MOST_MASKS}); use a smaller radius."
        )
    values = [1 << bit for bit in range(n_bits)]
    if n_bits == 64:
        values[63] = -(1 << 63)  # databases hold signed integers
    return [(sum(bits), distance) for distance in range(radius + 1) for bits in combinations(values, distance)]


def _quoted(name: object, dialect: str, what: str) -> str:
    """A name as a statement writes it: plain names unchanged, others in quotes."""
    if not isinstance(name, str) or not name or "\0" in name:
        raise InvalidInput(f"The name of a {what} must be text. Got {name!r} instead; give its name in the database.")
    if re.fullmatch(r"[a-z_][a-z0-9_]*", name) and not KEYWORDS.fullmatch(name):
        return name
    mark = "`" if dialect == "mysql" else '"'
    return f"{mark}{name.replace(mark, 2 * mark)}{mark}"


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
