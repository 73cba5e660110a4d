"""Maps of codes: what is drawn is what was given, and neighbours are one bit apart."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from shorthash.codes import unpack
from shorthash.errors import InvalidInput
from shorthash.lab.figures import to_svg
from shorthash.lab.maps import _gray_grid, draw_bucket_map, draw_code_map, place_codes, spread


def words(figure):
    svg = ET.fromstring(to_svg(figure, "f"))
    return [element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")]


def codes_of(packed, n_bits):
    return unpack(np.asarray(packed, dtype=np.uint16), n_bits)


@pytest.fixture(scope="module")
def drawn():
    return draw_bucket_map(codes_of([3, 3, 3, 3, 0, 0, 0, 1], 2), np.repeat(["cat", "dog"], [5, 3]))


def test_bucket_map_names_classes_and_counts(drawn):
    shown = words(drawn)
    assert "2 bits: 3 of 4 buckets hold items" in shown
    assert sorted(shown[:-1]) == ["1", "3", "4", "cat", "dog", "dog cat"]
    assert len(drawn.axes[0].patches) == 3


def test_bucket_map_shades_by_occupancy(drawn):
    alphas = sorted(patch.get_alpha() for patch in drawn.axes[0].patches)
    np.testing.assert_allclose(alphas, [0.15 + 0.85 * count / 4 for count in (1, 3, 4)])


@pytest.mark.parametrize("n_bits", [1, 3, 8, 12])
def test_bucket_map_of_any_length(n_bits):
    figure = draw_bucket_map(codes_of([0, 1], n_bits), ["a", "b"])
    assert words(figure)[-1] == f"{n_bits} bits: 2 of {2**n_bits} buckets hold items"


@pytest.mark.parametrize("n_bits", range(1, 11))
def test_neighbours_on_the_map_differ_in_one_bit(n_bits):
    grid = _gray_grid(n_bits)
    assert sorted(grid.ravel()) == list(range(2**n_bits))
    for axis in (0, 1):
        if grid.shape[axis] > 1:
            assert (np.bitwise_count(grid ^ np.roll(grid, 1, axis)) == 1).all()


def test_bucket_map_of_long_codes():
    with pytest.raises(InvalidInput, match=r"A bucket map needs codes of at most 12 bits\. Got 13 instead\."):
        draw_bucket_map(codes_of([0], 13), ["a"])


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
