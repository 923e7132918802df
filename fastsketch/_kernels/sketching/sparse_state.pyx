"""The state of a sketch whose new rows are sparse (sparse_state.pxd declares it)."""

cimport cython

from fastsketch._kernels.pool cimport FS_PARTS
from fastsketch._kernels.sketching.state cimport GRAM, SketchState

import numpy as np

from fastsketch._kernels.sketching.dense import work_sizes

# Initial capacity, in slots, if there are as many columns; unused memory is not touched.
FIRST_SLOTS = 1 << 16


@cython.auto_pickle(False)
cdef class SparseState(SketchState):
    """State of a sketch whose new rows are sparse."""

    def __init__(self, setting, Py_ssize_t capacity, Py_ssize_t n_features, dtype, Py_ssize_t block, Py_ssize_t wide):
        cdef Py_ssize_t sketch_size = setting.sketch_size, most = sketch_size + block if block else capacity
        # one row more than the buffer holds: the correction row of centring
        reals, integers, doubles = work_sizes(most + 1, n_features, sketch_size - 1, GRAM, dtype)
        super().__init__(setting, capacity, 0)
        self.n_features = n_features
        self.ldz = sketch_size + 1
        self.z = np.zeros((0, self.ldz), dtype)
        self.make_slots(min(n_features, FIRST_SLOTS))
        self.indptr = np.zeros(capacity + 2, np.int64)
        self.indices = np.zeros(0, np.int32)
        self.data = np.zeros(0, dtype)
        self.work = np.empty(reals, dtype)
        self.small = np.empty(doubles)
        self.vectors = np.zeros(4 * (capacity + 2))
        self.squares = np.empty(FS_PARTS * sketch_size)
        self.iwork = np.empty(integers, np.intc)
        self.block, self.wide = block, wide
        self.combined = np.empty(capacity * sketch_size if block else 0)
        self.gram = np.empty(most * most if block else 0)
        self.turn = np.empty(2 * sketch_size * most if block else 0)
        self.room = np.empty(TOGETHER * (capacity + 2 * sketch_size) + sketch_size + 1 if block else 0)
        self.last = np.empty(capacity * sketch_size if block else 0, dtype)
        self.last_values = <void*> <size_t> self.last.ctypes.data
        self.make_room(1)

    @property
    def n_stored(self):
        """Return the number of nonzeros that are stored for the rows added since the last shrink."""
        return self.indptr[self.fill - self.kept]

    @property
    def enough(self):
        """Return the number of stored nonzeros from which on the buffer is shrunk before it is full."""
        return enough_values(self)

    def make_slots(self, Py_ssize_t n):
        """Ensure that the arrays have space for n stored columns (slots). If not, they are replaced by longer copies.
        """
        cdef Py_ssize_t room = self.z.shape[0], of_mean = 0, seen = self.seen
        if n <= room:
            return
        room = max(n, min(2 * room, self.n_features))
        of_mean = room if self.center else 0
        z, mean, mean_low = np.zeros((room, self.ldz), self.z.dtype), np.zeros(of_mean), np.zeros(of_mean)
        z[:seen] = self.z[:seen]
        if self.center:
            mean[:seen], mean_low[:seen] = self.mean[:seen], self.mean_low[:seen]
        base, shift, slot = np.zeros(of_mean), np.zeros(of_mean), np.zeros(of_mean, np.int32)
        chosen, stop = np.empty(of_mean, np.int32), np.empty(room, np.int32)
        self.z, self.mean, self.mean_low, self.base, self.shift = z, mean, mean_low, base, shift
        self.slot, self.chosen, self.stop = slot, chosen, stop

    def make_room(self, Py_ssize_t nnz):
        """Ensure that the arrays have space for nnz nonzeros of new rows. If not, they are replaced by longer copies.
        """
        cdef Py_ssize_t used = self.indptr[self.fill - self.kept]
        if nnz <= self.indices.shape[0]:
            return
        if nnz > 2**31 - 1:
            raise ValueError("one block of sparse rows has 2**31 or more nonzeros: use a smaller buffer_size")
        nnz += nnz // 4  # blocks differ: grow rarely
        data, indices = np.zeros(nnz, self.data.dtype), np.zeros(nnz, np.int32)
        data[:used] = self.data[:used]
        indices[:used] = self.indices[:used]
        self.data, self.indices = data, indices
        self.values = <void*> <size_t> data.ctypes.data
        self.row = np.empty(nnz, np.int32)
        self.place = np.empty(nnz, np.int32)
        self.turned = np.empty(nnz, self.data.dtype)
        self.turned_values = <void*> <size_t> self.turned.ctypes.data
