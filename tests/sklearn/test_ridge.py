"""SketchedRidge and SketchedRidgeClassifier against scikit-learn's Ridge and RidgeClassifier, and its checks."""

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")
from sklearn.linear_model import Ridge, RidgeClassifier, RidgeCV  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

import fastsketch as fs  # noqa: E402
from fastsketch.sklearn import SketchedRidge, SketchedRidgeClassifier  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.standard_normal((400, 12)) * np.geomspace(3.0, 0.3, 12) + 1.0
Y = X @ RNG.standard_normal((12, 3)) + RNG.standard_normal((400, 3)) + 5.0
LABELS = np.array(["a", "b", "c"])[Y.argmax(axis=1)]


NOT_WITH_A_SKETCH = {
    name: "three rows of a sketch are few: repeated ones leave others"
    for name in ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data")
}


@parametrize_with_checks(
    [SketchedRidge(3, solver="gram"), SketchedRidgeClassifier(ridge=1.0)],
    expected_failed_checks=lambda estimator: NOT_WITH_A_SKETCH if estimator.solver == "gram" else {},
)
def test_estimator_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("rows", [X, sparse.csr_array(X)], ids=["dense", "sparse"])
@pytest.mark.parametrize("targets", [Y, Y[:, 0]], ids=["many", "one"])
def test_few_columns_have_the_coefficients_of_ridge(rows, targets):
    weights = RNG.random(400)
    ours = SketchedRidge(ridge=2.5, scale=False).fit(rows, targets, sample_weight=weights)
    theirs = Ridge(2.5).fit(X, targets, sample_weight=weights)
    assert ours.coef_.shape == theirs.coef_.shape and np.allclose(ours.coef_, theirs.coef_)
    assert np.shape(ours.intercept_) == np.shape(theirs.intercept_) and np.allclose(ours.intercept_, theirs.intercept_)
    assert np.allclose(ours.predict(rows), theirs.predict(X))
    assert ours.ridge_ == 2.5 and ours.n_samples_seen_ == 400


def test_dense_columns_are_standardised_and_the_ridge_is_that_of_ridge_cv():
    units = X * np.geomspace(1e-3, 1e3, 12)
    ours = SketchedRidge().fit(units, Y)
    theirs = make_pipeline(StandardScaler(), RidgeCV(ours.model_.score_path().ridges)).fit(units, Y / Y.std(axis=0))
    assert ours.ridge_ == pytest.approx(theirs[-1].alpha_)
    assert np.allclose(ours.predict(units), theirs.predict(units) * Y.std(axis=0), atol=1e-6)
    plain = SketchedRidge(ridge=2.5).fit(sparse.csr_array(X), Y)
    assert np.allclose(plain.coef_, Ridge(2.5).fit(X, Y).coef_)


def test_intervals_of_the_estimator_are_those_of_its_model():
    estimator = SketchedRidge().fit(X[:300], Y[:300])
    lower, upper = estimator.predict_interval(X[300:], coverage=0.8)
    expected = estimator.model_.predict_interval(X[300:], coverage=0.8)
    assert np.array_equal(lower, expected.lower) and np.array_equal(upper, expected.upper)
    assert lower.shape == (100, 3) and 0.7 < np.mean((lower <= Y[300:]) & (Y[300:] <= upper)) < 0.9
    with pytest.raises(ValueError, match="coverage must lie"):
        estimator.predict_interval(X, coverage=1.0)
    with pytest.raises(ValueError, match="12 features"):
        estimator.predict_interval(X[:, 1:])


@pytest.mark.parametrize("class_weight", [None, "balanced", {"a": 3.0, "b": 1.0, "c": 0.5}])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_labels_are_targets_of_ridge_classifier(class_weight, n_classes):
    chosen = np.isin(LABELS, ["a", "b", "c"][:n_classes])
    rows, labels, weights = X[chosen], LABELS[chosen], RNG.random(400)[chosen]
    if isinstance(class_weight, dict):
        class_weight = {label: class_weight[label] for label in np.unique(labels)}
    ours = SketchedRidgeClassifier(ridge=2.5, scale=False, class_weight=class_weight)
    ours.fit(rows, labels, sample_weight=weights)
    if class_weight == "balanced":  # of sums of weights: RidgeClassifier counts rows
        counts = {label: weights[labels == label].sum() for label in np.unique(labels)}
        class_weight = {label: weights.sum() / (n_classes * count) for label, count in counts.items()}
    theirs = RidgeClassifier(2.5, class_weight=class_weight).fit(rows, labels, sample_weight=weights)
    assert np.allclose(ours.coef_, theirs.coef_) and np.allclose(ours.intercept_, theirs.intercept_)
    assert np.allclose(ours.decision_function(rows), theirs.decision_function(rows))
    assert np.array_equal(ours.predict(rows), theirs.predict(rows))


def test_batches_are_the_whole():
    whole = SketchedRidge(ridge=1.0).fit(X, Y)
    parts = SketchedRidge(ridge=1.0)
    for at in range(0, 400, 90):
        parts.partial_fit(X[at : at + 90], Y[at : at + 90])
    assert np.allclose(parts.coef_, whole.coef_)
    classifier = SketchedRidgeClassifier(ridge=1.0).partial_fit(X[:5], LABELS[:5], classes=["a", "b", "c"])
    classifier.partial_fit(X[5:], LABELS[5:], classes=["c", "b", "a"])
    assert np.allclose(classifier.coef_, SketchedRidgeClassifier(ridge=1.0).fit(X, LABELS).coef_)


def test_a_pipeline_in_a_search():
    search = GridSearchCV(
        make_pipeline(StandardScaler(), SketchedRidge()), {"sketchedridge__ridge": [1.0, 1e6]}, cv=3
    ).fit(X, Y)
    assert search.best_params_ == {"sketchedridge__ridge": 1.0}
    assert search.predict(X).shape == Y.shape and search.score(X, Y) > 0.5


def test_what_a_classifier_refuses():
    begun = SketchedRidgeClassifier().partial_fit(X, LABELS, classes=["a", "b", "c"])
    before = begun.model_.to_bytes()
    for labels, more, message in (
        (LABELS, {"classes": ["a", "b"]}, "classes must be those of the first call"),
        (np.where(LABELS == "a", "z", LABELS), {}, "y must hold the classes .* got .*z"),
    ):
        with pytest.raises(ValueError, match=message):
            begun.partial_fit(X, labels, **more)
    with pytest.raises(ValueError, match="classes must be given"):
        SketchedRidgeClassifier().partial_fit(X, LABELS)
    with pytest.raises(ValueError, match="class_weight='balanced' is of fit"):
        SketchedRidgeClassifier(class_weight="balanced").partial_fit(X, LABELS, classes=["a", "b", "c"])
    with pytest.raises(ValueError, match="at least two classes, got one class"):
        SketchedRidgeClassifier().fit(X, LABELS[:1].repeat(400))
    assert begun.model_.to_bytes() == before
    with pytest.raises(ValueError, match="other has the classes"):
        begun.merge(SketchedRidgeClassifier().fit(X, np.char.add(LABELS, "!")))
    with pytest.raises(TypeError, match="from_model"):
        fs.run(SketchedRidgeClassifier(), np.column_stack([X, Y[:, 0] > 0]), target=-1)


def test_a_classifier_keeps_its_labels(tmp_path):
    weights = {"a": 2.0, "b": 1.0, "c": 1.0}
    whole = SketchedRidgeClassifier(class_weight=weights).fit(X, LABELS)
    whole.save(tmp_path / "c.fsk")
    other = SketchedRidgeClassifier.load(tmp_path / "c.fsk")
    assert other.class_weight == weights and np.array_equal(other.predict(X), whole.predict(X))
    parts = [
        SketchedRidgeClassifier(ridge=1.0).partial_fit(rows, labels, classes=["a", "b", "c"])
        for rows, labels in ((X[:150], LABELS[:150]), (X[150:], LABELS[150:]))
    ]
    merged = parts[0].merge(parts[1])
    assert np.allclose(merged.coef_, SketchedRidgeClassifier(ridge=1.0).fit(X, LABELS).coef_)
    model = fs.SketchedRidge(ridge=1.0).update(X, np.where(LABELS == "a", 1.0, -1.0)[:, None])
    assert set(SketchedRidgeClassifier.from_model(model).predict(X)) == {-1.0, 1.0}
    assert set(SketchedRidgeClassifier.from_model(parts[1].model_).predict(X)) == {0, 1, 2}


def fitted_state(estimator):
    """Return all that a fit leaves, the model by its bytes."""
    state = {name: value for name, value in vars(estimator).items() if name not in ("_entered", "model_")}
    return {**state, "model_": estimator.model_.to_bytes()}


REFUSED = {
    "one class": lambda: (SketchedRidgeClassifier(), LABELS[:1].repeat(300), {}),
    "kinds of labels": lambda: (SketchedRidgeClassifier(), np.array([1, "a", 2] * 100, object), {}),
    "a weight of no class": lambda: (SketchedRidgeClassifier(class_weight={"z": 1.0}), LABELS[:300], {}),
    "weights": lambda: (SketchedRidge(), Y[:300], {"sample_weight": -np.ones(300)}),
    "a target": lambda: (SketchedRidge(), np.where(np.arange(300) == 7, np.inf, Y[:300, 0]), {}),
    "a target too large": lambda: (SketchedRidge(), Y[:300] * 1e200, {}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_fit_leaves_the_estimator_as_it_was(name):
    estimator, y, more = REFUSED[name]()
    parameters = estimator.get_params()
    estimator.set_params(**type(estimator)().get_params()).fit(X, LABELS if hasattr(estimator, "class_weight") else Y)
    before = fitted_state(estimator)
    estimator.set_params(**parameters)
    with pytest.raises((TypeError, ValueError)):
        estimator.fit(X[:300, :5], y, **more)
    after = fitted_state(estimator)
    assert after.pop("model_") == before.pop("model_")
    assert all(np.all(after[key] == before[key]) for key in before.keys() - parameters.keys())


def test_weights_of_classes_in_batches_of_one_class():
    weights = {"a": 3.0, "b": 1.0, "c": 0.5}
    order = np.argsort(LABELS, kind="stable")
    whole = RidgeClassifier(2.5, class_weight=weights).fit(X, LABELS)
    parts = SketchedRidgeClassifier(ridge=2.5, scale=False, class_weight=weights)
    for label in "abc":
        own = order[LABELS[order] == label]
        parts.partial_fit(X[own], LABELS[own], classes=["a", "b", "c"])
    assert np.allclose(parts.coef_, whole.coef_)
    some = SketchedRidgeClassifier(ridge=2.5, class_weight={"a": 3.0})  # what is not named weighs 1
    some.partial_fit(X[LABELS == "b"], LABELS[LABELS == "b"], classes=["a", "b", "c"])
    assert some.model_.total_weight == (LABELS == "b").sum()


@pytest.mark.parametrize("class_weight", [-2, "x", {"a": -1.0}, [3]])
def test_class_weight_is_checked_by_its_name(class_weight):
    for learn in (lambda c: c.fit(X, LABELS), lambda c: c.partial_fit(X, LABELS, classes=["a", "b", "c"])):
        with pytest.raises((TypeError, ValueError), match="class_weight"):
            learn(SketchedRidgeClassifier(class_weight=class_weight))


# -- wide rows, which fit reads again ----------------------------------------------------------------------------------
NARROW = {"sketch_size": 8, "solver": "gram", "scale": False}
WIDE = RNG.standard_normal((900, 80)) * 0.95 ** np.arange(80) + 1.0
WIDE_Y = WIDE @ RNG.standard_normal((80, 2)) + 4.0 * RNG.standard_normal((900, 2))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, lambda x: x.astype(np.float32)])
def test_fit_reads_wide_rows_until_it_is_ridge(form):
    rows, weights = form(WIDE), RNG.random(900)
    dense = np.asarray(rows.toarray() if sparse.issparse(rows) else rows, np.float64)
    theirs = Ridge(2.5, solver="cholesky").fit(dense, WIDE_Y, sample_weight=weights)
    ours = SketchedRidge(ridge=2.5, **NARROW).fit(rows, WIDE_Y, sample_weight=weights)
    once = SketchedRidge(ridge=2.5, passes=0, **NARROW).fit(rows, WIDE_Y, sample_weight=weights)
    off = [np.abs(model.coef_ - theirs.coef_).max() / np.abs(theirs.coef_).max() for model in (ours, once)]
    assert off[0] < 1e-3 < 0.02 < off[1]
    assert ours.model_.facts()["passes"] < 50 and "passes" not in once.model_.facts()
    lower, upper = ours.predict_interval(dense)
    assert 0.85 < np.mean((lower <= WIDE_Y) & (upper >= WIDE_Y)) < 0.95
    # what comes later is read once
    batch = ours.partial_fit(rows[:5], WIDE_Y[:5])
    assert "passes" not in batch.model_.facts()


def test_fit_keeps_the_sketch_where_rows_held_out_prefer_it(monkeypatch):
    assert SketchedRidge(**NARROW).fit(WIDE, WIDE_Y).model_.facts()["passes"] > 0
    once = SketchedRidge(passes=0, **NARROW).fit(WIDE, WIDE_Y)
    errors = iter([1.0, 2.0])  # of the sketch, and of all rows
    monkeypatch.setattr("fastsketch.ridge._sketched_ridge.least_error", lambda choice: next(errors))
    kept = SketchedRidge(**NARROW).fit(WIDE, WIDE_Y)
    assert "passes" not in kept.model_.facts() and np.array_equal(kept.coef_, once.coef_)


def test_passes_of_fit_are_checked():
    for wrong in (-1, 1.5, "many"):
        with pytest.raises((TypeError, ValueError), match="passes"):
            SketchedRidge(passes=wrong).fit(X, Y)
    assert SketchedRidge(decay=0.99, **NARROW).fit(WIDE, WIDE_Y).n_samples_seen_ == 900  # of one pass
