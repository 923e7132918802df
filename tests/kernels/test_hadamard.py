"""fwht and srht against explicit Hadamard matrices."""

import numpy as np
import pytest

import fastsketch as fs
from fastsketch import reference
from fastsketch.sketching._random_maps import SizedMap
from tests.helpers import DTYPES, sparse_rows, tol

RNG = np.random.default_rng(0)
LAYOUTS = {
    "C": lambda a: a.copy(),
    "F": np.asfortranarray,
    "rows strided": lambda a: np.repeat(a, 2, axis=0)[::2],
    "columns strided": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "rows reversed": lambda a: a[::-1].copy()[::-1],
    "columns reversed": lambda a: a[:, ::-1].copy()[:, ::-1],
    "inside a wider array": lambda a: np.pad(a, ((0, 0), (1, 2)))[:, 1:-2],
    "unaligned": lambda a: np.frombuffer(bytearray(b"x" + a.tobytes()), np.uint8)[1:].view(a.dtype).reshape(a.shape),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", range(12))
def test_both_axes_against_the_matrix(bits, dtype):
    m = 1 << bits
    h = reference.hadamard(m)
    for d in (1, 3, 64, 131):
        x = RNG.standard_normal((m, d)).astype(dtype)
        expected = h @ x.astype(np.float64)
        scale = np.abs(x).sum(axis=0).max()
        down, across = x.copy(), x.T.copy()
        assert fs.sketching.fwht(down) is down
        fs.sketching.fwht(across, axis=1)
        assert np.allclose(down, expected, rtol=0, atol=tol(dtype, scale))
        assert np.allclose(across.T, expected, rtol=0, atol=tol(dtype, scale))
        again = fs.sketching.fwht(down) / m  # H H = m I
        assert np.allclose(again, x, rtol=0, atol=tol(dtype, np.abs(x).max() * (bits + 1)))


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_are_transformed_in_place(layout, axis):
    a = RNG.standard_normal((64, 32))
    x = LAYOUTS[layout](a)
    assert fs.sketching.fwht(x, axis) is x
    h = reference.hadamard(a.shape[axis])
    expected = h @ a if axis in (0, -2) else a @ h
    assert np.allclose(x, expected, rtol=0, atol=tol(np.float64, 64 * 4))


def test_the_padding_around_a_view_is_left_alone():
    whole = RNG.standard_normal((16, 40))
    before = whole.copy()
    fs.sketching.fwht(whole[:, 3:35])
    fs.sketching.fwht(whole[4:8, 3:35], axis=1)
    assert np.array_equal(whole[:, :3], before[:, :3])
    assert np.array_equal(whole[:, 35:], before[:, 35:])


@pytest.mark.parametrize("size", [1, 2, 32, 64, 128, 4096, 1 << 18])
@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors(size, dtype):
    x = RNG.standard_normal(size).astype(dtype)
    y = fs.sketching.fwht(x.copy())
    column = fs.sketching.fwht(x.copy()[:, np.newaxis])[:, 0]
    assert np.allclose(y, column, rtol=0, atol=tol(dtype, np.sqrt(size) * 6))
    # Parseval, and one entry by hand
    squares = np.sum(y.astype(np.float64) ** 2), size * np.sum(x.astype(np.float64) ** 2)
    assert np.isclose(*squares, rtol=1e-4 if dtype == np.float32 else 1e-12)
    odd = np.array([bin(5 & j).count("1") % 2 for j in range(size)])
    assert np.isclose(y[5 % size], (x * (1 - 2.0 * odd)).sum() if size > 5 else y[5 % size], atol=tol(dtype, size))


def test_empty_axes():
    assert fs.sketching.fwht(np.empty((8, 0))).shape == (8, 0)
    assert fs.sketching.fwht(np.empty((0, 8)), axis=1).shape == (0, 8)


@pytest.mark.parametrize(
    ("x", "axis", "error", "match"),
    [
        ([1.0, 2.0], 0, TypeError, "numpy array"),
        (np.ma.masked_array([1.0, 2.0]), 0, TypeError, "numpy array"),
        (np.arange(4), 0, TypeError, "float32 or float64"),
        (np.zeros(4, complex), 0, TypeError, "float32 or float64"),
        (np.zeros(4, ">f8"), 0, TypeError, "byte order"),
        (np.zeros((2, 2, 2)), 0, ValueError, "dimensions"),
        (np.zeros(0), 0, ValueError, "power of two"),
        (np.zeros(3), 0, ValueError, "power of two"),
        (np.zeros((4, 3)), 1, ValueError, "power of two"),
        (np.zeros((4, 4)), 2, ValueError, "axis"),
        (np.zeros((4, 4)), -3, ValueError, "axis"),
        (np.zeros((4, 4)), 0.0, TypeError, "axis"),
    ],
)
def test_what_is_refused(x, axis, error, match):
    with pytest.raises(error, match=match):
        fs.sketching.fwht(x, axis)


def test_read_only_arrays_are_refused():
    x = np.ones(4)
    x.flags.writeable = False
    with pytest.raises(ValueError, match="writeable"):
        fs.sketching.fwht(x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 31, 64, 100, 257, 1024, 1500])
def test_srht_is_the_explicit_product(n, dtype, amount):
    """sqrt(m / q) S H D F with an explicit H, for any n, q, block size and seed."""
    for q in sorted({1, (n + 1) // 2, n}):
        for seed in amount((2**63,), (0, 1, 2**63)):
            for d in (1, 70):
                rows = RNG.standard_normal((n, d)).astype(dtype)
                got = fs.sketching.srht(rows, q, seed=seed)
                c = SizedMap("srht", q, n, seed)
                numbers = c.numbers(0, np.dtype(np.float64))
                sample = numbers.hi * c.rows_per_call + numbers.target
                assert len(np.unique(sample)) == q
                assert (np.abs(numbers.value) == 1).all()
                expected = reference.subsampled_hadamard(rows.astype(np.float64), signs=numbers.value, sample=sample)
                scale = np.abs(rows).sum(axis=0).max() / np.sqrt(q)
                assert got.dtype == dtype
                assert np.allclose(got, expected, rtol=0, atol=tol(dtype, scale))


def test_srht_takes_sparse_rows():
    rows = sparse_rows(np.random.default_rng(0), 300, 40, 0.1)
    assert np.allclose(fs.sketching.srht(rows, 20), fs.sketching.srht(rows.toarray(), 20))


@pytest.mark.parametrize(
    ("rows", "q", "seed", "error", "match"),
    [
        (np.ones((4, 2)), 0, 0, ValueError, "q must be"),
        (np.ones((4, 2)), 5, 0, ValueError, "at least rows_out = 5"),
        (np.ones((4, 2)), 2.0, 0, TypeError, "q must be"),
        (np.ones((0, 2)), 1, 0, ValueError, "at least one row"),
        (np.ones((4, 2)), 2, -1, ValueError, "seed"),
        (np.ones((4, 2)), 2, 2**64, ValueError, "seed"),
        (np.full((4, 2), np.nan), 2, 0, ValueError, "finite"),
        (np.ones((4, 2), complex), 2, 0, TypeError, "real"),
        (np.full((4, 2), 1e308), 2, 0, ValueError, "magnitude"),
    ],
)
def test_srht_refuses(rows, q, seed, error, match):
    with pytest.raises(error, match=match):
        fs.sketching.srht(rows, q, seed=seed)
