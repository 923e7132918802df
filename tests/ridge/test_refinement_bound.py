"""The bound of a refinement is never below the distance to the coefficients of all rows, in long double."""

import numpy as np
import pytest

import fastsketch as fs
from tests.reliability.test_certificate import LONG
from tests.ridge.test_sketched_ridge import Unscaled

pytestmark = pytest.mark.skipif(np.finfo(LONG).nmant < 60, reason="long double is no longer than double here")


def drawn(case):
    """Rows, targets, and a model without an exact sum, of a random condition, ridge and number of targets."""
    rng = np.random.default_rng([21, case])
    n, d, c, power = int(rng.integers(60, 400)), int(rng.integers(12, 60)), int(rng.integers(1, 4)), rng.uniform(0, 9)
    rows = rng.standard_normal((n, d)) * 10.0 ** -np.linspace(0, power, d)
    if rng.random() < 0.5:
        rows = rows @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    coef = rng.standard_normal((d, c)) * 10.0 ** np.linspace(0, power * rng.uniform(0, 1), d)[:, np.newaxis]
    targets = rows @ coef + rng.standard_normal((n, c)) * 10.0 ** -rng.uniform(0, 6)
    if rng.random() < 0.3:  # far from zero, in units of their spread
        rows += 10.0 ** rng.uniform(0, 4) * rng.standard_normal(d)
    model = Unscaled(
        int(rng.integers(3, 10)),
        ridge=float(10.0 ** -rng.uniform(2, 14) * (rows**2).sum()),
        max_memory=8 * d * c + 8,
        solver="gram",
        fit_intercept=bool(rng.random() < 0.5),
        reservoir_size=0,
    )
    return rows, targets, model.update(rows, targets)


def solved(rows, targets, ridge, *, centred):
    """(X'X + ridge, coefficients (d, c)) in long double, by Cholesky's method."""
    x, y = rows.astype(LONG), targets.astype(LONG)
    if centred:
        x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    matrix, out, d = x.T @ x + LONG(ridge) * np.eye(x.shape[1], dtype=LONG), x.T @ y, x.shape[1]
    lower = np.zeros_like(matrix)
    for j in range(d):
        column = matrix[j:, j] - lower[j:, :j] @ lower[j, :j]
        lower[j:, j] = column / np.sqrt(column[0])
    for j in range(d):
        out[j] = (out[j] - lower[j, :j] @ out[:j]) / lower[j, j]
    for j in reversed(range(d)):
        out[j] = (out[j] - lower[j + 1 :, j] @ out[j + 1 :]) / lower[j, j]
    return matrix, out


def test_the_bound_is_never_below_the_distance(amount):
    for case in range(amount(25, 400)):
        rows, targets, model = drawn(case)
        matrix, exact = solved(rows, targets, model.ridge, centred=model.fit_intercept)
        for tolerance in (1e-6, 1e-10, 1e-16):
            refined = model.copy()
            found = refined.refine(rows, passes=60, tolerance=tolerance)
            off = refined.coef().T.astype(LONG) - exact
            distance = np.sqrt(np.einsum("ij,ij->j", off, matrix @ off).astype(float))
            # long double rounds, too: by so many units of what the coefficients are made of
            own = 64 * float(np.finfo(LONG).eps) * float(np.trace(matrix)) * np.linalg.norm(exact.astype(float), axis=0)
            assert (distance <= found.bound + own / np.sqrt(model.ridge)).all(), (case, tolerance)
            again = fs.from_bytes(refined.to_bytes())
            assert (again.refine(rows, passes=1, tolerance=0.9).bound > 0).all()


def test_an_allowance_for_rounding_is_small_beside_a_residual_that_counts():
    """At the default tolerance of a problem of usual condition the bound stays of the order of the residual."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2000, 60)) * 0.9 ** np.arange(60)
    targets = rows @ rng.standard_normal(60) + rng.standard_normal(2000)
    model = Unscaled(8, ridge=10.0, max_memory=1000, solver="gram").update(rows, targets)
    found = model.refine(rows)
    x = rows - rows.mean(axis=0)
    residual = float(found.residual[0]) * np.linalg.norm(x.T @ (targets - targets.mean())) / np.sqrt(10.0)
    assert residual < found.bound[0] < 1.1 * residual
