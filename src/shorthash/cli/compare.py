"""shorthash compare: every method on the user's own rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from shorthash.cli import output
from shorthash.cli.options import AsJson, Features, argument, option, parse_numbers
from shorthash.cli.progress import progress

__all__ = ["compare"]


def compare(
    features: Features,
    labels: Annotated[Path, argument("LABELS", "Their labels, one per row, or an indicator matrix.")],
    bits: Annotated[
        str | None,
        option("--bits", metavar="N,N,...", text="Code lengths.", default="four, from the shortest for the classes"),
    ] = None,
    methods: Annotated[
        str | None,
        option(
            "--methods",
            metavar="NAME,...",
            text="Methods, or all; see shorthash methods.",
            default="the paper's ten, classifier, auto",
        ),
    ] = None,
    queries: Annotated[
        int | None,
        option("--queries", metavar="N", text="Rows kept apart as queries.", default="a fifth, at most 1000"),
    ] = None,
    train: Annotated[
        int | None, option("--train", metavar="N", text="Rows to learn from.", default="all others, at most 10000")
    ] = None,
    radius: Annotated[int, option("--radius", metavar="N", text="Radius of a lookup.", default=True)] = 2,
    seed: Annotated[int, option("--seed", metavar="N", text="Seed of everything random.", default=True)] = 0,
    out: Annotated[Path, option("--out", "-o", metavar="FOLDER", text="Folder for the page.", default=True)] = Path(
        "compare"
    ),
    as_json: AsJson = False,
) -> None:
    """Score every method on these rows and write a page.

    Some rows are kept apart as queries; the others are searched, and learned from. mAP is exact with ties, with an
    interval over the queries. FOLDER gets index.html, the table as .csv, .md and .tex, compare.json, and figures.

    \b
    Examples:
      shorthash compare features.npy labels.npy
      shorthash compare features.npy labels.npy --bits 8,12 --methods rslh,sdh,auto -o compare
    """
    from shorthash._validation import require_extra
    from shorthash.data.files import read_features, read_labels
    from shorthash.lab.compare import DEFAULT_METHODS, compare_methods
    from shorthash.lab.compare_page import comparison_sentence, comparison_table, skipped_table, write_comparison
    from shorthash.recipes import recipes

    for module in ("matplotlib", "jinja2"):  # now, not after all the work
        require_extra(module, "report", "shorthash compare")
    asked = DEFAULT_METHODS if methods is None else tuple(name.strip() for name in methods.split(","))
    with progress() as tell:
        result = compare_methods(
            read_features(features),
            read_labels(labels),
            lengths=parse_numbers(bits, "--bits"),
            methods=tuple(recipes()) if asked == ("all",) else asked,
            n_queries=queries,
            n_train=train,
            radius=radius,
            seed=seed,
            progress=tell,
        )
        page = write_comparison(result, out)
    tables = (comparison_table(result), *((skipped_table(result),) if result.skipped else ()))
    notes = ("", comparison_sentence(result), f"page: {page}")
    output.show(output.Answer({**result.to_dict(), "page": str(page)}, tables=tables, notes=notes), as_json=as_json)
