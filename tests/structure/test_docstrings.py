"""Docstrings say what the signature says."""

import importlib
import inspect
import pkgutil
import re

import pytest

import shorthash

PUBLIC = []
for info in pkgutil.walk_packages(shorthash.__path__, "shorthash."):
    if info.name.endswith("__main__"):
        continue
    module = importlib.import_module(info.name)
    for name in getattr(module, "__all__", []):
        member = getattr(module, name)
        if getattr(member, "__module__", None) == info.name and (inspect.isclass(member) or inspect.isfunction(member)):
            PUBLIC.append(pytest.param(member, id=f"{info.name}.{name}"))


@pytest.mark.parametrize("member", PUBLIC)
def test_everything_public_is_documented(member):
    assert (member.__doc__ or "").strip()


@pytest.mark.parametrize("member", PUBLIC)
def test_documented_parameters_exist_and_stated_defaults_are_true(member):
    text = inspect.getdoc(member) or ""
    section = re.search(r"Parameters\n-+\n(.*?)(?:\n\n[A-Z][a-z]+\n-+\n|\Z)", text, re.S)
    if section is None or not callable(member):
        return
    signature = inspect.signature(member)
    for names, rest in re.findall(r"^([\w*]+(?:, [\w*]+)*) :(.*)$", section.group(1), re.M):
        for name in names.replace("*", "").split(", "):
            assert name in signature.parameters, f"{name} is documented but not a parameter"
            stated = re.search(r"default=(\S+)$", rest)
            if stated:
                actual = signature.parameters[name].default
                assert stated.group(1).strip('"') == str(actual).strip("'") or float(stated.group(1)) == actual
