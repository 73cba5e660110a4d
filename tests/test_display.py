"""What notebooks show: tables as HTML, and plots on axes."""

import doctest
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from sklearn.datasets import load_iris

from shorthash import (
    RSLH,
    BucketIndex,
    advise,
    compare,
    evaluate,
    make_hasher,
    plot_code_map,
    plot_hypercube,
    plot_precision_recall,
)
from shorthash._display import html_table
from shorthash.errors import InvalidInput
from shorthash.evaluation import evaluate_distances

CODES = np.array([[1, 1, 1], [1, 1, -1], [-1, -1, -1], [1, -1, 1]], dtype=np.int8)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


def test_text_is_escaped():
    text = html_table(["<a>"], [["<script>"]], "1 < 2")
    assert "<script>" not in text
    assert "<caption>1 &lt; 2</caption>" in text


def test_scores_are_a_table_with_the_numbers_of_the_text():
    scores = evaluate(CODES, [0, 0, 1, 1])
    text = scores._repr_html_()
    assert f"<td>mAP</td><td>{scores.map:.4f}" in text
    assert f"<td>precision@H&lt;=2</td><td>{scores.precision_at_radius:.4f}" in text


def test_a_search_result_shows_ids_and_distances():
    result = BucketIndex(n_bits=3).add(CODES, ids=["a", "b", "<c>", "d"]).search(CODES[:2], k=4)
    text = result._repr_html_()
    assert "<td>a (0)</td><td>b (1)</td><td>d (1)</td><td>&lt;c&gt; (3)</td>" in text
    assert "shown" not in text


def test_a_long_search_result_says_what_it_shows():
    index = BucketIndex(n_bits=3).add(np.tile(CODES, (5, 1)))
    text = index.search(np.tile(CODES, (5, 1)), k=12)._repr_html_()
    assert text.count("<tr>") == 11
    assert "the first 10 of 10 queries are shown" in text


def test_advice_and_comparison_are_tables_and_plots(iris):
    X, y = iris
    advice = advise(X, y, lengths=(2, 3), methods=("classifier", "lsh"), n_folds=2)
    assert advice.sentence.split(":")[0] in advice._repr_html_()
    assert f"<td>{advice.rows[0].map:.4f}</td>" in advice._repr_html_()
    result = compare(X, y, lengths=[2, 3], methods=["lsh", "classifier"])
    assert f"<td>{result.rows[0].map:.4f}</td>" in result._repr_html_()
    for drawn in (advice.plot(), result.plot(), result.plot("precision_at_radius")):
        assert len(drawn.containers) == 2  # one curve with bars per method
        assert drawn.get_xlabel() == "bits"


def test_plots_use_the_axes_they_are_given(iris):
    X, y = iris
    hasher = RSLH(n_bits=3, random_state=0).fit(X, y)
    scores = evaluate(hasher.transform(X), y)
    _, axes = plt.subplots(2, 2)
    assert scores.plot(ax=axes[0, 0]) is axes[0, 0]
    assert plot_precision_recall({"a": scores, "b": scores.pr_curve}, ax=axes[0, 1]) is axes[0, 1]
    assert plot_code_map(hasher, X, y, ax=axes[1, 0]) is axes[1, 0]
    assert plot_hypercube(hasher.transform(X), y, ax=axes[1, 1]) is axes[1, 1]
    assert len(plt.get_fignums()) == 1


def test_precision_and_recall_are_drawn_as_they_are():
    curve = evaluate(CODES, [0, 0, 1, 1]).pr_curve
    (line,) = plot_precision_recall(curve).lines
    np.testing.assert_array_equal(line.get_xydata(), np.column_stack([curve.recall, curve.precision]))


def test_distances_without_a_radius_cannot_be_drawn():
    scores = evaluate_distances(np.array([[0.5, 1.5]]), [0], [0, 1])
    with pytest.raises(InvalidInput, match="real-valued distances"):
        scores.plot()


@pytest.mark.parametrize("n_bits", [1, 3, 5])
def test_a_hypercube_has_all_corners_and_edges(n_bits):
    ax = plot_hypercube(np.ones((2, n_bits), dtype=np.int8))
    assert len(ax.lines) == n_bits * 2 ** (n_bits - 1)
    corners = ax.collections[0].get_offsets()
    assert len(np.unique(corners.round(6), axis=0)) == 2**n_bits
    assert [text.get_text() for text in ax.texts] == ["1" * n_bits]


def test_a_hypercube_of_many_bits_is_refused():
    with pytest.raises(InvalidInput, match="at most 5 bits"):
        plot_hypercube(np.ones((2, 6), dtype=np.int8))


@pytest.mark.parametrize(
    "make",
    [
        lambda: RSLH(n_bits=3, random_state=0),
        lambda: make_hasher("rslh", n_bits=3, kernel__n_anchors=20, random_state=0),
    ],
)
def test_codes_as_data_frames(iris, make):
    pandas = pytest.importorskip("pandas")
    X, y = iris
    hasher = make().set_output(transform="pandas").fit(X, y)
    frame = hasher.transform(X)
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == list(hasher.get_feature_names_out()) == ["rslh0", "rslh1", "rslh2"]
    np.testing.assert_array_equal(frame.to_numpy(), make().fit(X, y).transform(X))


def test_the_examples_of_the_guide():
    page = Path(__file__).resolve().parents[1] / "docs" / "guide" / "notebooks.md"
    failed, attempted = doctest.testfile(str(page), module_relative=False)
    assert attempted > 8
    assert failed == 0
