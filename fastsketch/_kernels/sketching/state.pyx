"""The state of a sketch, shared by Python and the kernels (declared in state.pxd)."""

cimport cython

import numpy as np

# Exponent of the largest entry if all entries so far are zero: below that of any float.
NOTHING_SEEN = -(2**20)


@cython.auto_pickle(False)
cdef class SketchState:
    """Scalars and small arrays of one sketch, without its buffers, which subclasses of each kernel hold.

    `setting` is the EngineSetting of the engine that owns the state (sketching/_engines/_setting.py).
    """

    # in the order of state files
    SUMS = ("shrinkage", "squared_norm", "weight", "settled_weight", "rounding")
    COUNTS = ("fill", "kept", "age", "n_rows", "exponent", "top")

    def __init__(self, setting, Py_ssize_t capacity, Py_ssize_t n_features):
        cdef Py_ssize_t sketch_size = setting.sketch_size
        self.capacity, self.n_features, self.center, self.decay = capacity, n_features, setting.center, setting.decay
        self.n_keep, self.n_spare = sketch_size - 1, setting.rows_spared
        self.top = NOTHING_SEEN
        self.lam = np.zeros(sketch_size + 1)
        self.gain = np.ones(sketch_size + 1)
        self.mean = np.zeros(n_features if self.center else 0)
        self.mean_low = np.zeros(n_features if self.center else 0)
        self.base = np.zeros(n_features if self.center else 0)
        self.shift = np.zeros(n_features if self.center else 0)
        self.root = np.ones(capacity + 1)
