"""The rank-one eigen-update of the adaptive learners: also for updates that are all but nothing."""

import numpy as np
import pytest

from fastsketch._kernels.online.numbers import NEVER
from fastsketch._kernels.online.turning import SmallSpace


def problem(n, seed):
    rng = np.random.default_rng(seed)
    lam = np.sort(np.abs(rng.standard_normal(n)) * 10.0 ** rng.uniform(-6, 3, n))[::-1].copy()
    if seed % 2:
        lam[-1] = 0.0
    return lam, rng.standard_normal(n + 1) * 10.0 ** rng.uniform(-3, 0, n + 1)


@pytest.mark.parametrize("n", [1, 2, 5, 20])
@pytest.mark.parametrize("exponent", range(0, 300, 16))
def test_any_size_of_update(n, exponent):
    for seed in range(20):
        before, y = problem(n, seed)
        weight = 10.0**-exponent
        lam, turn = before.copy(), np.eye(n)
        small = SmallSpace(turn, lam, np.eye(n), rule=NEVER, sketch_size=2, rank=n, n_rows=n)
        small.project(y[:n])
        small.take_gradient(weight)
        assert np.abs(turn @ turn.T - np.eye(n)).max() < 1e-13
        assert (np.diff(lam) <= 0).all() and lam[-1] >= 0
        # turn' diag(lam) turn = diag(before) + weight y y'
        wanted = np.diag(before) + weight * np.outer(y[:n], y[:n])
        assert np.abs((turn.T * lam) @ turn - wanted).max() < 1e-13 * np.abs(wanted).max()
