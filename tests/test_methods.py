import copy
import importlib
import inspect
import pkgutil
import tracemalloc
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import get_tags

import shorthash.learners
from shorthash import RSLH, AnchorRBF, HasherPipeline, load, make_hasher, save
from shorthash.errors import AnchorWarning, InvalidInput, ShorthashWarning
from shorthash.learners import BaseHasher
from shorthash.methods import RECIPES, method_facts, recipes

FRONT = {"n_anchors": 60}


@pytest.fixture
def hasher():
    return make_hasher("rslh", n_bits=8, random_state=0, kernel=FRONT)


def test_streaming_equals_the_plain_pipeline(hasher, digits):
    X, y = digits
    plain = make_pipeline(AnchorRBF(60, random_state=0), RSLH(8, random_state=0)).fit(X, y)
    hasher.fit(X, y)
    assert np.array_equal(hasher[-1].codewords_, plain[-1].codewords_)
    assert np.allclose(hasher[0].mean_, plain[0].mean_, atol=1e-9)
    assert np.allclose(hasher.project(X), plain[-1].project(plain[0].transform(X)), atol=1e-6)
    assert np.array_equal(hasher.transform(X), plain.transform(X))


def test_the_kernel_matrix_never_exists(digits):
    X = np.tile(digits[0], (20, 1)).astype(np.float32)  # 35 940 rows
    y = np.tile(digits[1], 20)
    hasher = make_hasher("rslh", n_bits=8, random_state=0, kernel={"n_anchors": 400})
    hasher.fit(X[:2000], y[:2000])  # compiles and caches what is compiled and cached
    tracemalloc.start()
    hasher.fit(X, y)
    hasher.transform(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    full = len(X) * 400 * 4
    assert peak < 0.9 * full, f"peak of {peak / 2**20:.0f} MiB, the kernel matrix alone has {full / 2**20:.0f}"


def test_transform_is_the_sign_of_project_and_fit_transform_is_both(hasher, digits):
    X, y = digits
    codes = hasher.fit_transform(X, y)
    assert np.array_equal(codes, np.where(hasher.project(X) >= 0, 1, -1))
    assert codes.dtype == np.int8


def test_partial_fit_keeps_the_first_kernel(digits):
    X, y = digits
    hasher = make_hasher("rslh", n_bits=8, random_state=0, kernel=FRONT)
    hasher[0].fit(X)
    anchors = hasher[0].anchors_.copy()
    for part in np.array_split(np.arange(len(X)), 5):
        hasher.partial_fit(X[part], y[part], classes=np.arange(10))
    assert np.array_equal(hasher[0].anchors_, anchors)
    whole = make_hasher("rslh", n_bits=8, random_state=0, kernel=FRONT).fit(X, y)
    assert np.array_equal(hasher[-1].codewords_, whole[-1].codewords_)
    assert np.allclose(hasher[0].mean_, whole[0].mean_, atol=1e-8)
    assert np.array_equal(hasher.transform(X), whole.transform(X))


def test_merge_and_forget(digits):
    X, y = digits
    template = make_hasher("rslh", n_bits=8, random_state=0, kernel=FRONT)
    template[0].fit(X)
    parts = [
        copy.deepcopy(template).partial_fit(X[s], y[s], classes=np.arange(10))
        for s in (slice(0, 900), slice(900, None))
    ]
    first = parts[0].transform(X)
    merged = parts[0].merge(parts[1])
    whole = copy.deepcopy(template).partial_fit(X, y)
    assert merged[-1].n_samples_seen_ == len(X)
    assert np.array_equal(merged.transform(X), whole.transform(X))
    assert np.array_equal(merged.forget(X[900:], y[900:]).transform(X), first)


def test_different_front_ends_do_not_merge(digits):
    X, y = digits
    one, two = (make_hasher("rslh", random_state=s, kernel=FRONT).fit(X, y) for s in (0, 1))
    with pytest.raises(InvalidInput, match="same anchors and bandwidth"):
        one.merge(two)


@pytest.mark.parametrize("name", ["rslh", "nsh", "hcsdh", "sumeaph", "sdh", "fssh"])
def test_a_plain_pipeline_of_scikit_learn_gives_the_same_codes(name, digits):
    X, y = digits
    ours = make_hasher(name, 6, random_state=0, kernel={"n_anchors": 60})
    plain = Pipeline(clone(ours).steps).fit(X, y)
    assert np.count_nonzero(ours.fit(X, y).transform(X) != plain.transform(X)) == 0


def test_the_learner_of_a_pipeline_learns_on_from_features_of_its_kernel(hasher, digits):
    """Only the mean does not move: it belongs to the kernel."""
    X, y = digits
    both = copy.deepcopy(hasher).fit(X[:1000], y[:1000])
    mean = both[0].mean_.copy()
    both[-1].partial_fit(both[0].transform(X[1000:]), y[1000:])
    assert np.array_equal(both[0].mean_, mean)
    assert both[-1].n_samples_seen_ == 1797
    whole = RSLH(8, random_state=0).fit(both[0].transform(X), y)
    np.testing.assert_allclose(
        both[-1].projection_, whole.projection_, rtol=0, atol=1e-8 * np.abs(whole.projection_).max()
    )


def test_a_pipeline_like_any_other(hasher, digits):
    X, y = digits
    hasher.fit(X, y)
    assert isinstance(hasher, HasherPipeline)
    assert hasher[:-1].transform(X[:5]).shape == (5, 60)
    assert hasher[-1].codes_.shape == (1797, 8)
    copy_ = clone(hasher).set_params(hasher__n_bits=4, kernel__n_anchors=30)
    assert copy_.fit(X, y).transform(X[:3]).shape == (3, 4)
    assert hasher.n_features_in_ == 64
    assert hasher.get_feature_names_out().tolist() == [f"rslh{i}" for i in range(8)]
    assert hasher[:1].fit(X).transform(X[:2]).shape == (2, 60)


def test_grid_search_over_front_end_and_learner(digits):
    X, y = digits[0][:600], digits[1][:600]
    grid = {"kernel__n_anchors": [10, 80], "hasher__n_bits": [4, 8]}
    search = GridSearchCV(make_hasher("rslh", random_state=0), grid, cv=2).fit(X, y)
    assert search.best_params_ == {"kernel__n_anchors": 80, "hasher__n_bits": 8}


def test_data_frames(hasher, digits):
    X, y = digits
    frame = pd.DataFrame(X, columns=[f"p{i}" for i in range(64)])
    by_frame = clone(hasher).fit(frame, y)
    assert by_frame.feature_names_in_[0] == "p0"
    assert np.array_equal(by_frame.transform(frame), hasher.fit(X, y).transform(X))


def test_without_centring(digits):
    X, y = digits
    hasher = make_hasher("rslh", n_bits=8, random_state=0, kernel={**FRONT, "center": False}).fit(X, y)
    assert not hasher[0].mean_.any()
    plain = make_pipeline(AnchorRBF(60, center=False, random_state=0), RSLH(8, random_state=0)).fit(X, y)
    assert np.array_equal(hasher.transform(X), plain.transform(X))


def test_fallback_inside_the_pipeline_streams_too(digits):
    """The per-sample solver reads the rows through the kernel; its outcome is that of the one-pass solver."""
    X, y = digits
    one = make_hasher("rslh", n_bits=8, random_state=0, kernel=FRONT).fit(X, y)
    two = make_hasher("rslh", n_bits=8, random_state=0, kernel=FRONT, solver="per-sample").fit(X, y)
    assert np.array_equal(one[-1].codes_, two[-1].codes_)
    largest = np.abs(one[-1].projection_).max()
    assert np.abs(one[-1].projection_ - two[-1].projection_).max() <= 1e-8 * largest


def test_the_authors_preset(digits):
    hasher = make_hasher("rslh", n_bits=8, preset="authors-code", random_state=0)
    learner, kernel = hasher[-1], hasher[0]
    assert (learner.alpha, learner.beta, learner.gamma, learner.ridge) == (7, 1e-2, 1e-4, 1e-6)
    assert (learner.variant, learner.boosting, kernel.bandwidth) == ("authors-code", None, "mean-min-authors")
    assert make_hasher("rslh", preset="authors-code", boosting="mb")[-1].boosting == "mb"


def test_the_authors_bandwidth_ruins_a_small_training_set_and_ours_does_not(digits):
    """1 497 rows, 1 000 anchors, 8 bits: the regression test of the mean-min rule."""
    X, y = digits
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[:1497], order[1497:]
    ours = make_hasher("rslh", n_bits=8, random_state=0).fit(X[train], y[train]).score(X[test], y[test])
    front = {"bandwidth": "mean-min-authors"}
    theirs = make_hasher("rslh", n_bits=8, random_state=0, kernel=front).fit(X[train], y[train])
    assert ours > 0.9
    assert theirs.score(X[test], y[test]) < 0.7


def test_fewer_rows_than_anchors(blobs):
    with pytest.warns(AnchorWarning, match="every row becomes an anchor"):
        hasher = make_hasher("rslh", n_bits=4, random_state=0).fit(*blobs)
    assert hasher.score(*blobs) > 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "rlsh"}, r"'method' parameter of make_hasher must be one of .*'rslh', .* Got 'rlsh'"),
        ({"method": "rslh", "preset": "matlab"}, "'paper', 'authors-code'. Got 'matlab'"),
        ({"method": "rslh", "alhpa": 3}, "RSLH has no parameter 'alhpa' to set here. It has: n_bits, alpha"),
        ({"method": "rslh", "kernel": {"anchors": 3}}, "kernel of rslh has no parameter 'anchors'"),
        ({"method": "rslh", "kernel__anchors": 3}, "kernel of rslh has no parameter 'anchors'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        make_hasher(**arguments)


def test_auto_is_the_default_method():
    assert type(make_hasher()[-1]) is type(make_hasher("auto")[-1])
    assert make_hasher(n_bits=5)[-1].n_bits == 5


def test_kernel_parameters_by_the_convention_of_scikit_learn():
    one = make_hasher("ksh", kernel__n_anchors=7, kernel__center=False, random_state=3)
    two = make_hasher("ksh", kernel={"n_anchors": 7, "center": False}, random_state=3)
    assert one[0].get_params() == two[0].get_params()
    assert (one[0].n_anchors, one[0].center, one[0].random_state) == (7, False, 3)
    assert make_hasher("rslh", kernel={"n_anchors": 5}, kernel__n_anchors=6)[0].n_anchors == 6


def test_bad_rows(hasher, digits):
    X, y = digits
    broken = X.copy()
    broken[3, 5] = np.inf
    with pytest.raises(InvalidInput, match="infinity"):
        hasher.fit(broken, y)
    with pytest.raises(InvalidInput, match="1797 rows and y has 3"):
        hasher.fit(X, [1, 2, 3])
    hasher.fit(X, y)
    with pytest.raises(ValueError, match="X has 63 features, but AnchorRBF is expecting 64"):
        hasher.transform(X[:, :-1])
    with pytest.raises(InvalidInput, match="NaN"):
        hasher.transform(np.full((1, 64), np.nan))


def test_every_hasher_of_the_room_is_public_and_has_a_name():
    """Learners are found by their files; all are exported, and all but the meta-estimators can be made by name."""
    learners = {
        member
        for module in pkgutil.iter_modules(shorthash.learners.__path__, "shorthash.learners.")
        for _, member in inspect.getmembers(importlib.import_module(module.name), inspect.isclass)
        if issubclass(member, BaseHasher) and member is not BaseHasher and not inspect.isabstract(member)
    }
    assert {cls.__name__ for cls in learners} <= set(shorthash.__all__)
    complete = {c for c in learners if all(p.default is not p.empty for p in inspect.signature(c).parameters.values())}
    assert complete == {recipe.learner_class() for recipe in RECIPES.values()}


@pytest.mark.parametrize("name", RECIPES)
def test_every_name_makes_a_pipeline_with_its_kernel(name):
    recipe = RECIPES[name]
    hasher = make_hasher(name, n_bits=6, random_state=0)
    assert [step for step, _ in hasher.steps] == [*recipe.preprocessing, "hasher"]
    assert type(hasher[-1]) is recipe.learner_class()
    assert hasher[-1].n_bits == 6
    for preset in recipe.presets:
        assert type(make_hasher(name, preset=preset)[-1]) is recipe.learner_class()


@pytest.mark.parametrize("name", RECIPES)
def test_facts_agree_with_the_tags_of_the_learner(name):
    """Whether labels are needed, and whether there may be several, is said twice: in the table and by the learner."""
    facts, tags = method_facts(name), get_tags(make_hasher(name)[-1]).target_tags
    assert (facts["supervised"] and not facts["labels_optional"]) == tags.required
    assert facts["multilabel"] == (tags.multi_output or not tags.required)
    assert "n_bits" not in facts["parameters"]
    assert 2000 <= facts["year"] <= 2026
    assert facts["reference"].endswith((".", ")."))


def test_facts_have_the_settings_of_the_recipe_and_its_kernel():
    assert method_facts("ksh")["preprocessing"] == ["AnchorRBF(n_anchors=300)"]
    assert method_facts("sdh")["preprocessing"] == ["AnchorRBF(center=False)", "Bias"]
    assert method_facts("mfh")["presets"] == {"habir": {"settings": {"habir": True}}}
    with pytest.raises(InvalidInput, match="'name' parameter of method_facts must be one of"):
        method_facts("nonsense")


def test_a_method_without_kernel_has_none_to_set():
    with pytest.raises(InvalidInput, match="pcaitq has no kernel, so it has no parameter n_anchors"):
        make_hasher("pcaitq", kernel={"n_anchors": 3})


@pytest.fixture
def own_method(monkeypatch):
    """The method of examples/own_method.py as an installed package offers it; and one that takes a name of ours."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "examples"))
    offered = [
        EntryPoint(name="halves", value="own_method:RECIPE", group="shorthash.methods"),
        EntryPoint(name="rslh", value="own_method:RECIPE", group="shorthash.methods"),
    ]
    monkeypatch.setattr("shorthash.methods._installed", lambda path: EntryPoints(offered))


@pytest.mark.usefixtures("own_method")
def test_an_installed_package_can_offer_a_method(digits):
    X, y = digits
    assert list(recipes())[-1] == "halves"
    hasher = make_hasher("halves", n_bits=5, random_state=0, kernel=FRONT).fit(X, y)
    assert type(hasher[-1]).__name__ == "HalvesHasher"
    assert hasher.transform(X).shape == (1797, 5)
    assert hasher.score(X, y) > 0.3
    assert method_facts("halves")["preprocessing"] == ["AnchorRBF()"]


def test_a_package_is_found_on_the_path_and_looked_up_once(monkeypatch, tmp_path):
    info = tmp_path / "own_method-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-method\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[shorthash.methods]\nhalves = own_method:RECIPE\n")
    assert "halves" not in recipes()
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "examples"))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "halves" in recipes()
    monkeypatch.setattr("shorthash.methods.entry_points", None)
    assert "halves" in recipes()


@pytest.mark.usefixtures("own_method")
def test_names_of_the_house_cannot_be_taken():
    assert type(make_hasher("rslh")[-1]) is RSLH


def test_a_fit_that_fails_leaves_the_fitted_pipeline_alone(hasher, digits):
    X, y = digits
    before = hasher.fit(X, y).transform(X)
    broken = X[::-1] * 5
    broken[-1, 0] = np.nan
    for rows, labels in ((X[::-1] * 5, y[:-1]), (broken, y), (X * 5, np.zeros(len(X)))):
        with pytest.raises(InvalidInput, match=r"inconsistent|NaN|one class"):
            hasher.fit(rows, labels)
        assert np.array_equal(hasher.transform(X), before)
        assert hasher[-1].classes_.tolist() == list(range(10))
    with pytest.raises(InvalidInput, match="unknown classes"):
        hasher.partial_fit(X, y + 20)
    assert np.array_equal(hasher.transform(X), before)


def test_a_first_batch_that_is_refused_does_not_fix_the_anchors(hasher, digits):
    X, y = digits
    with pytest.raises(InvalidInput, match="unknown classes"):
        hasher.partial_fit(X[:100], y[:100], classes=[0, 1])
    assert not hasattr(hasher[0], "anchors_")


def test_set_output_reaches_the_codes(hasher, digits):
    X, y = digits
    frame = pd.DataFrame(X, columns=[f"p{i}" for i in range(64)], index=np.arange(len(X)) + 7)
    codes = hasher.set_output(transform="pandas").fit(frame, y).transform(frame)
    assert codes.columns.tolist() == [f"rslh{i}" for i in range(8)]
    assert codes.index.tolist() == frame.index.tolist()
    assert hasher.fit_transform(frame, y).equals(codes)
    assert hasher.score(frame, y) > 0.5


def test_set_output_of_polars(hasher, digits):
    pl = pytest.importorskip("polars")
    X, y = digits
    frame = pl.DataFrame(X, schema=[f"p{i}" for i in range(64)])
    codes = hasher.set_output(transform="polars").fit(frame, y).transform(frame)
    assert isinstance(codes, pl.DataFrame)
    assert codes.columns == [f"rslh{i}" for i in range(8)]
    np.testing.assert_array_equal(codes.to_numpy(), hasher.set_output(transform="default").transform(frame))


def test_a_broken_package_takes_nothing_with_it(monkeypatch):
    broken = EntryPoints([EntryPoint(name="broken", value="no_such_module:RECIPE", group="shorthash.methods")])
    monkeypatch.setattr("shorthash.methods._installed", lambda path: broken)
    assert make_hasher("sdh", n_bits=4)[-1].n_bits == 4
    with pytest.warns(ShorthashWarning, match=r"method 'broken' .* cannot be loaded .*no_such_module"):
        names = list(recipes())
    assert names == list(RECIPES)


@pytest.mark.usefixtures("own_method")
def test_a_method_of_ones_own_is_saved_and_loaded(digits, tmp_path):
    X, y = digits
    hasher = make_hasher("halves", n_bits=4, kernel=FRONT).fit(X, y)
    save(hasher, tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").transform(X), hasher.transform(X))
