"""The refinement of coefficients: to its optimum for every smooth loss, on data that make Newton steps fail too."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize

import fastsketch as fs
from fastsketch._core.losses import LOSSES, as_loss_parameter
from fastsketch._kernels import pool
from fastsketch._kernels.lowrank import coefficients
from fastsketch.lowrank._data import observed_entries
from fastsketch.lowrank._refine import CoefficientFit
from tests.helpers import tol
from tests.lowrank.problems import PARAMETER, SMOOTH, made, numpy_loss, problem, stored


def objectives(model):
    return np.array([line["objective"] for line in model.history])


def exact(model, o, seen, loss, refine, weights=None):
    """The objective of every rank from 1 if its coefficients, in the directions of the model, were refined to the end.

    By BFGS from those that the model has, of all of them or of the two that "economic" has.
    """
    fitted = model._fitted
    left, right = fitted.left.astype(float), fitted.right.astype(float)
    level, row, column = model.bias_terms()
    rows, columns = np.nonzero(seen)
    products, base, f = left[rows] * right[columns], level + row[rows] + column[columns], numpy_loss(loss)
    c = np.ones(len(rows)) if weights is None else weights[rows, columns]
    out = []
    for k in range(1, left.shape[1] + 1):
        theta, basis = fitted.path[k - 1, :k], products[:, :k]
        if refine == "economic":
            before = fitted.path[k - 2, : k - 1] if k > 1 else np.empty(0)
            basis = np.stack([products[:, : k - 1] @ before, products[:, k - 1]], axis=1)[:, 0 if k > 1 else 1 :]
            theta = np.array([*(theta[:1] / before[:1]), theta[-1]])
        unit = 1 / np.maximum(np.abs(basis).max(axis=0), 1e-300)

        def value(x, basis=basis, unit=unit):
            values, slopes = f(base + basis @ (x * unit), o[rows, columns])
            return (c * values).sum(), basis.T @ (c * slopes) * unit

        found = minimize(value, theta / unit, jac=True, method="BFGS", options={"maxiter": 5000, "gtol": 1e-9}).fun
        out.append(min(found, value(theta / unit)[0]))
    return np.array(out)


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("refine", ["economic", "full"])
@pytest.mark.parametrize("loss", SMOOTH)
def test_every_rank_is_within_a_thousandth_of_the_exact_refinement(loss, refine, weighted, biases):
    """Of the objective of the start, and far closer still."""
    o, seen = problem(loss, m=60, n=40, rank=4, noise=0.5)
    weights = np.random.default_rng(1).random(o.shape) ** 3 + 1e-3 if weighted else None
    given = stored(weights, seen) if weighted else None
    model = made(8, loss, refine, biases=biases, scaling=biases, max_refine_steps=None)
    f = objectives(model.fit(stored(o, seen), sample_weight=given))
    assert np.abs(f[1:] - exact(model, o, seen, loss, refine, weights)).max() <= 1e-5 * abs(f[0])
    # a limit of steps is one: fewer fit less well at the first rank, whose direction is the same
    few = made(1, loss, refine, biases=biases, scaling=biases, max_refine_steps=1)
    few = objectives(few.fit(stored(o, seen), sample_weight=given))
    assert np.isclose(few[1], f[1], rtol=1e-9) if loss == "square" else few[1] > f[1]


def test_two_steps_are_not_exact():
    """What users had before they could ask for more."""
    o, seen = problem("logistic", m=60, n=40, rank=4, noise=0.5)
    f = objectives(model := made(8, "logistic", "full", max_refine_steps=2).fit(stored(o, seen)))
    assert (f[1:] - exact(model, o, seen, "logistic", "full")).max() > 1e-3 * f[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", SMOOTH)
def test_full_is_never_worse_than_economic_from_the_same_ranks(loss, dtype):
    """Both add the rank that the same gradient asks for to the same model, again and again."""
    seen_by = []
    o, seen = problem(loss, m=50, n=30, rank=3, noise=0.5)
    x = stored(o, seen)
    x.data = x.data.astype(dtype)
    two = CoefficientFit.fit_two

    def both(self, state, u, v, *, first):
        mu, rho = two(self, state, u, v, first=first)
        seen_by.append((u.copy(), v.copy(), self.evaluate_two(state, u, v, mu, rho)[0], self))
        return mu, rho

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CoefficientFit, "fit_two", both)
        model = made(8, loss, "economic", biases=True, max_refine_steps=None).fit(x)
    path = model._fitted.path
    for k, (_, _, economic, refinement) in enumerate(seen_by):
        left, right = (
            np.ascontiguousarray(np.stack([pair[side] for pair in seen_by[: k + 1]], axis=1)) for side in (0, 1)
        )
        start = np.append(path[k - 1, :k] if k else [], 0.0)
        theta = refinement.fit_all(left, right, start)
        data, biases = refinement.observations.data, refinement.biases
        z = data.scores(left * theta, right, biases.rows, biases.columns)
        full = data.loss(refinement.loss, z)[0]
        assert full <= economic + 1e-5 * abs(objectives(model)[0])


@pytest.mark.parametrize("refine", ["economic", "full"])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_separable_labels_end_with_finite_coefficients(loss, refine):
    rng = np.random.default_rng(0)
    signs = np.sign(rng.standard_normal((40, 1)) * rng.standard_normal(30))
    seen = rng.random(signs.shape) < 0.5
    with np.errstate(all="raise"):
        model = made(3, loss, refine, max_refine_steps=None).fit(stored(signs, seen))
    f = objectives(model)
    assert f[1] <= 1e-3 * f[0] and (np.diff(f) <= 0).all()
    assert np.isfinite(model._fitted.path).all()
    z = model.decision_function(*np.nonzero(np.ones_like(seen))).reshape(signs.shape)
    assert (np.sign(z) == signs).all() and np.abs(z).max() < 1e4


@pytest.mark.parametrize("refine", ["economic", "full"])
def test_losses_that_are_flat_or_explode_where_they_begin(refine):
    rng = np.random.default_rng(0)
    seen = rng.random((40, 30)) < 0.6
    truth = 5.0 + rng.random((40, 1)) * rng.random(30)
    # every residual is far beyond delta: nothing is curved there
    far = made(2, "huber", refine, loss_parameter=1e-3, max_refine_steps=None).fit(stored(1e3 * truth, seen))
    f = objectives(far)
    assert f[1] < 0.2 * f[0]
    assert refined_once_more_huber(far, 1e3 * truth, seen) <= 1e-3 * f[0]
    # counts of thousands from rates of 1: the first Newton step would go to rates of e^1000
    counts = made(2, "poisson", refine, max_refine_steps=None).fit(stored(np.rint(1e3 * truth), seen))
    f = objectives(counts)
    assert np.isfinite(f).all() and (np.diff(f) <= 0).all()
    assert (f[1:] - exact(counts, np.rint(1e3 * truth), seen, "poisson", refine)).max() <= 1e-6 * abs(f[0])


def refined_once_more_huber(model, o, seen):
    """By how much the last rank's one scale would lower the objective."""
    z = model.decision_function(*np.nonzero(seen))
    value = lambda s: (1e-3 * (np.abs(s * z - o[seen]) - 0.5e-3)).sum()  # noqa: E731
    return value(1.0) - min(value(s) for s in np.linspace(0.9, 1.1, 401))


def test_columns_that_are_alike_and_rows_without_entries():
    """The pursuit adds the same direction twice if it must; the equations are then singular."""
    x = sparse.csr_array(np.outer([1.0, 0.0, 2.0, 0.0], [1.0, 3.0, 0.0]))
    for loss, left in (("square", 1e-8), ("huber", 0.1)):
        f = objectives(made(3, loss, "full", max_refine_steps=None).fit(x))
        assert f[-1] <= left * f[0] and (np.diff(f) <= 0).all()
    data = observed_entries(np.ones((6, 5)), loss="logistic")
    left, right = np.ones((6, 3)), np.ones((5, 3))
    g, bound, h = np.empty(3), np.empty(3), np.empty((3, 3))
    none = np.zeros(6)
    coefficients.newton_terms(
        1, 0.0, 0.25, *data.index_arrays, data.o, data.c, none, none[:5], left, right, np.zeros(3), g, bound, h
    )
    assert np.array_equal(h, np.full((3, 3), 7.5)) and np.array_equal(bound, [7.5] * 3)
    assert not coefficients.solve(h, g)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("t", [1, 3, 17])
def test_the_sums_of_a_newton_step(loss, dtype, weighted, t):
    """As plain NumPy has them, and the same bits for every number of threads."""
    rng = np.random.default_rng(0)
    about, p = LOSSES[loss], as_loss_parameter(loss, PARAMETER.get(loss))
    o, seen = problem(loss, m=400, n=90, share=0.9)
    weights = rng.random(o.shape)
    data = observed_entries(
        stored(o, seen).astype(dtype),
        loss=loss,
        sample_weight=stored(weights, seen) if weighted else None,
    )
    rows = np.repeat(np.arange(data.m), np.diff(data.indptr.astype(int)))
    rb, cb = (0.3 * rng.standard_normal(size).astype(dtype) for size in (data.m, data.n))
    left, right = (rng.standard_normal((size, t)).astype(dtype) for size in (data.m, data.n))
    theta = rng.standard_normal(t) / t
    products = left[rows].astype(float) * right[data.indices]
    z = rb[rows].astype(float) + cb[data.indices] + products @ theta
    c = data.c.astype(float) if weighted else np.ones(len(z))
    slopes, curves = c * about.slope(z, data.o, p), about.curvature(z, data.o, p)
    if loss == "huber":
        curves = np.where(curves == 0, p / np.maximum(np.abs(z - data.o), p), curves)
    bounds = c * about.lipschitz if about.lipschitz else c * curves + np.abs(slopes)
    before, found = pool.get(), []
    try:
        for n in (1, 2, 3, 8):
            pool.use(n)
            g, bound, h = np.empty(t), np.empty(t), np.empty((t, t))
            f = coefficients.newton_terms(
                about.number,
                p,
                about.lipschitz or 0.0,
                *data.index_arrays,
                data.o,
                data.c,
                rb,
                cb,
                left,
                right,
                theta,
                g,
                bound,
                h,
            )
            found.append((f, g, bound, h))
    finally:
        pool.use(before)
    for other in found[1:]:
        assert all(np.array_equal(one, two) for one, two in zip(found[0], other, strict=True))
    expected = (c * about.value(z, data.o, p)).sum(), products.T @ slopes, (bounds[:, None] * products**2).sum(axis=0)
    expected = *expected, products.T @ ((c * curves)[:, None] * products)
    for one, two in zip(found[0], expected, strict=True):
        assert np.abs(one - two).max() <= tol(np.float64, len(z) * np.abs(two).max())


def test_the_number_of_steps_is_checked_and_kept(tmp_path):
    o, seen = problem("logistic")
    for wrong, error in ((0, ValueError), (-1, ValueError), (1.5, TypeError), ("all", TypeError), (True, TypeError)):
        with pytest.raises(error, match="max_refine_steps"):
            fs.LowRankModel(2, max_refine_steps=wrong)
    for steps in (1, None):
        model = fs.LowRankModel(2, loss="logistic", max_refine_steps=steps, sweeps=0).fit(stored(o, seen))
        model.save(tmp_path / "m.fsk")
        assert fs.load(tmp_path / "m.fsk").parameters["max_refine_steps"] == steps
        whole = fs.LowRankModel(4, loss="logistic", max_refine_steps=steps, sweeps=0).fit(stored(o, seen))
        assert np.array_equal(model.add_ranks(2).factors()[0], whole.factors()[0])
