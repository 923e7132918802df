"""SketchHasher against fs.SketchHash and scikit-learn's checks."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.neighbors import KNeighborsClassifier  # noqa: E402
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
