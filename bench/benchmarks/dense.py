"""Dense rows, in batches and one by one."""

import numpy as np

import fastsketch as fs
from benchmarks.rows import frosh_rows


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
    """Single rows: the cost of a call."""

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
