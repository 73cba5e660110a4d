"""Figures: what is drawn is what was given; the same input is the same picture."""

import re
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from shorthash import evaluate
from shorthash.codes import unpack
from shorthash.errors import InvalidInput, MissingExtra
from shorthash.lab.figures import (
    PALETTE,
    _gray_grid,
    draw_bucket_map,
    draw_convergence,
    draw_pr_curve,
    draw_precision_at_k,
    draw_tie_bounds,
    save_figure,
    to_svg,
)

SVG = "{http://www.w3.org/2000/svg}"


def words(svg):
    """All text of a figure."""
    return [element.text for element in ET.fromstring(svg).iter(f"{SVG}text")]


def codes_of(packed, n_bits):
    return unpack(np.asarray(packed, dtype=np.uint16), n_bits)


@pytest.fixture(scope="module")
def scores():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=80)
    scored = {}
    for n_bits in (2, 5):
        codes = codes_of((y + 4 * rng.integers(2, size=80)) % 2**n_bits, n_bits)
        scored[f"{n_bits} bits"] = evaluate(codes[:20], y[:20], codes[20:], y[20:], k=(1, 5, 20))
    return scored


@pytest.fixture(scope="module")
def drawn(scores):
    """One of every figure."""
    labels = np.repeat(["cat", "dog"], [5, 3])
    return {
        "ties": draw_tie_bounds([4, 8], [0.5, 0.9], [0.3, 0.88], [0.95, 0.92]),
        "convergence": draw_convergence({"4 bits": [[200.0, 100.0], [100.0, 90.0, 80.0]], "6 bits": [[10.0]]}),
        "pr": draw_pr_curve({name: score.pr_curve for name, score in scores.items()}),
        "k": draw_precision_at_k({name: score.precision_at_k for name, score in scores.items()}),
        "map": draw_bucket_map(codes_of([3, 3, 3, 3, 0, 0, 0, 1], 2), labels),
    }


def test_every_figure_is_well_formed_and_repeatable(drawn):
    for name, figure in drawn.items():
        text = to_svg(figure, name)
        assert text == to_svg(figure, name)
        assert ET.fromstring(text).tag == f"{SVG}svg"
        assert all(i.startswith(f"{name}-") for i in re.findall(r'\bid="([^"]*)"', text))
        assert all(i.startswith(f"{name}-") for i in re.findall(r'(?:href="|url\()#([^")]*)', text))


def test_pages_decide_on_colours(drawn):
    for name, figure in drawn.items():
        text = to_svg(figure, name)
        assert "var(--ink)" in text
        assert not set(re.findall(r"#[0-9a-f]{6}\b", text)), f"{name} has a colour that no page can change"
    assert len(set(PALETTE.values())) == len(PALETTE)


def test_tie_bounds_show_value_and_range(drawn):
    shown = words(to_svg(drawn["ties"], "ties"))
    assert {"0.500", "0.900", "best 0.95", "worst 0.30", "4", "8"} <= set(shown)
    assert "worst 0.88" not in shown, "a narrow range has no room for words"
    bars = [(patch.get_y(), patch.get_y() + patch.get_height()) for patch in drawn["ties"].axes[0].patches]
    np.testing.assert_allclose(bars, [(0.3, 0.95), (0.88, 0.92)])


def test_convergence_is_per_cent_of_the_first(drawn):
    lines = [line.get_ydata().tolist() for line in drawn["convergence"].axes[0].lines]
    np.testing.assert_allclose(lines[0], [100, 50])
    np.testing.assert_allclose(lines[1], [100, 90, 80])
    legend = [text.get_text() for text in drawn["convergence"].axes[0].get_legend().get_texts()]
    assert legend == ["4 bits", "6 bits"], "one entry per name, however many runs"


def test_pr_curve_draws_the_scores_and_names_radii(drawn, scores):
    for line, score in zip(drawn["pr"].axes[0].lines, scores.values(), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), score.pr_curve.recall)
        np.testing.assert_array_equal(line.get_ydata(), score.pr_curve.precision)
    named = [word for word in words(to_svg(drawn["pr"], "pr")) if word.startswith("radius ")]
    assert sorted("".join(named).replace("radius", " ").replace(",", " ").split()) == ["0", "1", "2"]


def test_precision_at_k_draws_the_scores(drawn, scores):
    for line, score in zip(drawn["k"].axes[0].lines, scores.values(), strict=True):
        assert dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) == score.precision_at_k


def test_precision_at_a_single_k(scores):
    assert len(draw_precision_at_k({"one": {10: 0.5}}).axes[0].lines) == 1


def test_bucket_map_names_classes_and_counts(drawn):
    shown = words(to_svg(drawn["map"], "map"))
    assert "2 bits: 3 of 4 buckets hold items" in shown
    assert sorted(shown[:-1]) == ["1", "3", "4", "cat", "dog", "dog cat"]
    assert len(drawn["map"].axes[0].patches) == 3


def test_bucket_map_shades_by_occupancy(drawn):
    alphas = sorted(patch.get_alpha() for patch in drawn["map"].axes[0].patches)
    np.testing.assert_allclose(alphas, [0.15 + 0.85 * count / 4 for count in (1, 3, 4)])


@pytest.mark.parametrize("n_bits", [1, 3, 8, 12])
def test_bucket_map_of_any_length(n_bits):
    figure = draw_bucket_map(codes_of([0, 1], n_bits))
    assert words(to_svg(figure, "m"))[-1] == f"{n_bits} bits: 2 of {2**n_bits} buckets hold items"


@pytest.mark.parametrize("n_bits", range(1, 11))
def test_neighbours_on_the_map_differ_in_one_bit(n_bits):
    grid = _gray_grid(n_bits)
    assert sorted(grid.ravel()) == list(range(2**n_bits))
    for axis in (0, 1):
        if grid.shape[axis] > 1:
            assert (np.bitwise_count(grid ^ np.roll(grid, 1, axis)) == 1).all()


def test_bucket_map_of_long_codes():
    with pytest.raises(InvalidInput, match=r"A bucket map needs codes of at most 12 bits\. Got 13 instead\."):
        draw_bucket_map(codes_of([0], 13))


@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_figures_are_saved_whole_and_without_a_date(drawn, tmp_path, ending, begins):
    first = save_figure(drawn["ties"], tmp_path / f"a.{ending}").read_bytes()
    assert first.startswith(begins)
    assert save_figure(drawn["ties"], tmp_path / f"b.{ending}").read_bytes() == first


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = r"Drawing figures needs matplotlib, which is not installed; .* pip install 'shorthash\[report\]'"
    with pytest.raises(MissingExtra, match=message):
        draw_tie_bounds([4], [0.5], [0.3], [0.9])
