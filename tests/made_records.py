"""Experiments of every kind of report, and records as a run would have stored them, without running anything."""

import hashlib
import json

import numpy as np

from shorthash.lab.spec import plan_part, read_experiment
from shorthash.lab.tasks import pack_sample

METHODS = {
    "SH": ("sh", 0.25),
    "PCA-ITQ": ("pcaitq", 0.27),
    "SDH": ("sdh", 0.42),
    "SSLH": ("sslh", 0.44),
    "RSLH": ("rslh", 0.5),
    "EAPH": ("auto", 0.58),
}
HEAD = 'task = "{task}"\nseeds = {seeds}\n'


def rows(names, **settings):
    """Methods of a specification."""
    lines = []
    for name in names:
        lines.append(f'[[methods]]\nname = "{name}"\nmethod = "{METHODS.get(name, ("rslh",))[0]}"')
        if name in settings:
            lines.append(f"settings = {settings[name]}")
    return "\n".join(lines)


def datasets(*chosen):
    return "\n".join(f'[[datasets]]\nname = "{name}"\nbits = {list(bits)}' for name, bits in chosen)


def report(kind, *metrics):
    return f'[report]\nkind = "{kind}"\nmetrics = {json.dumps(metrics)}\ncaption = "What is <seen> here."\n'


TWO = datasets(("cifar10", (4, 6)), ("caltech101", (8, 10)))
SPECS = {
    "table1": 'name = "table1"\ntitle = "Table 1"\n'
    + HEAD.format(task="scores", seeds=2)
    + "\n".join([TWO, rows(METHODS), report("table", "map", "map_h2")]),
    "table2": 'name = "table2"\ntitle = "Table 2"\n'
    + HEAD.format(task="scores", seeds=2)
    + "\n".join(
        [
            TWO,
            rows(
                ("S", "G", "G+OB", "G+MB"),
                **{
                    "S": '{similarity = "S", boosting = "none"}',
                    "G": '{boosting = "none"}',
                    "G+OB": '{boosting = "ob"}',
                },
            ),
            report("table", "map"),
        ]
    ),
    "figure1": 'name = "figure1"\ntitle = "Figure 1"\n[[parts]]\nname = "lines"\ntitle = "Figure 1 (a-c)"\n'
    + HEAD.format(task="scores", seeds=2)
    + "\n".join([datasets(("cifar10", (4, 8, 16, 64))), rows(METHODS), report("lines", "precision_at_5000")])
    .replace("[[datasets]]", "[[parts.datasets]]")
    .replace("[[methods]]", "[[parts.methods]]")
    .replace("[report]", "[parts.report]")
    + '[[parts]]\nname = "sensitivity"\ntitle = "Figure 1 (d-f)"\n'
    + HEAD.format(task="scores", seeds=1)
    + "\n".join(
        [
            datasets(("cifar10", (10,))),
            rows(["RSLH"]),
            "[parts.grid]\nalpha = [0.1, 1.0, 10.0]\ngamma = [1e-5, 0.1]",
            report("heatmap", "precision_at_5000"),
        ]
    )
    .replace("[[datasets]]", "[[parts.datasets]]")
    .replace("[[methods]]", "[[parts.methods]]")
    .replace("[report]", "[parts.report]"),
    "figure2": 'name = "figure2"\ntitle = "Figure 2"\n[[parts]]\nname = "codes"\ntitle = "Figure 2 (a-c)"\n'
    + HEAD.format(task="embedding", seeds=1)
    + "\n".join([datasets(("cifar10", (4,))), rows(["SSLH", "RSLH"]), report("embedding")])
    .replace("[[datasets]]", "[[parts.datasets]]")
    .replace("[[methods]]", "[[parts.methods]]")
    .replace("[report]", "[parts.report]")
    + '[[parts]]\nname = "convergence"\ntitle = "Figure 2 (d)"\n'
    + HEAD.format(task="convergence", seeds=1)
    + "\n".join([datasets(("cifar10", (10,)), ("voc2012", (10,))), rows(["RSLH"]), report("convergence")])
    .replace("[[datasets]]", "[[parts.datasets]]")
    .replace("[[methods]]", "[[parts.methods]]")
    .replace("[report]", "[parts.report]"),
    "costs": 'name = "costs"\ntitle = "Costs"\n'
    + HEAD.format(task="cost", seeds=1)
    + "\n".join([datasets(("cifar10", (8,))), rows(["RSLH", "SH"]), report("cost", "fit", "added_memory_mib")]),
}


def write_experiments(folder):
    """Specifications in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in SPECS.items():
        (folder / f"{name}.toml").write_text(text)
    return folder


def planned(folder):
    """Every run that the experiments of a folder plan."""
    parts = [part for file in sorted(folder.glob("*.toml")) for part in read_experiment(file).parts]
    return [run for part in parts for run in plan_part(part)]


def made_record(run):
    """A record with plausible numbers that depend on nothing but the run."""
    luck = int(hashlib.sha256(run.name.encode()).hexdigest()[:6], 16) / 16**6 - 0.5
    base = METHODS.get(run.row, ("", 0.48))[1]
    level = base * (1 - 1 / run.n_bits) + 0.02 * luck
    score = {"mean": level, "std": 0.3, "quantiles": [0, 0.2, 0.4, 0.7, 1]}
    body = {
        "scores": {
            "scores": dict.fromkeys(("map", "map_h2", "precision_at_100", "precision_at_5000", "precision_h2"), score)
        },
        "convergence": {"curve": {"initial": 130.0, "objective": [100.0, 90 + luck, 88 + luck]}},
        "embedding": {"sample": _sample(run)},
        "cost": {"added_memory_mib": 100 + 10 * luck},
    }[run.spec.task]
    return {
        "schema": 1,
        "run": run.name,
        "spec": run.spec.to_dict(),
        **body,
        "seconds": {"fit": 0.5 + luck, "encode": 0.1, "evaluate": 0.2, "wall": 1.0},
        "peak_memory_mib": 300.0,
        "data": {"name": run.dataset, "fingerprint": "sha256:00", "rows": 60000, "dims": 256, "classes": 10},
        "versions": {"shorthash": "0.1.0", "numpy": "2.0"},
        "machine": {"cpu": "a processor", "cores": 2, "system": "Linux"},
        "side_file": None,
        "made": "2026-01-01T00:00:00+00:00",
    }


def write_records(folder, runs):
    """Store made-up records of some runs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "running.jsonl").write_text("".join(json.dumps(made_record(run)) + "\n" for run in runs))
    return folder


def _sample(run):
    rng = np.random.default_rng(run.seed)
    y = rng.integers(10, size=300)
    bits = rng.integers(2, size=(10, run.n_bits))
    return pack_sample((2 * bits[y] - 1).astype(np.int8), y)
