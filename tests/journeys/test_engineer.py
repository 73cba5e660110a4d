"""An engineer with a table of embeddings: from a CSV file to codes in their own database, by commands of the guide."""

import csv
import sqlite3

import numpy as np
import pytest

COLUMNS = "--id sku --features 'emb_*'"


@pytest.fixture(scope="module")
def shell(tmp_path_factory, shell_in):
    """Command lines in a folder with items.csv and new.csv, a model and the codes of items.csv."""
    folder = tmp_path_factory.mktemp("engineer")
    rng = np.random.default_rng(0)
    kinds = np.arange(240) % 4
    X = 3 * np.eye(16)[kinds] + rng.normal(size=(240, 16))
    for name, rows in (("items", range(200)), ("new", range(200, 240))):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["sku", "kind", "price", *(f"emb_{j}" for j in range(16))])
            for i in rows:
                kind = "" if i % 10 == 9 else ["cup", "hat", "pen", "toy"][kinds[i]]  # some labels are missing
                writer.writerow([f"s{i}", kind, 1.5 * i, *X[i].round(4)])

    shell = shell_in(folder)
    shell(f"fit items.csv {COLUMNS} --label kind --bits 6 --set drop_unlabelled=true -o items.model")
    shell(f"encode items.model items.csv {COLUMNS} -o codes.csv")
    return shell


def test_the_whole_way(shell):
    shell(f"search items.model codes.csv new.csv --database-codes {COLUMNS} -k 3 -o found.csv")
    with (shell.folder / "found.csv").open() as file:
        found = list(csv.DictReader(file))
    assert len(found) == 40 * 3
    right = [(int(row["query"][1:]) - int(row["id"][1:])) % 4 == 0 for row in found]
    assert np.mean(right) > 0.9


def test_the_index(shell):
    shell("index build codes.csv --bits 6 --index items.index")
    shell(f"index upsert new.csv --model items.model {COLUMNS} --index items.index")
    assert '"n_items": 240' in shell("index stats --index items.index --json")


def test_the_own_database(shell):
    index, query = shell(
        "sql --bits 6 --dialect sqlite --table 'my items' --code-column hash --id-column sku"
    ).splitlines()
    with (shell.folder / "codes.csv").open() as file:
        rows = [(row["id"], int(row["code"])) for row in csv.DictReader(file)]
    database = sqlite3.connect(":memory:")
    database.execute('CREATE TABLE "my items"(sku TEXT PRIMARY KEY, hash INTEGER)')
    database.executemany('INSERT INTO "my items" VALUES (?, ?)', rows)
    database.execute(index)
    found = database.execute(query, {"code": rows[0][1]}).fetchall()
    assert (rows[0][0], 0) in found
    assert {distance for _, distance in found} <= {0, 1, 2}


def test_judgements(shell):
    lines = [f"s{i} 0 s{j} 1\n" for i in range(200, 240) for j in range(200) if (i - j) % 4 == 0]
    (shell.folder / "judged.qrels").write_text("".join(lines))
    how = f"evaluate --model items.model --query new.csv --database items.csv {COLUMNS} --relevance judged.qrels --json"
    assert '"n_without_relevant": 0' in shell(how)
