"""Pages that Sphinx makes from the code: the API reference, and one page per method with its results.

They are written into docs/api/ and docs/methods/ whenever the site is built, and are not kept in the repository.
"""

from __future__ import annotations

import importlib
import inspect
import math
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
SECTIONS = {  # room -> title of its section in the API reference, and what stands there
    "methods": ("Build a hasher", "A method by name, as a scikit-learn pipeline."),
    "learners": ("Hashers", "scikit-learn estimators that learn codes; each has a page under :doc:`/methods/index`."),
    "kernels": ("Kernels", "Features in which linear hashers learn."),
    "codes": ("Codes", "Signs, packed integers, distances, balls, and the quality of a set of codes."),
    "index": ("Search in memory", "Indexes over codes, and what they return."),
    "store": ("Search in databases", "The same search in SQLite and PostgreSQL."),
    "retrieval": ("Search from rows", "Hasher, index or store, and re-ranking in one call."),
    "evaluation": ("Evaluate", "Scores with ties counted exactly, conventions of other code, tests of differences."),
    "lab": ("Compare and report", "Every method on your rows, advice on the code length, experiments, figures."),
    "scale": ("Large data", "Streams of rows, sums, Dask collections, codes written to files."),
    "data": ("Data sets and files", "Data sets by name, splits, readers of files."),
    "images": ("Images", "From a folder of images to a collection that can be searched."),
    "persistence": ("Save and load", "Files without pickle, and exports to other programs."),
    "web": ("Serve", "The ASGI application."),
    "_progress": ("Settings", "What holds for the whole process: whether progress is shown."),
    "errors": ("Errors and warnings", "Every error derives from :class:`~shorthash.errors.ShorthashError`."),
}
ROOMS = {"pipeline": "methods"}  # rooms that share a section
MORE = {  # public names of modules without __all__
    "methods": ["Recipe", "method_facts", "recipes"],
    "retrieval": ["Answers", "compact_posteriors", "score_posteriors"],
    "scale": [
        *("ArrayStream", "BatchStream", "Collected", "EncodedFile", "Stream", "TableStream", "as_stream"),
        *("bucket_index", "code_histogram", "collect", "encode_to_file", "encoded", "evaluate_collection"),
        *("fit_collected", "fit_stream", "load_collected", "save_collected"),
    ],
    "lab.advice": ["Advice", "LengthAdvice", "advise"],
    "lab.compare": ["MethodComparison", "MethodScore", "write_comparison"],
    "lab.maps": ["draw_bucket_map", "draw_code_map"],
    "lab.spec": ["read_experiment"],
    "lab.running": ["read_records", "run_experiments"],
    "data.datasets": ["Dataset", "dataset_facts", "fetch", "read_dataset"],
    "data.files": ["read_codes", "read_features", "read_labels", "write_codes"],
    "data.splits": ["FewRows", "OfficialTest", "PerClassQueries", "RandomQueries", "Split", "UnseenClasses"],
}
EXAMPLES = [  # the order of the gallery; others follow
    "quick_start",
    "code_length",
    "ties",
    "every_method",
    "semantic_key",
    "code_map",
    "eaph_steps",
    "rslh_facts",
    "probing",
    "sqlite_search",
    "postgres_search",
    "image_search",
    "text_codes",
    "grid_search",
    "own_method",
]


class ExampleOrder:
    """Sort key of the gallery."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, name: str) -> tuple[int, str]:
        """Place of an example, by file name."""
        stem = Path(name).stem
        return (EXAMPLES.index(stem) if stem in EXAMPLES else len(EXAMPLES), stem)


def public_names() -> dict[str, list[str]]:
    """Section -> full names of everything public, each once: from ``shorthash`` where it is exported there."""
    import shorthash

    names: dict[str, list[str]] = {room: [] for room in SECTIONS}
    seen: set[int] = set()

    def add(room: str, module: Any, name: str) -> None:
        found = getattr(module, name)
        if id(found) not in seen:
            seen.add(id(found))
            names[ROOMS.get(room, room)].append(f"{module.__name__}.{name}")

    for name in shorthash.__all__:
        add(getattr(shorthash, name).__module__.split(".")[1], shorthash, name)
    for room in SECTIONS:
        module = importlib.import_module(f"shorthash.{room}")
        for name in getattr(module, "__all__", []):
            add(room, module, name)
    for path, listed in MORE.items():
        module = importlib.import_module(f"shorthash.{path}")
        for name in listed:
            add(path.split(".")[0], module, name)
    errors = importlib.import_module("shorthash.errors")
    for name, value in vars(errors).items():
        if inspect.isclass(value) and value.__module__ == errors.__name__:
            add("errors", errors, name)
    return names


def api_page() -> str:
    """The table of contents of the API reference."""
    lines = ["API", "===", "", "Every public class and function, under the name to import it by.", ""]
    for room, names in public_names().items():
        title, about = SECTIONS[room]
        lines += [title, "-" * len(title), "", about, "", ".. autosummary::", "   :toctree: .", "   :nosignatures:", ""]
        lines += [*(f"   {name}" for name in sorted(names, key=lambda n: (n.count("."), n))), ""]
    return "\n".join(lines)


def method_pages() -> dict[str, str]:
    """File name -> page, one for every method and a list of them."""
    from shorthash.methods import RECIPES

    names = [name for name in RECIPES if name != "auto"]
    pages = {f"{name}.rst": _method_page(name) for name in names}
    groups = {
        "Recommended": [n for n in names if n in {"eaph", "sumeaph"}],
        "Supervised": [n for n in names if RECIPES[n].supervised and n not in {"eaph", "sumeaph"}],
        "Without labels": [n for n in names if not RECIPES[n].supervised],
    }
    lines = ["Methods", "=======", ""]
    lines += [
        "Every method is one name away: ``make_hasher(name, n_bits=8)``; ``auto`` is :doc:`eaph`. A page shows the",
        "method's objective, its settings and its measured results. All results side by side:",
        ":doc:`/guide/methods-results`. Settings and presets in one table, and how to add a method:",
        ":doc:`/guide/methods`.",
        "",
    ]
    for title, members in groups.items():
        rows = [(f":doc:`{n}`", RECIPES[n].full_name, str(RECIPES[n].year)) for n in members]
        lines += [title, "-" * len(title), "", *_rst_table(("name", "method", "year"), rows), ""]
    lines += [".. toctree::", "   :hidden:", "", *(f"   {name}" for name in names), ""]
    return {"index.rst": "\n".join(lines), **pages}


def _method_page(name: str) -> str:
    """What a method is, from its docstring; how to call it; what it scored."""
    from numpydoc.docscrape import NumpyDocString

    import shorthash
    from shorthash.methods import RECIPES, method_facts

    recipe, facts = RECIPES[name], method_facts(name)
    learner = recipe.learner_class()
    doc = NumpyDocString(inspect.getdoc(learner) or "")
    exported = f"shorthash.{learner.__name__}"
    assert hasattr(shorthash, learner.__name__), f"{learner} is not exported"
    title = f"{learner.__name__}: {recipe.full_name}"
    steps = " → ".join(f"``{step}``" for step in facts["preprocessing"]) or "features as they are"
    lines = [title, "=" * len(title), "", f"*{recipe.reference}*", ""]
    lines += [".. code-block:: python", "", "   from shorthash import make_hasher", ""]
    labels = "X, y" if recipe.supervised else "X"
    lines += [f'   hasher = make_hasher("{name}", n_bits=8, random_state=0).fit({labels})', ""]
    lines += [*doc["Extended Summary"], "", *(("Notes", "-----", "", *doc["Notes"], "") if doc["Notes"] else ())]
    several = "one or several per row" if recipe.multilabel else "one per row"
    rows = [("labels", several if recipe.supervised else "not used"), ("before it", steps)]
    rows += [("class", f":class:`{exported}`, with every parameter and attribute")]
    rows += [("settings", ", ".join(f"``{k}={v!r}``" for k, v in facts["parameters"].items()) or "none")]
    rows += [("presets", ", ".join(f"``{preset}``" for preset in recipe.presets) or "none")]
    lines += ["Settings", "--------", "", *_rst_table(None, rows), ""]
    return "\n".join([*lines, *_results(name)])


def _results(name: str) -> list[str]:
    """Stored scores of a method, beside the best and the classifier code."""
    import results_page

    from shorthash.lab.report import collect_grid

    (part,) = results_page.parts("methods")
    grid = collect_grid(part, results_page.records(), ["map"])
    if name not in grid.rows:
        return []
    lines = ["Results", "-------", ""]
    lines += [
        f"Tie-aware mAP with the settings above, mean and standard deviation over {len(part.seeds)} seeds, beside",
        "the best method at that length; from the records of ``experiments/methods.toml``.",
        "",
    ]
    for dataset in grid.datasets:
        lengths = grid.lengths(dataset)
        rows = [(f"``{name}``", *(_score(grid.cell("mAP", name, dataset, bits)) for bits in lengths))]
        best = []
        for bits in lengths:
            values = {k: v for k, v in grid.values("mAP", dataset, bits).items() if not math.isnan(v)}
            top = max(values, key=lambda k, v=values: v[k])
            best.append(f"{values[top]:.3f} (``{top}``)")
        rows.append(("best", *best))
        lines += [*_rst_table((dataset, *(f"{bits} bits" for bits in lengths)), rows), ""]
    return lines


def _score(cell: Any) -> str:
    return "not defined" if cell is None or math.isnan(cell.mean) else f"{cell.mean:.3f} ± {cell.std:.3f}"


def _rst_table(head: tuple[str, ...] | None, rows: list[tuple[str, ...]]) -> list[str]:
    """A list-table of reStructuredText."""
    lines = [".. list-table::", *(["   :header-rows: 1"] if head else ["   :stub-columns: 1"]), ""]
    for row in [*([head] if head else []), *rows]:
        lines += [f"   {'*' if i == 0 else ' '} - {cell}" for i, cell in enumerate(row)]
    return lines


def write_pages(_app: Any, _config: Any) -> None:
    """Write every page; one that has not changed keeps its date, so that Sphinx need not read it again."""
    listed = {name for names in public_names().values() for name in names}
    for path in (DOCS / "api").glob("shorthash.*.rst"):  # of names that have gone
        if path.stem not in listed:
            path.unlink()
    pages = {f"methods/{name}": text for name, text in method_pages().items()} | {"api/index.rst": api_page()}
    for name, text in pages.items():
        path = DOCS / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def trim_examples(_app: Any, _page: str, source: list[str]) -> None:
    """Show no empty line at the end of an example; doctest needs one there."""
    source[0] = re.sub(r"^(```python\n(?:(?!^```).)*?\n)\n+^```$", r"\1```", source[0], flags=re.S | re.M)


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx; pages are written before it looks for sources."""
    app.connect("config-inited", write_pages)
    app.connect("source-read", trim_examples)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
