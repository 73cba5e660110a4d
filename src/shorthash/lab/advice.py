"""Recommend a code length: cross-validated scores by length and method on given rows, and what each length costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shorthash._arrays import Codes
from shorthash._progress import with_progress
from shorthash._validation import check_choice, check_count, check_n_bits
from shorthash.codes import ball_size
from shorthash.data.datasets import Dataset
from shorthash.data.rows import nearest_rows
from shorthash.data.splits import OfficialTest
from shorthash.errors import InvalidInput
from shorthash.evaluation.scores import evaluate
from shorthash.index.buckets import BucketIndex
from shorthash.lab.figures import plot_scores_by_length
from shorthash.lab.sharing import SharedSplit, labelled_rows, neighbour_judgements, quiet_fits
from shorthash.lab.spec import RunSpec
from shorthash.lab.tables import Table, make_table, to_html
from shorthash.learners.eaph.estimator import EAPH
from shorthash.learners.posteriors.folds import in_threads
from shorthash.methods import recipes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LENGTHS = (4, 6, 8, 10, 12, 16)
METHODS = ("auto", "rslh")
UNLABELLED = ("auto", "pcaitq")  # where there are no labels
NEAR = 100  # nearest rows that are relevant where there are no labels, of all rows; at most a twentieth
FULL_BITS = 12  # above, EAPH's table of all codes takes most of the time
FEW_ITERATIONS = 4  # of its refinement there, instead of 16: nearly all that refinement gains, in a quarter of the time
MANY_SETS = 64  # label sets with which annealing takes most of the time; one start of 2 changes less than folds differ
CLOSE = 0.01  # a shorter code is recommended if it loses no more mAP than this against the best


@dataclass(frozen=True)
class LengthAdvice:
    """Expected scores and costs of one method at one code length.

    Attributes
    ----------
    method, n_bits : the method and the code length
    map, map_std : tie-aware mAP of held-out rows among each other; mean and standard deviation over the folds
    precision_at_radius, empty_balls : of held-out queries, inside the ball
    ball_coverage : share of all codes that lie in a ball
    ball_rows : share of the held-out rows that a ball holds, on average: what a lookup must read
    occupied : codes in use among the held-out rows
    bucket_load : rows per bucket in use, for ``n_items`` rows
    index_bytes : memory of a BucketIndex of ``n_items`` rows, ids included
    probes : buckets looked up per query
    """

    method: str
    n_bits: int
    map: float
    map_std: float
    precision_at_radius: float
    empty_balls: float
    ball_coverage: float
    ball_rows: float
    occupied: int
    bucket_load: float
    index_bytes: int
    probes: int


@dataclass(frozen=True)
class Advice:
    """Scores by length and method, and a recommendation."""

    rows: tuple[LengthAdvice, ...]
    recommended: LengthAdvice
    sentence: str
    n_rows: int
    n_classes: int  # 0 without labels
    n_items: int
    radius: int

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return asdict(self)

    def to_table(self) -> Table:
        """One row per method and length."""
        precision = f"precision@H<={self.radius}"
        titles = ["method", "bits", "mAP", "std", precision, "ball %", "read %", "buckets", "rows/bucket", "index MB"]
        digits = {"mAP": 4, "std": 4, precision: 4, "ball %": 1, "read %": 1, "rows/bucket": 0, "index MB": 2}
        rows = [
            (
                row.method,
                row.n_bits,
                row.map,
                row.map_std,
                row.precision_at_radius,
                100 * row.ball_coverage,
                100 * row.ball_rows,
                row.occupied,
                row.bucket_load,
                row.index_bytes / 1e6,
            )
            for row in self.rows
        ]
        return make_table(titles, rows, text=["method"], digits=digits)

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw mAP by length, one curve per method."""
        curves: dict[str, dict[int, tuple[float, float]]] = {}
        for row in self.rows:
            curves.setdefault(row.method, {})[row.n_bits] = (row.map, row.map_std)
        return plot_scores_by_length(curves, score="mAP", ax=ax)

    def _repr_html_(self) -> str:
        """A table for notebooks, under the recommendation."""
        return to_html(self.to_table(), self.sentence)


@with_progress
def advise(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    lengths: Sequence[int] = LENGTHS,
    methods: Sequence[str] | None = None,
    n_folds: int = 3,
    radius: int = 2,
    n_items: int | None = None,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Advice:
    """Predict by cross-validation what codes of several lengths would retrieve, and recommend a length.

    Every fold is held out once; its rows query each other with codes learned from the other folds, so no row is ever
    scored by a model that saw it. The recommendation is the shortest code whose mean mAP is within 0.01 of the best.
    Without labels, the nearest rows by cosine are relevant: 100 of all rows, and of a fold the same share.

    Every mAP is measured with the default settings of the method, with these exceptions: above 12 bits, EAPH is refined
    in 4 iterations instead of 16; with more than 64 label sets, it anneals from one start instead of 2 and takes the
    posteriors of least log-loss without comparing codes of others. A full fit also learns from more rows than the
    folds, and is somewhat better.

    Parameters
    ----------
    X : (n_samples, n_features) features
    y : labels: (n_samples,) classes, or an indicator matrix; None: rows near each other are relevant
    lengths : code lengths to try
    methods : names of methods, see ``recipes()``; by default auto and rslh, without labels auto and pcaitq
    n_folds : folds, 2 or more
    radius : Hamming radius of a lookup
    n_items : size of the database to plan for; the number of rows if missing
    seed : seed of folds and methods
    progress : called with (what, done, total)

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> advice = advise(X[:600], y[:600], lengths=(4, 5), methods=("classifier",), n_folds=2)
    >>> advice.recommended.n_bits
    4
    """
    assert progress is not None
    values, labels, groups = labelled_rows(X, y, "advise")
    check_count(n_folds, "n_folds", "advise", low=2, high=len(values) // 2)
    places = _places(lengths, methods, labelled=y is not None)
    items = len(values) if n_items is None else check_count(n_items, "n_items", "advise")
    fold = balanced_folds(groups.ids, n_folds, seed)
    lock, steps = Lock(), count(1)

    def report(what: str) -> None:
        with lock:
            progress(what, next(steps), n_folds * len(places))

    protocol = OfficialTest(seed=seed).to_dict()
    splits = [
        SharedSplit(Dataset("given", values, labels, test=fold == k), protocol, labelled=y is not None)
        for k in range(n_folds)
    ]
    with quiet_fits():
        found = _held_out(splits, places, 0 if y is None else len(groups.rows), seed, report)
    parts = [
        _relevant(values[fold == k], None if y is None else labels[fold == k], len(values)) for k in range(n_folds)
    ]
    rows = tuple(
        _summarise(*place, [found[k, place] for k in range(n_folds)], parts, radius, items) for place in places
    )
    chosen = _recommend(rows)
    n_classes = 0 if y is None else len(groups.classes)
    return Advice(rows, chosen, _sentence(rows, chosen, items), len(values), n_classes, items, radius)


def _places(lengths: Sequence[int], methods: Sequence[str] | None, *, labelled: bool) -> list[tuple[str, int]]:
    """Every method at every length, checked."""
    if methods is None:
        methods = METHODS if labelled else UNLABELLED
    for name in methods:
        check_choice(name, "methods", "advise", list(recipes()))
        if not labelled and needs_labels(name):
            raise InvalidInput(f"The method {name} needs labels; give y, or use methods like {', '.join(UNLABELLED)}.")
    chosen = sorted({check_n_bits(n, "advise") for n in lengths})
    if not chosen or not methods:
        raise InvalidInput("advise needs at least one length and one method to try.")
    return [(name, n_bits) for name in dict.fromkeys(methods) for n_bits in chosen]


def balanced_folds(ids: NDArray[np.intp], n_folds: int, seed: int) -> NDArray[np.intp]:
    """The fold of every row, groups spread evenly over the folds.

    Parameters
    ----------
    ids : (n,) group of every row
    n_folds, seed : how many folds, and the seed of the draw
    """
    order = np.random.default_rng(seed).permutation(len(ids))
    order = order[np.argsort(ids[order], kind="stable")]
    fold = np.empty(len(ids), dtype=np.intp)
    fold[order] = np.arange(len(ids)) % n_folds
    return fold


def needs_labels(name: str) -> bool:
    """Whether a method cannot learn without labels."""
    recipe = recipes()[name]
    return recipe.supervised and not recipe.labels_optional


def _relevant(X: NDArray[Any], labels: NDArray[Any] | None, n_rows: int) -> dict[str, Any]:
    """What ``evaluate`` takes to score held-out rows among each other: labels, or the nearest rows as relevance."""
    if labels is not None:
        return {"query_labels": labels}
    k = int(np.clip(round(NEAR * len(X) / n_rows), 1, max(1, len(X) // 20)))
    return {"relevance": neighbour_judgements(nearest_rows(X, X, k, own=np.arange(len(X))), len(X))}


def _held_out(
    splits: Sequence[SharedSplit],
    places: Sequence[tuple[str, int]],
    n_sets: int,
    seed: int,
    report: Callable[[str], None],
) -> dict[tuple[int, tuple[str, int]], Codes]:
    """Codes of the test rows of every fold from models of the other rows, by fold and place.

    Lengths of a method share kernel features, sums and posteriors: the shortest is done first, fold by fold, and then
    the others, the longest first because it takes most of the time, so that no thread waits for another.
    """
    names = list(dict.fromkeys(name for name, _ in places))
    first = [min(place for place in places if place[0] == name) for name in names]
    others = sorted((place for place in places if place not in first), key=lambda place: -place[1])

    def codes(task: tuple[int, tuple[str, int]]) -> Codes:
        k, (name, n_bits) = task
        run = RunSpec.of("scores", "given", splits[k].protocol, seed, name, n_bits, _quicker(name, n_bits, n_sets))
        found = splits[k].run(run).query
        report(f"{name}, {n_bits} bits")
        return found

    folds = range(len(splits))
    begun = in_threads(lambda k: [codes((k, place)) for place in first], folds)
    tasks = [(k, place) for place in others for k in folds]
    found = dict(zip(tasks, in_threads(codes, tasks), strict=True))
    return found | {(k, place): begun[k][i] for k in folds for i, place in enumerate(first)}


def _quicker(name: str, n_bits: int, n_sets: int) -> dict[str, Any]:
    """Settings of EAPH with labels that save most of the time; none for other methods."""
    if not n_sets or not issubclass(recipes()[name].learner_class(), EAPH):
        return {}
    found = {"n_iter": FEW_ITERATIONS} if n_bits > FULL_BITS else {}
    return found | ({"n_starts": 1, "posterior": "combo"} if n_sets > MANY_SETS else {})


def _summarise(
    name: str, n_bits: int, codes: list[Codes], relevant: list[dict[str, Any]], radius: int, n_items: int
) -> LengthAdvice:
    """Scores over the folds, and what a database of ``n_items`` would cost."""
    scores = [evaluate(c, radius=radius, **part) for c, part in zip(codes, relevant, strict=True)]
    together = np.concatenate(codes)
    index = BucketIndex(n_bits).add(together)
    ball = index.counts(together, radius).mean() / len(together)
    occupied = len(np.unique(index.codes))
    return LengthAdvice(
        method=name,
        n_bits=n_bits,
        map=float(np.mean([s.map for s in scores])),
        map_std=float(np.std([s.map for s in scores], ddof=1)),
        precision_at_radius=float(np.mean([s.precision_at_radius for s in scores])),
        empty_balls=float(np.mean([s.empty_balls for s in scores])),
        ball_coverage=ball_size(n_bits, radius) / 2**n_bits,
        ball_rows=float(ball),
        occupied=occupied,
        bucket_load=n_items / occupied,
        index_bytes=round(index.nbytes / len(together) * n_items),
        probes=ball_size(n_bits, radius),
    )


def _recommend(rows: Sequence[LengthAdvice]) -> LengthAdvice:
    """The shortest code that is nearly the best; of equally short ones, the better."""
    best = max(row.map for row in rows)
    close = [row for row in rows if row.map >= best - CLOSE]
    return min(close, key=lambda row: (row.n_bits, -row.map))


def _sentence(rows: Sequence[LengthAdvice], chosen: LengthAdvice, n_items: int) -> str:
    best = max(rows, key=lambda row: row.map)
    reason = (
        "the best of all" if best is chosen else f"within {CLOSE} of the best ({best.map:.3f} at {best.n_bits} bits)"
    )
    return (
        f"Take {chosen.n_bits} bits with {chosen.method}: expected mAP {chosen.map:.3f}, {reason}; a lookup reads "
        f"{100 * chosen.ball_rows:.1f} % of {n_items} rows in {chosen.probes} buckets."
    )
