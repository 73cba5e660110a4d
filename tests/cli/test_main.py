"""The group: help, version, and how every kind of bad input ends in one line."""

import ast
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import Popen

import shorthash.__main__
from shorthash.cli.main import WORDS, _verbosity_first, app, main
from shorthash.errors import named, setting, worded
from shorthash.methods import RECIPES

COMMANDS = [
    "demo",
    "fit",
    "align",
    "encode",
    "search",
    "evaluate",
    "info",
    "methods",
    "advise",
    "compare",
    "index",
    "sql",
]
COMMANDS += ["images", "serve", "fsck", "backup", "restore", "sums", "datasets", "bench", "report"]
GROUPS = {
    "index": ["build", "add", "upsert", "remove", "search", "migrate", "stats", "export"],
    "sums": ["collect", "merge", "subtract", "show", "fit"],
    "images": ["fit", "search", "add", "remove", "info", "duplicates", "export"],
    "bench": ["run", "list", "status"],
    "datasets": ["list", "fetch"],
}
SUBCOMMANDS = [f"{group} {verb}" for group, verbs in GROUPS.items() for verb in verbs]
HEAVY = [
    "numpy",
    "scipy",
    "sklearn",
    "numba",
    "matplotlib",
    "pandas",
    "pyarrow",
    "shorthash.learners",
    "shorthash.codes",
]


@pytest.mark.parametrize("group", GROUPS)
def test_groups_list_their_commands(run, group):
    outcome = run(group, "--help")
    listed = [line.split()[0] for line in outcome.out.partition("Commands:\n")[2].splitlines()]
    assert listed == GROUPS[group]


def test_version(run):
    outcome = run("--version")
    assert (outcome.status, outcome.out, outcome.err) == (0, f"shorthash {shorthash.__version__}\n", "")


def test_no_arguments_show_help(run):
    outcome = run()
    assert outcome.status == 0
    assert outcome.out == run("--help").out == run("-h").out
    listed = [line.split()[0] for line in outcome.out.partition("Commands:\n")[2].splitlines()]
    assert listed == COMMANDS


@pytest.mark.parametrize("command", [*COMMANDS, *SUBCOMMANDS])
def test_every_command_explains_itself_with_an_example(run, command):
    outcome = run(*command.split(), "--help")
    assert outcome.status == 0
    about = outcome.out.partition("\nOptions:")[0].partition("\nArguments:")[0].rstrip().splitlines()
    examples = [line for line in about if line.startswith(f"    shorthash {command}")]
    assert examples
    assert about[about.index(examples[0]) - 1] in ("  Example:", "  Examples:")
    assert about[-1].startswith("    "), "the description ends in its examples"


@pytest.mark.parametrize(("arguments", "allowed"), [(["--help"], []), (["sql", "--bits", "8"], ["numpy"])])
def test_loads_nothing_heavy(arguments, allowed):
    """How quick it is stands in benchmarks/startup.py."""
    script = f"""
import sys
from shorthash.cli.main import main
try:
    main({arguments})
finally:
    print([name for name in {HEAVY} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith(f"\n{allowed}\n")


def test_a_command_is_imported_when_it_is_called():
    script = """
import sys
from shorthash.cli.main import COMMANDS, main
try:
    main(["sql", "--help"])
finally:
    print(sorted(file for file in set(COMMANDS.values()) if f"shorthash.cli.{file}" in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("['search']\n")


BAD = {
    "unknown command": (["fitt"], "No such command 'fitt'. Did you mean 'fit'? (see shorthash --help)"),
    "unknown option": (
        ["sums", "show", "--xyz"],
        "No such option: --xyz; the options are --json, --help (see shorthash sums show --help)",
    ),
    "misspelt option": (["fit", "--labl"], "No such option: --labl; did you mean --label? (see shorthash fit --help)"),
    "option of another command": (
        ["index", "search", "X.npy", "--label", "x"],
        (
            "No such option: --label; the options are --index, --collection, --model, -k, --radius, --probes, "
            "--rerank, --vectors, --id, --features, --output, --show, --json, --help "
            "(see shorthash index search --help)"
        ),
    ),
    "option before its command": (
        ["sums", "--json"],
        (
            "No such option: --json; options follow the command, one of collect, merge, subtract, show, fit "
            "(see shorthash sums --help)"
        ),
    ),
    "missing argument": (["encode", "model"], "Missing argument 'FEATURES' (see shorthash encode --help)"),
    "missing output": (["fit", "X.npy", "y.npy"], "Missing option '--output' / '-o' (see shorthash fit --help)"),
    "setting without value": (
        ["fit", "X.npy", "names.npy", "-o", "m", "--set", "alpha"],
        "Invalid value for --set: 'alpha' is not of the form NAME=VALUE (see shorthash fit --help)",
    ),
    "unknown value of a setting": (
        ["fit", "X.npy", "-o", "m", "--set", "search=graph"],
        "--set search must be one of 'rings', 'probes'. Got 'graph' instead.",
    ),
    "unknown setting": (
        ["fit", "X.npy", "names.npy", "-o", "m", "--method", "rslh", "--set", "kernel.alpha=3"],
        (
            "the kernel of rslh has no parameter 'alpha' to set here. It has: n_anchors, bandwidth, center, "
            "random_state."
        ),
    ),
    "unknown preset": (
        ["fit", "X.npy", "names.npy", "-o", "m", "--method", "rslh", "--preset", "none"],
        "--preset must be one of 'paper', 'authors-code'. Got 'none' instead.",
    ),
    "too many bits": (
        ["fit", "X.npy", "names.npy", "-o", "m", "--bits", "65", "--method", "rslh", "--anchors", "9"],
        "--bits must be an int in the range [1, 64]. Got 65 instead.",
    ),
    "no labels": (
        ["fit", "X.npy", "-o", "m", "--method", "rslh"],
        (
            "The method rslh needs labels; give a file of them as LABELS, or a column of the table with --label, or "
            "use --method auto, which also learns without labels."
        ),
    ),
    "unknown method": (
        ["methods", "rlsh"],
        f"METHOD must be one of {', '.join(map(repr, RECIPES))}. Got 'rlsh' instead.",
    ),
    "anchors without a kernel": (
        ["fit", "X.npy", "names.npy", "-o", "m", "--anchors", "9"],
        (
            "The method auto has no kernel, so --anchors and --set kernel.NAME=VALUE have no effect; leave them out, "
            "or use a method with a kernel, such as --method rslh."
        ),
    ),
    "figure of an unknown kind": (
        ["advise", "X.npy", "names.npy", "--figure", "a.xyz"],
        "Invalid value for --figure: a.xyz does not end in .png or .svg (see shorthash advise --help)",
    ),
    "page in a file": (
        ["compare", "X.npy", "names.npy", "-o", "X.npy"],
        "Invalid value for --out: X.npy is a file; give a folder (see shorthash compare --help)",
    ),
    "missing file": (["fit", "no.npy", "names.npy", "-o", "m"], "There is no file no.npy; check the path."),
    "empty file": (["fit", "empty.csv", "names.npy", "-o", "m"], "empty.csv is empty; write at least one row to it."),
    "text in a CSV": (
        ["fit", "text.csv", "names.npy", "-o", "m"],
        (
            "text.csv, line 3, column 2 holds the text 'cat', but every cell must be a number; name the columns "
            "with --id, --label, --features."
        ),
    ),
    "NaN": (
        ["fit", "nan.npy", "names.npy", "-o", "m", "--method", "rslh", "--anchors", "9"],
        (
            "Input X of AnchorRBF contains NaN (first at row 3, column 1); features must be finite, so drop or "
            "impute such rows first (for instance with sklearn.impute.SimpleImputer)."
        ),
    ),
    "one class": (
        ["fit", "X.npy", "same.npy", "-o", "m", "--method", "rslh", "--anchors", "9"],
        (
            "y of RSLH has one class only (0), but 2 or more are needed; add rows of another class, or use an "
            "unsupervised method."
        ),
    ),
    "constant features": (
        ["fit", "constant.npy", "names.npy", "-o", "m", "--method", "rslh"],
        (
            "All 60 rows of X of AnchorRBF are equal (constant features), so there is nothing to learn; check how "
            "the features were made."
        ),
    ),
    "labels of another length": (
        ["fit", "X.npy", "queries.npz", "-o", "m", "--method", "rslh", "--anchors", "9"],
        (
            "Found input variables with inconsistent numbers of samples: X of RSLH has 60 rows and y has 9; give one "
            "label (or one indicator row) per feature row."
        ),
    ),
    "unlabelled row": (
        ["fit", "X.npy", "unlabelled.npy", "-o", "m", "--method", "rslh", "--anchors", "9"],
        (
            "1 of 60 samples of RSLH have no label (first: 7; all-zero rows of the label matrix), but every sample "
            "needs one; fit drops them with --set drop_unlabelled=true."
        ),
    ),
    "refused by scikit-learn": (
        ["fit", "single.csv", "one.csv", "-o", "m", "--method", "rslh"],
        "Found array with 1 sample(s) (shape=(1, 4)) while a minimum of 2 is required by AnchorRBF.",
    ),
    "other features": (
        ["encode", "model", "constant.npy", "-o", "c.npy"],
        "constant.npy has 2 features per row, but the model was fitted on 4; give features made in the same way.",
    ),
    "index for a model": (
        ["encode", "index", "X.npy", "-o", "c.npy"],
        "index holds BucketIndex, but a model is needed; make one with shorthash fit.",
    ),
    "no model": (["info", "nothing"], "There is nothing at nothing; check the path."),
    "foreign folder": (
        ["info", "folder"],
        "folder was not saved by shorthash: it holds no meta.json; give the folder that shorthash wrote.",
    ),
    "k and radius": (
        ["search", "model", "X.npy", "X.npy", "-k", "3", "--radius", "1"],
        "Invalid value for --radius: give -k or --radius, not both (see shorthash search --help)",
    ),
    "labels for other rows": (
        ["search", "model", "X.npy", "X.npy", "--labels", "queries.npz"],
        "There are 9 labels for 60 rows of the database; give one per row.",
    ),
    "features for codes": (
        ["search", "model", "X.npy", "X.npy", "--codes"],
        "X.npy does not hold valid codes: Codes must have 2 bits here. Got 4 instead.",
    ),
    "codes of unknown length": (
        ["evaluate", "--codes", "--query", "codes.npy", "--query-labels", "names.npy"],
        "Codes in codes.npy are packed integers, which do not show their length; give it by --bits.",
    ),
    "neither model nor codes": (
        ["evaluate", "--query", "X.npy", "--query-labels", "names.npy"],
        "Invalid value for --model: give --model for features, or --codes for codes (see shorthash evaluate --help)",
    ),
    "length of the codes of a model": (
        ["evaluate", "--model", "model", "--bits", "4", "--query", "X.npy", "--query-labels", "names.npy"],
        (
            "Invalid value for --bits: a model sets the length of its codes; leave out --bits (see shorthash evaluate "
            "--help)"
        ),
    ),
    "database without labels": (
        ["evaluate", "--codes", "--query", "X.npy", "--query-labels", "names.npy", "--database", "X.npy"],
        "Invalid value for --database: give --database and --database-labels together (see shorthash evaluate --help)",
    ),
    "words for numbers": (
        ["evaluate", "--model", "model", "--query", "X.npy", "--query-labels", "names.npy", "--k", "few"],
        (
            "Invalid value for '--k' / '-k': 'few' is not a list of whole numbers like 1,10,100 "
            "(see shorthash evaluate --help)"
        ),
    ),
}


@pytest.fixture(scope="module")
def bad_files(files):
    X = np.load(files / "X.npy")
    X[3, 1] = np.nan
    np.save(files / "nan.npy", X)
    np.save(files / "same.npy", np.zeros(60, dtype=int))
    np.save(files / "constant.npy", np.ones((60, 2)))
    indicator = np.eye(3, dtype=int)[np.tile([0, 1, 2], 20)]
    indicator[7] = 0
    np.save(files / "unlabelled.npy", indicator)
    (files / "empty.csv").touch()
    (files / "text.csv").write_text("a,b\n1,2\n3,cat\n")
    (files / "single.csv").write_text("1,2,3,4\n")
    (files / "one.csv").write_text("ant\n")
    (files / "folder").mkdir(exist_ok=True)
    (files / "folder" / "note.txt").touch()


@pytest.mark.usefixtures("bad_files")
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_status_2(run, case):
    args, message = BAD[case]
    outcome = run(*args)
    assert (outcome.status, outcome.out, outcome.err) == (2, "", f"error: {message}\n")


def test_a_negative_seed_is_one_line(run):
    outcome = run("fit", "X.npy", "names.npy", "-o", "m", "--seed", "-1")
    assert (outcome.status, outcome.out) == (2, "")  # the words between are typer's
    assert re.fullmatch(r"error: Invalid value for '--seed': .* \(see shorthash fit --help\)\n", outcome.err)


def test_files_that_may_not_be_read_are_one_line(run, monkeypatch):
    def denied(*_):
        raise PermissionError(13, "Permission denied", "X.npy")

    monkeypatch.setattr("shorthash.data.files.read_labels", denied)
    outcome = run("fit", "X.npy", "names.npy", "-o", "m")
    assert (outcome.status, outcome.err) == (2, "error: Permission denied: X.npy\n")


@pytest.mark.parametrize("error", [RuntimeError("a bug"), ValueError("a bug"), KeyError("a bug")])
def test_bugs_keep_their_traceback(files, monkeypatch, error):
    def broken(*_):
        raise error

    monkeypatch.setattr("shorthash.data.files.read_labels", broken)
    with pytest.raises(type(error), match="a bug"):
        main(["fit", f"{files}/X.npy", f"{files}/names.npy", "-o", f"{files}/m"])


def test_the_app_has_its_name():
    assert app.info.name == "shorthash"


def test_quiet_shows_results_and_errors_only(run, files, monkeypatch):
    monkeypatch.setattr("shorthash._progress.LOG_SECONDS", 0.0)
    loud = run("fit", "database.npz", "database.npz", "-o", "m", "--bits", "1")
    assert "progress: " in loud.err
    assert "warning: " in loud.err, "three classes in two codes"
    for where in (0, 3):
        words = ["fit", "database.npz", "database.npz", "-o", "m", "--bits", "1"]
        quiet = run(*words[:where], "-q", *words[where:])
        assert (quiet.status, quiet.err) == (0, "")
        assert len(quiet.out.splitlines()) == len(loud.out.splitlines())
    assert run("fit", "no.npy", "--quiet", "-o", "m").err == "error: There is no file no.npy; check the path.\n"


def test_verbose_shows_steps_with_times(run):
    outcome = run("-v", "encode", "model", "X.npy", "-o", "v.npy")
    assert outcome.status == 0
    assert re.search(r"^\[ +[\d.]+ s\] encoding", outcome.err, flags=re.M)
    assert "v.npy" in outcome.out


def test_quiet_and_verbose_contradict(run):
    outcome = run("methods", "-q", "-v")
    assert (outcome.status, outcome.out) == (2, "")
    assert "give --quiet or --verbose, not both" in outcome.err


def test_words_after_a_double_dash_are_not_options():
    assert _verbosity_first(["index", "-v", "add", "--", "-q"]) == ["-v", "index", "add", "--", "-q"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(run, monkeypatch, shell):
    monkeypatch.setenv("_SHORTHASH_COMPLETE", f"source_{shell}")
    script = run().out
    assert "_SHORTHASH_COMPLETE=complete_" + shell in script
    monkeypatch.setenv("_SHORTHASH_COMPLETE", f"complete_{shell}")
    for name, value in {
        "COMP_WORDS": "shorthash com",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "shorthash com",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }.items():
        monkeypatch.setenv(name, value)
    assert "compare" in run().out


def test_help_names_completion(run):
    assert "--install-completion" in run("--help").out


def interrupted(script, folder):
    """Run a Python script that prints "ready" when it may be interrupted; interrupt it."""
    process = Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


STOPPED = "interrupted: stopped by Ctrl-C; files are unchanged or complete\n"


def test_ctrl_c_during_compare_is_one_line(files, tmp_path):
    script = f"""
from shorthash.cli.main import main
from shorthash.lab.sharing import SharedSplit
run = SharedSplit.run
def announced(self, spec):
    run(self, spec)
    print("ready", flush=True)
    while True:
        run(self, spec)
SharedSplit.run = announced
main(["compare", {str(files / "database.npz")!r}, {str(files / "database.npz")!r}, "--bits", "2", "--methods",
      "rslh", "-o", "page"])
"""
    assert interrupted(script, tmp_path) == (130, "", STOPPED)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_in_a_finalizer_is_not_lost(tmp_path):
    script = """
import time
from shorthash.cli import main as module
class Slow:
    def __del__(self):
        print("ready", flush=True)
        time.sleep(30)
def work(*args, **settings):
    thing = Slow()
    del thing
    time.sleep(30)
module.app = work
module.main(["demo"])
"""
    assert interrupted(script, tmp_path) == (130, "", STOPPED)


def test_an_interrupt_of_imports_ends_the_process_without_a_traceback(monkeypatch):
    seen = []
    monkeypatch.setattr("shorthash.cli.main.main", lambda: seen.append(signal.getsignal(signal.SIGINT)))
    before = signal.getsignal(signal.SIGINT)
    try:
        for handler in (signal.default_int_handler, signal.SIG_IGN):
            signal.signal(signal.SIGINT, handler)
            shorthash.__main__.main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIG_DFL, signal.SIG_IGN]


def test_every_phrase_of_the_library_has_words_here():
    """A phrase that is reworded in the library only would be shown to users of the command line as it is."""
    said = set()
    for file in Path(shorthash.__main__.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "phrase":
                said |= {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
    phrases = {text for text in said if text not in ("'", "' rows")} | {
        f"'{n}' rows" for n in ("query", "train", "database")
    }
    assert len(phrases) > 15
    assert phrases <= WORDS.keys()
    assert {word.split(" of ")[0] for word in WORDS.keys() - phrases} == {
        word.split(" of ")[0] for word in WORDS if re.fullmatch(r"(?!RelevantPairs)\w+( of EAPH)?", word)
    }


def test_words_end_with_the_block():
    with worded({"k": "-k"}):
        with worded({}):
            assert named("k", "search") == "The 'k' parameter of search"
        assert (named("k", "search"), setting("k", 3)) == ("-k", "-k 3")
    assert setting("metric", "dot", "ScanIndex") == "metric='dot' of ScanIndex"
