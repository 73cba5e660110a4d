"""The renderer: nothing is cut off, JSON is JSON, warnings are lines."""

import json
import warnings

import numpy as np
import pytest

from shorthash.cli.terminal import Result, complain, warnings_as_lines
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
    monkeypatch.setattr("shorthash.cli.terminal.PIPE_WIDTH", width)
    Result({}, {}, [WIDE]).show(as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].split() == ["4", "0.1235", "17.40", *["0.5000"] * 6]
    words = "".join(lines[:-2]).replace(" ", "")
    assert all(word in words for word in ("bits", "precision", "@H<=2", "µs/query", "score"))
    assert len({len(line) for line in lines[-2:]}) == 1


def test_long_words_fold(capsys):
    Result({}, {"name": "word " * 40}).show(as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert " ".join(lines).split() == ["name"] + ["word"] * 40


def test_json_has_no_nan_and_no_numpy(capsys):
    data = {"a": float("nan"), "b": np.float32(0.5), "c": np.arange(3), 4: (np.int64(1), None, "µ"), "d": float("inf")}
    Result(data).show(as_json=True)
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
