"""The ridge that a model finds by itself."""

import numpy as np
import pytest

import fastsketch as fs
from tests.lowrank.problems import penalties, problem, stored


def low_rank(noise, seed=0, shape=(200, 40), rank=3):
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))
    x = np.where(rng.random(shape) < 0.5, truth + noise * rng.standard_normal(shape), np.nan)
    return truth, x


def error(model, truth):
    return float(np.sqrt(np.mean((model.predict_block(np.arange(len(truth))) - truth) ** 2)))


def test_exact_low_rank_data_are_recovered_and_noise_is_left_out():
    for seed in range(3):
        truth, x = low_rank(0.0, seed)
        assert error(fs.LowRankModel(3).fit(x), truth) < 0.1
        truth, x = low_rank(1.0, seed)
        found, none = fs.LowRankModel(10).fit(x), fs.LowRankModel(10, ridge=0.0).fit(x)
        assert error(found, truth) < 0.8 < error(none, truth)


def test_pure_noise_has_no_rank():
    rng = np.random.default_rng(0)
    x = np.where(rng.random((300, 100)) < 0.5, rng.standard_normal((300, 100)), np.nan)
    a, b = fs.LowRankModel(5).fit(x).factors()
    assert np.abs(a @ b.T).max() < 0.5


def test_the_ridge_in_use_is_told_kept_and_used_in_fold_in():
    _, x = low_rank(0.5)
    model = fs.LowRankModel(4, ridge=0.7).fit(x)
    assert model.bias_ridge is None
    (ridge, bias_ridge), penalty = (model.resolved[name] for name in ("ridge", "bias_ridge")), penalties(model)[0]
    assert ridge > 0 and penalty > ridge and penalties(model)[1] == bias_ridge and model.facts()["ridge"] == ridge
    twin = fs.from_bytes(model.to_bytes())
    assert twin.resolved["ridge"] == ridge and penalties(twin) == penalties(model)
    folded = twin.fold_in(x[:5])
    assert np.allclose(folded.factors, model.fold_in(x[:5], ridge=ridge).factors)
    assert not np.allclose(folded.factors, model.fold_in(x[:5], ridge=10 * ridge).factors)
    explicit = fs.LowRankModel(4, ridge=ridge, bias_ridge=bias_ridge).fit(x)
    assert np.array_equal(explicit.factors()[0], model.factors()[0])
    twice = fs.LowRankModel(4, ridge=2.0, bias_ridge=1.0, sweeps=0).fit(x)
    assert twice.resolved["ridge"] == 2.0 and penalties(twice)[1] == 1.0
    once = fs.LowRankModel(4, bias_ridge=1.0, sweeps=0).fit(x)
    assert penalties(twice)[0] == 2 * penalties(once)[0]


@pytest.mark.parametrize("loss", ["square", "logistic", "huber", "absolute", "poisson", "hinge"])
def test_weights_of_one_change_nothing(loss):
    o, seen = problem(loss)
    x = stored(o, seen)
    whole = fs.LowRankModel(3, loss=loss, ridge=1.0).fit(x)
    ones = x.copy()
    ones.data = np.ones_like(ones.data)
    weighted = fs.LowRankModel(3, loss=loss, ridge=1.0).fit(x, sample_weight=ones)
    assert penalties(weighted) == pytest.approx(penalties(whole), rel=1e-6)
