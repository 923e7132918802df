"""The loops over grids of step sizes beside the papers' algorithms."""

from functools import partial

import numpy as np
import pytest

from adaptive.grid import AdaptiveGrid
from fastsketch import reference

CASES = {
    ("ada_full", "mirror_descent"): reference.adaptive_full,
    ("ada_full", "dual_averaging"): partial(reference.adaptive_full, form="dual_averaging"),
    ("ada_lr", "mirror_descent"): partial(reference.adaptive_low_rank, sketch_size=5),
    ("radagrad", "mirror_descent"): partial(reference.radagrad, sketch_size=5),
}


@pytest.mark.parametrize(("method", "form"), CASES)
def test_losses_are_those_of_the_reference(method, form):
    rng = np.random.default_rng(5)
    rows = 1 + rng.standard_normal((300, 12)) * np.geomspace(1, 0.1, 12)
    y = rows @ rng.standard_normal(12)

    def absolute(t, beta):
        residual = rows[t - 1] @ beta - y[t - 1]
        return abs(residual), np.sign(residual) * rows[t - 1]

    rates, deltas = (0.01, 0.1), (0.1, 1.0)
    found = AdaptiveGrid(rates, deltas, method=method, form=form, sketch_size=5).update(rows, y).cumulative_loss
    for i, rate in enumerate(rates):
        for j, delta in enumerate(deltas):
            more = {"rng": np.random.default_rng(0)} if method != "ada_full" else {}
            steps = {"learning_rate": rate, "delta": delta, **more}
            _, losses = CASES[method, form](12, 300, subgradient=absolute, **steps)
            assert found[i, j] == pytest.approx(losses.sum(), rel=1e-6)
