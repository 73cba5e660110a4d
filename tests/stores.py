"""Every store as a maker of fresh, empty ones."""

import functools
import itertools
import os

import pytest
from postgres_server import start_server

from shorthash.store import PostgresStore, SQLiteStore

numbers = itertools.count()


class Maker:
    """Called with a code length, makes an empty store, as a class of index does."""

    def __init__(self, kind, make):
        self.kind, self.make = kind, make
        self.__name__ = kind.__name__

    def __call__(self, n_bits):
        return self.make(n_bits)


@functools.cache
def postgres_server():
    """(URL, reason): where a server listens, or why there is none."""
    given = os.environ.get("SHORTHASH_POSTGRES")
    return (given, "") if given else start_server()


def postgres_url():
    url, reason = postgres_server()
    if url is None:
        pytest.skip(reason)
    return url


@functools.cache
def postgres_connection():
    """One connection shared by the small stores of all tests."""
    return PostgresStore(postgres_url(), n_bits=1, collection=f"first_{os.getpid()}")


def make_postgres(n_bits):
    return postgres_connection().sibling(f"c{os.getpid()}_{next(numbers)}", n_bits)


def with_pgvector(n_bits):
    """A database with the extension, where it can be installed."""
    import psycopg

    with psycopg.connect(postgres_url(), autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchone():
            pytest.skip("pgvector cannot be installed here")
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = 'with_vector'").fetchone():
            connection.execute("CREATE DATABASE with_vector")
    url = postgres_url().replace("/postgres?", "/with_vector?")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    return PostgresStore(url, n_bits, collection=f"c{next(numbers)}")


MAKERS = [
    Maker(SQLiteStore, lambda n_bits: SQLiteStore(":memory:", n_bits=n_bits)),
    Maker(PostgresStore, make_postgres),
]
EVERY_STORE = [pytest.param(maker, id=maker.__name__) for maker in MAKERS]
every_store = pytest.mark.parametrize("make", EVERY_STORE)
