"""Models: shorthash fit and sums fit learn one, info describes one, methods lists what can be learned."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from shorthash.cli import terminal as cli
from shorthash.cli.search import load_model, read_file
from shorthash.errors import ForeignFile, InvalidInput, PersistenceError

if TYPE_CHECKING:
    from shorthash.data.tables import Columns

METHOD = "auto"  # the default method
STREAM_METHOD = "sumeaph"  # the default among the methods that learn from sums

SumsFile = Annotated[Path, cli.argument("SUMS", "File written by shorthash sums collect.")]
SumsOutput = Annotated[Path, cli.option("SUMS", "File to write.", names="--output -o")]

sums = cli.Group()


@sums.callback()
def _about_sums() -> None:
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


def fit(
    features: Annotated[
        Path, cli.argument("FEATURES", "Feature rows: .npy, .npz, .csv, .parquet, or a folder of tables.")
    ],
    model: cli.ModelOutput,
    labels: Annotated[
        Path | None, cli.argument("LABELS", "Labels, one per row; without them auto learns from neighbours.")
    ] = None,
    bits: cli.Bits = 8,
    method: Annotated[
        str | None, cli.option("NAME", "Method; see shorthash methods.", f"{METHOD}; {STREAM_METHOD} with --checkpoint")
    ] = None,
    preset: cli.Preset = "paper",
    anchors: Annotated[
        int | None, cli.option("N", "Anchors, for methods with kernel features.", "1000 for most methods")
    ] = None,
    seed: cli.Seed = 0,
    settings: Annotated[
        list[str] | None,
        cli.option("NAME=VALUE", "Set a parameter of the learner, or kernel.NAME=VALUE; repeatable.", names="--set"),
    ] = None,
    stream: Annotated[bool, cli.flag("--stream", "Read the rows in blocks; they need not fit in memory.")] = False,
    table: cli.LabelledOptions = cli.LabelledOptions(),
    pairs: Annotated[
        Path | None,
        cli.option("FILE", "Pairs of rows that belong together, instead of labels: a .csv file, see below."),
    ] = None,
    checkpoint: cli.Checkpoint = None,
) -> cli.Result:
    """Learn codes from features, with or without labels, and save the model.

    LABELS contains one number or name per row, or an indicator matrix of 0/1 or -1/+1 with one column per class. If
    FEATURES is a table, its columns are named by --label, --id (not learned from) and --features. auto also learns from
    rows without a label (an empty cell); other methods reject them. --set drop_unlabelled=true drops them, and --set
    drop_unlabelled=-1 also those with the label -1.

    Without any labels, use auto or an unsupervised method: nearby rows get similar codes. For auto, --set
    metric=euclidean changes the distance, and --set search=probes optimizes the codes for learned probes.

    --pairs FILE.csv lists pairs of rows that belong together: clicks, duplicates, judgements. A line contains two rows,
    by number from 0 or, with --id, by id, and optionally the weight of the pair.

    An existing model at MODEL is replaced; other files are not. With --stream, rows are read in blocks, and FEATURES
    may also be a folder of .parquet or .arrow files with labels in a column; the model is the same. The methods auto,
    sumeaph, rslh, nsh and hcsdh can learn from a stream: auto reads it about 20 times (without labels
    once), the others once or twice. A folder and --checkpoint imply --stream.

    \b
    Examples:
      shorthash fit train.npz train.npz -o digits.model --bits 8
      shorthash fit items.csv --id sku --label kind --features 'emb_*' -o items.model
      shorthash fit embeddings.npy -o embeddings.model --bits 12
      shorthash fit items.csv --id sku --pairs clicks.csv -o items.model
      shorthash fit train.npz train.npz -o digits.model --method rslh --set alpha=7
      shorthash fit shards/ --stream --label class -o digits.model --checkpoint sums.part
    """
    from shorthash.codes import code_quality
    from shorthash.methods import make_hasher
    from shorthash.persistence import save
    from shorthash.scale import fit_stream

    columns = table.columns
    streamed_only = features.is_dir() or features.suffix.lower() in (".arrow", ".feather")
    streaming = stream or checkpoint is not None or streamed_only
    name = method or (STREAM_METHOD if checkpoint is not None else METHOD)
    parameters = cli.parse_settings(settings) | ({} if anchors is None else {f"{cli.KERNEL}n_anchors": anchors})
    _check_method(name, parameters, labels=labels is not None or bool(columns.label), pairs=pairs is not None)
    if pairs is not None and (labels is not None or columns.label or streaming):
        raise cli.misuse("pairs cannot be combined with labels or with --stream", "--pairs")
    hasher = make_hasher(name, bits, preset=preset, random_state=seed, **parameters)
    check_output(model)
    rows: Any
    if streaming:
        rows, y = stream_training(features, labels, columns), None
    else:
        rows, y = read_training(features, labels, columns) if pairs is None else _read_paired(features, columns, pairs)
    with cli.progress() as step:
        start = time.perf_counter()
        if streaming:
            fit_stream(hasher, rows, checkpoint=checkpoint, progress=step)
        else:
            step(f"learning {bits} bits from {len(rows)} rows", 0, 0)
            hasher.fit(rows, y)
        seconds = time.perf_counter() - start
        step("saving", 0, 0)
        save(hasher, model)
        if not streaming:
            step("checking the codes", 0, 0)
            quality = code_quality(hasher.transform(rows), y if pairs is None else None).to_dict()
    data = fit_data(model, hasher, len(rows), seconds, method=name, preset=preset)
    if streaming:
        return fit_result(data, hasher[-1], {"speed": f"{len(rows) / seconds:,.0f} rows/s"})
    kind = "label set" if getattr(y, "ndim", 1) > 1 else "class"
    return fit_result({**data, "codes": quality}, hasher[-1], cli.code_facts(quality, "rows", kind))


def align(
    first: cli.Model,
    features: Annotated[Path, cli.argument("FEATURES", "Rows of the second space: .npy, .npz, .csv or .parquet.")],
    model: cli.ModelOutput,
    labels: Annotated[Path | None, cli.argument("LABELS", "Labels of these rows, of the classes of MODEL.")] = None,
    rows: Annotated[
        Path | None, cli.option("FILE", "Instead of labels: the same items in the feature space of MODEL.")
    ] = None,
    table: cli.LabelledOptions = cli.LabelledOptions(),
) -> cli.Result:
    """Learn a model for a second feature space whose codes can be compared with those of MODEL.

    Both models share their codes: items encoded by one model, for example images, can be searched with queries encoded
    by the other, for example texts. MODEL must use the method auto or eaph. Give labels with the classes of MODEL, or
    use --rows to give the same items in the feature space of MODEL, in the same order.

    \b
    Examples:
      shorthash align images.model texts.npy texts-labels.npy -o texts.model
      shorthash align images.model texts.npy --rows images.npy -o texts.model
    """
    from shorthash.data.files import read_features
    from shorthash.persistence import save

    columns = table.columns
    if (rows is None) == (labels is None and not columns.label):
        raise cli.misuse("give either labels or --rows", "--rows")
    check_output(model)
    hasher = load_model(first)
    X, y = read_training(features, labels, columns)
    with cli.progress() as step:
        start = time.perf_counter()
        step(f"aligning {len(X)} rows", 0, 0)
        second = hasher.align(X, y) if rows is None else hasher.align(X, rows=read_features(rows))
        seconds = time.perf_counter() - start
        step("saving", 0, 0)
        save(second, model)
    return cli.Result(fit_data(model, second, len(X), seconds, aligned_with=str(first)))


def read_training(features: Path, labels: Path | None, columns: Columns) -> tuple[Any, Any]:
    """Feature rows and their labels, if any, from files, or from the columns of a table."""
    from shorthash.data.files import read_labels

    if labels is not None and columns.label:
        raise cli.misuse("give a file LABELS or a column --label, not both", "--label")
    if labels is None and not columns and features.suffix == ".npz" and (held := _labels_inside(features)):
        ways = "to use them, also give the file as LABELS"
        cli.complain("warning", f"{features} holds labels ({held}), which are not used; {ways}")
    rows = read_file(features, columns)
    return rows.X, rows.labels if labels is None else read_labels(labels)


def _labels_inside(file: Path) -> str | None:
    """Name of the labels in a file of features, or None."""
    from shorthash.data.files import npz_array

    return next((name for name in ("y", "Y") if file.exists() and npz_array(file, name) is not None), None)


def stream_training(features: Path, labels: Path | None, columns: Columns) -> Any:
    """Feature rows and their labels as a stream."""
    from shorthash.scale import as_stream

    besides = [] if columns.id is None else [columns.id]
    return as_stream(features, labels, label=columns.label, features=columns.features, besides=besides)


def _read_paired(features: Path, columns: Columns, pairs: Path) -> tuple[Any, Any]:
    """Feature rows, and pairs of them."""
    from shorthash.data.tables import read_pairs
    from shorthash.learners.eaph.pairs import RelevantPairs

    rows = read_file(features, columns)
    return rows.X, RelevantPairs(*read_pairs(pairs, rows.ids))


def _check_method(name: str, parameters: Iterable[str], *, labels: bool, pairs: bool) -> None:
    """Raise if a method cannot use the settings of a kernel, or pairs, or cannot do without labels."""
    from shorthash.methods import method_facts

    facts = method_facts(name)
    kernel = any(parameter.startswith(cli.KERNEL) for parameter in parameters)
    if kernel and not any(step.startswith("AnchorRBF") for step in facts["preprocessing"]):
        raise InvalidInput(
            f"The method {name} has no kernel, so --anchors and --set kernel.NAME=VALUE have no effect; leave them "
            "out, or use a method with a kernel, such as --method rslh."
        )
    if pairs and not facts["labels_optional"]:
        raise InvalidInput(f"The method {name} cannot learn from --pairs; use --method auto.")
    if facts["supervised"] and not facts["labels_optional"] and not labels:
        raise InvalidInput(
            f"The method {name} needs labels; give a file of them as LABELS, or a column of the table with --label, or "
            "use --method auto, which also learns without labels."
        )


def fit_data(model: Path, hasher: Any, n_rows: int, seconds: float, **about: str) -> dict[str, Any]:
    """What was learned from, and how long it took."""
    return {
        "model": str(model),
        **about,
        "n_bits": int(hasher[-1].n_bits),
        "n_rows": n_rows,
        "n_features": int(hasher.n_features_in_),
        "seconds": round(seconds, 3),
    }


def fit_result(data: dict[str, Any], learner: Any, more: Mapping[str, str] | None = None) -> cli.Result:
    """The result of a fit: ``data``, how the training went, and ``more`` facts."""
    if hasattr(learner, "classes_"):
        data["n_classes"] = len(learner.classes_)
    facts = cli.facts_of(data)
    used, dropped = (int(getattr(learner, name, 0)) for name in ("n_unlabelled_", "n_dropped_"))
    if used or dropped:
        data["n_unlabelled"], data["n_dropped"] = used + dropped, dropped
        use = "used for training" if not dropped else "dropped" if not used else f"{dropped} dropped"
        facts["unlabelled"] = f"{used + dropped} rows, {use}"
    if hasattr(learner, "near_map_"):
        data["near_map"], data["wide_map"] = float(learner.near_map_), float(learner.wide_map_)
        facts["labels"] = "none: nearby rows get similar codes"
        facts["mAP"] = f"{learner.near_map_:.3f}, neighbours of held-out rows by Hamming distance"
        if hasattr(learner, "probed_map_"):
            data["probed_map"] = float(learner.probed_map_)
            facts["mAP"] += f"; {learner.probed_map_:.3f} by probes"
    if hasattr(learner, "lift_"):
        data["lift"] = float(learner.lift_)
        facts["labels"] = "none: learned from pairs of rows"
        facts["lift"] = f"{learner.lift_:.1f} times chance, average precision of held-out partners"
    if math.isfinite(getattr(learner, "disjoint_map_", math.nan)):
        data["disjoint_map"], data["searched_map"] = float(learner.disjoint_map_), float(learner.searched_map_)
        expected = "{disjoint_map:.3f} where other rows are searched, {searched_map:.3f} where these are"
        facts["expected mAP"] = expected.format(**data)
    if hasattr(learner, "convergence_"):
        runs = learner.convergence_
        data["runs"] = [{"n_iter": run.n_iter, "converged": run.converged, "reason": run.reason} for run in runs]
        facts["iterations"] = " + ".join(str(run.n_iter) for run in runs)
        facts["stopped"] = "; ".join(dict.fromkeys(run.reason for run in runs))
    elif hasattr(learner, "n_iter_"):
        data["runs"] = [{"n_iter": int(learner.n_iter_)}]
        facts["iterations"] = str(int(learner.n_iter_))
    return cli.Result(data, {**facts, **(more or {})})


def check_output(path: Path) -> None:
    """Raise if a model cannot be written to ``path`` because something else is there."""
    from shorthash.persistence import describe

    try:
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            describe(path)
    except ForeignFile:
        message = f"{path} exists and is not a model of shorthash, so it is not overwritten; choose another folder."
        raise ForeignFile(message) from None
    except PersistenceError:
        return  # a damaged or newer model: it may be replaced


def info(
    folder: Annotated[Path, cli.argument("MODEL", "A saved model, index, file of sums, or collection of images.")],
) -> cli.Result:
    """Show what a saved file or folder contains, without loading it.

    \b
    Example:
      shorthash info digits.model
    """
    from shorthash.images.storage import is_collection
    from shorthash.persistence import describe

    if is_collection(folder):
        from shorthash.cli.images import info as show_collection

        return show_collection(folder)
    data = describe(folder)
    size = data["bytes"]
    titles = {"n_bits": "bits", "n_items": "items", "n_features_in": "features", "n_samples_seen": "rows learned from"}
    facts = {
        "kind": data["kind"],
        "class": data["class"],
        **{title: str(data[name]) for name, title in titles.items() if name in data},
        "size": f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB",
        "written by": f"shorthash {data['shorthash_version']} (format {data['format_version']})",
    }
    if data["kind"] != "index":
        facts["further learning"] = "possible" if data["statistics"] else "not possible: no sums or rows were saved"
    tables = []
    for name, step in dict(data["params"].get("steps", [[data["class"], data["params"]]])).items():
        title = f"{name}: {step['class']}" if "class" in step else name
        rows = [(key, str(value)) for key, value in step.items() if key != "class"]
        if step:
            tables.append(cli.table([title, "value"], rows, text=[title, "value"]))
    return cli.Result(data, facts, tables)


def methods(
    name: Annotated[str | None, cli.argument("METHOD", "Show the settings and the reference of this method.")] = None,
) -> cli.Result:
    """List the methods, or show one in detail.

    Supervised methods need labels; some accept several labels per row. The default settings are those of the paper of
    the method; presets are alternatives.

    \b
    Examples:
      shorthash methods
      shorthash methods rslh
    """
    from shorthash._validation import check_choice
    from shorthash.methods import method_facts, recipes

    if name is not None:
        check_choice(name, "METHOD", "methods", list(recipes()))
        return _method_result(name, method_facts(name))
    facts = {known: method_facts(known) for known in recipes()}
    rows = [
        (known, f["full_name"], f["year"], _supervised(f), _several_labels(f), ", ".join(f["presets"]))
        for known, f in facts.items()
    ]
    titles = ["method", "name", "year", "supervised", "several labels", "presets"]
    table = cli.table(titles, rows, text=set(titles) - {"year"})
    return cli.Result(facts, {}, [table], ["", "For settings and reference: shorthash methods METHOD"])


def _method_result(name: str, facts: Mapping[str, Any]) -> cli.Result:
    presets = {
        f"preset {preset}": ", ".join(f"{key}={value!r}" for group in changes.values() for key, value in group.items())
        for preset, changes in facts["presets"].items()
    }
    lines = {
        "name": facts["full_name"],
        "year": str(facts["year"]),
        "supervised": _supervised(facts),
        "several labels": _several_labels(facts),
        "preprocessing": " -> ".join(facts["preprocessing"]) or "none",
        "reference": facts["reference"],
        **presets,
    }
    rows = [(key, repr(value)) for key, value in facts["parameters"].items()]
    tables = [cli.table(["setting", "default"], rows, text=["setting", "default"])] if rows else []
    return cli.Result({name: facts}, lines, tables)


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"


def _supervised(facts: Mapping[str, Any]) -> str:
    """Whether labels are needed."""
    return "optional" if facts["labels_optional"] else _yes(facts["supervised"])


def _several_labels(facts: Mapping[str, Any]) -> str:
    """Whether rows may have several labels; "-" for methods that read none."""
    return _yes(facts["multilabel"]) if facts["supervised"] else "-"


# sums -----------------------------------------------------------------------------------------------------------------


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


@sums.command("fit")
def fit_sums(
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
