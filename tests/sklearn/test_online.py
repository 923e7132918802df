"""The online learners' estimators: scikit-learn's checks, and the model behind them."""

import pickle

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")
from sklearn.linear_model import LinearRegression, LogisticRegression  # noqa: E402
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


@parametrize_with_checks(
    [
        SketchedNewtonClassifier(),
        SketchedNewtonClassifier(loss="logistic", constraint=None, alpha0=1.0),
        SketchedNewtonRegressor(),
        SketchedNewtonRegressor(method="full", alpha0=1.0),
        AdaptiveSubgradientClassifier(),
        AdaptiveSubgradientClassifier(method="ada_fd", form="dual_averaging"),
        AdaptiveSubgradientClassifier(loss="logistic", method="ada_diag", penalty="l1", penalty_strength=1e-3),
        AdaptiveSubgradientRegressor(),
        AdaptiveSubgradientRegressor(method="ada_diag"),
    ],
    expected_failed_checks=lambda estimator: NOT_FOR_ONLINE,
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
    rows = np.hstack([X, np.ones((len(X), 1))])
    model = fs.SketchedNewton().update(rows, np.where(y == "b", 1.0, -1.0))
    ours = SketchedNewtonClassifier().fit(X, y)
    assert np.array_equal(np.append(ours.coef_, ours.intercept_), model.coef)
    parts = SketchedNewtonClassifier()
    for start in range(0, len(X), 100):
        parts.partial_fit(X[start : start + 100], y[start : start + 100], classes=["a", "b"])
    assert np.array_equal(parts.coef_, ours.coef_)
    assert parts.n_iter_ == len(X)
    assert np.array_equal(pickle.loads(pickle.dumps(ours)).predict(X), ours.predict(X))
    bare = SketchedNewtonClassifier(fit_intercept=False).fit(X, y)
    assert (bare.intercept_ == 0).all()


def test_sparse_rows():
    X, y = data()
    X = X * (np.random.default_rng(1).random(X.shape) < 0.2)
    dense = SketchedNewtonClassifier(fit_intercept=False).fit(X, y)
    wide = SketchedNewtonClassifier(fit_intercept=False).fit(sparse.csr_array(X), y)
    assert np.mean(dense.predict(X) == wide.predict(X)) > 0.99  # the same but for rounding
    assert SketchedNewtonClassifier().fit(sparse.csr_matrix(X), y).score(sparse.csr_matrix(X), y) > 0.6


def test_probabilities():
    X, y = data(classes=4)
    p = SketchedNewtonClassifier(loss="logistic").fit(X, y).predict_proba(X)
    assert p.shape == (len(X), 4)
    assert np.allclose(p.sum(axis=1), 1)
    assert not hasattr(SketchedNewtonClassifier(), "predict_proba")
    assert hasattr(SketchedNewtonClassifier(loss="logistic"), "predict_proba")


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
    assert SketchedNewtonRegressor().fit(X, np.full(2000, 7.0)).predict(X) == pytest.approx(7.0)


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
    rows, weights = np.hstack([X, np.ones((len(X), 1))]), np.random.default_rng(1).random(len(X))
    ours = AdaptiveSubgradientClassifier(7, method="ada_fd", loss="logistic", learning_rate=0.5).fit(
        X, y, sample_weight=weights
    )
    for i, label in enumerate("abc"):
        model = fs.AdaptiveSubgradient(7, method="ada_fd", loss="logistic", learning_rate=0.5)
        model.update(rows, np.where(y == label, 1.0, -1.0), sample_weight=weights)
        assert np.array_equal(np.append(ours.coef_[i], ours.intercept_[i]), model.coef)
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
def test_unknown_and_older_keywords_are_named(cls):
    newton = "Newton" in cls.__name__
    older = {"sketch": "method", "projection": "constraint"} if newton else {"eta": "learning_rate"}
    for key, name in older.items():
        with pytest.raises(TypeError, match=rf"{cls.__name__}\(\) has no '{key}': it is '{name}' now"):
            cls(**{key: 1})
    with pytest.raises(TypeError, match="has no parameter 'epoch': did you mean 'epochs'"):
        cls(epoch=2)
    with pytest.raises(TypeError, match="positional"):
        cls(5, "rfd")


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_random_state(cls):
    """An int is the seed itself; None and a RandomState give one at random, the same for all models of an estimator."""
    X, y = data(classes=2)
    y = np.where(y == "a", 1.0, -1.0) if "Regressor" in cls.__name__ else y
    method = {"method": "rp", "alpha0": 100.0} if "Newton" in cls.__name__ else {"method": "radagrad"}
    fitted = lambda state: cls(5, random_state=state, **method).fit(X[:300], y[:300])  # noqa: E731
    assert fitted(7).models_[0].seed == 7
    assert np.array_equal(fitted(np.random.RandomState(3)).coef_, fitted(np.random.RandomState(3)).coef_)
    assert not np.array_equal(fitted(None).coef_, fitted(None).coef_)
    with pytest.raises(ValueError, match="random_state must be at least 0"):
        fitted(-1)
    with pytest.raises(ValueError, match="cannot be used to seed"):
        fitted("x")
    several = SketchedNewtonClassifier(5, method="rp", alpha0=1.0, random_state=None)
    X, y = data(classes=4)
    assert len({model.seed for model in several.fit(X, y).models_}) == 1
