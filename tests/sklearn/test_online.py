"""The online learners' estimators: scikit-learn's checks, and the model behind them."""

import pickle

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")
from sklearn.base import clone  # noqa: E402
from sklearn.calibration import CalibratedClassifierCV  # noqa: E402
from sklearn.linear_model import LinearRegression, LogisticRegression  # noqa: E402
from sklearn.metrics import log_loss  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.class_weight import compute_class_weight  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

import fastsketch as fs  # noqa: E402
from fastsketch.sklearn import (  # noqa: E402
    AdaptiveSubgradientClassifier,
    AdaptiveSubgradientRegressor,
    SketchedNewtonClassifier,
    SketchedNewtonRegressor,
)

# of scikit-learn's own online learners as well
NOT_FOR_ONLINE = {
    name: "a weight scales the loss of one round; it does not repeat the round"
    for name in ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data")
}


def not_for(estimator):
    """Return the checks that are expected to fail."""
    if not isinstance(estimator, SketchedNewtonClassifier | AdaptiveSubgradientClassifier):
        return NOT_FOR_ONLINE
    if isinstance(estimator, AdaptiveSubgradientClassifier) and estimator.method == "ada_diag":
        return NOT_FOR_ONLINE
    why = "labels that weigh 10^7 times others: a step is no longer for that, and one pass over 100 rows too short"
    return {**NOT_FOR_ONLINE, "check_class_weight_classifiers": why}


@parametrize_with_checks(
    [
        SketchedNewtonClassifier(),
        SketchedNewtonClassifier(loss="logistic", constraint=None, alpha0=1.0),
        SketchedNewtonRegressor(),
        SketchedNewtonRegressor(method="fd", alpha0=1.0),
        AdaptiveSubgradientClassifier(),
        AdaptiveSubgradientClassifier(method="ada_fd", form="dual_averaging"),
        AdaptiveSubgradientClassifier(loss="logistic", method="ada_diag", penalty="l1", penalty_strength=1e-3),
        AdaptiveSubgradientRegressor(),
        AdaptiveSubgradientRegressor(method="ada_diag"),
    ],
    expected_failed_checks=not_for,
)
def test_estimator_check(estimator, check):
    check(estimator)


def data(n=1200, d=15, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) / 4
    scores = X @ rng.standard_normal((d, classes)) + 0.2 * rng.standard_normal((n, classes))
    return X, np.array(["a", "b", "c", "d"])[scores.argmax(axis=1)]


@pytest.mark.parametrize(
    "options", [{}, {"loss": "logistic", "constraint": None, "alpha0": 1.0}], ids=["default", "logistic"]
)
@pytest.mark.parametrize("classes", [2, 4])
def test_accuracy_is_near_that_of_logistic_regression(classes, options):
    X, y = data(classes=classes)
    ours = SketchedNewtonClassifier(12, **options, epochs=3).fit(X[:900], y[:900])
    theirs = LogisticRegression().fit(X[:900], y[:900])
    assert ours.score(X[900:], y[900:]) > theirs.score(X[900:], y[900:]) - 0.04
    assert ours.coef_.shape == theirs.coef_.shape
    assert ours.intercept_.shape == theirs.intercept_.shape
    assert ours.decision_function(X).shape == theirs.decision_function(X).shape


def test_it_is_sketched_newton():
    X, y = data()
    model = fs.SketchedNewton(classes=["a", "b"], fit_intercept=True).update(X, y)
    ours = SketchedNewtonClassifier().fit(X, y)
    assert np.array_equal(ours.coef_[0], model.coef) and ours.intercept_[0] == model.intercept
    parts = SketchedNewtonClassifier()
    for start in range(0, len(X), 100):
        parts.partial_fit(X[start : start + 100], y[start : start + 100], classes=["a", "b"])
    assert np.array_equal(parts.coef_, ours.coef_)
    assert parts.n_iter_ == len(X)
    assert np.array_equal(pickle.loads(pickle.dumps(ours)).predict(X), ours.predict(X))
    bare = SketchedNewtonClassifier(fit_intercept=False, scale=None, calibrate=False).fit(X, y)
    assert (bare.intercept_ == 0).all()


def test_sparse_rows():
    X, y = data()
    X = X * (np.random.default_rng(1).random(X.shape) < 0.2)
    options = {"fit_intercept": False, "scale": None, "calibrate": False}  # moments of sparse rows are others
    dense = SketchedNewtonClassifier(**options).fit(X, y)
    wide = SketchedNewtonClassifier(**options).fit(sparse.csr_array(X), y)
    assert np.mean(dense.predict(X) == wide.predict(X)) > 0.99  # the same but for rounding
    assert SketchedNewtonClassifier().fit(sparse.csr_matrix(X), y).score(sparse.csr_matrix(X), y) > 0.6


def test_probabilities():
    X, y = data(classes=4)
    for options in ({}, {"loss": "logistic"}):
        p = SketchedNewtonClassifier(**options).fit(X, y).predict_proba(X)
        assert p.shape == (len(X), 4) and np.allclose(p.sum(axis=1), 1) and (p >= 0).all()
        assert np.mean(p.argmax(axis=1) == np.searchsorted(["a", "b", "c", "d"], y)) > 0.7


def test_regression():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 12))
    y = X @ rng.standard_normal(12) + 3 + 0.1 * rng.standard_normal(2000)
    ours = SketchedNewtonRegressor(14, epochs=4).fit(X, y)
    theirs = LinearRegression().fit(X, y)
    assert ours.score(X, y) > 0.98
    assert np.allclose(ours.coef_, theirs.coef_, atol=0.2)
    assert np.allclose(X @ ours.coef_ + ours.intercept_, ours.predict(X))
    parts = SketchedNewtonRegressor(14)
    for start in range(0, 2000, 400):
        parts.partial_fit(X[start : start + 400], y[start : start + 400])
    assert parts.score(X, y) > 0.95
    assert SketchedNewtonRegressor().fit(X, np.full(2000, 7.0)).predict(X) == pytest.approx(7.0, rel=1e-3)


def test_bad_input():
    X, y = data()
    with pytest.raises(ValueError, match="classes must be given"):
        SketchedNewtonClassifier().partial_fit(X, y)
    model = SketchedNewtonClassifier().partial_fit(X, y, classes=["a", "b"])
    before = model.coef_
    with pytest.raises(ValueError, match="not in classes"):
        model.partial_fit(X, np.where(y == "a", "z", y))
    with pytest.raises(ValueError, match="those of the first call"):
        model.partial_fit(X, y, classes=["a", "c"])
    with pytest.raises(TypeError, match=r"name of a file, .* takes rows: partial_fit\(rows, y\) learns the chunks"):
        SketchedNewtonClassifier().fit("x.csv", y)
    with pytest.raises(TypeError, match=r"takes rows: fs.map_rows\(estimator.predict, X"):
        model.predict("x.csv")
    assert np.array_equal(model.coef_, before)
    for parameters in (
        {"sketch_size": 1},
        {"loss": "x"},
        {"epochs": 0},
        {"method": "fd"},
        {"constraint": "x"},
    ):
        named = "alpha0" if "method" in parameters else next(iter(parameters))
        with pytest.raises((TypeError, ValueError), match=named):
            SketchedNewtonClassifier(**parameters).fit(X, y)


def test_the_adaptive_faces_are_the_adaptive_model():
    X, y = data(classes=3)
    weights = np.random.default_rng(1).random(len(X))
    ours = AdaptiveSubgradientClassifier(7, method="ada_fd", loss="logistic", learning_rate=0.5).fit(
        X, y, sample_weight=weights
    )
    options = {"method": "ada_fd", "loss": "logistic", "learning_rate": 0.5, "fit_intercept": True}
    model = fs.AdaptiveSubgradient(7, **options, classes=["a", "b", "c"]).update(X, y, sample_weight=weights)
    assert np.array_equal(ours.coef_, model.coef) and np.array_equal(ours.intercept_, model.intercept)
    assert ours.model_.classes.tolist() == ["a", "b", "c"]
    assert np.allclose(ours.predict_proba(X).sum(axis=1), 1)
    assert ours.score(X, y) > 0.85
    parts = AdaptiveSubgradientClassifier(7, method="ada_fd", loss="logistic", learning_rate=0.5)
    for start in range(0, len(X), 100):
        part = slice(start, start + 100)
        parts.partial_fit(X[part], y[part], classes=["a", "b", "c"], sample_weight=weights[part])
    assert np.array_equal(parts.coef_, ours.coef_)


def test_adaptive_regression():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 15))
    y = 1000 + 50 * (X @ rng.standard_normal(15)) + rng.standard_normal(3000)
    ours = AdaptiveSubgradientRegressor(15, epochs=4).fit(X[:2000], y[:2000])
    assert ours.score(X[2000:], y[2000:]) > 0.97
    sparse_too = AdaptiveSubgradientRegressor(15, epochs=4).fit(sparse.csr_array(X[:2000]), y[:2000])
    assert np.allclose(sparse_too.coef_, ours.coef_)
    weighted = AdaptiveSubgradientRegressor(15).fit(X, y, sample_weight=np.ones(3000))
    assert np.array_equal(weighted.coef_, AdaptiveSubgradientRegressor(15).fit(X, y).coef_)
    with pytest.raises(ValueError, match="[Nn]egative"):
        AdaptiveSubgradientRegressor().fit(X, y, sample_weight=-np.ones(3000))


ESTIMATORS = (
    SketchedNewtonClassifier,
    SketchedNewtonRegressor,
    AdaptiveSubgradientClassifier,
    AdaptiveSubgradientRegressor,
)


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_unknown_keywords_are_named(cls):
    with pytest.raises(TypeError, match="has no parameter 'epoch': did you mean 'epochs'"):
        cls(epoch=2)
    with pytest.raises(TypeError, match="positional"):
        cls(5, "rfd")


# -- labels and their weights --------------------------------------------------------------------------------------
@pytest.mark.parametrize("labels", [[3, 7], [False, True], ["no", "yes"], [-1.0, 1.0], [2, 5, 9], ["x", "y", "z"]])
@pytest.mark.parametrize("cls", [SketchedNewtonClassifier, AdaptiveSubgradientClassifier])
def test_labels_of_any_kind(cls, labels):
    X, y = data(classes=len(labels))
    y = np.array(labels)[np.searchsorted(["a", "b", "c"][: len(labels)], y)]
    model = cls().fit(X, y)
    assert model.classes_.tolist() == labels and model.predict(X).dtype == y.dtype
    assert model.score(X, y) > 0.8
    assert np.array_equal(model.model_.predict(X), model.predict(X))
    again = pickle.loads(pickle.dumps(clone(model).fit(X, y)))
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("cls", [SketchedNewtonClassifier, AdaptiveSubgradientClassifier])
def test_class_weights(cls):
    X, y = data(n=20_000)
    some = (y == "a") | (np.arange(len(y)) % 10 == 0)  # one in ten of "b"
    X, y = X[some], y[some]
    found = [cls(class_weight=weights).fit(X, y).predict(X) for weights in (None, "balanced", {"b": 3.0})]
    recall = [np.mean(predicted[y == "b"] == "b") for predicted in found]
    assert recall[1] > recall[0] and recall[2] > recall[0]
    # "balanced" of fit counts all labels of y
    weights = compute_class_weight("balanced", classes=np.array(["a", "b"]), y=y)
    fixed = cls(class_weight=dict(zip(["a", "b"], weights.tolist(), strict=True))).fit(X, y)
    assert np.array_equal(cls(class_weight="balanced").fit(X, y).coef_, fixed.coef_)
    parts = cls(class_weight="balanced").partial_fit(X, y, classes=["a", "b"])
    assert np.mean(parts.predict(X[y == "b"]) == "b") > recall[0]
    with pytest.raises(ValueError, match="class_weight"):
        cls(class_weight="heavy").fit(X, y)


def test_a_loss_of_real_targets_is_none_of_a_classifier():
    X, y = data()
    with pytest.raises(ValueError, match="loss='square' takes real targets"):
        SketchedNewtonClassifier(loss="square").fit(X, y)


def test_in_a_pipeline_calibrated_and_searched():
    X, y = data(classes=3)
    model = make_pipeline(StandardScaler(), SketchedNewtonClassifier())
    assert model.fit(X, y).predict_proba(X).shape == (len(X), 3)
    calibrated = CalibratedClassifierCV(SketchedNewtonClassifier(), cv=2).fit(X, y)
    assert log_loss(y, calibrated.predict_proba(X)) < 0.8 * np.log(3)
    search = GridSearchCV(SketchedNewtonClassifier(), {"sketch_size": [2, 10]}, cv=2, scoring="neg_log_loss").fit(X, y)
    assert search.best_params_["sketch_size"] in (2, 10)
