"""A collection: added items are found, acknowledged changes survive, and wrong calls change nothing."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from images.conftest import new_images
from pictures import encoded, picture
from processes import Popen, run

from shorthash import ScanIndex
from shorthash.codes import pack
from shorthash.errors import ForeignFile, InvalidInput, NewerVersion, PersistenceError, UnreadableImage
from shorthash.images import Collection, check_collection, is_collection
from shorthash.images.features import CallableFeatures, GistFeatures
from shorthash.images.storage import ItemState, ItemTable


def test_search_equals_a_scan(vectors, hasher):
    model, X, y = hasher
    codes = model.transform(X)
    scan = ScanIndex(5).add(codes)
    for row in range(0, 120, 17):
        found = vectors.search(vector=X[row], k=9)
        truth = scan.search(codes[row : row + 1], 9)
        assert found.ids.tolist() == truth.ids[0].tolist()
        assert found.distances.tolist() == truth.distances[0].tolist()
        assert found.codes.tolist() == pack(codes)[found.ids].tolist()
        assert found.labels == y[found.ids].tolist()
        assert found.code == pack(codes)[row]
        assert vectors.search(code=codes[row], k=9).ids.tolist() == found.ids.tolist()
        assert vectors.search(code=int(found.code), k=9).ids.tolist() == found.ids.tolist()


def test_an_item_is_not_its_own_neighbour(vectors):
    found = vectors.search(id=7, k=5)
    assert len(found) == 5
    assert 7 not in found.ids
    assert 7 not in vectors.search(id=7, k=5, rerank=True).ids


def test_radius_limits_and_k_may_be_missing(vectors, hasher):
    model, X, _ = hasher
    inside = vectors.search(vector=X[0], k=None, radius=1)
    truth = ScanIndex(5).add(model.transform(X)).within(model.transform(X[:1]), 1)
    assert inside.ids.tolist() == truth.ids.tolist()
    assert vectors.search(vector=X[0], k=3, radius=1).ids.tolist() == truth.ids[:3].tolist()
    groups = dict(inside.groups())
    assert list(groups) == sorted(set(inside.distances.tolist()))
    assert sorted(np.concatenate(list(groups.values())).tolist()) == list(range(len(inside)))


def test_ring_sizes_count_every_distance(vectors, hasher):
    _, X, _ = hasher
    code = vectors.search(vector=X[0], k=1).code
    inside = vectors.search(code=code, k=None, radius=5)
    assert vectors.ring_sizes(code).tolist() == np.bincount(inside.distances, minlength=6).tolist()


def test_reranking_orders_the_ball_by_cosine(vectors, hasher):
    _, X, _ = hasher
    ball = vectors.search(vector=X[3], k=None, radius=1).ids
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    best = ball[np.argsort(-(unit[ball] @ unit[3]), kind="stable")]
    found = vectors.search(vector=X[3], k=6, radius=1, rerank=True)
    assert found.ids.tolist() == best[:6].tolist()
    assert (np.diff(found.scores) <= 0).all()
    assert found.ids[0] == 3
    with pytest.raises(InvalidInput, match="a code has none"):
        vectors.search(code=3, rerank=True)


def test_buckets_and_their_classes(vectors, hasher):
    model, X, y = hasher
    packed = pack(model.transform(X))
    assert sum(bucket.load for bucket in vectors.buckets()) == 120
    for bucket in vectors.buckets():
        rows = np.flatnonzero(packed == bucket.code)
        assert vectors.bucket(bucket.code).tolist() == rows.tolist()
        assert bucket.classes == {c: int((y[rows] == c).sum()) for c in range(4) if (y[rows] == c).any()}
    assert vectors.classes == dict.fromkeys(range(4), 30)


def test_items_come_in_the_requested_order(vectors):
    items = vectors.items([5, 2, 5])
    assert [item.id for item in items] == [5, 2, 5]
    assert (items[1].name, items[1].label, items[1].labels) == ("v2", 2, (2,))
    assert [item.code for item in items] == vectors.codes_of([5, 2, 5]).tolist()
    assert vectors.items([]) == []
    with pytest.raises(InvalidInput, match="Id 999 is not in the collection"):
        vectors.items([999])


def test_explanations_name_the_largest_scores_and_the_border(vectors, hasher):
    model, X, y = hasher
    scores = model.project(X)
    for bit in vectors.explain_bits(per_side=3):
        column = scores[:, bit.bit]
        assert bit.share == pytest.approx((column >= 0).mean())
        assert np.sort(np.abs(column[bit.border])) == pytest.approx(np.sort(np.abs(column))[:3])  # scores may tie
        for side, shown, shares in ((1, bit.on, bit.classes_on), (-1, bit.off, bit.classes_off)):
            inside = np.flatnonzero((column >= 0) if side > 0 else (column < 0))
            known, counts = np.unique(y[inside], return_counts=True)
            assert dict(shares) == pytest.approx(dict(zip(known.tolist(), counts / len(inside), strict=True)))
            best = [(side * column[inside][y[inside] == name]).max() for name in known]  # one of every class first
            assert side * column[shown][: len(known)] == pytest.approx(-np.sort(-np.array(best))[:3])


def test_a_reopened_collection_is_the_same(vectors, hasher):
    _, X, _ = hasher
    before = vectors.search(vector=X[1], k=20)
    facts = vectors.facts()
    vectors.close()
    with Collection(vectors.path, readonly=True) as again:
        after = again.search(vector=X[1], k=20)
        assert again.facts() == facts
    assert before.ids.tolist() == after.ids.tolist()
    assert before.labels == after.labels
    assert facts["codes"]["n_samples"] == 120


def test_numbers_of_removed_items_are_not_used_again(vectors, hasher):
    _, X, _ = hasher
    vectors.remove([119, 4])
    assert len(vectors) == 118
    assert 4 not in vectors
    assert vectors.add_vectors(X[:1]).tolist() == [120]
    vectors.close()
    with Collection(vectors.path) as again:
        assert again.add_vectors(X[:1]).tolist() == [121]
        assert again.labels_of([120, 3]) == [None, 3]


def test_string_ids(hasher, tmp_path):
    model, X, _ = hasher
    with Collection.create(tmp_path / "c", model) as c:
        c.add_vectors(X[:3], ids=["b", "a", "c"])
        c.add_vectors(X[3:4], ids=["a longer one"])
        assert c.ids.tolist() == ["a", "a longer one", "b", "c"]
        assert set(c.search(id="a", k=9).ids.tolist()) == {"a longer one", "b", "c"}
        with pytest.raises(InvalidInput, match="cannot be numbered"):
            c.add_vectors(X[:1])


def test_codes_without_vectors(hasher, tmp_path):
    model, _, _ = hasher
    with Collection.create(tmp_path / "c", model) as c:
        c.add_codes(np.array([1, 2, 3], dtype=np.uint8), labels=["x", "x;y", None])
        assert c.search(code=1, k=1).ids.tolist() == [0]
        assert c.classes == {"x": 2, "y": 1}
        with pytest.raises(InvalidInput, match="no item of this collection has one"):
            c.explain_bits()
        with pytest.raises(InvalidInput, match="has no vector"):
            c.search(id=0, rerank=True)


def test_an_empty_collection_answers(hasher, tmp_path):
    model, X, _ = hasher
    with Collection.create(tmp_path / "c", model) as c:
        assert (len(c), len(c.search(vector=X[0])), c.buckets(), c.facts()["codes"]) == (0, 0, [], None)
        assert len(c.search(vector=X[0], rerank=True, k=3)) == 0
        assert len(c.add_vectors(X[:0])) == 0


def test_wrong_calls_change_nothing(vectors, hasher):
    _, X, _ = hasher
    wrong = [
        (lambda: vectors.search(vector=X[0], id=3), "exactly one of vector, id, image and code"),
        (lambda: vectors.search(), "Got none"),
        (lambda: vectors.search(vector=X[0], k=None), "needs k, or radius"),
        (lambda: vectors.search(vector=X[0], k=0), "'k' parameter"),
        (lambda: vectors.search(vector=X[:2]), "must have shape"),
        (lambda: vectors.search(vector=X[0, :3]), "must have shape"),
        (lambda: vectors.search(id=999), "Id 999 is not in the collection"),
        (lambda: vectors.search(code=32), "between 0 and 31"),
        (lambda: vectors.search(image=b"x"), "no recipe for images"),
        (lambda: vectors.add_vectors(X[:2], ids=[0, 500]), "already in the store"),
        (lambda: vectors.add_vectors(X[:2], labels=["a"]), "one entry per code"),
        (lambda: vectors.remove([1, 999]), "Id 999 is not"),
        (lambda: vectors.add_images([("x", b"")]), "no recipe for images"),
    ]
    for call, says in wrong:
        with pytest.raises(InvalidInput, match=says):
            call()
    assert len(vectors) == 120


def test_images_are_added_found_and_removed(collection):
    n = len(collection)
    images = new_images(3)
    report = collection.add_images(
        [*images, images[0], ("bad.png", b"nonsense")], labels=["checks", None, "s", "x", None]
    )
    assert report.added == [n, n + 1, n + 2]
    assert report.duplicates == [("new0.png", n)]
    assert [name for name, _ in report.failed] == ["bad.png"]
    found = collection.search(image=images[0][1], k=3, rerank=True)
    assert found.ids[0] == n
    assert found.scores[0] == pytest.approx(1, abs=1e-4)
    [item] = collection.items([n])
    assert (item.name, item.label) == ("new0.png", "checks")
    assert collection.sources_of([n]) == [""]
    assert item.thumbnail.read_bytes().startswith(b"\xff\xd8")
    assert item.thumbnail.is_relative_to(collection.path)
    collection.remove([n])
    assert not item.thumbnail.exists()
    assert collection.add_images(images[:1]).added == [n + 3]


def test_images_have_one_code_whether_added_alone_or_together(collection):
    images = new_images(9)
    together = collection.add_images(images).added
    codes = [item.code for item in collection.items(together)]
    collection.remove(together)
    alone = [collection.add_images([image]).added[0] for image in images]
    assert [item.code for item in collection.items(alone)] == codes


def test_same_content_again_is_a_duplicate_after_reopening(collection):
    report = collection.add_images(new_images(1))
    collection.close()
    with Collection(collection.path) as again:
        assert again.add_images(new_images(1)).duplicates == [("new0.png", report.added[0])]


def test_unreadable_queries_are_typed_errors(collection):
    with pytest.raises(UnreadableImage, match=r"The image cannot be used: .*not an image"):
        collection.search(image=b"nonsense")
    with pytest.raises(UnreadableImage, match="at most 10"):
        collection.search(image=encoded(picture("rings", 1)), max_pixels=10)


def test_functions_as_features_must_be_passed_again(tmp_path):
    from shorthash import make_hasher

    features = CallableFeatures(lambda batch: batch.mean(axis=(1, 2)) + 1.0, "colours", size=8)
    X = np.random.default_rng(0).normal(size=(30, 3))
    model = make_hasher("lsh", 4, random_state=0).fit(X)
    with Collection.create(tmp_path / "c", model, features=features) as c:
        assert c.add_images(new_images(2)).added == [0, 1]
    with Collection(tmp_path / "c") as c:
        assert len(c.search(id=0)) == 1
        with pytest.raises(InvalidInput, match="a function named 'colours'"):
            c.add_images(new_images(3))
    with Collection(tmp_path / "c", features=features) as c:
        assert c.add_images(new_images(3)).added == [2]


def test_one_writer_at_a_time_and_readers_beside_it(vectors):
    script = "import sys; from shorthash.images import Collection; Collection(sys.argv[1])"
    done = run([sys.executable, "-c", script, vectors.path], capture_output=True, text=True, check=False)
    assert "open for writing" in done.stderr
    assert "read-only" in done.stderr
    with Collection(vectors.path, readonly=True) as reader:
        assert len(reader) == 120
        with pytest.raises(PersistenceError, match="opened read-only"):
            reader.remove([0])


def test_other_folders_are_not_changed(tmp_path, hasher):
    model, _, _ = hasher
    with pytest.raises(PersistenceError, match="There is no collection"):
        Collection(tmp_path / "none")
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "letter.txt").write_text("dear")
    with pytest.raises(ForeignFile, match=r"has no meta\.json"):
        Collection(tmp_path / "some")
    with pytest.raises(ForeignFile, match="not an empty folder"):
        Collection.create(tmp_path / "some", model)
    assert [p.name for p in (tmp_path / "some").iterdir()] == ["letter.txt"]
    Collection.create(tmp_path / "c", model).close()
    with pytest.raises(PersistenceError, match="already holds a collection"):
        Collection.create(tmp_path / "c", model)
    from shorthash.persistence import save

    with pytest.raises(ForeignFile, match="not overwritten"):
        save(model, tmp_path / "c")
    meta = tmp_path / "c" / "meta.json"
    meta.write_text(meta.read_text().replace('"format_version": 1', '"format_version": 9'))
    assert is_collection(tmp_path / "c")
    with pytest.raises(NewerVersion, match="upgrade"):
        Collection(tmp_path / "c")


def test_readers_and_a_writer_at_the_same_time(vectors, hasher):
    _, X, _ = hasher
    stop, errors = threading.Event(), []

    def read():
        while not stop.is_set():
            try:
                found = vectors.search(code=5, k=30)
                assert len(found.codes) == len(found.ids) == len(found.labels)
                vectors.buckets()
            except Exception as error:
                errors.append(error)
                return

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(15):
        ids = vectors.add_vectors(X[:5])
        vectors.remove(ids)
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(vectors) == 120


@pytest.mark.faults
@pytest.mark.parametrize("attempt", range(2))
def test_what_was_acknowledged_survives_kill_9(folder, attempt):
    with Collection(folder, readonly=True) as before:
        n = len(before)
    script = Path(__file__).with_name("adding.py")
    settings = {"PYTHONPATH": os.pathsep.join([str(script.parents[1]), *sys.path]), "PATH": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, script, folder, str(attempt)]
    with Popen(command, stdout=subprocess.PIPE, text=True, env=settings) as writer:
        first = writer.stdout.readline()
        time.sleep(0.3 + 0.37 * attempt)
        writer.kill()
        lines = [first, *writer.stdout.read().splitlines(keepends=True)]
    reported = [line.split() for line in lines if line.endswith("\n")]
    assert reported, "nothing was added before the kill"
    gone = {int(i) for i, what in reported if what == "removed"}
    kept = {int(i): what for i, what in reported if what != "removed" and int(i) not in gone}
    with Collection(folder) as after:
        assert not gone & set(after.ids.tolist())
        assert n + len(kept) - 1 <= len(after) <= n + len(kept) + 1  # one more, or one less, was not yet reported
        last = max(kept, default=-1)
        known = [i for i in kept if i in after]
        assert set(kept) - set(known) <= {last}
        for item in after.items(known):
            assert item.label == kept[item.id]
            assert item.thumbnail is not None
            assert item.thumbnail.read_bytes().endswith(b"\xff\xd9")
        assert after.add_images(new_images(1)).added
    assert GistFeatures(32).recipe == after.facts()["features"]


@pytest.mark.parametrize("ids", [[3, 4, 5, 6], [-2, 0, 7, 2**63 - 1], ["a", "b", "d", "longer"]])
def test_the_table_finds_rows_with_and_without_gaps(ids):
    table = ItemTable.from_columns(np.array(ids[::-1]), np.arange(4, dtype=np.uint8), [None] * 4, [""] * 4, [""] * 4)
    assert table.ids.tolist() == ids
    assert table.codes.tolist() == [3, 2, 1, 0]
    others = ["", "c", "z"] if isinstance(ids[0], str) else [-(2**63), 2, 8]
    assert table.find(np.array([ids[2], *others, ids[0]])).tolist() == [2, -1, -1, -1, 0]
    assert table.find(np.array(["x"] if others[0] else [1])).tolist() == [-1]
    assert ItemState.of(table, 2).without(np.array(ids[1:3])).table.ids.tolist() == [ids[0], ids[3]]


def test_labels_change_on_disk_and_in_memory(vectors):
    ids = vectors.ids[:3].tolist()
    before = vectors.snapshot()
    old, names = vectors.labels_of(ids), [item.name for item in vectors.items(ids)]
    vectors.relabel(ids[:2], ["new", None])
    assert vectors.labels_of(ids) == ["new", None, old[2]]
    assert before.labels_of(ids) == old
    with pytest.raises(InvalidInput, match="one label per item"):
        vectors.relabel(ids, ["a"])
    with pytest.raises(InvalidInput, match="not in the collection"):
        vectors.relabel([ids[0], 10**6], ["a", "b"])
    with Collection(vectors.path, readonly=True) as again:
        assert again.labels_of(ids) == ["new", None, old[2]]
        assert [item.name for item in again.items(ids)] == names
        assert again.classes == vectors.classes
    vectors.close()
    assert check_collection(vectors.path).sound
