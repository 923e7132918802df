"""Projections on an item matrix, and scores of all items, against NumPy's."""

import numpy as np
import pytest

from fastsketch._kernels import pool
from fastsketch._kernels.recommending.items import add_walks, project, scores
from tests.helpers import sparse_rows, tol

SHAPES = [(1, 1, 1), (1, 5000, 33), (3, 700, 5), (64, 9001, 16), (65, 300, 128), (1000, 50, 3), (0, 3, 2), (3, 5, 0)]


def case(k, n, t, dtype):
    rng = np.random.default_rng(k + n + t)
    rows = sparse_rows(rng, k, n, min(1.0, 20 / n))
    csr = rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data.astype(dtype)
    return rows.toarray(), csr, rng.standard_normal((n, t)).astype(dtype), rng


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k, n, t", SHAPES)
def test_project(k, n, t, dtype):
    x, csr, known, rng = case(k, n, t, dtype)
    turn = rng.standard_normal((t, t)).astype(dtype)
    out = project(*csr, known, turn)
    assert out.dtype == dtype
    size = np.abs(x).sum(axis=1, initial=0.0).max(initial=1.0) * 5
    assert np.abs(out - x @ known @ turn).max(initial=0.0) <= tol(dtype, size * 5 * max(1, t))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k, n, t", SHAPES)
def test_scores(k, n, t, dtype):
    _, _, known, rng = case(k, n, t, dtype)
    own, scale = rng.standard_normal((k, t)).astype(dtype), rng.random(n).astype(dtype)
    wanted = own.astype(np.float64) @ known.T.astype(np.float64) * scale
    assert np.abs(scores(own, known, scale) - wanted).max(initial=0.0) <= tol(dtype, 20 * max(1, t))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k, n, t", [(1, 200_000, 8), (64, 9001, 48), (3000, 700, 33)])
def test_bits(k, n, t, dtype):
    _, csr, known, rng = case(k, n, t, dtype)
    own, turn = rng.standard_normal((k, t)).astype(dtype), rng.standard_normal((t, t)).astype(dtype)
    seen, before = set(), pool.get()
    try:
        for threads in (1, 2, 3, 8):
            pool.use(threads)
            seen.add((scores(own, known, np.ones(n, dtype)).tobytes(), project(*csr, known, turn).tobytes()))
    finally:
        pool.use(before)
    assert len(seen) == 1


def test_arrays_that_do_not_belong_together():
    one = np.ones((1, 2), np.float32)
    with pytest.raises(ValueError, match="belong together"):
        scores(one, np.ones((3, 2), np.float32), np.ones(2, np.float32))
    with pytest.raises(ValueError, match="belong together"):
        project(np.array([0, 1]), np.zeros(1, np.int32), np.ones(1, np.float32), one, np.ones((3, 1), np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k, n, m", [(1, 50, 9), (64, 900, 300), (300, 40, 1000), (3, 5, 1), (0, 5, 4)])
def test_walks(k, n, m, dtype):
    rng = np.random.default_rng(k + n + m)
    x, to_users, to_items = (abs(sparse_rows(rng, *shape, 0.1)).tocsr() for shape in ((k, n), (n, m), (m, n)))
    arrays = [
        array.astype(kind)
        for csr in (x, to_users, to_items)
        for array, kind in ((csr.indptr, np.int64), (csr.indices, np.int32), (csr.data, dtype))
    ]
    before = rng.random((k, n)).astype(dtype)
    wanted, seen, threads = before + (x @ to_users @ to_items).toarray(), set(), pool.get()
    try:
        for number in (1, 2, 8):
            pool.use(number)
            out = before.copy()
            add_walks(*arrays, out)
            assert np.abs(out - wanted).max(initial=0.0) <= tol(dtype, 100)
            seen.add(out.tobytes())
    finally:
        pool.use(threads)
    assert len(seen) == 1
