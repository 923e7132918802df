"""Parameters that partial_fit cannot follow, and sparse rows that are not consistent, are refused."""

import pickle

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.sklearn import (
    AdaptiveSubgradientClassifier,
    AdaptiveSubgradientRegressor,
    EASERecommender,
    LowRankCompleter,
    LowRankFactors,
    SketchCoder,
    SketchedCovariance,
    SketchedNewtonClassifier,
    SketchedNewtonRegressor,
    SketchedPCA,
    SketchedRidge,
    SketchedRidgeClassifier,
    SketchHasher,
)
from tests.broken import BROKEN, whole

X = np.random.default_rng(0).standard_normal((60, 12))
Y = np.where(X[:, 0] > 0, 1.0, -1.0)
# parameters that may change at any time, and a new value of each; another value of every other parameter
FREE = {
    SketchedPCA: {"whiten": True, "copy": False, "batch_size": 7, "tol": 0.1, "passes": 2},
    SketchedCovariance: {"alpha0": 2.0, "shrinkage": 0.1, "contamination": 0.05, "support_fraction": 0.5},
    SketchHasher: {"output": "bits", "n_neighbors": 4, "oversample": 2.0, "keep_rows": False},
    SketchCoder: {"n_neighbors": 4, "oversample": 2.0, "keep_rows": False},
    EASERecommender: {},
    SketchedRidge: {},
    SketchedRidgeClassifier: {},
    AdaptiveSubgradientClassifier: {"epochs": 3, "shuffle": False, "random_state": 7},
    AdaptiveSubgradientRegressor: {"epochs": 4, "shuffle": False, "random_state": 7},
    SketchedNewtonClassifier: {"epochs": 3, "shuffle": False, "random_state": 7},
    SketchedNewtonRegressor: {"epochs": 4, "shuffle": False, "random_state": 7},
    LowRankCompleter: {"clip": (-9.0, 9.0), "max_iter": 5, "tol": 0.1},
}
OTHER = {"loss": "squared_hinge", "method": "ogd", "form": "dual_averaging", "solver": "svd", "rotation": "random"}
BY_CLASS = {
    SketchedPCA: {"method": "fd", "missing": "em"},
    SketchHasher: {"method": "fd"},
    SketchCoder: {"method": "fd"},
    EASERecommender: {"method": "rfd"},
    SketchedRidge: {"scale": False, "scoring": "log_loss", "solver": "gram"},
    SketchedRidgeClassifier: {"scale": False, "scoring": "squared_error", "solver": "gram"},
    SketchedNewtonClassifier: {"method": "fd"},
    SketchedNewtonRegressor: {"method": "fd", "loss": "huber"},
    AdaptiveSubgradientRegressor: {"loss": "huber"},
    LowRankCompleter: {
        "method": "gaussian",
        "refine": "full",
        "step_rule": "inverse_sqrt",
        "inner_criterion": "previous",
    },
}


def rows_of(cls):
    return np.abs(X) if cls is EASERecommender else X  # events are not negative


def learn(estimator, first=False):
    options = {"classes": [-1.0, 1.0]} if first and "Classifier" in type(estimator).__name__ else {}
    return estimator.partial_fit(rows_of(type(estimator)), Y, **options)


def another(cls, name, value):
    if name in {**OTHER, **BY_CLASS.get(cls, {})}:
        return {**OTHER, **BY_CLASS.get(cls, {})}[name]
    if name == "constraint":
        return "next"
    if name == "scale":
        return None
    if name == "penalty":
        return "l1"
    if isinstance(value, bool):
        return not value
    return 3 if value is None else value + 1


@pytest.mark.parametrize("cls", FREE, ids=lambda cls: cls.__name__)
def test_parameters_that_cannot_be_followed_are_refused(cls):
    names = cls().get_params()
    assert set(FREE[cls]) < set(names)
    for name, value in names.items():
        began = learn(cls(), first=True)
        if name in FREE[cls]:
            learn(began.set_params(**{name: FREE[cls][name]}))
            continue
        new = another(cls, name, value)
        for estimator in (began, pickle.loads(pickle.dumps(began)), cls().fit(rows_of(cls), Y)):
            seen = estimator.n_samples_seen_
            estimator.set_params(**{name: new})
            with pytest.raises(ValueError, match=rf"{name} is {new!r} but learning began with {name}={value!r}"):
                learn(estimator)
            assert seen == estimator.n_samples_seen_
            learn(estimator.set_params(**{name: value}))


def test_fit_begins_again():
    model = learn(SketchedPCA(2)).set_params(n_components=3)
    with pytest.raises(ValueError, match="n_components is 3 but learning began with n_components=2"):
        learn(model)
    assert learn(model.fit(X)).components_.shape == (3, 12)


def test_all_estimators_are_there():
    import fastsketch.sklearn

    with_partial_fit = {n for n in fastsketch.sklearn.__all__ if hasattr(getattr(fastsketch.sklearn, n), "partial_fit")}
    assert {cls.__name__ for cls in FREE} == with_partial_fit
    assert set(fastsketch.sklearn.__all__) - with_partial_fit == {"LowRankFactors"}


def test_a_random_state_may_be_the_same_object():
    state = np.random.RandomState(0)
    learn(learn(SketchHasher(random_state=state)))
    with pytest.raises(ValueError, match="random_state is 5"):
        learn(learn(SketchHasher(random_state=state)).set_params(random_state=5))


def test_estimators_of_before_go_on():
    old = learn(SketchedPCA(2))
    del old._fixed
    learn(old)


@pytest.mark.parametrize(
    "name", [*list(BROKEN)[::7], "coo row too large", "csc32 indptr backwards", "csr values are None"]
)
def test_sparse_rows_that_are_not_consistent_are_refused(name):
    good = abs(whole())
    y = np.where(np.arange(good.shape[0]) % 2, 1.0, -1.0)
    for cls in (*FREE, LowRankFactors):
        fitted = cls().fit(good, y)
        calls = [lambda bad, fitted=fitted: fitted.fit(bad, y)]
        for method in ("transform", "predict", "mahalanobis", "score", "decision_function"):
            if hasattr(fitted, method) and method != "score":
                calls.append(getattr(fitted, method))
        if cls is LowRankFactors:
            calls.append(fitted.inverse_transform)
        if hasattr(fitted, "partial_fit"):
            calls.append(lambda bad, fitted=fitted: fitted.partial_fit(bad, y))
        for call in reversed(calls):
            with pytest.raises(ValueError, match="X is not a consistent"):
                call(BROKEN[name]())


def test_rows_that_are_too_wide_are_refused_before_a_look_at_them():
    wide = np.broadcast_to(np.float32(1), (1, 2**31))
    for cls in (*FREE, LowRankFactors):
        with pytest.raises(ValueError, match=r"X must have fewer than 2\*\*31 columns"):
            cls().fit(wide, [1.0])


@pytest.mark.parametrize("method", [SketchedPCA(2).fit(X).score_samples, SketchedCovariance().fit(X).mahalanobis])
def test_a_file_where_rows_are_taken_says_what_to_do(tmp_path, method):
    file = tmp_path / "rows.npy"
    np.save(file, X)
    for given, kind in (
        (str(file), "the name of a file"),
        (file, "the name of a file"),
        (fs.open_rows(file), "a source"),
    ):
        with pytest.raises(TypeError, match=rf"X is {kind}, .* fs\.map_rows\("):
            method(given)
    fs.map_rows(method, file, output=tmp_path / "out.npy", workers=1)
    assert np.array_equal(np.load(tmp_path / "out.npy"), method(X))
