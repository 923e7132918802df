"""A second pass: intervals that hold and are tiny, certificates that go on holding, states that are checked."""

import gzip

import numpy as np
import pytest
from scipy import sparse

import fastsketch as fs
from fastsketch.data.sources import _source
from fastsketch.reference import second_pass
from fastsketch.sketching import SecondPass
from tests.helpers import DTYPES, KINDS, error_interval, some, stream, tol

ALL = ("fd", "pfd", "cfd", "isvd", "rfd", "tfd")


def seen_as(rows, *, dtype=np.float64, center=False, weights=None):
    """The rows that a sketch stands for, in float64."""
    rows = np.asarray(rows, dtype).astype(np.float64)
    weights = np.ones(len(rows)) if weights is None else weights
    if center and weights.sum() > 0:
        rows = rows - weights @ rows / weights.sum()
    return rows * np.sqrt(weights)[:, np.newaxis]


def check(rows, sketch):
    """Certificate and intervals, against the exact spectrum."""
    low, high = error_interval(rows, sketch)
    top = max(np.linalg.norm(rows, 2) ** 2, 1e-300)
    slack = tol(np.float64, top)
    bound = sketch.error_bound + slack
    assert high <= bound
    assert low >= (-bound if sketch.method in ("cfd", "rfd") else -sketch._read().rounding - slack)
    exact = np.zeros(max(rows.shape[1], sketch.sketch_size))
    found = np.linalg.svd(rows, compute_uv=False) ** 2
    exact[: len(found)] = found
    spectrum = sketch.spectrum()
    exact = exact[: len(spectrum.low)]
    assert (spectrum.low <= exact + slack).all()
    assert (spectrum.high >= exact - slack).all()
    assert ((spectrum.low <= spectrum.values) & (spectrum.values <= spectrum.high)).all()
    return exact, spectrum, top


@pytest.mark.parametrize("case", some(range(240), 96))
def test_random_streams(case):
    rng = np.random.default_rng(case)
    kind, method, dtype = KINDS[case % len(KINDS)], ALL[(case // 8) % 6], DTYPES[(case // 48) % 2]
    n, d, size = int(rng.integers(2, 300)), int(rng.integers(1, 60)), int(rng.integers(2, 20))
    scale = 10.0 ** int(rng.integers(-3, 4)) if case % 7 else (1e150 if dtype == np.float64 else 1e15)
    rows = stream(kind, rng, n, d) * scale
    center = case % 3 == 0
    weights = rng.uniform(0, 2, n) if case % 5 == 0 else None
    solver = ("gram", "svd")[case % 2]
    sketch = fs.FrequentDirections(size, method=method, dtype=dtype, center=center, solver=solver)
    given = sparse.csr_array(rows) if case % 4 == 1 else rows
    sketch.update(given, sample_weight=weights)
    before = sketch.shrinkage + sketch._read().rounding
    order = np.random.default_rng(case).permutation(n)  # as any will do
    sketch.refine(given[order], sample_weight=None if weights is None else weights[order])
    # relative to one, so that the oracle's squares stay in the range
    unit = 1.0 / scale if scale in (1e150, 1e15) else 1.0
    if unit != 1.0:
        exact = np.linalg.svd(seen_as(rows, dtype=dtype, center=center, weights=weights) * unit, compute_uv=False) ** 2
        spectrum = sketch.spectrum()
        r = len(spectrum.low)
        exact = np.pad(exact, (0, r))[:r]
        slack = tol(np.float64, max(exact.max(initial=0.0), 1e-300))
        assert (spectrum.low * unit * unit <= exact + slack).all()
        assert (spectrum.high * unit * unit >= exact - slack).all()
        return
    original = seen_as(rows, dtype=dtype, center=center, weights=weights)
    check(original, sketch)
    assert sketch.shrinkage <= before * (1 + 1e-12)
    assert sketch._certain_high is not None
    # more rows, and a merge: the certificate and the (wider) intervals hold on
    more = stream("signal", rng, n, d) * scale
    if not center and weights is None:
        both = sketch.copy().update(more)
        check(np.vstack([original, seen_as(more, dtype=dtype)]), both)
        other = fs.FrequentDirections(size, method=method, dtype=dtype, solver=solver).update(more).refine(more)
        if type(other._engine) is type(sketch._engine):
            merged = sketch.copy().merge(other)
            assert merged._regained == sketch._regained + other._regained
            assert merged._certain_high is None
            check(np.vstack([original, seen_as(more, dtype=dtype)]), merged)


@pytest.mark.parametrize("method", ALL)
def test_every_method_comes_out_nearly_exact(method):
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((2000, 80)) * 0.9 ** np.arange(80)) @ np.linalg.qr(rng.standard_normal((80, 80)))[0]
    sketch = fs.FrequentDirections(24, method=method, solver="gram").update(rows)
    exact = np.linalg.svd(rows, compute_uv=False)[:10] ** 2
    before = np.abs(sketch.spectrum().values[:10] / exact - 1).max()
    sketch.refine(rows)
    found = sketch.spectrum()
    assert np.abs(found.values[:10] / exact - 1).max() < min(2e-3, before)
    assert ((found.high - found.low)[:10] / exact).max() < 5e-3
    if method == "cfd":  # what the read-out adds is what directions have lost since
        assert np.abs(sketch.singular_values[:10] ** 2 / exact - 1).max() < 2e-3
    # each further pass is a step of subspace iteration
    sketch.refine(rows)
    assert np.abs(sketch.spectrum().values[:10] / exact - 1).max() < 1e-4
    faded = sketch.copy().fade(0.5)
    assert faded._regained == 0.5 * sketch._regained
    assert np.allclose(faded.spectrum().values[:10], 0.5 * exact, rtol=1e-4)


@pytest.mark.parametrize("method", ["fd", "pfd", "isvd"])
@pytest.mark.parametrize("kind", ["noise", "signal", "heavy"])
def test_against_the_reference(kind, method):
    rows = stream(kind, np.random.default_rng(6), 300, 25)
    sketch = fs.FrequentDirections(9, method=method, solver="svd").update(rows)
    squares, directions, estimates, upper = second_pass(rows, sketch.sketch(), delta=sketch.shrinkage)
    found = sketch.refine(rows).spectrum()
    assert sketch._certain_high is not None
    slack = tol(np.float64, 100 * sketch.squared_norm)  # the allowance for rounding is relative to it
    assert np.allclose(found.low, squares, atol=slack, rtol=0)
    assert np.allclose(sketch._certain_high, upper, atol=slack, rtol=0)
    assert (found.high <= upper + slack).all()  # the trace may know more
    assert np.allclose(found.values, np.clip(estimates, found.low, found.high), atol=slack, rtol=0)
    product = (found.vectors.T * found.low) @ found.vectors
    assert np.allclose(product, (directions.T * squares) @ directions, atol=slack, rtol=0)


@pytest.mark.parametrize("center", [False, True])
def test_parts_of_a_second_pass_merge(center):
    rng = np.random.default_rng(7)
    rows = rng.standard_normal((500, 40)) * 0.9 ** np.arange(40) + 1.0
    sketch = fs.FrequentDirections(12, method="tfd", solver="gram", center=center).update(rows)
    whole = sketch.copy().refine(rows)
    parts = [SecondPass.of(sketch).update(part) for part in np.array_split(rows, 4)]
    parts[1] = fs.from_bytes(parts[1].to_bytes())
    again = fs.merge(parts)
    assert again.n_rows == 500 and again.n_features == 40
    assert again.facts()["rows_to_read"] == 500
    found = again.finish()
    assert np.allclose(found.singular_values, whole.singular_values, rtol=1e-10)
    assert np.allclose(found.spectrum().high, whole.spectrum().high, rtol=1e-8)
    assert again.sketch.to_bytes() == sketch.to_bytes()
    other = SecondPass.of(sketch.copy().update(rows[:50]))
    with pytest.raises(ValueError, match="another sketch"):
        again.merge(other.update(rows))
    with pytest.raises(ValueError, match="there is no sketch"):
        SecondPass().update(rows)
    with pytest.raises(ValueError, match="read no rows"):
        SecondPass.of(sketch).finish()
    with pytest.raises(TypeError, match="must be a FrequentDirections"):
        SecondPass.of(again)
    before = again.to_bytes()
    with pytest.raises(ValueError, match="row 17"):
        again.update(np.where(np.arange(500)[:, np.newaxis] == 17, np.inf, rows))
    assert again.to_bytes() == before


@pytest.mark.parametrize("name", ["sketch", "vt", "product", "book", "other"])
def test_crafted_second_passes_are_refused(name):
    rows = np.random.default_rng(8).standard_normal((100, 20))
    again = SecondPass.of(fs.FrequentDirections(8, solver="gram").update(rows)).update(rows)
    state, arrays = again._state()
    again._validate(state, arrays)
    for value in (np.full(3, np.nan), np.ones((2, 2)), np.zeros(4, np.uint8), -np.ones(2)):
        with pytest.raises((ValueError, TypeError)):
            again._validate(state, {**arrays, name: value})
    with pytest.raises((ValueError, TypeError)):
        again._validate(state, {**arrays, "vt": 2 * arrays["vt"]})
    with pytest.raises((ValueError, KeyError)):
        again._validate(state, {key: value for key, value in arrays.items() if key != name} if name in arrays else None)
    with pytest.raises(ValueError):
        again._validate(state, {})  # rows, and nothing of them


def test_rows_are_rounded_as_the_sketch_did():
    rows = np.random.default_rng(9).standard_normal((300, 20)) * np.linspace(3, 0.1, 20)
    sketch = fs.FrequentDirections(8, method="tfd", solver="gram", dtype="float32").update(rows)
    assert np.array_equal(sketch.copy().refine(rows).sketch(), sketch.copy().refine(rows.astype(np.float32)).sketch())
    with pytest.raises(ValueError, match="leave the range"):
        sketch.refine(np.full((300, 20), 1e300))


# -- audit -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", range(48))
def test_audits_are_within_their_accuracy(case):
    rng = np.random.default_rng(case)
    kind, method, dtype = KINDS[case % len(KINDS)], ALL[case % 6], DTYPES[(case // 24) % 2]
    rows = stream(kind, rng, 200, 70)
    center = case % 5 == 0
    sketch = fs.FrequentDirections(int(rng.integers(2, 30)), method=method, dtype=dtype, center=center, solver="gram")
    given = sparse.csr_array(rows) if case % 3 == 0 else rows
    sketch.update(given)
    low, high = error_interval(seen_as(rows, dtype=dtype, center=center), sketch)
    exact, rounding = max(abs(low), abs(high)), sketch._read().rounding
    found = sketch.audit(given)
    assert found.error <= exact * (1 + 1e-9) + rounding
    assert found.error >= 0.99 * exact - rounding
    assert found.error <= found.error_bound * (1 + 1e-9) + rounding
    assert found.error_bound == sketch.error_bound
    assert 1 <= found.passes <= 40


def test_rows_that_come_once_are_not_enough_for_an_audit():
    rows = np.random.default_rng(13).standard_normal((200, 20))
    sketch = fs.FrequentDirections(8, solver="gram").update(rows)
    once = fs.open_rows(rows)
    once.repeatable = False  # as a pipe says of itself
    with pytest.raises(ValueError, match="comes once, and has to be read again: save its rows to a file"):
        sketch.audit(once)


def test_a_finer_audit_takes_more_passes():
    rows = np.random.default_rng(10).standard_normal((2000, 300))
    sketch = fs.FrequentDirections(30, method="fd", solver="gram").update(rows)
    exact = error_interval(rows, sketch)[1]
    coarse, fine = sketch.audit(rows, accuracy=0.1), sketch.audit(rows, accuracy=1e-6)
    assert coarse.passes < fine.passes and fine.accuracy <= 1e-6
    assert abs(fine.error / exact - 1) < 1e-6
    for wrong in (0, -1, 1.5, np.nan, "1"):
        with pytest.raises((ValueError, TypeError), match="accuracy"):
            sketch.audit(rows, accuracy=wrong)
    with pytest.warns(UserWarning, match="not the same rows"):
        sketch.audit(rows[:-1])
    with pytest.raises(ValueError, match="without decay"):
        fs.FrequentDirections(8, decay=0.9).update(rows).audit(rows)
    with pytest.raises(ValueError, match="300 columns"):
        sketch.audit(rows[:, 1:])


@pytest.mark.parametrize("kind", [".npy", ".npz", ".svm", ".svm.gz"])
def test_rows_of_files(tmp_path, monkeypatch, kind):
    rows = np.random.default_rng(11).standard_normal((200, 20)) * np.linspace(3, 0.1, 20)
    rows = rows.round(3) * (np.random.default_rng(12).random(rows.shape) < 0.3)
    path, given = tmp_path / f"rows{kind}", sparse.csr_array(rows)
    monkeypatch.setattr(_source, "CHUNK_BYTES", 4000)
    if kind == ".npy":
        np.save(path, rows)
        given = rows
    elif kind == ".npz":
        sparse.save_npz(path, given)
    else:
        text = "".join(
            "1 " + " ".join(f"{j + 1}:{v:.3f}" for j, v in enumerate(r) if v or j == 19) + "\n" for r in rows
        )
        path.write_bytes(gzip.compress(text.encode()) if kind.endswith(".gz") else text.encode())
    sketch = fs.FrequentDirections(6, method="tfd", solver="gram").update(given)
    expected = sketch.copy().refine(given).singular_values
    for source in (path, str(path), [path], fs.open_rows(path, n_features=20)):
        assert np.allclose(sketch.copy().refine(source).singular_values, expected, rtol=1e-10)
    assert np.isclose(sketch.audit(path).error, sketch.audit(given).error)
    twice = fs.FrequentDirections(6, method="tfd", solver="gram").update(given).update(given)
    assert np.allclose(twice.copy().refine([path, path]).singular_values, np.sqrt(2) * expected, rtol=1e-2)
    heavy = fs.FrequentDirections(6, method="tfd", solver="gram").update(given, np.arange(200.0))
    assert np.allclose(
        heavy.copy().refine(path, np.arange(200.0)).singular_values,
        heavy.copy().refine(given, np.arange(200.0)).singular_values,
        rtol=1e-10,
    )
    for wrong in (199, 201):
        with pytest.raises(ValueError, match="sample_weight must have one entry for each"):
            sketch.refine(path, np.ones(wrong))


def test_continues_well():
    """A refined sketch goes on as one that has not been refined, or better."""
    rng = np.random.default_rng(1)
    turn = np.linalg.qr(rng.standard_normal((100, 100)))[0]
    rows, more = ((rng.standard_normal((3000, 100)) * np.arange(1, 101) ** -0.7) @ turn for _ in range(2))
    exact = np.linalg.svd(np.vstack([rows, more]), compute_uv=False)[:10] ** 2
    for method in ("fd", "pfd", "tfd"):
        plain = fs.FrequentDirections(30, method=method, solver="gram").update(rows)
        refined = plain.copy().refine(rows)
        worst = [np.abs(s.update(more).spectrum().values[:10] / exact - 1).max() for s in (plain, refined)]
        assert worst[1] <= 1.05 * worst[0]


def test_state_keeps_what_is_known():
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((400, 30)) * np.linspace(3, 0.1, 30)
    sketch = fs.FrequentDirections(12, method="fd", solver="gram").update(rows).refine(rows)
    again = fs.from_bytes(sketch.to_bytes())
    for one, other in zip(sketch.spectrum(), again.spectrum(), strict=True):
        assert np.array_equal(one, other)
    assert again.to_bytes() == sketch.to_bytes()
    assert sketch.copy().to_bytes() == sketch.to_bytes()
    empty = fs.FrequentDirections(12, method="fd", solver="gram").merge(sketch)
    assert np.array_equal(empty.spectrum().high, sketch.spectrum().high)
    with pytest.raises(ValueError):
        sketch.update(np.full((100, 30), np.nan))
    assert again.to_bytes() == sketch.to_bytes()
    assert sketch.update(rows[:1])._certain_high is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("certain_high", np.full(11, np.nan)),
        ("certain_high", -np.ones(11)),
        ("certain_high", np.arange(11.0)),
        ("certain_high", np.ones(13)),
        ("estimates", np.full(11, np.nan)),
        ("certain_high", np.ones((3, 3))),
        ("certain_high", np.ones(11, np.float32)),
        ("regained", np.array([np.nan])),
        ("regained", np.array([-1.0])),
        ("regained", np.zeros(2)),
        ("other", np.zeros(2)),
    ],
)
def test_crafted_states_are_refused(name, value):
    rows = np.random.default_rng(3).standard_normal((400, 30))
    sketch = fs.FrequentDirections(12, method="fd", solver="gram").update(rows).refine(rows)
    state, arrays = sketch._state()
    with pytest.raises((ValueError, TypeError)):
        sketch._validate(state, {**arrays, name: value})
    sketch._validate(state, arrays)


def test_rows_that_are_others_are_told():
    rows = np.random.default_rng(4).standard_normal((300, 20))
    sketch = fs.FrequentDirections(8, method="tfd", solver="gram").update(rows)
    before = sketch.to_bytes()
    with pytest.warns(UserWarning, match="not the same rows"):
        sketch.copy().refine(rows[:-1])
    with pytest.warns(UserWarning, match="not the same rows"):
        sketch.copy().refine(rows * 1.01)
    with pytest.raises(ValueError, match="20"):
        sketch.refine(rows[:, :10])
    with pytest.raises(ValueError, match="finite"):
        sketch.refine(np.where(rows > 2, np.nan, rows))
    with pytest.raises(ValueError, match="decay"):
        fs.FrequentDirections(8, decay=0.9).update(rows).refine(rows)
    with pytest.raises(ValueError, match="compressor"):
        fs.FrequentDirections(8, compressor="srht").update(rows).refine(rows)
    with pytest.raises(ValueError, match="no rows"):
        fs.FrequentDirections(8).refine(rows)
    assert sketch.to_bytes() == before


def test_an_exact_sum_needs_no_second_pass():
    rows = np.random.default_rng(5).standard_normal((300, 20))
    sketch = fs.FrequentDirections(8, solver="exact").update(rows)
    before = sketch.to_bytes()
    assert sketch.refine(rows[:5]).to_bytes() == before  # which are checked, and not multiplied
    with pytest.raises(ValueError, match="cannot be read"):
        sketch.refine("no such file.npy")
    with pytest.raises(ValueError, match="column"):
        sketch.refine(rows[:, 1:])


def test_a_sketch_that_has_grown():
    rows = np.random.default_rng(13).standard_normal((1000, 200)) * 0.97 ** np.arange(200)
    sketch = fs.FrequentDirections(8, tolerance=0.01, solver="gram").update(rows)
    again = fs.from_bytes(SecondPass.of(sketch).update(rows).to_bytes()).finish()
    sketch.refine(rows)
    assert fs.from_bytes(sketch.to_bytes()).to_bytes() == sketch.to_bytes()
    assert len(sketch.singular_values) > 8
    assert np.allclose(again.singular_values, sketch.singular_values)
    check(rows, sketch)


def test_a_state_cut_short_is_not_the_state_within():
    """A second pass keeps its sketch as a file of its own."""
    rows = np.random.default_rng(0).standard_normal((40, 12))
    content = SecondPass.of(fs.FrequentDirections(4, solver="gram").update(rows)).to_bytes()
    for end in range(len(content) - 1, 0, -1):
        with pytest.raises(fs.StateError):
            fs.from_bytes(content[:end])


@pytest.mark.parametrize("method", ["tfd", "rfd"])
def test_other_rows_leave_the_sketch_as_it_was(method):
    rows = np.random.default_rng(3).standard_normal((300, 40)) * 0.9 ** np.arange(40)
    sketch = fs.FrequentDirections(8, method=method, solver="gram").update(rows)
    before = sketch.to_bytes()
    for other in (rows[:100], rows * 1.0003, rows[:, ::-1], np.vstack([rows[:-1], rows[-1:] + 0.1])):
        with pytest.warns(UserWarning, match="not the same rows"):
            sketch.refine(other)
        assert sketch.to_bytes() == before
    with pytest.warns(UserWarning, match="float32"):
        sketch.refine(rows.astype(np.float32))
    for empty in (rows[:0], sparse.csr_array((0, 40))):
        with pytest.raises(ValueError, match="has read no rows"):
            sketch.refine(empty)
        with pytest.raises(ValueError, match="has read no rows"):
            sketch.audit(empty)
    assert sketch.to_bytes() == before
    with pytest.warns(UserWarning, match="beyond the bound"):
        sketch.audit(rows[:, ::-1])
    faded = sketch.copy().fade(0.5)
    with pytest.warns(UserWarning, match="not the same rows"):
        faded.refine(rows)


@pytest.mark.parametrize(("buffer_size", "center"), [(0, False), (1, True)])
@pytest.mark.parametrize("method", ["pfd", "tfd"])
def test_a_sketch_that_has_grown_keeps_room_for_another_row(method, buffer_size, center):
    for d in range(4, 12):
        rows = np.random.default_rng(d).standard_normal((40, d))
        sketch = fs.FrequentDirections(
            tolerance=0.3, method=method, solver="gram", buffer_size=buffer_size, center=center
        )
        sketch.update(rows).refine(rows)
        assert fs.from_bytes(sketch.to_bytes()).to_bytes() == sketch.to_bytes()
        assert sketch.error_bound <= 0.3 * sketch.squared_norm


@pytest.mark.parametrize("center", [False, True])
def test_squares_whose_fourth_powers_leave_the_range(center):
    rows = np.random.default_rng(14).standard_normal((60, 12)) + 3.0
    for scale in (1e80, 1e90, 1e99):
        sketch = fs.FrequentDirections(4, solver="gram", center=center).update(rows * scale)
        plain = fs.FrequentDirections(4, solver="gram", center=center).update(rows)
        sketch.refine(rows * scale)
        assert np.allclose(sketch.singular_values / scale, plain.refine(rows).singular_values)


def test_an_audit_beside_a_large_alpha0():
    rows = np.random.default_rng(15).standard_normal((400, 30)) * 1e-6
    errors = [
        fs.FrequentDirections(8, alpha0=alpha0, solver="gram").update(rows).audit(rows).error for alpha0 in (0.0, 1e6)
    ]
    assert errors[0] == errors[1]


@pytest.mark.parametrize("solver", ["gram", "exact"])
@pytest.mark.parametrize("weights", [-np.ones(60), np.ones(59), np.full(60, np.nan), ["a"] * 60, sparse.eye(60)])
def test_wrong_weights_of_rows_that_are_read_again_are_refused(solver, weights):
    rows = np.random.default_rng(0).standard_normal((60, 12))
    sketch = fs.FrequentDirections(4, solver=solver).update(rows)
    before = sketch.spectrum()
    with pytest.raises((TypeError, ValueError), match="sample_weight"):
        sketch.refine(rows, sample_weight=weights)
    assert all(np.array_equal(a, b) for a, b in zip(before, sketch.spectrum(), strict=True))
