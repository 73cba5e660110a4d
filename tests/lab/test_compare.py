"""Every method on one's own rows: scores are those of evaluate, and what cannot be run says why."""

import doctest
import json
from pathlib import Path

import numpy as np
import pytest

from shorthash import evaluate, evaluate_neighbours, make_hasher
from shorthash.data.splits import RandomQueries
from shorthash.errors import InvalidInput
from shorthash.lab import compare as module
from shorthash.lab.compare import (
    compare,
    comparison_page,
    comparison_sentence,
    comparison_table,
    default_lengths,
    write_comparison,
)

pytestmark = pytest.mark.filterwarnings("ignore::shorthash.errors.AnchorWarning")


@pytest.fixture(scope="module")
def result(blobs):
    return compare(*blobs, lengths=[3, 6], methods=["pcaitq", "rslh", "classifier"], seed=1)


def test_scores_are_those_of_the_hasher_alone(blobs, result):
    X, y = blobs
    split = RandomQueries(n_queries=60, seed=1).split(y)
    hasher = make_hasher("rslh", 6, random_state=1).fit(X[split.train], y[split.train])
    scores = evaluate(
        hasher.transform(X[split.query]), y[split.query], hasher.transform(X[split.database]), y[split.database]
    )
    row = next(row for row in result.rows if (row.method, row.n_bits) == ("rslh", 6))
    assert row.map == pytest.approx(scores.map, abs=1e-12)
    assert row.map_at_radius == pytest.approx(scores.map_at_radius, abs=1e-12)
    assert (result.n_queries, result.n_train, result.n_database) == (60, 240, 240)


def test_rows_stand_by_length_in_the_order_asked_for(result):
    assert [(row.method, row.n_bits) for row in result.rows] == [
        (name, bits) for bits in (3, 6) for name in ("pcaitq", "rslh", "classifier")
    ]


def test_intervals_and_distances_to_the_best(result):
    for row in result.rows:
        assert row.map_low <= row.map <= row.map_high
        assert row.map_worst <= row.map <= row.map_best
        best = result.best(row.n_bits)
        assert row.behind == pytest.approx(best.map - row.map)
        assert np.isnan(row.p_value) == (row is best)


def test_several_labels_leave_some_methods_out(tagged):
    result = compare(*tagged, lengths=[4, 13], methods=["pcaitq", "rslh", "classifier"])
    assert result.multilabel
    assert {row.method for row in result.rows} == {"pcaitq", "rslh"}
    skipped = {(each.method, each.n_bits): each.reason for each in result.skipped}
    assert skipped["classifier", None] == "needs one label per row"
    assert "at most 12 bits" in skipped["pcaitq", 13]
    names = [section.name for section in comparison_page(result).sections]
    assert names == ["by-length", "compare", "not-run", "provenance"]


def test_sizes_can_be_set(blobs):
    result = compare(*blobs, lengths=[4], methods=["lsh"], n_queries=10, n_train=50)
    assert (result.n_queries, result.n_train, result.n_database) == (10, 50, 290)


def test_of_very_many_rows_some_are_drawn(blobs, monkeypatch):
    monkeypatch.setattr(module, "MAX_ROWS", 100)
    result = compare(*blobs, lengths=[4], methods=["lsh"])
    assert (result.n_given, result.n_rows, result.n_queries) == (300, 100, 20)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ["nonsense"]}, "'methods' parameter of compare must be one of 'auto'"),
        ({"methods": []}, "at least one method"),
        ({"lengths": [0]}, "n_bits"),
        ({"n_queries": 300}, "'n_queries' parameter of compare"),
        ({"n_train": 1000}, "'n_train' parameter of compare"),
    ],
)
def test_wrong_wishes(blobs, change, message):
    with pytest.raises(InvalidInput, match=message):
        compare(*blobs, **{"lengths": [4], "methods": ["lsh"], **change})


def test_wrong_rows(blobs):
    X, y = blobs
    for rows, labels, message in (
        (X[:, 0], y, r"shape \(n_samples, n_features\)"),
        (X, y[:-1], "inconsistent numbers of samples"),
        (X, np.zeros(300, dtype=int), "at least two different labels"),
        (np.where(X > 2, np.nan, X), y, "NaN|nan|finite"),
        (X[:8], y[:8], "at least 10 rows"),
    ):
        with pytest.raises(InvalidInput, match=message):
            compare(rows, labels, lengths=[4], methods=["lsh"])


def test_nothing_can_be_run(blobs):
    with pytest.raises(InvalidInput, match="No method could be run on these rows; pcaitq: "):
        compare(*blobs, lengths=[40], methods=["pcaitq"])


def test_progress_counts_to_the_end(blobs):
    steps = []
    compare(*blobs, lengths=[3, 4], methods=["lsh", "pcarr"], progress=lambda *step: steps.append(step))
    assert [step[1:] for step in steps] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert {step[0] for step in steps} == {f"{name}, {bits} bits" for name in ("lsh", "pcarr") for bits in (3, 4)}


def test_lengths_follow_the_classes():
    assert default_lengths(2) == (4, 6, 8, 10)
    assert default_lengths(64) == (6, 8, 10, 12)
    assert default_lengths(65) == (8, 10, 12, 14)


def test_page_table_and_json_say_the_same(result, tmp_path):
    page = write_comparison(result, tmp_path / "out")
    html = page.read_text(encoding="utf-8")
    stored = json.loads((page.parent / "compare.json").read_text())
    table = comparison_table(result)
    assert len(stored["rows"]) == len(table.rows) == 6
    assert stored["rows"][0]["map"] == result.rows[0].map
    for cells in table.cells():
        assert f">{cells[2]}</td>" in html
    assert comparison_sentence(result) in html
    assert (page.parent / "compare.csv").read_text().startswith("method,bits,mAP")
    assert "<svg" in html


def test_the_guide_tells_the_truth():
    guide = Path(__file__).parents[2] / "docs" / "guide" / "compare.md"
    results = doctest.testfile(str(guide), module_relative=False)
    assert results.attempted > 5
    assert results.failed == 0


@pytest.mark.parametrize("labelled", [True, False])
def test_an_own_split(blobs, labelled):
    X, y = blobs
    y = np.asarray(y, dtype=object)
    if not labelled:  # rows without a label are left out of every part
        y = y.copy()
        y[::7] = None
    kept = np.array([label is not None for label in y])
    parts = {"query": np.arange(0, 40), "train": np.arange(50, 150)[::-1], "database": np.arange(45, 240)}
    rows = {name: np.sort(part)[kept[np.sort(part)]] for name, part in parts.items()}
    result = compare(X, y, lengths=[4], methods=["pcaitq"], split=parts, seed=1)
    hasher = make_hasher("pcaitq", 4, random_state=1).fit(X[rows["train"]])
    codes = {name: hasher.transform(X[part]) for name, part in rows.items()}
    labels = {name: y[part].astype(int) for name, part in rows.items()}
    scores = evaluate(codes["query"], labels["query"], codes["database"], labels["database"])
    assert result.rows[0].map == pytest.approx(scores.map, abs=1e-12)
    assert (result.n_queries, result.n_train, result.n_database) == tuple(map(len, rows.values()))


def test_parts_of_a_split_that_are_missing(blobs):
    result = compare(*blobs, lengths=[3], methods=["pcaitq"], split={"query": range(20)})
    assert (result.n_queries, result.n_train, result.n_database) == (20, 280, 280)


@pytest.mark.parametrize(
    ("split", "more", "message"),
    [
        ({"train": [1]}, {}, r"must have 'query', and may have 'train' and 'database'. Got \['train'\] instead"),
        ({"query": [1, 300]}, {}, r"The 'query' rows of a split must be from 0 to 299. Got 300 instead"),
        ({"query": [1, 1]}, {}, r"must be different"),
        ({"query": [0.5]}, {}, r"must be a list of row numbers, counted from 0"),
        ({"query": [1], "train": [1, 2]}, {}, r"Row 1 is among the 'train' rows and the 'query' rows"),
        ({"query": [1]}, {"n_queries": 3}, r"takes a split, or n_queries and n_train to draw one"),
    ],
)
def test_wrong_splits(blobs, split, more, message):
    with pytest.raises(InvalidInput, match=message):
        compare(*blobs, lengths=[3], methods=["pcaitq"], split=split, **more)


def test_without_labels_neighbours_are_relevant(blobs):
    X, _ = blobs
    result = compare(X, lengths=[4], methods=["pcaitq", "rslh", "auto"], seed=1)
    assert [(each.method, each.reason) for each in result.skipped] == [("rslh", "needs labels")]
    split = RandomQueries(n_queries=60, seed=1).split(np.zeros(300))
    queries, database = X[split.query], X[split.database]
    for row in result.rows:
        hasher = make_hasher(row.method, 4, random_state=1).fit(X[split.train])
        codes = hasher.transform(queries), hasher.transform(database)
        assert row.map == pytest.approx(evaluate_neighbours(*codes, queries, database, k=12).map)
    assert "no labels: the 12 nearest rows by cosine are relevant" in comparison_page(result).lede
    assert (result.n_classes, result.n_neighbours) == (0, 12)
