"""The leading singular triplet of a gradient, and the products with eight vectors that find it."""

import ctypes

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch._kernels.lowrank import gradients, products
from fastsketch._kernels.lowrank.products import gram_block
from fastsketch.lowrank._leading import BLOCK_VECTORS, block_start, leading_triplet
from fastsketch.lowrank._loading import load_matrix
from tests.helpers import tol
from tests.lowrank.problems import problem, stored


@pytest.fixture(params=["numba", "scipy"])
def _way(request, monkeypatch):
    """Products by Numba, and as they are where Numba cannot be imported."""
    if request.param == "numba":
        pytest.importorskip("numba")
    else:
        monkeypatch.setattr(products, "_numba_loop", lambda: None)


def matrix(a):
    """CSR with unsigned indices: (indptr, indices, values)."""
    a = sparse.csr_array(a)
    return a.indptr.astype(np.uint32), a.indices.astype(np.uint32), a.data


def search(a, *, iterations=30, tolerance=1e-3, found=None, start=None):
    """What ``leading_triplet`` finds of a dense matrix, all of whose entries are observed."""
    observations, _ = load_matrix(a, None, None, fs.LowRankModel(1, scaling=False)._setting())
    n = a.shape[1]
    start = block_start(0, 0, n, None) if start is None else start
    found = np.empty((n, 0), a.dtype) if found is None else found
    return leading_triplet(observations, observations.data.o, start, found, iterations=iterations, tolerance=tolerance)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("m", "n", "density"), [(1, 1, 1.0), (7, 5, 0.5), (40, 90, 0.1), (30, 3, 0.0), (0, 4, 0.5), (50, 64, 1.0)]
)
def test_products(m, n, density, dtype):
    rng = np.random.default_rng(m)
    dense = (rng.standard_normal((m, n)) * (rng.random((m, n)) < density)).astype(dtype)
    v = np.ascontiguousarray(rng.standard_normal((n, BLOCK_VECTORS)), dtype)
    u, w = gram_block(*matrix(dense), v)
    tolerance = 100 * np.finfo(dtype).eps * (1 + np.abs(dense).sum())
    assert u.dtype == w.dtype == dtype
    assert np.abs(u - dense @ v).max(initial=0) <= tolerance
    assert np.abs(w - dense.T @ (dense @ v)).max(initial=0) <= 10 * tolerance


def test_sizes_that_do_not_fit_are_refused():
    where, good = matrix(np.eye(3)), np.zeros((3, 8))
    for v, u in ((np.zeros((3, 7)), good), (good, np.zeros((2, 8))), (good, np.zeros((3, 9)))):
        with pytest.raises(ValueError, match="belong"):
            gradients.multiply_parts(0, *where, v, u)


@pytest.mark.parametrize("loss", ["square", "logistic", "absolute"])
def test_a_fit_as_it_comes_runs_the_loop_of_numba(loss, monkeypatch):
    """The loop itself, which counts its calls here, and not an option that asks for it."""
    pytest.importorskip("numba")
    from fastsketch._kernels.lowrank import block_loop

    compiled = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 2, *[ctypes.c_void_p] * 6)
    loop, rows = compiled(block_loop.address("float64")), []

    @compiled
    def counting(first, stop, *arrays):
        rows.append(stop - first)
        loop(first, stop, *arrays)

    asked = {"float64": ctypes.cast(counting, ctypes.c_void_p).value}
    monkeypatch.setattr(block_loop, "address", lambda dtype: asked[np.dtype(dtype).name])
    o, seen = problem(loss)
    model = fs.LowRankModel(loss=loss).fit(stored(o, seen))
    # a search has at least one product, of all rows; the fit that chooses the ridge has as many ranks as the last
    searches = len({line["rank"] for line in model.history if line["rank"] > 0})
    assert searches > 1 and len(rows) >= searches and set(rows) == {len(o)}
    counted = model.decision_block(np.arange(len(o)))
    monkeypatch.undo()
    assert np.array_equal(fs.LowRankModel(loss=loss).fit(stored(o, seen)).decision_block(np.arange(len(o))), counted)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize(("iterations", "tolerance", "taken"), [(1, 0.0, 1), (2, 0.0, 2), (3, 0.0, 3), (9, 1.0, 1)])
def test_leading_vectors_are_those_of_subspace_iteration(iterations, tolerance, taken):
    rng = np.random.default_rng(0)
    a = rng.standard_normal((40, 20))
    start = rng.standard_normal((20, BLOCK_VECTORS))
    triplet, after = search(a, iterations=iterations, tolerance=tolerance, start=start)
    basis = np.linalg.qr(start)[0]
    for _ in range(taken):
        product = a @ basis
        vector = basis @ np.linalg.eigh(product.T @ product)[1][:, -1]  # of the block before the last product
        basis = np.linalg.qr(a.T @ product)[0]
    assert abs(abs(triplet.v @ vector) - 1) < 1e-12 and abs(triplet.v @ triplet.v - 1) < 1e-12
    assert np.allclose(triplet.s * triplet.u, a @ triplet.v, atol=1e-12)
    assert triplet.u[np.argmax(np.abs(triplet.u))] > 0
    assert np.allclose(after.T @ after, np.eye(BLOCK_VECTORS - 1), atol=1e-12)
    assert np.allclose(basis @ (basis.T @ after), after, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "n", "rank"), [(40, 30, 1), (40, 30, 2), (40, 30, 5), (5, 30, 5), (30, 5, 5), (3, 2, 2)])
def test_a_search_that_finds_fewer_than_eight_directions(m, n, rank, dtype):
    """The Gram matrix of the block is then singular, and its columns depend on each other."""
    rng = np.random.default_rng(0)
    a = (rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))).astype(dtype)
    triplet, block = search(a, tolerance=1e-9 if dtype == np.float64 else 1e-4)
    assert abs(triplet.s - np.linalg.norm(a, 2)) <= tol(dtype, np.linalg.norm(a))
    ones = np.eye(BLOCK_VECTORS - 1) * (np.arange(1, BLOCK_VECTORS) < n)  # beyond n columns are zero
    assert np.abs(block.T @ block - ones).max() <= tol(dtype, 8)
    assert search(np.zeros((m, n), dtype), iterations=3) is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "n", "rank"), [(40, 30, 12), (40, 30, 3), (5, 30, 5), (30, 5, 5), (3, 2, 2)])
def test_triplets_one_after_the_other_are_the_singular_value_decomposition(m, n, rank, dtype):
    """Down to what rounding leaves, where no direction that was found comes back."""
    rng = np.random.default_rng(1)
    a = (rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))).astype(dtype)
    values, found, start = np.linalg.svd(a.astype(np.float64))[1], np.empty((n, 0), dtype), block_start(0, 0, n, None)
    tolerance = 1e-10 if dtype == np.float64 else 1e-5
    for k in range(rank):
        triplet, after = search(a, iterations=300, tolerance=tolerance, found=found, start=start)
        assert abs(triplet.s - values[k]) <= 10 * tol(dtype, values[0])
        found, start = np.column_stack([found, triplet.v]), block_start(0, k + 1, n, after)
    # each vector is within `tolerance` of a singular vector, and singular vectors are orthogonal
    assert np.abs(found.T @ found - np.eye(rank)).max() <= 2 * tolerance
    last = search(a, iterations=5, found=found, start=start)
    assert last is None or last[0].s <= rank * tolerance * values[0]  # each vector is off by about the tolerance
