"""
Quick start
===========

Learn codes of one byte for scikit-learn's digits, search with them, and score them with ties counted exactly.
"""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from shorthash import BucketIndex, Searcher, evaluate, make_hasher

X, y = load_digits(return_X_y=True)
X_database, X_query, y_database, y_query = train_test_split(X, y, test_size=300, stratify=y, random_state=0)

hasher = make_hasher("auto", n_bits=8, random_state=0).fit(X_database, y_database)  # or "rslh", "sdh", ...
database, query = hasher.transform(X_database), hasher.transform(X_query)  # int8, -1 or +1
index = BucketIndex(n_bits=8).add(database)
nearest = index.search(query, k=5)  # .ids and .distances, (300, 5)
scores = evaluate(query, y_query, database, y_database)
found = Searcher(hasher).add(X_database).search(X_query, k=5, probes=3, rerank="posterior")  # learned probes
print(f"mAP {scores.map:.3f}; a {y_query[0]} finds {y_database[nearest.ids[0]]} and {y_database[found[0][0]]}")

# %%
# The nearest items of four queries, the query on the left:
import matplotlib.pyplot as plt

figure, grid = plt.subplots(4, 6, figsize=(5, 3.6))
for row, number in zip(grid, range(4), strict=True):
    for ax, image in zip(row, [X_query[number], *X_database[nearest.ids[number]]], strict=True):
        ax.imshow(image.reshape(8, 8), cmap="gray_r")
        ax.set_axis_off()
    row[0].set_title(f"query {number}", fontsize=8)

# %%
# Precision and recall of everything within a Hamming radius:
ax = scores.plot()

# %%
# All scores; the range is what the order among equal distances could do.
scores
