"""SketchHash: the algorithms of the paper, codes as numpy packs them, bad input."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fastsketch as fs
from fastsketch import reference
from fastsketch.neighbours.summaries._rotation import itq_rotation, random_rotation
from fastsketch.reference import baselines
from fastsketch.sketching._random_maps import SizedMap
from tests.helpers import same_state, sparse_rows, stream, tol

ROWS = stream("signal", np.random.default_rng(1), 1300, 40) * np.linspace(3, 0.2, 40) + np.linspace(-5, 5, 40)
KINDS = ("srht", "fd", "exact", "countsketch", "sparse", "gaussian", "sampling")


def fresh(method="srht", **options):
    settled = {"block_rows": 100, "rotation": "random", "seed": 3, "reservoir_size": 150, **options}
    return fs.SketchHash(12, method=method, **settled)


@pytest.mark.parametrize("method", KINDS)
def test_a_merge_is_algorithm_3(method):
    """Two models into one: B'B is that of Frequent Directions on both sketches and the correction row."""
    one, two = (fresh(method, part=p).update(ROWS[a:b]) for p, (a, b) in enumerate([(0, 100), (100, 180)]))
    parts = []
    for model in (one, two):
        node = model._read()[0]
        parts.append((node.rows, node.mean, node.n_rows))
    merged = one.merge(two)._read()[0]
    if method == "exact":
        expected = np.cov(ROWS[:180].T, bias=True) * 180
        assert np.allclose(merged.rows, expected)
        return
    b, mean, n = reference.distributed_frosh(parts, 12 if method != "fd" else 23)
    assert n == merged.n_rows
    assert np.allclose(mean, merged.mean)
    stacked = sum(len(rows) for rows, _, _ in parts) + 1
    if stacked > 2 * (12 if method != "fd" else 23):  # else ours has not shrunk yet
        assert np.allclose(merged.rows.T @ merged.rows, b.T @ b)
    else:
        assert len(merged.rows) == stacked


def test_one_block_is_algorithm_1():
    """FROSH with one full block: W of Phi (A - mu) with an explicit H."""
    rows = ROWS[:100]
    model = fresh(rotation=None).update(rows)
    random_map = SizedMap("srht", 12, 100, seed=3)
    numbers = random_map.numbers(0, np.dtype(np.float64))
    sample = numbers.hi * random_map.rows_per_call + numbers.target
    b = reference.subsampled_hadamard(rows - rows.mean(axis=0), signs=numbers.value, sample=sample)
    w = reference.top_directions(b, 12)
    assert np.allclose(np.abs(model.components @ w), np.eye(12), atol=1e-8)


def test_the_subspace_is_that_of_the_references():
    """Mean capture of the exact top subspace: ours against Algorithm 1 and OSH as printed, same sizes."""
    capture = {}
    for seed in range(3):
        rows = stream("signal", np.random.default_rng(seed), 1024, 40) + 3
        exact = np.linalg.svd(rows - rows.mean(axis=0))[2][:6]

        def share(w, exact=exact):
            return np.linalg.norm(exact @ w) ** 2 / 6

        def draw(t, m, seed=seed):
            random_map = SizedMap("srht", 8, m, seed=seed)
            numbers = random_map.numbers(t, np.dtype(np.float64))
            return numbers.value, numbers.hi * random_map.rows_per_call + numbers.target

        b = reference.frosh_sketch([rows], 16, m=128, draw=draw)[0]
        capture.setdefault("printed", []).append(share(reference.top_directions(b, 6)))
        b = reference.online_sketching_hashing([rows], 16)[0]
        capture.setdefault("printed osh", []).append(share(reference.top_directions(b, 6)))
        for method, name in (("srht", "ours"), ("fd", "our osh")):
            model = fs.SketchHash(6, method=method, sketch_size=16, block_rows=128, seed=seed).update(rows)
            capture.setdefault(name, []).append(share(model.components.T))
    mean = {name: np.mean(values) for name, values in capture.items()}
    assert mean["ours"] > mean["printed"] - 0.05
    assert mean["our osh"] > mean["printed osh"] - 0.05
    assert mean["our osh"] > 0.9


@pytest.mark.parametrize("method", KINDS)
@pytest.mark.parametrize("n_bits", [1, 7, 8, 9, 12])
def test_codes_are_numpys_packbits(n_bits, method):
    model = fs.SketchHash(n_bits, method=method, sketch_size=30).update(ROWS)
    for rows in (ROWS, ROWS.astype(np.float32), ROWS[:1]):
        values = model.decision_function(rows)
        assert values.shape == (len(rows), n_bits)
        codes = model.encode(rows)
        assert np.array_equal(codes, np.packbits(values > 0, axis=1, bitorder="little"))
        expected = (rows - model.mean) @ model.projection
        assert np.allclose(values, expected, atol=1e-3 if rows.dtype == np.float32 else 1e-9)
    assert np.array_equal(model.encode(ROWS[3]), model.encode(ROWS)[3:4])
    assert model.encode(np.empty((0, 40))).shape == (0, -(-n_bits // 8))
    basis = model.projection
    assert np.allclose(basis.T @ basis, np.eye(n_bits))


def test_faiss_has_the_same_layout():
    pytest.importorskip("faiss")
    for n_bits in (5, 8, 12, 16):
        model = fs.SketchHash(n_bits).update(ROWS)
        codes = model.encode(ROWS)
        index = model.to_faiss(codes)
        assert (index.d, index.ntotal) == (8 * codes.shape[1], len(ROWS))
        theirs, _ = index.search(codes[:50], 5)
        ours, found = model.search(ROWS[:50], codes, k=5, metric="hamming")
        assert np.array_equal(theirs, ours)
        assert np.array_equal(np.take_along_axis(fs.hamming_distances(codes[:50], codes), found, axis=1), ours)
    with pytest.raises(ValueError, match="2 bytes"):
        model.to_faiss(codes[:, :1])
    with pytest.raises(ValueError, match=r"encode without factors, or give codes\[:, :2\]"):
        model.to_faiss(model.encode(ROWS, factors=True))


def test_to_faiss_without_faiss(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(ImportError, match=r"fastsketch\[faiss\]"):
        fs.SketchHash(4).update(ROWS).to_faiss()


def test_sparse_rows_are_dense_rows():
    rows = sparse_rows(np.random.default_rng(0), 500, 40, 0.2)
    one, two = fresh().update(rows), fresh().update(rows.toarray())
    assert same_state(one, two)
    assert np.array_equal(one.encode(rows), two.encode(rows.toarray()))


def test_a_rank_below_the_bits_is_completed():
    for method in KINDS:
        for rows in (np.zeros((50, 20)), np.outer(np.arange(50.0), np.ones(20)), ROWS[:3, :20]):
            model = fs.SketchHash(8, method=method).update(rows)
            assert np.allclose(model.projection.T @ model.projection, np.eye(8))
            assert model.encode(rows).shape == (len(rows), 1)


def test_auto_is_exact_where_d_is_small():
    assert fs.SketchHash(12, method="auto").update(ROWS).resolved["method"] == "exact"
    assert fs.SketchHash(8, method="auto").update(ROWS).resolved["method"] == "srht"


@pytest.mark.parametrize("power", [-1000, -300, 300, 900])
@pytest.mark.parametrize("method", ["srht", "fd", "exact"])
def test_magnitudes_whose_squares_leave_the_range(method, power):
    if method == "exact" and abs(power) > 400:
        with pytest.raises(ValueError, match="magnitude"):
            fresh(method).update(np.ldexp(ROWS, power))
        return
    plain, scaled = fresh(method).update(ROWS), fresh(method).update(np.ldexp(ROWS, power))
    assert np.allclose(plain.components, scaled.components, atol=1e-6)
    assert np.mean(plain.encode(ROWS) != scaled.encode(np.ldexp(ROWS, power))) < 0.01


def test_itq_with_momentum_comes_as_far_as_fifty_plain_steps():
    """On random rows of falling variance; the rotation is orthogonal in float64."""
    gains = []
    for seed in range(5):
        v = np.random.default_rng(seed).laplace(size=(600, 16)) * np.linspace(4, 1, 16)
        start = random_rotation(16, seed)
        plain, found = start, itq_rotation(v, start)
        for _ in range(50):
            left, _, right = np.linalg.svd(np.where(v @ plain >= 0, 1.0, -1.0).T @ v)
            plain = right.T @ left.T
        assert np.abs(found.T @ found - np.eye(16)).max() < tol(np.float32, 1) ** 2
        gains.append(np.abs(v @ found).sum() / np.abs(v @ plain).sum())
    assert np.mean(gains) > 0.999


def test_itq_is_better_balanced_quantisation():
    """ITQ's own objective, ||sgn(V R) - V R||_F, is smaller than that of the random rotation."""
    loss = {}
    for rotation in ("random", "itq"):
        values = fresh("exact", rotation=rotation).update(ROWS).decision_function(ROWS)
        values /= values.std()
        loss[rotation] = np.linalg.norm(np.where(values > 0, 1, -1) - values)
    assert loss["itq"] < 0.98 * loss["random"]


def test_an_anchor_keeps_codes_comparable():
    model = fs.SketchHash(12, seed=1).update(ROWS[:600])
    old = model.encode(ROWS)
    free, held = model.copy(), model.copy().anchor()
    assert np.allclose(held.projection, model.projection)  # nothing has moved yet
    free.update(ROWS[600:])
    held.update(ROWS[600:])
    changed = {name: np.unpackbits(m.encode(ROWS) ^ old).mean() for name, m in (("free", free), ("held", held))}
    assert changed["held"] < 0.8 * changed["free"]
    assert np.allclose(held.projection.T @ held.projection, np.eye(12))
    # the same subspace, and it survives a save
    assert np.allclose(held.components, free.components)
    assert np.array_equal(fs.from_bytes(held.to_bytes()).projection, held.projection)
    shared = fs.SketchHash(12, seed=1).anchor(model.projection).update(ROWS)
    assert shared.projection.shape == (40, 12)


@pytest.mark.usefixtures("threaded_blas")
def test_many_models_in_threads():
    expected = [fresh(rotation="itq", part=p).update(ROWS).to_bytes() for p in range(16)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda p: fresh(rotation="itq", part=p).update(ROWS).to_bytes(), range(16)))
    assert found == expected


@pytest.mark.parametrize("method", KINDS)
@pytest.mark.parametrize("batch", [2, 60, 700])
def test_a_refused_batch_changes_nothing(batch, method):
    model = fresh(method, rotation="itq").update(ROWS[:250])
    before = model.to_bytes()
    bad = np.array(ROWS[:batch])
    bad[-1, 5] = np.nan
    with pytest.raises(ValueError, match=f"row {batch - 1} holds"):
        model.update(bad)
    assert model.to_bytes() == before
    for rows, error, match in [
        (np.ones((2, 3)), ValueError, "40 columns"),
        (ROWS.astype(complex), TypeError, "real"),
        ([["x"] * 40], TypeError, "real"),
        (np.ones((2, 2, 2)), ValueError, "dimension"),
    ]:
        with pytest.raises(error, match=match):
            model.update(rows)
    assert model.to_bytes() == before


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"n_bits": 0}, ValueError, "n_bits"),
        ({"n_bits": 2.0}, TypeError, "n_bits"),
        ({"method": "x"}, ValueError, "method"),
        ({"sketch_size": 15}, ValueError, "n_bits must be at most 7"),
        ({"sketch_size": 8, "method": "fd"}, ValueError, "n_bits must be at most 7"),
        ({"rotation": "x"}, ValueError, "rotation"),
        ({"rotation": 1}, TypeError, "rotation"),
        ({"block_rows": 7}, ValueError, "block_rows must be at least sketch_size // 2 = 8"),
        ({"seed": -1}, ValueError, "seed"),
        ({"seed": 2**64}, ValueError, "seed"),
        ({"part": -1}, ValueError, "part"),
        ({"part": 2**30}, ValueError, "part"),
        ({"first_block": 2**32}, ValueError, "first_block"),
        ({"reservoir_size": 0}, ValueError, "reservoir_size"),
        ({"dtype": "int8"}, ValueError, "dtype"),
    ],
)
def test_bad_parameters_are_named(options, error, match):
    with pytest.raises(error, match=match):
        fs.SketchHash(**{"n_bits": 8, **options})


def test_more_bits_than_features():
    model = fs.SketchHash(64)
    with pytest.raises(ValueError, match="at most the 40 features"):
        model.update(ROWS)
    assert model.n_features is None


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"seed": 4}, "seed"),
        ({"rotation": "itq"}, "rotation"),
        ({"rotation": None}, "rotation"),
        ({"method": "fd"}, "method"),
        ({"sketch_size": 30}, "sketch_size"),
        ({"block_rows": 200}, "block_rows"),
        ({"n_bits": 10}, "n_bits"),
    ],
)
def test_models_of_other_parameters_do_not_merge(options, match):
    one = fresh().update(ROWS[:100])
    before = one.to_bytes()
    other = {"n_bits": 12, "block_rows": 100, "rotation": "random", "seed": 3, "reservoir_size": 150, **options}
    with pytest.raises(ValueError, match=match):
        one.merge(fs.SketchHash(**other, part=1).update(ROWS[100:200]))
    assert one.to_bytes() == before


def test_models_that_do_not_merge():
    one = fresh().update(ROWS[:300])
    before = one.to_bytes()
    for other, error, match in [
        (fresh().update(ROWS[:300]), ValueError, "block 0 of part 0 has already been merged"),
        (fresh(first_block=2).update(ROWS[:300]), ValueError, "block 2 of part 0"),
        (fresh(part=1).update(ROWS[:300, :30]), ValueError, "n_features=30"),
        (fresh(part=1).update(ROWS[:300].astype(np.float32)), ValueError, "dtype float32"),
        (fs.FrequentDirections(4), TypeError, "FrequentDirections"),
        (baselines.LSH(12), TypeError, "LSH"),
    ]:
        with pytest.raises(error, match=match):
            one.merge(other)
        assert one.to_bytes() == before
    sealed = fresh().update(ROWS[:300]).seal()
    with pytest.raises(ValueError, match="already been merged"):
        sealed.merge(fresh(first_block=3).update(ROWS[300:]))
    assert same_state(fresh().update(ROWS), fresh().merge(fresh()).update(ROWS))


def test_an_unfitted_model_says_so():
    model = fs.SketchHash(4)
    for use in (
        lambda: model.encode(ROWS),
        lambda: model.decision_function(ROWS),
        lambda: model.projection,
        lambda: model.components,
        lambda: model.search(ROWS, np.zeros((3, 1), np.uint8), k=1),
        model.anchor,
    ):
        with pytest.raises(ValueError, match="no rows"):
            use()
    assert (model.n_rows, model.n_features, model.mean) == (0, None, None)
    assert (model.resolved["dtype"], model.resolved["block_rows"]) == (None, None)
    assert same_state(fs.from_bytes(model.to_bytes()), model)
    model.update(np.empty((0, 40)))
    with pytest.raises(ValueError, match="no rows"):
        model.encode(ROWS)


def test_bad_queries():
    model = fs.SketchHash(12).update(ROWS)
    codes = model.encode(ROWS)
    for rows, error, match in [
        (ROWS[:, :5], ValueError, "40 columns"),
        (ROWS * np.nan, ValueError, "row 0 holds"),
        (ROWS.astype(complex), TypeError, "real"),
    ]:
        with pytest.raises(error, match=match):
            model.encode(rows)
    with pytest.raises(ValueError, match="2 bytes|3 bytes"):
        model.search(ROWS[:2], np.zeros((4, 3), np.uint8), k=1)
    with pytest.raises(ValueError, match="at most the 1300 codes"):
        model.search(ROWS[:2], codes, k=1301)
    with pytest.raises(ValueError, match="at most the 0 codes"):
        model.search(ROWS[:2], codes[:0], k=1)
    for bad in (np.ones((40, 3)), np.full((40, 12), np.nan)):
        with pytest.raises(ValueError, match="projection"):
            model.anchor(bad)


# -- the frame -------------------------------------------------------------------------------------------------------
def test_parameters_are_verbatim_and_resolved_ones_are_in_use():
    model = fs.SketchHash(4, method="auto")
    assert (model.method, model.sketch_size, model.block_rows, model.rotation, model.dtype) == (
        "auto",
        None,
        None,
        "itq",
        None,
    )
    assert (model.resolved["method"], model.resolved["sketch_size"]) == ("auto", 8)
    model.update(ROWS.astype(np.float32))
    assert model.method == "auto" and model.sketch_size is None
    in_use = {name: model.resolved[name] for name in ("method", "sketch_size", "block_rows", "dtype")}
    assert in_use == {"method": "srht", "sketch_size": 8, "block_rows": 160, "dtype": np.float32}
    assert fs.SketchHash(1, method="fd").resolved["sketch_size"] == 3
    facts = model.facts()
    assert (facts["kind"], facts["n_rows"], facts["n_features"], facts["dtype"]) == ("SketchHash", 1300, 40, "float32")
    assert repr(fs.SketchHash(4, method="fd")) == "<SketchHash(n_bits=4, method='fd'): no rows yet>"


@pytest.mark.parametrize(
    ("use", "error", "match"),
    [
        (lambda: fs.SketchHash(4, "fd"), TypeError, r"at most 1 positional \(n_bits\), got 2"),
        (lambda: fs.SketchHash(4, metod="fd"), TypeError, "did you mean 'method'"),
        (lambda: fs.SketchHash(), TypeError, "needs n_bits"),
    ],
)
def test_unknown_names(use, error, match):
    with pytest.raises(error, match=match):
        use()


def test_the_size_that_is_the_default_may_be_given():
    one = fresh().update(ROWS[:300])
    one.merge(fresh(part=1, sketch_size=24).update(ROWS[300:]))
    assert one.n_rows == 1300


def test_reading_the_mean_learns_nothing():
    model = fresh().update(ROWS)
    assert np.allclose(model.mean, ROWS.mean(axis=0))
    assert model.shrinkage > 0
    assert model._learned is None
    assert np.array_equal(model.mean, model._read().node.mean)


# -- files -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["srht", "fd", "exact"])
def test_damaged_states_are_refused(method):
    content = bytearray(fresh(method, rotation="itq").update(ROWS).to_bytes())
    for place in range(200, len(content) - 100, max(1, len(content) // 40)):
        bad = content.copy()
        bad[place] ^= 0xFF
        try:
            model = fs.from_bytes(bytes(bad))
        except fs.StateError:
            continue
        assert model.to_bytes() == bytes(content)  # a byte that nothing depends on


@pytest.mark.parametrize("rotation", ["random", "itq"])
@pytest.mark.parametrize("method", ["srht", "countsketch", "sparse"])
def test_memory_is_that_of_a_few_sketches_not_of_a_block(method, rotation):
    """d = 2,000, l = 32, m = 8,000: a block of rows is 128 MB, l d is 0.5 MB; 2.5 blocks, read-out included.

    "itq" samples 500 rows, 8 MB: it holds the sample, the rows that wait for a place in it, and a copy at read-out.
    """
    batch = np.random.default_rng(0).standard_normal((100, 2000))
    model = fs.SketchHash(16, method=method, block_rows=8000, rotation=rotation, reservoir_size=500).update(batch[:1])
    tracemalloc.start()
    for _ in range(200):
        model.update(batch)
    _ = model.projection
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (16 * 32 + (4 * 500 if rotation == "itq" else 0)) * 2000 * 8


def test_an_empty_model_takes_over_the_place_of_what_it_takes_in():
    rows = np.random.default_rng(0).standard_normal((300, 12))
    third, fifth = (fs.SketchHash(4, part=part).update(rows).seal() for part in (3, 5))
    for models in (
        [fs.SketchHash(4), third, fifth],
        [third, fs.SketchHash(4), fifth],
        [fifth, third, fs.SketchHash(4)],
    ):
        assert fs.merge(models).part == 3
    assert fs.SketchHash(4).merge(third).to_bytes() == third.copy().merge(fs.SketchHash(4)).to_bytes()
