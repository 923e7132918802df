"""The read-out with a row for each feature, against the one with a row for each direction."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from tests.helpers import DTYPES, METHODS, sparse_rows, tol


def matrix(s):
    """What B (or, with a ledger, the spectrum's estimate) makes of A'A."""
    if s.method == "tfd":
        known = s._engine.clone().known()
        values, turn = np.linalg.eigh(known.seen + known.leaked)
        vectors = turn[:, ::-1].T @ known.vt
        return (vectors.T * values[::-1]) @ vectors
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
    before, found = s.to_bytes(), s._by_feature()
    assert s.to_bytes() == before
    d, top = found.directions.astype(np.float64), found.squares[0]
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
@pytest.mark.parametrize("how", ["dense", "exact", "centred", "growing", "weighted", "huge", "rank one", "no entries"])
def test_other_engines_and_rows(how, dtype):
    rng = np.random.default_rng(0)
    rows, weights = sparse_rows(rng, 300, 200, 0.03, dtype), None
    arguments = {"solver": "gram"}
    if how == "dense":
        rows = rng.standard_normal((300, 40)).astype(dtype)
    elif how == "exact":
        arguments = {"solver": "exact"}
    elif how == "centred":
        arguments["center"] = True
    elif how == "growing":
        arguments["tolerance"] = 0.1
    elif how == "weighted":
        weights = rng.random(300)
    elif how == "huge":
        rows = rows * dtype(1e30)
    elif how == "rank one":
        rows = sparse.csr_array(rows[:1].toarray().repeat(300, axis=0))
    else:
        rows = rows * dtype(0)
    s = fs.FrequentDirections(20, method="isvd", dtype=dtype, **arguments).update(rows, weights)
    found = s._by_feature()
    d, unit = found.directions.astype(np.float64), 1e30 if how == "huge" else 1.0
    assert np.abs(d.T @ d - np.eye(d.shape[1])).max(initial=0.0) <= tol(dtype, 1)
    approximate = (d * (found.squares / unit**2)) @ d.T
    if how == "exact":  # the leading pairs of the sum as they are
        x = rows.toarray().astype(np.float64)
        values, vectors = np.linalg.eigh(x.T @ x)
        wanted = (vectors[:, -20:] * values[-20:]) @ vectors[:, -20:].T
        assert s._by_feature(most=3).directions.shape == (200, 3)
    else:
        wanted = (s.sketch().astype(np.float64) / unit).T @ (s.sketch().astype(np.float64) / unit)
    assert np.abs(approximate - wanted).max() <= tol(dtype, np.abs(wanted).max())
    if how == "no entries":
        assert d.shape[1] == 0


@pytest.mark.parametrize("read", ["_by_feature", "components", "sketch", "singular_values"])
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
    assert peak < (1.9 if read in ("_by_feature", "singular_values") else 2.9)
