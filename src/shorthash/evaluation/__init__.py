"""Evaluation: codes and labels become Scores, exact for tied distances, under named conventions.

=============================  ======================================================================================
``evaluate``                   codes of queries and database
``evaluate_hasher``            a fitted hasher, on feature rows
``evaluate_histogram``         a database of any size, given by its histogram
``evaluate_distances``         a ranking by real-valued distances
``evaluate_cells``             a ranking of cells, such as codes with learned distances
``evaluate_reranked``          codes whose ties are broken by vectors
``evaluate_neighbours``        codes without labels: the nearest rows are relevant
``read_qrels``                 judgements of a TREC file, for ``evaluate(relevance=)``
``summarise``                  intervals over seeds
``compare_scores``             paired comparisons over queries
``plot_precision_recall``      a figure: precision and recall by radius
=============================  ======================================================================================
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
