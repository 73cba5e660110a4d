"""Expected-AP hashing (EAPH): codes that maximise the metric they are evaluated by. Not in the paper.

Class posteriors are learned from the training rows; a codebook that puts confused classes close together is annealed
for the expected tie-aware mAP; and a table, refined by the closed-form derivative of that mAP, says for every posterior
which code is best, for a query and for an item that other queries find. Derivation, ablation and limits:
docs/paper/eaph.md.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from shorthash._arrays import Codes, Labels, is_foreign, to_numpy
from shorthash._labels import LabelGroups, group_labels, label_rows
from shorthash._progress import with_progress
from shorthash._rounding import on_one_thread
from shorthash._validation import as_single, check_same_length, within_single
from shorthash.codes.levels import leave_one_out_map
from shorthash.data.rows import Rows, validated
from shorthash.data.streams import ArrayStream, Stream, known_stream
from shorthash.errors import InvalidInput, ShorthashWarning
from shorthash.learners.eaph.choosing import Candidate, Choice, learned_candidates
from shorthash.learners.eaph.encoding import extend, extension
from shorthash.learners.eaph.groups import MOST_ROWS, GroupCodes
from shorthash.learners.eaph.groups import TABLE_SIZE as CLUSTER_TABLE_SIZE
from shorthash.learners.eaph.neighbours import fit_neighbours
from shorthash.learners.eaph.pairs import RelevantPairs, fit_pairs
from shorthash.learners.eaph.refinement import best_rows
from shorthash.learners.eaph.retrieving import TableHasher
from shorthash.learners.eaph.table import TABLE_BITS
from shorthash.learners.eaph.unlabelled import missing_in, spread_labels
from shorthash.learners.posteriors import models
from shorthash.learners.posteriors.folds import FOLDED_ROWS, Fitted, Folds, draw_folds
from shorthash.learners.posteriors.memory import MOST_REMEMBERED, Remembered, Remembering, Sketching
from shorthash.learners.posteriors.sampling import Labelling, draw_sample, labelled_rows
from shorthash.learners.posteriors.streamed import fit_streamed, remembered_stream
from shorthash.learners.samples import KeptRows
from shorthash.learners.sums import BlockSums, GroupStatistics

TABLE_SIZE = 1 << 23  # codes times label sets, unless label sets need more codes than that
KEPT_ROWS = 20_000  # what partial_fit remembers
OF_LABELS = (  # attributes that exist only with labels
    *("classes_", "label_sets_", "label_set_ids_", "oof_rows_", "oof_posteriors_", "posterior_loss_", "disjoint_map_"),
    *("searched_map_", "drawn_posteriors_", "kept_rows_", "n_dropped_", "n_unlabelled_", "_seed"),
    *("_path", "_rows", "_held"),
)
OF_GROUPS = ("relevance_", "near_map_", "wide_map_", "probed_map_", "lift_", "cell_centers_")  # and only without


@dataclass(eq=False, repr=False)
class EAPH(TableHasher):
    r"""Expected-AP hashing.

    An item with posterior :math:`p(x)` over label sets gets the code

    .. math:: z(x) = \arg\max_z\ p(x) \cdot T_z, \qquad T = A + D,

    where

    - :math:`A_{zs}` is the expected tie-aware average precision of a query with label set s at code z,
    - :math:`D_{zs}` is what a database item with label set s at code z adds to the precision of all queries,

    both at the masses :math:`h_{zs}` of label sets in cells that the assignment itself makes: the conditional gradient
    of the expected mAP, iterated on out-of-fold posteriors from an annealed codebook.

    This is a classifier-based code. On classes never seen in training it can only name the ones they resemble; with
    ``expect_new_classes=True`` every item lies between the codewords of those, which transfers best.

    Parameters
    ----------
    n_bits : int, default=8
        Code length, 1 to 64. Up to 16 bits all codes compete (fewer bits with few rows: no more cells than 4 per row,
        rows that are drawn to design codes with included); longer codes repeat bits of the shorter one, or leave them
        constant, whichever retrieves better out of fold, so a longer code is never worse than its prefix there.
    posterior : {"auto", "combo", "logistic", "ridge", "prototypes", "precomputed"} or classifier, default="auto"
        - "auto": the product of "logistic" and "ridge", or one where the out-of-fold mAP of its codes is much better;
          "logistic" where rows times label sets are more than 128 times 20 000, unless there are more than four sets
          per column, and with more than 20 000 rows, where a kernel is added if it pays; "prototypes" where new classes
          are expected;
        - "logistic": log-linear model over label sets, learned towards their means;
        - "ridge": kernel ridge regression on 1 000 anchors;
        - "combo": the product of both, with powers, where the second takes away 1 % of the log-loss;
        - "prototypes": cosine to the mean of every label set, directions that vary within label sets counting less;
        - any scikit-learn classifier with ``predict_proba``; single-label only;
        - a model that was fitted before, on other rows than those given here, or the expected mAP is too high:
          "precomputed" (X are its probabilities, a column per class in sorted order), a ``FrozenEstimator`` of
          scikit-learn, a torch module, or the path of an .onnx file (probabilities or logits); single-label only.

        Penalties, powers and temperature are chosen by out-of-fold log-loss, and near what is expected with few rows.
    codebook : {"annealed", "balanced", "binary", "random", "separated"}, default="annealed"
        Where the label sets start.
    refine : bool, default=True
        Whether the table is refined beyond the codebook.
    expect_new_classes : bool, default=False
        Place every item between the codewords of the classes it resembles instead of refining the table.
    database : {"auto", "disjoint", "training"}, default="auto"
        What will be searched. "disjoint": other rows than the training rows; codes are chosen by the mAP of out-of-fold
        codes. "training": exactly the training rows; by the mAP of out-of-fold queries against in-sample codes.
        "auto": either. With "training" and "auto" up to 100 000 training rows are remembered by sketches: each is coded
        by its own label, and so is a row equal to it. So posteriors are chosen for other rows, and with "auto" codes,
        too. Labels that were spread are not remembered. Nor are more rows, prototypes and classifiers; then "training"
        also chooses posteriors for training rows, and "auto" codes by the mean of both estimates.
    n_starts : int, default=2
        Random starts of every annealing; one where there are more than 256 label sets.
    n_iter : int, default=16
        Iterations of the refinement.
    metric : {"cosine", "dot", "euclidean"}, default="cosine"
        What the nearest rows are, where there are no labels.
    n_neighbors : int, default=100
        How many of the nearest training rows are relevant to a row, where there are no labels; at most a twentieth.
    search : {"rings", "probes"}, default="rings"
        How codes will be searched, where there are no labels: by Hamming distance, or in the order of ``relevance``
        (``probes``). The second needs no order among codes, so their cells are those of k-means.
    drop_unlabelled : bool, int or str, default=False
        Drop rows without a label (None, NaN, "", an empty set, a row of zeros) instead of learning from them where a
        class is missing, and of raising otherwise; a value such as -1 also drops the rows that have it as label.
    random_state : int, RandomState instance or None, default=None
        Seeds folds, anchors, annealing and damping.

    Attributes
    ----------
    classes_ : (c,) the classes
    label_sets_ : (u, c) the label rows that occurred; of several labels about 512 frequent ones, which stand for others
    posterior_ : the fitted posterior model
    oof_rows_ : (m,) training rows that were held out once: all, or of more than 20 000 a sample
    oof_posteriors_ : (m, u) float32, their out-of-fold posteriors
    drawn_posteriors_ : (k, u) float32, posteriors of drawn rows that codes were designed with, too; only with at most
        100 rows per class on average
    label_set_ids_ : (m,) their label sets
    cells_ : (m,) the codes in use, packed
    table_ : (m, u) float32, rows of T for them
    profiles_ : (m, u) mean posterior of the training rows in each of them
    codewords_ : (u, n_bits) the code of an item that surely has a label set
    codes_ : (m, n_bits) their codes by out-of-fold posteriors
    expected_map_ : float, what the table maximises: mAP by out-of-fold and drawn posteriors; too low with few rows
    objective_ : (n_iter,) the same after every iteration of the refinement
    posterior_loss_ : float, out-of-fold log-loss of the posteriors
    kept_rows_ : the rows that ``partial_fit`` remembers; after ``fit`` they are remembered, too, but never saved
    disjoint_map_, searched_map_ : float, the mAP to expect where other rows, or the training rows, are searched, when
        codes were designed; too low with few rows, nan where labels were guessed or after loading the second is unknown
    report_ : list of dict, what was tried, posteriors first, then codes for the best: posteriors, codes, disjoint_map,
        training_map, taken, why; without labels: start, softness, iterations or weight, scores, taken
    relevance_ : (k, k) without labels: the chance that a row of one cluster is among the nearest of a row of another;
        from pairs, how many times likelier than by chance a row of one is a partner of a row of another
    cell_centers_ : without labels: means of the training rows in every cell, and the weight of distances to them
    near_map_, wide_map_ : float, without labels: mAP of training rows that were held out, where the ``n_neighbors``
        nearest rows are relevant, and ten times as many
    probed_map_ : float, without labels: the first of these where cells are read in the order of ``relevance``
    aligned_ : True where ``align`` made the hasher
    lift_ : float, from pairs: average precision of partners of held-out rows, in multiples of chance

    Without labels, label sets are clusters of rows, posteriors are memberships of them, and attributes that speak of
    classes, label sets, out-of-fold posteriors or kept rows do not exist.

    References
    ----------
    F. McSherry, M. Najork. Computing Information Retrieval Performance Measures Efficiently in the Presence of Tied
    Scores. ECIR 2008. K. He, F. Cakir, S. A. Bargal, S. Sclaroff. Hashing as Tie-Aware Learning to Rank. CVPR 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> hasher = EAPH(n_bits=4, random_state=0).fit(X, y)
    >>> hasher.transform(X).shape, hasher.codewords_.shape, hasher.score(X, y) > 0.9
    ((150, 4), (3, 4), True)
    """

    n_bits: int = 8
    posterior: str | BaseEstimator = "auto"
    codebook: Literal["annealed", "balanced", "binary", "random", "separated"] = "annealed"
    refine: bool = True
    expect_new_classes: bool = False
    database: Literal["auto", "disjoint", "training"] = "auto"
    n_starts: int = 2
    n_iter: int = 16
    metric: Literal["cosine", "dot", "euclidean"] = "cosine"
    n_neighbors: int = 100
    search: Literal["rings", "probes"] = "rings"
    drop_unlabelled: bool | int | str = False
    random_state: int | np.random.RandomState | None = None

    @on_one_thread
    def fit(self, X: ArrayLike, y: ArrayLike | RelevantPairs | None = None) -> Self:
        """Learn posteriors, codebook and table.

        Parameters
        ----------
        X : (n_samples, n_features) features as they are; no kernel is needed
        y : (n_samples,) class labels, or an (n_samples, n_classes) indicator matrix of 0/1 or -1/+1; without labels,
            codes are learned by which rows are near each other. Class labels may be missing (None, NaN, NA): labels
            spread to those rows from their neighbours, if that recovers hidden labels better than a model does.
            :class:`shorthash.RelevantPairs` say instead which rows belong together
        """
        self._check_params()
        stream = known_stream(X, y)
        if stream is not None:
            return self.fit_stream(stream)
        values = validated(self, X, reset=True, min_samples=2, keep_device=True)
        if isinstance(y, RelevantPairs):
            return self._fit_pairs(to_numpy(values), y)
        missing = missing_in(y) if self.drop_unlabelled is False else None
        if missing is not None and y is not None:
            return self._fit_few(to_numpy(values), y, missing)
        if y is not None and len(values) > FOLDED_ROWS and self._streams():
            labels: Any = y if is_foreign(y) else label_rows(y)
            check_same_length(len(values), len(labels), "EAPH")
            return self.fit_stream(ArrayStream(values, labels))
        values = to_numpy(values)
        return self._fit_neighbours(values, len(values)) if y is None else self._fit_labelled(values, y)

    def _fit_labelled(self, values: NDArray[Any], y: ArrayLike, labelled: NDArray[np.bool_] | None = None) -> Self:
        """Learn from rows with labels; those of rows that are not ``labelled``, (n,), are guessed."""
        values = as_single(values, "EAPH")
        groups = self._training_groups(y, len(values), drop_unlabelled=self.drop_unlabelled)
        self._warn_of_collisions(len(groups.classes), stacklevel=5)
        kept = np.arange(len(values)) if groups.kept is None else np.flatnonzero(groups.kept)
        rows = values if groups.kept is None else values[kept]
        return self._fit_in_memory(rows, groups, labelled, kept, len(values))

    def _fit_in_memory(
        self,
        kept: NDArray[np.float32],
        given: LabelGroups,
        labelled: NDArray[np.bool_] | None,
        numbers: NDArray[np.integer],
        n_rows: int,
    ) -> Self:
        """Learn from rows in memory, by their label sets; ``numbers`` are their places among the rows of the caller."""
        models.check_labels(self.posterior, given)
        Rows(kept, "EAPH").check_varied()
        groups = given.merged()
        rng = self._begin(groups.classes, groups.rows)
        none = KeptRows.none(kept.shape[1], len(groups.classes), KEPT_ROWS)
        self._rows: KeptRows = none.add(kept, given.rows[given.ids], np.random.RandomState(self._seed))
        folds = draw_folds(groups.ids, rng)
        self._held: LabelGroups = replace(given, ids=given.ids[folds.rows])
        self.oof_rows_, self.label_set_ids_ = numbers[folds.rows], groups.ids[folds.rows]
        self.n_dropped_ = n_rows - len(kept)
        self._path: list[Candidate] = self._candidates(kept, groups, folds, labelled)
        return self.update_codes()

    @with_progress
    @on_one_thread
    def fit_stream(self, stream: Stream, *, progress: Callable[[str, int, int], None] | None = None) -> Self:
        """Learn from rows that need not fit in memory; what ``fit`` does with more than 20 000 rows.

        The stream is read some 20 times; memory does not grow with the rows.

        Parameters
        ----------
        stream : rows with labels, as ``shorthash.scale.as_stream`` gives
        progress : called with (what is being done, rows done, rows in all or 0)
        """
        self._check_params()
        if len(stream) > MOST_ROWS and next(iter(stream.blocks())).y is None:
            rng = check_random_state(self.random_state)
            numbers = np.sort(rng.permutation(len(stream))[:MOST_ROWS])
            X = to_numpy(validated(self, stream.take(numbers), reset=True, min_samples=2))
            return self._fit_neighbours(X, len(stream))
        if len(stream) <= FOLDED_ROWS or next(iter(stream.blocks())).y is None:
            blocks = [(to_numpy(block.X), None if block.y is None else to_numpy(block.y)) for block in stream.blocks()]
            X, y = zip(*blocks, strict=True)
            return self.fit(np.concatenate(X), None if y[0] is None else np.concatenate(y))
        report = progress or (lambda _what, _done, _total: None)
        report("adding up rows", 0, len(stream))
        sums = BlockSums("EAPH", partial(within_single, owner="EAPH"), self.drop_unlabelled)
        seen = stream.total(sums, GroupStatistics.join)
        self._check_sums(seen)
        seen, labelling = Labelling.of("EAPH", seen, self.drop_unlabelled or True)
        self.n_features_in_ = stream.n_columns
        if seen.n_samples <= FOLDED_ROWS:  # most rows have no label
            numbers, X, groups = labelled_rows(stream, labelling)
            return self._fit_in_memory(X, groups, None, numbers, len(stream))
        if not self._streams():
            what = "expect_new_classes=True" if self.expect_new_classes else f"posterior={self.posterior!r}"
            raise InvalidInput(
                f"{what} of EAPH needs all labelled rows in memory, at most {FOLDED_ROWS}. Got {seen.n_samples} "
                "instead; use posterior='auto' or 'logistic', with expect_new_classes=False."
            )
        rng = self._begin(seen.classes, seen.rows)
        self.n_dropped_ = len(stream) - seen.n_samples
        report("drawing a sample", 0, len(stream))
        sample = draw_sample(stream, seen, labelling, rng)
        order = np.random.RandomState(self._seed).permutation(len(sample.ids))[:KEPT_ROWS]
        drawn = np.linspace(0, len(order) / seen.n_samples, len(order), endpoint=False)
        kept = sample.X[order], labelling.given[sample.given[order]]
        self._rows = KeptRows(*kept, drawn, seen.n_samples, KEPT_ROWS)
        self._held = labelling.groups_of(sample.given[sample.held])
        name, fitted = fit_streamed(stream, seen, labelling, sample, report)
        self.oof_rows_, self.label_set_ids_ = sample.numbers[sample.held], sample.ids[sample.held]
        known = models.for_other_rows(fitted, self.label_set_ids_, sample.judged, seen.rows)
        candidate = Candidate(name, known, known.model.predict(sample.X[sample.held]))
        if self._remembers(seen.n_samples):
            candidate = candidate.remembering(remembered_stream(stream, labelling, sample))
        self._path = [candidate]
        report("designing codes", 0, 0)
        return self._design_codes(None if stream.distributed else next(iter(stream.blocks())).X)

    def _streams(self) -> bool:
        """Whether the posteriors can be learned from a stream."""
        streamed = isinstance(self.posterior, str) and self.posterior in ("auto", "logistic")
        return streamed and not self.expect_new_classes

    def _begin(self, classes: Labels, label_sets: NDArray[np.uint8]) -> np.random.RandomState:
        """Forget what was learned before; a source of random numbers."""
        rng: np.random.RandomState = check_random_state(self.random_state)
        self._seed = int(rng.randint(np.iinfo(np.int32).max))
        self.classes_, self.label_sets_ = classes, label_sets
        for name in ("kept_rows_", "n_unlabelled_", "aligned_", "_held", *OF_GROUPS):
            self.__dict__.pop(name, None)
        return rng

    def _fit_few(self, X: NDArray[Any], y: ArrayLike, missing: NDArray[np.bool_]) -> Self:
        """Learn from labelled rows and, where that helps, from unlabelled ones."""
        check_same_length(len(X), len(missing), "EAPH")
        X = as_single(X, "EAPH")
        rng = np.random.RandomState(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        rows, labels, spread = spread_labels(X, y, missing, self.metric, rng)
        self._fit_labelled(X[rows], labels, ~missing[rows])
        self.oof_rows_ = rows[self.oof_rows_]
        self.n_unlabelled_ = int(missing[rows].sum()) if spread else 0
        if spread:  # rows held out were judged by guesses
            self.disjoint_map_ = self.searched_map_ = math.nan
        self.n_dropped_ = len(X) - len(rows)
        return self

    def _fit_neighbours(self, X: NDArray[Any], n_rows: int) -> Self:
        """Learn without labels, from all rows or a sample of ``n_rows``."""
        rng: np.random.RandomState = check_random_state(self.random_state)
        if len(X) > MOST_ROWS:
            X = X[np.sort(rng.permutation(len(X))[:MOST_ROWS])]
        search = self.search
        return self._fit_groups(
            X, lambda rows, options: fit_neighbours(rows, n_rows, self.n_bits, rng, search=search, **options)
        )

    def _fit_pairs(self, X: NDArray[Any], pairs: RelevantPairs) -> Self:
        """Learn from pairs of rows that belong together."""
        pairs.check_rows(len(X))
        rng: np.random.RandomState = check_random_state(self.random_state)
        return self._fit_groups(X, lambda rows, options: fit_pairs(rows, pairs, self.n_bits, rng, **options))

    def _fit_groups(self, X: NDArray[Any], learn: Callable[[NDArray[np.float32], dict[str, Any]], GroupCodes]) -> Self:
        """Learn with clusters instead of classes."""
        Rows(X, "EAPH").check_varied()
        X = as_single(X, "EAPH")
        options: dict[str, Any] = {"metric": self.metric, "n_neighbors": self.n_neighbors, "n_iter": self.n_iter}
        options["table_bits"] = partial(self._table_bits, size=CLUSTER_TABLE_SIZE)
        found = learn(X, options)
        for name in (*OF_LABELS, *OF_GROUPS, "aligned_"):
            self.__dict__.pop(name, None)
        self.posterior_, self.relevance_, self.report_ = found.model, found.relevance, found.report
        for name, value in found.scores.items():
            setattr(self, f"{name}_", value)
        if found.centers is not None:
            self.cell_centers_ = found.centers
        return self._keep_table(found.design, found.memberships, lambda _: found.order, found.place)

    def _check_sums(self, seen: GroupStatistics) -> None:
        """The checks of rows in memory, on sums."""
        if len(seen.rows) < 2:
            self._training_groups(np.repeat(seen.classes[seen.rows[0].astype(bool)][:1], 2), 2)
        if not np.diag(seen.centred(seen.mean()).gram).max() > 0:
            raise InvalidInput(
                f"All {seen.n_samples} rows of X of EAPH are equal (constant features), so there is nothing to learn "
                "from; check how the features were made."
            )
        self._warn_of_collisions(len(seen.classes))

    @on_one_thread
    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Learn the posteriors from more rows; codes given out so far keep their meaning.

        Posteriors are learned again from a uniform sample of all rows so far, at most 20 000 (``kept_rows_``); while
        there are fewer rows, and after ``update_codes``, the outcome is that of ``fit`` on all of them, if there are no
        more label sets than are learned. The table of codes is designed at the first call, and again only by
        ``update_codes``, or, with a warning, where rows bring a label set that the table does not know. Of the rows so
        far only those of the sample are remembered, and none after a fit that has spread labels.

        Parameters
        ----------
        X : (n_samples, n_features) features
        y : labels, as in ``fit``
        classes : every class that will occur; at the first call, where the classes of ``y`` are taken if it is missing
        """
        self._check_params()
        self._check_further()
        first = not hasattr(self, "table_")
        values = as_single(validated(self, X, reset=first, min_samples=2 if first else 1), "EAPH")
        groups = group_labels(
            y,
            owner="EAPH",
            n_samples=len(values),
            classes=classes if first else self.classes_,
            drop_unlabelled=self.drop_unlabelled,
        )
        kept = values if groups.kept is None else values[groups.kept]
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(np.iinfo(np.int32).max))
        before = KeptRows.none(kept.shape[1], len(groups.classes), KEPT_ROWS) if first else self._sample()
        sample = before.add(kept, groups.rows[groups.ids], np.random.RandomState((seed + before.seen) % 2**32))
        if first:
            self._seed, self.classes_ = seed, groups.classes
        self.n_dropped_ = len(values) - len(kept)
        return self._learn_on(sample, rng)

    @on_one_thread
    def merge(self, other: Self) -> Self:
        """Learn the posteriors from the rows of another EAPH, too; codes given out so far keep their meaning.

        What ``partial_fit`` with the rows of ``other`` does, from the at most 20 000 rows that each of the two keeps.

        Parameters
        ----------
        other : EAPH that has learned from other rows with the same features and classes
        """
        for one in (self, other):
            check_is_fitted(one)
            one._check_further()
        if self.n_features_in_ != other.n_features_in_ or not np.array_equal(self.classes_, other.classes_):
            raise InvalidInput(
                f"merge of EAPH needs two of the same features and classes; got {self.n_features_in_} and "
                f"{other.n_features_in_} features, {len(self.classes_)} and {len(other.classes_)} classes. Name every "
                "class with 'classes' of partial_fit."
            )
        rng = check_random_state(self.random_state)
        rng.randint(np.iinfo(np.int32).max)  # as partial_fit
        spread = sum(getattr(one, "n_unlabelled_", 0) for one in (self, other))
        if spread:
            self.n_unlabelled_ = spread
        return self._learn_on(self._sample().join(other._sample()), rng)

    def _sample(self) -> KeptRows:
        """The rows kept of all that were learned from."""
        return getattr(self, "kept_rows_", None) or self._rows

    def _learn_on(self, sample: KeptRows, rng: np.random.RandomState) -> Self:
        """Posteriors from a sample of all rows; codes where there are none or label sets are new."""
        first = not hasattr(self, "table_")
        Rows(sample.X, "EAPH").check_varied()
        given = group_labels(sample.Y, owner="EAPH", n_samples=len(sample.Y))
        models.check_labels(self.posterior, given)
        known = given.merged(None if first else self.label_sets_)
        folds = draw_folds(known.ids, rng)
        candidates = self._candidates(sample.X, known, folds)
        again = not first and not np.array_equal(known.rows, self.label_sets_)
        self.kept_rows_, self._path = sample, candidates
        self.label_sets_, self.oof_rows_, self.label_set_ids_ = known.rows, folds.rows, known.ids[folds.rows]
        self._held = replace(given, ids=given.ids[folds.rows])
        if again:
            warnings.warn(
                "These rows have label sets that EAPH had not seen, so all codes were designed again; encode what is "
                "stored again, or name every class with 'classes' and let the first call have rows of each.",
                ShorthashWarning,
                stacklevel=4,
            )
        if first or again:
            return self.update_codes()
        best, _ = self._choice(candidates).posteriors(candidates)
        self._keep_posterior(best)
        self.codes_ = self._codebook()[best_rows(self.oof_posteriors_, self.table_)]
        return self

    def _check_labelled(self, verb: str) -> None:
        """Raise if there was a fit without labels, or none at all."""
        if hasattr(self, "aligned_"):
            raise InvalidInput(
                f"{verb} would change what an aligned EAPH shares with the one it was aligned with; change that one, "
                "and align again."
            )
        if hasattr(self, "relevance_"):
            raise InvalidInput(f"{verb} needs an EAPH that was fitted with labels, but y was missing; call fit.")

    def _check_further(self) -> None:
        """Raise where learning on is not possible."""
        self._check_labelled("partial_fit")
        if self.database == "training":
            raise InvalidInput(
                "partial_fit of EAPH needs database='disjoint' or 'auto': where the training rows are searched, "
                "posteriors and codes are chosen together; call fit with all rows."
            )
        if hasattr(self, "table_") and not hasattr(self, "kept_rows_") and not hasattr(self, "_rows"):
            raise InvalidInput(
                "This EAPH was saved without rows to learn on from; they are saved only if partial_fit made the model "
                "and statistics=True: begin with partial_fit."
            )

    @on_one_thread
    def update_codes(self) -> Self:
        """Design the codes again from the posteriors as they are, for instance after ``set_params(n_bits=10)``.

        The outcome is that of ``fit`` with the same ``random_state``, without learning the posteriors again; but where
        rows have more than 512 sets of labels, a model that was loaded judges codes by those that it has learned.
        """
        return self._design_codes()

    def _design_codes(self, beside: Any = None) -> Self:
        """Choose posteriors and design codes; tables are refined on the device of ``beside``."""
        self._check_params()
        self._check_labelled("update_codes")
        check_is_fitted(self, "oof_posteriors_" if not hasattr(self, "_path") else "_path")
        candidates = getattr(self, "_path", None)
        if candidates is None and self.database == "training":
            raise InvalidInput(
                "update_codes of EAPH with database='training' needs the models that fit has compared, which are not "
                "saved; call fit."
            )
        database, forgets, was_saved = self.database, self.database == "disjoint", candidates is None
        if candidates is None:  # a saved model has one candidate: its posteriors
            model = self.posterior_
            model = model.forgotten() if forgets and isinstance(model, Remembering) else model
            fitted = Fitted(model, self.oof_posteriors_, self.posterior_loss_)
            saved = Candidate("saved", fitted, fitted.oof, source=getattr(self, "drawn_posteriors_", None))
            candidates, database = [saved], "disjoint"
        if forgets:  # also those that were remembered when the database was another
            candidates = [each.plain or each for each in candidates]
        choice = replace(self._choice(candidates), database=database, beside=beside)
        taken, self.report_ = choice.codes(candidates)
        self._keep_posterior(taken.candidate)
        guessed = getattr(self, "n_unlabelled_", 0) > 0
        self.disjoint_map_ = math.nan if guessed else taken.disjoint
        self.searched_map_ = math.nan if guessed or was_saved else taken.training
        Y = choice.labels.rows[choice.labels.ids]

        def lengthened(short: Codes) -> NDArray[np.intp]:
            return extension(short.shape[1], self.n_bits, lambda order: leave_one_out_map(extend(short, order), Y))

        return self._keep_table(taken.design, taken.candidate.fitted.oof, lengthened)

    def _candidates(
        self, X: NDArray[np.float32], groups: LabelGroups, folds: Folds, labelled: NDArray[np.bool_] | None = None
    ) -> list[Candidate]:
        """Posteriors to choose from, the same for every code length."""
        kind = self.posterior
        if isinstance(kind, str) and kind == "auto":
            new = self.expect_new_classes
            kind = "prototypes" if new else models.auto_kind(len(X), X.shape[1], len(groups.rows), "auto")
        found = learned_candidates(kind, X, groups, folds, self._seed)
        if not self._remembers(len(X)) or (labelled is None and getattr(self, "n_unlabelled_", 0) > 0):
            return found
        sketching = Sketching.of_rows(X)
        rows = sketching, sketching.sketches(X), groups.ids
        remembered = Remembered.of_rows(*rows, len(groups.rows), folds, labelled)
        return [each.remembering(remembered) for each in found]

    def _remembers(self, n_rows: int) -> bool:
        """Whether training rows that are searched are to be found by their labels."""
        learned = isinstance(self.posterior, str) and self.posterior in ("auto", "combo", "logistic", "ridge")
        return learned and not self.expect_new_classes and self.database != "disjoint" and n_rows <= MOST_REMEMBERED

    def _choice(self, candidates: list[Candidate]) -> Choice:
        groups = LabelGroups(self.classes_, self.label_sets_, self.label_set_ids_)
        drawn = candidates[0].drawn if self._draws else None
        n_rows = len(self.label_set_ids_) + (0 if drawn is None else len(drawn))
        bits = self._table_bits(n_rows, len(self.label_sets_), TABLE_SIZE)
        given = getattr(self, "_held", groups)
        return Choice(groups, given, self._relevance(), bits, self._seed, self.database, self._options())

    @property
    def _draws(self) -> bool:
        """Whether codes are designed for drawn rows, too, where there are few others."""
        return self.refine and not self.expect_new_classes

    def _options(self) -> dict[str, Any]:
        counts = self.label_sets_[self.label_set_ids_].sum(axis=0, dtype=np.float64)
        rows_per_class = float(np.sum(counts**2) / np.sum(counts))  # in the class of a row, on average
        own = {name: getattr(self, name) for name in ("codebook", "refine", "n_starts", "n_iter")}
        return {**own, "rows_per_class": rows_per_class, "new_classes": self.expect_new_classes}

    def _table_bits(self, n_rows: int, u: int, size: int) -> int:
        affordable = max(int(np.ceil(np.log2(u))), int(np.log2(size / u)))
        return min(self.n_bits, TABLE_BITS, int(np.ceil(np.log2(4 * n_rows))), affordable)

    def _keep_posterior(self, candidate: Candidate) -> None:
        fitted = candidate.fitted
        self.posterior_, self.posterior_loss_, self.oof_posteriors_ = fitted.model, fitted.loss, fitted.oof
        self.__dict__.pop("drawn_posteriors_", None)
        if self._draws and candidate.drawn is not None:
            self.drawn_posteriors_ = candidate.drawn

    def _check_params(self) -> None:
        models.check_kind(self.posterior)
        super()._check_params()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags
