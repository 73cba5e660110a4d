"""The recommended code length, against plain cross-validation."""

import numpy as np
import pytest

from shorthash import evaluate, make_hasher
from shorthash.errors import InvalidInput
from shorthash.lab.advice import CLOSE, FEW_ITERATIONS, LengthAdvice, _recommend, advise, balanced_folds
from shorthash.learners.eaph import choosing


@pytest.fixture(scope="module")
def advice(digits):
    X, y = digits
    return advise(X[:500], y[:500], lengths=(2, 4, 6), methods=("classifier", "rslh"), n_folds=2, n_items=10**6)


@pytest.mark.filterwarnings("ignore::shorthash.errors.AnchorWarning")
@pytest.mark.parametrize(("method", "n_bits"), [("classifier", 4), ("rslh", 6)])
def test_scores_are_those_of_rows_held_out(digits, advice, method, n_bits):
    X, y = digits[0][:500], digits[1][:500]
    fold = balanced_folds(y, 2, 0)
    values = []
    for k in range(2):
        hasher = make_hasher(method, n_bits=n_bits, random_state=0).fit(X[fold != k], y[fold != k])
        codes = hasher.transform(X[fold == k])
        values.append(evaluate(codes, y[fold == k]).map)
    row = next(r for r in advice.rows if (r.method, r.n_bits) == (method, n_bits))
    assert row.map == pytest.approx(np.mean(values))
    assert row.map_std == pytest.approx(np.std(values, ddof=1))


@pytest.fixture
def designs(monkeypatch):
    """Settings of every design of codes."""
    seen, design_codes = [], choosing.design_codes

    def design(*arguments, **options):
        seen.append((options["n_iter"], options["n_starts"]))
        return design_codes(*arguments, **options)

    monkeypatch.setattr(choosing, "design_codes", design)
    return seen


def test_long_codes_are_refined_in_fewer_iterations(digits, designs):
    advise(digits[0][:160], digits[1][:160], lengths=(12,), methods=("auto",), n_folds=2)
    assert set(designs) == {(16, 2)}
    designs.clear()
    found = advise(digits[0][:160], digits[1][:160], lengths=(13,), methods=("auto",), n_folds=2)
    assert set(designs[-2:]) == {(FEW_ITERATIONS, 2)}
    assert found.rows[0].map > 0.9


def test_many_label_sets_are_annealed_from_one_start(digits, monkeypatch, designs):
    monkeypatch.setattr("shorthash.lab.advice.MANY_SETS", 9)
    advise(digits[0][:160], digits[1][:160], lengths=(5,), methods=("auto",), n_folds=2)
    assert set(designs[-2:]) == {(16, 1)}


def test_costs_follow_from_length_and_size(advice):
    for row in advice.rows:
        assert row.ball_coverage == pytest.approx(min(1.0, {2: 4, 4: 11, 6: 22}[row.n_bits] / 2**row.n_bits))
        assert 0 < row.ball_rows <= 1
        assert row.bucket_load == pytest.approx(10**6 / row.occupied)
        assert row.index_bytes > 10**6


def test_the_shortest_code_that_is_nearly_best_is_recommended():
    def row(n_bits, value, method="a"):
        return LengthAdvice(method, n_bits, value, 0.0, 0.0, 0.0, 0.0, 0.0, 1, 1.0, 1, 1)

    rows = [row(4, 0.5), row(6, 0.70), row(8, 0.70 + 0.9 * CLOSE), row(6, 0.705, "b")]
    assert _recommend(rows) == rows[3]
    assert _recommend([row(4, 0.5), row(8, 0.9)]).n_bits == 8


def test_the_sentence_names_the_recommendation(advice):
    assert f"Take {advice.recommended.n_bits} bits with {advice.recommended.method}" in advice.sentence
    assert advice.to_dict()["recommended"]["n_bits"] == advice.recommended.n_bits


def test_posteriors_shared_between_lengths_change_nothing(digits):
    X, y = digits[0][:160], digits[1][:160]
    both = advise(X, y, lengths=(4, 6), methods=("eaph",), n_folds=2)
    alone = advise(X, y, lengths=(6,), methods=("eaph",), n_folds=2)
    assert both.rows[1].map == pytest.approx(alone.rows[0].map)


def test_progress_counts_to_the_end(digits):
    steps = []
    advise(
        digits[0][:100], digits[1][:100], lengths=(3, 4), methods=("lsh",), progress=lambda *step: steps.append(step)
    )
    assert [step[1:] for step in steps] == [(done, 6) for done in range(1, 7)]
    assert {step[0] for step in steps} == {"lsh, 3 bits", "lsh, 4 bits"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"methods": ("nonsense",)}, "'methods' parameter of advise must be one of"),
        ({"n_folds": 1}, "'n_folds'"),
        ({"lengths": (0,)}, "'n_bits' parameter of advise"),
        ({"lengths": ()}, "at least one length"),
    ],
)
def test_bad_arguments(digits, arguments, message):
    with pytest.raises(InvalidInput, match=message):
        advise(digits[0][:100], digits[1][:100], **arguments)


def test_without_labels_neighbours_are_relevant(digits):
    X = digits[0][:200]
    advice = advise(X, lengths=(4,), methods=("pcaitq",), n_folds=2)
    fold, values = balanced_folds(np.zeros(200, dtype=int), 2, 0), []
    for k in range(2):
        hasher = make_hasher("pcaitq", n_bits=4, random_state=0).fit(X[fold != k])
        codes, rows = hasher.transform(X[fold == k]), X[fold == k]
        cosines = rows @ rows.T / np.outer(np.linalg.norm(rows, axis=1), np.linalg.norm(rows, axis=1))
        np.fill_diagonal(cosines, -1)
        relevant = cosines >= np.sort(cosines, axis=1)[:, -5:-4]
        values.append(evaluate(codes, relevance=relevant.astype(int)).map)
    assert advice.rows[0].map == pytest.approx(np.mean(values), abs=1e-3)
    assert advice.n_classes == 0
    with pytest.raises(InvalidInput, match="rslh needs labels"):
        advise(X, lengths=(4,), methods=("rslh",), n_folds=2)
