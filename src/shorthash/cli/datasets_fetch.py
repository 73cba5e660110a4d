"""shorthash datasets fetch: originals from where they are published."""

from __future__ import annotations

from typing import Annotated

from shorthash.cli import output
from shorthash.cli.bench_options import DataDir
from shorthash.cli.options import AsJson, argument
from shorthash.cli.progress import progress

__all__ = ["fetch"]


def fetch(
    name: Annotated[str, argument("NAME", "A data set of shorthash datasets list.")],
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Download the original files of a data set, and check them; files that are there are only checked.

    They go to originals/NAME of the folder, or of a cache of your own. mnist and fashion-mnist can be used at once;
    features of the others are made as docs/guide/datasets.md says.

    \b
    Example:
      shorthash datasets fetch fashion-mnist
    """
    from shorthash.data.catalogue import CATALOGUE
    from shorthash.data.catalogue import fetch as download

    with progress() as tell:
        files = download(name, data_dir, tell)
    facts = {file.name: str(file) for file in files} | {"licence": CATALOGUE[name].licence}
    output.show(output.Answer({"files": [str(file) for file in files]}, facts), as_json=as_json)
