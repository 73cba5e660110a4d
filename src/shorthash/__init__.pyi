# The public names. The package reads this list to import a name on first use; type checkers read it, too.
from ._progress import config_context as config_context
from ._progress import get_config as get_config
from ._progress import set_config as set_config
from .codes.signs import pack as pack
from .codes.signs import unpack as unpack
from .evaluation import Scores as Scores
from .evaluation import evaluate as evaluate
from .evaluation import evaluate_neighbours as evaluate_neighbours
from .evaluation import plot_precision_recall as plot_precision_recall
from .images import Collection as Collection
from .images import fit_images as fit_images
from .index import BucketIndex as BucketIndex
from .index import ScanIndex as ScanIndex
from .kernels import AnchorRBF as AnchorRBF
from .lab.advice import advise as advise
from .lab.compare import compare as compare
from .lab.maps import plot_code_map as plot_code_map
from .lab.maps import plot_hypercube as plot_hypercube
from .learners.boosting import BitBoost as BitBoost
from .learners.ccaitq import CCAITQ as CCAITQ
from .learners.classifier import ClassifierCode as ClassifierCode
from .learners.cosdish import COSDISH as COSDISH
from .learners.eaph.estimator import EAPH as EAPH
from .learners.eaph.pairs import RelevantPairs as RelevantPairs
from .learners.encoders import CodewordHasher as CodewordHasher
from .learners.fsdh import FSDH as FSDH
from .learners.fssh import FSSH as FSSH
from .learners.hcsdh import HCSDH as HCSDH
from .learners.itq import PCAITQ as PCAITQ
from .learners.kmh import KMH as KMH
from .learners.ksh import KSH as KSH
from .learners.lfh import LFH as LFH
from .learners.lsh import LSH as LSH
from .learners.mfh import MFH as MFH
from .learners.nsh import NSH as NSH
from .learners.pcarr import PCARR as PCARR
from .learners.posh import POSH as POSH
from .learners.rslh.estimator import RSLH as RSLH
from .learners.scdh import SCDH as SCDH
from .learners.sdh import SDH as SDH
from .learners.sdhmlr import SDHMLR as SDHMLR
from .learners.sh import SH as SH
from .learners.sphericalhash import SphericalHash as SphericalHash
from .learners.sslh import SSLH as SSLH
from .learners.sumeaph import SumEAPH as SumEAPH
from .methods import make_hasher as make_hasher
from .persistence import load as load
from .persistence import save as save
from .pipeline import HasherPipeline as HasherPipeline
from .retrieval import Searcher as Searcher
from .store import SQLiteStore as SQLiteStore
from .store import open_store as open_store

__all__ = [
    "CCAITQ",
    "COSDISH",
    "EAPH",
    "FSDH",
    "FSSH",
    "HCSDH",
    "KMH",
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
    "AnchorRBF",
    "BitBoost",
    "BucketIndex",
    "ClassifierCode",
    "CodewordHasher",
    "Collection",
    "HasherPipeline",
    "RelevantPairs",
    "SQLiteStore",
    "ScanIndex",
    "Scores",
    "Searcher",
    "SphericalHash",
    "SumEAPH",
    "advise",
    "compare",
    "config_context",
    "evaluate",
    "evaluate_neighbours",
    "fit_images",
    "get_config",
    "load",
    "make_hasher",
    "open_store",
    "pack",
    "plot_code_map",
    "plot_hypercube",
    "plot_precision_recall",
    "save",
    "set_config",
    "unpack",
]

__version__: str
