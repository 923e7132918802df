"""A precision instead of a size: the certificate meets it at any moment, with a sketch near the smallest that does."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import fastsketch as fs
from fastsketch import reference
from fastsketch.sketching._engines._setting import SHARE, STEP
from tests.helpers import KINDS, error_interval, stream, tol

METHODS = ("fd", "pfd", "cfd", "isvd", "rfd", "tfd")
WAYS = ("squared_norm", "largest_eigenvalue")


def allowed(sketch):
    """What the tolerance allows, from the sketch alone."""
    if sketch.tolerance_relative_to == "squared_norm":
        return sketch.tolerance * sketch.squared_norm
    longest = float(sketch.singular_values.max(initial=0.0))
    added = sketch.shrinkage if sketch.method == "cfd" else 0.0
    return sketch.tolerance * (longest**2 - added - sketch._read().rounding)


def meets(sketch):
    return sketch.error_bound <= allowed(sketch) * (1 + 1e-12) or sketch.squared_norm == 0.0


def factors(rng, n, d, power=1.0):
    """Rows with a spectrum that falls like a power, on directions of their own."""
    q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return (rng.standard_normal((n, d)) * np.arange(1, d + 1) ** -power) @ q


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tolerance", [0.1, 0.02, 0.006])
def test_it_is_the_reference(tolerance, way):
    rows = factors(np.random.default_rng(0), 600, 60)
    sketch = fs.FrequentDirections(4, solver="svd", tolerance=tolerance, tolerance_relative_to=way, method="fd").update(
        rows
    )
    b, delta, size = reference.growing_frequent_directions(
        rows, 4, tolerance=tolerance, share=SHARE, factor=STEP, counts=1.0, of_largest=way == "largest_eigenvalue"
    )
    scale = np.linalg.norm(rows, 2) ** 2
    assert sketch.resolved["sketch_size"] == size
    assert len(sketch.sketch()) == len(b)
    assert sketch.shrinkage == pytest.approx(delta, abs=tol(float, scale))
    np.testing.assert_allclose(sketch.sketch().T @ sketch.sketch(), b.T @ b, atol=tol(float, scale))


def made(case):
    """A sketch with a tolerance, and the (weighted) rows that it has seen: parameters by the number of the case."""
    rng = np.random.default_rng(case)
    kind, method, way = KINDS[case % len(KINDS)], METHODS[case % len(METHODS)], WAYS[case // 2 % 2]
    d, n, dtype = int(rng.integers(3, 60)), int(rng.integers(1, 400)), (np.float64, np.float32)[case // 4 % 2]
    rows = stream(kind, rng, n, d)
    weights = rng.random(n) * 2 if case % 3 == 0 else None
    center, as_csr = case % 5 == 0, case % 7 == 0
    solver = ("gram", "svd", "exact", "auto")[case // 3 % 4]
    tolerance = float(10 ** rng.uniform(-2.5, -0.5))
    if as_csr:
        rows[np.abs(rows) < np.quantile(np.abs(rows), 0.9)] = 0.0
    rows = rows.astype(dtype)
    sketch = fs.FrequentDirections(
        method=method, solver=solver, tolerance=tolerance, tolerance_relative_to=way, center=center, dtype=dtype
    )
    start = 0
    while start < n:
        stop = start + int(rng.integers(1, 100))
        part = sparse.csr_array(rows[start:stop]) if as_csr else rows[start:stop]
        sketch.update(part, None if weights is None else weights[start:stop])
        assert meets(sketch)
        start = stop
    seen = rows.astype(np.float64)
    w = np.ones(n) if weights is None else weights
    if center:
        seen = seen - (w[:, np.newaxis] * seen).sum(axis=0) / w.sum()
    return sketch, np.sqrt(w)[:, np.newaxis] * seen


@pytest.mark.parametrize("case", range(168))
def test_the_tolerance_holds_at_any_moment_and_is_true(case):
    sketch, rows = made(case)
    slack = tol(np.float64, max(np.linalg.norm(rows, 2) ** 2, 1e-300))
    low, high = error_interval(rows, sketch)
    assert max(-low, high) <= sketch.error_bound + slack
    values = np.linalg.eigvalsh(rows.T @ rows)[::-1]
    whole = values.sum() if sketch.tolerance_relative_to == "squared_norm" else values[0]
    assert sketch.error_bound <= sketch.tolerance * whole + slack + tol(sketch.resolved["dtype"], values[0])
    found = sketch.spectrum()
    size = len(found.values)
    assert (found.low <= values[:size] + slack).all()
    assert (values[:size] <= found.high + slack).all()


@given(
    seed=st.integers(0, 2**32 - 1),
    parts=st.integers(2, 6),
    tolerance=st.floats(0.005, 0.3),
    method=st.sampled_from(METHODS),
    solver=st.sampled_from(["gram", "svd", "exact"]),
    center=st.booleans(),
)
def test_merges_keep_the_tolerance(seed, parts, tolerance, method, solver, center):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(5, 40))
    pieces = [
        factors(rng, int(rng.integers(1, 150)), d, float(rng.uniform(0, 1.5))) + center * rng.standard_normal(d)
        for _ in range(parts)
    ]
    sketches = [
        fs.FrequentDirections(method=method, solver=solver, tolerance=tolerance, center=center).update(piece)
        for piece in pieces
    ]
    sizes = [sketch.resolved["sketch_size"] for sketch in sketches]
    whole = fs.merge(sketches)
    assert meets(whole)
    assert whole.resolved["sketch_size"] >= max(sizes)
    rows = np.vstack(pieces)
    if center:
        rows = rows - rows.mean(axis=0)
    low, high = error_interval(rows, whole)
    slack = tol(np.float64, np.linalg.norm(rows, 2) ** 2)
    assert max(-low, high) <= whole.error_bound + slack
    assert whole.squared_norm == pytest.approx((rows**2).sum())
    assert meets(whole.update(pieces[0]))


@pytest.mark.covering(2)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["gram", "svd", "csr", "exact", "auto"])
@pytest.mark.parametrize("center", [False, True])
def test_sketches_of_different_sizes_merge(method, kind, center):
    rng = np.random.default_rng(3)
    d = 380  # "auto" is exact for l = 20, and not for 6
    rows = rng.standard_normal((60, d))
    if kind == "csr":
        rows[np.abs(rows) < np.quantile(np.abs(rows), 0.95)] = 0.0
    solver = "gram" if kind == "csr" else kind
    take = sparse.csr_array if kind == "csr" else np.asarray
    small, large = (
        fs.FrequentDirections(size, method=method, solver=solver, center=center).update(take(part))
        for size, part in ((6, rows[:25]), (20, rows[25:]))
    )
    seen = rows - rows.mean(axis=0) if center else rows
    for one, two in ((small, large), (large, small)):
        both = one.copy().merge(two)
        assert both.resolved["sketch_size"] == 20
        assert both.sketch_size == one.sketch_size
        assert len(both.sketch()) <= 20
        low, high = error_interval(seen, both)
        slack = tol(np.float64, np.linalg.norm(seen, 2) ** 2)
        assert max(-low, high) <= both.error_bound + slack
        assert both.squared_norm == pytest.approx((seen**2).sum())
        again = fs.from_bytes(both.to_bytes())
        again.update(take(rows[:50]))
        both.update(take(rows[:50]))
        assert again.to_bytes() == both.to_bytes()
    empty = fs.FrequentDirections(30, method=method, solver=solver, center=center)
    assert empty.merge(small).resolved["sketch_size"] == 30
    assert fs.from_bytes(empty.to_bytes()).update(take(rows)).n_rows == 85


def test_sizes_of_compressed_sketches_agree():
    one, two = (fs.FrequentDirections(size, compressor="srht").update(np.eye(4)) for size in (5, 6))
    with pytest.raises(ValueError, match="sketch_size"):
        one.merge(two)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("method", ["rfd", "tfd"])
@pytest.mark.parametrize("kind", ["gram", "svd", "csr", "auto", "buffer"])
def test_batches_copies_and_files_give_the_same_bits(kind, method, center):
    rng = np.random.default_rng(4)
    rows = factors(rng, 260, 400 if kind == "auto" else 50)  # "auto" goes over to the exact sum on its way
    weights = rng.random(len(rows))
    if kind == "csr":
        rows[np.abs(rows) < np.quantile(np.abs(rows), 0.9)] = 0.0
        rows = sparse.csr_array(rows)
    rows = rows * 2.0**-8  # one scale for every batch
    solver = {"csr": "gram", "buffer": "gram"}.get(kind, kind)
    parameters = {
        "solver": solver,
        "method": method,
        "center": center,
        "decay": 0.999,
        "tolerance": 0.002 if kind == "auto" else 0.02,
    }
    if kind == "buffer":
        parameters["buffer_size"] = 3
    whole = fs.FrequentDirections(**parameters).update(rows, weights)
    assert whole.resolved["sketch_size"] > whole.sketch_size
    assert (whole.resolved["solver"] == "exact") == (kind == "auto")
    singly, saved = (fs.FrequentDirections(**parameters) for _ in range(2))
    for i in range(rows.shape[0]):
        singly.update(rows[i : i + 1], weights[i : i + 1])
    for start in range(0, rows.shape[0], 37):
        saved = fs.from_bytes(saved.to_bytes())
        saved.update(rows[start : start + 37], weights[start : start + 37])
        saved.error_bound  # noqa: B018  reading changes nothing
    assert singly.to_bytes() == whole.to_bytes() == saved.to_bytes() == whole.copy().to_bytes()
    assert np.array_equal(singly.sketch(), saved.sketch())


def test_the_sketch_is_near_the_smallest():
    rng = np.random.default_rng(5)
    for rows in (factors(rng, 3000, 120, 0.7), rng.standard_normal((3000, 120))):
        for tolerance in (0.03, 0.01):
            sketch = fs.FrequentDirections(tolerance=tolerance, solver="gram").update(rows)

            def good(size, rows=rows, tolerance=tolerance):
                one = fs.FrequentDirections(size, solver="gram").update(rows)
                return one.error_bound <= tolerance * one.squared_norm

            least = next(size for size in range(2, 200) if good(size))
            assert len(sketch.singular_values) <= least
            assert sketch.resolved["sketch_size"] <= 1.5 * least


def test_a_bound_on_the_size_warns_once_and_the_certificate_tells_the_truth():
    rows = np.random.default_rng(6).standard_normal((800, 60))
    sketch = fs.FrequentDirections(tolerance=0.01, max_sketch_size=12, solver="gram")
    with pytest.warns(UserWarning, match="=12 is reached; raise max_sketch_size or the tolerance;") as found:
        for part in np.array_split(rows, 10):
            sketch.update(part)
        bound = sketch.error_bound
    assert len(found) == 1
    assert found[0].filename == __file__
    assert sketch.resolved["sketch_size"] == 12
    assert len(sketch.sketch()) <= 12
    assert bound > 0.01 * sketch.squared_norm
    low, high = error_interval(rows, sketch)
    assert max(-low, high) <= bound
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loose = fs.FrequentDirections(tolerance=0.1, max_sketch_size=12, solver="gram").update(rows)
        assert meets(loose)


def test_what_rounding_or_merges_leave_no_room_for_is_said():
    rows = factors(np.random.default_rng(7), 300, 40).astype(np.float32)
    sketch = fs.FrequentDirections(tolerance=1e-9, solver="gram").update(rows)
    with pytest.warns(UserWarning, match="rounding.*; raise the tolerance;"):
        assert sketch.error_bound > 0
    assert sketch.resolved["sketch_size"] <= 41


def test_an_interrupted_growth_is_undone(monkeypatch):
    from fastsketch.sketching._engines import DenseEngine

    rows = factors(np.random.default_rng(8), 900, 80)
    for after in (1, 2, 3):
        sketch = fs.FrequentDirections(tolerance=0.01, solver="gram").update(rows[:5])
        before, calls = sketch.to_bytes(), 0
        resized = DenseEngine.resized

        def stopping(self, sketch_size, resized=resized, after=after):
            nonlocal calls
            calls += 1
            larger = resized(self, sketch_size)
            if calls == after:
                raise KeyboardInterrupt
            return larger

        with monkeypatch.context() as patch:
            patch.setattr(DenseEngine, "resized", stopping)
            with pytest.raises(KeyboardInterrupt):
                sketch.update(rows)
        assert sketch.to_bytes() == before
        assert (
            sketch.update(rows[5:]).to_bytes()
            == fs.FrequentDirections(tolerance=0.01, solver="gram").update(rows).to_bytes()
        )


def test_a_refused_row_after_growth_leaves_no_trace():
    rows = factors(np.random.default_rng(9), 900, 80)
    sketch = fs.FrequentDirections(tolerance=0.01, solver="gram").update(rows[:5])
    before = sketch.to_bytes()
    rows[-1, 3] = np.nan
    with pytest.raises(ValueError, match="row 899"):
        sketch.update(rows)
    assert sketch.to_bytes() == before


@pytest.mark.parametrize("value", [0, 1, 0.0, 1.0, -1, 2])
def test_bad_tolerances(value):
    with pytest.raises(ValueError, match=rf"^tolerance must lie in \(0, 1\), both excluded, got {value:g}$"):
        fs.FrequentDirections(tolerance=value)


def test_bad_to_say_what_a_tolerance_is_relative_to_without_one():
    with pytest.raises(ValueError, match="tolerance_relative_to belongs to tolerance"):
        fs.FrequentDirections(tolerance_relative_to="largest_eigenvalue")
    fs.FrequentDirections(tolerance_relative_to="squared_norm")


def test_parameters_read_as_given():
    sketch = fs.FrequentDirections(tolerance=0.1)
    assert sketch.sketch_size == sketch.resolved["sketch_size"] == 4
    assert fs.FrequentDirections(tolerance=0.1, max_sketch_size=3).sketch_size == 3
    assert fs.FrequentDirections().sketch_size == 64
    assert fs.RobustFrequentDirections(tolerance=0.1).tolerance_relative_to == "squared_norm"
    rows = np.random.default_rng(0).standard_normal((200, 900))
    sketch.update(rows)
    assert sketch.sketch_size == 4 < sketch.resolved["sketch_size"]
    assert type(sketch)(**sketch.parameters).parameters == sketch.parameters
    assert sketch.facts()["sketch_size"] == sketch.resolved["sketch_size"]


def test_fading_and_growing():
    rng = np.random.default_rng(10)
    sketch = fs.FrequentDirections(tolerance=0.02, method="fd", solver="gram")
    for _ in range(20):
        sketch.update(factors(rng, 60, 50)).fade(0.7)
        assert meets(sketch)


def test_refined_sketches_go_on():
    rows = factors(np.random.default_rng(11), 500, 50)
    sketch = fs.FrequentDirections(tolerance=0.02, solver="gram").update(rows)
    before = sketch.error_bound
    sketch.refine(rows)
    assert sketch.error_bound <= before * (1 + 1e-9)
    assert fs.from_bytes(sketch.to_bytes()).update(rows).to_bytes() == sketch.update(rows).to_bytes()
    assert meets(sketch)


@pytest.mark.parametrize("seed", [8, 11, 13])
def test_a_size_beyond_the_columns_does_not_grow(seed):
    """Rounding takes more than the tolerance of what decay has left: there is no larger l to go to."""
    rows = np.random.default_rng(seed).standard_normal((90, 1)) * 10.0 ** np.linspace(-30, 15, 90)[:, np.newaxis]
    sketch = fs.FrequentDirections(
        9,
        tolerance=0.02,
        tolerance_relative_to="largest_eigenvalue",
        method="fd",
        center=True,
        decay=0.97,
        buffer_size=4,
        solver="gram",
    )
    assert sketch.update(rows.astype(np.float32)).resolved["sketch_size"] == 9
