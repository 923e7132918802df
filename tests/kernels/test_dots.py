"""Inner products whose bits do not depend on how many are asked for together."""

import numpy as np
import pytest

from fastsketch._kernels.linalg.dots import row_products


@pytest.mark.parametrize("d", [0, 1, 7, 8, 9, 123, 1000])
def test_products_are_right_and_the_same_alone(d):
    rng = np.random.default_rng(d)
    x, b = rng.standard_normal((11, d)), rng.standard_normal((6, d))
    out = np.full((12, 9), np.nan)
    row_products(x, b, out, 2)
    assert np.allclose(out[:11, 2:8], x @ b.T, rtol=1e-13, atol=1e-12)
    assert np.isnan(out[11]).all()
    assert np.isnan(out[:, [0, 1, 8]]).all()
    for first in range(11):
        for last in range(first + 1, 12):
            part = np.empty((last - first, 3))
            row_products(x[first:last], b[2:5], part, 0)
            assert np.array_equal(part, out[first:last, 4:7])
    lower = np.empty((11, 11))
    row_products(x, x, lower, 0, lower=True)
    whole = np.empty((11, 11))
    row_products(x, x, whole, 0)
    assert np.array_equal(np.tril(lower), np.tril(whole))


@pytest.mark.parametrize("d", [255, 256, 264, 517, 1031])
def test_pieces_and_blocks_give_the_same_bits(d):
    """Many rows go block by block and piece by piece; one at a time is as good as a sum in order."""
    rng = np.random.default_rng(d)
    x, b = rng.standard_normal((29, d)), rng.standard_normal((70, d))
    out, single = np.empty((29, 70)), np.empty((29, 70))
    row_products(x, b, out, 0)
    assert np.allclose(out, x @ b.T, rtol=1e-12, atol=1e-11)
    for i in range(29):
        row_products(x[i : i + 1], b, single[i : i + 1], 0)
    assert np.array_equal(single, out)
    lower, whole = np.empty((70, 70)), np.empty((70, 70))
    row_products(b, b, lower, 0, lower=True)
    row_products(b, b, whole, 0)
    assert np.array_equal(np.tril(lower), np.tril(whole))


def test_sizes_that_do_not_fit_are_refused():
    x = np.ones((3, 4))
    for b, out, first in (
        (np.ones((3, 5)), np.empty((3, 3)), 0),
        (x, np.empty((2, 3)), 0),
        (x, np.empty((3, 3)), 1),
        (x, np.empty((3, 3)), -1),
    ):
        with pytest.raises(ValueError, match="belong"):
            row_products(x, b, out, first)
    row_products(np.empty((0, 4)), x, np.empty((0, 3)), 0)
