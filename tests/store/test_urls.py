"""URLs become stores."""

import sys

import pytest
from stores import numbers, postgres_url

from shorthash.errors import InvalidInput, MissingExtra
from shorthash.store import PostgresStore, SQLiteStore, open_store


def test_every_kind_of_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for url, kind, made in [
        ("sqlite:///a.db", SQLiteStore, "a.db"),
        (f"sqlite:///{tmp_path}/b.db", SQLiteStore, "b.db"),
        ("sqlite://:memory:", SQLiteStore, None),
        (postgres_url(), PostgresStore, None),
    ]:
        with open_store(url, 8, collection=f"c{next(numbers)}", version="first") as store:
            assert type(store) is kind
            assert (store.add([1, 2, 3]).search([2], 1).ids.tolist(), store.version) == ([[1]], "first")
        assert made is None or (tmp_path / made).exists()


def test_what_is_no_url_of_a_store():
    for url, message in [
        ("mysql://me:secret@host/x", r"must begin with one of sqlite://, postgresql://, .* Got 'mysql://...' instead"),
        ("a.db", "Got 'a.db' instead"),
        (7, "Got '7' instead"),
        ("sqlite://a.db", "must be sqlite:///FILE, three slashes. Got 'sqlite://a.db' instead"),
        ("sqlite:///", "must be sqlite:///FILE"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            open_store(url, 8)


def test_the_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"PostgresStore needs psycopg.*pip install .*\[postgres\]'"):
        open_store("postgresql://localhost/x", 8)
