"""shorthash images: a group of its own, from a folder of photographs to neighbours."""

from __future__ import annotations

import typer

from shorthash.cli.images_add import add
from shorthash.cli.images_fit import fit
from shorthash.cli.images_info import info
from shorthash.cli.images_remove import remove
from shorthash.cli.images_search import search

__all__ = ["images"]

images = typer.Typer(name="images", rich_markup_mode=None)
for verb in (fit, search, add, remove, info):
    images.command()(verb)


@images.callback()
def _about() -> None:
    """Search photographs: learn codes of a folder of images, find similar ones, add and remove.

    \b
    Example:
      shorthash images fit photos/ -o photos.model
    """
