"""Residual products of low-rank models: a sparse matrix or its transpose times a vector (Numba).

A C function, which _kernels/lowrank/gradients calls through a pointer, a part of the rows at a time, on several threads
at once. The matrix is in CSR with unsigned 32-bit indices; all values are float32 or all float64.
"""

# pyright: basic
# Numba has no types; what Python calls is typed in products.pyi.

import numpy as np

from fastsketch._kernels.jit import c_function, types


def multiply(first, stop, forth, back, indptr, indices, a, v, u, w):
    """Set u = A v (`forth`) and add A'u to w (`back`) for the rows from first up to stop, in one pass over entries."""
    for i in range(first, stop):
        if forth:
            u[i] = 0.0
            total = u[i]  # of the type of the array
            for k in range(indptr[i], indptr[i + 1]):
                total += a[k] * v[indices[k]]
            u[i] = total
        if back:
            scale = u[i]
            for k in range(indptr[i], indptr[i + 1]):
                w[indices[k]] += a[k] * scale


SIZE, INDICES = types.int64, types.CPointer(types.uint32)
# a sum over a row may be taken in any order, as its vectors please: the same one on one machine
LOOSE = {"reassoc", "contract", "nsz"}
_made = {}


def address(dtype):
    """Return where the C function is for values of this dtype; it is compiled when it is first asked for."""
    name = np.dtype(dtype).name
    if name not in _made:
        values = [types.CPointer(getattr(types, name))] * 4
        signature = types.void(SIZE, SIZE, SIZE, SIZE, INDICES, INDICES, *values)
        _made[name] = c_function(multiply, signature, fastmath=LOOSE)
    return _made[name].address
