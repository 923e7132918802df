"""Low-rank models by greedy pursuit, GLRL."""

import numpy as np

import fastsketch as fs
from benchmarks.rows import random_csr
from fastsketch import papers


class Completion:
    """Entries of a low-rank matrix and noise, or their signs: as the model comes, and the algorithm as printed."""

    params = (["square", "logistic"], ["default", "printed"])
    param_names = ("loss", "settings")

    def setup(self, loss, settings):
        rng = np.random.default_rng(0)
        entries = random_csr(4000, 2000, 0.01, rng)
        rows, columns = entries.nonzero()
        left, right = rng.standard_normal((4000, 5)), rng.standard_normal((2000, 5))
        values = np.einsum("kq,kq->k", left[rows], right[columns]) + rng.standard_normal(len(rows))
        entries.data = np.sign(values) if loss == "logistic" else values
        self.entries = entries
        fs.LowRankModel(1, sweeps=1).fit(entries[:50])  # Numba's loop is compiled at the first fit

    def fitted(self, loss, settings):
        """A model of five ranks."""
        model = fs.LowRankModel(5, loss=loss) if settings == "default" else papers.glrl(5, loss=loss)
        return model.fit(self.entries)

    def time_fit(self, loss, settings):
        self.fitted(loss, settings)

    def track_share_of_the_first_objective(self, loss, settings):
        model = self.fitted(loss, settings)
        return model.facts()["objective"] / model.history[0]["objective"]
