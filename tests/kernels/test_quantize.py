"""Projections, codes of words and factors against plain NumPy: the same bits at every level, in any batch."""

import numpy as np
import pytest
from scipy.sparse import csr_array, random

import fastsketch as fs
from fastsketch._kernels.codes import quantize as kernel
from fastsketch.reference import _quantizer as reference

FACTOR, ABSENT = reference.SmallFloat(2, 10, 0.0078125), reference.SmallFloat(0)
# directions of a group, nibbles
SHAPES = {
    "levels": [(1, 1)] * 9,
    "pairs of nibbles": [(1, 2), (2, 2), (5, 2)],
    "products": [(2, 1), (4, 1), (3, 1)],
    "all kinds": [(1, 2), (1, 1), (2, 1), (3, 2), (7, 1), (16, 2)],
    "one nibble": [(3, 1)],
}


def groups_of(shapes, rng, gap=0):
    out, start = [], gap
    for count, n_nibbles in shapes:
        out.append((start, [rng.standard_normal((16, count)).astype(np.float32) for _ in range(n_nibbles)]))
        start += count + gap
    return out, start


class Case:
    """Rows, a basis, a mean, words: and what the reference says of them."""

    def __init__(self, n=70, d=37, shapes="all kinds", dtype=np.float32, *, gap=0, length=1.0, seed=0, density=None):
        rng = np.random.default_rng(seed)
        self.groups, r = groups_of(SHAPES[shapes], rng, gap)
        self.length, self.mean = length, 3 * rng.standard_normal(d)
        self.basis = (rng.standard_normal((d, r)) / np.sqrt(d)).astype(np.float32)
        self.rows = (length * rng.standard_normal((n, d)) * 2 + self.mean).astype(dtype)
        if density is not None:
            self.rows = csr_array(random(n, d, density, "csr", dtype, rng))
        self.more = {
            "factor": FACTOR,
            "offset": (-3, 0.5, 0.25, 1.0),
            "weights": (rng.random(r) + 0.5).astype(np.float32),
            "slope": rng.standard_normal(r).astype(np.float32),
        }
        self.quantizer = self.made(self.mean, length)

    def made(self, mean, length):
        return kernel.Quantizer(mean, self.basis, length=length, groups=self.groups, **self.more)

    def project(self, rows=None):
        rows = self.rows if rows is None else rows
        z = np.full((rows.shape[0], self.basis.shape[1]), np.nan, np.float32)
        square = np.full(rows.shape[0], np.nan)
        assert call(self.quantizer, rows, z=z, square=square) == -1
        return z, square

    def encode(self, rows=None):
        rows = self.rows if rows is None else rows
        codes = np.full((rows.shape[0], self.quantizer.width), 255, np.uint8)
        assert call(self.quantizer, rows, codes=codes) == -1
        return codes

    def expected(self):
        project = reference.project if isinstance(self.rows, np.ndarray) else reference.project_sparse
        z, square = project(self.rows, self.mean, self.basis, length=self.length)
        return z, square, reference.encode(z, square, self.groups, **self.more)


def call(quantizer, rows, **out):
    if isinstance(rows, np.ndarray):
        return kernel.dense(quantizer, rows, **out)
    return kernel.csr(quantizer, rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data, **out)


def same(case):
    z, square, codes = case.expected()
    found, found_square = case.project()
    assert found.tobytes() == z.tobytes()
    assert found_square.tobytes() == square.tobytes()
    assert np.array_equal(case.encode(), codes)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shapes", SHAPES)
def test_codes_against_the_reference(shapes, dtype):
    for seed in range(3):
        same(Case(shapes=shapes, dtype=dtype, seed=seed))
    same(Case(shapes=shapes, dtype=dtype, density=0.2))


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 64, 100])
@pytest.mark.parametrize("d", [1, 7, 16, 127, 128, 129, 300])
def test_sizes(n, d):
    same(Case(n, d))


@pytest.mark.parametrize("gap", [1, 2])
def test_directions_without_a_group(gap):
    same(Case(gap=gap))
    same(Case(gap=gap, density=0.5))


def test_a_unit_of_length_changes_nothing():
    case = Case(dtype=np.float64)
    large = case.made(case.mean * 2.0**40, 2.0**40)
    codes = np.empty((70, large.width), np.uint8)
    assert call(large, case.rows * 2.0**40, codes=codes) == -1
    assert np.array_equal(codes, case.encode())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_layouts(dtype):
    case = Case(dtype=dtype)
    wide = np.zeros((140, 50), dtype)
    wide[::2, 3:40] = case.rows
    wide.flags.writeable = False
    assert np.array_equal(case.encode(wide[::2, 3:40]), case.encode())
    swapped = case.rows.copy(order="C")
    assert np.array_equal(case.encode(swapped), case.encode())


@pytest.mark.parametrize("density", [None, 0.3])
def test_a_code_depends_on_its_row_alone(density):
    case = Case(5000, 60, density=density)
    codes = case.encode()
    for step in (1, 5, 33, 999):
        stop = min(len(codes), 50 * step)
        parts = [case.encode(case.rows[start : min(start + step, stop)]) for start in range(0, stop, step)]
        assert np.array_equal(np.concatenate(parts), codes[:stop])
    order = np.random.default_rng(1).permutation(5000)
    assert np.array_equal(case.encode(case.rows[order]), codes[order])
    for threads in (1, 2, 3, 8):
        with fs.thread_limit(threads):
            assert np.array_equal(case.encode(), codes)


def test_of_words_equally_near_the_lowest_is_taken():
    levels = np.float32([-1.0, 1.0]).repeat(8)[:, np.newaxis]
    pair = [(0, [levels, levels])]
    one = np.ones(1, np.float32)
    more = {"factor": ABSENT, "offset": np.zeros(4), "weights": one, "slope": one}
    groups = [(0, [levels]), *pair]
    quantizer = kernel.Quantizer(np.zeros(1), np.ones((1, 1), np.float32), length=1.0, groups=groups, **more)
    rows = np.float32([[-3.0], [-1.0], [0.0], [1.0], [3.0]])
    codes = np.empty((5, 2), np.uint8)
    kernel.dense(quantizer, rows, codes=codes)
    # one nibble: the first -1 for all up to 0; two: -1 + -1, -1 + 1 (or 1 + -1) and 1 + 1
    assert codes[:, 0].tolist() == [0x00, 0x00, 0x00, 0x08, 0x88]
    assert (codes[:, 1] & 15).tolist() == [0, 0, 8, 8, 8]
    z, square = reference.project(rows, np.zeros(1), np.ones((1, 1), np.float32))
    assert np.array_equal(codes, reference.encode(z, square, groups, **more))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0.0, 1e-300, 1e-40, 1e-20, 1e19, 1e38, 1e300])
def test_huge_and_tiny_rows(size, dtype):
    if size > 1e38 and dtype is np.float32:
        pytest.skip("no float32")
    case = Case(40, 20, dtype=dtype)
    case.rows = (np.sign(case.rows) * size).astype(dtype)
    same(case)
    case.rows[0] = 0
    case.rows = csr_array(case.rows)
    same(case)


def test_factors_saturate():
    case = Case(3, 20)
    case.more["offset"] = (0, 1, 0, 0)
    case.quantizer = case.made(case.mean, 1.0)
    case.rows = np.stack([case.mean, case.mean + 1e17, case.mean - 1e17])
    factors = case.encode()[:, -2:]
    assert factors[0].tolist() == [0, 0]  # the mean itself
    assert factors[1:].tolist() == [[255, 255]] * 2
    same(case)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 31, 2999])
def test_a_row_that_is_not_finite_is_found(row, bad):
    case = Case(3000, 60)
    rows = case.rows.copy()
    rows[row, 59] = rows[2999, 0] = bad
    codes = np.empty((3000, case.quantizer.width), np.uint8)
    assert call(case.quantizer, rows, codes=codes) == row
    assert call(case.quantizer, csr_array(rows), codes=codes) == row


@pytest.mark.parametrize("density", [None, 0.3])
def test_no_rows(density):
    case = Case(density=density)
    assert case.encode(case.rows[:0]).shape == (0, case.quantizer.width)
    assert case.project(case.rows[:0])[0].shape == (0, case.basis.shape[1])
    out = np.empty((0, 37), np.float32)
    kernel.decode(case.quantizer, np.empty((0, case.quantizer.width), np.uint8), out)


@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("length", [1.0, 4.0])
def test_decoding(shapes, length):
    case = Case(3000, 45, shapes, length=length, gap=1)
    codes = case.encode()
    out = np.full((3000, 45), np.nan, np.float32)
    kernel.decode(case.quantizer, codes, out)
    nibbles = np.stack([codes & 15, codes >> 4], axis=2).reshape(3000, -1)
    word = reference.chosen(nibbles, case.groups, case.basis.shape[1])
    total = np.zeros((3000, 45), np.float32)
    for j in range(word.shape[1]):
        total += word[:, j, np.newaxis] * case.basis[:, j]
    expected = (case.mean + length * total.astype(np.float64)).astype(np.float32)
    assert out.tobytes() == expected.tobytes()
    one = np.empty((1, 45), np.float32)
    for i in (0, 31, 32, 2999):
        kernel.decode(case.quantizer, codes[i : i + 1], one)
        assert np.array_equal(one[0], out[i])


def test_words_are_the_nearest():
    """By distances themselves: none of all words, or sums of two, is nearer than the one taken."""
    case = Case(200, 30, "all kinds")
    z, _ = case.project()
    codes = case.encode()
    nibbles = np.stack([codes & 15, codes >> 4], axis=2).reshape(200, -1)
    word = reference.chosen(nibbles, case.groups, z.shape[1])
    for start, words in case.groups:
        part = slice(start, start + words[0].shape[1])
        every = words[0] if len(words) == 1 else (words[0][:, np.newaxis] + words[1]).reshape(256, -1)
        weights = case.more["weights"][part]
        squares = (weights * (z[:, np.newaxis, part].astype(float) - every) ** 2).sum(axis=2)
        taken = (weights * (z[:, part].astype(float) - word[:, part]) ** 2).sum(axis=1)
        assert (taken <= squares.min(axis=1) + 1e-4).all()
