"""LowRankModel against the GLRL paper's algorithms and Proposition 1, and against plain NumPy."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from fastsketch import reference
from fastsketch._core.losses import LOSSES
from tests.lowrank.problems import ROUGH, SMOOTH, made, numpy_loss, penalties, problem, stored


# of poisson without refinement there is no Lipschitz constant: its step is searched for
@pytest.mark.parametrize("scaling", [False, True])
@pytest.mark.parametrize(
    ("loss", "refine"),
    [
        (loss, refine)
        for loss in SMOOTH
        for refine in ("economic", "full", "none")
        if (loss, refine) != ("poisson", "none")
    ],
)
def test_algorithm_2(loss, refine, scaling):
    o, seen = problem(loss)
    rank = 4
    scales = None
    if scaling:
        scales = [(seen.sum(axis=k) + 30.0) ** -0.25 for k in (1, 0)]
        scales = [scale / scale.max() for scale in scales]
    x, _, objectives = reference.greedy_low_rank_smooth(
        o,
        seen,
        rank=rank,
        loss=numpy_loss(loss),
        lipschitz=LOSSES[loss].lipschitz or 50.0,
        refine=refine,
        scales=scales,
    )
    model = made(rank, loss, refine, scaling=scaling, max_refine_steps=None).fit(stored(o, seen))
    rows, columns = np.nonzero(np.ones_like(seen))
    z = model.decision_function(rows, columns).reshape(o.shape)
    found = [line["objective"] for line in model.history]
    # both stop where they gain less than their tolerance; where curvatures differ much, the directions that come next
    # tell (what is left to gain in the same directions: test_refine.py)
    assert np.allclose(found, objectives, rtol=1e-4 if loss in ("poisson", "huber") else 2e-5)
    assert np.abs(z - x).max() <= 5e-3 * np.abs(x).max()


def test_square_loss_is_rank_one_matrix_pursuit():
    o, seen = problem()
    for economic, refine in ((False, "full"), (True, "economic")):
        x, residuals = reference.rank_one_matrix_pursuit(o, seen, rank=6, economic=economic)
        model = made(6, "square", refine).fit(stored(o, seen))
        assert np.allclose([2 * line["objective"] for line in model.history[1:]], residuals, rtol=1e-5)
        assert np.abs(model.predict_block(np.arange(30)) - x).max() <= 1e-2 * np.abs(x).max()


def test_the_square_loss_is_refined_to_the_end_in_one_step():
    o, seen = problem()
    _, residuals = reference.rank_one_matrix_pursuit(o, seen, rank=6)
    for steps in (1, None):
        model = made(6, "square", "full", max_refine_steps=steps).fit(stored(o, seen))
        assert np.allclose([2 * line["objective"] for line in model.history[1:]], residuals, rtol=1e-5)


@pytest.mark.parametrize("steps", [1, 2, 5, None])
@pytest.mark.parametrize("loss", [loss for loss in SMOOTH if LOSSES[loss].lipschitz is not None])
def test_proposition_1_after_full_refinement(loss, steps):
    """f(X_t) <= f(X_t-1) - s^2 / (2 L), s the largest singular value of the gradient: on few entries, of many ranks."""
    for seed in range(4):
        o, seen = problem(loss, m=36, n=35, share=0.085, seed=seed)
        model = made(12, loss, "full", max_refine_steps=steps).fit(stored(o, seen))
        f = [line["objective"] for line in model.history]
        for t in range(len(f) - 1):
            slopes = numpy_loss(loss)(model.decision_block(np.arange(36), rank=t), o)[1]
            s = np.linalg.norm(np.where(seen, slopes, 0.0), 2)
            assert f[t + 1] <= f[t] - 0.999 * s**2 / (2 * LOSSES[loss].lipschitz) + 1e-9 * f[0], (seed, t)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize(
    ("loss", "refine", "rate"),
    [
        *((loss, refine, rate) for loss in SMOOTH for refine in ("economic", "full", "none") for rate in (1.0, 0.4)),
        *((loss, "economic", 1.0) for loss in ROUGH),
    ],
)
def test_the_objective_never_grows(loss, rate, refine, biases):
    o, seen = problem(loss)
    model = made(8, loss, refine, learning_rate=rate, biases=biases, scaling=biases).fit(stored(o, seen))
    f = np.array([line["objective"] for line in model.history])
    assert (np.diff(f) <= 1e-9 * np.abs(f[0])).all()
    assert f[-1] < 0.97 * f[0] or refine == "none"
    z = model.decision_function(*np.nonzero(seen))
    value = numpy_loss(loss)(z, o[seen] if LOSSES[loss].targets != "label" else np.sign(o[seen]))[0].sum()
    assert np.isclose(value, f[-1], rtol=1e-8)


@pytest.mark.parametrize("inner", ["current", "previous"])
@pytest.mark.parametrize("loss", ROUGH)
def test_algorithm_3_with_the_printed_step(loss, inner):
    o, seen = problem(loss)
    x, objectives = reference.greedy_low_rank_nonsmooth(
        o,
        seen,
        steps=5,
        subgradient=numpy_loss(loss),
        step_size=0.3,
        inner_tolerance=0.9,
        inner_criterion=inner,
        max_inner_rank=3,
    )
    model = made(
        15, loss, step_rule="inverse_sqrt", step_size=0.3, inner_criterion=inner, inner_tolerance=0.9, max_inner_rank=3
    ).fit(stored(o, seen))
    found = [line["objective"] for line in model.history]
    assert np.allclose(found[: len(objectives)], objectives, rtol=1e-5)
    k = model.history[int(np.argmin(objectives))]["rank"]
    z = model.decision_function(*np.nonzero(np.ones_like(seen)), rank=k).reshape(o.shape)
    assert np.abs(z - x).max() <= 1e-3 * np.abs(x).max()
    assert min(found) == next(line["objective"] for line in model.history if line["rank"] == model.selected_rank)


def test_the_line_search_finds_the_lowest_point():
    for loss in ROUGH:
        o, seen = problem(loss)
        model = made(1, loss, max_inner_rank=1).fit(stored(o, seen))
        f = numpy_loss(loss)
        rows, columns = np.nonzero(seen)
        z = model.decision_function(rows, columns)
        values = [f(t * z, o[seen])[0].sum() for t in np.linspace(0, 2, 401)]
        assert f(z, o[seen])[0].sum() <= min(values) * (1 + 1e-6), loss


@pytest.mark.parametrize("refine", ["economic", "full", "none"])
@pytest.mark.parametrize("loss", ["square", "logistic", "squared_hinge", "absolute"])
def test_every_rank_from_one_fit(loss, refine):
    o, seen = problem(loss)
    x = stored(o, seen)
    options = {"biases": True, "scaling": True, "max_inner_rank": 1}
    whole = made(7, loss, refine, **options).fit(x)
    rows, columns = np.nonzero(np.ones_like(seen))
    # labels are separable: with all margins met before rank 7 there is no gradient, and no further rank
    most = whole.history[-1]["rank"]
    assert most == 7 or (loss == "squared_hinge" and whole.history[-1]["objective"] == 0)
    for k in range(8):
        part = made(k, loss, refine, **options).fit(x)
        assert np.array_equal(part.predict(rows, columns), whole.predict(rows, columns, rank=min(k, most)))
    grown = made(3, loss, refine, **options).fit(x).add_ranks(2).add_ranks(2)
    assert np.array_equal(grown.predict(rows, columns), whole.predict(rows, columns))
    assert grown.rank == 7
    with pytest.raises(ValueError, match="rank must be one of the fit"):
        part.predict(rows, columns, rank=8)


@pytest.mark.parametrize("loss", LOSSES)
def test_fold_in_gives_training_rows_their_factors(loss):
    o, seen = problem(loss, m=60, n=40, share=0.6)
    x = stored(o, seen)
    model = made(3, loss, biases=True, scaling=True, sweeps=4, ridge=1.0, bias_ridge=1.0).fit(x)
    a, b = model.factors()
    rows = model.fold_in(x)
    _, own, _ = model.bias_terms()
    smooth = LOSSES[loss].smooth
    # losses with kinks have flat places: there it is the value, with the ridge, that agrees
    if smooth:
        assert np.abs(rows.factors - a).max() <= 1e-4 * np.abs(a).max()
        assert np.abs(rows.biases - own).max() <= 1e-4 * max(1.0, np.abs(own).max())
    f = numpy_loss(loss)
    penalty, bias_penalty = penalties(model)

    def value(z, a, own):
        return f(z, o[seen])[0].sum() + 0.5 * (penalty * (a**2).sum() + bias_penalty * (own**2).sum())

    mine = value(model.decision_function(*np.nonzero(seen)), a, own)
    folded = value(rows.decision_block()[seen], rows.factors, rows.biases)
    assert abs(folded - mine) <= (1e-6 if smooth else 1e-2) * abs(mine)
    columns = model.fold_in(x, axis=1)
    assert len(columns) == 40
    assert columns.factors.shape == b.shape
    assert columns.predict_block().shape == (40, 60)


@pytest.mark.parametrize("loss", SMOOTH)
def test_fold_in_solves_its_convex_problem(loss):
    o, seen = problem(loss, m=40, n=30)
    model = made(2, loss, biases=True, sweeps=1, ridge=0.7, bias_ridge=0.3).fit(stored(o[:30], seen[:30]))
    new = model.fold_in(stored(o[30:], seen[30:]))
    level, _, column = model.bias_terms()
    b = model.factors()[1]
    f, (penalty, bias_penalty) = numpy_loss(loss), penalties(model)
    for k in range(10):
        there = seen[30 + k]

        def value(x, there=there, k=k):
            z = level + column[there] + b[there] @ x[:2] + x[2]
            return f(z, o[30 + k, there])[0].sum() + 0.5 * penalty * (x[:2] ** 2).sum() + 0.5 * bias_penalty * x[2] ** 2

        best = minimize(value, np.zeros(3), method="BFGS", options={"gtol": 1e-10}).fun
        assert value(np.append(new.factors[k], new.biases[k])) <= best + 1e-6 * max(1, abs(best))


def test_the_median_needs_no_sort():
    from fastsketch.lowrank._quantile import weighted_quantile

    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 50, 999):
        for _ in range(20):
            values = rng.integers(-5, 6, n).astype(float) if rng.random() < 0.5 else rng.standard_normal(n)
            weights = rng.random(n) * (rng.random(n) < 0.8)
            found = weighted_quantile(values, weights, None)
            cost = lambda x, v=values, w=weights: (w * np.abs(v - x)).sum()  # noqa: E731
            if weights.sum() == 0:
                assert np.isnan(found)
            else:
                assert cost(found) <= min(cost(x) for x in values) * (1 + 1e-12)
    assert np.isnan(weighted_quantile(np.empty(0), np.empty(0), None))


def best_biases(o, seen, weights, loss, ridge):
    """(objective of (level, rows, columns), its least value by L-BFGS), the ridge on what is not the level."""
    rows, columns = np.nonzero(seen)
    (m, n), f = o.shape, numpy_loss(loss)

    def objective(x):
        values, slopes = f(x[0] + x[1 + rows] + x[1 + m + columns], o[seen])
        values, slopes = weights[seen] * values, weights[seen] * slopes
        by_row, by_column = np.bincount(rows, slopes, m), np.bincount(columns, slopes, n)
        gradient = np.concatenate([[slopes.sum()], by_row, by_column])
        gradient[1:] += ridge * x[1:]
        return values.sum() + 0.5 * ridge * (x[1:] ** 2).sum(), gradient

    best = minimize(objective, np.zeros(1 + m + n), jac=True, method="L-BFGS-B", options={"maxiter": 10_000}).fun
    return lambda level, row, column: objective(np.concatenate([[level], row, column]))[0], best


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ridge", [0.01, 3.0])
@pytest.mark.parametrize("loss", SMOOTH)
def test_biases_are_near_the_best(loss, ridge, weighted):
    o, seen = problem(loss, m=12, n=9, share=0.8)
    weights = 0.2 + np.random.default_rng(1).random(o.shape) if weighted else np.ones(o.shape)
    model = made(0, loss, biases=True, bias_ridge=ridge)
    model.fit(stored(o, seen), sample_weight=stored(weights, seen) if weighted else None)
    objective, best = best_biases(o, seen, weights, loss, penalties(model)[1])
    assert objective(*model.bias_terms()) <= best + 0.02 * abs(best) + 1e-6


def test_biases_of_skewed_labels_do_not_overshoot():
    """Newton steps did where the curvature falls, and the fit ended there: at 1.4 times the least objective here."""
    rng = np.random.default_rng(0)
    rows, columns = 2 * rng.standard_normal((400, 1)), 2 * rng.standard_normal(300)
    o = np.where(rng.random((400, 300)) < expit(4 + rows + columns), 1.0, -1.0)
    seen = rng.random(o.shape) < np.outer(rng.random(400), rng.random(300)) ** 3
    model = made(0, "logistic", biases=True, bias_ridge=0.5).fit(stored(o, seen))
    objective, best = best_biases(o, seen, np.ones(o.shape), "logistic", penalties(model)[1])
    assert objective(*model.bias_terms()) <= 1.02 * best
