"""Pipelines with steps of scikit-learn are saved like ours."""

import numpy as np
import pytest
from saving import same
from sklearn.decomposition import NMF, PCA
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.discovery import all_estimators

from shorthash import LSH, RSLH, HasherPipeline, load, save
from shorthash.errors import PersistenceError
from shorthash.persistence.saves import SKLEARN

rng = np.random.default_rng(0)
y = np.arange(90) % 3
X = np.abs(rng.normal(size=(90, 6)) + 3 * np.eye(6)[y])

NAMES = sorted(name for names in SKLEARN.values() for name in names.split())
TRANSFORMERS = [cls for name, cls in all_estimators(type_filter="transformer") if name in NAMES]
CLASSIFIERS = [cls for name, cls in all_estimators(type_filter="classifier") if name in NAMES]
SETTINGS = {"Nystroem": {"n_components": 20}, "GaussianRandomProjection": {"n_components": 4}}
SETTINGS["Binarizer"] = {"threshold": 1.0}
SETTINGS["QuantileTransformer"] = {"n_quantiles": 20}
SETTINGS["LogisticRegression"] = {"max_iter": 500}


def test_every_class_of_the_list_is_tried():
    tried = {cls.__name__ for cls in TRANSFORMERS + CLASSIFIERS} | {"FrozenEstimator", "Pipeline"}
    assert tried == set(NAMES)


@pytest.mark.parametrize("cls", TRANSFORMERS, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("pipeline", [HasherPipeline, Pipeline])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_transformer_before_a_hasher(cls, pipeline, tmp_path):
    kernel = X @ X.T if cls.__name__ == "KernelCenterer" else X
    steps = [("step", cls(**SETTINGS.get(cls.__name__, {}))), ("hasher", LSH(4, random_state=0))]
    fitted = pipeline(steps).fit(kernel, y)
    again = load(save(fitted, tmp_path / "model"))
    assert type(again) is pipeline
    assert same(again.transform(kernel), fitted.transform(kernel))
    slim = load(save(fitted, tmp_path / "slim", statistics=False))
    assert same(slim.transform(kernel), fitted.transform(kernel))


@pytest.mark.parametrize("cls", CLASSIFIERS, ids=lambda cls: cls.__name__)
def test_a_classifier(cls, tmp_path):
    fitted = cls(**SETTINGS.get(cls.__name__, {})).fit(X, np.array(["a", "b", "c"])[y])
    again = load(save(fitted, tmp_path / "model"))
    assert again.predict(X).tolist() == fitted.predict(X).tolist()


def test_several_steps(tmp_path):
    fitted = make_pipeline(StandardScaler(), PCA(3), RSLH(3, boosting=None, random_state=0)).fit(X, y)
    again = load(save(fitted, tmp_path / "model"))
    assert same(again.transform(X), fitted.transform(X))


def test_other_steps_are_refused_with_a_way_out(tmp_path):
    fitted = make_pipeline(NMF(2, max_iter=1000, random_state=0), LSH(2, random_state=0)).fit(X)
    with pytest.raises(PersistenceError, match=r"NMF is not among the classes.*apply this step before the pipeline"):
        save(fitted, tmp_path / "model")
