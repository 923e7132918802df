# Passes over rows that are scaled in place, for what learns from a few of them (few_rows.pyx).

from libc.stdint cimport int32_t, int64_t

cdef enum:
    # entries of the totals
    ROWS_ = 0
    LENGTHS_ = 1
    LONG_ = 2
    TOTALS_ = 3

cdef enum:
    # rows of what steady rows are scaled by (Steady)
    CENTRES_ = 0
    DIVISORS_ = 1
    MEANS_ = 2
    SPREADS_ = 3


cdef struct Steady:
    # by slot or column: what rows are shifted and divided by until a scale has moved; and of sparse rows, running means and
    # sums of squared distances of steady columns and of those that every row has had
    double* centres              # NULL: scales follow every row
    double* divisors             # 0: none yet, of a column that has not varied, or that a row lacked before it did
    double* means
    double* spreads
    bint has_joined              # the first row has joined the moments already
    bint moved                   # a scale has moved: the next row is to be scaled when the states have been re-expressed

cdef Py_ssize_t sparse_loop(Py_ssize_t n, double* data, const int32_t* slots, const int64_t* indptr, int tail,
                            double* squares, double* counts, double* totals, Py_ssize_t known, bint joins,
                            Steady* steady) noexcept nogil
cdef Py_ssize_t dense_loop(Py_ssize_t n, Py_ssize_t d, Py_ssize_t ld, double* out, double* means, double* spreads,
                           double* totals, bint joins, Steady* steady) noexcept nogil
