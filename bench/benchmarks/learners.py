"""Learners that go from row to row: the sketched Newton step, and ADA-FFD."""

import numpy as np

import fastsketch as fs


class Learning:
    """A stream of labelled rows through a learner, in one batch; labels follow a tenth of the columns."""

    params = ([100, 1000], [10, 50], ["SketchedNewton", "AdaptiveSubgradient"])
    param_names = ("d", "sketch size", "learner")

    def setup(self, d, size, learner):
        rng = np.random.default_rng(0)
        self.rows = rng.standard_normal((4000, d))
        weights = rng.standard_normal(d) * (rng.random(d) < 0.1)
        self.labels = np.where(self.rows @ weights + rng.logistic(size=4000) > 0, 1.0, -1.0)
        self.learned(size, learner, 100)  # Numba's loops are compiled at the first update

    def learned(self, size, learner, n):
        """A model of the first n rows."""
        return getattr(fs, learner)(size).update(self.rows[:n], self.labels[:n])

    def time_update(self, d, size, learner):
        self.learned(size, learner, 4000)

    def track_accuracy_after_half(self, d, size, learner):
        return float(np.mean(self.learned(size, learner, 2000).predict(self.rows[2000:]) == self.labels[2000:]))
