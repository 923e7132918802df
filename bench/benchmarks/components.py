"""Principal components through the scikit-learn face."""

import numpy as np

from benchmarks.rows import frosh_rows
from fastsketch.sklearn import SketchedPCA


class Components:
    """SketchedPCA on rows of FROSH section 5.1, few and many: exact or one pass of a sketch."""

    params = ([(400, 4000), (8000, 400)], ["auto", "gram"])
    param_names = ("n, d", "solver")

    def setup(self, shape, solver):
        self.rows = frosh_rows(*shape, np.random.default_rng(0))

    def fitted(self, solver):
        model = SketchedPCA(n_components=10, solver=solver).fit(self.rows)
        return model.explained_variance_, model.components_

    def time_fit(self, shape, solver):
        self.fitted(solver)

    def peakmem_fit(self, shape, solver):
        self.fitted(solver)

    def track_worst_variance(self, shape, solver):
        centred = self.rows - self.rows.mean(axis=0)
        true = np.linalg.svd(centred, compute_uv=False)[:10] ** 2 / (len(centred) - 1)
        return float(np.abs(self.fitted(solver)[0] / true - 1).max())
