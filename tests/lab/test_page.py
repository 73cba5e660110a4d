"""Pages: text is escaped, nothing is left blank, nothing is asked of the network."""

import base64
import sys

import numpy as np
import pytest
from jinja2 import UndefinedError

from shorthash.errors import MissingExtra
from shorthash.lab.page import image_uri, render_page, table_summary, write_page
from shorthash.lab.tables import Column, Table

SUMMARY = {
    "method": {"name": "m", "full_name": "A <Method>", "reference": "R & D"},
    "data": {"n_rows": 10, "n_features": 4, "n_classes": 2, "n_queries": 3, "n_database": 7},
    "lengths": [4, 6],
    "facts": [{"value": "0.5", "label": "some <b>label</b>"}],
    "table": table_summary(Table((Column("bits"), Column("mAP", 2, "high")), ((4, 0.5), (6, 0.7)))),
    "figures": [{"name": "f", "svg": "<svg><text>drawn</text></svg>", "caption": "1 < 2"}],
    "walls": [],
    "made_with": {"seed": 0, "seconds": 1.5, "shorthash": "1", "python": "3", "numpy": "2", "scikit_learn": "1"},
}


def test_text_is_escaped_and_figures_are_not():
    html = render_page("demo.html", SUMMARY)
    assert "A &lt;Method&gt;" in html
    assert "some &lt;b&gt;label&lt;/b&gt;" in html
    assert "R &amp; D" in html
    assert "<svg><text>drawn</text></svg><figcaption>1 &lt; 2</figcaption>" in html
    assert '<td class="best">0.70</td>' in html


def test_what_the_summary_lacks_is_an_error():
    with pytest.raises(UndefinedError, match="'facts' is undefined"):
        render_page("demo.html", {name: value for name, value in SUMMARY.items() if name != "facts"})


def test_a_page_stands_alone():
    html = render_page("demo.html", SUMMARY)
    for outside in ("http://", "https://", "<script", "<link", "@import", "url("):
        assert outside not in html
    assert "prefers-color-scheme: dark" in html
    assert 'name="viewport"' in html


def test_dark_and_light_name_the_same_colours():
    from shorthash.lab.figures import PALETTE

    html = render_page("demo.html", SUMMARY)
    light, _, dark = html.partition("prefers-color-scheme: dark")
    for name, colour in PALETTE.items():
        assert f"--{name}: {colour};" in light, "the page and the figures agree on light colours"
        assert f"--{name}: " in dark


def test_images_are_small_and_exact():
    from matplotlib import image

    pixels = np.linspace(0, 1, 64).reshape(8, 8)
    kind, _, encoded = image_uri(pixels).partition(",")
    assert kind == "data:image/png;base64"
    raw = base64.b64decode(encoded)
    assert len(raw) < 400
    import io

    back = image.imread(io.BytesIO(raw))[..., 0]
    np.testing.assert_allclose(back, 1 - pixels, atol=1 / 255)


def test_pages_are_written_whole(tmp_path):
    path = write_page(tmp_path / "page.html", "<p>µ</p>")
    assert path.read_bytes() == "<p>µ</p>".encode()
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    message = r"Writing a report needs jinja2, which is not installed; .* pip install 'shorthash\[report\]'"
    with pytest.raises(MissingExtra, match=message):
        render_page("demo.html", SUMMARY)
