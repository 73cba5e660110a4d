import pytest

from shorthash.persistence import saves


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """The classes of saving.py may be saved during a test."""
    monkeypatch.setitem(saves.ESTIMATORS, "Model", "saving:Model")
    monkeypatch.setitem(saves.DATACLASSES, "Sums", "saving:Sums")
