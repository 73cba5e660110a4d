"""Images: features of image files, and a collection of items that can be searched and added to.

In: image files, a fitted hasher. Out: feature rows; neighbours, buckets, explanations. Names are imported on first use,
so that processes which only decode images start fast.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
