"""Runs: what a record holds, by task; and that a campaign survives whatever stops it."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from dense_rslh import dense_objective, dense_reduction, dense_similarity

from shorthash import RSLH, make_hasher
from shorthash.data.datasets import read_dataset
from shorthash.data.splits import RandomQueries
from shorthash.errors import DataFileError, InvalidInput
from shorthash.lab.dense import fit_dense
from shorthash.lab.plan import group_runs, unique_runs
from shorthash.lab.run import experiment_status, run_experiments
from shorthash.lab.runs import RunSpec
from shorthash.lab.sample import unpack_sample
from shorthash.lab.sharing import SharedSplit
from shorthash.lab.spec import read_experiment
from shorthash.lab.store import LARGEST_RECORD, read_records, record_text, stored_runs, write_record
from shorthash.lab.tasks import initial_objective, make_record
from shorthash.lab.worker import do_group, serve
from shorthash.lab.worker import main as work_alone

PROTOCOL = RandomQueries(n_queries=100, n_train=300, seed=1).to_dict()
SCORES = {"map", "map_best", "map_worst", "map_h2", "map_stable", "precision_at_100", "precision_at_5000"}
SPEC = """
name = "many"
seeds = 2
[[datasets]]
name = "digits"
bits = [2, 3, 4, 5, 6, 7, 8]
protocol = {n_train = 200}
[[methods]]
name = "RSLH"
method = "rslh"
front_end = {n_anchors = 50}
[[methods]]
name = "PCA-ITQ"
method = "pcaitq"
"""


@pytest.fixture(scope="module")
def digits_found():
    return read_dataset("digits")


@pytest.fixture(scope="module")
def digits_split(digits_found):
    return SharedSplit(digits_found, PROTOCOL)


@pytest.fixture
def record(digits_split, digits_found):
    def make(task="scores", method="rslh", n_bits=4, front_end=None, **settings):
        anchors = {"n_anchors": 60} if front_end is None else front_end
        spec = RunSpec.of(
            task=task,
            dataset="digits",
            protocol=PROTOCOL,
            seed=1,
            method=method,
            n_bits=n_bits,
            settings=settings,
            front_end=anchors,
        )
        outcome = make_record(spec, digits_split, digits_found)
        assert len(record_text({**outcome.record, "side_file": None}).encode()) < LARGEST_RECORD - 200
        return outcome

    return make


def test_a_record_of_scores(record, digits_split):
    outcome = record()
    made = outcome.record
    assert set(made["scores"]) >= SCORES
    assert set(made["scores"]["map"]) == {"mean", "std", "quantiles"}
    low, mid, high = (made["scores"][name]["mean"] for name in ("map_worst", "map", "map_best"))
    assert low < mid < high
    assert low < made["scores"]["map_stable"]["mean"] < high
    assert made["scores"]["map"]["mean"] == pytest.approx(float(outcome.per_query["map"].mean()), rel=1e-4)
    assert set(made["seconds"]) == {"fit", "encode", "evaluate", "wall"}
    assert made["peak_memory_mib"] > 20
    assert made["data"]["rows"] == 1797
    assert len(made["data"]["fingerprint"]) == 64
    assert {"shorthash", "numpy", "scikit-learn"} <= set(made["versions"])
    assert set(made["machine"]) == {"cpu", "cores", "system"}
    alone = make_hasher("rslh", 4, random_state=1, front_end={"n_anchors": 60})
    alone.fit(digits_split.X_train, digits_split.y_train)
    from shorthash import evaluate

    codes = alone.transform(digits_split.X_query), alone.transform(digits_split.X_database)
    truth = evaluate(codes[0], digits_split.y_query, codes[1], digits_split.y_database)
    assert mid == pytest.approx(truth.map, rel=1e-4)


def test_a_record_of_codes_can_be_drawn_again(record, digits_split):
    made = record("embedding").record
    codes, classes = unpack_sample(made["sample"])
    assert codes.shape == (100, 4)
    assert sorted(classes.tolist()) == sorted(digits_split.y_query.tolist())
    assert "scores" not in made


def test_a_record_of_the_objective(record):
    made = record("convergence", max_iter=4).record
    assert made["curve"]["initial"] > made["curve"]["objective"][0]
    assert 1 <= len(made["curve"]["objective"]) <= 4


def test_only_rslh_has_a_curve(record):
    with pytest.raises(InvalidInput, match=r"'convergence' is for rslh\. Got NSH"):
        record("convergence", "nsh")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("similarity", ["S", "G"])
def test_the_initial_objective_is_that_of_full_matrices(blobs, similarity):
    X, y = blobs
    learner = RSLH(4, similarity=similarity, boosting=None, random_state=0).fit(X, y)
    Y = np.eye(5)[y]
    rng = np.random.RandomState(np.random.RandomState(learner._seed).randint(np.iinfo(np.int32).max, size=1)[0])
    C = 2 * rng.randint(0, 2, size=(5, 4)) - 1
    W = rng.uniform(-0.5, 0.5, size=(4, 5))
    S = dense_similarity(Y)
    R = np.eye(len(X)) if similarity == "S" else dense_reduction(S, X)
    zero = np.zeros((len(X), 4)), np.zeros((X.shape[1], 4))
    truth = dense_objective(Y, X, C[y], zero[0], W, W.T, zero[1], R, S @ R, 3, 1e-2, 1e-5, 1e-5, 1e-6)
    assert initial_objective(learner) == pytest.approx(truth, rel=1e-9)


@pytest.mark.filterwarnings("ignore")
def test_the_dense_reference_learns_what_rslh_learns(blobs):
    X, y = blobs
    learner = RSLH(4, similarity="S", boosting=None, random_state=0).fit(X, y)
    rng = np.random.RandomState(np.random.RandomState(learner._seed).randint(np.iinfo(np.int32).max, size=1)[0])
    start = 2.0 * rng.randint(0, 2, size=(5, 4)) - 1
    dense = fit_dense(X, y, start)
    assert np.array_equal(dense["codewords"], learner.codewords_)
    moving = ~(learner.codewords_ == learner.codewords_[0]).all(axis=0)
    assert np.allclose(dense["projection"][:, moving], learner.projection_[:, moving], rtol=1e-6)


def test_costs(record):
    for method in ("rslh", "rslh-dense"):
        made = record("cost", method).record
        assert made["seconds"]["fit"] > 0
        assert made["added_memory_mib"] >= 0
        assert made["rows_learned"] == 300


def test_a_length_that_a_method_does_not_know(record):
    made = record("scores", "ccaitq", n_bits=20, front_end={}).record
    assert "learns at most 9 bits" in made["undefined"]
    assert "scores" not in made


def test_other_mistakes_are_not_taken_for_it(record):
    with pytest.raises(InvalidInput, match="has no parameter 'colour'"):
        record("scores", "rslh", colour="red")


@pytest.fixture
def many(tmp_path):
    path = tmp_path / "many.toml"
    path.write_text(SPEC)
    return path


def done_at_once(path, folder):
    """All records, without any process."""
    for group in group_runs(unique_runs([read_experiment(path)]).values()):
        do_group(group, folder, None, lambda _event: None)
    return outcomes(folder)


def outcomes(folder):
    return {each["run"]: each["scores"] for each in read_records(folder)}


def test_a_campaign_that_is_killed_goes_on_where_it_stopped(many, tmp_path):
    """kill -9 in the middle; nothing is done again, and the outcome is that of a campaign never stopped."""
    folder = tmp_path / "results"
    command = [sys.executable, "-m", "shorthash", "bench", "run", str(many), "--results", str(folder), "-w", "1"]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE)
    try:
        wait_for(lambda: len(stored_runs(folder)) >= 3 or process.poll() is not None)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    assert len(before) >= 3
    again = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True, timeout=120)
    told = json.loads(again.stdout)
    assert (told["wanted"], told["there"], told["done"]) == (28, len(before), 28 - len(before))
    assert {name: (folder / name).stat().st_mtime_ns for name in before} == before
    assert outcomes(folder) == done_at_once(many, tmp_path / "other" / "results")
    assert not [path for path in folder.iterdir() if path.suffix != ".json"]


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_nothing_to_do(many, tmp_path):
    folder = tmp_path / "results"
    for name, spec in unique_runs([read_experiment(many)]).items():
        write_record(folder, {"schema": 1, "run": name, "spec": spec.to_dict()})
    summary = run_experiments([read_experiment(many)], folder)
    assert (summary.there, summary.done) == (28, 0)
    assert experiment_status(read_experiment(many), folder) == {"many": (28, 28)}


def test_missing_data_is_told_before_anything_is_done(tmp_path, monkeypatch):
    monkeypatch.delenv("SHORTHASH_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "a.toml").write_text(SPEC.replace("digits", "cifar10"))
    with pytest.raises(DataFileError, match=r"'cifar10' needs cifar10_cnn256\.npz"):
        run_experiments([read_experiment(tmp_path / "a.toml")], tmp_path / "results")
    assert not stored_runs(tmp_path / "results")


class Line:
    """The end of a connection that a worker holds: one group comes in, and after some words it breaks."""

    def __init__(self, group, patience):
        self.group, self.patience, self.said = group, patience, []

    def recv(self):
        return self.group

    def send(self, what):
        if len(self.said) == self.patience:
            raise BrokenPipeError
        self.said.append(what)


def test_a_worker_that_nobody_listens_to_stops(many, tmp_path):
    line = Line(group_runs(unique_runs([read_experiment(many)]).values())[0], patience=3)
    serve(line, str(tmp_path / "results"), None)
    assert [kind for kind, _ in line.said] == ["ready", "done", "done"]
    assert len(stored_runs(tmp_path / "results")) == 3


def test_a_worker_that_is_killed_is_told(many, tmp_path):
    """Whoever ends a worker, the campaign says so, and the next one goes on."""
    killed = []

    def kill(progress):
        import multiprocessing

        for worker in multiprocessing.active_children():
            os.kill(worker.pid, signal.SIGKILL)
            killed.append(worker.pid)

    with pytest.raises(InvalidInput, match="A worker ended with status -9"):
        run_experiments([read_experiment(many)], tmp_path / "results", workers=1, tell=kill)
    assert killed
    assert stored_runs(tmp_path / "results")


def test_one_group_in_a_process_of_its_own(many, tmp_path):
    runs = group_runs(unique_runs([read_experiment(many)]).values())[-1].runs[:1]
    job = {"runs": [spec.to_dict() for spec in runs], "results": str(tmp_path / "results"), "data_dir": None}
    work_alone(json.dumps(job))
    assert stored_runs(tmp_path / "results") == {runs[0].name}


def test_workers_must_be_counted(many, tmp_path):
    with pytest.raises(InvalidInput, match="'workers' parameter of run_experiments must be an int >= 1"):
        run_experiments([read_experiment(many)], tmp_path, workers=0)
