"""The numbers of online models, for Python (numbers.pxd), and what holds the arrays of a state for its rounds."""

cimport cython
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer


@cython.auto_pickle(False)
cdef class StateArrays:
    """Hold the arrays of a state where they are, and scratch: what the pointers of its rounds point to."""

    def __dealloc__(self):
        cdef int i
        for i in range(self.n_views):
            PyBuffer_Release(&self.views[i])

    cdef void* pointer_to(self, array, bytes kind) except? NULL:
        """Return the address of the first element of an array, NULL for None."""
        cdef Py_buffer* view = &self.views[self.n_views]
        if array is None:
            return NULL
        PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | PyBUF_WRITABLE)
        self.n_views += 1
        if view.itemsize != (4 if kind == b"i" else 8) or (kind == b"d") != (view.format[0] == c"d"):
            raise TypeError(f"an array of the state has the format {view.format.decode()}")
        return view.buf

    # -- a few rows, by the state that they belong to (few_rows.pyx); what others than states hold has none of these -------
    cdef bint is_ready(self, const FewRowsOf* rows) noexcept nogil:
        """Return whether there is room for the rows, and all is settled that the first rows decide."""
        return False

    cdef bint takes_in_whole(self) noexcept nogil:
        """Return whether a single row, the last to be learned from, changes nothing if it is refused."""
        return False

    cdef void keep_before(self, Undo* undo, const FewRowsOf* rows) noexcept nogil:
        """Keep what the rows may change."""

    cdef bint learn_few(self, const FewRowsOf* rows, const double* targets, const double* weights,
                        double* scores) noexcept nogil:
        """Learn from the rows, and return whether all of them have been."""
        return False
