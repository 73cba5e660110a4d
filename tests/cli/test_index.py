"""shorthash index, by its whole output; the same commands over a file and over a store."""

import json
import os
import re
from contextlib import suppress

import numpy as np
import pytest
from fastapi.testclient import TestClient
from stores import postgres_url

from shorthash import BucketIndex, load, open_store, save
from shorthash.errors import InvalidInput
from shorthash.persistence import import_index
from shorthash.web import Settings, create_store_app


@pytest.fixture(params=["file", "store"])
def place(request, tmp_path):
    return ["--index", tmp_path / "items.index" if request.param == "file" else f"sqlite:///{tmp_path}/i.db"]


@pytest.fixture
def name(place):
    return str(place[1])


FOUND = """\
query   distance      rows   neighbours
────────────────────────────────────────────────────────────────────
    0          0        20   0, 3, 6, 9, 12, 15, 18, 21, ... 12 more
               1   2 of 40   1, 2
8 more queries; --show 9 or --json shows all
"""

RANKED = """\
query   rank   score   id
─────────────────────────
    0      1       3   3
           2       2   2
    1      1       3   3
           2       2   2
"""


def test_build_and_search_with_a_model(run, place, name):
    built = run("index", "build", "X.npy", "--model", "model", *place)
    assert (built.status, built.err) == (0, "")
    assert built.out == f"place  {name}\nadded  60\nitems  60\nbits   2\n"
    found = run("index", "search", "queries.npz", "--model", "model", "-k", 22, "--show", 1, *place)
    assert (found.status, found.out, found.err) == (0, FOUND, "")


def test_codes_with_ids_added_and_removed(run, place, name, tmp_path):
    np.save(tmp_path / "more.npy", np.array([0, 1], dtype=np.uint8))
    np.save(tmp_path / "names.npy", np.array(["x", "y"]))
    run("index", "build", "codes.npy", "--bits", 2, "--ids", "ids.npy", *place)
    added = run("index", "add", tmp_path / "more.npy", "--ids", tmp_path / "names.npy", *place, "--json")
    assert json.loads(added.out) == {"place": name, "n_added": 2, "n_items": 62, "n_bits": 2}
    assert run("index", "remove", "row0", "y", *place).out == f"place    {name}\nremoved  2\nitems    60\nbits     2\n"
    answer = json.loads(run("index", "search", tmp_path / "more.npy", "--radius", 0, *place, "--json").out)
    assert [[hit["id"] for hit in r["neighbours"]][:1] for r in answer["results"]] == [["x"], ["row11"]]
    gone = run("index", "remove", "--ids", tmp_path / "names.npy", *place)
    assert gone.status == 2
    assert re.fullmatch(r"error: Id 'y' is not in the (index|store); \w+ only ids that were added\.\n", gone.err)
    assert json.loads(run("index", "stats", *place, "--json").out)["n_items"] == 60


def test_rerank(run, place, tmp_path):
    np.save(tmp_path / "codes.npy", np.array([0, 0, 1, 1], dtype=np.uint8))
    np.save(tmp_path / "vectors.npy", np.array([[0.0], [1], [2], [3]]))
    np.save(tmp_path / "query_vectors.npy", np.array([[1.0], [1]]))
    run("index", "build", tmp_path / "codes.npy", "--bits", 4, "--vectors", tmp_path / "vectors.npy", *place)
    np.save(tmp_path / "queries.npy", np.array([0, 3], dtype=np.uint8))
    how = ["--rerank", "dot", "--vectors", tmp_path / "query_vectors.npy", "-k", 2, "--radius", 1]
    answer = json.loads(run("index", "search", tmp_path / "queries.npy", *how, *place, "--json").out)
    assert [r["neighbours"] for r in answer["results"]] == [[{"id": 3, "score": 3.0}, {"id": 2, "score": 2.0}]] * 2


def test_ranking_is_a_table_of_scores(run, tmp_path):
    index = BucketIndex(2).add(np.array([0, 3, 1, 2]), vectors=np.arange(4.0)[:, None])
    save(index, tmp_path / "index")
    np.save(tmp_path / "queries.npy", np.array([0, 3], dtype=np.uint8))
    np.save(tmp_path / "query_vectors.npy", np.array([[1.0], [1]]))
    ask = ["index", "search", tmp_path / "queries.npy", "--index", tmp_path / "index", "-k", 2, "--radius", 1]
    found = run(*ask, "--rerank", "dot", "--vectors", tmp_path / "query_vectors.npy")
    assert found.out == RANKED


def test_asymmetric_scores_come_from_the_model(run, tmp_path):
    run("index", "build", "X.npy", "--model", "model", "--index", tmp_path / "items")
    ask = [
        "index",
        "search",
        "queries.npz",
        "--model",
        "model",
        "--index",
        tmp_path / "items",
        "--rerank",
        "asymmetric",
    ]
    answer = json.loads(run(*ask, "-k", 3, "--json").out)
    assert [hit["id"] for hit in answer["results"][3]["neighbours"]] == [1, 4, 7]


@pytest.mark.usefixtures("learned")
def test_probes_of_an_index_are_those_of_rows(run, place):
    run("index", "build", "X.npy", "--model", "learned", "--vectors", "X.npy", *place)
    policies = [["--probes", 1], ["--probes", "auto"], ["--probes", 2, "--rerank", "cosine"]]
    policies += [["--probes", 2, "--rerank", "posterior"], ["--radius", 1, "--rerank", "posterior"]]
    for policy in policies:
        expected = json.loads(run("search", "learned", "X.npy", "queries.npz", "-k", 5, *policy, "--json").out)
        found = run("index", "search", "queries.npz", "--model", "learned", "-k", 5, *policy, *place, "--json")
        assert (found.status, found.err) == (0, "")
        results = json.loads(found.out)["results"]
        for got, wanted in zip(results, expected["results"], strict=True):
            assert [hit["id"] for hit in got["neighbours"]] == [hit["id"] for hit in wanted["neighbours"]]
            scores = [[hit["score"] for hit in one["neighbours"]] for one in (got, wanted)]
            assert scores[0] == pytest.approx(scores[1], abs=1e-5)
            assert (got["cells"], got["items"], got["looked_up"]) == tuple(
                wanted[k] for k in ("cells", "items", "looked_up")
            )
    shown = run("index", "search", "queries.npz", "--model", "learned", "--probes", 1, "--show", 1, *place)
    assert shown.out.splitlines()[0].split(maxsplit=4) == ["query", "cells", "items", "expected", "best first"]


@pytest.mark.usefixtures("learned")
def test_policies_that_do_not_fit_an_index(run, tmp_path):
    place = ["--index", tmp_path / "items.index"]
    run("encode", "learned", "X.npy", "-o", "learned.npz")
    run("index", "build", "learned.npz", *place)
    run("index", "add", "X.npy", "--model", "learned", *place)  # the others have no posteriors, so these get none
    with_model = ["--model", "learned"]
    for options, message in [
        (["--probes", 2], "--probes: needs features of the queries and the model that encodes them: --model"),
        ([*with_model, "--probes", "x"], "--probes: must be a number of at least 1, or auto. Got 'x'"),
        (
            [*with_model, "--probes", 2, "--rerank", "dot"],
            "--rerank must be one of 'posterior', 'cosine'. Got 'dot' instead.",
        ),
        ([*with_model, "--probes", 2, "--radius", 1], "--probes: give --probes or --radius, not both"),
        (
            [*with_model, "--probes", 2, "--vectors", "X.npy"],
            "--vectors: these vectors are used with --rerank only, and not with --probes",
        ),
        ([*with_model, "--rerank", "posterior"], "--rerank: the index holds no posteriors; build it from"),
    ]:
        outcome = run("index", "search", "queries.npz", *options, *place)
        assert (outcome.status, outcome.out) == (2, "")
        assert message in outcome.err


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request, tmp_path):
    """A database, and the options that name a collection in it."""
    if request.param == "sqlite":
        yield ["--index", f"sqlite:///{tmp_path}/i.db", "--collection", "moved"]
        return
    url, name = postgres_url(), f"moved{os.getpid()}"
    yield ["--index", url, "--collection", name]
    with suppress(InvalidInput), open_store(url, collection=name) as store:
        store.drop()


@pytest.mark.usefixtures("learned")
def test_migrate_to_another_model_while_a_server_answers(run, files, database):
    run("index", "build", "X.npy", "--model", "model", "--vectors", "X.npy", *database)

    def opened():
        return open_store(database[1], collection=database[3])

    def opened_in_v1():
        return open_store(database[1], collection=database[3], version="v1")

    app = create_store_app(load(files / "model"), opened_in_v1, Settings(threads=1))
    query = {"vector": np.load(files / "X.npy")[0].tolist(), "k": 60}
    with TestClient(app, base_url="http://localhost") as client:
        before = client.post("/search", json=query).json()["items"]
        move = ["index", "migrate", *database, "--model", "learned", "--version", "v2", "--batch", 7]
        first = json.loads(run(*move, "--json").out)
        assert {key: first[key] for key in ("version", "current_version", "n_migrated", "n_items", "n_bits")} == {
            "version": "v2",
            "current_version": "v1",
            "n_migrated": 60,
            "n_items": 60,
            "n_bits": 2,
        }
        assert client.post("/search", json=query).json()["items"] == before
        with opened() as store:  # by a writer that knows the old model only
            store.add([3], [99], vectors=np.load(files / "X.npy")[:1])
        assert json.loads(run(*move, "--switch", "--json").out)["n_migrated"] == 1
        assert client.get("/healthz").json()["current_version"] == "v2"
        searched = ["index", "search", "queries.npz", "--model", "learned", *database, "--probes", 1, "--json"]
        assert all(
            result["items"] >= 20 for result in json.loads(run(*searched, "--rerank", "posterior").out)["results"]
        )
        wrong = run("index", "migrate", *database, "--model", "model", "--version", "v2")
        assert wrong.status == 2
        assert "are not those of this model" in wrong.err
        assert run(*move, "--drop", "v1").status == 0
        assert client.get("/healthz").status_code == 503
    with opened() as store:
        assert store.versions == {"v2": 2}


def test_migrate_items_without_vectors(run, tmp_path):
    place = ["--index", f"sqlite:///{tmp_path}/i.db"]
    run("index", "build", "X.npy", "--model", "model", "--ids", "ids.npy", *place)
    move = ["index", "migrate", *place, "--model", "model", "--version", "v2"]
    refused = run(*move)
    assert refused.status == 2
    assert "some have none; give their features instead, as the ROWS" in refused.err
    np.save(tmp_path / "half.npy", np.load("X.npy")[:30])
    np.save(tmp_path / "names.npy", np.load("ids.npy")[:30])
    assert "30 ids for 60 rows" in run(*move, "X.npy", "--ids", tmp_path / "names.npy").err
    with open_store(place[1]) as store:
        assert store.versions == {"v1": 2}  # nothing was begun
    missing = run(*move, tmp_path / "half.npy", "--ids", tmp_path / "names.npy")
    assert "has no row for item" in missing.err
    assert json.loads(run(*move, "X.npy", "--ids", "ids.npy", "--json").out)["n_migrated"] == 60
    with open_store(place[1]) as store:
        assert store.at("v2").codes.tolist() == store.codes.tolist()
    assert "describe ROWS" in run(*move, "--ids", "ids.npy").err
    given = [*move, "X.npy", "--ids", "ids.npy"]
    assert "v1 is the default version; also give --switch" in run(*given, "--drop", "v1").err
    assert "v2 is the version being created; drop another" in run(*given, "--switch", "--drop", "v2").err
    assert "has no version 'v7'" in run(*given, "--drop", "v7").err
    assert "an index in a file has one version" in run("index", "migrate", "--index", "index", *move[4:]).err


STATS = """\
place           NAME
class           BucketIndex
string ids      no
occupied codes  3
possible codes  4
largest bucket  20
bytes           BYTES
checked         yes
items           60
bits            2
"""


def test_stats_check_every_byte(run, tmp_path):
    path = tmp_path / "items"
    run("index", "build", "codes.npy", "--bits", 2, "--index", path)
    answer = run("index", "stats", "--index", path, "--check")
    assert answer.out == STATS.replace("NAME", str(path)).replace("BYTES", str(path.stat().st_size))
    intact = path.read_bytes()
    path.write_bytes(bytes([*intact[:-1], intact[-1] ^ 1]))  # contradicts the other positions
    answer = run("index", "stats", "--index", path)
    assert answer.status == 2
    assert "inconsistent; build the index again; it was written by shorthash" in answer.err
    save(BucketIndex(4).add(np.array([1, 7]), ids=[10, 20]), path)
    intact = path.read_bytes()
    place = intact.rindex((20).to_bytes(8, "little"))
    path.write_bytes(bytes([*intact[:place], 21, *intact[place + 1 :]]))  # another id: nothing contradicts it
    assert run("index", "stats", "--index", path).status == 0
    answer = run("index", "stats", "--index", path, "--check")
    assert answer.status == 2
    assert answer.err.startswith(f"error: {path} is damaged: the checksum of its array 'BucketIndex.ids' differs; ")


def test_shards_are_merged(run, tmp_path):
    for i in range(2):
        save(BucketIndex(4).add(np.array([i, 7]), ids=[10 * i, 10 * i + 1]), tmp_path / f"shard-{i}")
    answer = run("index", "add", tmp_path / "shard-1", "--index", tmp_path / "shard-0", "--json")
    assert json.loads(answer.out)["n_added"] == 2
    assert load(tmp_path / "shard-0").ids.tolist() == [0, 1, 10, 11]
    octets = bytearray((tmp_path / "shard-1").read_bytes())
    octets[-1] ^= 1
    (tmp_path / "shard-1").write_bytes(octets)
    assert "is damaged" in run("index", "add", tmp_path / "shard-1", "--index", tmp_path / "shard-0").err


def test_export(run, place, tmp_path):
    run("index", "build", "codes.npy", "--bits", 2, *place)
    answer = run("index", "export", tmp_path / "codes.parquet", *place)
    assert re.search(rf"output  {tmp_path / 'codes.parquet'}\nbytes   \d+\nitems   60\nbits    2\n", answer.out)
    assert import_index(tmp_path / "codes.parquet").ids.tolist() == list(range(60))
    again = run("index", "export", tmp_path / "codes.parquet", *place)
    assert (again.status, again.err.count("\n")) == (2, 1)
    assert re.search(r"codes.parquet exists, so it is not overwritten; .*give --replace", again.err)
    assert run("index", "export", tmp_path / "codes.parquet", *place, "--replace").status == 0
    (tmp_path / "s.db").write_bytes(b"")
    run("index", "build", "codes.npy", "--bits", 2, "--index", f"sqlite:///{tmp_path}/s.db")
    assert "s.db is a store" in run("index", "export", tmp_path / "s.db", *place, "--replace").err


@pytest.mark.parametrize("verb", ["search", "export"])
def test_every_flipped_byte_is_one_line(run, verb, tmp_path):
    path = save(BucketIndex(2).add(np.array([0, 1, 2, 3] * 5), ids=range(20)), tmp_path / "items")
    whole = path.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    for place in range(start, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 128]) + whole[place + 1 :])
        what = "codes.npy" if verb == "search" else tmp_path / "codes.sql"
        answer = run("index", verb, what, "--index", path)
        assert (answer.status, answer.out, answer.err.count("\n")) == (2, "", 1)
        assert re.match(f"error: {path} (is damaged: the checksum of its array|cannot be read back:) ", answer.err)


def test_an_index_is_not_overwritten_by_accident(run, place, tmp_path):
    build = ["index", "build", "codes.npy", "--bits", 2, *place]
    assert run(*build).status == 0
    again = run(*build)
    assert again.status == 2
    assert "add to it with shorthash index add" in again.err
    assert run(*build, "--replace").status == (2 if "://" in str(place[1]) else 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "codes.npy"], "Missing option '--index'"),
        (["stats", "--index", "index", "--collection", "a"], "a file holds one index, without collections"),
        (["stats", "--index", "model"], "model holds HasherPipeline, but an index is needed; make one with"),
        (["stats", "--index", "sqlite:///b", "--check"], "--check is for an index in a file"),
        (["stats", "--index", "redis://b"], "must begin with one of"),
        (["build", "codes.npy", "--index", "new"], "are packed integers, which do not show their length"),
        (["build", "X.npy", "--index", "new", "--model", "model", "--bits", "2"], "leave out --bits"),
        (
            ["add", "index", "--index", "index", "--ids", "ids.npy"],
            "ROWS is an index; leave out all options",
        ),
        (["remove", "--index", "index"], "Give either the ids to remove, or a file of them with --ids"),
        (["remove", "a", "--index", "index"], "The ids are integers. Got a instead"),
        (["search", "codes.npy", "--index", "index", "-k", "1", "--radius", "1"], "give -k or --radius, not both"),
        (["search", "codes.npy", "--index", "index", "--vectors", "X.npy"], "vectors are used with --rerank only"),
        (["search", "codes.npy", "--index", "index", "--rerank", "dot"], "give the --vectors of the queries"),
        (
            ["search", "codes.npy", "--index", "index", "--rerank", "dot", "--vectors", "X.npy"],
            "--rerank dot needs items with vectors, and this one has none; add them with --vectors, or use --rerank",
        ),
        (
            ["stats", "--index", "sqlite:///b"],
            "There is no store at b; check the path, or make one with",
        ),
        (["export", "codes.txt", "--index", "index"], "end in one of .faiss, .parquet"),
        ([], "Missing command"),
    ],
)
def test_mistakes_are_one_line(run, arguments, message):
    outcome = run("index", *arguments)
    assert outcome.status == 2
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert outcome.out == ""


def test_passwords_are_not_repeated():
    from shorthash.cli.index import _place_name

    assert _place_name("postgresql://me:secret@host/items?sslkey=x") == "postgresql://host/items"
