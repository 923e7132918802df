"""Sketches of sparse rows with many more columns than occur: state, time and memory follow those that do."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from tests.helpers import DTYPES, METHODS, tol

L, OCCUR = 12, 300


def rows_of(n, dtype=np.float64, d=400, occur=OCCUR, seed=0):
    """CSR rows (n, d) of which later ones have columns that earlier ones lack."""
    rng = np.random.default_rng(seed)
    columns = rng.permutation(d)[:occur]
    indices = [rng.choice(columns[: 10 + (occur - 10) * (i + 1) // n], 8, replace=False) for i in range(n)]
    data = rng.standard_normal((n, 8)) * 0.98 ** np.arange(n)[:, np.newaxis] + 0.3
    return sparse.csr_array((data.astype(dtype).ravel(), np.concatenate(indices), np.arange(n + 1) * 8), shape=(n, d))


def spread(rows, columns, d):
    """The rows with column j at columns[j] of d."""
    return sparse.csr_array((rows.data, columns[rows.indices].astype(np.int32), rows.indptr), shape=(rows.shape[0], d))


def error(sketch, rows, weights=None):
    x = rows.toarray().astype(np.float64)
    w = np.ones(len(x)) if weights is None else weights
    if sketch.center:
        x = x - w @ x / w.sum()
    x *= np.sqrt(w)[:, np.newaxis]
    b = sketch.sketch().astype(np.float64)
    return np.linalg.norm(x.T @ x - b.T @ b - sketch.alpha * np.eye(x.shape[1]), 2), np.linalg.norm(x.T @ x, 2)


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("how", ["plain", "centred", "decay", "growing", "weighted", "every row"])
def test_the_certificate_against_dense_rows(how, method, dtype):
    rows, weights, n = rows_of(400, dtype), None, 400
    arguments = {
        "centred": {"center": True},
        "decay": {"decay": 0.99},
        "growing": {"tolerance": 0.1},
        "every row": {"buffer_size": 0},
    }.get(how, {})
    if how == "weighted":
        weights = np.random.default_rng(1).random(n)
    elif how == "decay":
        weights = 0.99 ** np.arange(n - 1, -1, -1.0)
    given = weights if how == "weighted" else None
    of_sparse = fs.FrequentDirections(L, method=method, solver="gram", dtype=dtype, **arguments).update(rows, given)
    arguments.setdefault("buffer_size", 6 * L)
    of_dense = fs.FrequentDirections(L, method=method, solver="gram", dtype=dtype, **arguments)
    of_dense.update(rows.toarray(), given)
    found, size = error(of_sparse, rows, weights)
    assert found <= of_sparse.error_bound + tol(dtype, size)
    if how != "growing":  # the same shrinks: the order of the columns moves nothing but rounding
        assert found == pytest.approx(error(of_dense, rows, weights)[0], abs=tol(dtype, size))
    assert of_sparse.squared_norm == pytest.approx(of_dense.squared_norm, rel=1e-4 if dtype == np.float32 else 1e-10)
    if how == "centred":
        assert np.abs(of_sparse.mean - of_dense.mean).max() <= tol(dtype, 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [10**6, 2 * 10**9])
def test_the_bits_do_not_depend_on_the_width(d, dtype):
    rows = rows_of(700, dtype)
    columns = {
        width: np.sort(np.random.default_rng(1).choice(width - 1, 400, replace=False)) + 1 for width in (d, 2**18)
    }
    pair = [fs.FrequentDirections(L, method="tfd").update(spread(rows, columns[width], width)) for width in (d, 2**18)]
    some, all_of_it = (sketch.sketch(sparse=True) for sketch in pair)
    assert np.array_equal(some.data, all_of_it.data)
    assert np.array_equal(
        np.searchsorted(columns[d], some.indices[1:]), np.searchsorted(columns[2**18], all_of_it.indices[1:])
    )
    assert pair[0].error_bound == pair[1].error_bound


@pytest.mark.parametrize("arguments", [{}, {"center": True}, {"decay": 0.99}, {"method": "tfd"}, {"tolerance": 0.1}])
def test_cuts_saves_and_copies(arguments):
    rows = rows_of(300)
    whole = fs.FrequentDirections(L, solver="gram", **arguments).update(rows)
    parts = fs.FrequentDirections(L, solver="gram", **arguments)
    for start in range(0, 300, 37):
        parts.update(rows[start : start + 37])
        parts = fs.from_bytes(parts.to_bytes())
        assert parts.copy().to_bytes() == parts.to_bytes()
    assert np.array_equal(parts.sketch(), whole.sketch())
    assert parts.to_bytes() == whole.to_bytes()


@pytest.mark.parametrize("n", [1, 30, 2000])
@pytest.mark.parametrize("arguments", [{}, {"center": True}, {"tolerance": 0.1}])
def test_a_column_of_a_refused_batch_does_not_stay(arguments, n):
    rows = rows_of(100)
    s = fs.FrequentDirections(L, solver="gram", **arguments).update(rows)
    before, width = s.to_bytes(), s._engine.width
    bad = rows_of(n, occur=400, seed=2)
    bad.data[-1] = np.nan
    with pytest.raises(ValueError, match=f"row {n - 1}"):
        s.update(bad)
    assert s.to_bytes() == before and s._engine.width == width
    good, other = rows_of(200, seed=3), fs.from_bytes(before)
    assert s.update(good).to_bytes() == other.update(good).to_bytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("arguments", [{}, {"center": True}, {"method": "tfd"}, {"tolerance": 0.1}])
def test_dense_rows_and_merges(arguments, dtype):
    first, second = rows_of(250, dtype, occur=150), rows_of(250, dtype, occur=150, seed=5)
    both = sparse.vstack([first, second])
    a, b = (fs.FrequentDirections(L, solver="gram", **arguments).update(part) for part in (first, second))
    dense = fs.FrequentDirections(L, solver="gram", **arguments).update(second.toarray())
    mixed = fs.FrequentDirections(L, solver="gram", **arguments).update(first).update(second.toarray())
    for merged in (a.copy().merge(b), b.copy().merge(a), a.copy().merge(dense), dense.copy().merge(a), mixed):
        found, size = error(merged, both)
        assert merged.n_rows == 500
        assert found <= merged.error_bound + tol(dtype, size)
        again = fs.from_bytes(merged.to_bytes())
        assert again.update(first).to_bytes() == merged.update(first).to_bytes()


def fading(n, d, dtype):
    """Rows (n, d) of which each column occurs in some neighbouring ones alone."""
    rng = np.random.default_rng(3)
    indices = np.arange(n)[:, np.newaxis] * d // n + rng.permuted(np.tile(np.arange(20), (n, 1)), axis=1)[:, :5]
    data = rng.standard_normal((n, 5)).astype(dtype)
    return sparse.csr_array((data.ravel(), (indices % d).ravel().astype(np.int32), np.arange(n + 1) * 5), shape=(n, d))


@pytest.mark.parametrize("shape", [(3000, 400), (3000, 200_000)], ids=["one shrink at a time", "several"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_columns_that_fade(dtype, shape):
    rows = fading(*shape, dtype)
    settings = {"solver": "gram", "dtype": dtype, "method": "fd"}
    sketch = fs.FrequentDirections(4, **settings).update(rows)
    kept = np.abs(sketch._engine.state.z)
    assert kept[kept > 0].min() >= np.finfo(dtype).tiny  # what is subnormal takes a hundred times as long
    whole = sketch.sketch()
    for power in (-90, -30, 30):  # what becomes 0 follows the scale of the rows
        again = fs.FrequentDirections(4, **settings).update(rows * dtype(2.0**power)).sketch()
        np.testing.assert_allclose(again * dtype(2.0**-power), whole, atol=tol(dtype, np.abs(whole).max()))
    if shape[1] == 400:
        off, size = error(sketch, rows)
        assert off <= sketch.error_bound + tol(np.float64, size)


def test_the_state_of_a_stranger():
    s = fs.FrequentDirections(L, solver="gram").update(rows_of(100))
    state, arrays = s._state()
    for wrong in (arrays["columns"][::-1] - 1, np.zeros_like(arrays["columns"]), arrays["columns"] + 400):
        with pytest.raises(ValueError, match="'columns'"):
            s._validate(state, {**arrays, "columns": wrong})
    with pytest.raises(ValueError, match="z"):
        s._validate(state, {**arrays, "columns": arrays["columns"][:-1]})


@pytest.mark.parametrize("rows", [rows_of(100), rows_of(100).toarray()], ids=["sparse", "dense"])
def test_a_sparse_sketch(rows):
    s = fs.FrequentDirections(L, solver="gram").update(rows)
    b = s.sketch(sparse=True)
    assert isinstance(b, sparse.csr_array) and b.has_canonical_format
    assert np.array_equal(b.toarray(), s.sketch())
    with pytest.raises(TypeError, match="sparse must be"):
        s.sketch(sparse="csr")


def test_memory():
    """A sketch of 10^9 columns, its file and its read-out take what 300 of them do."""
    d, columns = 10**9, np.arange(400) * 2_000_000 + 7
    rows = spread(rows_of(2000), columns, d)
    tracemalloc.start()
    s = fs.FrequentDirections(L).update(rows)
    b, bound, size = s.sketch(sparse=True), s.error_bound, len(s.to_bytes())
    merged = s.copy().merge(s)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert b.shape == (L - 1, d) and bound > 0 and merged.n_rows == 4000
    assert size < 2e6
    assert peak < 6 * 65536 * (L + 1) * 8  # room for 65,536 slots, of which the system gives what is touched
