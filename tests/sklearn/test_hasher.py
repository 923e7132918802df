"""SketchHasher against fs.SketchHash and scikit-learn's checks."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")
from scipy.sparse import csr_array  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

import fastsketch as fs  # noqa: E402
from fastsketch.sklearn import SketchHasher  # noqa: E402
from tests.helpers import same_state, sparse_rows, stream  # noqa: E402


@parametrize_with_checks(
    [
        SketchHasher(),
        SketchHasher(method="fd", rotation="random"),
        SketchHasher(method="exact", rotation=None),
        SketchHasher(n_bits=1, output="values"),
        SketchHasher(output="bits", random_state=3),
    ]
)
def test_estimator_check(estimator, check):
    check(estimator)


X = stream("signal", np.random.default_rng(0), 900, 30) + 4


def test_it_is_sketch_hash():
    ours = SketchHasher(12, random_state=5).fit(X)
    model = fs.SketchHash(12, seed=5, dtype="float64").update(X)
    assert same_state(ours.hash_, model)
    assert np.array_equal(ours.transform(X), model.encode(X))
    parts = SketchHasher(12, random_state=5)
    for start in range(0, 900, 70):
        parts.partial_fit(X[start : start + 70])
    assert same_state(parts.hash_, model)
    assert (ours.n_bits_, ours.n_samples_seen_, ours.n_features_in_) == (12, 900, 30)
    assert np.allclose(ours.mean_, X.mean(axis=0))
    assert ours.components_.shape == (12, 30)


def test_random_states_are_those_of_scikit_learn():
    same = SketchHasher(12, random_state=5).fit(X).transform(X)
    assert np.array_equal(SketchHasher(12, random_state=np.int64(5)).fit(X).transform(X), same)
    seeds = [SketchHasher(12, random_state=np.random.RandomState(7)).fit(X).hash_.seed for _ in range(2)]
    assert seeds[0] == seeds[1] != 7
    state = np.random.RandomState(7)
    assert (
        SketchHasher(12, random_state=state).fit(X).hash_.seed != SketchHasher(12, random_state=state).fit(X).hash_.seed
    )
    assert SketchHasher(12, random_state=None).fit(X).hash_.seed >= 0
    for bad in (-1, "x", 1.5, 2**64):
        with pytest.raises((TypeError, ValueError)):
            SketchHasher(12, random_state=bad).fit(X)


def test_defaults_are_those_of_the_model():
    ours, model = SketchHasher().get_params(), fs.SketchHash(64).parameters
    for name in ("method", "sketch_size", "block_rows", "rotation"):
        assert ours[name] == model[name]
    assert ours["random_state"] == model["seed"]


def test_outputs():
    packed = SketchHasher(12).fit(X)
    bits = SketchHasher(12, output="bits").fit(X)
    values = SketchHasher(12, output="values").fit(X)
    assert np.array_equal(np.packbits(bits.transform(X), axis=1, bitorder="little"), packed.transform(X))
    assert np.array_equal(values.transform(X) > 0, bits.transform(X))
    assert list(packed.get_feature_names_out()) == ["sketchhasher0", "sketchhasher1"]
    assert len(bits.get_feature_names_out()) == 12


def test_pipelines_sparse_rows_and_pickles():
    labels = (X[:, 0] > 4).astype(int)
    model = make_pipeline(StandardScaler(), SketchHasher(24, output="bits"), KNeighborsClassifier(5, metric="hamming"))
    assert model.fit(X, labels).score(X, labels) > 0.7
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(X), model.predict(X))
    rows = sparse_rows(np.random.default_rng(0), 200, 30, 0.2)
    one, two = SketchHasher(8).fit(rows), SketchHasher(8).fit(rows.toarray())
    assert np.array_equal(one.transform(rows), two.transform(rows.toarray()))


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_bits": 0},
        {"n_bits": 31},
        {"n_bits": 2.5},
        {"method": "x"},
        {"rotation": "x"},
        {"output": "x"},
        {"block_rows": 0},
        {"n_bits": 8, "sketch_size": 10},
    ],
)
def test_bad_parameters_are_named(parameters):
    with pytest.raises((TypeError, ValueError), match=next(iter(parameters))):
        SketchHasher(**parameters).fit(X)


# -- neighbours ----------------------------------------------------------------------------------------------------
QUERIES = X[:40] + 0.01


@pytest.mark.parametrize("rows", [X, X.astype(np.float32), csr_array(np.where(X > 4, X, 0))], ids=["f8", "f4", "csr"])
def test_kneighbors_are_those_of_scikit_learn(rows):
    ours = SketchHasher(24, n_neighbors=4, oversample=1000).fit(rows)
    theirs = NearestNeighbors(n_neighbors=4, algorithm="brute").fit(rows)
    for queries in (rows[:50], None):
        distances, found = ours.kneighbors(queries)
        expected = theirs.kneighbors(queries)
        assert np.allclose(distances, expected[0], atol=1e-2) and (found == expected[1]).mean() > 0.98
        assert distances.dtype == np.float64 and found.dtype == np.int64
        for mode in ("connectivity", "distance"):
            graph, wanted = ours.kneighbors_graph(queries, mode=mode), theirs.kneighbors_graph(queries, mode=mode)
            assert graph.format == "csr" and graph.shape == wanted.shape and graph.nnz == wanted.nnz
            assert np.allclose(graph.sum(axis=1), wanted.sum(axis=1), atol=0.1)
    assert np.array_equal(ours.kneighbors(rows[:9], 2, return_distance=False), ours.kneighbors(rows[:9], 2)[1])


def test_the_default_answer_is_nearly_exact():
    _, expected = NearestNeighbors(n_neighbors=5).fit(X).kneighbors(QUERIES)
    _, found = SketchHasher().fit(X).kneighbors(QUERIES)
    assert np.mean([len(set(a) & set(b)) for a, b in zip(found, expected, strict=True)]) > 4.5


def test_codes_alone_are_kept():
    whole, lean = SketchHasher(24).fit(X), SketchHasher(24, keep_rows=False).fit(X)
    assert len(pickle.dumps(lean)) < len(pickle.dumps(whole)) - X.nbytes / 2
    distances, found = lean.kneighbors(QUERIES)
    expected = lean.hash_.search(QUERIES, lean.hash_.encode(X, factors=True), k=5)
    assert np.array_equal(distances, expected[0]) and np.array_equal(found, expected[1])
    with pytest.raises(ValueError, match="X must be given"):
        lean.kneighbors()
    again = pickle.loads(pickle.dumps(whole))
    assert np.array_equal(again.kneighbors(QUERIES)[1], whole.kneighbors(QUERIES)[1])


def test_equal_rows_are_not_their_own_neighbours():
    rows = np.repeat(X[:100], 3, axis=0)
    distances, found = SketchHasher(24).fit(rows).kneighbors(n_neighbors=2)
    assert (distances == 0).all() and (found // 3 == np.arange(300)[:, np.newaxis] // 3).all()
    assert (np.sort(found, axis=1)[:, 0] != np.sort(found, axis=1)[:, 1]).all()


def test_what_kneighbors_refuses():
    with pytest.raises(NotFittedError):
        SketchHasher().kneighbors(X)
    model = SketchHasher(8).fit(X)
    for given, match in [
        ({"X": X, "n_neighbors": 901}, "at most the 900 rows"),
        ({"n_neighbors": 900}, "at most the 899 rows"),
        ({"X": X, "n_neighbors": 0}, "n_neighbors must be at least 1"),
        ({"X": X, "n_neighbors": 2.0}, "n_neighbors must be an integer"),
        ({"X": X[:, :4]}, "features"),
        ({"X": np.where(X > 4, np.nan, X)}, "NaN"),
    ]:
        with pytest.raises((TypeError, ValueError), match=match):
            model.kneighbors(**given)
    with pytest.raises(ValueError, match="mode must be one of"):
        model.kneighbors_graph(X, mode="x")
    with pytest.raises(ValueError, match="oversample must be finite"):
        model.set_params(oversample=0.1).kneighbors(X)
    with pytest.raises(ValueError, match="partial_fit keeps none"):
        model.partial_fit(X).kneighbors(X)
    with pytest.raises(TypeError, match="keep_rows must be True or False"):
        SketchHasher(8, keep_rows=1).fit(X)
