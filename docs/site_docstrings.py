"""Docstrings as the API reference shows them.

The sources write an entry on one line where one line suffices, ``ids : (n,) what to remove``. numpydoc expects a type
there and the description below, so entries are taken apart: shape or annotated type, description.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

SECTIONS = {"Parameters", "Other Parameters", "Attributes", "Returns", "Yields"}
WORDS = (
    "int float bool str bytes dict list tuple set callable iterable sequence array array-like ndarray None Path "
    "ints floats strs of or and object instance estimator"
).replace(" ", "|")
TYPE = re.compile(rf"(?:.*,? default=.*|\{{.*\}}.*|(?:(?:{WORDS}|[A-Z]\w+)[ ,]*)+|.*\boptional)$")
SHAPE = re.compile(r"(\([^()]*\))[,:]?\s+(.*)", re.S)
SPELLED = {"ArrayLike": "array-like", "Any": "object", "NDArray": "ndarray", "Floats": "ndarray", "Counts": "ndarray"}


def split_entries(lines: list[str], member: Any) -> list[str]:
    """A docstring whose entries all have a description below their type, and which names what is returned."""
    result: list[str] = []
    titles = []
    for section, body in sections(lines):
        titles.append(section)
        if section in SECTIONS:
            body = [line for entry in entries(body) for line in split_entry([plain(text) for text in entry], member)]
        result += body
    returned = annotated("return", member) if inspect.isfunction(member) and any(titles) else ""
    if returned not in ("", "None") and not {"Returns", "Yields"} & set(titles):
        at = next((i for i, line in enumerate(result) if line in ("Examples", "References", "Notes")), len(result))
        result[at:at] = ["", "Returns", "-------", returned, ""]
    return result


def sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Title and lines of every section, the title's own lines as a part without title."""
    title, body, i = "", [], 0
    while i < len(lines):
        if i + 1 < len(lines) and lines[i].strip() and re.fullmatch(r"-{3,}", lines[i + 1].strip()):
            yield title, body
            yield "", lines[i : i + 2]
            title, body, i = lines[i].strip(), [], i + 2
        else:
            body.append(lines[i])
            i += 1
    yield title, body


def entries(lines: list[str]) -> Iterator[list[str]]:
    """Groups of lines that begin at the margin."""
    entry: list[str] = []
    for line in lines:
        if entry and line and not line[0].isspace():
            yield entry
            entry = []
        entry.append(line)
    yield entry


def split_entry(lines: list[str], member: Any) -> list[str]:
    """One entry, with its type on the first line and its description below."""
    head, *more = lines
    name, colon, rest = head.partition(" : ")
    if not colon or not re.fullmatch(r"[\w*, \\]+", name) or TYPE.fullmatch(rest.strip()):
        return lines
    shape = SHAPE.fullmatch(rest)
    kind, text = shape.groups() if shape else (annotated(name, member), rest)
    kind = f"``{kind}``".replace("\\", "") if shape else kind
    first = f"{name} : {kind}" if kind else name
    return [first, f"    {text}", *more]


def plain(line: str) -> str:
    """Names that end in an underscore, and bars, as they are: not as markup."""
    parts = re.split(r"(``.*?``|`.*?`)", line)
    parts[::2] = [re.sub(r"(?<=\w)_(?!\w)|\|", r"\\\g<0>", part) for part in parts[::2]]
    return "".join(parts)


def annotated(names: str, member: Any) -> str:
    """The annotated type of the first of these names, in words."""
    name = names.split(",")[0].replace("\\", "").strip("* ")
    notes = dict(getattr(member, "__annotations__", {}))
    if inspect.isclass(member):
        notes = {k: v for cls in reversed(member.__mro__) for k, v in vars(cls).get("__annotations__", {}).items()}
        notes |= getattr(member.__init__, "__annotations__", {})
    note = notes.get(name, "")
    text = note if isinstance(note, str) else getattr(note, "__name__", str(note))
    text = re.sub(r"Literal\[(.*?)\]", lambda m: "{" + m.group(1) + "}", text.replace(" | ", " or "))
    text = re.sub(r"\[[^{}]*\]", "", text)
    return re.sub(r"\b[A-Za-z]\w+", lambda m: SPELLED.get(m.group(), m.group()), text)


def process(_app: Any, _what: str, _name: str, member: Any, _options: Any, lines: list[str]) -> None:
    """Take entries apart, and turn 'docs/guide/scale.md' into a link to that page."""
    lines[:] = split_entries(lines, member)
    lines[:] = [re.sub(r"(?<![\w/`])docs/([\w/-]+)\.md", r":doc:`/\1`", line) for line in lines]


def skip_foreign(_app: Any, _what: str, _name: str, member: Any, _skip: bool, _options: Any) -> bool | None:
    """Leave out methods that scikit-learn and others bring along: they are documented there."""
    home = getattr(inspect.unwrap(member) if callable(member) else getattr(member, "fget", None), "__module__", None)
    return True if home and not home.startswith("shorthash") else None


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx, ahead of numpydoc."""
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("autodoc-process-docstring", process, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
