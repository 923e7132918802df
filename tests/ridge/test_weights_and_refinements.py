"""SketchedRidge where rows weigh more than others, where they are read again, and what it says of odd input."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

import fastsketch as fs
from tests.ridge.test_sketched_ridge import SMALL, D, Unscaled, examples, normal_equations, ridge


# -- rows that weigh more than others ------------------------------------------------------------------------------
@pytest.mark.parametrize("solver", ["exact", "gram"])
@pytest.mark.parametrize("n", [50, 1000])
@pytest.mark.parametrize("unit", [1e-12, 1e-6, 1e6, 1e12])
def test_the_unit_of_weights_changes_the_chosen_ridge_and_no_coefficient(solver, n, unit):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 6))
    y = x[:, :3].sum(axis=1) + rng.standard_normal(n)
    one = Unscaled(4, solver=solver).update(x, y)
    same, faded = Unscaled(4, solver=solver).update(x, y, sample_weight=unit), one.copy().fade(min(unit, 1.0))
    for model, factor in ((same, unit), (faded, min(unit, 1.0))):
        assert_allclose(model.coef(), one.coef(), rtol=1e-9)
        assert_allclose(model.facts()["ridge"], one.facts()["ridge"] * factor, rtol=1e-9)


@pytest.mark.parametrize("solver", ["exact", "gram"])
def test_where_two_rows_count_a_ridge_is_still_chosen_on_twenty(solver):
    """Of decay .5 the latest row held out weighs more than all others: alone it would choose anything."""
    off, best = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((2000, 2))
        y = x @ [5.0, 7.7] + rng.standard_normal(2000)
        h, z, _, _ = normal_equations(x, y[:, np.newaxis], 0.5 ** np.arange(1999.0, -1, -1))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = Unscaled(4, decay=0.5, solver=solver)
            for part in (slice(0, 1500), slice(1500, 2000)):
                model.update(x[part], y[part])
            off.append(np.linalg.norm(model.coef() - [5.0, 7.7]))
        best.append(np.linalg.norm(np.linalg.solve(h + 0.01 * np.eye(2), z)[:, 0] - [5.0, 7.7]))
    assert np.mean(off) < 1.5 * np.mean(best)


def test_what_rows_count_in_a_choice_follows_their_weights_but_for_the_largest():
    from fastsketch.ridge._read_out import MIN_ROWS, Rows

    weight = np.append(np.full(MIN_ROWS - 1, 7.0), [1.0, 2.0, 2.0, 1e-3])
    weight[0] = 1e9
    counts = Rows(None, weight, weight).clipped_weights()
    expected = np.append(np.full(MIN_ROWS - 1, 2.0), [1.0, 2.0, 2.0, 1e-3])
    assert np.allclose(counts, expected / expected.mean())
    assert np.array_equal(Rows(weight, weight, weight).first(MIN_ROWS).clipped_weights(), np.ones(MIN_ROWS))
    assert np.array_equal(Rows(None, weight, 0.0 * weight).clipped_weights(), np.ones(len(weight)))


WEIGHTED = {
    "weights that tell nothing": lambda x, rng: (rng.lognormal(0.0, 1.0, len(x)), 1.0),
    "weights and noise that grow with a column": lambda x, rng: (np.exp(x[:, 0]), np.exp(x[:, 0] / 2)),
    "a twentieth that weighs 20": lambda x, rng: ((w := np.where(rng.random(len(x)) < 0.05, 20.0, 1.0)), np.sqrt(w)),
}


@pytest.mark.parametrize("name", WEIGHTED)
def test_intervals_of_weighted_rows_hold_rows_drawn_by_their_weights(name):
    share = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((5000, 5))
        w, noise = WEIGHTED[name](x, rng)
        y = x.sum(axis=1) + noise * rng.standard_normal(5000)
        lower, upper = Unscaled().update(x[:2000], y[:2000], sample_weight=w[:2000]).predict_interval(x[2000:])
        share.append(np.average((lower <= y[2000:]) & (y[2000:] <= upper), weights=w[2000:]))
    # of 200 rows, of which 70 count, a quantile is known within .036, of 25 draws within .007
    assert 0.88 < np.mean(share) < 0.92


# -- the rows of a refinement --------------------------------------------------------------------------------------
OTHER_ROWS = {
    "signs of some rows": lambda x, y, w: (x * np.where(np.arange(len(x)) % 2, 1.0, -1.0)[:, None], w),
    "the sign of a column": lambda x, y, w: (x * np.where(np.arange(D) == 3, -1.0, 1.0), w),
    "another column of the same length": lambda x, y, w: (x[:, ::-1], w),
    "weights of other rows": lambda x, y, w: (x, w[::-1]),
}


@pytest.mark.parametrize("name", OTHER_ROWS)
@pytest.mark.parametrize("density", [1.0, 0.2])
def test_rows_of_the_same_squares_are_told_apart(name, density):
    x, y, w = examples(density=density)
    form = np.asarray if density == 1.0 else sparse.csr_array
    model = Unscaled(6, ridge=3.0, max_memory=SMALL).update(form(x), y, sample_weight=w)
    other, weights = OTHER_ROWS[name](x, y, w)
    state = model.to_bytes()
    with pytest.raises(ValueError, match="these are not the same rows"):
        model.refine(form(other), sample_weight=weights)
    assert model.to_bytes() == state
    order = np.random.default_rng(0).permutation(400)
    assert model.refine(form(x[order]), sample_weight=w[order], passes=40).converged
    with pytest.raises(ValueError, match="these are not the same rows"):  # with nothing left to refine, too
        model.refine(form(other), sample_weight=weights)


def test_a_refined_model_answers_so_at_the_ridge_in_use():
    x, y, w = examples()
    model = Unscaled(6, max_memory=SMALL).update(x, y)
    before = model.coef()
    assert model.refine(x, passes=40).converged
    again = model.refine(x, tolerance=1e-3)
    assert again.converged and again.passes == model._refined.passes
    in_use = model.facts()["ridge"]
    assert np.abs(model.coef() - before).max() > 1e-3
    assert np.array_equal(model.coef(in_use), model.coef())
    assert np.array_equal(model.predict(x, ridge=in_use), model.predict(x))
    with pytest.warns(UserWarning, match=r"coefficients at ridge=3 are those of the sketch"):
        assert np.isfinite(model.coef(3.0)).all()


def test_few_rows_that_weigh_something_are_too_few_to_choose_for_many_columns():
    x, y, _ = examples(1000)
    model = Unscaled(decay=0.5, reservoir_size=500).update(x, y)
    with pytest.warns(UserWarning, match=r"decay=0.5 leaves the weight of 3 rows to choose a ridge for 30 columns"):
        model.coef()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Unscaled(decay=0.5, ridge=1.0).update(x, y).coef()
        Unscaled(decay=0.95).update(x, y).coef()


@pytest.mark.parametrize("unit", [1e150, 1e-140])
@pytest.mark.parametrize("of_targets", [1.0, 1e100])
def test_columns_of_any_unit_are_refined(unit, of_targets):
    x, y, _ = examples(offset=0.0)
    model = Unscaled(6, max_memory=SMALL).update(x * unit, y * of_targets)
    result = model.refine(x * unit, passes=40)
    coef, _ = ridge(x, y, np.ones(400), model.facts()["ridge"] / unit / unit)
    assert result.converged and np.isfinite(result.residual).all()
    assert np.abs(model.coef().T * unit / of_targets - coef).max() < 1e-4 * np.abs(coef).max()


def test_numbers_too_small_to_be_squared_are_refused():
    x, y, _ = examples()
    for rows, targets in ((x * 1e-170, y), (sparse.csr_array(x * 1e-170), y), (x, y * 1e-170)):
        with pytest.raises(ValueError, match="leave the range of numbers: multiply them"):
            Unscaled().update(rows, targets)
    model = Unscaled().update(x, y).update(x[:1] * 1e-170, y[:1])  # beside others they are zero
    assert model.update(0.0 * x, 0.0 * y).n_rows == 801


def test_messages_name_what_is_wrong():
    x, y, _ = examples()
    with pytest.raises(ValueError, match="targets must be a rectangular array"):
        Unscaled().update(x[:2], [[1.0, 2.0], [3.0]])
    with pytest.raises(ValueError, match="targets must be a rectangular array"):
        Unscaled().update(fs.open_rows([x[:2]]), [[1.0, 2.0], [3.0]])
    with pytest.raises(TypeError, match="refine takes rows alone"):
        Unscaled().update(x, y).refine(x, y)
    with pytest.raises(ValueError, match=r"sketch_size must be below 2\*\*16, got 1000000000000"):
        Unscaled(10**12)
    assert repr(fs.SketchedRidge(ridge=2.0)) == "<SketchedRidge(ridge=2.0): no rows yet>"
    empty = Unscaled().update(x[:0], y[:0])
    assert "ridge" not in empty.facts() and empty.n_features == D
    for question in (empty.coef, empty.score_path, lambda: empty.predict(x), lambda: empty.refine(x)):
        with pytest.raises(ValueError, match="the model has seen no rows: call update first"):
            question()


def test_a_path_that_is_changed_changes_no_model():
    x, y, _ = examples()
    model = Unscaled().update(x, y)
    path = model.score_path()
    path.ridges[:] = path.errors[:] = -1.0
    assert (model.score_path().ridges > 0).all() and (model.score_path().errors > 0).all()
