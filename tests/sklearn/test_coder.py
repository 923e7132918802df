"""SketchCoder against fs.SketchQuantizer and scikit-learn's checks."""

import pickle
import warnings

import numpy as np
import pytest

import fastsketch as fs
from tests.helpers import sparse_rows, stream

pytest.importorskip("sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from fastsketch.sklearn import SketchCoder  # noqa: E402

X = stream("signal", np.random.default_rng(0), 500, 30) + 2


@parametrize_with_checks([SketchCoder(), SketchCoder(method="fd"), SketchCoder(keep_rows=False)])
def test_scikit_learns_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_codes_are_those_of_the_quantizer():
    ours = SketchCoder(12, random_state=5).fit(X)
    model = fs.SketchQuantizer(12, seed=5).update(X)
    codes = model.encode(X)
    assert np.array_equal(ours.transform(X), codes)
    assert np.array_equal(ours.inverse_transform(codes), model.decode(codes))
    assert np.array_equal(ours.partial_fit(X[:50]).transform(X), model.update(X[:50]).encode(X))
    assert (ours.n_bytes_, ours.n_samples_seen_, ours.n_features_in_) == (12, 550, 30)
    assert list(ours.get_feature_names_out()) == [f"sketchcoder{i}" for i in range(12)]
    assert np.allclose(ours.mean_, model.mean) and np.array_equal(ours.components_, model.components)


@pytest.mark.parametrize("keep_rows", [True, False])
def test_neighbours(keep_rows):
    ours = SketchCoder(12, keep_rows=keep_rows).fit(X)
    distances, found = ours.kneighbors(X[:20], 4)
    exact = np.linalg.norm(X[:20, None] - X, axis=2)
    best = np.argsort(exact, axis=1)[:, :4]
    shared = np.mean([len(set(a) & set(b)) / 4 for a, b in zip(found, best, strict=True)])
    assert shared > (0.95 if keep_rows else 0.5)
    if keep_rows:
        assert np.allclose(distances, np.take_along_axis(exact, found, axis=1), atol=1e-6)
        assert not (ours.kneighbors()[1] == np.arange(500)[:, None]).any()
        assert ours.kneighbors_graph(X[:20], 4).shape == (20, 500)
    with pytest.raises(ValueError, match="at most the 500 rows"):
        ours.kneighbors(X[:2], 501)
    with pytest.raises(ValueError, match="partial_fit keeps none"):
        ours.partial_fit(X).kneighbors(X[:2])


def test_sparse_rows_and_twins():
    rows = sparse_rows(np.random.default_rng(0), 300, 40, 0.2)
    ours = SketchCoder(8).fit(rows)
    assert ours.kneighbors(rows[:3], 2)[1][:, 0].tolist() == [0, 1, 2]
    assert np.array_equal(pickle.loads(pickle.dumps(ours)).transform(rows), ours.transform(rows))
    with pytest.raises(NotFittedError):
        clone(ours).inverse_transform(np.zeros((2, 8), np.uint8))
    for bad in (np.zeros((2, 7), np.uint8), np.zeros((2, 8))):
        with pytest.raises((TypeError, ValueError)):
            ours.inverse_transform(bad)
