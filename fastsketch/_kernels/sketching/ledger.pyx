"""The ledger of a sketch: a log of the mass of A'A along the retained directions, including what shrinks removed.

A shrink of the buffer F (m rows: retained rows s_j v_j, and new rows x) computes F F' = U diag(w) U'. A new direction i
is v_i' = sigma_i^-1 u_i' F with sigma_i^2 = w_i, so that v_i . F_j = sigma_i u_ij: the rotation T = V_new V_old' and
the new rows in the new directions follow from the eigenvectors, at the cost of a few l x l products.

`seen` estimates A'A along the directions from rows that arrived since, `leaked` from the removed mass:

    seen   <- T seen T' + (V_new X')(V_new X')'
    leaked <- T leaked T' + (I - T T') lost / (d - kept)        (lost: the part of the trace of A'A not in `seen`)

The matrices are stored row by row, which gemm reads as their transposes.
"""

cimport cython
from libc.math cimport isfinite, sqrt
from libc.string cimport memset

from fastsketch._kernels.linalg.blas cimport real, gemm

import numpy as np


@cython.auto_pickle(False)
cdef class Ledger:
    """The squares that shrinks removed along the directions of a sketch, whose buffer has `capacity` rows."""

    def __init__(self, Py_ssize_t n_keep, Py_ssize_t capacity, *, Py_ssize_t n_spare):
        self.n_spare = min(n_spare, n_keep)
        cdef Py_ssize_t side = n_keep + 1  # a merge may leave one row more than a shrink
        self.seen = np.zeros((side, side))
        self.leaked = np.zeros((side, side))
        self.spared = np.zeros(n_keep, np.int8)
        self.turn = np.empty(2 * side * side)
        self.lever = np.empty(n_keep * (capacity + 1))  # centring adds a row to those of the buffer


cdef void weaken(Ledger ledger, double factor) noexcept nogil:
    """Multiply the weight of all rows so far by a factor."""
    cdef Py_ssize_t i, n = ledger.seen.shape[0]
    cdef double* seen = &ledger.seen[0, 0]
    cdef double* leaked = &ledger.leaked[0, 0]
    for i in range(n * n):
        seen[i] *= factor
        leaked[i] *= factor
    ledger.lost *= factor


cdef inline double length(Py_ssize_t i, const real* w, Py_ssize_t next_value, Py_ssize_t n_values,
                          bint roots) noexcept nogil:
    """Return sigma_i, given it (`roots`) or its square."""
    cdef double value = <double> w[i * next_value] if i < n_values else 0.0
    if roots:
        return value
    return sqrt(value) if value > 0.0 else 0.0


cdef void cap(Py_ssize_t n, Py_ssize_t ld, double* column) noexcept nogil:
    """Scale a column of T to length 1 if rounding has made it longer, as for an old row that is relatively tiny."""
    cdef Py_ssize_t i
    cdef double square = 0.0
    for i in range(n):
        square += column[i * ld] * column[i * ld]
    if square > 1.0:
        for i in range(n):
            column[i * ld] /= sqrt(square)


cdef void carry(Py_ssize_t n, Py_ssize_t kept, Py_ssize_t ld, const double* turn, double* half, double density,
                double* known) noexcept nogil:
    """Set known = T known T' + (I - T T') density, for T (n, kept)."""
    cdef Py_ssize_t i
    # half = T @ known;  known = half @ T.T + density * (I - T @ T.T)
    gemm(c'N', c'N', kept, n, kept, <double> 1.0, known, ld, turn, ld, <double> 0.0, half, ld)
    memset(known, 0, ld * ld * sizeof(double))
    if density > 0.0:
        for i in range(n):
            known[i * ld + i] = density
    if kept:
        gemm(c'T', c'N', n, n, kept, <double> 1.0, turn, ld, half, ld, <double> 1.0, known, ld)
        if density > 0.0:
            gemm(c'T', c'N', n, n, kept, -density, turn, ld, turn, ld, <double> 1.0, known, ld)


cdef void choose(Ledger ledger, Py_ssize_t n, Py_ssize_t ld) noexcept nogil:
    """Select the n_spare directions with the largest seen + leaked; of equal ones the first."""
    cdef double* seen = &ledger.seen[0, 0]
    cdef double* leaked = &ledger.leaked[0, 0]
    cdef double* held = &ledger.turn[0]
    cdef Py_ssize_t i, _, best
    for i in range(n):
        held[i] = seen[i * ld + i] + leaked[i * ld + i]
        ledger.spared[i] = False
    for _ in range(ledger.n_spare):
        best = -1
        for i in range(n):
            if not ledger.spared[i] and (best < 0 or held[i] > held[best]):
                best = i
        if best < 0:  # all are selected: a last shrink may leave fewer rows
            return
        ledger.spared[best] = True


cdef int post(Ledger ledger, Py_ssize_t m, Py_ssize_t kept, Py_ssize_t d, Py_ssize_t n_keep, const real* u,
              Py_ssize_t next_vector, Py_ssize_t next_row, Py_ssize_t first, Py_ssize_t step, const real* w,
              Py_ssize_t next_value, Py_ssize_t n_values, bint roots, const double* lam) noexcept nogil:
    """Record one shrink in the ledger, before rows are shortened, and select the directions that keep their length.

    Entry j of eigenvector i, the largest first, is u[i * next_vector + j * next_row]; its eigenvalue w[i * next_value]
    (with `roots`: its square) is zero for i >= n_values. The kept row j, of squared norm lam[j], is row first + j *
    step of the buffer (step 1 or -1), all others are new. Returns 0, or 1 if sums have overflowed.
    """
    cdef Py_ssize_t n = n_keep, ld = ledger.seen.shape[0], h = m - kept, i, j, x, row
    cdef double* turn = &ledger.turn[0]        # T (n, kept), row by row
    cdef double* half = turn + ld * ld
    cdef double* lever = &ledger.lever[0]      # V_new X' (n, h)
    cdef double* seen = &ledger.seen[0, 0]
    cdef double* leaked = &ledger.leaked[0, 0]
    cdef double sigma, trace = 0.0             # of `seen` and the new rows
    for i in range(n_values):
        sigma = length(i, w, next_value, n_values, roots)
        trace += sigma * sigma
    for j in range(kept):
        trace += seen[j * ld + j] - lam[j]
    # T[i, j] = sigma_i u[i, j] / sqrt(lam_j);  lever[i, x] = sigma_i u[i, x]
    for i in range(n):
        sigma = length(i, w, next_value, n_values, roots)
        x = 0
        for row in range(m):
            j = (row - first) * step
            if j < 0 or j >= kept:
                lever[i * h + x] = sigma * <double> u[i * next_vector + row * next_row] if sigma > 0.0 else 0.0
                x += 1
            elif sigma > 0.0 and lam[j] > 0.0:
                turn[i * ld + j] = sigma * <double> u[i * next_vector + row * next_row] / sqrt(lam[j])
            else:
                turn[i * ld + j] = 0.0
    for j in range(kept):
        cap(n, ld, turn + j)
    carry(n, kept, ld, turn, half, ledger.lost / <double> (d - kept) if d > kept else 0.0, leaked)
    carry(n, kept, ld, turn, half, 0.0, seen)
    # seen += lever @ lever.T
    gemm(c'T', c'N', n, n, h, <double> 1.0, lever, h, lever, h, <double> 1.0, seen, ld)
    for i in range(n):
        trace -= seen[i * ld + i]
    if not isfinite(trace):
        return 1
    ledger.lost = max(0.0, ledger.lost + trace)
    choose(ledger, n, ld)
    return 0
