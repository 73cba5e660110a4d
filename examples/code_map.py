"""
A map of codes
==============

Rows with equal codes are one disc, and discs with close codes are near each other. Good codes have discs of one
colour.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from shorthash import make_hasher, plot_code_map

X, y = load_digits(return_X_y=True)
train, test = slice(0, 900), slice(900, None)

# %%
# Five bits learned without labels: discs hold several digits.
unsupervised = make_hasher("pcaitq", n_bits=5, random_state=0).fit(X[train])
ax = plot_code_map(unsupervised, X[test], y[test])
ax.set_title(f"pcaitq: mAP {unsupervised.score(X[test], y[test]):.3f}")
plt.show()

# %%
# The same rows with codes of the recommended method:
supervised = make_hasher("auto", n_bits=5, random_state=0).fit(X[train], y[train])
ax = plot_code_map(supervised, X[test], y[test])
ax.set_title(f"auto: mAP {supervised.score(X[test], y[test]):.3f}")
