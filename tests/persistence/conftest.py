import pytest

from shorthash.persistence import registry


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """The classes of saving.py may be saved during a test."""
    monkeypatch.setitem(registry.ESTIMATORS, "Model", "saving:Model")
    monkeypatch.setitem(registry.DATACLASSES, "Sums", "saving:Sums")
