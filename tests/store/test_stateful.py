"""Random interleavings of everything a store can do that an index can, against a dictionary."""

import numpy as np
import pytest
import stores
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test
from index.test_stateful import Interleavings

from shorthash.store import SQLiteStore


class StoreInterleavings(Interleavings):
    make = None

    @initialize(n_bits=st.integers(1, 64), strings=st.booleans())
    def start(self, n_bits, strings):
        self.n_bits, self.strings = n_bits, strings
        self.indexes = [type(self).make(n_bits)]
        self.model, self.removed, self.next_id = {}, [], 0

    @rule()
    def settle(self):
        """Nothing is pending in a store."""

    @rule()
    def reload(self):
        """Another object for the same collection."""
        self.indexes = [index.at("v1") for index in self.indexes]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def upsert(self, data):
        ids = self.draw_known(data)
        codes = self.draw_codes(data, len(ids))
        self.both(lambda index: index.upsert(np.array(codes, dtype=np.uint64), np.array(ids, dtype=object)))
        for i in ids:
            del self.model[i]
        self.model.update(zip(ids, codes, strict=True))


@stores.every_store
def test_random_interleavings(make):
    machine = type("Machine", (StoreInterleavings,), {"make": make})
    examples = 30 if make.kind is SQLiteStore else 10
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=20, deadline=None))


def test_random_interleavings_in_a_file_that_is_closed_and_opened(tmp_path):
    class Machine(StoreInterleavings):
        @initialize(n_bits=st.integers(1, 64), strings=st.booleans())
        def start(self, n_bits, strings):
            self.path = tmp_path / f"{next(stores.numbers)}.db"
            type(self).make = lambda n_bits: SQLiteStore(self.path, n_bits)
            super().start(n_bits, strings)

        @rule()
        def reload(self):
            self.indexes[0].close()
            self.indexes = [SQLiteStore(self.path)]

        def teardown(self):
            for index in getattr(self, "indexes", ()):
                index.close()

    run_state_machine_as_test(Machine, settings=settings(max_examples=10, stateful_step_count=20, deadline=None))


def test_the_machine_would_notice():
    class Forgetful(SQLiteStore):
        def _remove(self, ids):
            super()._remove(ids[1:])

    machine = type("Machine", (StoreInterleavings,), {"make": lambda n_bits: Forgetful(":memory:", n_bits)})
    quick = settings(
        max_examples=40,
        stateful_step_count=20,
        deadline=None,
        phases=[Phase.generate],
        database=None,
        derandomize=True,  # the same examples every time, and they show it
    )
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=quick)
