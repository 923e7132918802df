"""Ridges that are learned: against the sums written out, what they are worth, files and fold-ins."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.lowrank._fitted import Side
from fastsketch.lowrank._learned import side_sums
from tests.lowrank.problems import problem, stored


def learned(x, rank, sweeps, bias_ridge=3.0, weights=None):
    """Scores (m, n) of a model with learned ridges, row by row in NumPy, from the greedy ranks of a fit."""
    seen = np.zeros(x.shape, bool)
    seen[x.nonzero()] = True
    w = seen * (np.ones(x.shape) if weights is None else weights)
    greedy = fs.LowRankModel(rank, sweeps=0, bias_ridge=bias_ridge).fit(x, sample_weight=at(x, weights))
    (a, b), (level, p, q) = greedy.factors(), greedy.bias_terms()
    penalty = bias_ridge * w.sum() / seen.sum()
    o = np.where(seen, x.toarray(), 0.0) - level
    count = (w > 0).sum()
    left = w * (o - a @ b.T - p[:, None] - q) ** 2
    noise, variances = left.sum() / count, [(f[t > 0] ** 2).mean(axis=0) for f, t in ((a, w.sum(1)), (b, w.sum(0)))]
    uncertain = [np.zeros(rank), np.zeros(rank)]  # of rows, of columns
    for _ in range(sweeps):
        effects = 0.0
        for side in (1, 0):
            own, other, weight = (a, b, w) if side == 0 else (b, a, w.T)
            bias, target = (p, o - q) if side == 0 else (q, o.T - p)
            known = (other**2 * weight.sum(axis=0)[:, None]).sum(axis=0) / w.sum()
            ridge, each = noise / variances[side], uncertain[1 - side]
            diagonal = ridge + weight.sum(axis=1)[:, None] * (known + each)
            for i in range(len(own)):
                wide = np.column_stack([other, np.ones(len(other))])
                h = (wide * weight[i][:, None]).T @ wide
                h += np.diag(np.append(ridge + weight[i].sum() * each, penalty))
                *own[i], bias[i] = np.linalg.solve(h, wide.T @ (weight[i] * target[i]))
            there = weight.sum(axis=1) > 0
            effect = (1 - ridge / diagonal)[there].sum(axis=0)
            variances[side] = (own[there] ** 2).sum(axis=0) / effect
            uncertain[side] = noise * (weight.sum(axis=1)[:, None] / diagonal).sum(axis=0) / w.sum()
            effects += effect.sum() + (weight.sum(axis=1) / (weight.sum(axis=1) + penalty)).sum()
        left = w * (o - a @ b.T - p[:, None] - q) ** 2
        noise = (left.sum() + noise * effects) / count
    return level + p[:, None] + q + a @ b.T


def at(x, weights):
    """A dense matrix of weights, stored where x is."""
    if weights is None:
        return None
    rows, columns = x.nonzero()
    return sparse.csr_array((weights[rows, columns], (rows, columns)), x.shape)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_fit_is_that_of_the_sums_written_out(weighted):
    x = stored(*problem(m=40, n=30, noise=0.5))
    weights = np.random.default_rng(1).choice([0.5, 1.0, 2.0], x.shape) if weighted else None
    model = fs.LowRankModel(3, ridge="learned", bias_ridge=3.0, sweeps=6).fit(x, sample_weight=at(x, weights))
    assert np.allclose(model.complete(), learned(x, 3, 6, weights=weights), rtol=1e-8, atol=1e-8)


def test_sums_leave_out_rows_without_entries():
    rng = np.random.default_rng(0)
    factors, weights, ridges = rng.standard_normal((9, 2)), np.array([0.0, 1, 2, 3, 0, 1, 1, 4, 2]), np.ones((2, 2))
    known = np.array([0.5, 2.0])
    sums, there = side_sums(Side(factors, np.zeros(9)), weights, known, ridges, 3.0), weights > 0
    h = 1.0 + weights[:, None] * (known + 1.0)
    assert (sums.size, sums.weight) == (7, 14.0)
    assert np.allclose(sums.squares, (factors[there] ** 2).sum(axis=0))
    assert np.allclose(sums.effect, (1 - 1 / h)[there].sum(axis=0))
    assert np.allclose(sums.weighted_inverse, (weights[:, None] / h).sum(axis=0))
    assert sums.bias_effect == pytest.approx((weights / (weights + 3)).sum())


def rated(seed, rank=3, per=40, noise=0.7):
    """(ratings of 400 users and 150 items with biases and factors, of each user `per`; all of them without noise)."""
    rng = np.random.default_rng(seed)
    truth = 3.5 + 0.4 * rng.standard_normal((400, 1)) + 0.5 * rng.standard_normal(150)
    truth = truth + 0.5 / np.sqrt(rank) * rng.standard_normal((400, rank)) @ rng.standard_normal((rank, 150))
    seen = rng.permuted(np.tile(np.arange(150) < per, (400, 1)), axis=1)
    return stored(truth + noise * rng.standard_normal(truth.shape), seen), truth


def error(model, truth):
    return np.sqrt(((model.complete() - truth) ** 2).mean())


def test_no_ridge_of_a_path_is_as_good_and_ranks_too_many_fade():
    for seed in range(3):
        x, truth = rated(seed)
        model = fs.LowRankModel(10, ridge="learned").fit(x)
        best = min(error(fs.LowRankModel(10, ridge=ridge).fit(x), truth) for ridge in (0.35, 0.5, 0.7, 1.0, 1.4))
        assert error(model, truth) < 0.9 * best
        assert error(model, truth) < 1.1 * error(fs.LowRankModel(3, ridge="learned").fit(x), truth)
        sizes = [np.linalg.norm(side, axis=0) for side in model.factors()]
        strengths = np.sort(sizes[0] * sizes[1])[::-1]
        assert strengths[3] < 0.2 * strengths[2]


def test_as_it_comes_it_is_learned_told_kept_and_used_in_fold_ins():
    x, truth = rated(0)
    model = fs.LowRankModel(8).fit(x)
    assert (model.resolved["ridge"], model.resolved["sweeps"], model.facts()["penalty"]) == ("learned", 10, None)
    assert {line["ridge"] for line in model.selection if line["rank"]} == {"learned"}
    again = fs.LowRankModel(**{**model.resolved, "rank": model.selected_rank}).fit(x)
    assert np.array_equal(again.complete(), model.complete()) and again.selection == []
    twin = fs.from_bytes(model.to_bytes())
    for one in (model, twin):
        folded = one.fold_in(x[:20])
        assert np.allclose(folded.factors, model.factors()[0][:20], rtol=1e-7, atol=1e-9)
        assert one.fold_in(x[:, :7], axis=1).factors.shape == (7, model.selected_rank)
        assert not np.allclose(folded.factors, one.fold_in(x[:20], ridge=5.0).factors)
    columns = np.corrcoef(twin.fold_in(x[:, :7], axis=1).predict_block().T.ravel(), truth[:, :7].ravel())[0, 1]
    assert columns > 0.8


def test_what_is_refused():
    for options in ({"loss": "logistic"}, {"sweeps": 0}):
        with pytest.raises(ValueError, match="ridge='learned' is for loss='square' with sweeps"):
            fs.LowRankModel(2, ridge="learned", **options)
    with pytest.raises(ValueError, match="ridge must be None, 'learned' or a number, got 'much'"):
        fs.LowRankModel(2, ridge="much")


def test_exact_data_and_those_of_few_entries():
    x = stored(*problem(m=60, n=40, noise=0.0))
    truth = problem(m=60, n=40, noise=0.0)[0]
    model = fs.LowRankModel(3, ridge="learned", biases=False, sweeps=30).fit(x)
    assert np.abs(model.complete() - truth).max() < 1e-3
    small = fs.LowRankModel(3).fit(1e-150 * x)
    assert np.allclose(small.complete(), 1e-150 * fs.LowRankModel(3).fit(x).complete(), rtol=1e-6, atol=1e-160)
    for few in (np.full((4, 3), 2.0), np.array([[1.0, np.nan, 3.0], [2.0, 5.0, np.nan]]), np.zeros((3, 3))):
        assert np.isfinite(fs.LowRankModel(2, ridge="learned").fit(few).complete()).all()
