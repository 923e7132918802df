"""What is done with a sketch when the stream is over."""

import numpy as np

import fastsketch as fs
from benchmarks.rows import frosh_rows


class ReadAndMerge:
    """A sketch copied, read, merged, solved with and saved."""

    params = ([1024, 8192], [32, 128])
    param_names = ("d", "l")

    def setup(self, d, size):
        rows = frosh_rows(5 * size, d, np.random.default_rng(0))
        self.one = fs.RobustFrequentDirections(size, solver="gram").update(rows)
        self.other = fs.RobustFrequentDirections(size, solver="gram").update(rows[::-1])
        self.vector = np.ones(d)

    def time_copy(self, d, size):
        self.one.copy()

    def time_copy_and_read(self, d, size):  # a sketch keeps what was read from it: only a copy reads again
        self.one.copy().sketch()

    def time_copy_and_merge(self, d, size):
        self.one.copy().merge(self.other)

    def time_solve(self, d, size):
        self.one.solve(self.vector)

    def time_save(self, d, size):
        self.one.to_bytes()

    def track_residual_of_solve(self, d, size):
        x = self.one.solve(self.vector)
        return float(np.linalg.norm(self.one.operator() @ x - self.vector) / np.linalg.norm(self.vector))
