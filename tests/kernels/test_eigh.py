"""The dense symmetric eigensolver of a shrink: reduction, divide and conquer, back-transformation."""

import numpy as np
import pytest

from fastsketch._kernels.sketching.shrink import top_eigh


def spectrum(kind, n, rng):
    if kind.startswith("tridiagonal"):
        d, e = TRIDIAGONAL[kind.partition(" ")[2]](n, rng)
        return np.diag(d) + np.diag(e, -1)
    if kind == "uneven rows":  # of lengths from 1 to 1e-60, two thirds of them zero
        rows = rng.standard_normal((n, 20)) * np.logspace(0, -60, n)[:, np.newaxis]
        rows[rng.permutation(n)[n // 3 :]] = 0.0
        return rows @ rows.T
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


# (diagonal, subdiagonal), which the reduction leaves as they are: made to hurt divide and conquer
TRIDIAGONAL = {
    "random": lambda n, rng: (rng.standard_normal(n), rng.standard_normal(n - 1)),
    "Wilkinson": lambda n, rng: (np.abs(np.arange(n) - (n - 1) / 2), np.ones(n - 1)),
    "Toeplitz": lambda n, rng: (2 * np.ones(n), -np.ones(n - 1)),
    "glued": lambda n, rng: (
        np.tile(np.abs(np.arange(21) - 10.0), n // 21 + 1)[:n],
        np.where(np.arange(1, n) % 21, 1.0, 1e-9),
    ),
    "diagonal": lambda n, rng: (rng.standard_normal(n), np.zeros(n - 1)),
    "constant": lambda n, rng: (np.ones(n), np.zeros(n - 1)),
    "zero": lambda n, rng: (np.zeros(n), np.zeros(n - 1)),
    "graded down": lambda n, rng: (np.logspace(0, -14, n), 0.5 * np.logspace(0, -14, n)[1:]),
    "graded up": lambda n, rng: (np.logspace(-14, 0, n), 0.5 * np.logspace(-14, 0, n)[1:]),
    "cluster": lambda n, rng: (1 + 1e-13 * rng.standard_normal(n), 1e-12 * rng.standard_normal(n - 1)),
    "half zero": lambda n, rng: (
        np.where(np.arange(n) < n // 2, rng.standard_normal(n), 0.0),
        np.where(np.arange(1, n) < n // 2, rng.standard_normal(n - 1), 0.0),
    ),
    "huge": lambda n, rng: (1e30 * rng.standard_normal(n), 1e30 * rng.standard_normal(n - 1)),
    "tiny": lambda n, rng: (1e-30 * rng.standard_normal(n), 1e-30 * rng.standard_normal(n - 1)),
}
KINDS = [
    "even",
    "steep",
    "low rank",
    "clusters",
    "indefinite",
    "zero",
    "huge",
    "tiny",
    "uneven rows",
    *(f"tridiagonal {name}" for name in TRIDIAGONAL),
]


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 5, 15, 16, 17, 31, 33, 39, 40, 41, 47, 64, 65, 99, 128, 200, 257, 300])
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
