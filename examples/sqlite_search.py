"""
Search in SQLite
================

A code is a small integer, so an ordinary B-tree finds what is near it. No extension is needed.
"""

import sqlite3
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from shorthash import make_hasher, open_store

X, y = load_digits(return_X_y=True)
hasher = make_hasher("auto", n_bits=8, random_state=0).fit(X[:900], y[:900])

# %%
# A store keeps codes, ids, classes and metadata in one file, and has the methods of an index.
folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "digits.db"
store = open_store(f"sqlite:///{path}", n_bits=8)
store = store.add(
    hasher.transform(X[:1500]),
    ids=[f"image-{i}" for i in range(1500)],
    classes=y[:1500].tolist(),
    metadata=[{"ink": int(row.sum()) // 100} for row in X[:1500]],
)
found = store.search(hasher.transform(X[1500:1503]), k=5)
print(y[1500:1503], [[int(y[int(name[6:])]) for name in row] for row in found.ids])
found

# %%
# Conditions on classes and metadata are part of the search:
few = store.search(hasher.transform(X[1500:1501]), k=3, where={"ink": [2, 3]})
print([store.items(few.ids[0].tolist()).metadata])

# %%
# Any program can read the file. The codes are a column with a covering index:
connection = sqlite3.connect(path)
for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql LIKE '%INDEX%' LIMIT 3"):
    print(sql)

# %%
# How the items fill the 256 buckets, the fullest first:
import matplotlib.pyplot as plt

from shorthash import pack

counts = np.sort(np.bincount(pack(hasher.transform(X[:1500])), minlength=256))[::-1]
figure, ax = plt.subplots(figsize=(5.5, 2.8), layout="constrained")
ax.bar(np.arange(40), counts[:40], color="#0072b2")
ax.set_xlabel("bucket, by size")
ax.set_ylabel("items")

# %%
# Close the store to release the file.
connection.close()
store.close()
folder.cleanup()
