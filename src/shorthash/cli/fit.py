"""Models: shorthash fit learns one, info describes one, methods lists what can be learned."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from shorthash.cli import terminal as cli
from shorthash.cli.search import load_model, read_file
from shorthash.errors import ForeignFile, InvalidInput, PersistenceError

if TYPE_CHECKING:
    from shorthash.data.tables import Columns

METHOD = "auto"  # the default method
STREAM_METHOD = "sumeaph"  # the default among the methods that learn from sums


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
        cli.option("FILE", "Pairs of rows that belong together, in place of labels: a .csv file, see below."),
    ] = None,
    checkpoint: cli.Checkpoint = None,
) -> cli.Result:
    """Learn codes from features, with or without labels, and save the model.

    LABELS contains one number or name per row, or an indicator matrix of 0/1 or -1/+1 with one column per class. If
    FEATURES is a table, its columns are named by --label, --id (not learned from) and --features. auto learns from
    rows without a label (an empty cell), too; to other methods they are an error. --set drop_unlabelled=true drops
    them, and --set drop_unlabelled=-1 also those with the label -1.

    Without any labels, rows near each other get similar codes: with auto, for which --set metric=euclidean changes what
    near means and --set search=probes makes codes for learned probes, and with the unsupervised methods.

    --pairs FILE.csv says which rows belong together: clicks, duplicates, judgements. A line names two rows, by number
    from 0 or, with --id, by id; a third column is the weight of the pair.

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
        raise cli.misuse("pairs replace labels, and need rows in memory; leave the others out", "--pairs")
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
        Path | None, cli.option("FILE", "In place of labels: rows of the first space that show the same things.")
    ] = None,
    table: cli.LabelledOptions = cli.LabelledOptions(),
) -> cli.Result:
    """Learn a model for a second feature space whose codes can be compared with those of MODEL.

    Both models share their codes: what one encodes, for instance images, is found by what the other encodes, for
    instance texts. MODEL is one of the methods auto and eaph. Give labels of the classes that it was fitted with, or
    with --rows the same things in its own feature space, row by row.

    \b
    Examples:
      shorthash align images.model texts.npy texts-labels.npy -o texts.model
      shorthash align images.model texts.npy --rows images.npy -o texts.model
    """
    from shorthash.data.files import read_features
    from shorthash.persistence import save

    columns = table.columns
    if (rows is None) == (labels is None and not columns.label):
        raise cli.misuse("give labels, or rows of the first space, and not both", "--rows")
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
        ways = "to use them, give the file as LABELS, too"
        cli.complain("warning", f"{features} holds labels ({held}), which are not used; {ways}")
    rows = read_file(features, columns)
    return rows.X, rows.labels if labels is None else read_labels(labels)


def _labels_inside(file: Path) -> str | None:
    """The name of the labels that a file of features holds, too."""
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
            "use --method auto, which learns without labels, too."
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
        fate = "learned from, too" if not dropped else "left out" if not used else f"{dropped} left out"
        facts["unlabelled"] = f"{used + dropped} rows, {fate}"
    if hasattr(learner, "near_map_"):
        data["near_map"], data["wide_map"] = float(learner.near_map_), float(learner.wide_map_)
        facts["labels"] = "none: rows that are near each other get similar codes"
        facts["mAP"] = f"{learner.near_map_:.3f}, neighbours of held-out rows by Hamming distance"
        if hasattr(learner, "probed_map_"):
            data["probed_map"] = float(learner.probed_map_)
            facts["mAP"] += f"; {learner.probed_map_:.3f} by probes"
    if hasattr(learner, "lift_"):
        data["lift"] = float(learner.lift_)
        facts["labels"] = "none: pairs of rows say what belongs together"
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
