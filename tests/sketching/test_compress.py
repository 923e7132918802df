"""Random maps in front of a sketch: unbiased, linear, the same whatever the batches, resumable."""

import pickle

import numpy as np
import pytest

import fastsketch as fs
from fastsketch import reference
from fastsketch.sketching._random_maps import SizedMap
from tests.helpers import DTYPES, same_state, sparse_rows, stream, tol

KINDS = ("srht", "countsketch", "sparse", "gaussian", "sampling")
RNG = np.random.default_rng(0)


def matrix(kind, q, m, seed=0, index=0):
    """Phi (q x m) itself: what the map makes of the identity."""
    return fs.Compressor(kind, q, block_rows=m, seed=seed).compress(np.eye(m), index)


# (sum of value * position, of targets, of hi) for q = 4, m = 40, seed 7, block 2, as first released
GOLDEN = {
    "srht": (4.0, 10, 14),
    "countsketch": (592.0, 95, 0),
    "sparse": (1555.0, 384, 0),
    "gaussian": (-1740.875839, 0, 0),
    "sampling": (227.683992, 6, 0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_unbiased_over_seeds(kind):
    """E[Phi' Phi] = I: every entry of the mean over 2,000 seeds lies within 5 of its standard errors.

    With 300 different entries a right map fails with probability below 300 * 6e-7 = 2e-4; the seeds are fixed, so it
    either does or does not.
    """
    m, q, n = 24, 8, 2000
    squares = np.stack([matrix(kind, q, m, seed).T @ matrix(kind, q, m, seed) for seed in range(n)])
    mean, error = squares.mean(axis=0), squares.std(axis=0) / np.sqrt(n)
    assert (np.abs(mean - np.eye(m)) <= 5 * error + 1e-12).all()
    assert squares.std() > 0.1  # it is random


@pytest.mark.parametrize("kind", KINDS)
def test_linear_and_a_function_of_its_arguments(kind):
    a = RNG.standard_normal((100, 7))
    phi = matrix(kind, 10, 100, seed=5, index=3)
    c = fs.Compressor(kind, 10, block_rows=100, seed=5)
    assert np.allclose(c.compress(a, 3), phi @ a)
    assert np.array_equal(c.compress(a, 3), c.compress(a, 3))
    assert not np.allclose(phi, matrix(kind, 10, 100, seed=5, index=4))
    assert not np.allclose(phi, matrix(kind, 10, 100, seed=6, index=3))


def test_the_numbers_do_not_change_between_versions():
    """Golden numbers: a state file that is resumed must meet the same signs and samples."""
    compressor = fs.Compressor("srht", 2, block_rows=8, seed=7)
    assert fs.sketching.srht(np.eye(8), 2, seed=7).tolist() == compressor.compress(np.eye(8)).tolist()
    numbers = {kind: SizedMap(kind, 4, 40, seed=7).numbers(2, np.dtype(np.float64)) for kind in KINDS}
    sums = {
        kind: (
            round(float(np.dot(d.value, np.arange(d.value.size))), 6),
            int(d.target.sum()),
            int(d.hi.sum()),
        )
        for kind, d in numbers.items()
    }
    assert sums == GOLDEN


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_any_batches_give_the_same_bits(kind, center, dtype):
    rows = (stream("signal", RNG, 1003, 9) + 10).astype(dtype)
    weights = RNG.random(1003)
    for w in (None, weights):
        options = {"compressor": fs.Compressor(kind, 12, block_rows=100), "center": center, "solver": "gram"}
        whole = fs.FrequentDirections(12, **options).update(rows, w)
        parts, i = fs.FrequentDirections(12, **options), 0
        while i < len(rows):
            step = int(RNG.integers(1, 250))
            parts.update(rows[i : i + step], None if w is None else w[i : i + step])
            i += step
            if step % 3 == 0:
                parts = fs.from_bytes(parts.to_bytes())
            if step % 3 == 1:
                parts = pickle.loads(pickle.dumps(parts))
        assert same_state(whole, parts)
        if center:
            expected = np.average(rows.astype(np.float64), axis=0, weights=w)
            assert np.allclose(whole.mean, expected, rtol=0, atol=tol(dtype, 20))


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_kept_whole_is_nearly_isometric(kind):
    """Centring and weights are folded in: with q near m the estimate is that of the centred weighted rows."""
    rows = stream("signal", RNG, 1500, 6) + 100
    weights = RNG.random(1500)
    s = fs.FrequentDirections(1401, solver="gram", compressor=fs.Compressor(kind, 1400, block_rows=1500), center=True)
    s.update(rows, weights)
    moved = rows - np.average(rows, axis=0, weights=weights)
    truth = (moved * weights[:, np.newaxis]).T @ moved
    assert np.linalg.norm(s.gram() - truth, 2) < 0.2 * np.linalg.norm(truth, 2)
    assert abs(s.squared_norm / np.trace(truth) - 1) < 0.2
    assert np.isclose(s.total_weight, weights.sum())


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_falls_as_it_should(kind):
    """Over ten seeds the mean error with q rows of m lies near that of the theory, sqrt(d_eff / q), not far above."""
    rows = RNG.standard_normal((512, 20)) * np.linspace(1, 0.1, 20)
    truth = rows.T @ rows
    errors = []
    for q in (64, 256):
        found = [fs.Compressor(kind, q, block_rows=512, seed=s).compress(rows) for s in range(10)]
        errors.append(np.mean([np.linalg.norm(c.T @ c - truth, 2) for c in found]) / np.linalg.norm(truth, 2))
    assert errors[1] < 0.75 * errors[0]
    assert errors[0] < 1.0


def explicit_blocks(rows, sized_map, center):
    """Rows for Frequent Directions: the blocks of a stream mapped by an explicit H."""
    out, mean, n = [], None, 0
    for index, start in enumerate(range(0, len(rows), sized_map.block_rows)):
        block = rows[start : start + sized_map.block_rows]
        mu = block.mean(axis=0) if center else 0.0
        out.append(
            block - mu
            if len(block) <= sized_map.rows_out
            else reference.subsampled_hadamard(block - mu, **signs_and_sample(sized_map, index))
        )
        if center and mean is not None:
            out.append(np.sqrt(n * len(block) / (n + len(block))) * (mu - mean)[np.newaxis])
        mean = mu if mean is None else (n * mean + len(block) * mu) / (n + len(block))
        n += len(block)
    return np.vstack(out)


def signs_and_sample(sized_map, index):
    numbers = sized_map.numbers(index, np.dtype(np.float64))
    return {"signs": numbers.value, "sample": numbers.hi * sized_map.rows_per_call + numbers.target}


@pytest.mark.parametrize("n", [1, 20, 64, 65, 70, 200, 1000, 1010])
@pytest.mark.parametrize("center", [False, True])
def test_fast_frequent_directions_is_fd_of_explicit_blocks(center, n):
    rows = stream("signal", RNG, n, 30) + 5
    compressor = fs.Compressor("srht", 16, block_rows=64, seed=4)
    fast = fs.FrequentDirections(16, solver="gram", compressor=compressor, center=center).update(rows)
    blocks = explicit_blocks(rows, SizedMap("srht", 16, 64, seed=4), center)
    slow = fs.FrequentDirections(16, solver="gram", buffer_size=16).update(blocks)
    scale = np.linalg.svd(slow.sketch(), compute_uv=False).max(initial=0.0) ** 2  # one row: centred, nothing
    assert np.allclose(fast.gram(), slow.gram(), rtol=0, atol=tol(np.float64, 100 * scale))
    assert np.isclose(fast.shrinkage, slow.shrinkage, atol=tol(np.float64, 100 * scale))
    assert fast.n_rows == n


def test_algorithm_2_and_ours_have_like_errors():
    """Same random numbers: ours shrinks when the buffer is full, the printed algorithm after every block."""
    ours, printed = [], []
    for seed in range(5):
        rows = stream("signal", np.random.default_rng(seed), 640, 40)
        compressor = fs.Compressor("srht", 16, block_rows=64, seed=seed)

        def draw(t, m, sized_map=SizedMap("srht", 16, 64, seed=seed)):  # noqa: B008
            return tuple(signs_and_sample(sized_map, t).values())

        b, left, t = reference.faster_frequent_directions(rows, 32, m=64, draw=draw)
        assert (len(left), t) == (0, 10)
        truth = rows.T @ rows
        printed.append(np.linalg.norm(truth - b.T @ b, 2))
        sketch = fs.FrequentDirections(16, method="fd", solver="gram", compressor=compressor).update(rows)
        ours.append(np.linalg.norm(truth - sketch.gram(), 2))
    assert np.mean(ours) < 1.1 * np.mean(printed)


@pytest.mark.parametrize("kind", KINDS)
def test_merge_is_exact_in_the_mean_and_counts(kind):
    rows = stream("signal", RNG, 900, 12) + 7
    make = lambda first: fs.FrequentDirections(  # noqa: E731
        20, solver="gram", compressor=fs.Compressor(kind, 20, block_rows=100, first_block=first), center=True
    )
    one, two = make(0).update(rows[:450]), make(100).update(rows[450:])
    before = two.to_bytes()
    merged = one.merge(two)
    assert two.to_bytes() == before
    assert merged.n_rows == 900
    assert np.allclose(merged.mean, rows.mean(axis=0))
    other = make(0).update(rows[:450])
    assert same_state(merged, other.merge(two))


@pytest.mark.parametrize("solver", ["gram", "svd", "exact"])
def test_a_merge_holds_the_mapped_rows_of_both(solver):
    rows = RNG.standard_normal((400, 12))
    make = lambda first: fs.FrequentDirections(  # noqa: E731
        4, solver=solver, compressor=fs.Compressor("srht", 4, block_rows=40, first_block=first)
    )
    one, two = make(0).update(rows[:200]), make(100).update(10 * rows[200:])
    both = one.squared_norm + two.squared_norm
    assert np.isclose(one.merge(two).squared_norm, both)
    assert np.isclose(np.linalg.norm(one.sketch(), 2), np.linalg.norm(two.sketch(), 2), rtol=0.05)


def test_heavy_rows_are_what_sets_the_maps_apart():
    """One heavy row in 4,000: sampling misses it, every other map keeps its direction."""
    rows = RNG.standard_normal((4000, 50))
    rows[1234] = 0
    rows[1234, 7] = 3000.0
    found = {}
    for kind in KINDS:
        s = fs.FrequentDirections(
            20, solver="gram", compressor=fs.Compressor(kind, 20, block_rows=1000, seed=1)
        ).update(rows)
        found[kind] = abs(s.components[0, 7])
    assert min(found[kind] for kind in KINDS if kind != "sampling") > 0.99
    assert found["sampling"] < 0.9


def test_fade_and_weight():
    s = fs.FrequentDirections(8, compressor="srht").update(RNG.standard_normal((100, 5)))
    before = s.gram()
    s.fade(0.25)
    assert np.isclose(s.total_weight, 25)
    assert np.allclose(s.gram(), 0.25 * before)


def test_sparse_rows_are_dense_rows():
    rows = sparse_rows(np.random.default_rng(0), 700, 30, 0.1)
    one = fs.FrequentDirections(8, compressor="srht", center=True).update(rows)
    assert same_state(one, fs.FrequentDirections(8, compressor="srht", center=True).update(rows.toarray()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [3, 50, 500])
def test_a_refused_batch_changes_nothing(batch, dtype):
    s = fs.FrequentDirections(6, compressor=fs.Compressor("srht", 6, block_rows=40), center=True)
    s.update(RNG.standard_normal((70, 5)).astype(dtype))
    before = s.to_bytes()
    bad = RNG.standard_normal((batch, 5)).astype(dtype)
    bad[-1, 2] = np.inf
    with pytest.raises(ValueError, match=f"row {batch - 1} holds"):
        s.update(bad)
    assert s.to_bytes() == before
    bad[-1, 2] = np.finfo(dtype).max / 2
    with pytest.raises(ValueError, match="magnitude"):
        s.update(bad)
    assert s.to_bytes() == before


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"kind": "x"}, ValueError, "kind"),
        ({"kind": None}, TypeError, "kind"),
        ({"rows_out": 0}, ValueError, "rows_out"),
        ({"rows_out": 9, "block_rows": 8}, ValueError, "block_rows must be at least rows_out"),
        ({"block_rows": 1.5}, TypeError, "block_rows"),
        ({"seed": -1}, ValueError, "seed"),
        ({"seed": 2**64}, ValueError, "seed"),
        ({"first_block": -1}, ValueError, "first_block"),
    ],
)
def test_bad_parameters(options, error, match):
    with pytest.raises(error, match=match):
        fs.Compressor(**options)


def test_bad_uses():
    with pytest.raises(TypeError, match="compressor must be"):
        fs.FrequentDirections(4, compressor=3)
    with pytest.raises(ValueError, match="kind"):
        fs.FrequentDirections(4, compressor="x")
    with pytest.raises(ValueError, match="decay"):
        fs.FrequentDirections(4, compressor="srht", decay=0.5)
    with pytest.raises(ValueError, match="rows_out"):
        fs.Compressor("srht").compress(np.ones((4, 2)))
    with pytest.raises(ValueError, match="one block of 8"):
        fs.Compressor("srht", 2, block_rows=8).compress(np.ones((9, 2)))
    a, b = (fs.FrequentDirections(4, compressor=fs.Compressor("srht", 4, seed=s)) for s in (0, 1))
    a.update(np.ones((3, 2)))
    b.update(np.ones((3, 2)))
    with pytest.raises(ValueError, match="compressor"):
        a.merge(b)
    with pytest.raises(ValueError, match="compressor"):
        a.merge(fs.FrequentDirections(4).update(np.ones((3, 2))))


def test_a_compressor_by_its_kind_reads_as_given_and_merges_with_itself():
    rows = stream("signal", RNG, 300, 12)
    by_name = fs.FrequentDirections(8, compressor="srht").update(rows)
    by_object = fs.FrequentDirections(8, compressor=fs.Compressor("srht", first_block=50)).update(rows)
    assert by_name.compressor == "srht"
    assert by_name.resolved["compressor"] == fs.Compressor("srht", 8, block_rows=48)
    assert by_object.compressor == fs.Compressor(first_block=50)
    assert by_name.copy().merge(by_object).n_rows == by_object.copy().merge(by_name).n_rows == 600
    for sketch in (by_name, by_object):
        again = fs.from_bytes(sketch.to_bytes())
        assert (again.parameters, again.to_bytes()) == (sketch.parameters, sketch.to_bytes())


def test_a_compressor_is_a_value():
    compressor = fs.Compressor("gaussian", 4)
    assert compressor == fs.Compressor(kind="gaussian", rows_out=4) != fs.Compressor("gaussian", 5)
    with pytest.raises(AttributeError):
        compressor.rows_out = 5
    with pytest.raises(TypeError):
        fs.Compressor("srht", 4, 8)
    public = [name for name in dir(compressor) if not name.startswith("_")]
    assert public == ["block_rows", "compress", "first_block", "kind", "rows_out", "seed"]


@pytest.mark.parametrize("kind", ["srht", "countsketch", "sparse", "gaussian", "sampling"])
def test_rows_too_large_to_be_mapped_leave_no_trace(kind):
    rows = np.random.default_rng(0).standard_normal((60, 12)).astype(np.float32)
    for model in (fs.FrequentDirections(5, compressor=kind), fs.SketchHash(4, method=kind)):
        model.update(rows)
        before = model.to_bytes()
        for n in (1, 3, 500):
            bad = np.zeros((n, 12), np.float32)
            bad[-1] = 1e37
            with pytest.raises(ValueError, match="in magnitude to be compressed"):
                model.update(bad)
            assert model.to_bytes() == before
        model.update(rows)


@pytest.mark.parametrize("kind", ["srht", "countsketch", "sparse", "gaussian", "sampling"])
def test_nothing_is_said_to_be_certain(kind):
    """Three directions among zeros: what a map leaves of them may be anything."""
    rows = np.zeros((400, 40))
    rows[np.arange(0, 400, 130), np.arange(4)] = 30.0
    sketch = fs.FrequentDirections(8, compressor=fs.Compressor(kind, 8, block_rows=200, seed=1))
    assert sketch.error_bound == 0.0
    sketch.update(rows)
    assert sketch.error_bound == sketch.facts()["relative_error_bound"] == np.inf
    found = sketch.spectrum()
    assert not found.low.any() and np.isinf(found.high).all() and np.isfinite(found.values).all()
