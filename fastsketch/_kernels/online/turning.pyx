"""The small space of a sketch (turning.pxd) for the torch optimisers, which keep the rows C on their device."""

cimport cython
from libc.string cimport memset

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.online.numbers cimport COUNTS
from fastsketch._kernels.pool cimport join

import numpy as np

follow()
join()

CLEAR_SHARE = clear()
NEW_SHARE = least_new()
MOST_TURNS = POLISH


@cython.auto_pickle(False)
cdef class SmallSpace:
    """Small matrices of a sketched adaptive optimiser, changed in place: T' = turn (most, cap), the eigenvalues lam
    (most,), and C C' = gram (cap, cap). The caller stores the rows C.

    n_rows: rows of C; rank: directions in V. Arguments p are products C x; y = V'x is set by project().
    """

    cdef Turning t
    cdef int64_t count[COUNTS]
    cdef double[:, ::1] turn, gram
    cdef double[::1] lam, space
    cdef int32_t[::1] ints

    def __init__(self, double[:, ::1] turn, double[::1] lam, double[:, ::1] gram, *, int rule, Py_ssize_t sketch_size,
                 Py_ssize_t rank, Py_ssize_t n_rows, Py_ssize_t turns=0, bint root=True):
        cdef Turning* t = &self.t
        cdef Py_ssize_t most = turn.shape[0], cap = turn.shape[1]
        if not (0 <= rank <= most and 0 <= n_rows <= cap and lam.shape[0] == most > 0 and sketch_size > 1
                and gram.shape[0] == gram.shape[1] == cap > 0):
            raise ValueError("turn, lam, gram, rank and n_rows do not belong together")
        self.turn, self.lam, self.gram = turn, lam, gram
        self.space = np.zeros(most + 1 + secular_size(most) + small_size(most, cap))
        self.ints = np.zeros(ints_size(most), np.int32)
        memset(self.count, 0, sizeof(self.count))
        self.count[RANK], self.count[ROWS], self.count[TURNS] = rank, n_rows, turns
        t.tau, t.most, t.cap, t.rule, t.root, t.count = sketch_size, most, cap, rule, root, self.count
        t.carried = NULL
        t.turn, t.lam, t.gram, t.ints = &turn[0, 0], &lam[0], &gram[0, 0], &self.ints[0]
        t.y = &self.space[0]
        t.secular = t.y + most + 1
        t.small = t.secular + secular_size(most)

    @property
    def rank(self):
        return self.count[RANK]

    @property
    def n_rows(self):
        return self.count[ROWS]

    @property
    def turns(self):
        return self.count[TURNS]

    cdef int check(self, const double[::1] p) except -1:
        if p.shape[0] < self.count[ROWS]:
            raise ValueError("p has fewer entries than C has rows")
        return 0

    def project(self, const double[::1] p):
        """Compute the coordinates y = T'p of x in the sketch's directions V, for later calls, and return y'y."""
        self.check(p)
        if p.shape[0] == 0:
            return 0.0
        project(&self.t, &p[0])
        return dot(self.count[RANK], self.t.y, self.t.y)

    def within(self, const double[::1] p, delta=None):
        """Return the coefficients T T'p (n_rows,) by which the rows of C add up to the projection of x on V.

        With delta: T diag(share) T'p, for H^-1 x = (x - C' T diag(share) T'p) / delta.
        """
        cdef Py_ssize_t i
        cdef double[::1] out = np.zeros(max(self.count[ROWS], 1))
        self.project(p)
        if delta is not None:
            for i in range(self.count[RANK]):
                self.t.y[i] *= share(&self.t, self.t.lam[i], delta)
        add_turned(&self.t, 1.0, self.t.y, &out[0])
        return np.asarray(out)[:self.count[ROWS]]

    def must_rebase(self):
        """Return True if the caller must replace C by V' before a gradient is added. If the sketch is full, it is
        shrunk first, which changes lam and rank.
        """
        return must_rebase(&self.t)

    def polish(self):
        """Make the columns of T orthonormal with respect to gram again, in place, to remove rounding errors."""
        polish(&self.t)

    def rebased(self):
        """Set T to the identity, in place, after the caller has replaced the rows C by V'."""
        fresh_basis(&self.t)

    def append(self, const double[::1] products, double corner, double rest, bint unit=False):
        """Record that the caller has appended a row to C, given its products with the rows of C and with itself
        (corner).

        rest: length of the component of x orthogonal to V. unit: the row is that component, normalised, instead of x. y
        must be that of x.
        """
        self.check(products)
        if self.count[RANK] == self.t.most or self.count[ROWS] == self.t.cap:
            raise ValueError("there is no room for a direction")
        if self.count[ROWS]:
            border(&self.t, &products[0], corner)
        else:
            self.t.gram[0] = corner
        new_direction(&self.t, rest, unit)

    def take_gradient(self, double weight=1.0):
        """Add weight x x' to the second-order matrix S'S, for the x of the last call of project()."""
        with nogil:
            take_gradient(&self.t, weight)
