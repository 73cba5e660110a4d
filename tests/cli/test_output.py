"""The renderer: nothing is cut off, JSON is JSON, warnings are lines."""

import json
import time
import warnings

import numpy as np
import pytest

from shorthash.cli import output
from shorthash.cli.output import complain, progress, show, warnings_as_lines
from shorthash.errors import CollisionWarning
from shorthash.lab.tables import Column, Table

WIDE = Table(
    (
        Column("bits"),
        Column("precision@H<=2", 4),
        Column("search µs/query", 2),
        *(Column(f"score {i}", 4) for i in range(6)),
    ),
    ((4, 0.12345, 17.4, *[0.5] * 6),),
)


@pytest.mark.parametrize("width", [20, 60, 100, 200])
def test_numbers_survive_every_terminal(capsys, monkeypatch, width):
    monkeypatch.setattr("shorthash.cli.output.PIPE_WIDTH", width)
    show({}, {}, [WIDE], as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].split() == ["4", "0.1235", "17.40", *["0.5000"] * 6]
    words = "".join(lines[:-2]).replace(" ", "")
    assert all(word in words for word in ("bits", "precision", "@H<=2", "µs/query", "score"))
    assert len({len(line) for line in lines[-2:]}) == 1


def test_long_words_fold(capsys):
    show({}, {"name": "word " * 40}, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert " ".join(lines).split() == ["name"] + ["word"] * 40


def test_json_has_no_nan_and_no_numpy(capsys):
    data = {"a": float("nan"), "b": np.float32(0.5), "c": np.arange(3), 4: (np.int64(1), None, "µ"), "d": float("inf")}
    show(data, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": 0.5, "c": [0, 1, 2], "4": [1, None, "µ"], "d": None}


def test_messages_are_one_line(capsys):
    complain("error", "first\n  second")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "error: first second\n")


def test_only_warnings_for_users_become_lines(capsys):
    def warn():
        with warnings_as_lines():
            for _ in range(3):
                warnings.warn("codes\ncollide", CollisionWarning, stacklevel=1)
            warnings.warn("for programmers", RuntimeWarning, stacklevel=1)

    with pytest.warns(RuntimeWarning, match="for programmers"):
        warn()
    assert capsys.readouterr().err == "warning: codes collide\n"


def test_short_work_off_a_terminal_is_silent(capsys):
    with progress() as step:
        step("working", 1, 2)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_long_work_off_a_terminal_writes_a_line_per_step(capsys, monkeypatch):
    monkeypatch.setattr(output, "LOG_SECONDS", 0.02)
    with progress() as step:
        for call in (("reading", 0, 0), ("running", 1, 5, 61.0), ("running", 5, 5)):
            step(*call)
            time.sleep(0.1)
    assert capsys.readouterr().err == (
        "progress: reading\nprogress: running, about 1 min 1 s left (1 of 5)\nprogress: running (5 of 5)\n"
    )


def test_time_left_is_estimated_from_the_units_done(monkeypatch):
    clock = iter([0, 0, 10, 12, 20])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    step = output._Step()
    step("encoding", 0, 4)
    assert step.text() == "encoding"
    step("encoding", 1, 4)
    assert step.text() == "encoding, about 30 s left"
    step("searching", 0, 0)
    assert step.text() == "searching"


def test_a_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress() as step:
        step("working", 1, 2)
        step("nearly done", 0, 0)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "working" in captured.err or "nearly done" in captured.err
