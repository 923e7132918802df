"""SketchQuantizer: codes and decoded rows, searches, anchors, bad input."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.neighbours.quantizing._book_encoder import BookEncoder
from tests.helpers import DTYPES, same_state, sparse_rows, stream, tol

RNG = np.random.default_rng(0)
ROWS = stream("signal", np.random.default_rng(1), 1300, 40) * np.linspace(3, 0.2, 40) + np.linspace(-5, 5, 40)
KINDS = ("exact", "fd", "srht", "gaussian", "sampling")


def fresh(method="exact", n_bytes=8, **options):
    settled = {"block_rows": 100, "sketch_size": 24, "seed": 3, "reservoir_size": 150, **options}
    return fs.SketchQuantizer(n_bytes, method=method, **settled)


def same_codes(one, two):
    """Whether two models make the same codes, decode and answer alike."""
    codes = one.encode(ROWS)
    return (
        one.encoder().fingerprint == two.encoder().fingerprint
        and np.array_equal(codes, two.encode(ROWS))
        and np.array_equal(one.decode(codes), two.decode(codes))
    )


@pytest.mark.parametrize("method", ["srht", "fd", "exact", "countsketch", "sparse", "gaussian", "sampling"])
def test_not_a_byte_of_a_state_depends_on_the_batches(method):
    """Nor on what lay in the working space of whole steps of a map."""
    rows = np.random.default_rng(0).standard_normal((100, 20))
    whole = fs.SketchQuantizer(8, method=method).update(rows)
    assert fs.SketchQuantizer(8, method=method).update(rows[:37]).update(rows[37:]).to_bytes() == whole.to_bytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_bytes", [2, 4, 7, 8, 20, 41])
def test_codes_are_of_the_row_alone(n_bytes, dtype):
    """Whatever batch a row comes in, and whether it is dense or sparse, its code has the same bits."""
    rows = ROWS.astype(dtype)
    model = fresh(n_bytes=n_bytes, sketch_size=84).update(rows)
    codes = model.encode(rows)
    assert codes.shape == (1300, n_bytes) and codes.dtype == np.uint8
    assert np.array_equal(codes, np.vstack([model.encode(rows[i : i + 77]) for i in range(0, 1300, 77)]))
    assert np.array_equal(codes[:20], np.vstack([model.encode(row) for row in rows[:20]]))
    assert np.array_equal(codes[::-1], model.encode(rows[::-1]))
    assert np.array_equal(codes, model.encode(np.asfortranarray(rows)))
    assert model.encode(np.empty((0, 40))).shape == (0, n_bytes)
    assert model.decode(codes[:0]).shape == (0, 40)
    assert np.array_equal(model.decode(codes)[5:7], model.decode(codes[5:7]))


def test_more_bytes_decode_better():
    left = []
    for n_bytes in (2, 5, 8, 12, 20, 41):
        model = fresh(n_bytes=n_bytes, sketch_size=84, reservoir_size=2000).update(ROWS)
        error = model.decode(model.encode(ROWS)) - ROWS
        left.append(np.sum(error**2) / np.sum((ROWS - ROWS.mean(axis=0)) ** 2))
    assert left == sorted(left, reverse=True)
    assert left[0] < 0.8 and left[2] < 0.1 and left[-1] < 1e-3


@pytest.mark.parametrize("metric", ["euclidean", "inner_product", "cosine"])
def test_estimates_are_near_the_truth(metric):
    model = fresh(n_bytes=24, sketch_size=84, reservoir_size=2000).update(ROWS)
    codes, queries = model.encode(ROWS), ROWS[:50] + 0.01
    found, at = model.search(queries, codes, k=10, metric=metric)
    length = np.linalg.norm(ROWS, axis=1)
    truth = {
        "euclidean": np.linalg.norm(queries[:, None] - ROWS[at], axis=2),
        "inner_product": np.einsum("id,ijd->ij", queries, ROWS[at]),
        "cosine": np.einsum("id,ijd->ij", queries, ROWS[at]) / (np.linalg.norm(queries, axis=1)[:, None] * length[at]),
    }[metric]
    scale = {"euclidean": 5.0, "inner_product": float(np.mean(length**2)), "cosine": 1.0}[metric]
    assert np.abs(found - truth).mean() < 0.1 * scale
    if metric == "euclidean":
        assert np.mean(at[:, 0] == np.arange(50)) > 0.9


def test_search_is_that_of_the_encoder():
    model = fresh().update(ROWS)
    codes, encoder = model.encode(ROWS), model.encoder()
    for one, two in zip(model.search(ROWS[:5], codes, k=3), encoder.search(ROWS[:5], codes, k=3), strict=True):
        assert np.array_equal(one, two)
    with pytest.raises(ValueError, match="hamming"):
        model.search(ROWS[:5], codes, metric="hamming")
    model.update(ROWS * 1.1)
    assert model.encoder() != encoder
    assert np.array_equal(encoder.encode(ROWS), codes)


def test_an_encoder_can_be_sent():
    encoder = fresh().update(ROWS).encoder()
    for twin in (pickle.loads(pickle.dumps(encoder)), copy.deepcopy(encoder)):
        assert twin == encoder and hash(twin) == hash(encoder)
        assert np.array_equal(twin.encode(ROWS), encoder.encode(ROWS))


def test_sparse_rows_are_dense_rows():
    rows = sparse_rows(np.random.default_rng(0), 500, 40, 0.2)
    one, two = fresh().update(rows), fresh().update(rows.toarray())
    assert same_state(one, two)
    codes = one.encode(rows)
    assert np.mean(codes != two.encode(rows.toarray())) < 0.01  # rounding may show
    assert np.array_equal(one.search(rows[:5], codes)[1], two.search(rows[:5].toarray(), codes)[1])
    assert np.array_equal(codes[7:9], one.encode(rows[7:9]))


@pytest.mark.covering(1)
@pytest.mark.parametrize("n_bytes", [2, 8, 21])
@pytest.mark.parametrize("method", KINDS)
def test_few_rows_and_low_ranks(method, n_bytes):
    for rows in (np.zeros((50, 20)), np.full((50, 20), 3.5), np.outer(np.arange(50.0), np.ones(20)), ROWS[:3, :20]):
        for some in (rows, rows[:1]):
            model = fresh(method, n_bytes, sketch_size=44).update(some)
            decoded = model.decode(model.encode(some))
            spread = np.abs(some - some.mean(axis=0)).max()
            assert np.abs(decoded - some).max() <= tol(np.float32, 60) + spread
            found = model.search(some[:2], model.encode(some), k=1)[0]
            assert np.isfinite(found).all()


def test_auto_is_exact_where_that_is_cheap():
    assert fs.SketchQuantizer(8).update(ROWS).resolved["method"] == "exact"
    wide = np.random.default_rng(0).standard_normal((60, 1100))
    assert fs.SketchQuantizer(4, block_rows=40).update(wide).resolved["method"] == "srht"
    assert fs.SketchQuantizer(4, sketch_size=1100).update(wide).resolved["method"] == "exact"


@pytest.mark.parametrize("power", [-900, -300, 300, 900])
@pytest.mark.parametrize("method", ["srht", "fd", "exact"])
def test_codes_do_not_depend_on_the_unit_of_the_rows(method, power):
    if method == "exact" and abs(power) > 400:
        with pytest.raises(ValueError, match="magnitude"):
            fresh(method).update(np.ldexp(ROWS, power))
        return
    plain, scaled = fresh(method).update(ROWS), fresh(method).update(np.ldexp(ROWS, power))
    changed = np.mean(plain.encode(ROWS) != scaled.encode(np.ldexp(ROWS, power)))
    assert changed < (0.01 if abs(power) <= 300 else 0.5)  # what shrinks took is a square: it leaves the range


def test_rows_far_from_all_that_was_learned():
    model = fresh().update(ROWS)
    far = np.vstack([ROWS[:2] * 1e6, ROWS[:2] * 1e300, -ROWS[:2] * 1e-300])
    codes = model.encode(far)
    assert np.isfinite(model.decode(codes)).all()
    for metric in ("euclidean", "inner_product", "cosine"):
        found = model.search(ROWS[:3], codes, k=6, metric=metric)[0]
        assert np.isfinite(found).all()


# -- anchors ---------------------------------------------------------------------------------------------------------
def test_an_anchor_keeps_old_codes_of_use():
    turn = np.linalg.qr(np.eye(40) + 0.1 * np.random.default_rng(5).standard_normal((40, 40)))[0]
    model = fs.SketchQuantizer(10, seed=1).update(ROWS[:600])
    old, later = model.encode(ROWS[:600]), (ROWS[600:] - ROWS.mean(axis=0)) @ turn + ROWS.mean(axis=0)
    encoder = model.encoder()
    free, held = model.copy(), model.copy().anchor()
    assert held.encoder().fingerprint != "" and np.mean(held.encode(ROWS[:600]) != old) < 0.01  # nothing has moved yet
    free.update(later)
    held.update(later)
    error = {name: np.sum((m.decode(old) - ROWS[:600]) ** 2) for name, m in (("free", free), ("held", held))}
    assert error["held"] < 0.5 * error["free"]
    basis = held.encoder().basis.astype(float)
    assert np.allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-5)
    assert np.array_equal(held.encoder().mean, encoder.mean)
    # and it survives a save, a copy, and the way to other models of the job
    assert same_codes(fs.from_bytes(held.to_bytes()), held)
    assert same_codes(held.copy(), held)
    assert fs.SketchQuantizer(10, seed=1).anchor(encoder).update(ROWS).encoder().width == 10


def test_bad_anchors():
    model = fresh().update(ROWS)
    before = model.to_bytes()
    for bad, error, match in [
        (fresh(n_bytes=9).update(ROWS).encoder(), ValueError, "codes of 8 bytes of rows of 40 features, got 9 bytes"),
        (fresh().update(ROWS[:, :30]).encoder(), ValueError, "got 8 bytes of 30 features"),
        (np.eye(40, 8), TypeError, "ndarray"),
        (model, TypeError, "SketchQuantizer"),
    ]:
        with pytest.raises(error, match=match):
            model.anchor(bad)
    assert model.to_bytes() == before


# -- threads --------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("threaded_blas")
@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_same_bits_on_any_number_of_threads(n):
    rows = np.random.default_rng(0).standard_normal((3000, 200)) * np.linspace(2, 0.1, 200)
    expected = fs.SketchQuantizer(16).update(rows)
    codes = expected.encode(rows)
    with fs.thread_limit(n):
        found = fs.SketchQuantizer(16).update(rows)
        assert same_state(found, expected)
        assert np.array_equal(found.encode(rows), codes)
        assert np.array_equal(found.decode(codes), expected.decode(codes))


def test_many_readers_of_one_model():
    model = fresh().update(ROWS)
    expected = fresh().update(ROWS).encode(ROWS)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: model.encode(ROWS), range(16)))
    assert all(np.array_equal(codes, expected) for codes in found)


# -- bad input -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"n_bytes": 0}, ValueError, "n_bytes"),
        ({"n_bytes": 1}, ValueError, "n_bytes must be at least 2, 1 of them for the factor"),
        ({"n_bytes": 2.0}, TypeError, "n_bytes"),
        ({"n_bytes": 1 << 20}, ValueError, "n_bytes"),
        ({"method": "x"}, ValueError, "method"),
        ({"block_rows": 7, "sketch_size": 16}, ValueError, "block_rows must be at least sketch_size // 2 = 8"),
        ({"seed": -1}, ValueError, "seed"),
        ({"part": 2**30}, ValueError, "part"),
        ({"reservoir_size": 0}, ValueError, "reservoir_size"),
        ({"dtype": "int8"}, ValueError, "dtype"),
    ],
)
def test_bad_parameters_are_named(options, error, match):
    with pytest.raises(error, match=match):
        fs.SketchQuantizer(**{"n_bytes": 8, **options})


def test_more_bytes_than_the_rows_can_use():
    model = fs.SketchQuantizer(42)
    with pytest.raises(ValueError, match="n_bytes must be at most 41, 8 bits for each of the 40 features"):
        model.update(ROWS)
    assert model.n_features is None
    with pytest.raises(ValueError, match="sketch_size=4 keeps 3 directions with method='fd'"):
        fs.SketchQuantizer(8, method="fd", sketch_size=4).update(ROWS)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"seed": 4}, "seed"),
        ({"method": "fd"}, "method"),
        ({"sketch_size": 30}, "sketch_size"),
        ({"block_rows": 200}, "block_rows"),
        ({"n_bytes": 10}, "n_bytes"),
        ({"reservoir_size": 10}, "reservoir_size"),
    ],
)
def test_models_of_other_parameters_do_not_merge(options, match):
    one = fresh().update(ROWS[:100])
    before = one.to_bytes()
    with pytest.raises(ValueError, match=match):
        one.merge(fresh(**options, part=1).update(ROWS[100:200]))
    assert one.to_bytes() == before


def test_models_that_do_not_merge():
    one = fresh().update(ROWS[:300])
    before = one.to_bytes()
    for other, error, match in [
        (fresh().update(ROWS[:300]), ValueError, "block 0 of part 0 has already been merged"),
        (fresh(part=1).update(ROWS[:300, :30]), ValueError, "n_features=30"),
        (fresh(part=1).update(ROWS[:300].astype(np.float32)), ValueError, "dtype float32"),
        (fs.SketchHash(4).update(ROWS[:300]), TypeError, "SketchQuantizer, got SketchHash"),
    ]:
        with pytest.raises(error, match=match):
            one.merge(other)
        assert one.to_bytes() == before
    with pytest.raises(TypeError, match="SketchHash, got SketchQuantizer"):
        fs.SketchHash(4).update(ROWS[:300]).merge(one)
    assert same_state(fresh().update(ROWS), fresh().merge(fresh()).update(ROWS))


@pytest.mark.parametrize("method", KINDS)
@pytest.mark.parametrize("batch", [2, 700])
def test_a_refused_batch_changes_nothing(batch, method):
    model = fresh(method).update(ROWS[:250])
    before = model.to_bytes()
    bad = np.array(ROWS[:batch])
    bad[-1, 5] = np.nan
    with pytest.raises(ValueError, match=f"row {batch - 1} holds"):
        model.update(bad)
    assert model.to_bytes() == before


def test_an_unfitted_model_says_so():
    model = fs.SketchQuantizer(4)
    for use in (
        lambda: model.encode(ROWS),
        lambda: model.decode(np.zeros((3, 4), np.uint8)),
        lambda: model.components,
        lambda: model.variances,
        lambda: model.search(ROWS, np.zeros((3, 4), np.uint8), k=1),
        model.encoder,
        model.anchor,
    ):
        with pytest.raises(ValueError, match="no rows"):
            use()
    assert (model.n_rows, model.n_features, model.mean) == (0, None, None)
    assert same_state(fs.from_bytes(model.to_bytes()), model)
    model.update(np.empty((0, 40)))
    with pytest.raises(ValueError, match="no rows"):
        model.encode(ROWS)


def test_bad_rows_queries_and_codes():
    model = fresh().update(ROWS)
    codes, bad = model.encode(ROWS), ROWS[:400].copy()
    bad[300, 4] = np.inf
    for rows, error, match in [
        (ROWS[:, :5], ValueError, "40 columns"),
        (ROWS * np.nan, ValueError, "row 0 holds"),
        (bad, ValueError, "row 300 holds"),
        (ROWS.astype(complex), TypeError, "real"),
    ]:
        with pytest.raises(error, match=match):
            model.encode(rows)
        with pytest.raises(error, match=match.replace("row", "queries|row")):
            model.search(rows, codes)
    for wrong, error, match in [
        (codes[:, :5], ValueError, "8 bytes, as this model makes them, got 5"),
        (codes.astype(int), TypeError, "uint8"),
        (codes[None], ValueError, "shape"),
    ]:
        with pytest.raises(error, match=match):
            model.decode(wrong)
        with pytest.raises(error, match=match):
            model.search(ROWS[:2], wrong)
    with pytest.raises(ValueError, match="at most the 1300 codes"):
        model.search(ROWS[:2], codes, k=1301)


# -- the frame -------------------------------------------------------------------------------------------------------
def test_parameters_facts_and_repr():
    model = fs.SketchQuantizer(4)
    assert (model.resolved["method"], model.resolved["sketch_size"]) == ("auto", 48)
    model.update(ROWS.astype(np.float32))
    facts = model.facts()
    assert (facts["kind"], facts["n_bytes"], facts["method"], facts["dtype"]) == (
        "SketchQuantizer",
        4,
        "exact",
        "float32",
    )
    assert repr(model) == "<SketchQuantizer(n_bytes=4): 1300 rows of 40 features>"
    assert np.allclose(np.sort(model.variances)[::-1], model.variances)
    assert model.components.shape == (24, 40)
    expected = np.var(ROWS @ model.components.T, axis=0)
    assert np.allclose(model.variances, expected, rtol=1e-2)


# -- files -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["srht", "fd", "exact"])
def test_damaged_states_are_refused(method):
    content = bytearray(fresh(method).update(ROWS).anchor().to_bytes())
    for place in range(200, len(content) - 100, max(1, len(content) // 40)):
        bad = content.copy()
        bad[place] ^= 0xFF
        try:
            model = fs.from_bytes(bytes(bad))
        except fs.StateError:
            continue
        assert model.to_bytes() == bytes(content)  # a byte that nothing depends on


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("n_features", 41, "encoder must make|shape"),
        ("n_features", 2**40, "n_features"),
        ("length", 0.0, "length"),
        ("length", 3e-320, "length"),
        ("outside", float("nan"), "outside"),
        ("lowest", 1e300, "lowest"),
        ("lowest", None, "lowest"),
        ("layout", {"n_tables": 3}, "layout"),
    ],
)
def test_states_of_an_encoder_that_are_none(name, value, match):
    state, arrays = fresh().update(ROWS).encoder().state()
    assert BookEncoder.of_state(state, arrays).fingerprint == fresh().update(ROWS).encoder().fingerprint
    with pytest.raises((ValueError, TypeError), match=match):
        BookEncoder.of_state({**state, name: value}, arrays)


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("mean", lambda a: a[:-1], "mean"),
        ("mean", lambda a: a * np.nan, "finite"),
        ("basis", lambda a: a.T, "basis"),
        ("basis", lambda a: a[:, :0], "basis"),
        ("basis", lambda a: a.astype(np.float64), "basis"),
        ("start", lambda a: a + 1, "start.*ascend from 0"),
        ("start", lambda a: a[::-1], "start.*ascend from 0"),
        ("start", lambda a: a.astype(np.int64), "start.*int32"),
        ("start", lambda a: a[:-1], "blocks of directions"),
        ("start", lambda a: a * 2, "shape|directions of the basis"),
        ("first", lambda a: a[:1], "first.*int32"),
        ("first", lambda a: a * 3, "no code of this layout"),
        ("words", lambda a: a[:-1], "words"),
        ("words", lambda a: a * np.inf, "finite"),
        ("words", lambda a: a + 1e30, "words"),
        ("weights", lambda a: -a, "positive"),
        ("inside", lambda a: a[:0], "inside"),
        ("more", lambda a: np.zeros(3), "more"),
    ],
)
def test_arrays_of_an_encoder_that_are_none(name, change, match):
    state, arrays = fresh().update(ROWS).encoder().state()
    with np.errstate(invalid="ignore"):
        changed = {**arrays, name: change(arrays.get(name))}
    with pytest.raises((ValueError, TypeError), match=match):
        BookEncoder.of_state(state, changed)


@pytest.mark.parametrize("method", ["fd", "srht", "sampling", "exact"])
def test_an_anchor_may_have_more_directions_than_the_sketch(method):
    rows = np.random.default_rng(5).standard_normal((800, 120)) * np.geomspace(3, 0.1, 120)
    anchor = fs.SketchQuantizer(20).update(rows).encoder()
    model = fs.SketchQuantizer(20, method=method, sketch_size=40, block_rows=100).anchor(anchor)
    for n in (1, 2, 30, 767):
        basis = model.update(rows[:n]).encoder().basis
        assert basis.shape == anchor.basis.shape
        assert np.allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-5)
