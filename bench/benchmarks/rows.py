"""Rows that the benches sketch."""

import numpy as np
from scipy.sparse import csr_array


def frosh_rows(n, d, rng, dtype=np.float64):
    """The synthetic data of FROSH section 5.1: S Lambda U + noise, 10 directions of falling strength."""
    k = 10
    directions = np.linalg.qr(rng.standard_normal((d, k)))[0].T
    signal = rng.standard_normal((n, k)) * (1 - np.arange(k) / k)
    return (signal @ directions + rng.standard_normal((n, d)) / 10).astype(dtype)


def random_csr(n, d, density, rng, dtype=np.float64):
    """Rows with columns drawn from a Zipf-like law, as words are, and Gaussian values."""
    per_row = max(1, int(d * density))
    columns = np.minimum((d * rng.random((n, per_row)) ** 2).astype(np.int64), d - 1)
    rows = np.repeat(np.arange(n), per_row)
    out = csr_array((rng.standard_normal(n * per_row).astype(dtype), (rows, columns.ravel())), shape=(n, d))
    out.sum_duplicates()
    return out
