"""Fitting a stream for the command line: the options it takes, and what there is to say."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from shorthash.cli.fit_answer import fit_answer, training_facts
from shorthash.cli.options import option
from shorthash.cli.output import Answer
from shorthash.cli.progress import progress

__all__ = ["Checkpoint", "LabelColumns", "fit_streamed", "label_of", "stream_from"]

LabelColumns = Annotated[
    list[str] | None,
    option("--label", metavar="COLUMN", text="Column of a table that holds the labels; repeat it for a 0/1 matrix."),
]
Checkpoint = Annotated[
    Path | None,
    option("--checkpoint", metavar="FILE", text="Keep the sums here while reading; an interrupted run goes on there."),
]


def fit_streamed(
    hasher: Any,
    features: Path,
    labels: Path | None,
    label: list[str] | None,
    checkpoint: Path | None,
    model: Path,
    told: Mapping[str, Any],
) -> Answer:
    """Fit from a stream, save, and tell about it."""
    from shorthash.persistence import save
    from shorthash.scale import fit_stream

    source = stream_from(features, labels, label)
    with progress() as tell:
        start = time.perf_counter()
        fit_stream(hasher, source, checkpoint=checkpoint, tell=tell)
        seconds = time.perf_counter() - start
        tell("saving", 0, 0)
        save(hasher, model)
    data = {
        "model": str(model),
        **told,
        "n_bits": hasher[-1].n_bits,
        "n_rows": len(source),
        "n_features": source.n_columns,
        "seconds": round(seconds, 3),
        **training_facts(hasher[-1]),
    }
    answer = fit_answer(data, "class")
    return Answer(data, {**answer.facts, "speed": f"{len(source) / seconds:,.0f} rows/s"})


def stream_from(features: Path, labels: Path | None, label: list[str] | None) -> Any:
    """The stream that the arguments describe."""
    from shorthash.errors import InvalidInput
    from shorthash.scale import as_stream

    if labels is None and not label:
        raise InvalidInput(
            "A stream to learn from needs labels; give a file of them as LABELS, or a column by --label."
        )
    return as_stream(features, labels, label=label_of(label))


def label_of(label: list[str] | None) -> str | list[str] | None:
    """One column of labels, or several that form a matrix."""
    return label[0] if label and len(label) == 1 else label or None
