"""Random interleavings of everything an index can do, against a dictionary."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shorthash.errors import InvalidInput
from shorthash.index import BucketIndex, ScanIndex


class Interleavings(RuleBasedStateMachine):
    @initialize(n_bits=st.integers(1, 64), strings=st.booleans())
    def start(self, n_bits, strings):
        self.n_bits, self.strings = n_bits, strings
        self.indexes = [ScanIndex(n_bits), BucketIndex(n_bits)]
        self.model = {}
        self.removed = []
        self.next_id = 0

    def draw_codes(self, data, n=None):
        low, high = (0, 12) if n is None else (n, n)
        pool = st.sampled_from([0, 1, 2**self.n_bits - 1, 2 ** (self.n_bits - 1)])
        return data.draw(st.lists(pool | st.integers(0, 2**self.n_bits - 1), min_size=low, max_size=high))

    def draw_known(self, data):
        return data.draw(st.lists(st.sampled_from(list(self.model)), unique=True, max_size=4))

    def both(self, act):
        for index in self.indexes:
            act(index)

    @precondition(lambda self: not self.strings)
    @rule(data=st.data())
    def add_numbered(self, data):
        codes = self.draw_codes(data)
        self.both(lambda index: index.add(np.array(codes, dtype=np.uint64)))
        for code in codes:
            self.model[self.next_id] = code
            self.next_id += 1

    @rule(data=st.data())
    def add_named(self, data):
        named = st.integers(-50, 400).map(str if self.strings else int)
        if self.removed:
            named |= st.sampled_from(self.removed)  # an id may be used again after its item was removed
        fresh = named.filter(lambda i: i not in self.model)
        ids = data.draw(st.lists(fresh, unique=True, max_size=6))
        codes = self.draw_codes(data, len(ids))
        self.both(lambda index: index.add(np.array(codes, dtype=np.uint64), ids=np.array(ids, dtype=object)))
        self.model.update(zip(ids, codes, strict=True))
        if not self.strings:
            self.next_id = max([self.next_id, *(i + 1 for i in ids)])

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data):
        ids = self.draw_known(data)
        self.both(lambda index: index.remove(ids))
        for i in ids:
            del self.model[i]
        self.removed += ids

    @precondition(lambda self: any(i not in self.model for i in self.removed))
    @rule(data=st.data())
    def refuse_a_removed_id(self, data):
        removed = data.draw(st.sampled_from([i for i in self.removed if i not in self.model]))
        for index in self.indexes:
            assert removed not in index
            with pytest.raises(InvalidInput, match=r"is not in the (index|store)"):
                index.remove([removed])

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def update(self, data):
        ids = self.draw_known(data)
        codes = self.draw_codes(data, len(ids))
        self.both(lambda index: index.update(ids, np.array(codes, dtype=np.uint64)))
        for i in ids:
            del self.model[i]
        self.model.update(zip(ids, codes, strict=True))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def refuse_a_known_id(self, data):
        known = data.draw(st.sampled_from(list(self.model)))
        for index in self.indexes:
            with pytest.raises(InvalidInput, match=r"already in the (index|store)"):
                index.add(np.array([0], dtype=np.uint64), ids=[known])

    @rule()
    def settle(self):
        self.indexes[1].slices(np.array([0], dtype=np.uint64), radius=0)

    @rule()
    def reload(self):
        self.indexes = [type(index).from_state(self.n_bits, index.export_state()) for index in self.indexes]

    @rule(data=st.data(), k=st.integers(1, 20), radius=st.integers(0, 64), ties=st.sampled_from(["id", "insertion"]))
    def search(self, data, k, radius, ties):
        queries = self.draw_codes(data, 2)
        for row, query in enumerate(queries):
            ranked = sorted(
                (bin(query ^ code).count("1"), i if ties == "id" else place, i)
                for place, (i, code) in enumerate(self.model.items())
            )
            for index in self.indexes:
                found = index.search(np.array(queries, dtype=np.uint64), k, ties=ties)
                assert found.ids[row].tolist() == [i for _, _, i in ranked[:k]]
                assert found.distances[row].tolist() == [d for d, _, _ in ranked[:k]]
                ids, distances = index.within(np.array(queries, dtype=np.uint64), radius, ties=ties)[row]
                inside = [(d, i) for d, _, i in ranked if d <= radius]
                assert list(zip(distances.tolist(), ids.tolist(), strict=True)) == inside
                assert index.counts(np.array(queries, dtype=np.uint64), radius)[row] == len(inside)

    @invariant()
    def same_items(self):
        for index in getattr(self, "indexes", ()):
            assert len(index) == len(self.model)
            assert index.ids.tolist() == list(self.model)
            assert index.codes.tolist() == list(self.model.values())


Interleavings.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestInterleavings = Interleavings.TestCase
