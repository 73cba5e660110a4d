"""shorthash fit: features and labels become a saved model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from shorthash.cli import output
from shorthash.cli.options import AsJson, Features, argument, option, parse_settings
from shorthash.cli.progress import progress
from shorthash.cli.reading import check_place

__all__ = ["fit"]

KERNEL = "kernel."  # settings whose name begins so are meant for the front end


def fit(
    features: Features,
    labels: Annotated[Path, argument("LABELS", "Their labels, one per row.")],
    model: Annotated[Path, option("--output", "-o", metavar="MODEL", text="Folder to write.")],
    bits: Annotated[int, option("--bits", "-b", metavar="N", text="Length of the codes, 1 to 64.", default=True)] = 8,
    method: Annotated[str, option("--method", metavar="NAME", text="Method to learn with.", default=True)] = "rslh",
    preset: Annotated[
        str, option("--preset", metavar="NAME", text="Whose settings: paper or authors-code.", default=True)
    ] = "paper",
    anchors: Annotated[
        int | None, option("--anchors", metavar="N", text="Anchors of the kernel features.", default="1000")
    ] = None,
    seed: Annotated[int, option("--seed", metavar="N", text="Seed of everything random.", default=True)] = 0,
    settings: Annotated[
        list[str] | None,
        option("--set", metavar="NAME=VALUE", text="A parameter of the learner, or kernel.NAME=VALUE; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Learn codes from features and labels, and save the model.

    LABELS holds one number or name per row, or an indicator matrix of 0/1 or -1/+1 with one column per class. A model
    already at MODEL is replaced; anything else there is left alone.

    \b
    Example:
      shorthash fit train.npz train.npz -o digits.model --bits 8 --set alpha=7
    """
    from shorthash.codes import code_quality
    from shorthash.features.files import read_features, read_labels
    from shorthash.persistence import save
    from shorthash.recipes import make_hasher

    given = parse_settings(settings or [])
    front_end = {name.removeprefix(KERNEL): value for name, value in given.items() if name.startswith(KERNEL)}
    if anchors is not None:
        front_end["n_anchors"] = anchors
    learner: dict[str, Any] = {name: value for name, value in given.items() if not name.startswith(KERNEL)}
    hasher = make_hasher(method, bits, preset=preset, front_end=front_end, random_state=seed, **learner)
    check_place(model)
    X, y = read_features(features), read_labels(labels)
    with progress() as tell:
        tell(f"learning {bits} bits from {len(X)} rows", 0, 0)
        start = time.perf_counter()
        hasher.fit(X, y)
        seconds = time.perf_counter() - start
        tell("saving", 0, 0)
        save(hasher, model)
        tell("checking the codes", 0, 0)
        quality = code_quality(hasher.transform(X), y).to_dict()
    output.show(_answer(model, method, preset, hasher, X.shape, seconds, quality), as_json=as_json)


def _answer(
    model: Path,
    method: str,
    preset: str,
    hasher: Any,
    shape: tuple[int, ...],
    seconds: float,
    quality: dict[str, float | int],
) -> output.Answer:
    learner = hasher[-1]
    runs = learner.convergence_
    data = {
        "model": model,
        "method": method,
        "preset": preset,
        "n_bits": learner.n_bits,
        "n_rows": shape[0],
        "n_features": shape[1],
        "n_classes": len(learner.classes_),
        "seconds": round(seconds, 3),
        "runs": [{"n_iter": run.n_iter, "converged": run.converged, "reason": run.reason} for run in runs],
        "codes": quality,
    }
    facts = {
        "model": str(model),
        "method": f"{method}, {preset} settings",
        "bits": str(learner.n_bits),
        "rows": f"{shape[0]} x {shape[1]} features",
        "classes": str(len(learner.classes_)),
        "seconds": f"{seconds:.2f}",
        "iterations": " + ".join(str(run.n_iter) for run in runs),
        "stopped": "; ".join(dict.fromkeys(run.reason for run in runs)),
    }
    single = len(learner.label_sets_) == len(learner.classes_)
    return output.Answer(data, facts | _health(quality, "class" if single else "label set"))


def _health(quality: dict[str, float | int], group: str) -> dict[str, str]:
    """Health of the codes of the training rows, in words; a group is what the purity of a bucket is measured by."""
    return {
        "buckets": f"{quality['occupied_codes']} in use, the largest holds {quality['largest_bucket']} rows",
        "entropy": f"{quality['entropy']:.2f} bits",
        "imbalance": f"{quality['imbalance']:.3f} (0: every bit splits the rows in half)",
        "correlation": f"{quality['mean_correlation']:.3f} (0: bits are independent)",
        "collisions": f"{quality['class_collisions']} ({group} pairs with the same main bucket)",
        "purity": f"{quality['purity']:.3f} of the rows belong to the main {group} of their bucket",
    }
