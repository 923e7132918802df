"""Singular values and vectors of rows that are nearly orthogonal, beside LAPACK's."""

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.sketching._engines import decompose

EPS = float(np.finfo(float).eps)
# LAPACK's own errors on such rows, in units of rounding of the largest: up to 71 of B'B, 17 of V V'.
UNITS, UPRIGHT = 100, 40

LENGTHS = {
    "close": 1 + 1e-12 * np.arange(20)[::-1],
    "equal": np.ones(20),
    "to 1e-6": np.logspace(0, -6, 20),
    "to 1e-12": np.logspace(0, -12, 20),
    "in pairs": np.repeat(np.logspace(0, -7, 10), 2),
    "with zeros": np.append(np.logspace(0, -3, 12), np.zeros(8)),
    "below rounding": np.append(np.logspace(0, -3, 12), np.full(8, 1e-17)),
    "one": np.ones(1),
}


def rows_of(lengths, d, off, seed=0):
    """Rows of these lengths whose products are off by `off` of the longest square, in mixed order."""
    rng = np.random.default_rng(seed)
    base = np.linalg.qr(rng.standard_normal((d, len(lengths))))[0].T
    rows = lengths[:, np.newaxis] * base + off * rng.standard_normal((len(lengths), len(lengths))) @ base
    return rows[rng.permutation(len(rows))]


@pytest.mark.parametrize("off", [0.0, EPS, 1e-9, 0.01, 1.0])
@pytest.mark.parametrize("name", LENGTHS)
def test_as_exact_as_lapack(name, off):
    rows = rows_of(LENGTHS[name], 50, off)
    _, truth, _ = np.linalg.svd(rows, full_matrices=False)
    truth = truth[truth > EPS * truth[0]]
    for unit in (1.0, 2.0**-460, 2.0**460, 2.0**-660, 2.0**660):
        s, vt = decompose(rows * unit)
        s = s / unit
        assert len(s) == len(vt) == np.count_nonzero(s) > 0
        n = min(len(s), len(truth))  # one that is rounding may be left out
        np.testing.assert_allclose(s[:n], truth[:n], rtol=0, atol=UNITS * EPS * truth[0])
        assert max(s[n:].max(initial=0), truth[n:].max(initial=0)) <= UNITS * EPS * truth[0]
        assert (np.diff(s) <= 0).all()
        assert np.abs(vt @ vt.T - np.eye(len(vt))).max() <= UPRIGHT * EPS
        again = s[:, np.newaxis] * vt
        assert np.linalg.norm(rows.T @ rows - again.T @ again, 2) <= UNITS * EPS * truth[0] ** 2


def test_rows_of_a_shrink_need_no_svd_of_all_of_them(monkeypatch):
    sketch = fs.FrequentDirections(16, solver="gram").update(np.random.default_rng(0).standard_normal((100, 300)))
    sizes = []
    svd = np.linalg.svd
    monkeypatch.setattr("scipy.linalg.svd", lambda rows, **options: sizes.append(rows.shape) or svd(rows, False))
    sketch.update(np.random.default_rng(1).standard_normal((1, 300)))
    sketch.sketch()
    assert sizes == [(16, 16)]  # 15 kept rows and the new one


def test_more_rows_than_columns_and_none():
    rows = np.random.default_rng(0).standard_normal((30, 4))
    s, vt = decompose(rows)
    np.testing.assert_allclose(s, np.linalg.svd(rows)[1], rtol=1e-13)
    assert vt.shape == (4, 4)
    assert [found.shape for found in decompose(np.zeros((3, 4)))] == [(0,), (0, 4)]
    assert [found.shape for found in decompose(np.zeros((0, 4)))] == [(0,), (0, 4)]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_out_of_range(bad):
    with pytest.raises(np.linalg.LinAlgError, match="have left the range"):
        decompose(np.array([[1.0, bad], [0.0, 1.0]]))
