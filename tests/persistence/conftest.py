import pytest

from shorthash.persistence import values


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """The classes of saving.py may be saved during a test."""
    monkeypatch.setitem(values.ESTIMATORS, "Model", "saving:Model")
    monkeypatch.setitem(values.DATACLASSES, "Sums", "saving:Sums")
