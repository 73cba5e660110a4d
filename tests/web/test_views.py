"""What the pages show, before any HTML: addresses, codes, Gray order, words."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import shorthash.web
from shorthash import make_hasher
from shorthash.errors import InvalidInput
from shorthash.images import Bucket, Collection
from shorthash.web.pages import bucket_view, gray, gray_rank, map_view, marks_of, place_of
from shorthash.web.service import parse_id
from shorthash.web.views import (
    K_MAX,
    PageQuery,
    bits_view,
    default_radius,
    explanation_views,
    model_view,
    read_code,
    results_view,
    sample_ids,
)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """120 vectors of four classes, 5 bits."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 4
    X = (rng.normal(size=(4, 6))[y] * 3 + rng.normal(size=(120, 6))).astype(np.float32)
    model = make_hasher("rslh", n_bits=5, random_state=0, kernel={"n_anchors": 20}).fit(X, y)
    with Collection.create(tmp_path_factory.mktemp("views") / "vectors", model) as made:
        made.add_vectors(X, labels=[f"class {c}" for c in y], names=[f"v{i}" for i in range(120)])
        yield made


@pytest.mark.parametrize("n_bits", [1, 3, 8, 16])
def test_an_address_is_read_as_it_was_written(n_bits):
    for query in (
        PageQuery(n_bits, id="a b&c=<d>", k=5, radius=0, rerank=True),
        PageQuery(n_bits, code="1" * n_bits, radius=n_bits),
        PageQuery(n_bits, radius=default_radius(n_bits), sample=3),
    ):
        from urllib.parse import parse_qsl

        assert PageQuery.read(dict(parse_qsl(query.url[1:])), n_bits) == query


def test_default_values_are_not_in_the_address():
    assert PageQuery(8, radius=2).url == "?"
    assert PageQuery(8, radius=2, id="7").url == "?id=7"


@pytest.mark.parametrize("text", ["", "nan", "-5", "1e9", "99999999999999999999", "٣", "7; drop", "\0"])
def test_numbers_in_an_address_are_limited(text):
    query = PageQuery.read({"k": text, "radius": text, "sample": text}, 8)
    assert 1 <= query.k <= K_MAX
    assert 0 <= query.radius <= 8
    assert query.sample >= 0


def test_ids_are_numbers_where_the_collection_has_numbers():
    assert parse_id("7", np.array([3, 7])) == 7
    assert parse_id("-7", np.array([3, 7])) == -7
    assert parse_id("7", np.array(["7", "b"])) == "7"
    with pytest.raises(InvalidInput, match="There is no item 'seven': ids are integers here; try 7"):
        parse_id("seven", np.array([3, 7]))
    with pytest.raises(InvalidInput, match="There is no item"):
        parse_id("9" * 5000, np.array([3, 7]))


@pytest.mark.parametrize("text", ["012", "0120", "", "00000", "0b01", "\u0661\u0661\u0661\u0661"])
def test_a_code_is_zeros_and_ones(text):
    assert read_code("0101", 4) == 5
    with pytest.raises(InvalidInput, match="A code is written as 4 zeros and ones here"):
        read_code(text, 4)


def test_differing_bits_are_marked_and_described():
    view = bits_view(0b1010, 4, 0b0011)
    assert [(cell["digit"], cell["differs"]) for cell in view["cells"]] == [
        ("1", True),
        ("0", False),
        ("1", False),
        ("0", True),
    ]
    assert view["description"] == "code 1010, bits 0, 3 differ"
    assert not any(cell["differs"] for cell in bits_view(5, 4)["cells"])


@pytest.mark.parametrize("n_bits", [1, 2, 5, 8])
def test_adjacent_cells_differ_in_one_bit(n_bits):
    places = {place_of(code, n_bits): code for code in range(1 << n_bits)}
    assert len(places) == 1 << n_bits
    for (row, column), code in places.items():
        for beside in ((row + 1, column), (row, column + 1)):
            if beside in places:
                assert (code ^ places[beside]).bit_count() == 1
    assert [gray_rank(gray(i)) for i in range(64)] == list(range(64))


def test_24_classes_have_24_marks_and_different_letters():
    marks = list(marks_of([f"class {i}" for i in range(24)] + ["aa", "aab", "aaB", "", "日本語"]).values())
    assert len({(mark["colour"], mark["shape"]) for mark in marks[:24]}) == 24
    assert len({mark["letters"] for mark in marks}) == len(marks)
    assert all(0 < len(mark["letters"]) <= 3 for mark in marks)


def test_rings_and_buckets_hold_what_was_found(vectors):
    query = PageQuery(5, id="3", k=40, radius=5)
    found = vectors.search(id=3, k=40, radius=5)
    view = results_view(vectors, found, query, "", vectors.items([3])[0])
    shown = [tile["id"] for ring in view["rings"] for bucket in ring["buckets"] for tile in bucket["items"]]
    assert sorted(shown) == sorted(found.ids.tolist())
    for ring in view["rings"]:
        for bucket in ring["buckets"]:
            assert len(bucket["bits"]["differing"]) == ring["distance"]
            assert bucket["load"] >= len(bucket["items"])
    assert sum(bar["total"] for bar in view["bars"]) == 119  # not itself
    assert view["summary"].startswith("40 neighbours at ")
    assert "are class 3" in view["summary"]


def test_re_ranked_results_are_in_one_row_best_first(vectors):
    found = vectors.search(id=3, k=10, radius=5, rerank=True)
    view = results_view(vectors, found, PageQuery(5, id="3", k=10, radius=5, rerank=True), "", vectors.items([3])[0])
    scores = [float(tile["score"]) for tile in view["row"]]
    assert len(scores) == 10
    assert scores == sorted(scores, reverse=True)
    assert not view["rings"]
    assert "best cosine first" in view["summary"]


def test_an_empty_result_says_how_far_the_nearest_is(vectors):
    used = {bucket.code for bucket in vectors.buckets()}
    empty = next(code for code in range(32) if code not in used)
    view = results_view(vectors, vectors.search(code=empty, k=5, radius=0), PageQuery(5, radius=0))
    assert "No item is within 0 bits of this code; the nearest is " in view["empty"]
    assert view["empty"].endswith("so increase the radius.")


def test_samples_are_of_all_classes_and_change(vectors):
    first, second = sample_ids(vectors, 8), sample_ids(vectors, 8, 1)
    assert sorted(vectors.labels_of(first)) == sorted([f"class {c}" for c in range(4)] * 2)
    assert not set(first) & set(second)
    assert len(sample_ids(vectors, 500)) == 120


def test_the_map_has_every_bucket_once_at_its_place(vectors):
    view = map_view(vectors, code=vectors.buckets()[0].code, chosen="class 1")
    assert len(view["cells"]) == len(vectors.buckets())
    assert (view["n_rows"], view["n_columns"]) == (4, 8)
    assert sum(cell["open"] for cell in view["cells"]) == 1
    for cell in view["cells"]:
        assert view["rows"][cell["row"]]["text"] + view["columns"][cell["column"]]["text"] == cell["code"]
    largest = max(vectors.buckets(), key=lambda bucket: bucket.load)
    [biggest] = [cell for cell in view["cells"] if int(cell["code"], 2) == largest.code]
    assert biggest["side"] == max(cell["side"] for cell in view["cells"])
    assert {cell["pale"] for cell in view["cells"]} == {True, False}
    loads = [cell["load"] for cell in view["list"]]
    assert loads == sorted(loads, reverse=True)
    assert {cell["code"] for cell in view["list"]} == {c["code"] for c in view["cells"] if not c["pale"]}
    last = int(view["list"][-1]["code"], 2)
    assert map_view(vectors, looked=[last])["list"][0]["code"] == view["list"][-1]["code"]


def test_long_codes_show_only_buckets_in_use():
    class Long:
        n_bits, classes = 20, {"a": 1500}

        def buckets(self):
            return [Bucket(code * 611, 1 + code % 3, {"a": 1 + code % 3}) for code in range(900)]

    view = map_view(Long())
    assert len(view["cells"]) == 600
    assert len({(cell["row"], cell["column"]) for cell in view["cells"]}) == 600
    assert max(cell["row"] for cell in view["cells"]) < view["n_rows"]
    assert view["description"].startswith(
        "1 048 576 codes are too many to draw: these are the 600 fullest of 900 buckets"
    )
    assert not view["rows"]


def test_an_opened_bucket_has_its_items_classes_and_neighbours(vectors):
    bucket = max(vectors.buckets(), key=lambda one: one.load)
    view = bucket_view(vectors, bucket.code, "", PageQuery(5))
    assert view["load"] == bucket.load == len(view["items"]) + view["more"]
    assert [one["count"] for one in view["classes"]] == list(bucket.classes.values())
    assert [len(one["bits"]["differing"]) for one in view["neighbours"]] == [1] * 5
    loads = {one.code: one.load for one in vectors.buckets()}
    assert [one["load"] for one in view["neighbours"]] == [
        loads.get(bucket.code ^ 1 << bit, 0) for bit in (4, 3, 2, 1, 0)
    ]


def test_bits_are_explained_in_the_order_a_code_is_read(vectors):
    views = explanation_views(vectors, vectors.explain_bits(3), PageQuery(5))
    assert [view["bit"] for view in views] == [4, 3, 2, 1, 0]
    codes = dict(zip(vectors.ids.tolist(), vectors.codes_of(vectors.ids).tolist(), strict=True))
    for view in views:
        off, border, on = (side["items"] for side in view["sides"])
        assert all(codes[tile["id"]] >> view["bit"] & 1 for tile in on)
        assert not any(codes[tile["id"]] >> view["bit"] & 1 for tile in off)
        assert all(codes[tile["id"]] >> view["bit"] & 1 == int(tile["side"]) for tile in border)


def test_the_facts_are_described_in_words(vectors):
    view = model_view(vectors.facts(), vectors.classes)
    json.dumps(view)
    assert {row["name"] for row in view["health"]} >= {"Balance", "Independence", "Spread", "Codes in use", "Purity"}
    assert all(row["share"] is None or 0 <= row["share"] <= 100 for row in view["health"])
    assert view["features"] == "none: the items are vectors"
    assert view["numbers"][3]["what"] == "mAP was not measured when this model was made"
    facts = {**vectors.facts(), "evaluation": {"map": 0.5, "n_queries": 1}, "codes": None, "method": "rslh"}
    measured = model_view(facts, {})
    assert measured["numbers"][3]["value"] == "0.500"
    assert measured["health"] == []


def luminance(colour):
    """Of WCAG 2, from #rrggbb."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def test_text_stands_out_in_light_and_dark():
    css = (Path(shorthash.web.__file__).parent / "static" / "page.css").read_text()
    looks = [dict(re.findall(r"--([\w-]+): (#\w{6});", part)) for part in css.split("@media (prefers-color-scheme")[:2]]
    pairs = [("ink", "ground"), ("ink", "panel"), ("ink", "soft"), ("ink", "accent-soft"), ("ink", "mark-soft")]
    pairs += [("quiet", "ground"), ("quiet", "panel"), ("accent", "panel"), ("accent", "ground"), ("mark", "panel")]
    pairs += [("on-accent", "accent"), ("mark", "mark-soft"), ("panel", "mark"), ("good", "ground"), ("fair", "ground")]
    pairs += [("poor", "ground"), *(("on-k", f"k{i}") for i in range(8))]
    for look in looks:
        for text, ground in pairs:
            bright, dark = sorted((luminance(look[text]), luminance(look[ground])), reverse=True)
            assert (bright + 0.05) / (dark + 0.05) >= 4.5, f"{text} {look[text]} on {ground} {look[ground]}"
