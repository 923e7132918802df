"""Probabilities of models with class weights, corrected to the frequencies of the rows that were learned."""

import copy
import io
import pickle

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs

RARE = 0.03


def rows_of(seed, n, n_classes, dtype=float):
    """Draw rows (n, 6) and labels, of which all but label 0 are rare, and the true probabilities (n, n_classes)."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 6))
    scores = X[:, :n_classes] * 1.5
    scores[:, 0] = np.log((1 - RARE) / RARE) + 1.0
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    labels = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return X.astype(dtype), labels, p


def log_loss(p, labels):
    """Return the mean logarithmic loss."""
    return float(-np.log(np.maximum(p[np.arange(len(labels)), labels], 1e-12)).mean())


def assert_near(p, plain, labels):
    """Assert that means of corrected probabilities are the frequencies of the classes, better than the plain ones.

    Of two classes within three standard deviations of the number of rare rows. Of more the scores are of each class
    against the rest, and their quotients only nearly probabilities: there the correction must bring them nearer.
    """
    observed = np.bincount(labels) / len(labels)
    corrected, before = (np.abs(np.log(one.mean(axis=0) / observed))[1:] for one in (p, plain))
    assert (corrected < before).all(), (corrected, before)
    if len(observed) == 2:
        assert corrected[0] < 3 / np.sqrt(np.bincount(labels)[1]), corrected


MODELS = {
    "newton": lambda **more: fs.SketchedNewton(**more),
    "newton without calibration": lambda **more: fs.SketchedNewton(calibrate=False, **more),
    "ada_ffd": lambda **more: fs.AdaptiveSubgradient(**more),
    "ada_diag": lambda **more: fs.AdaptiveSubgradient(method="ada_diag", **more),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("class_weight", ["balanced", "dict"])
@pytest.mark.parametrize("name", MODELS)
def test_means_are_the_observed_frequencies(name, class_weight, n_classes):
    X, labels, _ = rows_of(0, 20_000, n_classes)
    other, of_other, truth = rows_of(1, 20_000, n_classes)
    weights = class_weight if class_weight == "balanced" else {0: 1.0, 1: 20.0, 2: 30.0}
    model = MODELS[name](class_weight=weights)
    for start in range(0, len(X), 1000):
        model.update(X[start : start + 1000], labels[start : start + 1000])
    observed = np.bincount(labels) / len(labels)
    plain, corrected = model.predict_proba(other), model.predict_proba(other, prior="observed")
    assert np.allclose(corrected.sum(axis=1), 1)
    assert (plain.mean(axis=0)[1:] > 3 * observed[1:]).all()  # those of balanced classes
    assert_near(corrected, plain, labels)
    assert log_loss(corrected, of_other) < log_loss(truth, of_other) + 0.02 < log_loss(plain, of_other)
    unweighted = MODELS[name]().update(X, labels).predict_proba(other)
    assert log_loss(corrected, of_other) < 1.03 * log_loss(unweighted, of_other)
    # the threshold of predict is that of the weights
    assert np.array_equal(model.predict(other), model.classes[plain.argmax(axis=1)])


def test_two_classes_by_the_formula_of_elkan():
    X, labels, _ = rows_of(0, 3000, 2)
    model = fs.SketchedNewton(class_weight="balanced").update(X, labels)
    p, b = model.predict_proba(X)[:, 1], 0.5  # the base rate that was learned with
    new = labels.mean()
    elkan = new * (p - p * b) / (b - p * b + new * p - b * new)
    assert np.allclose(model.predict_proba(X, prior="observed")[:, 1], elkan, atol=1e-12)


def test_without_class_weights_nothing_is_corrected():
    for n_classes in (2, 3):
        X, labels, _ = rows_of(0, 500, n_classes)
        model = fs.SketchedNewton().update(X, labels)
        assert np.allclose(model.predict_proba(X), model.predict_proba(X, prior="observed"), atol=1e-15)


@pytest.mark.parametrize("rows", [np.asarray, sparse.csr_array])
def test_labels_that_are_words_and_come_in_another_order(rows):
    X, labels, _ = rows_of(0, 4000, 3)
    words = np.array(["m", "z", "a"])[labels]  # sorted otherwise than they come
    numbers = fs.SketchedNewton(class_weight={0: 1.0, 1: 20.0, 2: 30.0}).update(rows(X), labels)
    named = fs.SketchedNewton(class_weight={"m": 1.0, "z": 20.0, "a": 30.0}).update(rows(X), words)
    order = np.argsort(["m", "z", "a"])
    mine, theirs = (model.predict_proba(rows(X[:50]), prior="observed") for model in (named, numbers))
    assert np.allclose(mine, theirs[:, order])


@pytest.mark.parametrize("class_weight", ["balanced", {0: 0.5, 1: 9.0}])
def test_copies_files_and_what_is_learned_after(class_weight):
    X, labels, _ = rows_of(0, 2000, 2)
    model = fs.SketchedNewton(class_weight=class_weight).update(X[:1000], labels[:1000])
    others = [model.copy(), pickle.loads(pickle.dumps(model)), fs.load(io.BytesIO(model.to_bytes()))]
    for other in (model, *others):
        other.update(X[1000:], labels[1000:])
    for other in others:
        assert np.array_equal(other.predict_proba(X, prior="observed"), model.predict_proba(X, prior="observed"))


def test_what_is_refused():
    X, labels, _ = rows_of(0, 500, 2)
    model = fs.SketchedNewton(classes=[0, 1], class_weight={0: 1.0, 1: 0.0}).update(X, labels)
    with pytest.raises(ValueError, match="class_weight is 0 for the label 1"):
        model.predict_proba(X, prior="observed")
    with pytest.raises(ValueError, match="prior must be one of 'observed', got 'balanced'"):
        model.predict_proba(X, prior="balanced")
    with pytest.raises(TypeError, match="prior must be a string"):
        model.predict_proba(X, prior=0.1)
    with pytest.raises(ValueError, match="loss of labels"):
        fs.SketchedNewton(loss="square").update(X, X[:, 0]).predict_proba(X, prior="observed")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("kind", ["SketchedNewtonClassifier", "AdaptiveSubgradientClassifier"])
def test_estimators(kind, method, n_classes, tmp_path):
    estimators = pytest.importorskip("fastsketch.sklearn")
    X, labels, _ = rows_of(0, 20_000, n_classes)
    other, _, _ = rows_of(1, 20_000, n_classes)
    more = {"classes": list(range(n_classes))} if method == "partial_fit" else {}
    model = getattr(getattr(estimators, kind)(class_weight="balanced"), method)(X, labels, **more)
    plain, corrected = model.predict_proba(other), model.predict_proba(other, prior="observed")
    assert_near(corrected, plain, labels)
    assert (plain.mean(axis=0) * len(labels) > 3 * np.bincount(labels))[1:].all()
    assert np.array_equal(model.predict(other), model.classes_[model.predict_proba(other).argmax(axis=1)])
    model.save(tmp_path / "model")
    for again in (type(model).load(tmp_path / "model"), copy.deepcopy(model)):
        assert np.array_equal(again.predict_proba(other, prior="observed"), corrected)
