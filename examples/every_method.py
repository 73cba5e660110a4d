"""
Every method on one data set
============================

``compare`` splits the rows, learns with every method, and scores the same queries. Here: all methods on a thousand
digits.
"""

import warnings

from sklearn.datasets import load_digits

from shorthash import compare
from shorthash.methods import recipes

warnings.simplefilter("ignore")  # few rows: kernels with fewer anchors than they would like
X, y = load_digits(return_X_y=True)
methods = [name for name in recipes() if name not in {"eaph", "sumeaph"}]  # "auto" is eaph
result = compare(X[:1000], y[:1000], lengths=[4, 6, 8], methods=methods)

# %%
# mAP at 4 bits, with the range that the order among equal distances could make of it:
import matplotlib.pyplot as plt

rows = sorted((row for row in result.rows if row.n_bits == 4), key=lambda row: row.map)
figure, ax = plt.subplots(figsize=(6, 4.6), layout="constrained")
places = range(len(rows))
ax.barh(places, [row.map for row in rows], color=["#d55e00" if r.method == "auto" else "#0072b2" for r in rows])
ax.hlines(places, [r.map_worst for r in rows], [r.map_best for r in rows], color="0.3", linewidth=1)
ax.set_yticks(places, [row.method for row in rows])
ax.set_xlabel("mAP, 4 bits")

# %%
# The best at every length, and which others cannot be told apart from it on these queries:
from shorthash.lab.compare import comparison_sentence

print(comparison_sentence(result))

# %%
# All numbers:
result

# %%
# On your own files: ``shorthash compare features.npy labels.npy --methods all`` writes a page with tables and
# figures.
