"""Product of a sparse matrix with eight vectors, and of its transpose with the result."""

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fastsketch._kernels.lowrank.gradients import multiply_parts

Array = NDArray[Any]  # float32 or float64, the same one in all arguments


@cache
def _numba_loop() -> ModuleType | None:
    """Import the compiled loop at the first call, since Numba takes long to import. Return None if that fails."""
    try:
        from fastsketch._kernels.lowrank import block_loop
    except ImportError:
        return None
    return block_loop


def gram_block(indptr: NDArray[np.uint32], indices: NDArray[np.uint32], a: Array, v: Array) -> tuple[Array, Array]:
    """Compute u = A v (m, 8) and A'u (n, 8) for a CSR matrix A (m, n) with values a, and v (n, 8).

    Without Numba, SciPy computes the products on one thread.
    """
    loop, m = _numba_loop(), len(indptr) - 1
    if loop is None:
        matrix: Any = sparse.csr_array((a, indices, indptr), shape=(m, len(v)))
        u = matrix @ v
        return u, matrix.T @ u
    u = np.empty((m, 8), v.dtype)
    return u, multiply_parts(loop.address(a.dtype), indptr, indices, a, v, u).sum(axis=0)
