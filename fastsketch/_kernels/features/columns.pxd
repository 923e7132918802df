# Slots of columns, for loops over rows.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

ctypedef fused Index:
    int32_t
    int64_t


cdef class ColumnMap:
    cdef int32_t* narrow         # slot + 1 of the first `n_narrow` columns: 0 for none
    cdef uint32_t n_narrow
    # The upper half of an entry is a column, the lower half its slot + 1: 0 is an empty place.
    cdef uint64_t* table
    cdef int bits
    cdef int32_t* columns        # by slot
    cdef Py_ssize_t room         # of columns
    cdef Py_ssize_t n

    cdef uint64_t* place_of(self, int32_t column) noexcept nogil
    cdef bint make_table(self, int bits) noexcept nogil
    cdef bint make_narrow(self, uint32_t column) noexcept nogil
    cdef int32_t new_narrow(self, uint32_t column) noexcept nogil
    cdef int32_t slot_of(self, int32_t column) noexcept nogil
    cdef bint add_some(self, const Index* indices, Py_ssize_t n, int32_t* slots) noexcept nogil
    cdef void find_some(self, const Index* indices, Py_ssize_t n, int32_t known, int32_t* slots) noexcept nogil
    cpdef forget(self, Py_ssize_t n)
