"""shorthash sql, by its whole output."""

import subprocess
import sys

POSTGRES = """\
CREATE INDEX IF NOT EXISTS items_code ON items (code, id);
SELECT id, distance FROM (SELECT mask # :code, bit_count(mask::bigint::bit(64)) \
FROM unnest('{0,1,2,4}'::smallint[]) AS mask) AS ball(code, distance) JOIN items USING (code) \
ORDER BY distance, id LIMIT 100;
"""

SQLITE = """\
CREATE INDEX IF NOT EXISTS photos_code ON photos (code, id);
WITH masks(mask, distance) AS (VALUES (0,0),(1,1),(2,1),(4,1)), given(value) AS (SELECT :code) \
SELECT id, distance FROM (SELECT (mask | value) - (mask & value) AS code, distance FROM masks, given) CROSS JOIN \
photos INDEXED BY photos_code USING (code) ORDER BY distance, id LIMIT 100;
"""


def test_postgresql(run):
    done = run("sql", "--bits", 3, "--radius", 1)
    assert (done.status, done.out, done.err) == (0, POSTGRES, "")


def test_sqlite(run):
    done = run("sql", "--bits", 3, "--radius", 1, "--dialect", "sqlite", "--table", "photos")
    assert (done.status, done.out, done.err) == (0, SQLITE, "")


def test_lists_of_codes(run):
    done = run("sql", "--bits", 3, "--probes")
    index, query = done.out.splitlines()
    assert index == POSTGRES.splitlines()[0]
    assert query == (
        "SELECT id FROM unnest(:codes::smallint[]) WITH ORDINALITY AS probe(cell, probe_no) JOIN items ON code = cell "
        "ORDER BY probe_no, id LIMIT 100;"
    )


def test_bad_input_is_one_line(run):
    done = run("sql", "--bits", 3, "--dialect", "oracle")
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert "--dialect must be one of 'postgresql', 'sqlite', 'duckdb', 'mysql'. Got 'oracle' instead" in done.err
    done = run("sql", "--bits", 3, "--dialect", "sqlite", "--param-style", "pyformat")
    assert done.err == "error: --param-style must be one of 'named', 'qmark', 'numeric'. Got 'pyformat' instead.\n"
    done = run("sql", "--bits", 99)
    assert done.err == "error: --bits must be an int in the range [1, 64]. Got 99 instead.\n"


def test_names_and_parameters(run):
    names = ["--table", 'shop.My "Items"', "--code-column", "order", "--id-column", "sku"]
    done = run("sql", "--bits", 2, "--radius", 0, *names, "--param-style", "pyformat")
    index, query = done.out.splitlines()
    assert index == 'CREATE INDEX IF NOT EXISTS "My ""Items""_order" ON shop."My ""Items""" ("order", sku);'
    assert "mask # %(code)s" in query
    done = run("sql", "--bits", 2, "--radius", 0, *names, "--dialect", "mysql", "--param-style", "qmark")
    index, query = done.out.splitlines()
    assert index == 'CREATE INDEX `My "Items"_order` ON shop.`My "Items"` (`order`, sku);'
    assert "CAST(ball.mask ^ ? AS SIGNED)" in query


def test_nothing_heavy_is_imported():
    listing = (
        "import sys; from shorthash.cli.main import main\ntry: main(['sql', '--bits', '8'])\nexcept SystemExit: pass\n"
    )
    heavy = "print(sorted({name.partition('.')[0] for name in sys.modules} & {'sklearn', 'scipy', 'numba', 'pandas'}))"
    done = subprocess.run([sys.executable, "-c", listing + heavy], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
