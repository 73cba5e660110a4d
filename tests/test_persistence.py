"""Saves survive round trips, crashes and suspicion."""

import dataclasses
import errno
import hashlib
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from safetensors.numpy import load_file
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler

from shorthash import BucketIndex, ScanIndex, load, make_hasher, save
from shorthash.errors import DamagedFile, ForeignFile, NewerVersion, PersistenceError
from shorthash.persistence import describe, registry, verify

INDEXES = [ScanIndex, BucketIndex]


class Model(BaseEstimator):
    def __init__(self, n_bits=8, extra=None, random_state=None):
        self.n_bits = n_bits
        self.extra = extra
        self.random_state = random_state


class Stranger(Model):
    pass


@dataclasses.dataclass(frozen=True)
class Sums:
    counts: object
    label: str


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(registry.ESTIMATORS, "Model", f"{Model.__module__}:Model")
    monkeypatch.setitem(registry.DATACLASSES, "Sums", f"{Sums.__module__}:Sums")


def fitted(value=None):
    model = Model(extra=(1, [2.5, None], {"a": True}))
    model.weights_ = np.arange(6.0).reshape(2, 3)
    model.statistics_ = Sums(np.ones(1000), "sums")
    model.n_features_in_ = 3
    model._seed = 7
    if value is not None:
        model.value_ = value
    return model


def round_trip(value):
    with tempfile.TemporaryDirectory() as folder:
        return load(save(fitted(value), Path(folder) / "model")).value_


def same(a, b):
    """Equal in type and value, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | np.generic):
        order = isinstance(a, np.generic) or a.flags.f_contiguous == b.flags.f_contiguous
        return a.dtype == b.dtype and a.shape == b.shape and order and a.tobytes() == b.tobytes()
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    return a == b or (a != a and b != b)


DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "<U3", "<U1"]
any_array = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays(dtype, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | any_array
    | any_array.map(lambda a: a.T)
    | st.builds(np.float32, st.floats(width=32))
    | st.builds(np.int64, st.integers(-(2**63), 2**63 - 1))
    | st.builds(np.bool_, st.booleans())
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.builds(Sums, inner, st.text())
    ),
    max_leaves=6,
)


@settings(max_examples=80)
@given(value=values)
def test_every_value_comes_back_equal(value):
    if value is not None:
        assert same(round_trip(value), value)


def test_arrays_of_objects_that_are_strings_come_back():
    names = np.array(["a", "long name", ""], dtype=object)
    assert round_trip(names).tolist() == names.tolist()
    assert round_trip(names).dtype == object


def test_many_strings_go_to_the_array_file(tmp_path):
    names = np.array([f"näme {i}" for i in range(5000)]).reshape(50, 100)
    save(fitted(names), tmp_path / "model")
    assert same(load(tmp_path / "model").value_, names)
    assert same(load(tmp_path / "model", mmap=True).value_, names)
    assert (tmp_path / "model" / "meta.json").stat().st_size < 5000


def test_a_random_state_goes_on_where_it_was(tmp_path):
    generator = np.random.RandomState(3)
    generator.normal(size=7)
    save(Model(random_state=generator), tmp_path / "model")
    loaded = load(tmp_path / "model").random_state
    assert loaded.normal(size=5).tolist() == generator.normal(size=5).tolist()


def test_parameters_and_private_attributes_come_back(tmp_path):
    model = fitted()
    again = load(save(model, tmp_path / "deep" / "folder" / "model"))
    assert type(again) is Model
    assert again.get_params() == model.get_params()
    assert same(again.weights_, model.weights_)
    assert same(again.statistics_, model.statistics_)
    assert again._seed == 7
    again.weights_ += 1  # loaded arrays belong to the model


def test_a_slim_model_has_no_statistics(tmp_path):
    save(fitted(), tmp_path / "model", statistics=False)
    again = load(tmp_path / "model")
    assert not hasattr(again, "statistics_")
    assert same(again.weights_, fitted().weights_)
    assert describe(tmp_path / "model")["statistics"] is False
    assert describe(tmp_path / "model")["bytes"] < 1000


@pytest.fixture(scope="module")
def hasher():
    rng = np.random.default_rng(0)
    y = np.repeat(["ape", "bee", "cat"], 40)
    X = rng.normal(size=(120, 6)) + 4 * rng.normal(size=(3, 6))[np.repeat([0, 1, 2], 40)]
    pipeline = make_hasher("rslh", n_bits=6, random_state=0, front_end={"n_anchors": 30})
    return pipeline.fit(X, y), X, y


def test_a_fitted_pipeline_encodes_and_learns_on_as_before(hasher, tmp_path):
    pipeline, X, y = hasher
    again = load(save(pipeline, tmp_path / "hasher"))
    assert type(again) is type(pipeline)
    assert same(again.project(X), pipeline.project(X))
    assert again[-1].classes_.tolist() == ["ape", "bee", "cat"]
    assert same(vars(again[-1])["convergence_"], pipeline[-1].convergence_)
    more = load(tmp_path / "hasher").partial_fit(X[:9], y[:9])
    assert same(again.partial_fit(X[:9], y[:9]).project(X), more.project(X))
    assert same(load(tmp_path / "hasher", mmap=True).transform(X), pipeline.transform(X))


def test_a_slim_pipeline_encodes_as_before(hasher, tmp_path):
    pipeline, X, _ = hasher
    save(pipeline, tmp_path / "full")
    save(pipeline, tmp_path / "slim", statistics=False)
    assert same(load(tmp_path / "slim").transform(X), pipeline.transform(X))
    assert describe(tmp_path / "slim")["bytes"] < describe(tmp_path / "full")["bytes"]


def test_a_description_needs_only_the_meta_file(hasher, tmp_path):
    pipeline, _, _ = hasher
    save(pipeline, tmp_path / "hasher")
    (tmp_path / "hasher" / "arrays.safetensors").unlink()
    about = describe(tmp_path / "hasher")
    assert about["kind"] == "pipeline"
    assert about["class"] == "HasherPipeline"
    assert (about["n_bits"], about["n_features_in"], about["n_samples_seen"]) == (6, 6, 120)
    kernel, learner = (step for _, step in about["params"]["steps"])
    assert (kernel["class"], kernel["n_anchors"]) == ("AnchorRBF", 30)
    assert (learner["class"], learner["boosting"]) == ("RSLH", "mb")
    json.dumps(about)


@pytest.mark.parametrize("make", INDEXES)
@pytest.mark.parametrize("n_bits", [1, 9, 16, 64])
@pytest.mark.parametrize("ids", ["numbered", "given", "strings"])
@pytest.mark.parametrize("mmap", [False, True])
def test_an_index_comes_back_equal(make, n_bits, ids, mmap, tmp_path):
    rng = np.random.default_rng(n_bits)
    codes = rng.integers(0, 2 ** min(n_bits, 63), size=300, dtype=np.uint64)
    given_ids = {"numbered": None, "given": rng.permutation(300) - 5, "strings": [f"i{i}" for i in range(300)]}[ids]
    index = make(n_bits).add(codes, ids=given_ids)
    index.remove(index.ids[10:20])
    again = load(save(index, tmp_path / "index"), mmap=mmap)
    assert type(again) is make
    assert again.n_bits == n_bits
    assert same(again.ids, index.ids)
    assert same(again.codes, index.codes)
    for ties in ("id", "insertion", "shuffle"):
        found, truth = again.search(codes[:9], 20, ties=ties), index.search(codes[:9], 20, ties=ties)
        assert same(found.ids, truth.ids)
        assert same(found.distances, truth.distances)
    new = None if ids != "strings" else ["new"]
    assert again.add(codes[:1], ids=new).ids.tolist() == index.add(codes[:1], ids=new).ids.tolist()
    again.remove(again.ids[:3])
    assert len(load(tmp_path / "index")) == 290
    assert describe(tmp_path / "index")["n_items"] == 290
    verify(tmp_path / "index")


def test_an_empty_index_comes_back(tmp_path):
    assert len(load(save(BucketIndex(33), tmp_path / "index"))) == 0


def test_another_reader_of_safetensors_finds_the_arrays(tmp_path):
    save(fitted(), tmp_path / "model")
    found = load_file(tmp_path / "model" / "arrays.safetensors")
    assert same(found["Model.weights_"], fitted().weights_)


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
    for source in Path(registry.__file__).parent.glob("*.py"):
        assert "import pickle" not in source.read_text()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([1, "a", None], dtype=object), "Cannot save Model.value_: arrays of type object are not supported"),
        (np.array(["2020"], dtype="M8[Y]"), "arrays of type datetime64"),
        (np.array([1j]), "arrays of type complex128"),
        (len, "Cannot save Model.value_: builtins.builtin_function_or_method is not among the classes"),
        ({"deep": [Stranger()]}, r"Cannot save Model.value_.deep.0: .*Stranger is not among the classes"),
        (StandardScaler(), "StandardScaler is not among the classes that shorthash saves"),
        (np.random.RandomState(np.random.PCG64(1)), "RandomState over PCG64 is not supported; use an integer"),
        ({1, 2}, "builtins.set is not among the classes"),
    ],
)
def test_what_cannot_be_saved_is_refused(value, message, tmp_path):
    with pytest.raises(PersistenceError, match=message):
        save(fitted(value), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [[1], {"a": 1}, np.ones(3), StandardScaler(), Stranger(), Sums(1, "a")])
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
    with pytest.raises(ForeignFile, match=r"notes.txt was not saved by shorthash: it holds no meta.json"):
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


def test_replacing_leaves_one_array_file(tmp_path):
    for i in range(3):
        save(fitted(np.full(4, i)), tmp_path / "model")
        assert load(tmp_path / "model").value_.tolist() == [i] * 4
        assert len(list((tmp_path / "model").iterdir())) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_full_disk_leaves_the_old_state(tmp_path, monkeypatch):
    save(fitted(np.ones(2)), tmp_path / "model")

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PersistenceError, match=r"No space left on device; what was saved there before is unchanged"):
        save(fitted(np.zeros(2)), tmp_path / "model")
    with pytest.raises(PersistenceError, match=r"Cannot write .*fresh: No space left on device; choose a folder"):
        save(fitted(), tmp_path / "fresh")
    assert load(tmp_path / "model").value_.tolist() == [1, 1]
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["arrays.safetensors", "meta.json", "model"]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions are a POSIX matter")
def test_a_read_only_folder_is_a_clear_error():
    with tempfile.TemporaryDirectory() as folder:
        save(fitted(np.ones(2)), Path(folder) / "model")
        paths = [Path(folder), Path(folder) / "model"]
        for path in paths:
            path.chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)  # root may write anywhere
        try:
            for name in ("model", "fresh"):
                with pytest.raises(
                    PersistenceError, match=f"Cannot write .*{name}: Permission denied.*; choose a folder"
                ):
                    save(fitted(), Path(folder) / name)
            assert load(Path(folder) / "model").value_.tolist() == [1, 1]
        finally:
            if root:
                os.seteuid(0)
            for path in paths:
                path.chmod(0o755)


def test_reading_while_another_thread_replaces(tmp_path):
    save(fitted(np.full(100, 0)), tmp_path / "model")
    stop = threading.Event()

    def write():
        i = 0
        while not stop.is_set():
            i += 1
            save(fitted(np.full(100, i)), tmp_path / "model")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(100):
            value = load(tmp_path / "model").value_
            assert len(set(value.tolist())) == 1
    finally:
        stop.set()
        writer.join()


SAVER = """
import sys
import numpy as np
from shorthash import ScanIndex, save
folder = sys.argv[1]
states = [ScanIndex(16).add(np.full(200_000, i)) for i in (1, 2)]
save(states[0], f"{folder}/index")
print("ready", flush=True)
for i in range(10_000):
    save(states[i % 2], f"{folder}/index")
    save(states[i % 2], f"{folder}/fresh-{i}")
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_while_saving_leaves_old_or_new(tmp_path):
    chance = random.Random(0)
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        child = subprocess.Popen([sys.executable, "-c", SAVER, str(folder)], stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0, 0.05))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        places = [path for path in folder.iterdir() if not path.name.startswith(".")]
        assert folder / "index" in places
        for path in places:
            codes = load(path).codes
            assert len(codes) == 200_000
            assert np.all(codes == codes[0])
        save(ScanIndex(16).add(np.array([9])), folder / "index")
        assert load(folder / "index").codes.tolist() == [9]
        assert len(list((folder / "index").iterdir())) == 2
