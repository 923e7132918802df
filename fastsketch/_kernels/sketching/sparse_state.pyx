"""The state of a sketch whose new rows are sparse (sparse_state.pxd declares it)."""

cimport cython

from fastsketch._kernels.pool cimport FS_PARTS
from fastsketch._kernels.sketching.state cimport GRAM, SketchState

import numpy as np

from fastsketch._kernels.sketching.dense import work_sizes


cdef enum:
    VALUES = 16  # numbers of kept rows for each value of new ones that waits: a value takes five times as much memory


@cython.auto_pickle(False)
cdef class SparseState(SketchState):
    """State of a sketch whose new rows are sparse."""

    def __init__(self, Py_ssize_t sketch_size, Py_ssize_t capacity, Py_ssize_t n_features, *, Py_ssize_t n_spare,
                 bint center, double decay, dtype, Py_ssize_t block=0):
        cdef Py_ssize_t most = sketch_size + block if block else capacity
        # one row more than the buffer holds: the correction row of centring
        reals, integers, doubles = work_sizes(most + 1, n_features, sketch_size - 1, GRAM, dtype)
        super().__init__(sketch_size, capacity, n_features, n_spare=n_spare, center=center, decay=decay)
        self.ldz = sketch_size + 1
        self.z = np.zeros((n_features, self.ldz), dtype)
        self.indptr = np.zeros(capacity + 2, np.int64)
        self.indices = np.zeros(0, np.int32)
        self.data = np.zeros(0, dtype)
        self.slot = np.zeros(n_features if center else 0, np.int32)
        self.chosen = np.empty(n_features if center else 0, np.int32)
        self.stop = np.empty(n_features, np.int32)
        self.work = np.empty(reals, dtype)
        self.small = np.empty(doubles)
        self.vectors = np.zeros(4 * (capacity + 2))
        self.squares = np.empty(FS_PARTS * sketch_size)
        self.iwork = np.empty(integers, np.intc)
        self.block, self.enough = block, 2**31 - 1
        if block:
            self.enough = min(self.enough, n_features * sketch_size // VALUES)
        self.combined = np.empty(capacity * sketch_size if block else 0)
        self.gram = np.empty(most * most if block else 0)
        self.turn = np.empty(2 * sketch_size * most if block else 0)
        self.room = np.empty(TOGETHER * (capacity + 2 * sketch_size) + sketch_size + 1 if block else 0)
        self.last = np.empty(capacity * sketch_size if block else 0, dtype)
        self.last_values = <void*> <size_t> self.last.ctypes.data
        self.make_room(1)

    @property
    def n_stored(self):
        """Values of the new rows."""
        return self.indptr[self.fill - self.kept]

    def make_room(self, Py_ssize_t nnz):
        """Arrays for nnz values of new rows; stored ones are kept."""
        cdef Py_ssize_t used = self.indptr[self.fill - self.kept]
        if nnz <= self.indices.shape[0]:
            return
        if nnz > 2**31 - 1:
            raise OverflowError("one block of sparse rows has 2**31 or more nonzeros: use a smaller buffer_size")
        nnz += nnz // 4  # blocks differ: grow seldom
        data, indices = np.zeros(nnz, self.data.dtype), np.zeros(nnz, np.int32)
        data[:used] = self.data[:used]
        indices[:used] = self.indices[:used]
        self.data, self.indices = data, indices
        self.values = <void*> <size_t> data.ctypes.data
        self.row = np.empty(nnz, np.int32)
        self.place = np.empty(nnz, np.int32)
        self.turned = np.empty(nnz, self.data.dtype)
        self.turned_values = <void*> <size_t> self.turned.ctypes.data
