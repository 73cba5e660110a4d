"""
Text
====

Topics of short sentences, from word counts to 6 bits. Any embedding works the same way: one row of numbers per text,
one label per text. Here the rows are word statistics (TF-IDF and a truncated SVD), so that nothing has to be
downloaded.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from shorthash import BucketIndex, evaluate, make_hasher, plot_code_map

TOPICS = {
    "weather": "rain sun wind storm cloud snow cold warm forecast sky",
    "cooking": "bread oven salt butter soup knife boil onion recipe taste",
    "music": "guitar song melody piano choir rhythm concert violin tune drum",
    "sport": "goal match team run race ball coach score league win",
    "space": "star planet orbit rocket moon galaxy telescope comet launch sun",
}
FILLER = ["the", "a", "very", "some", "today", "again", "maybe", "we", "they", "saw", "had", "near", "long", "good"]


# %%
# Sentences of two words of their topic, one of any topic, and filler:
def write_texts(rng, per_topic):
    texts, topics = [], []
    for topic, words in TOPICS.items():
        for _ in range(per_topic):
            other = TOPICS[rng.choice(list(TOPICS))].split()
            picked = [*rng.choice(words.split(), 2), rng.choice(other), *rng.choice(FILLER, 4)]
            texts.append(" ".join(rng.permutation(picked)))
            topics.append(topic)
    order = rng.permutation(len(texts))
    return [texts[i] for i in order], np.array(topics)[order]


texts, topics = write_texts(np.random.default_rng(0), 300)
embed = make_pipeline(TfidfVectorizer(), TruncatedSVD(16, random_state=0))
X = embed.fit_transform(texts)
train, query = slice(0, 1000), slice(1000, None)
print(texts[0], "|", topics[0])

# %%
# Learn, encode, score:
hasher = make_hasher("auto", n_bits=6, random_state=0).fit(X[train], topics[train])
codes = hasher.transform(X)
scores = evaluate(codes[query], topics[query], codes[train], topics[train])
print(f"{len(X)} texts, 5 topics, 6 bits: mAP {scores.map:.2f}, from {scores.map_worst:.2f} to {scores.map_best:.2f}")

# %%
# Search: the bucket of the text and its neighbours, ranked by the embedding.
index = BucketIndex(n_bits=6).add(codes[train], vectors=X[train])
vector = embed.transform(["a cold wind and some rain near the sky"])
nearest = index.rerank(hasher.transform(vector), vector, k=3, radius=1)
for i in nearest.ids:
    print(f"{topics[i]}: {texts[i]}")

# %%
# Texts that mention two topics lie between them:
ax = plot_code_map(hasher, X[query], topics[query])
plt.show()
