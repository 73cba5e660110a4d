"""FAISS on one thread: starting several for every tiny search takes longer than the search."""

import importlib.util

if importlib.util.find_spec("faiss") is not None:
    import faiss

    faiss.omp_set_num_threads(1)
