"""The k least scores among codes, at every level and number of threads, against NumPy: bit for bit."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest

from fastsketch._kernels import level, pool
from fastsketch._kernels.codes import scan
from fastsketch.reference import code_scores, least_scores

RNG = np.random.default_rng(16)
THREADS = (1, 2, 3, 8)


@dataclass(frozen=True)
class Number:
    n_bytes: int = 0
    mantissa_bits: int = 0
    unit: float = 1.0


@dataclass(frozen=True)
class Layout:
    n_tables: int
    offset: Number = Number()
    scale: Number = Number()

    @property
    def width(self):
        return (self.n_tables + 1) // 2 + self.offset.n_bytes + self.scale.n_bytes


NONE = Number()
BYTE = Number(1, 4, 0.25)
FINE = Number(2, 12, float(np.float32(0.3)))


@pytest.fixture(autouse=True)
def as_before():
    before = pool.get(), level.current()
    yield
    pool.use(before[0])
    level.use(before[1])


def some_codes(n, layout):
    return RNG.integers(0, 256, (n, layout.width), dtype=np.uint8)


def some_tables(m, layout, spans=1.0):
    tables = RNG.standard_normal((m, layout.n_tables, 16)) * np.broadcast_to(spans, layout.n_tables)[:, np.newaxis]
    return np.clip(tables, -3e38, 3e38).astype(np.float32)


def packed_bits(mask):
    return None if mask is None else np.packbits(mask, bitorder="little")


def check(tables, codes, layout, ks=(1, 10), *, allow=None, ids=None, levels=None, threads=(1,), **rule):
    """Every level, number of threads and form of the codes gives the reference's answer."""
    rule = {"alpha": 1.0, "beta": -2.0, **rule}
    scores = code_scores(tables, codes, layout=layout, **rule)
    scores[np.isnan(scores)] = np.inf
    blocks = scan.pack(codes, layout)
    for k in ks:
        expected = least_scores(scores, k, allow=allow, ids=ids)
        for name in levels or level.supported():
            level.use(name)
            for n in threads:
                pool.use(n)
                for given, more in ((codes, {}), (blocks, {"in_blocks_of": len(codes)})):
                    found = scan.topk(tables, given, layout, k, allow=packed_bits(allow), ids=ids, **rule, **more)
                    assert found[0].dtype == np.float32 and found[1].dtype == np.int64
                    assert np.array_equal(found[1], expected[1]), (name, n, k)
                    assert np.array_equal(found[0], expected[0]), (name, n, k)


LAYOUTS = [
    Layout(1),
    Layout(2),
    Layout(7),
    Layout(8),
    Layout(9),
    Layout(32),
    Layout(33),
    Layout(130),
    Layout(1, BYTE, BYTE),
    Layout(5, FINE, BYTE),  # a factor across two groups of bytes
    Layout(6, NONE, FINE),
    Layout(8, BYTE, NONE),
    Layout(32, FINE, FINE),
    Layout(36, BYTE, BYTE),
    Layout(61, BYTE, FINE),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_against_numpy(layout):
    for n in (1, 15, 16, 17, 63, 511, 512, 513, 1300):
        codes = some_codes(n, layout)
        tables = some_tables(7, layout)
        check(tables, codes, layout, sorted({1, min(10, n), n}))


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 6, 9])
@pytest.mark.parametrize("layout", [Layout(16), Layout(17, BYTE, FINE)], ids=str)
def test_any_number_of_queries(m, layout):
    check(some_tables(m, layout), some_codes(700, layout), layout)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_scores_of_all(layout):
    for n in (1, 8, 17, 513, 40_000):
        codes, tables = some_codes(n, layout), some_tables(1, layout)
        rule = {"alpha": 1.0, "beta": -2.0}
        expected = code_scores(tables, codes, layout=layout, constant=np.float32([0.75]), **rule)[0]
        blocks = scan.pack(codes, layout)
        for threads in THREADS:
            pool.use(threads)
            for given, more in ((codes, {}), (blocks, {"in_blocks_of": n})):
                found = scan.scores(tables[0], given, layout, constant=0.75, **rule, **more)
                assert found.dtype == np.float32 and np.array_equal(found, expected), (n, threads)
    assert scan.scores(tables[0], codes[:0], layout, alpha=1.0, beta=-2.0).shape == (0,)


def test_no_queries_and_no_codes():
    layout = Layout(8)
    for m, n in ((0, 5), (3, 0)):
        found = scan.topk(some_tables(m, layout), some_codes(n, layout), layout, 2, alpha=0.0, beta=1.0)
        assert np.array_equal(found[0], np.full((m, 2), np.inf, np.float32))
        assert np.array_equal(found[1], np.full((m, 2), -1))


@pytest.mark.parametrize("layout", [Layout(20), Layout(20, BYTE, BYTE), Layout(21, FINE)], ids=str)
@pytest.mark.parametrize("beta", [-2.0, 1.0, -1.0, 0.0])
@pytest.mark.parametrize("alpha", [1.0, 0.0, -0.5])
def test_rules(layout, alpha, beta):
    codes, tables = some_codes(900, layout), some_tables(5, layout)
    constant = RNG.standard_normal(5).astype(np.float32)
    divisor = RNG.uniform(0.01, 100, 900).astype(np.float32)
    for more in ({}, {"constant": constant}, {"divisor": divisor}, {"constant": constant, "divisor": divisor}):
        check(tables, codes, layout, alpha=alpha, beta=beta, **more)


@pytest.mark.parametrize("layout", [Layout(6), Layout(6, BYTE, BYTE)], ids=str)
def test_ties_go_by_id(layout):
    few = some_codes(3, layout)
    codes = few[RNG.integers(0, 3, 2000)]
    tables = some_tables(3, layout)
    check(tables, codes, layout, (1, 10, 300, 2000))
    for ids in (RNG.permutation(2000), np.arange(2000)[::-1] * 10**15 - 10**18):
        check(tables, codes, layout, (1, 10, 300, 2000), ids=np.ascontiguousarray(ids, np.int64))
    level_ground = np.zeros_like(tables)
    check(level_ground, codes, layout, (1, 50), alpha=0.0, ids=np.ascontiguousarray(np.arange(2000)[::-1]))


@pytest.mark.parametrize("layout", [Layout(12), Layout(12, BYTE, FINE)], ids=str)
def test_allowed_rows(layout):
    n = 1500
    codes, tables = some_codes(n, layout), some_tables(3, layout)
    few = np.zeros(n, bool)
    few[[3, 700, 701, n - 1]] = True
    no_block = np.ones(n, bool)
    no_block[16:32] = no_block[512:1024] = False
    for allow in (few, no_block, np.ones(n, bool), np.zeros(n, bool), RNG.random(n) < 0.3):
        check(tables, codes, layout, (1, 4, 20), allow=allow)
        check(tables, codes, layout, (3,), allow=allow, ids=RNG.permutation(n))


SPANS = {
    "one wide": np.r_[1000.0, np.ones(31)],
    "wide and nothing": np.r_[1e6, np.full(31, 1e-6)],
    "8 bits as two nibbles": np.tile([16.0, 1.0], 16),
    "steep": 2.0 ** -np.arange(32),
    "8 bits, steep": np.repeat(2.0 ** -np.arange(16), 2) * np.tile([16.0, 1.0], 16),
    "none": np.zeros(32),
    "tiny": np.full(32, 1e-38),
    "denormal": np.full(32, 1e-44),
    "huge": np.full(32, 1e36),
}


@pytest.mark.parametrize("spans", SPANS)
@pytest.mark.parametrize("factors", [(NONE, NONE), (BYTE, BYTE)])
def test_spans(spans, factors):
    layout = Layout(32, *factors)
    tables = some_tables(4, layout, SPANS[spans])
    with np.errstate(over="ignore", invalid="ignore"):
        check(tables, some_codes(1500, layout), layout, (1, 10, 100))
        check(tables + np.float32(1e4), some_codes(1500, layout), layout, (10,))


def test_sums_beyond_floats():
    layout = Layout(8, NONE, BYTE)
    tables = some_tables(3, layout, 1e38)
    tables[1] = np.float32(3e38)
    tables[2, 3, 5] = np.inf
    with np.errstate(over="ignore", invalid="ignore"):
        check(tables, some_codes(600, layout), layout, (1, 10, 600))


@pytest.mark.parametrize("span", [1e-36, 1e-40, 1e-42, 0.0])
def test_scales_make_tiny_tables_large_again(span):
    # of a denormal float a rounding is no small share
    layout = Layout(40, NONE, Number(1, 4, 1e20))
    tables = some_tables(3, layout, span) + np.float32(0.3 * span)
    check(tables, some_codes(1500, layout), layout, (1, 3, 50), alpha=0.0, beta=-1.0)


def test_scales_whose_product_is_infinite():
    layout = Layout(17, Number(2, 15, float(np.float32(8e20))), Number(2, 9, float(np.float32(0.8))))
    codes = some_codes(1500, layout)
    codes[::100, -1] = 255
    with np.errstate(over="ignore", invalid="ignore"):
        for shift in (-1, 0, 1):
            check(some_tables(3, layout, 1e-20) + np.float32(shift * 1e-19), codes, layout, (1, 10, 100))


@pytest.mark.parametrize("factors", [(NONE, NONE), (BYTE, BYTE)])
def test_tables_that_are_no_numbers(factors):
    layout = Layout(8, *factors)
    tables = some_tables(4, layout)
    tables[0, 2, 3] = tables[1, :, ::2] = np.nan
    tables[2, 1, 7], tables[3] = -np.inf, np.nan
    with np.errstate(over="ignore", invalid="ignore"):
        check(tables, some_codes(600, layout), layout, (1, 10, 600))


@pytest.mark.parametrize(
    "number", [Number(1, 1, 1e-30), Number(1, 8, 1.0), Number(1, 3, 1e30), Number(2, 9, 1e-38), Number(2, 16, 5.0)]
)
def test_extreme_factors(number):
    for layout in (Layout(8, number, number), Layout(9, number), Layout(8, NONE, number)):
        codes = some_codes(800, layout)
        codes[:200, 4:] = 0
        codes[200:400, 4:] = 255
        with np.errstate(over="ignore", invalid="ignore"):
            check(some_tables(3, layout), codes, layout, (1, 10, 500))
            check(some_tables(3, layout), codes, layout, (10,), alpha=0.0, beta=-1.0)


@pytest.mark.parametrize("layout", [Layout(16), Layout(16, BYTE, BYTE)], ids=str)
def test_threads(layout, amount):
    n = 120_000
    codes = some_codes(n, layout)
    codes[n // 2 :] = codes[: n // 2]  # ties across parts
    allow, ids = RNG.random(n) < 0.9, RNG.permutation(n)
    divisor = RNG.uniform(1, 2, n).astype(np.float32)
    top = level.supported()[-1:]
    for m in amount((5,), (1, 5, 40)):
        tables = some_tables(m, layout)
        check(tables, codes, layout, (1, 10, 1000), levels=top, threads=THREADS)
        check(tables, codes, layout, (10,), levels=top, threads=THREADS, allow=allow, ids=ids, divisor=divisor)


def test_every_row_is_better_than_the_one_before():
    # the worst order of all: what the first codes tell of the others is nothing
    layout, n = Layout(8), 200_000
    codes = np.sort(RNG.integers(0, 2**32, n, dtype=np.uint32))[::-1].astype("<u4").view(np.uint8).reshape(n, 4)
    tables = (16.0 ** np.arange(8)[:, np.newaxis] * np.arange(16)).astype(np.float32)[np.newaxis]
    top = level.supported()[-1:]
    for m in (1, 30):
        check(np.repeat(tables, m, axis=0), codes, layout, (10, 500), alpha=0.0, beta=1.0, levels=top, threads=(1, 2))


def test_many_python_threads():
    layout = Layout(16, BYTE, BYTE)
    codes, tables = some_codes(3000, layout), some_tables(32, layout)
    expected = scan.topk(tables, codes, layout, 7, alpha=1.0, beta=-2.0)
    with ThreadPoolExecutor(8) as threads:
        found = list(
            threads.map(lambda i: scan.topk(tables[i : i + 1], codes, layout, 7, alpha=1.0, beta=-2.0), range(32))
        )
    assert np.array_equal(np.vstack([score for score, _ in found]), expected[0])
    assert np.array_equal(np.vstack([place for _, place in found]), expected[1])


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_blocks_grow(layout):
    codes = some_codes(100, layout)
    whole = scan.pack(codes, layout)
    assert whole.shape == scan.blocks_shape(100, layout)
    assert np.array_equal(scan.unpack(whole, layout, 0, 100), codes)
    assert np.array_equal(scan.unpack(whole, layout, 37, 61), codes[37:61])
    grown = np.full_like(whole, 255)
    start = 0
    for size in (1, 15, 3, 0, 29, 16, 36):
        scan.pack(codes[start : start + size], layout, grown, start)
        start += size
    assert start == 100
    assert np.array_equal(grown, whole)


def test_blocks_from_a_file(tmp_path):
    layout = Layout(17, FINE, BYTE)
    codes, tables = some_codes(777, layout), some_tables(3, layout)
    blocks = scan.pack(codes, layout)
    (tmp_path / "blocks").write_bytes(b"odd" + blocks.tobytes())
    mapped = np.memmap(tmp_path / "blocks", np.uint8, mode="r", offset=3, shape=blocks.shape)
    found = scan.topk(tables, mapped, layout, 9, alpha=1.0, beta=-2.0, in_blocks_of=777)
    expected = scan.topk(tables, codes, layout, 9, alpha=1.0, beta=-2.0)
    assert np.array_equal(found[0], expected[0])
    assert np.array_equal(found[1], expected[1])
