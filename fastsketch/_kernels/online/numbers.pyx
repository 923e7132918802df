"""The indices of the arrays of online models for Python (numbers.pxd), and what all kinds of states have in common."""

cimport cython
from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stddef cimport ptrdiff_t
from libc.stdlib cimport free, malloc

from fastsketch._kernels.brief cimport BRIEF
from fastsketch._kernels.online.rollback cimport release, restore
from fastsketch._kernels.pool cimport fs_blas_alone, fs_pool_from, fs_pool_parts, fs_pool_run, join

join()


@cython.auto_pickle(False)
cdef class StateArrays:
    """Base class that holds the arrays of a state, and scratch memory, so that pointers in its rounds stay valid."""

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

    cdef double* doubles(self, array) except? NULL:
        """Return the address of the first element of a float64 array, NULL for None."""
        return <double*> self.pointer_to(array, b"d")

    cdef double work(self, double n_values, double n) noexcept nogil:
        """Estimate how many multiplications it takes to learn n rows with n_values values in total."""
        return n_values

    cdef bint is_ready(self, const RowBlock* rows) noexcept nogil:
        """Return True if the arrays have capacity for the rows, and everything that the first rows decide is fixed."""
        return False

    cdef bint takes_in_whole(self) noexcept nogil:
        """Return True if a single row that is refused leaves the state unchanged, so that no copy is needed."""
        return False

    cdef void save_before(self, Rollback* before, const RowBlock* rows) noexcept nogil:
        """Copy everything that learning the rows may change, so that it can be restored."""


cdef int set_rows(RowBlock* rows, const double[::1] data, const int32_t[::1] indices, const int64_t[::1] indptr,
                  Py_ssize_t n) except -1:
    """Fill in a block from arrays, without weights; indptr is None for n dense rows."""
    rows.n, rows.data, rows.slots, rows.indptr, rows.sample_weight = n, NULL, NULL, NULL, NULL
    if indptr is not None:
        rows.indptr = &indptr[0]
    if data.shape[0]:
        rows.data = &data[0]
        if indptr is not None:
            rows.slots = &indices[0]
    return 0


# -- many states of the same rows ----------------------------------------------------------------------------------------
cdef struct Lessons:
    Lesson* each
    Py_ssize_t n, n_parts
    learn_t learn_block
    RowBlock rows


cdef void some_lessons(void* context, ptrdiff_t part, void* _scratch) noexcept nogil:
    cdef Lessons* a = <Lessons*> context
    cdef Py_ssize_t first = fs_pool_from(a.n, a.n_parts, part, 1)
    a.learn_block(a.each + first, fs_pool_from(a.n, a.n_parts, part + 1, 1) - first, &a.rows)


cdef void all_lessons(Lessons* a, bint on_threads) noexcept nogil:
    cdef Py_ssize_t part
    if on_threads:
        fs_blas_alone(1)
        fs_pool_run(a.n_parts, some_lessons, a, NULL, 0)
        fs_blas_alone(0)
        return
    for part in range(a.n_parts):
        some_lessons(a, part, NULL)


def learn(list rounds, const double[::1] data, const int32_t[::1] indices, const int64_t[::1] indptr,
          const double[:, :] targets, const double[::1] sample_weight, double[:, :] scores):
    """Train several states of one kind and setting on the same rows, on the threads of the pool if that is faster.

    rounds: what the states' begin_rounds() return, k of them. data: n d values of dense rows, with None for indices and
    indptr, or CSR rows in slots, which must fit into the states. targets, scores (k, n), row by row; scores are written.
    A refused row gets no finite score, and its state learns no further row. Returns whether a state stopped because its
    arrays have no room for a sparse row.
    """
    cdef Py_ssize_t n = targets.shape[1], k, n_models = len(rounds)
    cdef double work = 0
    cdef StateArrays one
    cdef Lessons a
    cdef bint lacks_room = False
    if n == 0:
        return False
    set_rows(&a.rows, data, indices, indptr, n)
    a.n, a.rows.sample_weight = n_models, &sample_weight[0]
    a.each = <Lesson*> malloc(n_models * sizeof(Lesson))
    if a.each == NULL:
        raise MemoryError
    try:
        for k in range(n_models):
            one = rounds[k]
            a.each[k].model, a.each[k].targets, a.each[k].scores = one.model, &targets[k, 0], &scores[k, 0]
            a.each[k].done, a.each[k].lacks_room = 0, False
            work += one.work(data.shape[0], n)
        a.learn_block, a.n_parts = one.learn_block, (n_models + one.together - 1) // one.together
        if work <= BRIEF:
            all_lessons(&a, False)
        else:
            with nogil:  # the size of the work alone decides about threads
                all_lessons(&a, a.n_parts > 1 and fs_pool_parts(work, one.part_work) > 1)
        for k in range(n_models):
            lacks_room |= a.each[k].lacks_room
        return lacks_room
    finally:
        free(a.each)


@cython.auto_pickle(False)
cdef class Snapshot:
    """Copies of everything in learner states that learning some rows may change, which `restore` writes back.

    rounds: those of the states; rows as in ``learn``, n of them; n_slots: slots in use including those of the rows, or
    columns of dense rows.
    """

    cdef Rollback before
    cdef list rounds
    cdef const int32_t[::1] indices

    def __init__(self, list rounds, const double[::1] data, const int32_t[::1] indices, const int64_t[::1] indptr,
                 Py_ssize_t n, Py_ssize_t n_slots):
        cdef RowBlock rows
        cdef StateArrays one
        self.rounds, self.indices = rounds, indices
        set_rows(&rows, data, indices, indptr, n)
        rows.n_slots = n_slots
        for one in rounds:
            one.save_before(&self.before, &rows)
        if self.before.lacks_memory:
            raise MemoryError

    def __dealloc__(self):
        release(&self.before)

    def restore(self):
        """Write all copies back to the arrays that the states had when the snapshot was made."""
        restore(&self.before)
