"""Docstrings say what the signature says."""

import importlib
import inspect
import pkgutil
import re
import sys
from dataclasses import is_dataclass
from pathlib import Path

import pytest

import shorthash

DOCS = Path(__file__).resolve().parents[2] / "docs"


def public_members():
    """Every public class and function, by its full name."""
    for info in pkgutil.walk_packages(shorthash.__path__, "shorthash."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        for name, member in vars(module).items():
            ours = getattr(member, "__module__", None) == info.name and not name.startswith("_")
            if ours and (inspect.isclass(member) or inspect.isfunction(member)):
                yield f"{info.name}.{name}", member


PUBLIC = dict(public_members())


def documented_parameters(member):
    """(name, text after the colon) of every entry of a docstring's Parameters section."""
    section = re.search(r"Parameters\n-+\n(.*?)(?:\n\n[A-Z][a-z]+\n-+\n|\Z)", inspect.getdoc(member) or "", re.S)
    if section:
        for names, rest in re.findall(r"^([\w*]+(?:, [\w*]+)*) :(.*)$", section.group(1), re.M):
            yield from ((name, rest) for name in names.replace("*", "").split(", "))


def is_default(stated, actual):
    if stated.strip('"') == str(actual).strip("'"):
        return True
    try:
        return float(stated) == actual
    except ValueError:
        return False


def test_everything_public_is_documented():
    assert len(PUBLIC) > 100
    silent = [name for name, member in PUBLIC.items() if not (member.__doc__ or "").strip()]
    assert not silent


def test_documented_parameters_exist_and_stated_defaults_are_true():
    wrong = []
    for full_name, member in PUBLIC.items():
        for name, rest in documented_parameters(member):
            parameter = inspect.signature(member).parameters.get(name)
            stated = re.search(r"default=(\S+)$", rest)
            if parameter is None:
                wrong.append(f"{full_name}: {name} is documented but not a parameter")
            elif stated and not is_default(stated.group(1), parameter.default):
                wrong.append(f"{full_name}: {name} is {parameter.default!r} by default, not {stated.group(1)}")
    assert not wrong, "\n".join(wrong)


IGNORED = {  # checks of numpydoc that are not ours, and why
    "ES01": "one sentence may be enough",
    "GL08": "without a docstring: test_everything_public_is_documented",
    "PR03": "one entry may describe several parameters",
    "PR08": "entries are phrases",
    "PR09": "entries are phrases",
    "RT02": "entries are phrases",
    "RT03": "the summary says what is returned",
    "RT04": "entries are phrases",
    "RT05": "entries are phrases",
    "SA01": "the reference lists related names together",
    "SS05": "takes nouns for verbs",
}


def made_by_users(member):
    """Whether a class is one that users make, rather than a result, an error or an abstract class."""
    is_result = is_dataclass(member) and not hasattr(member, "fit")
    is_base = inspect.isabstract(member) or member.__name__ == "Store"
    return not (is_result or is_base or issubclass(member, tuple | Exception))


def test_the_api_reference_is_valid_numpydoc(monkeypatch):
    """As it is shown: the entries taken apart by docs/site_docstrings.py."""
    pytest.importorskip("numpydoc")
    from numpydoc.docscrape import get_doc_object
    from numpydoc.validate import Validator, validate

    monkeypatch.syspath_prepend(str(DOCS))
    for name in ("site_pages", "site_docstrings"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    pages, docstrings = importlib.import_module("site_pages"), importlib.import_module("site_docstrings")
    names = [name for listed in pages.public_names().values() for name in listed]
    assert len(names) > 150
    wrong, without = [], set()
    for name in names:
        member = Validator._load_obj(name)
        if not inspect.isclass(member) and not inspect.isfunction(member):
            continue
        text = "\n".join(docstrings.split_entries((inspect.getdoc(member) or "").splitlines(), member))
        errors = dict(validate(get_doc_object(member, doc=text))["errors"])
        made = not inspect.isclass(member) or made_by_users(member)
        without |= {name.removeprefix("shorthash.")} if "EX01" in errors and made else set()
        kept = {code for code in errors if code not in IGNORED and code != "EX01"}
        wrong += [f"{name}: {code} {errors[code]}" for code in sorted(kept) if made or code != "PR01"]
    assert not wrong, "\n".join(wrong)
    assert not without, f"public names without an example: {', '.join(sorted(without))}"
