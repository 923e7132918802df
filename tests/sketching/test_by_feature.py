"""The read-out with a row for each feature, against the one with a row for each direction."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.sketching._engines import by_column
from fastsketch.sketching._read_out import columns_of
from tests.helpers import DTYPES, METHODS, sparse_rows, tol


def matrix(s):
    """What B makes of A'A."""
    b = s.sketch().astype(np.float64)
    v = s.components.astype(np.float64)
    return b.T @ b - (s.shrinkage * v.T @ v if s.method == "cfd" else 0.0)


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("decay", [1.0, 0.99])
@pytest.mark.parametrize("n", [1, 5, 19, 20, 21, 100, 500])
@pytest.mark.parametrize("method", METHODS)
def test_csr_rows(method, n, decay, dtype):
    rows = sparse_rows(np.random.default_rng(n), n, 900, 0.02, dtype)
    s = fs.FrequentDirections(20, method=method, solver="gram", decay=decay, dtype=dtype).update(rows)
    before, found = s.to_bytes(), columns_of(s._engine)
    assert s.to_bytes() == before
    d, top = by_column(s._engine, found.directions.T).T.astype(np.float64), found.squares[0]
    assert found.directions.dtype == dtype
    assert found.directions.flags.c_contiguous
    # the products of the rows are rounded in double: weak directions have that much of strong ones
    allowed = tol(dtype, 1) + tol(np.float64, top / found.squares[-1])
    assert np.abs(d.T @ d - np.eye(d.shape[1])).max() <= allowed
    assert np.abs((d * found.squares) @ d.T - matrix(s)).max() <= tol(dtype, top)
    assert (np.diff(found.squares) <= 0).all()
    assert abs(found.shrinkage - s.shrinkage) <= tol(dtype, top)
    assert found.squared_norm == s.squared_norm


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", ["weighted", "huge", "rank one", "no entries"])
def test_other_rows(how, dtype):
    rng = np.random.default_rng(0)
    rows, weights = sparse_rows(rng, 300, 200, 0.03, dtype), None
    if how == "weighted":
        weights = rng.random(300)
    elif how == "huge":
        rows = rows * dtype(1e30)
    elif how == "rank one":
        rows = sparse.csr_array(rows[:1].toarray().repeat(300, axis=0))
    else:
        rows = rows * dtype(0)
    s = fs.FrequentDirections(20, method="isvd", solver="gram", dtype=dtype).update(rows, weights)
    found = columns_of(s._engine)
    d, unit = by_column(s._engine, found.directions.T).T.astype(np.float64), 1e30 if how == "huge" else 1.0
    assert np.abs(d.T @ d - np.eye(d.shape[1])).max(initial=0.0) <= tol(dtype, 1)
    approximate = (d * (found.squares / unit**2)) @ d.T
    wanted = (s.sketch().astype(np.float64) / unit).T @ (s.sketch().astype(np.float64) / unit)
    assert np.abs(approximate - wanted).max() <= tol(dtype, np.abs(wanted).max())
    if how == "no entries":
        assert d.shape[1] == 0


@pytest.mark.parametrize("read", ["components", "sketch", "singular_values"])
def test_memory(read):
    """Beside a float32 sketch of CSR rows: an array of its size to read it, another for what is returned."""
    d, size = 200_000, 64
    s = fs.FrequentDirections(size, dtype=np.float32).update(
        sparse.csr_array(sparse.random(600, d, 2e-4, "csr", None, np.random.default_rng(0)))
    )
    tracemalloc.start()
    found = getattr(s, read)
    found = found() if callable(found) else found
    peak = tracemalloc.get_traced_memory()[1] / (d * (size + 1) * 4)
    tracemalloc.stop()
    assert found is not None
    assert peak < (1.9 if read == "singular_values" else 2.9)
