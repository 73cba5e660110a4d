"""Names of other projects that the API reference links to, for builds without a network.

Sphinx reads the inventory of a project from its site. Where that cannot be reached, the names below still lead to their
pages; without an entry a name is shown as plain code.
"""

from __future__ import annotations

import zlib
from pathlib import Path

SITES = {
    "python": "https://docs.python.org/3/",
    "numpy": "https://numpy.org/doc/stable/",
    "scipy": "https://docs.scipy.org/doc/scipy/",
    "sklearn": "https://scikit-learn.org/stable/",
    "matplotlib": "https://matplotlib.org/stable/",
    "pandas": "https://pandas.pydata.org/docs/",
}
# project -> (kind, name, page); a page may use $ for the name
NAMES = {
    "python": [
        ("class", "int", "library/functions.html#$"),
        ("class", "float", "library/functions.html#$"),
        ("class", "bool", "library/functions.html#$"),
        ("class", "str", "library/stdtypes.html#$"),
        ("class", "dict", "library/stdtypes.html#$"),
        ("class", "list", "library/stdtypes.html#$"),
        ("class", "tuple", "library/stdtypes.html#$"),
        ("class", "pathlib.Path", "library/pathlib.html#$"),
        ("data", "None", "library/constants.html#$"),
        ("std:label", "bltin-boolean-values", "library/stdtypes.html#boolean-type-bool"),
        ("std:term", "iterable", "glossary.html#term-iterable"),
        ("std:term", "sequence", "glossary.html#term-sequence"),
    ],
    "numpy": [
        ("std:term", "array_like", "glossary.html#term-array_like"),
        ("class", "numpy.ndarray", "reference/generated/$.html#$"),
        ("class", "numpy.random.RandomState", "reference/random/legacy.html#$"),
        ("class", "numpy.random.Generator", "reference/random/generator.html#$"),
    ],
    "scipy": [("class", "scipy.sparse.csr_array", "reference/generated/$.html#$")],
    "sklearn": [
        ("class", "sklearn.base.BaseEstimator", "modules/generated/$.html#$"),
        ("class", "sklearn.pipeline.Pipeline", "modules/generated/$.html#$"),
        ("class", "sklearn.model_selection.GridSearchCV", "modules/generated/$.html#$"),
        ("class", "sklearn.preprocessing.StandardScaler", "modules/generated/$.html#$"),
        ("class", "sklearn.linear_model.LogisticRegression", "modules/generated/$.html#$"),
        ("function", "sklearn.datasets.load_digits", "modules/generated/$.html#$"),
        ("function", "sklearn.datasets.load_iris", "modules/generated/$.html#$"),
        ("function", "sklearn.model_selection.train_test_split", "modules/generated/$.html#$"),
    ],
    "matplotlib": [
        ("class", "matplotlib.axes.Axes", "api/_as_gen/$.html#$"),
        ("class", "matplotlib.figure.Figure", "api/_as_gen/$.html#$"),
    ],
    "pandas": [("class", "pandas.DataFrame", "reference/api/$.html#$")],
}


def write_inventories(folder: Path) -> dict[str, tuple[str, tuple[str | None, ...]]]:
    """The setting ``intersphinx_mapping``, with an inventory of the names above behind that of each site."""
    folder.mkdir(exist_ok=True)
    mapping = {}
    for project, site in SITES.items():
        path = folder / f"{project}.inv"
        path.write_bytes(inventory(project, NAMES[project]))
        mapping[project] = (site, (None, str(path)))
    return mapping


def inventory(project: str, names: list[tuple[str, str, str]]) -> bytes:
    """An inventory file of Sphinx, version 2."""
    head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
    head += "# The remainder of this file is compressed using zlib.\n"
    kinds = {kind: kind if ":" in kind else f"py:{kind}" for kind, _, _ in names}
    lines = [f"{name} {kinds[kind]} 1 {page.replace('$', name)} -\n" for kind, name, page in names]
    return head.encode() + zlib.compress("".join(lines).encode())
