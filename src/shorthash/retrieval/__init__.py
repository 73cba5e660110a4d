"""Search from feature rows to answers: a fitted hasher, an index or a store, and what to look up and to order by.

In: rows of features. Out: ``Answers``, with what the search has cost and what to expect of it.
"""

from shorthash.retrieval.answers import Answers
from shorthash.retrieval.posteriors import compact_posteriors, score_posteriors
from shorthash.retrieval.searcher import Searcher

__all__ = ["Answers", "Searcher", "compact_posteriors", "score_posteriors"]
