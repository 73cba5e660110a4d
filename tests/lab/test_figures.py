"""Figures: what is drawn is what was given; the same input is the same picture."""

import math
import re
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from shorthash import evaluate, plot_precision_recall
from shorthash.codes import unpack
from shorthash.errors import MissingExtra
from shorthash.lab.figures import (
    PALETTE,
    draw_convergence,
    draw_heat_map,
    draw_precision_at_k,
    draw_tie_bounds,
    figure_of,
    line_style,
    plot_scores_by_length,
    save_figure,
    to_svg,
)
from shorthash.lab.maps import draw_bucket_map

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
        "pr": figure_of(plot_precision_recall, {name: score.pr_curve for name, score in scores.items()}, title="PR"),
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
    legend = [text.get_text() for text in drawn["convergence"].legends[0].get_texts()]
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
    assert len(draw_precision_at_k({"one": {10: 0.5}}).axes[0].lines) == 1, "a single k has no scale"


def test_the_first_lines_look_different():
    assert len({tuple(line_style(i).items()) for i in range(18)}) == 18


def test_lines_carry_their_numbers():
    curves = {"RSLH": {8: (0.5, 0.01), 4: (0.4, math.nan)}, "SH": {64: (0.2, 0.0)}, "absent": {}}
    figure = figure_of(plot_scores_by_length, curves, title="CIFAR-10", score="precision@H<=2")
    lines = {c.get_label(): c.lines[0].get_xydata().tolist() for c in figure.axes[0].containers}
    assert lines == {"RSLH": [[4.0, 0.4], [8.0, 0.5]], "SH": [[64.0, 0.2]]}
    assert {"CIFAR-10", "bits", "precision@H≤2", "4", "8", "64", "RSLH", "SH"} <= set(words(to_svg(figure, "f")))
    assert "absent" not in words(to_svg(figure, "f"))


def test_lengths_that_would_overlap_have_no_name():
    curve = dict.fromkeys(range(4, 65), (0.5, 0.0))
    named = [
        text.get_text()
        for text in figure_of(plot_scores_by_length, {"RSLH": curve}, title="t", score="mAP").axes[0].get_xticklabels()
    ]
    assert named[0] == "4"
    assert "" in named
    assert len([name for name in named if name]) < 20


def test_styles_can_be_set():
    curves = {"a": {4: (0.5, 0.1)}, "b": {4: (0.6, 0.1)}}
    axes = figure_of(plot_scores_by_length, curves, title="t", score="mAP", styles={"a": {"color": "#123456"}}).axes[0]
    assert [c.lines[0].get_color() for c in axes.containers] == ["#123456", line_style(1)["color"]]


def test_nothing_to_draw_is_an_empty_figure():
    assert "bits" in words(to_svg(figure_of(plot_scores_by_length, {}, title="t", score="mAP"), "f"))
    assert "iteration" in words(to_svg(draw_convergence({"CIFAR-10": []}), "f"))


def test_heat_map_numbers_every_cell_in_its_place():
    values = [[0.1, 0.2, math.nan], [0.4, 0.5, 0.6]]
    axes = draw_heat_map(values, [1.0, 10.0], [1e-5, 1.0, 10.0], title="t", names=("alpha", "gamma")).axes[0]
    placed = {text.get_position(): text.get_text() for text in axes.texts}
    assert placed[0.5, 0.5] == "0.100"
    assert placed[2.5, 1.5] == "0.600"
    assert placed[2.5, 0.5] == "-"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "10"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1e-05", "1", "10"]


def test_a_flat_heat_map_and_an_empty_one_can_be_drawn():
    for value in (0.5, math.nan):
        draw_heat_map(np.full((2, 2), value), [1, 2], [1, 2], title="t", names=("a", "b"))


def test_convergence_from_the_starting_point():
    axes = draw_convergence({"VOC2012": [[400.0, 200.0, 100.0, 50.0]]}, first=0).axes[0]
    line = axes.lines[0]
    assert line.get_xdata().tolist() == [0, 1, 2, 3]
    assert line.get_ydata().tolist() == pytest.approx([100, 50, 25, 12.5])
    assert axes.get_ylim()[0] < 12.5
    assert axes.get_ylim()[1] > 100


@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_figures_are_saved_whole_and_without_a_date(drawn, tmp_path, ending, begins):
    first = save_figure(drawn["ties"], tmp_path / f"a.{ending}").read_bytes()
    assert first.startswith(begins)
    assert save_figure(drawn["ties"], tmp_path / f"b.{ending}").read_bytes() == first


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = r"Drawing figures needs matplotlib, which is not installed; .* pip install .*\[report\]'"
    with pytest.raises(MissingExtra, match=message):
        draw_tie_bounds([4], [0.5], [0.3], [0.9])


def test_an_axis_that_does_not_begin_at_0_has_a_break():
    strokes = [
        [line for line in draw_convergence({"a": [values]}).axes[0].get_lines() if line.get_gid() == "axis-break"]
        for values in ([100.0, 98.0], [100.0, 1.0])
    ]
    assert [len(lines) for lines in strokes] == [1, 0]
