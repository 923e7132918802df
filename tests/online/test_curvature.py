"""H of the curvatures of the losses: steps that pass no target, and models in the units of the targets."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import fastsketch as fs
from fastsketch.reference import fast_online_newton, full_online_newton
from tests.helpers import AS_IN_PAPERS

LOSSES = ("square", "absolute", "huber", "logistic", "squared_hinge")
REAL = LOSSES[:3]


def stream(n, d, seed=0):
    """Draw (rows, targets): sparse rows, a linear target with noise."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.5)
    return x, x @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n)


def learner(m=4, **parameters):
    parameters = {**AS_IN_PAPERS, "loss": "square", "curvature": "loss", "constraint": None, **parameters}
    return fs.SketchedNewton(m, **parameters)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("constraint", [None, "current"])
@pytest.mark.parametrize("alpha0", [0.0, 0.5])
def test_rounds_are_those_of_the_reference(loss, constraint, alpha0):
    x, y = stream(70, 9)
    y = np.sign(y) if loss in LOSSES[3:] else y
    parameters = {"loss": loss, "constraint": constraint, "alpha0": alpha0, "loss_scale": 1.5}
    w, _, scores = fast_online_newton(x, y, sketch_size=4, by_loss=True, **parameters)
    for rows in (x, csr_array(x)):
        model = learner(**parameters).update(rows, y)
        np.testing.assert_allclose(model.last_scores, scores, rtol=1e-8, atol=1e-8 * np.abs(scores).max())
        np.testing.assert_allclose(model.coef, w, rtol=1e-8, atol=1e-8 * np.abs(w).max())


def test_a_sketch_that_loses_nothing_has_the_whole_h_of_the_reference():
    x, y = stream(40, 6)
    w, _, _ = full_online_newton(x, y, alpha0=0.5, loss="square", constraint=None, by_loss=True)
    np.testing.assert_allclose(learner(30, alpha0=0.5).update(x, y).coef, w, rtol=1e-10)


def test_square_loss_is_ridge_regression_where_the_sketch_loses_nothing():
    x, y = stream(300, 8)
    ridge = np.linalg.solve(x.T @ x + 0.5 * np.eye(8), x.T @ y)
    np.testing.assert_allclose(learner(10, alpha0=0.5).update(x, y).coef, ridge, rtol=1e-9)


@pytest.mark.parametrize("loss", REAL)
@pytest.mark.parametrize("alpha0", [0.0, None, 1e-6])
@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e8])
def test_no_first_step_passes_its_target(loss, alpha0, unit):
    x, y = stream(6, 12, seed=1)
    model = learner(loss=loss, alpha0=alpha0)
    for row, target in zip(x, y * unit, strict=True):
        before = float(row @ model.coef) if model.n_rows else 0.0
        after = float(row @ model.update(row, target).coef)
        # the absolute loss goes by a usual residual: no further than that beyond the target
        room = max(abs(before - target), unit * 10 * (loss == "absolute"))
        assert abs(after - target) <= room * (1 + 1e-6)


@pytest.mark.parametrize("loss", REAL)
@pytest.mark.parametrize("units", [(1.0, 1024.0), (4.0**-12, 1.0), (2.0**-10, 2.0**20)])
def test_targets_and_rows_in_other_units(loss, units):
    x, y = stream(400, 30)
    inside, outside = units
    model = learner(6, loss=loss).update(x, y)
    other = learner(6, loss=loss).update(inside * x, outside * y)
    np.testing.assert_allclose(other.coef, model.coef * outside / inside, rtol=1e-9, atol=1e-12 * outside / inside)


def test_real_targets_without_alpha0_go_by_the_loss_and_papers_settings_by_gradients():
    assert fs.SketchedNewton(loss="square").resolved["curvature"] == "loss"
    assert fs.SketchedNewton(loss="square", alpha0=0).resolved["curvature"] == "gradient"
    assert fs.SketchedNewton(loss="logistic").resolved["curvature"] == "gradient"
    assert fs.SketchedNewton(loss="logistic", curvature="loss").resolved["curvature"] == "loss"


def test_learns_targets_far_from_one_and_any_split_gives_the_same_bits():
    x, y = stream(500, 40, seed=3)
    y = 1e4 * y
    whole = learner(8).update(x, y)
    assert np.mean((whole.last_scores - y)[250:] ** 2) < 0.2 * np.var(y)
    parts = learner(8)
    for first in range(0, 500, 37):
        parts.update(x[first : first + 37], y[first : first + 37])
    assert np.array_equal(parts.coef, whole.coef)
    again = fs.from_bytes(parts.to_bytes())
    assert np.array_equal(again.update(x, y).coef, whole.update(x, y).coef)
