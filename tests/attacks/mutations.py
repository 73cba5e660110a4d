"""Damage files in many ways and read them, each format in a process of its own: mutations.py FORMAT FOLDER FIRST N.

A mutation changes the bytes, or (crafted) the contents so that every checksum fits again. A line is printed for each:
its number and what came of it: refused (an error of shorthash), same, found (different, but ``verify`` finds the
damage), different, or the name of another exception.
"""

import json
import random
import resource
import shutil
import sqlite3
import sys
import warnings
from contextlib import closing
from pathlib import Path

import numpy as np
from crafting import craft_file, craft_folder
from pictures import encoded, picture

from shorthash import BucketIndex, load, make_hasher, save
from shorthash.data.files import read_codes, read_features, read_labels, write_table
from shorthash.errors import ShorthashError
from shorthash.images import Collection
from shorthash.images.decoding import decode
from shorthash.images.storage import _checksum
from shorthash.kernels.rbf import AnchorRBF
from shorthash.persistence import export_index, import_index, verify
from shorthash.scale import as_stream, collect, fit_collected, load_collected, save_collected
from shorthash.store import SQLiteStore

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 6)).astype(np.float32)
QUERIES = np.arange(16)


def small_index(n_bits=9):
    ids = RNG.permutation(1000)[:300]
    return BucketIndex(n_bits).add(RNG.integers(0, 1 << n_bits, size=300), ids, vectors=RNG.normal(size=(300, 4)))


def answers(index):
    """What an index says, as plain values."""
    found = index.search(QUERIES, k=20)
    near = index.within(QUERIES, 2)
    best = index.rerank(QUERIES, np.ones((16, 4), dtype=np.float32), 5, radius=3)
    return [a.tolist() for a in (found.ids, found.distances, near.ids, near.offsets, best.ids, index.ids, index.codes)]


def index_mapped(path):
    return answers(load(path, mmap=True))


def index_read(path):
    return answers(load(path))


def model_read(path):
    return load(path).transform(X).tolist()


def collection_read(path):
    with Collection(path, readonly=True) as opened:
        found = [opened.search(code=code, k=10) for code in range(8)]
        vectors = opened.vectors_of(opened.ids[:5])
        bits = opened.explain_bits(2)
        return [
            [(f.ids.tolist(), f.labels, f.names) for f in found],
            None if vectors is None else vectors.tolist(),
            [b.on.tolist() for b in bits],
            json.dumps(opened.facts(), sort_keys=True),
        ]


def store_read(path):
    with SQLiteStore(path, readonly=True) as store:
        items = store.items(store.ids)
        found = store.search(QUERIES, k=10)
        return [items.ids.tolist(), items.classes, items.metadata, items.vectors.tolist(), found.ids.tolist()]


def export_read(path):
    index = import_index(path, 9)
    return sorted(zip(index.ids.tolist(), index.codes.tolist(), strict=True))


def data_read(path):
    """Every way in which a file of rows is read."""
    rows = [block.X.tolist() for block in as_stream(path).blocks()]
    found, refused = [rows], 0
    for read in (read_features, read_labels, read_codes):
        try:
            found.append(read(path).tolist())
        except ShorthashError:
            refused += 1
    return found, refused


def sums_read(path):
    collected = load_collected(path)
    hasher = make_hasher("nsh", n_bits=3, random_state=0)
    return fit_collected(hasher, collected).transform(X[:20]).tolist(), collected.sums.classes.tolist()


def write_rows(path):
    """The first rows of ``X`` in the format that the ending names."""
    table = {f"x{i}": X[:, i] for i in range(X.shape[1])}
    if path.suffix == ".npy":
        np.save(path, X)
    elif path.suffix == ".npz":
        np.savez(path, features=X)
    else:
        write_table(path, table)
    return path


def image_read(path):
    return np.asarray(decode(path.read_bytes())).tobytes()


def make(kind, folder):
    """(file to change, what reads it)."""
    if kind.startswith("index"):
        return save(small_index(), folder / "i.index"), index_mapped if kind == "index-mmap" else index_read
    if kind.startswith("model"):
        hasher = make_hasher("rslh", n_bits=4, random_state=0, kernel={"n_anchors": 10}).fit(X, RNG.integers(0, 3, 200))
        path = save(hasher, folder / "m")
        return path / ("meta.json" if kind == "model-meta" else "arrays.safetensors"), lambda _: model_read(path)
    if kind.startswith("collection"):
        hasher = make_hasher("pcaitq", n_bits=4, random_state=0).fit(X)
        with Collection.create(folder / "c", hasher) as made:
            made.add_vectors(X, labels=[i % 5 for i in range(200)], names=[f"item {i}" for i in range(200)])
        file = "meta.json" if kind == "collection-meta" else "items.sqlite"
        return folder / "c" / file, lambda _: collection_read(folder / "c")
    if kind.startswith("store"):
        with SQLiteStore(folder / "s.db", n_bits=9) as store:
            metadata = [{"name": f"n{i}"} for i in range(200)]
            store.add(RNG.integers(0, 512, 200), classes=[i % 5 for i in range(200)], metadata=metadata, vectors=X)
            if kind == "store-packed":
                store.pack_vectors()
        if kind == "store-packed":
            [file] = (folder / "s.db-vectors").iterdir()
            return file, lambda _: store_read(folder / "s.db")
        return folder / "s.db", store_read
    if kind.startswith("image"):
        path = folder / f"p.{kind[6:]}"
        path.write_bytes(encoded(picture("rings", 1, size=(40, 30)), kind[6:].upper()))
        return path, image_read
    if kind.startswith("data"):
        return write_rows(folder / f"d.{kind[5:]}"), data_read
    if kind == "sums":
        collected = collect(as_stream(X, RNG.integers(0, 3, 200)), AnchorRBF(n_anchors=10, random_state=0))
        save_collected(collected, folder / "s.sums")
        return folder / "s.sums", sums_read
    return export_index(small_index(), folder / f"e.{kind[7:]}"), export_read


def verify_store(path):
    with SQLiteStore(path, readonly=True) as store:
        store.verify()


def found_by_verify(kind, file):
    """Whether checking the file completely finds what reading did not."""
    try:
        if kind.startswith("index"):
            verify(file)
        elif kind.startswith("store"):
            verify_store(file if kind == "store" else file.parents[1] / "s.db")
    except ShorthashError:
        return True
    return False


KINDS = [
    *("index-mmap", "index-read", "model-meta", "model-arrays", "collection-meta", "collection-items", "store"),
    *("store-packed", "export-faiss", "export-parquet", "export-sql", "export-db", "sums"),
    *("data-npy", "data-npz", "data-csv", "data-parquet"),
    *("image-jpeg", "image-png", "image-gif", "image-webp", "image-bmp", "image-tiff", "image-ppm"),
]
CRAFTED = [kind for kind in KINDS if not kind.startswith(("export", "image", "data"))]  # those have no checksum


def mutated(octets, rng):
    """Bytes with one of several kinds of damage."""
    data, n = bytearray(octets), len(octets)
    how = rng.randrange(8)
    a = rng.randrange(n)
    b = min(n, a + rng.choice((1, 4, 8, 64, 512, 4096)))
    if how <= 1:
        for _ in range(rng.choice((1, 1, 3, 20))):
            data[rng.randrange(n)] ^= 1 << rng.randrange(8)
    elif how == 2:
        data[a:b] = rng.choice((b"\0", b"\xff")) * (b - a)
    elif how == 3:
        del data[a:]
    elif how == 4:
        del data[a:b]
    elif how == 5:
        data[a:a] = rng.randbytes(b - a)
    elif how == 6:
        value = rng.choice((0, 1, -1, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63)))
        size = rng.choice((4, 8))
        data[a : a + size] = (value % (1 << (8 * size))).to_bytes(size, "little")
    else:
        c = rng.randrange(n)
        data[a:b], data[c : c + b - a] = octets[c : c + b - a], octets[a:b]
    return bytes(data)


def wild(rng):
    """A value that nobody expects."""
    return rng.choice(
        [*(None, True, 0, -1, 1, 3, 255, 2**31, 2**63, -(2**63), 2**70, 1.5, 1e308), "", "x", "uint64", [], {}, [[]]]
    )


def nodes(value):
    """Every place in a JSON value, as (container, key)."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(inner, dict | list):
            yield from nodes(inner)


def change_json(value, rng):
    """Replace, drop or copy one place of a JSON value."""
    places = list(nodes(value))
    container, key = rng.choice(places)
    if rng.random() < 0.2 and isinstance(container, dict):
        del container[key]
    elif rng.random() < 0.3:
        other, name = rng.choice(places)
        container[key] = json.loads(json.dumps(other[name]))
    else:
        container[key] = wild(rng)


def change_arrays(arrays, rng):
    """Set some entries of one array to extreme values, or give it another size."""
    name = rng.choice(sorted(arrays))
    array = arrays[name]
    if rng.random() < 0.2 or not array.size:
        arrays[name] = np.resize(array, rng.choice(((0,), (1,), (7,), (3, 5), (2, 2, 2)))).astype(array.dtype)
        return
    flat = array.reshape(-1).copy()
    for _ in range(rng.choice((1, 3, 50))):
        place = rng.randrange(len(flat))
        if flat.dtype.kind in "iu":
            low, high = np.iinfo(flat.dtype).min, np.iinfo(flat.dtype).max
            flat[place] = rng.choice((low, high, 0, 1, min(high, len(flat)), rng.randint(low, high)))
        elif flat.dtype.kind == "f":
            flat[place] = rng.choice((np.nan, np.inf, -np.inf, 0.0, 1e30, -1e30))
        else:
            flat[place] = not flat[place]
    arrays[name] = flat.reshape(array.shape)


def craft(kind, file, rng):
    """Change contents so that every checksum fits."""
    either = [lambda arrays: change_arrays(arrays, rng), lambda meta: change_json(meta, rng)]
    either[rng.randrange(2)] = None
    if kind.startswith("index") or kind in ("store-packed", "sums"):
        craft_file(file, *either)
    elif kind.startswith("model"):
        craft_folder(file.parent, *either)
    elif kind == "collection-meta":
        meta = json.loads(file.read_text())
        change_json(meta, rng)
        meta["checksum"] = _checksum(meta)
        file.write_text(json.dumps(meta))
    elif kind in ("collection-items", "store"):
        craft_rows(file, rng)


def craft_rows(file, rng):
    """Change a value of a row, by SQL; no row has a checksum any more."""
    with closing(sqlite3.connect(file)) as database, database:
        tables = ["items", "items", "items_vectors", "shorthash_collections", "shorthash_versions"]
        table = rng.choice(tables)
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        value = wild(rng)
        value = json.dumps(value) if isinstance(value, list | dict) else value
        value = min(max(value, -(2**63)), 2**63 - 1) if isinstance(value, int) else value
        if rng.random() < 0.3:
            value = rng.randbytes(rng.choice((0, 1, 24, 100)))
        where = "" if table.startswith("shorthash") else f" LIMIT 1 OFFSET {rng.randrange(150)}"
        key = {"items": "id", "items_vectors": "slot"}.get(table, "rowid")
        try:
            if table == "items":
                database.execute("UPDATE items SET metadata = json_remove(metadata, '$.check')")
            for marked in ("items", "items_vectors", "shorthash_collections"):
                database.execute(f"UPDATE {marked} SET crc = NULL")
            database.execute(
                f"UPDATE {table} SET {rng.choice(columns)} = ? WHERE {key} IN (SELECT {key} FROM {table}{where})",
                [value],
            )
        except sqlite3.Error:
            return


def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()  # a signal loses nothing that was said


def main(kind, folder, first, n):
    folder = Path(folder)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    file, read = make(kind.removesuffix("+"), folder)
    whole, crafted = file.read_bytes(), kind.endswith("+")
    keep = folder / "keep"
    top = file.parent if crafted and file.parent != folder else None
    if top is not None:
        shutil.copytree(top, keep)
    expected = read(file)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(first, n):
        rng = random.Random(f"{kind} {number}")
        if top is not None:
            shutil.rmtree(top)
            shutil.copytree(keep, top)
        file.write_bytes(whole)
        for log in ("-wal", "-shm"):
            Path(f"{file}{log}").unlink(missing_ok=True)
        say(f"{number} ")
        if not crafted:
            file.write_bytes(mutated(whole, rng))
        else:
            craft(kind[:-1], file, rng)
        try:
            found = read(file)
            if repr(found) == repr(expected):
                outcome = "same"
            else:
                outcome = "found" if not crafted and found_by_verify(kind, file) else "different"
        except ShorthashError:
            outcome = "refused"
        except Exception as error:
            outcome = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
        say(f"{outcome}\n")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    say(f"memory {grown} {len(whole)}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
