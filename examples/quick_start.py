"""
Quick start
===========

Learn codes of one byte for scikit-learn's digits, look up the buckets that most likely hold what is wanted, and score
the codes with ties counted exactly.
"""

from sklearn.datasets import load_digits

from shorthash import Searcher, make_hasher

X, y = load_digits(return_X_y=True)
hasher = make_hasher(n_bits=8, random_state=0).fit(X[:1500], y[:1500])
searcher = Searcher(hasher).add(X[:1500])
found = searcher.search(X[1500:1503], k=5, probes=3, rerank="posterior")
print(y[1500:1503], [y[ids].tolist() for ids, _ in found])

# %%
# The codes alone, by Hamming distance: the nearest items of four queries, the query on the left.
import matplotlib.pyplot as plt

nearest = searcher.index.search(hasher.transform(X[1500:]), k=5)
figure, grid = plt.subplots(4, 6, figsize=(5, 3.6))
for row, number in zip(grid, range(4), strict=True):
    for ax, image in zip(row, [X[1500 + number], *X[nearest.ids[number]]], strict=True):
        ax.imshow(image.reshape(8, 8), cmap="gray_r")
        ax.set_axis_off()
    row[0].set_title(f"query {number}", fontsize=8)

# %%
# Score the codes: every query against the database, ties counted exactly. Precision and recall within every radius:
from shorthash import evaluate

scores = evaluate(hasher.transform(X[1500:]), y[1500:], hasher.transform(X[:1500]), y[:1500])
ax = scores.plot()

# %%
# All scores; the range is what the order among equal distances could do.
scores
