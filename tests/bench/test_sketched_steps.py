"""The benches' loops of random projections and Oja's rule, beside their explicit forms."""

import numpy as np
import pytest

from adaptive.networks import SKETCH, fd_son, radagrad
from fastsketch import reference
from learning.sketched_steps import Oja, RandomProjection


@pytest.mark.parametrize(
    ("cls", "explicit"), [(RandomProjection, reference.random_projection_newton), (Oja, reference.oja_newton)]
)
def test_the_reference_says_the_same(cls, explicit):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 12)) * (rng.random((200, 12)) < 0.5)
    y = np.sign(rows @ rng.standard_normal(12) + 0.1)
    model = cls(5, alpha0=100.0, seed=3).update(rows, y)
    options = {"sketch_size": 5, "alpha0": 100.0, "loss": "square", "loss_scale": 2.0}
    w, _, scores = explicit(rows, y, rng=np.random.default_rng(3), **options)
    assert np.abs(model.coef - w).max() <= 1e-12
    assert np.abs(model.last_scores - scores).max() <= 1e-12


@pytest.mark.parametrize(
    ("make", "explicit", "more"),
    [
        (radagrad, reference.radagrad, {"rng": np.random.default_rng(0)}),
        (fd_son, reference.sketched_newton_subgradient, {}),
    ],
)
def test_directions_of_networks_are_those_of_the_reference(make, explicit, more):
    gradients = np.random.default_rng(0).standard_normal((60, 50)) * np.geomspace(1, 0.01, 50)
    direction, w = make(50, 0.1), np.zeros(50)
    for g in gradients:
        w -= 0.03 * direction(g)
    steps = {"sketch_size": SKETCH, "learning_rate": 0.03, "delta": 0.1, **more}
    theirs, _ = explicit(50, 60, subgradient=lambda t, beta: (0.0, gradients[t - 1]), **steps)
    assert np.abs(w - theirs).max() <= 1e-10
