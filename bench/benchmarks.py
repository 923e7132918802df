"""asv-style classes: ``python bench/run.py classes`` runs them here; asv finds them by their names.

A class has `params` and `param_names`, a `setup` that is not timed, and methods whose prefix says what they yield:
time_ (seconds), peakmem_ (bytes), track_ (a number of quality). For every time there is a track beside it.
"""

import numpy as np

import fastsketch as fs
from bench_sparse import random_csr
from bench_tools import frosh_rows


class DenseUpdate:
    """Rows of FROSH section 5.1 through a dense sketch."""

    params = ([1024, 4096], [32, 128], ["float32", "float64"], ["gram", "svd", "exact"])
    param_names = ("d", "l", "dtype", "solver")

    def setup(self, d, size, dtype, solver):
        if solver == "exact" and d > 2048:
            raise NotImplementedError("d x d is the wrong tool here")
        self.rows = frosh_rows(8 * size, d, np.random.default_rng(0), dtype)
        self.sketch = fs.FrequentDirections(size, solver=solver).update(self.rows[: 2 * size])

    def time_update(self, d, size, dtype, solver):
        self.sketch.update(self.rows)

    def peakmem_new_sketch(self, d, size, dtype, solver):
        fs.FrequentDirections(size, solver=solver).update(self.rows)

    def track_relative_bound(self, d, size, dtype, solver):
        sketch = fs.FrequentDirections(size, solver=solver).update(self.rows)
        return sketch.error_bound / sketch.squared_norm


class OneRow:
    """Single rows: what a call costs."""

    params = ([100, 1000],)
    param_names = ("d",)

    def setup(self, d):
        self.rows = np.random.default_rng(0).standard_normal((500, d))
        self.sketch = fs.FrequentDirections(20, solver="gram").update(self.rows)

    def time_five_hundred_rows(self, d):
        for row in self.rows:
            self.sketch.update(row)

    def track_same_bits_as_one_batch(self, d):
        one = fs.FrequentDirections(20, solver="gram").update(self.rows)
        many = fs.FrequentDirections(20, solver="gram")
        for row in self.rows:
            many.update(row)
        return float(one.to_bytes() == many.to_bytes())


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


class ReadAndMerge:
    """What is done with a sketch when the stream is over."""

    params = ([1024, 8192], [32, 128])
    param_names = ("d", "l")

    def setup(self, d, size):
        rows = frosh_rows(5 * size, d, np.random.default_rng(0))
        self.one = fs.RobustFrequentDirections(size, solver="gram").update(rows)
        self.other = fs.RobustFrequentDirections(size, solver="gram").update(rows[::-1])
        self.vector = np.ones(d)

    def time_read(self, d, size):
        self.one._reading = None
        self.one.sketch()

    def time_merge(self, d, size):
        self.one.copy().merge(self.other)

    def time_solve(self, d, size):
        self.one.solve(self.vector)

    def time_save(self, d, size):
        self.one.to_bytes()

    def track_residual_of_solve(self, d, size):
        x = self.one.solve(self.vector)
        return float(np.linalg.norm(self.one.operator() @ x - self.vector) / np.linalg.norm(self.vector))
