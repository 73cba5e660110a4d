"""What was saved is loaded unchanged."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from safetensors.numpy import load_file
from saving import Model, Sums, fitted, same

from shorthash import BucketIndex, ScanIndex, load, make_hasher, save
from shorthash.methods import RECIPES
from shorthash.persistence import describe, verify

INDEXES = [ScanIndex, BucketIndex]


def round_trip(value):
    with tempfile.TemporaryDirectory() as folder:
        return load(save(fitted(value), Path(folder) / "model")).value_


DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "<U3", "<U1"]
any_array = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays(dtype, array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | any_array
    | any_array.map(lambda a: a.T)
    | st.builds(np.float32, st.floats(width=32))
    | st.builds(np.int64, st.integers(-(2**63), 2**63 - 1))
    | st.builds(np.bool_, st.booleans())
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.builds(Sums, inner, st.text())
    ),
    max_leaves=6,
)


@settings(max_examples=80)
@given(value=values)
def test_every_value_comes_back_equal(value):
    if value is not None:
        assert same(round_trip(value), value)


def test_arrays_of_objects_that_are_strings_come_back():
    names = np.array(["a", "long name", ""], dtype=object)
    assert round_trip(names).tolist() == names.tolist()
    assert round_trip(names).dtype == object


def test_many_strings_go_to_the_array_file(tmp_path):
    names = np.array([f"näme {i}" for i in range(5000)]).reshape(50, 100)
    save(fitted(names), tmp_path / "model")
    assert same(load(tmp_path / "model").value_, names)
    assert same(load(tmp_path / "model", mmap=True).value_, names)
    assert (tmp_path / "model" / "meta.json").stat().st_size < 5000


def test_a_random_state_goes_on_where_it_was(tmp_path):
    generator = np.random.RandomState(3)
    generator.normal(size=7)
    save(Model(random_state=generator), tmp_path / "model")
    loaded = load(tmp_path / "model").random_state
    assert loaded.normal(size=5).tolist() == generator.normal(size=5).tolist()


def test_parameters_and_private_attributes_come_back(tmp_path):
    model = fitted()
    again = load(save(model, tmp_path / "deep" / "folder" / "model"))
    assert type(again) is Model
    assert again.get_params() == model.get_params()
    assert same(again.weights_, model.weights_)
    assert same(again.statistics_, model.statistics_)
    assert again._seed == 7
    again.weights_ += 1  # loaded arrays belong to the model


def test_a_slim_model_has_no_statistics(tmp_path):
    save(fitted(), tmp_path / "model", statistics=False)
    again = load(tmp_path / "model")
    assert not hasattr(again, "statistics_")
    assert same(again.weights_, fitted().weights_)
    assert describe(tmp_path / "model")["statistics"] is False
    assert describe(tmp_path / "model")["bytes"] < 1000


@pytest.fixture(scope="module")
def hasher():
    rng = np.random.default_rng(0)
    y = np.repeat(["ape", "bee", "cat"], 40)
    X = rng.normal(size=(120, 6)) + 4 * rng.normal(size=(3, 6))[np.repeat([0, 1, 2], 40)]
    pipeline = make_hasher("rslh", n_bits=6, random_state=0, kernel={"n_anchors": 30})
    return pipeline.fit(X, y), X, y


def test_a_fitted_pipeline_encodes_and_learns_on_as_before(hasher, tmp_path):
    pipeline, X, y = hasher
    again = load(save(pipeline, tmp_path / "hasher"))
    assert type(again) is type(pipeline)
    assert same(again.project(X), pipeline.project(X))
    assert again[-1].classes_.tolist() == ["ape", "bee", "cat"]
    assert same(vars(again[-1])["convergence_"], pipeline[-1].convergence_)
    more = load(tmp_path / "hasher").partial_fit(X[:9], y[:9])
    assert same(again.partial_fit(X[:9], y[:9]).project(X), more.project(X))
    assert same(load(tmp_path / "hasher", mmap=True).transform(X), pipeline.transform(X))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_method_comes_back(name, hasher, tmp_path):
    _, X, y = hasher
    kernel = {"n_anchors": 30} if "kernel" in RECIPES[name].preprocessing else None
    pipeline = make_hasher(name, n_bits=2, random_state=0, kernel=kernel)
    pipeline.fit(X, y)
    again = load(save(pipeline, tmp_path / name))
    assert same(again.project(X), pipeline.project(X))
    assert same(again.transform(X), pipeline.transform(X))
    assert same(again[-1], pipeline[-1])


def test_a_slim_pipeline_encodes_as_before(hasher, tmp_path):
    pipeline, X, _ = hasher
    save(pipeline, tmp_path / "full")
    save(pipeline, tmp_path / "slim", statistics=False)
    assert same(load(tmp_path / "slim").transform(X), pipeline.transform(X))
    assert describe(tmp_path / "slim")["bytes"] < describe(tmp_path / "full")["bytes"]


def test_a_description_needs_only_the_meta_file(hasher, tmp_path):
    pipeline, _, _ = hasher
    save(pipeline, tmp_path / "hasher")
    (tmp_path / "hasher" / "arrays.safetensors").unlink()
    about = describe(tmp_path / "hasher")
    assert about["kind"] == "pipeline"
    assert about["class"] == "HasherPipeline"
    assert (about["n_bits"], about["n_features_in"], about["n_samples_seen"]) == (6, 6, 120)
    kernel, learner = (step for _, step in about["params"]["steps"])
    assert (kernel["class"], kernel["n_anchors"]) == ("AnchorRBF", 30)
    assert (learner["class"], learner["boosting"]) == ("RSLH", "mb")
    json.dumps(about)


@pytest.mark.parametrize("make", INDEXES)
@pytest.mark.parametrize("n_bits", [1, 9, 16, 64])
@pytest.mark.parametrize("ids", ["numbered", "given", "strings"])
@pytest.mark.parametrize("mmap", [False, True])
def test_an_index_comes_back_equal(make, n_bits, ids, mmap, tmp_path):
    rng = np.random.default_rng(n_bits)
    codes = rng.integers(0, 2 ** min(n_bits, 63), size=300, dtype=np.uint64)
    given_ids = {"numbered": None, "given": rng.permutation(300) - 5, "strings": [f"i{i}" for i in range(300)]}[ids]
    index = make(n_bits).add(codes, ids=given_ids)
    index.remove(index.ids[10:20])
    again = load(save(index, tmp_path / "index"), mmap=mmap)
    assert type(again) is make
    assert again.n_bits == n_bits
    assert same(again.ids, index.ids)
    assert same(again.codes, index.codes)
    for ties in ("id", "insertion", "shuffle"):
        found, truth = again.search(codes[:9], 20, ties=ties), index.search(codes[:9], 20, ties=ties)
        assert same(found.ids, truth.ids)
        assert same(found.distances, truth.distances)
    new = None if ids != "strings" else ["new"]
    assert again.add(codes[:1], ids=new).ids.tolist() == index.add(codes[:1], ids=new).ids.tolist()
    again.remove(again.ids[:3])
    assert len(load(tmp_path / "index")) == 290
    assert describe(tmp_path / "index")["n_items"] == 290
    verify(tmp_path / "index")


def test_an_empty_index_comes_back(tmp_path):
    assert len(load(save(BucketIndex(33), tmp_path / "index"))) == 0


def test_another_reader_of_safetensors_finds_the_arrays(tmp_path):
    save(fitted(), tmp_path / "model")
    found = load_file(tmp_path / "model" / "arrays.safetensors")
    assert same(found["Model.weights_"], fitted().weights_)
