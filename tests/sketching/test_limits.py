"""Streams at the edge of what a shrink and a read-out are made for: equal rows, few rows, no length, any length."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs

FORMS = [np.asarray, sparse.csr_array]
SOLVERS = ["gram", "svd"]


def held(sketch, rows, unit=1.0):
    """Return whether the certificate holds of rows / unit, in the extended precision of this machine."""
    bound = np.longdouble(sketch.error_bound) / np.longdouble(unit) ** 2
    exact = rows.astype(np.longdouble).T @ rows.astype(np.longdouble)
    own = sketch.sketch().astype(np.longdouble) / unit
    alpha = np.longdouble(sketch.alpha) / np.longdouble(unit) ** 2
    gap = (exact - own.T @ own - alpha * np.eye(rows.shape[1])).astype(float)
    return np.linalg.norm(gap, 2) <= float(bound)


@pytest.mark.parametrize("form", FORMS, ids=["dense", "csr"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_all_rows_equal(form, solver, dtype):
    rows = np.tile(np.linspace(-1, 2, 30).astype(dtype), (300, 1))
    sketch = fs.FrequentDirections(6, solver=solver, dtype=dtype)
    for start in range(0, 300, 7):
        sketch.update(form(rows[start : start + 7]))
        assert np.isfinite(sketch.sketch()).all()  # a read-out between shrinks
    assert held(sketch, rows)
    values = sketch.singular_values
    assert values[1:].max(initial=0.0) <= 1e-3 * values[0]
    assert np.isclose(values[0] ** 2 + sketch.alpha, 300 * np.square(rows[0].astype(float)).sum(), rtol=1e-5)


@pytest.mark.parametrize("form", FORMS, ids=["dense", "csr"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_fewer_rows_than_directions(form, solver, n):
    rows = np.random.default_rng(0).standard_normal((n, 30))
    sketch = fs.FrequentDirections(8, solver=solver).update(form(rows))
    assert sketch.error_bound <= 1e-12 * sketch.squared_norm
    assert np.allclose(sketch.gram(), rows.T @ rows, atol=1e-12)
    assert held(sketch, rows)


@pytest.mark.parametrize("form", FORMS, ids=["dense", "csr"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_rows_without_length_among_orthogonal_ones(form, solver):
    """What a read-out divides by is zero, or a factor of it is."""
    rows = np.zeros((60, 20))
    rows[::4, :15] = np.diag(np.logspace(0, -11, 15))
    sketch = fs.FrequentDirections(17, solver=solver)
    for row in rows:
        sketch.update(form(row[np.newaxis]))
    assert held(sketch, rows)
    vectors = sketch.components
    kept = np.linalg.norm(vectors, axis=1) > 0
    product = vectors[kept] @ vectors[kept].T
    assert np.abs(product - np.eye(len(product))).max() < 1e-13


@pytest.mark.parametrize("form", FORMS, ids=["dense", "csr"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("unit", [1e160, 1e300, 1e-170, 1e-300])
def test_rows_whose_squares_leave_the_range(form, solver, unit):
    rows = np.random.default_rng(0).standard_normal((120, 20)) * np.logspace(0, -3, 20)
    sketch = fs.FrequentDirections(6, solver=solver)
    one = fs.FrequentDirections(6, solver=solver)
    for start in range(0, 120, 50):
        sketch.update(form(rows[start : start + 50] * unit))
        one.update(form(rows[start : start + 50]))
    # powers of two are taken out of all rows: the same sketch, in another unit
    own, other = sketch.sketch() / unit, one.sketch()
    assert np.allclose(own.T @ own, other.T @ other, rtol=1e-9, atol=1e-9)


def test_one_row_of_many_nonzeros(amount):
    n = amount(200_000, 2_000_000)
    row = sparse.csr_array((np.ones(n), np.arange(n, dtype=np.int32) * 5, np.array([0, n], np.int32)), shape=(1, 5 * n))
    few = sparse.csr_array((np.ones(3), np.array([0, 5, 7], np.int32), np.array([0, 3], np.int32)), shape=(1, 5 * n))
    sketch = fs.FrequentDirections(2).update(few).update(row).update(few)
    out = sketch.sketch(sparse=True)
    assert out.shape[1] == 5 * n
    assert out.nnz <= 2 * (n + 1)
    assert np.isclose(sketch.squared_norm, n + 6)
    assert np.square(out.data).sum() <= sketch.squared_norm * (1 + 1e-12)


@pytest.mark.parametrize("model", [lambda: fs.FrequentDirections(4), lambda: fs.SketchedEASE(4)])
def test_a_column_of_a_refused_batch_alone(model):
    good = sparse.csr_array(np.eye(6, 50))
    bad = good.copy()
    bad.data[-1] = np.nan
    bad.indices[-1] = 40  # a column that no other row has
    one, two = model().update(good), model().update(good)
    with pytest.raises(ValueError, match="finite"):
        two.update(bad)
    assert two.to_bytes() == one.to_bytes()
    assert two.update(good).to_bytes() == one.update(good).to_bytes()
