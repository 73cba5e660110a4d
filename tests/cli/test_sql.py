"""shorthash sql, by its whole output."""

POSTGRES = """\
CREATE INDEX items_code ON items (code, id);
SELECT id, distance FROM (SELECT mask # :code, bit_count(mask::bigint::bit(64)) \
FROM unnest('{0,1,2,4}'::smallint[]) AS mask) AS ball(code, distance) JOIN items USING (code) \
ORDER BY distance, id LIMIT 100;
"""

SQLITE = """\
CREATE INDEX photos_code ON photos (code, id);
WITH masks(mask, distance) AS (VALUES (0,0),(1,1),(2,1),(4,1)) SELECT id, distance \
FROM (SELECT (mask | :code) - (mask & :code) AS code, distance FROM masks) CROSS JOIN photos \
INDEXED BY photos_code USING (code) ORDER BY distance, id LIMIT 100;
"""


def test_postgresql(run):
    done = run("sql", "--bits", 3, "--radius", 1)
    assert (done.status, done.out, done.err) == (0, POSTGRES, "")


def test_sqlite(run):
    done = run("sql", "--bits", 3, "--radius", 1, "--dialect", "sqlite", "--table", "photos")
    assert (done.status, done.out, done.err) == (0, SQLITE, "")


def test_bad_input_is_one_line(run):
    done = run("sql", "--bits", 3, "--dialect", "oracle")
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert "must be one of 'sqlite', 'postgresql'. Got 'oracle' instead" in done.err
