"""The online learners' estimators: scikit-learn's checks, and the model behind them."""

import pickle

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")
from sklearn.base import clone  # noqa: E402
from sklearn.calibration import CalibratedClassifierCV  # noqa: E402
from sklearn.datasets import load_iris  # noqa: E402
from sklearn.linear_model import LinearRegression, LogisticRegression  # noqa: E402
from sklearn.metrics import log_loss  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.multiclass import OneVsRestClassifier  # noqa: E402
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor  # noqa: E402
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
    SketchedRidgeClassifier,
    _online_base,
    _passes,
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
        SketchedNewtonRegressor(method="fd", alpha0=1.0),
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
    model = fs.SketchedNewton(classes=["a", "b"], fit_intercept=True).update(X, y)
    ours = SketchedNewtonClassifier(shuffle=False).fit(X, y)
    assert np.array_equal(ours.coef_[0], model.coef) and ours.intercept_[0] == model.intercept
    parts = SketchedNewtonClassifier()
    for start in range(0, len(X), 100):
        parts.partial_fit(X[start : start + 100], y[start : start + 100], classes=["a", "b"])
    assert np.array_equal(parts.coef_, ours.coef_)
    assert parts.n_samples_seen_ == len(X) and parts.n_iter_ == ours.n_iter_ == 1
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
        {"epochs": "ten"},
        {"method": "fd"},
        {"constraint": "x"},
    ):
        named = "alpha0" if "method" in parameters else next(iter(parameters))
        with pytest.raises((TypeError, ValueError), match=named):
            SketchedNewtonClassifier(**parameters).fit(X, y)


def test_the_adaptive_faces_are_the_adaptive_model():
    X, y = data(classes=3)
    weights = np.random.default_rng(1).random(len(X))
    ours = AdaptiveSubgradientClassifier(7, method="ada_fd", loss="logistic", learning_rate=0.5, shuffle=False).fit(
        X, y, sample_weight=weights
    )
    options = {"method": "ada_fd", "loss": "logistic", "learning_rate": 0.5, "fit_intercept": True}
    # ``fit`` divides by the mean of all weights, a stream by that of the weights so far
    of_mean = fs.AdaptiveSubgradient(7, **options, classes=["a", "b", "c"])
    model = of_mean.copy()._learn(X, y, weights, mean_weight=weights.mean())
    stream = of_mean.update(X, y, sample_weight=weights)
    assert np.allclose(ours.coef_, model.coef, rtol=1e-9)
    ours = AdaptiveSubgradientClassifier(7, method="ada_fd", loss="logistic", learning_rate=0.5, shuffle=False)
    ours, model = ours.fit(X, y), fs.AdaptiveSubgradient(7, **options, classes=["a", "b", "c"]).update(X, y)
    assert np.array_equal(ours.coef_, model.coef) and np.array_equal(ours.intercept_, model.intercept)
    assert ours.model_.classes.tolist() == ["a", "b", "c"]
    assert np.allclose(ours.predict_proba(X).sum(axis=1), 1)
    assert ours.score(X, y) > 0.85
    parts = AdaptiveSubgradientClassifier(7, method="ada_fd", loss="logistic", learning_rate=0.5)
    for start in range(0, len(X), 100):
        part = slice(start, start + 100)
        parts.partial_fit(X[part], y[part], classes=["a", "b", "c"], sample_weight=weights[part])
    assert np.array_equal(parts.coef_, stream.coef)


@pytest.mark.parametrize("kind", [SketchedNewtonRegressor, AdaptiveSubgradientRegressor])
@pytest.mark.parametrize("loss", ["square", "huber", "absolute"])
def test_targets_of_any_unit_whose_squares_are_numbers(kind, loss):
    rng = np.random.default_rng(9)
    X = rng.standard_normal((200, 4))
    y = X @ [1.0, 2.0, 0.0, 0.0]
    expected = kind(loss=loss).fit(X, y).predict(X)
    for unit in (2.0**-400, 2.0**240):
        assert np.allclose(kind(loss=loss).fit(X, unit * y).predict(X) / unit, expected, atol=1e-6)
    with pytest.raises(ValueError, match="y must not be so small.*underflow.*multiply y by a constant"):
        kind(loss=loss).fit(X, 1e-160 * y)
    assert not kind(loss=loss).fit(X, 0 * y).predict(X).any()


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


# -- the order of rows -------------------------------------------------------------------------------------------------
def test_sorted_rows_are_shuffled():
    """The same rows sorted by label have the same accuracy but for chance; taken in their order they warn."""
    X, y = data(3000)
    at = np.argsort(y, kind="stable")
    for cls in (SketchedNewtonClassifier, AdaptiveSubgradientClassifier):
        scores = [cls().fit(X[order], y[order]).score(X, y) for order in (slice(None), at)]
        assert abs(scores[1] - scores[0]) < 0.02
        with pytest.warns(UserWarning, match="labels come in runs"):
            in_order = cls(shuffle=False).fit(X[at], y[at])
        assert in_order.score(X, y) < scores[1] - 0.05
    targets = X @ np.arange(15.0)
    at = np.argsort(targets)
    assert SketchedNewtonRegressor().fit(X[at], targets[at]).score(X, targets) > 0.95


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_random_state(cls, tmp_path):
    """An int is the seed itself; None and a RandomState give one at random; parts of any size have the same bits."""
    X, y = data(300)
    y = np.where(y == "a", 1.0, -1.0) if "Regressor" in cls.__name__ else y
    weights = np.random.default_rng(0).random(300)
    fitted = lambda state, **more: cls(random_state=state, epochs=2, **more).fit(X, y, sample_weight=weights)  # noqa: E731
    assert np.array_equal(fitted(7).coef_, fitted(7).coef_) and not np.array_equal(fitted(7).coef_, fitted(8).coef_)
    drawn = fitted(np.random.RandomState(3))
    assert np.array_equal(drawn.coef_, fitted(np.random.RandomState(3)).coef_)
    assert not np.array_equal(fitted(None).coef_, fitted(None).coef_)
    drawn.save(tmp_path / "drawn.fsk")
    assert np.array_equal(cls.load(tmp_path / "drawn.fsk").coef_, drawn.coef_)
    assert np.array_equal(fitted(7).coef_, fitted(7).set_params(random_state=1, shuffle=False).coef_)
    for wrong, message in ((-1, "random_state must be at least 0"), ("x", "cannot be used to seed")):
        with pytest.raises(ValueError, match=message):
            fitted(wrong)
    with pytest.raises(TypeError, match="shuffle must be"):
        fitted(0, shuffle="yes")


def test_rows_are_shuffled_in_pieces(monkeypatch):
    """A copy of the rows is never made as a whole, and its pieces change no bit."""
    X, y = data(500)
    whole = [SketchedNewtonClassifier().fit(rows, y).coef_ for rows in (X, sparse.csr_array(X * (X > 0.2)))]
    monkeypatch.setattr("fastsketch.sklearn._online_base.COPIED", 3000)
    parts = [SketchedNewtonClassifier().fit(rows, y).coef_ for rows in (X, sparse.csr_array(X * (X > 0.2)))]
    assert all(np.array_equal(one, other) for one, other in zip(whole, parts, strict=True))


def test_several_targets_a_row():
    """They are refused by the name of what takes them, which does."""
    X, _ = data(400)
    Y = (X[:, :3] > 0).astype(int)
    for several in (Y, Y.tolist(), sparse.csr_array(Y), [[0], [0, 1]] * 200):
        with pytest.raises(ValueError, match=r"OneVsRestClassifier or sklearn.multioutput.MultiOutputClassifier"):
            SketchedNewtonClassifier().fit(X, several)
    with pytest.raises(ValueError, match="MultiOutputRegressor"):
        SketchedNewtonRegressor().fit(X, X[:, :2])
    for wrapper in (OneVsRestClassifier, MultiOutputClassifier):
        assert np.mean(wrapper(SketchedNewtonClassifier()).fit(X, Y).predict(X) == Y) > 0.9
    assert MultiOutputRegressor(SketchedNewtonRegressor()).fit(X, X[:, :2]).score(X, X[:, :2]) > 0.9


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


@pytest.mark.parametrize("cls", [SketchedNewtonClassifier, AdaptiveSubgradientClassifier, SketchedRidgeClassifier])
@pytest.mark.parametrize("missing", [None, np.nan])
def test_a_missing_label_is_named_with_its_row(cls, missing):
    X = np.arange(12.0).reshape(6, 2)
    words = ["a", "b", missing, "a", "b", "a"]
    for y in (words, np.array(words, object), [1, 0, None, 1, 0, 1]):
        with pytest.raises(TypeError, match="y must have a label for every row: that of row 2 is (None|nan)"):
            cls().fit(X, y)
        with pytest.raises(TypeError, match="y must have a label for every row: that of row 2 is (None|nan)"):
            cls().partial_fit(X, y, classes=["a", "b"])


@pytest.mark.parametrize("cls", [SketchedNewtonClassifier, AdaptiveSubgradientClassifier, SketchedRidgeClassifier])
@pytest.mark.parametrize("labels", [[1, "a"] * 20, np.array([1, "a"] * 20, object)])
def test_labels_of_two_kinds_are_refused(cls, labels):
    X = np.random.default_rng(0).standard_normal((40, 3))
    with pytest.raises(TypeError, match="y must hold labels of one kind, numbers or strings, got 1 and 'a'"):
        cls().fit(X, labels)
    with pytest.raises(TypeError, match="y must hold labels of one kind"):
        cls().partial_fit(X, labels, classes=["1", "a"])
    with pytest.raises(TypeError, match="classes must hold labels of one kind"):
        cls().partial_fit(X, [1, 2] * 20, classes=[1, "a"])


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


# -- how often rows are learned from -----------------------------------------------------------------------------------
def test_few_rows_without_noise_are_learned_from_often():
    """Iris: as many passes as held-out rows ask for, those of a fit that is told to make as many but for one factor."""
    X, y = load_iris(return_X_y=True)
    for cls in (SketchedNewtonClassifier, AdaptiveSubgradientClassifier):
        ours = cls().fit(X, y)
        passes = ours.n_iter_
        assert passes > 1 and ours.n_samples_seen_ == passes * len(y)
        assert log_loss(y, ours.predict_proba(X)) < 0.8 * log_loss(y, cls(epochs=1).fit(X, y).predict_proba(X))
        told = cls(epochs=passes).fit(X, y)
        factor = ours.coef_[0, 0] / told.coef_[0, 0]
        assert 0.2 < factor <= 1.0
        assert np.allclose(ours.coef_, factor * told.coef_, rtol=1e-12)
        assert np.allclose(ours.decision_function(X), factor * told.decision_function(X), rtol=1e-10)
        assert np.array_equal(ours.coef_, cls().fit(X, y).coef_)


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_noise_asks_for_one_pass(cls):
    """Of ten sets of labels by chance at most four ask for a second: each does with a probability of 16%."""
    asked, n = 0, 600 if hasattr(cls, "predict_proba") else 200  # of fewer labels less is asked for
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((n, 4)), rng.choice([-1.0, 1.0], n)
        asked += cls().fit(X, y).n_iter_ > 1
    assert asked <= 4
    assert cls().fit(X[:9], y[:9]).n_iter_ == 1


@pytest.mark.parametrize("cls", [SketchedNewtonClassifier, AdaptiveSubgradientClassifier])
def test_twenty_rows_do_not_make_it_sure(cls):
    """Labels by chance: nobody can do better than ln 2, and answers are not far from it."""
    losses = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((300, 5)), rng.integers(0, 2, 300)
        p = [one.fit(X[:20], y[:20]).predict_proba(X[20:]) for one in (cls(), cls(epochs=10))]
        losses.append([log_loss(y[20:], each) for each in p])
    ours, ten = np.mean(losses, axis=0)
    assert ours < 0.75 and ours < 0.9 * ten


def test_a_rare_class_counts_as_few_rows():
    """Of 12,000 rows 120 are of one class: weighed evenly they are learned from more than once."""
    rng = np.random.default_rng(0)
    y = np.arange(12_000) % 100 == 0
    X = rng.standard_normal((12_000, 3)) + 1.5 * y[:, None]
    assert SketchedNewtonClassifier().fit(X, y).n_iter_ == 1
    ours = SketchedNewtonClassifier(class_weight="balanced").fit(X, y)
    assert ours.n_iter_ > 1
    recall = [np.mean(ours.predict(X[y == label]) == label) for label in (False, True)]
    assert min(recall) > 0.87


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_one_pass_where_there_is_no_choice(cls, monkeypatch):
    """Many rows, and rows in the order of time."""
    X, y = data(300)
    y = np.where(y == "a", 1.0, -1.0)
    clear = cls().fit(X, y).n_iter_
    assert cls(shuffle=False).fit(X, y).n_iter_ == 1 and cls(decay=0.999).fit(X, y).n_iter_ == 1
    monkeypatch.setattr(_passes, "ENOUGH", 300)
    assert cls().fit(X, y).n_iter_ == 1
    assert clear in _passes.STEPS


def test_passes_are_chosen_with_weights():
    """Rows of weight zero do not count: what they would ask for is not heard."""
    X, y = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    noisy = np.concatenate([y, rng.permutation(y)])
    weights = np.repeat([1.0, 0.0], len(y))
    twice = np.concatenate([X, X])
    heard = SketchedNewtonClassifier().fit(twice, noisy).n_iter_
    assert SketchedNewtonClassifier().fit(twice, noisy, sample_weight=weights).n_iter_ > heard == 1


@pytest.mark.parametrize("cls", [SketchedNewtonClassifier, AdaptiveSubgradientClassifier])
def test_passes_are_chosen_with_weights_of_classes(cls, monkeypatch):
    """Losses of rows that are held out are those of examples with the same weights, label by label."""
    X, y = load_iris(return_X_y=True)
    X, y = X[30:], y[30:]
    seen = []

    def look(learner, losses, even, *, seed, classes, hasty):
        learn, scores = learner()
        odd = np.arange(1, len(even), 2)
        learn(0, odd - 1)
        seen.append(losses(scores(odd), odd) * even[odd])
        return 1, odd[:0], odd[:0]

    monkeypatch.setattr(_online_base, "choose_passes", look)
    weights = len(y) / (3 * np.bincount(y))
    cls(class_weight="balanced").fit(X, y)
    cls(class_weight=dict(enumerate(weights))).fit(X, y)
    cls().fit(X, y, sample_weight=weights[y])
    assert np.allclose(seen[0], seen[2], rtol=1e-9) and np.allclose(seen[0], seen[1], rtol=1e-9)


def test_passes_are_in_the_file(tmp_path):
    X, y = load_iris(return_X_y=True)
    ours = SketchedNewtonClassifier(epochs=3).fit(X, y)
    ours.save(tmp_path / "model")
    again = SketchedNewtonClassifier.load(tmp_path / "model")
    assert again.n_iter_ == 3 and again.partial_fit(X[:5], y[:5]).n_iter_ == 1
    assert SketchedNewtonClassifier.from_model(ours.model_).n_iter_ == 1


def test_a_step_needs_more_than_a_standard_error():
    """Learners that gain .1 a pass on every row, or on the mean of rows that differ by 10."""
    rng = np.random.default_rng(0)
    for noise, passes in ((0.0, 10), (10.0, 1)):

        def learner(noise=noise):
            done = []
            shift = noise * rng.standard_normal(400)
            return lambda epoch, at: done.append(epoch), lambda at: 5 - 0.1 * len(done) + shift[at] * len(done)

        def found(hasty, noise=noise):
            given = {"seed": 0, "classes": None, "hasty": hasty}
            return _passes.choose_passes(learner, lambda scores, at: scores, np.ones(400), **given)[0]

        assert found(hasty=False) == passes


def test_folds_have_classes_alike():
    """Four classes of 40 rows to 5: of each a fifth is held out at a time, at even weights of all."""
    classes = np.repeat([0, 1, 2, 3], [40, 20, 10, 5])
    seen = []

    def learner():
        return lambda epoch, at: seen.append(np.setdiff1d(np.arange(75), at)), lambda at: np.zeros(len(at))

    given = {"seed": 3, "classes": classes, "hasty": True}
    passes, held, scores = _passes.choose_passes(learner, lambda scores, at: scores, np.ones(75), **given)
    assert passes == 1 and len(scores) == 75 and np.array_equal(np.sort(held), np.arange(75))
    folds = {tuple(np.bincount(classes[at])) for at in seen}
    assert folds == {(8, 4, 2, 1)}


def test_weights_as_rows_of_even_weights():
    """Kish's number of rows; of weights zero none, and of any size."""
    assert np.isclose(_passes.effective_weights(np.ones(7)).sum(), 7.0)
    assert np.isclose(_passes.effective_weights(np.array([1e300, 1e300, 0.0])).sum(), 2.0)
    assert not _passes.effective_weights(np.zeros(3)).any()
    weights = np.repeat([50.0, 0.5], [10, 1000])
    assert np.isclose(_passes.effective_weights(weights).sum(), weights.sum() ** 2 / (weights**2).sum())


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_factor_on_scores_has_the_least_loss(n_classes):
    """Scores that are twice too large are halved; right ones stay as they are, also those without a mistake."""
    rng = np.random.default_rng(0)
    true = rng.standard_normal((4000, n_classes)) * 2
    labels = (true + rng.gumbel(size=true.shape)).argmax(axis=1)
    scores = true[:, 1] - true[:, 0] if n_classes == 2 else true
    even = np.ones(len(labels))
    assert 0.46 < _passes.fit_temperature(2 * scores, labels, even) < 0.54
    assert _passes.fit_temperature(0.8 * scores, labels, even) > 0.999
    right = np.where(np.arange(n_classes) == labels[:, None], 6.0, -6.0)
    right = right[:, 1] if n_classes == 2 else right
    assert _passes.fit_temperature(right, labels, even) > 0.999
