"""
EAPH, step by step
==================

The recommended method learns posteriors over classes, gives every class a corner of the cube of codes, and then lets
every row move to the corner where the expected mAP is highest. :doc:`/paper/eaph` has the mathematics.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from shorthash import EAPH, plot_hypercube

X, y = load_digits(return_X_y=True)
X = X + np.random.default_rng(0).normal(scale=6, size=X.shape)  # noise, so that classes are confused
X_train, X_new, y_train, y_new = train_test_split(X, y, test_size=800, stratify=y, random_state=0)

# %%
# **1. Posteriors.** A calibrated model says which classes a row may have. Which classes are confused with each other
# decides which codes should be close.
hasher = EAPH(n_bits=4, codebook="annealed", random_state=0).fit(X_train, y_train)
confusion = np.array([hasher.oof_posteriors_[hasher.label_set_ids_ == k].mean(axis=0) for k in range(10)])
np.fill_diagonal(confusion, 0)
figure, ax = plt.subplots(figsize=(3.6, 3.2), layout="constrained")
image = ax.imshow(confusion, cmap="Blues")
ax.set_xlabel("probability of class")
ax.set_ylabel("class")
figure.colorbar(image, ax=ax, fraction=0.046)

# %%
# **2. A codebook.** Random corners put confused classes anywhere:
start = EAPH(n_bits=4, codebook="random", refine=False, random_state=0).fit(X_train, y_train)
ax = plot_hypercube(start.codewords_, hasher.classes_)
ax.set_title(f"random codewords: mAP {start.score(X_new, y_new):.3f}", loc="left")

# %%
# Annealing the expected mAP puts confused classes on neighbouring corners:
annealed = EAPH(n_bits=4, refine=False, random_state=0).fit(X_train, y_train)
ax = plot_hypercube(annealed.codewords_, hasher.classes_)
ax.set_title(f"annealed codewords: mAP {annealed.score(X_new, y_new):.3f}", loc="left")

# %%
# **3. A table of all corners.** Ten classes leave six corners unused. The refinement gives them to rows that lie
# between classes: a row that may be a 4 or a 9 gets a code of its own, near both.
ax = plot_hypercube(hasher.transform(X_new), y_new)
ax.set_title(f"codes of new rows: mAP {hasher.score(X_new, y_new):.3f}", loc="left")

# %%
# The expected mAP, which the refinement climbs, is computed from posteriors of held-out training rows; the new rows
# are not used.
print(f"expected {hasher.expected_map_:.3f}, measured on new rows {hasher.score(X_new, y_new):.3f}")
figure, ax = plt.subplots(figsize=(4.2, 2.6), layout="constrained")
ax.plot(hasher.objective_, "o-")
ax.set_xlabel("iteration")
ax.set_ylabel("expected mAP")
