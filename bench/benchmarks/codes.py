"""Codes that stand for rows: made, and turned back."""

import numpy as np

import fastsketch as fs
from benchmarks.rows import frosh_rows


class Quantizing:
    """Rows of FROSH section 5.1 by a quantizer trained on some of them."""

    params = ([128, 784], [8, 16, 32], ["float32", "float64"])
    param_names = ("d", "n_bytes", "dtype")

    def setup(self, d, n_bytes, dtype):
        self.rows = frosh_rows(50_000, d, np.random.default_rng(0), dtype)
        self.encoder = fs.SketchQuantizer(n_bytes).update(self.rows[:5000]).encoder()
        self.codes = self.encoder.encode(self.rows)

    def time_encode(self, d, n_bytes, dtype):
        self.encoder.encode(self.rows)

    def time_decode(self, d, n_bytes, dtype):
        self.encoder.decode(self.codes)

    def track_relative_error(self, d, n_bytes, dtype):
        rows = self.rows[5000:10_000]
        lost = np.square(rows - self.encoder.decode(self.codes[5000:10_000])).sum()
        return float(lost / np.square(rows - rows.mean(axis=0)).sum())
