"""shorthash images fit: a folder of images becomes a collection to search."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from shorthash.cli import output
from shorthash.cli.images_options import (
    Cache,
    LabelTable,
    NoCache,
    Workers,
    cache_place,
    failures,
    tell_failures,
    workers,
)
from shorthash.cli.options import AsJson, argument, option, parse_settings
from shorthash.cli.progress import progress

if TYPE_CHECKING:
    from shorthash.images import FitReport

__all__ = ["fit"]


def fit(
    folder: Annotated[Path, argument("DIR", "Folder of images; folders inside it are classes.")],
    model: Annotated[Path, option("--output", "-o", metavar="MODEL", text="Folder to write: new, or empty.")],
    bits: Annotated[int, option("--bits", "-b", metavar="N", text="Length of the codes, 1 to 64.", default=True)] = 8,
    features: Annotated[
        str, option("--features", metavar="NAME", text="gist, cnn, or an .onnx file.", default=True)
    ] = "gist",
    labels: LabelTable = None,
    method: Annotated[
        str | None,
        option(
            "--method", metavar="NAME", text="Method; see shorthash methods.", default="auto; pcaitq without labels"
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, option("--set", metavar="NAME=VALUE", text="A parameter of the learner; repeatable.")
    ] = None,
    hold_out: Annotated[
        float, option("--hold-out", metavar="SHARE", text="Share of images that ask, to measure.", default=True)
    ] = 0.2,
    seed: Annotated[int, option("--seed", metavar="N", text="Seed of everything random.", default=True)] = 0,
    workers_: Workers = None,
    cache: Cache = None,
    no_cache: NoCache = False,
    as_json: AsJson = False,
) -> None:
    """Learn codes of images and make a collection of them.

    Labels are the folders that the images lie in, or come from --labels; without labels a method is taken that needs
    none. The mAP is that of held-out images: they ask an encoder that never saw them. The encoder in MODEL learned from
    all images. Images that cannot be read are skipped and named. Features are kept in a cache by content, so a second
    run, or one after an interruption, is quick.

    \b
    Examples:
      shorthash images fit photos/ -o photos.model
      shorthash images fit photos/ -o photos.model --bits 10 --features cnn
    """
    from shorthash.images import fit_images

    with progress() as tell:
        report = fit_images(
            folder,
            model,
            n_bits=bits,
            features=features,
            labels=labels,
            method=method,
            settings=parse_settings(settings or []),
            hold_out=hold_out,
            random_state=seed,
            cache=cache_place(cache, no_cache),
            n_workers=workers(workers_),
            progress=tell,
        )
    output.show(_answer(report), as_json=as_json)
    tell_failures(report.added.failed)


def _answer(report: FitReport) -> output.Answer:
    added, measured, codes = report.added, report.evaluation, report.facts["codes"]
    seconds = sum(report.seconds.values())
    data: dict[str, Any] = {
        "model": str(report.path),
        **{key: value for key, value in report.facts.items() if key != "name"},
        "reason": report.reason,
        "n_images": report.n_images,
        "n_labelled": report.n_labelled,
        "duplicates": [{"name": name, "id": item} for name, item in added.duplicates],
        "failed": failures(added.failed),
        "unmatched_labels": report.unmatched,
        "seconds": seconds,
    }
    images = f"{report.n_items} of {report.n_images}"
    left = [(len(added.duplicates), "twice there"), (len(added.failed), "unreadable")]
    images += "".join(f", {n} {why}" for n, why in left if n)
    facts = {"model": str(report.path), "images": images, "features": report.recipe["kind"]}
    facts["method"] = report.method + (f" ({report.reason})" if report.reason else "")
    facts["bits"] = str(report.facts["n_bits"])
    if report.n_classes:
        facts["classes"] = str(report.n_classes)
    if report.unmatched:
        facts["labels unused"] = f"{len(report.unmatched)} names of the table belong to no image"
    if measured:
        searched = f"{measured['n_queries']} held-out images asked, {measured['n_searched']} were searched"
        facts["mAP"] = f"{measured['map']:.4f} ({searched})"
    facts["buckets"] = f"{codes['occupied_codes']} in use, the largest holds {codes['largest_bucket']} images"
    facts["seconds"] = f"{seconds:.2f}"
    return output.Answer(data, facts)
