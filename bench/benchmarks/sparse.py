"""Sparse rows."""

import numpy as np

import fastsketch as fs
from benchmarks.rows import random_csr


class SparseUpdate:
    """CSR rows with the columns of text."""

    params = ([(47_000, 0.001), (5_000, 0.01)], [20, 100], ["float32", "float64"])
    param_names = ("d, density", "l", "dtype")

    def setup(self, shape, size, dtype):
        self.rows = random_csr(14 * size, *shape, np.random.default_rng(0), dtype)
        self.sketch = fs.FrequentDirections(size, solver="gram").update(self.rows)

    def time_update(self, shape, size, dtype):
        self.sketch.update(self.rows)

    def track_relative_bound(self, shape, size, dtype):
        sketch = fs.FrequentDirections(size, solver="gram").update(self.rows)
        return sketch.error_bound / sketch.squared_norm
