"""The durable half of a collection: a SQLite store that also lists everything quickly and knows contents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shorthash.images.results import Label
from shorthash.images.table import ItemTable
from shorthash.store.items import as_ids_array, from_signed
from shorthash.store.sql import as_json_list
from shorthash.store.sqlite import SQLiteStore

__all__ = ["ItemStore"]

BLOCK = 1 << 16  # rows held as Python objects at once
CONTENT = "json_extract(metadata, '$.content')"


class ItemStore(SQLiteStore):
    """Items in one SQLite file; metadata hold name, content and source of images."""

    @property
    def next_id(self) -> int:
        """The number of the next item; those of removed items are not given again."""
        with self._reading() as session:
            return session.collection.last_id + 1

    def index_contents(self) -> None:
        """Make looking up contents quick."""
        with self._writing() as session:
            session.run(f"CREATE INDEX IF NOT EXISTS {self.collection}_content ON {self.collection}({CONTENT})")

    def holders(self, contents: Sequence[str]) -> dict[str, Any]:
        """Content -> id of the item that has it, for contents that are known."""
        sql = f"SELECT {CONTENT}, id FROM {self.collection} WHERE {CONTENT} IN (SELECT value FROM json_each(?))"
        with self._reading() as session:
            return dict(session.run(sql, [as_json_list(contents)]))

    def table(self) -> ItemTable:
        """Ids, codes and labels of all items."""
        column = self._version.column
        ids: list[Any] = []
        codes: list[int] = []
        numbers: list[int] = []
        known: dict[Label, int] = {None: -1}
        with self._reading() as session:
            kind = session.collection.id_kind
            for block in session.stream(f"SELECT id, {column}, class FROM {self.collection}", [], BLOCK):
                ids += [row[0] for row in block]
                codes += [row[1] for row in block]
                numbers += [known.setdefault(row[2], len(known) - 1) for row in block]
        names = tuple(label for label in known if label is not None)
        values = as_ids_array(ids, kind)
        order = np.argsort(values, kind="stable")
        packed = from_signed(codes, self.n_bits)
        return ItemTable(values[order], packed[order], np.array(numbers, dtype=np.int32)[order], names)
