"""CSR rows of so many features that several shrinks happen among coefficients, against the shrinks themselves."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch._kernels import pool
from fastsketch.sketching._engines import SparseEngine
from tests.helpers import DTYPES, METHODS, sparse_rows, tol

# columns, which all occur in the first row, so that those after it are not too many values to wait
SIZE, D, APART = 6, 1000, 40
BLOCK = 6 * SIZE


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setattr("fastsketch.sketching._engines._sparse_engine.WIDE", 2)


def rows_of(n, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    rows = sparse_rows(rng, n, D, 0.001, dtype)
    rows = sparse.csr_array(sparse.vstack([sparse.csr_array(rng.standard_normal((1, D)).astype(dtype)), rows[1:]]))
    rows = sparse.csr_array(rows * np.logspace(0, -2, D)[np.newaxis].astype(dtype))
    return sparse.csr_array((rows.data, rows.indices * APART, rows.indptr), (n, D * APART))


def dense(rows):
    """The features in use, in double."""
    rows = rows[:, ::APART]
    return (rows.toarray() if sparse.issparse(rows) else rows).astype(np.float64)


def by_shrinks(rows, counts, *, spared):
    """(B'B, Delta) by plain shrinks after so many rows each; with the rows left over as they are."""
    b, delta, start = np.zeros((0, D)), 0.0, 0
    for count in counts:
        stack = np.vstack([b, rows[start : start + count]])
        start += count
        s, vt = np.linalg.svd(stack, full_matrices=False)[1:]
        lost = s[SIZE - 1] ** 2
        squares = s[: SIZE - 1] ** 2
        squares[spared:] -= lost
        b, delta = np.sqrt(np.maximum(squares, 0))[:, np.newaxis] * vt[: SIZE - 1], delta + lost
    return b, delta


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", ["fd", "isvd"])
@pytest.mark.parametrize("n", [BLOCK + 1, 3 * BLOCK - 5, 8 * BLOCK + SIZE, 18 * BLOCK])
def test_shrinks_of_a_block_each(n, method, dtype):
    rows = rows_of(n, dtype)
    s = fs.FrequentDirections(SIZE, method=method, solver="gram", dtype=dtype).update(rows)
    engine = s._engine
    assert engine.capacity == SIZE + 8 * BLOCK
    counts, left, room = [BLOCK], n - BLOCK, 8 * BLOCK + 1
    while left > 0:
        here = min(left, room)
        counts += [BLOCK] * (here // BLOCK) + [here % BLOCK] * (here % BLOCK > 0)
        left -= here
    spared = engine.setting.rows_spared
    b, delta = by_shrinks(dense(rows), counts, spared=min(spared, SIZE - 1))
    found = dense(s.sketch())
    top = np.linalg.norm(b, 2) ** 2
    shrinks = len(counts)
    assert np.abs(found.T @ found - b.T @ b).max() <= shrinks * tol(dtype, top)
    assert abs(s.shrinkage - delta) <= shrinks * tol(dtype, top)


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("decay", [1.0, 0.999])
@pytest.mark.parametrize("method", METHODS)
def test_certificate(method, decay, dtype):
    n = 19 * BLOCK + 7
    rows = rows_of(n, dtype)
    weights = np.random.default_rng(1).random(n) + 0.5
    s = fs.FrequentDirections(SIZE, method=method, solver="gram", decay=decay, dtype=dtype).update(rows, weights)
    root = np.sqrt(weights * decay ** np.arange(n - 1, -1, -1.0))
    x = dense(rows) * root[:, np.newaxis]
    exact, b = x.T @ x, dense(s.sketch())
    assert np.linalg.norm(exact - b.T @ b - s.alpha * np.eye(D), 2) <= s.error_bound + tol(dtype, np.trace(exact))
    assert abs(s.squared_norm - np.trace(exact)) <= n * tol(dtype, 1e-2 * np.trace(exact))
    whole = s.spectrum()
    values = np.linalg.eigvalsh(exact)[::-1][: len(whole.values)]
    slack = tol(dtype, values[0])
    assert (whole.low <= values + slack).all()
    assert (values <= whole.high + slack).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", ["rfd", "tfd"])
def test_batches_and_a_resume_have_the_same_bits(method, dtype):
    rows = rows_of(20 * BLOCK, dtype)
    one = fs.FrequentDirections(SIZE, method=method, solver="gram", dtype=dtype).update(rows)
    for step in (1, 17, 100, 8 * BLOCK + SIZE):
        s = fs.FrequentDirections(SIZE, method=method, solver="gram", dtype=dtype)
        for start in range(0, rows.shape[0], step):
            s.update(rows[start : start + step])
            if step > 16:
                s = fs.from_bytes(s.to_bytes())
        assert s.to_bytes() == one.to_bytes()
        assert np.array_equal(s.sketch(), one.sketch())


@pytest.mark.usefixtures("threaded_blas")
@pytest.mark.parametrize("n", [2, 3, 8])
def test_bits_with_threads(n):
    rng, found, before = np.random.default_rng(0), set(), pool.get()
    rows = sparse_rows(rng, 3000, 30_000, 0.0003, np.float32)
    try:
        for threads in (1, n):
            pool.use(threads)
            found.add(fs.FrequentDirections(24, solver="gram", dtype=np.float32).update(rows).to_bytes())
    finally:
        pool.use(before)
    assert len(found) == 1


def test_many_values_do_not_wait():
    """A buffer of full rows is shrunk before it takes more memory than the kept rows."""
    rows = sparse.csr_array(np.random.default_rng(0).standard_normal((10 * BLOCK, 60)) * (np.arange(60) % 8 == 0))
    one = fs.FrequentDirections(SIZE, solver="gram").update(rows[:1])
    state = one._engine.state
    assert state.enough == state.seen * SIZE // 16
    one.update(rows[1:])
    for _ in range(2):
        parts = fs.FrequentDirections(SIZE, solver="gram")
        for row in range(rows.shape[0]):
            parts.update(rows[row : row + 1])
            assert parts._engine.state.fill - parts._engine.state.kept < BLOCK
        assert parts.to_bytes() == one.to_bytes()


def test_who_has_such_a_buffer():
    rows = rows_of(50)
    for arguments in ({"center": True}, {"buffer_size": BLOCK}, {"tolerance": 0.1}):
        s = fs.FrequentDirections(SIZE, solver="gram", **arguments).update(rows)
        assert s._engine.state.block == 0
        assert s._engine.setting.shrinks == 1
    s = fs.FrequentDirections(SIZE, solver="gram").update(rows)
    assert isinstance(s._engine, SparseEngine)
    assert s.resolved["buffer_size"] == 8 * BLOCK
    narrow = fs.FrequentDirections(SIZE, solver="gram", buffer_size=BLOCK).update(rows)
    with pytest.raises(ValueError, match="buffer_size"):
        s.merge(narrow)


def test_a_shrink_that_fails_leaves_the_sketch():
    """The third of several: all or nothing."""
    rows = rows_of(8 * BLOCK + SIZE)
    s = fs.FrequentDirections(SIZE, solver="gram").update(rows).update(rows[1 : BLOCK - SIZE + 1])
    engine = s._engine
    assert (engine.state.kept, engine.room()) == (SIZE - 1, 1)
    engine.state.data[np.asarray(engine.state.indptr)[2 * BLOCK + 1]] = np.inf
    before = engine.arrays(copy=True)
    with pytest.raises(np.linalg.LinAlgError):
        s.update(rows[1:11])
    for name, array in engine.arrays().items():
        np.testing.assert_array_equal(array, before[name])


def test_a_dense_buffer_is_refused_for_wide_sparse_rows():
    rows = sparse.csr_array(([1.0, 2.0], [5, 999_999], [0, 1, 2]), shape=(2, 1_000_000))
    sketch = fs.FrequentDirections(64, solver="svd")
    with pytest.raises(ValueError, match=r"a dense buffer of 128 x 1,000,000, 1,024,000,000 bytes, .* solver='gram'"):
        sketch.update(rows)
    assert sketch.n_rows == 0
    assert fs.FrequentDirections(64, solver="svd").update(rows[:, :1000]).n_rows == 2
