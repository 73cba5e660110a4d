"""
A key of one byte
=================

Learn a key by which a plain database finds what belongs together, search by it, rank inside it, and go on learning.
The rows are scikit-learn's digits; put your embeddings and labels in their place.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from shorthash import BucketIndex, evaluate, make_hasher
from shorthash.codes import pack
from shorthash.evaluation import evaluate_reranked

X, y = load_digits(return_X_y=True)
X_train, X_new, y_train, y_new = train_test_split(X, y, train_size=600, random_state=0, stratify=y)
X_db, X_query, y_db, y_query = train_test_split(X_new, y_new, test_size=200, random_state=0, stratify=y_new)

hasher = make_hasher("auto", n_bits=8, random_state=0).fit(X_train, y_train)
learner = hasher[-1]
print(f"predicted mAP {learner.disjoint_map_:.3f}, from the training rows alone")

codes, queries = hasher.transform(X_db), hasher.transform(X_query)
print(f"measured mAP  {evaluate(queries, y_query, codes, y_db).map:.3f}")
print(f"keys {pack(codes)[:5].tolist()}: any column of small integers holds them")

# %%
# the same codes, items at equal distance ordered by posteriors: ten numbers per item instead of sixty-four
p_db, p_query = learner.predict_proba(X_db), learner.predict_proba(X_query)
both = evaluate_reranked(queries, y_query, p_query, codes, y_db, p_db, metric="dot")
print(f"with re-ranking by posteriors {both.map:.3f}")

index = BucketIndex(8).add(codes, vectors=p_db.astype(np.float32))
found = index.search(queries[:1], 5, ties="scores", vectors=p_query[:1].astype(np.float32), metric="dot")
print(f"a {y_query[0]} finds {y_db[found.ids[0]].tolist()}")

# %%
# cells in the order of what one may expect to find in them: WHERE code = ANY(...)
print(f"a {y_query[0]} looks up the codes {learner.probes(X_query[:1], 5)[0].tolist()}")

# %%
# more rows arrive: the posteriors learn, codes that are stored keep their meaning
learner = make_hasher("auto", n_bits=8, posterior="logistic", random_state=0)[-1]
learner.partial_fit(X_train[:300], y_train[:300]).partial_fit(X_train[300:], y_train[300:])
print(f"learned in two parts {evaluate(learner.transform(X_query), y_query, learner.transform(X_db), y_db).map:.3f}")

# %%
# Codes of the first half stand; the map of the new rows, by code:
import matplotlib.pyplot as plt

from shorthash import plot_code_map

plot_code_map(learner, X_query, y_query)
plt.show()
