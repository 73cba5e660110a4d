"""The switch, the steps, and the three displays: a bar, a line of a notebook, lines of a log."""

import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from pictures import write_folder

from shorthash import (
    BucketIndex,
    Collection,
    config_context,
    evaluate,
    fit_images,
    get_config,
    make_hasher,
    set_config,
)
from shorthash import _progress as progress
from shorthash._progress import Step, reporting
from shorthash.cli import terminal
from shorthash.data import datasets
from shorthash.errors import InvalidInput
from shorthash.images import find_duplicates


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    """No setting, and a log that is quick."""
    monkeypatch.delenv("SHORTHASH_PROGRESS", raising=False)
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.02)
    monkeypatch.setattr(progress, "REDRAW_SECONDS", 0.01)
    monkeypatch.setattr(progress, "SHOW_SECONDS", 0.0)
    with config_context():
        yield


def work(**settings):
    with reporting(**settings) as step:
        for call in (("reading", 0, 0), ("running", 1, 5, 61.4), ("running", 5, 5)):
            step(*call)
            time.sleep(0.1)


LOG = "progress: reading\nprogress: running, about 1 min 1 s left (1 of 5)\nprogress: running (5 of 5)\n"


def test_long_work_off_a_terminal_writes_a_line_per_step(capsys):
    work(default=True)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", LOG)


def test_short_work_is_silent(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SHOW_SECONDS", 3600)
    work(default=True)
    monkeypatch.setattr(progress, "LOG_SECONDS", 3600)
    work(default=True, after=0)
    assert capsys.readouterr().err == ""


def test_one_switch(capsys, monkeypatch):
    work()  # the library is silent
    set_config(progress=False)
    work(default=True)  # so is the command line
    assert capsys.readouterr().err == ""
    with config_context(progress=True):
        work()
    assert capsys.readouterr().err == LOG
    assert get_config() == {"progress": False}
    progress._config["progress"] = None
    monkeypatch.setenv("SHORTHASH_PROGRESS", "1")
    work()
    assert capsys.readouterr().err == LOG
    set_config(progress=False)  # overrides the variable
    work()
    assert capsys.readouterr().err == ""


def test_wrong_settings(monkeypatch):
    with pytest.raises(InvalidInput, match=r"must be True, False or 'lines'. Got 3 instead"):
        set_config(progress=3)
    monkeypatch.setenv("SHORTHASH_PROGRESS", "maybe")
    with pytest.raises(InvalidInput, match=r"SHORTHASH_PROGRESS must be 0, 1 or lines. Got 'maybe' instead"):
        get_config()


def test_lines_have_the_time_so_far(capsys):
    with config_context(progress="lines"):
        work()
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("] ")[2] for line in lines] == ["reading", "running, about 1 min 1 s left (1 of 5)", "end"]
    assert [float(line[1:].split()[0]) for line in lines] == pytest.approx([0, 0.1, 0.3], abs=0.09)


def test_a_function_of_the_caller_is_called_instead(capsys):
    calls = []
    with config_context(progress=True), reporting(lambda *call: calls.append(call)) as step:
        step("outer", 1, 2)
        with reporting() as inner:
            inner("hidden", 1, 2)
            time.sleep(0.05)
    assert calls == [("outer", 1, 2)]
    assert capsys.readouterr().err == ""


def test_inner_work_is_shown_while_the_outer_cannot_count():
    with config_context(progress=True), reporting() as outer:
        outer("learning", 0, 0)
        with reporting() as inner:
            inner("adding up", 1, 4)
            assert (outer.what, outer.done) == ("adding up", 1)
            outer("method", 2, 9)
            inner("adding up", 2, 4)
            assert (outer.what, outer.done) == ("method", 2)


def test_time_left_counts_down_and_is_never_the_time_so_far(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr("time.monotonic", lambda: now.seconds)
    step = Step()
    step("encoding", 0, 4)
    assert step.left() == ""
    now.seconds = 10
    step("encoding", 1, 4)
    assert step.left() == "about 30 s left"
    now.seconds = 25
    assert step.left() == "about 15 s left"
    now.seconds = 41
    assert step.left() == "", "an estimate that was too low is not shown"
    step("searching", 0, 0)
    assert step.text() == "searching"


def test_a_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with terminal.progress() as step:
        step("working", 1, 2, 90)
        time.sleep(0.05)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "working" in captured.err
    assert "about 1 min 30 s left" in captured.err
    assert "0:00" not in captured.err


def test_one_line_in_a_notebook(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_in_notebook", lambda: True)
    with config_context(progress=True), reporting() as step:
        step("working", 1, 2, 90)
        time.sleep(0.05)
    text = capsys.readouterr().err
    assert "\rworking, about 1 min 30 s left (1 of 2)" in text
    assert text.endswith(" \r")
    assert "\n" not in text


def test_the_library_reports_what_it_does(capsys, monkeypatch):
    monkeypatch.setattr("shorthash.index.base.REPORTED_QUERIES", 10)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), np.arange(60) % 3
    with config_context(progress="lines"):
        codes = make_hasher("sdh", 4, random_state=0, kernel__n_anchors=9).fit(X, y).transform(X)
        BucketIndex(4).add(codes).search(codes, 3)
        evaluate(codes, y)
        make_hasher("auto", 4, random_state=0).fit(X, y)
    shown = capsys.readouterr().err
    for step in (
        "SDH: iteration",
        "encoding",
        "searching 60 codes with 60 queries",
        "scoring",
        "learning posteriors",
        "designing codes",
    ):
        assert f"] {step}" in shown


def test_work_on_images_is_reported(capsys, tmp_path):
    photos = write_folder(tmp_path / "photos", per_class=2)
    gist = {"kind": "gist", "size": 16}

    def work(name, **own):
        fit_images(photos, tmp_path / name, n_bits=2, features=gist, method="lsh", hold_out=0, **own)
        with Collection(tmp_path / name) as collection:
            collection.remove(collection.ids[:3])
            collection.add_images(sorted(photos.rglob("*.png")), **own)
            collection.add_codes([1, 2])
            find_duplicates(collection, **own)

    work("silent")
    assert capsys.readouterr().err == ""
    with config_context(progress="lines"):
        work("shown")
    shown = capsys.readouterr().err
    steps = ["reading images", "learning codes of 6 images", "adding (", "adding items", "reading vectors", "comparing"]
    assert [step for step in steps if f"] {step}" not in shown] == []
    seen = []
    work("own", progress=lambda what, _done, _total: seen.append(what))
    assert {"reading images", "learning codes of 6 images", "adding", "reading vectors"} <= set(seen)


def test_a_download_is_reported(capsys, tmp_path, monkeypatch):
    source = tmp_path / "numbers.gz"
    source.write_bytes(b"12345")
    original = datasets.Original(source.as_uri())
    monkeypatch.setitem(datasets.CATALOGUE, "mnist", replace(datasets.CATALOGUE["mnist"], originals=(original,)))
    with config_context(progress="lines"):
        (file,) = datasets.fetch("mnist", tmp_path / "data")
    assert file.read_bytes() == b"12345"
    assert "] numbers.gz (5 of 5)" in capsys.readouterr().err
