"""
Which buckets to look into
==========================

A Hamming ball is the usual choice of buckets: radius 0, then 1, then 2. EAPH knows more: for every query it can order
all buckets by the share of relevant items to expect in them (``probes``), and so find as many while reading less.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from shorthash import EAPH, pack
from shorthash.codes import hamming_distances

X, y = load_digits(return_X_y=True)
X = X + np.random.default_rng(0).normal(scale=5, size=X.shape)  # noise: an easy data set needs one bucket only
X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=600, stratify=y, random_state=0)
X_database, X_query, y_database, y_query = train_test_split(X_rest, y_rest, test_size=300, random_state=0)

hasher = EAPH(n_bits=8, random_state=0).fit(X_train, y_train)
codes = hasher.transform(X_database)
packed, relevant = pack(codes), y_query[:, None] == y_database

# %%
# Items within each radius: how many are read, and which share of the relevant ones is among them.
distances = hamming_distances(hasher.transform(X_query), codes)
ball = []
for radius in range(5):
    inside = distances <= radius
    ball.append((inside.mean(), (inside & relevant).sum() / relevant.sum()))

# %%
# The same for the first n buckets of ``probes``:
order = hasher.probes(X_query, n_probes=48)
learned, inside = [], np.zeros_like(relevant)
for n in range(order.shape[1]):
    inside |= packed == order[:, n, None]
    learned.append((inside.mean(), (inside & relevant).sum() / relevant.sum()))

# %%
# The frontier: for the same share of the database read, more of what is wanted.
figure, ax = plt.subplots(figsize=(5.2, 3.4), layout="constrained")
ax.plot(*np.transpose(ball), "s--", color="0.45", label="Hamming ball, radius 0 to 4")
ax.plot(*np.transpose(learned), "o-", color="#d55e00", label=f"probes, 1 to {len(learned)} buckets")
ax.set_xlabel("share of the database that is read")
ax.set_ylabel("share of relevant items found")
ax.legend()
for (read, share), radius in zip(ball, range(5), strict=True):
    ax.annotate(f"{radius}", (read, share), (4, -10), textcoords="offset points", fontsize=8)

# %%
# In a database this is ``WHERE code = ANY(...)``; ``Searcher`` does it for an index or a store, see
# :doc:`/guide/semantic-search`.
print(f"a {y_query[0]} looks into {order[0, :4].tolist()}")
