# Loops over CSR rows N (int64 indptr, int32 indices, no duplicates within a row), for float and double.
#
# The kept rows K of a sparse sketch are stored feature by feature, z = K' (d x ldz), so that one nonzero of N touches
# one contiguous run of z. The loops over z are in csrc/fs_sparse.h; those over the nonzeros alone, which gain nothing
# from wider registers, are here.

from libc.float cimport DBL_MAX
from libc.math cimport fabs
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from fastsketch._kernels.linalg.blas cimport real

cdef extern from "fs_sparse.h" nogil:
    void csr_times_z "fs_csr_times_z"(ptrdiff_t n, ptrdiff_t k, ptrdiff_t ldz, const int64_t* indptr,
                                      const int32_t* indices, const void* data, const void* z, void* out)
    void csr_settle "fs_csr_settle"(ptrdiff_t first, ptrdiff_t beyond, ptrdiff_t r, ptrdiff_t width, ptrdiff_t ldz,
                                    const int32_t* stop, const int32_t* row, const void* value, const void* w,
                                    const double* shift, const double* along, double least, void* turned, void* sum,
                                    void* z, double* square)
    enum:
        FS_PANEL_COLUMNS
    void csr_gram_panel "fs_csr_gram_panel"(ptrdiff_t n, ptrdiff_t d, ptrdiff_t width, const int64_t* indptr,
                                            const int32_t* indices, const void* data, const double* weight,
                                            const double* shift, const double* q, int64_t* at, double* z, double* sum,
                                            double* out)
    void z_dot "fs_z_dot"(ptrdiff_t d, ptrdiff_t k, ptrdiff_t ldz, const void* z, const double* v, double* out)
    void z_rank_one "fs_z_rank_one"(ptrdiff_t d, ptrdiff_t r, ptrdiff_t ldz, const double* v, const double* w, void* z)


cdef inline Py_ssize_t scan_csr(Py_ssize_t n, const int64_t* indptr, const real* data, double* largest) noexcept nogil:
    """Return the first row with a NaN or an infinity, or -1; `largest` gets max |value| over the rows before it."""
    cdef double top = 0.0, of_row, value
    cdef Py_ssize_t i
    cdef int64_t e
    for i in range(n):
        of_row = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            value = fabs(<double> data[e])
            if not value <= DBL_MAX:
                largest[0] = top
                return i
            of_row = max(of_row, value)
        top = max(top, of_row)
    largest[0] = top
    return -1


cdef inline double load_csr(Py_ssize_t nnz, const real* data, double factor, real* out) noexcept nogil:
    """Set out = factor * data for the nnz entries of one row; return the squared norm of out."""
    cdef real f = <real> factor
    cdef double square = 0.0
    cdef Py_ssize_t e
    for e in range(nnz):
        out[e] = data[e] * f
        square += <double> out[e] * <double> out[e]
    return square


# -- pivots ------------------------------------------------------------------------------------------------------------
# Before a block of rows, which are not weighted yet, is centred by linearity: a feature that most of the block's weight
# has is moved by a pivot, its value in the heaviest row that has it. What remains of it is about as large as its
# spread; and the square of a feature that at least half of the weight lacks is at most twice its spread. Without
# pivots the difference of two sums would lose as many digits as the mean is larger than the spread.

cdef inline Py_ssize_t common_features(Py_ssize_t n, Py_ssize_t d, const int64_t* indptr, const int32_t* indices,
                                       const double* root_weight, double total, double* present, int32_t* chosen,
                                       int32_t* slot) noexcept nogil:
    """Return how many features more than half of the weight `total` has, and list them in `chosen`.

    slot[j] (all 0 on entry) becomes 1 + the index of j in the list; `present` (d,) is scratch.
    """
    cdef Py_ssize_t n_chosen = 0, i, j
    cdef int64_t e
    cdef double weight
    memset(present, 0, d * sizeof(double))
    for i in range(n):
        weight = root_weight[i] * root_weight[i]
        for e in range(indptr[i], indptr[i + 1]):
            present[indices[e]] += weight
    for j in range(d):
        if present[j] > total / 2:
            chosen[n_chosen] = <int32_t> j
            n_chosen += 1
            slot[j] = <int32_t> n_chosen
    return n_chosen


cdef inline int64_t find_pivots(Py_ssize_t n, Py_ssize_t n_chosen, const int64_t* indptr, const int32_t* indices,
                                const real* data, const double* root_weight, const int32_t* chosen,
                                const int32_t* slot, double* heaviest, double* pivot) noexcept nogil:
    """Set pivot[j] of the chosen features, and return how many entries they have; `heaviest` (d,) is scratch."""
    cdef int64_t entries = 0, e
    cdef Py_ssize_t i, c
    cdef int32_t j
    for c in range(n_chosen):
        heaviest[chosen[c]] = -1.0
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if slot[j]:
                entries += 1
                if root_weight[i] > heaviest[j]:
                    heaviest[j] = root_weight[i]
                    pivot[j] = <double> data[e]
    return entries


cdef inline void fill_csr(Py_ssize_t n, Py_ssize_t n_chosen, int64_t n_fill, int64_t* indptr, int32_t* indices,
                          real* data, const int32_t* chosen, const int32_t* slot, int32_t* stamp) noexcept nogil:
    """Give each row a zero in the chosen features that it lacks, n_fill together; the arrays have room for them.

    stamp: n_chosen entries of scratch.
    """
    cdef int64_t to = indptr[n] + n_fill, end, e
    cdef Py_ssize_t i, c
    for c in range(n_chosen):
        stamp[c] = -1
    # from the last row to the first: what is written lies behind all that is still to be read
    for i in range(n - 1, -1, -1):
        end = to
        for e in range(indptr[i], indptr[i + 1]):
            if slot[indices[e]]:
                stamp[slot[indices[e]] - 1] = <int32_t> i
        for c in range(n_chosen):
            if stamp[c] != i:
                to -= 1
                indices[to], data[to] = chosen[c], 0
        for e in range(indptr[i + 1] - 1, indptr[i] - 1, -1):
            to -= 1
            indices[to], data[to] = indices[e], data[e]
        indptr[i + 1] = end


cdef inline void weigh_csr(Py_ssize_t n, const int64_t* indptr, const int32_t* indices, real* data,
                           const double* root_weight, const double* pivot) noexcept nogil:
    """Set data = root_weight[i] (data - pivot[j]), rounded once."""
    cdef Py_ssize_t i
    cdef int64_t e
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            data[e] = <real> (root_weight[i] * (<double> data[e] - pivot[indices[e]]))


# -- rows by features, and products ------------------------------------------------------------------------------------
cdef inline void transpose_csr(Py_ssize_t n, Py_ssize_t d, const int64_t* indptr, const int32_t* indices,
                               const real* data, int32_t* stop, int32_t* row, real* value,
                               int32_t* place) noexcept nogil:
    """Store the entries feature by feature, rows ascending in each; fewer than 2**31 entries.

    The entries of feature j end before stop[j], where those of feature j + 1 begin; entry t of them is value[t] of row
    row[t]. Entry e of the rows becomes entry place[e].
    """
    cdef int32_t begin = 0, count, t
    cdef Py_ssize_t i, j
    cdef int64_t e
    memset(stop, 0, d * sizeof(int32_t))
    for e in range(indptr[n]):
        stop[indices[e]] += 1
    for j in range(d):
        count = stop[j]
        stop[j] = begin  # the index of the feature's next entry: where it begins now, where it ends at last
        begin += count
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            t = stop[indices[e]]
            stop[indices[e]] += 1
            row[t], value[t], place[e] = <int32_t> i, data[e], t


cdef inline void gram_row_after(Py_ssize_t n, Py_ssize_t i, const int64_t* indptr, const int32_t* indices,
                                const real* data, const int32_t* stop, const int32_t* row, const real* value,
                                const int32_t* place, double* gram) noexcept nogil:
    """Set gram[k] = N[i, :] . N[k, :] for i <= k < n, in double: every pair of entries of a feature is visited once."""
    cdef int64_t e
    cdef int32_t t
    cdef double v
    memset(gram + i, 0, (n - i) * sizeof(double))
    for e in range(indptr[i], indptr[i + 1]):
        v = <double> data[e]
        for t in range(place[e], stop[indices[e]]):
            gram[row[t]] += v * <double> value[t]


cdef inline void gram_row_before(Py_ssize_t i, const int64_t* indptr, const int32_t* indices, const real* data,
                                 const int32_t* stop, const int32_t* row, const real* value, const int32_t* place,
                                 double* gram) noexcept nogil:
    """Set gram[k] = N[i, :] . N[k, :] for 0 <= k <= i, in double."""
    cdef int64_t e
    cdef int32_t j, t
    cdef double v, square = 0.0
    memset(gram, 0, i * sizeof(double))
    for e in range(indptr[i], indptr[i + 1]):
        v, j = <double> data[e], indices[e]
        square += v * v
        for t in range(stop[j - 1] if j > 0 else 0, place[e]):
            gram[row[t]] += v * <double> value[t]
    gram[i] = square


cdef inline void column_sums(Py_ssize_t first, Py_ssize_t beyond, const int32_t* stop, const int32_t* row,
                             const real* value, const double* coefficient, double* out) noexcept nogil:
    """Set out[j] = sum_i coefficient[i] N[i, j] for first <= j < beyond."""
    cdef int32_t t = stop[first - 1] if first > 0 else 0
    cdef Py_ssize_t j
    cdef double total
    for j in range(first, beyond):
        total = 0.0
        while t < stop[j]:
            total += coefficient[row[t]] * <double> value[t]
            t += 1
        out[j] = total


cdef inline void csr_dot(Py_ssize_t n, const int64_t* indptr, const int32_t* indices, const real* data,
                         const double* v, double* out) noexcept nogil:
    """Set out[i] = N[i, :] . v."""
    cdef Py_ssize_t i
    cdef int64_t e
    cdef double total
    for i in range(n):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += v[indices[e]] * <double> data[e]
        out[i] = total
