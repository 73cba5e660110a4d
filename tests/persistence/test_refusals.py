"""What cannot be saved, and files that are foreign, newer or damaged."""

import hashlib
import json
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
from saving import Model, Sums, Unregistered, fitted
from sklearn.preprocessing import OneHotEncoder

from shorthash import BucketIndex, load, save
from shorthash.errors import DamagedFile, ForeignFile, NewerVersion, PersistenceError
from shorthash.persistence import describe, saves, verify


def test_nothing_is_pickled(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("pickle was used")

    for name in ("dumps", "loads", "dump", "load", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    load(save(fitted(), tmp_path / "model"))
    monkeypatch.undo()
    for file in (tmp_path / "model").iterdir():
        with pytest.raises((pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError)):
            pickle.loads(file.read_bytes())
    for source in Path(saves.__file__).parent.glob("*.py"):
        assert "import pickle" not in source.read_text()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([1, "a", None], dtype=object), "Cannot save Model.value_: arrays of type object are not supported"),
        (np.array(["2020"], dtype="M8[Y]"), "arrays of type datetime64"),
        (np.array([1j]), "arrays of type complex128"),
        (len, "Cannot save Model.value_: builtins.builtin_function_or_method is not among the classes"),
        ({"deep": [Unregistered()]}, r"Cannot save Model.value_.deep.0: .*Unregistered is not among the classes"),
        (OneHotEncoder(), "OneHotEncoder is not among the classes that shorthash saves"),
        (np.random.RandomState(np.random.PCG64(1)), "RandomState over PCG64 is not supported; use an integer"),
        ({1, 2}, "builtins.set is not among the classes"),
    ],
)
def test_what_cannot_be_saved_is_refused(value, message, tmp_path):
    with pytest.raises(PersistenceError, match=message):
        save(fitted(value), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [[1], {"a": 1}, np.ones(3), OneHotEncoder(), Unregistered(), Sums(1, "a")])
def test_only_models_pipelines_and_indexes_are_saved(value, tmp_path):
    with pytest.raises(PersistenceError, match=r"save\(\) takes one of .*BucketIndex.*RSLH.*Got .* instead"):
        save(value, tmp_path / "model")


def rewrite(path, change):
    """Change meta.json and make its checksum fit again."""
    meta = json.loads((path / "meta.json").read_text())
    meta.pop("checksum")
    change(meta)
    canonical = json.dumps(meta, sort_keys=True, separators=(",", ":")).encode()
    meta["checksum"] = hashlib.sha256(canonical).hexdigest()
    (path / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")


def test_a_file_can_name_only_registered_classes(tmp_path):
    save(fitted(), tmp_path / "model")
    rewrite(tmp_path / "model", lambda meta: meta["value"].update({"class": "os:system"}))
    with pytest.raises(DamagedFile, match=r"cannot be read back: KeyError: 'os:system'"):
        load(tmp_path / "model")


def test_a_file_cannot_point_outside_its_folder(tmp_path):
    save(fitted(), tmp_path / "model")
    (tmp_path / "model" / "arrays.safetensors").rename(tmp_path / "arrays.safetensors")
    rewrite(tmp_path / "model", lambda meta: meta["arrays"].update({"file": "../arrays.safetensors"}))
    with pytest.raises(DamagedFile, match=r"model/arrays.safetensors is missing"):
        load(tmp_path / "model")


@pytest.mark.parametrize("entry", [{"file": 7}, {"n_bytes": "many"}, {"n_bytes": None}])
def test_a_file_with_a_wrong_entry_of_arrays_is_damage(entry, tmp_path):
    save(fitted(), tmp_path / "model")
    rewrite(tmp_path / "model", lambda meta: meta["arrays"].update(entry))
    with pytest.raises(DamagedFile, match=r"model is damaged: its entry of arrays cannot be read"):
        load(tmp_path / "model")


def test_a_newer_format_is_refused(tmp_path):
    save(fitted(), tmp_path / "model")
    rewrite(tmp_path / "model", lambda meta: meta.update(format_version=2, shorthash_version="9.9"))
    for read in (load, describe, verify):
        with pytest.raises(NewerVersion, match=r"written by shorthash 9.9 in format 2, .* pip install --upgrade"):
            read(tmp_path / "model")


def test_an_unknown_parameter_is_a_clear_error(tmp_path):
    save(fitted(), tmp_path / "model")
    rewrite(tmp_path / "model", lambda meta: meta["value"]["params"].update(novelty=1))
    with pytest.raises(DamagedFile, match=r"cannot be read back: TypeError.*novelty.*try that version"):
        load(tmp_path / "model")


@pytest.mark.parametrize("text", ["{}", "[]", "", "not JSON", '{"format": "other"}', "\x00\xff"])
def test_foreign_files_are_refused_and_never_overwritten(text, tmp_path):
    place = tmp_path / "model"
    place.mkdir()
    (place / "meta.json").write_text(text)
    for read in (load, describe, verify):
        with pytest.raises(ForeignFile, match=r"meta.json was not written by shorthash"):
            read(place)
    with pytest.raises(ForeignFile, match=r"exists and was not saved by shorthash, so it is not overwritten"):
        save(fitted(), place)
    assert (place / "meta.json").read_text() == text
    assert len(list(place.iterdir())) == 1


def test_what_is_not_a_save_at_all(tmp_path):
    with pytest.raises(PersistenceError, match=r"There is nothing at .*nowhere; check the path"):
        load(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ForeignFile, match=r"notes.txt was not saved by shorthash, .* give the file \(of an index\)"):
        load(tmp_path / "notes.txt")
    with pytest.raises(ForeignFile, match=r"it holds no meta.json; give the folder"):
        load(tmp_path)
    for place in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(ForeignFile, match=r"is not overwritten; choose another path or move it"):
            save(fitted(), place)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    (tmp_path / "empty").mkdir()
    load(save(fitted(), tmp_path / "empty"))


@pytest.mark.parametrize("mmap", [False, True])
def test_a_truncated_or_missing_array_file_is_damage(mmap, tmp_path):
    save(fitted(), tmp_path / "model")
    file = tmp_path / "model" / "arrays.safetensors"
    whole = file.read_bytes()
    for kept in (0, 5, 100, len(whole) - 1):
        file.write_bytes(whole[:kept])
        with pytest.raises(DamagedFile, match=rf"has {kept} bytes instead of {len(whole)}; restore it from a copy"):
            load(tmp_path / "model", mmap=mmap)
    file.unlink()
    with pytest.raises(DamagedFile, match=r"arrays.safetensors is missing: restore it from a copy"):
        load(tmp_path / "model", mmap=mmap)


def test_a_truncated_meta_file_is_damage(tmp_path):
    save(fitted(), tmp_path / "model")
    file = tmp_path / "model" / "meta.json"
    whole = file.read_bytes()
    for kept in (40, len(whole) // 2, len(whole) - 3):
        file.write_bytes(whole[:kept])
        with pytest.raises(DamagedFile, match=r"meta.json is damaged: restore it from a copy, or build and save"):
            load(tmp_path / "model")
    load(save(fitted(), tmp_path / "model"))  # saving again is a way out


def test_every_flipped_bit_is_noticed(tmp_path):
    save(Model(), tmp_path / "small")
    for name in ("meta.json", "arrays.safetensors"):
        file = tmp_path / "small" / name
        whole = file.read_bytes()
        for place in range(len(whole)):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << (place % 8)
            file.write_bytes(flipped)
            if json_equal(whole, flipped):
                continue  # white space
            with pytest.raises(PersistenceError, match=r"damaged|not written|format"):
                load(tmp_path / "small")
        file.write_bytes(whole)


def json_equal(a, b):
    try:
        return json.loads(a) == json.loads(b)
    except ValueError:
        return False


def test_flipped_bits_inside_arrays_are_noticed(tmp_path):
    save(fitted(), tmp_path / "model")
    file = tmp_path / "model" / "arrays.safetensors"
    whole = file.read_bytes()
    for place in random.Random(0).sample(range(len(whole)), 40):
        flipped = bytearray(whole)
        flipped[place] ^= 4
        file.write_bytes(flipped)
        for read in (load, verify):
            with pytest.raises(DamagedFile, match=r"its checksum differs"):
                read(tmp_path / "model")


@pytest.mark.parametrize("kept", [0, 5, 20])
def test_the_error_of_a_truncated_index_mentions_files(kept, tmp_path):
    path = save(BucketIndex(4).add(np.array([1, 2])), tmp_path / "items.index")
    path.write_bytes(path.read_bytes()[:kept])
    for read in (load, describe, verify):
        with pytest.raises(ForeignFile, match=r"or its first bytes are damaged; give the file \(of an index\)"):
            read(path)
