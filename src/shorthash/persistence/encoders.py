"""Export a fitted hasher as a Python file that needs only NumPy, for programs without this package."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from shorthash import __version__
from shorthash.errors import InvalidInput
from shorthash.kernels.rbf import AnchorRBF, Bias
from shorthash.learners.base import BaseHasher
from shorthash.persistence.files import replacing

Arrays = dict[str, NDArray[Any]]

PAGE = '''"""Feature rows become {n_bits}-bit codes; needs NumPy only. Made by shorthash {version} from {steps}."""

from pathlib import Path

import numpy as np

W = dict(np.load(Path(__file__).with_suffix(".npz")))


def project(X):
    """Real scores, (n_samples, {n_bits}), of rows with {n_features} features; their signs are the code."""
    X = np.asarray(X)
    X = X if X.dtype.kind == "f" else X.astype(np.float64)
{lines}
    return X


def encode(X):
    """Codes as integers, (n_samples,): bit j is set where score j is not negative."""
    bits = (project(X) >= 0).astype(np.uint64)
    return (bits << np.arange({n_bits}, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)
'''


def export_encoder(hasher: Any, path: str | os.PathLike[str]) -> Path:
    """Write a fitted hasher as a Python file that needs only NumPy, and its arrays beside it as ``.npz``.

    The file has two functions: ``project(X)``, the real scores, and ``encode(X)``, packed codes, as
    ``pack(hasher.transform(X))`` gives them. Both take all rows at once; give large inputs in batches.

    Parameters
    ----------
    hasher : a fitted hasher with a linear hash function, alone or in a pipeline behind ``AnchorRBF``, ``Bias`` or
        ``StandardScaler``
    path : the file to write, ending in ``.py``

    Returns
    -------
    path : the file

    Examples
    --------
    >>> import runpy, tempfile
    >>> from shorthash import make_hasher
    >>> X = np.random.default_rng(0).normal(size=(50, 4))
    >>> hasher = make_hasher("lsh", n_bits=3, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     encode = runpy.run_path(str(export_encoder(hasher, f"{folder}/encoder.py")))["encode"]
    >>> (hasher.transform(X) > 0).dot([1, 2, 4]).tolist() == encode(X).tolist()
    True
    """
    target = Path(path)
    if target.suffix != ".py":
        raise InvalidInput(f"An encoder is a Python file, so its name must end in .py. Got {target} instead.")
    steps = [step for _, step in getattr(hasher, "steps", [("", hasher)])]
    arrays: Arrays = {}
    lines: list[str] = []
    for number, step in enumerate(steps):
        check_is_fitted(step)
        code, named = _translated(step)
        arrays |= {f"{name}_{number}": array for name, array in named.items()}
        places = {name: f'W["{name}_{number}"]' for name in named}
        lines += [f"    {line.format(**places)}" for line in code]
    page = PAGE.format(
        n_bits=arrays[f"projection_{len(steps) - 1}"].shape[1],
        n_features=steps[0].n_features_in_,
        version=__version__,
        steps=", ".join(type(step).__name__ for step in steps),
        lines="\n".join(lines),
    )
    with replacing(target.with_suffix(".npz")) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    with replacing(target) as temporary:
        temporary.write_bytes(page.encode())
    return target


def _translated(step: Any) -> tuple[list[str], Arrays]:
    """A step of a pipeline as lines of code, and the arrays that they name in braces."""
    if isinstance(step, AnchorRBF):
        features: Any = step.features()
        lines = [
            "X = X - {shift}",
            "X = np.hstack([X, (X * X).sum(axis=1, keepdims=True), np.ones((len(X), 1))])",
            "X = np.exp(np.minimum(X @ {weights}, 0)) - {mean}",
        ]
        return lines, {"shift": features.shift, "weights": features.weights, "mean": step.mean_}
    if isinstance(step, Bias):
        return ["X = np.hstack([X, np.ones((len(X), 1))])"], {}
    if isinstance(step, StandardScaler):
        centre = np.zeros(step.n_features_in_) if step.mean_ is None else step.mean_
        width = np.ones(step.n_features_in_) if step.scale_ is None else step.scale_
        return ["X = (X - {centre}) / {width}"], {"centre": centre, "width": width}
    if isinstance(step, BaseHasher) and step._is_linear:
        arrays = {"projection": step.projection_, "intercept": np.asarray(step.intercept_)}
        return ["X = X @ {projection} + {intercept}"], arrays
    raise InvalidInput(
        "An encoder can be written for AnchorRBF, Bias, StandardScaler and hashers with a linear hash function. Got "
        f"{type(step).__name__} instead; save the model with save() and encode with this package."
    )
