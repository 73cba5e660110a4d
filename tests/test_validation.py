"""The command that installs an extra works from where the user stands."""

import json
from importlib import metadata
from types import SimpleNamespace

import pytest

from shorthash._validation import install_command


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'shorthash[web]'"),  # from a package index
        ({"url": "https://example.org/shorthash.whl", "archive_info": {}}, "pip install 'shorthash[web]'"),
        ({"url": "file:///gone", "dir_info": {}}, "pip install 'shorthash[web]'"),
        ({"url": "FOLDER", "dir_info": {}}, "pip install 'PATH[web]'"),
        ({"url": "FOLDER", "dir_info": {"editable": True}}, "pip install -e 'PATH[web]'"),
    ],
)
def test_extras_are_installed_from_where_the_package_came_from(monkeypatch, tmp_path, origin, command):
    clone = tmp_path / "a clone"
    clone.mkdir()
    text = None if origin is None else json.dumps(origin).replace("FOLDER", clone.as_uri())
    monkeypatch.setattr(metadata, "distribution", lambda _name: SimpleNamespace(read_text=lambda _file: text))
    assert install_command("web") == command.replace("PATH", str(clone))


def test_a_package_that_is_only_on_the_path(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert install_command("web") == "pip install 'shorthash[web]'"
