"""Hadamard transforms, the sketch that maps its rows by one, and hash codes."""

import numpy as np
from scipy.sparse.linalg import eigsh

import fastsketch as fs
from benchmarks.rows import frosh_rows
from fastsketch import papers


class Transform:
    """Walsh-Hadamard transforms along the first axis of a matrix, in place."""

    params = ([(4096, 1024), (1024, 65_536)], ["float32", "float64"])
    param_names = ("n, d", "dtype")

    def setup(self, shape, dtype):
        self.rows = np.random.default_rng(0).standard_normal(shape).astype(dtype)
        self.again = self.rows.copy()

    def time_fwht(self, shape, dtype):
        fs.sketching.fwht(self.again)

    def track_error_of_two_transforms(self, shape, dtype):
        twice = fs.sketching.fwht(fs.sketching.fwht(self.rows.copy())) / len(self.rows)
        return float(np.abs(twice - self.rows).max())


class FasterUpdate:
    """Rows of FROSH section 5.1 through Faster Frequent Directions."""

    params = ([1024, 4096], [32, 128], ["float32", "float64"])
    param_names = ("d", "l", "dtype")

    def setup(self, d, size, dtype):
        self.rows = frosh_rows(16_384, d, np.random.default_rng(0), dtype)
        self.sketch = papers.faster_frequent_directions(size, solver="gram").update(self.rows)

    def time_update(self, d, size, dtype):
        self.sketch.update(self.rows)

    def track_spectral_error(self, d, size, dtype):
        sketch = papers.faster_frequent_directions(size, solver="gram").update(self.rows).sketch()
        exact, found = self.rows.T @ self.rows, sketch.T @ sketch
        left, whole = (eigsh(each, k=1, return_eigenvectors=False) for each in (exact - found, exact))
        return float(np.abs(left / whole)[0])


class Hashing:
    """Hash codes of rows of FROSH section 5.1: learned, and made."""

    params = ([128, 784], [16, 64], ["srht", "fd"])
    param_names = ("d", "n_bits", "method")

    def setup(self, d, n_bits, method):
        self.rows = frosh_rows(20_000, d, np.random.default_rng(0))
        self.model = fs.SketchHash(n_bits, method=method).update(self.rows)

    def time_update(self, d, n_bits, method):
        fs.SketchHash(n_bits, method=method).update(self.rows)

    def time_encode(self, d, n_bits, method):
        self.model.encode(self.rows)

    def track_share_of_bits_that_neighbours_share(self, d, n_bits, method):
        some = self.rows[:1000]
        noise = np.random.default_rng(1).standard_normal(some.shape) / 100
        differing = self.model.encode(some) ^ self.model.encode(some + noise)
        return 1 - float(np.unpackbits(differing, axis=1).sum()) / (len(some) * n_bits)
