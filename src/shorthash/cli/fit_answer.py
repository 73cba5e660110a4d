"""A fitted model as an answer: what was learned from, how training went, how healthy the codes are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shorthash.cli.output import Answer

__all__ = ["fit_answer", "training_facts"]


def training_facts(learner: Any) -> dict[str, Any]:
    """What a learner tells about its training: classes, and iterations with the reason to stop, where it has them."""
    facts: dict[str, Any] = {}
    if hasattr(learner, "classes_"):
        facts["n_classes"] = len(learner.classes_)
    if hasattr(learner, "convergence_"):
        facts["runs"] = [
            {"n_iter": run.n_iter, "converged": run.converged, "reason": run.reason} for run in learner.convergence_
        ]
    elif hasattr(learner, "n_iter_"):
        facts["runs"] = [{"n_iter": int(learner.n_iter_)}]
    return facts


def fit_answer(data: Mapping[str, Any], group: str) -> Answer:
    """What ``shorthash fit`` says; a group, class or label set, is what the purity of a bucket is measured by."""
    facts = {
        "model": data["model"],
        "method": f"{data['method']}, {data['preset']} settings",
        "bits": str(data["n_bits"]),
        "rows": f"{data['n_rows']} x {data['n_features']} features",
        "seconds": f"{data['seconds']:.2f}",
    }
    if "n_classes" in data:
        facts["classes"] = str(data["n_classes"])
    runs = data.get("runs", [])
    if runs:
        facts["iterations"] = " + ".join(str(run["n_iter"]) for run in runs)
    if reasons := list(dict.fromkeys(run["reason"] for run in runs if "reason" in run)):
        facts["stopped"] = "; ".join(reasons)
    return Answer(data, facts | (_health(data["codes"], group) if "codes" in data else {}))


def _health(quality: Mapping[str, Any], group: str) -> dict[str, str]:
    """Health of the codes of the training rows, in words."""
    health = {
        "buckets": f"{quality['occupied_codes']} in use, the largest holds {quality['largest_bucket']} rows",
        "entropy": f"{quality['entropy']:.2f} bits",
        "imbalance": f"{quality['imbalance']:.3f} (0: every bit splits the rows in half)",
        "correlation": f"{quality['mean_correlation']:.3f} (0: bits are independent)",
    }
    if quality["class_collisions"] >= 0:
        health["collisions"] = f"{quality['class_collisions']} ({group} pairs with the same main bucket)"
        health["purity"] = f"{quality['purity']:.3f} of the rows belong to the main {group} of their bucket"
    return health
