"""The bounds of the papers, on random and adversarial streams, through merges, weights, decay and centring."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastsketch as fs
from tests.helpers import DTYPES, KINDS, METHODS, error_interval, some, stream, tol


def parameters(method):
    return {"alpha0": 0.1} if method == "rfd" else {}


def check(rows, sketch):
    """The certificate holds in both directions, and the a-priori bound for every k, but for iSVD, which has none."""
    rows = np.asarray(rows, np.float64)
    # reading the result and forming A'A - B'B in float64 round relative to ||A||_2^2
    slack = tol(np.float64, max(np.linalg.norm(rows, 2) ** 2, 1e-300)) + tol(sketch.resolved["dtype"], 1e-300)
    low, high = error_interval(rows, sketch)
    bound = sketch.error_bound
    if sketch.method in ("cfd", "rfd"):
        assert low >= -bound - slack
    else:
        assert low >= -sketch._read().rounding - slack  # B'B never exceeds A'A
    assert high <= bound + slack
    if sketch.method != "isvd":
        s = np.linalg.svd(rows, compute_uv=False)
        tails = np.concatenate([np.cumsum((s**2)[::-1])[::-1], [0.0]])
        # rows that lose delta in every shrink, the one that is dropped included
        lowered = max(1, int((sketch.resolved["beta"] or 1.0) * sketch.sketch_size))
        ks = np.arange(min(lowered, len(tails)))
        a_priori = (tails[ks] / (lowered - ks)).min()
        assert sketch.shrinkage <= a_priori + sketch._read().rounding + slack


# 1237: a merge of float32 rows of rank 3, whose reduction to tridiagonal form meets columns that are all rounding
@pytest.mark.parametrize("case", some([1237, *range(500)], 241))
def test_five_hundred_streams(case):
    rng = np.random.default_rng(case)
    kind = KINDS[case % len(KINDS)]
    method = METHODS[(case // 8) % 6]
    dtype = DTYPES[(case // 40) % 2]
    n, d, size = int(rng.integers(1, 400)), int(rng.integers(1, 60)), int(rng.integers(2, 20))
    solver = ("gram", "svd", "auto", "exact")[case % 4] if case % 3 else "gram"
    rows = stream(kind, rng, n, d).astype(dtype)
    options = {"method": method, "solver": solver, "dtype": dtype, **parameters(method)}
    if case % 5 == 0:
        options["buffer_size"] = int(rng.integers(0, 3 * size))
    parts = np.split(np.arange(n), np.sort(rng.integers(0, n + 1, int(rng.integers(0, 6)))))
    sketches = [fs.FrequentDirections(size, **options).update(rows[part]) for part in parts]
    while len(sketches) > 1:  # a random merge tree
        i, j = rng.choice(len(sketches), 2, replace=False)
        merged = sketches[i].copy().merge(sketches[j])
        sketches = [s for k, s in enumerate(sketches) if k not in (i, j)] + [merged]
    (sketch,) = sketches
    assert sketch.n_rows == n
    check(rows, sketch)


def test_iterative_svd_has_no_a_priori_guarantee():
    """RFD paper, appendix F: rows a little shorter than what is kept, all in one new direction, are all lost."""
    size, d = 8, 20
    rows = np.zeros((size - 1 + 400, d))
    rows[np.arange(size - 1), np.arange(size - 1)] = 1.0
    rows[size - 1 :, d - 1] = 0.9
    lost = fs.FrequentDirections(size, method="isvd", buffer_size=0, solver="gram").update(rows)
    kept = fs.FrequentDirections(size, method="fd", buffer_size=0, solver="gram").update(rows)
    a_priori = min(
        np.sum(np.sort(np.linalg.svd(rows, compute_uv=False) ** 2)[: -k or None]) / (size - k) for k in range(size)
    )
    assert error_interval(rows, lost)[1] > 10 * a_priori
    slack = kept._read().rounding
    assert error_interval(rows, kept)[1] <= a_priori + slack
    assert error_interval(rows, lost)[1] <= lost.error_bound + slack  # the certificate holds all the same


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("center", [False, True])
def test_long_float_streams_stay_within_the_certificate(dtype, center):
    """Thousands of shrinks of rows with a large common direction: rounding must not pile up with one sign."""
    rng = np.random.default_rng(0)
    d, size, n = 96, 8, 30_000
    base = np.round(rng.random(d) * 255) / 255
    rows = np.empty((n, d), np.float32)
    for start in range(0, n, 500):  # slowly drifting, quantised rows: like pixels of a film
        level = base * rng.uniform(0.5, 1.0)
        rows[start : start + 500] = np.round((level + 0.002 * rng.standard_normal((500, d))) * 255) / 255
    sketch = fs.RobustFrequentDirections(size, solver="gram", center=center, dtype=dtype).update(rows)
    truth = rows.astype(np.float64) - (rows.mean(axis=0, dtype=np.float64) if center else 0.0)
    low, high = error_interval(truth, sketch)
    scale = np.linalg.norm(truth, 2) ** 2
    assert max(-low, high) <= sketch.error_bound + tol(np.float64, scale)
    # The allowance for rounding is not what carries the bound: in float32 the errors of T shrinks add up like sqrt(T)
    # (with one sign they came to 0.3 T units of rounding, more than allowed here), in float64 they stay below T / 8.
    shrinks = n / (size + 1)
    units = 4 * np.sqrt(shrinks) if dtype == np.float32 else shrinks / 8
    assert max(-low, high) <= sketch.shrinkage / 2 + units * np.finfo(dtype).eps * scale


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("solver", ["gram", "svd", "exact"])
def test_weights_scale_rows_by_their_root(method, solver):
    rng = np.random.default_rng(2)
    rows, weights = stream("signal", rng, 120, 30), rng.random(120) * (rng.random(120) < 0.8)
    sketch = fs.FrequentDirections(6, method=method, solver=solver).update(rows, weights)
    weighted = np.sqrt(weights)[:, None] * rows
    check(weighted, sketch)
    plain = fs.FrequentDirections(6, method=method, solver=solver).update(weighted[weights > 0])
    assert np.allclose(sketch.gram(), plain.gram(), atol=1e-9 * plain.squared_norm)
    assert np.isclose(sketch.total_weight, weights.sum())


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("solver", ["gram", "svd", "exact"])
@pytest.mark.parametrize("center", [False, True])
def test_decay_weighs_earlier_rows_down(solver, center, sparse):
    from scipy.sparse import csr_array

    rng = np.random.default_rng(4)
    n, d, gamma = 150, 60, 0.98
    rows = stream("noise", rng, n, d) * (rng.random((n, d)) < (0.1 if sparse else 1)) + (0 if sparse else 0.5)
    sketch = fs.FrequentDirections(10, solver=solver, decay=gamma, center=center)
    for start in range(0, n, 37):
        sketch.update(csr_array(rows[start : start + 37]) if sparse else rows[start : start + 37])
    weights = gamma ** np.arange(n - 1, -1, -1)
    mean = weights @ rows / weights.sum() if center else 0.0
    truth = np.sqrt(weights)[:, None] * (rows - mean)
    check(truth, sketch)
    assert np.isclose(sketch.squared_norm, (truth**2).sum())
    assert np.isclose(sketch.total_weight, weights.sum())
    if center:
        assert np.allclose(sketch.mean, mean)


@pytest.mark.parametrize("solver", ["gram", "exact"])
@pytest.mark.parametrize("center", [False, True])
def test_fade_is_decay_per_batch(solver, center):
    rng = np.random.default_rng(6)
    parts = [stream("noise", rng, n, 25) + 1 for n in (5, 40, 0, 33)]
    sketch = fs.FrequentDirections(6, solver=solver, center=center)
    for part in parts:
        sketch.fade(0.5)
        sketch.update(part)
    weights = np.concatenate([np.full(len(p), 0.5 ** (3 - k)) for k, p in enumerate(parts)])
    rows = np.vstack(parts)
    mean = weights @ rows / weights.sum() if center else 0.0
    truth = np.sqrt(weights)[:, None] * (rows - mean)
    check(truth, sketch)
    assert np.isclose(sketch.squared_norm, (truth**2).sum())


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_centring_is_exact_through_merges(method, kind, dtype):
    from scipy.sparse import csr_array

    rng = np.random.default_rng(7)
    rows = (rng.standard_normal((260, 80)) + 3) * (rng.random((260, 80)) < (0.1 if kind == "sparse" else 1))
    rows = rows.astype(dtype)
    cuts = [0, 3, 3, 90, 200, 260]
    sketches = []
    for a, b in zip(cuts, cuts[1:], strict=False):
        s = fs.FrequentDirections(9, method=method, center=True, solver="gram")
        sketches.append(s.update(csr_array(rows[a:b]) if kind == "sparse" else rows[a:b]))
    merged = fs.merge(sketches)
    truth = rows.astype(np.float64)
    assert np.allclose(merged.mean, truth.mean(axis=0), atol=10 * np.finfo(dtype).eps)
    truth -= truth.mean(axis=0)
    check(truth, merged)
    assert np.isclose(merged.squared_norm, (truth**2).sum(), rtol=100 * np.finfo(dtype).eps)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 9),
    st.integers(1, 25),
    st.lists(st.integers(0, 30), min_size=1, max_size=8),
    st.booleans(),
)
def test_batches_do_not_matter(seed, size, d, batches, center):
    """Any split of a stream into batches gives the same bits."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((sum(batches), d))
    one = fs.FrequentDirections(size, solver="gram", center=center).update(rows)
    many = fs.FrequentDirections(size, solver="gram", center=center)
    start = 0
    for count in batches:
        many.update(rows[start : start + count])
        start += count
    assert one.to_bytes() == many.to_bytes()
    assert np.array_equal(one.sketch(), many.sketch())


@pytest.mark.parametrize("solver", ["gram", "svd"])
@pytest.mark.parametrize("method", METHODS)
def test_sketches_that_fit_into_one_merge_without_loss(method, solver):
    rows = np.random.default_rng(0).standard_normal((8, 20))
    parts = [fs.FrequentDirections(8, method=method, solver=solver).update(part) for part in (rows[:3], rows[3:])]
    merged = fs.merge(parts)
    assert merged.shrinkage == 0
    assert np.allclose(merged.sketch().T @ merged.sketch(), rows.T @ rows)


def test_a_sketch_without_rows_has_no_weight_and_no_error():
    sketch = fs.FrequentDirections(8)
    assert sketch.total_weight == sketch.squared_norm == sketch.error_bound == sketch.shrinkage == 0.0
