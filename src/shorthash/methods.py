"""Every method of the house: what it is, who published it, which front end it wants; one entry per name.

Facts only: ``recipes`` makes hashers of them, the command line and the documentation list them. To add a method to the
package, add an entry here; to add one from outside, offer a ``Recipe`` under the entry point ``shorthash.methods``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sklearn.base import BaseEstimator

__all__ = ["RECIPES", "Recipe", "import_class"]


@dataclass(frozen=True)
class Recipe:
    """How a name is made into a pipeline, and what a reader wants to know about the method.

    Attributes
    ----------
    full_name, year, reference : what the method is and where it was published
    supervised, multilabel : whether it needs labels, and whether a sample may have several
    learner : "module:class" of the learner
    front_end : keys of ``FRONT_STEPS``, in order
    settings : parameters of the learner that differ from its defaults
    front_settings : the same for the kernel
    presets : further settings by name, ``{"settings": ..., "front_settings": ...}``
    """

    full_name: str
    year: int
    supervised: bool
    multilabel: bool
    reference: str
    learner: str
    front_end: tuple[str, ...] = ("kernel",)
    settings: Mapping[str, Any] = field(default_factory=dict)
    front_settings: Mapping[str, Any] = field(default_factory=dict)
    presets: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)

    def learner_class(self) -> type[BaseEstimator]:
        """Import the learner."""
        return import_class(self.learner)


def import_class(path: str) -> type[BaseEstimator]:
    """The class at "module:class"."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


RECIPES: dict[str, Recipe] = {
    "auto": Recipe(
        full_name="The recommended method with its best settings (EAPH)",
        year=2026,
        supervised=True,
        multilabel=True,
        reference="This library; see docs/paper/eaph.md.",
        learner="shorthash.learners.eaph.estimator:EAPH",
        front_end=(),
    ),
    "eaph": Recipe(
        full_name="Expected-AP Hashing",
        year=2026,
        supervised=True,
        multilabel=True,
        reference="This library; see docs/paper/eaph.md.",
        learner="shorthash.learners.eaph.estimator:EAPH",
        front_end=(),
    ),
    "sumeaph": Recipe(
        full_name="Expected-AP codes from sums over rows: one pass, any size",
        year=2026,
        supervised=True,
        multilabel=True,
        reference="This library; see docs/guide/scale.md.",
        learner="shorthash.learners.sumeaph:SumEAPH",
    ),
    "rslh": Recipe(
        full_name="Reinforcing Short-Length Hashing",
        year=2020,
        supervised=True,
        multilabel=True,
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
                "front_settings": {"bandwidth": "mean-min-authors"},
            },
        },
    ),
    "sh": Recipe(
        full_name="Spectral Hashing",
        year=2008,
        supervised=False,
        multilabel=True,
        reference="Y. Weiss, A. Torralba, R. Fergus. Spectral Hashing. NIPS 2008.",
        learner="shorthash.learners.sh:SH",
        front_end=(),
    ),
    "pcaitq": Recipe(
        full_name="PCA with Iterative Quantization",
        year=2011,
        supervised=False,
        multilabel=True,
        reference="Y. Gong, S. Lazebnik. Iterative Quantization: A Procrustean Approach to Learning Binary Codes. "
        "CVPR 2011.",
        learner="shorthash.learners.itq:PCAITQ",
        front_end=(),
    ),
    "pcarr": Recipe(
        full_name="PCA with Random Rotation",
        year=2011,
        supervised=False,
        multilabel=True,
        reference="Y. Gong, S. Lazebnik. Iterative Quantization: A Procrustean Approach to Learning Binary Codes. "
        "CVPR 2011 (its baseline).",
        learner="shorthash.learners.pcarr:PCARR",
        front_end=(),
    ),
    "mfh": Recipe(
        full_name="Matrix Factorization Hashing",
        year=2014,
        supervised=False,
        multilabel=True,
        reference="G. Ding, Y. Guo, J. Zhou. Collective Matrix Factorization Hashing for Multimodal Data. CVPR 2014 "
        "(on one view).",
        learner="shorthash.learners.mfh:MFH",
        front_end=(),
        presets={"habir": {"settings": {"habir": True}}},
    ),
    "lsh": Recipe(
        full_name="Locality-Sensitive Hashing by random hyperplanes",
        year=2002,
        supervised=False,
        multilabel=True,
        reference="M. S. Charikar. Similarity Estimation Techniques from Rounding Algorithms. STOC 2002.",
        learner="shorthash.learners.lsh:LSH",
        front_end=(),
    ),
    "ccaitq": Recipe(
        full_name="Canonical Correlation Analysis with Iterative Quantization",
        year=2013,
        supervised=True,
        multilabel=True,
        reference="Y. Gong, S. Lazebnik, A. Gordo, F. Perronnin. Iterative Quantization: A Procrustean Approach to "
        "Learning Binary Codes for Large-Scale Image Retrieval. IEEE TPAMI 35(12), 2013.",
        learner="shorthash.learners.ccaitq:CCAITQ",
        front_end=(),
    ),
    "ksh": Recipe(
        full_name="Supervised Hashing with Kernels",
        year=2012,
        supervised=True,
        multilabel=True,
        reference="W. Liu, J. Wang, R. Ji, Y.-G. Jiang, S.-F. Chang. Supervised Hashing with Kernels. CVPR 2012.",
        learner="shorthash.learners.ksh:KSH",
        front_settings={"n_anchors": 300},
    ),
    "classifier": Recipe(
        full_name="Codeword of the class that a classifier predicts",
        year=2017,
        supervised=True,
        multilabel=False,
        reference="A. Sablayrolles, M. Douze, N. Usunier, H. Jegou. How Should We Evaluate Supervised Hashing? "
        "ICASSP 2017.",
        learner="shorthash.learners.classifier:ClassifierCode",
        front_end=(),
    ),
    "sdh": Recipe(
        full_name="Supervised Discrete Hashing",
        year=2015,
        supervised=True,
        multilabel=True,
        reference="F. Shen, C. Shen, W. Liu, H. T. Shen. Supervised Discrete Hashing. CVPR 2015.",
        learner="shorthash.learners.sdh:SDH",
        front_end=("kernel", "bias"),
        front_settings={"center": False},
        presets={"authors-code": {"front_settings": {"bandwidth": 0.4}}},
    ),
    "fsdh": Recipe(
        full_name="Fast Supervised Discrete Hashing",
        year=2018,
        supervised=True,
        multilabel=True,
        reference="J. Gui, T. Liu, Z. Sun, D. Tao, T. Tan. Fast Supervised Discrete Hashing. IEEE TPAMI 40(2), 2018.",
        learner="shorthash.learners.fsdh:FSDH",
        front_end=("kernel", "bias"),
        front_settings={"center": False},
        presets={"authors-code": {"front_settings": {"bandwidth": 0.4}}},
    ),
    "nsh": Recipe(
        full_name="Natural Supervised Hashing",
        year=2016,
        supervised=True,
        multilabel=True,
        reference="Q. Liu, H. Lu. Natural Supervised Hashing. IJCAI 2016.",
        learner="shorthash.learners.nsh:NSH",
    ),
    "fssh": Recipe(
        full_name="Fast Scalable Supervised Hashing",
        year=2018,
        supervised=True,
        multilabel=True,
        reference="X. Luo, L. Nie, X. He, Y. Wu, Z.-D. Chen, X.-S. Xu. Fast Scalable Supervised Hashing. SIGIR 2018.",
        learner="shorthash.learners.fssh:FSSH",
        front_end=("kernel", "zscore"),
        presets={"authors-code": {"front_settings": {"bandwidth": 0.4}}},
    ),
    "sslh": Recipe(
        full_name="Supervised Short-Length Hashing",
        year=2019,
        supervised=True,
        multilabel=True,
        reference="X. Liu, X. Nie, Q. Zhou, X. Xi, L. Zhu, Y. Yin. Supervised Short-Length Hashing. IJCAI 2019.",
        learner="shorthash.learners.sslh:SSLH",
        presets={"authors-code": {"front_settings": {"bandwidth": "mean-min-authors"}}},
    ),
    "sdhmlr": Recipe(
        full_name="Supervised Discrete Hashing with Mutual Linear Regression",
        year=2019,
        supervised=True,
        multilabel=True,
        reference="X. Liu, X. Nie, Q. Zhou, Y. Yin. Supervised Discrete Hashing With Mutual Linear Regression. "
        "ACM Multimedia 2019.",
        learner="shorthash.learners.sdhmlr:SDHMLR",
    ),
    "scdh": Recipe(
        full_name="Strongly Constrained Discrete Hashing",
        year=2020,
        supervised=True,
        multilabel=True,
        reference="Y. Chen, Z. Tian, H. Zhang, J. Wang, D. Zhang. Strongly Constrained Discrete Hashing. "
        "IEEE TIP 29, 2020.",
        learner="shorthash.learners.scdh:SCDH",
        front_settings={"n_anchors": 2000},
    ),
    "hcsdh": Recipe(
        full_name="Hadamard Coding for Supervised Discrete Hashing",
        year=2018,
        supervised=True,
        multilabel=False,
        reference="G. Koutaki, K. Shirai, M. Ambai. Hadamard Coding for Supervised Discrete Hashing. "
        "IEEE TIP 27(11), 2018.",
        learner="shorthash.learners.hcsdh:HCSDH",
        front_settings={"center": False},
        presets={"authors-code": {"settings": {"ridge": 0}, "front_settings": {"bandwidth": 0.4}}},
    ),
    "lfh": Recipe(
        full_name="Latent Factor Hashing",
        year=2014,
        supervised=True,
        multilabel=True,
        reference="P. Zhang, W. Zhang, W.-J. Li, M. Guo. Supervised Hashing with Latent Factor Models. SIGIR 2014.",
        learner="shorthash.learners.lfh:LFH",
        front_end=("zscore",),
    ),
    "cosdish": Recipe(
        full_name="Column Sampling based Discrete Supervised Hashing",
        year=2016,
        supervised=True,
        multilabel=True,
        reference="W.-C. Kang, W.-J. Li, Z.-H. Zhou. Column Sampling Based Discrete Supervised Hashing. AAAI 2016.",
        learner="shorthash.learners.cosdish:COSDISH",
        front_end=("zscore",),
        presets={"authors-code": {"settings": {"dissimilar": "positive"}}},
    ),
    "posh": Recipe(
        full_name="Probability Ordinal-preserving Semantic Hashing",
        year=2021,
        supervised=True,
        multilabel=True,
        reference="Z. Zhang, X. Zhu, G. Lu, Y. Zhang. Probability Ordinal-preserving Semantic Hashing for Large-Scale "
        "Image Retrieval. ACM TKDD 15(3), 2021.",
        learner="shorthash.learners.posh:POSH",
        front_end=("kernel", "zscore"),
        presets={"authors-code": {"front_settings": {"bandwidth": "mean-min-authors"}}},
    ),
}
