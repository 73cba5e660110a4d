"""
Your own method
===============

Write a hasher, use it like the others, offer it by name. It learns this: every bit splits the classes in two random
halves, by the plane midway between the means of the halves. To have ``make_hasher("halves")`` find it after ``pip
install``, a package says in its pyproject.toml::

    [project.entry-points."shorthash.methods"]
    halves = "own_method:RECIPE"
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from shorthash import AnchorRBF, HasherPipeline, evaluate, make_hasher, plot_precision_recall
from shorthash.learners import BaseHasher
from shorthash.methods import Recipe


class HalvesHasher(BaseHasher):
    """Planes midway between the means of two random halves of the classes.

    Parameters
    ----------
    n_bits : int, default=8
        Code length.
    random_state : int, RandomState instance or None, default=None
        Draws the halves.
    """

    def __init__(self, n_bits=8, random_state=None):
        self.n_bits = n_bits
        self.random_state = random_state

    def fit(self, X, y):
        """Draw the halves and find their means; a linear hasher needs no more than these two attributes."""
        X, y = validate_data(self, X, y)
        rng = check_random_state(self.random_state)
        means = np.array([X[y == name].mean(axis=0) for name in np.unique(y)])
        halves = [np.array_split(rng.permutation(means), 2) for _ in range(self.n_bits)]
        ends = np.array([(one.mean(axis=0), two.mean(axis=0)) for one, two in halves])  # (n_bits, 2, n_features)
        self.projection_ = (ends[:, 0] - ends[:, 1]).T
        self.intercept_ = ((ends[:, 1] ** 2).sum(axis=1) - (ends[:, 0] ** 2).sum(axis=1)) / 2
        return self


RECIPE = Recipe(
    full_name="Planes between halves of the classes",
    year=2026,
    multilabel=False,
    reference="This example.",
    learner="own_method:HalvesHasher",
    preprocessing=("kernel",),
)


# %%
# Used like any other method, behind a kernel, and scored beside two of the package:
def main() -> None:
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=300, random_state=0)
    kernel, learner = AnchorRBF(n_anchors=300, random_state=0), HalvesHasher(n_bits=8, random_state=0)
    hashers = {
        "halves": HasherPipeline([("kernel", kernel), ("hasher", learner)]),
        "lsh": make_hasher("lsh", n_bits=8, random_state=0),
        "rslh": make_hasher("rslh", n_bits=8, random_state=0, kernel__n_anchors=300),
    }
    scores = {}
    for name, hasher in hashers.items():
        hasher.fit(X_train, y_train)
        scores[name] = evaluate(hasher.transform(X_test), y_test, hasher.transform(X_train), y_train)
        print(f"{name:7} mAP {scores[name].map:.3f}, within radius 2 {scores[name].map_at_radius:.3f}")
    plot_precision_recall(scores)


if __name__ == "__main__":
    main()
