"""Pages: text is escaped, nothing is left blank, nothing is loaded from the network."""

import base64
import io
import sys

import numpy as np
import pytest
from jinja2 import UndefinedError

from shorthash._display import PALETTE
from shorthash.errors import MissingExtra
from shorthash.lab.figures import Page, Section, draw_tie_bounds, image_uri, page_html, render, write_page, write_text
from shorthash.lab.tables import Column, Table

TABLE = Table((Column("bits"), Column("mAP", 2, "high")), ((4, 0.5), (6, 0.7)))


@pytest.fixture(scope="module")
def page():
    figure = draw_tie_bounds([4, 8], [0.5, 0.9], [0.3, 0.88], [0.95, 0.92])
    sections = [
        Section("one", "First <section>", "H<=2 & more", tables={"by length": TABLE}, html="<b>as it is</b>"),
        Section("two", "Second", figures={"ties": (figure, "1 < 2")}, tables={"numbers": TABLE}, folded=True),
    ]
    return Page("A <title>", "R & D", sections, facts=[("0.5", "some <b>label</b>")], footer="made by hand")


def test_text_is_escaped_and_html_is_not(page):
    html = page_html(page)
    assert "A &lt;title&gt;" in html
    assert "some &lt;b&gt;label&lt;/b&gt;" in html
    assert "R &amp; D" in html
    assert "H≤2 &amp; more" in html
    assert "<b>as it is</b>" in html
    assert "</svg>" in html
    assert "<figcaption>1 &lt; 2</figcaption>" in html
    assert '<td class="number best">0.70</td>' in html


def test_tables_may_be_folded(page):
    html = page_html(page)
    assert html.count("<details>") == 1
    assert "<h3>by length</h3>" in html
    assert "<summary>numbers</summary>" in html


def test_what_the_values_lack_is_an_error():
    with pytest.raises(UndefinedError, match="'walls' is undefined"):
        render("wall.html", {})


def test_a_page_needs_no_other_file(page):
    html = page_html(page)
    for outside in ("http://", "https://", "<link", "@import", "src="):
        assert outside not in html.replace("http://www.w3.org", "")
    assert "prefers-color-scheme: dark" in html
    assert 'name="viewport"' in html


def test_dark_and_light_name_the_same_colours(page):
    light, _, dark = page_html(page).partition("prefers-color-scheme: dark")
    for name, colour in PALETTE.items():
        assert f"--{name}: {colour};" in light, "the page and the figures agree on light colours"
        assert f"--{name}: " in dark


def test_files_beside_the_page(page, tmp_path):
    path = write_page(page, tmp_path / "made" / "report")
    names = {file.name for file in path.parent.iterdir()}
    tables = {f"{name}.{ending}" for name in ("one", "two") for ending in ("md", "tex", "csv")}
    assert names == {"index.html", "ties.png", "ties.svg", *tables}
    assert (path.parent / "one.md").read_text().startswith("# First <section>\n\nH<=2 & more\n\n## by length\n")
    alone = write_page(page, tmp_path / "alone", "page.html", files=False)
    assert [file.name for file in alone.parent.iterdir()] == ["page.html"]


def test_images_are_small_and_exact():
    from matplotlib import image

    pixels = np.linspace(0, 1, 64).reshape(8, 8)
    kind, _, encoded = image_uri(pixels).partition(",")
    assert kind == "data:image/png;base64"
    raw = base64.b64decode(encoded)
    assert len(raw) < 400
    back = image.imread(io.BytesIO(raw))[..., 0]
    np.testing.assert_allclose(back, 1 - pixels, atol=1 / 255)


def test_texts_are_written_whole(tmp_path):
    path = write_text(tmp_path / "page.html", "<p>µ</p>")
    assert path.read_bytes() == "<p>µ</p>".encode()
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_without_the_extra(page, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    message = r"Writing a report needs jinja2, which is not installed; .* pip install .*\[report\]'"
    with pytest.raises(MissingExtra, match=message):
        page_html(page)
