"""Every method by name: publication, preprocessing and settings, and how to build it.

``make_hasher("rslh")`` builds the pipeline of a name. To add a method to the package, add an entry to ``RECIPES``; to
add one from another package, register a ``Recipe`` under the entry point ``shorthash.methods``.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from shorthash._validation import check_choice
from shorthash.errors import InvalidInput, ShorthashWarning
from shorthash.pipeline import HasherPipeline

KERNEL = "kernel__"  # prefix of parameters of the kernel, as in scikit-learn

# preprocessing steps by name; only the kernel has parameters to set
STEPS = {
    "kernel": "shorthash.kernels.rbf:AnchorRBF",
    "bias": "shorthash.kernels.rbf:Bias",
    "zscore": "sklearn.preprocessing:StandardScaler",
}


@dataclass(frozen=True)
class Recipe:
    """How to build the pipeline of a method, and its publication.

    Attributes
    ----------
    full_name, year, reference : what the method is and where it was published
    learner : "module:class" of the learner
    supervised, multilabel : whether it uses labels, and whether a sample may have several
    labels_optional : whether a supervised method learns without labels, too
    preprocessing : keys of ``STEPS``, in order
    settings : parameters of the learner that differ from its defaults
    kernel : the same for the kernel
    presets : further settings by name, ``{"settings": ..., "kernel": ...}``
    """

    full_name: str
    year: int
    reference: str
    learner: str
    supervised: bool = True
    multilabel: bool = True
    labels_optional: bool = False
    preprocessing: tuple[str, ...] = ("kernel",)
    settings: Mapping[str, Any] = field(default_factory=dict)
    kernel: Mapping[str, Any] = field(default_factory=dict)
    presets: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)

    def learner_class(self) -> type[BaseEstimator]:
        """Import the learner."""
        return import_class(self.learner)


def import_class(path: str) -> type[BaseEstimator]:
    """The class at "module:class"."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


_EAPH = Recipe(
    full_name="Expected-AP Hashing",
    year=2026,
    reference="This library; see docs/paper/eaph.md.",
    learner="shorthash.learners.eaph.estimator:EAPH",
    labels_optional=True,
    preprocessing=(),
)
_UNSUPERVISED = functools.partial(Recipe, supervised=False, preprocessing=())

RECIPES: dict[str, Recipe] = {
    "auto": replace(_EAPH, full_name="The recommended method with its best settings (EAPH)"),
    "eaph": _EAPH,
    "sumeaph": Recipe(
        full_name="Expected-AP codes from sums over rows: one pass, any size",
        year=2026,
        reference="This library; see docs/guide/scale.md.",
        learner="shorthash.learners.sumeaph:SumEAPH",
    ),
    "rslh": Recipe(
        full_name="Reinforcing Short-Length Hashing",
        year=2020,
        reference="X. Liu, X. Nie, Q. Dai, Y. Huang, Y. Yin. Reinforcing Short-Length Hashing. arXiv:2004.11511.",
        learner="shorthash.learners.rslh.estimator:RSLH",
        presets={
            "authors-code": {
                "settings": {
                    "alpha": 7,
                    "beta": 1e-2,
                    "gamma": 1e-4,
                    "ridge": 1e-6,
                    "boosting": None,
                    "variant": "authors-code",
                },
                "kernel": {"bandwidth": "mean-min-authors"},
            },
        },
    ),
    "sh": _UNSUPERVISED(
        full_name="Spectral Hashing",
        year=2008,
        reference="Y. Weiss, A. Torralba, R. Fergus. Spectral Hashing. NIPS 2008.",
        learner="shorthash.learners.sh:SH",
    ),
    "pcaitq": _UNSUPERVISED(
        full_name="PCA with Iterative Quantization",
        year=2011,
        reference="Y. Gong, S. Lazebnik. Iterative Quantization: A Procrustean Approach to Learning Binary Codes. "
        "CVPR 2011.",
        learner="shorthash.learners.itq:PCAITQ",
    ),
    "sphericalhash": _UNSUPERVISED(
        full_name="Spherical Hashing",
        year=2012,
        reference="J.-P. Heo, Y. Lee, J. He, S.-F. Chang, S.-E. Yoon. Spherical Hashing. CVPR 2012.",
        learner="shorthash.learners.sphericalhash:SphericalHash",
    ),
    "kmh": _UNSUPERVISED(
        full_name="K-means Hashing",
        year=2013,
        reference="K. He, F. Wen, J. Sun. K-means Hashing: An Affinity-Preserving Quantization Method for Learning "
        "Binary Compact Codes. CVPR 2013.",
        learner="shorthash.learners.kmh:KMH",
    ),
    "pcarr": _UNSUPERVISED(
        full_name="PCA with Random Rotation",
        year=2011,
        reference="Y. Gong, S. Lazebnik. Iterative Quantization: A Procrustean Approach to Learning Binary Codes. "
        "CVPR 2011 (its baseline).",
        learner="shorthash.learners.pcarr:PCARR",
    ),
    "mfh": _UNSUPERVISED(
        full_name="Matrix Factorization Hashing",
        year=2014,
        reference="G. Ding, Y. Guo, J. Zhou. Collective Matrix Factorization Hashing for Multimodal Data. CVPR 2014 "
        "(on one view).",
        learner="shorthash.learners.mfh:MFH",
        presets={"habir": {"settings": {"habir": True}}},
    ),
    "lsh": _UNSUPERVISED(
        full_name="Locality-Sensitive Hashing by random hyperplanes",
        year=2002,
        reference="M. S. Charikar. Similarity Estimation Techniques from Rounding Algorithms. STOC 2002.",
        learner="shorthash.learners.lsh:LSH",
    ),
    "ccaitq": Recipe(
        full_name="Canonical Correlation Analysis with Iterative Quantization",
        year=2013,
        reference="Y. Gong, S. Lazebnik, A. Gordo, F. Perronnin. Iterative Quantization: A Procrustean Approach to "
        "Learning Binary Codes for Large-Scale Image Retrieval. IEEE TPAMI 35(12), 2013.",
        learner="shorthash.learners.ccaitq:CCAITQ",
        preprocessing=(),
    ),
    "ksh": Recipe(
        full_name="Supervised Hashing with Kernels",
        year=2012,
        reference="W. Liu, J. Wang, R. Ji, Y.-G. Jiang, S.-F. Chang. Supervised Hashing with Kernels. CVPR 2012.",
        learner="shorthash.learners.ksh:KSH",
        kernel={"n_anchors": 300},
    ),
    "classifier": Recipe(
        full_name="Codeword of the class that a classifier predicts",
        year=2017,
        multilabel=False,
        reference="A. Sablayrolles, M. Douze, N. Usunier, H. Jegou. How Should We Evaluate Supervised Hashing? "
        "ICASSP 2017.",
        learner="shorthash.learners.classifier:ClassifierCode",
        preprocessing=(),
    ),
    "sdh": Recipe(
        full_name="Supervised Discrete Hashing",
        year=2015,
        reference="F. Shen, C. Shen, W. Liu, H. T. Shen. Supervised Discrete Hashing. CVPR 2015.",
        learner="shorthash.learners.sdh:SDH",
        preprocessing=("kernel", "bias"),
        kernel={"center": False},
        presets={"authors-code": {"kernel": {"bandwidth": 0.4}}},
    ),
    "fsdh": Recipe(
        full_name="Fast Supervised Discrete Hashing",
        year=2018,
        reference="J. Gui, T. Liu, Z. Sun, D. Tao, T. Tan. Fast Supervised Discrete Hashing. IEEE TPAMI 40(2), 2018.",
        learner="shorthash.learners.fsdh:FSDH",
        preprocessing=("kernel", "bias"),
        kernel={"center": False},
        presets={"authors-code": {"kernel": {"bandwidth": 0.4}}},
    ),
    "nsh": Recipe(
        full_name="Natural Supervised Hashing",
        year=2016,
        reference="Q. Liu, H. Lu. Natural Supervised Hashing. IJCAI 2016.",
        learner="shorthash.learners.nsh:NSH",
    ),
    "fssh": Recipe(
        full_name="Fast Scalable Supervised Hashing",
        year=2018,
        reference="X. Luo, L. Nie, X. He, Y. Wu, Z.-D. Chen, X.-S. Xu. Fast Scalable Supervised Hashing. SIGIR 2018.",
        learner="shorthash.learners.fssh:FSSH",
        preprocessing=("kernel", "zscore"),
        presets={"authors-code": {"kernel": {"bandwidth": 0.4}}},
    ),
    "sslh": Recipe(
        full_name="Supervised Short-Length Hashing",
        year=2019,
        reference="X. Liu, X. Nie, Q. Zhou, X. Xi, L. Zhu, Y. Yin. Supervised Short-Length Hashing. IJCAI 2019.",
        learner="shorthash.learners.sslh:SSLH",
        presets={"authors-code": {"kernel": {"bandwidth": "mean-min-authors"}}},
    ),
    "sdhmlr": Recipe(
        full_name="Supervised Discrete Hashing with Mutual Linear Regression",
        year=2019,
        reference="X. Liu, X. Nie, Q. Zhou, Y. Yin. Supervised Discrete Hashing With Mutual Linear Regression. "
        "ACM Multimedia 2019.",
        learner="shorthash.learners.sdhmlr:SDHMLR",
    ),
    "scdh": Recipe(
        full_name="Strongly Constrained Discrete Hashing",
        year=2020,
        reference="Y. Chen, Z. Tian, H. Zhang, J. Wang, D. Zhang. Strongly Constrained Discrete Hashing. "
        "IEEE TIP 29, 2020.",
        learner="shorthash.learners.scdh:SCDH",
        kernel={"n_anchors": 2000},
    ),
    "hcsdh": Recipe(
        full_name="Hadamard Coding for Supervised Discrete Hashing",
        year=2018,
        multilabel=False,
        reference="G. Koutaki, K. Shirai, M. Ambai. Hadamard Coding for Supervised Discrete Hashing. "
        "IEEE TIP 27(11), 2018.",
        learner="shorthash.learners.hcsdh:HCSDH",
        kernel={"center": False},
        presets={"authors-code": {"settings": {"ridge": 0}, "kernel": {"bandwidth": 0.4}}},
    ),
    "lfh": Recipe(
        full_name="Latent Factor Hashing",
        year=2014,
        reference="P. Zhang, W. Zhang, W.-J. Li, M. Guo. Supervised Hashing with Latent Factor Models. SIGIR 2014.",
        learner="shorthash.learners.lfh:LFH",
        preprocessing=("zscore",),
    ),
    "cosdish": Recipe(
        full_name="Column Sampling based Discrete Supervised Hashing",
        year=2016,
        reference="W.-C. Kang, W.-J. Li, Z.-H. Zhou. Column Sampling Based Discrete Supervised Hashing. AAAI 2016.",
        learner="shorthash.learners.cosdish:COSDISH",
        preprocessing=("zscore",),
        presets={"authors-code": {"settings": {"dissimilar": "positive"}}},
    ),
    "posh": Recipe(
        full_name="Probability Ordinal-preserving Semantic Hashing",
        year=2021,
        reference="Z. Zhang, X. Zhu, G. Lu, Y. Zhang. Probability Ordinal-preserving Semantic Hashing for Large-Scale "
        "Image Retrieval. ACM TKDD 15(3), 2021.",
        learner="shorthash.learners.posh:POSH",
        preprocessing=("kernel", "zscore"),
        presets={"authors-code": {"kernel": {"bandwidth": "mean-min-authors"}}},
    ),
}


def recipes() -> dict[str, Recipe]:
    """Every method by name: ours, and those that installed packages register under ``shorthash.methods``.

    Examples
    --------
    >>> "rslh" in recipes()
    True
    """
    found = dict(RECIPES)
    for point in _installed(tuple(sys.path)):
        if point.name in RECIPES:
            continue
        try:
            found[point.name] = point.load()
        except Exception as error:  # an error in another package must not break this one
            warnings.warn(
                f"The method {point.name!r} of an installed package cannot be loaded ({error!r}) and is ignored; "
                "repair or uninstall the package.",
                ShorthashWarning,
                stacklevel=2,
            )
    return found


@functools.cache  # the metadata of every installed package is read
def _installed(_path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Methods that installed packages register, by name; looked up once for a search path of modules."""
    return tuple(sorted(entry_points(group="shorthash.methods"), key=lambda point: point.name))


def method_facts(name: str) -> dict[str, Any]:
    """Facts about a method as plain values, for listings.

    Parameters
    ----------
    name : a name from ``recipes()``

    Examples
    --------
    >>> facts = method_facts("ksh")
    >>> facts["full_name"], facts["preprocessing"], facts["parameters"]["n_labelled"]
    ('Supervised Hashing with Kernels', ['AnchorRBF(n_anchors=300)'], 2000)
    """
    known = recipes()
    check_choice(name, "name", "method_facts", list(known))
    recipe = known[name]
    defaults = default_params(recipe.learner)
    own = {key: value for key, value in defaults.items() if key not in ("n_bits", "random_state")}
    kernel = ", ".join(f"{key}={value!r}" for key, value in recipe.kernel.items())
    steps = {step: STEPS[step].partition(":")[2] for step in recipe.preprocessing}
    return {
        "full_name": recipe.full_name,
        "year": recipe.year,
        "supervised": recipe.supervised,
        "labels_optional": recipe.labels_optional,
        "multilabel": recipe.multilabel,
        "preprocessing": [f"{cls}({kernel})" if step == "kernel" else cls for step, cls in steps.items()],
        "parameters": {**own, **recipe.settings},
        "presets": {preset: dict(changes) for preset, changes in recipe.presets.items()},
        "reference": recipe.reference,
    }


def make_hasher(
    method: str = "auto",
    n_bits: int = 8,
    *,
    preset: str = "paper",
    kernel: Mapping[str, Any] | None = None,
    random_state: int | np.random.RandomState | None = None,
    **params: Any,
) -> HasherPipeline:
    """The pipeline of a method: preprocessing and learner, with the settings of its paper.

    Parameters
    ----------
    method : a key of ``recipes()``; "auto" is the recommended one
    n_bits : code length, 1 to 64
    preset : "paper", or one of the presets of the recipe, such as "authors-code": the settings of the authors' released
        code
    kernel : parameters of the kernel as a mapping, for instance ``{"n_anchors": 500}``
    random_state : passed to kernel and learner
    **params : parameters of the learner by name, and of the kernel with the prefix ``kernel__``

    Examples
    --------
    >>> hasher = make_hasher("rslh", n_bits=6, random_state=0, kernel__n_anchors=100, boosting="ob")
    >>> hasher[0].n_anchors, hasher[-1].n_bits, hasher[-1].boosting
    (100, 6, 'ob')
    """
    known = RECIPES if method in RECIPES else recipes()  # ours need no other package
    check_choice(method, "method", "make_hasher", list(known))
    recipe = known[method]
    check_choice(preset, "preset", f"make_hasher({method!r})", ["paper", *recipe.presets])
    chosen = recipe.presets.get(preset, {})
    given = dict(kernel or {})
    given |= {name.removeprefix(KERNEL): params.pop(name) for name in list(params) if name.startswith(KERNEL)}
    if given and "kernel" not in recipe.preprocessing:
        raise InvalidInput(f"{method} has no kernel, so it has no parameter {', '.join(given)} to set.")
    of_kernel = {"random_state": random_state, **recipe.kernel, **chosen.get("kernel", {}), **given}
    steps = [
        (step, _build(STEPS[step], of_kernel if step == "kernel" else {}, f"the {step} of {method}"))
        for step in recipe.preprocessing
    ]
    settings = {"n_bits": n_bits, **recipe.settings, **chosen.get("settings", {}), **params}
    if "random_state" in default_params(recipe.learner):
        settings = {"random_state": random_state, **settings}
    return HasherPipeline([*steps, ("hasher", _build(recipe.learner, settings, recipe.learner.partition(":")[2]))])


@functools.cache
def default_params(path: str) -> dict[str, Any]:
    """The parameters of the class at "module:class" and their defaults; the dictionary must not be changed."""
    return {name: parameter.default for name, parameter in inspect.signature(import_class(path)).parameters.items()}


def _build(path: str, given: Mapping[str, Any], owner: str) -> BaseEstimator:
    """An instance of the class at "module:class"; an unknown parameter is an error that lists the known ones."""
    known = default_params(path)
    for name in given:
        if name not in known:
            raise InvalidInput(f"{owner} has no parameter {name!r} to set here. It has: {', '.join(known)}.")
    return import_class(path)(**given)
