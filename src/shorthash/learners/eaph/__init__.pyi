from .estimator import EAPH as EAPH

__all__ = ["EAPH"]
