"""Save and load fitted models (as folders) and indexes (as single files), memory-mappable and without pickle.

In: an object of a registered class. Out: a folder or file, and the object again.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
