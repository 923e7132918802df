"""What becomes of rows before they are learned from: a column that is always 1, and features divided by their size.

Sizes are running moments that each row joins before it is scaled, so that batches do not matter. The intercept, where
there is one, is the last entry of every row and has no moments.

    sparse  x / r^sqrt(q), r the root mean square of the column's nonzeros, q their share of the rows so far: a number
            that every row has is scaled in full, a rare word hardly; then the row is divided by L^(1 - s) M^s, L its
            length, M the geometric mean of such lengths so far, s the mean of q over the row, weighed by squares: by
            its own length if it is a text, of words that few others have; by that of all if it is the row of a table,
            whose answers then stay linear in its numbers
            squares, counts (slots,)
    dense   (x - mean) / standard deviation, then divided by the root mean square length of rows so prepared
            means, spreads (d,): spreads the sums of squared distances from the mean
    totals  the entries below
"""

from libc.math cimport exp, log, pow, sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from fastsketch._kernels.brief cimport is_brief
from fastsketch._kernels.losses cimport finite

import numpy as np

# rows; the sum of their squared lengths once scaled (of sparse rows of the logarithms of these); rows that have one; entries
ROWS, LENGTHS, LONG, TOTALS = range(4)


# -- a column that is always 1 -----------------------------------------------------------------------------------------
def append_column(const double[::1] data, const int32_t[::1] indices, const int64_t[::1] indptr, int32_t column,
                  double value):
    """Return (data, indices, indptr) of the rows with one more entry at the end of each."""
    cdef Py_ssize_t n = indptr.shape[0] - 1, i, nonzeros, start
    cdef Py_ssize_t total = indptr[n] - indptr[0] + n
    out_data, out_indices, out_indptr = np.empty(total), np.empty(total, np.int32), np.empty(n + 1, np.int64)
    cdef double[::1] to = out_data
    cdef int32_t[::1] places = out_indices
    cdef int64_t[::1] starts = out_indptr
    cdef Py_ssize_t at = 0
    starts[0] = 0
    for i in range(n):
        start, nonzeros = indptr[i], indptr[i + 1] - indptr[i]
        if nonzeros:
            memcpy(&to[at], &data[start], nonzeros * sizeof(double))
            memcpy(&places[at], &indices[start], nonzeros * sizeof(int32_t))
        at += nonzeros
        to[at], places[at] = value, column
        at += 1
        starts[i + 1] = at
    return out_data, out_indices, out_indptr


# -- sparse rows -------------------------------------------------------------------------------------------------------
cdef inline double size_of(double square, double count, double rows) noexcept nogil:
    # r^sqrt(q)
    if count == 0 or square == count or square == 0:
        return 1.0
    return pow(sqrt(square / count), sqrt(count / rows))


cdef Py_ssize_t sparse_loop(Py_ssize_t n, double* data, const int32_t* slots, const int64_t* indptr, int tail,
                            double* squares, double* counts, double* totals, Py_ssize_t known,
                            bint joins) noexcept nogil:
    cdef Py_ssize_t i, p, end
    cdef int32_t j
    cdef double x, length, common, share, rows = totals[ROWS_]
    for i in range(n):
        end = indptr[i + 1] - tail
        length = common = 0
        if joins:
            rows += 1
            for p in range(indptr[i], end):
                if data[p] != 0:
                    squares[slots[p]] += data[p] * data[p]
                    counts[slots[p]] += 1
        for p in range(indptr[i], end):
            x, j = data[p], slots[p]
            if x != 0 and j < known:
                if joins and not finite(squares[j]):
                    return i
                x /= size_of(squares[j], counts[j], rows)
                data[p] = x
                common += x * x * (counts[j] / rows)
            length += x * x
        if not finite(length):
            return i
        if length > 0:
            share = common / length
            if joins and totals[LONG_] >= 0:  # else of a file of before there was a mean: it goes on without
                totals[LENGTHS_] += log(length)
                totals[LONG_] += 1
            if share > 0 and totals[LONG_] > 0:
                length = exp(0.5 * ((1 - share) * log(length) + share * totals[LENGTHS_] / totals[LONG_]))
            else:
                length = sqrt(length)
            for p in range(indptr[i], end):
                data[p] /= length
    if joins:
        totals[ROWS_] = rows
    return n


def scale_sparse(double[::1] data, const int32_t[::1] slots, const int64_t[::1] indptr, int tail, double[::1] squares,
                 double[::1] counts, double[::1] totals, bint joins):
    """Scale rows in place, but for the last `tail` entries of each; joins: they count for the moments.

    Slots beyond the moments have none. Returns how many rows are done: fewer than all if one leaves the range of
    numbers.
    """
    cdef Py_ssize_t n = indptr.shape[0] - 1, done, known = squares.shape[0]
    cdef const int32_t* places = &slots[0] if slots.shape[0] else NULL
    cdef double* values = &data[0] if data.shape[0] else NULL
    cdef double* sums = &squares[0] if known else NULL
    cdef double* times = &counts[0] if known else NULL
    if is_brief(data.shape[0], 4):
        return sparse_loop(n, values, places, &indptr[0], tail, sums, times, &totals[0], known, joins)
    with nogil:
        done = sparse_loop(n, values, places, &indptr[0], tail, sums, times, &totals[0], known, joins)
    return done


def sizes(const double[::1] squares, const double[::1] counts, double rows):
    """Return the divisor of the values of each slot, (slots,)."""
    cdef Py_ssize_t i
    cdef double[::1] out = np.empty(squares.shape[0])
    for i in range(out.shape[0]):
        out[i] = size_of(squares[i], counts[i], rows)
    return np.asarray(out)


# -- dense rows --------------------------------------------------------------------------------------------------------
cdef Py_ssize_t dense_loop(Py_ssize_t n, Py_ssize_t d, Py_ssize_t ld, double* out, double* means, double* spreads,
                           double* totals, bint joins) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef double x, away, length, rows = totals[ROWS_]
    cdef double* row
    for i in range(n):
        row = out + i * ld
        length = 0
        if joins:
            rows += 1
        for j in range(d):
            x = row[j]
            if joins:
                away = x - means[j]
                means[j] += away / rows
                spreads[j] += away * (x - means[j])
                if not finite(spreads[j]):
                    return i
            x = (x - means[j]) / sqrt(spreads[j] / rows) if spreads[j] > 0 else 0.0
            row[j] = x
            length += x * x
        if not finite(length):
            return i
        if joins and length > 0:
            totals[LENGTHS_] += length
            totals[LONG_] += 1
        if totals[LONG_] > 0:
            length = sqrt(totals[LENGTHS_] / totals[LONG_])
            for j in range(d):
                row[j] /= length
    if joins:
        totals[ROWS_] = rows
    return n


def scale_dense(double[:, ::1] out, Py_ssize_t d, double[::1] means, double[::1] spreads, double[::1] totals,
                bint joins):
    """Scale dense rows as scale_sparse does sparse ones, in the first d columns."""
    cdef Py_ssize_t n = out.shape[0], done
    if n == 0:
        return 0
    if is_brief(n, 4 * d):
        return dense_loop(n, d, out.shape[1], &out[0, 0], &means[0], &spreads[0], &totals[0], joins)
    with nogil:
        done = dense_loop(n, d, out.shape[1], &out[0, 0], &means[0], &spreads[0], &totals[0], joins)
    return done
