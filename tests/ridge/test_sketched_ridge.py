"""SketchedRidge against the normal equations in plain NumPy, and what a stream may do to it."""

import itertools
import warnings
from functools import partial

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.ridge._gram_model import GramModel, GramSum
from fastsketch.ridge._moments import ExcludedRowsGram, Moments
from tests.helpers import same_state, tol

D = 30
# the ridge counts in squared units of the rows, as in the formulas here
Unscaled = partial(fs.SketchedRidge, scale=False)
SMALL = 8 * D * 7  # bytes in which no sum (8 D^2) fits, but seven targets do


def examples(n=400, c=3, *, seed=0, density=1.0, offset=5.0, noise=1.0):
    """Draw rows (n, D), targets (n, c) and weights (n,)."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, D)) * np.linspace(2.0, 0.2, D) + (offset if density == 1.0 else 0.0)
    x *= rng.random((n, D)) < density
    y = x @ np.random.default_rng(99).standard_normal((D, c)) + noise * rng.standard_normal((n, c)) + 100.0
    return x, y, rng.integers(0, 4, n) / 2.0


def normal_equations(x, y, w, *, center=True):
    """Return (X'WX, X'WY, mu, nu)."""
    mu, nu = (np.average(a, axis=0, weights=w) if center else np.zeros(a.shape[1]) for a in (x, y))
    return ((x - mu).T * w) @ (x - mu), ((x - mu).T * w) @ (y - nu), mu, nu


def ridge(x, y, w, strength, *, center=True, penalty=1.0):
    """Return coefficients (d, c) and intercepts (c,)."""
    h, z, mu, nu = normal_equations(x, y, w, center=center)
    coef = np.linalg.solve(h + strength * np.diag(np.broadcast_to(penalty, len(h))), z)
    return coef, nu - mu @ coef


def apart(model, coef, intercept, strength=None):
    """Return the largest relative difference of coefficients and intercepts."""
    mine, own = model.coef(strength).T, model.intercept(strength)
    return max(np.abs(mine - coef).max() / np.abs(coef).max(), np.abs(own - intercept).max() / np.abs(coef).max())


def learned(model, x, y, w, cuts=(0, 1, 8, 150, 400)):
    for start, stop in itertools.pairwise(cuts):
        model.update(x[start:stop], y[start:stop], sample_weight=w[start:stop])
    return model


# -- against the normal equations ----------------------------------------------------------------------------------
@pytest.mark.parametrize("density", [1.0, 0.1])
@pytest.mark.parametrize("center", [True, False])
def test_where_the_sum_fits_it_is_ridge_regression(density, center):
    x, y, w = examples(density=density)
    rows = x if density == 1.0 else sparse.csr_array(x)
    model = learned(Unscaled(4, fit_intercept=center), rows, y, w)
    scaled = learned(Unscaled(4, fit_intercept=center, scale=True), rows, y, w)
    variance = np.diag(normal_equations(x, y, w, center=center)[0]) / w.sum()
    for strength in (0.0, 0.1, 10.0, 1e4):
        assert apart(model, *ridge(x, y, w, strength, center=center), strength) < 1e-10
        expected = ridge(x, y, w, strength, center=center, penalty=variance)
        assert apart(scaled, *expected, strength) < 1e-10
    coef, intercept = ridge(x, y, w, 10.0, center=center)
    assert np.allclose(model.predict(rows, ridge=10.0), x @ coef + intercept, rtol=0, atol=1e-10)
    assert model.is_exact
    assert model.total_weight == w.sum()


def test_many_sparse_rows_are_summed_by_their_nonzeros():
    x, y, w = examples(1200, density=0.1)
    model = Unscaled().update(sparse.csr_array(x[:700]), y[:700], sample_weight=w[:700])
    model.update(sparse.csr_array(x[700:]), y[700:], sample_weight=w[700:])
    assert apart(model, *ridge(x, y, w, 1.0), 1.0) < 1e-10


@pytest.mark.parametrize("density", [1.0, 0.1])
def test_a_sketch_stands_for_what_it_keeps_and_what_it_lacks_of_the_diagonal(density):
    x, y, w = examples(density=density)
    rows = x if density == 1.0 else sparse.csr_array(x)
    options = {"method": "rfd", "solver": "gram", "center": True}
    model = Unscaled(8, ridge=2.0, reservoir_size=0, max_memory=SMALL)
    sketch = fs.FrequentDirections(8, dtype=np.float64, **options)
    for part in (slice(0, 150), slice(150, 400)):
        model.update(rows[part], y[part], sample_weight=w[part])
        sketch.update(rows[part], w[part])
    h, z, mu, nu = normal_equations(x, y, w)
    b = sketch.sketch()
    lost = np.maximum(np.diag(h) - (b * b).sum(axis=0), 0.0)
    coef = np.linalg.solve(b.T @ b + np.diag(lost + 2.0), z)
    assert not model.is_exact
    assert apart(model, coef, nu - mu @ coef) < 1e-9


def test_a_sketch_of_more_rows_than_columns_is_exact():
    x, y, w = examples()
    model = learned(Unscaled(D + 2, max_memory=SMALL, reservoir_size=50), x, y, w)
    assert apart(model, *ridge(x, y, w, 3.0), 3.0) < 1e-9


def test_models_solve_as_the_matrices_that_they_are():
    rng = np.random.default_rng(0)
    z, lost, penalty, right = rng.random((D, 5)), rng.random(D), rng.random(D), rng.random((D, 2))
    root = rng.random((5, 4))
    dense = z @ root @ root.T @ z.T + np.diag(lost)
    model = GramModel(z, root, lost, 4.0)
    assert np.allclose(4.0 * (dense + np.diag(penalty / 4.0)) @ model.solver(penalty)(right), right)
    of_some = GramModel(z[1::3], root, lost, 4.0, np.arange(1, D, 3))  # which columns that do not occur are not among
    z[np.arange(D) % 3 != 1] = 0.0
    assert np.allclose(of_some.solver(penalty)(right), model.solver(penalty)(right), rtol=1e-12, atol=0.0)
    singular = np.diag(np.append(np.ones(D - 1), 0.0))
    shortest = GramSum(singular).solver(np.zeros(D))(right)
    assert np.allclose(shortest, np.append(right[:-1], [[0, 0]], axis=0))


def test_moments_add_up_and_are_taken_away_again():
    x, y, w = examples()
    w = w + 0.5
    whole = Moments.of(x, y, w, center=True)
    parts = [Moments.of(x[p], y[p], w[p], center=True) for p in (slice(0, 100), slice(100, 400))]
    h, z, mu, nu = normal_equations(x, y, w)
    assert np.allclose(whole.cross, z) and np.allclose(whole.squares, np.diag(h))
    for left, right in zip(parts[0].plus(parts[1]), whole, strict=True):
        assert np.allclose(left, right, rtol=1e-10)
    for left, right in zip(whole.without(parts[1]), parts[0], strict=True):
        assert np.allclose(left, right, rtol=1e-9)
    taken = ExcludedRowsGram(whole, whole.without(parts[1]), x[100:], w[100:])
    rest = normal_equations(x[:100], y[:100], w[:100])[0]
    assert np.allclose(h - taken.times(np.eye(D)), rest, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("c", [4, D + 10])
def test_coefficients_of_a_rank_explain_most(c):
    """Those of the leading directions of Z'(H + ridge)^-1 Z; with more targets than columns by another form."""
    x, y, w = examples(c=c)
    model = learned(Unscaled(rank=2, ridge=5.0), x, y, w)
    h, z, mu, nu = normal_equations(x, y, w)
    full = np.linalg.solve(h + 5.0 * np.eye(D), z)
    leading = np.linalg.eigh(full.T @ z)[1][:, -2:]
    coef = full @ leading @ leading.T
    assert apart(model, coef, nu - mu @ coef) < 1e-9
    assert np.linalg.matrix_rank(model.coef()) == 2
    assert apart(learned(Unscaled(rank=99, ridge=5.0), x, y, w), full, nu - mu @ full) < 1e-9


@pytest.mark.parametrize("memory", [1 << 20, SMALL])
def test_rows_fade(memory):
    x, y, w = examples(density=0.3)
    w = w + 0.5
    model = learned(Unscaled(D + 2, decay=0.99, max_memory=memory, reservoir_size=40), x, y, w)
    aged = w * 0.99 ** np.arange(399, -1, -1)
    assert apart(model, *ridge(x, y, aged, 1.0), 1.0) < 1e-8
    model.fade(0.5)
    assert apart(model, *ridge(x, y, aged / 2, 1.0), 1.0) < 1e-8
    assert model.total_weight == pytest.approx(aged.sum() / 2)


# -- held out ------------------------------------------------------------------------------------------------------
def test_the_path_is_of_rows_that_the_fit_has_not_seen():
    x, y, w = examples(noise=20.0)
    w = w + 0.5
    model = learned(Unscaled(D + 2, solver="gram", reservoir_size=200), x, y, w)  # which loses nothing
    path = model.score_path()
    mine = model._held.row_number[: model._residual_slice().stop]
    rest = np.delete(np.arange(400), mine)
    variance = np.diag(normal_equations(y[rest], y[rest], w[rest])[0]) / w[rest].sum()
    for strength, error in zip(path.ridges, path.errors, strict=True):
        coef, intercept = ridge(x[rest], y[rest], w[rest], strength)
        squares = ((y[mine] - x[mine] @ coef - intercept) ** 2 / variance).mean(axis=1)
        assert np.average(squares, weights=w[mine]) == pytest.approx(error, rel=1e-8)
    assert path.n_rows == 80 and path.ridge in path.ridges
    assert model.resolved["ridge"] == path.ridge == model.facts()["ridge"]
    assert (path.standard_errors > 0).all()


def test_rows_held_out_do_not_depend_on_batches_or_on_the_order_of_merges():
    x, y, w = examples(1000)
    whole = learned(Unscaled(reservoir_size=30), x, y, w, (0, 1000))
    cut = learned(Unscaled(reservoir_size=30), x, y, w, range(0, 1001, 50))
    assert np.array_equal(whole._held.row_number, cut._held.row_number)
    assert np.array_equal(whole._split_targets(whole._held)[0], cut._split_targets(cut._held)[0])
    parts = [learned(Unscaled(reservoir_size=30), x, y, w, (s, s + 250)) for s in range(0, 1000, 250)]
    orders = [fs.merge([part.copy() for part in parts]), fs.merge([part.copy() for part in parts[::-1]], fan_in=3)]
    assert np.array_equal(orders[0]._held.key, orders[1]._held.key)
    for model in orders:
        assert apart(model, *ridge(x, y, w, 1.0), 1.0) < 1e-10


@pytest.mark.parametrize("density", [1.0, 0.2])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("scale", [True, False])
def test_of_few_rows_each_is_predicted_by_all_others(density, center, scale):
    x, y, w = (part[:60] for part in examples(density=density, noise=3.0))
    form = x if density == 1.0 else sparse.csr_array(x)
    model = Unscaled(fit_intercept=center, scale=scale).update(form, y, sample_weight=w)
    some = w > 0  # others are not kept
    x, y, w = x[some], y[some], w[some]
    squares, targets = (np.diag(normal_equations(a, a, w, center=center)[0]) / w.sum() for a in (x, y))
    penalty = squares if scale else 1.0
    path, off = model.score_path(), []
    for strength, error in zip(path.ridges, path.errors, strict=True):
        away = np.empty_like(y)
        for i in range(len(x)):
            rest = np.delete(np.arange(len(x)), i)
            # about the mean of the others, at the penalty of all
            coef, intercept = ridge(x[rest], y[rest], w[rest], strength, center=center, penalty=penalty)
            away[i] = y[i] - x[i] @ coef - intercept * center
        # rows that alone have a nonzero in a column keep as little of their leverage as the ridge is of the eigenvalues
        rounding = 1e-7 + 100 * np.finfo(float).eps * path.ridges[-1] / strength / len(x)
        assert np.average((away**2 / targets).mean(axis=1), weights=w) == pytest.approx(error, rel=rounding)
        off.append(away)
    # intervals are of what each is off at the ridge that is best for all others
    errors = w * ((np.array(off) ** 2) / targets).mean(axis=2)
    best = [np.delete(errors, i, axis=1).sum(axis=1).argmin() for i in range(len(x))]
    found = np.sort(model._cached_residuals()[0], axis=0)
    assert np.allclose(found, np.sort(np.array(off)[best, np.arange(len(x))], axis=0), atol=1e-7)
    assert path.n_rows == len(x) and path.ridge in path.ridges


def test_intervals_of_few_rows_hold_as_much_as_they_say():
    held = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((540, 10))
        y = x.sum(axis=1) + 2.0 * rng.standard_t(3, 540)
        lower, upper = Unscaled().update(x[:40], y[:40]).predict_interval(x[40:])
        held.append(np.mean((lower <= y[40:]) & (y[40:] <= upper)))
    # forty rows know the quantile within .05, sixty draws of them within .006
    assert 0.88 < np.mean(held) < 0.92


def test_intervals_of_least_squares():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((40, 3))
    y = x[:, 0] + rng.standard_normal(40)
    lower, upper = Unscaled(ridge=0.0).update(x, y).predict_interval(x)
    off = np.empty(40)
    for i in range(40):
        others = np.arange(40) != i
        wide = np.column_stack([x, np.ones(40)])
        off[i] = y[i] - wide[i] @ np.linalg.lstsq(wide[others], y[others], rcond=None)[0]
    assert np.allclose((upper - lower) / 2, np.sort(np.abs(off))[int(np.ceil(0.9 * 41)) - 1])
    # rows that are all needed say nothing of each other
    lower, upper = (
        Unscaled(ridge=0.0)
        .update(rng.standard_normal((12, 20)), rng.standard_normal(12))
        .predict_interval(np.zeros(20))
    )
    assert np.isneginf(lower).all() and np.isposinf(upper).all()


def test_hardly_anything_left_of_a_row_is_no_nothing():
    rng = np.random.default_rng(4)
    x, y = 10 * rng.standard_normal((12, 20)), rng.standard_normal(12)
    off = np.empty(12)
    for i in range(12):  # the shortest coefficients that others leave
        others = np.arange(12) != i
        mean, level = x[others].mean(axis=0), y[others].mean()
        off[i] = y[i] - level - (x[i] - mean) @ np.linalg.pinv(x[others] - mean) @ (y[others] - level)
    lower, upper = Unscaled(ridge=1e-11, fit_intercept=True).update(x, y).predict_interval(x, coverage=0.8)
    assert np.allclose((upper - lower) / 2, np.sort(np.abs(off))[int(np.ceil(0.8 * 13)) - 1], rtol=0.01)


def test_too_few_rows_choose_no_ridge():
    x, y, w = examples()
    model = Unscaled().update(x[:2], y[:2])
    assert model.resolved["ridge"] is None
    with pytest.raises(ValueError, match="2 rows are too few"):
        model.score_path()
    # the mean squared length of a row about the mean
    assert model.resolved["ridge"] == pytest.approx(((x[:2] - x[:2].mean(0)) ** 2).sum(axis=1).mean())
    with pytest.raises(ValueError, match=r"coverage=0.9 needs the residuals of 9 rows .* there are 0"):
        model.predict_interval(x)
    given = Unscaled(ridge=1.0).update(x, y)
    with pytest.raises(ValueError, match="ridge is given"):
        given.score_path()
    assert given.predict_interval(x).lower.shape == (400, 3)


@pytest.mark.parametrize("memory", [1 << 20, SMALL])
def test_intervals_hold_as_much_as_they_say(memory):
    x, y, w = examples(6000, noise=3.0)
    new, truth, _ = examples(4000, seed=1, noise=3.0)
    model = Unscaled(8, max_memory=memory).update(x, y)
    for coverage in (0.8, 0.9, 0.95):
        lower, upper = model.predict_interval(new, coverage=coverage)
        held = ((lower <= truth) & (truth <= upper)).mean(axis=0)
        # of 600 rows the quantile is known within .016 at .8, and three targets
        assert np.abs(held - coverage).max() < 4.0 * (coverage * (1 - coverage) / 600) ** 0.5


def test_the_quantile_of_residuals_is_that_of_split_conformal_prediction():
    from fastsketch.ridge._read_out import conformal_quantile

    residuals = -np.arange(1.0, 10.0)[:, np.newaxis]
    assert conformal_quantile(residuals, np.ones(9), 0.9)[0] == 9.0
    assert conformal_quantile(residuals, np.ones(9), 0.8)[0] == 8.0
    with pytest.raises(ValueError, match="19 rows that chose nothing, and there are 9"):
        conformal_quantile(residuals, np.ones(9), 0.95)


# -- reading the rows again ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("density", [1.0, 0.2])
def test_refining_reaches_the_coefficients_of_all_rows(density):
    x, y, w = examples(density=density)
    rows = x if density == 1.0 else sparse.csr_array(x)
    model = learned(Unscaled(6, ridge=3.0, max_memory=SMALL), rows, y, w)
    coef, intercept = ridge(x, y, w, 3.0)
    h = normal_equations(x, y, w)[0] + 3.0 * np.eye(D)
    before, whole = apart(model, coef, intercept), model.copy()
    first = model.refine(rows, sample_weight=w, passes=3)
    assert first.passes == 3 and not first.converged
    off = model.coef().T - coef
    assert (np.sqrt(np.einsum("ij,ij->j", off, h @ off)) <= first.bound * (1 + 1e-9)).all()
    # saved in the middle it goes on with the same bits, as if there had been one call
    again, last = fs.from_bytes(model.to_bytes()), model.refine(rows, sample_weight=w, passes=40, tolerance=1e-10)
    assert last.converged and last.passes < 43 and (last.residual <= 1e-10).all()
    assert apart(model, coef, intercept) < 1e-8 < before
    again.refine(rows, sample_weight=w, passes=40, tolerance=1e-10)
    whole.refine(fs.open_rows(rows), sample_weight=w, passes=43, tolerance=1e-10)
    assert np.array_equal(again.coef(), model.coef())
    assert np.allclose(whole.coef(), model.coef(), rtol=0, atol=1e-12)
    # residuals are of rows that the coefficients have not seen; those of weight 0 are not counted
    x, y, w = (array[w > 0] for array in (x, y, w))
    came = model._held.row_number[model._residual_slice()]
    rest = np.delete(np.arange(len(x)), came)
    coef, intercept = ridge(x[rest], y[rest], w[rest], 3.0)
    expected = y[came] - x[came] @ coef - intercept
    assert np.allclose(model._cached_residuals()[0], expected, atol=1e-6)
    assert model.update(x[:1], y[:1]).refine(np.vstack([x, x[:1]]), sample_weight=np.append(w, 1.0)).passes > 0


def test_rows_that_are_not_those_seen_are_refused_and_nothing_changes():
    x, y, w = examples()
    model = learned(Unscaled(6, max_memory=SMALL), x, y, w)
    coef, state = model.coef(), model.to_bytes()
    for rows, weights in ((x, None), (x[:-1], w[:-1]), (2 * x, w)):
        with pytest.raises(ValueError, match="these are not the same rows"):
            model.refine(rows, sample_weight=weights)
        assert model.to_bytes() == state and np.array_equal(model.coef(), coef)
    with pytest.raises(ValueError, match="30 columns"):
        model.refine(x[:, 1:])
    with pytest.raises(ValueError, match="without decay"):
        Unscaled(decay=0.9).update(x, y).refine(x)
    assert np.isinf(Unscaled(6, ridge=0.0, max_memory=SMALL).update(x, y).refine(x, passes=1).bound).all()


# -- many models, files, jobs --------------------------------------------------------------------------------------
def test_parts_of_a_job_give_the_same_bits_with_any_number_of_workers(tmp_path, monkeypatch):
    monkeypatch.setattr("fastsketch.jobs._run.PART_BYTES", 40_000)
    x, y, _ = examples(600, c=2)
    table = np.hstack([x[:, :5], y, x[:, 5:]])
    np.save(tmp_path / "rows.npy", table)
    model = Unscaled(8, max_memory=SMALL)
    first, second = (
        fs.run(model, tmp_path / "rows.npy", target=[5, -29 + D - 6], workers=k, engine="threads") for k in (1, 2)
    )
    same_state(first, second)
    assert first.n_rows == 600 and first.coef().shape == (2, D)
    single = fs.run(Unscaled(), tmp_path / "rows.npy", target=5)
    assert single.coef().shape == (D + 1,)


def test_targets_lie_beside_the_rows_of_a_source(tmp_path):
    x, y, w = examples()
    header = ",".join([*(f"x{j}" for j in range(D)), "a", "b", "c"])
    np.savetxt(tmp_path / "t.csv", np.hstack([x, y]), delimiter=",", header=header, comments="", fmt="%.17g")
    model = Unscaled().update(fs.open_rows(tmp_path / "t.csv", beside=["a", "b", "c"]), sample_weight=w)
    assert apart(model, *ridge(x, y, w, 1.0), 1.0) < 1e-10
    assert model.feature_names == tuple(f"x{j}" for j in range(D))
    one = Unscaled().update(fs.open_rows(tmp_path / "t.csv", beside="a", columns=["x0", "x1"]))
    assert np.allclose(one.coef(1.0), ridge(x[:, :2], y[:, :1], np.ones(400), 1.0)[0][:, 0])
    given = Unscaled().update(fs.open_rows(x), y, sample_weight=w)
    assert np.allclose(given.coef(1.0), model.coef(1.0))
    with pytest.raises(TypeError, match="no column lies beside"):
        model.update(fs.open_rows(x))
    with pytest.raises(ValueError, match="targets must have one entry"):
        given.update(fs.open_rows(x), y[:-1])
    assert given.n_rows == np.count_nonzero(w)


def test_models_of_other_targets_do_not_merge():
    x, y, _ = examples()
    model = Unscaled().update(x, y)
    for other in (y[:, :2], y[:, 0]):
        with pytest.raises(ValueError, match="n_targets"):
            model.merge(Unscaled().update(x, other))
    with pytest.raises(ValueError, match="rank"):
        model.merge(Unscaled(rank=1).update(x, y))


# -- bad input -----------------------------------------------------------------------------------------------------
BAD = {
    "a missing number, by row and target": (lambda x, y: (x, put(y, (7, 2), np.nan)), ValueError, "row 7 .* target 2"),
    "an infinity in rows": (lambda x, y: (put(x, (3, 4), np.inf), y), ValueError, "row 3 .* column 4"),
    "another width of targets": (lambda x, y: (x, y[:, :2]), ValueError, "3 targets a row as the rows before, got 2"),
    "a vector in place of a matrix": (lambda x, y: (x, y[:, 0]), ValueError, "3 targets a row .* got one"),
    "a word": (lambda x, y: (x, put(y.astype(str), (9, 1), "abc")), ValueError, "real numbers: row 9 holds 'abc'"),
    "complex numbers": (lambda x, y: (x, y * 1j), TypeError, "real numbers"),
    "sparse targets": (lambda x, y: (x, sparse.csr_array(y)), TypeError, "array of numbers"),
    "masked targets": (lambda x, y: (x, np.ma.masked_array(y)), TypeError, "masked array"),
    "another length": (lambda x, y: (x, y[:-1]), ValueError, "each of the 400 rows"),
    "no targets": (lambda x, y: (x, None), TypeError, "targets must be given"),
    "another width of rows": (lambda x, y: (x[:, 1:], y), ValueError, "30 columns"),
    "numbers whose squares leave the range": (lambda x, y: (x * 1e200, y), ValueError, "leave the range"),
}


def put(array, place, value):
    out = array.copy()
    out[place] = value
    return out


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("memory", [1 << 20, SMALL])
def test_what_is_refused_changes_nothing(name, memory):
    make, error, match = BAD[name]
    x, y, _ = examples()
    model = Unscaled(6, max_memory=memory).update(x, y)
    state = model.to_bytes()
    with pytest.raises(error, match=match):
        model.update(*make(x, y))
    assert model.to_bytes() == state


def test_more_coefficients_than_memory_are_refused_with_the_number():
    x, y, _ = examples(c=8)
    with pytest.raises(ValueError, match=r"30 columns for 8 targets take 1,920 bytes, more than max_memory=1,680"):
        Unscaled(max_memory=SMALL).update(x, y)


def test_parameters_and_questions_are_checked():
    x, y, _ = examples()
    with pytest.raises(ValueError, match="ridge must lie"):
        Unscaled(ridge=-1.0)
    with pytest.raises(ValueError, match="call update first"):
        Unscaled().predict(x)
    model = Unscaled().update(x, y)
    for wrong in (-1.0, np.nan):
        with pytest.raises(ValueError, match="ridge must lie"):
            model.coef(wrong)
    with pytest.raises(ValueError, match="coverage must lie"):
        model.predict_interval(x, coverage=1.0)
    with pytest.raises(ValueError, match="30 columns"):
        model.predict(x[:, 1:])


def test_odd_targets_and_weights_are_answered():
    x, y, _ = examples()
    constant = Unscaled().update(x, np.full(400, 7.0))
    assert np.abs(constant.coef()).max() < tol(np.float64, 7.0) and constant.intercept() == pytest.approx(7.0)
    lower, upper = constant.predict_interval(x)
    assert np.allclose(lower, 7.0) and np.allclose(upper, 7.0)
    feature = Unscaled().update(x, x[:, 3])
    assert np.abs(feature.coef(0.0) - np.eye(D)[3]).max() < 1e-10
    weights = np.append(np.zeros(200), np.ones(200))
    half = Unscaled().update(x, y, sample_weight=weights)
    assert apart(half, *ridge(x[200:], y[200:], np.ones(200), 1.0), 1.0) < 1e-10
    assert half.to_bytes() == Unscaled().update(x[200:], y[200:]).to_bytes()
    nothing = Unscaled().update(x, y, sample_weight=0.0)
    assert nothing.n_rows == 0
    with pytest.raises(ValueError, match="has seen no rows"):
        nothing.coef()
    same = np.ones((400, 2))
    assert not Unscaled().update(same, y[:, 0]).coef().any()


def test_large_means_cost_no_digits():
    x, y, w = examples(offset=0.0, noise=0.1)
    exact, far = (learned(Unscaled(), x + shift, y, w) for shift in (0.0, 1e6))
    assert np.allclose(far.coef(1.0), exact.coef(1.0), rtol=0, atol=1e-7)


def test_nothing_warns():
    x, y, _ = examples(density=0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = Unscaled(6, max_memory=SMALL).update(sparse.csr_array(x), y)
        assert model.predict(sparse.csr_array(x[:1])).shape == (1, 3)
        assert model.facts()["n_targets"] == 3


def test_constant_columns_and_targets_of_any_size_count_nothing():
    x, y, _ = examples()
    constant = np.column_stack([x, np.full(len(x), 1.1)])
    for rows in (constant, sparse.csr_array(constant)):
        model = Unscaled(scale=True, ridge=1.0, decay=0.999)
        for start in range(0, len(x), 167):
            model.update(rows[start : start + 167], y[start : start + 167])
        assert np.abs(model.coef()[:, -1]).max() < 1e-9
    both = np.column_stack([x[:, 0], np.full(len(x), 1 / 3)])
    assert Unscaled().update(x, both).score_path().ridge < 1e-6 * Unscaled().update(x, y).score_path().ridge


def test_a_sketch_that_loses_nothing_needs_no_ridge():
    x, y, _ = examples()
    one, exact = (Unscaled(2 * D, ridge=0.0, solver=solver).update(x, y) for solver in ("gram", "exact"))
    assert np.allclose(one.coef(), exact.coef(), rtol=1e-5, atol=1e-6)


def test_sparse_rows_far_from_zero_are_scaled_as_dense_ones():
    x, y, _ = examples()
    one, two = (Unscaled(ridge=1.0, scale=True).update(rows, y) for rows in (x + 1e6, sparse.csr_array(x + 1e6)))
    assert np.allclose(one.coef(), two.coef(), rtol=1e-6, atol=1e-6)


def test_intervals_where_new_rows_weigh_most_are_wide_or_refused():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1000, 5))
    y = x.sum(axis=1) + rng.standard_normal(1000)
    with pytest.raises(ValueError, match="rows that chose nothing, and there are 1.*by weight"):
        Unscaled(ridge=1.0, decay=0.9).update(x, y).predict_interval(x, coverage=0.9)
    narrow, wide = (Unscaled(ridge=1.0, decay=decay).update(x, y).predict_interval(x[:1]) for decay in (1.0, 0.995))
    assert (wide.upper - wide.lower).item() > (narrow.upper - narrow.lower).item()
