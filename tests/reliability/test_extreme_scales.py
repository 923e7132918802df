"""Rows multiplied by 1e-200 to 1e200: the squares of these are 0 or infinite in float64.

A model answers as it does for the same rows in the usual range, or refuses with a message about their size.
"""

import numpy as np
import pytest

import fastsketch as fs
from fastsketch import sklearn as estimators

RNG = np.random.default_rng(0)
X = RNG.standard_normal((400, 3)) @ RNG.standard_normal((3, 12)) + 0.1 * RNG.standard_normal((400, 12))
Y = X[:, 0] - X[:, 1]
LABELS = (Y > 0).astype(int)
GAPS = RNG.random(X.shape) < 0.1


def sketched(scale):
    rows = fs.FrequentDirections(8).update(scale * X).sketch() / scale
    return np.linalg.norm(rows, axis=1)


def low_rank(scale):
    return fs.LowRankModel(3).fit(scale * X).predict_block(range(5)) / scale


def completed(scale):
    return estimators.LowRankCompleter().fit_transform(np.where(GAPS, np.nan, scale * X)) / scale


def decoded(scale):
    model = fs.SketchQuantizer(8).update(scale * X)
    return model.decode(model.encode(scale * X[:20])) / scale


ANSWERS = {
    "FrequentDirections": sketched,
    "SketchHash": lambda scale: fs.SketchHash(8).update(scale * X).encode(scale * X[:50]),
    "SketchQuantizer": decoded,
    "LowRankModel": low_rank,
    "LowRankCompleter": completed,
    "SketchedPCA": lambda scale: estimators.SketchedPCA(2).fit(scale * X).components_,
    "SketchedPCA, scaled": lambda scale: estimators.SketchedPCA(2, scale=True).fit(scale * X).components_,
    "SketchedPCA, sketched": lambda scale: estimators.SketchedPCA(2, solver="gram").partial_fit(scale * X).components_,
    "SketchedCovariance": lambda scale: estimators.SketchedCovariance().fit(scale * X).mahalanobis(scale * X[:20]),
}
for name in ("SketchedRidge", "SketchedNewtonRegressor", "AdaptiveSubgradientRegressor"):
    ANSWERS[name] = lambda scale, name=name: getattr(estimators, name)().fit(scale * X, Y).predict(scale * X[:20])
for name in ("SketchedRidgeClassifier", "SketchedNewtonClassifier", "AdaptiveSubgradientClassifier"):
    ANSWERS[name] = lambda scale, name=name: getattr(estimators, name)().fit(scale * X, LABELS).predict(scale * X)


@pytest.mark.parametrize("scale", [1e-200, 1e-170, 1e-150, 1e150, 1e200])
@pytest.mark.parametrize("name", ANSWERS)
def test_rows_whose_squares_leave_the_range_are_refused_or_learned_right(name, scale):
    usual = ANSWERS[name](1.0)
    assert np.isfinite(usual).all() and np.any(usual != usual.flat[0])
    try:
        answer = ANSWERS[name](scale)
    except (ValueError, FloatingPointError) as error:
        assert any(word in str(error) for word in ("scale", "must lie between", "squares")), error
    else:
        assert np.allclose(answer, usual, rtol=1e-6, atol=1e-6)
