"""The best columns of rows, against a stable sort of all scores."""

import numpy as np
import pytest
from scipy import sparse

from fastsketch._kernels import pool
from fastsketch._kernels.linalg.best import best_columns
from tests.helpers import sparse_rows

# rows, columns, inner, most: one block and many, one tile and many, more wanted than there are
SHAPES = [
    (1, 1, 1, 1),
    (1, 100_003, 16, 5),
    (5, 7, 2, 9),
    (64, 9001, 33, 10),
    pytest.param(65, 70_000, 2, 3, marks=pytest.mark.long),
    (65, 5_000, 2, 3),
    (300, 900, 3, 10),
    (3000, 11, 4, 4),
    (40, 50, 0, 3),
    (2, 5000, 128, 5000),
]


def as_lists(matrix, line=None):
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), line


def found(own, known, most, **more):
    columns, values = np.zeros((len(own), most), np.int64), np.zeros((len(own), most))
    best_columns(own, known, columns, values, **more)
    return columns, values


def expected(z, most):
    """Of scores (k, n), -inf where there is none."""
    z = np.where(np.isfinite(z), z.astype(np.float64), -np.inf)
    z = np.hstack([z, np.full((len(z), most), -np.inf)])
    order = np.argsort(-z, axis=1, kind="stable")[:, :most]
    values = np.take_along_axis(z, order, axis=1)
    return np.where(values > -np.inf, order, -1), values


def small(rng, *shape):
    """Numbers whose products are exact, with many ties."""
    return rng.integers(-2, 3, shape).astype(np.float32)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k, n, t, most", SHAPES)
def test_a_stable_sort(k, n, t, most, dtype):
    rng = np.random.default_rng(k + n)
    own, known = small(rng, k, t).astype(dtype), small(rng, n, t).astype(dtype)
    scale = (2.0 ** rng.integers(-2, 3, n)).astype(dtype)
    base, column = rng.integers(-3, 4, k) / 8, rng.integers(-3, 4, n) / 8
    one, two = sparse_rows(rng, k, n, 0.2 if n < 10_000 else 0.001), sparse_rows(rng, 7, n, 0.1)
    line = rng.integers(-1, 7, k)
    gone = one.toarray() != 0
    gone |= np.vstack([two.toarray() != 0, np.zeros((1, n), bool)])[line]
    left_out = [as_lists(one), as_lists(two, line)]
    plain = (own @ known.T).astype(np.float64)
    mask = rng.random(n) < 0.7
    middle = np.arange(n)[n // 4 : n // 4 + max(1, n // 3)]
    for z, more in (
        (plain, {}),
        (plain * scale, {"scale": scale}),
        (plain + base[:, None] + column, {"base": base, "column": column}),
    ):
        for allowed in (None, np.flatnonzero(mask), middle, np.zeros(0, np.int64), np.array([n - 1])):
            for out in ((), left_out):
                wanted = np.where(gone, -np.inf, z) if out else z.copy()
                if allowed is not None:
                    wanted[:, np.setdiff1d(np.arange(n), allowed)] = -np.inf
                given = None if allowed is None else allowed.astype(np.int32)
                columns, values = found(own, known, most, left_out=out, allowed=given, **more)
                for got, right in zip((columns, values), expected(wanted, most), strict=True):
                    np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_that_are_no_numbers_are_never_found(dtype):
    rng = np.random.default_rng(0)
    own, known = rng.standard_normal((70, 8)).astype(dtype), rng.standard_normal((3000, 8)).astype(dtype)
    own[3], own[5] = np.nan, np.inf
    known[::7], known[1::7] = np.nan, np.inf
    columns, values = found(own, known, 20)
    assert (columns[[3, 5]] == -1).all()
    assert np.isfinite(values[columns >= 0]).all()
    assert (values[columns < 0] == -np.inf).all()
    # a factor of 0 or below makes no score of what is left out
    scale = np.resize(np.array([0.0, -1.0], dtype), 3000)
    out = sparse.csr_array(np.ones((70, 3000)))
    assert (found(own, known, 20, scale=scale, left_out=[as_lists(out)])[0] == -1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k, n, t, most", [(1, 300_000, 16, 10), (64, 20_000, 40, 50), (700, 3000, 17, 5)])
def test_bits(k, n, t, most, dtype):
    rng = np.random.default_rng(0)
    own, known = rng.standard_normal((k, t)).astype(dtype), rng.standard_normal((n, t)).astype(dtype)
    scale, allowed = rng.random(n).astype(dtype), np.flatnonzero(rng.random(n) < 0.5).astype(np.int32)
    seen = set()
    before = pool.get()
    try:
        for threads in (1, 2, 3, 8):
            pool.use(threads)
            for one in (None, allowed):
                columns, values = found(own, known, most, scale=scale, allowed=one)
                seen.add((one is None, columns.tobytes(), values.tobytes()))
    finally:
        pool.use(before)
    assert len(seen) == 2


def test_at_most_two_lists_are_left_out():
    one = as_lists(sparse.csr_array(np.ones((1, 2))))
    with pytest.raises(ValueError, match="at most two"):
        found(np.ones((1, 1)), np.ones((2, 1)), 1, left_out=[one] * 3)
