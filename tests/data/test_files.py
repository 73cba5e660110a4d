"""Reading and writing files of features, labels and codes, and the errors for unusable files."""

import re
import sys

import numpy as np
import pytest

from shorthash.data.files import ENDINGS, read_codes, read_features, read_ids, read_labels, replacing, write_codes
from shorthash.errors import DataFileError, InvalidInput, MissingExtra

ROWS = np.array([[1.5, -2.0, 3.0], [4.0, 5.25, -6.0]])


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def write_parquet(path, **columns):
    import pandas as pd

    pd.DataFrame(columns).to_parquet(path)
    return path


class TestFeatures:
    def test_npy_is_memory_mapped(self, tmp_path):
        np.save(tmp_path / "x.npy", ROWS)
        values = read_features(tmp_path / "x.npy")
        assert isinstance(values, np.memmap)
        assert not values.flags.writeable
        np.testing.assert_array_equal(values, ROWS)

    @pytest.mark.parametrize("arrays", [{"X": ROWS, "y": [0, 1]}, {"anything": ROWS}, {"other": ROWS, "scale": 0.5}])
    def test_npz_finds_x_or_the_only_array(self, tmp_path, arrays):
        np.savez(tmp_path / "x.npz", **arrays)
        np.testing.assert_array_equal(read_features(tmp_path / "x.npz"), ROWS)

    def test_npz_key_picks_an_array(self, tmp_path):
        np.savez(tmp_path / "x.npz", X=ROWS, other=ROWS + 1)
        np.testing.assert_array_equal(read_features(f"{tmp_path}/x.npz:other"), ROWS + 1)

    def test_npz_scale_multiplies_integers_only(self, tmp_path):
        integers = np.array([[1, -2], [3, 4]], dtype=np.int8)
        np.savez(tmp_path / "i.npz", X=integers, scale=np.float32(0.5))
        np.savez(tmp_path / "f.npz", X=integers.astype(np.float32), scale=np.float32(0.5))
        scaled = read_features(tmp_path / "i.npz")
        assert scaled.dtype == np.float32
        np.testing.assert_array_equal(scaled, integers * 0.5)
        np.testing.assert_array_equal(read_features(f"{tmp_path}/i.npz:X"), integers * 0.5)
        np.testing.assert_array_equal(read_features(tmp_path / "f.npz"), integers)

    def test_npz_leaves_pickled_neighbours_alone(self, tmp_path):
        np.savez(tmp_path / "x.npz", X=ROWS, names=np.array([{"a": 1}], dtype=object))
        np.testing.assert_array_equal(read_features(tmp_path / "x.npz"), ROWS)

    @pytest.mark.parametrize(
        "text",
        [
            "1.5,-2,3\n4,5.25,-6\n",
            "a,b,c\n1.5,-2,3\n4,5.25,-6",
            "\n\na,b,c\n\n1.5,-2,3\n4,5.25,-6\n\n",
            '\ufeff"a","b","c"\r\n"1.5","-2","3"\r\n4, 5.25 ,-6\r\n',
        ],
        ids=["plain", "header", "blank lines", "quotes, BOM, spaces"],
    )
    def test_csv(self, tmp_path, text):
        np.testing.assert_array_equal(read_features(write(tmp_path, "x.csv", text)), ROWS)

    def test_csv_nan_is_left_to_the_learner(self, tmp_path):
        assert np.isnan(read_features(write(tmp_path, "x.csv", "1,nan\n2,3\n"))[0, 1])

    def test_parquet(self, tmp_path):
        path = write_parquet(tmp_path / "x.parquet", a=[1.5, 4.0], b=[-2.0, 5.25], c=[3, -6])
        np.testing.assert_array_equal(read_features(path), ROWS)

    def test_ending_in_capitals(self, tmp_path):
        np.testing.assert_array_equal(read_features(write(tmp_path, "X.CSV", "1,2\n3,4\n")), [[1, 2], [3, 4]])


class TestLabels:
    @pytest.mark.parametrize("key", ["y", "Y"])
    def test_npz(self, tmp_path, key):
        np.savez(tmp_path / "x.npz", X=ROWS, **{key: np.array([3, 4])})
        np.testing.assert_array_equal(read_labels(tmp_path / "x.npz"), [3, 4])

    def test_npy_strings_and_bytes(self, tmp_path):
        for dtype in ("U3", "S3"):
            np.save(tmp_path / "y.npy", np.array(["cat", "dog"], dtype=dtype))
            assert read_labels(tmp_path / "y.npy").tolist() == ["cat", "dog"]

    @pytest.mark.parametrize(
        ("text", "labels"),
        [
            ("3\n1\n2\n", [3, 1, 2]),
            ("whatever\n3\n1\n", [3, 1]),
            ("cat\ndog\ncat\n", ["cat", "dog", "cat"]),
            ("label\ncat\ndog\n", ["cat", "dog"]),
            ("Class\n1.0\n2.5\n", [1.0, 2.5]),
            ("1\ntwo\n", ["1", "two"]),
            ("cat\n", ["cat"]),
        ],
    )
    def test_csv_column(self, tmp_path, text, labels):
        assert read_labels(write(tmp_path, "y.csv", text)).tolist() == labels

    def test_csv_indicator_matrix(self, tmp_path):
        assert read_labels(write(tmp_path, "y.csv", "cat,dog\n1,0\n1,1\n")).tolist() == [[1, 0], [1, 1]]

    def test_parquet_column_or_matrix(self, tmp_path):
        assert read_labels(write_parquet(tmp_path / "y.parquet", name=["cat", "dog"])).tolist() == ["cat", "dog"]
        assert read_labels(write_parquet(tmp_path / "z.parquet", a=[1, 0], b=[0, 1])).tolist() == [[1, 0], [0, 1]]

    @pytest.mark.parametrize(
        ("text", "labels"),
        [
            ("label\ncat\n\ndog\n", ["cat", None, "dog"]),
            ('label\n1\n""\n2\n""\n', [1, None, 2, None]),
            ("1\n\n2\n\n\n", [1, None, 2]),
            ('""\ncat\n', [None, "cat"]),
        ],
    )
    def test_empty_cells_are_missing_labels(self, tmp_path, text, labels):
        assert read_labels(write(tmp_path, "y.csv", text)).tolist() == labels

    def test_missing_labels_of_a_table_keep_the_type_of_the_others(self, tmp_path):
        import pandas as pd

        numbers = pd.array([3, None, 4], dtype="Int64")
        assert read_labels(write_parquet(tmp_path / "y.parquet", y=numbers)).tolist() == [3, None, 4]
        assert read_labels(write_parquet(tmp_path / "z.parquet", y=["a", None])).tolist() == ["a", None]


class TestCodes:
    @pytest.mark.parametrize("ending", ENDINGS)
    @pytest.mark.parametrize("signs", [False, True])
    @pytest.mark.parametrize("n_bits", [4, 12, 64])
    def test_round_trip(self, tmp_path, ending, signs, n_bits):
        codes = np.where(np.random.default_rng(0).random((50, n_bits)) < 0.5, -1, 1).astype(np.int8)
        codes[0] = 1  # all bits set: the largest integer of the type
        path = write_codes(tmp_path / f"codes{ending}", codes, signs=signs)
        back = read_codes(path, n_bits)
        assert back.dtype == np.int8
        np.testing.assert_array_equal(back, codes)

    def test_packed_type_is_the_smallest(self, tmp_path):
        write_codes(tmp_path / "c.npy", [[1, -1, -1, 1]])
        stored = np.load(tmp_path / "c.npy")
        assert stored.dtype == np.uint8
        assert stored.tolist() == [9]

    def test_csv_is_readable(self, tmp_path):
        assert write_codes(tmp_path / "c.csv", [[1, -1], [-1, 1]]).read_text() == "code\n1\n2\n"
        assert write_codes(tmp_path / "s.csv", [[1, -1]], signs=True).read_text() == "bit0,bit1\n1,-1\n"

    def test_npz_knows_the_length(self, tmp_path):
        assert read_codes(write_codes(tmp_path / "c.npz", [[1, -1, 1]])).tolist() == [[1, -1, 1]]

    def test_packed_integers_need_a_length(self, tmp_path):
        path = write_codes(tmp_path / "c.npy", [[1, -1, 1]])
        with pytest.raises(
            InvalidInput, match=r"c\.npy are packed integers, which do not show their length; give the number of bits"
        ):
            read_codes(path)

    def test_codes_of_another_length(self, tmp_path):
        path = write_codes(tmp_path / "c.npy", [[1, 1, 1, 1]])
        with pytest.raises(DataFileError, match=r"c\.npy does not hold valid codes: Packed codes of 3 bits must lie"):
            read_codes(path, 3)


class TestReplacing:
    def test_a_failure_leaves_only_the_old_file(self, tmp_path):
        target = write(tmp_path, "out.txt", "old")

        def fail_half_way():
            with replacing(target) as temporary:
                temporary.write_text("new")
                raise RuntimeError("half way")

        with pytest.raises(RuntimeError, match="half way"):
            fail_half_way()
        assert target.read_text() == "old"
        assert [file.name for file in tmp_path.iterdir()] == ["out.txt"]

    def test_a_success_replaces(self, tmp_path):
        target = write(tmp_path, "out.txt", "old")
        with replacing(target) as temporary:
            temporary.write_text("new")
        assert target.read_text() == "new"

    @pytest.mark.parametrize(("name", "message"), [("no/out.txt", "there is no folder"), ("", "it is a folder")])
    def test_impossible_targets(self, tmp_path, name, message):
        with pytest.raises(DataFileError, match=message), replacing(tmp_path / name):
            raise AssertionError("nothing to write to")


BAD_FEATURES = {
    "no ending": ("x", "1,2\n", "x must end in one of .npy, .npz, .csv, .parquet; convert it"),
    "wrong ending": ("x.txt", "1,2\n", "x.txt must end in one of .npy, .npz, .csv, .parquet; convert it"),
    "empty": ("x.csv", "", "x.csv is empty; write at least one row to it."),
    "header only": ("x.csv", "a,b\n", "x.csv has no rows of numbers; write at least one."),
    "text": ("x.csv", "a,b\n1,2\n3,cat\n", "x.csv, line 3, column 2 holds the text 'cat', but every cell must be"),
    "text in line 1": (
        "x.csv",
        "1,cat\n2,3\n",
        "line 1, column 2 holds the text 'cat', .* give a header line names only",
    ),
    "empty cell": ("x.csv", "1,2\n3,\n", "x.csv, line 2, column 2 is empty, but every cell must be a number; fill it"),
    "ragged": ("x.csv", "1,2\n3,4,5\n", "x.csv, line 2 has 3 columns, but the lines before it have 2; give every line"),
    "semicolons": ("x.csv", "1;2\n3;4\n", "line 2, column 1 holds the text '3;4', .* separate the numbers by commas"),
    "not npy": ("x.npy", "no array", r"x.npy is not a readable .npy file \(it holds something else\); write it again."),
    "not npz": ("x.npz", "no archive", r"x.npz is not a readable .npz file \(.*\); write it again."),
    "not parquet": ("x.parquet", "no table", r"x.parquet is not a readable table \(.*\); write it again."),
}


@pytest.mark.parametrize("case", BAD_FEATURES)
def test_bad_feature_files(tmp_path, case):
    name, text, message = BAD_FEATURES[case]
    with pytest.raises(DataFileError, match=message) as error:
        read_features(write(tmp_path, name, text))
    assert "\n" not in str(error.value)


BAD_ARRAYS = {
    "1-d": (np.arange(3.0), r"must have shape \(n_samples, n_features\). Got shape \(3,\) instead; reshape"),
    "images": (np.zeros((2, 8, 8)), r"Got shape \(2, 8, 8\) instead; reshape them to one row per sample"),
    "text": (np.array([["a", "b"]]), "must be numbers. Got type <U1 instead"),
    "no rows": (np.zeros((0, 3)), r"holds no rows \(shape \(0, 3\)\)"),
    "objects": (np.array([[1], [2, 3]], dtype=object), "holds pickled Python objects, which are never loaded"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_feature_arrays(tmp_path, case):
    array, message = BAD_ARRAYS[case]
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(DataFileError, match=message):
        read_features(tmp_path / "x.npy")


def test_truncated_npy(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((100, 10)))
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataFileError, match=r"x\.npy is not a readable \.npy file .*; write it again"):
        read_features(tmp_path / "x.npy")


def test_truncated_npz(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", X=np.arange(1000.0).reshape(100, 10))
    whole = bytearray((tmp_path / "x.npz").read_bytes())
    whole[100:200] = bytes(100)
    (tmp_path / "x.npz").write_bytes(whole)
    with pytest.raises(DataFileError, match=r"x\.npz is not a readable \.npz file .*; write it again"):
        read_features(tmp_path / "x.npz")


def test_archive_under_the_name_of_an_array(tmp_path):
    np.savez(tmp_path / "x.npz", X=ROWS)
    (tmp_path / "x.npz").rename(tmp_path / "x.npy")
    with pytest.raises(DataFileError, match=r"is a \.npz archive with the name of a \.npy file; rename it"):
        read_features(tmp_path / "x.npy")


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DataFileError, match=re.escape(f"There is no file {tmp_path / 'x.npy'}; check the path.")):
        read_features(tmp_path / "x.npy")
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(DataFileError, match="is a folder, but a file is needed here"):
        read_features(tmp_path / "folder.npy")


def test_missing_key(tmp_path):
    np.savez(tmp_path / "x.npz", a=ROWS, b=ROWS)
    with pytest.raises(DataFileError, match=r"has no array X, only a, b; pick one with x\.npz:NAME"):
        read_features(tmp_path / "x.npz")
    with pytest.raises(DataFileError, match=r"has no array 'c'; it has a, b"):
        read_features(f"{tmp_path / 'x.npz'}:c")
    with pytest.raises(DataFileError, match=r"has no array y or Y, only a, b; pick one with x\.npz:NAME"):
        read_labels(tmp_path / "x.npz")


def test_parquet_with_text(tmp_path):
    path = write_parquet(tmp_path / "x.parquet", a=[1.0, 2.0], b=["cat", "dog"])
    with pytest.raises(DataFileError, match=r"x\.parquet, column 'b' holds 'cat', but every column must be numbers"):
        read_features(path)


def test_labels_of_a_wrong_shape(tmp_path):
    np.save(tmp_path / "y.npy", np.zeros((2, 2, 2)))
    with pytest.raises(DataFileError, match=r"must be one number or name per row, .* Got float64 of shape \(2, 2, 2\)"):
        read_labels(tmp_path / "y.npy")


def test_csv_that_is_not_text(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe1\x00,\x002\x00")
    with pytest.raises(DataFileError, match=r"is not text in UTF-8 .*; save it as UTF-8"):
        read_features(tmp_path / "x.csv")


def test_parquet_without_the_extra(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "x.parquet", a=[1.0])
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    message = r"Reading \.parquet files needs pyarrow, which is not installed; .* pip install .*\[tables\]'"
    with pytest.raises(MissingExtra, match=message):
        read_features(path)


def test_a_header_of_column_numbers_is_no_row(tmp_path):
    path = tmp_path / "frame.csv"
    path.write_text("0,1,2\n4.5,5,6\n7,8,9\n")
    assert read_features(path).tolist() == [[4.5, 5, 6], [7, 8, 9]]


@pytest.mark.parametrize("signs", [True, False])
@pytest.mark.parametrize("n_bits", [3, 64])
def test_codes_of_json_lines(tmp_path, signs, n_bits):
    codes = np.where(np.random.default_rng(0).random((7, n_bits)) < 0.5, -1, 1).astype(np.int8)
    path = write_codes(tmp_path / "codes.jsonl", codes, signs=signs, ids=[f"s{i}" for i in range(7)])
    np.testing.assert_array_equal(read_codes(path, n_bits), codes)
    assert read_ids(path).tolist() == [f"s{i}" for i in range(7)]
    assert read_ids(write_codes(path, codes)) is None
