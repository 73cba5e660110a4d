"""Saves that were crafted to harm: checksums fit, contents do not."""

import numpy as np
import pytest
from crafting import craft_file, craft_folder
from saving import fitted

from shorthash import BucketIndex, ScanIndex, load, save
from shorthash.errors import DamagedFile
from shorthash.persistence import describe, verify
from shorthash.persistence.files import parse_json


def index_of(n_bits=9, **extra):
    rng = np.random.default_rng(0)
    return BucketIndex(n_bits).add(rng.integers(0, 1 << n_bits, size=300), **extra)


def changed(name, place, value):
    def change(arrays):
        arrays[f"BucketIndex.{name}"][place] = value

    return change


HARMFUL = [
    (9, changed("order", 7, 4_000_000_000)),
    (9, changed("order", 7, 300)),
    (9, changed("bounds", 100, 4_000_000_000)),
    (9, changed("bounds", 100, 0)),
    (9, changed("bounds", -1, 10**6)),
    (40, changed("keys", 5, 0)),
    (40, changed("keys", -1, 1 << 63)),
    (40, changed("bounds", 5, 2**32 - 1)),
]


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize(("n_bits", "change"), HARMFUL)
def test_a_table_that_leads_outside_its_arrays_is_refused(n_bits, change, mmap, tmp_path):
    path = save(index_of(n_bits), tmp_path / "index")
    craft_file(path, change)
    for read in (lambda: load(path, mmap=mmap), lambda: verify(path)):
        with pytest.raises(DamagedFile, match=r"arrays of a bucket table are inconsistent"):
            read()


def test_what_mmap_does_not_read_is_found_by_verify(tmp_path):
    path = save(index_of(ids=np.arange(300) * 2), tmp_path / "index")
    for name, place, value in [("order", 7, 8), ("ids", 1, 0), ("ids", 1, 10**6)]:
        save(index_of(ids=np.arange(300) * 2), path)
        craft_file(path, changed(name, place, value))
        opened = load(path, mmap=True)
        opened.search([3], 300)  # finds something, and harms nothing
        for check in (opened.verify, lambda: load(path), lambda: verify(path)):
            with pytest.raises(DamagedFile, match=r"inconsistent"):
                check()


@pytest.mark.parametrize("entry", [..., None, "arrays.safetensors", [], {}])
def test_a_save_without_an_entry_of_arrays_is_refused(entry, tmp_path):
    path = save(fitted(), tmp_path / "model")

    def change(meta):
        meta.pop("arrays") if entry is ... else meta.update(arrays=entry)

    craft_folder(path, change_meta=change)
    for read in (load, verify, describe):
        with pytest.raises(DamagedFile, match="is damaged"):
            read(path)


@pytest.mark.parametrize(("name", "value"), [("summary", None), ("value", []), ("kind", ...), ("statistics", ...)])
def test_a_description_that_lacks_something_is_refused(name, value, tmp_path):
    path = save(fitted(), tmp_path / "model")

    def change(meta):
        meta.pop(name) if value is ... else meta.update({name: value})

    craft_folder(path, change_meta=change)
    with pytest.raises(DamagedFile, match="its description is incomplete"):
        describe(path)


NUMBERS = [
    lambda state: state.update(next_id=-1),
    lambda state: state.update(next_id=2**70),
    lambda state: state.update(next_id="0"),
    lambda state: state.update(ids=None, next_id=5),
    lambda state: state.update(ids=state["order"]),
    lambda state: state.update(order=state["bounds"]),
    lambda state: state.update(vectors=state["order"]),
    lambda state: state.pop("keys"),
]
STRINGS = [
    lambda state: state["ids"].update(width=3),
    lambda state: state["ids"].update(width=-1),
    lambda state: state["ids"]["letters"].update(dtype="uint8"),
    lambda state: state["ids"]["letters"].update(name="BucketIndex.order"),
    lambda state: state["ids"].update(shape=[4999]),
]


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("changes", [NUMBERS, STRINGS])
def test_a_description_that_does_not_fit_its_arrays_is_refused(changes, mmap, tmp_path):
    strings = BucketIndex(9).add(np.arange(5000) % 512, ids=[f"item {i}" for i in range(5000)])
    path = tmp_path / "index"
    for change in changes:
        save(index_of(ids=np.arange(300) + 7) if changes is NUMBERS else strings, path)
        craft_file(path, change_save=lambda meta, change=change: change(meta["value"]["state"]))
        with pytest.raises(DamagedFile, match=r"cannot be read back"):
            load(path, mmap=mmap)


@pytest.mark.parametrize("letter", [0x110000, 0xD800])
def test_ids_that_are_not_unicode_are_refused(letter, tmp_path):
    path = save(BucketIndex(4).add(np.arange(5000) % 16, ids=[f"item {i}" for i in range(5000)]), tmp_path / "index")
    craft_file(path, lambda arrays: arrays["BucketIndex.ids"].__setitem__((9, 0), letter))
    with pytest.raises(DamagedFile, match=r"strings hold what is not Unicode"):
        load(path, mmap=True)


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize(
    "entry",
    [
        {"data_offsets": [-8, 0]},
        {"data_offsets": [1, 1201]},
        {"data_offsets": [0, 1 << 60]},
        {"data_offsets": "all"},
        {"shape": [-1]},
        {"shape": [1 << 61]},
        {"shape": [300.0]},
        {"dtype": "F8"},
        {"dtype": "U64"},
    ],
)
def test_a_table_of_contents_that_does_not_fit_its_file_is_refused(entry, mmap, tmp_path):
    path = save(ScanIndex(9).add(np.arange(300)), tmp_path / "index")
    craft_file(path, change_contents=lambda contents: contents["ScanIndex.codes"].update(entry))
    with pytest.raises(DamagedFile, match=r"damaged"):
        load(path, mmap=mmap)


@pytest.mark.parametrize("version", [None, "1", 1.5, [], True])
def test_a_version_that_is_no_number_is_damage(version, tmp_path):
    path = save(fitted(), tmp_path / "model")
    craft_folder(path, change_meta=lambda meta: meta.update(format_version=version))
    for read in (load, describe, verify):
        with pytest.raises(DamagedFile, match=r"meta.json is damaged"):
            read(path)


def test_a_small_description_cannot_take_much_memory(tmp_path):
    path = save(fitted(np.array(["ape", "bee"])), tmp_path / "model")
    craft_folder(path, change_meta=lambda meta: meta["value"]["state"]["value_"].update(width=1 << 30))
    assert load(path).value_.tolist() == ["ape", "bee"]  # the rest would be padding
    craft_folder(path, change_meta=lambda meta: meta["value"]["state"]["value_"].update(width=2))
    with pytest.raises(DamagedFile, match=r"2 strings of 3 letters have the width 2"):
        load(path)
    with pytest.raises(ValueError, match="parts"):
        parse_json(b"[" + b"[]," * 3_000_000 + b"[]]")


def test_a_random_generator_outside_its_words_is_refused(tmp_path):
    path = save(fitted(np.random.RandomState(0)), tmp_path / "model")
    craft_folder(path, change_meta=lambda meta: meta["value"]["state"]["value_"].update(pos=100_000))
    with pytest.raises(DamagedFile, match=r"the state of a random generator is invalid"):
        load(path)
