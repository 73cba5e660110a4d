import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shorthash.codes import as_codes, as_packed, from_bool, pack, packed_dtype, sign, to_bool, unpack
from shorthash.errors import InvalidInput


@st.composite
def sign_arrays(draw):
    n_bits = draw(st.integers(1, 64))
    n = draw(st.integers(0, 20))
    return draw(arrays(np.int8, (n, n_bits), elements=st.sampled_from([-1, 1])))


@given(sign_arrays())
def test_packing_equals_powers_of_two_added_up(codes):
    packed = pack(codes)
    expected = [sum(2**j for j, bit in enumerate(row) if bit == 1) for row in codes.tolist()]
    assert packed.tolist() == expected
    assert packed.dtype == packed_dtype(codes.shape[1])


@given(sign_arrays())
def test_unpack_reverses_pack(codes):
    assert np.array_equal(unpack(pack(codes), codes.shape[1]), codes)


@pytest.mark.parametrize(
    ("n_bits", "name"), [(1, "uint8"), (8, "uint8"), (9, "uint16"), (17, "uint32"), (33, "uint64")]
)
def test_the_smallest_type_is_used(n_bits, name):
    assert packed_dtype(n_bits).name == name


def test_column_j_is_bit_j():
    assert pack([[1, -1, -1, -1]]).tolist() == [1]
    assert pack([[-1, -1, -1, 1]]).tolist() == [8]


def test_all_64_bits_survive():
    codes = np.ones((1, 64), dtype=np.int8)
    assert pack(codes).tolist() == [2**64 - 1]


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        ([1, -1], "shape"),
        (np.ones((2, 65), dtype=np.int8), "1 to 64"),
        ([[0, 1]], "only -1 and \\+1"),
        ([[True, False]], "only -1 and \\+1"),
        ([["a", "b"]], "only -1 and \\+1"),
    ],
)
def test_bad_signs_are_refused(codes, message):
    with pytest.raises(InvalidInput, match=message):
        as_codes(codes)


@pytest.mark.parametrize(
    ("codes", "n_bits", "message"),
    [
        (np.array([16], dtype=np.uint8), 4, "range \\[0, 2\\*\\*4 - 1\\]"),
        (np.array([-1]), 4, "range"),
        (np.array([1.0]), 4, "float64"),
        (np.ones((2, 3), dtype=np.int8), 4, "must have 4 bits"),
        (np.array([1]), 0, "n_bits"),
    ],
)
def test_bad_packed_codes_are_refused(codes, n_bits, message):
    with pytest.raises(InvalidInput, match=message):
        as_packed(codes, n_bits)


def test_zero_is_plus_one_and_so_is_negative_zero():
    assert sign(np.array([0.0, -0.0, 1e-300, -1e-300])).tolist() == [1, 1, 1, -1]


def test_signs_are_int8_of_the_same_shape():
    codes = sign(np.zeros((3, 5), dtype=np.float32))
    assert codes.dtype == np.int8
    assert codes.shape == (3, 5)


def test_bool_and_back():
    bits = np.array([[True, False], [False, False]])
    assert from_bool(bits).tolist() == [[1, -1], [-1, -1]]
    assert np.array_equal(to_bool(from_bool(bits)), bits)
