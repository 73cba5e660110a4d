"""Features that crash or block the process that computes them, in a module that a worker imports in no time."""

import os
import time

from shorthash.images.features import GistFeatures


class Deadly(GistFeatures):
    """At an image that is 13 pixels wide its process ends, at 17 it sleeps, at 19 it takes a gigabyte."""

    def prepare(self, image):
        if image.size[0] == 13:
            os._exit(9)
        if image.size[0] == 17:
            time.sleep(600)
        if image.size[0] == 19:
            bytearray(1 << 30)
        return super().prepare(image)
