"""The benches' loops of random projections and Oja's rule, beside their explicit forms."""

import numpy as np
import pytest
from sketched_steps import Oja, RandomProjection

from fastsketch import reference


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
