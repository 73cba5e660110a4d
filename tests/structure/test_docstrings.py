"""Docstrings say what the signature says."""

import importlib
import inspect
import pkgutil
import re

import shorthash


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
