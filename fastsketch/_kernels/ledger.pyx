"""The ledger of a sketch: what it knows of the directions that it keeps, beyond the rows that shrinks have shortened.

A shrink of the buffer F (m rows: kept rows s_j v_j, and new rows x) finds F F' = U diag(w) U'. A new direction i is
v_i' = sigma_i^-1 u_i' F with sigma_i^2 = w_i, so that v_i . F_j = sigma_i u_ij: the turn T = V_new V_old' and the new
rows in the new directions come from the eigenvectors alone, at the price of a few l x l products.

    seen   <- T seen T' + (V_new X')(V_new X')'
    leaked <- T leaked T' + (I - T T') lost / (d - kept)        (lost: trace of A'A that `seen` does not hold)
"""

cimport cython
from libc.math cimport sqrt
from libc.string cimport memset

from fastsketch._kernels.blas cimport real, gemm

import numpy as np


@cython.auto_pickle(False)
cdef class Ledger:
    """The ledger of a sketch with buffer of `capacity` rows; all in the units of the buffer."""

    def __init__(self, Py_ssize_t n_keep, Py_ssize_t capacity, *, Py_ssize_t n_spare):
        self.n_spare = min(n_spare, n_keep)
        cdef Py_ssize_t side = n_keep + 1  # a merge may leave one row more than a shrink
        self.seen = np.zeros((side, side))
        self.leaked = np.zeros((side, side))
        self.spared = np.zeros(n_keep, np.int8)
        self.turn = np.empty(2 * side * side)
        self.lever = np.empty(n_keep * (capacity + 1))


cdef inline double root(real value, bint roots) noexcept nogil:
    """sigma from what the solver gave: sigma itself, or its square."""
    if roots:
        return <double> value
    return sqrt(<double> value) if value > 0 else 0.0


cdef void weaken(Ledger ledger, double factor) noexcept nogil:
    """Multiply the weight of all rows so far by a factor."""
    cdef Py_ssize_t i, n = ledger.seen.shape[0]
    cdef double* seen = &ledger.seen[0, 0]
    cdef double* leaked = &ledger.leaked[0, 0]
    for i in range(n * n):
        seen[i] *= factor
        leaked[i] *= factor
    ledger.lost *= factor


cdef void post(Ledger ledger, Py_ssize_t m, Py_ssize_t kept, Py_ssize_t d, Py_ssize_t n_keep, const real* u,
               Py_ssize_t next_vector, Py_ssize_t next_row, Py_ssize_t first, Py_ssize_t step, const real* w,
               Py_ssize_t next_value, Py_ssize_t n_values, bint roots, const double* lam) noexcept nogil:
    """Take one shrink down, before its rows are shortened, and choose the directions that it spares.

    Entry j of eigenvector i, the largest first, is u[i * next_vector + j * next_row]; its eigenvalue w[i * next_value] (with
    `roots`: its square) is zero for i >= n_values. The kept row j, of squared norm lam[j], is row first + j * step of the
    buffer (step 1 or -1), all others are new.
    """
    cdef Py_ssize_t n = n_keep, ld = ledger.seen.shape[0], h = m - kept, i, j, x, row, best
    cdef double* turn = &ledger.turn[0]        # T (n, kept), row-major
    cdef double* half = turn + ld * ld
    cdef double* lever = &ledger.lever[0]      # the new rows in the new directions (n, h), row-major
    cdef double* seen = &ledger.seen[0, 0]
    cdef double* leaked = &ledger.leaked[0, 0]
    cdef double sigma, norm, density, trace = 0.0
    for i in range(n_values):
        sigma = root(w[i * next_value], roots)
        trace += sigma * sigma
    for j in range(kept):
        trace += seen[j * ld + j] - lam[j]  # of all that is known: of the new rows, and of `seen`
        norm = 0.0
        row = first + j * step
        for i in range(n):
            turn[i * ld + j] = 0.0
            if lam[j] > 0.0 and i < n_values:
                sigma = root(w[i * next_value], roots)
                turn[i * ld + j] = sigma * <double> u[i * next_vector + row * next_row] / sqrt(lam[j])
            norm += turn[i * ld + j] * turn[i * ld + j]
        if norm > 1.0:  # by rounding, where lam[j] is nothing beside lam[0]
            for i in range(n):
                turn[i * ld + j] /= sqrt(norm)
    for i in range(n):
        sigma = root(w[i * next_value], roots) if i < n_values else 0.0
        x = 0
        for row in range(m):
            j = (row - first) * step
            if j < 0 or j >= kept:
                lever[i * h + x] = sigma * <double> u[i * next_vector + row * next_row] if sigma > 0.0 else 0.0
                x += 1
    # leaked = T leaked T' + (I - T T') density;  a row-major matrix is its transpose to gemm
    density = ledger.lost / <double> (d - kept) if d > kept else 0.0
    gemm(c'N', c'N', kept, n, kept, <double> 1.0, leaked, ld, turn, ld, <double> 0.0, half, ld)
    memset(leaked, 0, ld * ld * sizeof(double))
    for i in range(n):
        leaked[i * ld + i] = density
    if kept:
        gemm(c'T', c'N', n, n, kept, <double> 1.0, turn, ld, half, ld, <double> 1.0, leaked, ld)
        gemm(c'T', c'N', n, n, kept, -density, turn, ld, turn, ld, <double> 1.0, leaked, ld)
    # seen = T seen T' + lever lever'
    gemm(c'N', c'N', kept, n, kept, <double> 1.0, seen, ld, turn, ld, <double> 0.0, half, ld)
    memset(seen, 0, ld * ld * sizeof(double))
    if kept:
        gemm(c'T', c'N', n, n, kept, <double> 1.0, turn, ld, half, ld, <double> 1.0, seen, ld)
    if h:
        gemm(c'T', c'N', n, n, h, <double> 1.0, lever, h, lever, h, <double> 1.0, seen, ld)
    for i in range(n):
        trace -= seen[i * ld + i]
    ledger.lost = max(0.0, ledger.lost + trace)
    # the n_spare directions that hold most
    memset(&ledger.spared[0], 0, n)
    for j in range(ledger.n_spare):
        best = -1
        for i in range(n):
            if not ledger.spared[i] and (
                    best < 0 or seen[i * ld + i] + leaked[i * ld + i] > seen[best * ld + best] + leaked[best * ld + best]):
                best = i
        ledger.spared[best] = 1
