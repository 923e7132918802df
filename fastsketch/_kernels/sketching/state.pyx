"""The state of a sketch, shared by Python and the kernels (declared in state.pxd)."""

cimport cython

import numpy as np

# Exponent of the largest entry if all entries so far are zero: below that of any float.
NOTHING_SEEN = -(2**20)


@cython.auto_pickle(False)
cdef class SketchState:
    """Scalars and small arrays of one sketch; the buffers belong to the subclasses of each kernel."""

    # in the order of state files
    SUMS = ("shrinkage", "squared_norm", "weight", "settled_weight", "rounding")
    COUNTS = ("fill", "kept", "age", "n_rows", "exponent", "top")

    def __init__(self, Py_ssize_t sketch_size, Py_ssize_t capacity, Py_ssize_t n_features, *, Py_ssize_t n_spare,
                 bint center, double decay):
        self.capacity, self.n_features = capacity, n_features
        self.n_keep, self.n_spare, self.center, self.decay = sketch_size - 1, n_spare, center, decay
        self.top = NOTHING_SEEN
        self.lam = np.zeros(sketch_size + 1)
        self.gain = np.ones(sketch_size + 1)
        self.mean = np.zeros(n_features if center else 0)
        self.mean_low = np.zeros(n_features if center else 0)
        self.base = np.zeros(n_features if center else 0)
        self.shift = np.zeros(n_features if center else 0)
        self.root = np.ones(capacity + 1)
