"""phi(X), y -> a fitted hasher. One acronym, one file.

In: feature rows and labels. Out: estimators whose ``project`` gives real scores and ``transform`` int8 codes.
"""

from shorthash.learners.base import BaseHasher, SupervisedHasher
from shorthash.learners.boosting import BitBoost
from shorthash.learners.ccaitq import CCAITQ
from shorthash.learners.classifier import ClassifierCode
from shorthash.learners.cosdish import COSDISH
from shorthash.learners.eaph.estimator import EAPH
from shorthash.learners.encoders import CodewordHasher
from shorthash.learners.fsdh import FSDH
from shorthash.learners.fssh import FSSH
from shorthash.learners.hcsdh import HCSDH
from shorthash.learners.itq import PCAITQ
from shorthash.learners.ksh import KSH
from shorthash.learners.lfh import LFH
from shorthash.learners.lsh import LSH
from shorthash.learners.mfh import MFH
from shorthash.learners.nsh import NSH
from shorthash.learners.pcarr import PCARR
from shorthash.learners.posh import POSH
from shorthash.learners.rslh.estimator import RSLH
from shorthash.learners.scdh import SCDH
from shorthash.learners.sdh import SDH
from shorthash.learners.sdhmlr import SDHMLR
from shorthash.learners.sh import SH
from shorthash.learners.sslh import SSLH
from shorthash.learners.sumeaph import SumEAPH
from shorthash.learners.sums import SumHasher

__all__ = [
    "CCAITQ",
    "COSDISH",
    "EAPH",
    "FSDH",
    "FSSH",
    "HCSDH",
    "KSH",
    "LFH",
    "LSH",
    "MFH",
    "NSH",
    "PCAITQ",
    "PCARR",
    "POSH",
    "RSLH",
    "SCDH",
    "SDH",
    "SDHMLR",
    "SH",
    "SSLH",
    "BaseHasher",
    "BitBoost",
    "ClassifierCode",
    "CodewordHasher",
    "SumEAPH",
    "SumHasher",
    "SupervisedHasher",
]
