"""Contact sheets: one HTML file with thumbnails inside, which needs no server and no other file."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from shorthash.data.files import replacing

MOST_PICTURES = 2000  # of a sheet; a thumbnail takes about 15 kB

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem; color: #1c2530; background: #fff; }
h1 { font-size: 1.4rem; }
h2 { font-size: 1rem; margin: 2rem 0 .6rem; border-top: 1px solid #d5dae0; padding-top: .8rem; }
.row { display: flex; flex-wrap: wrap; gap: 14px; }
figure { margin: 0; width: 200px; }
img, .none { width: 200px; height: 150px; object-fit: contain; background: #f0f2f4; }
.none { display: grid; place-items: center; color: #6b7683; }
figcaption { overflow-wrap: anywhere; font-size: 13px; } figcaption b { display: block; font-weight: 600; }
@media (prefers-color-scheme: dark) {
  body { color: #e4e8ec; background: #14181d; } h2 { border-color: #39424c; } img, .none { background: #20262d; }
}
"""


@dataclass(frozen=True)
class Picture:
    """A picture of a sheet.

    Attributes
    ----------
    title : its name
    note : a line below it
    thumbnail : a JPEG, or None
    """

    title: str
    note: str = ""
    thumbnail: bytes | None = None


def write_sheet(
    path: str | os.PathLike[str], title: str, about: str, sections: Sequence[tuple[str, Sequence[Picture]]]
) -> Path:
    """Write a contact sheet; a failure leaves no partial file.

    Parameters
    ----------
    path : the .html file
    title, about : headline, and the line below it
    sections : (headline, pictures); those beyond 2 000 pictures are left out, and the sheet says so

    Examples
    --------
    >>> import tempfile
    >>> path = write_sheet(tempfile.mkdtemp() + "/sheet.html", "<Rome>", "", [("1", [Picture("a&b.jpg")])])
    >>> "&lt;Rome&gt;" in path.read_text(), "a&amp;b.jpg" in path.read_text()
    (True, True)
    """
    shown, n_pictures = [], 0
    for headline, pictures in sections:
        if n_pictures and n_pictures + len(pictures) > MOST_PICTURES:
            break
        n_pictures += len(pictures)
        shown.append(f"<h2>{escape(headline)}</h2>\n<div class=row>{''.join(map(_figure, pictures))}</div>")
    left_out = len(sections) - len(shown)
    note = f"<p>{left_out} more are not on this sheet.</p>" if left_out else ""
    page = (
        f"<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style>\n<h1>{escape(title)}</h1>\n<p>{escape(about)}</p>\n"
        + "\n".join(shown)
        + f"\n{note}</html>\n"
    )
    target = Path(path)
    with replacing(target) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="replace")
    return target


def _figure(picture: Picture) -> str:
    image = "<div class=none>no thumbnail</div>"
    if picture.thumbnail is not None:
        data = base64.b64encode(picture.thumbnail).decode("ascii")
        image = f'<img alt="" src="data:image/jpeg;base64,{data}">'
    return f"<figure>{image}<figcaption><b>{escape(picture.title)}</b>{escape(picture.note)}</figcaption></figure>"
