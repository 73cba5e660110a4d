"""
Search in PostgreSQL
====================

The same store on a server: an integer column and a B-tree, no extension. Set ``SHORTHASH_POSTGRES`` to the URL of a
database of your own, such as ``postgresql://user@host/database``.
"""

import os
import time

import matplotlib.pyplot as plt
import numpy as np
import psycopg
from sklearn.datasets import load_digits

from shorthash import make_hasher, open_store

url = os.environ.get("SHORTHASH_POSTGRES", "postgresql://localhost/postgres")
X, y = load_digits(return_X_y=True)
hasher = make_hasher("auto", n_bits=12, random_state=0).fit(X[:900], y[:900])

# %%
# Add items; a bulk load is one ``COPY``. 100 000 copies of the digits, a little changed, to have something to search:
rng = np.random.default_rng(0)
rows = rng.integers(1500, size=100_000)
codes = hasher.transform(X[rows] + rng.normal(scale=2, size=(len(rows), X.shape[1])))
store = open_store(url, collection="digits", n_bits=12)
store = store.add(codes, ids=np.arange(len(rows)), classes=y[rows].tolist())
print(f"{len(store)} items")

# %%
# Search, with a condition on the class:
query = hasher.transform(X[1500:1501])
found = store.search(query, k=10)
print(f"a {y[1500]} finds {y[rows[found.ids[0]]].tolist()}")
only = store.search(query, k=3, where={"class": 3})
print(f"among threes: distances {only.distances[0].tolist()}")

# %%
# What it costs: the time of one search by how many neighbours are wanted, on one connection.
times = {}
for k in (1, 10, 100, 1000):
    start = time.perf_counter()
    for i in range(1500, 1530):
        store.search(hasher.transform(X[i : i + 1]), k=k)
    times[k] = (time.perf_counter() - start) / 30 * 1000
figure, ax = plt.subplots(figsize=(4.5, 2.8), layout="constrained")
ax.plot(list(times), list(times.values()), "o-")
ax.set_xscale("log")
ax.set_ylim(bottom=0)
ax.set_xlabel("neighbours")
ax.set_ylabel("ms per search")

# %%
# The tables are plain; other programs can join them with their own.
store.close()
with psycopg.connect(url) as connection:
    found = connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE '%digits%'").fetchall()
    print([name for (name,) in found])
    for (name,) in found:
        connection.execute(f'DROP TABLE "{name}" CASCADE')
