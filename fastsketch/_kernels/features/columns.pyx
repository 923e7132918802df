"""Number columns 0, 1, 2, ... in order of first appearance; these numbers are called slots.

Columns below NARROW are looked up in an array, others in a hash map with open addressing. The slot of a column depends
only on the columns that appeared before it, not on the sizes of the tables or on the batches. The last slots can be
removed again.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

from fastsketch._kernels.brief cimport is_brief

import numpy as np

# A key that no column of a matrix has: they end before it.
INTERCEPT = 2**31 - 1

cdef enum:
    FEWEST_BITS = 6              # log2 of the smallest size of a table
    # Columns in the array. A lookup takes 0.7 ns for a nonzero of the data set a9a, in the hash map 1.4 ns.
    NARROW = 1 << 16


@cython.final
@cython.auto_pickle(False)
cdef class ColumnMap:
    """Map from column numbers, integers in [0, 2**31), to slots, numbers in the order of first occurrence.

    columns (n,) int64, distinct, get the first slots; ValueError if one occurs twice.
    """

    def __init__(self, const int64_t[::1] columns=None):
        cdef int32_t slot
        cdef Py_ssize_t i
        if self.table == NULL and not self.make_table(FEWEST_BITS):
            raise MemoryError
        self.forget(0)
        if columns is None:
            return
        for i in range(columns.shape[0]):
            slot = self.slot_of(<int32_t> columns[i])
            if slot < 0:
                raise MemoryError
            if slot != i:
                raise ValueError(f"column {columns[i]} has two slots, {slot} and {i}")

    def __dealloc__(self):
        free(self.narrow)
        free(self.table)
        free(self.columns)

    def __len__(self):
        return self.n

    cdef inline uint64_t* place_of(self, int32_t column) noexcept nogil:
        """Return the table entry of a column, or the empty entry where it is to be inserted."""
        cdef uint32_t key = <uint32_t> column
        cdef uint64_t mask = (<uint64_t> 1 << self.bits) - 1
        cdef uint64_t at = <uint32_t> ((key ^ (key >> 15)) * <uint32_t> 2654435769) >> (32 - self.bits)
        while self.table[at] != 0 and <uint32_t> (self.table[at] >> 32) != key:
            at = (at + 1) & mask
        return self.table + at

    cdef bint make_table(self, int bits) noexcept nogil:
        """Replace the hash map by one of 2**bits entries; return False if there is no memory."""
        cdef uint64_t* table = <uint64_t*> calloc(<size_t> 1 << bits, sizeof(uint64_t))
        cdef int32_t* columns = <int32_t*> realloc(self.columns, (<size_t> 1 << (bits - 1)) * sizeof(int32_t))
        cdef Py_ssize_t i
        if columns != NULL:
            self.columns = columns
        if table == NULL or columns == NULL:
            free(table)
            return False
        free(self.table)
        self.table, self.bits, self.room = table, bits, <Py_ssize_t> 1 << (bits - 1)
        for i in range(self.n):
            if <uint32_t> columns[i] >= NARROW:
                self.place_of(columns[i])[0] = (<uint64_t> <uint32_t> columns[i] << 32) | <uint64_t> (i + 1)
        return True

    cdef bint make_narrow(self, uint32_t column) noexcept nogil:
        """Enlarge the array to contain a column; return False if there is no memory."""
        cdef uint32_t size = max(<uint32_t> 1 << FEWEST_BITS, self.n_narrow)
        cdef int32_t* narrow
        while size <= column:
            size *= 2
        narrow = <int32_t*> calloc(size, sizeof(int32_t))
        if narrow == NULL:
            return False
        if self.n_narrow:
            memcpy(narrow, self.narrow, self.n_narrow * sizeof(int32_t))
        free(self.narrow)
        self.narrow, self.n_narrow = narrow, size
        return True

    cdef int32_t new_narrow(self, uint32_t column) noexcept nogil:
        """Insert a column into the array with the next slot and return it; -1 if there is no memory."""
        if column >= self.n_narrow and not self.make_narrow(column):
            return -1
        if self.n == self.room and (self.bits == 31 or not self.make_table(self.bits + 1)):
            return -1
        self.columns[self.n] = column
        self.n += 1
        self.narrow[column] = <int32_t> self.n
        return <int32_t> self.n - 1

    cdef inline int32_t slot_of(self, int32_t column) noexcept nogil:
        """Return the slot of a column, which is inserted if it is new; -1 if there is no memory."""
        cdef uint64_t* place
        if <uint32_t> column < self.n_narrow and self.narrow[column]:
            return self.narrow[column] - 1
        if <uint32_t> column < NARROW:
            return self.new_narrow(column)
        place = self.place_of(column)
        if place[0] == 0:
            if self.n == self.room:
                if self.bits == 31 or not self.make_table(self.bits + 1):
                    return -1
                place = self.place_of(column)
            self.columns[self.n] = column
            self.n += 1
            place[0] = (<uint64_t> <uint32_t> column << 32) | <uint64_t> self.n
        return <int32_t> <uint32_t> place[0] - 1

    cdef bint add_some(self, const Index* indices, Py_ssize_t n, int32_t* slots) noexcept nogil:
        cdef Py_ssize_t i
        cdef int32_t slot
        # Local copies stay in registers; the compiler has to assume that writes to slots change the members.
        cdef const int32_t* narrow = self.narrow
        cdef uint32_t n_narrow = self.n_narrow
        for i in range(n):
            slot = narrow[indices[i]] - 1 if <uint32_t> indices[i] < n_narrow else -1
            if slot < 0:
                slot = self.slot_of(<int32_t> indices[i])
                if slot < 0:
                    return False
                narrow, n_narrow = self.narrow, self.n_narrow
            slots[i] = slot
        return True

    cdef void find_some(self, const Index* indices, Py_ssize_t n, int32_t known, int32_t* slots) noexcept nogil:
        cdef Py_ssize_t i
        cdef uint32_t entry
        for i in range(n):
            if <uint32_t> indices[i] < NARROW:
                entry = self.narrow[indices[i]] if <uint32_t> indices[i] < self.n_narrow else 0
            else:
                entry = <uint32_t> self.place_of(<int32_t> indices[i])[0]
            slots[i] = <int32_t> entry - 1 if 0 < entry <= <uint32_t> known else known

    def add(self, const Index[::1] indices):
        """Return the slots (n,) int32 of columns (n,) int32 or int64; new columns are inserted."""
        cdef Py_ssize_t n = indices.shape[0]
        out = np.empty(n, np.int32)
        cdef int32_t[::1] slots = out
        cdef bint enough
        if n == 0:
            return out
        if is_brief(n, 16):
            enough = self.add_some(&indices[0], n, &slots[0])
        else:
            with nogil:
                enough = self.add_some(&indices[0], n, &slots[0])
        if not enough:
            raise MemoryError(f"no memory for the slots of more than {self.n} columns")
        return out

    def find(self, const Index[::1] indices, Py_ssize_t known):
        """Return the slots (n,) int32 of columns (n,); `known` for a column without a slot below `known`."""
        cdef Py_ssize_t n = indices.shape[0]
        out = np.empty(n, np.int32)
        cdef int32_t[::1] slots = out
        if n == 0:
            return out
        with nogil:
            self.find_some(&indices[0], n, <int32_t> known, &slots[0])
        return out

    cpdef forget(self, Py_ssize_t n):
        """Remove the slots from n on, as if their columns had never appeared."""
        # from the last one: entries that an entry had to avoid were inserted before it
        while self.n > n:
            self.n -= 1
            if <uint32_t> self.columns[self.n] < NARROW:
                self.narrow[self.columns[self.n]] = 0
            else:
                self.place_of(self.columns[self.n])[0] = 0

    def array(self):
        """Return the columns in the order of their slots, (n,) int64."""
        out = np.empty(self.n, np.int64)
        cdef int64_t[::1] columns = out
        cdef Py_ssize_t i
        for i in range(self.n):
            columns[i] = self.columns[i]
        return out


def row_scores(const double[::1] data, const int32_t[::1] slots, const int64_t[::1] indptr, const double[::1] coef):
    """Return x'w (n,) for CSR rows x whose indices are slots; slots from len(coef) on contribute 0."""
    cdef Py_ssize_t n = indptr.shape[0] - 1, known = coef.shape[0], i
    cdef int64_t j
    cdef double total
    out = np.empty(n)
    cdef double[::1] scores = out
    with nogil:
        for i in range(n):
            total = 0
            for j in range(indptr[i], indptr[i + 1]):
                if slots[j] < known:
                    total += data[j] * coef[slots[j]]
            scores[i] = total
    return out
