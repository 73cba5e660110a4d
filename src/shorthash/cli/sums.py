"""Fit models from sums over rows, which can be merged.

Some methods (sumeaph, rslh, nsh, hcsdh) need only sums over the training rows. The sums of parts of the data can be
computed separately and merged; the model is the same as if it was fitted on all rows. All parts must use the same
anchors: collect the sums of one part, and pass its file to the others with --kernel.

\b
Example:
  shorthash sums collect monday.parquet --label class -o monday.sums
  shorthash sums collect tuesday.parquet --label class --kernel monday.sums -o tuesday.sums
  shorthash sums merge monday.sums tuesday.sums -o both.sums
  shorthash sums fit both.sums -o digits.model --bits 12
"""

from __future__ import annotations

import time
from functools import reduce
from pathlib import Path
from typing import Annotated, Any

from shorthash.cli import terminal as cli
from shorthash.cli.fit import STREAM_METHOD, check_output, fit_data, fit_result, read_training, stream_training
from shorthash.errors import InvalidInput

SumsFile = Annotated[Path, cli.argument("SUMS", "File written by shorthash sums collect.")]
SumsOutput = Annotated[Path, cli.option("SUMS", "File to write.", names="--output -o")]

sums = cli.Group(__doc__)


@sums.command()
def collect(
    features: Annotated[
        Path, cli.argument("FEATURES", "Feature rows: a .npy, .npz, .csv or .parquet file, or a folder of tables.")
    ],
    output_file: SumsOutput,
    labels: Annotated[Path | None, cli.argument("LABELS", "Labels, if they are in a separate file.")] = None,
    table: cli.LabelledOptions = cli.LabelledOptions(),
    kernel: Annotated[
        Path | None, cli.option("SUMS", "Use the anchors of this file, so that the sums can be merged.")
    ] = None,
    anchors: Annotated[int | None, cli.option("N", "Number of anchors.", "1000")] = None,
    seed: cli.Seed = 0,
    settings: Annotated[
        list[str] | None, cli.option("kernel.NAME=VALUE", "Set a parameter of the kernel; repeatable.", names="--set")
    ] = None,
    checkpoint: cli.Checkpoint = None,
) -> cli.Result:
    """Compute the sums over rows, in blocks, and save them to a file.

    Columns of a table are named by --label, --id (not learned from) and --features, as for shorthash fit. A .csv or
    .npz file, or a table with --separator, is read whole.

    \b
    Examples:
      shorthash sums collect monday.parquet --label class -o monday.sums
      shorthash sums collect monday.csv --id sku --label kind --features 'emb_*' -o monday.sums
    """
    from shorthash import scale
    from shorthash.kernels.rbf import AnchorRBF

    given = cli.parse_settings(settings) | ({} if anchors is None else {f"{cli.KERNEL}n_anchors": anchors})
    other = [name for name in given if not name.startswith(cli.KERNEL)]
    if other:
        raise cli.misuse(f"{other[0]!r} does not begin with 'kernel.'", "--set")
    columns = table.columns
    if labels is None and not columns.label:
        raise InvalidInput("Sums need labels; give a file of them as LABELS, or a column of the table with --label.")
    if features.suffix.lower() in (".csv", ".npz") or columns.separator is not None:
        source = scale.as_stream(*read_training(features, labels, columns))
    else:
        source = stream_training(features, labels, columns)
    if kernel is not None and given:
        raise cli.misuse("the file sets the kernel; leave out --anchors and --set", "--kernel")
    if kernel is not None:
        features_of = scale.load_collected(kernel).kernel
    else:
        features_of = AnchorRBF(random_state=seed)
        features_of.set_params(**{name.removeprefix(cli.KERNEL): value for name, value in given.items()})
    with cli.progress() as step:
        collected = scale.collect(source, features_of, checkpoint=checkpoint, progress=step)
        scale.save_collected(collected, output_file)
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    return _sums_result(output_file, collected)


@sums.command()
def merge(
    parts: Annotated[list[Path], cli.argument("SUMS", "Files of sums over different rows, with the same anchors.")],
    output_file: SumsOutput,
) -> cli.Result:
    """Merge files of sums; the result covers all their rows.

    \b
    Example:
      shorthash sums merge monday.sums tuesday.sums -o both.sums
    """
    from shorthash.scale import Collected, load_collected, save_collected

    total = reduce(Collected.merge, map(load_collected, parts))
    save_collected(total, output_file)
    return _sums_result(output_file, total)


@sums.command()
def subtract(
    whole: Annotated[Path, cli.argument("WHOLE", "File of sums.")],
    part: Annotated[Path, cli.argument("PART", "File of sums over some of the same rows.")],
    output_file: SumsOutput,
) -> cli.Result:
    """Subtract sums; the result covers the remaining rows.

    \b
    Example:
      shorthash sums subtract both.sums monday.sums -o tuesday.sums
    """
    from shorthash.scale import load_collected, save_collected

    remaining = load_collected(whole).subtract(load_collected(part))
    save_collected(remaining, output_file)
    return _sums_result(output_file, remaining)


@sums.command()
def show(path: SumsFile) -> cli.Result:
    """Show how many rows, features and classes a file of sums covers.

    \b
    Example:
      shorthash sums show monday.sums
    """
    from shorthash.scale import load_collected

    return _sums_result(path, load_collected(path))


@sums.command()
def fit(
    path: SumsFile,
    model: cli.ModelOutput,
    bits: cli.Bits = 8,
    method: Annotated[str, cli.option("NAME", "sumeaph, rslh, nsh or hcsdh.")] = STREAM_METHOD,
    preset: cli.Preset = "paper",
    seed: cli.Seed = 0,
    settings: cli.Settings = None,
) -> cli.Result:
    """Learn codes from sums, without the rows, and save the model.

    \b
    Example:
      shorthash sums fit both.sums -o digits.model --bits 12
    """
    from shorthash.methods import make_hasher
    from shorthash.persistence import save
    from shorthash.scale import fit_collected, load_collected

    hasher = make_hasher(method, bits, preset=preset, random_state=seed, **cli.parse_settings(settings))
    check_output(model)
    collected = load_collected(path)
    start = time.perf_counter()
    fit_collected(hasher, collected)
    seconds = time.perf_counter() - start
    save(hasher, model)
    data = fit_data(model, hasher, collected.n_rows, seconds, method=method, preset=preset)
    return fit_result(data, hasher[-1])


def _sums_result(path: Path, collected: Any) -> cli.Result:
    """What a file of sums holds."""
    total, kernel = collected.sums, collected.kernel
    sizes = total.counts
    data = {
        "sums": str(path),
        "n_rows": collected.n_rows,
        "n_labelled": total.n_samples,
        "n_features": total.n_features,
        "n_anchors": None if kernel is None else len(kernel.anchors_),
        "n_columns": total.n_features if kernel is None else int(kernel.n_features_in_),
        "bandwidth": None if kernel is None else float(kernel.bandwidth_),
        "classes": total.classes.tolist(),
        "n_label_sets": len(total.rows),
        "smallest_label_set": int(sizes.min()),
        "largest_label_set": int(sizes.max()),
        "bytes": path.stat().st_size,
    }
    return cli.Result(data)
