"""
How many bits?
==============

``advise`` learns codes of several lengths, scores them by cross-validation, and says what each length costs: how much
of the database a lookup reads, and how large the index would be.
"""

from sklearn.datasets import load_digits

from shorthash import advise

X, y = load_digits(return_X_y=True)
advice = advise(X[:900], y[:900], lengths=(2, 3, 4, 6, 8), methods=("classifier", "rslh", "pcaitq"), n_items=1_000_000)
print(advice.sentence)

# %%
# Ten classes need at least 4 bits; with fewer, some classes must share a code. An unsupervised method (``pcaitq``)
# gains from every bit, a supervised one is soon as good as it will be.
ax = advice.plot()
ax.axvline(advice.recommended.n_bits, color="0.6", linestyle=":")

# %%
# Short codes are cheap to store, but a ball of radius 2 covers most of them (*ball %*), so a lookup reads much of the
# database (*read %*). Longer codes read less.
advice

# %%
# The same from a shell: ``shorthash advise features.npy labels.npy --items 1000000 --figure advice.png``.
