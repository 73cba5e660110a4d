"""Codes in a database: durable, shared by processes, with classes, metadata and vectors.

In: codes as an index takes them. Out: what an index gives; ``open_store`` turns a URL into a store.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
