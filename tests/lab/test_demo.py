"""The demonstration, small: two lengths, ten queries of every digit."""

import re

import numpy as np
import pytest

from shorthash.errors import InvalidInput
from shorthash.lab.demo import demo_page, demo_table, run_demo, write_demo
from shorthash.lab.figures import page_html

STEPS = []


@pytest.fixture(scope="module")
def result():
    return run_demo((4, 8), per_class=10, method="rslh", progress=lambda *step: STEPS.append(step))


@pytest.fixture(scope="module")
def page(result):
    return demo_page(result)


def test_split_is_stratified_and_complete(result):
    np.testing.assert_array_equal(np.sort(np.concatenate([result.queries, result.database])), np.arange(1797))
    assert np.bincount(result.y[result.queries]).tolist() == [10] * 10
    assert (result.images.min(), result.images.max()) == (0, 1)


def test_codes_are_worth_showing(result):
    short, long = result.runs
    assert (short.n_bits, long.n_bits) == (4, 8)
    assert result.best == long
    for run in result.runs:
        assert run.scores.map_worst <= run.scores.map <= run.scores.map_best
        assert run.scores.n_queries == 100
        assert run.database_codes.shape == (1697, run.n_bits)
        assert min(run.fit_seconds, run.encode_microseconds, run.search_microseconds) > 0
    assert long.scores.map > 0.9
    assert long.scores.map > short.scores.map


def test_one_query_of_every_class_and_the_hardest_are_shown(result):
    for run in result.runs:
        typical = [r for r in run.retrievals if not r.hard]
        assert result.y[[r.query for r in typical]].tolist() == list(range(10))
        hard = [r.average_precision for r in run.retrievals if r.hard]
        others = np.delete(run.scores.per_query["map"], np.searchsorted(result.queries, [r.query for r in typical]))
        np.testing.assert_allclose(hard, np.sort(others)[:2])


def test_what_a_query_found_is_near_and_from_the_database(result):
    run = result.runs[1]
    for retrieval in run.retrievals:
        places = np.searchsorted(result.database, retrieval.found)
        np.testing.assert_array_equal(result.database[places], retrieval.found)
        distances = (run.database_codes != retrieval.code).sum(axis=1)
        np.testing.assert_array_equal(distances[places], retrieval.distances)
        np.testing.assert_array_equal(retrieval.distances, np.sort(distances)[:10])


def test_progress_counts_up(result):
    assert [(f"{n_bits} bits: learning, searching, scoring", done, 2) for done, n_bits in enumerate((4, 8))] == STEPS


def test_same_seed_same_codes(result):
    again = run_demo((4,), per_class=10, method="rslh")
    np.testing.assert_array_equal(again.runs[0].database_codes, result.runs[0].database_codes)
    assert again.runs[0].scores.map == result.runs[0].scores.map
    assert page_html(demo_page(again)).count('<ul class="wall">') == 1, "the shortest length is the longest one here"


@pytest.mark.slow
def test_the_recommended_method_is_the_default():
    result = run_demo((4,), per_class=150)
    assert result.method == "auto"
    assert result.best.scores.map > 0.9


def test_too_many_queries():
    with pytest.raises(
        InvalidInput, match=r"The 'per_class' parameter of run_demo must be an int in the range \[1, 173\]"
    ):
        run_demo((4,), per_class=200)


def test_table_is_the_runs(result):
    table = demo_table(result)
    assert [row[0] for row in table.rows] == [4, 8]
    assert [row[1] for row in table.rows] == [run.scores.map for run in result.runs]
    assert table.titles == [
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


def test_page_has_the_numbers_of_this_run(result, page):
    assert page.facts[0][0] == f"{result.runs[1].scores.map:.3f}"
    assert "1797 images of 10 digits, 64 pixels each. 100 of them are queries; the other 1697" in page.lede
    figures = page.sections[1].figures
    assert list(figures) == ["ties", "radius", "map-short", "map-long", "first-k"]
    collisions = result.runs[0].quality.class_collisions
    assert f"{collisions} pairs of digits share their main bucket" in figures["map-short"][1]
    assert "no two digits share their main bucket" in figures["map-long"][1]
    assert "about 170 images" in figures["first-k"][1]


def test_report_is_one_file_that_marks_mistakes(result, tmp_path):
    path = write_demo(result, tmp_path / "made" / "demo")
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    html = path.read_text(encoding="utf-8")
    assert html.count("<svg") == 5
    hits = [result.y[r.found] == result.y[r.query] for run in result.runs for r in run.retrievals]
    wrong = int(sum((~right).sum() for right in hits))
    assert wrong > 0
    assert html.count('<li class="wrong">') == wrong
    typical = [result.y[r.found] == result.y[r.query] for r in result.runs[-1].retrievals if not r.hard]
    assert f"{int(np.concatenate(typical).sum())} of 100 right" in html
    assert len(re.findall(r'src="(?!data:image/png;base64,)', html)) == 0
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert len(ids) == len(set(ids))
