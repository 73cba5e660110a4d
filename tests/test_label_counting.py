import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shorthash._labels import _distinct


@given(hnp.arrays(st.sampled_from([np.int8, np.uint8, np.int64, np.uint64]), st.integers(0, 12)))
def test_distinct_equals_sorting(values):
    seen, ids = _distinct(values)
    expected = np.unique(values)
    assert seen.tolist() == expected.tolist()
    assert seen.dtype == values.dtype
    assert seen[ids].tolist() == values.tolist()


@pytest.mark.parametrize("values", [[-128, 127], [5], [2**63 - 1, 2**63 - 2], [-(2**63), 2**63 - 1]])
def test_distinct_at_the_ends_of_the_integers(values):
    seen, ids = _distinct(np.array(values))
    assert seen.tolist() == sorted(values)
    assert seen[ids].tolist() == values


def test_a_narrow_range_of_many_labels():
    values = np.random.default_rng(0).integers(-3, 40, 1000).astype(np.int8)
    seen, ids = _distinct(values)
    wanted, where = np.unique(values, return_inverse=True)
    assert seen.tolist() == wanted.tolist()
    assert ids.tolist() == where.tolist()
