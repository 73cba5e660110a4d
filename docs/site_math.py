"""Formulas as MathML, made when the site is built: no script and no network, and screen readers can read them.

The font with which they are drawn, STIX Two Math, comes with the package ziamath.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FONT = "STIXTwoMath-Regular"
# what latex2mathml does not know, in terms of what it knows
SPELLINGS = {
    r"\\operatorname\{(\w+)\}": r"\\mathrm{\1}",
    r"\\arg(?![a-z])": r"\\mathrm{arg}\\,",
    r"\\[td]frac": r"\\frac",
}
# bars of norms and absolute values, which would otherwise grow with the line and stand apart like relations
BARS = re.compile(r'<mo(?: (?:fence|stretchy)="false")*>(&#x02016;|&#x0007C;|&#x02225;)</mo>')


def to_mathml(formula: str, *, display: bool) -> str:
    """A formula as a ``math`` element."""
    from latex2mathml.converter import convert

    for pattern, spelling in SPELLINGS.items():
        formula = re.sub(pattern, spelling, formula)
    element = convert(formula, display="block" if display else "inline")
    element = BARS.sub(r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>', element)
    if unknown := re.findall(r"<m[io]>(\\\w+)</m[io]>", element):
        raise ValueError(f"unknown commands {unknown} in the formula {formula!r}")
    return element


def visit_math(self: Any, node: Any) -> None:
    """Write a formula within a sentence."""
    from docutils import nodes

    self.body.append(f'<span class="formula">{to_mathml(node.astext(), display=False)}</span>')
    raise nodes.SkipNode


def visit_displaymath(self: Any, node: Any) -> None:
    """Write a formula of its own; it can be scrolled where the page is narrow."""
    from docutils import nodes

    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    formula = to_mathml(node.astext(), display=True)
    self.body.append(f'<div class="formula" tabindex="0">{number}{formula}</div>\n')
    raise nodes.SkipNode


def write_font(app: Any, error: Exception | None) -> None:
    """Put the font beside the style sheet, compressed."""
    spec = find_spec("ziamath")
    if error or spec is None or spec.origin is None or app.builder.format != "html":
        return
    from fontTools.ttLib import TTFont

    font = TTFont(Path(spec.origin).parent / "fonts" / f"{FONT}.ttf")
    font.flavor = "woff"
    font.save(Path(app.outdir) / "_static" / f"{FONT}.woff")


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer with Sphinx."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
    app.config.html_math_renderer = "mathml"
    app.connect("build-finished", write_font)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
