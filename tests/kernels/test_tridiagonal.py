"""Our divide and conquer against definition and LAPACK: values, residuals, orthogonality, on matrices made to hurt."""

import numpy as np
import pytest
from scipy.linalg import eigh_tridiagonal

from fastsketch._kernels.linalg.tridiagonal import eigh_tridiagonal_top

CASES = {
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


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("n", [1, 2, 3, 20, 21, 40, 41, 64, 65, 100, 128, 257])
def test_eigenpairs(n, case, dtype):
    d, e = (a.astype(dtype) for a in CASES[case](n, np.random.default_rng(n)))
    before = d.copy(), e.copy()
    matrix = np.diag(d.astype(np.float64)) + np.diag(e.astype(np.float64), 1) + np.diag(e.astype(np.float64), -1)
    # QR without square roots: the driver of scipy's own choice is not as accurate with each of its versions
    expected = eigh_tridiagonal(d.astype(np.float64), e.astype(np.float64), eigvals_only=True, lapack_driver="sterf")
    scale = max(np.abs(expected).max(), np.finfo(np.float64).tiny)
    eps = np.finfo(dtype).eps
    for top in {1, (n + 1) // 2, n}:
        values, vectors = eigh_tridiagonal_top(d, e, top)
        vectors = vectors.astype(np.float64)
        # backward stable: errors in units of rounding of the norm, growing slowly with n
        allowed = eps * (8 + n / 4)
        assert np.abs(values - expected).max() <= allowed * scale
        assert np.abs(matrix @ vectors.T - vectors.T * values[n - top :]).max() <= allowed * scale
        assert np.abs(vectors @ vectors.T - np.eye(top)).max() <= allowed
    assert np.array_equal(d, before[0])
    assert np.array_equal(e, before[1])
