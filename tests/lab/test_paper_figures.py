"""Figures of the paper: what is drawn is what was given, and every line can be told from every other."""

import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from shorthash.codes import unpack
from shorthash.lab.code_map import draw_code_map, place_codes, spread
from shorthash.lab.figures import to_svg
from shorthash.lab.paper_figures import (
    STYLES,
    draw_heat_map,
    draw_objective,
    draw_scores_by_length,
    line_style,
)


def words(figure):
    svg = ET.fromstring(to_svg(figure, "f"))
    return [element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")]


def test_every_method_of_the_paper_has_a_look_of_its_own():
    looks = {(s["color"], s["marker"], s.get("linestyle"), s.get("markerfacecolor")) for s in STYLES.values()}
    assert len(looks) == len(STYLES) == 13
    others = {tuple(sorted(line_style(f"method {i}", i).items())) for i in range(18)}
    assert len(others) == 18


def test_recipes_look_like_their_methods():
    assert line_style("pcaitq", 3) == line_style("PCA-ITQ", 0)
    assert line_style("rslh", 5) == line_style("RSLH", 0)
    assert line_style("classifier code", 5) == line_style("classifier", 0)


def test_lines_carry_their_numbers():
    curves = {"RSLH": {8: (0.5, 0.01), 4: (0.4, math.nan)}, "SH": {64: (0.2, 0.0)}, "absent": {}}
    figure = draw_scores_by_length(curves, title="CIFAR-10", score="precision@H<=2")
    lines = {c.get_label(): c.lines[0].get_xydata().tolist() for c in figure.axes[0].containers}
    assert lines == {"RSLH": [[4.0, 0.4], [8.0, 0.5]], "SH": [[64.0, 0.2]]}
    assert {"CIFAR-10", "bits", "precision@H≤2", "4", "8", "64", "RSLH", "SH"} <= set(words(figure))
    assert "absent" not in words(figure)


def test_lengths_that_would_overlap_have_no_name():
    curve = dict.fromkeys(range(4, 65), (0.5, 0.0))
    named = [text.get_text() for text in draw_scores_by_length({"RSLH": curve}, title="t").axes[0].get_xticklabels()]
    assert named[0] == "4"
    assert "" in named
    assert len([name for name in named if name]) < 20


def test_nothing_to_draw_is_an_empty_figure():
    assert "bits" in words(draw_scores_by_length({}, title="t"))
    assert "iteration" in words(draw_objective({"CIFAR-10": []}, title="t"))


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


@pytest.mark.parametrize(
    ("from_start", "x", "y"), [(False, [1, 2, 3], [100, 50, 25]), (True, [0, 1, 2, 3], [100, 50, 25, 12.5])]
)
def test_objective_in_per_cent(from_start, x, y):
    axes = draw_objective({"VOC2012": [(400.0, [200.0, 100.0, 50.0])]}, title="t", from_start=from_start).axes[0]
    line = axes.lines[0]
    assert line.get_xdata().tolist() == x
    assert line.get_ydata().tolist() == pytest.approx(y)
    assert axes.get_ylim()[0] < min(y)
    assert axes.get_ylim()[1] > 100


def test_discs_hold_their_samples_and_never_touch(seed):
    rng = np.random.default_rng(seed)
    packed = rng.choice(16, size=400, p=np.r_[0.4, np.full(15, 0.04)]).astype(np.uint8)
    distinct, members = np.unique(packed, return_inverse=True)
    centres = place_codes(unpack(distinct, 4), seed)
    points = spread(centres, members, np.bincount(members), seed)
    radius = [np.linalg.norm(points[members == i] - centres[i], axis=1).max() for i in range(len(distinct))]
    for i in range(len(distinct)):
        for j in range(i):
            assert np.linalg.norm(centres[i] - centres[j]) > radius[i] + radius[j]
    assert len(np.unique(points.round(9), axis=0)) == 400, "no two samples on one spot"


@pytest.mark.parametrize("n_codes", [1, 2, 3, 4])
def test_few_codes_can_be_drawn(n_codes):
    packed = np.arange(12) % n_codes
    figure = draw_code_map(unpack(packed.astype(np.uint8), 4), np.arange(12) % 2, title="RSLH, 4 bits")
    assert {"RSLH, 4 bits", "class", "0", "1"} <= set(words(figure))


def test_code_map_is_the_same_every_time_and_names_large_discs():
    codes = unpack(np.repeat([0, 5, 9, 15, 6], [50, 40, 30, 20, 1]).astype(np.uint8), 4)
    classes = np.repeat([3, 4, 5, 6, 7], [50, 40, 30, 20, 1])
    svgs = {to_svg(draw_code_map(codes, classes, title="t"), "f") for _ in range(2)}
    assert len(svgs) == 1
    named = [word for word in words(draw_code_map(codes, classes, title="t")) if ":" in word]
    assert sorted(word.split(": ")[1] for word in named) == ["3", "4", "5", "6"], "one sample is not worth a name"


def test_a_code_has_the_same_place_in_every_figure():
    some, others = np.array([1, 5, 9], dtype=np.uint8), np.array([2, 5, 12, 9], dtype=np.uint8)
    first, second = place_codes(unpack(some, 4)), place_codes(unpack(others, 4))
    assert first[1].tolist() == second[1].tolist()
    assert first[2].tolist() == second[3].tolist()


def test_longer_codes_are_placed_too():
    packed = np.array([0, 1, 200, 255, 77, 78], dtype=np.uint8)
    assert place_codes(unpack(packed, 8)).shape == (6, 2)
    assert place_codes(unpack(packed[:2], 8)).tolist() == [[0.0, 0.0], [1.0, 0.0]]
