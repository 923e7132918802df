"""A sparse matrix times eight vectors, and its transpose times the result."""

import numpy as np
import pytest
from scipy import sparse

from fastsketch._kernels.linalg.block import BLOCK, gram_block
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
