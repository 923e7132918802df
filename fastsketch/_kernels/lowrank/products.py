"""A sparse matrix times eight vectors, and its transpose times the result."""

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
    """Import the compiled loop, where it is needed: Numba takes long to import. Return None where it cannot be."""
    try:
        from fastsketch._kernels.lowrank import block_loop
    except ImportError:
        return None
    return block_loop


def gram_block(indptr: NDArray[np.uint32], indices: NDArray[np.uint32], a: Array, v: Array) -> tuple[Array, Array]:
    """Return u = A v (m, 8) and A'u (n, 8) for a CSR matrix A (m, n) of values a, and v (n, 8).

    Numba's loop does it in parts; where Numba cannot be imported SciPy does, on one thread.
    """
    loop, m = _numba_loop(), len(indptr) - 1
    if loop is None:
        matrix: Any = sparse.csr_array((a, indices, indptr), shape=(m, len(v)))
        u = matrix @ v
        return u, matrix.T @ u
    u = np.empty((m, 8), v.dtype)
    return u, multiply_parts(loop.address(a.dtype), indptr, indices, a, v, u).sum(axis=0)
