"""Every method on the user's own rows: one split, several code lengths, tie-aware scores with intervals, and cost.

Rows are split once into queries and the rest; the rest is the database, and what the codes are learned from. Kernel
maps, sums and posteriors are computed once and shared by all methods and lengths that use the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._labels import LabelGroups, group_labels
from shorthash._progress import OnStep, with_progress
from shorthash._validation import check_choice, check_count, check_finite, check_n_bits
from shorthash.codes import pack
from shorthash.data.datasets import Dataset
from shorthash.data.splits import Protocol, RandomQueries, Split, given_split
from shorthash.errors import InvalidInput, ShorthashError, phrase
from shorthash.evaluation.scores import Scores, evaluate
from shorthash.evaluation.statistics import compare_scores, summarise
from shorthash.lab.advice import needs_labels
from shorthash.lab.figures import Page, Section, figure_of, plot_scores_by_length, write_page, write_text
from shorthash.lab.sharing import SharedSplit, labelled_rows, quiet_fits
from shorthash.lab.spec import RunSpec, group_runs
from shorthash.lab.tables import Column, Table, attribute_table, make_table, to_html, to_json
from shorthash.methods import recipes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# the ten of the RSLH paper, the baseline that any of them should beat, and the recommended one
DEFAULT_METHODS = (
    *("sh", "pcaitq", "pcarr", "mfh", "sdh", "nsh", "fssh", "sslh", "sdhmlr", "rslh"),
    "classifier",
    "auto",
)
UNLABELLED = ("sh", "pcaitq", "pcarr", "mfh", "sphericalhash", "kmh", "auto")  # where there are no labels
MAX_QUERIES = 1000
MAX_TRAIN = 10_000  # rows to learn from by default: enough for every method, and minutes instead of hours
MAX_ROWS = 100_000  # of more rows a random sample is used, so that kernel maps fit in memory
MIN_ROWS = 10
UNKNOWN_CLASSES = 64  # without labels, lengths are those for this number of classes
RESAMPLES = 2000
NEAR = 100  # list length of the precision that is shown
COPIED = ("map", "map_worst", "map_best", "map_at_radius", "precision_at_radius", "recall_at_radius", "empty_balls")
OWN_SPLIT = {"kind": "given"}  # stands for a protocol where the caller chose the rows
SIGNIFICANT = 0.05  # differences to the best with a larger p-value may be chance


@dataclass(frozen=True)
class MethodScore:
    """Scores and cost of one method at one code length.

    Attributes
    ----------
    method, n_bits : the method and the code length
    map, map_low, map_high : tie-aware mAP and its 95 % bootstrap interval over queries
    map_worst, map_best : the same with ties ordered against, or for, the query
    map_at_radius, precision_at_radius, recall_at_radius, empty_balls : inside the ball
    precision_at_k : precision among the first ``k`` items
    behind : mAP of the best method of this length minus this one
    p_value : of that difference, query by query; nan for the best itself
    used_codes : distinct codes in the database
    fit_seconds, encode_microseconds : CPU time to learn, and per row to encode, kernel included
    """

    method: str
    n_bits: int
    map: float
    map_low: float
    map_high: float
    map_worst: float
    map_best: float
    map_at_radius: float
    precision_at_radius: float
    recall_at_radius: float
    empty_balls: float
    precision_at_k: float
    behind: float
    p_value: float
    used_codes: int
    fit_seconds: float
    encode_microseconds: float

    @property
    def interval(self) -> str:
        """The interval of the mAP as text."""
        return f"{self.map_low:.3f} to {self.map_high:.3f}"


@dataclass(frozen=True)
class Skipped:
    """A method that could not be run, at one length or (``n_bits`` is None) at all, and why."""

    method: str
    n_bits: int | None
    reason: str


@dataclass(frozen=True)
class MethodComparison:
    """All methods at all lengths.

    Attributes
    ----------
    rows : one per method and length: by length, then in the order of the methods
    skipped : what could not be run
    n_given : rows that were given; of more than 100 000, a random sample of that size is used
    n_rows, n_features, n_classes, multilabel : the data that was used
    n_queries, n_train, n_database : the split
    radius, k, seed : settings
    seconds : time for everything
    """

    rows: tuple[MethodScore, ...]
    skipped: tuple[Skipped, ...]
    n_given: int
    n_rows: int
    n_features: int
    n_classes: int
    multilabel: bool
    n_queries: int
    n_train: int
    n_database: int
    radius: int
    k: int
    seed: int
    seconds: float
    n_neighbours: int = 0  # nearest rows that are relevant, where there are no labels

    def best(self, n_bits: int) -> MethodScore:
        """The method with the highest mAP at a length."""
        return max((row for row in self.rows if row.n_bits == n_bits), key=lambda row: row.map)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths at which anything was run."""
        return tuple(sorted({row.n_bits for row in self.rows}))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return asdict(self)

    def plot(self, score: str = "map", *, ax: Axes | None = None) -> Axes:
        """Draw a score by length, one curve per method.

        Parameters
        ----------
        score : an attribute of :class:`MethodScore`
        ax : axes to draw on; by default those of a new figure
        """
        curves: dict[str, dict[int, tuple[float, float]]] = {}
        for row in self.rows:
            curves.setdefault(row.method, {})[row.n_bits] = (getattr(row, score), math.nan)
        names = {"map": "mAP", "precision_at_radius": f"precision@H<={self.radius}"}
        return plot_scores_by_length(curves, score=names.get(score, score.replace("_", " ")), ax=ax)

    def _repr_html_(self) -> str:
        """A table for notebooks, under the best methods."""
        return to_html(comparison_table(self), comparison_sentence(self))


@with_progress
def compare(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    lengths: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
    n_queries: int | None = None,
    n_train: int | None = None,
    split: Split | Mapping[str, ArrayLike] | None = None,
    radius: int = 2,
    seed: int = 0,
    progress: OnStep | None = None,
) -> MethodComparison:
    """Learn, encode and score with every method on one split of the rows.

    Parameters
    ----------
    X : (n_samples, n_features) features
    y : labels: (n_samples,) classes, or an indicator matrix; items that share a label are relevant. None: no method is
        given labels, and the 100 nearest items by cosine are relevant, at most a twentieth of the database
    lengths : code lengths; by default four, from the shortest that can tell the classes apart; 6 to 12 without labels
    methods : names of methods, see ``recipes()``; by default those of the RSLH paper, classifier and auto, without
        labels the unsupervised ones and auto; those that cannot handle the labels are skipped and named
    n_queries : rows used as queries; by default a fifth of the rows, at most 1 000
    n_train : rows to learn from; by default all others, at most 10 000; they are searched, too
    split : your own split in place of a random one: a ``Split``, or a mapping with row numbers "query" and optionally
        "train" (else the database) and "database" (else all other rows)
    radius : Hamming radius of a lookup
    seed : seed of the split and the methods
    progress : called with (what, done, total)

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> result = compare(X[:500], y[:500], lengths=[4], methods=["pcaitq", "classifier"])
    >>> result.best(4).method, result.n_queries, result.n_database
    ('classifier', 100, 400)
    """
    assert progress is not None
    start = time.perf_counter()
    own = None if split is None else _own_split(split, len(np.asarray(X)), n_queries, n_train)
    values, labels, groups, own = _checked_rows(X, y, seed, own)
    n_classes = UNKNOWN_CLASSES if y is None else len(groups.classes)
    chosen = sorted({check_n_bits(n, "compare") for n in lengths or default_lengths(n_classes)})
    names, skipped = _checked_methods(methods, labelled=y is not None, single=groups.single)
    usable = [name for name in names if name not in {each.method for each in skipped}]
    protocol = OWN_SPLIT if own else _protocol(len(values), n_queries, n_train, seed).to_dict()
    parts = SharedSplit(Dataset("given", values, labels), protocol, own, labelled=y is not None)
    scores: dict[tuple[str, int], Scores] = {}
    rows: dict[tuple[str, int], MethodScore] = {}
    runs = _runs(usable, chosen, protocol, seed)
    for done, run in enumerate(runs):
        progress(f"{run.method}, {run.n_bits} bits", done, len(runs))
        try:
            scores[run.method, run.n_bits], rows[run.method, run.n_bits] = _score(parts, run, radius)
        except ShorthashError as error:
            skipped.append(Skipped(run.method, run.n_bits, str(error)))
    if not rows:
        raise InvalidInput(f"No method could be run on these rows; {skipped[0].method}: {skipped[0].reason}")
    places = [(name, n_bits) for n_bits in chosen for name in names if (name, n_bits) in rows]
    return MethodComparison(
        rows=tuple(_beside_best(rows, scores, place) for place in places),
        skipped=tuple(sorted(skipped, key=lambda each: (names.index(each.method), each.n_bits or 0))),
        n_given=len(np.asarray(X)),
        n_rows=len(values),
        n_features=values.shape[1],
        n_classes=0 if y is None else len(groups.classes),
        multilabel=not groups.single,
        n_queries=len(parts.X_query),
        n_train=len(parts.X_train),
        n_database=len(parts.X_database),
        radius=radius,
        k=min(NEAR, len(parts.X_database)),
        seed=seed,
        seconds=time.perf_counter() - start,
        n_neighbours=0 if y is not None else _n_neighbours(parts),
    )


def _checked_methods(methods: Sequence[str] | None, *, labelled: bool, single: bool) -> tuple[list[str], list[Skipped]]:
    """The methods, each once, and those of them that cannot learn from such labels."""
    defaults = DEFAULT_METHODS if labelled else UNLABELLED
    names = list(dict.fromkeys(defaults if methods is None else methods))
    for name in names:
        check_choice(name, "methods", "compare", list(recipes()))
    if not names:
        raise InvalidInput("compare needs at least one method to try.")
    skipped = []
    for name in names:
        if not labelled and needs_labels(name):
            skipped.append(Skipped(name, None, "needs labels"))
        elif not single and not recipes()[name].multilabel:
            skipped.append(Skipped(name, None, "needs one label per row"))
    return names, skipped


def _n_neighbours(split: SharedSplit) -> int:
    """How many of the nearest items are relevant, where there are no labels."""
    return max(1, min(NEAR, len(split.X_database) // 20))


def default_lengths(n_classes: int) -> tuple[int, ...]:
    """Four lengths, two bits apart, from the shortest even one that can tell the classes apart; never below 4.

    Examples
    --------
    >>> default_lengths(10), default_lengths(101)
    ((4, 6, 8, 10), (8, 10, 12, 14))
    """
    shortest = max(4, 2 * math.ceil(math.log2(max(n_classes, 2)) / 2))
    return tuple(range(shortest, shortest + 8, 2))


def comparison_table(result: MethodComparison) -> Table:
    """One row per method and length."""
    columns = {
        "method": Column("method", text=True),
        "n_bits": Column("bits"),
        "map": Column("mAP", 4),
        "interval": Column("interval"),
        "map_worst": Column("worst tie", 3),
        "map_best": Column("best tie", 3),
        "map_at_radius": Column(f"mAP@H<={result.radius}", 4),
        "precision_at_k": Column(f"precision@{result.k}", 4),
        "behind": Column("behind best", 4),
        "fit_seconds": Column("fit CPU s", 2),
        "encode_microseconds": Column("encode µs/row", 1),
    }
    return attribute_table(columns, result.rows)


def skipped_table(result: MethodComparison) -> Table:
    """What could not be run, and why."""
    titles = ("method", "bits", "why")
    rows = ((each.method, "all" if each.n_bits is None else str(each.n_bits), each.reason) for each in result.skipped)
    return make_table(titles, rows, text=titles)


def comparison_sentence(result: MethodComparison) -> str:
    """The best method at every length, and the others that may be as good."""
    parts = []
    for n_bits in result.lengths:
        best = result.best(n_bits)
        near = [row.method for row in result.rows if row.n_bits == n_bits and row.p_value > SIGNIFICANT]
        also = f" (no significant difference: {', '.join(near)})" if near else ""
        parts.append(f"{best.method} {best.map:.3f} at {n_bits} bits{also}")
    return f"Best mAP: {'; '.join(parts)}."


def comparison_page(result: MethodComparison) -> Page:
    """The result as a page."""
    numbers = Section(
        "compare",
        "All numbers",
        "mAP is the exact mean over all orders of items at equal distance, with a 95 % bootstrap interval over the "
        "queries; the tie columns are what the worst and the best order would give.",
        tables={"": comparison_table(result)},
    )
    not_run = Section("not-run", "Not run", tables={"": skipped_table(result)}, look="words")
    sizes = ("n_given", "n_rows", "n_features", "n_classes", "n_queries", "n_train", "n_database")
    settings = (*sizes, "radius", "k", "seed")
    used = {name: recipes()[name] for name in dict.fromkeys(row.method for row in result.rows)}
    references = ((name, recipe.full_name, recipe.reference) for name, recipe in used.items())
    heads, values = ("method", "full name", "reference"), ((name, str(getattr(result, name))) for name in settings)
    provenance = Section(
        "provenance",
        "Provenance",
        tables={
            "methods": make_table(heads, references, text=heads),
            "settings": make_table(("what", "value"), values, text=("what", "value")),
        },
        look="small",
        folded=True,
    )
    learned = "all" if result.n_train == result.n_database else str(result.n_train)
    best, shortest = max(result.rows, key=lambda row: row.map), result.best(result.lengths[0])
    return Page(
        title=f"{len(used)} methods on your rows",
        lede=f"{result.n_rows} rows with {result.n_features} features and {_relevant(result)}. {result.n_queries} "
        f"rows are queries; the other {result.n_database} are searched, and {learned} of them were learned from. "
        + comparison_sentence(result),
        sections=[_by_length(result), numbers, *([not_run] if result.skipped else []), provenance],
        facts=[
            (f"{best.map:.3f}", f"best mAP: {best.method}, {best.n_bits} bits"),
            (f"{shortest.map:.3f}", f"best mAP with {shortest.n_bits} bits: {shortest.method}"),
            (f"{result.seconds:.0f} s", "for everything"),
        ],
        footer=f"Made by shorthash compare in {result.seconds:.0f} s, seed {result.seed}.",
    )


def _relevant(result: MethodComparison) -> str:
    """What is relevant, in words."""
    if not result.n_classes:
        return f"no labels: the {result.n_neighbours} nearest rows by cosine are relevant"
    return f"{result.n_classes} {'labels, several per row allowed' if result.multilabel else 'classes'}"


def write_comparison(result: MethodComparison, folder: str | Path) -> Path:
    """Write ``index.html``, tables, figures and ``compare.json`` into a folder; return the page.

    Parameters
    ----------
    result : what was compared
    folder : created if necessary

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> result = compare(*load_iris(return_X_y=True), lengths=[4], methods=["pcaitq"])
    >>> page = write_comparison(result, tempfile.mkdtemp())
    >>> page.name, page.with_name("compare.json").exists()
    ('index.html', True)
    """
    page = write_page(comparison_page(result), folder)
    write_text(page.with_name("compare.json"), to_json(result.to_dict()) + "\n")
    return page


def _score(split: SharedSplit, run: RunSpec, radius: int) -> tuple[Scores, MethodScore]:
    """Learn, encode, evaluate."""
    with quiet_fits():
        fitted = split.run(run)
    n_items = len(fitted.database)
    relevant: dict[str, Any] = {"query_labels": split.y_query, "database_labels": split.y_database}
    if not split.labelled:
        relevant = {"relevance": split.judgements(_n_neighbours(split))}
    scores = evaluate(
        fitted.query,
        database_codes=fitted.database,
        **relevant,
        radius=min(radius, run.n_bits),
        k=min(NEAR, n_items),
    )
    values = scores.per_query["map"]
    interval = summarise(values[~np.isnan(values)], n_resamples=RESAMPLES)
    return scores, MethodScore(
        method=run.method,
        n_bits=run.n_bits,
        **{name: getattr(scores, name) for name in COPIED},
        map_low=interval.low,
        map_high=interval.high,
        precision_at_k=next(iter(scores.precision_at_k.values())),
        behind=0.0,
        p_value=math.nan,
        used_codes=len(np.unique(pack(fitted.database))),
        fit_seconds=fitted.fit_seconds,
        encode_microseconds=1e6 * fitted.encode_seconds / (len(fitted.query) + n_items),
    )


def _beside_best(
    rows: Mapping[tuple[str, int], MethodScore], scores: Mapping[tuple[str, int], Scores], place: tuple[str, int]
) -> MethodScore:
    """A row with its distance to the best method of its length."""
    best = max((other for other in rows if other[1] == place[1]), key=lambda other: rows[other].map)
    if place == best:
        return rows[place]
    against = compare_scores(scores[best], scores[place], n_resamples=RESAMPLES)
    return replace(rows[place], behind=against.difference, p_value=against.p_value)


def _runs(names: Sequence[str], lengths: Sequence[int], protocol: Mapping[str, Any], seed: int) -> list[RunSpec]:
    """All runs; those that share a kernel are together, and so are the lengths of a method."""
    runs = [RunSpec.of("scores", "given", protocol, seed, name, n_bits) for name in names for n_bits in lengths]
    return [run for group in group_runs(runs) for run in group]


def _own_split(
    split: Split | Mapping[str, ArrayLike], n_rows: int, n_queries: int | None, n_train: int | None
) -> Split:
    """The split that the caller chose, checked."""
    parts = vars(split) if isinstance(split, Split) else dict(split)
    if n_queries is not None or n_train is not None:
        raise InvalidInput(f"compare takes {phrase('a split, or n_queries and n_train to draw one')}; leave one out.")
    wrong = sorted(parts.keys() - {"query", "train", "database"})
    if wrong or "query" not in parts:
        raise InvalidInput(
            f"The 'split' of compare must have 'query', and may have 'train' and 'database'. Got {sorted(parts)} "
            "instead."
        )
    return given_split(n_rows, **parts)


def _kept_rows(split: Split, kept: NDArray[np.bool_]) -> Split:
    """A split of the rows that are kept, with their numbers among those."""
    number = np.where(kept, np.cumsum(kept) - 1, -1)
    parts = {name: number[rows][number[rows] >= 0] for name, rows in vars(split).items()}
    for name, rows in parts.items():
        if not len(rows):
            raise InvalidInput(f"No '{name}' row of the split has a label; give rows with labels.")
    return Split(**parts)


def _checked_rows(
    X: ArrayLike, y: ArrayLike | None, seed: int, split: Split | None
) -> tuple[NDArray[Any], NDArray[Any], LabelGroups, Split | None]:
    """Finite rows and as many labels, of two classes or more; a random sample where there are very many."""
    values, labels, groups = labelled_rows(X, y, "compare")
    if groups.kept is not None and split is not None:
        split = _kept_rows(split, groups.kept)
    if len(values) > MAX_ROWS and split is None:
        kept = np.sort(np.random.default_rng(seed).choice(len(values), MAX_ROWS, replace=False))
        values, labels = values[kept], labels[kept]
        groups = group_labels(labels, owner="compare")
    if y is not None and len(groups.rows) < 2:
        raise InvalidInput(
            f"compare needs rows with at least two different labels, but all {len(values)} rows have the same; "
            "give rows of several classes."
        )
    check_finite(values, "compare")
    return values, labels, groups, split


def _protocol(n_rows: int, n_queries: int | None, n_train: int | None, seed: int) -> Protocol:
    """Queries drawn from all rows; the others are the database, and some or all of them are learned from."""
    if n_rows < MIN_ROWS:
        raise InvalidInput(f"compare needs at least {MIN_ROWS} rows to split. Got {n_rows} instead; give more.")
    queries = min(MAX_QUERIES, n_rows // 5) if n_queries is None else n_queries
    queries = check_count(queries, "n_queries", "compare", high=n_rows - 2)
    rest = n_rows - queries
    train = check_count(min(MAX_TRAIN, rest) if n_train is None else n_train, "n_train", "compare", high=rest)
    return RandomQueries(n_queries=queries, n_train=None if train == rest else train, seed=seed)


def _by_length(result: MethodComparison) -> Section:
    """Two figures: mAP, and precision inside the ball, by length."""
    figures = {}
    for title, field in (("mAP", "map"), (f"precision@H<={result.radius}", "precision_at_radius")):
        figure = figure_of(result.plot, field, title="your rows")
        figures[f"by-length-{field.replace('_', '-')}"] = (figure, f"{title} by code length.")
    return Section("by-length", "By code length", comparison_sentence(result), figures=figures)
