"""Save and load fitted models and indexes; describe and verify what was saved.

A value becomes JSON and arrays. Numbers, strings, None and lists are written as they are. Everything else is a node: an
object whose key ``"$"`` names its kind. Arrays go to the array file under a name; their node keeps name, type, shape.

A saved file can name only the classes listed here (ours, and some of scikit-learn), and learners of methods that
installed packages register by entry points. Any other name is an error, so loading never runs code that came with a
file.
"""

from __future__ import annotations

import dataclasses
import math
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shorthash._validation import steps_of
from shorthash.errors import DamagedFile, PersistenceError, ShorthashError
from shorthash.index.memory import MemoryIndex
from shorthash.methods import RECIPES, STEPS, Recipe, import_class, recipes
from shorthash.persistence.files import (
    TYPES,
    check_arrays,
    damage_explained,
    read_meta,
    read_save,
    write_file,
    write_folder,
)

TRIED = 1 << 20  # columns of a row that a loaded model encodes to show that it can
NOT_SAVED = ("_path", "_rows", "_held")  # what EAPH keeps in memory after fit: models of all penalties, rows, labels
OF_PARTIAL_FIT = ("statistics_", "kept_rows_")
METHOD = "method:"  # prefix of the name of a learner that an installed package registers
MOST_LETTERS = 1 << 22  # that strings in meta.json may be padded to
MT_WORDS = 624  # words in the state of a Mersenne Twister
SHORT_LIST = 4096  # string arrays up to this size are readable in meta.json; longer ones go to the array file

Array = NDArray[Any]

SKLEARN = {
    "decomposition": "IncrementalPCA PCA TruncatedSVD",
    "discriminant_analysis": "LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis",
    "feature_selection": "VarianceThreshold",
    "frozen": "FrozenEstimator",
    "impute": "SimpleImputer",
    "kernel_approximation": "Nystroem RBFSampler",
    "linear_model": "LogisticRegression",
    "naive_bayes": "GaussianNB",
    "pipeline": "Pipeline",
    "preprocessing": "Binarizer KernelCenterer MaxAbsScaler MinMaxScaler Normalizer PolynomialFeatures "
    "PowerTransformer QuantileTransformer RobustScaler StandardScaler",
    "random_projection": "GaussianRandomProjection",
}
"""Classes of scikit-learn whose fitted attributes are plain values and arrays, by module."""

ESTIMATORS = {
    path.rpartition(":")[2]: path
    for path in (
        *STEPS.values(),
        *(recipe.learner for recipe in RECIPES.values()),
        "shorthash.learners.boosting:BitBoost",
        "shorthash.learners.encoders:CodewordHasher",
        "shorthash.pipeline:HasherPipeline",
        *(f"sklearn.{module}:{name}" for module, names in SKLEARN.items() for name in names.split()),
    )
}
"""Estimators and pipelines: saved as parameters and fitted attributes."""

DATACLASSES = {
    "CellCenters": "shorthash.learners.eaph.encoding:CellCenters",
    "Classified": "shorthash.learners.posteriors.models:Classified",
    "Combination": "shorthash.learners.posteriors.models:Combination",
    "Convergence": "shorthash.learners.rslh.steps:Convergence",
    "GroupStatistics": "shorthash.learners.sums:GroupStatistics",
    "KeptRows": "shorthash.learners.samples:KeptRows",
    "KernelRidge": "shorthash.learners.posteriors.ridge:KernelRidge",
    "LogLinear": "shorthash.learners.posteriors.logistic:LogLinear",
    "LogPosterior": "shorthash.learners.encoders:LogPosterior",
    "Memberships": "shorthash.learners.eaph.groups:Memberships",
    "Memory": "shorthash.learners.posteriors.memory:Memory",
    "OnnxModel": "shorthash.learners.posteriors.models:OnnxModel",
    "Prefit": "shorthash.learners.posteriors.models:Prefit",
    "Prototypes": "shorthash.learners.posteriors.logistic:Prototypes",
    "Remembering": "shorthash.learners.posteriors.memory:Remembering",
    "RidgeScores": "shorthash.learners.encoders:RidgeScores",
    "Sketching": "shorthash.learners.posteriors.memory:Sketching",
}
"""Dataclasses among fitted attributes: saved field by field."""

INDEXES = {
    "BucketIndex": "shorthash.index.buckets:BucketIndex",
    "FaissIndex": "shorthash.index.scan:FaissIndex",
    "ScanIndex": "shorthash.index.scan:ScanIndex",
}
"""Indexes: saved by ``export_state``."""


def save(obj: Any, path: str | os.PathLike[str], *, statistics: bool = True) -> Path:
    """Save a fitted model or pipeline as a folder, an index as one file.

    An older save at the same path is replaced in one step: a crash leaves the old one or the new one. Anything else at
    that path is not overwritten; an error says so. Temporary files of interrupted saves to this path are removed. An
    index opened with ``mmap=True`` is first checked against the checksums of its file.

    Parameters
    ----------
    obj : an estimator or pipeline of shorthash, or an index
    path : the folder or file to write
    statistics : whether to save the sums that ``partial_fit`` needs (``statistics_``); without them the save is
        smaller and gives the same codes, but the loaded model cannot be trained further

    Returns
    -------
    path : the folder or file

    Examples
    --------
    >>> import tempfile
    >>> from shorthash import BucketIndex, load, save
    >>> index = BucketIndex(n_bits=3).add([[1, 1, 1], [1, -1, 1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     load(save(index, f"{folder}/index")).search([[1, 1, 1]], k=2).ids.tolist()
    [[0, 1]]
    """
    kind = "pipeline" if hasattr(obj, "steps") else "model"
    name = registered_name(obj, ESTIMATORS)
    if name is None:
        kind, name = "index", registered_name(obj, INDEXES)
    if name is None:
        kinds = ", ".join(sorted([*ESTIMATORS, *INDEXES]))
        raise PersistenceError(f"save() takes one of {kinds}. Got {type(obj).__name__} instead.")
    if hasattr(obj, "verify"):
        obj.verify()  # a damaged array must not get a new checksum that fits it
    encoder = Encoder(leave_out=NOT_SAVED if statistics else (*NOT_SAVED, *OF_PARTIAL_FIT))
    meta = {
        "kind": kind,
        "class": name,
        "statistics": statistics and _learns_further(obj),
        "summary": _summary(obj),
        "value": encoder.encode(obj, name),
    }
    write = write_file if kind == "index" else write_folder
    write(Path(path), meta, encoder.arrays)
    return Path(path)


def load(path: str | os.PathLike[str], *, mmap: bool = False) -> Any:
    """Load what ``save`` wrote; no code in it is run.

    Parameters
    ----------
    path : the folder or file
    mmap : leave the arrays on disk and read them when they are needed; changes are kept in memory. The table of
        contents is checked, and of an index what keeps a search inside its arrays (one pass over the bucket table, 4 or
        8 bytes per item). Ids, vectors and checksums are not: ``verify`` checks every byte

    Examples
    --------
    >>> import tempfile
    >>> from shorthash import BucketIndex, load, save
    >>> path = tempfile.mkdtemp() + "/index"
    >>> _ = save(BucketIndex(n_bits=3).add([1, 2]), path)
    >>> len(load(path))
    2
    """
    place = Path(path)
    meta, arrays = read_save(place, mmap=mmap)
    loaded = _decoded(place, meta, arrays, thorough=not mmap)
    if mmap and "checksums" in meta and hasattr(loaded, "verify"):
        loaded._check_source = lambda: _check(place, meta, arrays)
    return loaded


def _decoded(place: Path, meta: Mapping[str, Any], arrays: Mapping[str, Any], *, thorough: bool) -> Any:
    """The object that a save describes."""
    try:
        loaded = Decoder(arrays, thorough=thorough).decode(meta["value"])
        _check_use(loaded, meta)
        return loaded
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError, OverflowError) as error:
        kind = "" if isinstance(error, ShorthashError) else f"{type(error).__name__}: "
        raise DamagedFile(
            f"{place} cannot be read back: {kind}{str(error).rstrip('.')}; it was written by shorthash "
            f"{meta['shorthash_version']}, so try that version, or build and save it again."
        ) from error


def _check_use(loaded: Any, meta: Mapping[str, Any]) -> None:
    """Raise unless an object is of the class that its description names, and a model encodes one row."""
    registry = INDEXES if meta["kind"] == "index" else ESTIMATORS
    if registered_name(loaded, registry) != meta["class"]:
        raise TypeError(f"it is a {type(loaded).__name__}, not a {meta['class']}")
    n_features = meta["summary"].get("n_features_in")
    if meta["kind"] == "index" or n_features is None or n_features > TRIED or not hasattr(loaded, "transform"):
        return
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            loaded.transform(np.zeros((1, n_features)))
    except ShorthashError:
        raise
    except Exception as error:  # of any kind, since its parts may not fit each other
        raise ValueError(f"it cannot encode a row ({type(error).__name__}: {error})") from error


def _check(place: Path, meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Raise DamagedFile unless the arrays of a save in one file have their checksums and fit each other."""
    check_arrays(place, meta, arrays)
    _decoded(place, meta, arrays, thorough=True)


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a save holds, without reading its arrays.

    Parameters
    ----------
    path : the folder or file

    Returns
    -------
    description : kind ("index", "model" or "pipeline"), class, shorthash_version, format_version, statistics (whether
        it can be trained further), bytes, params, and n_bits, n_items, n_features_in, n_samples_seen where they apply

    Examples
    --------
    >>> import tempfile
    >>> from shorthash import BucketIndex, save
    >>> path = tempfile.mkdtemp() + "/index"
    >>> _ = save(BucketIndex(n_bits=3).add([1, 2]), path)
    >>> describe(path)["kind"]
    'index'
    """
    place = Path(path)
    meta = read_meta(place)
    n_bytes = meta["arrays"]["n_bytes"] if "arrays" in meta else place.stat().st_size
    kept = ("kind", "class", "shorthash_version", "format_version", "statistics")
    with damage_explained(place, "its description is incomplete; "):
        return {
            **{key: meta[key] for key in kept},
            "bytes": n_bytes,
            **meta["summary"],
            "params": _plain(meta["value"].get("params", {})),
        }


def verify(path: str | os.PathLike[str]) -> None:
    """Raise DamagedFile unless every byte of a save is as it was written, and its parts fit each other.

    Parameters
    ----------
    path : the folder or file

    Examples
    --------
    >>> import tempfile
    >>> from shorthash import BucketIndex, save
    >>> path = tempfile.mkdtemp() + "/index"
    >>> _ = save(BucketIndex(n_bits=3).add([1, 2]), path)
    >>> verify(path)
    """
    place = Path(path)
    meta, arrays = read_save(place, mmap=False)
    if "value" in meta:  # other files of arrays, such as packed vectors, have none
        _decoded(place, meta, arrays, thorough=True)


def _learns_further(obj: Any) -> bool:
    """Whether the learner has the state that ``partial_fit`` continues from."""
    learner = steps_of(obj)[-1]
    return hasattr(learner, "partial_fit") and any(hasattr(learner, name) for name in OF_PARTIAL_FIT)


def _summary(obj: Any) -> dict[str, int]:
    """Sizes that ``describe`` reports."""
    if isinstance(obj, MemoryIndex):
        more = {} if obj.dimension is None else {"dimension": obj.dimension}
        more |= {"posterior_bytes": obj.posterior_bytes} if obj.posterior_bytes else {}
        return {"n_bits": obj.n_bits, "n_items": len(obj), **more}
    steps = steps_of(obj)
    features = [getattr(step, "n_features_in_", None) for step in steps]
    seen = [getattr(step, "n_samples_seen_", None) for step in reversed(steps)]
    found = {
        "n_bits": getattr(steps[-1], "n_bits", None),
        "n_features_in": next((n for n in features if n is not None), None),
        "n_samples_seen": next((n for n in seen if n is not None), None),
    }
    return {name: int(value) for name, value in found.items() if value is not None}


def _plain(node: Any) -> Any:
    """Encoded parameters as plain values; arrays and random generators by name only."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    kind = node.get("$")
    if kind is None:
        return {key: _plain(value) for key, value in node.items()}
    if kind == "estimator":
        return {"class": node["class"], **_plain(node["params"])}
    if kind in ("tuple", "dict"):
        items = [_plain(item) for item in node["items"]]
        return items if kind == "tuple" else {str(key): value for key, value in items}
    if kind in ("float", "strings", "objects") and ("value" in node or "values" in node):
        return node.get("value", node.get("values"))
    return f"<{kind}>"


# values as JSON and arrays --------------------------------------------------------------------------------------------


def registered_name(value: object, registry: dict[str, str]) -> str | None:
    """Name of the class of ``value`` if exactly that class is registered."""
    cls = type(value)
    for name, path in registry.items():
        if path.endswith(f":{cls.__qualname__}") and import_class(path) is cls:
            return name
    if registry is ESTIMATORS:
        for name, recipe in _registered_methods().items():
            if recipe.learner_class() is cls:
                return METHOD + name
    return None


def _registered_methods() -> dict[str, Recipe]:
    """Methods that installed packages register."""
    return {name: recipe for name, recipe in recipes().items() if name not in RECIPES}


class Encoder:
    """Collects the arrays of a value while turning the rest into JSON.

    Parameters
    ----------
    leave_out : fitted attributes that are not saved
    """

    def __init__(self, leave_out: Iterable[str] = ()) -> None:
        self.arrays: dict[str, Array] = {}
        self._leave_out = frozenset(leave_out)

    def encode(self, value: Any, where: str) -> Any:
        """JSON for a value; ``where`` names it in messages and in the array file."""
        if value is None or isinstance(value, bool | str):  # strings of NumPy too
            return value
        if isinstance(value, np.generic):
            return {"$": "scalar", "array": self._array(np.asarray(value), where)}
        if isinstance(value, int):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"$": "float", "value": str(value)}
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        if isinstance(value, np.random.RandomState):
            return self._random_state(value, where)
        if type(value) is list:
            return self._items(value, where)
        if type(value) is tuple:
            return {"$": "tuple", "items": self._items(value, where)}
        if type(value) is dict:
            pairs = [[self.encode(k, where), self.encode(v, f"{where}.{k}")] for k, v in value.items()]
            return {"$": "dict", "items": pairs}
        return self._registered(value, where)

    def _items(self, values: Iterable[Any], where: str) -> list[Any]:
        return [self.encode(item, f"{where}.{i}") for i, item in enumerate(values)]

    def _registered(self, value: Any, where: str) -> Any:
        if name := registered_name(value, ESTIMATORS):
            params = value.get_params(deep=False)
            ours = not ESTIMATORS.get(name, "").startswith("sklearn.")
            left_out = self._leave_out if ours else frozenset()  # an imputer has statistics_, too
            state = {k: v for k, v in vars(value).items() if k not in params and k not in left_out}
            return {
                "$": "estimator",
                "class": name,
                "params": self._map(params, where),
                "state": self._map(state, where),
            }
        if name := registered_name(value, DATACLASSES):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return {"$": "dataclass", "class": name, "fields": self._map(fields, where)}
        if name := registered_name(value, INDEXES):
            state = self._map(value.export_state(), where)
            return {"$": "index", "class": name, "n_bits": value.n_bits, "state": state}
        if isinstance(value, np.dtype) and value.name in TYPES.values():
            return {"$": "dtype", "name": value.name}
        kind = type(value)
        if "torch" in {each.__module__.partition(".")[0] for each in kind.__mro__}:
            raise PersistenceError(
                f"Cannot save {where}: a torch module is code, which is never saved; export it by torch.onnx.export "
                "and give the path of that file in its place (EAPH(posterior='model.onnx')), which is saved with it."
            )
        raise PersistenceError(
            f"Cannot save {where}: {kind.__module__}.{kind.__qualname__} is not among the classes that shorthash saves "
            f"(its own, and of scikit-learn {' '.join(SKLEARN.values())}, with plain values inside); apply this step "
            "before the pipeline and save the rest, or use another."
        )

    def _map(self, values: Mapping[str, Any], where: str) -> dict[str, Any]:
        return {key: self.encode(value, f"{where}.{key}") for key, value in values.items()}

    def _array(self, value: Array, where: str) -> dict[str, Any]:
        if value.dtype.kind == "U":
            return self._strings(value, where)
        if value.dtype.kind == "O" and all(isinstance(item, str) for item in value.flat):
            return {"$": "objects", "shape": list(value.shape), "values": [str(item) for item in value.flat]}
        if value.dtype.name not in TYPES.values():
            raise PersistenceError(
                f"Cannot save {where}: arrays of type {value.dtype} are not supported; convert it to numbers or "
                "strings."
            )
        by_columns = value.flags.f_contiguous and not value.flags.c_contiguous  # products depend on it in the last bit
        stored = np.ascontiguousarray(value.T if by_columns else value).reshape(value.shape[:: -1 if by_columns else 1])
        name = self._name(where)
        self.arrays[name] = stored.astype(stored.dtype.newbyteorder("<"), copy=False)
        node = {"$": "array", "name": name, "dtype": value.dtype.name, "shape": list(stored.shape)}
        return {**node, "by_columns": True} if by_columns else node

    def _strings(self, value: Array, where: str) -> dict[str, Any]:
        width = max(1, value.dtype.itemsize // 4)
        node = {"$": "strings", "shape": list(value.shape), "width": width}
        if value.size <= SHORT_LIST:
            return {**node, "values": value.ravel().tolist()}
        letters = np.ascontiguousarray(value).reshape(-1).view(np.uint32).reshape(value.size, width)
        return {**node, "letters": self._array(letters, where)}

    def _random_state(self, value: np.random.RandomState, where: str) -> dict[str, Any]:
        state: Any = value.get_state(legacy=False)
        if state["bit_generator"] != "MT19937":
            raise PersistenceError(
                f"Cannot save {where}: a RandomState over {state['bit_generator']} is not supported; use an integer."
            )
        parts = {"key": state["state"]["key"], "pos": int(state["state"]["pos"])}
        parts |= {"has_gauss": int(state["has_gauss"]), "gauss": float(state["gauss"])}
        return {"$": "random_state", **self._map(parts, where)}

    def _name(self, where: str) -> str:
        name, n = where, 1
        while name in self.arrays:
            n += 1
            name = f"{where}~{n}"
        return name


class Decoder:
    """Turns JSON and arrays back into values; anything unexpected raises KeyError, TypeError or ValueError.

    Parameters
    ----------
    arrays : the arrays by name
    thorough : check every entry of index arrays; False where arrays are left on disk
    """

    def __init__(self, arrays: Mapping[str, Array], *, thorough: bool = True) -> None:
        self._arrays = arrays
        self._thorough = thorough
        self._nodes = {
            "float": lambda node: float(node["value"]),
            "scalar": lambda node: self.decode(node["array"])[()],
            "tuple": lambda node: tuple(self.decode(node["items"])),
            "dict": lambda node: {self.decode(k): self.decode(v) for k, v in node["items"]},
            "array": self._array,
            "strings": self._strings,
            "objects": self._objects,
            "random_state": self._random_state,
            "dtype": self._dtype,
            "dataclass": self._dataclass,
            "estimator": self._estimator,
            "index": self._index,
        }

    def decode(self, value: Any) -> Any:
        """The value that was encoded."""
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if isinstance(value, dict):
            return self._nodes[value["$"]](value)
        return value

    def _map(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self.decode(value) for key, value in values.items()}

    def _array(self, node: Mapping[str, Any]) -> Array:
        array = self._arrays[node["name"]]
        if array.dtype.name != node["dtype"] or list(array.shape) != node["shape"]:
            raise ValueError(f"array {node['name']} differs from its entry in meta.json")
        return array.T if node.get("by_columns") else array

    def _strings(self, node: Mapping[str, Any]) -> Array:
        width, shape = node["width"], node["shape"]
        if "values" in node:
            values = node["values"]
            longest = max(map(len, values), default=0)
            if type(width) is not int or not longest <= width or len(values) > SHORT_LIST:
                raise ValueError(f"{len(values)} strings of {longest} letters have the width {width}")
            width = width if width * len(values) <= MOST_LETTERS else max(1, longest)  # the rest is padding
            return np.array(values, dtype=f"<U{width}").reshape(shape)
        letters = self._array(node["letters"])
        if letters.ndim != 2 or letters.dtype != np.uint32 or letters.shape[1] != width:
            raise ValueError(f"strings have letters of shape {letters.shape}, not {width} each")
        if letters.size and (int(letters.max()) > 0x10FFFF or np.any((letters >= 0xD800) & (letters < 0xE000))):
            raise ValueError("strings hold what is not Unicode")
        return np.ascontiguousarray(letters).view(f"<U{width}").reshape(shape)

    def _objects(self, node: Mapping[str, Any]) -> Array:
        values = np.empty(len(node["values"]), dtype=object)
        values[:] = [str(value) for value in node["values"]]
        return values.reshape(node["shape"])

    def _random_state(self, node: Mapping[str, Any]) -> np.random.RandomState:
        key, pos = self.decode(node["key"]), node["pos"]
        if key.dtype != np.uint32 or key.shape != (MT_WORDS,) or type(pos) is not int or not 0 <= pos <= MT_WORDS:
            raise ValueError("the state of a random generator is invalid")
        generator = np.random.RandomState()
        state = {"bit_generator": "MT19937", "state": {"key": key, "pos": pos}}
        generator.set_state({**state, "has_gauss": int(node["has_gauss"]), "gauss": float(node["gauss"])})
        return generator

    def _dtype(self, node: Mapping[str, Any]) -> np.dtype[Any]:
        if node["name"] not in TYPES.values():
            raise ValueError(f"{node['name']} is not a type of arrays")
        return np.dtype(str(node["name"]))

    def _dataclass(self, node: Mapping[str, Any]) -> Any:
        made = import_class(DATACLASSES[node["class"]])(**self._map(node["fields"]))
        if hasattr(made, "check_decoded"):
            made.check_decoded()
        return made

    def _estimator(self, node: Mapping[str, Any]) -> Any:
        name = node["class"]
        if name.startswith(METHOD):
            cls = _registered_methods()[name.removeprefix(METHOD)].learner_class()
        else:
            cls = import_class(ESTIMATORS[name])
        estimator: Any = cls(**self._map(node["params"]))
        vars(estimator).update(self._map(node["state"]))
        if hasattr(estimator, "_after_load"):
            estimator._after_load()
        return estimator

    def _index(self, node: Mapping[str, Any]) -> Any:
        cls: Any = import_class(INDEXES[node["class"]])
        return cls.from_state(node["n_bits"], self._map(node["state"]), thorough=self._thorough)
