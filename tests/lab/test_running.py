"""Runs: what a record holds, by task; and that a campaign survives whatever stops it."""

import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from dense_rslh import dense_objective, dense_reduction, dense_similarity

from shorthash import RSLH, evaluate, make_hasher
from shorthash.data.datasets import Dataset, read_dataset
from shorthash.data.splits import RandomQueries
from shorthash.errors import DataFileError, InvalidInput
from shorthash.evaluation import CONVENTIONS
from shorthash.lab.report import collect
from shorthash.lab.running import append_record, do_group, read_records, run_experiments
from shorthash.lab.sharing import SharedSplit
from shorthash.lab.spec import RunSpec, group_runs, read_experiment, unique_runs
from shorthash.lab.tasks import make_record, measure, unpack_sample

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
settings = {kernel__n_anchors = 50}
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


@pytest.fixture(scope="module")
def record(digits_split, digits_found):
    @functools.cache
    def make(task="scores", method="rslh", n_bits=4, encoder="", **settings):
        if method == "rslh":
            settings = {"kernel__n_anchors": 60, **settings}
        spec = RunSpec.of(task, "digits", PROTOCOL, 1, method, n_bits, settings, encoder)
        return make_record(spec, digits_split, digits_found)

    return make


def test_a_record_of_scores(record, digits_split):
    made, per_query = record()
    assert set(made["scores"]) >= SCORES
    assert set(made["scores"]["map"]) == {"mean", "std", "quantiles"}
    low, mid, high = (made["scores"][name]["mean"] for name in ("map_worst", "map", "map_best"))
    assert low < mid < high
    assert low < made["scores"]["map_stable"]["mean"] < high
    assert made["scores"]["map"]["mean"] == pytest.approx(float(per_query["map"].mean()), rel=1e-4)
    assert set(made["seconds"]) == {"fit", "encode", "evaluate", "wall"}
    assert made["peak_memory_mib"] > 20
    assert made["data"]["rows"] == 1797
    assert len(made["data"]["fingerprint"]) == 64
    assert {"shorthash", "numpy", "scikit-learn"} <= set(made["versions"])
    assert set(made["machine"]) == {"cpu", "cores", "system"}
    alone = make_hasher("rslh", 4, random_state=1, kernel={"n_anchors": 60})
    alone.fit(digits_split.X_train, digits_split.y_train)
    codes = alone.transform(digits_split.X_query), alone.transform(digits_split.X_database)
    truth = evaluate(codes[0], digits_split.y_query, codes[1], digits_split.y_database)
    assert mid == pytest.approx(truth.map, rel=1e-4)
    assert made["codes"] == {
        "learned": len(np.unique(alone[-1].codes_, axis=0)),
        "used": len(np.unique(alone.transform(digits_split.X_train), axis=0)),
    }


def test_stable_scores_are_those_of_the_convention(digits_split):
    rng = np.random.default_rng(0)
    codes = np.where(rng.random((300, 4)) < 0.5, -1, 1).astype(np.int8)
    labels = rng.integers(0, 5, 300)
    scores, _ = measure(codes[:80], labels[:80], codes[80:], labels[80:], seed=3)
    order = 80 + np.random.default_rng(3).permutation(220)
    truth = evaluate(codes[:80], labels[:80], codes[order], labels[order], convention="sdh")
    assert scores["map_stable"]["mean"] == pytest.approx(truth.map, rel=1e-4)
    assert scores["precision_at_5000"]["mean"] == pytest.approx(truth.precision_at_k[5000], rel=1e-4)


def test_a_record_of_codes_can_be_drawn_again(record, digits_split):
    made, _ = record("embedding")
    codes, classes = unpack_sample(made["sample"])
    assert codes.shape == (100, 4)
    assert sorted(classes.tolist()) == sorted(digits_split.y_query.tolist())
    assert "scores" not in made


def test_a_record_of_the_objective(record):
    made, _ = record("convergence", max_iter=4)
    assert made["curve"]["initial"] > made["curve"]["objective"][0]
    assert 1 <= len(made["curve"]["objective"]) <= 4


def test_only_rslh_has_a_curve(record):
    with pytest.raises(InvalidInput, match=r"'convergence' needs rslh\. Got nsh"):
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
    assert learner.convergence_[0].initial == pytest.approx(truth, rel=1e-9)


def test_costs(record):
    made, _ = record("cost")
    assert made["seconds"]["fit"] > 0
    assert made["added_memory_mib"] >= 0
    assert made["rows_learned"] == 300


def test_tie_orders_and_conventions(record):
    made, _ = record("conventions")
    scores = {name: value["mean"] for name, value in made["scores"].items()}
    assert scores["map_worst"] <= scores["map_shuffled_low"] <= scores["map_shuffled_high"] <= scores["map_best"]
    assert scores["map_worst"] <= scores["map_by_class"] <= scores["map_best"]
    assert {f"convention_{name}" for name in CONVENTIONS} <= set(scores)
    assert scores["convention_shorthash"] == scores["map"]


def test_reranking(record, digits_split):
    made, _ = record("reranking", "auto", n_bits=3)
    scores = {name: value["mean"] for name, value in made["scores"].items()}
    plain = record("scores", "auto", n_bits=3)[0]["scores"]["map"]["mean"]
    assert min(scores["by_posteriors"], scores["by_relevance"]) > plain
    assert set(scores) == {"by_relevance", "by_posteriors", "by_features", "posteriors_alone"}
    with pytest.raises(InvalidInput, match=r"'reranking' needs a method with posteriors, such as auto\. Got rslh"):
        record("reranking")


def test_validation_reads_training_rows_only(record, digits_split, monkeypatch):
    for name in ("X_query", "y_query", "X_database", "y_database"):
        monkeypatch.setattr(digits_split, name, None)
    made, _ = record("validation")
    assert 0.5 < made["scores"]["map"]["mean"] < 1
    assert len(made["scores"]["map"]["quantiles"]) == 5


def test_an_encoder_gives_other_codes(record):
    nearest, _ = record(encoder="nearest")
    assert nearest["spec"]["encoder"] == "nearest"
    assert nearest["scores"]["map"] != record()[0]["scores"]["map"]


def test_a_length_that_a_method_does_not_know(record):
    made, per_query = record("scores", "ccaitq", n_bits=20)
    assert per_query is None
    assert "learns at most 9 bits" in made["undefined"]
    assert "scores" not in made


def test_several_labels_and_a_method_for_one_label():
    rng = np.random.default_rng(0)
    data = Dataset(
        "toy", rng.normal(size=(60, 8)), rng.integers(0, 2, size=(60, 4)) | np.eye(4, dtype=int)[rng.integers(0, 4, 60)]
    )
    protocol = RandomQueries(n_queries=10).to_dict()
    made, _ = make_record(RunSpec.of("scores", "toy", protocol, 0, "hcsdh", 4), SharedSplit(data, protocol), data)
    assert "several labels" in made["undefined"]


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
        do_group(group, folder, None)
    return outcomes(folder)


def outcomes(folder):
    return {name: each["scores"] for name, each in read_records(folder).items()}


def test_a_campaign_that_is_killed_continues_where_it_stopped(many, tmp_path, forked_workers):
    """kill -9 in the middle: workers end; nothing is done again; the outcome is that of a campaign never stopped."""
    folder = tmp_path / "results"
    command = [sys.executable, "-m", "shorthash", "bench", "run", str(many), "--results", str(folder), "-w", "1"]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE)
    try:
        wait_for(lambda: len(read_records(folder)) >= 3 or process.poll() is not None)
        process.kill()
        process.wait()
        wait_for(lambda: not alive(process.pid), seconds=20)
    finally:
        if alive(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    before = read_records(folder)
    assert 3 <= len(before) < 28
    counts = run_experiments([read_experiment(many)], folder, workers=1)
    assert (counts.planned, counts.stored, counts.done) == (28, len(before), 28 - len(before))
    after = read_records(folder)
    assert {name: after[name] for name in before} == before
    assert outcomes(folder) == done_at_once(many, tmp_path / "other" / "results")
    assert [path.name for path in folder.iterdir()] == ["many.jsonl.gz"]


def alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_nothing_to_do(many, tmp_path):
    folder = tmp_path / "results"
    for name, spec in unique_runs([read_experiment(many)]).items():
        append_record(folder, {"schema": 1, "run": name, "spec": spec.to_dict()}, None)
    counts = run_experiments([read_experiment(many)], folder)
    assert (counts.stored, counts.done) == (28, 0)
    [status] = collect([many], folder).status()
    assert (status.part, status.n_runs, status.n_missing) == ("many", 28, 0)


def test_a_method_can_be_done_again(many, tmp_path, forked_workers):
    many.write_text(SPEC.replace("[2, 3, 4, 5, 6, 7, 8]", "[4]").replace("seeds = 2", "seeds = 1"))
    folder = tmp_path / "results"
    for name, spec in unique_runs([read_experiment(many)]).items():
        append_record(folder, {"schema": 1, "run": name, "spec": spec.to_dict()}, None)
    counts = run_experiments([read_experiment(many)], folder, workers=1, again=["pcaitq"])
    assert (counts.planned, counts.stored, counts.done) == (2, 1, 1)
    assert [r["spec"]["method"] for r in read_records(folder).values() if "scores" in r] == ["pcaitq"]
    with pytest.raises(InvalidInput, match="'again' parameter of run_experiments must be one of 'pcaitq', 'rslh'"):
        run_experiments([read_experiment(many)], folder, again=["auto"])


def test_missing_data_is_reported_before_anything_is_done(tmp_path, monkeypatch):
    monkeypatch.delenv("SHORTHASH_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "a.toml").write_text(SPEC.replace("digits", "cifar10"))
    with pytest.raises(DataFileError, match=r"'cifar10' needs cifar10_cnn256\.npz"):
        run_experiments([read_experiment(tmp_path / "a.toml")], tmp_path / "results")
    assert not read_records(tmp_path / "results")


def test_a_killed_worker_is_reported(many, tmp_path, forked_workers):
    """Whoever ends a worker, the campaign says so, and the next one continues."""
    killed = []

    def kill(*_):
        for worker in multiprocessing.active_children():
            os.kill(worker.pid, signal.SIGKILL)
            killed.append(worker.pid)

    with pytest.raises(InvalidInput, match="A worker process was killed"):
        run_experiments([read_experiment(many)], tmp_path / "results", workers=1, progress=kill)
    assert killed
    assert read_records(tmp_path / "results")


def test_costs_are_measured_in_processes_of_their_own(tmp_path, forked_workers):
    text = SPEC.replace("seeds = 2", 'seeds = 1\ntask = "cost"').replace("[2, 3, 4, 5, 6, 7, 8]", "[4]")
    text = text[: text.rindex("[[methods]]")]
    (tmp_path / "a.toml").write_text(text)
    seen = []
    counts = run_experiments(
        [read_experiment(tmp_path / "a.toml")], tmp_path / "results", progress=lambda *at: seen.append(at)
    )
    assert counts.done == 1
    assert [at[:3] for at in seen] == [("running experiments", 1, 1)]
    assert all(each["added_memory_mib"] >= 0 for each in read_records(tmp_path / "results").values())


def test_workers_must_be_counted(many, tmp_path):
    with pytest.raises(InvalidInput, match="'workers' parameter of run_experiments must be an int >= 1"):
        run_experiments([read_experiment(many)], tmp_path, workers=0)


def test_a_record_of_neighbours(record):
    scores = record("neighbours", method="auto", n_bits=4)[0]["scores"]
    itq = record("neighbours", method="pcaitq", n_bits=4)[0]["scores"]
    assert scores["neighbour_map"]["mean"] > itq["neighbour_map"]["mean"]
    assert {"class_map", "recall_0.01", "probed_0.01"} <= set(scores)
    assert "probed_0.01" not in itq


def test_records_of_few_labels_and_of_pairs(record):
    labelled = record("scores", method="auto", n_bits=4)[0]["scores"]["map"]["mean"]
    spread = record("few_labels", method="auto", n_bits=4)[0]["scores"]["map"]["mean"]
    assert spread > labelled - 0.05
    pairs = record("pairs", method="auto", n_bits=4)[0]["scores"]["map"]["mean"]
    assert pairs > record("neighbours", method="auto", n_bits=4)[0]["scores"]["class_map"]["mean"]
