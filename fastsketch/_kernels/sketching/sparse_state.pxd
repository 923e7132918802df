# The state of a sketch whose new rows are sparse, as state.pxd declares it for all sketches.

from libc.stdint cimport int32_t, int64_t

from fastsketch._kernels.linalg.blas cimport blas_int
from fastsketch._kernels.sketching.state cimport SketchState

cdef enum:
    TOGETHER = 16  # rows whose products with all earlier rows are rotated at a time
    VALUES = 16    # numbers of retained rows per stored value of new rows, which takes five times as much memory


cdef class SparseState(SketchState):
    # A column gets a slot with its first nonzero entry. Arrays have an entry for each slot, and capacity for more.
    cdef public Py_ssize_t seen            # slots in use; beyond them z and means are zero
    cdef readonly object z                 # (slots, ldz): kept rows as columns, one column to spare for centring
    cdef readonly int64_t[::1] indptr      # the new rows: CSR arrays that grow
    cdef readonly int32_t[::1] indices
    cdef readonly object data
    cdef void* values                      # where data lies
    cdef Py_ssize_t ldz
    cdef int32_t[::1] slot                 # (slots,) of a sketch that centres: 0 between two uses
    cdef int32_t[::1] chosen               # (slots,) with centring: those that are moved by a pivot
    cdef int32_t[::1] stop                 # (slots,): the new rows slot by slot, see csrc/fs_sparse.h
    cdef int32_t[::1] row
    cdef int32_t[::1] place
    cdef object turned
    cdef void* turned_values               # where turned lies
    cdef object work
    cdef double[::1] small
    cdef double[::1] vectors               # 4 * (capacity + 2): small vectors of one flush
    cdef double[::1] squares               # FS_PARTS * sketch_size: of the kept rows, part by part
    cdef blas_int[::1] iwork
    # of a buffer for several shrinks of `block` new rows, else empty:
    cdef readonly Py_ssize_t block
    cdef readonly Py_ssize_t wide          # number of columns from which on the buffer waits for several shrinks
    cdef double[::1] combined              # C (rows of the buffer, sketch_size): coefficients of the retained rows
    cdef double[::1] gram                  # the Gram matrix of a shrink
    cdef double[::1] turn                  # its eigenvectors, and the products of both
    cdef double[::1] room                  # of the calling thread's part
    cdef object last                       # [C; I] times the last ones
    cdef void* last_values


cdef inline int64_t enough_values(SparseState s) noexcept nogil:
    # number of stored values with which the buffer is shrunk without waiting for more rows
    if s.seen < s.wide:
        return 0
    return min(<int64_t> 2**31 - 1, <int64_t> s.seen * (s.ldz - 1) // VALUES)
