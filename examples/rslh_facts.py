"""
RSLH facts
==========

Four facts about RSLH that the paper does not tell, shown on scikit-learn's digits.

Run ``python examples/rslh_facts.py``; the page docs/paper/rslh.md explains them and holds this output.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from shorthash import RSLH, AnchorRBF


def main() -> None:
    X, y = load_digits(return_X_y=True)
    Z = AnchorRBF(n_anchors=300, random_state=0).fit_transform(X)

    hasher = RSLH(n_bits=8, boosting=None, random_state=0).fit(Z, y)
    per_class = [len(np.unique(hasher.codes_[y == k], axis=0)) for k in range(10)]
    print(f"1. training codes are one codeword per class: {per_class} distinct codes in classes 0 to 9")

    moved = [first_codewords(Z, y, seed) for seed in range(20)]
    print(f"2. bits of class codewords that moved from their random start, 20 seeds: {sum(moved)} of {20 * 80}")

    equal = 0
    for seed in range(20):
        one, two = (RSLH(n_bits=8, similarity=s, boosting=None, random_state=seed).fit(Z, y) for s in "GS")
        equal += np.array_equal(one.codes_, two.codes_)
    print(f"3. G and S give the same codes for {equal} of 20 seeds")

    spread = {
        name: [RSLH(n_bits=4, boosting=boosting, random_state=seed).fit(Z, y).score(Z, y) for seed in range(20)]
        for name, boosting in [("none", None), ("ob", "ob"), ("mb", "mb")]
    }
    text = ", ".join(f"{name} {np.mean(v):.2f} ({np.std(v):.2f})" for name, v in spread.items())
    print(f"4. choosing bits between runs is what helps: leave-one-out mAP at 4 bits, mean (std) of 20 seeds: {text}")


def first_codewords(Z: np.ndarray, y: np.ndarray, seed: int) -> int:
    """Bits of the class codewords that differ between one iteration and twenty, both from the same random start."""
    start = RSLH(n_bits=8, boosting=None, random_state=seed, alpha=1e9, max_iter=1).fit(Z, y)  # labels only: stays
    end = RSLH(n_bits=8, boosting=None, random_state=seed, max_iter=20).fit(Z, y)
    return int((start.codewords_ != end.codewords_).sum())


if __name__ == "__main__":
    main()
