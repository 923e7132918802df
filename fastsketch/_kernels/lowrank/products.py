"""Residual products and gradients of low-rank models: loops over the observed entries of some rows (Numba).

They are C functions, which _kernels/lowrank/gradients calls through pointers, a part of the rows at a time, on several
threads at once. A matrix is in CSR with unsigned 32-bit indices; `real`, float32 or float64, is the type of values of
rows, of columns and of entries; sums over entries are float64.

    first, stop   the rows
    z (nnz,)      scores;  o (nnz,) what was observed;  c (nnz,) weights, read if `weighted`
    a (nnz,)      the scaled gradient: weight * dloss/dz * left[i] * right[j]
"""

# pyright: basic
# Numba has no types; what Python calls is typed in products.pyi.

import numpy as np

from fastsketch._kernels.jit import c_function, types
from fastsketch._kernels.lowrank.losses_jit import value_slope_curvature


def gradient(loss, p, weighted, first, stop, indptr, indices, z, o, c, left, right, a):
    """Return a = weight * slope * left[i] * right[j]; returns the objective."""
    total = 0.0
    for i in range(first, stop):
        scale = left[i]
        for k in range(indptr[i], indptr[i + 1]):
            f, slope, _ = value_slope_curvature(loss, p, z[k], o[k])
            if weighted:
                f *= c[k]
                slope *= c[k]
            total += f
            a[k] = slope * scale * right[indices[k]]
    return total


def step_gradient(loss, p, weighted, first, stop, indptr, indices, z, o, c, left, right, keep_theta, u, v, rb, cb, a):
    """Return z = b + keep (z - b) + theta u_i v_j with b = rb_i + cb_j, then as gradient; keep_theta: these two."""
    total, keep, theta = 0.0, keep_theta[0], keep_theta[1]
    for i in range(first, stop):
        scale, ui, bi = left[i], theta * u[i], rb[i]
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            if keep == 1.0:
                z[k] += ui * v[j]
            else:
                b = bi + cb[j]
                z[k] = b + keep * (z[k] - b) + ui * v[j]
            f, slope, _ = value_slope_curvature(loss, p, z[k], o[k])
            if weighted:
                f *= c[k]
                slope *= c[k]
            total += f
            a[k] = slope * scale * right[j]
    return total


def gram_product(first, stop, indptr, indices, a, v, u, w):
    """Set u = A v and add A'u to w in one pass over the entries."""
    for i in range(first, stop):
        u[i] = 0.0
        total = u[i]  # of the type of the array
        for k in range(indptr[i], indptr[i + 1]):
            total += a[k] * v[indices[k]]
        u[i] = total
        for k in range(indptr[i], indptr[i + 1]):
            w[indices[k]] += a[k] * total


def times(first, stop, indptr, indices, a, v, u):
    """Set u = A v."""
    for i in range(first, stop):
        u[i] = 0.0
        total = u[i]
        for k in range(indptr[i], indptr[i + 1]):
            total += a[k] * v[indices[k]]
        u[i] = total


def transposed_times(first, stop, indptr, indices, a, u, w):
    """Add A'u to w."""
    for i in range(first, stop):
        s = u[i]
        for k in range(indptr[i], indptr[i + 1]):
            w[indices[k]] += a[k] * s


SIZE, SUM, INDICES = types.int64, types.float64, types.CPointer(types.uint32)
LOSS, MATRIX = (SIZE, SUM, SIZE), (SIZE, SIZE, INDICES, INDICES)
# a sum over a row may be taken in any order, as its vectors please: the same one on one machine
LOOSE = {"fastmath": {"reassoc", "contract", "nsz"}}
# result, arguments before the arrays of values, how many those are, how it is compiled
FUNCTIONS = {
    gradient: (SUM, (*LOSS, *MATRIX), 6, {}),
    step_gradient: (SUM, (*LOSS, *MATRIX), 11, {}),
    gram_product: (types.void, MATRIX, 4, LOOSE),
    times: (types.void, MATRIX, 3, LOOSE),
    transposed_times: (types.void, MATRIX, 3, {}),
}
_made = {}


def _signature(real, result, before, values):
    return result(*before, *[types.CPointer(real)] * values)


def address(name, dtype):
    """Return where the C function of this name is, for values of this dtype.

    It is compiled when it is first asked for.
    """
    key = name, np.dtype(dtype).name
    if key not in _made:
        function = globals()[name]
        result, before, values, options = FUNCTIONS[function]
        signature = _signature(getattr(types, key[1]), result, before, values)
        _made[key] = c_function(function, signature, error_model="numpy", **options)
    return _made[key].address
