"""Real targets: the intercept begins at the first one, so that what all of them share costs nothing."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs

MODELS = {
    "newton": lambda: fs.SketchedNewton(8, loss="square"),
    "newton-huber": lambda: fs.SketchedNewton(8, loss="huber"),
    "ada": lambda: fs.AdaptiveSubgradient(8, loss="square"),
    "diagonal": lambda: fs.AdaptiveSubgradient(loss="absolute", method="ada_diag"),
}


def stream(form, n=200):
    rng = np.random.default_rng(5)
    x = rng.integers(-2, 3, (n, 9)) * (rng.random((n, 9)) < 0.5) * 1.0
    return form(x), np.round(8 * (x @ rng.standard_normal(9) + rng.standard_normal(n))) / 8  # sums are without rounding


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_what_all_targets_share_is_added_to_predictions(name, form):
    x, y = stream(form)
    near, far = MODELS[name]().update(x, y), MODELS[name]().update(x, y + 2.0**20)
    assert np.allclose(far.predict(x) - 2.0**20, near.predict(x), rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
def test_the_first_row_is_scored_before_it_is_known(name, form):
    x, y = stream(form)
    whole, single = MODELS[name]().update(x, y + 100.0), MODELS[name]()
    scores = np.concatenate([single.update(x[[i]], y[[i]] + 100.0).last_scores for i in range(len(y))])
    assert np.array_equal(whole.last_scores, scores) and scores[0] == 0.0
    assert whole.to_bytes() == single.to_bytes()
    off = np.abs(scores - y - 100.0)
    assert whole.progress["mean_absolute_error"] == pytest.approx(off.mean(), rel=1e-12)


def test_a_first_row_without_weight_is_not_looked_at():
    x, y = stream(np.asarray)
    y[0], weights = 1e6, np.append(0.0, np.ones(len(y) - 1))
    model = fs.SketchedNewton(8, loss="square").update(x, y, sample_weight=weights)
    other = fs.SketchedNewton(8, loss="square").update(x, np.append(-1e6, y[1:]), sample_weight=weights)
    assert np.array_equal(model.predict(x), other.predict(x))


def test_targets_that_are_all_the_same_are_predicted():
    x, _ = stream(np.asarray)
    for name in MODELS:
        assert np.allclose(MODELS[name]().update(x, np.full(len(x), 48.8566)).predict(x), 48.8566, rtol=1e-12), name
