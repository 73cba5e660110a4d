"""The benchmark in small: every part gives its figures, and the pages can be made of them."""

import argparse
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from shorthash.learners.eaph import estimator
from shorthash.learners.posteriors import sampling

pytest.importorskip("pyarrow", reason="the benchmark writes Parquet")
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SMALL = {
    "rows": 3000,
    "anchors": 20,
    "bits": 5,
    "bare_rows": 100,
    "eaph_rows": 500,
    "eaph_classes": 4,
    "dask_rows": 1,
    "encode_rows": 100,
    "items": 5000,
    "queries": 50,
    "curve_rows": 2000,
}


def script(name):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.filterwarnings("ignore::shorthash.errors.CollisionWarning")
def test_parts(tmp_path, monkeypatch):
    scale, tables = script("scale"), script("scale_tables")
    options = argparse.Namespace(**SMALL)
    fit = scale.stream(options)
    assert fit["rows_per_second"] > 0
    assert fit["peak_gib"] < 1.5
    codes, scores = scale.encode(options), scale.evaluation(options)
    assert codes["rows"] == scale.MADE
    assert 0 < scores["map"] < 1
    point, eaph = scale.point(options), scale.eaph(options)
    assert eaph["map_of_5_000_other_rows"] > 0.9
    workers = {"rows": 1, "anchors": 20, "ratio": 1.9, "goal": 1.7}
    workers |= {"seconds": {"1": 2.0, "2": 1.0}, "rows_per_second": {"1": 1000, "2": 1900}}
    curves = {"rows": {"2000": point}, "anchors": {"20": point}, "bits": {"5": point}}
    record = {"stream": fit, "dask": workers, "encode": codes, "evaluate": scores, "curves": curves, "cores": 2}
    record["eaph"] = eaph
    monkeypatch.setattr(tables, "RECORD", tmp_path / "scale.json")
    monkeypatch.setattr(tables, "GPU_RECORD", tmp_path / "gpu.json")
    (tmp_path / "scale.json").write_text(json.dumps(record))
    assert "| fit, rows/s |" in tables.render()
    assert "fit of EAPH: 500 x 256 from Parquet, 4 classes, 5 bits" in tables.render()
    assert "| 16 such workers, each at 95% of one alone | 15,200 |" in tables.render_arithmetic()


@pytest.mark.filterwarnings("ignore::shorthash.errors.CollisionWarning")
def test_the_gpu_script_on_the_cpu(tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="torch is not installed")
    gpu, tables = script("gpu"), script("scale_tables")
    place = tmp_path / "gpu.json"
    sizes = ["--rows", "4000", "--block", "1500", "--columns", "8", "--anchors", "20", "--classes", "5", "--bits", "4"]
    sizes += ["--eaph-rows", "2500", "--eaph-classes", "6"]
    monkeypatch.setattr(estimator, "FOLDED_ROWS", 1000)  # so that more rows are learned from as a stream
    monkeypatch.setattr(sampling, "HELD_OUT", 400)
    monkeypatch.setattr(sampling, "PATH_ROWS", 600)
    monkeypatch.setattr(
        sys, "argv", ["gpu.py", "--device", "cpu", *sizes, "--check-rows", "900", "--output", str(place)]
    )
    gpu.main()
    report = json.loads(place.read_text())
    assert report["exactness"]["projection_relative"] < 1e-5
    assert report["eaph"]["rows_that_differ_when_encoded_on_the_cpu"] == 0
    assert report["exactness"]["bits_that_differ"] == report["exactness"]["of_them_nearly_zero"]
    monkeypatch.setattr(tables, "GPU_RECORD", place)
    assert "million rows/s" in tables.render_gpu()


def test_quantisers_give_every_row_the_code_of_a_near_centre():
    pytest.importorskip("faiss", reason="faiss is not installed")
    X = np.random.default_rng(0).normal(size=(600, 8)).astype(np.float32)
    for name, centres, cells in script("quantisers").quantisers(X, 6):
        distances = ((X[:, None] - centres) ** 2).sum(axis=2)
        own = distances[np.arange(len(X)), cells]
        assert centres.shape == (64, 8)
        assert np.allclose(own, distances.min(axis=1), atol=1e-4) or name == "RQ"  # a beam may miss the nearest
        assert own.mean() < 0.8 * distances.mean()
