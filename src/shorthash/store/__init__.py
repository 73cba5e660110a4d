"""Codes in a database: durable, shared by processes, with classes, metadata and vectors.

In: codes as an index takes them. Out: what an index gives; ``open_store`` turns a URL into a store.
"""

from shorthash.store.base import Store
from shorthash.store.items import Items
from shorthash.store.postgres import PostgresStore
from shorthash.store.sqlite import SQLiteStore
from shorthash.store.urls import open_store

__all__ = ["Items", "PostgresStore", "SQLiteStore", "Store", "open_store"]
