"""The demonstration, small: two lengths, 100 queries."""

import json
import re

import numpy as np
import pytest

from shorthash.errors import InvalidInput
from shorthash.lab.demo import run_demo
from shorthash.lab.demo_page import demo_summary, demo_table, write_demo

STEPS = []


@pytest.fixture(scope="module")
def result():
    return run_demo((4, 8), n_queries=100, n_anchors=200, progress=lambda *step: STEPS.append(step))


@pytest.fixture(scope="module")
def summary(result):
    return demo_summary(result)


def test_split_is_stratified_and_complete(result):
    digits = result.digits
    np.testing.assert_array_equal(np.sort(np.concatenate([digits.queries, digits.database])), np.arange(1797))
    per_class = np.bincount(digits.y[digits.queries])
    assert per_class.sum() == 100
    assert per_class.min() >= 9
    assert per_class.max() <= 11
    assert (digits.X.min(), digits.X.max()) == (0, 1)


def test_codes_are_worth_showing(result):
    short, long = result.runs
    assert (short.n_bits, long.n_bits) == (4, 8)
    for run in result.runs:
        assert run.scores.map_worst <= run.scores.map <= run.scores.map_best
        assert run.scores.n_queries == 100
        assert run.database_codes.shape == (1697, run.n_bits)
        assert len(run.objective) == 3
        assert min(run.fit_seconds, run.encode_microseconds, run.search_microseconds) > 0
    assert long.scores.map > 0.9
    assert long.scores.map > short.scores.map


def test_walls_show_one_query_of_every_class_and_the_hardest(result):
    assert [wall.n_bits for wall in result.walls] == [4, 8]
    for wall, run in zip(result.walls, result.runs, strict=True):
        typical = [r for r in wall.retrievals if not r.hard]
        assert result.digits.y[[r.query for r in typical]].tolist() == list(range(10))
        hard = [r.average_precision for r in wall.retrievals if r.hard]
        others = np.delete(
            run.scores.per_query["map"], np.searchsorted(result.digits.queries, [r.query for r in typical])
        )
        np.testing.assert_allclose(hard, np.sort(others)[:2])


def test_what_a_query_found_is_near_and_from_the_database(result):
    run, wall = result.runs[1], result.walls[1]
    for retrieval in wall.retrievals:
        places = np.searchsorted(result.digits.database, retrieval.found)
        np.testing.assert_array_equal(result.digits.database[places], retrieval.found)
        distances = (run.database_codes != retrieval.code).sum(axis=1)
        np.testing.assert_array_equal(distances[places], retrieval.distances)
        np.testing.assert_array_equal(retrieval.distances, np.sort(distances)[:10])


def test_progress_counts_up(result):
    assert [done for _, done, _ in STEPS] == sorted(done for _, done, _ in STEPS)
    assert {total for _, _, total in STEPS} == {3}
    assert STEPS[1][0] == "4 bits: learning, searching, scoring"


def test_same_seed_same_codes(result):
    again = run_demo((4,), n_queries=100, n_anchors=200)
    np.testing.assert_array_equal(again.runs[0].database_codes, result.runs[0].database_codes)
    assert again.runs[0].scores.map == result.runs[0].scores.map
    assert len(again.walls) == 1, "the shortest length is the best one here"


def test_too_few_queries():
    with pytest.raises(
        InvalidInput, match=r"The 'n_queries' parameter of run_demo must be an int in the range \[10, 898\]"
    ):
        run_demo((4,), n_queries=3)


def test_table_is_the_runs(result):
    table = demo_table(result)
    assert [row[0] for row in table.rows] == [4, 8]
    assert [row[1] for row in table.rows] == [run.scores.map for run in result.runs]
    assert [column.title for column in table.columns] == [
        "bits",
        "mAP",
        "worst",
        "best",
        "mAP@H<=2",
        "precision@H<=2",
        "fit s",
        "encode µs/row",
        "search µs/query",
    ]


def test_summary_is_plain_and_true(result, summary):
    assert json.loads(json.dumps(summary)) == summary
    assert summary["data"] == {"n_rows": 1797, "n_features": 64, "n_classes": 10, "n_queries": 100, "n_database": 1697}
    assert [figure["name"] for figure in summary["figures"]] == [
        "ties",
        "radius",
        "map-short",
        "map-best",
        "first-k",
        "convergence",
    ]
    assert summary["facts"][0]["value"] == f"{result.runs[1].scores.map:.3f}"
    for wall, shown in zip(result.walls, summary["walls"], strict=True):
        assert len(shown["rows"]) == len(wall.retrievals)
        right = [hit["right"] for row in shown["rows"] if not row["hard"] for hit in row["hits"]]
        assert (shown["right"], shown["found"]) == (sum(right), 100)
        for row, retrieval in zip(shown["rows"], wall.retrievals, strict=True):
            assert row["bits"] == [int(bit > 0) for bit in retrieval.code]
            assert [hit["distance"] for hit in row["hits"]] == retrieval.distances.tolist()
            assert [hit["right"] for hit in row["hits"]] == [hit["label"] == row["label"] for hit in row["hits"]]


def test_captions_tell_this_run(result, summary):
    captions = {figure["name"]: figure["caption"] for figure in summary["figures"]}
    collisions = result.runs[0].quality.class_collisions
    assert f"{collisions} pairs of digits share their main bucket" in captions["map-short"]
    assert "no two digits share their main bucket" in captions["map-best"]
    assert "about 170 images" in captions["first-k"]


def test_methods_without_an_objective_can_be_shown_too():
    result = run_demo((4,), n_queries=100, method="lsh")
    assert result.runs[0].objective == ()
    assert "convergence" not in [figure["name"] for figure in demo_summary(result)["figures"]]


def test_report_is_one_file_that_marks_mistakes(result, summary, tmp_path):
    path = write_demo(result, tmp_path / "made" / "demo")
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    html = path.read_text(encoding="utf-8")
    assert html.count("<svg") == 6
    wrong = sum(not hit["right"] for wall in summary["walls"] for row in wall["rows"] for hit in row["hits"])
    assert wrong > 0
    assert html.count('<li class="wrong">') == wrong
    assert len(re.findall(r'src="(?!data:image/png;base64,)', html)) == 0
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert len(ids) == len(set(ids))
