import numpy as np

from shorthash.codes import from_bool, sign, to_bool


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
