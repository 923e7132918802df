"""The fast sketches against the papers' algorithms in plain NumPy."""

import numpy as np
import pytest

import fastsketch as fs
from fastsketch import reference as ref
from tests.helpers import DTYPES, KINDS, stream, tol

L = 7


def gram(b):
    b = np.asarray(b, np.float64)
    return b.T @ b


def rounding(dtype, rows):
    # T shrinks, each rounded relative to ||A||_F^2
    return tol(dtype, max((np.asarray(rows, np.float64) ** 2).sum(), np.finfo(dtype).tiny)) * 2


CASES = {
    "fd": (lambda a: ref.frequent_directions(a, L), {}),
    "rfd": (lambda a: ref.robust_frequent_directions(a, L, alpha0=0.5)[::2], {"alpha0": 0.5}),
    "isvd": (lambda a: ref.greedy_low_rank(a, L), {}),
    "pfd": (lambda a: ref.parameterized_frequent_directions(a, L, beta=0.4), {"beta": 0.4}),
    "cfd": (lambda a: ref.compensative_frequent_directions(a, L), {}),
}


@pytest.mark.parametrize("method", CASES)
@pytest.mark.parametrize("solver", ["gram", "svd"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_row_by_row(method, solver, dtype, kind):
    a = stream(kind, np.random.default_rng(3), 90, 12).astype(dtype)
    algorithm, parameters = CASES[method]
    b, delta = algorithm(a.astype(np.float64))
    s = fs.FrequentDirections(L, method=method, solver=solver, buffer_size=0, **parameters).update(a)
    # rank decisions at the edge of rounding are free to differ: compare what B'B stands for
    assert np.abs(gram(s.sketch()) - gram(b)).max() <= rounding(dtype, a)
    assert abs(s.shrinkage - delta) <= rounding(dtype, a)


@pytest.mark.parametrize("solver", ["gram", "svd"])
@pytest.mark.parametrize("n", [1, 6, 7, 13, 14, 15, 21, 22, 23, 100])
def test_doubled_buffer_is_algorithm_5(solver, n):
    a = stream("signal", np.random.default_rng(n), n, 20)
    b, alpha, delta = ref.fast_robust_frequent_directions(a, L, alpha0=0.25)
    s = fs.RobustFrequentDirections(L, 0.25, solver=solver).update(a)
    if len(b) > L:  # Algorithm 5 does not flush at its end; the library's read-out does
        b, extra, more = ref.robust_frequent_directions_blocks([b, np.zeros((0, 20))], L)
        alpha, delta = alpha + extra, delta + more
    assert np.abs(gram(s.sketch()) - gram(b)).max() <= rounding(np.float64, a)
    assert abs(s.alpha - alpha) <= rounding(np.float64, a)
    assert abs(s.shrinkage - delta) <= rounding(np.float64, a)


def test_algorithm_4_and_7_agree_with_5():
    a = stream("noise", np.random.default_rng(0), 100, 15)
    b4, delta4 = ref.fast_frequent_directions(a, L)
    b5, alpha5, delta5 = ref.fast_robust_frequent_directions(a, L)
    assert np.array_equal(b4, b5)
    assert delta4 == delta5
    assert alpha5 == delta5 / 2
    # the same blocks: 2m rows first, then m+1 at a time (Algorithm 7 takes its first block unshrunk)
    head = 2 * L
    cuts = list(range(head, 101, L + 1))
    b7, alpha7, _ = ref.robust_frequent_directions_blocks(
        [a[: 2 * L - 1], a[2 * L - 1 : head]] + [a[i : i + L + 1] for i in cuts[:-1]], L
    )
    b5, alpha5, _ = ref.fast_robust_frequent_directions(a[: cuts[-1]], L)
    assert np.allclose(gram(b7), gram(b5), atol=1e-10)
    assert np.isclose(alpha7, alpha5)


def test_exact_is_one_shrink_of_everything():
    a = stream("signal", np.random.default_rng(1), 300, 20)
    s = fs.FrequentDirections(L, solver="exact").update(a)
    b, _, delta = ref.robust_frequent_directions_blocks([a[:0], a], L)
    assert np.allclose(gram(s.sketch()), gram(b), atol=rounding(np.float64, a))
    assert np.isclose(s.shrinkage, delta, atol=rounding(np.float64, a))


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", CASES)
def test_sparse_is_dense(method, center, dtype):
    from scipy.sparse import csr_array

    rng = np.random.default_rng(5)
    a = (rng.standard_normal((300, 150)) * (rng.random((300, 150)) < 0.05)).astype(dtype)
    options = {"method": method, "center": center, "buffer_size": 11, "solver": "gram"}
    dense = fs.FrequentDirections(L, **options).update(a)
    sparse = fs.FrequentDirections(L, **options).update(csr_array(a))
    assert (dense._engine.kind, sparse._engine.kind) == ("dense", "sparse")
    assert np.abs(gram(dense.sketch()) - gram(sparse.sketch())).max() <= rounding(dtype, a)
    assert abs(dense.shrinkage - sparse.shrinkage) <= rounding(dtype, a)
    assert np.isclose(dense.squared_norm, sparse.squared_norm, rtol=100 * np.finfo(dtype).eps)
    if center:
        assert np.allclose(dense.mean, sparse.mean, atol=10 * np.finfo(dtype).eps)


@pytest.mark.parametrize("method", CASES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size, d", [(20, 33), (33, 200), (64, 129)])
def test_sketches_large_enough_for_packed_panels(method, dtype, size, d):
    """Buffers of 40 rows and more take the packed products and our own divide and conquer."""
    a = stream("signal", np.random.default_rng(size), 6 * size, d).astype(dtype)
    options = {"alpha0": 0.5} if method == "rfd" else {"beta": 0.4} if method == "pfd" else {}
    gram_solver = fs.FrequentDirections(size, method=method, solver="gram", **options).update(a)
    exact = a.astype(np.float64)
    svd_solver = fs.FrequentDirections(size, method=method, solver="svd", **options).update(exact)
    assert np.abs(gram(gram_solver.sketch()) - gram(svd_solver.sketch())).max() <= rounding(dtype, a)
    assert abs(gram_solver.shrinkage - svd_solver.shrinkage) <= rounding(dtype, a)
    if method == "rfd":  # and the reference: Algorithm 5, then the flush that the library's read-out does
        b, alpha, _ = ref.fast_robust_frequent_directions(exact, size, alpha0=0.5)
        if len(b) > size:
            b, extra, _ = ref.robust_frequent_directions_blocks([b, np.zeros((0, d))], size)
            alpha += extra
        assert np.abs(gram(gram_solver.sketch()) - gram(b)).max() <= rounding(dtype, a)
        assert abs(gram_solver.alpha - alpha) <= rounding(dtype, a)
