"""Ridges by generalised cross-validation and leave-one-out, against plain NumPy, and where neither applies."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.ridge._cross_validation import GeneralisedCrossValidation
from fastsketch.ridge._read_out import Scorer
from tests.helpers import same_state

D = 12


def rows_and_targets(n=300, c=2, *, seed=0, noise=3.0, density=1.0):
    """Draw correlated rows (n, D) in unlike units, targets (n, c) and weights (n,)."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, D)) @ np.random.default_rng(98).standard_normal((D, D)) * np.geomspace(0.01, 100.0, D)
    x *= rng.random((n, D)) < density
    y = x / np.geomspace(0.01, 100.0, D) @ np.random.default_rng(99).standard_normal((D, c))
    return x, y + noise * rng.standard_normal((n, c)) + 7.0, rng.integers(0, 4, n) / 2.0


def generalised_cross_validation(x, y, w, ridge, *, center, scale):
    """Return V of Golub, Heath and Wahba by the hat matrix of weighted rows, over the variance of each target, (c,)."""
    n = w.sum() ** 2 / (w @ w)  # Kish's effective number of rows
    root = np.sqrt(w)[:, None]
    mean, level = (np.average(a, axis=0, weights=w) if center else np.zeros(a.shape[1]) for a in (x, y))
    x, y = root * (x - mean), root * (y - level)
    penalty = ridge * ((x * x).sum(axis=0) / w.sum() if scale else np.ones(x.shape[1]))
    hat = x @ np.linalg.solve(x.T @ x + np.diag(penalty), x.T)
    if center:
        hat = hat + root @ root.T / w.sum()
    residual = y - hat @ y
    return n * (residual**2).sum(axis=0) / (n - np.trace(hat)) ** 2 * n / (y * y).sum(axis=0)


def leave_one_out(x, y, w, ridge, sample, *, center):
    """Return the ratio estimate of the weighted leave-one-out error by rows of a sample, each left out in turn."""
    mean, level = (np.average(a, axis=0, weights=w) if center else np.zeros(a.shape[1]) for a in (x, y))
    penalty = ridge * (w @ (x - mean) ** 2) / w.sum()
    variance = w @ (y - level) ** 2

    def off(rest, rows):
        mean, level = (np.average(a[rest], axis=0, weights=w[rest]) if center else 0.0 * a[0] for a in (x, y))
        own = w[rest, None] * (x[rest] - mean)
        coef = np.linalg.solve(own.T @ (x[rest] - mean) + np.diag(penalty), own.T @ (y[rest] - level))
        return w[rows] * (((y[rows] - level - (x[rows] - mean) @ coef) ** 2) / variance).mean(axis=1)

    every = np.arange(len(x))
    residual = off(every, every)
    others = sum(off(np.delete(every, i), every[i : i + 1]).sum() for i in sample)
    return residual.sum() * others / residual[sample].sum()


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_leverages_of_a_sample_estimate_leave_one_out(center, form):
    x, y, w = rows_and_targets(120, density=0.6)
    x, y, w = x[w > 0], y[w > 0], w[w > 0]
    model = fs.SketchedRidge(reservoir_size=40, fit_intercept=center, scale=True).update(form(x), y, sample_weight=w)
    path, sample = model.score_path(), model._held.row_number
    assert path.n_rows == len(x) and len(sample) == 40
    for ridge, error in zip(path.ridges[8::6], path.errors[8::6], strict=True):
        expected = leave_one_out(x, y, w, ridge, sample, center=center)
        assert error == pytest.approx(expected, rel=1e-7)
    # of all rows it is what rows at hand say
    whole = fs.SketchedRidge(fit_intercept=center, scale=True).update(form(x), y, sample_weight=w)
    moments, rows = whole._known_moments(), whole._rows_if_all_held()
    gcv = GeneralisedCrossValidation(
        whole._normal_equations(slice(0, 0)).gram.gram, moments, moments.variance, n=len(x), center=center
    )
    errors = whole._leave_one_out(rows).errors(Scorer("squared_error", moments, is_complete=True), rows).mean(axis=1)
    of_sample = gcv.leave_one_out(np.full(2, 0.5), rows)
    of_sample = np.interp(np.log(whole.score_path().ridges), np.log(gcv.ridges), of_sample)
    assert np.allclose(errors[-30:], of_sample[-30:], rtol=1e-3)


@pytest.mark.parametrize("density", [1.0, 0.3])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_scores_are_those_of_the_hat_matrix(density, center, scale, weighted):
    x, y, w = rows_and_targets(density=density)
    w = w if weighted else np.ones(len(x))
    form = np.asarray if density == 1.0 else sparse.csr_array
    model = fs.SketchedRidge(reservoir_size=0, fit_intercept=center, scale=scale)
    for part in (slice(0, 100), slice(100, 300)):
        model.update(form(x[part]), y[part], sample_weight=w[part])
    path = model.score_path()
    for ridge, error in zip(path.ridges, path.errors, strict=True):
        expected = generalised_cross_validation(x, y, w, ridge, center=center, scale=scale).mean()
        # eigenvalues of X'X round by eps times the largest, and here the least is 1e-10 of it in squared units
        assert error == pytest.approx(expected, rel=1e-8 if scale else 1e-5)
    assert path.ridge == path.ridges[path.errors.argmin()] == model.facts()["ridge"]
    assert path.n_rows == np.count_nonzero(w)


def test_rows_that_fade_count_by_kishs_number():
    x, y, _ = rows_and_targets(800)
    model = fs.SketchedRidge(decay=0.99).update(x[:500], y[:500]).update(x[500:], y[500:])
    w = 0.99 ** np.arange(799.0, -1, -1)
    path = model.score_path()
    for ridge, error in zip(path.ridges[::7], path.errors[::7], strict=True):
        expected = generalised_cross_validation(x, y, w, ridge, center=True, scale=True).mean()
        assert error == pytest.approx(expected, rel=1e-8)
    halved = fs.from_bytes(model.copy().fade(0.5).to_bytes())
    assert np.allclose(halved.score_path().errors, path.errors)
    parts = [fs.SketchedRidge().update(x[a:b], y[a:b]) for a, b in ((0, 300), (300, 800))]
    merged, whole = parts[0].merge(parts[1]), fs.SketchedRidge().update(x, y)
    assert merged._known_moments().n_effective == pytest.approx(800.0)
    assert np.allclose(merged.score_path().errors, whole.score_path().errors)


@pytest.mark.parametrize("n", [400, 2500])
def test_the_chosen_ridge_is_nearly_the_best(n):
    """Both scores are asymptotically optimal (Li 1986): the loss to the best ridge vanishes beside the error itself."""
    loss = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((n, 60))
        coef = rng.standard_normal(60) * 0.8 ** np.arange(60)
        model = fs.SketchedRidge().update(x, x @ coef + 4.0 * rng.standard_normal(n))
        off = [np.sum((model.coef(ridge) - coef) ** 2) for ridge in (None, *np.geomspace(1e-2, 1e2, 33) * n)]
        loss.append((off[0], min(off[1:])))
    chosen, best = np.mean(loss, axis=0)
    # of the best's own error at n rows a share, and of the noise by far less
    assert chosen < 1.2 * best and chosen - best < 0.02 * 16.0


def test_one_ridge_serves_all_targets():
    x, y, _ = rows_and_targets(3000)
    both, beside = (
        fs.SketchedRidge(reservoir_size=0).update(x, np.column_stack([y[:, 0], other])).score_path()
        for other in (1e6 * y[:, 1], np.full(3000, 1 / 3))
    )
    single = [fs.SketchedRidge(reservoir_size=0).update(x, y[:, j]).score_path() for j in range(2)]
    assert np.allclose(both.errors, (single[0].errors + single[1].errors) / 2)
    assert np.allclose(beside.errors, single[0].errors)  # a constant target has no say


HELD_OUT = {
    "labels by their log loss": {"scoring": "log_loss"},
    "coefficients of a rank": {"rank": 1},
    "a sketch": {"solver": "gram", "sketch_size": 4},
    "fewer rows by weight than columns": {"decay": 0.8},
}


@pytest.mark.filterwarnings("ignore:decay=0.8 leaves the weight of 9 rows")
@pytest.mark.parametrize("name", HELD_OUT)
def test_rows_held_out_choose_where_sums_cannot(name):
    x, y, _ = rows_and_targets(3000)
    y = np.where(y > 7.0, 1.0, -1.0) if name.startswith("labels") else y
    model = fs.SketchedRidge(reservoir_size=200, **HELD_OUT[name]).update(x, y)
    path = model.score_path()
    assert path.n_rows == 200 and path.ridge in path.ridges


def test_few_rows_that_carry_a_column_have_their_say():
    """Generalised cross-validation takes the mean leverage for theirs, and shrinks far too little."""
    chosen, best = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x = (rng.random((3000, 200)) < 0.001).astype(float)
        x[:, 0] = rng.standard_normal(3000)
        y = x[:, 0] + rng.standard_t(2.2, 3000) * (1.0 + 4.0 * (x[:, 1:].sum(axis=1) > 0))
        truth = np.eye(200)[0]
        models = [fs.SketchedRidge(reservoir_size=size).update(x, y) for size in (2000, 0)]
        coefs = [*(model.coef() for model in models), *(models[0].coef(r) for r in np.geomspace(1e-3, 1e6, 37))]
        off = [np.sum((x @ (coef - truth)) ** 2) for coef in coefs]
        chosen.append(off[:2])
        best.append(min(off[2:]))
    by_sample, by_sums = np.mean(chosen, axis=0)
    assert by_sample < 0.5 * by_sums and by_sample < 3.0 * np.mean(best)


def test_a_state_of_before_counts_its_rows_by_those_held_out():
    x, y, _ = rows_and_targets(600)
    w = np.random.default_rng(0).lognormal(0.0, 1.0, 600)
    model = fs.SketchedRidge(scale=False, reservoir_size=500).update(x, y, sample_weight=w)
    state, arrays = model._state()
    for name in ("weight_norm", "scaled"):
        state.pop(name)
    model._validate(state, arrays)
    old = fs.SketchedRidge(scale=False, reservoir_size=500)
    old._restore(state, arrays)
    assert np.array_equal(old.coef(3.0), model.coef(3.0)) and old.facts()["scale"] is False
    # of five sixths of the rows sum w^2 is known as the mean of so many of finite variance
    squares = w * w
    allowed = 4.0 * squares.std() / squares.mean() * (1.0 / 500 - 1.0 / 600) ** 0.5
    assert old._known_moments().n_effective == pytest.approx(model._known_moments().n_effective, rel=allowed)


# -- standardised columns ----------------------------------------------------------------------------------------------
def test_columns_of_dense_rows_are_standardised_and_those_of_sparse_ones_are_not():
    x, y, _ = rows_and_targets()
    units = np.geomspace(1e-4, 1e4, D)
    dense, scaled = (fs.SketchedRidge().update(rows, y) for rows in (x, x * units))
    assert np.allclose(dense.predict(x), scaled.predict(x * units), rtol=1e-6)
    same = fs.SketchedRidge(scale=True).update(x, y)
    assert np.array_equal(dense.coef(), same.coef())
    rows = sparse.csr_array(x)
    plain, other = fs.SketchedRidge().update(rows, y), fs.SketchedRidge(scale=False).update(rows, y)
    assert np.array_equal(plain.coef(), other.coef())
    assert [model.facts()["scale"] for model in (dense, same, plain, other)] == [True, True, False, False]
    assert fs.SketchedRidge().resolved["scale"] is None and dense.resolved["scale"] is True
    again = fs.from_bytes(plain.to_bytes()).update(x, y)  # the first rows have decided
    assert again.facts()["scale"] is False
    same_state(again, plain.update(x, y))
    with pytest.raises(ValueError, match="not: give both the same scale="):
        dense.merge(plain)


# -- odd rows ----------------------------------------------------------------------------------------------------------
ODD = {
    "constant columns": lambda x: x * (np.arange(D) % 2),
    "all columns constant": lambda x: np.ones_like(x),
    "duplicated columns": lambda x: x[:, np.arange(D) // 2],
    "fewer rows than columns": lambda x: x[: D - 4],
    "one row": lambda x: x[:1],
    "equal rows": lambda x: np.repeat(x[:1], len(x), axis=0),
    "columns that are nearly the same": lambda x: x[:, :1] + 1e-9 * x,
    "units 1e9 apart": lambda x: x * np.geomspace(1.0, 1e9, D),
    "heavy tails": lambda x: np.sign(x) * np.abs(x) ** 5,
    "a column of two nonzeros": lambda x: x * ~((np.arange(D) == 2) & (np.arange(len(x)) > 1)[:, None]),
}


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("size", [2000, 60])
@pytest.mark.parametrize("name", ODD)
def test_odd_rows_are_answered(name, size, form):
    x, _, _ = rows_and_targets(200)
    x = ODD[name](x)
    rng = np.random.default_rng(0)
    varies = np.ptp(x, axis=0) > 0
    z = (x[:, varies] - x[:, varies].mean(axis=0)) / x[:, varies].std(axis=0)
    y = z.sum(axis=1) + rng.standard_normal(len(x))
    model = fs.SketchedRidge(reservoir_size=size).update(form(x), y)
    assert np.isfinite(model.coef()).all() and np.isfinite(model.intercept()) and model.facts()["ridge"] > 0
    assert np.mean((model.predict(form(x)) - y) ** 2) <= np.var(y) * (1 + 1e-9)  # never worse than the mean


# -- intervals ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [300, 1500, 4000])
def test_intervals_hold_as_much_as_they_say_at_any_number_of_rows(n):
    held = []
    for seed in range(24):
        x, y, _ = rows_and_targets(n + 2000, 1, seed=seed)
        lower, upper = fs.SketchedRidge().update(x[:n], y[:n]).predict_interval(x[n:])
        held.append(np.mean((lower <= y[n:]) & (y[n:] <= upper)))
    # a quantile of 300 rows is known within .017, of 24 draws of them within .0035
    assert abs(np.mean(held) - 0.9) < 0.015


def test_rows_that_measure_have_not_chosen_the_ridge_of_their_fit():
    x, y, _ = rows_and_targets(3000, 1)
    model = fs.SketchedRidge().update(x, y)
    came = model._held.row_number[model._residual_slice()]
    rest = np.delete(np.arange(3000), came)
    other = fs.SketchedRidge(reservoir_size=0).update(x[rest], y[rest])
    moments = other._known_moments()
    gcv = GeneralisedCrossValidation(
        other._normal_equations(slice(0, 0)).gram.gram, moments, moments.variance, n=len(rest), center=True
    )
    others = np.delete(np.arange(2000), np.arange(2000)[model._residual_slice()])
    errors = gcv.leave_one_out(np.ones(1), model._held_out_rows(others))
    expected = y[came] - other.predict(x[came], ridge=gcv.ridges[errors.argmin()])
    assert np.allclose(model._cached_residuals()[0], expected, rtol=1e-8, atol=1e-8)
