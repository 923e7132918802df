"""Work in parts: a sketch has the same bits, whatever the number of threads."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch._kernels import pool
from fastsketch._kernels.linalg.products import add_gram
from fastsketch.sketching._decompose import leading
from fastsketch.sketching._engines import EngineSetting
from fastsketch.sketching._exact_products import RowProducts, column_products

THREADS = (1, 2, 3, 8)


@pytest.fixture(autouse=True)
def as_before(threaded_blas):
    before = pool.get()
    yield
    pool.use(before)


def text_like(n, d, seed):
    """CSR rows of words whose frequencies fall like 1 / rank, the first of them in most rows."""
    rng = np.random.default_rng(seed)
    columns = np.floor(d ** rng.random((n, 250))).astype(np.int64) - 1
    out = sparse.coo_array((rng.random(columns.size), (np.repeat(np.arange(n), 250), columns.ravel())), shape=(n, d))
    return sparse.csr_array(out)


ROWS = text_like(500, 20_000, 0)


class Bytes:
    """The arrays of an engine, or a tuple of arrays, as bytes."""

    def __init__(self, made):
        self.arrays = made if isinstance(made, tuple) else tuple(made.arrays().values())

    def to_bytes(self):
        return b"".join(np.ascontiguousarray(array).tobytes() for array in self.arrays)


def bits_with(threads, make):
    pool.use(threads)
    return make().to_bytes()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "setting",
    [{}, {"center": True}, {"decay": 0.999}, {"center": True, "decay": 0.999}, {"method": "tfd"}],
    ids=lambda setting: "-".join(setting) or "plain",
)
def test_csr_sketches(setting, weighted, dtype):
    weights = np.linspace(0.0, 3.0, ROWS.shape[0]) if weighted else None

    def make():
        sketch = fs.FrequentDirections(24, solver="gram", dtype=dtype, **setting)
        sketch.update(ROWS[:90], None if weights is None else weights[:90])  # then a batch that begins within a block
        return sketch.update(ROWS[90:], None if weights is None else weights[90:])

    [bits] = {bits_with(n, make) for n in THREADS}
    assert len(bits) > 0


DENSE = np.random.default_rng(1).standard_normal((300, 900)) * np.linspace(3, 1, 900) + 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: RowProducts(DENSE, None, center=True),
        lambda: RowProducts(DENSE.astype(np.float32), np.linspace(0.0, 3.0, 300), center=True),
    ],
    ids=["rows", "weighted-float32"],
)
def test_products_of_rows(make):
    setting = EngineSetting(12, center=True)
    [one] = {bits_with(n, lambda: Bytes(make().exact_sketch(setting).engine)) for n in THREADS}
    assert one


def test_products_of_columns_and_their_leading_pairs():
    def make():
        whole = column_products(DENSE.T.copy(), np.linspace(0.0, 3.0, 900), EngineSetting(12, center=True))
        return Bytes(whole.engine)

    [one] = {bits_with(n, make) for n in THREADS}
    assert one
    lower = np.zeros((900, 900))
    add_gram(DENSE, lower, turned=True)
    [values] = {bits_with(n, lambda: Bytes(leading(lower, 10))) for n in THREADS}
    assert values


@pytest.mark.parametrize("rows", [DENSE, ROWS], ids=["dense", "csr"])
def test_second_passes(rows):
    sketch = fs.FrequentDirections(24, solver="gram", center=True).update(rows)
    [one] = {bits_with(n, lambda: sketch.copy().refine(rows)) for n in THREADS}
    assert one
