"""Renew the generated parts of the documentation, or check that they are up to date.

``python docs/generate.py`` rewrites what stands between ``<!-- begin: NAME -->`` and ``<!-- end: NAME -->``;
``--check`` only compares, and fails if a page is stale. Every block comes from code or from a stored record, never from
a keyboard.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]


def rendered(script: str, function: str = "render") -> Callable[[], str]:
    """What a function of a script in this repository returns."""
    return lambda: str(getattr(loaded(script), function)())


@functools.cache
def loaded(script: str) -> ModuleType:
    """A script as a module; several blocks may come from one."""
    path = ROOT / script
    sys.path.insert(0, str(path.parent))  # its neighbours, as if it were run
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(script: str) -> Callable[[], str]:
    """What a script prints."""

    def call() -> str:
        done = subprocess.run([sys.executable, ROOT / script], check=True, capture_output=True, text=True)
        return f"```\n{done.stdout.rstrip()}\n```"

    return call


def results(function: str) -> Callable[[], str]:
    """A table drawn from the records of experiments/."""
    return rendered("docs/results_page.py", function)


def quoted(path: str, language: str = "") -> Callable[[], str]:
    """A file of this repository, as a code block."""
    return lambda: f"```{language}\n{(ROOT / path).read_text().rstrip()}\n```"


def first_part(path: str) -> Callable[[], str]:
    """The first part of an example of the gallery, without its title, and what it prints."""

    def call() -> str:
        code = (ROOT / path).read_text().split('"""\n', 2)[2].split("# %%")[0].strip()
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        return f"```python\n{code}\n```\n\n```\n{done.stdout.rstrip()}\n```"

    return call


# page, block, and what fills it
BLOCKS: list[tuple[str, str, Callable[[], str]]] = [
    ("README.md", "quick_start", first_part("examples/quick_start.py")),
    ("docs/start.md", "demo", quoted("docs/data/demo.txt")),
    ("docs/paper/rslh.md", "rslh_facts", printed("examples/rslh_facts.py")),
    ("docs/paper/rslh.md", "cifar10", results("boosting")),
    ("docs/guide/fit.md", "fit", rendered("benchmarks/fit.py")),
    ("docs/guide/scale.md", "scale", rendered("benchmarks/scale_tables.py")),
    ("docs/guide/scale.md", "growth", rendered("benchmarks/scale_tables.py", "render_growth")),
    ("docs/guide/scale.md", "gpu", rendered("benchmarks/scale_tables.py", "render_gpu")),
    ("docs/guide/scale.md", "arithmetic", rendered("benchmarks/scale_tables.py", "render_arithmetic")),
    ("docs/guide/methods.md", "methods", rendered("docs/methods_reference.py")),
    ("docs/guide/methods.md", "own_method", quoted("examples/own_method.py", "python")),
    ("docs/guide/methods-results.md", "methods_results", results("methods")),
    ("docs/guide/auto-results.md", "auto_results", results("auto")),
    ("docs/guide/eaph.md", "semantic_key", quoted("examples/semantic_key.py", "python")),
    ("docs/guide/eaph.md", "frontier", rendered("benchmarks/frontier.py")),
    ("docs/guide/methods-results.md", "classifier_penalty", results("penalty")),
    ("docs/paper/eaph.md", "ablation", results("steps")),
    ("docs/paper/eaph.md", "beyond", results("eaph")),
    ("docs/paper/eaph.md", "choices", rendered("experiments/constants.py")),
    ("docs/paper/eaph.md", "choices_few", rendered("experiments/constants.py", "render_few")),
    ("docs/paper/eaph.md", "choices_unlabelled", rendered("experiments/constants.py", "render_unlabelled")),
    ("docs/paper/eaph.md", "cost", rendered("benchmarks/eaph.py")),
    ("docs/guide/no-labels.md", "neighbours", results("neighbours")),
    ("docs/guide/no-labels.md", "quantisers", rendered("benchmarks/quantisers.py")),
    ("docs/guide/no-labels.md", "few_labels", results("few_labels")),
    ("docs/guide/no-labels.md", "pairs", results("pairs")),
    ("docs/guide/no-labels.md", "crossmodal", rendered("experiments/crossmodal.py")),
    ("docs/guide/images.md", "images", rendered("benchmarks/images.py")),
    ("docs/guide/images.md", "duplicates", rendered("benchmarks/duplicates.py")),
    ("docs/guide/serve.md", "serve", rendered("benchmarks/serve.py")),
    ("docs/guide/store.md", "store", rendered("benchmarks/store.py")),
    ("docs/guide/evaluation.md", "which_map", results("ties")),
    ("docs/guide/evaluation.md", "evaluate", rendered("benchmarks/evaluate.py")),
    ("docs/guide/search.md", "search", rendered("benchmarks/search.py")),
    ("docs/guide/semantic-search.md", "semantic", rendered("benchmarks/semantic.py")),
    ("docs/guide/semantic-search.md", "posterior_sizes", rendered("benchmarks/semantic.py", "render_sizes")),
    ("docs/guide/semantic-search.md", "semantic_stores", rendered("benchmarks/semantic.py", "render_stores")),
    ("docs/guide/datasets.md", "datasets", rendered("docs/datasets_reference.py")),
    ("docs/cli.md", "cli", rendered("docs/cli_reference.py")),
    *(
        ("docs/reproduction.md", f"reproduction_{part}", rendered("experiments/paper/report.py", part))
        for part in ("state", "order", "ties", "tables", "sentences", "errata")
    ),
]


def filled(text: str, name: str, content: str) -> str:
    """The page with one block renewed."""
    pattern = re.compile(rf"(<!-- begin: {name} -->\n).*?(<!-- end: {name} -->)", re.S)
    if not pattern.search(text):
        raise SystemExit(f"there is no block {name!r}")
    return pattern.sub(lambda m: f"{m.group(1)}{content.rstrip()}\n{m.group(2)}", text, count=1)


def main() -> None:
    """Renew or check every page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", help="pages to renew or check; default: all")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a page is stale")
    arguments = parser.parse_args()
    check, stale = arguments.check, []
    for page in arguments.pages or dict.fromkeys(page for page, _, _ in BLOCKS):
        before = after = (ROOT / page).read_text()
        for _, name, content in (block for block in BLOCKS if block[0] == page):
            after = filled(after, name, content())
        if after != before:
            stale.append(page)
            if not check:
                (ROOT / page).write_text(after)
    if check and stale:
        raise SystemExit(f"stale pages: {', '.join(stale)}; run: make docs")
    print(f"{len(BLOCKS)} blocks " + ("up to date" if not stale else f"renewed in {', '.join(stale)}"))


if __name__ == "__main__":
    main()
