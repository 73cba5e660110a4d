"""
Ties, and which mAP
===================

With 4 bits there are five distances, so nearly all items are tied with others. Average precision needs an order, and
the order among ties decides what is reported.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from shorthash import evaluate, make_hasher
from shorthash.evaluation import CONVENTIONS

X, y = load_digits(return_X_y=True)
X_database, X_query, y_database, y_query = train_test_split(X, y, test_size=300, stratify=y, random_state=0)

scores = {}
for n_bits in (3, 4, 6, 8, 12, 16):
    hasher = make_hasher("pcaitq", n_bits=n_bits, random_state=0).fit(X_database)
    scores[n_bits] = evaluate(hasher.transform(X_query), y_query, hasher.transform(X_database), y_database)

# %%
# The same codes, the same ranking; only the order inside equal distances differs. ``map`` is the exact mean over all
# orders, ``map_worst`` and ``map_best`` are its bounds.
import matplotlib.pyplot as plt

figure, ax = plt.subplots(figsize=(5.5, 3.2), layout="constrained")
places = np.arange(len(scores))
worst, mean, best = (np.array([getattr(s, name) for s in scores.values()]) for name in ("map_worst", "map", "map_best"))
ax.bar(places, best - worst, bottom=worst, width=0.5, color="#0072b2", alpha=0.25, label="from worst to best order")
ax.plot(places, mean, "o", color="#0072b2", label="mean over all orders")
ax.set_xticks(places, scores)
ax.set_xlabel("bits")
ax.set_ylabel("mAP")
ax.set_ylim(0, 1)
ax.legend(loc="lower right")

# %%
# An implementation that sorts the database by distance takes whatever order the file has. That is a lottery if the
# file is shuffled, and a bias if it is sorted by class; ``evaluate`` warns of the second.
import warnings

hasher = make_hasher("pcaitq", n_bits=4, random_state=0).fit(X_database)
query, database = hasher.transform(X_query), hasher.transform(X_database)
orders = {"shuffled": np.random.default_rng(0).permutation(len(y_database)), "sorted by class": np.argsort(y_database)}
for name, order in orders.items():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stable = evaluate(query, y_query, database[order], y_database[order], ties="stable")
    by_class = stable.by_class(y_query)
    print(f"{name:16} mAP {stable.map:.3f}; of zeros {by_class[0]:.3f}, of nines {by_class[9]:.3f}")
    print("".join(f"warning: {each.message}" for each in caught))

# %%
# Published code also differs in what it calls mAP. Every convention is one word:
for name, rule in CONVENTIONS.items():
    value = evaluate(query, y_query, database, y_database, convention=name).headline
    print(f"{name:20} {value:.4f}  {rule.family}")
