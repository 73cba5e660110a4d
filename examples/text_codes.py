"""
Text
====

Short codes for text: topics of short sentences, from word counts to 6 bits, searched in buckets.

Any embedding works the same way: one row of numbers per text, one label per text. Here the rows are word statistics
(TF-IDF and a truncated SVD, both from scikit-learn), so that nothing has to be downloaded.
"""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from shorthash import BucketIndex, evaluate, make_hasher

TOPICS = {
    "weather": "rain sun wind storm cloud snow cold warm forecast sky",
    "cooking": "bread oven salt butter soup knife boil onion recipe taste",
    "music": "guitar song melody piano choir rhythm concert violin tune drum",
    "sport": "goal match team run race ball coach score league win",
    "space": "star planet orbit rocket moon galaxy telescope comet launch sun",
}
FILLER = [
    "the",
    "a",
    "very",
    "some",
    "today",
    "again",
    "maybe",
    "we",
    "they",
    "saw",
    "had",
    "near",
    "long",
    "good",
    "little",
]


def main() -> None:
    texts, topics = write_texts(np.random.default_rng(0), 400)
    embed = make_pipeline(TfidfVectorizer(), TruncatedSVD(16, random_state=0))
    X = embed.fit_transform(texts)
    train, query = slice(0, 1500), slice(1500, None)

    hasher = make_hasher("auto", n_bits=6, random_state=0).fit(X[train], topics[train])
    codes = hasher.transform(X)
    scores = evaluate(codes[query], topics[query], codes[train], topics[train])
    print(
        f"{len(X)} texts, 5 topics, 6 bits: mAP {scores.map:.2f}, from {scores.map_worst:.2f} to {scores.map_best:.2f}"
    )

    index = BucketIndex(n_bits=6).add(codes[train], vectors=X[train])
    asked = embed.transform(["a cold wind and some rain near the sky"])
    nearest = index.rerank(hasher.transform(asked), asked, k=3, radius=1)
    for i in nearest.ids:
        print(f"  {topics[i]}: {texts[i]}")


def write_texts(rng: np.random.Generator, per_topic: int) -> tuple[list[str], np.ndarray]:
    """Short sentences: a few words of their topic, one of another now and then, and filler."""
    texts, topics = [], []
    for topic, words in TOPICS.items():
        for _ in range(per_topic):
            other = TOPICS[rng.choice(list(TOPICS))].split()
            picked = [*rng.choice(words.split(), 2), rng.choice(other), *rng.choice(FILLER, 4)]
            texts.append(" ".join(rng.permutation(picked)))
            topics.append(topic)
    order = rng.permutation(len(texts))
    return [texts[i] for i in order], np.array(topics)[order]


if __name__ == "__main__":
    main()
