"""shorthash fit: features and labels become a saved model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from shorthash.cli import output
from shorthash.cli.fit_answer import fit_answer, training_facts
from shorthash.cli.fit_streamed import Checkpoint, LabelColumns, fit_streamed
from shorthash.cli.options import AsJson, argument, flag, option, optional, parse_settings
from shorthash.cli.progress import progress
from shorthash.cli.reading import check_place

__all__ = ["fit"]

KERNEL = "kernel."  # settings whose name begins so are meant for the front end


def fit(
    features: Annotated[
        Path, argument("FEATURES", "Feature rows: .npy, .npz, .csv or .parquet; with --stream also a folder of tables.")
    ],
    model: Annotated[Path, option("--output", "-o", metavar="MODEL", text="Folder to write.")],
    labels: Annotated[
        Path | None, optional("LABELS", "Their labels, one per row; needed by supervised methods.")
    ] = None,
    bits: Annotated[int, option("--bits", "-b", metavar="N", text="Length of the codes, 1 to 64.", default=True)] = 8,
    method: Annotated[
        str, option("--method", metavar="NAME", text="Method; see shorthash methods.", default=True)
    ] = "rslh",
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
    stream: Annotated[bool, flag("--stream", "Read rows in blocks, so that any number will do.")] = False,
    label: LabelColumns = None,
    checkpoint: Checkpoint = None,
    as_json: AsJson = False,
) -> None:
    """Learn codes from features and labels, and save the model.

    LABELS holds one number or name per row, or an indicator matrix of 0/1 or -1/+1 with one column per class. A model
    already at MODEL is replaced; anything else there is left alone. With --stream, FEATURES may also be a folder of
    .parquet or .arrow files with the labels in a column, and memory stays small; the model is the same.

    \b
    Examples:
      shorthash fit train.npz train.npz -o digits.model --bits 8 --set alpha=7
      shorthash fit shards/ --stream --label class -o digits.model --checkpoint sums.part
    """
    from shorthash.codes import code_quality
    from shorthash.data.files import read_features, read_labels
    from shorthash.persistence import save
    from shorthash.recipes import make_hasher

    given = parse_settings(settings or [])
    front_end = {name.removeprefix(KERNEL): value for name, value in given.items() if name.startswith(KERNEL)}
    if anchors is not None:
        front_end["n_anchors"] = anchors
    learner: dict[str, Any] = {name: value for name, value in given.items() if not name.startswith(KERNEL)}
    hasher = make_hasher(method, bits, preset=preset, front_end=front_end, random_state=seed, **learner)
    check_place(model)
    if stream or label or checkpoint:
        told = {"method": method, "preset": preset}
        output.show(fit_streamed(hasher, features, labels, label, checkpoint, model, told), as_json=as_json)
        return
    X, y = read_features(features), None if labels is None else read_labels(labels)
    with progress() as tell:
        tell(f"learning {bits} bits from {len(X)} rows", 0, 0)
        start = time.perf_counter()
        hasher.fit(X, y)
        seconds = time.perf_counter() - start
        tell("saving", 0, 0)
        save(hasher, model)
        tell("checking the codes", 0, 0)
        quality = code_quality(hasher.transform(X), y).to_dict()
    data = {
        "model": str(model),
        "method": method,
        "preset": preset,
        "n_bits": bits,
        "n_rows": X.shape[0],
        "n_features": X.shape[1],
        "seconds": round(seconds, 3),
        **training_facts(hasher[-1]),
        "codes": quality,
    }
    output.show(fit_answer(data, "class" if y is None or y.ndim == 1 else "label set"), as_json=as_json)
