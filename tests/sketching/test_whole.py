"""Products of rows that are all there at once, leading eigenpairs, and the engines that begin with them."""

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.sketching import _decompose, _exact_products
from fastsketch.sketching._decompose import LEADING_ROUNDING, leading
from fastsketch.sketching._engines import EngineSetting
from fastsketch.sketching._exact_products import RowProducts, chunk_products, column_products

RNG = np.random.default_rng(0)
DENSE = RNG.standard_normal((60, 45)) * np.linspace(4, 1, 45) + np.linspace(-3, 9, 45)
SPARSE = RNG.standard_normal((60, 45)) * (RNG.random((60, 45)) < 0.1)
WEIGHTS = RNG.random(60) * (RNG.random(60) < 0.9)


def symmetric(values):
    """A matrix with these eigenvalues."""
    q = np.linalg.qr(RNG.standard_normal((len(values), len(values))))[0]
    return (q * values) @ q.T


# -- leading pairs ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lanczos_from", [1, 10**6])
@pytest.mark.parametrize(
    "values",
    [
        np.arange(1, 151) ** -1.0,
        np.ones(150),
        np.repeat([5.0, 3.0, 1.0], 50),
        np.r_[[9.0, 9.0, 9.0], np.linspace(2, 0, 147)],
        np.r_[np.ones(3), np.zeros(147)],
        np.zeros(150),
        1 + 1e-3 * np.random.default_rng(1).random(150),
    ],
    ids=["power", "identity", "multiple", "triple", "low-rank", "zero", "flat"],
)
def test_leading_pairs(monkeypatch, lanczos_from, values):
    monkeypatch.setattr(_decompose, "LANCZOS_FROM", lanczos_from)
    values = np.sort(values)[::-1]
    matrix = symmetric(values)
    lower = np.tril(matrix).T.copy()  # the column-major lower triangle
    lower[np.tril_indices(150, -1)] = 7.0  # the other half is not looked at
    for k in (1, 4, 12):
        before = lower.copy()
        found, vectors = leading(lower, k)
        assert np.array_equal(lower, before)
        assert found.shape == (k,) and vectors.shape == (k, 150)
        size = values[0] if values[0] > 0 else 1.0
        assert np.abs(found - values[:k]).max() <= (LEADING_ROUNDING + 1e-13) * size
        assert np.allclose(vectors @ vectors.T, np.eye(k), atol=1e-10)
        assert np.allclose(matrix @ vectors.T, vectors.T * found, atol=1e-10 * size)


# -- products --------------------------------------------------------------------------------------------------------
def expected(rows, weights, center):
    w = np.ones(len(rows)) if weights is None else weights
    mean = w @ rows / w.sum() if center else np.zeros(rows.shape[1])
    return mean, (rows - mean) * np.sqrt(w)[:, np.newaxis]


@pytest.mark.parametrize("block", [64, 1 << 20])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("layout", ["dense", "csr", "csr-some-dense", "csr-through-dense"])
@pytest.mark.parametrize("way", ["rows", "columns"])
@pytest.mark.parametrize("method", ["tfd", "rfd"])
def test_engines_of_all_rows(monkeypatch, method, way, layout, weights, center, block):
    monkeypatch.setattr(_exact_products, "BLOCK_BYTES", block)
    monkeypatch.setattr(_exact_products, "LEAST", 7)
    monkeypatch.setattr(_exact_products, "BLOCK_ENTRIES", block)
    step = {"csr": 1e-9, "csr-some-dense": 50.0}.get(layout, 1e9)
    monkeypatch.setattr(_exact_products, "INDEXED_STEP", step)
    plain = DENSE if layout == "dense" else SPARSE
    rows = plain if layout == "dense" else sparse.csr_array(plain)
    if layout == "csr-some-dense":
        assert 0 < _exact_products.columns_by_density(rows)[1] < 45
    mean, settled = expected(plain, weights, center)
    real = np.linalg.svd(settled, compute_uv=False) ** 2
    solver = "exact" if way == "columns" else "gram"
    sketch = fs.FrequentDirections(8, method=method, solver=solver, center=center, dtype=np.float64)
    setting = sketch._setting
    if way == "columns":
        whole = column_products(rows, weights, setting)
    else:
        products = RowProducts(rows, weights, center=center)
        assert np.allclose(products.eigenvalues()[:45], real[:45])
        assert np.isclose(products.squared_norm, real.sum())
        whole = products.exact_sketch(setting)
    sketch._begin_with(whole.engine, whole.certain_high)
    assert np.allclose(whole.squares, (settled**2).sum(axis=0))
    assert np.isclose(sketch.squared_norm, real.sum()) and sketch.n_rows == 60
    assert np.isclose(sketch.total_weight, 60 if weights is None else weights.sum())
    if center:
        assert np.allclose(sketch.mean, mean)
    found = sketch.spectrum()
    assert np.allclose(found.values[:7], real[:7])
    assert (found.low <= real[: len(found.low)]).all() and (found.high >= real[: len(found.high)]).all()
    assert (found.high - found.low).max() <= 1e-8 * real[0]
    # B'B and the certificate, as after any update
    error = np.linalg.norm(settled.T @ settled - sketch.sketch().T @ sketch.sketch() - sketch.alpha * np.eye(45), 2)
    assert error <= sketch.error_bound
    # it goes on, and saves, like any other
    again = type(sketch).from_bytes(sketch.to_bytes()) if hasattr(type(sketch), "from_bytes") else sketch.copy()
    twice = again.update(rows, weights)
    # rows of weight 0 are no rows to an update
    assert twice.n_rows == 60 + (60 if weights is None else np.count_nonzero(weights))
    both = np.linalg.svd(np.vstack([settled, settled]), compute_uv=False) ** 2
    later = twice.spectrum()
    assert (later.low <= both[: len(later.low)] * (1 + 1e-12)).all()
    assert (later.high >= both[: len(later.high)] * (1 - 1e-12)).all()


CHUNKS = {
    "alike": [SPARSE[:25], SPARSE[25:26], SPARSE[26:]],
    "none": [np.zeros((0, 45)), SPARSE],
    "zeros": [np.zeros((9, 45)), SPARSE],
    "denser": [SPARSE[:20], DENSE, SPARSE[20:], DENSE],
    "larger": [SPARSE[:20] * 1e-250, SPARSE[20:40] * 1e3, SPARSE[40:] * 1e200],
    "smaller": [SPARSE[:20] * 1e200, SPARSE[20:40] * 1e3, SPARSE[40:] * 1e-250],
    "tiny": [SPARSE[:20] * 1e-280, SPARSE[20:] * 1e-240],
}


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CHUNKS)
def test_products_of_chunks_are_those_of_all_rows(name, dtype, center):
    """Fails if a chunk of another scale, another density or without entries is added wrongly."""
    if dtype == np.float32 and name in ("larger", "smaller", "tiny"):
        return
    chunks = [sparse.csr_array(rows.astype(dtype)) for rows in CHUNKS[name]]
    setting = EngineSetting(8, solver="exact", center=center)
    found = chunk_products(chunks, 45, setting)
    same = column_products(sparse.vstack(chunks, format="csr"), None, setting)
    engine, other = found.engine, same.engine
    assert engine.exponent == other.exponent and engine.n_rows == other.n_rows == sum(c.shape[0] for c in chunks)
    rounding = 2 * engine.n_rows * np.finfo(np.float64).eps  # of two sums of n products
    # the cosines of the columns, some of which are tiny
    size = np.sqrt(np.outer(np.diag(other.cov), np.diag(other.cov))) + np.sqrt(other.state.rounding)
    assert (np.abs(engine.gram() - other.gram()) <= rounding * size).all()
    assert np.allclose(engine.mean, other.mean, rtol=0, atol=rounding * np.abs(other.mean).max(initial=0.0))
    assert np.allclose(found.squares, same.squares, rtol=rounding, atol=0)
    assert np.isclose(engine.state.rounding, other.state.rounding) and engine.state.weight == other.state.weight


def test_no_copy_of_the_rows_in_double():
    import tracemalloc

    rows = RNG.standard_normal((300, 30_000)).astype(np.float32)
    tracemalloc.start()
    RowProducts(rows, None, center=True)
    tall = np.ascontiguousarray(rows.T)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    column_products(tall, None, EngineSetting(8, solver="exact", center=True))
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert peak < rows.nbytes / 2


def test_entries_of_columns_are_counted_in_blocks(monkeypatch):
    """Fails if a block is skipped, or counted twice."""
    monkeypatch.setattr(_exact_products, "BLOCK_ENTRIES", 5)
    rows = sparse.random_array((30, 4), density=0.6, rng=np.random.default_rng(0), format="csr")
    assert _exact_products.column_counts(rows).tolist() == (rows.toarray() != 0).sum(axis=0).tolist()
