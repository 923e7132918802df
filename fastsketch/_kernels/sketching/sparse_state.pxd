# The state of a sketch whose new rows are sparse: fields that its kernels use in place, as those of state.pxd.

from libc.stdint cimport int32_t, int64_t

from fastsketch._kernels.linalg.blas cimport blas_int
from fastsketch._kernels.sketching.state cimport SketchState

cdef enum:
    TOGETHER = 16  # rows whose products with all before them are turned at a time


cdef class SparseState(SketchState):
    cdef readonly object z                 # (d, ldz): kept rows as columns, one column to spare for centring
    cdef readonly int64_t[::1] indptr      # the new rows: CSR arrays that grow
    cdef readonly int32_t[::1] indices
    cdef readonly object data
    cdef void* values                      # where data lies
    cdef Py_ssize_t ldz
    cdef int32_t[::1] slot                 # (d,) of a sketch that centres: 0 between two uses
    cdef int32_t[::1] chosen               # (d,) of a sketch that centres: features that are moved by a pivot
    cdef int32_t[::1] stop                 # (d,): the new rows feature by feature, see csrc/fs_sparse.h
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
    cdef readonly int64_t enough           # values of the new rows with which no further shrink is waited for
    cdef double[::1] combined              # C (rows of the buffer, sketch_size): the kept rows by those of the buffer
    cdef double[::1] gram                  # the Gram matrix of a shrink
    cdef double[::1] turn                  # its eigenvectors, and the products of both
    cdef double[::1] room                  # of the calling thread's part
    cdef object last                       # [C; I] times the last ones
    cdef void* last_values
