"""What ``spectrum`` says where nothing was removed, of exact sums, of no rows, and at the ends of the range."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import fastsketch as fs
from fastsketch.sketching._spectrum import _trace_bound
from tests.helpers import DTYPES, METHODS, stream

L = 6


def holds(sketch, rows, slack=0.0):
    """(spectrum, true eigenvalues); the intervals hold, values lie in them, vectors are orthonormal."""
    found = sketch.spectrum()
    true = np.linalg.svd(np.asarray(rows, np.float64), compute_uv=False) ** 2
    true = np.pad(true, (0, max(0, len(found.values) - len(true))))
    r = len(found.values)
    assert found.vectors.shape == (r, rows.shape[1]) and r <= L
    assert (found.low <= true[:r] * (1 + 1e-14) + slack).all() and (true[:r] * (1 - 1e-14) <= found.high + slack).all()
    assert (found.low <= found.values).all() and (found.values <= found.high).all()
    assert np.allclose(found.vectors @ found.vectors.T, np.eye(r), atol=1e-12)
    assert sketch.singular_value_interval.shape == (r, 2)
    return found, true


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("solver", ["gram", "svd", "exact"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, L - 1, L])
def test_few_rows_are_known_exactly(method, solver, dtype, n):
    rows = stream("noise", np.random.default_rng(n), n, 15).astype(dtype)
    found, true = holds(fs.FrequentDirections(L, method=method, solver=solver).update(rows), rows)
    eps = np.finfo(dtype).eps
    assert len(found.values) == n
    assert np.allclose(found.values, true[:n], rtol=0, atol=8 * eps * true[0])
    assert (found.high - found.low <= 300 * eps * true[0]).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_exact_sum_knows_all(method, center, dtype):
    """Whatever the method does to the rows of B."""
    rows = stream("signal", np.random.default_rng(1), 600, 20).astype(dtype) + dtype(1)
    sketch = fs.FrequentDirections(L, method=method, solver="exact", center=center).update(rows)
    found, true = holds(sketch, rows - (rows.mean(axis=0, dtype=np.float64) if center else 0.0))
    assert len(found.values) == L
    assert np.allclose(found.values, true[:L], rtol=1e-5 if dtype == np.float32 else 1e-12)
    assert (found.high[0] - found.low[0]) <= (1e-4 if dtype == np.float32 else 1e-12) * true[0]


@pytest.mark.parametrize("method", METHODS)
def test_where_in_the_interval_the_estimate_lies(method):
    rows = stream("signal", np.random.default_rng(2), 300, 30)
    sketch = fs.FrequentDirections(L, method=method, solver="gram").update(rows)
    found, _ = holds(sketch, rows)
    at = (found.values - found.low) / (found.high - found.low)
    if method == "tfd":
        assert ((at >= 0) & (at <= 1)).all()
    else:
        assert np.allclose(at, 1.0 if method in ("fd", "cfd", "rfd") else 0.0, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("solver", ["gram", "svd", "exact"])
@pytest.mark.parametrize("as_csr", [False, True])
def test_no_rows_and_rows_of_nothing(method, solver, as_csr):
    sketch = fs.FrequentDirections(L, method=method, solver=solver)
    with pytest.raises(ValueError, match="seen no rows"):
        sketch.spectrum()
    for n in (0, 1, 40):
        rows = np.zeros((n, 9))
        sketch.update(csr_array(rows) if as_csr else rows)
        found = sketch.spectrum()
        assert not found.values.any() and not found.low.any() and (found.high <= 1e-300).all()
        assert sketch.singular_value_interval.shape == (len(found.values), 2)
    rows = np.vstack([np.zeros((41, 9)), np.ones((1, 9))])
    found, _ = holds(sketch.update(rows[-1]), rows)
    assert np.isclose(found.values[0], 9.0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("solver", ["gram", "svd", "exact", "sparse"])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("exponent", [-30, -5, 20])
def test_rows_in_another_unit_have_the_same_spectrum_in_its_squares(method, solver, center, exponent):
    rows = stream("signal", np.random.default_rng(5), 120, 15)
    kind, as_given = ("auto", csr_array) if solver == "sparse" else (solver, np.asarray)
    there, here = (
        fs.FrequentDirections(L, method=method, solver=kind, center=center).update(as_given(x)).spectrum()
        for x in (rows, rows * 2.0**exponent)
    )
    unit = 4.0**exponent
    for name in ("values", "low", "high"):
        assert np.allclose(getattr(here, name), getattr(there, name) * unit, rtol=0, atol=1e-11 * unit * there.high[0])
    assert np.allclose(here.vectors, there.vectors, atol=1e-7)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("solver", ["gram", "svd", "exact"])
def test_at_the_ends_of_the_range(method, dtype, solver):
    """Rows whose squares no double holds, and rows whose squares vanish: ends that are still ends."""
    rows = stream("noise", np.random.default_rng(3), 100, 12).astype(dtype)
    most = np.finfo(dtype).max
    sketch = fs.FrequentDirections(L, method=method, solver=solver).update(rows * dtype(most / 1e3))
    found = sketch.spectrum()
    assert not np.isnan(found.values).any() and (found.low <= found.values).all() and (found.values <= found.high).all()
    if dtype == np.float64:
        assert np.isfinite(found.low).all() and np.isinf(found.high).all()
    else:
        holds(sketch, (rows * dtype(most / 1e3)).astype(np.float64))
    tiny = rows * np.finfo(dtype).tiny
    found = fs.FrequentDirections(L, method=method, solver=solver).update(tiny).spectrum()
    true = np.linalg.svd(tiny.astype(np.float64) * 1e20, compute_uv=False)
    with np.errstate(under="ignore"):
        true = (true * 1e-20) ** 2
    assert (found.low <= true[: len(found.low)] * (1 + 1e-12)).all() and (true[: len(found.high)] <= found.high).all()


def test_the_trace_bounds_what_the_certificate_does_not():
    """iSVD drops all that comes: one eigenvalue may have all of it, two can have half of it each."""
    rows = np.vstack([np.eye(20)[: L - 1], np.tile(0.9 * np.eye(20)[-1], (100, 1))])
    sketch = fs.FrequentDirections(L, method="isvd", solver="gram", buffer_size=0).update(rows)
    found, _ = holds(sketch, rows)
    assert np.isclose(sketch.shrinkage, 81.0)
    assert np.allclose(found.high, 1 + 81 / np.arange(1, L))


def test_the_trace_bound_is_the_largest_that_fits():
    rng = np.random.default_rng(5)
    for _ in range(200):
        low = np.sort(rng.exponential(size=int(rng.integers(1, 9))))[::-1]
        total = low.sum() + rng.exponential()
        bound = _trace_bound(low, total)
        assert (bound >= low).all() and (np.diff(bound) <= 1e-12).all()
        for i, x in enumerate(bound):
            assert np.isclose(np.maximum(low[: i + 1], x).sum() + low[i + 1 :].sum(), total)
    assert np.array_equal(_trace_bound(np.array([2.0, 1.0]), 0.0), [2.0, 1.0])  # a sum that rounding has left too small
    assert np.isinf(_trace_bound(np.array([2.0, 1.0]), np.inf)).all()
    assert not _trace_bound(np.empty(0), 1.0).size


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_ledger_follows_a_failed_update(dtype, monkeypatch):
    """A batch that is refused half way leaves the ledger as it was."""
    rows = stream("noise", np.random.default_rng(6), 400, 12).astype(dtype)
    for make in (np.asarray, csr_array):
        sketch = fs.FrequentDirections(L, method="tfd", solver="gram").update(make(rows[:30]))
        before = sketch.to_bytes()
        bad = rows.copy()
        bad[-1, 0] = np.nan
        with pytest.raises(ValueError, match="row 399"):
            sketch.update(bad if make is np.asarray else csr_array(bad))
        assert sketch.to_bytes() == before


def test_float32_sums_of_few_weighted_rows():
    """Each sum is of one row, which is rounded when it is weighted: equal ones all in the same direction."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        row, weight = rng.standard_normal((1, 3)).astype(np.float32), rng.random()
        parts = [fs.FrequentDirections(16, method="fd", solver="exact").update(row, weight) for _ in range(6)]
        found = fs.merge(parts).spectrum()
        true = 6 * weight * float(np.sum(row.astype(np.float64) ** 2))
        assert found.low[0] <= true <= found.high[0]
