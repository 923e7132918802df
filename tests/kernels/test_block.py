"""A sparse matrix times eight vectors, and its transpose times the result."""

import numpy as np
import pytest
from scipy import sparse

from fastsketch._kernels.linalg.block import BLOCK, gram_block, leading_of_block
from fastsketch._kernels.lowrank.gradients import multiply


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("m", "n", "density"), [(1, 1, 1.0), (7, 5, 0.5), (40, 90, 0.1), (30, 3, 0.0), (0, 4, 0.5), (50, 64, 1.0)]
)
def test_products(m, n, density, dtype):
    rng = np.random.default_rng(m)
    dense = rng.standard_normal((m, n)) * (rng.random((m, n)) < density)
    a = sparse.csr_array(dense.astype(dtype))
    where = a.indptr.astype(np.uint32), a.indices.astype(np.uint32)
    v = np.ascontiguousarray(rng.standard_normal((n, BLOCK)), dtype)
    u, w = np.full((m, BLOCK), np.nan, dtype), np.zeros((n, BLOCK), dtype)
    gram_block(*where, a.data, v, u, w)
    tolerance = 100 * np.finfo(dtype).eps * (1 + np.abs(dense).sum())
    assert np.abs(u - dense @ v).max(initial=0) <= tolerance
    assert np.abs(w - dense.T @ (dense @ v)).max(initial=0) <= 10 * tolerance
    one_u, one_w = np.empty(m, dtype), np.empty(n, dtype)
    multiply(*where, a.data, np.ascontiguousarray(v[:, 0]), one_u, one_w)
    assert np.abs(one_u - u[:, 0]).max(initial=0) <= tolerance
    assert np.abs(one_w - w[:, 0]).max(initial=0) <= 10 * tolerance
    again = np.empty(m, dtype)
    multiply(*where, a.data, np.ascontiguousarray(v[:, 0]), again)
    assert np.abs(again - one_u).max(initial=0) <= tolerance
    multiply(*where, a.data, None, one_u, one_w)
    assert np.abs(one_w - w[:, 0]).max(initial=0) <= 10 * tolerance


def test_sizes_that_do_not_fit_are_refused():
    a = sparse.csr_array(np.eye(3))
    where = a.indptr.astype(np.uint32), a.indices.astype(np.uint32)
    good = np.zeros((3, 8))
    for v, u, w in ((np.zeros((3, 7)), good, good), (good, np.zeros((2, 8)), good), (good, good, np.zeros((4, 8)))):
        with pytest.raises(ValueError, match="belong"):
            gram_block(*where, a.data, v, u, w)


@pytest.mark.parametrize(("iterations", "turned", "taken"), [(1, 0.0, 1), (2, 0.0, 2), (3, 0.0, 3), (9, 1.0, 1)])
def test_leading_vectors_are_those_of_subspace_iteration(iterations, turned, taken):
    rng = np.random.default_rng(0)
    a = sparse.csr_array(rng.standard_normal((40, 20)) * (rng.random((40, 20)) < 0.5))
    start = rng.standard_normal((20, BLOCK))
    v, left, right = start.copy(), np.full(40, np.nan), np.full(20, np.nan)
    where = a.indptr.astype(np.uint32), a.indices.astype(np.uint32)
    size = leading_of_block(*where, a.data, v, iterations, turned, left, right)
    basis = np.linalg.qr(start)[0]
    for _ in range(taken):
        product = a @ basis
        vector = basis @ np.linalg.eigh(product.T @ product)[1][:, -1]  # of the block before the last product
        basis = np.linalg.qr(a.T @ product)[0]
    assert abs(abs(right @ vector) - 1) < 1e-12 and abs(right @ right - 1) < 1e-12
    assert np.allclose(left, a @ right, atol=1e-12) and np.isclose(size, np.linalg.norm(left), rtol=1e-12)
    assert np.allclose(v.T @ v, np.eye(BLOCK), atol=1e-12) and np.allclose(v @ (v.T @ basis), basis, atol=1e-10)
