"""The certificate of centred sketches where the mean is much larger than the spread, against long double."""

import contextlib

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.sketching._engines._base import SAFE_EXPONENTS
from tests.helpers import DTYPES, SOLVERS

LONG = np.longdouble
pytestmark = pytest.mark.skipif(np.finfo(LONG).nmant < 60, reason="long double is no longer than double here")


def check(sketch, rows, weights=None):
    """The error is within the certificate, squared_norm and mean are right to rounding of the spread."""
    a = rows.astype(LONG)
    w = np.ones(len(a), LONG) if weights is None else weights.astype(LONG)
    mean = np.zeros(a.shape[1], LONG)
    for _ in range(2 if sketch.center else 0):
        mean = mean + (w @ (a - mean)) / w.sum()
    a = (a - mean) * np.sqrt(w)[:, np.newaxis]
    b = sketch.sketch().astype(LONG)
    values = np.linalg.eigvalsh((a.T @ a - b.T @ b).astype(np.float64)) + sketch.alpha0 - sketch.alpha
    square = float((a * a).sum())
    slack = 1e-17 * square
    assert max(-values[0], values[-1]) <= sketch.error_bound + slack
    if sketch.method in ("fd", "pfd", "isvd", "tfd"):
        assert -values[0] <= sketch.error_bound - sketch.shrinkage + slack
    eps = float(np.finfo(sketch.resolved["dtype"]).eps)
    assert abs(sketch.squared_norm - square) <= (3 * eps + 2 * len(a) * np.finfo(np.float64).eps) * square
    if sketch.center:
        spread = float(np.sqrt(square / w.sum()))
        assert np.allclose(sketch.mean, mean.astype(np.float64), rtol=1e-15, atol=4 * eps * spread)


def weights_of(rng, n, *, weighted, decay):
    given = rng.random(n) * (rng.random(n) < 0.9) if weighted else None
    weights = np.ones(n) if given is None else given
    rows_after = np.cumsum((weights > 0)[::-1])[::-1] - 1  # rows of weight 0 are no rows, and age nothing
    return given, weights.astype(LONG) * LONG(decay) ** np.maximum(rows_after, 0)


@pytest.mark.covering(2)
@pytest.mark.parametrize("as_csr", [False, True])
@pytest.mark.parametrize("decay", [1.0, 0.99])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mean", [1e3, 1e5])
def test_a_mean_much_larger_than_the_spread(mean, dtype, solver, weighted, decay, as_csr):
    rng = np.random.default_rng(0)
    rows = (mean + rng.standard_normal((500, 10))).astype(dtype)
    given, weights = weights_of(rng, 500, weighted=weighted, decay=decay)
    if as_csr:  # wide enough for the sparse engine
        rows = np.hstack([rows, np.zeros((500, 100), dtype)])
    sketch = fs.FrequentDirections(8, solver=solver, center=True, decay=decay)
    sketch.update(sparse.csr_array(rows) if as_csr else rows, given)
    assert not as_csr or sketch._engine.kind == ("sparse" if solver == "gram" else "dense")
    check(sketch, rows, weights)


@pytest.mark.parametrize("kind", ["dense", "sparse", "exact"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_through_fades_merges_and_files(kind, dtype):
    rng = np.random.default_rng(1)
    rows = np.zeros((300, 90))
    rows[:, :9] = 1e5 + 1e3 * rng.standard_normal(9) + rng.standard_normal((300, 9))
    rows = rows.astype(dtype)
    weights = 10.0 ** rng.integers(-3, 4, 300)
    sketches = []
    for k, part in enumerate(np.split(np.arange(300), [7, 100, 250])):
        sketch = fs.FrequentDirections(5, solver="exact" if kind == "exact" else "gram", center=True)
        for batch in np.array_split(part, 3):
            sketch.update(sparse.csr_array(rows[batch]) if kind == "sparse" else rows[batch], weights[batch])
            sketch = fs.from_bytes(sketch.to_bytes())
        sketches.append(sketch.fade(0.5**k))
        weights[part] *= 0.5**k
    check(fs.merge(sketches), rows, weights)


@pytest.mark.parametrize("as_csr", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_that_are_far_from_all_that_came_before(dtype, as_csr):
    """Light rows at 1e6, then heavy ones at 1, and the other way round: differences from the old mean would be lost."""
    rng = np.random.default_rng(2)
    for first, then in ((1e-12, 1e12), (1e12, 1e-12)):
        rows = np.zeros((80, 60))
        rows[:, :6] = np.where(np.arange(80) < 40, 1e6, 1.0)[:, np.newaxis] + rng.standard_normal((80, 6))
        rows, weights = rows.astype(dtype), np.where(np.arange(80) < 40, first, then)
        sketch = fs.FrequentDirections(4, solver="gram", center=True, buffer_size=9)
        check(sketch.update(sparse.csr_array(rows) if as_csr else rows, weights), rows, weights)


@pytest.mark.parametrize("as_csr", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_scale_that_changes_takes_all_of_the_mean_along(dtype, as_csr):
    """The part of the mean that is beyond its last bit, too: one row is so large that all else is stored divided."""
    rng = np.random.default_rng(5)
    rows = np.zeros((90, 60), dtype)
    rows[:, :6] = 1e3 + rng.standard_normal((90, 6))
    rows[50, 7] = 2.0 ** (SAFE_EXPONENTS[rows.itemsize][1] + 5)
    sketch = fs.FrequentDirections(4, solver="gram", center=True, buffer_size=9)
    for batch in np.split(rows, [45]):
        sketch.update(sparse.csr_array(batch) if as_csr else batch)
    assert np.allclose(sketch.mean[:7], rows[:, :7].mean(axis=0, dtype=LONG).astype(np.float64), rtol=1e-14)


@pytest.mark.parametrize("lacking", [0, 1, 30, 59, 61])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sparse_rows_with_features_that_most_of_them_have(dtype, lacking):
    rng = np.random.default_rng(3)
    n, d = 120, 150
    rows = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.04)
    rows[:, 0] = 1.0  # an intercept
    rows[:, 1] = 1e6 + rng.standard_normal(n)
    rows[rng.permutation(n)[:lacking], 1] = 0.0
    rows = rows.astype(dtype)
    csr = sparse.csr_array(rows)
    csr.data[::7] = 0.0  # explicit zeros
    rows = csr.toarray()
    for weights in (None, np.where(rows[:, 1] == 0, 0.0, 1.0), np.where(np.arange(n) == 70, 1e6, 1.0)):
        sketch = fs.FrequentDirections(6, solver="gram", center=True).update(csr, weights)
        assert sketch._engine.kind == "sparse"
        check(sketch, rows, weights)
    unweighted = fs.FrequentDirections(6, solver="gram", center=True).update(csr, np.zeros(n))
    assert unweighted.squared_norm == 0 and not unweighted.sketch().size


@pytest.mark.parametrize("as_csr", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_rows_have_no_spread(dtype, solver, as_csr):
    rng = np.random.default_rng(4)
    rows = np.tile((1e5 * rng.standard_normal(12)).astype(dtype), (200, 1))
    sketch = fs.FrequentDirections(4, solver=solver, center=True, decay=0.99)
    sketch.update(sparse.csr_array(rows) if as_csr else rows, rng.random(200))
    assert sketch.squared_norm == 0 and sketch.shrinkage == 0 and not sketch.sketch().size
    assert np.array_equal(sketch.mean, rows[0])


@pytest.mark.parametrize("solver", ["gram", "exact"])
def test_long_decay_adds_no_error_of_one_sign(solver):
    """Powers of the rounded root of 0.999 were off by 348 units of rounding after 20,000 rows."""
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((5000, 4))
    weights = LONG(0.999) ** np.arange(4999, -1, -1)
    sketch = fs.FrequentDirections(8, solver=solver, decay=0.999, method="fd").update(rows)
    check_gram = (rows.astype(LONG) * weights[:, np.newaxis]).T @ rows.astype(LONG)
    off = np.abs((check_gram - sketch.gram().astype(LONG)).astype(np.float64)).max()
    assert off <= 100 * np.finfo(np.float64).eps * sketch.squared_norm / 4


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["equal", "outliers"])
def test_sums_that_round_to_one_side(kind, dtype):
    """An exact sum of rows that are alike, or of small rows after a large one: error 10 units of rounding and more."""
    rows = np.full((5000, 2), 0.3)
    if kind == "outliers":
        rows = 0.5 * np.random.default_rng(6).standard_normal((5000, 2))
        rows[255::256] *= 3000
    rows = rows.astype(dtype)
    check(fs.FrequentDirections(8, solver="exact", method="fd").update(rows), rows)


def test_short_blocks_of_a_compressor_are_as_exact():
    rng = np.random.default_rng(7)
    rows = 1e7 + rng.standard_normal((12, 6))
    rows[0] = -1e12  # it does not count
    weights = np.where(np.arange(12) == 0, 0.0, rng.random(12))
    sketch = fs.FrequentDirections(20, compressor="srht", center=True)
    for part in np.array_split(np.arange(12), 3):
        sketch.update(rows[part], weights[part])
    check(sketch, rows, weights)
    check(sketch.copy().merge(sketch), np.vstack([rows, rows]), np.concatenate([weights, weights]))


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("weight", [None, 1e300, 1e-300])
@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_what_leaves_the_range_is_infinite_or_zero(size, weight, solver, center):
    rows = np.random.default_rng(8).standard_normal((50, 10)) * size
    sketch = fs.FrequentDirections(4, solver=solver, center=center)
    with np.errstate(all="raise", under="ignore"):
        sketch.update(rows, weight).merge(sketch.copy())
        sketch.fade(0.5)
        facts = fs.from_bytes(sketch.to_bytes()).facts()
    square = 2 * 500 * LONG(size) ** 2 * LONG(weight or 1.0) / 2
    assert facts["error_bound"] >= 0.0
    if square > np.finfo(np.float64).max:
        assert facts["squared_norm"] == np.inf
    elif square < 1e-320:
        assert facts["squared_norm"] <= 1e-318
    else:
        assert 0.8 * square < facts["squared_norm"] < 1.2 * square
    assert np.isfinite(sketch.singular_values).all() or size == 1e300


@pytest.mark.parametrize("root", [1e-30, 1e30])
def test_rows_of_extreme_weight_stay_in_the_range(root):
    """They wait unweighted, divided by the power of two that suits their weighted selves."""
    rng = np.random.default_rng(9)
    rows = (1e5 * rng.standard_normal((60, 5))).astype(np.float32)
    sketch = fs.FrequentDirections(8, solver="gram", center=True, buffer_size=30)
    sketch.update(rows, np.full(60, root**2))
    assert abs(sketch._engine.exponent) <= SAFE_EXPONENTS[4][2]
    check(sketch, rows, np.full(60, root**2))


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_shrink_that_fails_is_undone(solver, center):
    """Weights that take squares out of the range: the eigensolver refuses them, again and again."""
    rows = np.random.default_rng(0).standard_normal((40, 12))
    sketch = fs.FrequentDirections(6, solver=solver, center=center).update(rows[:2])
    failed = 0
    for _ in range(6):
        before = sketch.to_bytes()
        try:
            sketch.update(rows, sample_weight=1e308)
        except np.linalg.LinAlgError:
            failed += 1
            assert sketch.to_bytes() == before
        with contextlib.suppress(np.linalg.LinAlgError):
            sketch.sketch()
    assert failed or not center or solver == "exact"


@pytest.mark.parametrize("kind", ["srht", "countsketch", "gaussian"])
def test_a_block_of_rows_without_weight_is_kept(kind):
    model = fs.FrequentDirections(6, center=True, compressor=kind).update(np.ones((3, 4)), sample_weight=0.0)
    assert fs.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()
