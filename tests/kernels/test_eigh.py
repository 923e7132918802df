"""The dense symmetric eigensolver of a shrink: reduction, divide and conquer, back-transformation."""

import numpy as np
import pytest

from fastsketch._kernels.sketching.shrink import top_eigh


def spectrum(kind, n, rng):
    q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    values = {
        "even": np.linspace(0, 1, n),
        "steep": np.logspace(-12, 0, n),
        "low rank": np.r_[np.zeros(n - n // 3), np.linspace(1, 2, n // 3)],
        "clusters": np.repeat([1.0, 2.0, 3.0], n // 3 + 1)[:n],
        "indefinite": np.linspace(-1, 1, n),
        "zero": np.zeros(n),
        "huge": np.linspace(0, 1e25, n),
        "tiny": np.linspace(0, 1e-25, n),
    }[kind]
    return (q * values) @ q.T


KINDS = ["even", "steep", "low rank", "clusters", "indefinite", "zero", "huge", "tiny"]


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 5, 15, 16, 17, 31, 33, 39, 40, 47, 64, 99, 128, 200, 300])
def test_top_eigenpairs(n, kind, dtype):
    a = spectrum(kind, n, np.random.default_rng(n))
    a = np.tril(a) + np.tril(a, -1).T
    a = a.astype(dtype)
    exact = a.astype(np.float64)
    scale = max(np.abs(exact).max() * np.sqrt(n), 1e-300)
    eps = np.finfo(dtype).eps
    for k in {1, n // 2 + 1 if n > 1 else 1, n}:
        upper = np.triu(a) + np.tril(np.full((n, n), np.nan, dtype), -1)  # the other triangle is not to be read
        values, vectors = top_eigh(upper.copy(), k)
        vectors = vectors.astype(np.float64)
        allowed = eps * (16 + n / 2)
        assert np.abs(values - np.linalg.eigvalsh(exact)).max() <= allowed * scale
        assert np.abs(exact @ vectors.T - vectors.T * values[n - k :]).max() <= allowed * scale
        assert np.abs(vectors @ vectors.T - np.eye(k)).max() <= allowed
