"""
RSLH: codewords that do not move
================================

Four facts about RSLH that the paper does not mention, on scikit-learn's digits. :doc:`/paper/rslh` explains them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from shorthash import RSLH, AnchorRBF

X, y = load_digits(return_X_y=True)
Z = AnchorRBF(n_anchors=300, random_state=0).fit_transform(X)

hasher = RSLH(n_bits=8, boosting=None, random_state=0).fit(Z, y)
per_class = [len(np.unique(hasher.codes_[y == k], axis=0)) for k in range(10)]
print(f"1. training codes are one codeword per class: {per_class} distinct codes in classes 0 to 9")


# %%
# With ``alpha`` huge, one iteration leaves the random start as it is. Twenty iterations with the published weights
# end at the same codewords.
def codewords(seed, **settings):
    return RSLH(n_bits=8, boosting=None, random_state=seed, **settings).fit(Z, y).codewords_


starts = [codewords(seed, alpha=1e9, max_iter=1) for seed in range(20)]
ends = [codewords(seed, max_iter=20) for seed in range(20)]
moved = sum(int((start != end).sum()) for start, end in zip(starts, ends, strict=True))
print(f"2. bits of class codewords that moved from their random start, 20 seeds: {moved} of {20 * 80}")

figure, axes = plt.subplots(1, 2, figsize=(6, 2.8), layout="constrained", sharey=True)
for ax, words, title in zip(axes, (starts[0], ends[0]), ("random start", "after 20 iterations"), strict=True):
    ax.imshow(words, cmap="coolwarm", aspect="auto")
    ax.set_title(title, fontsize=10)
    ax.set_xlabel("bit")
axes[0].set_ylabel("class")

# %%
# The reduced similarity G, which the paper introduces to save time, gives the codes of the full similarity S:
equal = 0
for seed in range(20):
    one, two = (RSLH(n_bits=8, similarity=s, boosting=None, random_state=seed).fit(Z, y) for s in "GS")
    equal += np.array_equal(one.codes_, two.codes_)
print(f"3. G and S give the same codes for {equal} of 20 seeds")

# %%
# What helps is choosing bits between runs, the paper's boosting:
spread = {
    name: [RSLH(n_bits=4, boosting=boosting, random_state=seed).fit(Z, y).score(Z, y) for seed in range(20)]
    for name, boosting in [("none", None), ("ob", "ob"), ("mb", "mb")]
}
text = ", ".join(f"{name} {np.mean(v):.2f} ({np.std(v):.2f})" for name, v in spread.items())
print(f"4. choosing bits between runs is what helps: leave-one-out mAP at 4 bits, mean (std) of 20 seeds: {text}")

figure, ax = plt.subplots(figsize=(4.5, 2.8), layout="constrained")
ax.boxplot(list(spread.values()), tick_labels=list(spread))
ax.set_xlabel("boosting")
ax.set_ylabel("mAP, 4 bits, 20 seeds")
