# pyright: basic
# numba is not typed; the signatures are in lowrank.pyi
"""Residual products and gradients of low-rank models: loops over the observed entries of a matrix (Numba).

In CSR with unsigned 32-bit indices: signed ones cost a test for a negative one in every access, twice the time. Values
of rows, of columns and of entries may be float32 or float64; sums over entries are float64. All other loops over
entries, and what the arrays hold, are in _kernels/lowrank/entries.

    a (nnz,)    the scaled gradient: weight * dloss/dz * left[i] * right[j]
"""

import numpy as np

from fastsketch._kernels.jit import compiled
from fastsketch._kernels.lowrank.losses_jit import value_slope_curvature


@compiled
def gradient(loss, p, indptr, indices, z, o, c, left, right, a):
    """a = weight * slope * left[i] * right[j]; returns the objective."""
    total = 0.0
    for i in range(len(indptr) - 1):
        scale = left[i]
        for k in range(indptr[i], indptr[i + 1]):
            f, slope, _ = value_slope_curvature(loss, p, z[k], o[k])
            if len(c):
                f *= c[k]
                slope *= c[k]
            total += f
            a[k] = slope * scale * right[indices[k]]
    return total


@compiled
def step_gradient(loss, p, indptr, indices, z, o, c, left, right, keep, theta, u, v, rb, cb, a):
    """z = b + keep (z - b) + theta u_i v_j with b = rb_i + cb_j, then as gradient."""
    total = 0.0
    for i in range(len(indptr) - 1):
        scale, ui, bi = left[i], theta * u[i], rb[i]
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            if keep == 1.0:
                z[k] += ui * v[j]
            else:
                b = bi + cb[j]
                z[k] = b + keep * (z[k] - b) + ui * v[j]
            f, slope, _ = value_slope_curvature(loss, p, z[k], o[k])
            if len(c):
                f *= c[k]
                slope *= c[k]
            total += f
            a[k] = slope * scale * right[j]
    return total


@compiled(fastmath={"reassoc", "contract", "nsz"})
def gram_product(indptr, indices, a, v, u, w):
    """u = A v, w = A'u in one pass over the entries."""
    w[:] = 0.0
    for i in range(len(indptr) - 1):
        first, last = indptr[i], indptr[i + 1]
        total = a.dtype.type(0.0)
        for k in range(first, last):
            total += a[k] * v[indices[k]]
        u[i] = total
        for k in range(first, last):
            w[indices[k]] += a[k] * total


@compiled(fastmath={"reassoc", "contract", "nsz"})
def times(indptr, indices, a, v, u):
    """u = A v."""
    for i in range(len(indptr) - 1):
        total = a.dtype.type(0.0)
        for k in range(indptr[i], indptr[i + 1]):
            total += a[k] * v[indices[k]]
        u[i] = total


@compiled
def transposed_times(indptr, indices, a, u, w):
    """w = A'u."""
    w[:] = 0.0
    for i in range(len(indptr) - 1):
        s = u[i]
        for k in range(indptr[i], indptr[i + 1]):
            w[indices[k]] += a[k] * s


@compiled
def coefficient_gradient(loss, p, indptr, indices, o, c, rb, cb, left, right, theta, out):
    """Objective of f(rb_i + cb_j + sum_q theta_q u_iq v_jq) and its gradient (t,) in theta."""
    t = len(theta)
    out[:] = 0.0
    product, mine = np.empty(t), np.empty(t)
    total = 0.0
    for i in range(len(indptr) - 1):
        for q in range(t):
            mine[q] = left[i, q]
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            z = rb[i] + cb[j]
            for q in range(t):
                product[q] = mine[q] * right[j, q]
                z += theta[q] * product[q]
            f, slope, _ = value_slope_curvature(loss, p, z, o[k])
            if len(c):
                f *= c[k]
                slope *= c[k]
            total += f
            for q in range(t):
                out[q] += slope * product[q]
    return total
