# The loops of inputs.pyx that scale rows in place, for few_rows.pyx.

from libc.stdint cimport int32_t, int64_t

cdef enum:
    # Entries of the array `totals`.
    ROWS_ = 0
    LENGTHS_ = 1
    LONG_ = 2
    TOTALS_ = 3

cdef struct Steady:
    # Fixed scales by slot or column, which change only when a standard deviation has doubled or halved.
    double* centres              # subtracted from values; NULL: the running moments scale every row
    double* divisors             # 0: the column has not varied yet, or a row lacked it before it varied
    # of sparse rows: running means and sums of squared distances, for columns with a divisor or a value in every row
    double* means
    double* spreads
    bint has_joined              # the first row has already been added to the moments
    bint lost                    # written: squares of values of the row have underflowed
    bint moved                   # written: a scale has to change, and the states be rescaled, before the next row


cdef inline void set_steady(Steady* s, double* first, Py_ssize_t known, bint has_joined) noexcept nogil:
    # Set the pointers to the rows of an array (4, known), or (2, known) for dense rows; `first` may be NULL.
    s.centres, s.has_joined, s.moved = first, has_joined, False
    if first != NULL:
        s.divisors, s.means, s.spreads = first + known, first + 2 * known, first + 3 * known


cdef Py_ssize_t sparse_loop(Py_ssize_t n, double* data, const int32_t* slots, const int64_t* indptr, int tail,
                            double* squares, double* counts, double* totals, Py_ssize_t known, bint joins,
                            Steady* steady) noexcept nogil
cdef Py_ssize_t dense_loop(Py_ssize_t n, Py_ssize_t d, Py_ssize_t ld, double* out, double* means, double* spreads,
                           double* totals, bint joins, Steady* steady) noexcept nogil
