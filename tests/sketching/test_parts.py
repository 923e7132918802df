"""Work in parts: a sketch has the same bits, whatever the number of threads."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch._kernels import pool

THREADS = (1, 2, 3, 8)


@pytest.fixture(autouse=True)
def as_before():
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
