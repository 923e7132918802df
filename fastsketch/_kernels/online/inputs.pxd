# Passes over rows that are scaled in place, for what learns from a few of them (few_rows.pyx).

from libc.stdint cimport int32_t, int64_t

cdef enum:
    # entries of the totals
    ROWS_ = 0
    LENGTHS_ = 1
    LONG_ = 2
    TOTALS_ = 3

cdef Py_ssize_t sparse_loop(Py_ssize_t n, double* data, const int32_t* slots, const int64_t* indptr, int tail,
                            double* squares, double* counts, double* totals, Py_ssize_t known,
                            bint joins) noexcept nogil
cdef Py_ssize_t dense_loop(Py_ssize_t n, Py_ssize_t d, Py_ssize_t ld, double* out, double* means, double* spreads,
                           double* totals, bint joins) noexcept nogil
