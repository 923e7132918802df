"""The rival of the hashing benches that is restated there: its triples, its slopes, and that it goes up."""

import numpy as np

from hashing.ordinal import OrdinalConstraint, Triples


def test_triples_and_their_slopes():
    rng = np.random.default_rng(0)
    centres, h = rng.standard_normal((9, 3)), rng.standard_normal((9, 4))
    ordinal, scores = Triples(centres, 2), h @ h.T
    distances = np.linalg.norm(centres[:, None] - centres, axis=2)
    expected = 0.0
    for i in range(9):
        order = [j for j in np.argsort(distances[i]) if j != i]
        for place, j in enumerate(order[:2]):
            expected += sum(1 / (1 + np.exp(scores[i, k] - scores[i, j])) for k in order[place + 1 :])
    value, slope = ordinal.value(h)
    assert np.isclose(value, expected, rtol=1e-12)
    towards = rng.standard_normal(h.shape)
    ahead, behind = (ordinal.value(h + step * towards)[0] for step in (1e-6, -1e-6))
    assert np.isclose((ahead - behind) / 2e-6, (slope * towards).sum(), rtol=1e-6)


def test_it_goes_up_with_orthonormal_directions():
    rows = np.random.default_rng(1).standard_normal((200, 12)) * np.linspace(3, 0.1, 12)
    model = OrdinalConstraint(6, centres=30, near=3, iterations=20).update(rows)
    assert (np.diff(model.objective) > 0).all() and len(model.objective) > 5
    assert np.allclose(model.w.T @ model.w, np.eye(6), atol=1e-12)
    assert model.encode(rows).shape == (200, 1)
