"""Products in parts against NumPy's."""

import numpy as np
import pytest

from fastsketch._kernels import pool
from fastsketch._kernels.linalg.products import add_gram, add_spread, column_sums, product, settled, symmetric_product
from fastsketch._kernels.sketching.csr_products import rows_times, turned_rows_times
from tests.sketching.test_parts import text_like

SHAPES = [(1, 1, 1), (3, 700, 5), (300, 5, 2), (500, 300, 400), (2, 400, 1500), (0, 3, 2), (3, 0, 2), (3, 2, 0)]


@pytest.fixture(autouse=True)
def three_threads():
    before = pool.get()
    pool.use(3)
    yield
    pool.use(before)


def numbers(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape)


@pytest.mark.parametrize("m, k, n", SHAPES)
def test_product(m, k, n):
    a, b, out = numbers(m, k), numbers(k, n), numbers(m, n)
    wanted = a @ b
    np.testing.assert_allclose(product(a, b), wanted, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(product(a.T.copy(), b, turned=True), wanted, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(product(a, b, out.copy()), out + wanted, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("n, k", [(1, 1), (7, 300), (1000, 200), (130, 4000), (300, 0)])
def test_gram(n, k):
    z, lower = numbers(n, k), numbers(n, n)
    wanted = np.triu(lower + z @ z.T)  # the lower triangle lies column by column
    for turned, rows in ((False, z), (True, z.T.copy())):
        out = lower.copy()
        add_gram(rows, out, turned=turned)
        np.testing.assert_allclose(np.triu(out), wanted, rtol=1e-12, atol=1e-11)
        np.testing.assert_array_equal(np.tril(out, -1), np.tril(lower, -1))


@pytest.mark.parametrize("n", [0, 1, 9, 600, 1501])
def test_symmetric_product(n):
    lower, v = numbers(n, n), numbers(n)
    whole = np.triu(lower) + np.triu(lower, 1).T
    np.testing.assert_allclose(symmetric_product(lower, v), whole @ v, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n, d", [(1, 1), (500, 13), (40, 9000), (0, 3)])
def test_entries(n, d, dtype):
    rows, mean, root = numbers(n, 2 * d).astype(dtype)[:, :d], numbers(d), numbers(n) ** 2
    wanted = (rows.astype(np.float64) * 0.5 - mean) * root[:, np.newaxis]
    out, squared = settled(rows, mean, root, 0.5)
    np.testing.assert_allclose(out, wanted, rtol=1e-14)
    assert squared == pytest.approx(float((wanted**2).sum()), rel=1e-12)
    np.testing.assert_allclose(settled(rows, mean, None, 1.0)[0], rows - mean, rtol=1e-14)
    np.testing.assert_allclose(column_sums(rows, root), root @ rows.astype(np.float64), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(column_sums(rows, None), rows.astype(np.float64).sum(axis=0), rtol=1e-11, atol=1e-11)
    for weights in (None, root):
        total, squares = numbers(d), numbers(d) ** 2
        moved, factors = rows.astype(np.float64) - mean, np.ones(n) if weights is None else weights
        sums = total + factors @ moved, squares + factors @ moved**2
        add_spread(rows, mean, weights, total, squares)
        np.testing.assert_allclose(total, sums[0], rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(squares, sums[1], rtol=1e-11)


def test_products_with_csr_rows():
    x = text_like(300, 5000, 0)
    arrays = x.indptr.astype(np.int64), x.indices.astype(np.int32), x.data
    q, w = numbers(5000, 20), numbers(300, 20)
    np.testing.assert_allclose(rows_times(*arrays, q), x @ q, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(turned_rows_times(*arrays, w, 5000), x.T @ w, rtol=1e-12, atol=1e-11)
