"""A row of sample_weight 0 has the effect of no row in every estimator, bit for bit; a weight of k is that of k rows.

The online learners, for which a weight is no count of rows, are in test_online.
"""

import inspect

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data  # noqa: E402

import fastsketch as fs  # noqa: E402
import fastsketch.sklearn as estimators  # noqa: E402
from fastsketch.sklearn import (  # noqa: E402
    EASERecommender,
    SketchedCovariance,
    SketchedPCA,
    SketchedRidge,
    SketchedRidgeClassifier,
)

LEARNERS = {
    "SketchedNewtonClassifier",
    "SketchedNewtonRegressor",
    "AdaptiveSubgradientClassifier",
    "AdaptiveSubgradientRegressor",
}
# Settings of every estimator that takes weights, by a name.
SETTINGS = {
    "pca": lambda: SketchedPCA(3),
    "pca of all": lambda: SketchedPCA(),
    "pca of a share": lambda: SketchedPCA(0.8),
    **{f"pca {way}": lambda way=way: SketchedPCA(3, solver=way, sketch_size=5) for way in ("gram", "svd", "exact")},
    "covariance": lambda: SketchedCovariance(),
    "covariance of a sketch": lambda: SketchedCovariance(sketch_size=4, solver="gram", shrinkage="oas"),
    "covariance ledoit-wolf": lambda: SketchedCovariance(shrinkage="ledoit-wolf", contamination=None),
    "covariance about zero": lambda: SketchedCovariance(assume_centered=True),
    "covariance fill": lambda: SketchedCovariance(fill="mean"),
    "covariance drop": lambda: SketchedCovariance(fill="drop"),
    "ridge": lambda: SketchedRidge(),
    "ridge of a sketch": lambda: SketchedRidge(4, solver="gram", scale=True, reservoir_size=20),
    "ridge decayed": lambda: SketchedRidge(decay=0.95),
    "classes": lambda: SketchedRidgeClassifier(),
    "classes balanced": lambda: SketchedRidgeClassifier(class_weight="balanced"),
    "classes by name": lambda: SketchedRidgeClassifier(class_weight={"a": 2.0, "b": 1.0, "c": 0.5}),
    "recommender": lambda: EASERecommender(8),
    "recommender decayed": lambda: EASERecommender(8, decay=0.95, reservoir_size=20),
}
N, D = 90, 12


def data(name):
    """Rows (n, d), targets or labels, and weights, of which a quarter are 0: these rows are wild."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)) * np.linspace(2, 0.5, D) + 1.0
    if name.startswith("recommender"):
        X = (rng.random((N, D)) < 0.4) * rng.integers(1, 4, (N, D)).astype(float)
    y = X[:, :2] @ [1.0, -2.0] + rng.standard_normal(N)
    if name.startswith("classes"):
        y = np.array(["a", "b", "c"], "U40")[np.digitize(y, np.quantile(y, [0.3, 0.7]))]
    weights = rng.choice([0.0, 0.5, 1.0, 2.0], N)
    weights[[0, 1, N - 1]] = 0.0
    X[weights == 0] *= 1e6
    if name.startswith("classes"):
        y[np.flatnonzero(weights == 0)[:4]] = "a label of rows of weight 0 alone"
    if name.endswith(("fill", "drop")):
        X[rng.random((N, D)) < 0.02] = np.nan
        X[0, 3] = np.nan
    return X, y, weights


def learn(estimator, method, X, y, weights, **more):
    """Fit or partial_fit, with targets where the estimator takes any."""
    arguments = (X, y) if "Ridge" in type(estimator).__name__ else (X,)
    return getattr(estimator, method)(*arguments, sample_weight=weights, **more)


def state(estimator, path):
    """All that was learned, as bytes."""
    estimator.save(path / "state")
    return (path / "state").read_bytes()


def test_every_estimator_that_takes_weights_is_here():
    kinds = [getattr(estimators, name) for name in estimators.__all__ if name[0].isupper()]
    fits = {kind.__name__: kind.fit for kind in kinds if hasattr(kind, "fit")}
    weighted = {name for name, fit in fits.items() if "sample_weight" in inspect.signature(fit).parameters}
    assert weighted - LEARNERS == {type(make()).__name__ for make in SETTINGS.values()}


@pytest.mark.filterwarnings("ignore:contamination=0.01 needs", "ignore:fill='mean'")
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("name", SETTINGS)
def test_rows_of_weight_zero_have_the_effect_of_none_in_fit(name, form, tmp_path):
    X, y, weights = data(name)
    known = weights > 0
    one = learn(SETTINGS[name](), "fit", form(X), y, weights)
    other = learn(SETTINGS[name](), "fit", form(X[known]), y[known], weights[known])
    assert state(one, tmp_path) == state(other, tmp_path)
    assert one.n_samples_seen_ == other.n_samples_seen_
    ones = learn(SETTINGS[name](), "fit", form(X), y, known.astype(float))
    plain = learn(SETTINGS[name](), "fit", form(X[known]), y[known], np.ones(np.count_nonzero(known)))
    assert state(ones, tmp_path) == state(plain, tmp_path)
    if name.startswith("covariance") and one.contamination:
        assert one.offset_ == other.offset_


@pytest.mark.filterwarnings("ignore:contamination=0.01 needs", "ignore:fill='mean'")
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "classes balanced"])
def test_rows_of_weight_zero_have_the_effect_of_none_in_partial_fit(name, form, tmp_path):
    X, y, weights = data(name)
    weights[:5] = weights[40:50] = 0.0
    known, two = weights > 0, [SETTINGS[name](), SETTINGS[name]()]
    if name.startswith("classes"):
        y[y == "a label of rows of weight 0 alone"] = "a"
    for batch in np.split(np.arange(N), [5, 30, 40, 50]):
        more = {"classes": ["a", "b", "c"]} if name.startswith("classes") else {}
        learn(two[0], "partial_fit", form(X[batch]), y[batch], weights[batch], **more)
        if len(part := batch[known[batch]]):
            learn(two[1], "partial_fit", form(X[part]), y[part], weights[part], **more)
    assert state(two[0], tmp_path) == state(two[1], tmp_path)
    assert two[0].n_samples_seen_ == np.count_nonzero(known) - (
        np.isnan(X[known]).any(axis=1).sum() if name.endswith("drop") else 0
    )


@pytest.mark.parametrize("name", [name for name in SETTINGS if not name.endswith(("fill", "drop"))])
def test_rows_of_weight_zero_are_refused_as_others_are(name, tmp_path):
    X, y, weights = data(name)
    bad = X.copy()
    bad[0, 3] = np.nan
    for given in (weights, np.ones(N)):
        with pytest.raises(ValueError, match="NaN"):
            learn(SETTINGS[name](), "fit", bad, y, given)
    wrong = weights.copy()
    wrong[0] = -1.0
    with pytest.raises(ValueError, match="[Nn]egative"):
        learn(SETTINGS[name](), "fit", X, y, wrong)


def test_an_unknown_label_of_a_row_of_weight_zero_is_refused():
    X, y, weights = data("classes")
    with pytest.raises(ValueError, match="y must hold the classes"):
        SketchedRidgeClassifier().partial_fit(X, y, classes=["a", "b", "c"], sample_weight=weights)


def test_balanced_classes_count_rows_by_their_weights():
    X, y, _ = data("classes")
    y[np.isin(y, ["a", "b", "c"], invert=True)] = "a"
    counts = np.random.default_rng(1).integers(0, 4, N)
    kinds = [SketchedRidgeClassifier(ridge=1.0, scoring="squared_error", class_weight="balanced") for _ in range(2)]
    kinds[0].fit(X, y, sample_weight=counts)
    kinds[1].fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    assert np.allclose(kinds[0].coef_, kinds[1].coef_, rtol=1e-6)


@pytest.mark.parametrize("name", ["pca", "pca exact", "ridge"])
def test_a_weight_of_k_is_k_rows_where_moments_are_exact(name):
    estimator = SketchedRidge(ridge=1.0) if name == "ridge" else SETTINGS[name]()
    check_sample_weight_equivalence_on_dense_data(name, estimator)
    X, y, weights = data(name)
    counts = np.where(weights > 0, np.arange(N) % 4, 0)
    one = learn(SETTINGS[name](), "fit", X, y, counts)
    other = learn(SETTINGS[name](), "fit", np.repeat(X, counts, axis=0), np.repeat(y, counts), None)
    if name == "ridge":  # at one ridge: the rows that choose it are others
        assert np.allclose(one.model_.coef(2.0), other.model_.coef(2.0), rtol=0, atol=1e-9)
        return
    assert np.allclose(one.explained_variance_, other.explained_variance_, rtol=1e-10)
    assert np.allclose(one.mean_, other.mean_) and np.allclose(one.var_, other.var_, rtol=1e-10)
    assert np.allclose(np.abs(one.components_ @ other.components_.T), np.eye(3), atol=1e-7)


@pytest.mark.parametrize("shrinkage", [None, 0.3])
def test_a_weight_of_k_is_k_rows_in_an_exact_covariance(shrinkage):
    """The formulas of the other intensities take Kish's effective number of rows, which is another for k rows."""
    X, _, weights = data("covariance")
    counts = np.where(weights > 0, np.arange(N) % 4, 0)
    kinds = [SketchedCovariance(contamination=None, shrinkage=shrinkage) for _ in range(2)]
    one, other = kinds[0].fit(X, sample_weight=counts), kinds[1].fit(np.repeat(X, counts, axis=0))
    assert np.allclose(one.covariance_, other.covariance_, rtol=1e-9, atol=1e-11)
    assert np.allclose(one.location_, other.location_)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("given", ["name of a file", "source"])
@pytest.mark.parametrize("learner", [SketchedPCA, SketchedCovariance, EASERecommender])
def test_a_source_with_weights_is_refused_for_its_weights(tmp_path, learner, given, method):
    X = np.random.default_rng(0).random((30, 4))
    np.save(tmp_path / "rows.npy", X)
    rows = str(tmp_path / "rows.npy") if given == "name of a file" else fs.open_rows(tmp_path / "rows.npy")
    model = learner(3).fit(X)
    with pytest.raises(TypeError, match="sample_weight must be None where X is a source"):
        getattr(model, method)(rows, sample_weight=np.ones(30))
    assert model.n_features_in_ == 4
