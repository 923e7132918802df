# How loops over the entries of a CSR matrix are cut into parts for the pool: by the matrix alone (csrc/fs_pool.h).

from libc.stdint cimport int32_t, int64_t, uint32_t

from fastsketch._kernels.pool cimport FS_PARTS, fs_pool_parts

# Entries of a part, of a loop that takes a nanosecond or two for each: some tens of microseconds.
cdef enum:
    ENTRIES = 1 << 14


cdef inline Py_ssize_t parts_of(double work) noexcept nogil:
    # how many, for the work of so many entries
    return fs_pool_parts(work, ENTRIES)


cdef inline Py_ssize_t parts_of_sums(Py_ssize_t entries, Py_ssize_t sums) noexcept nogil:
    # the same for parts that have so many sums of their own, which are set to 0 and added: some 3% of the work, no more
    cdef Py_ssize_t most = parts_of(entries), parts = 1
    while 2 * parts <= most and (2 * parts - 1) * sums * <Py_ssize_t> 50 <= entries:
        parts *= 2
    return parts


ctypedef fused ascending:
    int32_t
    uint32_t
    int64_t


cdef inline Py_ssize_t lower_bound(const ascending* values, Py_ssize_t low, Py_ssize_t high,
                                   int64_t value) noexcept nogil:
    # the first of values[low : high], which ascend, that is not below
    cdef Py_ssize_t middle
    while low < high:
        middle = (low + high) // 2
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


cdef inline Py_ssize_t first_row(const uint32_t* indptr, Py_ssize_t m, Py_ssize_t parts,
                                 Py_ssize_t part) noexcept nogil:
    # rows [first_row(part), first_row(part + 1)) are those of a part: of about as many entries as any other
    return m if part == parts else lower_bound(indptr, 0, m, <int64_t> (<double> indptr[m] * part / parts))
