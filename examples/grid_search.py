"""
Pipelines and grid search
=========================

Hashers are scikit-learn estimators: they stand in pipelines, are cloned, and are tuned by ``GridSearchCV``. Their
``score`` is the tie-aware mAP of the rows among each other.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from shorthash import RSLH, make_hasher

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=500, stratify=y, random_state=0)

# %%
# Bits and anchors of RSLH, by three-fold cross-validation:
grid = {"hasher__n_bits": [4, 6, 8], "kernel__n_anchors": [30, 100, 300]}
search = GridSearchCV(make_hasher("rslh", random_state=0), grid, cv=3).fit(X_train, y_train)
print(search.best_params_, f"mAP {search.best_score_:.3f}, on other rows {search.score(X_test, y_test):.3f}")

# %%
# Every combination:
scores = np.asarray(search.cv_results_["mean_test_score"]).reshape(3, 3)
figure, ax = plt.subplots(figsize=(4, 3), layout="constrained")
image = ax.imshow(scores, cmap="viridis", origin="lower")
ax.set_xticks(range(3), grid["kernel__n_anchors"])
ax.set_yticks(range(3), grid["hasher__n_bits"])
ax.set_xlabel("anchors")
ax.set_ylabel("bits")
figure.colorbar(image, label="mAP")

# %%
# A hasher in a longer pipeline: codes of 8 bits as features of a classifier.
model = make_pipeline(StandardScaler(), PCA(20), RSLH(n_bits=8, random_state=0), KNeighborsClassifier(metric="hamming"))
model.fit(X_train, y_train)
print(f"accuracy of neighbours by 8 bits: {model.score(X_test, y_test):.3f}")
model

# %%
# Codes as a data frame:
search.best_estimator_.set_output(transform="pandas").transform(X_test[:4])
