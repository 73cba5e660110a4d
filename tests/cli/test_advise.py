"""shorthash advise, by its whole output."""

import json

from cli.conftest import squeezed

OUTPUT = """\
                                  precision   ball   read                        index
method      bits     mAP     std      @H<=2      %      %  buckets  rows/bucket     MB
──────────────────────────────────────────────────────────────────────────────────────
classifier     2  1.0000  0.0000     0.3000  100.0  100.0        3           20   0.00
classifier     4  1.0000  0.0000     0.6410   68.8   55.6        3           20   0.00

Take 2 bits with classifier: expected mAP 1.000, the best of all; a lookup reads 100.0 % of 60 rows in 4 buckets.
"""


def test_whole_output(run):
    done = run("advise", "X.npy", "names.npy", "--bits", "2,4", "--methods", "classifier")
    assert (done.status, squeezed(done.out), done.err) == (0, squeezed(OUTPUT), "")


def test_json_and_figure(run, tmp_path):
    path = tmp_path / "advice.svg"
    done = run("advise", "X.npy", "names.npy", "--bits", "2", "--methods", "classifier", "--figure", path, "--json")
    assert json.loads(done.out)["recommended"]["n_bits"] == 2
    assert path.read_text().startswith("<?xml")


def test_unknown_method(run):
    done = run("advise", "X.npy", "names.npy", "--methods", "nonsense")
    assert done.status == 2
    assert "error: --methods must be one of 'auto'" in done.err


def test_without_labels(run):
    done = run("advise", "X.npy", "--bits", "2", "--methods", "pcaitq", "--json")
    assert (done.status, json.loads(done.out)["n_classes"]) == (0, 0)
