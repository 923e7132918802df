"""The estimates against scikit-learn's own, on data where they must agree, and where they may not."""

import inspect
import pickle

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")
from sklearn.base import clone  # noqa: E402
from sklearn.decomposition import PCA, IncrementalPCA  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from fastsketch import sklearn as estimators  # noqa: E402
from fastsketch.sklearn import (  # noqa: E402
    SketchedCovariance,
    SketchedNewtonRegressor,
    SketchedPCA,
    SketchedRidge,
)
from fastsketch.sklearn._estimator import seed_of  # noqa: E402
from tests.helpers import stream  # noqa: E402


def not_held(estimator):
    """Return {check: why it does not hold}."""
    if not isinstance(estimator, SketchedCovariance):
        return {}
    alarms = "contamination is the share of alarms among new rows: of the rows learned from it is less"
    folds = "the folds in which rows are scored are those of their places, which repeated rows have others of"
    return {
        "check_outliers_train": alarms,
        "check_outliers_fit_predict": alarms,
        "check_sample_weight_equivalence_on_dense_data": folds,
        "check_sample_weight_equivalence_on_sparse_data": folds,
    }


@pytest.mark.filterwarnings("ignore:contamination=0.01 needs")
@parametrize_with_checks(
    [
        *(SketchedPCA(), SketchedPCA(n_components=1, sketch_size=3)),
        *(SketchedCovariance(), SketchedCovariance(sketch_size=3)),
    ],
    expected_failed_checks=not_held,
)
def test_estimator_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", [name for name in estimators.__all__ if name[0].isupper()])
def test_nothing_is_known_before_rows_have_come(name):
    kind = getattr(estimators, name)
    learned = [key for key, value in inspect.getmembers(kind) if isinstance(value, property) and key[0] != "_"]
    assert learned
    for key in learned:
        for parameters in ({}, {"assume_centered": True}) if kind is SketchedCovariance else ({},):
            with pytest.raises(NotFittedError):
                getattr(kind(**parameters), key)


X = stream("signal", np.random.default_rng(0), 400, 30) + np.linspace(0, 5, 30)


@pytest.mark.parametrize("whiten", [False, True])
def test_a_large_sketch_is_exact_pca(whiten):
    ours = SketchedPCA(n_components=4, sketch_size=31, whiten=whiten).fit(X)
    theirs = PCA(n_components=4, whiten=whiten, svd_solver="full").fit(X)
    for name in ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_"):
        mine, other = getattr(ours, name), getattr(theirs, name)
        if name == "components_":
            mine, other = np.abs(mine @ other.T), np.eye(4)
        assert np.allclose(mine, other), name
    assert np.isclose(ours.noise_variance_, theirs.noise_variance_)
    assert np.allclose(ours.var_, X.var(axis=0))
    assert np.allclose(np.abs(ours.transform(X)), np.abs(theirs.transform(X)))
    assert np.allclose(ours.inverse_transform(ours.transform(X)), theirs.inverse_transform(theirs.transform(X)))
    plain = PCA(n_components=4, svd_solver="full").fit(X)  # with whiten=True scikit-learn's is not that of the rows
    assert np.allclose(ours.get_covariance(), plain.get_covariance())
    assert np.allclose(ours.get_precision(), plain.get_precision())
    assert np.isclose(ours.score(X), plain.score(X))


@pytest.mark.parametrize("method", ["rfd", "fd", "cfd", "isvd"])
def test_few_features_are_exact_at_any_sketch_size(method):
    ours = SketchedPCA(n_components=3, sketch_size=6, method=method).fit(X)
    theirs = PCA(n_components=3, svd_solver="full").fit(X)
    assert ours.sketch_.resolved["solver"] == "exact"
    assert np.allclose(ours.explained_variance_, theirs.explained_variance_)
    assert np.allclose(np.abs(ours.components_ @ theirs.components_.T), np.eye(3))
    assert np.isclose(ours.noise_variance_, theirs.noise_variance_)
    if method in ("rfd", "fd"):
        assert ours.error_bound_ < 1e-10 * ours.singular_values_[0] ** 2


def test_attributes_of_incremental_pca():
    ours, theirs = SketchedPCA(3).fit(X), IncrementalPCA(3).fit(X)
    for name in vars(theirs):
        if name.endswith("_") and not name.startswith("_"):
            assert np.shape(getattr(ours, name)) == np.shape(getattr(theirs, name)), name
    assert ours.batch_size_ == theirs.batch_size_
    assert isinstance(ours, IncrementalPCA)
    assert list(ours.get_feature_names_out()) == ["sketchedpca0", "sketchedpca1", "sketchedpca2"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_batches_smaller_than_the_components(dtype):
    rows = X.astype(dtype)
    one = SketchedPCA(n_components=5)
    for row in rows:
        one.partial_fit(row[None])
        assert one.components_.shape == (5, 30)
        assert np.allclose(one.components_ @ one.components_.T, np.eye(5), atol=1e-5)
    whole = SketchedPCA(n_components=5).fit(rows)
    assert one.n_samples_seen_ == 400
    assert np.allclose(one.components_, whole.components_, atol=1e-6)
    assert one.components_.dtype == one.transform(rows).dtype == dtype


def test_sparse_input_is_dense_input_and_never_made_dense(monkeypatch):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((300, 400)) * (rng.random((300, 400)) < 0.02)
    matrix = sparse.csr_matrix(rows)

    def refuse(*_, **__):
        raise AssertionError("made dense")

    for kind in (sparse.csr_matrix, sparse.csr_array):
        for name in ("toarray", "todense"):
            monkeypatch.setattr(kind, name, refuse)
    ours = SketchedPCA(n_components=3, sketch_size=20, solver="gram").fit(matrix)
    got = ours.transform(matrix)
    monkeypatch.undo()
    assert np.allclose(got, ours.transform(rows))
    assert np.allclose(ours.mean_, rows.mean(axis=0))
    assert np.allclose(ours.var_, rows.var(axis=0))
    truth = np.linalg.eigvalsh(np.cov(rows.T) * 299)[::-1][:3]
    assert np.abs(ours.singular_values_**2 - truth).max() <= ours.error_bound_
    total = rows.var(axis=0, ddof=1).sum()
    assert np.isclose(ours.explained_variance_.sum() + (300 - 3) * ours.noise_variance_, total)


def test_the_error_is_within_the_bound():
    ours = SketchedPCA(n_components=4, sketch_size=10, solver="gram").fit(X)
    truth = np.linalg.eigvalsh(np.cov(X.T) * 399)[::-1][:4]
    assert np.abs(ours.singular_values_**2 - truth).max() <= ours.error_bound_


def test_pipelines_pickles_and_clones():
    model = make_pipeline(StandardScaler(), SketchedPCA(2)).fit(X)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(model.transform(X), again.transform(X))
    half = SketchedPCA(2).partial_fit(X[:150])
    resumed = pickle.loads(pickle.dumps(half)).partial_fit(X[150:])
    assert np.array_equal(resumed.components_, half.partial_fit(X[150:]).components_)


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_components": 0},
        {"n_components": 31},
        {"n_components": 2.5},
        {"n_components": 4, "sketch_size": 4},
        {"sketch_size": 1},
        {"method": "x"},
        {"solver": "x"},
        {"batch_size": 0},
    ],
)
def test_bad_parameters_are_named(parameters):
    with pytest.raises((TypeError, ValueError), match=next(iter(parameters))):
        SketchedPCA(**parameters).fit(X)


def test_unknown_keywords_name_the_nearest():
    with pytest.raises(
        TypeError, match=r"SketchedPCA\(\) has no parameter 'n_component': did you mean 'n_components'\?"
    ):
        SketchedPCA(n_component=2)
    with pytest.raises(TypeError, match=r"SketchedCovariance\(\) has no parameter 'alpha': did you mean 'alpha0'\?"):
        SketchedCovariance(alpha=2)
    for cls, name, ours in ((SketchedRidge, "alpha", "ridge"), (SketchedNewtonRegressor, "max_iter", "epochs")):
        with pytest.raises(TypeError, match=f"{cls.__name__}.* no parameter '{name}': did you mean '{ours}'"):
            cls(**{name: 2})
    with pytest.raises(TypeError, match=r"no parameter 'learning_rate': it has sketch_size, .*, random_state"):
        SketchedNewtonRegressor(learning_rate=0.1)
    model = clone(SketchedPCA(2, method="fd").set_params(solver="gram"))
    assert model.get_params() == SketchedPCA(2, method="fd", solver="gram").get_params()


@pytest.mark.parametrize("kind", ["DataFrame", "Table", "array"])
@pytest.mark.parametrize("cls", [SketchedPCA, SketchedCovariance, SketchedRidge, SketchedNewtonRegressor])
def test_columns_of_words_are_named(cls, kind):
    """A table with a number that is text, a word, a date: what to do about the last two is said."""
    pandas = pytest.importorskip("pandas")
    n, y = 30, np.arange(30.0)
    frame = pandas.DataFrame({"size": X[:n, 0], "text": ["1.5"] * n, "town": ["Oslo", "Rome", "Bern"] * 10})
    names, rows = ["'town' (object)"], frame
    if kind == "DataFrame":
        frame["town"] = frame["town"].astype("category")
        frame["day"] = pandas.date_range("2026-01-01", periods=n)
        names = [r"'town' \(category\)", r"'day' \(datetime64"]
    elif kind == "Table":
        rows, names = pytest.importorskip("pyarrow").Table.from_pandas(frame), [r"'town' \("]
    else:
        rows, names = frame.to_numpy(), [r"2 \(object\)"]
    with pytest.raises(ValueError, match=rf"X must hold numbers, got columns? {'.*, '.join(names)}.*: encode them"):
        cls().fit(rows, y)
    assert not hasattr(cls().fit(frame[["size", "text"]], y), "town")


def test_random_state_is_that_of_scikit_learn():
    assert [seed_of(value) for value in (0, 5, np.int32(7), 2**64 - 1)] == [0, 5, 7, 2**64 - 1]
    assert seed_of(np.random.RandomState(1)) == seed_of(np.random.RandomState(1)) != seed_of(np.random.RandomState(2))
    assert 0 <= seed_of(None) < 2**31
    for bad in (-1, 2**64, True, "1", 1.5):
        with pytest.raises((TypeError, ValueError)):
            seed_of(bad)


def test_fit_forgets():
    model = SketchedPCA(2).fit(X)
    model.fit(X[:, :7])
    assert model.components_.shape == (2, 7)
    model.fit(X)
    assert np.array_equal(model.components_, SketchedPCA(2).fit(X).components_)


@pytest.mark.parametrize("name", [name for name in estimators.__all__ if name[0].isupper()])
def test_a_generator_is_refused_with_what_to_give(name):
    required = {"SketchHasher": {"n_bits": 8}, "SketchQuantizerTransformer": {"n_bytes": 4}}
    with pytest.raises(TypeError, match="X must be an array, not a generator: .* fs.open_rows"):
        getattr(estimators, name)(**required.get(name, {})).fit((row for row in np.ones((9, 4))), np.arange(9) % 2)


@pytest.mark.parametrize("name", [name for name in estimators.__all__ if name.endswith("Classifier")])
def test_labels_of_objects_are_saved(name, tmp_path):
    """Columns of strings of a data frame are arrays of objects."""
    rows = np.random.default_rng(0).standard_normal((80, 4))
    labels = np.where(rows[:, 0] > 0, "yes", "no").astype(object)
    model = getattr(estimators, name)().fit(rows, labels)
    model.save(tmp_path / "model.fsk")
    loaded = type(model).load(tmp_path / "model.fsk")
    assert loaded.classes_.tolist() == ["no", "yes"]
    assert np.array_equal(loaded.predict(rows), model.predict(rows))
