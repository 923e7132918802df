"""Preparation of rows before they are learned: the intercept column, and scale="moments".

Each row is added to running moments before it is scaled by them, so that the result does not depend on batches. The
intercept, if there is one, is the last entry of every row and is not scaled.

    sparse  x / r^sqrt(q), r the root mean square of the column's nonzeros, q their share of the rows so far: a number
            that every row has is scaled in full, a rare word hardly; then the row is divided by L^(1 - s) M^s, L its
            length, M the geometric mean of such lengths so far, s the mean of q over the row, weighed by squares: by
            its own length if it is a text, of words that few others have; by that of all if it is the row of a table,
            whose answers then stay linear in its numbers
            squares, counts (slots,)
    dense   (x - mean) / standard deviation, then divided by the root mean square length of rows so prepared
            means, spreads (d,): spreads the sums of squared distances from the mean
    totals  the entries below

Running scales turn a column that grows with time, such as a date, into a constant: each value is as far above the mean so
far as all others were. Models of real targets therefore use fixed scales ("steady" below). A scale is updated when the
standard deviation has doubled or halved, the doubling trick for unknown ranges (Cesa-Bianchi, Mansour and Stoltz 2007);
the states are then expressed in the new scale, as in normalised online learning (Ross, Mineiro and Langford 2013).
Columns whose variance is below rounding become 0.

Squares below 1e-323 are 0. A row that is lost by this is refused, like one whose squares overflow: a sparse row of length
0 that is not 0, and a dense row if no column has varied by more, so that every row so far would be scaled to 0.

    dense   (x - centre) / divisor, divided by the root of how many columns varied
    sparse  the same of columns that every row had until they varied, each counted as 1 in the squared length of a row and
            divided by M; a row that lacks one later has its centre. The others as above
            of (4, slots): centres, divisors, means, spreads
"""

from libc.math cimport exp, log, pow, sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from fastsketch._kernels.brief cimport is_brief
from fastsketch._kernels.losses cimport finite

import numpy as np

# Entries of totals: number of rows; sum of the squared lengths of scaled rows, of their logarithms for sparse rows; number
# of rows in that sum; length of the array.
ROWS, LENGTHS, LONG, TOTALS = range(4)


# -- the intercept -----------------------------------------------------------------------------------------------------
def append_column(const double[::1] data, const int32_t[::1] indices, const int64_t[::1] indptr, int32_t column,
                  double value):
    """Return new arrays (data, indices, indptr) of CSR rows with the entry (column, value) appended to each row."""
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
    # divisor of a column's values: r^sqrt(q)
    if count == 0 or square == count or square == 0:
        return 1.0
    return pow(sqrt(square / count), sqrt(count / rows))


cdef inline bint underflows(double a, double b) noexcept nogil:
    # whether a product is 0 although its factors are not
    return a * b == 0 and a != 0 and b != 0


cdef inline bint varies(double spread, double mean, double rows) noexcept nogil:
    # whether a sum of squared distances is more than the rounding of the values
    return spread > rows * (1e-15 * mean) * (1e-15 * mean)


cdef inline bint has_moved(double spread, double rows, double divisor) noexcept nogil:
    # whether the standard deviation is more than twice the divisor, or less than half of it
    return spread > 4 * rows * divisor * divisor or 4 * spread < rows * divisor * divisor


cdef inline double join(double x, double rows, double* mean, double* spread, double* centre, double* divisor) noexcept nogil:
    """Add a value to a running mean and sum of squared distances; return that sum.

    A column gets its divisor with the first value that differs from the others. Until then all its values were scaled to
    0, so that nothing has been learned about them.
    """
    cdef double away = x - mean[0]
    if divisor[0] == 0:
        centre[0] = mean[0]
    mean[0] += away / rows
    spread[0] += away * (x - mean[0])
    if divisor[0] == 0 and varies(spread[0], mean[0], rows):
        divisor[0] = sqrt(spread[0] / rows)
    return spread[0]


cdef inline bint is_steady(const Steady* s, const double* counts, int32_t j, double rows) noexcept nogil:
    # whether a column of sparse rows is centred and divided like a dense one
    return s.divisors[j] > 0 or counts[j] == rows


cdef bint join_sparse(Py_ssize_t n, const double* data, const int32_t* slots, double rows, double* squares, double* counts,
                      Steady* s) noexcept nogil:
    """Add the values of a sparse row to the moments; return False if one overflows. Sets s.moved if a scale must change,
    and s.lost if a squared distance from a mean underflows.
    """
    cdef Py_ssize_t p
    cdef int32_t j
    cdef double away
    for p in range(n):
        j = slots[p]
        if data[p] == 0 and (rows == 1 or not is_steady(s, counts, j, rows - 1)):
            continue
        squares[j] += data[p] * data[p]
        counts[j] += 1
        if rows == 1:
            s.means[j] = s.centres[j] = data[p]
        elif is_steady(s, counts, j, rows):
            away = data[p] - s.means[j]
            if not finite(join(data[p], counts[j], s.means + j, s.spreads + j, s.centres + j, s.divisors + j)):
                return False
            s.lost |= underflows(away, data[p] - s.means[j])
            if s.divisors[j] > 0 and varies(s.spreads[j], s.means[j], counts[j]):
                s.moved |= has_moved(s.spreads[j], counts[j], s.divisors[j])
    return True


cdef Py_ssize_t sparse_loop(Py_ssize_t n, double* data, const int32_t* slots, const int64_t* indptr, int tail,
                            double* squares, double* counts, double* totals, Py_ssize_t known, bint joins,
                            Steady* steady) noexcept nogil:
    cdef Py_ssize_t i, p, end
    cdef int32_t j
    cdef double x, length, usual, common, share, rows = totals[ROWS_]
    cdef bint holds = steady.centres != NULL
    steady.moved = False
    for i in range(n):
        end = indptr[i + 1] - tail
        length = common = 0
        steady.lost = False
        if joins and holds and not (i == 0 and steady.has_joined):
            rows += 1
            totals[ROWS_] = rows
            if not join_sparse(end - indptr[i], data + indptr[i], slots + indptr[i], rows, squares, counts, steady):
                return i
            if steady.moved:
                return i
        elif joins and not holds:
            rows += 1
            for p in range(indptr[i], end):
                if data[p] != 0:
                    squares[slots[p]] += data[p] * data[p]
                    counts[slots[p]] += 1
        for p in range(indptr[i], end):
            x, j = data[p], slots[p]
            if holds and j < known and is_steady(steady, counts, j, rows):
                if joins and not finite(squares[j]):
                    return i
                x = (x - steady.centres[j]) / steady.divisors[j] if steady.divisors[j] > 0 else 0.0
                if not finite(x):
                    return i
                data[p] = x
                length += steady.divisors[j] > 0
                common += steady.divisors[j] > 0
                continue
            if x != 0 and j < known:
                if joins and not finite(squares[j]):
                    return i
                x /= size_of(squares[j], counts[j], rows)
                data[p] = x
                common += x * x * (counts[j] / rows)
            length += x * x
            steady.lost |= underflows(x, x)
        if not finite(length) or (length == 0 and steady.lost):
            return i
        if length > 0:
            share = common / length
            if joins and totals[LONG_] >= 0:  # -1: a model of an older file, which has no mean length
                totals[LENGTHS_] += log(length)
                totals[LONG_] += 1
            if share > 0 and totals[LONG_] > 0:
                length = exp(0.5 * ((1 - share) * log(length) + share * totals[LENGTHS_] / totals[LONG_]))
            else:
                length = sqrt(length)
            usual = exp(0.5 * totals[LENGTHS_] / totals[LONG_]) if holds and totals[LONG_] > 0 else length
            for p in range(indptr[i], end):
                # columns whose scale may change later are not divided by the length of their row
                j = slots[p]
                data[p] /= usual if holds and j < known and is_steady(steady, counts, j, rows) else length
    if joins:
        totals[ROWS_] = rows
    return n


cdef int take_steady(Steady* s, double[:, ::1] steady, bint has_joined) except -1:
    set_steady(s, NULL, 0, has_joined)
    if steady is not None and steady.shape[1]:
        set_steady(s, &steady[0, 0], steady.shape[1], has_joined)
    return 0


def scale_sparse(double[::1] data, const int32_t[::1] slots, const int64_t[::1] indptr, int tail, double[::1] squares,
                 double[::1] counts, double[::1] totals, bint joins, double[:, ::1] steady=None,
                 bint has_joined=False):
    """Scale CSR rows in place.

    The last `tail` entries of each row (the intercept) are left as they are. joins: add each row to the moments
    squares, counts (slots,) and totals before it is scaled. steady (4, slots): fixed scales, or None. has_joined: the
    first row has already been added. Values in slots beyond the moments are not scaled.

    Returns (rows done, moved). moved: the next row has been added to the moments, and a fixed scale must change before
    it is scaled. Without that, fewer rows than all are done if squares of the next one overflow or underflow.
    """
    cdef Py_ssize_t n = indptr.shape[0] - 1, done, known = squares.shape[0]
    cdef const int32_t* places = &slots[0] if slots.shape[0] else NULL
    cdef double* values = &data[0] if data.shape[0] else NULL
    cdef double* sums = &squares[0] if known else NULL
    cdef double* times = &counts[0] if known else NULL
    cdef Steady s
    take_steady(&s, steady, has_joined)
    if is_brief(data.shape[0], 4):
        done = sparse_loop(n, values, places, &indptr[0], tail, sums, times, &totals[0], known, joins, &s)
    else:
        with nogil:
            done = sparse_loop(n, values, places, &indptr[0], tail, sums, times, &totals[0], known, joins, &s)
    return done, s.moved


def sizes(const double[::1] squares, const double[::1] counts, double rows):
    """Return the divisors of running scales of sparse columns, (slots,)."""
    cdef Py_ssize_t i
    cdef double[::1] out = np.empty(squares.shape[0])
    for i in range(out.shape[0]):
        out[i] = size_of(squares[i], counts[i], rows)
    return np.asarray(out)


# -- dense rows --------------------------------------------------------------------------------------------------------
cdef Py_ssize_t steady_dense_loop(Py_ssize_t n, Py_ssize_t d, Py_ssize_t ld, double* out, double* means, double* spreads,
                                  double* totals, bint joins, Steady* s) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef double length, varying, away, rows = totals[ROWS_]
    cdef bint lost
    cdef double* row
    s.moved = False
    for i in range(n):
        row = out + i * ld
        if joins and not (i == 0 and s.has_joined):
            rows += 1
            totals[ROWS_] = rows
            varying = lost = 0
            for j in range(d):
                away = row[j] - means[j]
                if not finite(join(row[j], rows, means + j, spreads + j, s.centres + j, s.divisors + j)):
                    return i
                lost |= underflows(away, row[j] - means[j])
                varying += s.divisors[j] > 0
                if s.divisors[j] > 0 and varies(spreads[j], means[j], rows):
                    s.moved |= has_moved(spreads[j], rows, s.divisors[j])
            if lost and varying == 0:
                return i
            if totals[LENGTHS_] == 0:
                totals[LENGTHS_] = varying
            s.moved |= varying > 4 * totals[LENGTHS_]
            if s.moved:
                return i
        length = sqrt(totals[LENGTHS_])
        for j in range(d):
            row[j] = (row[j] - s.centres[j]) / s.divisors[j] / length if s.divisors[j] > 0 else 0.0
            if not finite(row[j]):
                return i
    return n


cdef Py_ssize_t dense_loop(Py_ssize_t n, Py_ssize_t d, Py_ssize_t ld, double* out, double* means, double* spreads,
                           double* totals, bint joins, Steady* steady) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef double x, away, length, rows = totals[ROWS_]
    cdef bint lost
    cdef double* row
    if steady.centres != NULL:
        return steady_dense_loop(n, d, ld, out, means, spreads, totals, joins, steady)
    for i in range(n):
        row = out + i * ld
        length = lost = 0
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
                lost |= underflows(away, x - means[j])
            x = (x - means[j]) / sqrt(spreads[j] / rows) if spreads[j] > 0 else 0.0
            row[j] = x
            length += x * x
        if not finite(length) or (length == 0 and lost):
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
                bint joins, double[:, ::1] steady=None, bint has_joined=False):
    """Scale the first d columns of dense rows in place, as scale_sparse does; means, spreads (d,); steady (2, d)."""
    cdef Py_ssize_t n = out.shape[0], done
    cdef Steady s
    if n == 0:
        return 0, False
    take_steady(&s, steady, has_joined)
    if is_brief(n, 4 * d):
        done = dense_loop(n, d, out.shape[1], &out[0, 0], &means[0], &spreads[0], &totals[0], joins, &s)
    else:
        with nogil:
            done = dense_loop(n, d, out.shape[1], &out[0, 0], &means[0], &spreads[0], &totals[0], joins, &s)
    return done, s.moved
