"""shorthash stats fit: sums become a saved model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from shorthash.cli import output
from shorthash.cli.fit_answer import fit_answer, training_facts
from shorthash.cli.options import AsJson, option, parse_settings
from shorthash.cli.reading import check_place
from shorthash.cli.stats_answer import StatsFile

__all__ = ["fit"]


def fit(
    stats: Annotated[Path, StatsFile],
    model: Annotated[Path, option("--output", "-o", metavar="MODEL", text="Folder to write.")],
    bits: Annotated[int, option("--bits", "-b", metavar="N", text="Length of the codes, 1 to 64.", default=True)] = 8,
    method: Annotated[
        str, option("--method", metavar="NAME", text="Method that learns from sums.", default=True)
    ] = "rslh",
    preset: Annotated[
        str, option("--preset", metavar="NAME", text="Whose settings: paper or authors-code.", default=True)
    ] = "paper",
    seed: Annotated[int, option("--seed", metavar="N", text="Seed of everything random.", default=True)] = 0,
    settings: Annotated[
        list[str] | None, option("--set", metavar="NAME=VALUE", text="A parameter of the learner; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Learn codes from sums, and save the model; the rows are not needed.

    \b
    Example:
      shorthash stats fit both.stats -o digits.model --bits 12
    """
    from shorthash.persistence import save
    from shorthash.recipes import make_hasher
    from shorthash.scale import fit_collected, load_collected

    learner: dict[str, Any] = parse_settings(settings or [])
    hasher = make_hasher(method, bits, preset=preset, random_state=seed, **learner)
    check_place(model)
    collected = load_collected(stats)
    start = time.perf_counter()
    fit_collected(hasher, collected)
    data = {
        "model": str(model),
        "method": method,
        "preset": preset,
        "n_bits": bits,
        "n_rows": collected.n_rows,
        "n_features": int(hasher.n_features_in_),
        "seconds": round(time.perf_counter() - start, 3),
        **training_facts(hasher[-1]),
    }
    save(hasher, model)
    output.show(fit_answer(data, "class"), as_json=as_json)
